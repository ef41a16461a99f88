"""The older draft's links: the Receiver's four cases, its answers, and Routers."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.reliability import link_receiver
from postroad.reliability.link import (
    MAX_SEQUENCE_NUMBER,
    Ack,
    AnswerHeader,
    DeliverySemantics,
    ErrorClass,
    ErrorMessage,
    MessageType,
    PartyID,
    Triple,
    WrongTriple,
)
from postroad.reliability.link_receiver import (
    Case,
    Deliver,
    Discard,
    Forward,
    Message,
    Onward,
    ReceiverState,
    Rules,
    Store,
)

ACME = PartyID("acme", "urn:msh")
GLOBEX = PartyID("globex", "urn:msh")
HTTP = Triple(ACME, GLOBEX, "http")
SMTP = Triple(ACME, GLOBEX, "smtp")
REFUSED_NUMBERS = {
    "zero": 0,
    "negative": -1,
    "one too great": 2**32,
    "too great to print": 10**5000,
    "truth": True,
    "real": 1.0,
    "text": "1",
    "none": None,
}


def header(message_id: str, kind: MessageType) -> AnswerHeader:
    return AnswerHeader(GLOBEX, ACME, "tpa-1", "c-1", message_id, kind)


def ack(message_id: str) -> Ack:
    return Ack(header(message_id, MessageType.ACKNOWLEDGEMENT))


# The Receiver


RULES = Rules()


def came(number: Any, message_id: str = "new", **changes: Any) -> Message:
    return Message(HTTP, message_id, "tpa-1", "c-1", number, **changes)


def receiver(previous: int | None = None, *recent: str, **changes: Any) -> ReceiverState:
    return ReceiverState(HTTP, previous, recent or ("last",) * (previous is not None), **changes)


def answers(actions: tuple[object, ...]) -> list[Ack | ErrorMessage]:
    return [each for each in actions if isinstance(each, Ack | ErrorMessage)]


@pytest.mark.req(
    "RM001-2.5-01",
    "RM001-2.1-07",
    "RM001-2.1-11",
    "RM001-2.1-14",
    "RM001-2.2.2-01",
    "RM001-2.3-02",
    "RM001-2.3-03",
    "RM001-2.3-06",
    "RM001-2.3-07",
)
def test_case_1_the_next_number_is_stored_passed_up_and_acknowledged() -> None:
    state, actions = link_receiver.receive(receiver(4), came(5), RULES)
    assert actions == (Store("new"), Deliver("new"), ack("new"))
    assert (state.previous, state.recent) == (5, ("last", "new"))


@pytest.mark.req(
    "RM001-2.5-02", "RM001-2.1-09", "RM001-2.1-10", "RM001-2.1-14", "RM001-2.3-06", "RM001-2.4-02"
)
def test_case_2_the_same_number_is_discarded_and_acknowledged_again() -> None:
    before = receiver(4)
    state, actions = link_receiver.receive(before, came(4, "last"), RULES)
    assert actions == (Discard("last"), ack("last"))
    assert state == before


@pytest.mark.req("RM001-2.5-03")
@pytest.mark.parametrize(("message_id", "case"), [("last", Case.REPEATED), ("new", Case.RESTARTED)])
def test_case_2_with_both_numbers_1_is_decided_by_the_message_id(
    message_id: str, case: Case
) -> None:
    assert link_receiver.case_of(receiver(1), 1, message_id) is case


@pytest.mark.req("RM001-2.5-04")
@pytest.mark.parametrize("previous", [1, 4, MAX_SEQUENCE_NUMBER])
def test_case_3_the_number_1_begins_anew(previous: int) -> None:
    state, actions = link_receiver.receive(receiver(previous), came(1), RULES)
    assert actions == (Store("new"), Deliver("new"), ack("new"))
    assert state.previous == 1


@pytest.mark.req("RM001-2.5-05", "RM001-2.1-08")
@pytest.mark.parametrize("number", [2, 3, 6, MAX_SEQUENCE_NUMBER])
def test_case_4_any_other_number_is_discarded_and_answered_with_an_error(number: int) -> None:
    before = receiver(4)
    state, actions = link_receiver.receive(before, came(number), RULES)
    discarded, told = actions
    assert discarded == Discard("new")
    assert isinstance(told, ErrorMessage)
    assert told.error_class is ErrorClass.MESSAGING_ERROR
    assert told.detail == f"SequenceNumber {number} after 4"
    assert state == before


NUMBERS = st.one_of(
    st.integers(1, 6),
    st.integers(MAX_SEQUENCE_NUMBER - 5, MAX_SEQUENCE_NUMBER),
    st.integers(1, MAX_SEQUENCE_NUMBER),
)


@pytest.mark.req("RM001-2.5-01", "RM001-2.5-02", "RM001-2.5-03", "RM001-2.5-04", "RM001-2.5-05")
@given(NUMBERS, NUMBERS, st.booleans())
def test_the_four_cases_over_all_numbers(previous: int, number: int, same: bool) -> None:
    state = receiver(previous)
    message_id = "last" if same and number == previous else "new"
    if number == previous and message_id == "last":
        expected = Case.REPEATED
    elif number == previous + 1:
        expected = Case.NEXT
    elif number == 1:
        expected = Case.RESTARTED
    else:
        expected = Case.INVALID
    assert link_receiver.case_of(state, number, message_id) is expected
    after, actions = link_receiver.receive(state, came(number, message_id), RULES)
    kept = expected in (Case.NEXT, Case.RESTARTED)
    assert (Store(message_id) in actions) is kept
    assert (after.previous == number and after.recent[-1] == message_id) is (
        kept or expected is Case.REPEATED
    )
    assert [type(each) for each in answers(actions)] == [
        ErrorMessage if expected is Case.INVALID else Ack
    ]


def test_another_message_under_the_last_number_is_never_acknowledged_unstored() -> None:
    _, actions = link_receiver.receive(receiver(4), came(4, "another"), RULES)
    assert [type(each) for each in answers(actions)] == [ErrorMessage]


@pytest.mark.req("RM001-2.2.3-10", "RM001-2.1-09")
@pytest.mark.parametrize("number", [1, 2, 5, 9])
def test_a_late_copy_is_known_by_its_message_id_whatever_its_number(number: int) -> None:
    before = receiver(4, "old", "older", "last")
    state, actions = link_receiver.receive(before, came(number, "old"), RULES)
    assert actions == (Discard("old"), ack("old"))
    assert state == before


def test_a_receiver_without_state_begins_with_1_only() -> None:
    assert link_receiver.case_of(receiver(), 1, "new") is Case.NEXT
    assert link_receiver.case_of(receiver(), 7, "new") is Case.INVALID


@pytest.mark.parametrize("number", REFUSED_NUMBERS.values(), ids=REFUSED_NUMBERS)
def test_an_impossible_number_is_discarded_and_answered_with_an_error(
    number: object,
) -> None:
    state, actions = link_receiver.receive(receiver(), came(number), RULES)
    assert state == receiver()
    assert actions[0] == Discard("new")
    assert "1 to 4294967295" in str(actions[1])


def test_no_more_message_ids_are_remembered_than_agreed() -> None:
    state = receiver()
    for number in range(1, 10):
        state, _ = link_receiver.receive(state, came(number, f"m{number}"), Rules(remember=3))
    assert state.recent == ("m7", "m8", "m9")


@pytest.mark.req("RM001-2.2.2-03", "RM001-2.1-02")
def test_an_unreliable_message_is_passed_up_without_number_or_acknowledgement() -> None:
    unreliable = came(None, delivery_semantics=DeliverySemantics.UNSPECIFIED)
    state, actions = link_receiver.receive(receiver(4), unreliable, RULES)
    assert (state, actions) == (receiver(4), (Deliver("new"),))


@pytest.mark.req("RM001-2.6.7-03")
@pytest.mark.parametrize("kind", [MessageType.ACKNOWLEDGEMENT, MessageType.ERROR])
def test_an_answer_is_never_answered(kind: MessageType) -> None:
    assert link_receiver.receive(receiver(4), came(5, message_type=kind), RULES) == (
        receiver(4),
        (),
    )


def test_a_message_of_another_link_is_refused() -> None:
    with pytest.raises(WrongTriple):
        link_receiver.receive(ReceiverState(SMTP), came(1), RULES)


def test_the_receivers_state_survives_being_kept_as_json() -> None:
    state, _ = link_receiver.receive(receiver(4), came(5), RULES, Onward.OPEN)
    assert msgspec.json.decode(msgspec.json.encode(state), type=ReceiverState) == state


# What stands in an answer


@pytest.mark.req("RM001-2.6.2-01", "RM001-2.6.2-02")
def test_an_answer_goes_from_the_receiver_id_to_the_sender_id() -> None:
    made = link_receiver.answer_header(came(5), MessageType.ACKNOWLEDGEMENT)
    assert (made.from_id, made.to_id) == (GLOBEX, ACME)


@pytest.mark.req("RM001-2.6.2-03", "RM001-2.6.2-05")
def test_an_answer_names_agreement_conversation_and_message() -> None:
    made = link_receiver.answer_header(came(5), MessageType.ERROR)
    assert (made.tpa_id, made.conversation_id) == ("tpa-1", "c-1")
    assert made.ref_to_message_id == "new"


@pytest.mark.req("RM001-2.6.2-06", "RM001-2.6.7-01", "RM001-2.6.2-04")
@pytest.mark.parametrize(
    ("number", "kind"), [(5, "Acknowledgement"), (4, "Acknowledgement"), (9, "Error")]
)
def test_an_answer_is_unreliable_has_its_type_and_neither_service_nor_action(
    number: int, kind: str
) -> None:
    message_id = "last" if number == 4 else "new"
    _, actions = link_receiver.receive(receiver(4), came(number, message_id), RULES)
    [answer] = answers(actions)
    made = msgspec.to_builtins(answer.header)
    assert made.pop("message_type") == kind
    assert made.pop("delivery_semantics") == "Unspecified"
    assert {*made} == {"from_id", "to_id", "tpa_id", "conversation_id", "ref_to_message_id"}


# Routers


def come_again(message_id: str, seconds: int | None) -> ErrorMessage:
    told = header(message_id, MessageType.ERROR)
    detail = "the next Receiver cannot be reached"
    return ErrorMessage(told, ErrorClass.TRANSIENT_ERROR, seconds, detail)


@pytest.mark.req("RM001-4.1-01")
def test_a_router_stores_acknowledges_and_then_forwards() -> None:
    _, actions = link_receiver.receive(receiver(4), came(5), RULES, Onward.OPEN)
    assert actions == (Store("new"), ack("new"), Forward("new"))


@pytest.mark.req("RM001-4.3-01")
def test_a_router_that_cannot_forward_takes_nothing_and_answers_with_a_transient_error() -> None:
    rules = Rules(min_retry_secs=30)
    state, actions = link_receiver.receive(receiver(4), came(5), rules, Onward.DOWN)
    assert actions == (Discard("new"), come_again("new", 30))
    assert state == receiver(4)


def test_what_a_router_has_acknowledged_it_acknowledges_again_wherever_it_goes() -> None:
    _, actions = link_receiver.receive(receiver(4), came(4, "last"), RULES, Onward.DOWN)
    assert actions == (Discard("last"), ack("last"))
