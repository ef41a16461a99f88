"""Faults of the journal itself: segments missing, late, repeated, altered, or none at all."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from postroad.pipeline.simulation_network import MINUTE, Network
from postroad.pipeline.simulation_writing import Segment
from postroad.store.segments import write_segment

FAULTS: Final = ("missing", "late", "repeated", "identity", "foreign", "unknown_event")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with the journal, and what must be found of it."""

    fault: str
    path: str
    """The file, below the simulation's folder."""
    node: str | None
    epoch: int | None
    first_seq: int | None
    last_seq: int | None
    findings: tuple[str, ...]
    """Their kinds."""
    detail: str


_SCHEMA: Final = pa.schema(
    [
        ("fault", pa.string()),
        ("path", pa.string()),
        ("node", pa.string()),
        ("epoch", pa.int32()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
        ("findings", pa.list_(pa.string())),
        ("detail", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class _Hole:
    """What of a journal cannot be seen."""

    segment: Segment
    ids: pa.Array
    begin: int
    end: int


class _Breaking:
    def __init__(
        self, rng: np.random.Generator, folder: Path, network: Network, segments: list[Segment]
    ) -> None:
        self.rng, self.folder, self.network = rng, folder, network
        self.holes: list[tuple[str, _Hole]] = []
        self._places = {id(segment): place for place, segment in enumerate(segments)}
        self._segments = segments
        chains: dict[tuple[int, int], list[Segment]] = {}
        for segment in segments:
            chains.setdefault((segment.node, segment.epoch), []).append(segment)
        self._chains = chains
        self._inner = [segment for chain in chains.values() for segment in chain[1:-1]] or list(
            segments
        )
        self._taken: set[int] = set()

    def chosen(self) -> Segment:
        """A segment between two others that is not chosen yet."""
        free = [one for one in self._inner if id(one) not in self._taken]
        segment = free[int(self.rng.integers(len(free)))]
        chain = self._chains[segment.node, segment.epoch]
        place = chain.index(segment)
        # Neither are its neighbours, so that each fault stands for itself.
        self._taken |= {id(one) for one in chain[max(0, place - 1) : place + 2]}
        return segment

    def path(self, segment: Segment) -> Path:
        return self.folder / "journal" / segment.written.name

    def hide(self, column: str, segment: Segment) -> None:
        chain = self._chains[segment.node, segment.epoch]
        place = chain.index(segment)
        ids = pq.read_table(self.path(segment), columns=["message_id"])["message_id"]
        begin = chain[place - 1].end if place else segment.begin
        end = chain[place + 1].begin if place + 1 < len(chain) else segment.end
        self.holes.append((column, _Hole(segment, pc.unique(ids), begin, end)))

    def fault(self, name: str, path: Path, segment: Segment, findings: tuple[str, ...],
              detail: str) -> Fault:  # fmt: skip
        written = segment.written
        return Fault(name, str(path.relative_to(self.folder)),
                     self.network.node_names[segment.node], segment.epoch, written.first_seq,
                     written.last_seq, findings, detail)  # fmt: skip

    def missing(self) -> Fault:
        segment = self.chosen()
        self.hide("touched", segment)
        path = self.path(segment)
        path.unlink()
        return self.fault("missing", path, segment, ("chain", "gap"), "was removed")

    def late(self) -> Fault:
        segment = self.chosen()
        self.hide("late", segment)
        place = self.folder / "late" / segment.written.name
        place.parent.mkdir(parents=True, exist_ok=True)
        self.path(segment).rename(place)
        return self.fault("late", place, segment, (), "belongs below journal/, and comes later")

    def repeated(self) -> Fault:
        segment = self.chosen()
        path = self.path(segment)
        copy = path.with_name(f"{path.stem}-again.parquet")
        copy.write_bytes(path.read_bytes())
        return self.fault("repeated", copy, segment, (), f"is a copy of {segment.written.name}")

    def identity(self) -> Fault:
        """A copy in which one heartbeat says something else."""
        segment = self.chosen()
        path = self.path(segment)
        table = pq.read_table(path)
        beats = np.flatnonzero(pc.equal(table["event"], "heartbeat").to_numpy())
        row = int(beats[len(beats) // 2])
        detail = table["detail"].to_pylist()
        detail[row] = "altered"
        column = table.schema.get_field_index("detail")
        table = table.set_column(column, table.schema.field(column), pa.array(detail, pa.string()))
        scratch = self.folder / "altered"
        said = pq.read_metadata(path).metadata[b"postroad.previous"].decode()
        written = write_segment(scratch, table, node=self.network.node_names[segment.node],
                                epoch=segment.epoch, previous=said)  # fmt: skip
        copy = path.with_name(f"{path.stem}-altered.parquet")
        Path(written.path).rename(copy)
        for left in sorted(scratch.rglob("*"), reverse=True):
            left.rmdir()
        scratch.rmdir()
        at = table["at"].cast(pa.int64()).to_numpy()
        begin, end = int(at[max(0, row - 1)]), int(at[min(len(at) - 1, row + 1)])
        self.holes.append(("touched", _Hole(segment, pa.array([], pa.string()), begin, end)))
        seq = segment.written.first_seq + row
        return Fault("identity", str(copy.relative_to(self.folder)),
                     self.network.node_names[segment.node], segment.epoch, seq, seq,
                     ("identity",), "has one event with another content")  # fmt: skip

    def foreign(self) -> Fault:
        path = self.path(self._segments[0]).with_name("foreign.parquet")
        path.write_bytes(b"PAR1 this is no journal\n")
        return Fault("foreign", str(path.relative_to(self.folder)), None, None, None, None,
                     ("foreign_file",), "is no Parquet file")  # fmt: skip


def break_journals(
    rng: np.random.Generator,
    folder: Path,
    network: Network,
    segments: list[Segment],
    wanted: Collection[str],
    unknown: int,
) -> list[Fault]:
    """Do the wanted faults, write them down, and mark the messages that they touch."""
    breaking = _Breaking(rng, folder, network, segments)
    done = [getattr(breaking, name)() for name in FAULTS[:-1] if name in wanted]
    if "unknown_event" in wanted:
        done.append(Fault("unknown_event", "journal", None, None, None, None, ("unknown_event",),
                          f"at most {unknown} events archived"))  # fmt: skip
    rows = [{**asdict(fault), "findings": list(fault.findings)} for fault in done]
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), folder / "truth" / "faults.parquet")
    for column, hole in breaking.holes:
        for path in sorted((folder / "truth" / "messages").iterdir()):
            _mark(path, column, hole, network)
    return done


def _mark(path: Path, column: str, hole: _Hole, network: Network) -> None:
    """Messages named in what is hidden, or on their way to that party then."""
    table = pq.read_table(path)
    parties = pa.array([network.names[party] for party in network.serves[hole.segment.node]])
    around = 5 * MINUTE
    begin = pa.scalar(hole.begin - around, pa.int64())
    end = pa.scalar(hole.end + around, pa.int64())
    first, last = (
        pc.coalesce(table[name], table["first_at"]).cast(pa.int64())
        for name in ("first_sent_at", "last_sent_at")
    )
    then = pc.and_(pc.less_equal(first, end), pc.greater_equal(last, begin))
    touched = pc.or_(
        pc.is_in(table["message_id"], hole.ids),
        pc.and_(then, pc.is_in(table["to_party"], parties)),
    )
    place = table.schema.get_field_index(column)
    marked = pc.or_(table[column], touched)
    pq.write_table(table.set_column(place, column, marked), path, compression="zstd")
