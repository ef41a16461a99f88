"""The fold: all events of some messages become one row per message, with Arrow and numpy.

The rows are sorted once, by message and in it by at, node, epoch and seq. Every value of a message
is then one reduction over the stretch of its rows; what can have several values for a message
(relays, hours of errors, envelopes of bundles) is gathered from the few rows that have it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.keys import keys
from postroad.store.journal_columns import FORWARDING, RECEIVING, SENDING

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_SEEN: Final = {
    (SENDING, "submitted"): 1,
    (SENDING, "send_failed"): 2,
    (SENDING, "ack_received"): 3,
    (SENDING, "receipt_received"): 4,
    (SENDING, "error_received"): 5,
    (SENDING, "error_raised"): 6,
    (SENDING, "delivery_failed"): 7,
    (SENDING, "expired"): 8,
    (SENDING, "in_doubt"): 9,
    (SENDING, "settled"): 10,
    (SENDING, "purged"): 11,
    (SENDING, "sent"): 12,
    (SENDING, "resent"): 13,
    (RECEIVING, "received"): 31,
    (RECEIVING, "delivered"): 32,
    (RECEIVING, "acked"): 33,
    (RECEIVING, "receipt_sent"): 34,
    (RECEIVING, "rejected"): 35,
    (RECEIVING, "duplicate"): 36,
    (RECEIVING, "error_raised"): 37,
    (RECEIVING, "out_of_order"): 38,
    (RECEIVING, "purged"): 39,
    (FORWARDING, "received"): 58,
    (FORWARDING, "forwarded"): 59,
    (FORWARDING, "purged"): 61,
}
"""Side and event as one bit of a number: so it is known of a message what was ever seen."""
_OTHER: Final = {SENDING: 0, RECEIVING: 30, FORWARDING: 60}
_REFUSED: Final = 14
"""Added to error_received: a failure, not only a warning."""
_OWN: Final = 15
"""Added to sent and resent: in an envelope of its own."""
_OURS: Final = {SENDING: (1 << 30) - 1, RECEIVING: (1 << 58) - (1 << 30)}
"""The bits of a side."""
HOUR: Final = 3_600_000_000
_FAR: Final = np.iinfo(np.int64).max

OF_A_SIDE: Final = (
    "kind", "party", "from_party", "to_party", "service", "action", "conversation_id", "pmode",
    "protocol", "bytes",
)  # fmt: skip
"""Of these a side has the first value that one of its events has."""
OF_ALL: Final = (
    "kind", "conversation_id", "ref_to_message_id", "from_party", "to_party", "sequence_number"
)  # fmt: skip
"""Of these a message has the first value that any of its events has."""
READ: Final = (
    "message_id", "at", "node", "epoch", "seq", "event", "side", "signal_id", "envelope",
    "wire_bytes", "peer", "severity", "detail", *dict.fromkeys((*OF_ALL, *OF_A_SIDE)),
)  # fmt: skip
"""The columns of events that are needed."""
FEW: Final = (
    "node", "event", "side", "severity", "kind", "party", "from_party", "to_party", "service",
    "action", "pmode", "protocol",
)  # fmt: skip
"""Those of them that have few values."""

TIME: Final = pa.timestamp("us", tz="UTC")
_SIDE: Final = {name: pa.string() for name in OF_A_SIDE} | {
    "bytes": pa.int64(),
    "several": pa.bool_(),
}


def _times(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, TIME)


def _counts(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, pa.int64())


_SENDING: Final = {
    **_SIDE,
    **_times("submitted_at", "first_sent_at", "last_sent_at", "acknowledged_at", "failed_at"),
    "attempts": pa.int64(),
    "transmitted": pa.bool_(),
    "errors": pa.int64(),
    **dict.fromkeys(("refused", "delivery_failed", "expired", "in_doubt"), pa.bool_()),
    "settled": pa.string(),
    "settled_by": pa.string(),
    "wire_bytes": pa.int64(),
    "own_envelope": pa.bool_(),
}
_RECEIVING: Final = {
    **_SIDE,
    **_times("received_at", "delivered_at", "acknowledged_at", "failed_at"),
    **_counts("duplicates", "deliveries", "errors"),
}
_TROUBLE: Final = {
    "side": pa.string(), **_times("hour"), **_counts("duplicates", "errors")
}  # fmt: skip
_HOP: Final = {
    "node": pa.string(), "party": pa.string(), **_times("arrived_at", "left_at"),
    "next": pa.string(),
}  # fmt: skip
_KEYS: Final = {
    "key": "message_id",
    "conversation_key": "conversation_id",
    "ref_key": "ref_to_message_id",
}
"""Ids as numbers: quicker to look up."""
SCHEMA: Final = pa.schema(
    {
        "message_id": pa.string(),
        **{name: pa.string() for name in OF_ALL},
        **_counts("sequence_number", "out_of_order"),
        **_times("noted_at", "until_at", "first_at", "last_at"),
        SENDING: pa.struct(_SENDING),
        RECEIVING: pa.struct(_RECEIVING),
        "envelopes": pa.list_(pa.string()),
        "troubles": pa.list_(pa.struct(_TROUBLE)),
        "hops": pa.list_(pa.struct(_HOP)),
        **_counts(*_KEYS),
    }
)
"""What comes out."""


def fold(rows: pa.Table) -> pa.Table:
    """One row for each message; `rows` has the columns `READ`, and all events of each message."""
    if not rows.num_rows:
        return SCHEMA.empty_table()
    events = _Events(rows.combine_chunks())
    alive = ~events.any(_bits(SENDING, "purged") | _bits(RECEIVING, "purged") | _PURGED_BY_RELAYS)
    columns = {
        "message_id": events.ids,
        **{name: events.first(name) for name in OF_ALL},
        "out_of_order": events.count(_bits(RECEIVING, "out_of_order")),
        "noted_at": _time(events.at[events.starts]),
        "until_at": _time(events.at[events.ends]),
        "first_at": events.earliest(alive),
        "last_at": events.latest(alive),
        SENDING: _struct(_SENDING, _of_sending(events), events.known(_OURS[SENDING])),
        RECEIVING: _struct(_RECEIVING, _of_receiving(events), events.known(_OURS[RECEIVING])),
        "envelopes": _envelopes(events),
        "troubles": _troubles(events),
        "hops": _hops(events),
    }
    columns |= {name: keys(columns[of]) for name, of in _KEYS.items()}
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _bits(side: str, *events: str) -> int:
    return sum(1 << _SEEN[side, event] for event in events)


_PURGED_BY_RELAYS: Final = _bits(FORWARDING, "purged")
_SENT: Final = _bits(SENDING, "sent", "resent")


class _Events:
    """The events in order, and reductions over the stretch of each message."""

    def __init__(self, rows: pa.Table) -> None:
        self._columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        coded = self._columns["message_id"].dictionary_encode()
        self.ids = coded.dictionary
        code = numbers_of(coded.indices)
        at = numbers_of(self._columns["at"].cast(TIME).cast(pa.int64()))
        epoch, seq = numbers_of(self._columns["epoch"]), numbers_of(self._columns["seq"])
        node, self.nodes = ranked(self._columns["node"])
        self.order = np.lexsort((seq, epoch, node, at, code))
        self.at, self.code, self.node = at[self.order], code[self.order], node[self.order]
        self.starts = np.flatnonzero(np.diff(self.code, prepend=-1))
        self.ends = np.append(self.starts[1:], len(self.code)) - 1
        self._places = np.arange(len(self.code))
        self.bits = self._bits()

    @cached_property
    def seen(self) -> Numbers:
        """The bits of all events of each message."""
        return np.bitwise_or.reduceat(self.bits, self.starts)

    def _bits(self) -> Numbers:
        events, event = _encoded(self._columns["event"])
        sides, side = _encoded(self._columns["side"])
        table = np.array([[_bit(one, other) for other in events] for one in sides], dtype=np.int64)
        bits = table[side, event]
        own = self._true(pc.equal(self._columns["envelope"], self._columns["message_id"]))
        bits |= np.where(own & ((bits & _SENT) != 0), 1 << _OWN, 0)
        failure = self._true(pc.equal(self._columns["severity"], "failure"))
        reported = (bits & _bits(SENDING, "error_received")) != 0
        bits |= np.where(failure & reported, 1 << _REFUSED, 0)
        return bits[self.order]

    def _true(self, flags: pa.Array) -> Flags:
        """As they stand in the table, not in order."""
        return np.asarray(pc.fill_null(flags, False).to_numpy(zero_copy_only=False))

    def any(self, bits: int) -> Flags:
        """Of each event whether it is one of these."""
        found: Flags = (self.bits & bits) != 0
        return found

    def known(self, bits: int) -> Flags:
        """Of each message whether one of these was seen."""
        found: Flags = (self.seen & bits) != 0
        return found

    def valid(self, name: str) -> Flags:
        """Of each event whether it has a value there."""
        column = self._columns[name]
        if not column.null_count:
            return np.ones(len(self.order), dtype=bool)
        return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))[self.order]

    def values(self, name: str, places: Numbers, missing: Flags | None = None) -> pa.Array:
        """What events at these places in the order have there."""
        rows = self.order[places if missing is None else np.where(missing, 0, places)]
        taken = self._columns[name].take(pa.array(rows, mask=missing))
        return taken.dictionary_decode() if pa.types.is_dictionary(taken.type) else taken

    def first(self, name: str, among: Flags | None = None) -> pa.Array:
        """The first value of each message that is not null."""
        valid = self.valid(name) if among is None else self.valid(name) & among
        place = np.minimum.reduceat(np.where(valid, self._places, _FAR), self.starts)
        return self.values(name, place, place == _FAR)

    def last_of(self, among: Flags) -> tuple[Numbers, Flags]:
        """The place of each message's last event among these, and where there is none."""
        place = np.maximum.reduceat(np.where(among, self._places, -1), self.starts)
        return place, place < 0

    def earliest(self, among: Flags) -> pa.Array:
        time = np.minimum.reduceat(np.where(among, self.at, _FAR), self.starts)
        return _time(time, time == _FAR)

    def latest(self, among: Flags) -> pa.Array:
        time = np.maximum.reduceat(np.where(among, self.at, -_FAR), self.starts)
        return _time(time, time == -_FAR)

    def count(self, bits: int) -> pa.Array:
        return pa.array(np.add.reduceat(self.any(bits).astype(np.int64), self.starts))

    def several(self, side: str) -> pa.Array:
        """Whether different parties wrote about it on that side."""
        party = numbers_of(self._columns["party"].dictionary_encode().indices)[self.order]
        ours = self.any(_OURS[side])
        least = np.minimum.reduceat(np.where(ours, party, _FAR), self.starts)
        most = np.maximum.reduceat(np.where(ours, party, -1), self.starts)
        return pa.array(least < most)

    def sum(self, name: str, among: Flags) -> pa.Array:
        counted = self.valid(name) & among
        numbers = numbers_of(pc.fill_null(self._columns[name], 0))[self.order]
        total = np.add.reduceat(np.where(counted, numbers, 0), self.starts)
        return pa.array(total, mask=~np.logical_or.reduceat(counted, self.starts))

    def lists(self, codes: Numbers, values: pa.Array) -> pa.Array:
        """One list for each message, null where it has nothing; `codes`, in order, tell whose."""
        sizes = np.bincount(codes, minlength=len(self.ids))
        ends = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), values, mask=pa.array(sizes == 0))


def _bit(side: str | None, event: str | None) -> int:
    if place := _SEEN.get((str(side), str(event))):
        return 1 << place
    if event == "purged":
        return _PURGED_BY_RELAYS
    return 1 << _OTHER.get(str(side), _OTHER[FORWARDING])


def _of_sending(events: _Events) -> dict[str, pa.Array]:
    settled, never = events.last_of(events.any(_bits(SENDING, "settled")))
    sent = events.any(_SENT)
    flags = {
        "transmitted": _SENT,
        "refused": 1 << _REFUSED,
        "delivery_failed": _bits(SENDING, "delivery_failed"),
        "expired": _bits(SENDING, "expired"),
        "in_doubt": _bits(SENDING, "in_doubt"),
        "own_envelope": 1 << _OWN,
    }
    times = {
        "submitted_at": _bits(SENDING, "submitted"),
        "first_sent_at": _SENT,
        "acknowledged_at": _bits(SENDING, "ack_received", "receipt_received"),
        "failed_at": _bits(SENDING, "delivery_failed", "expired"),
    }
    return {
        **_of_side(events, SENDING, times),
        "last_sent_at": events.latest(sent),
        "attempts": events.count(_SENT | _bits(SENDING, "send_failed")),
        "errors": events.count(_bits(SENDING, "error_received", "error_raised")),
        **{name: pa.array(events.known(bits)) for name, bits in flags.items()},
        "settled": events.values("detail", settled, never),
        "settled_by": events.values("peer", settled, never),
        "wire_bytes": events.sum("wire_bytes", sent),
    }


def _of_receiving(events: _Events) -> dict[str, pa.Array]:
    times = {
        "received_at": _bits(RECEIVING, "received"),
        "delivered_at": _bits(RECEIVING, "delivered"),
        "acknowledged_at": _bits(RECEIVING, "acked", "receipt_sent"),
        "failed_at": _bits(RECEIVING, "rejected"),
    }
    return {
        **_of_side(events, RECEIVING, times),
        "duplicates": events.count(_bits(RECEIVING, "duplicate")),
        "deliveries": events.count(_bits(RECEIVING, "delivered")),
        "errors": events.count(_bits(RECEIVING, "error_raised")),
    }


def _of_side(events: _Events, side: str, times: Mapping[str, int]) -> dict[str, pa.Array]:
    ours = events.any(_OURS[side])
    return {
        **{name: events.first(name, ours) for name in OF_A_SIDE},
        "several": events.several(side),
        **{name: events.earliest(events.any(bits)) for name, bits in times.items()},
    }


def _envelopes(events: _Events) -> pa.Array:
    """Envelopes of others in which the message went."""
    bundled = events.any(_SENT) & ~events.any(1 << _OWN) & events.valid("envelope")
    places = np.flatnonzero(bundled)
    envelope, names = ranked(events.values("envelope", places))
    pairs = np.unique(events.code[places] * (len(names) + 1) + envelope)
    codes, envelopes = np.divmod(pairs, len(names) + 1)
    return events.lists(codes, names.take(pa.array(envelopes)))


def _troubles(events: _Events) -> pa.Array:
    """Copies and errors of the message by side and hour."""
    copies = _bits(RECEIVING, "duplicate")
    of = {
        RECEIVING: copies | _bits(RECEIVING, "error_raised"),
        SENDING: _bits(SENDING, "error_raised", "error_received"),
    }
    places = np.flatnonzero(events.any(of[SENDING] | of[RECEIVING]))
    bits, code = events.bits[places], events.code[places]
    side = ((bits & of[SENDING]) != 0).astype(np.int64)
    hour = events.at[places] // HOUR * HOUR
    order = np.lexsort((hour, side, code))
    group = _Groups.of(code[order], side[order], hour[order])
    copied = (bits[order] & copies) != 0
    troubles = {
        "side": pa.array([RECEIVING, SENDING]).take(pa.array(side[order][group.starts])),
        "hour": _time(hour[order][group.starts]),
        "duplicates": pa.array(group.count(copied)),
        "errors": pa.array(group.count(~copied)),
    }
    return events.lists(code[order][group.starts], _struct(_TROUBLE, troubles))


def _hops(events: _Events) -> pa.Array:
    """The relays of the message: when it came, when it went, and to whom."""
    arrived, left = _bits(FORWARDING, "received"), _bits(FORWARDING, "forwarded")
    places = np.flatnonzero(events.any(arrived | left) & ~events.valid("signal_id"))
    # The sort is stable: the events of a relay stay in order.
    places = places[np.lexsort((events.node[places], events.code[places]))]
    group = _Groups.of(events.code[places], events.node[places])
    came = group.first((events.bits[places] & arrived) != 0)
    went = group.first((events.bits[places] & left) != 0)
    here = places[group.starts]

    def at(first: tuple[Numbers, Flags]) -> pa.Array:
        return _time(events.at[places[first[0]]], first[1])

    hops = {
        "node": events.nodes.take(pa.array(events.node[here])),
        "party": events.values("party", here),
        "arrived_at": at(came),
        "left_at": at(went),
        "next": events.values("peer", places[went[0]], went[1]),
    }
    return events.lists(events.code[here], _struct(_HOP, hops))


@dataclass(frozen=True, slots=True)
class _Groups:
    """Stretches of equal keys among some rows that are sorted by these."""

    starts: Numbers
    rows: int

    @staticmethod
    def of(*keys: Numbers) -> "_Groups":
        changes = [np.diff(key, prepend=key[:1] - 1) != 0 for key in keys]
        return _Groups(np.flatnonzero(np.logical_or.reduce(changes)), len(keys[0]))

    def count(self, flags: Flags) -> Numbers:
        if not self.rows:
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(flags.astype(np.int64), self.starts)

    def first(self, among: Flags) -> tuple[Numbers, Flags]:
        """The place of the first row of each group among these, and where there is none."""
        if not self.rows:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
        places = np.where(among, np.arange(self.rows), self.rows)
        first = np.minimum.reduceat(places, self.starts)
        missing = first == self.rows
        return np.where(missing, 0, first), missing


def numbers_of(column: pa.Array) -> Numbers:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _time(micros: Numbers, missing: Flags | None = None) -> pa.Array:
    return pa.array(micros, mask=missing).cast(TIME)


def _encoded(column: pa.Array) -> tuple[list[str | None], Numbers]:
    """The few values of a column, null last, and for each row the place of its value."""
    coded = column.dictionary_encode()
    values = coded.dictionary.to_pylist()
    return [*values, None], numbers_of(pc.fill_null(coded.indices, len(values)))


def ranked(column: pa.Array) -> tuple[Numbers, pa.Array]:
    """The values of a column in order, and for each row the place of its value."""
    coded = column.dictionary_encode()
    order = numbers_of(pc.array_sort_indices(coded.dictionary))
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks[numbers_of(coded.indices)], coded.dictionary.take(pa.array(order))


def _struct(
    fields: Mapping[str, pa.DataType], columns: Mapping[str, pa.Array], there: Flags | None = None
) -> pa.Array:
    parts: Iterable[pa.Array] = [columns[name].cast(kind) for name, kind in fields.items()]
    mask = pa.array(~there) if there is not None else None
    return pa.StructArray.from_arrays(parts, fields=list(pa.struct(fields)), mask=mask)
