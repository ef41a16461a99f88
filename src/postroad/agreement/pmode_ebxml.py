"""The ebXML parameters of a P-Mode leg: with them it speaks ebXML Message Service, not ebMS 3.0.

No specification names them as P-Mode parameters; the words are those of ebXML 0.98b and CPA 2.0.
Retries, TimeToLive and persistDuration are ReceptionAwareness.Retry.Parameters, the CPAId is
PMode.Agreement, the address for acknowledgments Security.SendReceipt.ReplyTo, the ErrorURI
ErrorHandling.Report.ReceiverErrorsTo.
"""

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from postroad.agreement.groups import Group, parameter
from postroad.agreement.values import Text, Uri, Uris
from postroad.wire.names import EBRM

Version = Annotated[
    Literal["0.98b", "1.0", "2.0"], WithJsonSchema({"enum": ["0.98b", "1.0", "2.0", 1.0, 2.0]})
]
_ACKS: Final = {"signed": "Signed", "unsigned": "UnSigned", "none": "None"}
_ACCURACY: Final = re.compile(r"[0-9]{2}:[0-5][0-9]")


def _ack(value: object) -> object:
    """Whatever the case: the specification itself has Unsigned and UnSigned."""
    return _ACKS.get(value.lower(), value) if isinstance(value, str) else value


def _accuracy(value: str) -> str:
    """[MS098-10.2.2-01]"""
    if not _ACCURACY.fullmatch(value):
        raise ValueError(f"{value!r} is not written as mm:ss, such as '00:30'")
    return value


Acknowledged = Annotated[Literal["Signed", "UnSigned", "None"], BeforeValidator(_ack)]
Accuracy = Annotated[str, AfterValidator(_accuracy), WithJsonSchema({"type": ["string", "number"]})]


class Ebxml(Group):
    """The leg's messages are ebXML messages; ebXML MS 0.98b, 1.0 or 2.0."""

    version: Version = parameter("Version", "The dialect: 0.98b, 1.0 or 2.0; unset: 2.0.", "2.0")
    delivery_semantics: Literal["OnceAndOnlyOnce", "BestEffort"] = parameter(
        "DeliverySemantics",
        "Whether messages are sent reliably: acknowledged, sent again, never delivered twice.",
        "BestEffort",
    )
    message_order: Literal["Guaranteed", "NotGuaranteed"] = parameter(
        "MessageOrderSemantics",
        "Whether the messages of a conversation are delivered in their order.",
        "NotGuaranteed",
    )
    ack_requested: Acknowledged = parameter(
        "AckRequested",
        "The acknowledgment asked for: of each hop (0.98b, 1.0), of the To Party (2.0).",
        "None",
    )
    delivery_receipt: Acknowledged = parameter(
        "DeliveryReceiptRequested", "The delivery receipt of the To Party; 0.98b and 1.0.", "None"
    )
    sync_reply: Literal[
        "none", "mshSignalsOnly", "signalsOnly", "responseOnly", "signalsAndResponse"
    ] = parameter("SyncReplyMode", "What comes back in the HTTP response.", "none")
    method: Literal["ebXML"] = parameter(
        "ReliableMessagingMethod",
        "What makes delivery reliable: this protocol. What is set is sent in Via.",
        "ebXML",
    )
    methods_supported: Uris = parameter(
        "ReliableMessagingMethodsSupported",
        "The methods of reliable messaging that the parties have, by their URIs.",
        (EBRM,),
    )
    profile: Literal["ms098", "rm000", "rm001"] = parameter(
        "Profile",
        "The reliable messaging: that of 0.98b, of draft 000, or the link discipline of draft 001.",
        "ms098",
    )
    msh_time_accuracy: Accuracy | None = parameter(
        "MSHTimeAccuracy", "How far the parties' clocks may differ, as mm:ss; unset: not at all."
    )
    reply_to: Uri | None = parameter(
        "ReplyTo",
        "The sender's own address, where answers reach it (SenderURI); unset: the node's.",
    )
    transports: Uris = parameter(
        "Transports",
        "Further addresses of the receiver, in order; each is tried when the one before has used "
        "up its retries.",
        (),
    )
    hops: int = parameter("Hops", "How many MSHs lie on the way.", 0, ge=0, le=100)
    relay: bool = parameter(
        "Relay",
        "Whether this node is an MSH on the way: messages go on to the address.",
        False,
    )
    via_cpa_id: Text | None = parameter("Via.CPAId", "The CPAId of the next hop, in Via.")
    via_service: Uri | None = parameter(
        "Via.Service", "The Service that the next MSH is to offer, in Via; with Via.Action."
    )
    via_action: Text | None = parameter(
        "Via.Action", "The Action that the next MSH is to take, in Via; with Via.Service."
    )
    ack_after_forward: bool = parameter(
        "AckAfterForward",
        "Whether a relay acknowledges only what the next MSH acknowledged; unset: what it stored.",
        False,
    )
    status_requests: Literal["partner", "nobody"] = parameter(
        "StatusRequests", "Who may ask for the status of a message.", "partner"
    )
    ping: Literal["anybody", "partner", "nobody"] = parameter(
        "Ping", "Who gets an answer to a ping.", "partner"
    )
    lenient: bool = parameter(
        "Lenient", "Whether known slips of other products are forgiven, with a warning.", True
    )
