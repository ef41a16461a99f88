"""What P-Modes lead one to expect of a message, and where a message breaks it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from msgspec import Struct

from postroad.agreement.algorithms import strength
from postroad.agreement.conformity import PartFacts, check_user_message
from postroad.agreement.coverage import encrypted_coverage
from postroad.agreement.matching import Match, PModes, Protected
from postroad.agreement.places import sides
from postroad.agreement.pmode import Leg
from postroad.agreement.pmode_security import X509, Security
from postroad.agreement.pmode_security import UsernameToken as AgreedToken
from postroad.msh.payloads import Payload
from postroad.security.algorithms import DATA_CIPHERS
from postroad.security.coverage import USERNAME_TOKEN, Coverage
from postroad.security.decrypt import Decryption
from postroad.security.key_purposes import NAMES as PURPOSES
from postroad.security.keys import KeyPair
from postroad.security.revocation import NO_REVOCATION, Revocation
from postroad.security.trust import Trust
from postroad.security.username import UsernameToken, check_username_token
from postroad.security.verify import Verification
from postroad.wire.ebms3 import Party, SignalMessage, UserMessage
from postroad.wire.ebms3_user_messages import parse_timestamp
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import ONE_WAY, PUSH, TWO_WAY

_MOST_KNOWN = 1024
_CLIENTS: Final = frozenset((PURPOSES["clientAuth"],))
"""For what the certificate of a TLS client must be, if it says; OpenSSL checks that as well."""
_EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
_LATEST = datetime(9998, 12, 31, tzinfo=UTC)


class Terms(Struct, frozen=True):
    """What must be known before a message's security is looked at."""

    pmode: str | None
    algorithms: frozenset[str]
    """The algorithms that the P-Mode names."""
    raw_attachments: bool | None
    material: "Material"
    match: Match | None = None
    """The P-Mode of the user message, where it has one."""
    signers: frozenset[str] = frozenset()
    """What a certificate that only an authority vouches for must be named."""
    answering: bool = False
    """It is an answer to a message of the P-Mode, and not such a message itself."""
    unsigned_routing: bool = False
    """Whether the routing headers of a signal may be unsigned."""


class Material(Struct, frozen=True):
    """The certificates and keys that a leg of a P-Mode names."""

    pins: tuple[x509.Certificate, ...] = ()
    anchors: tuple[x509.Certificate, ...] = ()
    recipients: tuple[x509.Certificate, ...] = ()
    keys: tuple[KeyPair, ...] = ()
    signing: KeyPair | None = None
    """The key that this side signs with."""
    answering: tuple[x509.Certificate, ...] = ()
    """The certificates of who signs receipts and errors."""
    subjects: frozenset[str] = frozenset()
    """The names that the signer's certificate may have; empty: those of the party."""
    policies: frozenset[str] = frozenset()
    """Certificate policies, one of which the signer's certificate must carry."""
    purposes: frozenset[str] = frozenset()
    """Extended key usages, as OIDs, with which a certificate may sign; empty: the usual ones."""
    tls_clients: tuple[x509.Certificate, ...] = ()
    """The certificates that the sender shows in the TLS handshake."""
    tls_anchors: tuple[x509.Certificate, ...] = ()
    """Who vouches for the one that it shows."""

    def __add__(self, other: "Material") -> "Material":
        return Material(
            self.pins + other.pins,
            self.anchors + other.anchors,
            self.recipients + other.recipients,
            self.keys + other.keys,
            answering=self.answering + other.answering,
        )


NOTHING: Final = Material()


class Facts(Struct, frozen=True):
    """What was found in a message, to be held against its P-Mode."""

    soap_version: str
    for_next_msh: bool | None
    """None: whatever, since its routing input is."""
    request: str | None
    """The first line of the HTTP request."""
    payloads: tuple[Payload, ...]
    attachments: tuple[str, ...]
    verification: Verification | None
    judged: bool
    """Whether the signer was held against certificates that are trusted."""
    decryption: Decryption | None
    username_tokens: tuple[UsernameToken, ...]
    at: datetime
    time_counts: bool
    """A token too old is refused; else it is only worth a warning."""
    receiving: bool = False
    """Somebody acts on the message: what nobody vouches for is then refused."""
    fragment: bool = False
    """It is a part of a message: payloads and most properties are only in the whole."""
    joined: bool = False
    """It was joined of fragments, which were secured instead of it."""
    body: str | None = None
    """The tag of the Body, if it has content."""
    bundled: bool = False
    """It holds other user messages too: their payloads are encrypted as a whole."""
    test: bool = False
    """It is for the test service, and has no payloads."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A set of P-Modes with the certificates and keys that they name."""

    pmodes: PModes
    materials: Mapping[tuple[str, int], Material] = field(default_factory=dict)
    """By P-Mode id and number of the leg: one partner's certificate proves nothing of another."""
    known: dict[tuple[int, Party], Terms] = field(default_factory=dict, init=False, compare=False)
    """The terms of senders' messages, which are the same again and again."""

    def terms(
        self,
        message: UserMessage | None,
        protected: Protected | None = None,
        *,
        ebxml: str | None = None,
        signal: bool = False,
    ) -> Terms:
        """The terms of the message's P-Mode; those of all P-Modes for a signal.

        `ebxml` is the dialect of an ebXML message, `signal` says that it is one for the MSH.
        """
        if message is None:
            legs = [wanted.leg for wanted in self.pmodes.legs]
            named = frozenset().union(*(_named(leg.security) for leg in legs))
            material = sum(self.materials.values(), NOTHING)
            lenient = any(_allows_unsigned_routing(leg.security) for leg in legs)
            return Terms(None, named, None, material, unsigned_routing=lenient)
        try:
            match = self.pmodes.match(message, protected, ebxml=ebxml, signal=signal)
        except EbmsError:
            return Terms(None, frozenset(), None, NOTHING)
        if match.against:
            return self.answer_terms(match)
        key = (id(match), message.from_party)
        known = self.known.get(key)
        if known is None or known.match is not match:
            ids = (one.value for one in message.from_party.party_ids)
            known = self._sender_terms(match, ids)
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[key] = known
        return known

    def sender_terms(self, match: Match) -> Terms:
        """The terms of what the sender of a leg's messages says."""
        sender = sides(match.pmode, match.number - 1)[0]
        return self._sender_terms(match, (one.id for one in (sender and sender.party) or ()))

    def _sender_terms(self, match: Match, ids: Iterable[str]) -> Terms:
        security = match.leg.security
        material = self.material(match)
        signers = material.subjects or frozenset(ids)
        return Terms(match.pmode.id, _named(security), _raw(security), material, match, signers)

    def answer_terms(self, match: Match) -> Terms:
        """The terms of a receipt or an error about a message that was sent.

        The sender's own certificate vouches for no answer: it is the partner who signs these.
        """
        own = self.material(match)
        pins = own.answering or own.recipients
        anchors = () if pins else own.anchors
        material = Material(pins=pins, anchors=anchors, purposes=own.purposes)
        partner = sides(match.pmode, match.number - 1)[1]
        signers = frozenset(one.id for one in (partner and partner.party) or ())
        security = match.leg.security
        return Terms(
            match.pmode.id,
            _named(security),
            None,
            material,
            match,
            signers,
            answering=True,
            unsigned_routing=_allows_unsigned_routing(security),
        )

    def material(self, match: Match) -> Material:
        return self.materials.get((match.pmode.id, match.number), NOTHING)

    def check(
        self, message: UserMessage, facts: Facts, match: Match | None = None
    ) -> list[EbmsError]:
        """Everything in which the message breaks its P-Mode; EBMS:0010 when it has none.

        `match` is its P-Mode where that is known already.
        """
        try:
            match = match or self.pmodes.match(message)
        except EbmsError as error:
            return [error]
        problems = check_user_message(
            match,
            message,
            _parts(facts.payloads),
            soap_version=facts.soap_version,
            for_next_msh=facts.for_next_msh,
            fragment=facts.fragment,
        )
        problems += _exchange(match, message, facts)
        if not facts.joined:
            problems += _security(match.leg, facts, self.material(match))
        return problems

    def check_client(
        self,
        match: Match,
        certificate: bytes | None,
        now: datetime,
        revocation: Revocation = NO_REVOCATION,
    ) -> list[EbmsError]:
        """Whether who connected is whom the P-Mode's transport security names. [P2-6.4.1-01]"""
        own = self.material(match)
        if not (own.tls_clients or own.tls_anchors):
            return []
        place = "TLS"
        if certificate is None:
            said = "the P-Mode asks for a TLS client certificate, and none was shown"
            return [EbmsError("EBMS:0101", said, location=place)]
        shown = x509.load_der_x509_certificate(certificate)
        if shown in own.tls_clients:
            return []
        if own.tls_clients:
            said = "the TLS client certificate is not the one that the P-Mode names"
            return [EbmsError("EBMS:0101", said, location=place)]
        try:
            _tls_trust(own.tls_anchors).verify(shown, (), now, revocation=revocation)
        except EbmsError as error:
            if error.code == "EBMS:0202":
                # Whether it was revoked is not known yet.
                return [EbmsError("EBMS:0202", f"TLS client: {error.detail}", location=place)]
            return [EbmsError("EBMS:0101", f"TLS client: {error.detail}", location=place)]
        return []

    def check_receipt(self, signal: SignalMessage) -> list[EbmsError]:
        """Whether the receipt is of a kind that any of the P-Modes asks for."""
        asked = [
            leg.security.send_receipt
            for leg in (wanted.leg for wanted in self.pmodes.legs)
            if leg.security and leg.security.send_receipt and leg.security.send_receipt.enabled
        ]
        location = "eb:Messaging/eb:SignalMessage/eb:Receipt"
        if not asked:
            return [EbmsError("EBMS:0010", "no P-Mode asks for receipts", location=location)]
        proof = signal.receipt is not None and signal.receipt.non_repudiation is not None
        if all(receipt.non_repudiation for receipt in asked) and not proof:
            return [
                EbmsError(
                    "EBMS:0302",
                    "the P-Mode asks for non-repudiation information, the receipt holds none",
                    location=location,
                )
            ]
        return []


def check_secondary(
    message: UserMessage, payloads: Sequence[Payload], match: Match
) -> list[EbmsError]:
    """In what a secondary unit of a bundle breaks its P-Mode.

    Only header and payloads count: envelope and security are the primary's. [P2-3.2.2-01]
    """
    info = match.leg.business_info
    profile = info.payload_profile if info is not None else None
    return check_user_message(match, message, _parts(payloads) if profile is not None else ())


def _parts(payloads: Sequence[Payload]) -> list[PartFacts]:
    return [
        PartFacts(
            payload.part_info.href,
            payload.media_type,
            payload.content.size if payload.content is not None else None,
        )
        for payload in payloads
    ]


@lru_cache(maxsize=256)
def _tls_trust(anchors: tuple[x509.Certificate, ...]) -> Trust:
    return Trust(anchors=anchors, check_key_usage=False, purposes=_CLIENTS)


def _security(leg: Leg, facts: Facts, material: Material) -> Iterator[EbmsError]:
    security = leg.security
    if security is None:
        return
    if security.x509 is not None:
        yield from _signature(security.x509, facts)
        yield from _encryption(leg, security.x509, facts, material)
    if security.wss_version == "1.0" and facts.verification is not None and facts.attachments:
        yield _policy("WS-Security 1.0 is agreed, which cannot sign attachments")
    if security.username_token is not None:
        yield from _username(security, facts)


def _encryption(leg: Leg, terms: X509, facts: Facts, material: Material) -> Iterator[EbmsError]:
    encryption, found = terms.encryption, facts.decryption
    wanted = encryption.encrypt.enabled if encryption and encryption.encrypt else None
    present = found is not None and found.present
    coverage = encrypted_coverage(leg)
    asked = [one for one in facts.attachments if facts.bundled or coverage.covers_attachment(one)]
    in_body = facts.body is not None and coverage.covers_body(facts.body)
    closed = facts.fragment or (facts.payloads and not coverage.only)
    if wanted and not present and (asked or in_body or closed):
        yield _policy("the P-Mode asks for encryption, and the message is not encrypted")
    if wanted is False and present:
        yield _policy("the message is encrypted, which the P-Mode does not allow")
    if wanted:
        yield from _listed(coverage, facts)
    if encryption is None or found is None or not present:
        return
    for content_id in asked if wanted else ():
        if content_id not in found.content_ids:
            yield _policy("this attachment is not encrypted", f"cid:{content_id}")
    if wanted and in_body and not found.body:
        yield _policy("the content of the Body is not encrypted", "Body")
    agreed = (
        encryption.algorithm,
        encryption.key_transport,
        encryption.digest,
        encryption.mgf,
        encryption.key_agreement,
        encryption.key_derivation,
        encryption.key_wrap,
    )
    for uri in agreed:
        if uri is not None and uri not in found.algorithms:
            yield _policy(f"{uri} is agreed for encryption, and is not used")
    least = encryption.minimum_strength
    used = [strength(uri) for uri in found.algorithms if uri in DATA_CIPHERS]
    if least is not None and min(used, default=0) < least:
        yield _policy(f"the encryption is weaker than the {least} bits that are agreed")
    ours = any(one in material.recipients for one in found.recipients)
    if encryption.certificate and not ours and not found.failed:
        yield _policy("it is not encrypted for the certificate that the P-Mode names")
    form = encryption.key_reference
    if form and found.forms and form not in found.forms:
        yield _policy(f"the recipient is named by {found.forms[0]}, {form} is agreed")


def _listed(coverage: Coverage, facts: Facts) -> Iterator[EbmsError]:
    """What the P-Mode lists to be encrypted, and is not, or is not there."""
    encrypted = facts.decryption.tokens if facts.decryption is not None else 0
    if coverage.names(USERNAME_TOKEN) and encrypted < max(1, len(facts.username_tokens)):
        yield _policy("the user name token is not encrypted, which the P-Mode asks for")
    for content_id in () if facts.test else coverage.attachments or ():
        if content_id not in facts.attachments:
            said = f"the P-Mode lists the attachment {content_id} to be encrypted"
            yield _policy(f"{said}, and the message has none", f"cid:{content_id}")


def _named(security: Security | None) -> frozenset[str]:
    terms = security.x509 if security else None
    if terms is None:
        return frozenset()
    found: list[str | None] = []
    if terms.signature is not None:
        found += [terms.signature.algorithm, terms.signature.hash_function]
    if terms.encryption is not None:
        found += [terms.encryption.algorithm, terms.encryption.key_transport]
    return frozenset(uri for uri in found if uri)


def _allows_unsigned_routing(security: Security | None) -> bool:
    receipt = security.send_receipt if security else None
    return receipt is not None and receipt.allow_unsigned_routing


def _raw(security: Security | None) -> bool | None:
    signature = security.x509.signature if security and security.x509 else None
    return True if signature is not None and signature.raw else None


def _exchange(match: Match, message: UserMessage, facts: Facts) -> Iterator[EbmsError]:
    """The message exchange pattern and the address that the message was sent to."""
    pmode, leg = match.pmode, match.leg
    pushed = pmode.mep_binding is not None and pmode.mep_binding.value == PUSH
    if pmode.mep == ONE_WAY and pushed and message.message_info.ref_to_message_id:
        yield EbmsError(
            "EBMS:0003",
            "a One-Way/Push message refers to no other, this one has a RefToMessageId",
            location="eb:Messaging/eb:UserMessage/eb:MessageInfo",
            severity=Severity.WARNING,
        )
    if pmode.mep == TWO_WAY and match.number == 1 and message.message_info.ref_to_message_id:
        yield EbmsError(
            "EBMS:0003",
            "a request refers to no other message, this one has a RefToMessageId",
            location="eb:Messaging/eb:UserMessage/eb:MessageInfo",
        )
    target = _request_target(facts.request)
    address = _address(leg)
    if target is not None and address and urlsplit(address).path.rstrip("/") != target:
        yield EbmsError(
            "EBMS:0010",
            f"it was sent to {target or '/'}, the P-Mode's address is {address}",
            location="HTTP",
            severity=Severity.WARNING,
        )


def _request_target(request: str | None) -> str | None:
    if request is None or request.startswith("HTTP/"):
        return None
    target = request.split(" ")[1]
    try:
        return urlsplit(target).path.rstrip("/")
    except ValueError:
        return target


def _address(leg: Leg) -> str | None:
    return leg.protocol.address if leg.protocol else None


def _signature(terms: X509, facts: Facts) -> Iterator[EbmsError]:
    check, agreed = facts.verification, terms.signature
    wanted = terms.sign.enabled if terms.sign else None
    if wanted and check is None:
        yield _policy("the P-Mode asks for a signature, and the message is not signed")
    if wanted is False and check is not None:
        yield _policy("the message is signed, which the P-Mode does not allow")
    if wanted and check is not None and not facts.judged:
        yield EbmsError(
            "EBMS:0103",
            "the P-Mode asks for a signature, and nobody said whose: it names no pins or anchors",
            location="wsse:Security",
            severity=Severity.FAILURE if facts.receiving else Severity.WARNING,
        )
    if check is None or agreed is None:
        return
    if agreed.algorithm and check.algorithm != agreed.algorithm:
        yield _policy(f"signed with {check.algorithm}, {agreed.algorithm} is agreed")
    if agreed.hash_function:
        for one in check.references:
            used = one.reference.digest_method
            if used != agreed.hash_function:
                yield _policy(
                    f"digested with {used}, {agreed.hash_function} is agreed", one.reference.uri
                )
    if agreed.key_reference and check.form and check.form != agreed.key_reference:
        yield _policy(f"the signer is named by {check.form}, {agreed.key_reference} is agreed")


def _username(security: Security, facts: Facts) -> Iterator[EbmsError]:
    agreed = security.username_token
    assert agreed is not None
    closed = facts.decryption is not None and facts.decryption.tokens and not facts.receiving
    if not facts.username_tokens and not closed:
        yield _policy("the P-Mode asks for a username token, and there is none")
    for token in facts.username_tokens:
        if agreed.nonce and token.nonce is None:
            yield _policy("the username token has no nonce, which the P-Mode asks for")
        if token.created is None and agreed.created:
            yield _policy("the username token has no time of creation")
        for problem in _token_problems(agreed, token, facts):
            problem.location = problem.location or "wsse:UsernameToken"
            yield problem


def _token_problems(agreed: AgreedToken, token: UsernameToken, facts: Facts) -> Iterator[EbmsError]:
    """Whether the password is right, and whether the token is of the time."""
    for now, severity in (
        (_created(token), Severity.FAILURE),
        (facts.at, Severity.FAILURE if facts.time_counts else Severity.WARNING),
    ):
        try:
            check_username_token(
                token,
                username=agreed.username,
                password=agreed.password.get_secret_value(),
                now=now,
                seen=lambda _nonce, _until: False,
                allow_text=not agreed.digest,
            )
        except EbmsError as error:
            if error.severity is Severity.FAILURE:
                error.severity = severity
            yield error
            return


def _created(token: UsernameToken) -> datetime:
    """As of when a token is judged: its own time, within what times can be added to."""
    try:
        created = parse_timestamp(token.created or "")[0]
    except ValueError:
        return _EARLIEST
    return min(max(created, _EARLIEST), _LATEST)


def _policy(detail: str, location: str = "wsse:Security") -> EbmsError:
    return EbmsError("EBMS:0103", detail, location=location)
