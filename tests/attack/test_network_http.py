"""HTTP that lies, dawdles, crowds or smuggles: the door stays open for everybody else."""

import asyncio
import contextlib
import gzip
import socket
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import pytest

from postroad.msh import payloads
from postroad.msh.compression import Zipped, gunzip
from postroad.transport.http_limits import ServerLimits
from postroad.wire.ebms3 import GZIP
from postroad.wire.limits import MIB
from tests.attack.messages import VERSION, for_seller, payload, soap
from tests.attack.network import PATIENCE, Answer, Town, closed, hear, order, town, until, write

SOAP: Final = VERSION.media_type


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    """Here connections are what it is about."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A node that takes a mebibyte, and two connections at once."""
    more = "limits: {message_bytes: 1 MiB, part_bytes: 1 MiB}\n"
    with town(tmp_path_factory.mktemp("small") / "folder", more) as made:
        yield made


def _head(*lines: str, method: str = "POST", path: str = "/msh") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def _parted(raw: bytes) -> tuple[str, bytes]:
    """The content type and the body of a request."""
    head, _, body = raw.partition(b"\r\n\r\n")
    line = next(one for one in head.split(b"\r\n") if one.lower().startswith(b"content-type:"))
    return line.decode(), body


# Methods, encodings, types


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_only_post_is_answered_and_the_rest_is_told_so(place: Town, method: str) -> None:
    with place.harmless("EBMS:0004"), place.connect() as connection:
        connection.sendall(_head("Content-Length: 0", method=method))
        assert connection.recv(65536).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, gzip", "GZIP"])
def test_a_content_encoding_is_refused_unread(place: Town, encoding: str) -> None:
    """A bomb in it is never opened."""
    body = gzip.compress(bytes(10 * MIB))
    lines = (f"Content-Type: {SOAP}", f"Content-Encoding: {encoding}")
    with place.harmless("EBMS:0007"):
        answer = place.say(_head(*lines, f"Content-Length: {len(body)}") + body)
        assert answer.status == 415


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/json", "multipart/mixed"])
def test_a_wrong_content_type_is_refused_by_name(place: Town, kind: str | None) -> None:
    body = order(place.new_id()).envelope
    lines = [] if kind is None else [f"Content-Type: {kind}"]
    place.refuses(_head(*lines, f"Content-Length: {len(body)}") + body, "EBMS:0007", status=415)


# Lengths


@pytest.mark.parametrize("chunks", [1, 7, 1000])
def test_a_chunked_body_is_a_body(place: Town, chunks: int) -> None:
    name = place.new_id()
    kind, body = _parted(order(name).wire())
    size = -(-len(body) // chunks)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"
    answer = place.say(_head(kind, "Transfer-Encoding: chunked") + chunked)
    assert answer.is_receipt
    assert place.events(name) == ["received", "delivered", "receipt_sent"]


def test_a_client_that_asks_first_is_told_to_go_on(place: Town) -> None:
    name = place.new_id()
    kind, body = _parted(order(name).wire())
    lines = (kind, f"Content-Length: {len(body)}", "Expect: 100-continue")
    with place.connect() as connection:
        connection.sendall(_head(*lines))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert hear(connection).is_receipt


def test_a_client_that_asks_first_with_too_much_is_not_told_to_go_on(small: Town) -> None:
    lines = (f"Content-Type: {SOAP}", "Content-Length: 99999999999", "Expect: 100-continue")
    with small.harmless("EBMS:0007"), small.connect() as connection:
        connection.sendall(_head(*lines))
        answer = hear(connection)
        assert (answer.status, answer.codes) == (413, ["EBMS:0007"])


def test_a_payload_larger_than_the_limit_is_refused_however_it_comes(small: Town) -> None:
    name = small.new_id()
    kind, body = _parted(order(name, b"x" * (MIB + 1)).wire())
    announced = _head(kind, f"Content-Length: {len(body)}") + body
    small.refuses(announced, "EBMS:0007", status=413)
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    small.refuses(_head(kind, "Transfer-Encoding: chunked") + chunked, "EBMS:0007", status=413)
    assert small.message(name) is None
    left = list((small.folder / "seller" / "data").rglob("t*-*"))
    assert not [one for one in left if one.is_file()], "a spool file was left behind"


@pytest.mark.parametrize("part", [0, 10, 3000])
def test_a_body_that_breaks_off_is_written_down_and_nothing_of_it_stays(
    place: Town, part: int
) -> None:
    name = place.new_id()
    kind, body = _parted(order(name, b"x" * 700_000).wire())
    sent = body[:part] if part < 3000 else body[:-2000]
    with place.harmless("EBMS:0007"):
        mark = place.mark()
        with place.connect() as connection:
            connection.sendall(_head(kind, f"Content-Length: {len(body)}") + sent)
            if part:
                until(lambda: place.seller.server.connections > 0)
        until(lambda: bool(place.told(mark)))
        [event] = [one.event for one in place.told(mark)]
        assert "cut short" in (event.detail or "")
    assert place.message(name) is None


def test_a_length_that_is_too_small_makes_the_rest_a_request_that_is_none(place: Town) -> None:
    name = place.new_id()
    kind, body = _parted(order(name).wire())
    inbox = place.inbox()
    with place.connect() as connection:
        connection.sendall(_head(kind, f"Content-Length: {len(body) - 300}") + body)
        first = hear(connection)
        assert "EBMS:0007" in first.codes or "EBMS:0101" in first.codes, first
        rest = closed(connection)
    assert rest == b"" or rest.startswith(b"HTTP/1.1 400 ")
    assert place.inbox() == inbox
    place.good()


# Smuggling: two who read the same bytes and see different requests


SMUGGLED: Final = {
    "both lengths": ("Content-Length: 5", "Transfer-Encoding: chunked"),
    "two lengths": ("Content-Length: 5", "Content-Length: 50"),
    "a list of lengths": ("Content-Length: 5, 50",),
    "a length with a sign": ("Content-Length: +5",),
    "a negative length": ("Content-Length: -1",),
    "a length in hexadecimal": ("Content-Length: 0x10",),
    "chunked twice": ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "chunked, but not last": ("Transfer-Encoding: chunked, identity",),
    "an unknown coding": ("Transfer-Encoding: xchunked",),
    "another coding before chunked": ("Transfer-Encoding: gzip, chunked",),
    "another coding in a line before": ("Transfer-Encoding: gzip", "Transfer-Encoding: chunked"),
    "two hosts": ("Host: other.example", "Content-Length: 5"),
    "a blank before the colon": ("Transfer-Encoding : chunked", "Content-Length: 5"),
    "a folded line": ("Content-Length:\r\n 5",),
    "a bare line feed": ("X: y\nContent-Length: 50", "Content-Length: 5"),
    "a NUL": ("X: \0", "Content-Length: 5"),
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_a_request_with_two_meanings_has_none(place: Town, name: str) -> None:
    """What is hidden behind it is never answered as a request of its own."""
    hidden_id = place.new_id()
    hidden = order(hidden_id).wire()
    inbox = place.inbox()
    body = b"0\r\n\r\n" + hidden
    with place.connect() as connection:
        connection.sendall(_head(f"Content-Type: {SOAP}", *SMUGGLED[name]) + body)
        connection.shutdown(socket.SHUT_WR)
        said = closed(connection)
    statuses = [int(one[:3]) for one in said.split(b"HTTP/1.1 ")[1:]]
    assert 200 not in statuses, said
    assert len(statuses) <= 1, "the hidden request was answered"
    assert place.message(hidden_id) is None
    assert place.inbox() == inbox
    place.good()


def test_requests_of_one_connection_are_answered_each_for_itself(place: Town) -> None:
    """A refused one between two good ones changes nothing for them."""
    first, last = place.new_id(), place.new_id()
    requests = order(first).wire() + soap(b"<x/>") + order(last).wire()
    with place.connect() as connection:
        connection.sendall(requests)
        file = connection.makefile("rb")
        statuses = []
        for _ in range(3):
            answer = _from(file)
            statuses.append(answer.status)
    assert statuses == [200, 400, 200]
    assert {first, last} <= place.inbox()


def _from(file: BinaryIO) -> Answer:
    """One answer of several on a connection."""
    status = int(file.readline().split()[1])
    headers = {}
    while line := file.readline().strip():
        key, _, value = line.decode().partition(": ")
        headers[key.lower()] = value
    return Answer(status, headers, file.read(int(headers["content-length"])))


@pytest.mark.parametrize(
    "path", ["/msh/", "/MSH", "//msh", "/msh/../msh", "/msh%00", "/%2e%2e/msh", "/api/v1/../../msh"]
)
def test_only_the_path_of_the_endpoint_takes_messages(place: Town, path: str) -> None:
    name = place.new_id()
    data = order(name).wire().replace(b"POST /msh ", f"POST {path} ".encode(), 1)
    assert place.say(data).status in (400, 401, 404, 405)
    assert place.message(name) is None


# Crowds and dawdlers


def test_a_thousand_idle_connections_keep_nobody_out(place: Town) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(place.connect())
        until(lambda: place.seller.server.connections >= 1000)
        for _ in range(3):
            place.good()
    until(lambda: place.seller.server.connections < 10)


def test_a_hundred_half_requests_keep_nobody_out(place: Town) -> None:
    kind, body = _parted(order(place.new_id()).wire())
    begun = _head(kind, f"Content-Length: {len(body)}") + body[:1000]
    mark = place.mark()
    with contextlib.ExitStack() as stack:
        for number in range(100):
            one = stack.enter_context(place.connect())
            one.sendall(begun if number % 2 else begun[:60])
        for _ in range(3):
            place.good()
    until(lambda: len(_cut_short(place, mark)) == 50)


def test_as_many_half_requests_as_there_are_places_keep_nobody_out(place: Town) -> None:
    kind, body = _parted(order(place.new_id()).wire())
    begun = _head(kind, f"Content-Length: {len(body)}") + body[:100]
    mark = place.mark()
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(500):
                stack.enter_context(place.connect()).sendall(begun)
            until(lambda: place.seller.server.connections >= 500)
            place.good()
    finally:
        until(lambda: len(_cut_short(place, mark)) == 500)


def _cut_short(place: Town, mark: int) -> list[str]:
    told = [one.event for one in place.told(mark)]
    return [one.event for one in told if one.error_code == "EBMS:0007"]


def test_who_sends_too_slowly_is_cut_off_and_nothing_stays(place: Town) -> None:
    name = place.new_id()
    kind, body = _parted(order(name).wire())
    limits = ServerLimits()
    with place.harmless("EBMS:0007"), place.connect() as connection:
        mark = place.mark()
        connection.sendall(_head(kind, f"Content-Length: {len(body)}", "Expect: 100-continue"))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        for at in range(10):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(body[at : at + 1])
            _pass(place, limits.body_seconds / 4)
        assert closed(connection) == b""
        until(lambda: bool(place.told(mark)))
    assert place.message(name) is None


def _pass(place: Town, seconds: float) -> None:
    """Time passes at the seller's door, and the watchdog looks."""

    async def sweep() -> None:
        # Twice, so that what lies in the sockets has been read.
        for _ in range(5):
            await asyncio.sleep(0)
        place.seller.seconds.now += seconds
        place.seller.server.sweep()

    place.run(sweep())


def test_who_never_ends_the_head_is_cut_off(place: Town) -> None:
    with place.connect() as connection:
        connection.sendall(b"POST /msh HTTP/1.1\r\nX-1: a\r\n")
        until(lambda: place.seller.server.connections > 0)
        _pass(place, 0)
        _pass(place, ServerLimits().header_seconds + 1)
        assert closed(connection).startswith(b"HTTP/1.1 408 ")
    place.good()


def test_a_message_whose_sender_has_gone_is_not_processed(place: Town) -> None:
    """Its sender will send it again: an overloaded node does not work for both."""
    name = place.new_id()
    mark = place.mark()
    sent = threading.Event()

    async def busy() -> None:
        assert sent.wait(PATIENCE)

    with place.connect() as connection:
        until(lambda: place.seller.server.connections > 0)
        waiting = asyncio.run_coroutine_threadsafe(busy(), place.loop)
        connection.sendall(order(name).wire())
    sent.set()
    waiting.result(PATIENCE)
    until(lambda: place.seller.server.connections == 0)
    place.good()
    assert place.message(name) is None
    assert name not in str(place.told(mark))
    assert place.post(order(name)).is_receipt


def test_who_does_not_read_the_answer_keeps_nobody_waiting_and_its_message_stays(
    place: Town,
) -> None:
    name = place.new_id()
    with place.connect() as connection:
        connection.sendall(order(name).wire())
        until(lambda: name in place.inbox())
        place.good()
        _pass(place, 0)
        _pass(place, ServerLimits().idle_seconds + 1)
        assert closed(connection).startswith(b"HTTP/1.1 200 ")
    assert place.events(name) == ["received", "delivered", "receipt_sent"]
    place.good()


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "encrypted"])
def test_a_bomb_does_not_keep_others_waiting(
    place: Town, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    """It is opened beside the loop, which goes on serving."""
    threads = set()

    def noted(*values: Any, **named: Any) -> Zipped:
        threads.add(threading.get_ident())
        return gunzip(*values, **named)

    async def loops_own() -> int:
        return threading.get_ident()

    monkeypatch.setattr(payloads, "gunzip", noted)
    parts = [payload(f"p{n}", gzip.compress(bytes(8 * MIB), mtime=0), GZIP) for n in range(9)]
    how = for_seller() if sealed else None
    place.refuses(write(place.new_id(), parts, encryption=how), "EBMS:0303")
    assert threads
    assert place.run(loops_own()) not in threads


OLD: Final = {
    "HTTP/0.9": (b"GET /healthz\r\n\r\n", 505),
    "HTTP/0.9 by name": (b"GET /healthz HTTP/0.9\r\nHost: a\r\n\r\n", 505),
    "HTTP/2.0 by name": (b"GET /healthz HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    "no Host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    **{
        f"Host {host.decode()}": (b"GET /healthz HTTP/1.1\r\nHost: %b\r\n\r\n" % host, 400)
        for host in (b"a/b", b"user@a", b"a b", b"a, b", b"a:port", b"[::1", b"a:1:2")
    },
    "chunks in HTTP/1.0": (
        b"POST /msh HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "gzip in chunks": (
        b"POST /msh HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
}


@pytest.mark.parametrize("host", [b"", b"a.example", b"a_b:80", b"[::1]:8080", b"1.2.3.4:", b"%61"])
def test_host_may_be_whatever_a_url_has(place: Town, host: bytes) -> None:
    with place.connect() as connection:
        connection.sendall(b"GET /msh HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % host)
        assert closed(connection).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize("name", OLD)
def test_head_that_others_read_differently_is_refused(place: Town, name: str) -> None:
    raw, status = OLD[name]
    with place.connect() as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        said = closed(connection)
    assert said.startswith(b"HTTP/1.1 %d " % status), said
    assert said.count(b"content-length:") == 1
    place.good()
