"""What an inspection brings along, and what it finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from msgspec import Struct

from postroad.agreement.matching import Match
from postroad.msh.capture import Capture
from postroad.msh.expectation import Expectation
from postroad.msh.payloads import Payload
from postroad.reliability.ebxml_terms import Terms as EbxmlTerms
from postroad.security.attachments import Attachment
from postroad.security.decrypt import Decryption
from postroad.security.keys import BareKey, KeyPair
from postroad.security.revocation import NO_REVOCATION, Checked, Revocation
from postroad.security.timestamps import Timestamp
from postroad.security.trust import Chain
from postroad.security.username import UsernameToken
from postroad.security.verify import Verification
from postroad.wire.content import BytesSink, NewSink
from postroad.wire.ebms3 import Messaging, Reference
from postroad.wire.ebxml import EbxmlMessage
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.fragments import MessageFragment
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.multihop import RoutingInput
from postroad.wire.soap import Envelope
from postroad.wire.soap_faults import Fault
from postroad.wire.wsa import Addressing
from postroad.wire.wsreliability import Broken, WsrHeaders
from postroad.wire.wsrm import RmHeaders
from postroad.wire.wsrm_faults import RmFault


class Lens(Struct, frozen=True):
    """What the one who looks has at hand, and how strict to be."""

    at: datetime
    """As of when certificates and times are judged."""
    at_given: bool = False
    """Somebody asked for that time: then an expired timestamp is a failure, not a warning."""
    trusted: tuple[x509.Certificate, ...] = ()
    """Authorities and partners that are trusted; a P-Mode's own pins and anchors go before."""
    keys: tuple[KeyPair | BareKey, ...] = ()
    legacy: bool = False
    """Accept weak algorithms and short keys."""
    skew: timedelta = timedelta(minutes=5)
    """How far the clock of who made the message may be off."""
    receiving: bool = False
    """The one who looks will act on the message: what cannot be checked is then a failure."""
    opened: bool = False
    """Attachments are given as they were before encryption: there is nothing to decrypt."""
    joined: bool = False
    """It was joined of fragments that were secured: it need not be so itself. [P2-4.4.2-05]"""
    unsigned_routing: bool = False
    """The routing headers of a signal may be unsigned: a receipt is proven without them."""
    known: tuple[x509.Certificate, ...] = ()
    """Certificates that a message may name without holding them; nobody is trusted for it."""
    revocation: Revocation = NO_REVOCATION
    """What is known about revoked certificates."""
    expectation: Expectation | None = None
    new_sink: NewSink = BytesSink
    limits: Limits = DEFAULT

    @property
    def time_counts(self) -> bool:
        """Whether what is expired is a failure, or only worth a warning."""
        return self.at_given or self.receiving


@dataclass(slots=True)
class Inspection:
    """What was found. Filled step by step, then only read."""

    capture: Capture | None = None
    envelope: Envelope | None = None
    kind: str = "unreadable"
    messaging: Messaging | None = None
    ebxml: EbxmlMessage | None = None
    """What an ebXML message says; `messaging` then holds what it shares with all others."""
    ebxml_terms: EbxmlTerms | None = None
    """What CPA and header agree on; None when they don't, or nobody knows the CPA."""
    soap_fault: Fault | None = None
    """What SOAP answers to an ebXML message before ebXML can: MIME problems, not understood."""
    addressing: Addressing | None = None
    routing: RoutingInput | None = None
    fragment: MessageFragment | None = None
    fault: Fault | None = None
    wsr: WsrHeaders | None = None
    """The headers of WS-Reliability, if it has any."""
    wsr_broken: tuple[Broken, ...] = ()
    """What is wrong with them."""
    rm: RmHeaders | None = None
    """The headers of WS-ReliableMessaging."""
    rm_fault: RmFault | None = None
    attachments: Mapping[str, Attachment] = field(default_factory=dict)
    payloads: dict[int, tuple[Payload, ...]] = field(default_factory=dict)
    """The payloads of each unit, by its place among the units."""
    decryption: Decryption | None = None
    verification: Verification | None = None
    chain: Chain | None = None
    trust_notes: tuple[str, ...] = ()
    """What is odd about a certificate that is trusted all the same."""
    revocation: tuple[Checked, ...] = ()
    """What is known about the revocation of the signer's certificate and those above it."""
    digests: tuple[Reference, ...] = ()
    """Of a joined message: those of its parts, which stand for a signature of its own."""
    trusted: bool | None = None
    """None when nobody said whom to trust."""
    unsigned_routing: tuple[str, ...] = ()
    """Routing headers of a signal that its signature leaves out, where that is accepted."""
    timestamp: Timestamp | None = None
    username_tokens: tuple[UsernameToken, ...] = ()
    pmode: str | None = None
    match: Match | None = None
    """The P-Mode of the first user message."""
    matches: dict[int, Match] = field(default_factory=dict)
    """The P-Mode of each user message that has one, by its place among the units."""
    problems: list[EbmsError] = field(default_factory=list)

    @property
    def is_ebxml(self) -> bool:
        """Whether it is a message of the older tongue, read or not."""
        return self.ebxml is not None or self.soap_fault is not None

    @property
    def proof(self) -> tuple[Reference, ...]:
        """What a receipt repeats: the digests of the signature, or those of a joined message."""
        return self.digests if self.verification is None else self.verification.signed_references

    @property
    def readable(self) -> bool:
        return self.envelope is not None

    @property
    def holds(self) -> bool:
        return self.readable and not any(p.severity is Severity.FAILURE for p in self.problems)
