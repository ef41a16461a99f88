"""What the machines of ebXML reliable messaging look at in a message (0.98b, section 10)."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from postroad.agreement.matching import Match
from postroad.reliability import order
from postroad.reliability.ebxml import Acknowledgment, AckType, Hop, Message, Profile
from postroad.reliability.ebxml_terms import Error, ErrorCode, Severity
from postroad.wire.ebms3 import Party
from postroad.wire.ebms3_writer import write_timestamp
from postroad.wire.ebxml import (
    BEST_EFFORT,
    DELIVERY_RECEIPT,
    ERROR,
    GUARANTEED,
    HOP_ROLES,
    NONE,
    NOT_GUARANTEED,
    ONCE_AND_ONLY_ONCE,
    SIGNED,
    UNSIGNED,
    EbxmlMessage,
    ErrorList,
    kind_of,
)
from postroad.wire.names import S11_NEXT

_CODES: Final = frozenset(ErrorCode)
_NEXT: Final = HOP_ROLES | {S11_NEXT}


def party_name(party: Party) -> str:
    """A Party as the machines know it: `Message.from_party`, `Receiver.party`."""
    return " + ".join(sorted(map(str, party.party_ids)))


def profile_of(match: Match) -> Profile:
    """The profile by which messages of a P-Mode are acknowledged. [RM000-1.3.1.3-02]"""
    agreed = match.leg.ebxml
    older = agreed is not None and agreed.profile == "rm000"
    return Profile.RM000 if older else Profile.MS098


def reliable(
    message: EbxmlMessage,
    payload_digests: Sequence[bytes] = (),
    *,
    hop: Hop | None = None,
    about: EbxmlMessage | None = None,
) -> Message:
    """What the machine looks at. `hop` goes before the last TraceHeader.

    `about` is the message that this one answers: who then has a PartyId of its To Party is that
    party, and who acknowledges is the From of the Acknowledgment, if it has one.
    [MS098-8.12.2-01]
    """
    header = message.header
    if hop is None and message.trace:
        hop = Hop(message.trace[-1].sender_uri, message.trace[-1].receiver_uri)
    number, author = header.sequence_number, header.from_party
    if about is not None:
        author = about.header.to_party if is_to_party(message, about) else _author(message)
    return Message(
        message_id=header.message_id,
        from_party=party_name(author),
        to_party=party_name(header.to_party),
        conversation_id=header.conversation_id,
        service=header.service.value,
        action=header.action,
        timestamp=header.timestamp,
        digest=_digest(message, payload_digests),
        ref_to_message_id=message.acknowledged or header.ref_to_message_id,
        sequence_number=order.read_number(str(number.value), number.status) if number else None,
        hop=hop,
        acknowledgment=_acknowledgment(message),
        error=_error(message.error_list),
    )


def is_to_party(answer: EbxmlMessage, about: EbxmlMessage) -> bool:
    """Whether the To Party of a message is who answers it: one PartyId of several will do."""
    return bool(set(_author(answer).party_ids) & set(about.header.to_party.party_ids))


def _author(answer: EbxmlMessage) -> Party:
    own = answer.acknowledgment.from_party if answer.acknowledgment else None
    return own or answer.header.from_party


def _digest(message: EbxmlMessage, payload_digests: Sequence[bytes]) -> str:
    """Of all that makes two messages identical: not of what belongs to one transmission.

    [MS098-10.3.1.5-01]
    """
    same = replace(
        message,
        trace=(),
        via=None,
        sync_reply=False,
        ack_requested=tuple(one for one in message.ack_requested if one.actor not in _NEXT),
    )
    facts = {field: getattr(same, field) for field in _SAID}
    state = sha256(msgspec.json.encode((message.dialect.name, facts), order="deterministic"))
    for digest in payload_digests:
        state.update(digest)
    return state.hexdigest()


_SAID: Final = tuple(name for name in EbxmlMessage.__struct_fields__ if name != "dialect")


def _acknowledgment(message: EbxmlMessage) -> Acknowledgment | None:
    said = message.acknowledgment
    if said is None:
        return None
    kind = AckType.DELIVERY_RECEIPT if said.type == DELIVERY_RECEIPT else AckType.ACKNOWLEDGMENT
    return Acknowledgment(said.timestamp, kind, said.signed)


def _error(errors: ErrorList | None) -> Error | None:
    """The worst of the list. Which code it has matters to the machine for a few only."""
    if errors is None or not errors.errors:
        return None
    worst = next((one for one in errors.errors if one.severity == ERROR), errors.errors[0])
    code = ErrorCode(worst.error_code) if worst.error_code in _CODES else ErrorCode.INCONSISTENT
    severity = Severity.ERROR if worst.severity == ERROR else Severity.WARNING
    return Error(code, worst.text or worst.error_code, severity)


def header_terms(message: EbxmlMessage, *, final: bool = True) -> dict[str, str]:
    """What the header says of the terms, for `reliability.ebxml_terms.agree`.

    `final`: this is the To Party, of which a delivery receipt may be asked.
    """
    header = message.header
    terms = {
        "deliverySemantics": header.delivery_semantics,
        "messageOrderSemantics": header.message_order_semantics,
        "ackRequested": _asked(message, final),
        "timeToLive": write_timestamp(header.time_to_live) if header.time_to_live else None,
    }
    if message.via is not None:
        terms["reliableMessagingMethod"] = message.via.reliable_messaging_method
        if message.via.sync_reply is not None:
            terms["syncReply"] = str(message.via.sync_reply).lower()
    if message.sync_reply:
        terms["syncReply"] = "true"
    if not message.dialect.has_quality_of_service and kind_of(message) == "message":
        # 2.0 says both by elements that are there or not.
        once, ordered = header.duplicate_elimination, header.sequence_number is not None
        terms["deliverySemantics"] = ONCE_AND_ONLY_ONCE if once else BEST_EFFORT
        terms["messageOrderSemantics"] = GUARANTEED if ordered else NOT_GUARANTEED
    return {name: value for name, value in terms.items() if value is not None}


def _asked(message: EbxmlMessage, final: bool) -> str | None:
    """The stronger of what is asked of this MSH: an acknowledgment, a delivery receipt."""
    asked = [message.via.ack_requested] if message.via else []
    if final:
        asked.append(message.header.delivery_receipt_requested)
    for one in message.ack_requested:
        if final or one.actor in _NEXT:
            asked.append(SIGNED if one.signed else UNSIGNED)
    return next((word for word in (SIGNED, UNSIGNED, NONE) if word in asked), None)


def signed_wanted(message: EbxmlMessage, *, final: bool = True) -> bool:
    """Whether a signed acknowledgment is asked of this MSH."""
    return _asked(message, final) == SIGNED
