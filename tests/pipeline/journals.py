"""Journals for tests: a builder that is short to write with."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from postroad.pipeline.schema import TABLES
from postroad.pipeline.tables import of_events
from postroad.store.journal_columns import COLUMNS, EVENTS

Event = dict[str, Any]
Row = dict[str, Any]

START: Final = datetime(2026, 3, 1, 10, tzinfo=UTC)
DAY: Final = 24 * 60
"""Minutes."""

MESSAGE: Final = {
    "kind": "message",
    "from_party": "A",
    "to_party": "B",
    "service": "orders",
    "action": "order",
    "conversation_id": "talk",
    "pmode": "push",
    "protocol": "as4",
    "bytes": 1000,
}
"""What every event about a message says, unless told otherwise."""

NAMES: Final = (
    *("node", "party", "message_id", "signal_id", "ref_to_message_id", "conversation_id"),
    *("group_id", "envelope", "from_party", "to_party", "pmode"),
)
"""Columns that get a prefix, so that many journals can lie side by side."""

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "messages": ("message_id", "side"),
    "reconciliation": ("message_id",),
    "partners": ("partner", "hour"),
    "hops": ("message_id", "node"),
    "conversations": ("conversation_id",),
    "packing": ("pmode", "hour"),
    "findings": ("kind", "subject"),
}
"""The tables that are made of events, and what tells their rows apart."""


def at(minutes: float) -> datetime:
    """So many minutes after the start."""
    return START + timedelta(minutes=minutes)


@dataclass
class Writer:
    """One node that writes events, numbered one after the other."""

    events: list[Event]
    node: str
    party: str
    epoch: int = 1
    seq: int = 1
    columns: Event = field(default_factory=dict)

    def write(
        self, minutes: float, event: str, message_id: str | None = "m", **columns: Any
    ) -> Self:
        """One event; its side is the first that such an event may have."""
        about = MESSAGE | self.columns if message_id is not None else {}
        self.events.append(
            dict.fromkeys(COLUMNS.names)
            | {"side": EVENTS[event][0] if event in EVENTS and message_id is not None else None}
            | about
            | {
                "node": self.node,
                "epoch": self.epoch,
                "seq": self.seq,
                "at": at(minutes),
                "party": self.party,
                "event": event,
                "message_id": message_id,
            }
            | columns
        )
        self.seq += 1
        return self

    def beat(self, minutes: float, **columns: Any) -> Self:
        return self.write(minutes, "heartbeat", None, **columns)

    def skip(self, events: int = 1) -> Self:
        """Events that are missing."""
        self.seq += events
        return self

    def restored(self) -> Self:
        """A new epoch."""
        self.epoch, self.seq = self.epoch + 1, 1
        return self


@dataclass
class Journal:
    """The events of a few nodes."""

    events: list[Event] = field(default_factory=list)

    def node(
        self, name: str, party: str, *, epoch: int = 1, seq: int = 1, **columns: Any
    ) -> Writer:
        """A node that writes for a party; `columns` are said by all its events about messages."""
        return Writer(self.events, name, party, epoch, seq, columns)

    def relay(self, name: str, **columns: Any) -> Writer:
        """A node of the hub H that hands on what others sent."""
        return self.node(name, "H", side="forwarding", **columns)


def prefixed(events: Iterable[Event], prefix: str) -> list[Event]:
    """The same journal with other names, disjoint from those under any other prefix."""
    return [
        event | {c: prefix + event[c] for c in NAMES if event[c] is not None} for event in events
    ]


def side_by_side(journals: Mapping[str, list[Event]]) -> list[Event]:
    return [e for name, events in journals.items() for e in prefixed(events, f"{name}/")]


def frame(spark: SparkSession, events: Iterable[Event]) -> DataFrame:
    """As a Spark frame like the table `events`; what belongs together is scattered."""
    table = pa.Table.from_pylist(list(events), schema=COLUMNS)
    return spark.createDataFrame(table).to(TABLES["events"].schema).repartition(3)


def rows(table: DataFrame) -> list[Row]:
    """As dicts, with times in UTC."""
    return table.toArrow().to_pylist()


def tables(
    spark: SparkSession, events: Iterable[Event], grace: timedelta = timedelta(days=1)
) -> dict[str, list[Row]]:
    """All tables of these events, by Spark; their columns must be those that are documented."""
    made = of_events(frame(spark, events), grace)
    assert {name: table.dtypes for name, table in made.items()} == {
        name: [(field.name, field.dataType.simpleString()) for field in TABLES[name].schema]
        for name in KEYS
    }
    return {name: rows(table) for name, table in made.items()}


class Examples:
    """Small journals that lie side by side in one frame, so that all of them cost one Spark run."""

    def __init__(self) -> None:
        self.journals: dict[str, list[Event]] = {}
        self._tables: dict[str, list[Row]] = {}
        self._known = 0

    def add(self, build: Callable[[Journal], object]) -> str:
        """Takes a journal in; what comes back is its name."""
        journal = Journal()
        build(journal)
        self.journals[build.__name__] = journal.events
        return build.__name__

    def tables(self, spark: SparkSession) -> dict[str, list[Row]]:
        """The rows of every table over all journals; names start with that of the journal."""
        if self._known != len(self.journals):
            self._known = len(self.journals)
            self._tables = tables(spark, side_by_side(self.journals))
        return self._tables


EXAMPLES: Final = Examples()
"""Of all test modules that are imported."""
