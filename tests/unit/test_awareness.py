"""Reception awareness: what a copy means to a receiver, and an answer to a sender."""

import pytest

from postroad.reliability.awareness import (
    ANSWERS,
    INVALID_RECEIPT,
    MISSING_RECEIPT,
    RECEPTION,
    Answer,
    Arrival,
    Known,
    Reception,
    error_said,
    fault_said,
    received,
    status_said,
)
from postroad.reliability.delivery import TABLE, Input, Stage
from postroad.wire.names import S11, S12

SAME, REBUILT, OTHER = Arrival
TAKEN_ALREADY = (Known.HELD, Known.TAKEN, Known.UNANSWERED)


def test_every_case_is_decided() -> None:
    assert set(RECEPTION) == set(Known)
    assert all(set(row) == set(Arrival) for row in RECEPTION.values())
    assert set(ANSWERS) == set(Answer)


@pytest.mark.parametrize("arrival", Arrival)
def test_what_is_new_is_taken(arrival: Arrival) -> None:
    assert received(Known.NOTHING, arrival) is Reception.TAKE


@pytest.mark.req("OV004-1-04", "OV004-1-10", "RM000-1.3.2-05", "MS098-10.3.1.5-06")
@pytest.mark.parametrize("known", TAKEN_ALREADY)
@pytest.mark.parametrize("arrival", Arrival)
def test_what_was_taken_is_not_taken_again(known: Known, arrival: Arrival) -> None:
    done = received(known, arrival)
    assert done not in (Reception.TAKE, Reception.TAKE_INSTEAD)


@pytest.mark.req("OV004-1-11")
@pytest.mark.parametrize("known", [Known.TAKEN, Known.HELD])
@pytest.mark.parametrize("duplicate", [SAME, REBUILT])
def test_a_duplicate_gets_the_first_answer(known: Known, duplicate: Arrival) -> None:
    assert received(known, duplicate) is Reception.ANSWER_AGAIN


@pytest.mark.parametrize("duplicate", [SAME, REBUILT])
def test_a_duplicate_gets_no_answer_before_the_first_one_may_have_one(duplicate: Arrival) -> None:
    assert received(Known.UNANSWERED, duplicate) is Reception.FILTER


@pytest.mark.parametrize("arrival", Arrival)
def test_a_copy_of_what_was_rejected_gets_no_receipt_of_the_first(arrival: Arrival) -> None:
    assert received(Known.REJECTED, arrival) is Reception.TAKE_INSTEAD


@pytest.mark.parametrize("known", TAKEN_ALREADY)
def test_something_else_under_a_known_id_is_refused(known: Known) -> None:
    assert received(known, OTHER) is Reception.REFUSE


# What answers mean


def test_only_a_receipt_that_holds_acknowledges() -> None:
    assert [one for one in Answer if ANSWERS[one] is Input.ACKNOWLEDGED] == [Answer.RECEIPT]


def test_a_receipt_that_does_not_hold_leaves_the_message_unanswered() -> None:
    after = TABLE[Stage.READY][ANSWERS[Answer.BAD_RECEIPT]]
    assert after is Stage.WAITING


@pytest.mark.parametrize(
    "answer",
    [Answer.DISBELIEVED, Answer.NOTHING, Answer.TROUBLE, Answer.BREAKDOWN, Answer.BAD_RECEIPT],
)
def test_what_proves_nothing_is_doubt(answer: Answer) -> None:
    assert ANSWERS[answer] is Input.UNANSWERED


@pytest.mark.parametrize("answer", [Answer.ERROR, Answer.FAULT, Answer.REJECTION])
def test_what_says_that_the_message_is_wrong_refuses_it(answer: Answer) -> None:
    assert ANSWERS[answer] is Input.REFUSED


@pytest.mark.parametrize("answer", [Answer.NOT_NOW, Answer.LATER])
def test_not_now_is_told_and_tried_again(answer: Answer) -> None:
    assert ANSWERS[answer] is Input.TURNED_AWAY
    assert TABLE[Stage.READY][Input.TURNED_AWAY] is Stage.READY


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("EBMS:0202", Answer.NOT_NOW),
        ("EBMS:0005", Answer.NOT_NOW),
        ("EBMS:0003", Answer.ERROR),
        ("EBMS:0004", Answer.ERROR),
        ("EBMS:0101", Answer.ERROR),
        ("EBMS:02020", Answer.ERROR),
        ("", Answer.ERROR),
    ],
)
def test_what_an_error_says(code: str, answer: Answer) -> None:
    assert error_said(code) is answer


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (f"{{{S12}}}Receiver", Answer.BREAKDOWN),
        (f"{{{S11}}}Server", Answer.BREAKDOWN),
        (f"{{{S11}}}Server.Timeout", Answer.BREAKDOWN),
        ("Server", Answer.BREAKDOWN),
        ("Receiver", Answer.BREAKDOWN),
        (f"{{{S12}}}Sender", Answer.FAULT),
        (f"{{{S11}}}Client", Answer.FAULT),
        (f"{{{S11}}}Client.Authentication", Answer.FAULT),
        (f"{{{S12}}}MustUnderstand", Answer.FAULT),
    ],
)
def test_what_a_fault_says(code: str, answer: Answer) -> None:
    assert fault_said(code) is answer


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, Answer.NOTHING),
        (202, Answer.NOTHING),
        (204, Answer.NOTHING),
        (299, Answer.NOTHING),
        (300, Answer.ELSEWHERE),
        (302, Answer.ELSEWHERE),
        (399, Answer.ELSEWHERE),
        (400, Answer.REJECTION),
        (404, Answer.REJECTION),
        (408, Answer.LATER),
        (425, Answer.LATER),
        (429, Answer.LATER),
        (499, Answer.REJECTION),
        (500, Answer.TROUBLE),
        (503, Answer.TROUBLE),
        (599, Answer.TROUBLE),
    ],
)
def test_what_a_status_says_where_nothing_else_does(status: int, answer: Answer) -> None:
    assert status_said(status) is answer


def test_a_receipt_that_is_missing_or_wrong_has_its_own_error() -> None:
    assert (MISSING_RECEIPT, INVALID_RECEIPT) == ("EBMS:0301", "EBMS:0302")
