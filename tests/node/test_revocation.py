"""A node that learns from real servers whether the certificates of its partners were revoked."""

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID

from postroad.msh.expectation import Material
from postroad.msh.outbound import Draft, package, wire_form
from postroad.node.base.requests import Request, Response
from postroad.node.node import Node
from postroad.node.settings.agreements import load_agreements, load_expectation
from postroad.node.settings.config import ConfigError, load_config
from postroad.security.keys import KeyPair
from postroad.store.records import Side, State
from postroad.store.sqlite import open_sqlite
from tests.node.ebxml_letters import TIME, M, order, packed, spoiled
from tests.node.reliable import BUYER, CPA, ORDERS, SELLER, party
from tests.pki import NOW, authority, issue, pem, pem_certificates, revocation_list

DAY = timedelta(days=1)
PMODE = """
id: orders
mep: oneWay
mep_binding: push
initiator: {party: urn:x:buyer, role: buyer}
responder: {party: urn:x:seller, role: seller}
legs:
  - protocol: {address: "http://127.0.0.1:9/msh"}
    business_info: {service: urn:x:trade, action: order}
    error_handling: {report: {as_response: true}}
    security:
      x509:
        sign: true
        signature:
          trust_anchors: [ca.pem]
          subjects: [buyer]
          algorithm: ecdsa-sha256
          hash_function: sha256
      send_receipt: {reply_pattern: response, non_repudiation: true}
"""
CA = authority("Revocation CA")


@dataclass
class Server:
    """A server of a certificate authority, which does what a test says."""

    port: int = 0
    revoked: list[x509.Certificate] = field(default_factory=list)
    list_bytes: Callable[[], bytes] | None = None
    """What is sent instead of the list."""
    status: int = 200
    hold: threading.Event | None = None
    """Nothing is sent before this."""
    asked: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, body: bytes) -> bytes:
        self.asked.append(path)
        if self.hold is not None:
            self.hold.wait(30)
        if path == "/ocsp":
            return self._ocsp(body)
        if self.list_bytes is not None:
            return self.list_bytes()
        return revocation_list(CA, self.revoked).public_bytes(Encoding.DER)

    def _ocsp(self, body: bytes) -> bytes:
        request = ocsp.load_der_ocsp_request(body)
        revoked = {one.serial_number: one for one in self.revoked}.get(request.serial_number)
        builder = ocsp.OCSPResponseBuilder().add_response_by_hash(
            request.issuer_name_hash,
            request.issuer_key_hash,
            request.serial_number,
            request.hash_algorithm,
            ocsp.OCSPCertStatus.REVOKED if revoked else ocsp.OCSPCertStatus.GOOD,
            NOW - DAY,
            NOW + DAY,
            NOW - DAY if revoked else None,
            None,
        )
        nonce = request.extensions.get_extension_for_class(x509.OCSPNonce).value
        builder = builder.add_extension(nonce, critical=False)
        builder = builder.responder_id(ocsp.OCSPResponderEncoding.HASH, CA.certificate)
        made = builder.sign(CA.private_key, hashes.SHA256())  # type: ignore[arg-type]
        return made.public_bytes(Encoding.DER)


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(server.answer(self.path, b""))

        def do_POST(self) -> None:
            self._send(
                server.answer(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            )

        def _send(self, body: bytes) -> None:
            try:
                self.send_response(server.status)
                self.send_header("Location", f"{server.address}/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        server.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            if server.hold is not None:
                server.hold.set()
            listening.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


def partner(server: Server, *sources: str, number: int = 1) -> KeyPair:
    """A certificate of the buyer that names the server for these sources."""
    extensions: list[tuple[x509.ExtensionType, bool]] = []
    if "crl" in sources:
        place = [x509.UniformResourceIdentifier(f"{server.address}/ca.crl")]
        points = x509.CRLDistributionPoints([x509.DistributionPoint(place, None, None, None)])
        extensions.append((points, False))
    if "ocsp" in sources:
        access = x509.AccessDescription(
            AuthorityInformationAccessOID.OCSP,
            x509.UniformResourceIdentifier(f"{server.address}/ocsp"),
        )
        extensions.append((x509.AuthorityInformationAccess([access]), False))
    label = f"{server.port} {sources} {number}"
    serial = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8]) | 1
    return issue(CA, "buyer", label=label, serial=serial, extensions=tuple(extensions))


def seller(folder: Path, settings: str) -> Path:
    """The folder of the node that receives."""
    (folder / "pmodes").mkdir()
    (folder / "pmodes" / "orders.yaml").write_text(PMODE)
    (folder / "pmodes" / "ca.pem").write_bytes(pem_certificates(CA.certificate))
    (folder / "seller.pem").write_bytes(pem(issue(CA, "seller")))
    (folder / "postroad.yaml").write_text(
        "node: seller\nparty: urn:x:seller\nkeys: {signing: seller.pem}\n"
        "listen: {serve: msh}\n"
        "security:\n"
        "  egress: {revocation_networks: 127.0.0.0/8}\n"
        f"  revocation: {{{settings}}}\n"
    )
    return folder


@asynccontextmanager
async def running(folder: Path, clock: Callable[[], datetime] = lambda: NOW) -> AsyncIterator[Node]:
    config = load_config(folder / "postroad.yaml")
    node = Node(config, await open_sqlite(config.data, config.node), clock=clock)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def receive(
    node: Node, pair: KeyPair, number: int = 1, client: KeyPair | None = None
) -> Response:
    """Send the node a message that is signed with a key, from a TLS client."""
    expectation = load_expectation(node.config.pmodes)
    match = expectation.pmodes.legs[0]
    made = package(
        Draft(f"{number}@buyer", "conversation", ()),
        node.context.in_force.match(match.pmode.id, 1),  # type: ignore[arg-type]
        Material(signing=pair),
        now=NOW,
        entropy=os.urandom,
    )
    form = wire_form(made.version, made.envelope, (), "=_boundary")
    return await post(node, form.content_type, b"".join(form.pieces()), client)


async def post(node: Node, content_type: str, body: bytes, client: KeyPair | None) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield body

    shown = None if client is None else client.certificate.public_bytes(Encoding.DER)
    async with asyncio.timeout(30):
        return await node.receive(Request(content_type, "127.0.0.1", pieces(), shown))


async def state(node: Node, number: int = 1) -> State | None:
    found = await node.message(f"{number}@buyer", Side.RECEIVING)
    return None if found is None else found.state


def played(folder: Path, story: Callable[[Node], Any], settings: str) -> None:
    async def told() -> None:
        async with running(seller(folder, settings)) as node:
            await story(node)

    asyncio.run(told())


@pytest.mark.parametrize("source", ["crl", "ocsp"])
@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_a_message_of_a_revoked_partner_is_refused(
    tmp_path: Path, server: Server, source: str, mode: str
) -> None:
    revoked, good = partner(server, source), partner(server, source, number=2)
    server.revoked = [revoked.certificate]

    async def story(node: Node) -> None:
        response = await receive(node, revoked)
        assert b"EBMS:0101" in response.body
        assert b"was revoked" in response.body
        assert await state(node) is State.REJECTED
        taken = await receive(node, good, 2)
        assert (taken.status, await state(node, 2)) == (200, State.DELIVERED)
        before = len(server.asked)
        assert (await receive(node, good, 3)).status == 200
        assert len(server.asked) == before, "what is known is not fetched again"

    played(tmp_path, story, f"mode: {mode}, fetch: [{source}]")


def test_a_list_is_fetched_where_the_responder_does_not_tell(
    tmp_path: Path, server: Server
) -> None:
    pair = partner(server, "crl", "ocsp")
    server.revoked = [pair.certificate]
    whole = server._ocsp
    server._ocsp = lambda body: whole(body)[:-20]  # type: ignore[method-assign]

    async def story(node: Node) -> None:
        assert b"was revoked" in (await receive(node, pair)).body
        assert server.asked == ["/ocsp", "/ca.crl"]

    played(tmp_path, story, "fetch: [ocsp, crl]")


def _huge() -> bytes:
    return revocation_list(CA).public_bytes(Encoding.DER) + bytes(20_000)


BAD_SERVERS: list[tuple[dict[str, Any], str]] = [
    ({"status": 404}, "the server answers with HTTP status 404"),
    ({"status": 302}, "HTTP status 302 (redirects are not followed)"),
    ({"list_bytes": lambda: b"<html>"}, "this is no revocation list"),
    ({"list_bytes": _huge}, "larger than"),
    (
        {
            "list_bytes": lambda: revocation_list(
                authority("Revocation CA", label="forger")
            ).public_bytes(Encoding.DER)
        },
        "the list was not signed by CN=Revocation CA",
    ),
    (
        {
            "list_bytes": lambda: revocation_list(
                CA, this_update=NOW - 3 * DAY, next_update=NOW - DAY
            ).public_bytes(Encoding.DER)
        },
        "the list ran out on 2026-05-31",
    ),
    (
        {
            "list_bytes": lambda: revocation_list(
                CA, this_update=NOW + DAY, next_update=NOW + 2 * DAY
            ).public_bytes(Encoding.DER)
        },
        "the list is of the future",
    ),
]


@pytest.mark.parametrize(("wrong", "reason"), BAD_SERVERS)
def test_a_bad_server_leaves_the_status_unknown_with_a_reason(
    tmp_path: Path,
    server: Server,
    wrong: dict[str, Any],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in wrong.items():
        setattr(server, name, value)
    pair = partner(server, "crl")

    async def story(node: Node) -> None:
        assert (await receive(node, pair)).status == 200
        assert await state(node) is State.DELIVERED
        assert (await receive(node, pair, 2)).status == 200
        assert len(server.asked) == 1, "an address that failed is left alone"
        warned = [one for one in caplog.records if one.message == "revocation status unknown"]
        assert reason in warned[0].detail  # type: ignore[attr-defined]
        assert len(warned) == 1
        assert node.context.counters['postroad_revocation_unknown_total{mode="soft"}'] == 2

    played(tmp_path, story, "fetch: crl, list_bytes: 10 KiB")


def test_where_the_status_must_be_known_the_sender_is_told_to_come_again(
    tmp_path: Path, server: Server
) -> None:
    server.status = 500
    pair = partner(server, "crl")
    now = NOW

    async def story() -> None:
        nonlocal now
        folder = seller(tmp_path, "mode: hard, fetch: crl")
        async with running(folder, lambda: now) as node:
            response = await receive(node, pair)
            assert response.status == 503
            assert b"EBMS:0202" in response.body
            assert b"Send the message again later" in response.body
            server.status = 200
            now += timedelta(minutes=2)
            assert (await receive(node, pair)).status == 200
            assert await state(node) is State.DELIVERED

    asyncio.run(story())


def _with_clients(folder: Path, more: str = "") -> Path:
    """The folder of a node that is held to the certificates of TLS clients."""
    made = seller(folder, "mode: hard, fetch: [crl, ocsp]")
    clients = "security: {protocol: TLS, client: {anchor_certificates: [ca.pem]}}"
    text = PMODE.replace('http://127.0.0.1:9/msh"}', f'https://127.0.0.1:9/msh", {clients}}}')
    (folder / "pmodes" / "orders.yaml").write_text(text)
    if more:
        (folder / "pmodes" / "more.yaml").write_text(more.replace("CLIENTS", clients))
    return made


def test_the_status_of_a_tls_client_that_a_pmode_asks_for_is_learned(
    tmp_path: Path, server: Server
) -> None:
    signer, client, gone = (partner(server, "crl", number=n) for n in (1, 2, 3))
    server.revoked = [gone.certificate]
    server.status = 500
    now = NOW

    async def story() -> None:
        nonlocal now
        async with running(_with_clients(tmp_path), lambda: now) as node:
            response = await receive(node, signer, 1, client)
            assert (response.status, b"EBMS:0202" in response.body) == (503, True)
            server.status = 200
            now += timedelta(minutes=2)
            client_alone = partner(server, "ocsp", number=4)
            assert (await receive(node, signer, 1, client_alone)).status == 200
            assert await state(node) is State.DELIVERED
            assert "/ocsp" in server.asked
            response = await receive(node, signer, 2, gone)
            assert (response.status, b"EBMS:0101" in response.body) == (200, True)
            assert await state(node, 2) is State.REJECTED

    asyncio.run(story())


EBXML = """
id: ebxml
agreement: CPA
initiator: {party: BUYER}
responder: {party: urn:x:seller}
legs:
  - protocol: {address: "https://127.0.0.1:9/msh", CLIENTS}
    ebxml: {version: "2.0"}
    business_info: {service: urn:example:trade, action: ACTION}
"""


def test_the_sender_of_an_ebxml_message_is_told_to_come_again_too(
    tmp_path: Path, server: Server
) -> None:
    """An ErrorList would be the end of the message."""
    client = partner(server, "crl")
    written = spoiled(order("2.0"), TIME, NOW.strftime("%Y-%m-%dT%H:%M:%SZ"))
    letter = packed(written.replace(party(SELLER), "urn:x:seller"))
    agreed = EBXML.replace("CPA", CPA).replace("BUYER", party(BUYER)).replace("ACTION", ORDERS)
    server.status = 500
    now = NOW

    async def story() -> None:
        nonlocal now
        async with running(_with_clients(tmp_path, agreed), lambda: now) as node:
            response = await post(node, *letter, client)
            assert (response.status, response.come_again) == (503, True)
            assert b"Server" in response.body
            server.status = 200
            now += timedelta(minutes=2)
            assert (await post(node, *letter, client)).status < 300
            found = await node.message(M, Side.RECEIVING)
            assert found is not None
            assert found.state is State.DELIVERED

    asyncio.run(story())


def test_a_message_does_not_wait_for_a_slow_server(tmp_path: Path, server: Server) -> None:
    server.hold = threading.Event()
    pair = partner(server, "crl")

    async def story(node: Node) -> None:
        assert (await receive(node, pair)).status == 200, "within the wait, and 30 s"
        assert server.asked == ["/ca.crl"]
        assert server.hold is not None
        server.hold.set()
        async with asyncio.timeout(20):
            while not node.context.in_force.revocation.lists:
                await asyncio.sleep(0.01)
        server.revoked = [pair.certificate]

    played(tmp_path, story, "fetch: crl, wait: PT0.1S")


def test_what_was_fetched_outlives_a_restart(tmp_path: Path, server: Server) -> None:
    both = {source: partner(server, source) for source in ("crl", "ocsp")}
    fresh = revocation_list(
        CA, [both["crl"].certificate], this_update=NOW - timedelta(minutes=5)
    ).public_bytes(Encoding.DER)
    server.list_bytes = lambda: fresh

    async def story() -> None:
        folder = seller(tmp_path, "fetch: [ocsp, crl]")
        async with running(folder) as node:
            assert b"was revoked" in (await receive(node, both["crl"])).body
        server.asked.clear()
        async with running(folder) as node:
            assert b"was revoked" in (await receive(node, both["crl"], 2)).body
            assert server.asked == []

    asyncio.run(story())


def test_a_list_is_renewed_before_it_runs_out(tmp_path: Path, server: Server) -> None:
    pair = partner(server, "crl")
    now = NOW

    async def story() -> None:
        nonlocal now
        async with running(seller(tmp_path, "fetch: crl"), lambda: now) as node:
            assert (await receive(node, pair)).status == 200
            server.revoked = [pair.certificate]
            now += timedelta(hours=2)
            node._revocation._renew(now)
            await asyncio.gather(*node._revocation._under_way.values())
            assert b"was revoked" in (await receive(node, pair, 2)).body

    asyncio.run(story())


def test_an_older_list_does_not_undo_a_revocation(tmp_path: Path, server: Server) -> None:
    """Lists come over plain HTTP: whoever is on the line can repeat the one of last week."""
    pair = partner(server, "crl")
    now = NOW

    async def story() -> None:
        nonlocal now
        server.revoked = [pair.certificate]
        async with running(seller(tmp_path, "fetch: crl"), lambda: now) as node:
            assert b"was revoked" in (await receive(node, pair)).body
            older = revocation_list(CA, this_update=NOW - 3 * DAY)
            server.list_bytes = lambda: older.public_bytes(Encoding.DER)
            now += timedelta(hours=2)
            node._revocation._renew(now)
            await asyncio.gather(*node._revocation._under_way.values())
            assert server.asked == ["/ca.crl"] * 2
            assert b"was revoked" in (await receive(node, pair, 2)).body

    asyncio.run(story())


def test_certificates_of_strangers_cause_no_request(tmp_path: Path, server: Server) -> None:
    known = partner(server, "crl", "ocsp")
    extensions = tuple((one.value, one.critical) for one in known.certificate.extensions)[-2:]
    stranger = issue(authority("Stranger CA"), "buyer", extensions=extensions)

    async def story(node: Node) -> None:
        assert b"EBMS:0101" in (await receive(node, stranger)).body
        assert server.asked == []

    played(tmp_path, story, "fetch: [crl, ocsp]")


def test_addresses_that_are_not_public_are_not_contacted_unless_configured(
    tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    pair = partner(server, "crl", "ocsp")

    async def story() -> None:
        folder = seller(tmp_path, "fetch: [crl, ocsp]")
        file = folder / "postroad.yaml"
        file.write_text(file.read_text().replace("127.0.0.0/8", "10.0.0.0/8"))
        async with running(folder) as node:
            assert (await receive(node, pair)).status == 200

    asyncio.run(story())
    assert server.asked == []
    warned = [one for one in caplog.records if one.message == "revocation status unknown"]
    assert "security.egress.revocation_networks" in warned[0].detail  # type: ignore[attr-defined]


def test_lists_in_files_are_used_and_read_again_when_they_change(tmp_path: Path) -> None:
    pair = issue(CA, "buyer", label="from files")
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "ca.crl").write_bytes(revocation_list(CA).public_bytes(Encoding.DER))

    async def story(node: Node) -> None:
        assert (await receive(node, pair)).status == 200
        revoked = revocation_list(CA, [pair.certificate])
        (lists / "ca.crl").write_bytes(revoked.public_bytes(Encoding.PEM))
        node.context.in_force.refresh()
        node.context.in_force.refresh()
        assert b"was revoked" in (await receive(node, pair, 2)).body

    played(tmp_path, story, "mode: hard, crl_files: lists")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("mode: hard", "every message would be refused"),
        ("crl_files: nowhere.crl", "cannot be read"),
        ("crl_files: seller.pem", "this is no revocation list"),
        ("crl_files: ca.crl, list_bytes: 1 KiB", "is larger than 1,024 bytes"),
        ("fetch: ldap", "security.revocation.fetch[0]: 'ldap'"),
    ],
)
def test_settings_that_cannot_work_are_told(tmp_path: Path, settings: str, said: str) -> None:
    folder = seller(tmp_path, settings)
    (folder / "ca.crl").write_bytes(bytes(2000))

    async def story() -> None:
        async with running(folder):
            pass

    with pytest.raises(ConfigError) as caught:
        asyncio.run(story())
    assert said in str(caught.value)


def test_certificates_of_pmodes_for_another_purpose_are_told(tmp_path: Path) -> None:
    web = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    pin = issue(CA, "web server", extensions=((web, False),))
    signs_only = issue(CA, "signs only", usage=("digital_signature",))
    folder = seller(tmp_path, "") / "pmodes"
    for name, pair in (("pin.pem", pin), ("recipient.pem", signs_only)):
        (folder / name).write_bytes(pem_certificates(pair.certificate))
    text = PMODE.replace("trust_anchors: [ca.pem]", "pins: [pin.pem]")
    encryption = "        encryption: {encrypt: true, certificate: recipient.pem}\n"
    text = text.replace("      send_receipt:", f"{encryption}      send_receipt:")
    (folder / "orders.yaml").write_text(text)
    pinned, recipient = load_agreements(folder).warnings
    assert pinned.startswith("orders: the pinned certificate CN=web server,O=Postroad Tests,C=NL")
    assert "(serverAuth)" in pinned
    assert "CN=signs only,O=Postroad Tests,C=NL is not for encryption" in recipient


@pytest.mark.parametrize("allowed", [False, True])
def test_a_pmode_may_allow_another_purpose(tmp_path: Path, allowed: bool) -> None:
    web = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    pair = issue(CA, "buyer", label="web", extensions=((web, False),))
    folder = seller(tmp_path, "")
    if allowed:
        text = PMODE.replace(
            "subjects: [buyer]", "subjects: [buyer]\n          purposes: serverAuth"
        )
        (folder / "pmodes" / "orders.yaml").write_text(text)

    async def story() -> None:
        async with running(folder) as node:
            response = await receive(node, pair)
            assert (b"extended key usage (serverAuth)" in response.body) is not allowed
            assert await state(node) is (State.DELIVERED if allowed else State.REJECTED)

    asyncio.run(story())


def test_a_list_that_many_certificates_name_is_fetched_once(tmp_path: Path, server: Server) -> None:
    pairs = [partner(server, "crl", number=number) for number in range(5)]

    async def story(node: Node) -> None:
        await asyncio.gather(*(receive(node, pair, n) for n, pair in enumerate(pairs)))
        assert server.asked == ["/ca.crl"]
        assert {await state(node, n) for n in range(5)} == {State.DELIVERED}

    played(tmp_path, story, "mode: hard, fetch: crl")
