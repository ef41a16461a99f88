"""The older tongue as values: ebXML Message Service 0.98b, 1.0 and 2.0 (sections 8 and 9 of 0.98b).

Read by `ebxml_reader`, written by `ebxml_writer`, changed on the way by `ebxml_hops`. Names are
the specification's. What differs between the versions is in `Dialect`, as data.

Where two versions have two elements for one thing there is one value: StatusData is
StatusResponse in 1.0 and 2.0, a SequenceNumber stands in MessageOrder in 2.0, and what 1.0 calls
DeliveryReceipt is an Acknowledgment of that type.
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal

from lxml import etree
from msgspec import Struct

from postroad.wire.ebms3 import Description, Party, PartyId, Reference, Schema, Service
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import (
    EB1,
    EB2,
    EB2_NEXT_MSH,
    EB2_TO_PARTY_MSH,
    S11,
    S11_NEXT,
    S12_ULTIMATE_RECEIVER,
)

ONCE_AND_ONLY_ONCE: Final = "OnceAndOnlyOnce"
BEST_EFFORT: Final = "BestEffort"
GUARANTEED: Final = "Guaranteed"
NOT_GUARANTEED: Final = "NotGuaranteed"
SIGNED: Final = "Signed"
UNSIGNED: Final = "UnSigned"
NONE: Final = "None"
DELIVERY_RECEIPT: Final = "DeliveryReceipt"
"""The type of an acknowledgment by the To Party."""
ACKNOWLEDGMENT: Final = "Acknowledgment"
"""The type of one by an MSH on the way, and the Action of a message that acknowledges."""
MESSAGE_ERROR: Final = "MessageError"
STATUS_REQUEST: Final = "StatusRequest"
STATUS_RESPONSE: Final = "StatusResponse"
PING: Final = "Ping"
PONG: Final = "Pong"
RESET: Final = "Reset"
CONTINUE: Final = "Continue"
ERROR: Final = "Error"
WARNING: Final = "Warning"
UNAUTHORIZED: Final = "UnAuthorized"
NOT_RECOGNIZED: Final = "NotRecognized"
RECEIVED: Final = "Received"
PROCESSED: Final = "Processed"
FORWARDED: Final = "Forwarded"

AT_MOST_ONCE: Final = "AtMostOnce"
"""Draft 001's word for reliable messaging. [RM001-2.1-02]"""
UNSPECIFIED: Final = "Unspecified"
"""Draft 001's word for BestEffort."""
RELIABLE: Final = frozenset((ONCE_AND_ONLY_ONCE, AT_MOST_ONCE))
"""The deliverySemantics that ask for reliable messaging."""
DELIVERY_SEMANTICS: Final = (ONCE_AND_ONLY_ONCE, BEST_EFFORT, AT_MOST_ONCE, UNSPECIFIED)
ORDER_SEMANTICS: Final = (GUARANTEED, NOT_GUARANTEED)
REQUESTS: Final = (SIGNED, UNSIGNED, NONE)
"""What ackRequested and deliveryReceiptRequested may say."""
METHODS: Final = ("ebXML", "Transport")
STATUSES: Final = (RESET, CONTINUE)
SEVERITIES: Final = (ERROR, WARNING)
MOST_SEQUENCE_NUMBER: Final = 99_999_999
MOST_LINK_NUMBER: Final = 4_294_967_295
"""The largest number of draft 001, which counts from 1 for each sender, receiver and transport."""


class Dialect(Struct, frozen=True, kw_only=True):
    """A version of the specification: how its messages differ from those of the others."""

    name: str
    namespace: str
    versions: tuple[str, ...]
    """The first is written, all are read."""
    msh_service: str
    """The Service of what MSHs say to each other."""
    error_code_context: str
    hop_xpath: str
    """The XPath transform of a signature: all but what changes from hop to hop."""
    hop_namespaces: tuple[tuple[str, str], ...]
    """Prefix and namespace of what the XPath names."""
    id_attribute: str = "eb:id"
    ids_required: bool = True
    """Manifest and Reference must have an id."""
    many_party_ids: bool = True
    """From and To may hold more than one PartyId, and in 2.0 a Role."""
    has_role: bool = False
    has_quality_of_service: bool = True
    """QualityOfServiceInfo, and SequenceNumber in the MessageHeader; else DuplicateElimination,
    MessageOrder, AckRequested and SyncReply."""
    has_trace: bool = True
    """TraceHeaderList and Via: what is said from hop to hop."""
    trace_by_party: bool = False
    """TraceHeaders have Sender and Receiver (PartyId, Location), not SenderURI and ReceiverURI."""
    acknowledgment_in_header: bool = True
    has_delivery_receipt: bool = False
    """An acknowledgment by the To Party is an element DeliveryReceipt in the Body."""
    acknowledgment_refers: bool = False
    """The Acknowledgment holds RefToMessageId itself."""
    acknowledgment_references: bool = True
    """The Acknowledgment may hold the ds:References of the message."""
    has_status_request: bool = True
    """StatusRequest is an element; else the MessageHeader's RefToMessageId tells what is asked."""
    status_data: str = STATUS_RESPONSE
    message_statuses: tuple[str, ...] = (UNAUTHORIZED, NOT_RECOGNIZED, RECEIVED)
    body_must_understand: bool = True
    """Elements of the Body have mustUnderstand too."""
    error_has_description: bool = False
    """The text of an Error is in a Description; else in the Error itself."""
    open_header: bool = True
    """The MessageHeader may hold foreign elements."""

    @property
    def protocol(self) -> str:
        """How the version is called where protocols are told apart: `ebxml-0.98b`."""
        return f"ebxml-{self.name}"

    @property
    def version(self) -> str:
        return self.versions[0]

    def tag(self, name: str) -> str:
        """The Clark name of an element or attribute of this version."""
        return f"{{{self.namespace}}}{name}"


_OLD_SERVICE: Final = "uri:www.ebxml.org/messageService/"
_OLD_ERRORS: Final = "http://www.ebxml.org/messageServiceErrors"
_OLD_XPATH: Final = "not(ancestor-or-self::eb:TraceHeaderList or ancestor-or-self::eb:Via)"

MS098: Final = Dialect(
    name="0.98b",
    namespace=EB1,
    versions=("0.98b", "98.0"),
    msh_service=_OLD_SERVICE,
    error_code_context=_OLD_ERRORS,
    hop_xpath=_OLD_XPATH,
    hop_namespaces=(("eb", EB1),),
    id_attribute="id",
    many_party_ids=False,
    acknowledgment_in_header=False,
    acknowledgment_references=False,
    has_status_request=False,
    status_data="StatusData",
    open_header=False,
)
MS10: Final = Dialect(
    name="1.0",
    namespace=EB1,
    versions=("1.0",),
    msh_service=_OLD_SERVICE,
    error_code_context=_OLD_ERRORS,
    hop_xpath=_OLD_XPATH,
    hop_namespaces=(("eb", EB1),),
    trace_by_party=True,
    has_delivery_receipt=True,
    open_header=False,
)
MS20: Final = Dialect(
    name="2.0",
    namespace=EB2,
    versions=("2.0",),
    msh_service="urn:oasis:names:tc:ebxml-msg:service",
    error_code_context="urn:oasis:names:tc:ebxml-msg:service:errors",
    hop_xpath=(
        f'not(ancestor-or-self::node()[@SOAP:actor="{EB2_NEXT_MSH}"] | '
        f'ancestor-or-self::node()[@SOAP:actor="{S11_NEXT}"])'
    ),
    hop_namespaces=(("SOAP", S11),),
    ids_required=False,
    has_role=True,
    has_quality_of_service=False,
    has_trace=False,
    acknowledgment_refers=True,
    message_statuses=(UNAUTHORIZED, NOT_RECOGNIZED, RECEIVED, PROCESSED, FORWARDED),
    body_must_understand=False,
    error_has_description=True,
)
DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType(
    {dialect.name: dialect for dialect in (MS098, MS10, MS20)}
)

ROLES: Final = frozenset((S12_ULTIMATE_RECEIVER, EB2_TO_PARTY_MSH, EB2_NEXT_MSH))
"""The actors as which the MSH of the To Party takes a message; `next` everybody is."""
HOP_ROLES: Final = frozenset((EB2_NEXT_MSH,))
"""Those as which an MSH on the way does."""


class SequenceNumber(Struct, frozen=True):
    """The place of a message in its conversation. [MS098-8.4.8-08]"""

    value: int
    status: str = CONTINUE


class Extension(Struct, frozen=True):
    """A foreign element where the specification has room for one: #wildcard."""

    name: str
    """The Clark name."""
    xml: str
    """The element in exclusive canonical form, so that it can stand anywhere."""
    must_understand: bool = False


class MessageHeader(Struct, frozen=True, kw_only=True):
    """From whom, to whom, about what. In a Party the role is "" where there is none.

    Where a required value is missing in what was read, text is "" and a time is `EPOCH`.
    """

    from_party: Party
    to_party: Party
    cpa_id: str
    conversation_id: str
    service: Service
    action: str
    message_id: str
    timestamp: datetime
    """Aware, UTC, as are all times here."""
    ref_to_message_id: str | None = None
    time_to_live: datetime | None = None
    delivery_semantics: str | None = None
    """None: it is not said, as with the other two."""
    message_order_semantics: str | None = None
    delivery_receipt_requested: str | None = None
    sequence_number: SequenceNumber | None = None
    duplicate_elimination: bool = False
    """2.0 only."""
    descriptions: tuple[Description, ...] = ()
    extensions: tuple[Extension, ...] = ()
    message_type: str | None = None
    """Draft 001's MessageType of an acknowledgement or error: in place of Service and Action, which
    are "" then. [RM001-2.6.2-04]"""

    @property
    def is_reliable(self) -> bool:
        """Whether once-and-only-once delivery is asked for, in the words of whichever version."""
        return self.delivery_semantics in RELIABLE or self.duplicate_elimination


class TraceHeader(Struct, frozen=True):
    """One transmission from an MSH to the next."""

    sender_uri: str
    """Location of the Sender in 1.0."""
    receiver_uri: str
    timestamp: datetime
    sequence_number: int | None = None
    """Draft 001's number, a foreign element."""
    extensions: tuple[Extension, ...] = ()
    sender: PartyId | None = None
    """1.0 only; a URI is its own PartyId where none is given."""
    receiver: PartyId | None = None


class Via(Struct, frozen=True, kw_only=True):
    """What is said to the next MSH alone. None: not said, which means the default."""

    sync_reply: bool | None = None
    reliable_messaging_method: str | None = None
    ack_requested: str | None = None
    cpa_id: str | None = None
    service: Service | None = None
    action: str | None = None


class AckRequested(Struct, frozen=True):
    """2.0 only: an acknowledgment is wanted, of the MSH that the actor names."""

    signed: bool
    actor: str | None = None
    """None: toPartyMSH."""


class Acknowledgment(Struct, frozen=True, kw_only=True):
    """A message has been received."""

    timestamp: datetime
    """When that was."""
    type: str = DELIVERY_RECEIPT
    """By the To Party, or `Acknowledgment`, by somebody on the way. 2.0 tells by the actor."""
    signed: bool = False
    """2.0 does not say it; there it is whether there are references."""
    from_party: Party | None = None
    """Who received it; None: the From Party of the message that says so. [MS098-8.12.2-01]"""
    ref_to_message_id: str | None = None
    """2.0 only: elsewhere the MessageHeader tells it."""
    references: tuple[Reference, ...] = ()
    """The ds:References of the received message's signature; not in 0.98b."""
    actor: str | None = None
    """2.0 only."""


class Error(Struct, frozen=True, kw_only=True):
    """One error as it stands in a message (what the table says of a code is `errors.ERRORS`)."""

    error_code: str
    severity: str = ERROR
    code_context: str
    location: str | None = None
    text: str = ""
    lang: str = "en"
    min_retry_secs: int | None = None
    """Draft 001: how long the sender is to wait before it tries again."""


class ErrorList(Struct, frozen=True):
    errors: tuple[Error, ...]
    id: str = "errors"

    @property
    def highest_severity(self) -> str:
        """[MS098-8.7.4-01]"""
        return ERROR if any(error.severity == ERROR for error in self.errors) else WARNING


class ManifestReference(Struct, frozen=True, kw_only=True):
    """Where some data of the message is: an attachment, or somewhere on the web."""

    href: str
    id: str = ""
    """"": `write_ebxml` finds one."""
    role: str | None = None
    schemas: tuple[Schema, ...] = ()
    descriptions: tuple[Description, ...] = ()
    extensions: tuple[Extension, ...] = ()


class Manifest(Struct, frozen=True):
    references: tuple[ManifestReference, ...]
    id: str = "manifest"
    extensions: tuple[Extension, ...] = ()


class StatusRequest(Struct, frozen=True):
    """Of which message the status is asked."""

    ref_to_message_id: str


class StatusData(Struct, frozen=True):
    """What is known of a message: StatusData, or StatusResponse in 1.0 and 2.0."""

    ref_to_message_id: str
    message_status: str
    timestamp: datetime | None = None
    """When it was received."""


class EbxmlMessage(Struct, frozen=True, kw_only=True):
    """All that the ebXML elements of an envelope say."""

    dialect: Dialect
    header: MessageHeader
    trace: tuple[TraceHeader, ...] = ()
    via: Via | None = None
    ack_requested: tuple[AckRequested, ...] = ()
    sync_reply: bool = False
    """2.0 only: the element SyncReply."""
    error_list: ErrorList | None = None
    acknowledgment: Acknowledgment | None = None
    manifest: Manifest | None = None
    status_request: StatusRequest | None = None
    status_data: StatusData | None = None

    @property
    def message_id(self) -> str:
        return self.header.message_id

    @property
    def asked_about(self) -> str | None:
        """The id whose status a status request asks for, wherever its version has it."""
        if self.status_request is not None:
            return self.status_request.ref_to_message_id
        return None if self.dialect.has_status_request else self.header.ref_to_message_id

    @property
    def acknowledged(self) -> str | None:
        """The id of the message that this one acknowledges; None: it does not."""
        if self.acknowledgment is not None and self.acknowledgment.ref_to_message_id:
            return self.acknowledgment.ref_to_message_id
        if self.acknowledgment is not None or kind_of(self) == "acknowledgment":
            return self.header.ref_to_message_id
        return None


class Reading(Struct):
    """What was read, all that is wrong with it, and the very elements that were read."""

    message: EbxmlMessage | None
    """None when there is no MessageHeader, or no single one."""
    problems: tuple[EbmsError, ...]
    header_element: etree._Element | None = None
    manifest_element: etree._Element | None = None
    signatures: tuple[etree._Element, ...] = ()
    """The ds:Signatures of the Header; the first is that of the From Party. [MS098-8.8-04]"""

    @property
    def failures(self) -> tuple[EbmsError, ...]:
        return tuple(p for p in self.problems if p.severity is Severity.FAILURE)


Kind = Literal[
    "message", "acknowledgment", "error", "ping", "pong", "status_request", "status_response"
]

_OLD_SERVICES: Final = frozenset(
    f"{root}/messageService{rest}"
    for root in ("uri:www.ebxml.org", "http://www.ebxml.org/namespaces")
    for rest in ("", "/MessageAcknowledgment", "/MessageAcknowledgement")
)
_ACTIONS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        ACKNOWLEDGMENT: "acknowledgment",
        "Acknowledgement": "acknowledgment",
        DELIVERY_RECEIPT: "acknowledgment",
        "IntermediateAcknowledgment": "acknowledgment",
        MESSAGE_ERROR: "error",
        PING: "ping",
        PONG: "pong",
        STATUS_REQUEST: "status_request",
        STATUS_RESPONSE: "status_response",
    }
)

MESSAGE_TYPES: Final[Mapping[str, Kind]] = MappingProxyType(
    {"Acknowledgement": "acknowledgment", ERROR: "error"}
)
"""The MessageTypes of draft 001 that its answers have."""


def is_msh_service(service: Service) -> bool:
    """Whether the message is for the MSH itself; the specification has several spellings."""
    name = service.value.removesuffix("/")
    return name == MS20.msh_service or name in _OLD_SERVICES


def is_reserved(service: Service) -> bool:
    """Whether a Service is kept for MSHs, by its beginning. [MS098-8.4.4-02]"""
    return is_msh_service(service) or service.value.startswith(_OLD_SERVICE)


def kind_of(message: EbxmlMessage) -> Kind:
    """What a message is, by Service and Action, or by draft 001's MessageType.

    An application's may acknowledge something too, or report errors. [MS098-11.5-01]
    """
    header = message.header
    if header.message_type is not None:
        return MESSAGE_TYPES.get(header.message_type, "message")
    if is_msh_service(header.service):
        return _ACTIONS.get(header.action, "message")
    return "message"
