"""What this node remembers of sequences of WS-ReliableMessaging, kept by the store.

A sequence is a named state, changed in the step of the message that changes it; which message has
which number is one more for each, so that none of them grows. All are passing: what nobody touches
for as long as messages are kept is forgotten.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.reliability import wsrm
from postroad.reliability.ranges import Ranges, holds, numbers
from postroad.reliability.wsrm import Destination, Source, SourceStage
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Message, Side, State

T = TypeVar("T", bound=Struct)
_TAKING: Final = (SourceStage.OPEN, SourceStage.FULL, SourceStage.CLOSING)
"""A message that has a number is sent with it as long as its sequence is one of these."""
_AT_WORK: Final = (State.SUBMITTED, State.READY, State.WAITING, State.SUSPENDED)
_BETWEEN: Final = "\0"
"""Stands between the ids of units that wait under one number; no id can hold it."""


MOST_UNUSED: Final = 100
"""Sequences of one P-Mode and one signer in which nothing came yet; beyond, the oldest goes."""


class SourceRecord(Struct, frozen=True):
    """A sequence that this node sends in."""

    source: Source
    pmode: str
    leg: int
    """By whose terms it was made."""
    in_order: bool = False
    timer: int | None = None
    """The work that ends it."""


class Numbered(Struct, frozen=True):
    """The place of a message, or of a bundle by its primary unit. [P2-3.2.2-08]"""

    key: str
    identifier: str
    number: int
    packed: bool = False
    """The envelope that is kept says so."""
    units: tuple[str, ...] = ()
    """The other units of a bundle, which share the number."""
    last: bool = False
    """No message follows it in its sequence."""


class DestinationRecord(Struct, frozen=True):
    """A sequence that this node receives in."""

    destination: Destination
    creator: str
    """The fingerprint of who asked for it; empty where nobody signed."""
    pmode: str
    leg: int
    """By whose terms it was made."""
    in_order: bool = False
    acks_to: str = ""
    """The endpoint reference that was named, as XML; empty: acknowledgements are the response."""


def _source_name(key: str) -> str:
    return f"~wsrm:source:{key}"


def _key_name(identifier: str) -> str:
    return f"~wsrm:key:{identifier}"


def _sent_name(identifier: str, number: int) -> str:
    return f"~wsrm:sent:{identifier}\0{number}"


def _place_name(message_id: str) -> str:
    return f"~wsrm:place:{message_id}"


def destination_name(identifier: str) -> str:
    return f"~wsrm:destination:{identifier}"


def _held_name(identifier: str, number: int) -> str:
    return f"~wsrm:held:{identifier}\0{number}"


def _waits_name(message_id: str) -> str:
    return f"~wsrm:waits:{message_id}"


def read_state(reader: Reader, name: str, kind: type[T]) -> T | None:
    found = reader.state(name)
    return None if found is None else msgspec.json.decode(found, type=kind)


def write_state(tx: Transaction, name: str, value: Any, now: datetime) -> None:
    tx.set_state(name, None if value is None else msgspec.json.encode(value), now)


# The source


def source_of(reader: Reader, key: str) -> SourceRecord | None:
    """The sequence in which messages of a key are sent."""
    return read_state(reader, _source_name(key), SourceRecord)


def key_of(reader: Reader, identifier: str) -> str | None:
    """Whose sequence of ours has this identifier."""
    found = reader.state(_key_name(identifier))
    return None if found is None else found.decode()


def keep_source(tx: Transaction, key: str, record: SourceRecord | None, now: datetime) -> None:
    write_state(tx, _source_name(key), record, now)


def place_of(reader: Reader, message_id: str) -> Numbered | None:
    """The number of a message, and in which sequence."""
    return read_state(reader, _place_name(message_id), Numbered)


def number(
    tx: Transaction,
    key: str,
    message_id: str,
    now: datetime,
    units: tuple[str, ...] = (),
    *,
    first: bool = False,
    last: bool = False,
) -> Numbered | None:
    """Give a message its number; the same again if it has one. None: no sequence is open.

    `units` are the other units of a bundle, of which the message is the primary. `first`: it must
    be the first of its sequence; `last`: no message follows it there. [P2-2.8.1-01] [P2-3.2.2-08]
    """
    record, known = source_of(tx, key), place_of(tx, message_id)
    if record is None:
        return None
    source = record.source
    here = known is not None and known.identifier == source.identifier and known.key == key
    if known is not None and here and source.stage in _TAKING:
        if holds(source.given_up, known.number):
            keep_source(tx, key, changed(record, source=wsrm.revived(source, known.number)), now)
        return known
    if source.stage is not SourceStage.OPEN or wsrm.is_over(source, now):
        return None
    if first and source.next > 1:
        return None
    given, source = wsrm.numbered(source, now, last=last)
    place = Numbered(key, source.identifier, given, units=units, last=last)
    keep_source(tx, key, changed(record, source=source), now)
    _placed(tx, message_id, place, now)
    return place


def _placed(tx: Transaction, message_id: str, place: Numbered, now: datetime) -> None:
    write_state(tx, _place_name(message_id), place, now)
    tx.set_state(_sent_name(place.identifier, place.number), message_id.encode(), now)


def is_ready(reader: Reader, message_id: str, now: datetime) -> bool:
    """Whether a message can be sent as it is kept: its sequence still takes it."""
    place = place_of(reader, message_id)
    record = source_of(reader, place.key) if place is not None else None
    if place is None or record is None or not place.packed:
        return False
    source = record.source
    taking = source.stage in _TAKING and not wsrm.is_over(source, now)
    given_up = holds(source.given_up, place.number)
    return taking and source.identifier == place.identifier and not given_up


def packed(tx: Transaction, message_id: str, place: Numbered, now: datetime) -> None:
    """The envelope that is kept says where the message is."""
    write_state(tx, _place_name(message_id), changed(place, packed=True), now)


def opened(
    tx: Transaction, key: str, before: SourceRecord | None, record: SourceRecord, now: datetime
) -> SourceRecord:
    """A new sequence: what the one before left unacknowledged comes first, in its order."""
    source = record.source
    left = () if before is None else before.source.outstanding
    for message_id in sent_as(tx, before.source.identifier, left) if before is not None else ():
        known = place_of(tx, message_id)
        units, last = (known.units, known.last) if known is not None else ((), False)
        given, source = wsrm.numbered(source, now, last=last)
        place = Numbered(key, source.identifier, given, units=units, last=last)
        _placed(tx, message_id, place, now)
    if before is not None:
        _forget(tx, before.source, now)
    tx.set_state(_key_name(source.identifier), key.encode(), now)
    record = changed(record, source=source)
    keep_source(tx, key, record, now)
    return record


def sent_as(reader: Reader, identifier: str, wanted: Ranges) -> Iterator[str]:
    """The messages that have these numbers."""
    for one in numbers(wanted):
        found = reader.state(_sent_name(identifier, one))
        if found is not None:
            yield found.decode()


def waiting(reader: Reader, source: Source) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The numbers that are not acknowledged, each with its message, or the units of its bundle."""
    for one in numbers(source.outstanding):
        found = reader.state(_sent_name(source.identifier, one))
        yield one, () if found is None else _with_units(reader, found.decode())


def _with_units(reader: Reader, message_id: str) -> tuple[str, ...]:
    place = place_of(reader, message_id)
    return (message_id, *(place.units if place is not None else ()))


def _forget(tx: Transaction, source: Source, now: datetime) -> None:
    for one in numbers(source.outstanding):
        tx.set_state(_sent_name(source.identifier, one), None, now)
    tx.set_state(_key_name(source.identifier), None, now)


def ended(tx: Transaction, key: str, record: SourceRecord, now: datetime) -> None:
    """A sequence is over, and no message waits for another."""
    _forget(tx, record.source, now)
    keep_source(tx, key, None, now)


def acknowledged(
    tx: Transaction, identifier: str, fresh: Ranges, now: datetime, apart_from: str | None = None
) -> list[tuple[str, ...]]:
    """The messages that an acknowledgement is about for the first time; their places are free.

    For each number its message, or all units of its bundle, the primary first. `apart_from` is one
    whose outcome is written down next: it keeps its place until then, so that whoever sends it
    again after a crash does so under the same number.
    """
    found = []
    for one in numbers(fresh):
        name = _sent_name(identifier, one)
        message_id = tx.state(name)
        if message_id is None or message_id.decode() == apart_from:
            continue
        found.append(_with_units(tx, message_id.decode()))
        leave(tx, message_id.decode(), now)
    return found


def leave(tx: Transaction, message_id: str, now: datetime) -> None:
    """A message, or the primary of a bundle, is acknowledged and needs its place no longer."""
    place = place_of(tx, message_id)
    if place is not None:
        tx.set_state(_sent_name(place.identifier, place.number), None, now)
        tx.set_state(_place_name(message_id), None, now)


def rested(tx: Transaction, message: Message, now: datetime) -> None:
    """A message of ours is given up: where order was promised, its sequence is closed.

    The number of a bundle is given up with the last of its units.
    """
    if message.side is not Side.SENDING:
        return
    place = place_of(tx, message.bundle or message.message_id)
    record = source_of(tx, place.key) if place is not None else None
    if place is None or record is None or record.source.identifier != place.identifier:
        return
    if message.bundle is not None and are_at_work(tx, (message.bundle, *place.units)):
        return
    source = wsrm.rested(record.source, place.number, in_order=record.in_order)
    keep_source(tx, place.key, changed(record, source=source), now)
    if source.stage is SourceStage.CLOSING and record.timer is not None:
        tx.wake_work(record.timer, now)
    wake_ended(tx, changed(record, source=source), now)


def wake_ended(tx: Transaction, record: SourceRecord, now: datetime) -> None:
    """End a sequence at once when its last message is acknowledged or given up."""
    source = record.source
    if source.is_last and not source.outstanding and record.timer is not None:
        tx.wake_work(record.timer, now)


def are_at_work(reader: Reader, names: Iterable[str]) -> bool:
    """Whether one of some messages of ours is still sent, or is to be."""
    found = reader.messages_by_id(Side.SENDING, tuple(names))
    return any(one.state in _AT_WORK for one in found.values())


# The destination


def destination_of(reader: Reader, identifier: str, now: datetime) -> DestinationRecord | None:
    """A sequence that is known and not past its time."""
    found = read_state(reader, destination_name(identifier), DestinationRecord)
    if found is None or wsrm.has_expired(found.destination, now):
        return None
    return found


def keep_destination(tx: Transaction, record: DestinationRecord, now: datetime) -> None:
    write_state(tx, destination_name(record.destination.identifier), record, now)


def keep_new_destination(tx: Transaction, record: DestinationRecord, now: datetime) -> None:
    """Store a sequence that was just created; delete the oldest unused ones beyond the limit."""
    keep_destination(tx, record, now)
    group = f"{record.pmode}\0{record.leg}\0{record.creator}"
    for identifier in created(tx, group, record.destination.identifier, now):
        found = destination_of(tx, identifier, now)
        if found is None or not found.destination.received:
            forget_destination(tx, identifier, now)


def created(tx: Transaction, group: str, identifier: str, now: datetime) -> tuple[str, ...]:
    """Note a new sequence of a group; those that are no longer among the last `MOST_UNUSED`.

    Anybody can ask for sequences where nothing is signed, and each is a row: whoever asks for
    many loses the oldest that nothing came in.
    """
    name = f"~wsrm:created:{group}"
    before = tx.state(name)
    known = msgspec.json.decode(before, type=list[str]) if before is not None else []
    known.append(identifier)
    write_state(tx, name, known[-MOST_UNUSED:], now)
    return tuple(known[:-MOST_UNUSED])


def forget_destination(tx: Transaction, identifier: str, now: datetime) -> None:
    tx.set_state(destination_name(identifier), None, now)


def hold(
    tx: Transaction, identifier: str, number: int, names: Sequence[str], now: datetime
) -> None:
    """A message, or the units of a bundle in their order, waits for those before it."""
    tx.set_state(_held_name(identifier, number), _BETWEEN.join(names).encode(), now)
    for name in names:
        tx.set_state(_waits_name(name), identifier.encode(), now)


def freed(tx: Transaction, identifier: str, passed: tuple[int, ...], now: datetime) -> list[str]:
    """The messages that waited under these numbers, in their order, and wait no longer."""
    found = []
    for one in passed:
        name = _held_name(identifier, one)
        held = tx.state(name)
        if held is None:
            continue
        tx.set_state(name, None, now)
        for message_id in held.decode().split(_BETWEEN):
            tx.set_state(_waits_name(message_id), None, now)
            found.append(message_id)
    return found


def first_held(reader: Reader, record: DestinationRecord) -> str | None:
    """The message that waits first in a sequence."""
    for lower, _ in wsrm.held(record.destination):
        found = reader.state(_held_name(record.destination.identifier, lower))
        if found is not None:
            return found.decode().split(_BETWEEN)[0]
    return None


def waits_in(reader: Reader, message_id: str) -> str | None:
    """The sequence in which a message waits for others."""
    found = reader.state(_waits_name(message_id))
    return None if found is None else found.decode()
