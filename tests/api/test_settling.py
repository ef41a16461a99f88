"""How an outgoing message stands while it waits, and how doubt about it ends."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from postroad.reliability.delivery import KINDS
from postroad.store.records import State
from tests.api.memory_service import MemoryService
from tests.api.site import Site
from tests.api.uploads import PATH, body, metadata, post
from tests.api.world import Given, World

ANSWERS = ["delivered", "received", "not_received"]


@pytest.fixture
def sent(http: httpx.Client) -> str:
    assert post(http, body(metadata(message_id="m-1@x"))).status_code == 202
    return f"{PATH}/m-1@x"


def test_a_message_tells_when_it_is_tried_again_and_decided(
    http: httpx.Client, site: Site, service: MemoryService, sent: str
) -> None:
    now = datetime(2026, 6, 1, 12, tzinfo=UTC)
    site.run(
        service.change(
            service.outgoing("m-1@x"),
            state=State.WAITING,
            attempts=5,
            tries=2,
            unanswered=1,
            first_sent_at=now,
            last_sent_at=now + timedelta(minutes=1),
            due_at=now + timedelta(minutes=2),
            decided_by=now + timedelta(minutes=9),
        )
    )
    told = http.get(sent).json()
    assert (told["attempts"], told["tries"], told["unanswered"]) == (5, 2, 1)
    assert told["first_sent_at"] == "2026-06-01T12:00:00Z"
    assert told["last_sent_at"] == "2026-06-01T12:01:00Z"
    assert told["due_at"] == "2026-06-01T12:02:00Z"
    assert told["decided_by"] == "2026-06-01T12:09:00Z"


@pytest.mark.parametrize("state", list(State))
def test_a_failure_tells_which_kind_it_is(
    http: httpx.Client, site: Site, service: MemoryService, sent: str, state: State
) -> None:
    site.run(service.change(service.outgoing("m-1@x"), state=state))
    kinds = {stage.value: kind for stage, kind in KINDS.items()}
    assert http.get(sent).json()["severity"] == kinds.get(state.value)
    listed = http.get(PATH, params={"state": state.value}).json()["messages"]
    assert [one["message_id"] for one in listed] == ["m-1@x"]


@pytest.mark.parametrize("answer", ANSWERS)
def test_doubt_ends_with_an_answer(
    http: httpx.Client, site: Site, world: World, sent: str, answer: str
) -> None:
    site.run(world.doubt("m-1@x"))
    settled = http.post(f"{sent}/settle", json={"answer": answer, "who": "urn:example:seller"})
    assert settled.status_code == 200
    assert (settled.json()["state"], settled.json()["detail"]) == ("settled", answer)
    assert settled.json()["severity"] is None
    event = http.get(f"{sent}/events").json()["events"][-1]
    assert (event["event"], event["detail"]) == ("settled", answer)
    assert event["peer"] == "urn:example:seller"


def test_without_a_name_it_is_the_operator_who_says_so(
    http: httpx.Client, site: Site, world: World, sent: str
) -> None:
    site.run(world.fail("m-1@x"))
    assert http.post(f"{sent}/settle", json={"answer": "delivered"}).status_code == 200
    assert http.get(f"{sent}/events").json()["events"][-1]["peer"] == "operator"


def test_an_answer_may_be_corrected(
    http: httpx.Client, site: Site, world: World, sent: str
) -> None:
    site.run(world.doubt("m-1@x"))
    for answer in ("received", "received", "delivered"):
        told = http.post(f"{sent}/settle", json={"answer": answer})
        assert (told.status_code, told.json()["detail"]) == (200, answer)


def test_what_is_not_in_question_is_not_settled(
    http: httpx.Client, site: Site, world: World, sent: str
) -> None:
    assert http.post(f"{sent}/settle", json={"answer": "delivered"}).status_code == 409
    site.run(world.acknowledge("m-1@x"))
    answer = http.post(f"{sent}/settle", json={"answer": "not_received"})
    assert answer.status_code == 409
    assert "acknowledged" in answer.json()["detail"]
    assert http.get(sent).json()["state"] == "acknowledged"


def test_only_what_was_sent_is_settled(http: httpx.Client, site: Site, world: World) -> None:
    received = site.run(world.deliver([Given(b"1")]))
    for name in (received, "nobody@x"):
        answer = http.post(f"{PATH}/{name}/settle", json={"answer": "delivered"})
        assert answer.status_code == 404
        assert name in answer.json()["detail"]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"answer": "maybe"}, "body.answer"),
        ({"answer": "Delivered"}, "body.answer"),
        ({"answer": None}, "body.answer"),
        ({}, "body.answer"),
        ({"answer": "delivered", "who": ""}, "body.who"),
        ({"answer": "delivered", "who": "a\nb"}, "body.who"),
        ({"answer": "delivered", "by": "x"}, "body.by"),
        ([], "body"),
        (None, "body"),
    ],
)
def test_a_wrong_answer_settles_nothing(
    http: httpx.Client, site: Site, world: World, sent: str, given: Any, path: str
) -> None:
    site.run(world.doubt("m-1@x"))
    answer = http.post(f"{sent}/settle", json=given)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == path
    assert http.get(sent).json()["state"] == "in_doubt"


@pytest.mark.parametrize(
    ("state", "then"),
    [
        (State.FAILED, "ready"),
        (State.IN_DOUBT, "waiting"),
        (State.WAITING, "waiting"),
    ],
)
def test_what_was_given_up_is_begun_anew(
    http: httpx.Client, site: Site, service: MemoryService, sent: str, state: State, then: str
) -> None:
    site.run(service.change(service.outgoing("m-1@x"), state=state, tries=11))
    again = http.post(f"{sent}/resend")
    assert again.status_code == 202
    assert (again.json()["state"], again.json()["tries"]) == (then, 0)
