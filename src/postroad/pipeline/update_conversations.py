"""Conversations made anew: those of changed messages, and of the requests that these answer."""

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postroad.pipeline import tables
from postroad.pipeline.changed import FACTS, Changed, dated, days_of
from postroad.pipeline.keys import KeySet
from postroad.pipeline.parcels import shares_of

_TABLE: Final = "conversations"
_KEYS: Final = ("key", "conversation_key", "ref_key")
_COLUMNS: Final = (
    "message_id", "kind", "conversation_id", "ref_to_message_id", "from_party", "to_party",
    "sequence_number", "out_of_order", "first_at", "last_at", *_KEYS,
)  # fmt: skip


def replace_conversations(changed: Changed, shares: int) -> None:
    """`shares`: into so many parts they are cut at least."""
    shares = max(shares, shares_of(changed.lake.spark))
    added = changed.added().select(*_COLUMNS)
    if not changed.lake.days(FACTS):
        rows = tables.conversations(added, shares)
        changed.change.add(_TABLE, dated(rows, "started_at"))
        return
    touched = changed.touched().select(*_KEYS).toArrow()
    ours = KeySet.of(touched["key"])
    wanted = KeySet.of(touched["conversation_key"])
    asked = changed.find("key", KeySet.of(touched["ref_key"]) - ours, "conversation_key")
    wanted |= KeySet.of(asked.toArrow()["conversation_key"])
    said = changed.find("conversation_key", wanted, *_COLUMNS).cache()
    heard = ours | KeySet.of(said.select("key").toArrow()["key"])
    answers = changed.find("ref_key", heard, *_COLUMNS).join(said.select("key"), "key", "left_anti")
    # An answer from elsewhere counts as such, and its own conversation is not looked at.
    apart = answers.withColumn("conversation_id", F.lit(None).cast("string"))
    known = reduce(DataFrame.unionByName, [said.select(*_COLUMNS), apart.select(*_COLUMNS)], added)
    rows = dated(tables.conversations(known, shares), "started_at")
    days = days_of(dated(_starts(changed, said), "started_at"))
    changed.follow(_TABLE, rows, "conversation_id", gone=wanted, days=days)
    said.unpersist()


def _starts(changed: Changed, said: DataFrame) -> DataFrame:
    """When the conversations began, as they were told before."""
    if changed.before is not None:
        said = said.select(*_COLUMNS).unionByName(changed.before.rows.select(*_COLUMNS))
    messages = said.where("kind = 'message' AND conversation_id IS NOT NULL")
    return messages.groupBy("conversation_key").agg(F.min("first_at").alias("started_at"))
