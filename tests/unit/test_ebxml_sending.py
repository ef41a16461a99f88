"""The sender of ebXML reliable messaging: what answers say, and the failure notice."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from postroad.reliability.delivery import Stage
from postroad.reliability.ebxml import (
    SERVICE,
    Acknowledgment,
    AckType,
    Hop,
    Message,
    Signal,
)
from postroad.reliability.ebxml_sending import Word, notice, said
from postroad.reliability.ebxml_terms import (
    DeliverySemantics,
    Error,
    ErrorCode,
    Severity,
    Terms,
    agree,
)
from tests.changing import replace

NOW: Final = datetime(2001, 3, 9, 12, tzinfo=UTC)
ORDER: Final = Message(
    message_id="order-1",
    from_party="buyer",
    to_party="seller",
    conversation_id="c1",
    service="urn:orders",
    action="NewOrder",
    timestamp=NOW,
    hop=Hop("https://buyer.example", "https://next.example"),
)


def reliable(**cpa: str) -> Terms:
    """Timeout 10 seconds, then 2 retries with 20 seconds between, if not said otherwise."""
    usual = {"timeout": "10", "retries": "2", "retryInterval": "20"}
    given = {"deliverySemantics": "OnceAndOnlyOnce", **usual, **cpa}
    return agree(given, {}, timestamp=NOW)


# Answers


def answer(action: str = "Acknowledgment", by: str = "seller", **changes: Any) -> Message:
    return replace(
        ORDER,
        message_id="answer-1",
        from_party=by,
        to_party="buyer",
        service=SERVICE,
        action=action,
        ref_to_message_id="order-1",
        **changes,
    )


def error(code: ErrorCode, severity: Severity = Severity.ERROR, by: str = "seller") -> Message:
    return answer("MessageError", by, error=Error(code, "", severity))


def riding(code: ErrorCode, by: str) -> Message:
    """A warning on a message of an application."""
    return replace(error(code, Severity.WARNING, by), service="urn:orders", action="OrderResponse")


NEXT: Final = "https://next.example"
DIRECT: Final = reliable()
FAR: Final = reliable(hops="2")
ON_THE_WAY: Final = Acknowledgment(NOW, AckType.ACKNOWLEDGMENT)


@pytest.mark.parametrize(
    ("terms", "given", "word"),
    [
        (DIRECT, answer(), Word.ACKNOWLEDGED),
        (FAR, answer(), Word.ACKNOWLEDGED),
        (DIRECT, answer(acknowledgment=ON_THE_WAY), Word.ACKNOWLEDGED),
        (DIRECT, answer(by=NEXT), Word.ACKNOWLEDGED),
        (FAR, answer(by=NEXT), Word.TAKEN_OVER),
        (FAR, answer(by=NEXT, acknowledgment=Acknowledgment(NOW)), Word.ACKNOWLEDGED),
        (DIRECT, answer(by=NEXT, acknowledgment=ON_THE_WAY), Word.TAKEN_OVER),
        (DIRECT, answer(by="stranger"), Word.FOREIGN),
        (FAR, answer(by="stranger"), Word.FOREIGN),
        (DIRECT, error(ErrorCode.INCONSISTENT), Word.REFUSED),
        (DIRECT, error(ErrorCode.TIME_TO_LIVE_EXPIRED), Word.REFUSED),
        (DIRECT, error(ErrorCode.INCONSISTENT, by=NEXT), Word.REFUSED),
        (DIRECT, error(ErrorCode.INCONSISTENT, by="stranger"), Word.FOREIGN),
        (FAR, error(ErrorCode.DELIVERY_FAILURE, by="relay"), Word.REFUSED),
        (FAR, error(ErrorCode.DELIVERY_FAILURE, Severity.WARNING, "relay"), Word.DOUBTED),
        (DIRECT, error(ErrorCode.DELIVERY_FAILURE), Word.NOT_NOW),
        (DIRECT, error(ErrorCode.INCONSISTENT, Severity.WARNING), Word.NOTHING),
        (DIRECT, answer("MessageError"), Word.REFUSED),
        (DIRECT, riding(ErrorCode.DELIVERY_FAILURE, NEXT), Word.DOUBTED),
        (DIRECT, riding(ErrorCode.INCONSISTENT, "seller"), Word.ACKNOWLEDGED),
    ],
)
def test_what_an_answer_says_depends_on_what_it_is_and_whose(
    terms: Terms, given: Message, word: Word
) -> None:
    assert said(ORDER, terms, given) is word


# The notice


@pytest.mark.req(
    "RM000-1-01",
    "RM000-1.3.1.4-06",
    "RM000-1.4-01",
    "RM000-1.4-02",
    "RM000-1.4-03",
    "RM000-1.4-04",
    "RM000-1.4-05",
    "RM000-1.4-06",
    "RM000-1.4-08",
    "MS098-10.4-01",
    "MS098-10.4-02",
    "MS098-10.4-03",
    "MS098-10.4-04",
    "MS098-10.4-05",
    "MS098-10.4-07",
)
@pytest.mark.parametrize("stage", [Stage.FAILED, Stage.EXPIRED])
def test_what_could_not_be_transmitted_is_a_delivery_failure_of_severity_error(
    stage: Stage,
) -> None:
    assert notice(ORDER, reliable(), stage, "relay") == Signal(
        from_party="relay",
        to_party="buyer",
        conversation_id="c1",
        ref_to_message_id="order-1",
        service="uri:www.ebxml.org/messageService/",
        action="MessageError",
        delivery_semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE,
        error=Error(ErrorCode.DELIVERY_FAILURE, "it could not be sent", Severity.ERROR),
    )


@pytest.mark.req("RM000-1.4-07", "MS098-10.4-06", "MS098-10.4-07", "MS098-11.5-03")
def test_what_was_not_acknowledged_is_a_delivery_failure_of_severity_warning() -> None:
    found = notice(ORDER, reliable(), Stage.IN_DOUBT, "relay")
    assert found is not None
    assert found.error == Error(
        ErrorCode.DELIVERY_FAILURE, "it was not acknowledged", Severity.WARNING
    )
    assert (found.service, found.action) == (None, None)


@pytest.mark.parametrize("action", ["Acknowledgment", "MessageError"])
def test_nothing_is_said_about_the_loss_of_an_acknowledgment_or_an_error(action: str) -> None:
    assert notice(answer(action), reliable(), Stage.FAILED, "relay") is None


@pytest.mark.parametrize(
    "stage",
    [Stage.READY, Stage.WAITING, Stage.SENT, Stage.ACKNOWLEDGED, Stage.SUSPENDED, Stage.SETTLED],
)
def test_nothing_is_said_of_what_is_not_given_up(stage: Stage) -> None:
    assert notice(ORDER, reliable(), stage, "buyer") is None
