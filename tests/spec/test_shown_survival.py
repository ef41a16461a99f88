"""What a node keeps and goes on with when its process is killed, and when answers come late."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from postroad.api.client import Client
from postroad.api.running import RunningNode
from postroad.node.settings.config import load_config
from tests.as4.bench import Answer, Listener, Loop, post
from tests.as4.reading import read
from tests.e2e.nodes import PATIENCE, Served, make_pair

ORDER: Final = b"<order>paper</order>"
HELD: Final = "held"
"""Stands in the ids of messages whose answers the road keeps back."""


@dataclass(frozen=True)
class Passed:
    content_type: str
    body: bytes
    answer: Answer


class Road(Listener):
    """The way to a node: passes everything on, and keeps some answers back."""

    def __init__(self) -> None:
        super().__init__(self._pass_on)
        self.target = ""
        self._http = httpx.AsyncClient(trust_env=False, timeout=PATIENCE)
        self._passed: list[Passed] = []
        self._changed = threading.Condition()
        self._ends = asyncio.Event()

    async def _pass_on(self, fields: dict[str, str], body: bytes) -> Answer:
        kind = fields["content-type"]
        answer = await post(self._http, self.target, kind, body)
        with self._changed:
            self._passed.append(Passed(kind, body, answer))
            self._changed.notify_all()
        if HELD.encode() in body:
            await self._ends.wait()
        return answer

    def about(self, message_id: str, count: int = 1) -> list[Passed]:
        """What passed with this id, once it is so much."""

        def found() -> list[Passed]:
            return [one for one in self._passed if message_id.encode() in one.body]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, PATIENCE), message_id
            return found()

    async def post(self, one: Answer | Passed) -> Answer:
        """Something that was seen on a road comes again, or another way."""
        return await post(self._http, self.target, one.content_type, one.body)

    async def stop(self) -> None:
        self._ends.set()
        await super().stop()
        await self._http.aclose()


@dataclass
class Route:
    """A buyer that can be killed, a seller that has little patience, and the roads to them."""

    loop: Loop
    buyer: Served
    seller: Client
    to_buyer: Road
    to_seller: Road


def change(file: Path, **more: Any) -> dict[str, Any]:
    text: dict[str, Any] = yaml.safe_load(file.read_text()) | more
    file.write_text(yaml.safe_dump(text))
    return text


def by_road(node: Served, partner: str, road: Road) -> None:
    """Let the messages of a node take the road."""
    for file in (node.folder / "pmodes").glob(f"{node.name}-to-{partner}-*"):
        [leg] = yaml.safe_load(file.read_text())["legs"]
        road.target = leg["protocol"]["address"]
        leg["protocol"]["address"] = f"http://127.0.0.1:{road.port}/msh"
        del leg["reception_awareness"]
        change(file, legs=[leg])


@pytest.fixture(scope="module")
def route(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Route]:
    pair, loop, stack = make_pair(tmp_path_factory.mktemp("survival")), Loop(), AsyncExitStack()
    buyer, seller = pair.buyer, pair.seller
    roads = Road(), Road()
    try:
        for road in roads:
            loop.run(road.start())
            stack.push_async_callback(road.stop)
        by_road(seller, buyer.name, roads[0])
        by_road(buyer, seller.name, roads[1])
        buyer.begin()
        change(seller.config, http={"answer_timeout": "PT0.2S"})
        running = RunningNode(load_config(seller.config))
        loop.run(stack.enter_async_context(running))
        buyer.ready()
        token = (seller.folder / "keys" / "api.token").read_text().strip()
        with Client(running.serving.api_url or "", token=token) as client:
            yield Route(loop, buyer, client, *roads)
    finally:
        pair.end()
        loop.run(stack.aclose())
        loop.close()


@pytest.mark.req(
    "OV004-1-01",
    "OV004-1-02",
    "RM000-1.1-01",
    "RM000-1.1-04",
    "RM000-1.1-05",
    "RM000-1.1-07",
    "RM000-1.3.1-02",
    "RM000-1.3.1.1-03",
    "RM000-1.3.1.1-04",
    "RM000-1.3.1.2-02",
    "RM000-1.3.1.2-03",
    "MS098-10.1.1-01",
    "MS098-10.1.1-04",
    "MS098-10.1.1-05",
    "MS098-10.1.1-07",
    "MS098-10.3.1.1-02",
    "MS098-10.3.1.1-03",
    "MS098-10.3.1.2-04",
    "MS098-10.3.1.2-05",
)
def test_a_killed_node_has_what_it_took_over_and_goes_on_with_it(route: Route) -> None:
    buyer = route.buyer
    got, given = "order@seller", f"order-{HELD}@buyer"
    route.seller.send(pmode="seller-to-buyer-order", payloads=[ORDER], message_id=got)
    [receipted] = route.to_buyer.about(got)
    with buyer.client() as client:
        client.send(pmode="buyer-to-seller-order", payloads=[ORDER], message_id=given)
    [sent] = route.to_seller.about(given)
    assert buyer.end(signal.SIGKILL) == -signal.SIGKILL

    receipt = read(receipted.answer.content_type, receipted.answer.body)
    assert receipt.text("//eb:SignalMessage[eb:Receipt]/eb:MessageInfo/eb:RefToMessageId") == got
    buyer.start()
    resent = route.to_seller.about(given, 2)[1]
    assert (resent.content_type, resent.body) == (sent.content_type, sent.body)
    with buyer.client() as client:
        assert route.loop.run(route.to_buyer.post(sent.answer)).status == 202
        assert client.wait(given, PATIENCE).state == "acknowledged"
        assert client.part(got) == ORDER
        [received] = [one for one in client.events(got) if one.event == "received"]
        assert client.received(got).created_at == received.at
        again = route.loop.run(route.to_buyer.post(receipted))
        assert (again.status, again.body) == (200, receipted.answer.body)
        assert [one.event for one in client.events(got)].count("delivered") == 1
    assert [one.event for one in route.seller.events(given)].count("delivered") == 1


@pytest.mark.req("OV004-2-01", "OV004-2-04")
def test_a_receipt_that_comes_after_the_configured_time_is_taken(route: Route) -> None:
    message_id = f"{HELD}-for-long@seller"
    route.seller.send(pmode="seller-to-buyer-order", payloads=[ORDER], message_id=message_id)
    [passed] = route.to_buyer.about(message_id)
    assert route.seller.wait(message_id, PATIENCE / 3).state == "in_doubt"
    assert route.loop.run(route.to_seller.post(passed.answer)).status == 202
    assert route.seller.status(message_id).state == "settled"
