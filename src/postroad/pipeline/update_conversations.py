"""Conversations made anew: those of changed messages, and of the requests that these answer."""

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postroad.pipeline import tables
from postroad.pipeline.changed import FACTS, Changed, days_of, under_day
from postroad.pipeline.keys import KeySet
from postroad.pipeline.parcels import shares_of

_TABLE: Final = "conversations"
_KEYS: Final = ("key", "conversation_key", "ref_key")


def replace_conversations(changed: Changed, shares: int) -> None:
    """`shares`: into so many parts they are cut at least."""
    shares = max(shares, shares_of(changed.lake.spark))
    added = changed.added(_TABLE)
    if not changed.lake.days(FACTS):
        changed.change.add(_TABLE, under_day(tables.conversations(added, shares), "started_at"))
        return
    touched = changed.touched(_TABLE).select(*_KEYS).toArrow()
    ours = KeySet.of(touched["key"])
    wanted = KeySet.of(touched["conversation_key"])
    asked = changed.find(_TABLE, "key", KeySet.of(touched["ref_key"]) - ours)
    wanted |= KeySet.of(asked.select("conversation_key").toArrow()["conversation_key"])
    said = changed.find(_TABLE, "conversation_key", wanted).cache()
    heard = ours | KeySet.of(said.select("key").toArrow()["key"])
    answers = changed.find(_TABLE, "ref_key", heard).join(said.select("key"), "key", "left_anti")
    # An answer from elsewhere counts as such, and its own conversation is not looked at.
    apart = answers.withColumn("conversation_id", F.lit(None).cast("string"))
    known = reduce(DataFrame.unionByName, [said, apart], added)
    rows = under_day(tables.conversations(known, shares), "started_at")
    days = days_of(under_day(_starts(changed, said), "started_at"))
    changed.follow(_TABLE, rows, "conversation_id", gone=wanted, days=days)
    said.unpersist()


def _starts(changed: Changed, said: DataFrame) -> DataFrame:
    """When the conversations began, as they were told before."""
    columns = ("kind", "conversation_id", "conversation_key", "first_at")
    rows = said.select(*columns)
    if changed.before is not None:
        rows = rows.unionByName(changed.before.rows.select(*columns))
    messages = rows.where("kind = 'message' AND conversation_id IS NOT NULL")
    return messages.groupBy("conversation_key").agg(F.min("first_at").alias("started_at"))
