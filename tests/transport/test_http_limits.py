"""Clients that take their time lose their own connection, and nobody else notices."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from postroad.transport.http_body import Receive, Scope, Send, Truncated, body_chunks
from postroad.transport.http_connection import Connection
from postroad.transport.http_limits import ServerLimits
from postroad.transport.http_server import HttpServer
from tests.transport.wires import Clock, Seen, answer, in_loop, line_to, post, serving, until

LIMITS = ServerLimits()
CROWD = 1000


class Watched:
    """A server with a clock that is moved by hand."""

    def __init__(self, server: HttpServer, clock: Clock) -> None:
        self.server = server
        self.clock = clock

    def after(self, seconds: float) -> None:
        """Let time pass and the watchdog look."""
        self.clock.now += seconds
        self.server.sweep()

    async def others_are_served(self) -> None:
        async with line_to(self.server) as line:
            line.say(post(b"hello"))
            assert (await line.hear())[::2] == (200, b"5")


@asynccontextmanager
async def watched(app: Seen, limits: ServerLimits = LIMITS) -> AsyncIterator[Watched]:
    clock = Clock()
    async with serving(app, limits, clock=clock) as server:
        yield Watched(server, clock)


@in_loop
async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with watched(Seen()) as it, line_to(it.server) as line:
        await until(lambda: it.server.connections == 1)
        it.after(LIMITS.header_seconds - 1)
        await it.others_are_served()
        it.after(2)
        assert await line.closed() == b""


@in_loop
async def test_a_head_that_comes_byte_by_byte_is_answered_with_408() -> None:
    async with watched(Seen()) as it, line_to(it.server) as line:
        [connection] = await _connections(it, 1)
        for byte in (b"P", b"O", b"S", b"T"):
            line.say(byte)
            await until(lambda said=byte: connection.loose_bytes == b"POST".index(said) + 1)
            it.after(LIMITS.header_seconds / 4)
        await it.others_are_served()
        it.after(1)
        assert (await line.hear())[0] == 408
        assert await line.closed() == b""


@in_loop
async def test_the_second_head_of_a_connection_has_its_own_time() -> None:
    async with watched(Seen()) as it, line_to(it.server) as line:
        line.say(post(b"x"))
        await line.hear()
        [connection] = await _connections(it, 1)
        it.after(LIMITS.idle_seconds - 1)
        line.say(b"POST / HTTP")
        await until(lambda: connection.loose_bytes > 0)
        it.after(LIMITS.header_seconds - 1)
        assert it.server.connections == 1
        it.after(2)
        assert (await line.hear())[0] == 408


@in_loop
async def test_an_idle_connection_is_kept_for_its_time_and_no_longer() -> None:
    async with watched(Seen()) as it, line_to(it.server) as line:
        for _ in range(3):
            line.say(post(b"x"))
            await line.hear()
            it.after(LIMITS.idle_seconds - 1)
        it.after(2)
        assert await line.closed() == b""


@in_loop
async def test_a_body_that_stops_is_given_up() -> None:
    app = Seen()
    async with watched(app, ServerLimits(min_rate=0)) as it, line_to(it.server) as line:
        line.say(post(b"x" * 100)[:-40])
        [connection] = await _connections(it, 1)
        await until(lambda: connection.body_bytes == 60)
        it.after(LIMITS.body_seconds - 1)
        line.say(b"x")
        await until(lambda: connection.body_bytes == 61)
        it.after(LIMITS.body_seconds - 1)
        await it.others_are_served()
        assert app.errors == []
        it.after(2)
        await app.until(lambda seen: bool(seen.errors))
        assert isinstance(app.errors[0], Truncated)
        assert await line.closed() == b""


@in_loop
async def test_a_body_that_trickles_is_given_up_although_it_moves() -> None:
    app = Seen()
    async with watched(app) as it, line_to(it.server) as line:
        line.say(post(b"x" * 1_000_000)[:-999_900])
        [connection] = await _connections(it, 1)
        for _ in range(int(LIMITS.body_seconds)):
            before = connection.body_bytes
            line.say(b"x" * (LIMITS.min_rate // 2))
            await until(lambda before=before: connection.body_bytes > before)
            it.after(1)
        await it.others_are_served()
        assert app.errors == []
        it.after(1)
        await app.until(lambda seen: bool(seen.errors))
        assert isinstance(app.errors[0], Truncated)


@in_loop
async def test_a_body_that_keeps_the_min_rate_may_take_long() -> None:
    app = Seen()
    async with watched(app) as it, line_to(it.server) as line:
        size = 100 * LIMITS.min_rate
        line.say(post(b"x" * size)[:-size])
        [connection] = await _connections(it, 1)
        await app.until(lambda seen: len(seen.scopes) == 1)
        for second in range(1, 100):
            line.say(b"x" * LIMITS.min_rate)
            sent = second * LIMITS.min_rate
            await until(lambda sent=sent: connection.body_bytes == sent)
            it.after(1)
        line.say(b"x" * LIMITS.min_rate)
        assert (await line.hear())[::2] == (200, b"%d" % size)


@in_loop
async def test_a_client_is_not_blamed_for_an_application_that_reads_slowly() -> None:
    go = asyncio.Event()
    sizes: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        sizes.append(sum([len(piece) async for piece in body_chunks(receive, limit=1 << 30)]))
        await answer(send, 200, b"")

    clock = Clock()
    async with serving(app, clock=clock) as server, line_to(server) as line:
        it = Watched(server, clock)
        line.say(post(b"x" * 20_000_000))
        [connection] = await _connections(it, 1)
        await until(lambda: connection.flow.read_paused)
        for _ in range(100):
            it.after(10)
        go.set()
        assert (await line.hear())[0] == 200
        assert sizes == [20_000_000]


@in_loop
async def test_a_client_may_wait_for_100_continue() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await Seen()(scope, receive, send)

    clock = Clock()
    async with serving(app, clock=clock) as server, line_to(server) as line:
        it = Watched(server, clock)
        line.say(post(b"hello", "Expect: 100-continue")[:-5])
        [connection] = await _connections(it, 1)
        await until(lambda: connection.requests == 1)
        for _ in range(10):
            it.after(30)
        go.set()
        await line.reader.readuntil(b"100 Continue\r\n\r\n")
        line.say(b"hello")
        assert (await line.hear())[::2] == (200, b"5")


def _large(size: int) -> Seen:
    """An application with a large answer at /large."""

    class Large(Seen):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == "/large":
                await answer(send, 200, b"x" * size)
            else:
                await super().__call__(scope, receive, send)

    return Large()


@in_loop
async def test_a_reader_that_takes_nothing_is_given_up() -> None:
    async with watched(_large(50_000_000)) as it, line_to(it.server) as line:
        line.reader._transport.pause_reading()  # type: ignore[attr-defined]
        line.say(post(b"", path="/large"))
        [connection] = await _connections(it, 1)
        await until(lambda: connection.transport.get_write_buffer_size() > 1_000_000)
        it.after(0)
        it.after(LIMITS.write_seconds - 1)
        await it.others_are_served()
        assert it.server.connections >= 1
        it.after(2)
        await until(lambda: connection not in it.server._state.open)


@in_loop
async def test_a_reader_that_takes_enough_may_take_long() -> None:
    async with watched(_large(20_000_000)) as it, line_to(it.server) as line:
        line.say(post(b"", path="/large"))
        [connection] = await _connections(it, 1)
        unread = connection.transport.get_write_buffer_size
        await until(lambda: unread() > 1_000_000)
        it.after(0)
        while left := unread():
            while unread() > max(0, left - LIMITS.min_rate * LIMITS.write_seconds):
                assert await line.reader.read(8192)
            it.after(LIMITS.write_seconds - 1)
        it.after(LIMITS.write_seconds - 1)
        assert it.server.connections == 1


@in_loop
async def test_a_reader_for_whom_the_kernel_holds_much_is_rated_by_what_it_read() -> None:
    """The kernel takes no more until a third of what it holds was read, which may be a megabyte."""
    async with watched(_large(50_000_000)) as it:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        client.connect((it.server.host, it.server.port))
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(post(b"", path="/large"))
        [connection] = await _connections(it, 1)
        await until(lambda: connection.transport.get_write_buffer_size() > 1_000_000)
        for _ in range(10):
            await reader.readexactly(3 * LIMITS.min_rate * int(LIMITS.write_seconds))
            it.after(LIMITS.write_seconds - 1)
        assert connection in it.server._state.open
        it.after(0)
        it.after(LIMITS.write_seconds + 1)
        await until(lambda: connection not in it.server._state.open)
        writer.transport.abort()


@in_loop
async def test_after_an_early_answer_a_sender_is_listened_to_for_a_little_while() -> None:
    async with watched(Seen(limit=10)) as it, line_to(it.server) as line:
        line.say(post(b"x" * 1000)[:-1])
        assert (await line.hear())[0] == 413
        it.after(LIMITS.linger_seconds - 1)
        assert it.server.connections == 1
        it.after(2)
        assert await line.closed() == b""
        await it.others_are_served()


@in_loop
async def test_a_thousand_idle_connections_leave_room_for_others() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * CROWD + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"only {hard} files may be open here")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        async with watched(Seen()) as it, AsyncExitStack() as crowd:
            lines = [await crowd.enter_async_context(line_to(it.server)) for _ in range(CROWD)]
            await until(lambda: it.server.connections == CROWD)
            await it.others_are_served()
            it.after(LIMITS.header_seconds + 1)
            for line in lines:
                assert await line.closed() == b""
            assert it.server.connections == 0
            await it.others_are_served()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@in_loop
async def test_the_watchdog_looks_by_itself() -> None:
    limits = ServerLimits(header_seconds=0.01)
    async with serving(Seen(), limits) as server, line_to(server) as line:
        assert await line.closed() == b""


async def _connections(it: Watched, count: int) -> list[Connection]:
    await until(lambda: it.server.connections == count)
    return list(it.server._state.open)
