"""Bodies that are passed on while they come, in both directions, and never held."""

import asyncio
import hashlib
import tracemalloc
from collections.abc import AsyncGenerator

import pytest

from postroad.transport.http_body import Receive, Scope, Send, body_chunks
from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Flow, Outgoing, Timeouts, TransportFailure
from postroad.transport.http_passage import Passage
from tests.transport.wires import Seen, answer, in_loop, run, serving, talking

PIECE = bytes(range(256)) * 256
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def flow(*pieces: bytes, length: int | None = None) -> Flow:
    async def read() -> AsyncGenerator[bytes, None]:
        for piece in pieces:
            yield piece

    return Flow(length, read)


def request(url: str, body: Flow, **values: object) -> Outgoing:
    return Outgoing(url, "text/plain", body, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [None, 6])
@in_loop
async def test_a_body_is_sent_as_it_comes(length: int | None) -> None:
    seen = Seen()
    async with serving(seen) as server, HttpClient() as client:
        for _ in range(2):
            reply = await client.post(request(server.url, flow(b"abc", b"def", length=length)))
            assert reply.body == b"6"
        assert server.connections == 1
    assert seen.bodies == [b"abcdef"] * 2
    [framing] = {
        name
        for name, _ in seen.scopes[0]["headers"]
        if name in (b"content-length", b"transfer-encoding")
    }
    assert framing == (b"transfer-encoding" if length is None else b"content-length")


@pytest.mark.parametrize("length", [2, 10])
@in_loop
async def test_a_body_of_another_length_than_was_said_is_not_sent_whole(length: int) -> None:
    seen = Seen()
    async with serving(seen) as server, HttpClient() as client:
        with pytest.raises(TransportFailure) as caught:
            await client.post(request(server.url, flow(b"abc", length=length)))
        assert caught.value.kind == "body"
    assert seen.bodies == []


@in_loop
async def test_a_body_that_breaks_off_leaves_nothing_whole_at_the_server() -> None:
    async def breaks_off() -> AsyncGenerator[bytes, None]:
        yield b"abc"
        raise ValueError("no more")

    seen = Seen()
    async with serving(seen) as server, HttpClient() as client:
        with pytest.raises(TransportFailure) as caught:
            await client.post(request(server.url, Flow(None, breaks_off)))
        assert (caught.value.kind, caught.value.transmitted) == ("body", True)
        await seen.until(lambda one: bool(one.errors))
    assert seen.bodies == []


@in_loop
async def test_an_answer_that_comes_before_the_end_of_the_body_is_not_waited_for() -> None:
    async def never_ends() -> AsyncGenerator[bytes, None]:
        yield b"abc"
        await asyncio.Event().wait()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"abc")
        writer.write(OK)
        await reader.read()

    async with talking(talk) as url, HttpClient() as client:
        reply = await client.post(request(url, Flow(None, never_ends)))
        assert reply.body == b"ok"


@pytest.mark.parametrize(("length", "connections"), [(3, 1), (4, 2), (None, 2)])
@in_loop
async def test_a_connection_is_kept_when_all_was_sent_before_the_answer(
    length: int | None, connections: int
) -> None:
    """Also when nobody has looked yet whether there is more of the body."""

    async def never_ends() -> AsyncGenerator[bytes, None]:
        yield b"abc"
        await asyncio.Event().wait()

    opened = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while await reader.readuntil(b"abc"):
            writer.write(OK)

    async with talking(talk) as url, HttpClient() as client:
        for _ in range(2):
            assert (await client.post(request(url, Flow(length, never_ends)))).body == b"ok"
    assert opened == connections


@in_loop
async def test_who_waits_for_the_next_piece_does_not_blame_the_server() -> None:
    moved = asyncio.Event()

    async def slow() -> AsyncGenerator[bytes, None]:
        yield b"abc"
        await moved.wait()
        yield b"def"

    seen = Seen()
    async with serving(seen) as server, HttpClient() as client:
        timeouts = Timeouts(stall=0.05)
        asyncio.get_running_loop().call_later(0.2, moved.set)
        reply = await client.post(request(server.url, Flow(None, slow), timeouts=timeouts))
    assert reply.body == b"6"


async def _endless(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with as many bytes as it was sent, in pieces, and what their digest was."""
    size, digest = 0, hashlib.sha256()
    async for piece in body_chunks(receive, limit=1 << 30):
        size += len(piece)
        digest.update(piece)
    said = [(b"x-digest", digest.hexdigest().encode())]
    await send({"type": "http.response.start", "status": 200, "headers": said})
    for _ in range(size // len(PIECE)):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_memory_does_not_grow_with_the_size_of_what_passes(loop: str) -> None:
    async def passed(client: HttpClient, url: str, count: int) -> int:
        async def pieces() -> AsyncGenerator[bytes, None]:
            for _ in range(count):
                yield PIECE

        whole = hashlib.sha256()
        for _ in range(count):
            whole.update(PIECE)
        expected = whole.hexdigest()
        tracemalloc.reset_peak()
        passage = Passage(client, request(url, Flow(None, pieces), reply_bytes=1 << 30))
        head = await passage.head()
        assert dict(head.headers)["x-digest"] == expected
        digest = hashlib.sha256()
        async for piece in passage.pieces():
            digest.update(piece)
            await asyncio.sleep(0)
        assert digest.hexdigest() == expected
        return tracemalloc.get_traced_memory()[1]

    async def scenario() -> None:
        async with serving(_endless) as server, HttpClient() as client:
            await passed(client, server.url, 20)
            few, many = [await passed(client, server.url, count) for count in (20, 400)]
            assert many < few + 2 * 1024 * 1024

    tracemalloc.start()
    try:
        run(scenario(), loop)
    finally:
        tracemalloc.stop()


@in_loop
async def test_an_answer_that_nobody_takes_is_not_read() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            writer.write(PIECE)
            await writer.drain()

    async with talking(talk) as url, HttpClient() as client:
        passage = Passage(client, request(url, flow(b"abc"), reply_bytes=1 << 30))
        await passage.head()
        while not passage._paused:
            await asyncio.sleep(0)
        assert passage._held < 1024 * 1024
        await passage.close()


@in_loop
async def test_an_answer_that_breaks_off_says_so() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await writer.drain()

    async with talking(talk) as url, HttpClient() as client:
        passage = Passage(client, request(url, flow(b"abc")))
        assert (await passage.head()).status == 200
        with pytest.raises(TransportFailure):
            [piece async for piece in passage.pieces()]
        await passage.close()


@in_loop
async def test_a_connection_that_was_held_back_serves_the_next_request() -> None:
    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        async for _ in body_chunks(receive, limit=1 << 30):
            pass
        await answer(send, 200, PIECE * 5)

    async with serving(large) as server, HttpClient() as client:
        for _ in range(3):
            passage = Passage(client, request(server.url, flow(b"abc")))
            await passage.head()
            assert b"".join([one async for one in passage.pieces()]) == PIECE * 5
            await passage.close()
        assert server.connections == 1
