"""How covering changes from one run to the next, so that only what it can decide is looked at."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postroad.pipeline.covering import Covering, Stretch, Watch, last_beat
from postroad.pipeline.intake_files import Run, Served
from postroad.pipeline.times import micros, moment

Watches = tuple[Watch, ...]
NOTHING: Final = 1 << 62
"""Compared: nothing has changed."""
LESS: Final = -2
"""Compared: less is covered than before, or more nodes must cover: anything may change."""
_MORE: Final = -1
"""Compared: more is covered, anywhere: what is undecided may be decided now."""


def compare(before: Watches, now: Watches) -> int:
    """`LESS`, `NOTHING`, or from what time on more is covered than before, in microseconds."""
    if not before:
        return _MORE
    if [one.node for one in before] != [one.node for one in now]:
        return LESS
    since = NOTHING
    for old, new in zip(before, now, strict=True):
        since = min(since, _compare(old, new))
    return since


def _compare(old: Watch, new: Watch) -> int:
    if old == new:
        return NOTHING
    if old.retired is not None and new.retired != old.retired:
        return LESS
    if new.reach < old.reach or not all(_within(one, new.covered) for one in old.covered):
        return LESS
    *past, last = old.covered
    grown = (*past, (last[0], new.covered[-1][1]))
    if new.retired == old.retired and grown == new.covered:
        return micros(min(last[1], old.reach))
    return _MORE


def _within(one: tuple[datetime, datetime], others: Iterable[tuple[datetime, datetime]]) -> bool:
    return any(start <= one[0] and one[1] <= end for start, end in others)


def served(events: DataFrame) -> dict[str, Any]:
    """For whom each node wrote, and its last heartbeat (epoch, seq, when it retired); as JSON."""
    rows = events.groupBy("node").agg(F.collect_set("party"), last_beat())
    return {
        node: {"parties": sorted(parties), "beat": list(beat) if beat else [0, 0, None]}
        for node, parties, beat in rows.collect()
    }


def of_segment(found: Iterable[Served]) -> dict[str, Any]:
    """The same, as it was found in a file."""
    return {one.node: {"parties": one.parties, "beat": list(one.beat)} for one in found}


def together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What two such say."""
    result = dict(one)
    for node, said in other.items():
        known = result.get(node, said)
        result[node] = {
            "parties": sorted({*known["parties"], *said["parties"]}),
            "beat": max(known["beat"], said["beat"], key=lambda beat: beat[:2]),
        }
    return result


def stretches(runs: Iterable[Run], served: Mapping[str, Any]) -> list[Stretch]:
    """The runs of all files, with for whom each node wrote."""
    return [
        Stretch(
            run.node,
            run.epoch,
            run.seq_from,
            run.seq_to,
            moment(run.at_from),
            moment(run.at_to),
            frozenset(served.get(run.node, {}).get("parties", ())),
        )
        for run in runs
    ]


def retired(served: Mapping[str, Any]) -> dict[str, datetime]:
    """When nodes left service."""
    return {node: moment(said["beat"][2]) for node, said in served.items() if said["beat"][2]}


def plain(covering: Covering) -> dict[str, Any]:
    """As JSON."""
    return {
        party: [
            {
                "node": one.node,
                "covered": [[micros(start), micros(end)] for start, end in one.covered],
                "reach": micros(one.reach),
                "retired": micros(one.retired) if one.retired else None,
            }
            for one in watches
        ]
        for party, watches in covering.parties.items()
    }


def read(said: Mapping[str, Any]) -> dict[str, Watches]:
    """What `plain` wrote."""
    return {
        party: tuple(
            Watch(
                one["node"],
                tuple((moment(start), moment(end)) for start, end in one["covered"]),
                moment(one["reach"]),
                moment(one["retired"]) if one["retired"] is not None else None,
            )
            for one in watches
        )
        for party, watches in said.items()
    }


def microseconds(time: timedelta) -> int:
    return time // timedelta(microseconds=1)
