"""Writing simulated events as segments: seq by seq, chained, none across midnight."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from postroad.pipeline.simulation_network import DAY, Ints, Network
from postroad.pipeline.simulation_telling import LOOKS, Events, Messages
from postroad.store.journal_columns import COLUMNS
from postroad.store.segments import WrittenSegment, write_segment

_HEX: Final = np.frombuffer(b"".join(b"%02x" % n for n in range(256)), np.uint8).reshape(256, 2)
_DASHES: Final = (8, 12, 16, 20)
_OVERHEAD: Final = 4200
"""Bytes of the envelope around a payload."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What the events of messages have in common, row by row; the last row is of none."""

    columns: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.columns["message_id"]) - 1

    def take(self, rows: Ints) -> "Texts":
        """Some of the messages."""
        chosen = pa.array(np.append(rows, len(self)))
        return Texts({name: column.take(chosen) for name, column in self.columns.items()})

    @staticmethod
    def of(parts: list["Texts"]) -> "Texts":
        """One after the other; only the last keeps its row of none."""
        *before, last = parts
        return Texts(
            {
                name: pa.concat_arrays(
                    [*(part.columns[name].slice(0, len(part)) for part in before), column]
                )
                for name, column in last.columns.items()
            }
        )


def texts(network: Network, messages: Messages, rng: np.random.Generator) -> Texts:
    """Ids, digests and numbers of messages."""
    count = len(messages)
    routes = network.routes
    hosts = pa.array([network.names[one.sender].rpartition("::")[2] for one in routes])
    raw = _uuid7(messages.at, rng)
    host = hosts.take(pa.array(messages.route))
    hexes = _dashed(raw)
    ids = pc.binary_join_element_wise(hexes, host, "@")
    raw[:, 6:] = rng.integers(0, 256, (count, 10), np.uint8)
    signals = pc.binary_join_element_wise(_dashed(raw), host, "@")
    digests = np.empty((count, 71), np.uint8)
    digests[:, :7] = np.frombuffer(b"sha256:", np.uint8)
    digests[:, 7:] = _HEX[rng.integers(0, 256, (count, 32), np.uint8)].reshape(count, 64)
    split = (messages.envelope < 0) & (messages.group < 0)
    wire = messages.bytes * 3 // 4 + _OVERHEAD
    columns = {
        "message_id": ids,
        "signal_id": signals,
        "ref_to_message_id": _at(ids, messages.refers),
        "conversation_id": _at(hexes, messages.conversation),
        "group_id": _at(ids, messages.group),
        "envelope": _at(ids, messages.envelope),
        "digest": _fixed(digests),
        "evidence": pc.binary_join_element_wise("receipts/", hexes, ".xml", ""),
        "route": pa.array(messages.route),
        "bytes": pa.array(messages.bytes),
        "wire_bytes": pa.array(wire, mask=split),
        "sequence_number": pa.array(messages.sequence_number, mask=messages.sequence_number == 0),
        "fragment": pa.array(messages.fragment.astype(np.int32), mask=messages.fragment == 0),
        "fragments": pa.array(messages.fragments.astype(np.int32), mask=messages.fragment == 0),
        "kind": pa.array(["message", "fragment"]).take(pa.array((messages.group >= 0) * 1)),
    }
    return Texts(
        {
            name: pa.concat_arrays([column, pa.nulls(1, column.type)])
            for name, column in columns.items()
        }
    )


class Journals:
    """The journals of all nodes of a network, growing below a folder."""

    def __init__(self, folder: Path, network: Network, most_rows: int) -> None:
        self.folder = folder
        self.network = network
        self.most_rows = most_rows
        self.segments: list[Segment] = []
        count = len(network.node_names)
        self._next = np.ones((count, 3), np.int64)
        self._previous: dict[tuple[int, int], str] = {}
        self._looks = _looks()
        self._names = pa.array([*network.names, None])
        self._routes = {
            name: pa.array([getattr(route, name) for route in network.routes])
            for name in ("service", "action", "mpc", "pmode", "protocol")
        }
        self._from = pa.array([network.names[route.sender] for route in network.routes])
        self._to = pa.array([network.names[route.receiver] for route in network.routes])

    def write(self, events: Events, about: Texts) -> None:
        """Append events, which all lie after those that are there."""
        order = np.lexsort((events["at"], events["node"]))
        events = events[order]
        for node, epoch, part in self._cut(events):
            first = int(self._next[node, epoch])
            self._next[node, epoch] += len(part)
            written = write_segment(
                self.folder,
                self._table(node, epoch, first, part, about),
                node=self.network.node_names[node],
                epoch=epoch,
                previous=self._previous.get((node, epoch), ""),
            )
            self._previous[node, epoch] = written.digest
            begin, end = int(part["at"][0]), int(part["at"][-1])
            self.segments.append(Segment(written, node, epoch, begin, end))

    def _cut(self, events: Events) -> Iterator[tuple[int, int, Events]]:
        """By node, epoch and day, and none too long."""
        at, node = events["at"], events["node"].astype(np.int64)
        epoch = 1 + (at >= self.network.away_until[node])
        key = (node * 4 + epoch) * 1_000_000 + at // DAY
        starts = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        for start, end in zip(starts, np.append(starts[1:], len(events)), strict=True):
            for begin in range(start, end, self.most_rows):
                part = events[begin : min(end, begin + self.most_rows)]
                yield int(node[start]), int(epoch[start]), part

    def _table(self, node: int, epoch: int, first: int, events: Events, about: Texts) -> pa.Table:
        count = len(events)
        rows = events["row"].astype(np.int64)
        row = pa.array(np.where(rows < 0, len(about), rows))
        look = pa.array(events["look"])
        route = about.columns["route"].take(row)
        columns: dict[str, Any] = {
            "node": pa.repeat(self.network.node_names[node], count),
            "epoch": pa.repeat(pa.scalar(epoch, pa.int32()), count),
            "seq": pa.array(np.arange(first, first + count)),
            "at": pa.array(events["at"], pa.timestamp("us", tz="UTC")),
            "party": self._names.take(pa.array(events["party"])),
            "peer": self._names.take(
                pa.array(np.where(events["peer"] < 0, len(self._names) - 1, events["peer"]))
            ),
            "from_party": self._from.take(route),
            "to_party": self._to.take(route),
        }
        for name in ("event", "side", "attempt", "detail", "error_code", "severity"):
            columns[name] = self._looks[name].take(look)
        for name, values in self._routes.items():
            columns[name] = values.take(route)
        for name in _OF_MESSAGE:
            columns[name] = about.columns[name].take(row)
        for name, shown in _ONLY.items():
            there = shown[events["look"]]
            columns[name] = about.columns[name].take(
                pa.array(np.where(there & (rows >= 0), rows, len(about)))
            )
        columns["payload_digests"] = _lists(
            about.columns["digest"], rows, _FIRST[events["look"]] & (rows >= 0)
        )
        return pa.table([columns[name] for name in COLUMNS.names], schema=COLUMNS)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that was written, by whom, and from when to when."""

    written: WrittenSegment
    node: int
    epoch: int
    begin: int
    end: int


_OF_MESSAGE: Final = (
    "message_id", "kind", "ref_to_message_id", "conversation_id", "group_id", "sequence_number",
    "fragment", "fragments", "bytes",
)  # fmt: skip
_ONLY: Final = {
    "envelope": np.array([look.on_wire for look in LOOKS]),
    "wire_bytes": np.array([look.on_wire or look.event == "forwarded" for look in LOOKS]),
    "signal_id": np.array([look.signal for look in LOOKS]),
    "evidence": np.array([look.event == "receipt_received" for look in LOOKS]),
}
"""Columns that only some events have."""
_FIRST: Final = np.array(
    [look.event in ("submitted", "received") and not look.signal for look in LOOKS]
)


def _looks() -> dict[str, pa.Array]:
    kinds = {"attempt": pa.int32()}
    return {
        name: pa.array([getattr(look, name) for look in LOOKS], kinds.get(name, pa.string()))
        for name in ("event", "side", "attempt", "detail", "error_code", "severity")
    }


def _uuid7(at: Ints, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    raw = rng.integers(0, 256, (len(at), 16), np.uint8)
    raw[:, :6] = (at // 1000).astype(">u8").view(np.uint8).reshape(-1, 8)[:, 2:]
    raw[:, 6] = raw[:, 6] & 0x0F | 0x70
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    return raw


def _dashed(raw: npt.NDArray[np.uint8]) -> pa.Array:
    return _fixed(np.insert(_HEX[raw].reshape(len(raw), 32), _DASHES, ord("-"), axis=1))


def _fixed(letters: npt.NDArray[np.uint8]) -> pa.Array:
    """Strings that are all of one length."""
    count, width = letters.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(letters))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), data])


def _at(texts: pa.Array, rows: Ints) -> pa.Array:
    return texts.take(pa.array(rows, mask=rows < 0))


def _lists(texts: pa.Array, rows: Ints, there: npt.NDArray[np.bool_]) -> pa.Array:
    """Lists of one text, or null."""
    offsets = np.concatenate([[0], np.cumsum(there)]).astype(np.int32)
    # A null among the offsets makes the list that begins there null.
    starts = pa.array(offsets, mask=np.append(~there, False))
    return pa.ListArray.from_arrays(starts, texts.take(pa.array(rows[there])))
