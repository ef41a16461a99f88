"""The walk in, step by step: what is for us, in whose tongue we answer, what the times say."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree

from postroad.node.walks.receiving import Receiver, Request, Response
from postroad.store.memory import open_memory
from postroad.store.records import Message, Side, State
from postroad.wire.names import WSU
from tests import pki
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


@pytest.mark.parametrize(
    ("shown", "taken"),
    [(None, False), ("stranger", False), ("seller", True)],
    ids=["nothing shown", "another certificate", "the agreed certificate"],
)
@pytest.mark.parametrize("named", ["certificate", "anchor_certificates"])
def test_who_connects_is_held_against_the_transport_security_of_the_pmode(
    tmp_path: Path, named: str, shown: str | None, taken: bool
) -> None:
    """The certificate itself is agreed, or the authority that issued it."""

    async def scenario() -> None:
        make_parties(tmp_path)
        certificate = tmp_path / SELLER / "keys" / "seller.pem"
        pmode = tmp_path / SELLER / "pmodes" / "buyer-to-seller-plain.yaml"
        text = pmode.read_text()
        line = next(line for line in text.splitlines() if line.strip().startswith("address:"))
        inside = " " * (len(line) - len(line.lstrip()))
        value = f"../keys/{'authority' if named == 'anchor_certificates' else 'seller'}.pem"
        client = f"{inside}security: {{protocol: TLS, client: {{{named}: {value}}}}}"
        secure = line.replace("http://", "https://")
        pmode.write_text(text.replace(line, f"{secure}\n{client}"))
        stores = {name: await open_memory(tmp_path, name) for name in (BUYER, SELLER)}
        exchange = Exchange(tmp_path, stores)
        message = await exchange.send("m@buyer.example", ("text/plain", b"hello"), kind="plain")
        kind, body = exchange.wire(message)
        der = None
        if shown is not None:
            der = _stranger() if shown == "stranger" else _der(certificate.read_bytes())
        request = Request(kind, "127.0.0.1", _pieces(body), der)
        await Receiver(exchange.contexts[SELLER]).receive(request)
        assert (await _kept(exchange, message) is State.DELIVERED) is taken

    run(scenario())


def _der(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def _stranger() -> bytes:
    return pki.issue(pki.authority("Strangers"), "buyer").certificate.public_bytes(Encoding.DER)
