"""Records to rows and back.

Plain tuples in the order of the columns, because every message passes here several times.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import replace as changed

from postroad.store.qualified import columns
from postroad.store.records import (
    Event,
    Message,
    Notice,
    Offer,
    Partner,
    Recorded,
    Side,
    Signal,
    Work,
)

Row = tuple[Any, ...]

SEQ_BITS: Final = 40
"""An event's id in the database is its epoch, shifted by this, plus its seq."""
LATER: Final = 1 << 60
"""Added to the time of work that waits to be woken."""
PARTNER: Final = 6
"""Where the partner stands in a row of work."""

_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@lru_cache(maxsize=256)
def microseconds(time: datetime) -> int:
    """Since 1970; a time without a zone is an error, because it could mean anything.

    A step writes the same time several times.
    """
    return (time - _START) // _MICROSECOND


def time_of(microseconds: int) -> datetime:
    return _START + timedelta(microseconds=microseconds)


_encode: Final = msgspec.json.Encoder().encode
_decode_message: Final = msgspec.json.Decoder(Message).decode
_decode_partner: Final = msgspec.json.Decoder(Partner).decode
_decode_notice: Final = msgspec.json.Decoder(Notice).decode
_decode_signal: Final = msgspec.json.Decoder(Signal).decode
_decode: Final = msgspec.json.Decoder().decode

_AFTER_AT: Final = Event.__struct_fields__[1:]
"""The columns of the journal after the first, `at`. New ones are added to the end."""
_after_at: Final = attrgetter(*_AFTER_AT)
_SIDE: Final = _AFTER_AT.index("side")
_DIGESTS: Final = _AFTER_AT.index("payload_digests")

_SIDES: Final = {side.value: side for side in Side}


def message_details(message: Message) -> bytes:
    """All of a message but its key, which is in a column."""
    return _encode(changed(message, key=0) if message.key else message)


def advanced(message: Message, key: int) -> Row:
    """For `advance_message`: what changes of a message in the course of time."""
    state, updated_at = message.state._value_, microseconds(message.updated_at)
    return state, updated_at, message.error_code, message_details(message), key


def message_changes(message: Message) -> Row:
    """The columns that can change, in the order of `change_message`.

    In `add_message` they stand behind those that cannot.
    """
    return (
        message.state._value_,
        microseconds(message.created_at),
        microseconds(message.updated_at),
        message.pmode,
        message.from_party,
        message.to_party,
        message.service,
        message.action,
        message.conversation_id,
        message.error_code,
        message_details(message),
    )


def message_row(message: Message) -> Row:
    stored = columns(message.message_id)
    return (message.side._value_, *stored, message.part_of, *message_changes(message))


def message_of(row: Row) -> Message:
    key, details = row
    message = _decode_message(details)
    msgspec.structs.force_setattr(message, "key", key)
    return message


def signal_row(signal: Signal) -> Row:
    about = (signal.message_id, signal.side._value_)
    return (*about, _encode(signal), *about)


def signal_of(row: Row) -> Signal:
    return _decode_signal(row[0])


def work_row(work: Work, later: bool = False) -> Row:
    """`later`: somebody has to wake it."""
    owner = None if later else work.owner
    return (
        work.kind,
        work.message_id,
        microseconds(work.due_at) + (LATER if later else 0),
        work.data,
        work.attempt,
        owner,
        None if owner is None or work.lease_until is None else microseconds(work.lease_until),
        work.partner,
        work.lane,
        None if work.expires_at is None else microseconds(work.expires_at),
    )


def work_of(row: Row, owner: str | None, lease_until: datetime | None) -> Work:
    """As it is claimed, or given back, by now."""
    id, kind, message_id, due_at, data, attempt, partner, lane, expires_at, left_by = row
    return Work(
        kind,
        message_id,
        time_of(due_at % LATER),
        data,
        attempt,
        owner,
        lease_until,
        id,
        partner,
        lane,
        left_by,
        None if expires_at is None else time_of(expires_at),
    )


def partner_row(partner: Partner) -> Row:
    return partner.name, _encode(partner)


def partner_of(row: Row) -> Partner:
    return _decode_partner(row[0])


def notice_row(notice: Notice) -> Row:
    return notice.message_id, _encode(notice)


def notice_of(row: Row) -> Notice:
    id, details = row
    return changed(_decode_notice(details), id=id)


def offer_row(offer: Offer) -> Row:
    due = 0 if offer.due_at is None else microseconds(offer.due_at)
    added = microseconds(offer.added_at)
    return offer.channel, offer.pmode, offer.message_id, added, due, offer.about


def offer_of(row: Row) -> Offer:
    _, channel, pmode, message_id, added_at, due_at, about = row
    due = time_of(due_at) if due_at else None
    return Offer(channel, pmode, message_id, time_of(added_at), due_at=due, about=about)


def offer_item(place: tuple[str, str], item: str) -> str:
    """What an item is found by: a digest, since channel and value may be long."""
    return hashlib.blake2b(_encode((*place, item)), digest_size=16).hexdigest()


def event_row(event: Event, id: int) -> Row:
    return id, event.message_id, _encode((microseconds(event.at), *_after_at(event)))


def recorded_of(row: Row, node: str) -> Recorded:
    id, details = row
    at, *columns = _decode(details)
    side, digests = columns[_SIDE], columns[_DIGESTS]
    columns[_SIDE] = None if side is None else _SIDES[side]
    columns[_DIGESTS] = None if digests is None else tuple(digests)
    epoch, seq = id >> SEQ_BITS, id & (1 << SEQ_BITS) - 1
    return Recorded(node, epoch, seq, Event(time_of(at), *columns))
