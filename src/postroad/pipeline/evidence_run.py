"""One run of the evidence check: which receipts, their rows to the table, and what came of it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from postroad.msh.proof import EPOCH
from postroad.pipeline.evidence import Believing, proven, receipts
from postroad.pipeline.evidence_table import Staged, is_gone, recover, without_rows
from postroad.pipeline.schema import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from postroad.pipeline.lake import Lake

MOST_SHOWN: Final = 1000


class Counts(Struct, frozen=True):
    """How many receipts are worth what."""

    receipts: int = 0
    valid: int = 0
    invalid: int = 0
    gone: int = 0
    """The bytes are no longer there, so nothing can be said."""
    unsigned: int = 0
    """Neither message nor receipt is signed: nothing can be proven."""


class Failing(Struct, frozen=True):
    """A receipt that does not hold."""

    message_id: str
    receipt_id: str
    signature: bool | None
    chain: bool | None
    digests: bool | None
    signer: str | None
    detail: str | None


class Outcome(Struct, frozen=True):
    """What came of a run."""

    run: Counts
    """The receipts that were looked at now."""
    first_at: datetime | None
    last_at: datetime | None
    """When the first and the last of all receipts in the journal came or went."""
    elsewhere: dict[str, int]
    """Receipts of nodes of which nobody said where their bytes lie."""
    failing: tuple[Failing, ...]
    """Those of this run that do not hold, the first of them."""


def verify(
    lake: "Lake",
    folders: Mapping[str, str],
    believing: Believing,
    now: datetime,
    *,
    again: bool = False,
) -> Outcome:
    """Prove the receipts that have no row yet, or all of them `again`."""
    recover(lake)
    events = lake.read(EVENTS.name)
    known = receipts(events, folders)
    wanted = known if again else without_rows(lake, known)
    staged = Staged(lake, proven(wanted.where("at_hand"), folders, believing, now))
    counts = counted(staged.rows)
    failing = _failing(staged.rows) if counts.invalid or counts.gone else ()
    if again:
        staged.put()
    else:
        staged.add()
    first_at, last_at, elsewhere = _journal(events, wanted, folders)
    return Outcome(counts, first_at, last_at, elsewhere, failing)


def counted(rows: "DataFrame") -> Counts:
    """Rows of the table by what they are worth."""
    from pyspark.sql import functions as F

    found = rows.agg(
        F.count("*"),
        F.count_if("valid"),
        F.count_if(~F.col("valid") & ~is_gone()),
        F.count_if(is_gone()),
        F.count_if(F.col("valid").isNull()),
    ).first()
    assert found is not None
    return Counts(*found)


def _failing(rows: "DataFrame") -> tuple[Failing, ...]:
    from pyspark.sql import functions as F

    bad = rows.where(~F.col("valid")).orderBy(is_gone(), "message_id", "receipt_id")
    shown = bad.select(*Failing.__struct_fields__).limit(MOST_SHOWN).collect()
    return tuple(Failing(*row) for row in shown)


def _journal(
    events: "DataFrame", wanted: "DataFrame", folders: Mapping[str, str]
) -> tuple[datetime | None, datetime | None, dict[str, int]]:
    """First and last receipt of the journal, and those whose bytes nobody showed us."""
    from pyspark.sql import functions as F

    of_receipts = events.where(F.col("event").isin("receipt_received", "receipt_sent"))
    at = F.unix_micros("at")
    by_node: list[Any] = of_receipts.groupBy("node").agg(F.min(at), F.max(at)).collect()
    times = [EPOCH + timedelta(microseconds=one) for row in by_node for one in row[1:]]
    first_at, last_at = min(times, default=None), max(times, default=None)
    if all(row[0] in folders for row in by_node):
        return first_at, last_at, {}
    elsewhere = wanted.where(~F.col("at_hand")).groupBy("node").count().collect()
    return first_at, last_at, {row[0]: row[1] for row in elsewhere}
