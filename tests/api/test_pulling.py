"""Pulling through the interface: how many, which, and what is told of it."""

from typing import Any

import httpx
import pytest

from postroad.api.client import Pulled, PulledMessage
from postroad.wire.ebms3 import AgreementRef, Party, PartyId, Property, Selection, Service
from tests.api.conftest import Connect
from tests.api.memory_service import ORDERS, MemoryService

PULL = f"/api/v1/admin/pmodes/{ORDERS.id}/pull"


def test_one_message_is_pulled_unless_more_are_wanted(
    http: httpx.Client, service: MemoryService
) -> None:
    service.to_pull = ["a@x", "b@x", "c@x"]
    first = http.post(PULL).json()
    assert [one["message_id"] for one in first["messages"]] == ["a@x"]
    assert first["messages"][0]["state"] == "delivered"
    assert (first["pmode"], first["channel"], first["detail"]) == (ORDERS.id, "urn:mpc", None)
    rest = http.post(PULL, params={"most": 10}).json()
    assert [one["message_id"] for one in rest["messages"]] == ["b@x", "c@x"]
    assert service.pulls == [(None, 1), (None, 10)]


def test_what_went_wrong_is_told_beside_what_came(
    http: httpx.Client, service: MemoryService
) -> None:
    service.trouble = "nobody answers"
    answer = http.post(PULL)
    assert (answer.status_code, answer.json()["detail"]) == (200, "nobody answers")


def test_every_selection_item_is_taken(http: httpx.Client, service: MemoryService) -> None:
    typed = {"value": "v", "type": "t"}
    body = {
        "ref_to_message_id": "r@x",
        "agreement": typed | {"pmode": "p"},
        "service": typed,
        "action": "a",
        "from_party": {"party": [typed], "role": "r"},
        "to_party": {"role": "s"},
        "properties": [{"name": "n", "value": "v"}, {"name": "n", "value": "v", "type": "t"}],
    }
    assert http.post(PULL, json=body).status_code == 200
    assert service.pulls == [
        (
            Selection(
                ref_to_message_id="r@x",
                agreement_ref=AgreementRef("v", "t", "p"),
                service=Service("v", "t"),
                action="a",
                from_party=Party((PartyId("v", "t"),), "r"),
                to_party=Party((), "s"),
                properties=(Property("n", "v"), Property("n", "v", "t")),
            ),
            1,
        )
    ]


@pytest.mark.parametrize(
    ("body", "params"),
    [
        ({"colour": "red"}, {}),
        ({"service": "s"}, {}),
        ({"properties": [{"name": "n"}]}, {}),
        ({"action": ""}, {}),
        ({}, {"most": 0}),
        ({}, {"most": 1001}),
    ],
)
def test_what_is_not_understood_is_refused(
    http: httpx.Client, service: MemoryService, body: dict[str, Any], params: dict[str, int]
) -> None:
    answer = http.post(PULL, json=body, params=params)
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert service.pulls == []


def test_there_must_be_such_a_pmode(http: httpx.Client) -> None:
    answer = http.post("/api/v1/admin/pmodes/unheard/pull")
    assert (answer.status_code, "unheard" in answer.json()["detail"]) == (404, True)


def test_the_client_pulls_too(connect: Connect, service: MemoryService) -> None:
    service.to_pull = ["a@x"]
    told = connect().pull(ORDERS.id, most=5, conversation_id="talk")
    came = (PulledMessage("a@x", "delivered", None),)
    assert told == Pulled(ORDERS.id, "urn:mpc", "http://seller.example/msh", came, None)
    assert service.pulls == [(Selection(conversation_id="talk"), 5)]
