"""The reconciliation made anew, of changed messages and of those that a journal decides now.

What was not delivered may be decided by a receiver's journal that goes on, or not any more by one
of which something went. State tells which days have such messages, of whose receivers (`open`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postroad.pipeline import tables, watching
from postroad.pipeline.changed import FACTS, Changed
from postroad.pipeline.covering import AROUND, Covering
from postroad.pipeline.folding import Flags
from postroad.pipeline.intake import Batch
from postroad.pipeline.keys import KeySet
from postroad.pipeline.schema import DATE, RECONCILIATION
from postroad.pipeline.watching import microseconds

Open = dict[str, dict[str, int]]
"""By day and party: until when its journal must go on to decide."""
_TABLE: Final = RECONCILIATION.name
_OPEN: Final = "open"
_WATCHES: Final = "watches"
_SERVED: Final = "served"
_GRACE: Final = "grace"


def other_grace(changed: Changed, grace: timedelta) -> bool:
    """Whether all was judged by another one."""
    return bool(changed.lake.state(_GRACE) != grace.total_seconds())


def replace_reconciliation(changed: Changed, batch: Batch, grace: timedelta) -> None:
    lake, change = changed.lake, changed.change
    covering = _covering(changed, batch)
    opened: Open = lake.state(_OPEN) or {}
    again = _reopened(changed, opened, covering, grace)
    if again or changed.days():
        # What was delivered was decided without any other journal.
        others = changed.choose(_TABLE, _Undelivered(), again).cache()
        judged = tables.judged(changed.added(_TABLE).unionByName(others), covering, grace)
        rows = judged.select(*RECONCILIATION.names, DATE)
        gone = changed.gone | KeySet.of(others.select("key").toArrow()["key"])
        changed.follow(_TABLE, rows, "message_id", gone=gone, days=again)
        opened = _joined(opened, _undecided(judged, grace), again)
        others.unpersist()
    change.set(_OPEN, opened)
    change.set(_GRACE, grace.total_seconds())
    change.set(_WATCHES, watching.plain(covering))


@dataclass(frozen=True)
class _Undelivered:
    """Messages that no receiver delivered, as far as is known."""

    columns: Sequence[str] = ("kind", "receiving.deliveries")

    def mask(self, rows: Any, day: str | None) -> Flags:
        delivered = pc.greater(pc.struct_field(rows["receiving"], "deliveries"), 0)
        messages = pc.equal(rows["kind"], "message")
        found: Flags = np.asarray(pc.and_not(messages, pc.fill_null(delivered, False)))
        return found


def _reopened(changed: Changed, opened: Open, covering: Covering, grace: timedelta) -> set[str]:
    """The days of which all that is not delivered must be judged again."""
    before = watching.read(changed.lake.state(_WATCHES) or {})
    changes = {
        party: watching.compare(before.get(party, ()), watches)
        for party, watches in covering.parties.items()
    }
    less = watching.LESS in changes.values() or set(before) - set(covering.parties)
    if less or changed.lake.state(_GRACE) not in (None, grace.total_seconds()):
        return set(changed.lake.days(FACTS))
    return {
        day
        for day, parties in opened.items()
        if any(changes.get(party, watching.NOTHING) < end for party, end in parties.items())
    }


def _undecided(judged: DataFrame, grace: timedelta) -> Open:
    """The receivers whose journal may still decide something."""
    end = F.greatest(
        F.unix_micros("last_at") + F.lit(microseconds(grace)),
        F.unix_micros("sent_to") + F.lit(microseconds(AROUND)),
    )
    rows = (
        judged.where("sender IS NOT NULL AND deliveries = 0 AND NOT silent AND watched IS NOT NULL")
        .groupBy(DATE, "watched")
        .agg(F.max(end))
    )
    found: Open = {}
    for day, party, until in rows.collect():
        if until is not None:
            found.setdefault(day, {})[party] = until
    return found


def _joined(before: Open, found: Open, again: set[str]) -> Open:
    """Of days that were judged as a whole what was found, of others both."""
    stay = {day: parties for day, parties in before.items() if day not in again}
    together: Open = {}
    for said in (stay, found):
        for day, parties in said.items():
            ends = together.setdefault(day, {})
            for party, end in parties.items():
                ends[party] = max(end, ends.get(party, end))
    return together


def _covering(changed: Changed, batch: Batch) -> Covering:
    """By the stretches of all files, and for whom each node wrote."""
    lake, change = changed.lake, changed.change
    served: dict[str, Any] = lake.state(_SERVED) or {}
    if batch.retracted:
        days = {*lake.days("events"), *change.days("events")}
        served = watching.served(change.read("events", days))
    else:
        for segment in batch.whole:
            served = watching.together(served, watching.of_segment(segment.served))
        if batch.rest is not None:
            served = watching.together(served, watching.served(batch.rest))
    change.set(_SERVED, served)
    parts = watching.stretches(batch.known.runs, served)
    return Covering.of(parts, watching.retired(served))
