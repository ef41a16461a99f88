"""An inbox as a stream: offsets, limits, acknowledgment, and what is lost is told."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

from postroad.pipeline.source_offsets import DataLoss
from postroad.store.records import Extent
from tests.api.world import Faulty
from tests.pipeline.inboxes import Inbox, cursors, rows_of

ALL = ReadAllAvailable()


def begun(inbox: Inbox, **options: object) -> tuple[Any, dict[str, Any]]:
    """A stream that begins with the first message, and its first offset."""
    reader = inbox.stream(**({"startingOffsets": "earliest"} | options))
    return reader, reader.initialOffset()


def restored(inbox: Inbox, epoch: int = 1, last: int = 0) -> None:
    """The node goes on with another database."""

    async def extent() -> Extent:
        return Extent(epoch, last, 0)

    inbox.instead(Faulty(inbox.service, inbox=extent))  # type: ignore[arg-type]


def test_a_stream_begins_with_what_comes_next(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    reader = inbox.stream()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    inbox.deliver("3")
    assert cursors(rows_of(reader, start, reader.latestOffset(start, ALL))) == [3]


def test_a_stream_can_begin_with_the_first_message(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    reader, start = begun(inbox)
    assert cursors(rows_of(reader, start, reader.latestOffset(start, ALL))) == [1, 2]


def test_a_stream_can_begin_after_a_cursor(inbox: Inbox) -> None:
    inbox.deliver("1", "2", "3")
    reader, start = begun(inbox, startingOffsets='{"cursor": 2}')
    assert cursors(rows_of(reader, start, reader.latestOffset(start, ALL))) == [3]


def test_a_stream_can_begin_at_a_time(inbox: Inbox) -> None:
    inbox.deliver("1", "2", "3")
    at = inbox.rows()[1]["received_at"].isoformat()
    reader = inbox.stream(startingTimestamp=at)
    assert reader.initialOffset()["cursor"] == 1


@pytest.mark.parametrize(
    ("limit", "cursor"),
    [
        (ALL, 5),
        (ReadMaxRows(2), 2),
        (ReadMaxRows(5), 5),
        (ReadMaxRows(9), 5),
        (ReadMaxFiles(3), 3),
        (ReadMaxBytes(25), 2),
        (ReadMaxBytes(1), 1),
        (ReadMaxBytes(1000), 5),
        (ReadMinRows(5), 5),
        (ReadMinRows(6), 0),
    ],
)
def test_a_batch_obeys_the_limit_that_spark_gives(inbox: Inbox, limit: Any, cursor: int) -> None:
    inbox.deliver(*["ten bytes."] * 5)
    reader, start = begun(inbox, maxMessagesPerTrigger=1)
    assert reader.latestOffset(start, limit)["cursor"] == cursor


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ALL),
        ({"maxMessagesPerTrigger": 7}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": 7}, ReadMaxBytes(7)),
        ({"maxMessagesPerTrigger": 7, "maxBytesPerTrigger": 8}, ReadMaxRows(7)),
    ],
)
def test_the_options_are_the_limit_unless_spark_has_another(
    inbox: Inbox, options: dict[str, int], limit: Any
) -> None:
    assert inbox.stream(**options).getDefaultReadLimit() == limit


def test_both_limits_hold_together(inbox: Inbox) -> None:
    inbox.deliver(*["ten bytes."] * 5)
    reader, start = begun(inbox, maxMessagesPerTrigger=4, maxBytesPerTrigger=20)
    assert reader.latestOffset(start, ReadMaxRows(4))["cursor"] == 2


def test_available_now_ends_where_the_inbox_ended_when_the_query_began(inbox: Inbox) -> None:
    inbox.deliver("1", "2", "3")
    reader, start = begun(inbox)
    reader.prepareForTriggerAvailableNow()
    inbox.deliver("4")
    first = reader.latestOffset(start, ReadMaxRows(2))
    second = reader.latestOffset(first, ReadMaxRows(2))
    assert (first["cursor"], second["cursor"]) == (2, 3)
    assert reader.latestOffset(second, ReadMaxRows(2)) is second


def test_available_now_does_not_wait_for_more(inbox: Inbox) -> None:
    inbox.deliver("1")
    reader, start = begun(inbox)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(start, ReadMinRows(5))["cursor"] == 1


def test_a_batch_that_is_replayed_is_the_same(inbox: Inbox) -> None:
    inbox.deliver("1", "2", "3")
    reader, start = begun(inbox)
    end = reader.latestOffset(start, ReadMaxRows(2))
    before = rows_of(reader, start, end)
    inbox.deliver("4")
    again = inbox.stream(minPartitions=2)
    again.commit(end)
    assert rows_of(again, start, end) == before


def test_partitions_cover_a_range_once_and_are_always_the_same(inbox: Inbox) -> None:
    inbox.deliver(*"1234567")
    reader, start = begun(inbox, minPartitions=3)
    end = reader.latestOffset(start, ALL)
    planned = reader.partitions(start, end)
    assert [(one.after, one.through) for one in planned] == [(0, 2), (2, 4), (4, 7)]
    assert reader.partitions(start, end) == planned
    assert reader.partitions(end, end) == []


def test_the_lag_is_told(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    reader = inbox.stream()
    assert reader.reportLatestOffset() == {"node": "n1", "epoch": 1, "cursor": 2}


def test_messages_are_acknowledged_once_their_batch_is_committed(inbox: Inbox) -> None:
    inbox.deliver("1", "2", "3")
    reader, start = begun(inbox)
    end = reader.latestOffset(start, ReadMaxRows(2))
    rows_of(reader, start, end)
    assert inbox.waiting == [1, 2, 3]
    reader.commit(end)
    assert inbox.waiting == [3]


def test_what_lies_before_the_beginning_is_not_acknowledged(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    reader = inbox.stream()
    start = reader.initialOffset()
    inbox.deliver("3")
    reader.commit(reader.latestOffset(start, ALL))
    assert inbox.waiting == [1, 2]


def test_what_a_crash_left_unacknowledged_is_made_up_for(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    reader, start = begun(inbox)
    first = reader.latestOffset(start, ReadMaxRows(1))
    after_restart = inbox.stream()
    after_restart.commit(after_restart.latestOffset(first, ALL))
    assert inbox.waiting == []


def test_only_messages_that_fit_are_read_and_acknowledged(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    inbox.deliver("3", message_id="other@x", conversation_id="mine")
    reader, start = begun(inbox, conversationId="mine")
    end = reader.latestOffset(start, ALL)
    assert cursors(rows_of(reader, start, end)) == [3]
    reader.commit(end)
    assert inbox.waiting == [1, 2]


def test_nothing_is_acknowledged_where_that_is_not_wanted(inbox: Inbox) -> None:
    inbox.deliver("1")
    reader, start = begun(inbox, acknowledge="false")
    reader.commit(reader.latestOffset(start, ALL))
    assert inbox.waiting == [1]


def test_messages_that_were_removed_before_they_were_read_are_an_error(inbox: Inbox) -> None:
    inbox.deliver("1")
    reader, start = begun(inbox)
    inbox.purge()
    with pytest.raises(DataLoss, match=r"up to cursor 1, and only those up to 0 .*failOnDataLoss"):
        reader.latestOffset(start, ALL)


def test_messages_that_are_removed_after_planning_are_an_error(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    reader, start = begun(inbox)
    end = reader.latestOffset(start, ALL)
    inbox.purge()
    with pytest.raises(DataLoss, match="up to cursor 2"):
        rows_of(reader, start, end)


def test_what_was_removed_after_it_was_read_is_no_loss(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    reader, start = begun(inbox)
    end = reader.latestOffset(start, ALL)
    inbox.purge()
    inbox.deliver("3")
    assert cursors(rows_of(reader, end, reader.latestOffset(end, ALL))) == [3]


def test_what_was_removed_before_the_query_began_is_no_loss(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    inbox.purge()
    inbox.deliver("3")
    reader, start = begun(inbox)
    assert cursors(rows_of(reader, start, reader.latestOffset(start, ALL))) == [3]


def test_a_stream_that_may_lose_data_goes_on_with_what_is_there(inbox: Inbox) -> None:
    inbox.deliver("1")
    reader, start = begun(inbox, failOnDataLoss="false")
    inbox.purge()
    inbox.deliver("2")
    assert cursors(rows_of(reader, start, reader.latestOffset(start, ALL))) == [2]


def test_a_restored_database_is_an_error_and_not_a_silent_gap(inbox: Inbox) -> None:
    inbox.deliver("1")
    reader, start = begun(inbox)
    restored(inbox, epoch=2)
    with pytest.raises(DataLoss, match="n1, epoch 1, and this is n1, epoch 2"):
        reader.latestOffset(start, ALL)


def test_an_older_database_of_the_same_epoch_is_an_error(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    reader, start = begun(inbox)
    end = reader.latestOffset(start, ALL)
    restored(inbox, last=1)
    with pytest.raises(DataLoss, match="at cursor 2, and the inbox of n1 ends at 1"):
        reader.latestOffset(end, ALL)


def test_a_stream_that_may_lose_data_begins_again_in_a_restored_database(inbox: Inbox) -> None:
    inbox.deliver("1", "2")
    reader, start = begun(inbox, failOnDataLoss="false")
    end = reader.latestOffset(start, ALL)
    restored(inbox, epoch=2, last=1)
    again = reader.latestOffset(end, ALL)
    assert (again["epoch"], again["cursor"]) == (2, 1)
    assert [(one.after, one.through) for one in reader.partitions(end, again)] == [(0, 1)]


def test_nothing_of_a_restored_database_is_acknowledged_by_mistake(inbox: Inbox) -> None:
    inbox.deliver("1")
    reader, start = begun(inbox)
    end = reader.latestOffset(start, ALL)
    restored(inbox, epoch=2, last=1)
    reader.commit(end)
    assert inbox.waiting == [1]
