"""The services of an MSH: ping and message status, asked and answered (0.98b, section 9)."""

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from postroad.msh.answers import Answer
from postroad.msh.ebxml_outbound import write_signed
from postroad.security.sign import Signing
from postroad.wire.ebms3 import Party, PartyId, Service
from postroad.wire.ebxml import (
    NOT_RECOGNIZED,
    PING,
    PONG,
    STATUS_REQUEST,
    STATUS_RESPONSE,
    UNAUTHORIZED,
    Dialect,
    EbxmlMessage,
    MessageHeader,
    StatusData,
    StatusRequest,
)
from postroad.wire.soap import SoapVersion

_UNTIMED: Final = (UNAUTHORIZED, NOT_RECOGNIZED)


def write_message(message: EbxmlMessage, kind: str, how: Signing | None) -> Answer:
    """A message of the MSH, as it is sent."""
    envelope, _ = write_signed(message, how)
    return Answer(message.message_id, kind, SoapVersion.SOAP_11, envelope)


def answering(to: EbxmlMessage, action: str, *, message_id: str, now: datetime) -> MessageHeader:
    """The header of what is said to the sender of a message, about it."""
    header = to.header
    return MessageHeader(
        from_party=header.to_party,
        to_party=header.from_party,
        cpa_id=header.cpa_id,
        conversation_id=header.conversation_id,
        service=Service(to.dialect.msh_service),
        action=action,
        message_id=message_id,
        timestamp=now,
        ref_to_message_id=header.message_id,
    )


def ping(
    dialect: Dialect,
    *,
    from_party: Party,
    to_party: Party,
    cpa_id: str,
    conversation_id: str,
    message_id: str,
    now: datetime,
    signing: Signing | None = None,
) -> Answer:
    """Asks whether an MSH is there. [MS098-9.2.1-05] [MS098-9.2.1-06]"""
    asked = MessageHeader(
        from_party=from_party,
        to_party=to_party,
        cpa_id=cpa_id,
        conversation_id=conversation_id,
        service=Service(dialect.msh_service),
        action=PING,
        message_id=message_id,
        timestamp=now,
    )
    return write_message(EbxmlMessage(dialect=dialect, header=asked), "ping", signing)


def pong(
    to: EbxmlMessage, *, message_id: str, now: datetime, signing: Signing | None = None
) -> Answer:
    """Answers a ping. [MS098-9.2.2-06] [MS098-9.2.2-07]"""
    header = answering(to, PONG, message_id=message_id, now=now)
    return write_message(EbxmlMessage(dialect=to.dialect, header=header), "pong", signing)


def status_request(
    dialect: Dialect,
    *,
    about: str,
    from_party: Party,
    to_party: Party,
    cpa_id: str,
    conversation_id: str,
    message_id: str,
    now: datetime,
    receiver_uri: str | None = None,
    signing: Signing | None = None,
) -> Answer:
    """Asks what became of the message `about`; `receiver_uri` is that of its TraceHeader, if any.

    [MS098-9.1.1-04] [MS098-9.1.1-05] [MS098-9.1.1-07]
    """
    asked = MessageHeader(
        from_party=from_party,
        to_party=Party((PartyId(receiver_uri),), "") if receiver_uri else to_party,
        cpa_id=cpa_id,
        conversation_id=conversation_id,
        service=Service(dialect.msh_service),
        action=STATUS_REQUEST,
        message_id=message_id,
        timestamp=now,
        ref_to_message_id=None if dialect.has_status_request else about,
    )
    message = EbxmlMessage(
        dialect=dialect,
        header=asked,
        status_request=StatusRequest(about) if dialect.has_status_request else None,
    )
    return write_message(message, "status_request", signing)


def status_response(
    to: EbxmlMessage,
    *,
    status: str,
    message_id: str,
    now: datetime,
    received_at: datetime | None = None,
    signing: Signing | None = None,
) -> Answer:
    """Answers a status request; ValueError for a status that its version doesn't know.

    When the message came is told only where it is known to who asks. [MS098-8.11.2-01]
    """
    if status not in to.dialect.message_statuses:
        raise ValueError(f"{status!r} is none of {', '.join(to.dialect.message_statuses)}")
    header = answering(to, STATUS_RESPONSE, message_id=message_id, now=now)
    data = StatusData(to.asked_about or "", status, None if status in _UNTIMED else received_at)
    message = EbxmlMessage(dialect=to.dialect, header=header, status_data=data)
    return write_message(message, "status", signing)


def said_by(header: MessageHeader, party: Party | None) -> MessageHeader:
    """The header, with another author than the To Party of the message that it is about."""
    return header if party is None else replace(header, from_party=party)
