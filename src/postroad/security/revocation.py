"""Whether a certificate was revoked, by the revocation lists and OCSP answers at hand.

Nothing is fetched here: whoever has the lists and answers brings them along, with the time as of
which the certificate is judged. A list or an answer counts only if its signature is by the issuer
of the certificate (an OCSP answer also by a responder that the issuer appointed), and only proves
good standing while it is current. A revocation counts from its date on, in a list that ran out too.

Delta lists and indirect lists are refused: neither says by itself which certificates are good.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtensionOID
from msgspec import Struct

from postroad.security.certificates import (
    UNREADABLE,
    CertificateFacts,
    SignatureParameters,
    extension,
    is_signature_of,
    read_certificate,
    signed_by,
    stamp,
    weak_digest,
    weak_name,
)
from postroad.security.distinguished import REMEMBERED, NameKey, name_key, relative_names
from postroad.security.key_purposes import OCSP_SIGNING

_PEM_BEGIN: Final = b"-----BEGIN X509 CRL-----"
_PEM_END: Final = b"-----END X509 CRL-----"
_MOST_CERTIFICATES: Final = 4
"""Certificates of an OCSP answer among which the responder's is sought."""
_STATUS: Final[dict[ocsp.OCSPCertStatus, Literal["good", "revoked", "unknown"]]] = {
    ocsp.OCSPCertStatus.GOOD: "good",
    ocsp.OCSPCertStatus.REVOKED: "revoked",
    ocsp.OCSPCertStatus.UNKNOWN: "unknown",
}
OcspKey = tuple[bytes, int]
"""The public key of the issuer, and the serial number."""


class RevocationError(ValueError):
    """A revocation list or an OCSP answer that cannot be used; the sentence says why."""


class Checked(Struct, frozen=True):
    """What is known about the revocation of one certificate, and from where."""

    subject: str
    status: Literal["good", "revoked", "unknown"]
    detail: str
    stale: bool = False
    """There are lists of its issuer, and none of them is current."""


@dataclass(frozen=True, slots=True, eq=False)
class RevocationList:
    """A revocation list; told apart by identity."""

    crl: x509.CertificateRevocationList = field(repr=False)
    issuer: NameKey
    this_update: datetime
    next_update: datetime | None
    weak_digest: str | None
    covers_users: bool
    covers_authorities: bool
    size: int
    """Bytes, about."""
    points: frozenset[str] | None
    """The distribution points whose certificates it covers; None: all of the issuer's."""
    _dates: dict[int, datetime | None] = field(default_factory=dict, init=False, repr=False)
    _signers: dict[bytes, bool] = field(default_factory=dict, init=False, repr=False)

    def covers(self, facts: CertificateFacts) -> bool:
        """Whether a certificate of its issuer would be in it once it is revoked."""
        if self.points is not None and not self.points & set(facts.crl_urls):
            return False
        return self.covers_authorities if facts.is_ca else self.covers_users

    def revoked_at(self, serial: int) -> datetime | None:
        """When a certificate was revoked; remembered, since a large list takes milliseconds."""
        if serial not in self._dates:
            if len(self._dates) >= REMEMBERED:
                self._dates.clear()
            found = self.crl.get_revoked_certificate_by_serial_number(serial)
            self._dates[serial] = None if found is None else found.revocation_date_utc
        return self._dates[serial]

    def is_signed_by(self, issuer: CertificateFacts) -> bool:
        """Whether the key of the issuer made its signature."""
        key = issuer.public_key
        if key not in self._signers:
            if len(self._signers) >= REMEMBERED:
                self._signers.clear()
            self._signers[key] = _is_signed(self.crl, issuer.certificate)
        return self._signers[key]


def _is_signed(crl: x509.CertificateRevocationList, issuer: x509.Certificate) -> bool:
    try:
        key = issuer.public_key()
        if isinstance(
            key,
            rsa.RSAPublicKey
            | ec.EllipticCurvePublicKey
            | dsa.DSAPublicKey
            | ed25519.Ed25519PublicKey
            | ed448.Ed448PublicKey,
        ):
            return crl.is_signature_valid(key)
    except (UnsupportedAlgorithm, ValueError, TypeError):
        pass
    return False


@dataclass(frozen=True, slots=True)
class OcspAnswer:
    """What a responder said about one certificate; its signature was verified."""

    status: Literal["good", "revoked", "unknown"]
    this_update: datetime
    next_update: datetime | None
    revoked_at: datetime | None
    responder: str


@dataclass(frozen=True, slots=True, eq=False)
class Revocation:
    """The lists and answers at hand, and what it means when they do not tell.

    `hard`: a certificate whose status is not known is refused, else it is accepted. `historical`:
    the time asked for is past, so that what was issued later counts too.
    """

    lists: tuple[RevocationList, ...] = ()
    answers: Mapping[OcspKey, OcspAnswer] = field(default_factory=lambda: MappingProxyType({}))
    failures: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Why nothing was learned from an address that was asked."""
    hard: bool = False
    historical: bool = False
    wanted: bool = False
    """Somebody wants to know, though nothing may be known yet."""
    skew: timedelta = timedelta(minutes=5)
    answer_age: timedelta = timedelta(hours=12)
    """How long an OCSP answer counts that does not say when the next one comes."""
    _by_issuer: Mapping[NameKey, Sequence[RevocationList]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found: dict[NameKey, list[RevocationList]] = {}
        for one in self.lists:
            found.setdefault(one.issuer, []).append(one)
        object.__setattr__(self, "_by_issuer", found)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known, and nothing need be."""
        return not (self.wanted or self.lists or self.answers or self.hard)

    def check(
        self, facts: CertificateFacts, issuer: CertificateFacts, at: datetime, *, allow_sha1: bool
    ) -> Checked:
        """Say whether a certificate was revoked as of a time."""
        lists = self._lists(facts, issuer, allow_sha1)
        answer = self.answers.get((issuer.public_key, facts.serial))
        for item in lists:
            revoked = item.revoked_at(facts.serial)
            if revoked is not None and revoked <= at:
                return Checked(
                    facts.subject_text,
                    "revoked",
                    f"{facts.subject_text} was revoked by its issuer on {stamp(revoked)}",
                )
        if answer is not None and answer.status == "revoked":
            revoked = answer.revoked_at
            if revoked is None or revoked <= at:
                when = f" on {stamp(revoked)}" if revoked is not None else ""
                said = f"{facts.subject_text} was revoked{when}, as {answer.responder} says"
                return Checked(facts.subject_text, "revoked", said)
        if answer is not None and answer.status != "unknown" and self._is_current(answer, at):
            said = f"OCSP answer of {answer.responder}, {stamp(answer.this_update)}"
            return Checked(facts.subject_text, "good", said)
        return self._by_lists(facts, lists, answer, at)

    def _lists(
        self, facts: CertificateFacts, issuer: CertificateFacts, allow_sha1: bool
    ) -> list[RevocationList]:
        if issuer.usage is not None and "cRLSign" not in issuer.usage:
            return []
        return [
            item
            for item in self._by_issuer.get(facts.issuer, ())
            if (item.weak_digest is None or (allow_sha1 and item.weak_digest == "SHA-1"))
            and item.is_signed_by(issuer)
        ]

    def _by_lists(
        self,
        facts: CertificateFacts,
        lists: Sequence[RevocationList],
        answer: OcspAnswer | None,
        at: datetime,
    ) -> Checked:
        whole = [item for item in lists if item.covers(facts)]
        current = [
            item
            for item in whole
            if self._is_begun(item.this_update, at)
            and (item.next_update is None or item.next_update >= at)
            and item.this_update <= facts.not_after
        ]
        if current:
            newest = max(current, key=lambda item: item.this_update)
            said = f"revocation list of {facts.issuer_text}, {stamp(newest.this_update)}"
            return Checked(facts.subject_text, "good", said)
        why = self._why_unknown(facts, whole, answer, at)
        return Checked(facts.subject_text, "unknown", why, stale=bool(whole))

    def _why_unknown(
        self,
        facts: CertificateFacts,
        whole: Sequence[RevocationList],
        answer: OcspAnswer | None,
        at: datetime,
    ) -> str:
        asked = [
            f"{url}: {self.failures[url]}"
            for url in (*facts.ocsp_urls, *facts.crl_urls)
            if url in self.failures
        ]
        if answer is not None and answer.status == "unknown":
            asked.insert(0, f"{answer.responder} does not know it")
        tried = f" ({'; '.join(asked)})" if asked else ""
        ends = [item.next_update for item in whole if item.next_update is not None]
        if ends and max(ends) < at:
            return (
                f"the revocation list of {facts.issuer_text} ran out on {stamp(max(ends))}{tried}"
            )
        if whole and all(item.this_update > facts.not_after for item in whole):
            return (
                f"the revocation list of {facts.issuer_text} was made after {facts.subject_text} "
                f"expired{tried}"
            )
        if whole:
            begin = min(item.this_update for item in whole)
            return f"the revocation list of {facts.issuer_text} begins on {stamp(begin)}{tried}"
        return f"there is no revocation list of {facts.issuer_text}{tried}"

    def _is_begun(self, this_update: datetime, at: datetime) -> bool:
        return self.historical or this_update <= at + self.skew

    def _is_current(self, answer: OcspAnswer, at: datetime) -> bool:
        end = answer.next_update or answer.this_update + self.answer_age
        return self._is_begun(answer.this_update, at) and end >= at


NO_REVOCATION: Final = Revocation()


def load_lists(data: bytes) -> tuple[RevocationList, ...]:
    """Read the revocation lists of a file, PEM or DER; `RevocationError` if one cannot be used."""
    blocks = tuple(_pem_blocks(data))
    try:
        if blocks:
            return tuple(read_list(x509.load_pem_x509_crl(block)) for block in blocks)
        return (read_list(x509.load_der_x509_crl(data)),)
    except RevocationError:
        raise
    except UNREADABLE:
        raise RevocationError("this is no revocation list in PEM or DER") from None


def _pem_blocks(data: bytes) -> Iterator[bytes]:
    """The lists of a PEM file; each byte is looked at once, whatever a server makes up."""
    begin = data.find(_PEM_BEGIN)
    while begin >= 0 and (end := data.find(_PEM_END, begin)) >= 0:
        end += len(_PEM_END)
        yield data[begin:end]
        begin = data.find(_PEM_BEGIN, end)


def read_list(crl: x509.CertificateRevocationList) -> RevocationList:
    """Read what a list says of itself; `RevocationError` if it is not complete by itself."""
    extensions = crl.extensions
    point = extension(extensions, x509.IssuingDistributionPoint)
    if extension(extensions, x509.DeltaCRLIndicator) is not None:
        raise RevocationError("this is a delta list, which is not supported. Use the complete list")
    if point is not None and point.indirect_crl:
        raise RevocationError(
            "this is an indirect list, which is not supported. Use the list of the issuer itself"
        )
    if point is not None and (point.only_some_reasons or point.only_contains_attribute_certs):
        raise RevocationError(
            "this list is for some reasons or for attribute certificates only. "
            "Use the complete list"
        )
    unknown = [
        item.oid.dotted_string
        for item in extensions
        if item.critical and item.oid != ExtensionOID.ISSUING_DISTRIBUTION_POINT
    ]
    if unknown:
        raise RevocationError(
            f"the critical extension {unknown[0]} of this list is not understood. "
            "Use a list without it"
        )
    names = [] if point is None else point.full_name or []
    relative = point is not None and point.relative_name is not None
    return RevocationList(
        crl=crl,
        issuer=name_key(relative_names(crl.issuer.public_bytes())),
        this_update=crl.last_update_utc,
        next_update=crl.next_update_utc,
        weak_digest=weak_digest(crl),
        covers_users=point is None or not point.only_contains_ca_certs,
        covers_authorities=point is None or not point.only_contains_user_certs,
        size=len(crl.tbs_certlist_bytes),
        points=frozenset(str(one.value) for one in names) if names or relative else None,
    )


def revocation_dates(
    lists: Iterable[RevocationList], certificates: Iterable[x509.Certificate]
) -> list[datetime]:
    """All times at which what the lists say of these certificates changes."""
    serials = [one.serial_number for one in certificates]
    found: list[datetime] = []
    for item in lists:
        if item.next_update is not None:
            found.append(item.next_update)
        revoked = (item.revoked_at(serial) for serial in serials)
        found += [one for one in revoked if one is not None]
    return found


def ocsp_request(facts: CertificateFacts, issuer: CertificateFacts, nonce: bytes) -> bytes:
    """The question of a responder about one certificate."""
    # SHA-1 names the issuer here, as RFC 5019 has it; it proves nothing.
    builder = ocsp.OCSPRequestBuilder().add_certificate(
        facts.certificate, issuer.certificate, hashes.SHA1()
    )
    request = builder.add_extension(x509.OCSPNonce(nonce), critical=False).build()
    return request.public_bytes(Encoding.DER)


def read_answer(
    data: bytes,
    facts: CertificateFacts,
    issuer: CertificateFacts,
    now: datetime,
    *,
    nonce: bytes | None = None,
    skew: timedelta = timedelta(minutes=5),
) -> OcspAnswer:
    """Read and verify an OCSP answer; `RevocationError` says why it does not count.

    A responder that leaves the nonce out prepared its answer: that is fresh as long as it says.
    """
    try:
        response = ocsp.load_der_ocsp_response(data)
        if response.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            said = response.response_status.name.lower().replace("_", " ")
            raise RevocationError(f"the responder answers {said!r}")
        responder = _responder(response, issuer, now)
        said_nonce = extension(response.extensions, x509.OCSPNonce)
        if nonce is not None and said_nonce is not None and said_nonce.nonce != nonce:
            raise RevocationError("the answer is to another request: its nonce differs")
        single = next((one for one in response.responses if _is_about(one, facts, issuer)), None)
        if single is None:
            raise RevocationError("the answer is about another certificate")
        if single.this_update_utc > now + skew:
            raise RevocationError(f"the answer is of the future, {stamp(single.this_update_utc)}")
        return OcspAnswer(
            _STATUS[single.certificate_status],
            single.this_update_utc,
            single.next_update_utc,
            single.revocation_time_utc,
            responder,
        )
    except RevocationError:
        raise
    except UNREADABLE:
        raise RevocationError("the answer is no OCSP response") from None


def _responder(response: ocsp.OCSPResponse, issuer: CertificateFacts, now: datetime) -> str:
    """Who signed the answer: the issuer, or a responder that it appointed."""
    if weak_name(response.signature_hash_algorithm) is not None:
        raise RevocationError("the answer is signed with a weak digest")
    if _answer_signed_by(response, issuer):
        return f"the issuer {issuer.subject_text}"
    for certificate in response.certificates[:_MOST_CERTIFICATES]:
        facts = read_certificate(certificate)
        if not _answer_signed_by(response, facts):
            continue
        name = f"the responder {facts.subject_text}"
        if facts.issuer != issuer.subject or not signed_by(facts, issuer):
            raise RevocationError(f"{name} has no certificate of {issuer.subject_text}")
        if facts.purposes is None or OCSP_SIGNING not in facts.purposes:
            raise RevocationError(f"{name} may not sign OCSP answers (extended key usage)")
        if facts.usage is not None and not facts.usage & {"digitalSignature", "nonRepudiation"}:
            raise RevocationError(f"{name} may not sign (key usage)")
        if not facts.not_before <= now <= facts.not_after:
            raise RevocationError(f"the certificate of {name} is not valid now")
        if facts.weak_digest is not None or facts.weakness is not None:
            raise RevocationError(f"the certificate of {name} is weak")
        return name
    raise RevocationError(
        f"the answer is signed neither by {issuer.subject_text} nor by a responder of it"
    )


def _answer_signed_by(response: ocsp.OCSPResponse, signer: CertificateFacts) -> bool:
    digest = response.signature_hash_algorithm
    try:
        key = signer.certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False
    parameters: SignatureParameters = None
    if isinstance(key, rsa.RSAPublicKey):
        parameters = padding.PKCS1v15()
    elif isinstance(key, ec.EllipticCurvePublicKey) and digest is not None:
        parameters = ec.ECDSA(digest)
    return is_signature_of(key, response.signature, response.tbs_response_bytes, parameters, digest)


def _is_about(
    single: ocsp.OCSPSingleResponse, facts: CertificateFacts, issuer: CertificateFacts
) -> bool:
    if single.serial_number != facts.serial:
        return False
    asked = ocsp.OCSPRequestBuilder().add_certificate(
        facts.certificate, issuer.certificate, single.hash_algorithm
    )
    request = asked.build()
    return (
        single.issuer_key_hash == request.issuer_key_hash
        and single.issuer_name_hash == request.issuer_name_hash
    )
