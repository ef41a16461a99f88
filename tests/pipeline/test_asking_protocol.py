"""What partners say by their own protocol of messages that were given up."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from postroad.api.client import ApiError, Client, QueryAnswer
from postroad.pipeline.asking_protocol import ask_by_protocol, protocol_says
from postroad.pipeline.settling import ON_ITS_WAY, Question, Said, settle

SELLER = "urn:example:seller"
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
LONG = timedelta(hours=1)
QUESTION = Question(
    "m@b", "in_doubt", "in_doubt", None, None, "urn:example:buyer", SELLER, NOW - LONG, NOW, None
)


def answer(word: str | None, means: str | None = None, detail: str | None = None) -> QueryAnswer:
    return QueryAnswer("m@b", word, means, None, "http://seller.example", 0.04, None, detail)


class OwnNode:
    """The own node, asking a partner."""

    def __init__(self, told: QueryAnswer | ApiError) -> None:
        self._told = told
        self.asked: list[str] = []

    def query(self, message_id: str, **_: Any) -> QueryAnswer:
        self.asked.append(message_id)
        if isinstance(self._told, ApiError):
            raise self._told
        return self._told


@pytest.mark.parametrize(
    ("word", "means"),
    [
        ("Processed", "delivered"),
        ("Received", "received"),
        ("Forwarded", "received"),
        ("NotRecognized", "not_received"),
    ],
)
def test_a_definite_answer_is_what_the_partner_says(word: str, means: str) -> None:
    said = protocol_says(SELLER, answer(word, means), LONG)
    assert said == Said(SELLER, means, f"it answers {word}")


def test_a_partner_that_does_not_tell_leaves_the_doubt() -> None:
    said = protocol_says(SELLER, answer("UnAuthorized"), LONG)
    why = "it answers UnAuthorized: that says nothing of the message"
    assert said == Said(SELLER, None, why)


def test_an_answer_that_proves_nothing_leaves_the_doubt() -> None:
    said = protocol_says(SELLER, answer("NotRecognized", detail="it may have forgotten it"), LONG)
    assert said == Said(SELLER, None, "it answers NotRecognized: it may have forgotten it")


def test_a_partner_that_does_not_answer_leaves_the_doubt() -> None:
    said = protocol_says(SELLER, answer(None, detail="no answer came in time"), LONG)
    assert said == Said(SELLER, None, "it did not answer: no answer came in time")


@pytest.mark.parametrize(
    ("since", "means"), [(ON_ITS_WAY - timedelta(seconds=1), None), (ON_ITS_WAY, "not_received")]
)
def test_what_was_sent_just_now_may_still_arrive(since: timedelta, means: str | None) -> None:
    assert protocol_says(SELLER, answer("NotRecognized", "not_received"), since).answer == means


def test_what_has_arrived_has_arrived_however_early() -> None:
    assert protocol_says(SELLER, answer("Received", "received"), timedelta()).answer == "received"


def test_a_question_is_asked_through_the_own_node() -> None:
    own = OwnNode(answer("Processed", "delivered"))
    said = ask_by_protocol(cast(Client, own), SELLER, QUESTION, NOW)
    assert own.asked == ["m@b"]
    assert said is not None
    assert said.answer == "delivered"
    [settlement] = settle([QUESTION], {"m@b": [said]}).settlements
    assert (settlement.answer, settlement.who) == ("delivered", SELLER)


def test_a_protocol_without_that_question_says_nothing() -> None:
    own = OwnNode(ApiError(422, "orders speaks ebMS 3.0, which has no such question"))
    assert ask_by_protocol(cast(Client, own), SELLER, QUESTION, NOW) is None


def test_a_node_that_cannot_ask_leaves_the_doubt() -> None:
    own = OwnNode(ApiError(503, "the store is busy"))
    said = ask_by_protocol(cast(Client, own), SELLER, QUESTION, NOW)
    assert said is not None
    [left] = settle([QUESTION], {"m@b": [said]}).open
    assert "the store is busy" in left.why
