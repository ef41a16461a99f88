"""Whether a certificate may be believed.

A path is sought from the certificate to an anchor by RFC 5280, section 6: names chain, each
signature is made by the key above, each CA is a CA and stays within its path length, each
certificate is valid at the time asked for. All candidates are tried, within bounds, so that
cross-certificates and two CAs of one name find their way. What a certificate says and who signed
it does not change: both are remembered, so that a partner's next message costs next to nothing.

Name constraints and policy mappings are not understood: a path that has them is refused.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, NoReturn, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, padding, rsa
from cryptography.x509.oid import ExtensionOID, NameOID

from postroad.security.distinguished import (
    REMEMBERED,
    NameKey,
    certificate_names,
    name_key,
    readable_name,
    relative_names,
)
from postroad.wire.errors import EbmsError

Chain = tuple[x509.Certificate, ...]
"""The certificate, those above it, and last the anchor; a pinned one stands alone."""

Purpose = Literal["sign", "encrypt"]

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)

_MOST_INTERMEDIATES: Final = 32
_MOST_CANDIDATES: Final = 100
_MIN_EC_BITS: Final = 224
_ANY_POLICY: Final = "2.5.29.32.0"
_UNDERSTOOD: Final = frozenset(
    (
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
        ExtensionOID.CERTIFICATE_POLICIES,
        ExtensionOID.POLICY_CONSTRAINTS,
        ExtensionOID.INHIBIT_ANY_POLICY,
    )
)
_USAGES: Final = (
    ("digital_signature", "digitalSignature"),
    ("content_commitment", "nonRepudiation"),
    ("key_encipherment", "keyEncipherment"),
    ("data_encipherment", "dataEncipherment"),
    ("key_agreement", "keyAgreement"),
    ("key_cert_sign", "keyCertSign"),
    ("crl_sign", "cRLSign"),
)
_NEEDED: Final = {
    "sign": frozenset(("digitalSignature", "nonRepudiation")),
    "encrypt": frozenset(("keyEncipherment", "dataEncipherment", "keyAgreement")),
}


@dataclass(frozen=True, slots=True, eq=False)
class _Facts:
    """What a certificate says, read once; told apart by identity, which is quick to hash."""

    certificate: x509.Certificate
    serial: int
    subject: NameKey
    issuer: NameKey
    subject_text: str
    issuer_text: str
    public_key: bytes
    not_before: datetime
    not_after: datetime
    is_ca: bool | None
    path_length: int | None
    usage: frozenset[str] | None
    policies: frozenset[str]
    explicit_policy: bool
    inhibits_any_policy: bool
    not_understood: tuple[str, ...]
    weak_digest: str | None
    weakness: str | None
    key_bits: int | None

    @property
    def self_issued(self) -> bool:
        return self.subject == self.issuer


@dataclass(frozen=True, slots=True, eq=False)
class _Revoked:
    """A revocation list, read once."""

    crl: x509.CertificateRevocationList
    issuer: NameKey
    next_update: datetime | None
    serials: dict[int, datetime]
    weak_digest: str | None
    complete: bool
    covers_users: bool
    covers_authorities: bool


class _Refused(Exception):
    """Why one path does not hold; the better a path was, the higher the rank of its reason."""

    def __init__(self, rank: int, reason: str) -> None:
        super().__init__(reason)
        self.rank = rank
        self.reason = reason


@dataclass(slots=True)
class _Search:
    """One search for a path: what is asked, what was tried, why it failed."""

    at: datetime
    pool: dict[NameKey, list[_Facts]]
    tried: int = 0
    failures: list[_Refused] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    """A path and the time in which all its certificates are valid."""

    leaf: x509.Certificate
    intermediates: tuple[x509.Certificate, ...]
    chain: Chain
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom to believe: authorities, pinned partner certificates, and how strict to be.

    `policies` are certificate policy OIDs, one of which a path must carry. An issuer's
    revocation lists are checked where `crls` has them, and must then be current; `require_crl`
    asks for one for each issuer. A pinned certificate needs no path.
    """

    anchors: tuple[x509.Certificate, ...] = ()
    pinned: tuple[x509.Certificate, ...] = ()
    check_key_usage: bool = True
    max_chain: int = 8
    min_rsa_bits: int = 2048
    allow_sha1: bool = False
    policies: frozenset[str] = frozenset()
    crls: tuple[x509.CertificateRevocationList, ...] = ()
    require_crl: bool = False
    _anchors: dict[NameKey, list[_Facts]] = field(init=False, repr=False, compare=False)
    _revoked: tuple[_Revoked, ...] = field(init=False, repr=False, compare=False)
    _found: dict[tuple[int, str], "_Found"] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Paths that were found, by the very certificate object: true while all of it is valid."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_anchors", _by_subject(self.anchors))
        object.__setattr__(self, "_revoked", tuple(_read_crl(crl) for crl in self.crls))

    def verify(
        self,
        certificate: x509.Certificate,
        intermediates: Sequence[x509.Certificate],
        at: datetime,
        purpose: Purpose = "sign",
    ) -> Chain:
        """The path from a certificate to an anchor, valid at a time; else EBMS:0101."""
        known = self._found.get((id(certificate), purpose))
        if (
            known is not None
            and known.leaf is certificate
            and known.begin <= at <= known.end
            and known.intermediates == tuple(intermediates)
        ):
            return known.chain
        chain = self._verify(certificate, intermediates, at, purpose)
        if not self.crls and not self.require_crl:
            if len(self._found) >= REMEMBERED:
                self._found.clear()
            self._found[id(certificate), purpose] = _Found(
                certificate,
                tuple(intermediates),
                chain,
                max(one.not_valid_before_utc for one in chain),
                min(one.not_valid_after_utc for one in chain),
            )
        return chain

    def _verify(
        self,
        certificate: x509.Certificate,
        intermediates: Sequence[x509.Certificate],
        at: datetime,
        purpose: Purpose,
    ) -> Chain:
        try:
            leaf = _facts(certificate)
        except ValueError as error:
            raise EbmsError("EBMS:0101", f"the certificate cannot be read: {error}") from None
        try:
            self._check_use(leaf, at, purpose)
            if certificate in self.pinned:
                self._check_pinned_revocation(leaf, at)
                return (certificate,)
            if len(intermediates) > _MOST_INTERMEDIATES:
                raise _Refused(2, f"more than {_MOST_INTERMEDIATES} certificates came with it")
            search = _Search(at, _by_subject(intermediates))
            chain = self._path((leaf,), search)
            if chain is None:
                raise max(search.failures, key=lambda failure: failure.rank)
        except _Refused as refused:
            _refuse(leaf, refused.reason)
        return chain

    def _check_use(self, leaf: _Facts, at: datetime, purpose: Purpose) -> None:
        _check_time(leaf, at, "it")
        self._check_key(leaf, "its")
        if self.check_key_usage and leaf.usage is not None and not leaf.usage & _NEEDED[purpose]:
            stated = ", ".join(sorted(leaf.usage)) or "none"
            raise _Refused(2, f"its key usage ({stated}) does not allow it to {purpose}")

    def _check_key(self, facts: _Facts, whose: str) -> None:
        if facts.weakness is not None:
            raise _Refused(2, f"{whose} {facts.weakness}")
        if facts.key_bits is not None and facts.key_bits < self.min_rsa_bits:
            raise _Refused(
                2,
                f"{whose} key has {facts.key_bits} bits, at least {self.min_rsa_bits} are needed",
            )

    def _path(self, path: tuple[_Facts, ...], search: _Search) -> Chain | None:
        """Extend the path upward until it ends in an anchor; the first that holds is taken."""
        last = path[-1]
        try:
            if self._is_anchor(last):
                return self._completed(path, search)
            self._check_below(path)
        except _Refused as refused:
            search.failures.append(refused)
            return None
        found = False
        for candidate in (*self._anchors.get(last.issuer, ()), *search.pool.get(last.issuer, ())):
            if any(
                candidate.public_key == step.public_key and candidate.subject == step.subject
                for step in path
            ):
                continue
            found = True
            search.tried += 1
            if search.tried > _MOST_CANDIDATES:
                search.failures.append(_Refused(2, "too many candidate issuers were tried"))
                return None
            try:
                self._check_issuer(path, candidate, search.at)
            except _Refused as refused:
                search.failures.append(refused)
                continue
            chain = self._path((*path, candidate), search)
            if chain is not None:
                return chain
        if not found:
            search.failures.append(_no_path(path))
        return None

    def _is_anchor(self, facts: _Facts) -> bool:
        same_name = self._anchors.get(facts.subject, ())
        return facts in same_name or any(
            anchor.certificate == facts.certificate for anchor in same_name
        )

    def _check_below(self, path: tuple[_Facts, ...]) -> None:
        """What is asked of a certificate that is not an anchor itself."""
        last = path[-1]
        whose = _whose(path)
        if last.not_understood:
            names = ", ".join(last.not_understood)
            raise _Refused(2, f"{whose} critical extension {names} is not understood")
        if self._too_weak(last.weak_digest):
            raise _Refused(2, f"{whose} signature is made with {last.weak_digest}")

    def _too_weak(self, digest: str | None) -> bool:
        return digest is not None and not (self.allow_sha1 and digest == "SHA-1")

    def _check_issuer(self, path: tuple[_Facts, ...], issuer: _Facts, at: datetime) -> None:
        name = f"its issuer {issuer.subject_text}"
        if not _signed_by(path[-1], issuer):
            whose = _whose(path)
            raise _Refused(1, f"{whose} signature was not made by the key of {issuer.subject_text}")
        if len(path) + 1 > self.max_chain:
            raise _Refused(2, f"the path is longer than {self.max_chain} certificates")
        if issuer.is_ca is False or (issuer.is_ca is None and not self._is_anchor(issuer)):
            raise _Refused(2, f"{name} is no certificate authority")
        if issuer.usage is not None and "keyCertSign" not in issuer.usage:
            raise _Refused(2, f"{name} may not sign certificates (key usage keyCertSign)")
        between = sum(1 for step in path[1:] if not step.self_issued)
        if issuer.path_length is not None and between > issuer.path_length:
            raise _Refused(
                2, f"{name} allows {issuer.path_length} authorities below it, there are {between}"
            )
        _check_time(issuer, at, name)
        self._check_key(issuer, f"{name}: its")

    def _completed(self, path: tuple[_Facts, ...], search: _Search) -> Chain:
        self._check_policies(path)
        for below, issuer in pairwise(path) if self._revoked or self.require_crl else ():
            self._check_revocation(below, issuer, search.at, whole=self.require_crl)
        return tuple(step.certificate for step in path)

    def _check_policies(self, path: tuple[_Facts, ...]) -> None:
        if not self.policies and not any(step.explicit_policy for step in path):
            return
        leaf, *above = path[:-1] or path
        any_counts = not any(step.inhibits_any_policy for step in path)
        carried = leaf.policies
        for step in above:
            if not (any_counts and _ANY_POLICY in step.policies):
                carried &= step.policies
        if not (carried & self.policies if self.policies else carried):
            asked = ", ".join(sorted(self.policies)) or "any"
            raise _Refused(2, f"it does not carry a certificate policy that is asked for ({asked})")

    def _check_revocation(
        self, facts: _Facts, issuer: _Facts, at: datetime, *, whole: bool
    ) -> None:
        """Refuse what a list of its issuer names, or where no list of it is current."""
        lists = [
            item
            for item in self._revoked
            if item.issuer == facts.issuer
            and (issuer.usage is None or "cRLSign" in issuer.usage)
            and not self._too_weak(item.weak_digest)
            and _crl_signed_by(item, issuer)
        ]
        name = facts.subject_text
        for item in lists:
            revoked = item.serials.get(facts.serial)
            if revoked is not None and revoked <= at:
                raise _Refused(3, f"{name} was revoked by its issuer on {_stamp(revoked)}")
        whole_lists = [
            item
            for item in lists
            if item.complete and (item.covers_authorities if facts.is_ca else item.covers_users)
        ]
        if whole_lists:
            ends = [item.next_update for item in whole_lists if item.next_update is not None]
            if len(ends) == len(whole_lists) and max(ends) < at:
                raise _Refused(
                    2,
                    f"the revocation list of {facts.issuer_text} ran out on "
                    f"{_stamp(max(ends))}; fetch the new one",
                )
        elif whole:
            raise _Refused(2, f"there is no revocation list of {facts.issuer_text}; fetch it")

    def _check_pinned_revocation(self, leaf: _Facts, at: datetime) -> None:
        for issuer in self._anchors.get(leaf.issuer, ()):
            if _signed_by(leaf, issuer):
                self._check_revocation(leaf, issuer, at, whole=False)


def _refuse(leaf: _Facts, reason: str) -> NoReturn:
    raise EbmsError(
        "EBMS:0101",
        f"the certificate {leaf.subject_text}, issued by {leaf.issuer_text}, is not accepted: "
        f"{reason}",
    ) from None


def _whose(path: tuple[_Facts, ...]) -> str:
    return "its" if len(path) == 1 else f"its issuer {path[-1].subject_text}: its"


def _no_path(path: tuple[_Facts, ...]) -> _Refused:
    last = path[-1]
    if last.self_issued:
        who = "it" if len(path) == 1 else last.subject_text
        return _Refused(0, f"it is untrusted: {who} is self-signed and neither anchor nor pinned")
    return _Refused(0, f"it is untrusted: there is no certificate of the issuer {last.issuer_text}")


def _check_time(facts: _Facts, at: datetime, name: str) -> None:
    if at > facts.not_after:
        raise _Refused(2, f"{name} expired on {_stamp(facts.not_after)}")
    if at < facts.not_before:
        raise _Refused(2, f"{name} is not valid before {_stamp(facts.not_before)}")


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _by_subject(certificates: Sequence[x509.Certificate]) -> dict[NameKey, list[_Facts]]:
    found: dict[NameKey, list[_Facts]] = {}
    for certificate in certificates:
        try:
            facts = _facts(certificate)
        except ValueError:
            continue
        found.setdefault(facts.subject, []).append(facts)
    return found


@lru_cache(maxsize=REMEMBERED)
def _facts(certificate: x509.Certificate) -> _Facts:
    """Read a certificate; ValueError where it cannot be."""
    serial, issuer, subject, public_key = certificate_names(certificate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extensions = certificate.extensions
    basic = _extension(extensions, x509.BasicConstraints)
    usage = _extension(extensions, x509.KeyUsage)
    policies = _extension(extensions, x509.CertificatePolicies)
    constraints = _extension(extensions, x509.PolicyConstraints)
    bits, weakness = _key_strength(certificate)
    return _Facts(
        certificate=certificate,
        serial=serial,
        subject=name_key(subject),
        issuer=name_key(issuer),
        subject_text=readable_name(subject),
        issuer_text=readable_name(issuer),
        public_key=public_key,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        is_ca=basic.ca if basic else None,
        path_length=basic.path_length if basic else None,
        usage=_usage(usage) if usage else None,
        policies=frozenset(p.policy_identifier.dotted_string for p in policies or ()),
        explicit_policy=bool(constraints and constraints.require_explicit_policy is not None),
        inhibits_any_policy=_extension(extensions, x509.InhibitAnyPolicy) is not None,
        not_understood=tuple(
            item.oid.dotted_string
            for item in extensions
            if (item.critical and item.oid not in _UNDERSTOOD)
            or item.oid == ExtensionOID.NAME_CONSTRAINTS
        ),
        weak_digest=_weak_digest(certificate),
        weakness=weakness,
        key_bits=bits,
    )


def _extension(extensions: x509.Extensions, kind: type[_Extension]) -> _Extension | None:
    try:
        return extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _usage(usage: x509.KeyUsage) -> frozenset[str]:
    return frozenset(name for attribute, name in _USAGES if getattr(usage, attribute))


def _key_strength(certificate: x509.Certificate) -> tuple[int | None, str | None]:
    """Bits where a minimum for RSA applies, and what is wrong with the key in any case."""
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None, "key is of a kind that is not supported"
    if isinstance(key, rsa.RSAPublicKey | dsa.DSAPublicKey):
        return key.key_size, None
    if isinstance(key, ec.EllipticCurvePublicKey) and key.key_size < _MIN_EC_BITS:
        return None, f"key is on a curve of {key.key_size} bits, at least {_MIN_EC_BITS} are needed"
    return None, None


def _weak_digest(signed: x509.Certificate | x509.CertificateRevocationList) -> str | None:
    try:
        digest = signed.signature_hash_algorithm
    except (ValueError, UnsupportedAlgorithm):
        return "an unknown digest"
    if isinstance(digest, hashes.SHA1 | hashes.MD5):
        return digest.name.upper().replace("SHA1", "SHA-1")
    return None


@lru_cache(maxsize=REMEMBERED)
def _signed_by(below: _Facts, issuer: _Facts) -> bool:
    """Whether the key of the issuer made the signature of the certificate below."""
    certificate = below.certificate
    try:
        key = issuer.certificate.public_key()
        signature, signed = certificate.signature, certificate.tbs_certificate_bytes
        parameters = certificate.signature_algorithm_parameters
        digest = certificate.signature_hash_algorithm
        if isinstance(key, rsa.RSAPublicKey):
            if not isinstance(parameters, padding.PKCS1v15 | padding.PSS) or digest is None:
                return False
            key.verify(signature, signed, parameters, digest)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            if not isinstance(parameters, ec.ECDSA):
                return False
            key.verify(signature, signed, parameters)
        elif isinstance(key, dsa.DSAPublicKey):
            if digest is None:
                return False
            key.verify(signature, signed, digest)
        elif isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
            key.verify(signature, signed)
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


@lru_cache(maxsize=REMEMBERED)
def _crl_signed_by(revoked: _Revoked, issuer: _Facts) -> bool:
    try:
        key = issuer.certificate.public_key()
        if isinstance(
            key,
            rsa.RSAPublicKey
            | ec.EllipticCurvePublicKey
            | dsa.DSAPublicKey
            | ed25519.Ed25519PublicKey
            | ed448.Ed448PublicKey,
        ):
            return revoked.crl.is_signature_valid(key)
    except (UnsupportedAlgorithm, ValueError, TypeError):
        pass
    return False


def _read_crl(crl: x509.CertificateRevocationList) -> _Revoked:
    """What a list says. One in parts, or with what is not understood, proves no good standing."""
    point = _extension(crl.extensions, x509.IssuingDistributionPoint)
    understood = all(
        item.oid == ExtensionOID.ISSUING_DISTRIBUTION_POINT
        for item in crl.extensions
        if item.critical
    )
    partial = point is not None and (
        point.indirect_crl or point.only_some_reasons or point.only_contains_attribute_certs
    )
    serials = (
        {}
        if point is not None and point.indirect_crl
        else {entry.serial_number: entry.revocation_date_utc for entry in crl}
    )
    return _Revoked(
        crl=crl,
        issuer=name_key(relative_names(crl.issuer.public_bytes())),
        next_update=crl.next_update_utc,
        serials=serials,
        weak_digest=_weak_digest(crl),
        complete=understood and not partial,
        covers_users=point is None or not point.only_contains_ca_certs,
        covers_authorities=point is None or not point.only_contains_user_certs,
    )


def check_subject(certificate: x509.Certificate, names: frozenset[str]) -> None:
    """An authority vouches for many: the certificate must name the very party, or EBMS:0101.

    A name is a common name, a whole distinguished name, or an alternative name of the subject.
    """
    if names & subject_names(certificate):
        return
    wanted = " or ".join(repr(name) for name in sorted(names)) or "nobody"
    raise EbmsError(
        "EBMS:0101",
        f"the certificate {certificate.subject.rfc4514_string()[:200]} is trusted, but does not "
        f"name {wanted}",
        location="certificate",
    )


@lru_cache(maxsize=1024)
def subject_names(certificate: x509.Certificate) -> frozenset[str]:
    """All names of a certificate's subject."""
    subject = certificate.subject
    found = {subject.rfc4514_string()}
    found |= {str(one.value) for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)}
    try:
        others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset(found)
    for kind in (x509.DNSName, x509.UniformResourceIdentifier, x509.RFC822Name):
        found |= set(others.get_values_for_type(kind))
    return frozenset(found)


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether others may chain to it: it says so, or is a root too old to say."""
    try:
        extension = _extension(certificate.extensions, x509.BasicConstraints)
    except ValueError:
        return False
    if extension is None:
        return certificate.issuer == certificate.subject
    return extension.ca


def subject_key_identifier(certificate: x509.Certificate) -> bytes | None:
    """What the SubjectKeyIdentifier extension says; None where there is none."""
    try:
        found = _extension(certificate.extensions, x509.SubjectKeyIdentifier)
    except ValueError:
        return None
    return None if found is None else found.digest


def thumbprint_sha1(certificate: x509.Certificate) -> bytes:
    """The SHA-1 digest of the certificate, as WS-Security 1.1 names it by (ThumbprintSHA1)."""
    return certificate.fingerprint(hashes.SHA1())
