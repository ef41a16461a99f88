"""Clients that hold what others need: connections, requests, memory and disk.

Honest clients come from 127.0.0.1 meanwhile, and must be served. Limits of time are short here, see
`target.SETTINGS`.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from tests.attack.campaign import probes
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.probes import expect
from tests.attack.campaign.target import ATTACKER, HOST, MIB, PATIENCE, Target
from tests.fuzz.stateful_nodes import resources

_CONNECTIONS: Final = 2500
_PER_ADDRESS: Final = 256
_INCIDENTS: Final = "postroad_client_incidents_total"
_SOAP: Final = "Content-Type: application/soap+xml; charset=UTF-8"
_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
_LEFT_OPEN: Final = {
    "silent": b"",
    "with half a head": b"POST /msh HTTP/1.1\r\nHost: node.example\r\nX-",
    "with half a first line": b"POST /ms",
    "with a head and no body": probes.head("POST", "/msh", _SOAP, "Content-Length: 1000"),
    "with a head and no chunk": probes.head("POST", "/msh", _SOAP, "Transfer-Encoding: chunked"),
    "with half a body": probes.head("POST", "/msh", _SOAP, "Content-Length: 1000") + b"<x",
    "that were answered": probes.head("GET", "/nothing"),
}
_IN_PROGRESS: Final = ("with a head and no body", "with a head and no chunk", "with half a body")


def _hold(target: Target, port: int, sources: list[str], said: bytes) -> list[socket.socket]:
    held = []
    for number in range(_CONNECTIONS):
        target.requests += 1
        with contextlib.suppress(OSError):
            source = sources[number % len(sources)]
            connection = socket.create_connection((HOST, port), 5, (source, 0))
            held.append(connection)
            connection.sendall(said)
    expect(len(held) > _CONNECTIONS * 0.9, f"only {len(held)} connections could be opened")
    return held


def _of_address(port: int, address: str) -> int:
    """Return how many connections of an address the system has open at a port of the node."""
    local, remote = f"0100007F:{port:04X}", _hex(address)
    table = Path("/proc/net/tcp").read_text(encoding="ascii")
    rows = [line.split() for line in table.splitlines()]
    return sum(1 for row in rows if row[1] == local and row[2][:8] == remote and row[3] == "01")


def _hex(address: str) -> str:
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def _served(target: Target, *, tls: bool, patient: bool) -> None:
    """Raise Breach unless an honest client is served at once, and health checks always."""
    begun = time.monotonic()
    answer = target.exchange(probes.head("GET", "/healthz", "Connection: close"), source=HOST)
    expect(answer and answer.status == 200, f"/healthz was answered {answer}")
    if tls:
        answer = target.exchange(
            probes.head("GET", "/msh", "Connection: close"), tls=True, source=HOST
        )
        expect(answer and answer.status == 405, f"an honest client was answered {answer}")
    took = time.monotonic() - begun
    expect(took < 5, f"health checks and an honest client took {took:.1f} s")
    if not patient:
        target.honest()


def _half_open(target: Target, said: bytes, tls: bool, spread: bool, busy: bool) -> None:
    port = target.tls_port if tls else target.port()
    sources = [probes.new_address() for _ in range(250)] if spread else [ATTACKER]
    before = probes.metrics(target)
    with probes.opened(_hold(target, port, sources, said)):
        _served(target, tls=True, patient=busy and spread)
        if not spread:
            probes.until(
                lambda: _of_address(port, ATTACKER) <= _PER_ADDRESS, "an address has its share", 10
            )
    after = probes.metrics(target)
    more = probes.total(after, _INCIDENTS) - probes.total(before, _INCIDENTS)
    expect(more > 0, "no incident was counted")
    target.honest()


def _crowds(_: Target) -> Iterator[Case]:
    for name, said in _LEFT_OPEN.items():
        for spread in (False, True):
            where = "250 addresses" if spread else "one address"
            attack = partial(
                _half_open, said=said, tls=False, spread=spread, busy=name in _IN_PROGRESS
            )
            yield Case(f"{_CONNECTIONS} connections {name} from {where}", attack)
    for name, said in {"silent": b"", "with half a handshake": _HELLO}.items():
        for spread in (False, True):
            where = "250 addresses" if spread else "one address"
            attack = partial(_half_open, said=said, tls=True, spread=spread, busy=False)
            yield Case(f"{_CONNECTIONS} connections {name} from {where}, TLS", attack)


# Clients that dribble


def _dribble(target: Target, said: bytes, pieces: bytes, tls: bool) -> float:
    """Send a byte each half a second, and return how long the connection lasted."""
    begun = time.monotonic()
    target.requests += 1
    with target.connect(tls=tls, source=probes.new_address()) as connection:
        connection.sendall(said)
        connection.settimeout(0.25)
        while time.monotonic() - begun < PATIENCE:
            with contextlib.suppress(TimeoutError, ssl.SSLWantReadError):
                try:
                    piece = connection.recv(65536)
                except (ConnectionError, ssl.SSLEOFError):
                    return time.monotonic() - begun
                if not piece:
                    return time.monotonic() - begun
            try:
                connection.sendall(pieces[:1])
            except TimeoutError:
                continue
            except OSError:
                return time.monotonic() - begun
    raise Breach(f"a client that dribbles was served for {PATIENCE:g} s")


_DRIBBLES: Final = {
    "a head": (b"POST /msh HTTP/1.1\r\nHost: x\r\nX-Y: ", b"z"),
    "many header fields": (b"POST /msh HTTP/1.1\r\nHost: x\r\n", b"X"),
    "empty lines": (b"", b"\r"),
    "a body": (probes.head("POST", "/msh", _SOAP, "Content-Length: 1000000"), b"<"),
    "chunks": (probes.head("POST", "/msh", _SOAP, "Transfer-Encoding: chunked"), b"0"),
    "a chunk": (
        probes.head("POST", "/msh", _SOAP, "Transfer-Encoding: chunked") + b"fffff\r\n",
        b"x",
    ),
    "an extension": (
        probes.head("POST", "/msh", _SOAP, "Transfer-Encoding: chunked") + b"5;",
        b"x",
    ),
    "trailers": (
        probes.head("POST", "/msh", _SOAP, "Transfer-Encoding: chunked") + b"0\r\nX: ",
        b"x",
    ),
    "a large body": (probes.head("POST", "/msh", _SOAP, f"Content-Length: {64 * MIB}"), b"x"),
}


class _Background:
    """Attacks that take long run beside the others; each is a case that waits for its end."""

    def __init__(self, attacks: dict[str, Callable[[], None]]) -> None:
        self._pool = ThreadPoolExecutor(len(attacks))
        self._running = {name: self._pool.submit(attack) for name, attack in attacks.items()}

    def cases(self) -> Iterator[Case]:
        for name, running in self._running.items():
            yield Case(name, lambda _, running=running: running.result(2 * PATIENCE))
        self._pool.shutdown()


def _dribbles(target: Target) -> Iterator[Case]:
    def run(said: bytes, pieces: bytes, tls: bool) -> None:
        took = _dribble(target, said, pieces, tls)
        expect(took < 20, f"a client that dribbles was served for {took:.0f} s")

    attacks: dict[str, Callable[[], None]] = {}
    for name, (said, pieces) in _DRIBBLES.items():
        for tls in (False, True):
            where = "over TLS" if tls else "in the clear"
            attacks[f"{name} that dribbles {where}"] = partial(run, said, pieces, tls)
    token = probes.token(target)
    lines = (f"Authorization: Bearer {token}", "Content-Type: multipart/form-data; boundary=b")
    upload = probes.head("POST", "/api/v1/messages", *lines, "Content-Length: 1000000")
    attacks["an upload that dribbles"] = partial(run, upload, b"-", False)
    attacks["a handshake that dribbles"] = partial(_slow_handshake, target)
    for tls in (False, True):
        where = "over TLS" if tls else "in the clear"
        attacks[f"a client that never reads {where}"] = partial(_never_reads, target, tls)
    yield from _Background(attacks).cases()
    yield Case("honest messages after all of them", lambda one: one.honest() and None)


def _slow_handshake(target: Target) -> None:
    begun = time.monotonic()
    address = (HOST, target.tls_port)
    with socket.create_connection(address, PATIENCE, (probes.new_address(), 0)) as connection:
        connection.sendall(_HELLO)
        connection.settimeout(0.25)
        while time.monotonic() - begun < 20:
            try:
                if not connection.recv(100):
                    return
            except TimeoutError:
                pass
            except OSError:
                return
            with contextlib.suppress(OSError):
                connection.sendall(b"\0")
    raise Breach("a handshake that dribbles took 20 s")


def _never_reads(target: Target, tls: bool) -> None:
    """Ask for much and read none of it: the connection is closed, and nothing piles up."""
    one = probes.head("GET", "/msh" if tls else "/openapi.json")
    before = resources(target.pair.seller)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.bind((probes.new_address(), 0))
    connection.settimeout(PATIENCE)
    connection.connect((HOST, target.tls_port if tls else target.port()))
    if tls:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = context.wrap_socket(connection)
    connection.settimeout(0.5)
    begun, closed = time.monotonic(), False
    with connection:
        while time.monotonic() - begun < 20 and not closed:
            try:
                connection.sendall(one * 50)
            except TimeoutError:
                continue
            except OSError:
                closed = True
    grown = resources(target.pair.seller).memory - before.memory
    expect(closed, "a client that never reads kept its connection for 20 s")
    expect(grown < 150 * MIB, f"the node grew by {grown / MIB:.0f} MiB")


# Bodies that do not end


def _unfinished(target: Target) -> None:
    """One address holds 48 MiB of messages that are still coming, and no more."""
    begin = (
        probes.head(
            "POST",
            "/msh",
            'Content-Type: multipart/related; type="application/soap+xml"; boundary=b',
            f"Content-Length: {64 * MIB}",
        )
        + b"--b\r\nContent-Type: application/soap+xml\r\n\r\n<x/>\r\n"
        + b"--b\r\nContent-ID: <1@x>\r\n\r\n"
    )
    before = resources(target.pair.seller).disk
    answers: list[int] = []
    lock = threading.Lock()

    def hold(_: int) -> None:
        target.requests += 1
        with target.connect() as connection:
            with contextlib.suppress(OSError):
                connection.sendall(begin + bytes(12 * MIB))
            told = probes.until_closed(connection)
            with lock:
                answers.extend(one.status for one in probes.read_answers(told))

    most, pause = 0, threading.Event()
    with ThreadPoolExecutor(10) as pool:
        running = [pool.submit(hold, number) for number in range(10)]
        target.honest()
        while not all(one.done() for one in running):
            most = max(most, resources(target.pair.seller).disk - before)
            pause.wait(0.1)
        for one in running:
            one.result()
    expect(answers.count(503) >= 4, f"120 MiB of unfinished messages were answered {answers}")
    expect(most <= 64 * MIB, f"{most / MIB:.0f} MiB of unfinished messages were on the disk")
    probes.until(
        lambda: resources(target.pair.seller).disk - before < 4 * MIB,
        "unfinished bodies are removed",
    )


def _bodies(_: Target) -> Iterator[Case]:
    named = ("bytes of unfinished messages",)
    yield Case("ten bodies of 12 MiB that do not end", _unfinished, named)


CLASSES: Final = (
    AttackClass("half-open connections", _crowds),
    AttackClass("clients that dribble or do not read", _dribbles),
    AttackClass("bodies that do not end", _bodies),
)
