"""eDelivery Common Profile, AS4_CP_TA39 to TA43, between whole nodes over TLS."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from postroad.api.client import Payload, SentMessage
from postroad.api.running import RunningNode, listen
from postroad.node.first_steps.initializing import Plan, Station, initialize
from postroad.node.settings.config import load_config
from tests import pki
from tests.as4.bench import C2, C3, PATIENCE, Corner, Loop
from tests.transport.test_tls import SSL2_HELLO, SSL3_HELLO

AES128: Final = "ECDHE-ECDSA-AES128-GCM-SHA256"
AES256: Final = "ECDHE-ECDSA-AES256-GCM-SHA384"
OTHER: Final = "ECDHE-ECDSA-CHACHA20-POLY1305"
TLS13: Final = "TLS_AES_256_GCM_SHA384"
XML: Final = b"<order/>"


@dataclass
class Pair:
    """Two corners that show certificates to each other."""

    loop: Loop
    c2: Corner
    c3: Corner

    @property
    def door(self) -> str:
        return self.c3.url


def tls_context(folder: Path, *, identified: bool = True) -> ssl.SSLContext:
    """A client that trusts the development authority; with corner two's certificate or none."""
    context = ssl.create_default_context(cafile=folder / "keys" / "authority.pem")
    if identified:
        key, certificate, _ = pkcs12.load_key_and_certificates(
            (folder / "keys" / "tls.p12").read_bytes(), None
        )
        assert key is not None
        assert certificate is not None
        pem = folder / "tls-client.pem"
        pem.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + certificate.public_bytes(Encoding.PEM)
        )
        context.load_cert_chain(pem)
    return context


async def start_pair(
    folder: Path, stack: AsyncExitStack, minimum: str = "1.2"
) -> tuple[Corner, Corner]:
    initialize(
        Plan(
            Station(C2, folder / C2, 18080),
            Station(C3, folder / C3, 18081),
            tls=True,
            client_certificates=True,
        ),
        now=datetime.now(UTC),
    )
    corners, sockets = (Corner(C2, folder / C2), Corner(C3, folder / C3)), {}
    for corner in corners:
        file = corner.folder / "postroad.yaml"
        settings = yaml.safe_load(file.read_text())
        for door in settings["listen"]:
            door["address"] = "127.0.0.1:0"
        settings["listen"][0]["tls"] |= {
            "ciphers": [AES128, AES256] if minimum == "1.2" else [TLS13],
            "minimum": minimum,
        }
        file.write_text(yaml.safe_dump(settings))
        sockets[corner.name] = listen(load_config(file))
    port = sockets[C3][0].getsockname()[1]
    for file in (folder / C2 / "pmodes").iterdir():
        file.write_text(file.read_text().replace(":18081/", f":{port}/"))
    for corner in corners:
        config = load_config(corner.folder / "postroad.yaml")
        corner.running = RunningNode(config, sockets[corner.name])
        await stack.enter_async_context(corner.running)
        stack.callback(corner.client.close)
    return corners


@contextmanager
def running(folder: Path, minimum: str) -> Iterator[Pair]:
    loop, stack = Loop(), AsyncExitStack()
    try:
        yield Pair(loop, *loop.run(start_pair(folder, stack, minimum)))
    finally:
        loop.run(stack.aclose())
        loop.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running(tmp_path_factory.mktemp("tls"), "1.2") as both:
        yield both


def test_as4_cp_ta39_the_versions_and_suites_of_tls_are_configured(tmp_path: Path) -> None:
    """AS4_CP_TA39: with TLS 1.3 as the least version, a message travels, and 1.2 is refused."""
    with running(tmp_path, "1.3") as newer:
        older = tls_context(newer.c2.folder)
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(httpx.TransportError):
            status(newer, older)
        sent = newer.c2.send(f"{C2}-to-{C3}-order", Payload(XML, "application/xml"))
        assert sent.state == "acknowledged", sent.message.detail


@pytest.mark.parametrize("hello", [SSL2_HELLO, SSL3_HELLO], ids=["ssl2", "ssl3"])
def test_as4_cp_ta41_ssl_is_refused(pair: Pair, hello: bytes) -> None:
    """AS4_CP_TA41: a receiving node answers SSL 2.0 and 3.0 with an alert, or not at all."""
    where = httpx.URL(pair.door)

    async def say() -> bytes:
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(hello)
        said = await reader.read()
        writer.close()
        return said

    said = pair.loop.run(say())
    alert = b"\x15"
    assert said == b"" or said.startswith(alert)


def test_as4_cp_ta42_a_suite_that_is_not_in_the_list_is_refused(pair: Pair) -> None:
    """AS4_CP_TA42: the handshake fails with a suite that the node is not configured with."""
    other = tls_context(pair.c2.folder)
    other.maximum_version = ssl.TLSVersion.TLSv1_2
    other.set_ciphers(OTHER)
    with pytest.raises(httpx.TransportError):
        status(pair, other)


@pytest.mark.req("P2-6.4.1-01")
def test_as4_cp_ta43_a_message_travels_over_tls_with_certificates_of_both_ends(pair: Pair) -> None:
    """AS4_CP_TA43: with a suite of the list, and both certificates, the message is acknowledged."""
    sent = pair.c2.send(f"{C2}-to-{C3}-order", Payload(XML, "application/xml"))
    assert sent.state == "acknowledged", sent.message.detail
    assert pair.c3.payloads(sent.message_id) == [XML]


def status(pair: Pair, context: ssl.SSLContext) -> int:
    with httpx.Client(verify=context, trust_env=False, timeout=PATIENCE) as client:
        return client.post(pair.door, content=b"", headers={"Content-Type": "text/xml"}).status_code


@pytest.mark.parametrize("suite", [AES128, AES256])
def test_as4_cp_ta43_each_suite_of_the_list_is_accepted(pair: Pair, suite: str) -> None:
    """AS4_CP_TA43: the server speaks every suite that it is configured with."""
    context = tls_context(pair.c2.folder)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(suite)
    # An empty request is no message, but it came through.
    assert status(pair, context) in (400, 415)


def test_as4_cp_ta43_a_client_without_certificate_is_refused(pair: Pair) -> None:
    """AS4_CP_TA43, turned around."""
    with pytest.raises(httpx.TransportError):
        status(pair, tls_context(pair.c2.folder, identified=False))


def old(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    """A context that knows nothing newer."""
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    return context


OLD: Final = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", OLD, ids=["1.0", "1.1"])
def test_as4_cp_ta40_a_client_with_old_tls_is_refused(pair: Pair, version: ssl.TLSVersion) -> None:
    """AS4_CP_TA40: a receiving node speaks neither TLS 1.0 nor 1.1."""
    with pytest.raises(httpx.TransportError):
        status(pair, old(tls_context(pair.c2.folder), version))


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", OLD, ids=["1.0", "1.1"])
def test_as4_cp_ta40_nothing_is_sent_to_a_server_with_old_tls(
    pair: Pair, version: ssl.TLSVersion
) -> None:
    """AS4_CP_TA40: a sending node says nothing to such a server, and the message has failed."""
    sent, heard = send_to(pair, f"old-{version.name.lower()}", old(own_server(pair), version))
    check_nothing_was_sent(pair, sent, heard)


@pytest.mark.req("P2-6.4.1-03")
def test_the_protocol_version_of_a_p_mode_is_a_minimum(pair: Pair) -> None:
    server = own_server(pair)
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    sent, heard = send_to(pair, "least-1.3", server, protocol_version="1.3")
    check_nothing_was_sent(pair, sent, heard)
    _, heard = send_to(pair, "least-1.2", server, protocol_version="1.2")
    assert heard == [b"P"]


@pytest.mark.req("P2-6.4.1-05")
def test_a_server_certificate_outside_of_the_anchors_is_invalid(pair: Pair, tmp_path: Path) -> None:
    other = pki.authority("Other authority")
    (pair.c2.folder / "keys" / "other.pem").write_bytes(pki.pem_certificates(other.certificate))
    pem = tmp_path / "server.pem"
    name = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    pem.write_bytes(pki.pem(pki.issue(other, "localhost", extensions=((name, False),), **VALID)))
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    stranger.load_cert_chain(pem)
    check_nothing_was_sent(pair, *send_to(pair, "stranger", stranger), "is not trusted")
    anchors = {"server": {"anchor_certificates": ["../keys/other.pem"]}}
    sent, heard = send_to(pair, "other-anchor", own_server(pair), **anchors)
    check_nothing_was_sent(pair, sent, heard, "is not trusted")
    _, heard = send_to(pair, "right-anchor", stranger, **anchors)
    assert heard == [b"P"]


@pytest.mark.req("P2-6.4.1-05")
def test_a_client_certificate_outside_of_the_anchors_is_refused(pair: Pair, tmp_path: Path) -> None:
    pem = tmp_path / "client.pem"
    pem.write_bytes(pki.pem(pki.issue(pki.authority("Other authority"), "client", **VALID)))
    context = tls_context(pair.c2.folder, identified=False)
    context.load_cert_chain(pem)
    with pytest.raises(httpx.TransportError):
        status(pair, context)


VALID: Final = {
    "not_before": datetime.now(UTC) - timedelta(days=1),
    "not_after": datetime.now(UTC) + timedelta(days=30),
}


def own_server(pair: Pair) -> ssl.SSLContext:
    """A server with a certificate of the development authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_context(pair.c2.folder)
    context.load_cert_chain(pair.c2.folder / "tls-client.pem")
    return context


def send_to(
    pair: Pair, name: str, context: ssl.SSLContext, **security: Any
) -> tuple[SentMessage, list[bytes]]:
    """Send to a server of our own; return the message, and the first byte that it got."""
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1))
        writer.close()

    async def serve() -> asyncio.Server:
        return await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)

    server = pair.loop.run(serve())
    sample = yaml.safe_load((pair.c2.folder / f"pmodes/{C2}-to-{C3}-order.yaml").read_text())
    sample["id"] = sample["legs"][0]["business_info"]["action"] = name
    port = server.sockets[0].getsockname()[1]
    protocol = sample["legs"][0]["protocol"]
    protocol["address"] = f"https://localhost:{port}/msh"
    protocol["security"] |= security
    del sample["legs"][0]["reception_awareness"]
    (pair.c2.folder / "pmodes" / f"{name}.yaml").write_text(yaml.safe_dump(sample))
    pair.c2.client.reload()
    try:
        return pair.c2.send(name, Payload(XML, "application/xml")), heard
    finally:
        pair.loop.run(_closed(server))


def check_nothing_was_sent(
    pair: Pair, sent: SentMessage, heard: list[bytes], reason: str = "TLS"
) -> None:
    assert (sent.state, sent.message.error_code) == ("failed", "EBMS:0005")
    assert reason in (sent.message.detail or "")
    assert pair.c2.journal(sent.message_id) == ["submitted", "send_failed", "delivery_failed"]
    assert heard == []


async def _closed(server: asyncio.Server) -> None:
    server.close()
