"""Crowds of strangers at the listeners of a served node: others are served all the while."""

import contextlib
import itertools
import re
import resource
import smtplib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import httpx
import pytest

from tests import pki
from tests.e2e.nodes import PATIENCE, Served, postroad, until
from tests.ports import free_port
from tests.transport.handshakes import authority, issued

CROWD: Final = 2500
FRIEND, OTHER_FRIEND, STRANGER = "127.0.0.1", "127.0.0.3", "127.0.0.2"
HALF: Final = b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Le"
HALF_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01"
BEGUN: Final = (
    b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Type: text/xml\r\nContent-Length: 9\r\n"
    b"Expect: 100-continue\r\n\r\n"
)


@dataclass
class Door:
    """A listener of the node."""

    port: int
    tls: ssl.SSLContext | None = None
    crowd: list[socket.socket] = field(default_factory=list)

    def begin(self, address: str) -> socket.socket:
        """A connection that begins a request, or a handshake, and then says nothing more."""
        made = socket.create_connection(("127.0.0.1", self.port), PATIENCE, (address, 0))
        self.crowd.append(made)
        made.sendall(HALF if self.tls is None else HALF_HELLO)
        return made

    def connect(self, address: str, said: bytes) -> socket.socket:
        """A connection, from an address of this machine, on which something was said."""
        made = socket.create_connection(("127.0.0.1", self.port), PATIENCE, (address, 0))
        if self.tls is not None:
            made = self.tls.wrap_socket(made, server_hostname="localhost")
        self.crowd.append(made)
        made.sendall(said)
        return made

    def get(self, path: str, address: str, **options: str) -> httpx.Response:
        scheme, verify = ("http", True) if self.tls is None else ("https", self.tls)
        transport = httpx.HTTPTransport(local_address=address, verify=verify)
        with httpx.Client(transport=transport, timeout=PATIENCE) as client:
            return client.get(f"{scheme}://127.0.0.1:{self.port}{path}", headers=options)

    def leave(self) -> None:
        for one in self.crowd:
            one.close()
        self.crowd.clear()


@dataclass
class Attacked:
    """A node with a listener for HTTP, one for HTTPS and one for mail."""

    node: Served
    plain: Door
    secure: Door
    mail: Door

    def incidents(self) -> dict[str, int]:
        """How often each limit was applied, by listener and reason."""
        token = (self.node.folder / "keys" / "api.token").read_text().strip()
        text = self.plain.get("/metrics", FRIEND, authorization=f"Bearer {token}").text
        found = re.findall(
            r'postroad_client_incidents_total\{listener="(\w+)",reason="(\w+)"\} (\d+)', text
        )
        return {f"{listener} {reason}": int(count) for listener, reason, count in found}

    def others_are_served(self, door: Door) -> None:
        """Friends send a message and look whether the node is well."""
        for address in (FRIEND, OTHER_FRIEND):
            assert door.get("/healthz", address).status_code == 200
        sent = self.node.run(
            *("send", "--pmode", "a-to-a-order", "--wait", "--payload"),
            self.node.folder / "order.xml",
        )
        assert sent.exit_code == 0, sent.output


MORE: Final = """
security: {exempt_networks: []}
http:
  {connections: 500, connections_per_address: 8, body_timeout: PT5S, write_timeout: PT2S}
mail: {address: msh@a.example, listen: "127.0.0.1:MAIL", tls: {certificate: keys/door.pem}}
"""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked") / "a"
    ports = [free_port() for _ in range(3)]
    made = postroad("init", folder, "--port", str(ports[0]))
    assert made.exit_code == 0, made.output
    ca = authority("Door CA")
    (folder / "keys" / "door.pem").write_bytes(pki.pem(issued(ca, "a", "127.0.0.1", "localhost")))
    trusting = ssl.create_default_context(cadata=pki.pem_certificates(ca.certificate).decode())
    node = Served("a", folder)
    secure = f'  - {{address: "127.0.0.1:{ports[1]}", tls: {{certificate: keys/door.pem}}}}\n'
    text = node.config.read_text().replace("\napi:\n", f"{secure}\napi:\n")
    node.config.write_text(text + MORE.replace("MAIL", str(ports[2])))
    _allow_files(CROWD + 500)
    node.start()
    doors = Door(ports[0]), Door(ports[1], trusting), Door(ports[2])
    try:
        yield Attacked(node, *doors)
    finally:
        for door in doors:
            door.leave()
        if node.process is not None:
            node.process.kill()


def _allow_files(needed: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"only {hard} files may be open here")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@pytest.fixture(params=["plain", "secure"])
def door(request: pytest.FixtureRequest, attacked: Attacked) -> Iterator[Door]:
    """A listener, to which nobody is connected afterwards."""
    found: Door = getattr(attacked, request.param)
    yield found
    found.leave()


def test_thousands_of_half_open_requests_keep_nobody_out(attacked: Attacked, door: Door) -> None:
    before = attacked.incidents()
    for _ in range(CROWD):
        door.begin(STRANGER)
    attacked.others_are_served(door)
    assert door.get("/healthz", STRANGER).status_code == 200
    door.leave()
    # From a hundred addresses they reach the limit of all.
    for number in range(CROWD):
        door.begin(f"127.0.1.{number % 100 + 1}")
    attacked.others_are_served(door)
    after = attacked.incidents()
    for reason in ("http evicted_address", "http evicted_total"):
        assert after[reason] - before.get(reason, 0) > 100
    lines = attacked.node.log.splitlines()
    assert 0 < len([line for line in lines if "closed a waiting connection" in line]) <= 8


def test_requests_that_never_end_take_the_share_of_their_address_alone(
    attacked: Attacked, door: Door
) -> None:
    before = attacked.incidents()
    slow = [door.connect(STRANGER, BEGUN) for _ in range(8)]
    for one in slow:
        assert one.recv(4096).startswith(b"HTTP/1.1 100 ")
        one.sendall(b"<")
    refused = door.connect(STRANGER, BEGUN)
    answer = refused.recv(4096)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 2\r\n" in answer
    assert door.get("/healthz", STRANGER).status_code == 200
    attacked.others_are_served(door)
    # A body that does not move loses its place.
    for one in slow:
        with contextlib.suppress(ConnectionResetError):
            assert one.recv(1) == b""
    after = attacked.incidents()
    assert after["http slow_body"] - before.get("http slow_body", 0) == 8
    assert after["http refused_address"] > before.get("http refused_address", 0)


def test_who_does_not_read_its_responses_loses_its_connection(
    attacked: Attacked, door: Door
) -> None:
    before = attacked.incidents().get("http slow_reader", 0)
    asking = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 100
    for _ in range(3):
        door.connect(STRANGER, asking)
    until(
        lambda: attacked.incidents().get("http slow_reader", 0) == before + 3,
        "readers that read nothing lose their connections",
    )
    attacked.others_are_served(door)


def test_a_crowd_at_the_mail_listener_keeps_no_mail_out(attacked: Attacked) -> None:
    door = attacked.mail
    addresses = itertools.chain([STRANGER] * 200, (f"127.0.1.{one}" for one in range(1, 201)))
    for address in addresses:
        door.connect(address, b"EHLO x\r\n")
    for address in (FRIEND, OTHER_FRIEND, STRANGER):
        with smtplib.SMTP(
            "127.0.0.1", door.port, timeout=PATIENCE, source_address=(address, 0)
        ) as client:
            client.ehlo()
            client.starttls(context=attacked.secure.tls)
            client.ehlo()
            assert client.mail("msh@b.example")[0] == 250
            assert client.rcpt("msh@a.example")[0] == 250
            assert client.data(b"Subject: x\r\n\r\nno message")[0] == 554
    after = attacked.incidents()
    assert after["mail evicted_address"] >= 180
    assert after["mail evicted_total"] >= 100
    door.leave()
