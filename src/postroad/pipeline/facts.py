"""Facts: all that the events of a message say, in one row. The tables are made of these.

The events of a message are brought together once, in order, and folded in one pass; whatever can
have several values for a message (relays, hours of errors, envelopes of bundles) is gathered
beside that from the few events that have it.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postroad.store.journal_columns import FORWARDING, RECEIVING, SENDING

_SEEN: Final = {
    (SENDING, "submitted"): 1,
    (SENDING, "send_failed"): 2,
    (SENDING, "ack_received"): 3,
    (SENDING, "receipt_received"): 4,
    (SENDING, "error_received"): 5,
    (SENDING, "error_raised"): 6,
    (SENDING, "delivery_failed"): 7,
    (SENDING, "expired"): 8,
    (SENDING, "in_doubt"): 9,
    (SENDING, "settled"): 10,
    (SENDING, "purged"): 11,
    (SENDING, "sent"): 12,
    (SENDING, "resent"): 13,
    (RECEIVING, "received"): 31,
    (RECEIVING, "delivered"): 32,
    (RECEIVING, "acked"): 33,
    (RECEIVING, "receipt_sent"): 34,
    (RECEIVING, "rejected"): 35,
    (RECEIVING, "duplicate"): 36,
    (RECEIVING, "error_raised"): 37,
    (RECEIVING, "out_of_order"): 38,
    (RECEIVING, "purged"): 39,
    (FORWARDING, "purged"): 61,
}
"""Side and event as one bit of a number: the fold asks a dozen times for each event what it is."""
_OTHER: Final = {SENDING: 0, RECEIVING: 30, FORWARDING: 60}
_REFUSED: Final = 14
"""The partner reported a failure; else an error_received is only a warning."""
_OWN: Final = 15
"""Added to sent and resent: in an envelope of its own."""

_ORDER: Final = ("at", "node", "epoch", "seq")
_OF_A_SIDE: Final = (
    "kind", "party", "from_party", "to_party", "service", "action", "conversation_id", "pmode",
    "protocol", "bytes",
)  # fmt: skip
_OF_ALL: Final = ("kind", "conversation_id", "ref_to_message_id", "from_party", "to_party")

_SIDE: Final = """
    kind: string, party: string, from_party: string, to_party: string, service: string,
    action: string, conversation_id: string, pmode: string, protocol: string, bytes: bigint,
    several: boolean
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
        acknowledged_at: timestamp, failed_at: timestamp, attempts: bigint, transmitted: boolean,
        errors: bigint, refused: boolean, delivery_failed: boolean, expired: boolean,
        in_doubt: boolean, settled: string, settled_by: string, wire_bytes: bigint,
        own_envelope: boolean>""",
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
        _bits().alias("bits"),
        F.xxhash64("party").alias("party_key"),
        F.expr("CASE WHEN event = 'settled' THEN struct(detail, peer) END").alias("settled"),
    )  # fmt: skip
    ordered = slim.repartition("message_id").sortWithinPartitions("message_id", *_ORDER)
    flat = ordered.groupBy("message_id").agg(*_of_all(), *_of_sending(), *_of_receiving())
    return flat.select(
        *_PLAIN,
        key("message_id").alias("key"),
        key("conversation_id").alias("conversation_key"),
        key("ref_to_message_id").alias("ref_key"),
        _sending().alias(SENDING),
        _receiving().alias(RECEIVING),
    )


_PLAIN: Final = (
    "message_id", *_OF_ALL, "sequence_number", "out_of_order", "noted_at", "until_at", "first_at",
    "last_at",
)  # fmt: skip


def _bits() -> Column:
    whens = " ".join(
        f"WHEN side = '{side}' AND event = '{event}' THEN {1 << place}L"
        for (side, event), place in _SEEN.items()
    )
    others = " ".join(f"WHEN '{side}' THEN {1 << place}L" for side, place in _OTHER.items())
    other = f"CASE side {others} ELSE {1 << _OTHER[FORWARDING]}L END"
    purged = f"event = 'purged' THEN {1 << _SEEN[FORWARDING, 'purged']}L"
    refused = f"event = 'error_received' AND severity = 'failure' AND side = '{SENDING}'"
    own = f"event IN ('sent', 'resent') AND envelope = message_id AND side = '{SENDING}'"
    return F.expr(
        f"CASE {whens} WHEN {purged} ELSE {other} END"
        f" | CASE WHEN {own} THEN {1 << _OWN}L WHEN {refused} THEN {1 << _REFUSED}L ELSE 0L END"
    )


def _mask(side: str, *events: str) -> int:
    return sum(1 << _SEEN[side, event] for event in events)


def _any(mask: int, of: str = "bits") -> str:
    """Whether one of these events is among those that were seen."""
    return f"({of} & {mask}L) <> 0"


_SENT: Final = _mask(SENDING, "sent", "resent")
_TRIED: Final = _mask(SENDING, "sent", "resent", "send_failed")
_PURGED: Final = sum(1 << place for (_, event), place in _SEEN.items() if event == "purged")
_OURS: Final = {SENDING: (1 << 30) - 1, RECEIVING: (1 << 60) - (1 << 30)}
"""The bits of a side."""


def _of_all() -> list[Column]:
    alive = f"(bits & {_PURGED}L) = 0"
    return [
        *(F.expr(f"first({name}, true)").alias(name) for name in _OF_ALL),
        F.expr("first(sequence_number, true)").alias("sequence_number"),
        _count(_mask(RECEIVING, "out_of_order")).alias("out_of_order"),
        F.expr("bit_or(bits)").alias("seen"),
        F.expr("min(at)").alias("noted_at"),
        F.expr("max(at)").alias("until_at"),
        F.expr(f"min(at) FILTER (WHERE {alive})").alias("first_at"),
        F.expr(f"max(at) FILTER (WHERE {alive})").alias("last_at"),
    ]


def _of_sending() -> list[Column]:
    return [
        *_of_side("s_", SENDING),
        _time(_mask(SENDING, "submitted")).alias("s_submitted_at"),
        _time(_SENT).alias("s_first_sent_at"),
        F.expr(f"max(at) FILTER (WHERE {_any(_SENT)})").alias("s_last_sent_at"),
        _time(_mask(SENDING, "ack_received", "receipt_received")).alias("s_acknowledged_at"),
        _time(_mask(SENDING, "delivery_failed", "expired")).alias("s_failed_at"),
        _count(_TRIED).alias("s_attempts"),
        _count(_mask(SENDING, "error_received", "error_raised")).alias("s_errors"),
        F.expr("last(settled, true)").alias("s_settled"),
        F.expr(f"sum(wire_bytes) FILTER (WHERE {_any(_SENT)})").alias("s_wire_bytes"),
    ]


def _of_receiving() -> list[Column]:
    return [
        *_of_side("r_", RECEIVING),
        _time(_mask(RECEIVING, "received")).alias("r_received_at"),
        _time(_mask(RECEIVING, "delivered")).alias("r_delivered_at"),
        _time(_mask(RECEIVING, "acked", "receipt_sent")).alias("r_acknowledged_at"),
        _time(_mask(RECEIVING, "rejected")).alias("r_failed_at"),
        _count(_mask(RECEIVING, "duplicate")).alias("r_duplicates"),
        _count(_mask(RECEIVING, "delivered")).alias("r_deliveries"),
        _count(_mask(RECEIVING, "error_raised")).alias("r_errors"),
    ]


def _of_side(prefix: str, side: str) -> list[Column]:
    ours = f"FILTER (WHERE {_any(_OURS[side])})"
    return [
        *(F.expr(f"first({name}, true) {ours}").alias(prefix + name) for name in _OF_A_SIDE),
        F.expr(f"min(party_key) {ours} <> max(party_key) {ours}").alias(f"{prefix}several"),
    ]


def _sending() -> Column:
    """All about sending as one value; null when the message has no event on that side."""
    flags = {
        "transmitted": _SENT,
        "refused": 1 << _REFUSED,
        "delivery_failed": _mask(SENDING, "delivery_failed"),
        "expired": _mask(SENDING, "expired"),
        "in_doubt": _mask(SENDING, "in_doubt"),
        "own_envelope": 1 << _OWN,
    }
    seen = {name: F.expr(_any(mask, "seen")) for name, mask in flags.items()}
    names = (*_OF_A_SIDE, "several")
    times = ("submitted_at", "first_sent_at", "last_sent_at", "acknowledged_at", "failed_at")
    packed = F.struct(
        *(F.col(f"s_{name}").alias(name) for name in (*names, *times, "attempts")),
        seen["transmitted"].alias("transmitted"),
        F.col("s_errors").alias("errors"),
        *(seen[name].alias(name) for name in ("refused", "delivery_failed", "expired", "in_doubt")),
        F.expr("s_settled.detail").alias("settled"),
        F.expr("s_settled.peer").alias("settled_by"),
        F.col("s_wire_bytes").alias("wire_bytes"),
        seen["own_envelope"].alias("own_envelope"),
    )
    return F.when(F.expr(_any(_OURS[SENDING], "seen")), packed)


def _receiving() -> Column:
    """All about receiving, likewise."""
    times = ("received_at", "delivered_at", "acknowledged_at", "failed_at")
    names = (*_OF_A_SIDE, "several", *times, "duplicates", "deliveries", "errors")
    packed = F.struct(*(F.col(f"r_{name}").alias(name) for name in names))
    return F.when(F.expr(_any(_OURS[RECEIVING], "seen")), packed)


def _time(mask: int) -> Column:
    return F.expr(f"min(at) FILTER (WHERE {_any(mask)})")


def _count(mask: int) -> Column:
    return F.expr(f"count_if({_any(mask)})")


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
        F.expr("count_if(event = 'duplicate')").alias("duplicates"),
        F.expr("count_if(event IN ('error_raised', 'error_received'))").alias("errors"),
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
