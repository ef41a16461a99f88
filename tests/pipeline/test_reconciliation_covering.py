"""Each way in which the journal of a receiver counts, or doesn't.

The name of a case is the sentence that it shows; all cases cost one Spark run.
"""

from datetime import timedelta
from typing import Final

import pytest
from pyspark.sql import SparkSession

from postroad.pipeline.tables import of_events
from tests.pipeline.cases import Cases, acked, covered
from tests.pipeline.journals import DAY, EXAMPLES, Journal, frame, rows

CASES: Final = Cases()
case = CASES.take


@pytest.mark.parametrize("example", CASES)
def test_reconciliation(example: str, spark: SparkSession) -> None:
    CASES.check(example, EXAMPLES.tables(spark)["reconciliation"])


# --- covering: `lost` shows that the journal covers, `confirmed` that it doesn't ---


@case("lost", "acknowledged")
def a_journal_that_starts_with_its_first_event_covers_all_time_before(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(90).beat(2 * DAY)


@case("confirmed", "acknowledged")
def a_journal_that_starts_later_covers_nothing_before(j: Journal) -> None:
    acked(j)
    j.node("b1", "B", seq=2).beat(1).beat(2 * DAY)


@case("confirmed", "acknowledged")
def a_journal_that_starts_with_the_second_epoch_covers_nothing_before(j: Journal) -> None:
    acked(j)
    j.node("b1", "B", epoch=2).beat(1).beat(2 * DAY)


@case("lost", "acknowledged")
def five_minutes_before_it_was_first_sent_is_early_enough(j: Journal) -> None:
    acked(j)
    j.node("b1", "B", seq=2).beat(-5).beat(2 * DAY)


@case("confirmed", "acknowledged")
def less_than_five_minutes_before_it_was_first_sent_is_too_late(j: Journal) -> None:
    acked(j)
    j.node("b1", "B", seq=2).beat(-4.99).beat(2 * DAY)


@case("lost", "acknowledged")
def five_minutes_after_it_was_last_sent_is_long_enough(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(35).skip().beat(36).beat(2 * DAY)


@case("confirmed", "acknowledged")
def less_than_five_minutes_after_it_was_last_sent_is_too_short(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(34.99).skip().beat(36).beat(2 * DAY)


@case("confirmed", "acknowledged")
def a_missing_event_between_the_first_and_the_last_time_it_was_sent_uncovers_it(
    j: Journal,
) -> None:
    acked(j)
    j.node("b1", "B").beat(14).skip().beat(15).beat(2 * DAY)


@case("lost", "acknowledged")
def missing_events_before_and_after_do_not_matter(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(-60).skip().beat(-50).beat(50).skip(3).beat(2 * DAY)


@case("confirmed", "acknowledged")
def nothing_is_covered_from_one_epoch_to_the_next(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(-60).beat(14).restored().beat(15).beat(2 * DAY)


@case("confirmed", "acknowledged")
def nothing_is_covered_from_one_epoch_to_the_next_although_the_numbers_go_on(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(-60).beat(14)
    j.node("b1", "B", epoch=2, seq=3).beat(15).beat(2 * DAY)


@case("lost", "acknowledged")
def an_epoch_that_began_before_covers_it(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(-90).restored().beat(-60).beat(60).restored().beat(2 * DAY)


@case("failed", "in_doubt", settled_by="journal")
def a_message_that_was_never_sent_is_covered_around_its_submission(j: Journal) -> None:
    j.node("a1", "A").write(0, "submitted").write(300, "in_doubt")
    j.node("b1", "B", seq=2).beat(-5).beat(5).skip().beat(6).beat(2 * DAY)


@case("pending", "in_doubt")
def a_message_that_was_never_sent_is_not_covered_without_its_submission(j: Journal) -> None:
    j.node("a1", "A").write(0, "submitted").write(300, "in_doubt")
    j.node("b1", "B", seq=2).beat(1).beat(2 * DAY)


@case("confirmed", "acknowledged")
def every_node_of_the_party_must_cover_it(j: Journal) -> None:
    acked(j)
    covered(j)
    j.node("b2", "B").beat(-60).skip().beat(2 * DAY)


@case("lost", "acknowledged", "received")
def the_receiver_is_who_received_it_where_nobody_says_for_whom_it_is(j: Journal) -> None:
    j.node("a1", "A", to_party=None).write(0, "sent").write(3, "receipt_received")
    j.node("b1", "B", to_party=None).beat(-60).write(1, "received").beat(2 * DAY)


@case("lost", "acknowledged")
def nodes_of_other_parties_need_not_cover_it(j: Journal) -> None:
    acked(j)
    covered(j)
    j.node("c1", "C").beat(-60).skip().beat(60)


@case("lost", "acknowledged")
def a_node_that_serves_several_parties_may_write_its_heartbeats_for_another(j: Journal) -> None:
    acked(j)
    j.node("bc", "C").beat(-60).write(-50, "received", "other", party="B").beat(2 * DAY)


@case("confirmed", "acknowledged")
def a_node_that_serves_several_parties_must_cover_it_with_all_its_events(j: Journal) -> None:
    acked(j)
    b = j.node("bc", "B").beat(-60)
    b.party = "C"
    b.skip().beat(60).beat(2 * DAY)


@case("confirmed", "acknowledged")
def a_party_for_which_no_node_wrote_covers_nothing(j: Journal) -> None:
    acked(j)
    j.node("c1", "C").beat(-60).beat(2 * DAY)


@case("lost", "acknowledged")
def a_node_that_retired_before_need_not_cover_it(j: Journal) -> None:
    acked(j)
    covered(j)
    j.node("b2", "B", seq=7).beat(-90).beat(-60, detail="retired")


@case("lost", "acknowledged")
def a_node_that_retires_meanwhile_must_cover_it_until_then(j: Journal) -> None:
    acked(j)
    covered(j)
    j.node("b2", "B").beat(-90).beat(10, detail="retired")


@case("confirmed", "acknowledged")
def a_node_that_retires_meanwhile_and_has_a_hole_before_does_not_cover_it(j: Journal) -> None:
    acked(j)
    covered(j)
    j.node("b2", "B").beat(-90).skip().beat(10, detail="retired")


@case("confirmed", "acknowledged")
def a_node_that_fell_silent_without_retiring_does_not_cover_it(j: Journal) -> None:
    acked(j)
    covered(j)
    j.node("b2", "B").beat(-90).beat(-60)


# --- grace: `lost` shows that it has passed ---


@case("lost", "acknowledged")
def the_journal_is_final_when_all_nodes_have_retired(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(-60).beat(40, detail="retired")
    j.node("b2", "B").beat(-60).beat(50, detail="retired")


@case("confirmed", "acknowledged")
def grace_has_not_passed_while_one_node_has_neither_retired_nor_reached_it(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(-60).beat(40, detail="retired")
    j.node("b2", "B").beat(-60).beat(60)


@case("lost", "acknowledged")
def grace_has_passed_when_every_node_reaches_a_day_beyond_the_last_event(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(-60).beat(31 + DAY)
    j.node("b2", "B").beat(-60).beat(32 + DAY)


@case("confirmed", "acknowledged")
def grace_has_not_passed_when_one_node_does_not_reach_a_day_beyond(j: Journal) -> None:
    acked(j)
    j.node("b1", "B").beat(-60).beat(30.99 + DAY)
    j.node("b2", "B").beat(-60).beat(32 + DAY)


@case("confirmed", "acknowledged")
def grace_counts_from_the_last_event_of_a_relay_too(j: Journal) -> None:
    acked(j)
    j.relay("h1").write(40, "forwarded")
    j.node("b1", "B").beat(-60).beat(39 + DAY)


@case("lost", "acknowledged")
def grace_does_not_count_from_purged(j: Journal) -> None:
    acked(j).write(90, "purged")
    j.node("b1", "B").beat(-60).beat(31 + DAY)


def test_grace_is_what_the_caller_says(spark: SparkSession) -> None:
    journal = Journal()
    journal.node("a1", "A").write(0, "sent").write(3, "receipt_received")
    journal.node("a1", "A", seq=3).write(0, "sent", "n").write(3.1, "receipt_received", "n")
    journal.node("b1", "B").beat(-60).beat(63)

    made = of_events(frame(spark, journal.events), grace=timedelta(hours=1))["reconciliation"]

    assert {row["message_id"]: row["class"] for row in rows(made)} == {
        "m": "lost",
        "n": "confirmed",
    }
