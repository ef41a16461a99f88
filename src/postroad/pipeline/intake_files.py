"""One file of a journal, looked at before its rows are taken: is it a segment, what is in it."""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import fsspec
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from postroad.pipeline.intake_rules import JUDGED, RULES, broken, micros_of
from postroad.store.journal_columns import COLUMNS, EVENTS
from postroad.store.segments import NotASegment, as_type, footer_of, open_segment

_ROWS: Final = 1 << 17
_CHUNK: Final = 1 << 20
_FEW: Final = ("node", "party", "event", "side")
"""Columns with few values, read as such."""
_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
_RULES: Final = tuple(RULES)
_LOOKED_AT: Final = (*JUDGED, "detail")


class NotReadable(Exception):
    """A file of the journal is kept from us; the message is a sentence."""


class Run(msgspec.Struct, frozen=True, order=True):
    """Events of one node and epoch with no seq missing between; times in microseconds."""

    node: str
    epoch: int
    seq_from: int
    seq_to: int
    at_from: int
    at_to: int


class Unknown(msgspec.Struct, frozen=True, order=True):
    """An event that JOURNAL doesn't know, where it was first seen."""

    event: str
    at: int
    node: str


class Broken(msgspec.Struct, frozen=True, order=True):
    """How many rows of a file break a rule, and the first of them."""

    reason: str
    rows: int
    first: str


class Served(msgspec.Struct, frozen=True):
    """For whom a node wrote, and its last heartbeat."""

    node: str
    parties: list[str]
    beat: tuple[int, int, int | None] = (0, 0, None)
    """Epoch, seq, and when it retired if that says so."""


class Segment(msgspec.Struct, frozen=True):
    """One file as it was found; all of it but the conflicts follows from the file alone."""

    path: str
    sha256: str
    bytes: int
    at: int
    """The first event in it; when it was written, if there is none."""
    problem: str | None = None
    """Why it is no segment; nothing of it was taken then."""
    node: str = ""
    epoch: int = 0
    previous: str = ""
    rows: int = 0
    first: int = 0
    """The least seq of its good rows."""
    doubled: int = 0
    """Rows whose identity another row of the same file has."""
    runs: list[Run] = []
    """Of its good rows, without identities in conflict with other files."""
    unknown: list[Unknown] = []
    broken: list[Broken] = []
    served: list[Served] = []
    """By its good rows; of files that were just looked at only."""

    @property
    def bad(self) -> int:
        return sum(one.rows for one in self.broken)


def look(path: str) -> Segment | None:
    """Read what there is to know of a file; None when it is gone."""
    fs, name = fsspec.core.url_to_fs(path)
    try:
        with fs.open(name, "rb") as file:
            digest, size = _digest(file)
            found = Segment(path, digest, size, int(fs.modified(name).timestamp() * 1_000_000))
            if size == 0:
                return msgspec.structs.replace(found, problem="it is empty")
            # Arrow reads a file of this machine without Python in between.
            return _content(found, name if isinstance(fs, LocalFileSystem) else file)
    except FileNotFoundError:
        return None
    except PermissionError as denied:
        raise NotReadable(f"{path} may not be read: give this user the right to") from denied


def _digest(file: Any) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def _content(found: Segment, source: Any) -> Segment:
    try:
        segment = open_segment(source)
        footer = footer_of(segment)
        names = segment.schema_arrow.names
        reader = pq.ParquetFile(
            source,
            metadata=segment.metadata,
            read_dictionary=_dictionaries(segment),
            page_checksum_verification=True,
        )
        rows = _Rows()
        for batch in reader.iter_batches(
            _ROWS, columns=[name for name in _LOOKED_AT if name in names], use_threads=False
        ):
            rows.add(_typed(batch))
    except NotASegment as wrong:
        return msgspec.structs.replace(found, problem=str(wrong))
    except (pa.ArrowException, OSError, ValueError) as error:
        said = str(error).strip().split("\n", 1)[0]
        return msgspec.structs.replace(found, problem=f"it is damaged ({said})")
    told = rows.found(found.at)
    node, epoch = next(((run.node, run.epoch) for run in told.get("runs", [])), ("", 0))
    return msgspec.structs.replace(
        found,
        node=node if footer.node is None else footer.node,
        epoch=epoch if footer.epoch is None else footer.epoch,
        previous=footer.previous or "",
        rows=footer.rows,
        **told,
    )


def _dictionaries(segment: pq.ParquetFile) -> list[str]:
    """Return those columns with few values that Arrow can read as dictionaries in this file."""
    groups = [segment.metadata.row_group(number) for number in range(segment.num_row_groups)]
    return [
        name
        for place, name in enumerate(leaf.path for leaf in segment.schema)
        if name in _FEW
        and segment.schema_arrow.field(name).type == pa.string()
        and not any("DELTA" in code for group in groups for code in group.column(place).encodings)
    ]


def _typed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with the types of the contract, columns with few values as dictionaries."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.type != _DICTIONARY or name not in _FEW:
            column = as_type(column, COLUMNS.field(name).type)
            column = column.dictionary_encode() if name in _FEW else column
        columns[name] = column
    return pa.RecordBatch.from_pydict(columns)


class _Rows:
    """What is gathered of the rows of a file, some thousands at a time."""

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}
        self._parts: list[tuple[Any, Any, Any, Any]] = []
        self._unknown: dict[str, Unknown] = {}
        self._broken: dict[int, Broken] = {}
        self._parties: dict[str, set[str]] = {}
        self._beats: dict[str, tuple[int, int, int | None]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        codes = broken(batch)
        if codes.any():
            self._note_broken(batch, codes)
            batch = batch.filter(pa.array(codes == 0))
        if not batch.num_rows:
            return
        at = micros_of(batch["at"]).to_numpy()
        node = self._numbered(batch["node"])
        self._note_unknown(batch, at)
        self._note_parties(batch)
        self._note_beats(batch, at)
        self._parts.append((node, batch["epoch"].to_numpy(), batch["seq"].to_numpy(), at))

    def found(self, modified: int) -> dict[str, Any]:
        """The fields of a Segment that follow from its rows."""
        said = {"unknown": sorted(self._unknown.values()), "broken": sorted(self._broken.values())}
        if not self._parts:
            return {**said, "at": modified}
        node, epoch, seq, at = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        runs, doubled = _runs(list(self._nodes), node, epoch, seq, at)
        first = int(seq.min())
        served = [
            Served(node, sorted(parties), self._beats.get(node, (0, 0, None)))
            for node, parties in self._parties.items()
        ]
        return {
            **said,
            "at": int(at.min()),
            "first": first,
            "runs": runs,
            "doubled": doubled,
            "served": served,
        }

    def _numbered(self, column: pa.Array) -> Any:
        places = [
            self._nodes.setdefault(name, len(self._nodes)) for name in column.dictionary.to_pylist()
        ]
        return np.array(places, dtype=np.int64)[column.indices.to_numpy()]

    def _note_unknown(self, batch: pa.RecordBatch, at: Any) -> None:
        column = batch["event"]
        for place, event in enumerate(column.dictionary.to_pylist()):
            if event in EVENTS:
                continue
            here = np.flatnonzero(column.indices.to_numpy() == place)
            if len(here):
                row = int(here[at[here].argmin()])
                new = Unknown(event, int(at[row]), batch["node"][row].as_py())
                self._unknown[event] = min(new, self._unknown.get(event, new))

    def _note_parties(self, batch: pa.RecordBatch) -> None:
        nodes, parties = batch["node"], batch["party"]
        count = len(parties.dictionary)
        for pair in np.unique(nodes.indices.to_numpy().astype(int) * count + parties.indices):
            node, party = divmod(int(pair), count)
            served = self._parties.setdefault(nodes.dictionary[node].as_py(), set())
            served.add(parties.dictionary[party].as_py())

    def _note_beats(self, batch: pa.RecordBatch, at: Any) -> None:
        beats = np.flatnonzero(pc.equal(batch["event"], "heartbeat"))
        node = batch["node"].indices.to_numpy()[beats]
        epoch, seq = (batch[name].to_numpy()[beats] for name in ("epoch", "seq"))
        order = np.lexsort((seq, epoch, node))
        for last in order[np.flatnonzero(np.diff(node[order], append=-1))]:
            row = int(beats[last])
            retired = "detail" in batch.schema.names and batch["detail"][row].as_py() == "retired"
            beat = (int(epoch[last]), int(seq[last]), int(at[row]) if retired else None)
            name = batch["node"][row].as_py()
            self._beats[name] = max(beat, self._beats.get(name, beat), key=lambda one: one[:2])

    def _note_broken(self, batch: pa.RecordBatch, codes: Any) -> None:
        for code in np.unique(codes[codes != 0]):
            here = np.flatnonzero(codes == code)
            node, epoch, seq = (
                batch[name][int(here[0])].as_py() for name in ("node", "epoch", "seq")
            )
            new = Broken(_RULES[code - 1], len(here), identity(node, epoch, seq))
            old = self._broken.get(code)
            self._broken[code] = (
                new if old is None else Broken(old.reason, old.rows + new.rows, old.first)
            )


def _runs(nodes: list[str], node: Any, epoch: Any, seq: Any, at: Any) -> tuple[list[Run], int]:
    """The runs of rows that may come in any order, and how many rows repeat an identity."""

    def steps() -> Iterator[Any]:
        yield np.diff(node) != 0
        yield np.diff(epoch) != 0
        yield np.diff(seq) != 1

    cuts = np.logical_or.reduce(list(steps()))
    doubled = 0
    if cuts.any():
        order = np.lexsort((seq, epoch, node))
        node, epoch, seq, at = node[order], epoch[order], seq[order], at[order]
        same = (np.diff(node) == 0) & (np.diff(epoch) == 0)
        doubled = int((same & (np.diff(seq) == 0)).sum())
        cuts = ~(same & (np.diff(seq) <= 1))
    starts = np.concatenate(([0], np.flatnonzero(cuts) + 1))
    ends = np.concatenate((starts[1:], [len(seq)])) - 1
    first, last = np.minimum.reduceat(at, starts), np.maximum.reduceat(at, starts)
    return sorted(
        Run(nodes[n], int(e), int(a), int(b), int(f), int(t))
        for n, e, a, b, f, t in zip(
            node[starts], epoch[starts], seq[starts], seq[ends], first, last, strict=True
        )
    ), doubled


def identity(node: str | None, epoch: int | None, seq: int | None) -> str:
    """An identity for people."""
    return f"node {node}, epoch {epoch}, seq {seq}"
