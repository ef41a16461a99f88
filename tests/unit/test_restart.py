"""Broken uploads go on where they ended, and nowhere else (Part 2, 6.4.3; AS2 restart)."""

from datetime import UTC, datetime, timedelta

import pytest

from postroad.agreement.pmode import Leg
from postroad.reliability.restart import (
    TABLE,
    Asked,
    Done,
    Known,
    Room,
    Transfer,
    decide,
    going_on,
    has_room,
    known,
)
from postroad.wire.restart import (
    ContentRange,
    read_content_range,
    read_transfer_id,
    unsatisfied,
    write_transfer_id,
)
from tests.changing import replace

NOON = datetime(2026, 5, 19, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PART = Transfer("buyer", "/msh", "t1", 40, 100, NOON + HOUR)
REST = ContentRange(40, 99, 100)


@pytest.mark.parametrize(
    "value", ["bytes 40-99/100", "40-99/100", "Bytes  40-99/100", " 40-99/100"]
)
def test_a_range_is_read_with_and_without_its_unit(value: str) -> None:
    assert read_content_range(value) == REST
    assert str(REST) == "bytes 40-99/100"
    assert REST.size == 60


def test_a_total_may_be_unknown() -> None:
    assert read_content_range("bytes 0-9/*") == ContentRange(0, 9, None)
    assert str(ContentRange(0, 9, None)) == "bytes 0-9/*"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "bytes",
        "bytes 5-4/10",
        "bytes 5-10/10",
        "bytes */10",
        "items 1-2/3",
        "bytes -1-2/3",
        "bytes 1-2/3, bytes 2-3/3",
        "1-2",
        f"bytes 0-{'9' * 19}/*",
        "bytes 1 - 2/3",
    ],
)
def test_a_range_that_makes_no_sense_is_none(value: str) -> None:
    assert read_content_range(value) is None


def test_a_transfer_is_named_by_a_strong_etag() -> None:
    assert read_transfer_id(' "a-1@b" ') == "a-1@b"
    assert read_transfer_id(write_transfer_id("a-1@b")) == "a-1@b"
    for etag in ("", "a", '""', 'W/"a"', '"a"b"', '"a b"', f'"{"a" * 256}"', '"a\r\n"'):
        assert read_transfer_id(etag) is None
    with pytest.raises(ValueError, match="cannot name"):
        write_transfer_id('a"b')


def test_who_went_on_elsewhere_is_told_how_much_is_there() -> None:
    assert unsatisfied(40) == "bytes */40"


@pytest.mark.parametrize(
    ("transfer", "given", "done"),
    [
        (None, None, Done.BEGIN),
        (None, ContentRange(0, 99, 100), Done.BEGIN),
        (None, REST, Done.CORRECT),
        (PART, None, Done.BEGIN),
        (PART, REST, Done.GO_ON),
        (PART, ContentRange(40, 59, None), Done.GO_ON),
        (PART, ContentRange(0, 99, 100), Done.CORRECT),
        (PART, ContentRange(41, 99, 100), Done.CORRECT),
        (PART, ContentRange(40, 199, 200), Done.FORGET),
        (replace(PART, total=None), ContentRange(40, 199, 200), Done.GO_ON),
        (replace(PART, open=True), REST, Done.WAIT),
        (replace(PART, open=True), None, Done.WAIT),
        (replace(PART, stored=100, done=True), None, Done.REPEAT),
        (replace(PART, stored=100, done=True), REST, Done.CORRECT),
        (replace(PART, stored=100, done=True), ContentRange(40, 199, 200), Done.REFUSE),
    ],
)
def test_a_request_goes_on_where_the_part_ends_and_nowhere_else(
    transfer: Transfer | None, given: ContentRange | None, done: Done
) -> None:
    assert decide(transfer, given, NOON) is done


@pytest.mark.parametrize("transfer", [None, PART, replace(PART, stored=100, done=True)])
def test_a_probe_is_told_and_changes_nothing(transfer: Transfer | None) -> None:
    assert decide(transfer, None, NOON, probe=True) is Done.SAY


def test_a_probe_ends_what_is_just_being_written() -> None:
    assert decide(replace(PART, open=True), None, NOON, probe=True) is Done.END


def test_a_part_is_nothing_when_its_time_is_over() -> None:
    over = NOON + HOUR
    assert known(PART, over - timedelta(microseconds=1)) is Known.PART
    assert known(PART, over) is Known.NOTHING
    assert decide(PART, REST, over) is Done.CORRECT
    assert known(replace(PART, done=True), over) is Known.NOTHING
    assert known(replace(PART, open=True), over) is Known.OPEN


def test_every_request_has_its_place_in_the_table() -> None:
    assert {has: set(row) for has, row in TABLE.items()} == {has: set(Asked) for has in Known}


def test_a_sender_keeps_so_many_parts_and_no_more() -> None:
    room = Room(2, 100)
    assert has_room(1, 50, 50, room)
    assert not has_room(2, 0, 1, room)
    assert not has_room(1, 50, 51, room)


@pytest.mark.parametrize(
    ("there", "sent"),
    [
        (None, None),
        (0, None),
        (40, REST),
        (99, ContentRange(99, 99, 100)),
        (100, None),
        (5000, None),
    ],
)
def test_a_sender_goes_on_with_what_is_not_there(
    there: int | None, sent: ContentRange | None
) -> None:
    assert going_on(there, 100) == sent


@pytest.mark.req("P2-6.4.3-01", "P2-6.4.3-02")
def test_transfers_are_not_restarted_unless_agreed_and_then_as_as2_does() -> None:
    silent = Leg.model_validate({"protocol": {}}).protocol
    assert silent is not None
    assert silent.restart is None
    asked = Leg.model_validate({"protocol": {"restart": True}}).protocol
    assert asked is not None
    assert asked.restart is not None
    assert asked.restart.enabled
    assert asked.restart.protocol == "as2-restart"
