"""The tables beside the reconciliation, rule by rule, with rows written by hand.

Every journal below is a small one; they lie side by side and cost one Spark run.
"""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.journals import DAY, EXAMPLES, KEYS, Journal, Row, at


class Tables:
    """Rows of all tables, example by example."""

    def __init__(self, all_rows: dict[str, list[Row]]) -> None:
        self._rows = all_rows

    def of(self, table: str, example: str) -> list[Row]:
        """Without the example's prefix, in the order of their keys."""
        prefix = f"{example}/"
        own = [
            {column: _bare(value, prefix) for column, value in row.items()}
            for row in self._rows[table]
            if any(str(row[column]).startswith(prefix) for column in KEYS[table])
        ]
        return sorted(own, key=lambda row: [str(row[column]) for column in KEYS[table]])

    def message(self, example: str, side: str) -> Row:
        """Of message `m`."""
        [row] = (
            row
            for row in self.of("messages", example)
            if (row["message_id"], row["side"]) == ("m", side)
        )
        return row


def _bare(value: Any, prefix: str) -> Any:
    if isinstance(value, list):
        return [_bare(one, prefix) for one in value]
    return value.replace(prefix, "") if isinstance(value, str) else value


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Tables:
    return Tables(EXAMPLES.tables(spark))


# --- messages ---


@EXAMPLES.add
def exchanged(j: Journal) -> None:
    a = j.node("a1", "A").write(0, "submitted").write(1, "sent").write(2, "error_received")
    a.write(3, "resent").write(4.5, "receipt_received").write(5, "ack_received")
    b = j.node("b1", "B").write(1.5, "received").write(2, "delivered").write(2.5, "receipt_sent")
    b.write(3, "acked").write(3.5, "duplicate").write(3.5, "duplicate")
    b.write(4, "error_raised", side="receiving")


def test_a_sender_s_row_tells_its_life(tables: Tables) -> None:
    assert tables.message(exchanged, "sending") == {
        "message_id": "m",
        "side": "sending",
        "kind": "message",
        "party": "A",
        "from_party": "A",
        "to_party": "B",
        "service": "orders",
        "action": "order",
        "conversation_id": "talk",
        "pmode": "push",
        "protocol": "as4",
        "bytes": 1000,
        "submitted_at": at(0),
        "first_sent_at": at(1),
        "last_sent_at": at(3),
        "received_at": None,
        "delivered_at": None,
        "acknowledged_at": at(4.5),
        "failed_at": None,
        "attempts": 2,
        "duplicates": 0,
        "deliveries": 0,
        "errors": 1,
        "outcome": "acknowledged",
        "latency_ms": 270_000.0,
    }


def test_a_receiver_s_row_tells_its_life(tables: Tables) -> None:
    assert tables.message(exchanged, "receiving") == {
        "message_id": "m",
        "side": "receiving",
        "kind": "message",
        "party": "B",
        "from_party": "A",
        "to_party": "B",
        "service": "orders",
        "action": "order",
        "conversation_id": "talk",
        "pmode": "push",
        "protocol": "as4",
        "bytes": 1000,
        "submitted_at": None,
        "first_sent_at": None,
        "last_sent_at": None,
        "received_at": at(1.5),
        "delivered_at": at(2),
        "acknowledged_at": at(2.5),
        "failed_at": None,
        "attempts": 0,
        "duplicates": 2,
        "deliveries": 1,
        "errors": 1,
        "outcome": "delivered",
        "latency_ms": 30_000.0,
    }


@EXAMPLES.add
def retried(j: Journal) -> None:
    a = j.node("a1", "A").write(0, "submitted").write(1, "send_failed").write(2, "resent")
    a.write(3, "send_failed").write(4, "expired").write(5, "delivery_failed")


def test_attempts_count_those_that_sent_nothing_and_the_first_sent_may_be_a_resent(
    tables: Tables,
) -> None:
    row = tables.message(retried, "sending")

    assert (row["attempts"], row["first_sent_at"], row["last_sent_at"]) == (3, at(2), at(2))


def test_failed_is_the_first_of_expired_and_delivery_failed(tables: Tables) -> None:
    row = tables.message(retried, "sending")

    assert (row["failed_at"], row["outcome"], row["latency_ms"]) == (at(4), "failed", None)


@EXAMPLES.add
def outcomes(j: Journal) -> None:
    a = j.node("a1", "A")
    for message_id, *events in (
        ("acknowledged", "delivery_failed", "ack_received"),
        ("failed", "expired", "in_doubt", "delivery_failed"),
        ("expired", "in_doubt", "expired"),
        ("in_doubt", "sent", "in_doubt"),
        ("pending", "sent", "hop_acked", "error_received"),
    ):
        for event in events:
            a.write(0, event, message_id)
    for message_id, detail in (
        ("settled_delivered", "delivered"),
        ("settled_not_received", "not_received"),
        ("settled_received", "received"),
    ):
        a.write(0, "sent", message_id).write(1, "settled", message_id, detail=detail)
    a.write(0, "expired", "expired_first").write(1, "settled", "expired_first", detail="received")
    b = j.node("b1", "B")
    for message_id, *events in (
        ("delivered", "rejected", "delivered"),
        ("rejected", "received", "rejected"),
        ("received", "out_of_order", "held", "received"),
        ("held", "held"),
    ):
        for event in events:
            b.write(0, event, message_id)


def test_outcome_is_the_first_that_fits(tables: Tables) -> None:
    assert {row["message_id"]: row["outcome"] for row in tables.of("messages", outcomes)} == {
        "acknowledged": "acknowledged",
        "failed": "failed",
        "expired": "expired",
        "in_doubt": "in_doubt",
        "pending": "pending",
        "settled_delivered": "acknowledged",
        "settled_not_received": "failed",
        "settled_received": "in_doubt",
        "expired_first": "expired",
        "delivered": "delivered",
        "rejected": "rejected",
        "received": "received",
        "held": "pending",
    }


@EXAMPLES.add
def told_in_parts(j: Journal) -> None:
    """Written in another order than it happened, each event knowing something else."""
    nothing = dict.fromkeys(("kind", "service", "pmode", "bytes", "conversation_id"))
    a2 = j.node("a2", "A", **nothing)
    a2.write(3, "sent", service="late", pmode="late").write(1, "queued", pmode="early", bytes=7)
    a1 = j.node("a1", "A", **nothing)
    a1.write(2, "bundled", service="middle", bytes=8).write(4, "purged", kind="message")


def test_a_row_takes_the_first_value_that_is_not_null_by_time(tables: Tables) -> None:
    row = tables.message(told_in_parts, "sending")

    assert {c: row[c] for c in ("kind", "service", "pmode", "bytes", "conversation_id")} == {
        "kind": "message",
        "service": "middle",
        "pmode": "early",
        "bytes": 7,
        "conversation_id": None,
    }


@EXAMPLES.add
def told_at_once(j: Journal) -> None:
    """All at the same time: node, epoch and seq decide."""
    j.node("a2", "A").write(0, "queued", service="a2")
    j.node("a1", "A", epoch=2).write(0, "queued", service="a1 2 1", pmode="a1 2 1")
    j.node("a1", "A", seq=3).write(0, "queued", service="a1 1 3", pmode=None)
    j.node("a1", "A", seq=2).write(0, "queued", service=None, pmode=None)


def test_among_events_of_the_same_time_node_epoch_and_seq_decide(tables: Tables) -> None:
    row = tables.message(told_at_once, "sending")

    assert (row["service"], row["pmode"]) == ("a1 1 3", "a1 2 1")


@EXAMPLES.add
def relayed(j: Journal) -> None:
    j.node("a1", "A").write(0, "submitted").write(1, "sent")
    hub = j.relay("h1").write(2, "received", wire_bytes=5).write(3, "queued")
    hub.write(4, "forwarded", peer="h2").write(5, "forwarded", peer="B").write(6, "duplicate")
    hub.write(7, "error_raised").write(8, "delivery_failed").write(9, "send_failed")
    hub.write(1, "received", signal_id="r").write(1, "forwarded", signal_id="r", peer="A")
    j.relay("h2").write(6, "received").write(7, "received")
    j.relay("h3").write(8, "forwarded").write(9, "forwarded", peer="B")
    j.relay("h4").write(8, "received", signal_id="r").write(9, "forwarded", signal_id="r")
    j.relay("h2", kind="fragment", group_id="m").write(0, "received", "f").write(
        1, "forwarded", "f"
    )


def test_relays_have_no_row_in_messages_and_change_none(tables: Tables) -> None:
    [row] = tables.of("messages", relayed)

    found = (row["side"], row["attempts"], row["duplicates"], row["errors"], row["outcome"])
    assert found == ("sending", 1, 0, 0, "pending")


# --- hops ---


def test_a_hop_is_a_message_or_fragment_at_a_relay_and_signals_make_none(tables: Tables) -> None:
    def hop(message_id: str, node: str, *rest: Any) -> Row:
        names = ("arrived_at", "left_at", "dwell_ms", "next")
        row = {"message_id": message_id, "node": node, "party": "H"}
        return row | dict(zip(names, rest, strict=True))

    assert tables.of("hops", relayed) == [
        hop("f", "h2", at(0), at(1), 60_000.0, None),
        hop("m", "h1", at(2), at(4), 120_000.0, "h2"),
        hop("m", "h2", at(6), None, None, None),
        hop("m", "h3", None, at(8), None, None),
    ]


# --- partners ---


@EXAMPLES.add
def an_hour(j: Journal) -> None:
    """Two sent in the first hour, one in the second; what comes back comes later."""
    a = j.node("a1", "A")
    a.write(0, "submitted", "one").write(1, "sent", "one").write(70, "receipt_received", "one")
    a.write(0, "submitted", "two").write(59, "send_failed", "two").write(59.9, "resent", "two")
    a.write(61, "resent", "two").write(62, "error_received", "two").write(63, "expired", "two")
    a.write(0, "submitted", "three").write(60, "sent", "three").write(200, "in_doubt", "three")
    a.write(0, "submitted", "never").write(1, "send_failed", "never")
    a.write(2, "delivery_failed", "never")


def test_a_partner_s_hour_tells_what_became_of_the_messages_first_sent_in_it(
    tables: Tables,
) -> None:
    nothing = {"acknowledged": 0, "failed": 0, "in_doubt": 0, "duplicates": 0, "errors": 0}
    silence = dict.fromkeys(("p50_ms", "p95_ms", "p99_ms"))

    first, second = tables.of("partners", an_hour)

    minutes = 70 * 60_000
    assert {c: pytest.approx(first.pop(c), rel=0.01) for c in silence} == dict.fromkeys(
        silence, minutes
    )
    assert first == nothing | {
        "partner": "B",
        "hour": at(0),
        "sent": 2,
        "acknowledged": 1,
        "failed": 1,
        "retries": 2,
    }
    assert second == nothing | silence | {
        "partner": "B",
        "hour": at(60),
        "sent": 1,
        "in_doubt": 1,
        "retries": 0,
        "errors": 1,
    }


@EXAMPLES.add
def from_a(j: Journal) -> None:
    b = j.node("b1", "B").write(0, "received").write(1, "delivered").write(59, "duplicate")
    b.write(60, "duplicate").write(61, "duplicate").write(62, "error_raised", side="receiving")
    fragment = j.node("b1", "B", seq=9, kind="fragment", group_id="m")
    fragment.write(1, "duplicate", "f").write(1, "error_raised", "f", side="receiving")
    j.relay("h1").write(1, "duplicate").write(1, "error_raised")
    j.node("b1", "B", seq=20, side=None).write(1, "error_raised")


def test_duplicates_and_errors_count_in_the_hour_in_which_they_happened_without_those_of_fragments(
    tables: Tables,
) -> None:
    found = [
        (row["partner"], row["hour"], row["sent"], row["duplicates"], row["errors"])
        for row in tables.of("partners", from_a)
    ]

    assert found == [("A", at(0), 0, 1, 0), ("A", at(60), 0, 2, 1)]


@EXAMPLES.add
def a_thousand(j: Journal) -> None:
    a = j.node("a1", "A")
    for n in range(1, 1001):
        a.write(0, "submitted", f"m{n}").write(1, "sent", f"m{n}").write(n, "ack_received", f"m{n}")


def test_percentiles_are_within_one_per_cent(tables: Tables) -> None:
    [row] = tables.of("partners", a_thousand)

    found = [row[column] / 60_000 for column in ("p50_ms", "p95_ms", "p99_ms")]
    assert found == pytest.approx([500, 950, 990], rel=0.01)


# --- conversations ---


@EXAMPLES.add
def a_talk(j: Journal) -> None:
    a = j.node("a1", "A")
    a.write(5, "submitted", "ask", sequence_number=3).write(9 * DAY, "purged", "ask")
    a.write(6, "submitted", "again", sequence_number=6).write(7, "submitted", "other")
    a.write(1, "submitted", "ask-again", sequence_number=3)
    back = {"from_party": "B", "to_party": "A"}
    b = j.node("b1", "B")
    b.write(8, "submitted", "reply", ref_to_message_id="ask", sequence_number=10, **back)
    b.write(9, "submitted", "more", ref_to_message_id="ask", sequence_number=12, **back)
    b.write(3, "out_of_order", "again").write(4, "out_of_order", "again")
    j.relay("h1").write(10, "received", "seen", to_party="C", ref_to_message_id="again")
    c = j.node("c1", "C", conversation_id="elsewhere")
    c.write(0, "submitted", "far", ref_to_message_id="other")
    fragment = j.node("a2", "A", kind="fragment", group_id="ask", sequence_number=99)
    fragment.write(-5, "sent", "f").write(90, "out_of_order", "f")


def test_a_conversation_tells_its_requests_replies_and_gaps(tables: Tables) -> None:
    elsewhere, talk = tables.of("conversations", a_talk)

    assert talk == {
        "conversation_id": "talk",
        "parties": ["A", "B", "C"],
        "messages": 7,
        "started_at": at(1),
        "last_at": at(10),
        "requests": 4,
        "replies": 3,
        "unanswered": 1,
        "gaps": 3,
        "out_of_order": 2,
    }
    assert (elsewhere["messages"], elsewhere["requests"], elsewhere["replies"]) == (1, 0, 1)


# --- packing ---


@EXAMPLES.add
def packed(j: Journal) -> None:
    a = j.node("a1", "A")
    for message_id in ("one", "two"):
        a.write(1, "sent", message_id, envelope="one", wire_bytes=300)
    a.write(61, "resent", "two", envelope="two", wire_bytes=200)
    a.write(2, "sent", "split", bytes=5000)
    for message_id in ("f1", "f2"):
        fragment = {"kind": "fragment", "group_id": "split", "bytes": 2500}
        a.write(2, "sent", message_id, envelope=message_id, wire_bytes=2600, **fragment)
    a.write(62, "sent", "late", envelope="late", wire_bytes=50)
    a.write(3, "sent", "by-pull", envelope="one", wire_bytes=9, pmode="pull", bytes=None)
    a.write(4, "send_failed", "never", envelope="never", wire_bytes=7)
    b = j.node("b1", "B", pmode="push").write(5, "received", "one", wire_bytes=300)
    b.write(5, "received", "theirs", envelope="theirs", wire_bytes=300)


def test_packing_tells_what_went_over_the_wire_for_the_messages_first_sent_in_an_hour(
    tables: Tables,
) -> None:
    names = ("pmode", "hour", "messages", "envelopes", "fragments", "payload_bytes", "wire_bytes")

    assert tables.of("packing", packed) == [
        dict(zip(names, row, strict=True))
        for row in (
            ("pull", at(0), 1, 1, 0, 0, 9),
            ("push", at(0), 3, 4, 2, 7000, 300 + 300 + 200 + 2600 + 2600),
            ("push", at(60), 1, 1, 0, 1000, 50),
        )
    ]


# --- findings ---


@EXAMPLES.add
def strange(j: Journal) -> None:
    j.node("a1", "A").write(0, "sent", "two-senders").write(0, "sent", "fine")
    j.node("a2", "A").write(1, "sent", "fine").write(10, "resent", "early").write(10, "sent", "tie")
    j.node("c1", "C").write(1, "submitted", "two-senders")
    j.node("b1", "B").write(1, "received", "two-receivers").write(8.9, "received", "early")
    j.node("d1", "D").write(9, "received", "tie").write(0, "duplicate", "tie")
    j.node("c1", "C", seq=2).write(1, "duplicate", "two-receivers")


def test_two_senders_two_receivers_and_clocks_that_disagree_are_findings(tables: Tables) -> None:
    found = [(row["kind"], row["subject"]) for row in tables.of("findings", strange)]

    assert found == [
        ("clock", "A B"),
        ("two_receivers", "two-receivers"),
        ("two_senders", "two-senders"),
    ]


@EXAMPLES.add
def full_of_holes(j: Journal) -> None:
    j.node("x", "X", seq=3).beat(0).beat(1).skip().beat(2).restored().beat(3).skip(4).beat(4)
    j.node("y", "X").beat(0).beat(1).restored().beat(2)


def test_missing_events_are_findings_with_node_epoch_and_range(tables: Tables) -> None:
    found = [(row["kind"], row["subject"]) for row in tables.of("findings", full_of_holes)]

    assert found == [("gap", "x 1 1-2"), ("gap", "x 1 5-5"), ("gap", "x 2 2-5")]
