"""The tables, each a pure function of facts; what the columns are is told in `schema`.

events -> facts -> messages, hops, conversations, partners, packing, reconciliation, findings
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from postroad.pipeline import conversing, schema
from postroad.pipeline.covering import AROUND, Covering, Gap, covers, gaps, retirements, stretches
from postroad.pipeline.facts import day, facts
from postroad.pipeline.hourly import HOURLY
from postroad.pipeline.parcels import PARCEL, gathered, parcels, shares_of, unpacked
from postroad.store.journal_columns import RECEIVING, SENDING
from postroad.wire.names import TEST_ACTION, TEST_SERVICE

GRACE: Final = timedelta(days=1)
CLOCK: Final = timedelta(minutes=1)
"""By so much clocks may disagree before it is a finding."""
_OF_ROW: Final = (
    "kind", "party", "from_party", "to_party", "service", "action", "conversation_id", "pmode",
    "protocol", "bytes",
)  # fmt: skip
_OF_SENDING: Final = (
    "submitted_at", "first_sent_at", "last_sent_at", "acknowledged_at", "failed_at", "attempts",
    "errors",
)  # fmt: skip
_OF_RECEIVING: Final = (
    "received_at", "delivered_at", "acknowledged_at", "failed_at", "duplicates", "deliveries",
    "errors",
)  # fmt: skip

_OF_CONVERSATIONS: Final = {
    "ref_to_message_id": "string",
    "from_party": "string",
    "to_party": "string",
    "sequence_number": "bigint",
    "out_of_order": "bigint",
    "first_at": "timestamp",
    "last_at": "timestamp",
}

_OUTCOME: Final = ("acknowledged_at", "settled", "delivery_failed", "expired", "in_doubt")
READ: Final = {
    "messages": ("message_id", SENDING, RECEIVING),
    "hops": ("message_id", "kind", "hops"),
    "conversations": (
        "message_id", "kind", "conversation_id", "ref_to_message_id", "from_party", "to_party",
        "sequence_number", "out_of_order", "first_at", "last_at",
    ),
    **{name: hourly.read for name, hourly in HOURLY.items()},
    "reconciliation": (
        "message_id", "kind", "noted_at", "to_party", "first_at", "last_at",
        *(f"sending.{name}" for name in (
            *_OUTCOME, "refused", "transmitted", "service", "action", "settled_by",
            "first_sent_at", "submitted_at", "last_sent_at",
        )),
        *(f"receiving.{name}" for name in ("party", "received_at", "failed_at", "deliveries")),
    ),
    "findings": (
        "message_id", "noted_at",
        *(f"sending.{name}" for name in ("party", "several", "first_sent_at")),
        *(f"receiving.{name}" for name in ("party", "several", "received_at")),
    ),
}  # fmt: skip
"""The facts that are read for a table; `a.b` is a field of a struct."""

_SENDER: Final = """
    CASE WHEN sending IS NULL THEN NULL
         WHEN sending.acknowledged_at IS NOT NULL OR sending.settled = 'delivered'
              THEN 'acknowledged'
         WHEN sending.delivery_failed OR sending.settled = 'not_received' THEN 'failed'
         WHEN sending.expired THEN 'expired'
         WHEN sending.in_doubt OR sending.settled = 'received' THEN 'in_doubt'
         ELSE 'pending' END
"""
_RECEIVER: Final = """
    CASE WHEN receiving IS NULL THEN NULL
         WHEN receiving.deliveries > 0 THEN 'delivered'
         WHEN receiving.failed_at IS NOT NULL THEN 'rejected'
         WHEN receiving.received_at IS NOT NULL THEN 'received'
         ELSE 'pending' END
"""


def of_events(events: DataFrame, grace: timedelta = GRACE) -> dict[str, DataFrame]:
    """All tables of a whole journal that fits into one run, for notebooks and tests."""
    known = facts(events).cache()
    parts = stretches(events)
    covering = Covering.of(parts, retirements(events))
    missing = gap_findings(events.sparkSession, gaps(parts))
    return {
        "messages": messages(known),
        "hops": hops(known),
        "conversations": conversations(known),
        "partners": partners(known),
        "packing": packing(known),
        "reconciliation": reconciliation(known, covering, grace),
        "findings": fact_findings(known).unionByName(missing),
    }


def _day(facts: DataFrame) -> list[str]:
    """Rows lie under the day of their message, where facts have one: a lake's."""
    return [schema.DATE] if schema.DATE in facts.columns else []


def messages(facts: DataFrame) -> DataFrame:
    """One row per message and side."""
    sending = _of_side(facts, "sending", _SENDER, _OF_SENDING, ("submitted_at", "acknowledged_at"))
    return sending.unionAll(
        _of_side(facts, "receiving", _RECEIVER, _OF_RECEIVING, ("received_at", "delivered_at"))
    )


def _of_side(
    facts: DataFrame, side: str, outcome: str, given: tuple[str, ...], latency: tuple[str, str]
) -> DataFrame:
    """The rows of messages that have something on that side."""
    columns = []
    for name, kind, _ in schema.MESSAGES.columns:
        match name:
            case "message_id":
                value = F.col(name)
            case "side":
                value = F.lit(side)
            case "outcome":
                value = F.expr(outcome)
            case "latency_ms":
                value = _milliseconds(F.col(f"{side}.{latency[0]}"), F.col(f"{side}.{latency[1]}"))
            case _ if name in _OF_ROW or name in given:
                value = F.col(f"{side}.{name}")
            case _:
                value = F.lit(0 if kind == "bigint" else None)
        columns.append(value.cast(kind).alias(name))
    return facts.where(F.col(side).isNotNull()).select(*columns, *_day(facts))


def _milliseconds(start: Column, end: Column) -> Column:
    return (F.unix_micros(end) - F.unix_micros(start)) / F.lit(1000.0)


def hops(facts: DataFrame) -> DataFrame:
    """One row per message and relay."""
    known = facts.where("kind IN ('message', 'fragment')")
    each = known.select("message_id", F.explode("hops").alias("hop"), *_day(facts))
    dwell = _milliseconds(F.col("arrived_at"), F.col("left_at")).alias("dwell_ms")
    flat = each.select("message_id", "hop.*", *_day(facts)).withColumn("dwell_ms", dwell)
    return flat.select(*schema.HOPS.names, *_day(facts))


def conversations(facts: DataFrame, shares: int | None = None) -> DataFrame:
    """One row per conversation; `facts` has its messages and all that refer to them."""
    count = shares or shares_of(facts.sparkSession)
    said = "kind = 'message' AND conversation_id IS NOT NULL"
    asked = facts.where(f"ref_to_message_id IS NOT NULL OR ({said})").selectExpr(
        "coalesce(ref_to_message_id, message_id) AS id",
        "CASE WHEN ref_to_message_id IS NULL THEN conversation_id END AS conversation_id",
    )
    alone = gathered(parcels(asked, "id", count), count).mapInArrow(
        partial(_each_share, conversing.unanswered), "conversation_id string, unanswered bigint"
    )
    messages = facts.where(said).select(
        "conversation_id", *_OF_CONVERSATIONS, F.lit(None).cast("bigint").alias("unanswered")
    )
    counted = alone.select(
        "conversation_id",
        *(F.lit(None).cast(kind).alias(name) for name, kind in _OF_CONVERSATIONS.items()),
        "unanswered",
    )
    every = parcels(messages.unionAll(counted), "conversation_id", count)
    folded = gathered(every, count).mapInArrow(
        partial(_each_share, conversing.converse), schema.CONVERSATIONS.schema
    )
    return folded.select(schema.CONVERSATIONS.names)


def _each_share(
    fold: Callable[[pa.Table], pa.Table], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for rows in unpacked(batches):
        yield from fold(rows).to_batches()


def partners(facts: DataFrame) -> DataFrame:
    """One row per partner and hour in which anything happened."""
    return _by_hour(facts, schema.PARTNERS)


def packing(facts: DataFrame) -> DataFrame:
    """One row per P-Mode and hour in which messages or fragments were first sent."""
    return _by_hour(facts, schema.PACKING)


def _by_hour(facts: DataFrame, table: schema.Table) -> DataFrame:
    shares = shares_of(facts.sparkSession)
    parts = facts.mapInArrow(partial(HOURLY[table.name].parcels, shares=shares), PARCEL)
    return hours(table, parts, shares)


def hours(table: schema.Table, parts: DataFrame, shares: int) -> DataFrame:
    """A table by hour of all that messages tell, in parcels."""
    fold = partial(_of_hours, table=table.name, names=table.names)
    return gathered(parts, shares).mapInArrow(fold, table.schema)


def _of_hours(
    parcels: Iterable[pa.RecordBatch], *, table: str, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for rows in HOURLY[table].fold(parcels, ("name", *names[1:])):
        yield from rows.rename_columns(list(names)).to_batches()


_TESTED: Final = f"""
    coalesce(sending.service = '{TEST_SERVICE}' AND sending.action = '{TEST_ACTION}', false)
"""
"""A message to the test service is acknowledged and never delivered."""
_GIVEN_UP: Final = "sender IN ('failed', 'expired', 'in_doubt')"
_CLASSES: Final = (
    # condition, class, whether the receiver's journal settles it, why
    ("deliveries > 1", "twice", False, "concat('it was delivered ', deliveries, ' times')"),
    ("sender = 'acknowledged' AND silent AND NOT tested", "lost", False,
     "'it was acknowledged, but the receiver has not delivered it'"),
    ("sender = 'acknowledged'", "confirmed", False, "'the receiver acknowledged it'"),
    ("sender IN ('failed', 'expired') AND deliveries > 0", "ghost", False,
     "concat('the sender gave it up as ', sender, ', but it was delivered')"),
    ("deliveries > 0", "confirmed", True, "'it was delivered, says the receiver'"),
    ("refused AND (receiver = 'rejected' OR NOT has_journal)", "refused", False,
     "'the receiver answered with an error'"),
    (f"{_GIVEN_UP} AND receiver = 'rejected'", "refused", False, "'the receiver rejected it'"),
    ("sender IN ('failed', 'expired') AND NOT transmitted", "failed", False, "'it was never sent'"),
    (f"{_GIVEN_UP} AND silent", "failed", True, "'the receiver has not delivered it'"),
    ("settled = 'not_received' AND NOT has_journal", "failed", False,
     "'the receiver says that it has not come'"),
    (f"{_GIVEN_UP} AND transmitted AND NOT has_journal", "in_doubt", False,
     "'it was sent, and nobody knows whether it came'"),
    # The receiver could not read whose message it refused, so that its journal does not name it.
    ("sender = 'failed' AND refused", "refused", False, "'the receiver answered with an error'"),
    ("true", "pending", False, "'it is not decided yet'"),
)  # fmt: skip
"""JOURNAL's classes, the first that fits."""


def reconciliation(facts: DataFrame, covering: Covering, grace: timedelta = GRACE) -> DataFrame:
    """One row per message that a sender or a receiver knows: what became of it."""
    return judged(facts, covering, grace).select(*schema.RECONCILIATION.names, *_day(facts))


def judged(facts: DataFrame, covering: Covering, grace: timedelta) -> DataFrame:
    """The reconciliation, with the columns by which it was decided."""
    known = facts.where(
        "kind = 'message' AND (sending IS NOT NULL OR receiving IS NOT NULL)"
    ).select(
        "message_id",
        "noted_at",
        F.expr(_SENDER).alias("sender"),
        F.expr(_RECEIVER).alias("receiver"),
        F.expr("coalesce(receiving.deliveries, 0)").alias("deliveries"),
        F.expr("coalesce(sending.refused, false)").alias("refused"),
        F.expr("coalesce(sending.transmitted, false)").alias("transmitted"),
        F.expr(_TESTED).alias("tested"),
        F.expr("sending.settled").alias("settled"),
        F.expr("sending.settled_by").alias("peer"),
        F.expr("coalesce(to_party, receiving.party)").alias("watched"),
        F.expr("coalesce(sending.first_sent_at, sending.submitted_at)").alias("sent_from"),
        F.expr("coalesce(sending.last_sent_at, sending.submitted_at)").alias("sent_to"),
        "first_at",
        "last_at",
        *_day(facts),
    )
    watched = known.join(F.broadcast(covering.frame(facts.sparkSession)), "watched", "left")
    around = F.expr(f"INTERVAL '{AROUND.total_seconds()}' SECOND")
    covered = covers(F.col("sent_from") - around, F.col("sent_to") + around)
    over = F.expr(f"reach >= last_at + INTERVAL '{grace.total_seconds()}' SECOND")
    asked = watched.withColumn(
        "covered",
        F.when(
            F.expr("deliveries = 0 AND watches IS NOT NULL AND sent_from IS NOT NULL"), covered
        ).otherwise(False),
    ).withColumns(
        {
            "silent": F.col("covered") & F.coalesce(over, F.lit(False)),
            "has_journal": F.expr("receiver IS NOT NULL OR covered"),
        }
    )
    whens = " ".join(
        f"WHEN {condition} THEN struct('{name}' AS class, {by_journal} AS by_journal,"
        f" {why} AS detail)"
        for condition, name, by_journal, why in _CLASSES
    )
    return asked.withColumn("found", F.expr(f"CASE {whens} END")).select(
        "*",
        "found.class",
        "found.detail",
        F.col("sender").alias("sender_outcome"),
        F.col("receiver").alias("receiver_outcome"),
        F.expr("coalesce(peer, CASE WHEN found.by_journal THEN 'journal' END)").alias("settled_by"),
    )


def fact_findings(facts: DataFrame) -> DataFrame:
    """What is wrong with messages: two senders, two receivers, clocks that disagree."""
    two = [
        F.when(
            F.col(f"{side}.several"),
            F.struct(
                F.lit(kind).alias("kind"), F.lit(f"more than one party {verb} it").alias("detail")
            ),
        )
        for side, kind, verb in (
            ("sending", "two_senders", "sent"),
            ("receiving", "two_receivers", "received"),
        )
    ]
    found = F.explode(F.array_compact(F.array(*two))).alias("found")
    several = (
        facts.where("sending.several OR receiving.several")
        .select("noted_at", "message_id", found, *_day(facts))
        .select(
            F.col("noted_at").alias("at"), "found.kind", F.col("message_id").alias("subject"),
            "found.detail", *_day(facts),
        )
    )  # fmt: skip
    return several.unionByName(_clock_findings(facts))


def _early() -> Column:
    """By how many seconds a message came before it was sent."""
    sent, came = F.unix_micros("sending.first_sent_at"), F.unix_micros("receiving.received_at")
    return (sent - came) / F.lit(1e6)


def _clock_findings(facts: DataFrame) -> DataFrame:
    """Pairs of parties and days where messages came before they were sent."""
    found = facts.select(
        F.col("sending.party").alias("party"), F.col("receiving.party").alias("other"),
        "receiving.received_at", day(F.col("noted_at")).alias("day"), _early().alias("early"),
        *_day(facts),
    ).where(F.col("early") > CLOCK.total_seconds())  # fmt: skip
    pairs = found.groupBy("party", "other", "day", *_day(facts)).agg(
        F.min("received_at").alias("at"), F.max("early").alias("most"), F.count("*").alias("count")
    )
    said = (
        "concat(if(count = 1, '1 message came ', concat(count, ' messages came up to ')),"
        " round(most), ' s before being sent: the clocks of ', party, ' and ', other, ' disagree')"
    )
    return pairs.select(
        "at", F.lit("clock").alias("kind"), F.concat_ws(" ", "party", "other").alias("subject"),
        F.expr(said).alias("detail"), *_day(facts),
    )  # fmt: skip


def gap_findings(spark: SparkSession, missing: list[Gap]) -> DataFrame:
    """Gaps as findings."""
    rows = [(gap.at, "gap", gap.subject, gap.detail) for gap in missing]
    return spark.createDataFrame(rows, schema.FINDINGS.schema)
