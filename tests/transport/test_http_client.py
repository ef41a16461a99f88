"""The client says what it is told, however large, and gives answers as they came."""

import asyncio
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroad.store.spool import SpoolSink
from postroad.transport.http_client import HttpClient, parse_address
from postroad.transport.http_outgoing import Pieces, Reply
from postroad.wire.limits import MIB
from tests.ports import free_port
from tests.transport.posting import OK, answering, failure, outgoing, ports, reply_to
from tests.transport.wires import Seen, in_loop, run, serving, talking, until


@in_loop
async def test_a_request_says_what_it_is_told_and_little_else() -> None:
    async with answering(OK) as (url, asked), HttpClient() as client:
        headers = (("SOAPAction", '""'), ("X-Name", "Ä"))
        await client.post(outgoing(f"{url}/msh?a=b c", headers=headers))
        host = url.removeprefix("http://")
    assert asked == [
        (
            f"POST /msh?a=b%20c HTTP/1.1\r\nHost: {host}\r\nUser-Agent: postroad\r\n"
            'Content-Type: text/plain\r\nContent-Length: 5\r\nSOAPAction: ""\r\nX-Name: Ä\r\n\r\n'
            "hello"
        ).encode("latin-1")
    ]


@in_loop
async def test_a_reply_has_status_headers_and_body() -> None:
    head = (
        b"HTTP/1.1 500 Oops\r\nContent-Type: a/b\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 3\r\n\r\n"
    )
    headers = (("content-type", "a/b"), ("x-a", "1"), ("x-a", "2"), ("content-length", "3"))
    assert await reply_to(head + b"bad") == Reply(500, "a/b", headers, b"bad")


@pytest.mark.parametrize(
    ("said", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0"
            b"\r\n\r\n",
            b"abc",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-T: 1\r\n\r\n",
            b"a",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nX: y\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nz", b"z"),
    ],
    ids=["chunked", "trailers", "204", "empty", "1xx", "http-1.0"],
)
def test_the_end_of_an_answer_is_found(said: bytes, body: bytes) -> None:
    async def scenario() -> None:
        reply = await reply_to(said)
        assert reply.body == body
        assert reply.status in (200, 204)
        assert not {"x", "x-t"} & {name for name, _ in reply.headers}

    run(scenario())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_answer_may_end_with_its_connection(loop: str) -> None:
    async def scenario() -> None:
        said = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\n" + b"x" * 100_000
        assert (await reply_to(said, close=True)).body == b"x" * 100_000
        assert (await reply_to(b"HTTP/1.0 200 OK\r\n\r\n", close=True)).body == b""

    run(scenario(), loop)


@in_loop
async def test_a_redirect_is_an_answer_like_any_other() -> None:
    reply = await reply_to(b"HTTP/1.1 302 F\r\nLocation: http://h/\r\nContent-Length: 0\r\n\r\n")
    assert (reply.status, dict(reply.headers)["location"]) == (302, "http://h/")


@in_loop
async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    assert (await reply_to(OK)).body == b"ok"


# Large bodies


def _spooled(folder: Path, size: int) -> Pieces:
    sink = SpoolSink(folder=str(folder))
    for _ in range(size // MIB):
        sink.write(b"x" * MIB)
    content = sink.finish()
    return Pieces(content.size, content.chunks)


@in_loop
async def test_a_large_body_passes_in_little_memory(tmp_path: Path) -> None:
    size = 64 * MIB
    told: list[int] = []
    count = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        await reader.readuntil(b"\r\n\r\n")
        while count < size:
            count += len(await reader.read(MIB))
        writer.write(OK)
        await reader.read()

    body = _spooled(tmp_path, size)
    async with talking(talk) as url, HttpClient() as client:
        tracemalloc.start()
        try:
            reply = await client.post(outgoing(url, body, progress=told.append))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert reply.body == b"ok"
        assert count == size
        assert peak < 6 * MIB
        assert told == sorted(told)
        assert told[-1] == size


@pytest.mark.parametrize("size", [0, 1, 9 * MIB])
def test_a_body_in_pieces_arrives_as_it_is(size: int) -> None:
    async def scenario() -> None:
        app = Seen()
        data = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
        pieces = Pieces(size, lambda: iter([data[: size // 2], b"", data[size // 2 :]]))
        async with serving(app) as server, HttpClient() as client:
            for _ in range(2):
                assert (await client.post(outgoing(server.url, pieces))).status == 200
            assert app.bodies == [data, data]
            assert len(set(ports(app))) == 1

    run(scenario())


def _broken(after: bytes) -> Iterator[bytes]:
    if after:
        yield after
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("pieces", "transmitted", "reason"),
    [
        (Pieces(10, lambda: _broken(b"")), False, "the content cannot be read: the disk is gone"),
        (Pieces(10, lambda: _broken(b"abc")), True, "the content cannot be read: the disk is gone"),
        (Pieces(10, lambda: iter([b"abc"])), True, "the content ended after 3 of 10 bytes"),
        (Pieces(2, lambda: iter([b"a", b"bc"])), True, "the content is longer than 2 bytes"),
    ],
    ids=["at-once", "midway", "short", "long"],
)
def test_a_body_that_cannot_be_read_is_told(pieces: Pieces, transmitted: bool, reason: str) -> None:
    async def scenario() -> None:
        app = Seen()
        async with serving(app) as server, HttpClient() as client:
            found = await failure(client, outgoing(server.url, pieces))
            assert (found.kind, found.reason, found.transmitted) == ("body", reason, transmitted)
            assert (await client.post(outgoing(server.url))).status == 200
            assert app.bodies == [b"hello"]

    run(scenario())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("rest", ["waits", "closes"])
def test_an_answer_that_comes_before_the_body_is_sent_is_given(loop: str, rest: str) -> None:
    async def scenario() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Large\r\nContent-Length: 3\r\n\r\nbig")
            await writer.drain()
            if rest == "waits":
                await asyncio.Event().wait()

        async with talking(talk) as url, HttpClient() as client:
            pieces = Pieces(1000 * MIB, lambda: iter([b"x" * MIB] * 1000))
            reply = await client.post(outgoing(url, pieces))
            assert (reply.status, reply.body) == (413, b"big")
            await until(lambda: client._opened == 0)

    run(scenario(), loop)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_an_answer_is_read_even_when_the_connection_is_already_reset(loop: str) -> None:
    """A server that answers and closes with our bytes unread: what it said still lies there."""
    closed = threading.Event()

    def serve(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        accepted.recv(10)
        accepted.sendall(b"HTTP/1.1 413 Large\r\nContent-Length: 3\r\n\r\nbig")
        accepted.close()
        closed.set()

    def pieces() -> Iterator[bytes]:
        yield b"x" * 100
        closed.wait()
        for _ in range(7):
            yield b"x" * MIB

    async def scenario(url: str) -> None:
        async with HttpClient() as client:
            reply = await client.post(outgoing(url, Pieces(100 + 7 * MIB, pieces)))
            assert (reply.status, reply.body) == (413, b"big")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        run(scenario(f"http://127.0.0.1:{listener.getsockname()[1]}/"), loop)
        thread.join()


@in_loop
async def test_our_own_server_refuses_a_large_body_so_that_it_is_heard() -> None:
    async with serving(Seen(limit=1000)) as server, HttpClient() as client:
        for _ in range(5):
            reply = await client.post(outgoing(server.url, b"x" * 20 * MIB))
            assert reply.status == 413


# Answers in pieces, addresses, headers


def test_who_reads_an_answer_itself_gets_its_body_piece_by_piece() -> None:
    taken: list[tuple[str, bytes]] = []

    def reader(content_type: str) -> Callable[[bytes], None]:
        return lambda data: taken.append((content_type, data))

    async def story() -> None:
        said = (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/x\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
        )
        async with answering(said, OK) as (url, _), HttpClient() as client:
            reply = await client.post(outgoing(url, reader=reader))
            assert (reply.status, reply.body) == (200, b"")
            assert taken == [("text/x", b"one"), ("text/x", b"two")]
            # The next answer over the same connection is given as ever.
            assert (await client.post(outgoing(url))).body == b"ok"

    run(story())


def test_an_address_names_host_and_port() -> None:
    address = parse_address("https://[::1]/a/ü?x=ß")
    assert (address.host, address.port, address.peer) == ("::1", 443, "[::1]:443")
    assert address.head.startswith("POST /a/%C3%BC?x=%C3%9F HTTP/1.1\r\nHost: [::1]\r\n")
    assert (
        "Host: xn--bcher-kva.example:8080\r\n" in parse_address("http://bücher.example:8080").head
    )


@pytest.mark.parametrize("header", [("X", "a\r\nY: b"), ("X\n", "a"), ("X", "a\rb")])
def test_a_header_cannot_smuggle_another(header: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with HttpClient() as client:
            with pytest.raises(ValueError, match="line break"):
                await client.post(outgoing("http://127.0.0.1:9/", headers=(header,)))

    run(scenario())


@pytest.mark.parametrize("at_hand", [True, False])
@in_loop
async def test_a_large_body_is_read_by_a_thread_unless_it_is_at_hand(at_hand: bool) -> None:
    readers = set()

    def read() -> Iterator[bytes]:
        for _ in range(9):
            readers.add(threading.current_thread())
            yield b"x" * MIB

    app = Seen()
    async with serving(app) as server, HttpClient() as client:
        body = Pieces(9 * MIB, read, at_hand)
        reply = await client.post(outgoing(f"{server.url}/msh", body))
    assert reply.body == b"%d" % (9 * MIB)
    assert (threading.current_thread() in readers) is at_hand
