"""The eb:Messaging header as values (ebMS 3.0 Core 5.2, AS4, Part 2 section 5.1).

Read by `ebms3_reader`, written by `ebms3_writer`. Names are the specification's.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from postroad.wire.names import DEFAULT_MPC

COMPRESSION_TYPE: Final = "CompressionType"
MIME_TYPE: Final = "MimeType"
CHARACTER_SET: Final = "CharacterSet"
GZIP: Final = "application/gzip"


@dataclass(frozen=True, slots=True)
class MessageInfo:
    timestamp: datetime
    """Aware, UTC."""
    message_id: str
    ref_to_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class PartyId:
    value: str
    type: str | None = None

    def __str__(self) -> str:
        return f"{self.type}::{self.value}" if self.type else self.value


@dataclass(frozen=True, slots=True)
class Party:
    """The content of eb:From or eb:To."""

    party_ids: tuple[PartyId, ...]
    role: str

    def __str__(self) -> str:
        return ", ".join(map(str, self.party_ids))


@dataclass(frozen=True, slots=True)
class Service:
    value: str
    type: str | None = None

    def __str__(self) -> str:
        return f"{self.type}::{self.value}" if self.type else self.value


@dataclass(frozen=True, slots=True)
class AgreementRef:
    value: str
    type: str | None = None
    pmode: str | None = None


@dataclass(frozen=True, slots=True)
class CollaborationInfo:
    service: Service
    action: str
    conversation_id: str
    agreement_ref: AgreementRef | None = None


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    value: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    location: str
    version: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    text: str
    lang: str


@dataclass(frozen=True, slots=True)
class PartInfo:
    href: str | None = None
    """`cid:…` an attachment, `#id` an element of the Body, another URL an external payload,
    None the whole Body."""
    properties: tuple[Property, ...] = ()
    schemas: tuple[Schema, ...] = ()
    description: Description | None = None

    def property(self, name: str) -> str | None:
        return next((p.value for p in self.properties if p.name == name), None)


@dataclass(frozen=True, slots=True)
class UserMessage:
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
        return next((p.value for p in self.properties if p.name == name), None)


@dataclass(frozen=True, slots=True)
class Selection:
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


@dataclass(frozen=True, slots=True)
class PullRequest:
    mpc: str | None = None
    selection: Selection | None = None

    @property
    def effective_mpc(self) -> str:
        return self.mpc or DEFAULT_MPC


@dataclass(frozen=True, slots=True)
class Transform:
    algorithm: str
    prefixes: tuple[str, ...] = ()
    """The InclusiveNamespaces prefix list of an exclusive canonicalisation."""


class Reference(NamedTuple):
    """A ds:Reference: what was digested, how, and the digest."""

    uri: str
    transforms: tuple[Transform, ...]
    digest_method: str
    digest_value: bytes


@dataclass(frozen=True, slots=True)
class NonRepudiationInformation:
    references: tuple[Reference, ...]
    message_part_identifiers: tuple[str, ...] = ()
    """Allowed by the ebBP schema, forbidden by AS4; kept so that it can be reported."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Exactly one of the two contents: non-repudiation of receipt, or reception awareness."""

    non_repudiation: NonRepudiationInformation | None = None
    user_message: UserMessage | None = None
    """The copy of the received eb:UserMessage."""


@dataclass(frozen=True, slots=True)
class Error:
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


@dataclass(frozen=True, slots=True)
class SignalMessage:
    """One signal: a PullRequest, a Receipt, or one or more Errors."""

    message_info: MessageInfo
    pull_request: PullRequest | None = None
    receipt: Receipt | None = None
    errors: tuple[Error, ...] = ()


Unit = UserMessage | SignalMessage


@dataclass(frozen=True, slots=True)
class Messaging:
    """The eb:Messaging header block with its units in document order."""

    units: tuple[Unit, ...]
    id: str | None = None
    """The value of `@id` or `@wsu:Id`, by which a signature refers to it."""
    role: str | None = None
    """SOAP role or actor; None is the ultimate receiver."""
    must_understand: bool = True

    @property
    def user_messages(self) -> tuple[UserMessage, ...]:
        return tuple(unit for unit in self.units if isinstance(unit, UserMessage))

    @property
    def signals(self) -> tuple[SignalMessage, ...]:
        return tuple(unit for unit in self.units if isinstance(unit, SignalMessage))

    @property
    def primary(self) -> Unit:
        """The unit that rules the message: the first user message, else the first signal."""
        return next(iter(self.user_messages), self.units[0])
