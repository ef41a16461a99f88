"""What the journals cover: where silence about a message means that nothing happened."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from postroad.pipeline.times import moment

AROUND: Final = timedelta(minutes=5)
"""A message is covered from so long before it was first sent until so long after it was last."""
_ALWAYS: Final = datetime(1900, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime(9000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Events of a node and epoch with no seq missing between them."""

    node: str
    epoch: int
    seq_from: int
    seq_to: int
    at_from: datetime
    at_to: datetime
    """The least and the greatest time in it."""
    parties: frozenset[str] = frozenset()
    """For whom the node wrote."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Events of a node and epoch that are missing."""

    node: str
    epoch: int
    seq_from: int
    seq_to: int
    at: datetime
    """When the journal goes on."""

    @property
    def subject(self) -> str:
        return f"{self.node} {self.epoch} {self.seq_from}-{self.seq_to}"

    @property
    def detail(self) -> str:
        count = self.seq_to - self.seq_from + 1
        some = "event is" if count == 1 else "events are"
        return f"{count} {some} missing in the journal of {self.node}, epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class Watch:
    """What the journal of one node covers."""

    node: str
    covered: tuple[tuple[datetime, datetime], ...]
    """Times, both ends included, in order and apart from each other."""
    reach: datetime
    """Its last event."""
    retired: datetime | None
    """When it left service; up to then it must cover."""


@dataclass(frozen=True, slots=True)
class Covering:
    """The nodes that wrote for each party, with what they cover."""

    parties: dict[str, tuple[Watch, ...]]

    @staticmethod
    def of(stretches: Iterable[Stretch], retired: Mapping[str, datetime]) -> "Covering":
        """From all stretches of all nodes, and when which of them left service."""
        nodes: dict[str, list[Stretch]] = defaultdict(list)
        served: dict[str, set[str]] = defaultdict(set)
        for one in merged(stretches):
            nodes[one.node].append(one)
            for party in one.parties:
                served[party].add(one.node)
        watches = {node: _watch(node, some, retired.get(node)) for node, some in nodes.items()}
        return Covering(
            {party: tuple(watches[node] for node in sorted(some)) for party, some in served.items()}
        )

    def frame(self, spark: SparkSession) -> DataFrame:
        """One row per party; `covers` asks it."""
        rows = [
            (party, [_row(watch) for watch in watches], _reach(watches))
            for party, watches in sorted(self.parties.items())
        ]
        return spark.createDataFrame(rows, _FRAME)


_FRAME: Final = (
    "watched string, watches array<struct<retired: timestamp, "
    "covered: array<struct<start: timestamp, end: timestamp>>>>, reach timestamp"
)


def covers(start: Column, end: Column) -> Column:
    """Whether every node in service covers that time; `watches` is of the party in question.

    A node that retired before needs not, one that retired meanwhile must up to then; one that was
    not yet in service covers the time before its first event.
    """
    return F.forall(
        "watches",
        lambda watch: (
            F.coalesce(watch["retired"] < start, F.lit(False))
            | F.exists(
                watch["covered"],
                lambda one: (
                    (one["start"] <= start)
                    & (one["end"] >= F.least(end, F.coalesce(watch["retired"], end)))
                ),
            )
        ),
    )


def _reach(watches: Iterable[Watch]) -> datetime:
    """How far all nodes in service reach; when all have retired the journal is final."""
    return min((one.reach for one in watches if one.retired is None), default=_NEVER)


def _row(watch: Watch) -> tuple[Any, ...]:
    return (watch.retired, list(watch.covered))


def _watch(node: str, stretches: list[Stretch], retired: datetime | None) -> Watch:
    """Of the stretches of one node, in order."""
    first = stretches[0]
    whole = (first.epoch, first.seq_from) == (1, 1)
    covered: list[tuple[datetime, datetime]] = []
    times = [(one.at_from, one.at_to) for one in stretches]
    if whole:
        times[0] = (_ALWAYS, times[0][1])
    for start, end in sorted(times):
        if covered and start <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(covered[-1][1], end))
        else:
            covered.append((start, end))
    return Watch(
        node,
        tuple(covered),
        max(one.at_to for one in stretches),
        retired,
    )


def merged(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same stretches, those that touch made one, in order."""
    result: list[Stretch] = []
    for one in sorted(stretches, key=lambda some: (some.node, some.epoch, some.seq_from)):
        last = result[-1] if result else None
        if (
            last is not None
            and (last.node, last.epoch) == (one.node, one.epoch)
            and one.seq_from <= last.seq_to + 1
        ):
            result[-1] = _together(last, one)
        else:
            result.append(one)
    return result


def _together(one: Stretch, other: Stretch) -> Stretch:
    return Stretch(
        one.node,
        one.epoch,
        one.seq_from,
        max(one.seq_to, other.seq_to),
        min(one.at_from, other.at_from),
        max(one.at_to, other.at_to),
        one.parties | other.parties,
    )


def gaps(stretches: Iterable[Stretch]) -> list[Gap]:
    """What is missing: between stretches, and before the first of an epoch."""
    found = []
    expected: dict[tuple[str, int], int] = {}
    for one in merged(stretches):
        missing = expected.get((one.node, one.epoch), 1)
        if missing < one.seq_from:
            found.append(Gap(one.node, one.epoch, missing, one.seq_from - 1, one.at_from))
        expected[one.node, one.epoch] = one.seq_to + 1
    return found


def stretches(events: DataFrame) -> list[Stretch]:
    """The stretches of a whole journal, as it lies in `events`."""
    in_order = Window.partitionBy("node", "epoch").orderBy("seq")
    numbered = events.select(
        "node", "epoch", "seq", "at", "party",
        (F.col("seq") - F.row_number().over(in_order)).alias("island"),
    )  # fmt: skip
    rows = numbered.groupBy("node", "epoch", "island").agg(
        F.min("seq").alias("seq_from"),
        F.max("seq").alias("seq_to"),
        F.min("at").alias("at_from"),
        F.max("at").alias("at_to"),
        F.collect_set("party").alias("parties"),
    )
    return [
        Stretch(
            row["node"], row["epoch"], row["seq_from"], row["seq_to"], utc(row["at_from"]),
            utc(row["at_to"]), frozenset(row["parties"]),
        )
        for row in rows.collect()
    ]  # fmt: skip


def last_beat() -> Column:
    """The last heartbeat among some events: epoch, seq, and when it retired if that says so."""
    retired = "CASE WHEN detail = 'retired' THEN unix_micros(at) END AS retired"
    return F.expr(f"max(struct(epoch, seq, {retired})) FILTER (WHERE event = 'heartbeat')")


def retirements(events: DataFrame) -> dict[str, datetime]:
    """When nodes left service: those whose last heartbeat says so."""
    beats = events.groupBy("node").agg(last_beat().alias("beat"))
    rows = beats.where("beat.retired IS NOT NULL").select("node", "beat.retired").collect()
    return {node: moment(retired) for node, retired in rows}


def utc(time: datetime) -> datetime:
    """Spark hands times out without a zone, in that of this process."""
    return time.astimezone(UTC)
