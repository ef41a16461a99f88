"""The tables by hour, folded with Arrow: what messages tell of an hour, then all of that together.

A task tells of the messages that it reads one part for each name and hour: sums, and values that
must be looked at all together, in lists. So of many messages little travels.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.folding import HOUR, TIME, Flags, Numbers, numbers_of
from postroad.pipeline.keys import KeySet, keys
from postroad.pipeline.parcels import pack, unpacked
from postroad.pipeline.picking import whole
from postroad.store.journal_columns import RECEIVING, SENDING

_PERCENTILES: Final = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
_SHIFT: Final = 40
"""The number of an hour is put before that of a name."""
_MESSAGES: Final = 1 << 17
"""What about so many messages tell travels together."""

Values = tuple[Numbers, pa.Array]
"""Values of several hours, and for each the place of its hour."""


@dataclass(frozen=True)
class Hourly:
    """A table by hour."""

    read: Sequence[str]
    """The facts that are looked at; `a.b` is a field of a struct."""
    rows: Callable[[Any], pa.Table]
    """What messages tell: a name, the number of an hour, and values; several rows, or none."""
    sums: Sequence[str]
    lists: Sequence[str]
    told: Callable[[Mapping[str, Values], int], dict[str, Any]]
    """What is known of so many hours by the values in lists."""

    def parcels(
        self, facts: Iterable[Any], shares: int, hours: KeySet | None = None
    ) -> Iterator[pa.RecordBatch]:
        """What these messages tell, of all hours or of some, on the way to what others do."""
        waiting: list[pa.Table] = []
        messages = 0
        for rows in facts:
            waiting.append(self._part(rows, hours))
            messages += len(rows)
            if messages >= _MESSAGES:
                yield from _packed(waiting, shares)
                waiting, messages = [], 0
        yield from _packed(waiting, shares)

    def fold(self, parcels: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.Table]:
        """The rows of the table, with all its columns, of which the first is the name."""
        for parts in unpacked(parcels):
            yield self._folded(parts.combine_chunks()).select(names)

    def hours(self, facts: Any) -> pa.Table:
        """The names and hours of which these messages tell."""
        return self._named(facts).group_by(["name", "hour"]).aggregate([])

    def _named(self, facts: Any) -> pa.Table:
        rows = self.rows(facts)
        return rows.filter(pc.and_(rows["name"].is_valid(), rows["hour"].is_valid()))

    def _part(self, facts: Any, hours: KeySet | None) -> pa.Table:
        rows = self._named(facts)
        if hours is not None:
            there = hours.holds(hour_keys(whole(rows["name"]), whole(rows["hour"])))
            rows = rows.filter(pa.array(there))
        wanted = [*((name, "sum") for name in self.sums), *((name, "list") for name in self.lists)]
        grouped = rows.group_by(["name", "hour"]).aggregate(wanted)
        part = grouped.rename_columns(["name", "hour", *self.sums, *self.lists])
        return part.append_column("key", hour_keys(whole(part["name"]), whole(part["hour"])))

    def _folded(self, parts: pa.Table) -> pa.Table:
        coded = whole(parts["name"]).dictionary_encode()
        name, hour = numbers_of(coded.indices), numbers_of(whole(parts["hour"]))
        first, many = hour.min(), np.ptp(hour) + 1
        pairs, place = np.unique(name * many + hour - first, return_inverse=True)
        columns = {
            "name": coded.dictionary.take(pa.array(pairs // many)),
            "hour": pa.array((pairs % many + first) * HOUR).cast(TIME),
        }
        for one in self.sums:
            total = np.zeros(len(pairs), dtype=np.int64)
            np.add.at(total, place, numbers_of(pc.fill_null(whole(parts[one]), 0)))
            columns[one] = pa.array(total)
        values = {}
        for one in self.lists:
            rows = numbers_of(pc.list_parent_indices(whole(parts[one])))
            values[one] = place[rows], pc.list_flatten(whole(parts[one]))
        return pa.table(columns | self.told(values, len(pairs)))


def _packed(parts: Sequence[pa.Table], shares: int) -> Iterator[pa.RecordBatch]:
    batches = (batch for part in parts for batch in part.to_batches())
    return pack(batches, "key", shares)


def hour_keys(names: pa.Array, hours: pa.Array) -> pa.Array:
    """A name and the number of an hour as one number."""
    coded = names.dictionary_encode()
    of_name = keys(coded.dictionary).take(coded.indices)
    return pa.array(numbers_of(of_name) ^ (numbers_of(hours) << _SHIFT))


def _partner_rows(facts: Any) -> pa.Table:
    """Messages that were sent, and the hours in which something went wrong with one."""
    ours = facts.filter(pc.equal(facts["kind"], "message"))
    sent, came, troubles = (whole(ours[name]) for name in (SENDING, RECEIVING, "troubles"))
    of = partial(pc.struct_field, sent)
    outcome = _outcome(sent)
    went = of("first_sent_at").is_valid()
    took = pc.subtract(*(of(name).cast(pa.int64()) for name in ("acknowledged_at", "submitted_at")))
    none = pa.array(np.zeros(len(ours), dtype=np.int64))
    messages = pa.table(
        {
            "name": of("to_party"),
            "hour": hours_of(of("first_sent_at")),
            "sent": pa.array(np.ones(len(ours), dtype=np.int64)),
            **{name: pa.array(flags.astype(np.int64)) for name, flags in outcome.items()},
            "retries": pc.subtract(of("attempts"), 1),
            "duplicates": none,
            "errors": none,
            "ms": pc.divide(took.cast(pa.float64()), 1000.0),
        }
    ).filter(went)
    rows, each = pc.list_parent_indices(troubles), pc.list_flatten(troubles)
    sending = pc.equal(pc.struct_field(each, "side"), SENDING)
    to, by = of("to_party"), pc.struct_field(came, "from_party")
    troubled = pa.table(
        {
            "name": pc.if_else(sending, to.take(rows), by.take(rows)),
            "hour": hours_of(pc.struct_field(each, "hour")),
            **{name: pc.struct_field(each, name) for name in ("duplicates", "errors")},
        }
    )
    return pa.concat_tables([messages, troubled], promote_options="default")


def _outcome(sent: pa.StructArray) -> dict[str, Flags]:
    """As `tables` tells it of the sending side, the first that fits; a message may have none."""
    of = partial(pc.struct_field, sent)

    def true(flags: Any) -> Flags:
        return np.asarray(pc.fill_null(flags, False))

    def settled(answer: str) -> Flags:
        return true(pc.equal(of("settled"), answer))

    acknowledged = true(of("acknowledged_at").is_valid()) | settled("delivered")
    failed = true(of("delivery_failed")) | settled("not_received") | true(of("expired"))
    in_doubt = true(of("in_doubt")) | settled("received")
    return {
        "acknowledged": acknowledged,
        "failed": failed & ~acknowledged,
        "in_doubt": in_doubt & ~failed & ~acknowledged,
    }


def _percentiles(values: Mapping[str, Values], count: int) -> dict[str, Any]:
    """By the two values between which each lies."""
    place, ms = values["ms"]
    there = np.asarray(ms.is_valid())
    place, numbers = place[there], np.asarray(ms.drop_null(), dtype=np.float64)
    # One more, for hours without any.
    numbers = np.append(numbers[np.lexsort((numbers, place))], 0.0)
    sizes = np.bincount(place, minlength=count)
    starts = np.cumsum(sizes) - sizes
    found = {}
    for name, share in _PERCENTILES.items():
        at = np.where(sizes > 0, (sizes - 1) * share, 0)
        low, high = (numbers[starts + end(at).astype(np.int64)] for end in (np.floor, np.ceil))
        between = (np.ceil(at) - at) * low + (at - np.floor(at)) * high
        found[name] = pa.array(np.where(low == high, low, between), mask=sizes == 0)
    return found


def _packing_rows(facts: Any) -> pa.Table:
    """Messages and fragments that were sent, and the envelopes of others in which they went."""
    units = facts.filter(pc.is_in(facts["kind"], value_set=pa.array(["message", "fragment"])))
    sent, envelopes = (whole(units[name]) for name in (SENDING, "envelopes"))
    of = partial(pc.struct_field, sent)
    message = pc.equal(units["kind"], "message")
    own = pc.fill_null(of("own_envelope"), False)
    named = {"name": of("pmode"), "hour": hours_of(of("first_sent_at"))}
    told = pa.table(
        {
            **named,
            "messages": message.cast(pa.int64()),
            "fragments": pc.invert(message).cast(pa.int64()),
            "payload_bytes": pc.if_else(message, of("bytes"), 0),
            "wire_bytes": of("wire_bytes"),
            "own": pc.if_else(own, whole(units["message_id"]), pa.scalar(None, pa.string())),
        }
    )
    rows = pc.list_parent_indices(envelopes)
    others = {name: column.take(rows) for name, column in named.items()}
    strange = pa.table({**others, "others": pc.list_flatten(envelopes)})
    return pa.concat_tables([told, strange], promote_options="default")


def _envelopes(values: Mapping[str, Values], count: int) -> dict[str, Any]:
    """An envelope is known by its first unit. It counts once, among the others if it is there."""
    (at, others), (place, own) = values["others"], values["own"]
    both = pa.concat_arrays([others.cast(pa.string()), own.cast(pa.string())])
    coded = both.dictionary_encode()
    many = len(coded.dictionary) + 1
    pairs = np.concatenate((at, place)) * many + numbers_of(pc.fill_null(coded.indices, 0))
    pairs = np.where(np.asarray(both.is_valid()), pairs, -1)
    strange, mine = np.unique(pairs[: len(at)]), pairs[len(at) :]
    every = np.concatenate((strange, mine[~np.isin(mine, strange)]))
    every = every[every >= 0]
    return {"envelopes": pa.array(np.bincount(every // many, minlength=count))}


def hours_of(times: pa.Array) -> pa.Array:
    """The number of the hour of each time."""
    micros = times.cast(pa.int64())
    hours = np.asarray(pc.fill_null(micros, 0)) // HOUR
    return pa.array(hours, mask=np.asarray(micros.is_null()))


_PARTNERS: Final = Hourly(
    (
        "kind", "receiving.from_party", "troubles",
        *(f"sending.{name}" for name in (
            "to_party", "submitted_at", "first_sent_at", "acknowledged_at", "attempts",
            "delivery_failed", "expired", "in_doubt", "settled",
        )),
    ),
    _partner_rows,
    ("sent", "acknowledged", "failed", "in_doubt", "retries", "duplicates", "errors"),
    ("ms",),
    _percentiles,
)  # fmt: skip
_PACKING: Final = Hourly(
    (
        "message_id", "kind", "envelopes",
        *(f"sending.{name}" for name in (
            "pmode", "bytes", "first_sent_at", "wire_bytes", "own_envelope",
        )),
    ),
    _packing_rows,
    ("messages", "fragments", "payload_bytes", "wire_bytes"),
    ("own", "others"),
    _envelopes,
)  # fmt: skip
HOURLY: Final = {"partners": _PARTNERS, "packing": _PACKING}
