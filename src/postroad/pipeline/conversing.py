"""Conversations folded from their messages, and requests that nobody answered; with Arrow."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.folding import TIME, Flags, Numbers, numbers_of, ranked

_FAR: Final = np.iinfo(np.int64).max
ASKED: Final = pa.schema({"id": pa.string(), "conversation_id": pa.string()})
"""A request and its conversation; or, without one, the id to which a message refers."""
UNANSWERED: Final = pa.schema({"conversation_id": pa.string(), "unanswered": pa.int64()})
FOLDED: Final = pa.schema(
    {
        "conversation_id": pa.string(),
        "parties": pa.list_(pa.string()),
        "messages": pa.int64(),
        "started_at": TIME,
        "last_at": TIME,
        "requests": pa.int64(),
        "replies": pa.int64(),
        "unanswered": pa.int64(),
        "gaps": pa.int64(),
        "out_of_order": pa.int64(),
    }
)


def unanswered(asked: pa.Table) -> pa.Table:
    """How many of these requests no message refers to, by conversation; all has `ASKED`."""
    referred = asked.filter(asked["conversation_id"].is_null())["id"].combine_chunks()
    requests = asked.filter(asked["conversation_id"].is_valid())
    alone = requests.filter(pc.invert(pc.is_in(requests["id"], value_set=referred)))
    counted = alone.group_by("conversation_id").aggregate([([], "count_all")])
    return counted.rename_columns(UNANSWERED.names)


def converse(rows: pa.Table) -> pa.Table:
    """One row for each conversation, of its messages and what `unanswered` says of it."""
    rows = rows.combine_chunks()
    conversation, names = _coded(rows["conversation_id"])
    count = len(names)
    said = _flags(pc.is_null(rows["unanswered"]))
    request = said & _flags(pc.is_null(rows["ref_to_message_id"]))
    first, last = (_times(rows[name]) for name in ("first_at", "last_at"))
    started_at, last_at = np.full(count, _FAR), np.full(count, -_FAR)
    np.minimum.at(started_at, conversation[first[1]], first[0][first[1]])
    np.maximum.at(last_at, conversation[last[1]], last[0][last[1]])
    messages = np.bincount(conversation[said], minlength=count)
    requests = np.bincount(conversation[request], minlength=count)
    columns = {
        "conversation_id": names,
        "parties": _parties(rows, conversation, count),
        "messages": messages,
        "started_at": pa.array(started_at, mask=started_at == _FAR).cast(TIME),
        "last_at": pa.array(last_at, mask=last_at == -_FAR).cast(TIME),
        "requests": requests,
        "replies": messages - requests,
        "unanswered": _sum(rows["unanswered"], conversation, count),
        "gaps": _gaps(rows, conversation, count),
        "out_of_order": _sum(rows["out_of_order"], conversation, count),
    }
    return pa.table([columns[name] for name in FOLDED.names], schema=FOLDED)


def _parties(rows: pa.Table, conversation: Numbers, count: int) -> pa.Array:
    """All senders and receivers, sorted."""
    both = pa.chunked_array([*rows["from_party"].chunks, *rows["to_party"].chunks], pa.string())
    there = _flags(both.is_valid())
    party, names = ranked(both.drop_null().combine_chunks())
    pairs = np.unique(np.tile(conversation, 2)[there] * max(1, len(names)) + party)
    whose, which = np.divmod(pairs, max(1, len(names)))
    ends = np.concatenate(([0], np.cumsum(np.bincount(whose, minlength=count))))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names.take(pa.array(which)))


def _gaps(rows: pa.Table, conversation: Numbers, count: int) -> Numbers:
    """Sequence numbers that are missing between the first and the last, of each sender."""
    there = _flags(rows["sequence_number"].is_valid())
    sender = _coded(rows["from_party"])[0][there]
    number, of = numbers_of(rows["sequence_number"].drop_null()), conversation[there]
    order = np.lexsort((number, sender, of))
    number, of, sender = number[order], of[order], sender[order]
    together = (np.diff(of) == 0) & (np.diff(sender) == 0)
    missing = np.where(together, np.maximum(np.diff(number) - 1, 0), 0)
    gaps = np.zeros(count, dtype=np.int64)
    np.add.at(gaps, of[1:], missing)
    return gaps


def _sum(column: pa.ChunkedArray, conversation: Numbers, count: int) -> Numbers:
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, conversation, numbers_of(pc.fill_null(column, 0)))
    return total


def _coded(column: pa.ChunkedArray) -> tuple[Numbers, pa.Array]:
    """Each value as a number, and the values; null has a number too."""
    coded = column.combine_chunks().dictionary_encode()
    return numbers_of(pc.fill_null(coded.indices, len(coded.dictionary))), coded.dictionary


def _times(column: pa.ChunkedArray) -> tuple[Numbers, Flags]:
    """Microseconds, and which of them are there."""
    return numbers_of(pc.fill_null(column.cast(TIME).cast(pa.int64()), 0)), _flags(
        column.is_valid()
    )


def _flags(column: Any) -> Flags:
    return np.asarray(column, dtype=bool)
