"""Large bodies, which go past the parser: the same rules hold for them as for all others."""

import asyncio
import hashlib
from typing import Any

import pytest

from postroad.transport.http_body import TooLarge, Truncated
from postroad.transport.http_limits import ServerLimits
from postroad.wire.limits import MIB
from tests.transport.wires import Clock, Seen, in_loop, line_to, post, run, serving, until

LARGE = hashlib.shake_256(b"a drawing").digest(3 * MIB + 17)


class _Taken:
    """An application that keeps every piece that it is given, once it may go on."""

    def __init__(self, *, halts: bool = False) -> None:
        self.halts = halts
        """After the first piece."""
        self.pieces: list[bytes] = []
        self.begun = self.ended = False
        self.go_on = asyncio.Event()

    async def __call__(self, _: Any, receive: Any, send: Any) -> None:
        self.begun = True
        more = True
        while more:
            await self.go_on.wait()
            message = await receive()
            self.pieces.append(message.get("body", b""))
            if self.halts and len(self.pieces) == 1:
                self.go_on.clear()
            more = message.get("more_body", False)
        self.ended = True
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_large_body_is_whole_and_others_follow_it_on_the_same_connection(loop: str) -> None:
    async def scenario() -> None:
        app = Seen()
        async with serving(app) as server, line_to(server) as line:
            for body in (LARGE, b"small", LARGE[: MIB + 1], LARGE):
                line.say(post(body))
                assert (await line.hear())[::2] == (200, b"%d" % len(body))
            assert server.connections == 1
        assert app.bodies == [LARGE, b"small", LARGE[: MIB + 1], LARGE]

    run(scenario(), loop)


@in_loop
async def test_a_large_body_may_stand_between_pipelined_requests() -> None:
    app = Seen()
    async with serving(app) as server, line_to(server) as line:
        line.say(post(b"first") + post(LARGE) + post(b"last"))
        sizes = [(await line.hear())[2] for _ in range(3)]
    assert sizes == [b"5", b"%d" % len(LARGE), b"4"]
    assert app.bodies == [b"first", LARGE, b"last"]


@in_loop
async def test_a_large_body_comes_after_100_continue() -> None:
    app = Seen()
    async with serving(app) as server, line_to(server) as line:
        head = post(LARGE, "Expect: 100-continue")[: -len(LARGE)]
        line.say(head)
        assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.say(LARGE)
        assert (await line.hear())[0] == 200
    assert app.bodies == [LARGE]


@in_loop
async def test_of_a_large_body_that_breaks_off_all_that_came_is_handed_over() -> None:
    app = Seen()
    async with serving(app) as server, line_to(server) as line:
        line.say(post(LARGE)[:-1000])
        await line.writer.drain()
        line.hang_up()
        await app.until(lambda seen: bool(seen.errors))
    [error] = app.errors
    assert isinstance(error, Truncated)
    assert error.received == len(LARGE) - 1000


@in_loop
async def test_no_more_is_read_than_there_is_room_for() -> None:
    app = _Taken(halts=True)
    async with serving(app) as server, line_to(server) as line:
        line.say(post(LARGE)[: -len(LARGE)] + LARGE[:1000])
        await until(lambda: app.begun)
        line.say(LARGE[1000:])
        [connection] = server._state.open
        await until(lambda: connection.flow.read_paused)
        app.go_on.set()
        await until(lambda: len(app.pieces) == 1)
        for _ in range(10):
            await asyncio.sleep(0)
        app.go_on.set()
        await until(lambda: app.ended)
    assert b"".join(app.pieces) == LARGE


@in_loop
async def test_what_came_before_a_line_broke_comes_in_its_order_to_who_is_late() -> None:
    app = _Taken()
    async with serving(app) as server, line_to(server) as line:
        head = post(LARGE)[: -len(LARGE)]
        line.say(head + LARGE[:1000])
        await until(lambda: app.begun)
        line.say(LARGE[1000:500_000])
        await line.writer.drain()
        line.hang_up()
        await until(lambda: server.connections == 0)
        app.go_on.set()
        await until(lambda: app.ended)
    assert LARGE.startswith(b"".join(app.pieces))
    assert len(app.pieces[0]) >= 1000


@in_loop
async def test_a_large_body_that_is_answered_early_is_thrown_away() -> None:
    app = Seen(limit=2 * MIB)
    async with serving(app) as server:
        async with line_to(server) as line:
            line.say(post(LARGE)[:-10])
            status, head, _ = await line.hear()
            assert status == 413
            assert b"connection: close\r\n" in head
            line.say(LARGE[-10:])
            await line.writer.drain()
        await until(lambda: server.connections == 0)
        assert isinstance(app.errors[0], TooLarge)


@in_loop
async def test_a_large_body_that_comes_to_a_halt_is_given_up() -> None:
    app, clock = Seen(), Clock()
    limits = ServerLimits(body_seconds=30)
    async with serving(app, limits=limits, clock=clock) as server, line_to(server) as line:
        line.say(post(LARGE)[:-1000])
        await app.until(lambda seen: bool(seen.scopes))
        await line.writer.drain()
        clock.now += 20
        server.sweep()
        assert server.connections == 1
        clock.now += 20
        server.sweep()
        await app.until(lambda seen: bool(seen.errors))
    assert isinstance(app.errors[0], Truncated)


@in_loop
async def test_a_piece_that_was_handed_over_stays_as_it_is() -> None:
    app = _Taken()
    app.go_on.set()
    async with serving(app) as server, line_to(server) as line:
        line.say(post(LARGE * 3))
        await line.reader.readuntil(b"\r\n\r\n")
    assert b"".join(app.pieces) == LARGE * 3
    assert max(map(len, app.pieces)) <= MIB
