"""The client gives answers as they came, keeps connections, and says what went wrong and when."""

import asyncio
import errno
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from postroad.store.spool import SpoolSink
from postroad.transport.http_client import HttpClient, connect, parse_address
from postroad.transport.http_outgoing import Outgoing, Pieces, Reply, Timeouts, TransportFailure
from postroad.transport.tls import TlsProfile
from tests.transport.wires import (
    Seen,
    free_port,
    in_loop,
    read_request,
    run,
    serving,
    talking,
    until,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MIB = 1024 * 1024


def outgoing(url: str, body: bytes | Pieces = b"hello", **values: object) -> Outgoing:
    return Outgoing(url, "text/plain", body, **values)  # type: ignore[arg-type]


async def failure(client: HttpClient, request: Outgoing) -> TransportFailure:
    with pytest.raises(TransportFailure) as caught:
        await client.post(request)
    assert str(caught.value) == caught.value.reason
    return caught.value


@asynccontextmanager
async def answering(*answers: bytes, close: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives these answers, to whichever connection asks; what it was asked."""
    left = list(answers)
    asked: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left:
            head, body = await read_request(reader)
            asked.append(head + body)
            writer.write(left.pop(0))
            await writer.drain()
            if close:
                return
        await reader.read()

    async with talking(talk) as url:
        yield url, asked


async def reply_to(answer: bytes, *, close: bool = False) -> Reply:
    async with answering(answer, close=close) as (url, _), HttpClient() as client:
        return await client.post(outgoing(url))


async def failure_of(answer: bytes, *, close: bool = False, **values: object) -> TransportFailure:
    async with answering(answer, close=close) as (url, _), HttpClient() as client:
        return await failure(client, outgoing(url, **values))


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


# Connections are kept


def _ports(app: Seen) -> list[int]:
    return [scope["client"][1] for scope in app.scopes]


@in_loop
async def test_a_connection_is_used_again() -> None:
    app = Seen()
    async with serving(app) as server, HttpClient() as client:
        for size in (5, 300_000, 0):
            assert (await client.post(outgoing(server.url, b"x" * size))).body == b"%d" % size
        assert len(set(_ports(app))) == 1


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"more than was asked for",
        b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1, max=9\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["close", "http-1.0", "too-much", "kept-shortly"],
)
def test_a_connection_that_will_not_last_is_not_used_again(said: bytes) -> None:
    async def scenario() -> None:
        connections = 0

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            while True:
                await read_request(reader)
                writer.write(said)

        async with talking(talk) as url, HttpClient() as client:
            for _ in range(3):
                assert (await client.post(outgoing(url))).body == b"ok"
            assert connections == 3

    run(scenario())


@in_loop
async def test_a_connection_on_which_the_server_speaks_unasked_is_not_used_again() -> None:
    heard = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await heard.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await read_request(reader)
        writer.write(OK)

    async with talking(talk) as url, HttpClient() as client:
        assert (await client.post(outgoing(url))).body == b"ok"
        heard.set()
        await until(lambda: client._opened == 0)
        assert (await client.post(outgoing(url))).body == b"ok"


@in_loop
async def test_a_connection_with_bytes_that_nobody_took_is_not_used_again() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(OK)
        await asyncio.Event().wait()

    async with talking(talk) as url, HttpClient() as client:
        assert (await client.post(outgoing(url, b"x" * 30 * MIB))).body == b"ok"
        assert not any(host.idle for host in client._hosts.values())


@in_loop
async def test_a_connection_that_broke_before_anything_was_sent_has_transmitted_nothing() -> None:
    async with serving(Seen()) as server:
        address = parse_address(server.url)
        exchange = await connect(address, TlsProfile(), 10)
        exchange.transport.abort()
        with pytest.raises(TransportFailure, match="before anything was sent") as caught:
            await exchange.send(b"POST / HTTP/1.1\r\n\r\n", outgoing(server.url))
        assert (caught.value.kind, caught.value.transmitted) == ("closed", False)


@in_loop
async def test_idle_connections_are_closed_in_time() -> None:
    async with serving(Seen()) as server, HttpClient(keepalive_seconds=0.05) as client:
        await client.post(outgoing(server.url))
        await until(lambda: server.connections == 0)


@pytest.mark.req("RM001-2.6.3-01")
@in_loop
async def test_a_connection_that_the_server_closed_while_idle_is_not_used() -> None:
    async with answering(OK, OK, close=True) as (url, asked), HttpClient() as client:
        await client.post(outgoing(url))
        await until(lambda: client._opened == 0)
        await client.post(outgoing(url))
        assert len(asked) == 2


@in_loop
async def test_a_host_gets_no_more_connections_than_allowed_and_all_requests_are_sent() -> None:
    app = Seen()
    async with serving(app) as server, HttpClient(per_host=3) as client:
        replies = await asyncio.gather(*(client.post(outgoing(server.url)) for _ in range(50)))
        assert {reply.status for reply in replies} == {200}
        assert len(app.bodies) == 50
        assert len(set(_ports(app))) == 3


@in_loop
async def test_idle_connections_give_way_when_there_are_too_many_in_all() -> None:
    async with serving(Seen()) as one, serving(Seen()) as two, HttpClient(total=2) as client:
        for server in (one, two, one, two):
            await asyncio.gather(*(client.post(outgoing(server.url)) for _ in range(5)))
            assert one.connections + two.connections <= 4
            assert client._opened <= 2
        await until(lambda: (one.connections, two.connections) == (0, 2))


@in_loop
async def test_waiting_for_a_connection_can_be_cancelled() -> None:
    go = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            await go.wait()
            writer.write(OK)

    async with talking(talk) as url, HttpClient(per_host=1) as client:
        first, second, third = (asyncio.create_task(client.post(outgoing(url))) for _ in range(3))
        await until(lambda: len(client._waiting) == 2)
        second.cancel()
        go.set()
        assert (await first).body == b"ok"
        assert (await third).body == b"ok"
        assert second.cancelled() or ((await asyncio.wait([second])) and second.cancelled())


@in_loop
async def test_a_turn_that_is_not_taken_goes_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    go = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            await go.wait()
            writer.write(OK)

    async with talking(talk) as url, HttpClient(per_host=1) as client:
        first, second, third = (asyncio.create_task(client.post(outgoing(url))) for _ in range(3))
        await until(lambda: len(client._waiting) == 2)
        give = client._next_turn

        def give_and_cancel() -> None:
            give()
            second.cancel()

        monkeypatch.setattr(client, "_next_turn", give_and_cancel)
        go.set()
        assert (await first).body == b"ok"
        assert (await third).body == b"ok"
        assert second.cancelled()


@in_loop
async def test_nobody_reads_the_content_any_more_once_a_request_is_cancelled() -> None:
    entered, leave = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        entered.set()
        leave.wait()
        yield b"x"

    reading = pieces()
    async with serving(Seen()) as server, HttpClient() as client:
        body = Pieces(100 * MIB, lambda: reading)
        task = asyncio.create_task(client.post(outgoing(server.url, body)))
        await until(entered.is_set)
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        reading.close()


@in_loop
async def test_cancelling_a_request_closes_its_connection() -> None:
    closed = asyncio.Event()
    asked = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        try:
            await reader.read()
        finally:
            closed.set()

    async with talking(talk) as url, HttpClient() as client:
        task = asyncio.create_task(client.post(outgoing(url)))
        await asked.wait()
        task.cancel()
        await closed.wait()
        await until(lambda: client._opened == 0)


@in_loop
async def test_closing_the_client_ends_requests_under_way() -> None:
    asked = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        await reader.read()

    async with talking(talk) as url:
        client = HttpClient(per_host=1)
        first = asyncio.create_task(failure(client, outgoing(url)))
        await asked.wait()
        second = asyncio.create_task(failure(client, outgoing(url)))
        await until(lambda: len(client._waiting) == 1)
        await client.close()
        assert ((await first).kind, (await first).transmitted) == ("closed", True)
        assert ((await second).kind, (await second).transmitted) == ("closed", False)


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
            assert len(set(_ports(app))) == 1

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


# What can go wrong


@in_loop
async def test_a_refused_connection_is_told() -> None:
    port = free_port()
    async with HttpClient() as client:
        found = await failure(client, outgoing(f"http://127.0.0.1:{port}/"))
        assert found.reason == f"connection refused by 127.0.0.1:{port}"
        assert (found.kind, found.transmitted) == ("refused", False)
        assert client._opened == 0


def _raising(error: OSError) -> Callable[..., object]:
    def getaddrinfo(*_: object, **__: object) -> object:
        raise error

    return getaddrinfo


def test_an_unknown_host_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", _raising(unknown))

    async def scenario() -> None:
        async with HttpClient() as client:
            found = await failure(client, outgoing("http://nowhere.invalid/"))
        assert found.reason == "the host nowhere.invalid is not known: Name or service not known"
        assert (found.kind, found.transmitted) == ("dns", False)

    run(scenario(), "asyncio")


def test_the_next_address_of_a_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with serving(Seen()) as server, HttpClient() as client:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            found = [(*kind, (ip, server.port)) for ip in ("127.0.0.99", "127.0.0.1")]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            assert (await client.post(outgoing(f"http://two.test:{server.port}/"))).status == 200

    run(scenario(), "asyncio")


def test_an_unreachable_host_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        async def connect(*_: object, **__: object) -> None:
            raise OSError(errno.EHOSTUNREACH, "No route to host")

        monkeypatch.setattr(loop, "create_connection", connect)
        async with HttpClient() as client:
            found = await failure(client, outgoing("http://127.0.0.1:9/"))
        assert found.reason == "127.0.0.1:9 cannot be reached: No route to host"
        assert (found.kind, found.transmitted) == ("unreachable", False)

    run(scenario(), "asyncio")


@in_loop
async def test_a_connection_that_does_not_come_about_is_given_up() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
        try:
            async with HttpClient() as client:
                request = outgoing(f"http://127.0.0.1:{port}/", timeouts=Timeouts(connect=0.1))
                found = await failure(client, request)
        finally:
            for sock in waiting:
                sock.close()
    assert found.reason == f"no connection to 127.0.0.1:{port} within 0.1 s"
    assert (found.kind, found.transmitted) == ("timeout", False)


@pytest.mark.parametrize(
    ("said", "timeouts", "reason"),
    [
        (b"", Timeouts(answer=0.05), "no answer from {} within 0.05 s"),
        (OK[:-1], Timeouts(stall=0.05), "the answer of {} broke off within 0.05 s"),
        (b"", Timeouts(total=0.05), "no answer from {} within 0.05 s"),
        (
            b"HTTP/1.1 100 Continue\r\n\r\n",
            Timeouts(answer=0.05),
            "no answer from {} within 0.05 s",
        ),
    ],
    ids=["answer", "stall", "total", "only-100"],
)
def test_an_answer_that_does_not_come_is_waited_for_in_vain(
    said: bytes, timeouts: Timeouts, reason: str
) -> None:
    async def scenario() -> None:
        async with answering(said) as (url, _), HttpClient() as client:
            found = await failure(client, outgoing(url, timeouts=timeouts))
            assert found.reason == reason.format(url.removeprefix("http://"))
            assert (found.kind, found.transmitted) == ("timeout", True)
            await until(lambda: client._opened == 0)

    run(scenario())


@pytest.mark.parametrize("in_pieces", [True, False], ids=["pieces", "bytes"])
def test_a_server_that_takes_no_more_is_given_up(in_pieces: bool) -> None:
    async def scenario() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.Event().wait()

        size = 30 * MIB
        body = Pieces(size, lambda: iter([b"x" * MIB] * 30)) if in_pieces else b"x" * size
        async with talking(talk) as url, HttpClient() as client:
            found = await failure(client, outgoing(url, body, timeouts=Timeouts(stall=0.1)))
            assert "took no more of the message within 0.1 s" in found.reason
            assert (found.kind, found.transmitted) == ("timeout", True)

    run(scenario())


@in_loop
async def test_a_slow_answer_that_moves_is_waited_for() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for byte in OK:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)

    async with talking(talk) as url, HttpClient() as client:
        timeouts = Timeouts(stall=0.5)
        assert (await client.post(outgoing(url, timeouts=timeouts))).body == b"ok"


@pytest.mark.parametrize(
    ("said", "kind", "reason"),
    [
        (b"", "closed", "closed the connection before an answer came"),
        (OK[:20], "closed", "closed the connection in the midst of its answer"),
        (OK[:-1], "closed", "closed the connection in the midst of its answer"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            "closed",
            "closed the connection in the midst of its answer",
        ),
        (b"SSH-2.0-x\r\n", "protocol", "is not valid HTTP"),
        (b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "protocol", "another"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "protocol", "too large"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20, "protocol", "1xx again and again"),
    ],
    ids=["nothing", "half-head", "half-body", "half-chunk", "no-http", "101", "long-head", "100s"],
)
def test_an_answer_that_is_none_is_told(said: bytes, kind: str, reason: str) -> None:
    async def scenario() -> None:
        found = await failure_of(said, close=True)
        assert reason in found.reason
        assert found.reason.count("127.0.0.1:") == 1
        assert (found.kind, found.transmitted) == (kind, True)

    run(scenario())


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


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101,
    ],
    ids=["told", "chunked", "until-close"],
)
def test_an_answer_above_the_limit_is_not_taken(said: bytes) -> None:
    async def scenario() -> None:
        found = await failure_of(said, reply_bytes=100)
        assert "is larger than 100 bytes" in found.reason
        assert (found.kind, found.transmitted) == ("too_large", True)

    run(scenario())


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/",
        "mailto:a@b",
        "h/msh",
        "http:///x",
        "http://u:p@h/",
        "http://h:99999/",
        "http://[",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(TransportFailure) as caught:
        parse_address(url)
    assert (caught.value.kind, caught.value.transmitted) == ("address", False)
    assert repr(url) in caught.value.reason


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
        reply = await client.post(Outgoing(f"{server.url}/msh", "text/xml", body))
    assert reply.body == b"%d" % (9 * MIB)
    assert (threading.current_thread() in readers) is at_hand
