"""Simulated journals: a believable network of businesses, with the truth beside it.

Below the folder: `journal/` has the segments (JOURNAL), `truth/messages/` what must be found out
about each message, `truth/faults.parquet` what is wrong with the journal itself, `late/` segments
that come later. The same arguments give the same files. Nothing is kept in memory but a stretch of
time, and what of its stories reaches beyond it.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.parquet as pq

from postroad.pipeline.simulation_drawing import Drawing, hourly
from postroad.pipeline.simulation_faults import FAULTS as FAULTS
from postroad.pipeline.simulation_faults import Fault, break_journals
from postroad.pipeline.simulation_network import (
    DAY,
    HOUR,
    MINUTE,
    NEVER,
    SECOND,
    SKEW,
    Ints,
    Network,
    most_parties,
    network,
)
from postroad.pipeline.simulation_telling import (
    EVENT_DTYPE,
    HEARTBEAT,
    LOOK,
    RESUMED,
    RETIRED,
    SUSPENDED,
    Events,
    Look,
)
from postroad.pipeline.simulation_truth import truth
from postroad.pipeline.simulation_writing import Journals, Segment, Texts, texts

START: Final = datetime(2026, 3, 2, tzinfo=UTC)
STRETCH: Final = 200_000
"""So many messages are drawn at once."""
PER_MESSAGE: Final = 7.6
"""Events of one message over all journals, on average and without heartbeats."""
_SEGMENT: Final = 400_000
_UNKNOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Simulated:
    """What was written."""

    messages: int
    events: int
    segments: int
    journal: Path
    truth: Path
    faults: tuple[Fault, ...]
    per_day: dict[str, int]
    """Events of each day, as the segments' folders have it."""


class CannotSimulate(ValueError):
    """What was asked for cannot be simulated; says why."""


def simulate(
    out: str | Path,
    *,
    messages: int | None = None,
    events: int | None = None,
    seed: int = 0,
    start: datetime = START,
    days: int | None = None,
    parties: int | None = None,
    trouble: float = 0.05,
    heartbeat: timedelta = timedelta(seconds=45),
    grace: timedelta = timedelta(days=1),
    faults: Collection[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Simulated:
    """Write the journals of a network that exchanges so many messages, or about so many events.

    Without `days` a large simulation has about a million events a day. `progress` is told how many
    messages of how many are written. To have some days come later, move their `date=` folders.
    """
    folder = Path(out)
    asked = messages if messages is not None else round((events or 0) / PER_MESSAGE)
    days = days if days is not None else max(4, min(60, round(asked * PER_MESSAGE / 1e6)))
    parties = parties if parties is not None else _parties(asked)
    beat = int(heartbeat.total_seconds() * SECOND)
    _check(folder, seed, asked, days, parties, trouble, beat, faults)
    begin = int(start.replace(tzinfo=start.tzinfo or UTC).timestamp()) * SECOND
    end = begin + days * DAY - SECOND
    world = network(np.random.default_rng([seed, 0]), parties, begin, end)
    if messages is None:
        messages = _besides_heartbeats(events or 0, len(world.node_names) * (end - begin) // beat)
    run = _Run(world, folder, begin, end, beat, int(grace.total_seconds()) * SECOND)
    drawing = Drawing(world, trouble)
    unknown = _UNKNOWN if "unknown_event" in faults else 0
    written = done = 0
    counts = hourly(messages, begin, days * 24)
    for number, (first, last) in enumerate(_stretches(counts)):
        rng = np.random.default_rng([seed, 1, number])
        # Clocks that are behind put nothing before the stretch.
        hour = np.repeat(np.arange(first, last), counts[first:last])
        at = begin + hour * HOUR + rng.integers(0, HOUR, len(hour)) + SKEW + MINUTE
        written += run.stretch(drawing, rng, at, begin + last * HOUR, 0 if number else unknown)
        done += len(at)
        progress(done, messages)
    rng = np.random.default_rng([seed, 2])
    broken = break_journals(rng, folder, world, run.journals.segments, faults, unknown)
    per_day = _per_day(run.journals.segments)
    return Simulated(
        written, sum(per_day.values()), len(run.journals.segments), folder / "journal",
        folder / "truth", tuple(broken), per_day,
    )  # fmt: skip


class _Run:
    """What goes on from one stretch of time to the next."""

    def __init__(
        self, world: Network, folder: Path, begin: int, end: int, beat: int, grace: int
    ) -> None:
        self.world = world
        self.truth = folder / "truth" / "messages"
        self.truth.mkdir(parents=True, exist_ok=True)
        self.journals = Journals(folder / "journal", world, _SEGMENT)
        self.reached, self.end, self.beat, self.grace = begin, end, beat, grace
        self.parts = 0
        self.waiting = np.empty(0, EVENT_DTYPE)
        self.about: Texts | None = None

    def stretch(
        self, drawing: Drawing, rng: np.random.Generator, at: Ints, until: int, unknown: int
    ) -> int:
        """Draw, tell and write one stretch; how many messages the journals name."""
        drawn = drawing.stretch(rng, at, unknown)
        named = texts(self.world, drawn.messages, rng)
        known = truth(self.world, drawn, named.columns["message_id"], self.grace)
        pq.write_table(known, self.truth / f"part-{self.parts:05d}.parquet", compression="zstd")
        self.parts += 1
        events = np.concatenate([self.waiting, *self._moved(drawn.events)])
        about = named if self.about is None else Texts.of([self.about, named])
        self._write(rng, events, about, until)
        return int(known.num_rows)

    def _moved(self, events: list[Events]) -> list[Events]:
        """Rows behind those of messages that wait."""
        before = 0 if self.about is None else len(self.about)
        for one in events:
            one["row"] += before
        return events

    def _write(self, rng: np.random.Generator, events: Events, about: Texts, until: int) -> None:
        now = events["at"] < until
        beats = self._heartbeats(rng, self.reached, until)
        self.journals.write(np.concatenate([events[now], *beats]), about)
        self.reached = until
        waiting = events[~now]
        rows, numbers = np.unique(waiting["row"], return_inverse=True)
        waiting["row"] = numbers
        self.waiting, self.about = waiting, about.take(rows)

    def _heartbeats(self, rng: np.random.Generator, begin: int, until: int) -> list[Events]:
        """Each node's signs of life, first and last ones among them, and halts of partners."""
        world, found = self.world, []
        for node, parties in enumerate(world.serves):
            first, last = int(world.begins[node]), int(world.ends[node])
            at = np.arange(max(begin, first), min(until, last), self.beat)
            at = at + (first - at) % self.beat
            at = np.append(at, (world.away_from[node], world.away_until[node]))
            away = (at > world.away_from[node]) & (at < world.away_until[node])
            at = np.unique(at[~away & (at >= begin) & (at < min(until, last)) & (at < NEVER)])
            found.append(_about_none(HEARTBEAT, node, at, np.resize(parties, len(at))))
            if begin <= first < until:
                others = np.full(len(parties) - 1, first)
                found.append(_about_none(HEARTBEAT, node, others, np.array(parties[1:])))
            if begin <= last < until:
                leaving = RETIRED if world.retired[node] == last else HEARTBEAT
                found.append(_about_none(leaving, node, np.array([last]), np.array(parties[:1])))
        return [*found, *self._halts(rng, begin, until)]

    def _halts(self, rng: np.random.Generator, begin: int, until: int) -> Iterator[Events]:
        """Now and then the first node's operator halts a partner for some minutes."""
        days = max(1, (until - begin) // DAY)
        at = rng.integers(begin, max(begin + 1, until - 10 * MINUTE), days)
        at = at[at + 10 * MINUTE < min(until, self.end)]
        peer = rng.integers(1, self.world.parties, len(at))
        for look, after in ((SUSPENDED, 0), (RESUMED, 9 * MINUTE)):
            yield _about_none(look, 0, at + after, np.zeros(len(at), np.int64), peer)


def _about_none(look: Look, node: int, at: Ints, party: Ints, peer: Ints | None = None) -> Events:
    events = np.zeros(len(at), EVENT_DTYPE)
    events["at"], events["node"], events["look"] = at, node, LOOK[look]
    events["row"], events["party"] = -1, party
    events["peer"] = -1 if peer is None else peer
    return events


def _stretches(counts: Ints) -> Iterator[tuple[int, int]]:
    """Hours that belong together, so that each has about the same number of messages."""
    first = 0
    total = 0
    for hour, count in enumerate(counts):
        total += int(count)
        if total >= STRETCH or hour == len(counts) - 1:
            yield first, hour + 1
            first, total = hour + 1, 0


def _parties(messages: int) -> int:
    """A few for hundreds of messages, dozens for millions."""
    return int(np.clip(2 + 5 * np.log10(max(10, messages)), 8, 36))


def _besides_heartbeats(events: int, beats: int) -> int:
    messages = round((events - beats) / PER_MESSAGE)
    if messages < 1:
        raise CannotSimulate(f"{beats} events are heartbeats; ask for more, or for fewer days")
    return messages


def _per_day(segments: list[Segment]) -> dict[str, int]:
    found: dict[str, int] = {}
    for segment in segments:
        day = f"{datetime.fromtimestamp(segment.begin / SECOND, UTC):%Y-%m-%d}"
        found[day] = found.get(day, 0) + segment.written.rows
    return dict(sorted(found.items()))


def _check(
    folder: Path, seed: int, messages: int, days: int, parties: int, trouble: float, beat: int,
    faults: Collection[str],
) -> None:  # fmt: skip
    unknown = sorted(set(faults) - set(FAULTS))
    if unknown:
        raise CannotSimulate(f"no fault is called {unknown[0]}; there are: {', '.join(FAULTS)}")
    if seed < 0:
        raise CannotSimulate("a seed is 0 or more")
    if messages < 1 or days < 2:
        raise CannotSimulate("a simulation has at least one message and lasts at least two days")
    if not 8 <= parties <= most_parties():
        raise CannotSimulate(f"a network has from 8 to {most_parties()} parties")
    if not 0 <= trouble <= 1 or beat < SECOND:
        raise CannotSimulate(
            "trouble is a share from 0 to 1; heartbeats are a second apart or more"
        )
    if any((folder / part).exists() for part in ("journal", "truth")):
        raise CannotSimulate(f"{folder} has a journal already; name another folder, or remove it")
