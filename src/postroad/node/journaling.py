"""Journal events about messages: what is the same in all events of a message stands once, here."""

from datetime import datetime
from typing import Any

from postroad.store.records import Event, Message, Stored


def about(message: Message, event: str, at: datetime, **more: Any) -> Event:
    """An event of a message; `more` are further columns of JOURNAL."""
    return Event(
        at,
        message.party,
        event,
        message.side,
        message.message_id,
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
        bytes=message.bytes,
        payload_digests=message.payload_digests,
        **more,
    )


def place(stored: Stored) -> str:
    """Where evidence lies, as the journal writes it: place, offset and size."""
    return f"{stored.place}:{stored.offset}:{stored.size}"
