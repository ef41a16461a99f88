"""The registry of files: one row for each that was ever found, and what follows from them all."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import msgspec

from postroad.pipeline.intake_files import Run, Segment
from postroad.pipeline.schema import DATE
from postroad.pipeline.times import day, moment

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from postroad.pipeline.lake import Change, Lake

TABLE: Final = "_segments"
COLUMNS: Final = """
    path string, sha256 string, bytes bigint, at bigint, problem string, node string, epoch int,
    previous string, rows bigint, first bigint, doubled bigint,
    runs array<struct<node: string, epoch: int, seq_from: bigint, seq_to: bigint,
                      at_from: bigint, at_to: bigint>>,
    unknown array<struct<event: string, at: bigint, node: string>>,
    broken array<struct<reason: string, rows: bigint, first: string>>
"""
"""Times are microseconds since 1970; what the columns mean stands at `Segment`."""
CONFLICTS: Final = "conflicts"

Stretch = tuple[str, int]
"""Node and epoch."""


class Conflict(msgspec.Struct, frozen=True, order=True):
    """Identities, one after the other, under which different rows came."""

    node: str
    epoch: int
    seq_from: int
    seq_to: int
    at: int


@dataclass(frozen=True)
class Registry:
    """All files that were found, and the identities that are in conflict."""

    segments: tuple[Segment, ...]
    conflicts: tuple[Conflict, ...]

    def __contains__(self, segment: Segment) -> bool:
        return (segment.path, segment.sha256) in self._names

    @cached_property
    def _names(self) -> set[tuple[str, str]]:
        return {(segment.path, segment.sha256) for segment in self.segments}

    @cached_property
    def distinct(self) -> list[Segment]:
        """Segments proper; of equal files the one whose path comes first."""
        first: dict[str, Segment] = {}
        for segment in sorted(self.segments, key=lambda one: one.path):
            if segment.problem is None:
                first.setdefault(segment.sha256, segment)
        return list(first.values())

    @cached_property
    def runs(self) -> list[Run]:
        """What was ever there, put together where it touches or overlaps; sorted."""
        return joined(run for segment in self.distinct for run in segment.runs)

    def overlapping(self, fresh: Sequence[Segment]) -> set[str]:
        """The paths of those files that share an identity with another file, or with themselves."""
        flagged = {segment.path for segment in fresh if segment.doubled}
        lines: dict[Stretch, list[tuple[int, int, str]]] = defaultdict(list)
        for segment in fresh:
            for run in segment.runs:
                lines[run.node, run.epoch].append((run.seq_from, run.seq_to, segment.path))
        stored: list[Run | Conflict] = [*self.runs, *self.conflicts]
        for known in stored:
            if (known.node, known.epoch) in lines:
                lines[known.node, known.epoch].append((known.seq_from, known.seq_to, ""))
        for line in lines.values():
            reach, owner = 0, ""
            for start, end, path in sorted(line):
                if start <= reach:
                    flagged |= {owner, path}
                if end > reach:
                    reach, owner = end, path
        return flagged - {""}

    def days_of(self, runs: Sequence[Run]) -> list[str]:
        """The days on which stored events of these runs may lie."""
        days: set[str] = set()
        wanted = Intervals(runs)
        for segment in self.distinct:
            for run in segment.runs:
                if wanted.meets(run):
                    days.update(_days(run.at_from, run.at_to))
        return sorted(days)

    def of(self, conflicts: Iterable[Conflict]) -> list[Segment]:
        """The files that have identities in conflict among their runs."""
        wanted = Intervals(conflicts)
        return [one for one in self.segments if any(wanted.meets(run) for run in one.runs)]

    def record(self, change: "Change", before: "Registry") -> None:
        """Write down what is new since before."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        known = set(map(id, before.segments))
        days = {day(segment.at) for segment in self.segments if id(segment) not in known}
        rows = [
            {**msgspec.to_builtins(segment), DATE: day(segment.at)}
            for segment in self.segments
            if day(segment.at) in days
        ]
        if rows:
            from postroad.pipeline.lake import dated

            table = pa.Table.from_pylist(rows, schema=to_arrow_schema(dated(schema())))
            frame = change.lake.spark.createDataFrame(table, dated(schema()))
            change.replace(TABLE, frame.coalesce(1), days)
        change.set(CONFLICTS, msgspec.to_builtins(self.conflicts))


class Intervals:
    """Stretches of seq, to ask whether another meets one of them."""

    def __init__(self, stretches: "Iterable[Run | Conflict]") -> None:
        runs = (Run(one.node, one.epoch, one.seq_from, one.seq_to, 0, 0) for one in stretches)
        self._lines: dict[Stretch, list[tuple[int, int]]] = defaultdict(list)
        for run in joined(runs):
            self._lines[run.node, run.epoch].append((run.seq_from, run.seq_to))

    def meets(self, one: Run | Conflict) -> bool:
        line = self._lines.get((one.node, one.epoch), [])
        place = bisect_right(line, (one.seq_to, 1 << 63)) - 1
        return place >= 0 and line[place][1] >= one.seq_from

    def shared(self, run: Run) -> int:
        """Return how many numbers of a run lie in these stretches."""
        line = self._lines.get((run.node, run.epoch), [])
        near = line[max(0, bisect_right(line, (run.seq_from, 0)) - 1) :]
        meeting = takewhile(lambda one: one[0] <= run.seq_to, near)
        return sum(
            max(0, min(end, run.seq_to) - max(start, run.seq_from) + 1) for start, end in meeting
        )


def schema() -> "StructType":
    from pyspark.sql.types import StructType

    parsed = StructType.fromDDL(COLUMNS)
    assert isinstance(parsed, StructType)
    return parsed


def read(lake: "Lake") -> Registry:
    rows = lake.read(TABLE, schema=schema()).drop(DATE).toArrow().to_pylist()
    conflicts = lake.state(CONFLICTS) or []
    return Registry(
        tuple(msgspec.convert(rows, list[Segment])),
        tuple(msgspec.convert(conflicts, list[Conflict])),
    )


def joined(runs: Iterable[Run]) -> list[Run]:
    """Runs put together where they touch or overlap."""
    found: list[Run] = []
    for run in sorted(runs):
        last = found[-1] if found else None
        if (
            last is None
            or (last.node, last.epoch) != (run.node, run.epoch)
            or run.seq_from > last.seq_to + 1
        ):
            found.append(run)
            continue
        found[-1] = msgspec.structs.replace(
            last,
            seq_to=max(last.seq_to, run.seq_to),
            at_from=min(last.at_from, run.at_from),
            at_to=max(last.at_to, run.at_to),
        )
    return found


def with_conflicts(
    conflicts: Iterable[Conflict], identities: Iterable[tuple[str, int, int, int]]
) -> tuple[Conflict, ...]:
    """More identities (node, epoch, seq, at) in conflict, put together with those known."""
    runs = [Run(one.node, one.epoch, one.seq_from, one.seq_to, one.at, 0) for one in conflicts]
    runs += [Run(node, epoch, seq, seq, at, 0) for node, epoch, seq, at in identities]
    return tuple(
        Conflict(run.node, run.epoch, run.seq_from, run.seq_to, run.at_from) for run in joined(runs)
    )


def _days(first: int, last: int) -> Iterator[str]:
    date, end = moment(first).date(), moment(last).date()
    while date <= end:
        yield date.isoformat()
        date += timedelta(days=1)
