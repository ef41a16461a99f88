"""Each row of the table of classes.

The name of a case is the sentence that it shows; all cases cost one Spark run.
"""

from typing import Final

import pytest
from pyspark.sql import SparkSession

from postroad.wire.names import TEST_ACTION, TEST_SERVICE
from tests.pipeline.cases import Cases, covered, received, sent
from tests.pipeline.journals import DAY, EXAMPLES, Journal, at

CASES: Final = Cases()
case = CASES.take


@pytest.mark.parametrize("example", CASES)
def test_reconciliation(example: str, spark: SparkSession) -> None:
    CASES.check(example, EXAMPLES.tables(spark)["reconciliation"])


# --- the table, row by row ---


@case("twice", "acknowledged", "delivered", deliveries=2)
def delivered_twice_is_twice_also_when_acknowledged(j: Journal) -> None:
    sent(j).write(3, "receipt_received")
    received(j, "delivered", "delivered")


@case("twice", "failed", "delivered", deliveries=2)
def delivered_twice_is_twice_also_years_apart_by_two_nodes_of_which_no_journal_covers(
    j: Journal,
) -> None:
    sent(j).write(3, "delivery_failed")
    j.node("b1", "B", seq=7).write(1, "delivered")
    j.node("b2", "B", seq=9).write(1000 * DAY, "delivered")


@case("twice", None, "delivered", deliveries=3)
def delivered_three_times_is_twice_without_the_journal_of_a_sender(j: Journal) -> None:
    received(j, "delivered", "delivered", "delivered")


@case("lost", "acknowledged")
def acknowledged_but_never_named_in_a_journal_that_covers_it_is_lost(j: Journal) -> None:
    sent(j).write(3, "receipt_received")
    covered(j)


@case("lost", "acknowledged", "received")
def acknowledged_and_received_but_never_delivered_is_lost(j: Journal) -> None:
    sent(j).write(3, "ack_received")
    received(j)


@case("lost", "acknowledged", "rejected")
def acknowledged_although_rejected_is_lost(j: Journal) -> None:
    sent(j).write(3, "ack_received")
    received(j, "rejected")


@case("lost", "acknowledged", settled_by="B")
def settled_as_delivered_but_never_delivered_is_lost(j: Journal) -> None:
    sent(j).write(3, "in_doubt").write(9, "settled", detail="delivered", peer="B")
    covered(j)


@case("confirmed", "acknowledged", "received")
def a_message_to_the_test_service_is_never_delivered_and_not_lost(j: Journal) -> None:
    test = {"service": TEST_SERVICE, "action": TEST_ACTION}
    a = j.node("a1", "A", **test).write(0, "submitted").write(0, "sent")
    a.write(3, "receipt_received")
    j.node("b1", "B", **test).beat(-60).write(1, "received").beat(2 * DAY)


@case("lost", "acknowledged")
def another_message_of_the_test_service_is_lost_as_any(j: Journal) -> None:
    a = j.node("a1", "A", service=TEST_SERVICE, action="NewOrder")
    a.write(0, "submitted").write(0, "sent").write(3, "receipt_received")
    covered(j)


@case("confirmed", "acknowledged", "delivered")
def acknowledged_and_delivered_is_confirmed(j: Journal) -> None:
    sent(j).write(3, "receipt_received")
    received(j, "delivered", "receipt_sent")


@case("confirmed", "acknowledged")
def acknowledged_by_a_receiver_without_a_journal_is_confirmed(j: Journal) -> None:
    sent(j).write(3, "receipt_received")


@case("confirmed", "acknowledged", "received")
def acknowledged_and_received_is_confirmed_until_grace_has_passed(j: Journal) -> None:
    sent(j).write(3, "receipt_received")
    j.node("b1", "B").write(1, "received").beat(60)


@case("confirmed", "acknowledged", settled_by="operator")
def settled_as_delivered_is_confirmed_although_it_failed(j: Journal) -> None:
    a = sent(j).write(3, "delivery_failed")
    a.write(9, "settled", detail="delivered", peer="operator")


@case("confirmed", "acknowledged")
def acknowledged_late_is_confirmed_although_it_expired_and_failed(j: Journal) -> None:
    sent(j).write(3, "expired").write(4, "delivery_failed").write(9, "receipt_received")


@case("ghost", "failed", "delivered")
def failed_but_delivered_is_a_ghost(j: Journal) -> None:
    sent(j).write(3, "delivery_failed")
    received(j, "delivered")


@case("ghost", "expired", "delivered")
def expired_but_delivered_is_a_ghost(j: Journal) -> None:
    sent(j).write(3, "expired")
    received(j, "delivered")


@case("ghost", "failed", "delivered", settled_by="B")
def settled_as_not_received_but_delivered_is_a_ghost(j: Journal) -> None:
    sent(j).write(3, "in_doubt").write(9, "settled", detail="not_received", peer="B")
    received(j, "delivered")


@case("ghost", "failed", "delivered")
def reported_as_an_error_but_delivered_is_a_ghost(j: Journal) -> None:
    sent(j).write(2, "error_received", severity="failure").write(3, "delivery_failed")
    received(j, "delivered", "rejected")


@case("confirmed", "in_doubt", "delivered", settled_by="journal")
def in_doubt_but_delivered_is_confirmed_by_the_journal(j: Journal) -> None:
    sent(j).write(3, "in_doubt")
    received(j, "delivered")


@case("confirmed", "pending", "delivered", settled_by="journal")
def pending_but_delivered_is_confirmed_by_the_journal(j: Journal) -> None:
    sent(j)
    j.node("b1", "B", seq=3).write(1, "delivered")


@case("confirmed", None, "delivered", settled_by="journal")
def delivered_without_the_journal_of_a_sender_is_confirmed_by_the_journal(j: Journal) -> None:
    received(j, "delivered")


@case("confirmed", "in_doubt", "delivered", settled_by="B")
def settled_as_received_and_delivered_is_confirmed_by_the_peer(j: Journal) -> None:
    sent(j).write(3, "in_doubt").write(9, "settled", detail="received", peer="B")
    received(j, "delivered")


@case("refused", "pending")
def an_error_of_a_receiver_without_a_journal_is_refused(j: Journal) -> None:
    sent(j).write(2, "error_received", severity="failure")


@case("refused", "failed")
def failed_for_an_error_of_a_receiver_without_a_journal_is_refused(j: Journal) -> None:
    sent(j).write(2, "error_received", severity="failure").write(3, "delivery_failed")


@case("refused", "pending", "rejected")
def rejected_with_an_error_that_came_back_is_refused(j: Journal) -> None:
    sent(j).write(2, "error_received", severity="failure")
    received(j, "rejected")


@case("in_doubt", "in_doubt")
def a_warning_refuses_nothing(j: Journal) -> None:
    sent(j).write(2, "error_received", severity="warning").write(3, "in_doubt")


@case("pending", "pending")
def an_error_against_a_journal_that_covers_and_does_not_reject_is_pending(j: Journal) -> None:
    sent(j).write(2, "error_received", severity="failure")
    covered(j)


@case("refused", "failed")
def failed_for_an_error_of_a_receiver_whose_journal_knows_nothing_is_refused(j: Journal) -> None:
    sent(j).write(2, "error_received", severity="failure").write(3, "delivery_failed")
    j.node("b1", "B").beat(-60).beat(60)


@case("refused", "failed", "rejected")
def failed_and_rejected_is_refused(j: Journal) -> None:
    sent(j).write(3, "delivery_failed")
    j.node("b1", "B", seq=3).write(1, "rejected")


@case("refused", "expired", "rejected")
def expired_and_rejected_is_refused(j: Journal) -> None:
    sent(j).write(3, "expired")
    received(j, "rejected")


@case("refused", "in_doubt", "rejected")
def in_doubt_and_rejected_is_refused(j: Journal) -> None:
    sent(j).write(3, "in_doubt")
    received(j, "rejected")


@case("pending", "pending", "rejected")
def rejected_while_the_sender_still_tries_is_pending(j: Journal) -> None:
    sent(j)
    received(j, "rejected")


@case("pending", None, "rejected")
def rejected_without_the_journal_of_a_sender_is_pending(j: Journal) -> None:
    received(j, "rejected")


@case("failed", "failed")
def failed_and_never_transmitted_is_failed(j: Journal) -> None:
    a = j.node("a1", "A").write(0, "submitted").write(0, "send_failed")
    a.write(3, "delivery_failed")


@case("failed", "expired", "received")
def expired_and_never_transmitted_is_failed_whatever_the_receiver_says(j: Journal) -> None:
    j.node("a1", "A").write(0, "submitted").write(0, "queued").write(3, "expired")
    j.node("b1", "B").write(1, "received")


@case("failed", "expired")
def what_a_relay_transmitted_was_not_transmitted_by_the_sender(j: Journal) -> None:
    j.node("a1", "A").write(0, "submitted").write(3, "expired")
    j.relay("h1").write(1, "forwarded")


@case("failed", "failed", settled_by="journal")
def failed_after_sending_is_failed_when_the_journal_covers_it(j: Journal) -> None:
    sent(j).write(3, "delivery_failed")
    covered(j)


@case("failed", "expired", "received", settled_by="journal")
def expired_after_sending_is_failed_when_received_but_never_delivered(j: Journal) -> None:
    sent(j).write(3, "expired")
    received(j)


@case("failed", "in_doubt", settled_by="journal")
def in_doubt_is_failed_when_the_journal_covers_it(j: Journal) -> None:
    sent(j).write(3, "in_doubt")
    covered(j)


@case("failed", "failed", settled_by="journal")
def an_error_against_a_journal_that_covers_is_failed_once_given_up(j: Journal) -> None:
    sent(j).write(2, "error_received", severity="failure").write(3, "delivery_failed")
    covered(j)


@case("failed", "failed", settled_by="B")
def settled_as_not_received_is_failed_by_the_peer_also_when_the_journal_covers_it(
    j: Journal,
) -> None:
    sent(j).write(3, "in_doubt").write(9, "settled", detail="not_received", peer="B")
    covered(j)


@case("failed", "failed", settled_by="operator")
def settled_as_not_received_is_failed_where_the_receiver_has_no_journal(j: Journal) -> None:
    sent(j).write(3, "in_doubt").write(9, "settled", detail="not_received", peer="operator")


@case("pending", "failed", "received", settled_by="B")
def settled_as_not_received_is_pending_where_a_journal_names_it(j: Journal) -> None:
    sent(j).write(3, "in_doubt").write(9, "settled", detail="not_received", peer="B")
    j.node("b1", "B", seq=3).write(1, "received")


@case("in_doubt", "failed")
def failed_after_sending_to_a_receiver_without_a_journal_is_in_doubt(j: Journal) -> None:
    sent(j).write(3, "delivery_failed")


@case("in_doubt", "expired")
def expired_after_sending_to_a_receiver_without_a_journal_is_in_doubt(j: Journal) -> None:
    j.node("a1", "A").write(0, "send_failed").write(1, "resent").write(3, "expired")


@case("in_doubt", "in_doubt", settled_by="B")
def settled_as_received_is_still_in_doubt(j: Journal) -> None:
    sent(j).write(9, "settled", detail="received", peer="B")


@case("pending", "in_doubt")
def in_doubt_and_never_transmitted_is_pending(j: Journal) -> None:
    j.node("a1", "A").write(0, "submitted").write(3, "in_doubt")


@case("pending", "in_doubt", "received")
def in_doubt_is_pending_where_a_journal_names_it_and_does_not_cover_it(j: Journal) -> None:
    sent(j).write(3, "in_doubt")
    j.node("b1", "B", seq=3).write(1, "received").beat(2 * DAY)


@case("pending", "in_doubt")
def in_doubt_is_pending_until_grace_has_passed(j: Journal) -> None:
    sent(j).write(3, "in_doubt")
    j.node("b1", "B").beat(-60).beat(60)


@case("pending", "pending")
def submitted_is_pending(j: Journal) -> None:
    j.node("a1", "A").write(0, "submitted")
    covered(j)


@case("pending", None, "received")
def received_without_the_journal_of_a_sender_is_pending(j: Journal) -> None:
    received(j)


# --- settled ---


@case("confirmed", "acknowledged", settled_by="operator")
def the_last_settled_counts(j: Journal) -> None:
    a = sent(j).write(9, "settled", detail="delivered", peer="operator")
    a.write(5, "settled", detail="not_received", peer="B")


@case("failed", "failed", settled_by="B")
def the_last_settled_counts_also_against_an_earlier_delivered(j: Journal) -> None:
    a = sent(j).write(5, "settled", detail="delivered", peer="operator")
    a.write(9, "settled", detail="not_received", peer="B")


# --- which messages, and when ---


@case(None)
def a_fragment_has_no_row(j: Journal) -> None:
    j.node("a1", "A", kind="fragment", group_id="source").write(0, "sent")


@case(None)
def what_only_relays_saw_has_no_row(j: Journal) -> None:
    j.relay("h1").write(0, "received").write(1, "forwarded")


@case("pending", "pending", first_at=at(-1), last_at=at(7))
def first_and_last_are_over_all_events_with_relays_and_without_purged(j: Journal) -> None:
    sent(j).write(DAY, "purged")
    j.relay("h1").write(-1, "received").write(7, "forwarded")
    j.relay("h2").write(-9, "purged")


@case("in_doubt", "in_doubt")
def a_relay_that_gives_up_or_refuses_does_not_speak_for_either_side(j: Journal) -> None:
    sent(j).write(3, "in_doubt")
    hub = j.relay("h1").write(1, "received").write(2, "duplicate")
    hub.write(3, "rejected").write(4, "delivery_failed").write(5, "expired")


@case("ghost", "failed", "delivered")
def two_senders_are_classed_as_one(j: Journal) -> None:
    sent(j).write(3, "in_doubt")
    j.node("c1", "C").write(3, "delivery_failed")
    received(j, "delivered")


@case("twice", "acknowledged", "delivered", deliveries=2)
def two_receivers_are_classed_as_one(j: Journal) -> None:
    sent(j).write(3, "receipt_received")
    received(j, "delivered")
    j.node("c1", "C").write(2, "delivered")
