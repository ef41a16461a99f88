"""Partners that are paused or suspended, and what an operator does about it."""

from typing import Any

import httpx
import pytest

from postroad.node.service import Service
from postroad.reliability.breaker import Party
from tests.api.conftest import Serve
from tests.api.memory_service import MemoryService
from tests.api.site import Site
from tests.api.uploads import PATH, body, metadata, post
from tests.api.world import Faulty, World

PARTNERS = "/api/v1/partners"


def _listed(http: httpx.Client) -> list[dict[str, Any]]:
    partners: list[dict[str, Any]] = http.get(PARTNERS).json()["partners"]
    return partners


def test_who_is_well_is_not_listed(http: httpx.Client) -> None:
    assert http.get(PARTNERS).json() == {"partners": []}


def test_a_pause_is_told_with_its_reason_and_its_end(
    http: httpx.Client, site: Site, world: World
) -> None:
    site.run(world.pause("seller"))
    [partner] = _listed(http)
    assert (partner["name"], partner["gate"], partner["failures"]) == ("seller", "paused", 5)
    assert partner["since"] < partner["until"]
    assert partner["detail"]
    assert partner.pop("addresses") == []
    assert partner.keys() == {"name", "gate", "failures", "until", "since", "detail"}


def test_a_party_is_told_with_its_addresses(http: httpx.Client, site: Site, world: World) -> None:
    for address in ("http://b.example", "http://a.example"):
        site.run(world.pause("seller", address))
    [partner] = _listed(http)
    assert (partner["name"], partner["gate"]) == ("seller", "paused")
    told = [(one["address"], one["gate"], one["failures"]) for one in partner["addresses"]]
    assert told == [("http://a.example", "paused", 5), ("http://b.example", "paused", 5)]
    http.post(f"{PARTNERS}/seller/suspend", json={"reason": "they move house"})
    [partner] = _listed(http)
    assert (partner["gate"], partner["detail"]) == ("suspended", "they move house")
    assert len(partner["addresses"]) == 2
    assert http.post(f"{PARTNERS}/seller/resume").status_code == 200
    assert _listed(http) == []


def test_resuming_ends_a_pause(http: httpx.Client, site: Site, world: World) -> None:
    site.run(world.pause("seller"))
    answer = http.post(f"{PARTNERS}/seller/resume")
    assert (answer.status_code, answer.json()) == (200, {"partner": "seller", "messages": 0})
    assert _listed(http) == []


@pytest.mark.parametrize("name", ["seller", "nobody"])
def test_what_is_not_stopped_cannot_be_resumed(http: httpx.Client, name: str) -> None:
    answer = http.post(f"{PARTNERS}/{name}/resume")
    assert answer.status_code == 409
    assert name in answer.json()["detail"]


def test_resuming_twice_is_told(http: httpx.Client) -> None:
    http.post(f"{PARTNERS}/seller/suspend")
    assert http.post(f"{PARTNERS}/seller/resume").status_code == 200
    assert http.post(f"{PARTNERS}/seller/resume").status_code == 409


def test_suspending_is_noted_with_its_reason(http: httpx.Client) -> None:
    answer = http.post(f"{PARTNERS}/seller/suspend", json={"reason": "they move house"})
    assert answer.status_code == 200
    [partner] = _listed(http)
    assert answer.json() == partner
    assert (partner["gate"], partner["until"]) == ("suspended", None)
    assert partner["detail"] == "they move house"


def test_suspending_again_changes_nothing(http: httpx.Client) -> None:
    first = http.post(f"{PARTNERS}/seller/suspend", json={"reason": "one"})
    again = http.post(f"{PARTNERS}/seller/suspend", json={"reason": "two"})
    assert (again.status_code, again.json()) == (200, first.json())


def test_without_a_reason_it_is_told_who_suspended_it(http: httpx.Client) -> None:
    given: Any
    for given in (None, {}):
        answer = http.post(f"{PARTNERS}/seller/suspend", json=given)
        assert answer.json()["detail"] == "an operator suspended it"


def test_who_is_unknown_cannot_be_suspended(http: httpx.Client) -> None:
    answer = http.post(f"{PARTNERS}/nobody/suspend")
    assert answer.status_code == 404
    assert "nobody" in answer.json()["detail"]
    assert _listed(http) == []


@pytest.mark.parametrize(
    "given", [{"reason": ""}, {"reason": "two\nlines"}, {"reason": 1}, {"why": "x"}, []]
)
def test_a_wrong_reason_suspends_nobody(http: httpx.Client, given: Any) -> None:
    answer = http.post(f"{PARTNERS}/seller/suspend", json=given)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"].startswith("body")
    assert _listed(http) == []


@pytest.mark.parametrize(
    ("segment", "name"),
    [
        ("urn:example:a%2Fb", "urn:example:a/b"),
        ("urn%3Aexample%3Aa%2Fb", "urn:example:a/b"),
        ("iso::4711", "iso::4711"),
    ],
)
def test_a_name_is_one_segment_of_a_path(http: httpx.Client, segment: str, name: str) -> None:
    assert http.post(f"{PARTNERS}/{segment}/suspend").json()["name"] == name
    assert http.post(f"{PARTNERS}/{segment}/resume").json()["partner"] == name


@pytest.mark.parametrize("segment", ["a%00b", "a%0D%0Ab", "x" * 2000], ids=["nul", "crlf", "long"])
def test_a_name_that_cannot_be_is_refused(http: httpx.Client, segment: str) -> None:
    for rest in ("suspend", "resume"):
        answer = http.post(f"{PARTNERS}/{segment}/{rest}")
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["path"] == "path.partner"


def test_suspended_messages_go_on_when_their_partner_is_resumed(
    http: httpx.Client, site: Site, service: MemoryService
) -> None:
    post(http, body(metadata(message_id="m-1@x")))
    site.run(service.change(service.outgoing("m-1@x"), state="suspended"))
    assert http.get(f"{PATH}/m-1@x?wait=0.01").json()["state"] == "suspended"
    assert http.post(f"{PARTNERS}/seller/resume").json()["messages"] == 1
    assert http.get(f"{PATH}/m-1@x").json()["state"] == "ready"


def test_a_reason_from_a_stranger_stays_text(
    http: httpx.Client, serve: Serve, service: Service
) -> None:
    async def partners() -> list[Party]:
        return [Party("a", failures=1, detail='<script>"\x1b[2J')]

    serve(Faulty(service, partners=partners))
    assert _listed(http)[0]["detail"] == '<script>"\x1b[2J'
