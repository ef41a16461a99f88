"""Facts: all that the events of a message say, in one row. The tables are made of these.

The events of a message are brought together once, in order, and folded in one pass; whatever can
have several values for a message (relays, hours of errors, envelopes of bundles) is gathered
beside that from the few events that have it.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postroad.store.journal_columns import FORWARDING, RECEIVING, SENDING

_CODES: Final = {
    (SENDING, "submitted"): 1,
    (SENDING, "sent"): 2,
    (SENDING, "resent"): 3,
    (SENDING, "send_failed"): 4,
    (SENDING, "ack_received"): 5,
    (SENDING, "receipt_received"): 6,
    (SENDING, "error_received"): 7,
    (SENDING, "error_raised"): 8,
    (SENDING, "delivery_failed"): 9,
    (SENDING, "expired"): 10,
    (SENDING, "in_doubt"): 11,
    (SENDING, "settled"): 12,
    (SENDING, "duplicate"): 13,
    (SENDING, "delivered"): 14,
    (RECEIVING, "received"): 31,
    (RECEIVING, "delivered"): 32,
    (RECEIVING, "acked"): 33,
    (RECEIVING, "receipt_sent"): 34,
    (RECEIVING, "rejected"): 35,
    (RECEIVING, "duplicate"): 36,
    (RECEIVING, "error_raised"): 37,
    (RECEIVING, "error_received"): 38,
    (RECEIVING, "out_of_order"): 39,
}
"""Side and event as one small number: what the fold compares a dozen times for each event."""
_OTHER: Final = {SENDING: 0, RECEIVING: 30, FORWARDING: 60}
_PURGED: Final = 90
"""Added to the others of a side."""

_ORDER: Final = ("at", "node", "epoch", "seq")
_OF_A_SIDE: Final = (
    "kind", "party", "from_party", "to_party", "service", "action", "conversation_id", "pmode",
    "protocol", "bytes",
)  # fmt: skip
_OF_ALL: Final = ("kind", "conversation_id", "ref_to_message_id", "from_party", "to_party")

_SIDE: Final = """
    kind: string, party: string, from_party: string, to_party: string, service: string,
    action: string, conversation_id: string, pmode: string, protocol: string, bytes: bigint,
    least_party: string, greatest_party: string
"""
COLUMNS: Final = {
    "message_id": "string",
    "key": "bigint",
    "kind": "string",
    "conversation_id": "string",
    "ref_to_message_id": "string",
    "from_party": "string",
    "to_party": "string",
    "sequence_number": "bigint",
    "out_of_order": "bigint",
    "conversation_key": "bigint",
    "ref_key": "bigint",
    "noted_at": "timestamp",
    "until_at": "timestamp",
    "first_at": "timestamp",
    "last_at": "timestamp",
    SENDING: f"""struct<{_SIDE},
        submitted_at: timestamp, first_sent_at: timestamp, last_sent_at: timestamp,
        acknowledged_at: timestamp, failed_at: timestamp, attempts: bigint, transmitted: bigint,
        duplicates: bigint, deliveries: bigint, errors: bigint, refused: bigint,
        delivery_failed: bigint, expired: bigint, in_doubt: bigint, settled: string,
        settled_by: string, wire_bytes: bigint, own_envelopes: bigint, from_at: timestamp>""",
    RECEIVING: f"""struct<{_SIDE},
        received_at: timestamp, delivered_at: timestamp, acknowledged_at: timestamp,
        failed_at: timestamp, duplicates: bigint, deliveries: bigint, errors: bigint>""",
    "envelopes": "array<string>",
    "troubles": "array<struct<side: string, hour: timestamp, duplicates: bigint, errors: bigint>>",
    "hops": """array<struct<node: string, party: string, arrived_at: timestamp,
        left_at: timestamp, next: string>>""",
}
"""What facts are, by name and Spark type."""
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


def facts(events: DataFrame) -> DataFrame:
    """One row for each message that the events name: `SCHEMA`."""
    named = events.where("message_id IS NOT NULL")
    folded = _folded(named)
    beside = _beside(named)
    hops = _hops(named)
    joined = folded.join(beside, "message_id", "left").join(hops, "message_id", "left")
    return joined.select(*COLUMNS)


def key(name: str) -> Column:
    """An id as a number: quicker to look up. What has another number is another."""
    return F.when(F.col(name).isNotNull(), F.xxhash64(name))


def _folded(events: DataFrame) -> DataFrame:
    """One pass over the events of each message, in order.

    `first` and `last` depend on the order of rows, and these are sorted: the aggregation needs
    the same distribution, so nothing comes between it and the sort.
    """
    slim = events.select(
        "message_id", *_ORDER, *dict.fromkeys((*_OF_A_SIDE, *_OF_ALL)), "sequence_number",
        "wire_bytes",
        _code().alias("code"),
        F.expr("envelope = message_id").alias("own"),
        F.expr("CASE WHEN event = 'settled' THEN struct(detail, peer) END").alias("settled"),
        F.expr("event = 'error_received' AND severity = 'failure'").alias("refusing"),
    )  # fmt: skip
    ordered = slim.repartition("message_id").sortWithinPartitions("message_id", *_ORDER)
    flat = ordered.groupBy("message_id").agg(*_of_all(), *_of_sending(), *_of_receiving())
    sides = (_side(flat, "s_", SENDING), _side(flat, "r_", RECEIVING))
    plain = [name for name in flat.columns if name[:2] not in ("s_", "r_")]
    keys = (
        key("message_id").alias("key"),
        key("conversation_id").alias("conversation_key"),
        key("ref_to_message_id").alias("ref_key"),
    )
    return flat.select(*plain, *keys, *sides)


def _side(flat: DataFrame, prefix: str, name: str) -> Column:
    """The columns of a side as one value; null when the message has no event on that side."""
    columns = [one for one in flat.columns if one.startswith(prefix) and one != f"{prefix}events"]
    packed = F.struct(*(F.col(one).alias(one[2:]) for one in columns))
    return F.when(F.col(f"{prefix}events") > 0, packed).alias(name)


def _code() -> Column:
    whens = " ".join(
        f"WHEN side = '{side}' AND event = '{event}' THEN {code}"
        for (side, event), code in _CODES.items()
    )
    others = " ".join(f"WHEN '{side}' THEN {code}" for side, code in _OTHER.items())
    other = f"CASE side {others} ELSE {_OTHER[FORWARDING]} END"
    return F.expr(f"CASE {whens} WHEN event = 'purged' THEN {_PURGED} + {other} ELSE {other} END")


def _of_all() -> list[Column]:
    return [
        *(F.expr(f"first({name}, true)").alias(name) for name in _OF_ALL),
        F.expr("first(sequence_number, true)").alias("sequence_number"),
        _count("code = 39").alias("out_of_order"),
        F.expr("min(at)").alias("noted_at"),
        F.expr("max(at)").alias("until_at"),
        F.expr(f"min(at) FILTER (WHERE code < {_PURGED})").alias("first_at"),
        F.expr(f"max(at) FILTER (WHERE code < {_PURGED})").alias("last_at"),
    ]


def _of_sending() -> list[Column]:
    ours = "code < 30 OR code = 90"
    return [
        *_of_side("s_", ours),
        _time("code = 1").alias("s_submitted_at"),
        _time("code IN (2, 3)").alias("s_first_sent_at"),
        F.expr("max(at) FILTER (WHERE code IN (2, 3))").alias("s_last_sent_at"),
        _time("code IN (5, 6)").alias("s_acknowledged_at"),
        _time("code IN (9, 10)").alias("s_failed_at"),
        _count("code IN (2, 3, 4)").alias("s_attempts"),
        _count("code IN (2, 3)").alias("s_transmitted"),
        _count("code = 13").alias("s_duplicates"),
        _count("code = 14").alias("s_deliveries"),
        _count("code IN (7, 8)").alias("s_errors"),
        _count("refusing").alias("s_refused"),
        _count("code = 9").alias("s_delivery_failed"),
        _count("code = 10").alias("s_expired"),
        _count("code = 11").alias("s_in_doubt"),
        F.expr("last(settled, true).detail").alias("s_settled"),
        F.expr("last(settled, true).peer").alias("s_settled_by"),
        F.expr("sum(wire_bytes) FILTER (WHERE code IN (2, 3))").alias("s_wire_bytes"),
        _count("own AND code IN (2, 3)").alias("s_own_envelopes"),
        _time(ours).alias("s_from_at"),
    ]


def _of_receiving() -> list[Column]:
    return [
        *_of_side("r_", "code BETWEEN 30 AND 59 OR code = 120"),
        _time("code = 31").alias("r_received_at"),
        _time("code = 32").alias("r_delivered_at"),
        _time("code IN (33, 34)").alias("r_acknowledged_at"),
        _time("code = 35").alias("r_failed_at"),
        _count("code = 36").alias("r_duplicates"),
        _count("code = 32").alias("r_deliveries"),
        _count("code IN (37, 38)").alias("r_errors"),
    ]


def _of_side(prefix: str, ours: str) -> list[Column]:
    firsts = (
        F.expr(f"first({name}, true) FILTER (WHERE {ours})").alias(prefix + name)
        for name in _OF_A_SIDE
    )
    return [
        _count(ours).alias(f"{prefix}events"),
        *firsts,
        F.expr(f"min(party) FILTER (WHERE {ours})").alias(f"{prefix}least_party"),
        F.expr(f"max(party) FILTER (WHERE {ours})").alias(f"{prefix}greatest_party"),
    ]


def _time(condition: str) -> Column:
    return F.expr(f"min(at) FILTER (WHERE {condition})")


def _count(condition: str) -> Column:
    return F.expr(f"count_if({condition})")


def _beside(events: DataFrame) -> DataFrame:
    """Envelopes of others in which the message went, and the hours of its copies and errors."""
    bundled = "event IN ('sent', 'resent') AND envelope <> message_id AND side = 'sending'"
    troubled = (
        "event IN ('duplicate', 'error_raised', 'error_received') "
        "AND side IN ('sending', 'receiving')"
    )
    found = events.where(f"({bundled}) OR ({troubled})")
    counted = found.groupBy(
        "message_id",
        F.expr(f"CASE WHEN {bundled} THEN envelope END").alias("envelope"),
        F.expr(f"CASE WHEN {troubled} THEN side END").alias("side"),
        F.when(F.expr(troubled), hour(F.col("at"))).alias("hour"),
    ).agg(
        _count("event = 'duplicate'").alias("duplicates"),
        _count("event IN ('error_raised', 'error_received')").alias("errors"),
    )
    trouble = "CASE WHEN side IS NOT NULL THEN struct(side, hour, duplicates, errors) END"
    return counted.groupBy("message_id").agg(
        F.expr("sort_array(collect_set(envelope))").alias("envelopes"),
        F.expr(f"sort_array(collect_list({trouble}))").alias("troubles"),
    )


def _hops(events: DataFrame) -> DataFrame:
    """The relays of each message: when it came, when it went, and to whom."""
    seen = events.where(
        "side = 'forwarding' AND event IN ('received', 'forwarded') AND signal_id IS NULL"
    )
    left = "FILTER (WHERE event = 'forwarded')"
    hops = seen.groupBy("message_id", "node").agg(
        F.expr("min_by(party, struct(at, epoch, seq))").alias("party"),
        F.expr("min(at) FILTER (WHERE event = 'received')").alias("arrived_at"),
        F.expr(f"min(at) {left}").alias("left_at"),
        F.expr(f"min_by(struct(peer), struct(at, epoch, seq)) {left}.peer").alias("next"),
    )
    hop = "struct(node, party, arrived_at, left_at, next)"
    return hops.groupBy("message_id").agg(F.expr(f"sort_array(collect_list({hop}))").alias("hops"))


def hour(time: Column) -> Column:
    """The hour of a time, in UTC whatever the session's zone is."""
    return F.timestamp_seconds(F.floor(F.unix_seconds(time) / 3600) * 3600)


def day(time: Column) -> Column:
    """The day of a time, in UTC whatever the session's zone is."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(time) / 86400).cast("int"))
