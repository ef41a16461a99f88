"""The eb:Messaging header as values (ebMS 3.0 Core 5.2, AS4, Part 2 section 5.1).

Read by `ebms3_reader`, written by `ebms3_writer`. Names are the specification's.
No cycle can lead through these values, so the collector of garbage need not look (`gc`).
"""

from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

from postroad.wire.names import DEFAULT_MPC

COMPRESSION_TYPE: Final = "CompressionType"
MIME_TYPE: Final = "MimeType"
CHARACTER_SET: Final = "CharacterSet"
GZIP: Final = "application/gzip"


class MessageInfo(Struct, frozen=True, gc=False):
    timestamp: datetime
    """Aware, UTC."""
    message_id: str
    ref_to_message_id: str | None = None


class PartyId(Struct, frozen=True, gc=False):
    value: str
    type: str | None = None

    def __str__(self) -> str:
        return f"{self.type}::{self.value}" if self.type else self.value


class Party(Struct, frozen=True, gc=False):
    """The content of eb:From or eb:To."""

    party_ids: tuple[PartyId, ...]
    role: str

    def __str__(self) -> str:
        return ", ".join(map(str, self.party_ids))


class Service(Struct, frozen=True, gc=False):
    value: str
    type: str | None = None

    def __str__(self) -> str:
        return f"{self.type}::{self.value}" if self.type else self.value


class AgreementRef(Struct, frozen=True, gc=False):
    value: str
    type: str | None = None
    pmode: str | None = None


class CollaborationInfo(Struct, frozen=True, gc=False):
    service: Service
    action: str
    conversation_id: str
    agreement_ref: AgreementRef | None = None


class Property(Struct, frozen=True, gc=False):
    name: str
    value: str
    type: str | None = None


class Schema(Struct, frozen=True, gc=False):
    location: str
    version: str | None = None
    namespace: str | None = None


class Description(Struct, frozen=True, gc=False):
    text: str
    lang: str


class PartInfo(Struct, frozen=True, gc=False):
    href: str | None = None
    """`cid:…` an attachment, `#id` an element of the Body, another URL an external payload,
    None the whole Body."""
    properties: tuple[Property, ...] = ()
    schemas: tuple[Schema, ...] = ()
    description: Description | None = None

    def property(self, name: str) -> str | None:
        for one in self.properties:
            if one.name == name:
                return one.value
        return None


class UserMessage(Struct, frozen=True, gc=False):
    message_info: MessageInfo
    from_party: Party
    to_party: Party
    collaboration_info: CollaborationInfo
    properties: tuple[Property, ...] = ()
    part_infos: tuple[PartInfo, ...] = ()
    mpc: str | None = None
    """None when the attribute is absent, which means the default MPC."""

    @property
    def effective_mpc(self) -> str:
        return self.mpc or DEFAULT_MPC

    def property(self, name: str) -> str | None:
        for one in self.properties:
            if one.name == name:
                return one.value
        return None


class Selection(Struct, frozen=True, gc=False):
    """The selection items of a selective PullRequest; all that are given must match. [P2-5.1-01]"""

    ref_to_message_id: str | None = None
    conversation_id: str | None = None
    agreement_ref: AgreementRef | None = None
    service: Service | None = None
    action: str | None = None
    from_party: Party | None = None
    to_party: Party | None = None
    """In a selection the role may be empty: it is then no constraint."""
    properties: tuple[Property, ...] = ()


class PullRequest(Struct, frozen=True, gc=False):
    mpc: str | None = None
    selection: Selection | None = None

    @property
    def effective_mpc(self) -> str:
        return self.mpc or DEFAULT_MPC


class Transform(Struct, frozen=True, gc=False):
    algorithm: str
    prefixes: tuple[str, ...] = ()
    """The InclusiveNamespaces prefix list of an exclusive canonicalisation."""


class Reference(NamedTuple):
    """A ds:Reference: what was digested, how, and the digest."""

    uri: str
    transforms: tuple[Transform, ...]
    digest_method: str
    digest_value: bytes


class NonRepudiationInformation(Struct, frozen=True, gc=False):
    references: tuple[Reference, ...]
    message_part_identifiers: tuple[str, ...] = ()
    """Allowed by the ebBP schema, forbidden by AS4; kept so that it can be reported."""


class Receipt(Struct, frozen=True, gc=False):
    """Exactly one of the two contents: non-repudiation of receipt, or reception awareness."""

    non_repudiation: NonRepudiationInformation | None = None
    user_message: UserMessage | None = None
    """The copy of the received eb:UserMessage."""
    core_element: bool = False
    """The copy is an eb:UserMessage itself, in the words of AS4 5.1.8. The schema of Core 3.0
    forbids that: there it is an element of another namespace with the same content."""


class Error(Struct, frozen=True, gc=False):
    """An eb:Error as it stands in a message (what the table says of a code is `errors.ERRORS`)."""

    error_code: str
    severity: str
    """`warning` or `failure`; other values are mapped on input."""
    category: str | None = None
    origin: str | None = None
    short_description: str | None = None
    ref_to_message_in_error: str | None = None
    description: Description | None = None
    error_detail: str | None = None


class SignalMessage(Struct, frozen=True, gc=False):
    """One signal: a PullRequest, a Receipt, or one or more Errors."""

    message_info: MessageInfo
    pull_request: PullRequest | None = None
    receipt: Receipt | None = None
    errors: tuple[Error, ...] = ()


Unit = UserMessage | SignalMessage


class Messaging(Struct, frozen=True, dict=True):
    """The eb:Messaging header block with its units in document order."""

    units: tuple[Unit, ...]
    id: str | None = None
    """The value of `@id` or `@wsu:Id`, by which a signature refers to it."""
    role: str | None = None
    """SOAP role or actor; None is the ultimate receiver."""
    must_understand: bool = True

    @cached_property
    def user_messages(self) -> tuple[UserMessage, ...]:
        return tuple([unit for unit in self.units if isinstance(unit, UserMessage)])

    @cached_property
    def signals(self) -> tuple[SignalMessage, ...]:
        return tuple([unit for unit in self.units if isinstance(unit, SignalMessage)])

    @cached_property
    def primary(self) -> Unit:
        """The unit that rules the message: the first user message, else the first signal."""
        return next(iter(self.user_messages), self.units[0])
