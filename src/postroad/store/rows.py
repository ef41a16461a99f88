"""Records to rows and back.

Plain tuples in the order of the columns, because every message passes here several times.
"""

from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final

import msgspec

from postroad.security.encrypt import Seal
from postroad.store.records import (
    Event,
    Message,
    Recorded,
    Side,
    Signal,
    State,
    Stored,
    StoredPart,
    Work,
)

Row = tuple[Any, ...]

SEQ_BITS: Final = 40
"""An event's id in the database is its epoch, shifted by this, plus its seq."""

_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(time: datetime) -> int:
    """Since 1970; a time without a zone is an error, because it could mean anything."""
    return (time - _START) // _MICROSECOND


def time_of(microseconds: int) -> datetime:
    return _START + timedelta(microseconds=microseconds)


class _Details(msgspec.Struct, omit_defaults=True):
    """What no list is filtered by, as the JSON in the column `details`."""

    leg: int = 1
    kind: str = "message"
    protocol: str = "as4"
    party: str = ""
    ref_to_message_id: str | None = None
    from_role: str | None = None
    to_role: str | None = None
    mpc: str | None = None
    agreement: str | None = None
    properties: tuple[tuple[str, str, str | None], ...] = ()
    attempts: int = 0
    bytes: int = 0
    wire_bytes: int = 0
    payload_digests: tuple[str, ...] = ()
    envelope: Stored | None = None
    soap: str = "1.2"
    boundary: str | None = None
    seal: Seal | None = None
    parts: tuple[StoredPart, ...] = ()
    fingerprint: str | None = None
    peer: str | None = None
    error_code: str | None = None
    detail: str | None = None


_encode: Final = msgspec.json.Encoder().encode
_decode_details: Final = msgspec.json.Decoder(_Details).decode
_decode_signal: Final = msgspec.json.Decoder(Signal).decode
_decode: Final = msgspec.json.Decoder().decode

_AFTER_AT: Final = Event.__struct_fields__[1:]
"""The columns of the journal after the first, `at`. New ones are added to the end."""
_after_at: Final = attrgetter(*_AFTER_AT)
_SIDE: Final = _AFTER_AT.index("side")
_DIGESTS: Final = _AFTER_AT.index("payload_digests")

_SIDES: Final = {side.value: side for side in Side}
_STATES: Final = {state.value: state for state in State}


def _details(message: Message) -> bytes:
    return _encode(
        _Details(
            message.leg,
            message.kind,
            message.protocol,
            message.party,
            message.ref_to_message_id,
            message.from_role,
            message.to_role,
            message.mpc,
            message.agreement,
            message.properties,
            message.attempts,
            message.bytes,
            message.wire_bytes,
            message.payload_digests,
            message.envelope,
            message.soap,
            message.boundary,
            message.seal,
            message.parts,
            message.fingerprint,
            message.peer,
            message.error_code,
            message.detail,
        )
    )


def message_changes(message: Message) -> Row:
    """The columns that can change, in the order of `change_message` and of `add_message`."""
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
        _details(message),
    )


def message_row(message: Message) -> Row:
    return (message.side._value_, message.message_id, *message_changes(message))


def message_of(row: Row) -> Message:
    (
        key,
        side,
        message_id,
        state,
        created_at,
        updated_at,
        pmode,
        from_party,
        to_party,
        service,
        action,
        conversation_id,
        details,
    ) = row
    rest = _decode_details(details)
    return Message(
        side=_SIDES[side],
        message_id=message_id,
        state=_STATES[state],
        created_at=time_of(created_at),
        updated_at=time_of(updated_at),
        pmode=pmode,
        leg=rest.leg,
        kind=rest.kind,
        protocol=rest.protocol,
        party=rest.party,
        ref_to_message_id=rest.ref_to_message_id,
        conversation_id=conversation_id,
        from_party=from_party,
        to_party=to_party,
        from_role=rest.from_role,
        to_role=rest.to_role,
        service=service,
        action=action,
        mpc=rest.mpc,
        agreement=rest.agreement,
        properties=rest.properties,
        attempts=rest.attempts,
        bytes=rest.bytes,
        wire_bytes=rest.wire_bytes,
        payload_digests=rest.payload_digests,
        envelope=rest.envelope,
        soap=rest.soap,
        boundary=rest.boundary,
        seal=rest.seal,
        parts=rest.parts,
        fingerprint=rest.fingerprint,
        peer=rest.peer,
        error_code=rest.error_code,
        detail=rest.detail,
        key=key,
    )


def signal_row(signal: Signal) -> Row:
    about = (signal.message_id, signal.side._value_)
    return (*about, _encode(signal), *about)


def signal_of(row: Row) -> Signal:
    return _decode_signal(row[0])


def work_row(work: Work) -> Row:
    return (
        work.kind,
        work.message_id,
        microseconds(work.due_at),
        work.data,
        work.attempt,
        work.owner,
        None if work.lease_until is None else microseconds(work.lease_until),
    )


def claimed_work(row: Row, owner: str | None, lease_until: datetime | None) -> Work:
    id, kind, message_id, due_at, data, attempt = row
    return Work(kind, message_id, time_of(due_at), data, attempt, owner, lease_until, id)


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
