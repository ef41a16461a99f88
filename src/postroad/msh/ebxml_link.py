"""The link discipline of draft 001 on the wire: its messages, acknowledgements and errors.

SenderID and ReceiverID are the URIs of the last TraceHeader, where the number stands too. Answers
have the draft's MessageType, and neither Service nor Action.
"""

from datetime import datetime
from typing import Final

from postroad.msh.answers import Answer
from postroad.msh.ebxml_services import write_message
from postroad.reliability.ebxml_terms import METHOD
from postroad.reliability.link import (
    Ack,
    AnswerHeader,
    DeliverySemantics,
    ErrorClass,
    ErrorMessage,
    MessageType,
    PartyID,
    Triple,
)
from postroad.reliability.link_receiver import Message
from postroad.security.sign import Signing
from postroad.wire.ebms3 import Party, PartyId, Service
from postroad.wire.ebxml import (
    Dialect,
    EbxmlMessage,
    Error,
    ErrorList,
    MessageHeader,
    kind_of,
)

_CODES: Final = {
    ErrorClass.TRANSIENT_ERROR: "TransientError",
    ErrorClass.PROTOCOL_ERROR: "CommunicationProtocolError",
}
"""Errors that 0.98b has no code for, in the draft's own codeContext."""
_CLASSES: Final = {code.lower(): kind for kind, code in _CODES.items()}
_TYPES: Final = {"acknowledgment": MessageType.ACKNOWLEDGEMENT, "error": MessageType.ERROR}


def link_message(message: EbxmlMessage, transport: str) -> Message:
    """What the Receiver of a link looks at; ValueError for a message without TraceHeader."""
    if not message.trace:
        raise ValueError("the message has no TraceHeader, so it belongs to no link")
    last, header = message.trace[-1], message.header
    return Message(
        Triple(PartyID(last.sender_uri), PartyID(last.receiver_uri), transport),
        header.message_id,
        header.cpa_id,
        header.conversation_id,
        last.sequence_number,
        DeliverySemantics.AT_MOST_ONCE if header.is_reliable else DeliverySemantics.UNSPECIFIED,
        _TYPES.get(kind_of(message), MessageType.NORMAL),
    )


def write_link_answer(
    answer: Ack | ErrorMessage,
    dialect: Dialect,
    *,
    message_id: str,
    now: datetime,
    signing: Signing | None = None,
) -> Answer:
    """An acknowledgement or an error of a link as a message.

    [RM001-2.6.2-04] [RM001-2.6.2-06] [RM001-2.6.7-01] [RM001-2.6.7-02]
    """
    said = answer.header
    is_error = isinstance(answer, ErrorMessage)
    message = EbxmlMessage(
        dialect=dialect,
        header=MessageHeader(
            from_party=_party(said.from_id),
            to_party=_party(said.to_id),
            cpa_id=said.tpa_id,
            conversation_id=said.conversation_id,
            service=Service(""),
            action="",
            message_id=message_id,
            timestamp=now,
            ref_to_message_id=said.ref_to_message_id,
            delivery_semantics=said.delivery_semantics.value,
            message_type=said.message_type.value,
        ),
        error_list=_errors(answer, dialect) if isinstance(answer, ErrorMessage) else None,
    )
    return write_message(message, "error" if is_error else "acknowledgment", signing)


def _party(party: PartyID) -> Party:
    return Party((PartyId(party.value, party.context),), "")


def _errors(answer: ErrorMessage, dialect: Dialect) -> ErrorList:
    """[RM001-2.6.6-01]"""
    code = _CODES.get(answer.error_class)
    return ErrorList(
        (
            Error(
                error_code=code or "Inconsistent",
                code_context=METHOD if code else dialect.error_code_context,
                text=answer.detail,
                min_retry_secs=answer.min_retry_secs,
            ),
        )
    )


def read_link_answer(message: EbxmlMessage) -> Ack | ErrorMessage | None:
    """What a message says about one of a link; None when it says nothing about any."""
    header, kind = message.header, _TYPES.get(kind_of(message))
    ref = message.acknowledged or header.ref_to_message_id
    if kind is None or ref is None:
        return None
    said = AnswerHeader(
        _party_id(header.from_party),
        _party_id(header.to_party),
        header.cpa_id,
        header.conversation_id,
        ref,
        kind,
    )
    if kind is MessageType.ACKNOWLEDGEMENT:
        return Ack(said)
    errors = message.error_list.errors if message.error_list else ()
    told = "; ".join(one.text or one.error_code for one in errors)
    for one in errors:
        found = _class_of(one)
        if found is not ErrorClass.MESSAGING_ERROR:
            return ErrorMessage(said, found, one.min_retry_secs, told)
    return ErrorMessage(said, ErrorClass.MESSAGING_ERROR, detail=told)


def _class_of(error: Error) -> ErrorClass:
    """By its code, in any spelling of the draft's own words; MinRetrySecs only one has."""
    if error.min_retry_secs is not None:
        return ErrorClass.TRANSIENT_ERROR
    code = error.error_code.replace(" ", "").lower().removesuffix("s")
    return _CLASSES.get(code, ErrorClass.MESSAGING_ERROR)


def _party_id(party: Party) -> PartyID:
    first = next(iter(party.party_ids), PartyId(""))
    return PartyID(first.value, first.type)
