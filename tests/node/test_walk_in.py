"""The walk in, step by step: what is for us, in whose tongue we answer, what the times say."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from lxml import etree

from postroad.node.receiving import Receiver, Request, Response
from postroad.store.memory import open_memory
from postroad.store.records import Message, Side, State
from postroad.wire.names import WSU
from tests.node.exchange import BUYER, SELLER, Exchange, make_parties, run


async def _exchange(folder: Path) -> Exchange:
    make_parties(folder)
    stores = {name: await open_memory(folder, name) for name in (BUYER, SELLER)}
    return Exchange(folder, stores)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _receive(exchange: Exchange, content_type: str, body: bytes) -> Response:
    request = Request(content_type, "127.0.0.1", _pieces(body))
    return await Receiver(exchange.contexts[SELLER]).receive(request)


async def _kept(exchange: Exchange, message: Message) -> State | None:
    found = await exchange.stores[SELLER].look(
        lambda reader: reader.message(Side.RECEIVING, message.message_id)
    )
    return found.state if found else None


@pytest.mark.parametrize(
    ("role", "ours"),
    [
        ("urn:someone:else", False),
        ("http://www.w3.org/2003/05/soap-envelope/role/none", False),
        ("http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver", True),
    ],
)
def test_a_header_for_somebody_else_is_not_processed(tmp_path: Path, role: str, ours: bool) -> None:
    async def scenario() -> None:
        exchange = await _exchange(tmp_path)
        message = await exchange.send("m@buyer.example", ("text/plain", b"hello"), kind="plain")
        kind, body = exchange.wire(message)
        aimed = body.replace(
            b' S12:mustUnderstand="true"',
            b' S12:mustUnderstand="true" S12:role="%b"' % role.encode(),
        )
        assert aimed != body
        response = await _receive(exchange, kind, aimed)
        assert (await _kept(exchange, message) is State.DELIVERED) is ours
        assert (b"EBMS:0009" in response.body) is not ours

    run(scenario())


@pytest.mark.parametrize(
    ("content_type", "namespace"),
    [
        ("text/xml", b"http://schemas.xmlsoap.org/soap/envelope/"),
        ("application/soap+xml", b"http://www.w3.org/2003/05/soap-envelope"),
    ],
)
def test_what_cannot_be_read_is_answered_in_the_tongue_it_came_in(
    tmp_path: Path, content_type: str, namespace: bytes
) -> None:
    async def scenario() -> None:
        exchange = await _exchange(tmp_path)
        response = await _receive(exchange, content_type, b"<half")
        assert response.status == 400
        assert response.content_type is not None
        assert response.content_type.startswith(content_type)
        assert namespace in response.body

    run(scenario())


@pytest.mark.req("P2-3.2.1-09")
def test_a_message_is_secured_after_its_units_were_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        exchange = await _exchange(tmp_path)
        message = await exchange.send("m@buyer.example", ("text/plain", b"hello"))
        response = await exchange.receive(message)
        assert message.envelope is not None
        store = exchange.stores[BUYER]
        for envelope in (b"".join(store.content(message.envelope).chunks()), response.body):
            root = etree.fromstring(envelope)
            [created] = root.iter(f"{{{WSU}}}Created")
            units = [one.text for one in root.iter("{*}Timestamp") if one.text]
            assert units
            assert all((created.text or "") > unit for unit in units)

    run(scenario())
