"""What the reconciliation of a lake says, in the few rows that people look at."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from postroad.msh.proof import EPOCH
from postroad.pipeline.schema import DATE, MESSAGES, RECONCILIATION
from postroad.pipeline.settling import GIVEN_UP, JOURNAL, Question

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from postroad.pipeline.lake import Lake

CLASSES: Final = (
    "twice", "lost", "ghost", "in_doubt", "refused", "failed", "pending", "confirmed",
)  # fmt: skip
"""Worst first."""


class Reconciled(Struct, frozen=True):
    """One message of the reconciliation."""

    message_id: str
    class_: str
    sender_outcome: str | None
    receiver_outcome: str | None
    deliveries: int
    settled_by: str | None
    first_at: datetime
    last_at: datetime
    detail: str | None


def counts(lake: "Lake") -> dict[str, int]:
    """How many messages of each class there are."""
    found = lake.read(RECONCILIATION.name).groupBy("class").count().collect()
    by_class = {row[0]: row[1] for row in found}
    return {name: by_class.get(name, 0) for name in CLASSES}


def rows(lake: "Lake", classes: Collection[str], most: int) -> list[Reconciled]:
    """The oldest messages of these classes."""
    from pyspark.sql import functions as F

    table = lake.read(RECONCILIATION.name).where(F.col("class").isin(*classes))
    found = table.orderBy("first_at", "message_id").limit(most).drop(DATE)
    return [msgspec.convert(row, Reconciled) for row in _collected(found)]


def questions(lake: "Lake", most: int) -> list[Question]:
    """The oldest messages that were transmitted, given up, and that nobody settled."""
    from pyspark.sql import functions as F

    open_ones = lake.read(RECONCILIATION.name).where(
        F.col("sender_outcome").isin(*GIVEN_UP)
        & F.coalesce(F.col("settled_by") == JOURNAL, F.lit(True))
    )
    sent = lake.read(MESSAGES.name).where("side = 'sending' and last_sent_at is not null")
    asked = _joined(open_ones, sent).orderBy("first_at", "message_id").limit(most)
    return [msgspec.convert(row, Question) for row in _collected(asked)]


def _collected(rows: "DataFrame") -> list[dict[str, Any]]:
    """Rows with times that say their zone; Spark gives them in that of the machine, unsaid."""
    from pyspark.sql import functions as F

    times = [field.name for field in rows.schema if field.dataType.typeName() == "timestamp"]
    numbered = rows.withColumns({name: F.unix_micros(name) for name in times})
    found = [row.asDict() for row in numbered.collect()]
    for row in found:
        row["class_"] = row.pop("class")
        row |= {name: EPOCH + timedelta(microseconds=row[name]) for name in times}
    return found


def _joined(open_ones: "DataFrame", sent: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    ours = sent.select("message_id", "party", F.col("to_party").alias("partner"), "last_sent_at")
    return open_ones.join(ours, "message_id").select(
        "message_id",
        "class",
        "sender_outcome",
        "receiver_outcome",
        "settled_by",
        "party",
        "partner",
        "last_sent_at",
        "first_at",
        "detail",
    )
