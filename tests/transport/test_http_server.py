"""The server answers requests as HTTP says, and whoever breaks it breaks only their own."""

import asyncio
import contextlib
import logging
import re
import socket

import pytest

from postroad.transport import http_server
from postroad.transport.http_body import Receive, Scope, Send, TooLarge, Truncated
from postroad.transport.http_limits import ServerLimits
from postroad.transport.http_server import HttpServer, listening_socket
from tests.transport.wires import (
    LOOPS,
    PATIENCE,
    Clock,
    Seen,
    answer,
    in_loop,
    line_to,
    post,
    run,
    serving,
    until,
)


async def _is_served(server: HttpServer) -> None:
    """Somebody else is answered as if nothing were wrong."""
    async with line_to(server) as line:
        line.say(post(b"hello"))
        assert (await line.hear())[::2] == (200, b"5")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_requests_of_one_connection_are_answered_one_after_the_other(loop: str) -> None:
    async def scenario() -> None:
        app = Seen()
        async with serving(app) as server, line_to(server) as line:
            for size in (0, 1, 100_000):
                line.say(post(b"x" * size))
                assert (await line.hear())[::2] == (200, b"%d" % size)
            assert server.connections == 1
            assert {scope["client"] for scope in app.scopes} == {
                line.writer.get_extra_info("sockname")
            }

    run(scenario(), loop)


@pytest.mark.req("P2-6.3.1-02")
@in_loop
async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with serving(Seen()) as server, line_to(server) as line:
        line.say(b"".join(post(b"x" * size) for size in (3, 1, 70_000, 2)))
        sizes = [(await line.hear())[2] for _ in range(4)]
        assert sizes == [b"3", b"1", b"70000", b"2"]


def _queued(server: HttpServer) -> int:
    """Return how many requests were read that wait for the answer to one before them."""
    return sum(len(one.pipeline) for one in server._state.open)


@in_loop
async def test_no_more_is_read_while_requests_wait_for_their_turn() -> None:
    """Else each answer would let in as many requests as the network brings at once."""
    seen, gate = Seen(), asyncio.Semaphore(0)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/gated":
            await gate.acquire()
        await seen(scope, receive, send)

    gated = b"GET /gated HTTP/1.1\r\nHost: x\r\n\r\n"
    async with serving(app) as server, line_to(server) as line:
        line.say(gated * 3)
        await until(lambda: _queued(server) == 2)
        line.say(gated * 300)
        gate.release()
        assert (await line.hear())[0] == 200
        await _is_served(server)
        assert _queued(server) == 1
        for _ in range(302):
            gate.release()
            assert (await line.hear())[0] == 200


@in_loop
async def test_there_is_an_end_to_requests_that_wait() -> None:
    """The connection is closed after those that were read."""
    app = Seen()
    async with serving(app) as server, line_to(server) as line:
        line.say(b"GET / HTTP/1.1\r\nHost:x\r\n\r\n" * 20_000)
        with contextlib.suppress(ConnectionResetError):  # Of what is still on its way.
            await line.reader.read()
        await until(lambda: server.connections == 0)
        assert 1000 < len(app.scopes) < 1010
        await _is_served(server)


@in_loop
async def test_a_client_that_expects_100_continue_gets_it_before_its_body() -> None:
    async with serving(Seen()) as server, line_to(server) as line:
        head, body = post(b"hello", "Expect: 100-continue").split(b"\r\n\r\n")
        line.say(head + b"\r\n\r\n")
        assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.say(body)
        assert (await line.hear())[::2] == (200, b"5")


@in_loop
async def test_a_chunked_body_is_whole_and_its_trailers_are_no_headers() -> None:
    app = Seen()
    async with serving(app) as server, line_to(server) as line:
        line.say(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5;why=not\r\nhello\r\n6\r\n world\r\n0\r\nContent-Type: text/evil\r\n\r\n"
        )
        assert (await line.hear())[::2] == (200, b"11")
    assert app.bodies == [b"hello world"]
    assert b"content-type" not in dict(app.scopes[0]["headers"])


@in_loop
async def test_get_and_any_content_type_reach_the_application() -> None:
    app = Seen()
    async with serving(app) as server, line_to(server) as line:
        line.say(b"GET /msh?a=b HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\n\r\n")
        assert (await line.hear())[0] == 200
    [scope] = app.scopes
    assert (scope["method"], scope["path"], scope["query_string"]) == ("GET", "/msh", b"a=b")
    assert "tls" not in scope.get("extensions", {})


@in_loop
async def test_an_offer_to_change_the_protocol_is_ignored() -> None:
    """As Java's client makes it with every first request."""
    offer = post(b"hello", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c")
    async with serving(Seen()) as server, line_to(server) as line:
        line.say(offer + post(b"second") + offer[:-2])
        assert (await line.hear())[::2] == (200, b"5")
        assert (await line.hear())[::2] == (200, b"6")
        line.say(offer[-2:])
        assert (await line.hear())[::2] == (200, b"5")


@in_loop
async def test_a_truncated_body_is_told_to_the_application_and_to_nobody_else() -> None:
    app = Seen()
    async with serving(app) as server:
        async with line_to(server) as line:
            line.say(post(b"x" * 100)[:-40])
            await app.until(lambda seen: len(seen.scopes) == 1)
            line.hang_up()
            await app.until(lambda seen: bool(seen.errors))
        [error] = app.errors
        assert isinstance(error, Truncated)
        assert error.received == 60
        await _is_served(server)


@in_loop
async def test_a_truncated_chunked_body_is_not_taken_for_a_whole_one() -> None:
    app = Seen()
    async with serving(app) as server, line_to(server) as line:
        line.say(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        line.writer.write_eof()
        await app.until(lambda seen: bool(seen.errors))
        assert isinstance(app.errors[0], Truncated)
        assert app.bodies == []


@in_loop
async def test_a_body_above_the_limit_is_refused_while_it_still_comes() -> None:
    app = Seen(limit=1000)
    async with serving(app) as server:
        async with line_to(server) as line:
            line.say(post(b"x" * 5_000_000)[:4_000_000])
            status, head, _ = await line.hear()
            assert status == 413
            assert b"connection: close\r\n" in head
            line.say(b"x" * 900_000)
            await line.writer.drain()
            assert server.connections == 1
        await until(lambda: server.connections == 0)
        assert isinstance(app.errors[0], TooLarge)
        await _is_served(server)


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST\r\n\r\n",
        b"POST /\xff HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\n\r\n",
    ],
    ids=["tls", "no-target", "not-ascii", "negative", "two-lengths", "connect"],
)
def test_what_is_no_http_request_is_refused(wrong: bytes) -> None:
    async def scenario() -> None:
        app = Seen()
        async with serving(app) as server:
            async with line_to(server) as line:
                line.say(wrong)
                assert (await line.hear())[0] == 400
                assert await line.closed() == b""
            assert app.bodies == []
            await _is_served(server)

    run(scenario())


@in_loop
async def test_what_follows_a_good_request_does_not_spoil_its_answer() -> None:
    async with serving(Seen()) as server, line_to(server) as line:
        line.say(post(b"one") + post(b"three") + b"\0\0 rubbish\r\n\r\n")
        assert (await line.hear())[::2] == (200, b"3")
        assert (await line.hear())[::2] == (200, b"5")
        assert await line.closed() == b""


@in_loop
async def test_rubbish_inside_a_chunked_body_is_refused() -> None:
    app = Seen()
    async with serving(app) as server, line_to(server) as line:
        line.say(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX\r\n"
        )
        assert (await line.hear())[0] == 400
        await app.until(lambda seen: bool(seen.errors))
        assert app.bodies == []


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /" + b"a" * 3000,
        b"GET / HTTP/1.1\r\nX: " + b"a" * 3000,
        b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 500,
        b"GET / HTTP/1.1\r\nX: " + b"a" * 3000 + b"\r\n\r\n",
        b"\r\n" * 2000,
    ],
    ids=["target", "one-header", "many-headers", "whole", "empty-lines"],
)
def test_a_head_without_end_is_refused(endless: bytes) -> None:
    async def scenario() -> None:
        async with serving(Seen(), ServerLimits(header_bytes=2048)) as server:
            async with line_to(server) as line:
                line.say(endless)
                assert (await line.hear())[0] == 431
            await _is_served(server)

    run(scenario())


@pytest.mark.parametrize("endless", [b"0\r\nX: ", b"5;x="], ids=["trailer", "chunk-extension"])
def test_a_chunked_body_cannot_hide_bytes_without_end(endless: bytes) -> None:
    async def scenario() -> None:
        app = Seen()
        async with serving(app, ServerLimits(header_bytes=2048)) as server:
            async with line_to(server) as line:
                line.say(
                    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + endless
                )
                await app.until(lambda seen: len(seen.scopes) == 1)
                line.say(b"a" * 5000)
                assert (await line.hear())[0] == 431
            await _is_served(server)

    run(scenario())


@in_loop
async def test_an_application_that_fails_is_told_in_one_line_and_answered_with_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise LookupError("two\nlines")

    caplog.set_level(logging.INFO)
    async with serving(app) as server, line_to(server) as line:
        line.say(post(b""))
        assert (await line.hear())[0] == 500
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.name == "postroad.http"
    pattern = r"a request failed: LookupError: two lines \(.*test_http_server.py:\d+\)"
    assert re.fullmatch(pattern, caplog.messages[-1])
    assert record.exc_info is None


@in_loop
async def test_a_connection_serves_no_more_requests_than_it_may() -> None:
    limits = ServerLimits(requests_per_connection=2)
    async with serving(Seen(), limits) as server, line_to(server) as line:
        line.say(post(b"") * 3)
        assert b"connection: close" not in (await line.hear())[1]
        assert b"connection: close" in (await line.hear())[1]
        assert await line.closed() == b""


class Slow:
    """An application that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.set()
        await self.go.wait()
        await answer(send, 200, b"done")


@in_loop
async def test_draining_finishes_what_is_under_way_and_accepts_nothing_new() -> None:
    app = Slow()
    async with serving(app) as server, line_to(server) as busy, line_to(server) as idle:
        await until(lambda: server.connections == 2)
        busy.say(post(b"x"))
        await app.asked.wait()
        draining = asyncio.create_task(server.drain(timeout=60))
        assert await idle.closed() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(server.host, server.port)
        assert not draining.done()
        app.go.set()
        status, head, body = await busy.hear()
        assert (status, body) == (200, b"done")
        assert b"connection: close\r\n" in head
        assert await busy.closed() == b""
        await draining
        assert server.connections == 0


def connected(server: HttpServer, count: int = 1) -> list[socket.socket]:
    """Clients that are connected, and that nobody has accepted: the loop gets no turn."""
    return [socket.create_connection((server.host, server.port), PATIENCE) for _ in range(count)]


def heard(client: socket.socket) -> bytes:
    """All that a client hears until its connection is closed; ConnectionError when it is reset."""
    with client:
        return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.mark.parametrize("loop", LOOPS)
def test_who_waits_to_be_accepted_is_served_before_the_server_is_gone(loop: str) -> None:
    async def scenario() -> None:
        app = Seen()
        async with serving(app) as server:
            clients = connected(server, 60)
            for client in clients:
                client.sendall(post(b"hello"))
            await server.drain(timeout=60)
            for client in clients:
                answer = heard(client)
                assert answer.startswith(b"HTTP/1.1 200 ")
                assert b"connection: close\r\n" in answer
            assert len(app.bodies) == len(clients)

    run(scenario(), loop)


@in_loop
async def test_who_was_connected_may_still_begin_a_request_while_draining() -> None:
    async with serving(Seen()) as server, line_to(server) as accepted:
        await until(lambda: server.connections == 1)
        [waiting] = connected(server)
        draining = asyncio.create_task(server.drain(timeout=60))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(server.host, server.port)
        accepted.say(post(b"hello"))
        waiting.sendall(post(b"hello"))
        assert (await accepted.hear())[0] == 200
        assert (await asyncio.to_thread(heard, waiting)).startswith(b"HTTP/1.1 200 ")
        await draining


@in_loop
async def test_who_asks_for_nothing_does_not_keep_a_server_from_its_end() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "LAST_CALL", 0.01)
        async with serving(Seen()) as server:
            [silent] = connected(server)
            await server.drain(timeout=3600)
            assert heard(silent) == b""


@in_loop
async def test_who_has_long_been_silent_is_not_waited_for() -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "LAST_CALL", 3600.0)
        limits = ServerLimits(header_seconds=7200)
        async with (
            serving(Seen(), limits, clock=clock) as server,
            line_to(server) as silent,
            line_to(server) as begun,
        ):
            begun.say(post(b"hello")[:20])
            await until(lambda: len(server._state.open) == 2)
            await until(lambda: any(one.loose_bytes for one in server._state.open))
            clock.now += 3600
            draining = asyncio.create_task(server.drain(timeout=60))
            assert await silent.closed() == b""
            begun.say(post(b"hello")[20:])
            assert (await begun.hear())[0] == 200
            await draining


@in_loop
async def test_a_request_that_comes_slowly_is_still_answered_while_draining() -> None:
    app = Seen()
    async with serving(app) as server, line_to(server) as line:
        request = post(b"hello")
        line.say(request[:-2])
        await app.until(lambda seen: len(seen.scopes) == 1)
        draining = asyncio.create_task(server.drain(timeout=60))
        await asyncio.sleep(0)
        line.say(request[-2:])
        status, head, body = await line.hear()
        assert (status, body) == (200, b"5")
        assert b"connection: close\r\n" in head
        await draining


@in_loop
async def test_draining_ends_after_its_time_whatever_is_under_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Slow()
    async with serving(app) as server, line_to(server) as line:
        line.say(post(b"x"))
        await app.asked.wait()
        await server.drain(timeout=0.01)
        assert await line.closed() == b""
        assert "gave up 1 requests that were under way" in caplog.messages


@in_loop
async def test_work_after_the_answer_is_finished_before_the_server_is_gone() -> None:
    done: list[bool] = []
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, b"")
        await go.wait()
        done.append(True)

    async with serving(app) as server, line_to(server) as line:
        line.say(post(b""))
        await line.hear()
        draining = asyncio.create_task(server.drain(timeout=60))
        assert await line.closed() == b""
        go.set()
        await draining
        assert done == [True]


@in_loop
async def test_servers_share_a_port_by_one_socket_or_by_one_each() -> None:
    one, two = Seen(), Seen()
    first = listening_socket("127.0.0.1", 0, reuse_port=True)
    second = listening_socket("127.0.0.1", first.getsockname()[1], reuse_port=True)
    async with serving(one, sock=first) as a, serving(two, sock=second) as b:
        assert a.port == b.port
        await _is_served(a)
    with socket.socket() as shared:
        shared.bind(("127.0.0.1", 0))
        shared.listen()
        shared.setblocking(False)
        async with serving(one, sock=shared.dup()) as a:
            await _is_served(a)
            await a.drain(timeout=10)
            async with serving(two, sock=shared.dup()) as b:
                await _is_served(b)


@in_loop
async def test_a_port_that_is_taken_is_told() -> None:
    async with serving(Seen()) as server:
        with pytest.raises(OSError, match="in use"):
            await HttpServer(Seen(), port=server.port).start()


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
@in_loop
async def test_the_server_listens_on_ipv6() -> None:
    async with serving(Seen(), host="::1") as server:
        assert server.url == f"http://[::1]:{server.port}"
        await _is_served(server)


@in_loop
async def test_every_answer_tells_the_date_and_no_software() -> None:
    async with serving(Seen()) as server, line_to(server) as line:
        line.say(post(b""))
        _, head, _ = await line.hear()
        assert re.search(rb"\r\ndate: \w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT\r\n", head)
        assert b"server:" not in head
