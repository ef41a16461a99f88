"""Journals as other writers could write them: the same histories in other Parquet files.

Written from the journal's contract alone: do not import postroad here. A style says how the
segments of a network are written. All networks go into one journal folder, so that one run of the
pipeline reads all styles.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.pipeline.foreign_history import OPTIONAL, REQUIRED, Network, Row, Verdict

_INT32: Final = ("epoch", "attempt", "fragment", "fragments")
_INT64: Final = ("seq", "sequence_number", "bytes", "wire_bytes")
_STRINGS: Final = tuple(
    name
    for name in (*REQUIRED, *OPTIONAL)
    if name not in {*_INT32, *_INT64, "at", "payload_digests"}
)

TYPES: Final[Mapping[str, pa.DataType]] = {
    **dict.fromkeys(_STRINGS, pa.string()),
    **dict.fromkeys(_INT32, pa.int32()),
    **dict.fromkeys(_INT64, pa.int64()),
    "at": pa.timestamp("us", "UTC"),
    "payload_digests": pa.list_(pa.string()),
}

Metadata = dict[str, str]


def _strings(kind: pa.DataType) -> dict[str, pa.DataType]:
    return dict.fromkeys(_STRINGS, kind)


def _numbers(kind: pa.DataType) -> dict[str, pa.DataType]:
    return dict.fromkeys((*_INT32, *_INT64), kind)


def _unchanged(metadata: Metadata) -> Metadata:
    return metadata


@dataclass(frozen=True)
class Style:
    """How the segments of one network are written."""

    name: str
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    without: str | None = None
    order: Callable[[Iterable[str]], Iterable[str]] = tuple
    extra: Callable[[int], Mapping[str, pa.Array]] = lambda _rows: {}
    empty: str = "null"  # columns without a value: "null", "absent" or "untyped"
    metadata: Callable[[Metadata], Metadata] = _unchanged
    rows: int = 1000  # in a segment
    named: bool = True  # names and folders as in the contract
    start: datetime = datetime(2026, 3, 2, 8, tzinfo=UTC)
    options: Mapping[str, Any] = field(default_factory=dict)
    broken: bool = False  # the chain of segments
    again: "Style | None" = None  # writes all rows once more


@dataclass
class Truth:
    """What a run of the pipeline has to find."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    kept: int = 0
    repeats: int = 0
    quarantined: int = 0
    clashes: set[tuple[str, int, int]] = field(default_factory=set)
    broken: dict[str, str] = field(default_factory=dict)
    """The names of files whose link is missing or wrong, with that of the file before each."""
    foreign: set[str] = field(default_factory=set)  # names of files that are no segments


def _unknown(rows: int) -> dict[str, pa.Array]:
    """Return columns that the contract does not know, one of them almost."""
    return {
        "Side": pa.array(["neither"] * rows),
        "comment": pa.array([f"row {row}" for row in range(rows)]),
        "trace": pa.array([{"span": row, "tags": ["a", "b"]} for row in range(rows)]),
        "labels": pa.array([[("k", row)] for row in range(rows)], pa.map_(pa.string(), pa.int64())),
        "raw": pa.array([b"\xff\x00"] * rows),
        "nothing": pa.nulls(rows),
    }


def _without(*keys: str) -> Callable[[Metadata], Metadata]:
    return lambda metadata: {key: metadata[key] for key in metadata if key not in keys}


def _with(**values: str) -> Callable[[Metadata], Metadata]:
    return lambda metadata: metadata | {f"postroad.{key}": values[key] for key in values}


_NEEDED: Final = ("side", "message_id")
"""An event about a message that lacks one of these breaks the contract: it is quarantined."""
_UTC_MS: Final = {"at": pa.timestamp("ms", "UTC")}
_SMALL: Final = {"rows": 40}
_OLD: Final = Style("old", options={"version": "1.0", "store_schema": False})

STYLES: Final = (
    Style("plain"),
    *(Style(f"no-{column.replace('_', '-')}", without=column) for column in OPTIONAL),
    Style("empty-columns-absent", empty="absent", **_SMALL),
    Style("empty-columns-untyped", empty="untyped", **_SMALL),
    Style("reversed", order=lambda names: reversed(list(names))),
    Style("alphabetical", order=sorted),
    Style("extra", extra=_unknown),
    Style("large-strings", _strings(pa.large_string())),
    Style("string-views", _strings(pa.string_view())),
    Style("dictionaries", _strings(pa.dictionary(pa.int32(), pa.string()))),
    Style("small-dictionaries", _strings(pa.dictionary(pa.int16(), pa.large_string()))),
    Style("large-lists", {"payload_digests": pa.large_list(pa.large_string())}),
    Style("view-lists", {"payload_digests": pa.list_(pa.string_view())}),
    Style("dictionary-lists", {"payload_digests": pa.list_(pa.dictionary(pa.int32(), pa.utf8()))}),
    Style("old-lists", options={"use_compliant_nested_type": False}),
    Style("milliseconds", _UTC_MS),
    Style("nanoseconds", {"at": pa.timestamp("ns", "UTC")}),
    Style("offset", {"at": pa.timestamp("us", "+00:00")}),
    Style("berlin", {"at": pa.timestamp("us", "Europe/Berlin")}),
    Style("int96", options={"use_deprecated_int96_timestamps": True, "store_schema": False}),
    Style("wide", _numbers(pa.int64())),
    Style("narrow", _numbers(pa.int16())),
    Style("unsigned", _numbers(pa.uint32())),
    Style("unsigned-wide", _numbers(pa.uint64())),
    Style("row-groups", options={"row_group_size": 7}),
    *(
        Style(name, options={"compression": name})
        for name in ("none", "snappy", "gzip", "zstd", "brotli", "lz4")
    ),
    Style("pages-2", options={"data_page_version": "2.0", "data_page_size": 512}),
    Style("no-dictionary", options={"use_dictionary": False, "write_statistics": False}),
    Style("delta", options={"use_dictionary": False, "column_encoding": {
        "message_id": "DELTA_BYTE_ARRAY", "event": "DELTA_LENGTH_BYTE_ARRAY",
        "seq": "DELTA_BINARY_PACKED", "at": "DELTA_BINARY_PACKED",
    }}),
    _OLD,
    Style("segments", **_SMALL),
    Style("midnight", start=datetime(2026, 3, 2, 23, 50, tzinfo=UTC)),
    Style("other names", named=False, **_SMALL),
    Style("no-previous", metadata=_without("postroad.previous"), broken=True, **_SMALL),
    Style("wrong-previous", metadata=_with(previous="0" * 64), broken=True, **_SMALL),
    Style("only-schema", metadata=lambda _: {"postroad.schema": "1"}, broken=True, **_SMALL),
    Style("no-node", metadata=_without("postroad.node", "postroad.epoch")),
    Style("other-metadata", metadata=lambda metadata: metadata | {"written.by": "another"}),
    Style("repeated", again=Style("", rows=33)),
    Style("repeated-otherwise", again=Style(
        "", _strings(pa.large_string()) | _numbers(pa.uint64()) | _UTC_MS,
        order=sorted, extra=_unknown, empty="absent",
    )),
)  # fmt: skip


def write(journal: Path, styles: Iterable[Style] = STYLES) -> Truth:
    """Write a network in each style, and one whose rows clash."""
    truth = Truth()
    for style in styles:
        network = Network(style.name, style.start)
        for rows in network.rows.values():
            unfit = sum(row["message_id"] is not None for row in rows if style.without in _NEEDED)
            truth.kept += len(rows) - unfit
            truth.quarantined += unfit
            names = _write_node(journal, rows, style)
            if style.broken:
                truth.broken |= dict(pairwise(reversed(names)))
            if style.again:
                _write_node(journal / "again", rows, replace(style.again, named=False))
                truth.repeats += len(rows)
        truth.verdicts |= network.verdicts(style.without)
    _write_clashing(journal, truth)
    for name, metadata in (("no-schema", {}), ("newer", {"postroad.schema": "2"})):
        style = Style(name, metadata=lambda _, metadata=metadata: metadata)
        for rows in Network(name).rows.values():
            truth.foreign.update(_write_node(journal, rows, style))
    return truth


def _write_clashing(journal: Path, truth: Truth) -> None:
    """Write a network of which some events exist with several contents.

    Each of the four receipts exists as several rows of one identity, so that none of them
    counts: what the receiver's journal says decides.
    """
    network = Network("clashing")
    truth.verdicts |= network.verdicts()
    plain = Style("plain")
    for node, rows in network.rows.items():
        truth.kept += len(rows)
        _write_node(journal, rows, plain)
        if node != network.party("acme"):
            continue
        others: list[list[Row]] = [[], []]
        for case, changes in _CLASHES.items():
            (row,) = [
                row
                for row in rows
                if row["message_id"] == network.message_id(case)
                and row["event"] in {"receipt_received", "ack_received"}
            ]
            truth.kept -= 1
            truth.quarantined += 1 + len(changes)
            truth.clashes.add((row["node"], row["epoch"], row["seq"]))
            truth.verdicts[network.message_id(case)] = Verdict("confirmed", "journal")
            for number, change in enumerate(changes):
                others[number % 2].append(row | change)
        for number, copies in enumerate(others):
            path = journal / "clashing" / f"{number}.parquet"
            _write_file(path, copies, plain, _metadata(rows[0], ""))


_CLASHES: Final[Mapping[str, tuple[Row, ...]]] = {
    "receipt": ({"detail": "another"},),
    "warned": ({}, {}, {"detail": "another"}),  # copies of a row that clashes
    "relayed": ({"payload_digests": ["sha256:" + "2" * 64]}, {"payload_digests": None}),
    "large": ({"signal_id": None}, {"signal_id": None}),
}


def _write_node(journal: Path, rows: list[Row], style: Style) -> list[str]:
    """Write the segments of one node, and return their names."""
    names: list[str] = []
    previous = ""
    for part in _parts(rows, style.rows):
        first = part[0]
        name = f"{first['node']}-{first['epoch']}-{first['seq']:020}.parquet"
        path = journal / f"date={first['at']:%Y-%m-%d}" / name
        if not style.named:
            path = journal / "another folder" / f"{first['node']} {first['seq']}.parquet"
        _write_file(path, part, style, _metadata(first, previous))
        previous = hashlib.sha256(path.read_bytes()).hexdigest()
        names.append(path.name)
    return names


def _parts(rows: list[Row], size: int) -> Iterator[list[Row]]:
    """Cut rows into segments, none of which crosses midnight."""
    for _, day in groupby(rows, key=lambda row: row["at"].date()):
        rest = list(day)
        for start in range(0, len(rest), size):
            yield rest[start : start + size]


def _metadata(first: Row, previous: str) -> Metadata:
    return {
        "postroad.schema": "1",
        "postroad.node": first["node"],
        "postroad.epoch": str(first["epoch"]),
        "postroad.previous": previous,
    }


def _write_file(path: Path, rows: list[Row], style: Style, metadata: Metadata) -> None:
    columns: dict[str, pa.Array] = {}
    for name, kind in TYPES.items():
        if name == style.without:
            continue
        values = [row[name] for row in rows]
        if style.empty != "null" and all(value is None for value in values):
            if style.empty == "untyped":
                columns[name] = pa.nulls(len(rows))
            continue
        columns[name] = pa.array(values, kind).cast(style.types.get(name, kind))
    columns |= style.extra(len(rows))
    table = pa.table({name: columns[name] for name in style.order(columns)})
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    options = dict(style.options)
    row_group = options.pop("row_group_size", None)
    with pq.ParquetWriter(hidden, table.schema, **options) as file:
        file.write_table(table, row_group)
        file.add_key_value_metadata(style.metadata(metadata))
    hidden.rename(path)
