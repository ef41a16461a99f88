"""Journal events about messages: what is the same in all events of a message stands once, here."""

from datetime import datetime
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from postroad.store.records import Event, Message, State, Stored


def about(message: Message, event: str, at: datetime, **more: Any) -> Event:
    """An event of a message; `more` are further columns of JOURNAL."""
    if message.signal:
        return _about_signal(message, event, at, **more)
    # Of what was refused, or is carried unopened, it is not known what its payloads are.
    refused = message.state is State.REJECTED or message.route is not None
    if message.part_of is not None:
        more["group_id"] = message.part_of
        more["fragment"], more["fragments"] = message.fragment, message.fragments
    return Event(
        at,
        message.party,
        event,
        message.side,
        message.wire_id,
        kind=message.kind,
        ref_to_message_id=message.ref_to_message_id,
        conversation_id=message.conversation_id,
        from_party=message.from_party,
        to_party=message.to_party,
        service=message.service,
        action=message.action,
        mpc=message.mpc,
        pmode=message.pmode,
        protocol=message.protocol,
        sequence_number=message.sequence_number,
        bytes=None if refused else message.bytes,
        payload_digests=None if refused else message.payload_digests,
        **more,
    )


def then(received: Event, event: str, at: datetime) -> Event:
    """What becomes of a message that was received, quicker than by `about`."""
    return replace(
        received, event=event, at=at, envelope=None, wire_bytes=None, peer=None, evidence=None
    )


def _about_signal(message: Message, event: str, at: datetime, **more: Any) -> Event:
    """An event of a signal that is carried for others: it tells of the message it is about."""
    more.setdefault("signal_id", message.message_id)
    return Event(
        at,
        message.party,
        event,
        message.side,
        message.ref_to_message_id or message.message_id,
        kind=message.kind,
        conversation_id=message.conversation_id,
        pmode=message.pmode,
        protocol=message.protocol,
        **more,
    )


def signed(message: Message) -> str | None:
    """Where the envelope of a message lies, once there is one."""
    return place(message.envelope) if message.envelope else None


@lru_cache(maxsize=64)
def place(stored: Stored) -> str:
    """Where evidence lies, as the journal writes it: place, offset and size."""
    return f"{stored.place}:{stored.offset}:{stored.size}"
