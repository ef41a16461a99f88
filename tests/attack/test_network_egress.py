"""Addresses that arrive in messages: a node contacts nobody because a stranger says so.

Real nodes on real sockets. A message of the buyer's is captured on its way, and then sent to the
seller once more by somebody else, with another address of the sender in its unsigned TraceHeader.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.ebxml_nodes import (
    HOST,
    PATIENCE,
    Company,
    Line,
    Running,
    make_keys,
    run,
    running,
    speaks,
)

RELIABLY: Final[dict[str, Any]] = {
    "delivery_semantics": "OnceAndOnlyOnce",
    "ack_requested": "UnSigned",
}
M: Final = "order-1@buyer.example"


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    """These tests need sockets: they look at who is called."""


class Victim:
    """A service inside the network that records whatever is posted to it."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heard.append(head.partition(b"\r\n")[0])
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        async with await asyncio.start_server(self._serve, HOST, 0) as server:
            yield server.sockets[0].getsockname()[1]


def counted(running: Running, by: str) -> int:
    """The callbacks that a node refused, as its metrics tell."""
    sample = f'postroad_callbacks_refused_total{{by="{by}"}}'
    return running.node.node.context.counters[sample]


async def post(port: int, request: bytes) -> bytes:
    """Send captured bytes once more; the answer."""
    reader, writer = await asyncio.open_connection(HOST, port)
    head, _, body = request.partition(b"\r\n\r\n")
    head = re.sub(rb"(?i)content-length: \d+", b"Content-Length: %d" % len(body), head)
    writer.write(head + b"\r\nConnection: close\r\n\r\n" + body)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


def sent_from(request: bytes, address: str, message_id: str = M) -> bytes:
    """A captured message with another address of its sender, and another id."""
    changed, count = re.subn(
        rb"(<eb:SenderURI>|<eb:Sender>.*?<eb:Location>)[^<]+",
        lambda found: found[1] + address.encode(),
        request,
        flags=re.DOTALL,
    )
    assert count == 1
    return changed.replace(M.encode(), message_id.encode())


class Scene:
    """Buyer and seller running, a message that came, and its bytes."""

    def __init__(self, buyer: Running, seller: Running, captured: bytes) -> None:
        self.buyer = buyer
        self.seller = seller
        self._captured = captured

    async def replay(self, address: str, message_id: str = M) -> bytes:
        """Send the message once more, from an attacker, with another address and id."""
        changed = sent_from(self._captured, address, message_id)
        return await post(self.seller.company.http, changed)

    async def told(self, event: str, count: int) -> list[Any]:
        """So many events of the seller, as soon as they are there."""
        async with asyncio.timeout(PATIENCE):
            while len(found := await self.seller.journal(event)) < count:
                await asyncio.sleep(0.02)
        return found


@asynccontextmanager
async def scene(
    folder: Path,
    *,
    signed: bool = False,
    version: str = "0.98b",
    answers: bool = True,
    **egress: Any,
) -> AsyncIterator[Scene]:
    """Both companies agree on orders; with `answers` the seller knows the buyer's address too."""
    buyer, seller = Company("buyer", folder / "buyer"), Company("seller", folder / "seller")
    if signed:
        make_keys(buyer, seller)
    seller.settings["security"] = {"egress": egress}
    async with AsyncExitStack() as stack:
        line = await stack.enter_async_context(Line(seller.http))
        there = f"http://{HOST}:{line.port}/msh"
        both, terms = (buyer, seller), RELIABLY | {"version": version}
        speaks(both, "orders", buyer, seller, there, signed=signed, **terms)
        if answers:
            speaks(both, "answers", seller, buyer, buyer.url, signed=signed, **terms)
        first, second = await stack.enter_async_context(running(buyer, seller))
        await first.client.send(pmode="orders", payloads=[b"<order/>"], message_id=M)
        if answers:
            await first.comes_to(M, "acknowledged")
        else:
            while not await second.inbox():
                await asyncio.sleep(0.02)
        yield Scene(first, second, line.talks[0].up)


async def story(node: Running, message_id: str) -> list[Any]:
    return [one.event for one in await node.node.node.events(message_id)]


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("version", ["0.98b", "1.0"])
def test_a_replayed_message_with_another_address_is_answered_where_the_first_was(
    tmp_path: Path, version: str, signed: bool
) -> None:
    async def scenario() -> None:
        victim = Victim()
        async with (
            victim.listening() as port,
            scene(tmp_path, signed=signed, version=version) as place,
        ):
            await place.replay(f"http://{HOST}:{port}/")
            acked = await place.told("acked", 2)
            assert {one.peer for one in acked} == {place.buyer.company.url}
            assert victim.heard == []
            assert await place.seller.inbox() == [M]

    run(scenario())


def test_a_stranger_cannot_make_the_node_post_to_an_address_of_his_choice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each message is taken, and its acknowledgment goes to the address of the agreement."""

    async def scenario() -> None:
        victim = Victim()
        async with victim.listening() as port, scene(tmp_path) as place:
            foreign = [
                f"http://localhost:{port}/",
                f"http://2130706433:{port}/",
                f"http://[::ffff:127.0.0.1]:{port}/",
                f"http://{HOST}@localhost:{port}/",
                "http://169.254.169.254/latest/meta-data/",
                "http://buyer.example.evil.example/msh",
            ]
            own = place.seller.company.http
            of_agreed_host = [
                f"http://{HOST}:{port}/admin",
                f"http://{HOST}:{own}/api/v1/inbox/ack?through=1000",
            ]
            for number, address in enumerate((*foreign, *of_agreed_host)):
                name = f"evil-{number}@buyer.example"
                with caplog.at_level(logging.WARNING):
                    await place.replay(address, name)
                events = await story(place.seller, name)
                assert "delivered" in [one.event for one in events]
                said = [one.detail for one in events if one.event == "error_raised"]
                assert len(said) == (address in foreign)
                if address in foreign:
                    assert said[0].startswith(f"callback refused: the message names {address} ")
                    assert address in caplog.records[-1].__dict__["peer"]
            assert counted(place.seller, "host") == len(foreign)
            count = len(foreign) + len(of_agreed_host) + 1
            acked = await place.told("acked", count)
            assert {one.peer for one in acked} == {place.buyer.company.url}
            assert victim.heard == []
            assert len(await place.seller.inbox()) == count

    run(scenario())


def test_a_host_that_is_allowed_by_name_is_refused_for_the_address_that_it_resolves_to(
    tmp_path: Path,
) -> None:
    """The message is delivered all the same; the journal tells what was not sent, and why."""

    async def scenario() -> None:
        victim = Victim()
        hosts = ["localhost", HOST, "2130706433", "0", "127.1"]
        place_of = scene(tmp_path, answers=False, callback_hosts=hosts)
        async with victim.listening() as port, place_of as place:
            [first, *_] = await place.told("error_raised", 1)
            assert first.message_id == M
            assert first.peer == place.buyer.company.url
            for number, host in enumerate(hosts):
                name = f"evil-{number}@buyer.example"
                await place.replay(f"http://{host}:{port}/", name)
                events = await place.told("error_raised", number + 2)
                [said] = [one for one in events if one.message_id == name]
                assert said.error_code == "EBMS:0005"
                assert "callback refused by the egress policy" in said.detail
                assert "security.egress.callback_networks" in said.detail
            assert counted(place.seller, "network") == len(hosts) + 1
            assert victim.heard == []
            assert len(await place.seller.inbox()) == 6

    run(scenario())


def test_callbacks_to_a_network_that_is_configured_never_reach_the_node_itself(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        victim = Victim()
        allowed: dict[str, Any] = {"callback_hosts": [HOST], "callback_networks": "127.0.0.0/8"}
        place_of = scene(tmp_path, answers=False, **allowed)
        async with victim.listening() as port, place_of as place:
            await place.buyer.comes_to(M, "acknowledged")
            await place.replay(f"http://{HOST}:{port}/answers", "a@buyer.example")
            await place.told("acked", 2)
            assert victim.heard == [b"POST /answers HTTP/1.1"]
            company = place.seller.company
            for number, port in enumerate((company.http, company.smtp)):
                inbox = f"http://{HOST}:{port}/api/v1/inbox/ack?through=1000"
                await place.replay(inbox, f"b-{number}@buyer.example")
                [*_, said] = await place.told("error_raised", number + 1)
                assert "is a listener of this node itself" in said.detail
            assert len(await place.seller.inbox()) == 4

    run(scenario())


def test_a_pmode_and_a_webhook_cannot_reach_the_nodes_own_rest_interface(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even by a mistake of the operator: messages would be posted to the node's own inbox."""

    async def scenario() -> None:
        one = Company("buyer", tmp_path / "buyer")
        own = f"http://localhost:{one.http}/api/v1"
        one.settings["webhook"] = {"url": f"{own}/messages", "attempts": 1}
        speaks([one], "orders", one, Company("seller", tmp_path), f"{own}/inbox/ack", version="2.0")
        async with running(one) as [node]:
            await node.client.send(pmode="orders", payloads=[b"<order/>"], message_id=M)
            found = await node.client.wait(M, timeout=PATIENCE)
            assert found.state == "failed"
            assert "is the REST interface of this node itself" in (found.detail or "")
            async with asyncio.timeout(PATIENCE):
                while "given up telling of failed" not in caplog.text:
                    await asyncio.sleep(0.02)
            [given_up] = [one for one in caplog.records if one.levelname == "ERROR"]
            assert "is the REST interface of this node itself" in given_up.__dict__["detail"]

    run(scenario())
