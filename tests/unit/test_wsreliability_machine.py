"""WS-Reliability: the tables, and what comes."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from postroad.reliability.delivery import Input
from postroad.reliability.wsreliability import (
    RECEIVING,
    REPLIES,
    Agreed,
    Coming,
    Done,
    coming,
)
from postroad.wire.wsreliability import FaultCode, ReplyPattern, Request

NOW = datetime(2026, 3, 1, tzinfo=UTC)
REQUEST = Request("mid:m@a", NOW + timedelta(hours=1), ReplyPattern.RESPONSE, ack_requested=True)
RESPONSE = Agreed(ReplyPattern.RESPONSE)


@pytest.mark.parametrize(
    ("request_", "known", "now", "what"),
    [
        (REQUEST, None, NOW, Coming.NEW),
        (REQUEST, "m", NOW, Coming.COPY),
        (REQUEST, "other", NOW, Coming.OTHER),
        (REQUEST, None, NOW + timedelta(hours=1), Coming.EXPIRED),
        (REQUEST, "m", NOW + timedelta(hours=1), Coming.LATE_COPY),
        (replace(REQUEST, message_order=True), None, NOW, Coming.ORDERED),
        (replace(REQUEST, ack_requested=False), None, NOW, Coming.UNACKNOWLEDGED),
        (replace(REQUEST, reply_pattern=ReplyPattern.POLL), None, NOW, Coming.OTHER_PATTERN),
    ],
)
def test_what_comes_is_told_by_its_header(
    request_: Request, known: str | None, now: datetime, what: Coming
) -> None:
    assert coming(request_, RESPONSE, "m", known, now) is what


def test_acknowledgments_call_back_only_where_that_is_agreed_on() -> None:
    agreed = Agreed(ReplyPattern.CALLBACK, "https://a.example/")
    asked = replace(REQUEST, reply_pattern=ReplyPattern.CALLBACK, reply_to="https://a.example/")
    assert coming(asked, agreed, "m", None, NOW) is Coming.NEW
    elsewhere = replace(asked, reply_to="https://evil.example/")
    assert coming(elsewhere, agreed, "m", None, NOW) is Coming.OTHER_PATTERN


def test_the_tables_know_everything() -> None:
    assert set(RECEIVING) == set(Coming)
    assert set(REPLIES) == {None, *FaultCode}
    for verdict in RECEIVING.values():
        assert (verdict.fault is None) == (verdict.done is not Done.REFUSE)


def test_only_a_passing_failure_lets_a_message_come_again() -> None:
    again = [one for one, given in REPLIES.items() if given is Input.TURNED_AWAY]
    assert again == [FaultCode.MESSAGE_PROCESSING_FAILURE]
