"""The interface with a real node behind it, on time that is made up: partners, doubt, notices."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httpx
import pytest

from postroad.api.app import create_app
from postroad.node.service import Refused, Service
from postroad.store.records import State
from tests.node.reliable import BUYER, SELLER, Station, World, lost, party, played, refused

API: Final = "/api/v1"
M: Final = "m@buyer"
TOKEN: Final = "a-token-of-the-tests"
RETRY: Final = {"max_retries": 3, "period": "PT10S"}


@asynccontextmanager
async def asked(station: Station) -> AsyncIterator[httpx.AsyncClient]:
    """A node, asked over REST."""
    service: Service = station.node
    transport = httpx.ASGITransport(create_app(service, token=TOKEN))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as http:
        yield http


@played
async def test_nothing_is_sent_to_a_partner_that_is_suspended(world: World) -> None:
    world.agree(retry=RETRY)
    buyer, _ = await world.both()
    async with asked(buyer) as http:
        suspended = await http.post(
            f"{API}/partners/{party(SELLER)}/suspend", json={"reason": "moving house"}
        )
        assert (suspended.json()["gate"], suspended.json()["detail"]) == (
            "suspended",
            "moving house",
        )
        await buyer.send(M)
        await world.wait(3600)
        assert world.wire.to(SELLER) == []
        [partner] = (await http.get(f"{API}/partners")).json()["partners"]
        assert partner == suspended.json()
        resumed = await http.post(f"{API}/partners/{party(SELLER)}/resume")
        assert resumed.json() == {"partner": party(SELLER), "messages": 0}
        await world.wait(5)
        told = (await http.get(f"{API}/messages/{M}")).json()
        assert (told["state"], told["attempts"]) == ("acknowledged", 1)
        assert (await http.get(f"{API}/partners")).json() == {"partners": []}
    assert [one.event for one in await buyer.journal("suspended", "resumed")] == [
        "suspended",
        "resumed",
    ]


@played
async def test_suspending_again_changes_nothing(world: World) -> None:
    world.agree()
    buyer = await world.start(BUYER)
    first = await buyer.node.suspend(party(SELLER), "one")
    assert await buyer.node.suspend(party(SELLER), "two") == first
    assert len(await buyer.journal("suspended")) == 1


@pytest.mark.parametrize("name", ["nobody", BUYER])
@played
async def test_only_those_to_whom_something_is_sent_are_suspended(world: World, name: str) -> None:
    world.agree()
    buyer = await world.start(BUYER)
    with pytest.raises(Refused) as refusal:
        await buyer.node.suspend(party(name), "why not")
    assert refusal.value.status == 404
    assert await buyer.node.partners() == []


@played
async def test_a_pause_ends_when_an_operator_resumes(world: World) -> None:
    world.agree(retry={"max_retries": 20, "period": "PT1S"})
    world.wire.will(*[refused] * 5)
    buyer, _ = await world.both()
    async with asked(buyer) as http:
        await buyer.send(M)
        await world.until(10)
        [partner] = (await http.get(f"{API}/partners")).json()["partners"]
        assert (partner["gate"], partner["failures"]) == ("paused", 5)
        metrics = (await http.get("/metrics")).text.splitlines()
        assert 'postroad_stopped_partners{gate="paused"} 1' in metrics
        assert any(one.startswith("postroad_oldest_message_timestamp") for one in metrics)
        assert 'postroad_send_attempts_total{outcome="ready",pmode="orders"} 5' in metrics
        ready = await http.get("/readyz", headers={"Authorization": ""})
        assert (ready.status_code, len(ready.json()["problems"])) == (200, 1)
        status = (await http.get(f"{API}/admin/status")).json()
        [seller] = [one for one in status["partners"] if one["name"] == party(SELLER)]
        assert (seller["gate"], seller["failures"], seller["queue"]) == ("paused", 5, 1)
        assert status["oldest_waiting"]["message_id"] == M
        assert status["oldest_waiting"]["seconds"] == pytest.approx(10, abs=1)
        assert (await http.post(f"{API}/partners/{party(SELLER)}/resume")).status_code == 200
        await world.wait(2)
        assert await buyer.state(M) is State.ACKNOWLEDGED
        again = await http.post(f"{API}/partners/{party(SELLER)}/resume")
        assert again.status_code == 409


@pytest.mark.req("OV004-1-14", "OV004-2-07")
@played
async def test_doubt_is_told_and_ended(world: World) -> None:
    world.agree(retry=RETRY)
    world.wire.will(*[lost] * 4)
    buyer, _ = await world.both()
    async with asked(buyer) as http:
        await buyer.send(M)
        await world.until(1)
        waits = (await http.get(f"{API}/messages/{M}")).json()
        assert (waits["state"], waits["tries"], waits["unanswered"]) == ("waiting", 1, 1)
        assert waits["last_sent_at"] < waits["due_at"] < waits["decided_by"]
        early = await http.post(f"{API}/messages/{M}/settle", json={"answer": "delivered"})
        assert early.status_code == 409
        await world.until(100)
        doubtful = (await http.get(f"{API}/messages/{M}")).json()
        assert (doubtful["state"], doubtful["severity"]) == ("in_doubt", "Warning")
        [notice] = (await http.get(f"{API}/inbox/notices")).json()["notices"]
        assert (notice["message_id"], notice["severity"]) == (M, "Warning")
        settled = await http.post(f"{API}/messages/{M}/settle", json={"answer": "not_received"})
        assert (settled.json()["state"], settled.json()["detail"]) == ("settled", "not_received")
        for status in (204, 404):
            known = await http.post(f"{API}/inbox/notices/{notice['id']}/ack")
            assert known.status_code == status
        [late] = (await http.get(f"{API}/inbox/notices")).json()["notices"]
        assert (late["event"], late["detail"]) == ("settled", "not_received")
