"""What comes under a known id: the first message again, its sender's other version, or neither."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from postroad.agreement.duplicates import message_id_decides
from postroad.agreement.matching import Match
from postroad.msh.payloads import Payload
from postroad.node.steps.arrival import Arrival
from postroad.reliability.awareness import Arrival as Same
from postroad.store.records import Message
from postroad.wire.ebms3 import UserMessage

FRAGMENT: Final = "fragment"
"""The kind of a stored message that is a part of another."""
_FIELD_NAMES: Final = {
    "sequence_number": "SequenceNumber",
    "ref_to_message_id": "RefToMessageId",
    "conversation_id": "ConversationId",
    "from_party": "From",
    "to_party": "To",
    "from_role": "From/Role",
    "to_role": "To/Role",
    "service": "Service",
    "action": "Action",
    "agreement": "AgreementRef",
    "properties": "MessageProperties",
    "payload_digests": "payloads",
}
"""The names of stored fields in the `detail` of a journal event."""
_PARTNER: Final = ("protocol", "from_party", "to_party")
"""Fields that are equal in all messages of one partner."""


def compare(
    arrival: Arrival,
    message: UserMessage,
    payloads: Sequence[Payload],
    match: Match,
    before: Message,
    *,
    best_effort: bool = False,
) -> tuple[Same, str | None]:
    """What comes under a known id, and in what its contents differ from the first message's.

    An id is no secret. Whoever is not the sender of the first message, as far as its P-Mode makes
    that certain, must neither get the first one's receipt nor take its place. The P-Mode has to be
    the same, since another one may ask for less, such as for no signature. Fragments of two
    versions of a message must not be joined, so theirs are always compared. `best_effort` says that
    it is an ebXML message which is not sent reliably.
    """
    different = _differences(arrival, message, payloads, before)
    if not different:
        return Same.SAME, None
    same_partner = (
        (before.pmode, before.leg) == (match.pmode.id, match.number)
        and not any(name in different for name in _PARTNER)
        and before.kind != FRAGMENT
    )
    if not same_partner or not message_id_decides(match.leg, best_effort=best_effort):
        return Same.OTHER, None
    named = ", ".join(_FIELD_NAMES.get(name, name) for name in different)
    return Same.REBUILT, f"its contents differ from those of the first message: {named}"


def is_copy(
    arrival: Arrival, message: UserMessage, payloads: Sequence[Payload], before: Message
) -> bool:
    """Whether a message under an id that is known says the same as the first one."""
    return not _differences(arrival, message, payloads, before)


def _differences(
    arrival: Arrival, message: UserMessage, payloads: Sequence[Payload], before: Message
) -> list[str]:
    """The fields in which a message differs from a stored one."""
    said = header_fields(arrival, message)
    said["payload_digests"] = tuple(
        [f"sha256:{one.sha256.hex()}" for one in payloads if one.sha256]
    )
    return [name for name, value in said.items() if getattr(before, name) != value]


_name: Final = lru_cache(maxsize=1024)(str)
"""Of a party or a service: few are named again and again."""


def header_fields(arrival: Arrival, message: UserMessage) -> dict[str, Any]:
    """What a received header says, as fields of a stored message."""
    info, business = message.message_info, message.collaboration_info
    ebxml = arrival.found.ebxml
    number = ebxml.header.sequence_number if ebxml is not None else None
    return {
        "protocol": "as4" if ebxml is None else ebxml.dialect.protocol,
        "sequence_number": None if number is None else number.value,
        "ref_to_message_id": info.ref_to_message_id,
        "conversation_id": business.conversation_id,
        "from_party": _name(message.from_party),
        "to_party": _name(message.to_party),
        "from_role": message.from_party.role,
        "to_role": message.to_party.role,
        "service": _name(business.service),
        "action": business.action,
        "mpc": message.effective_mpc if ebxml is None else None,
        "agreement": business.agreement_ref.value if business.agreement_ref else None,
        "properties": tuple([(one.name, one.value, one.type) for one in message.properties]),
    }
