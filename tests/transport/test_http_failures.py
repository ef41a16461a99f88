"""What goes wrong is told: what, and whether anything had left."""

import asyncio
import errno
import socket
from collections.abc import Callable

import pytest

from postroad.transport.http_client import HttpClient, parse_address
from postroad.transport.http_outgoing import Pieces, Timeouts, TransportFailure
from postroad.wire.limits import MIB
from tests.ports import free_port
from tests.transport.posting import OK, answering, failure, failure_of, outgoing
from tests.transport.wires import (
    Seen,
    in_loop,
    read_request,
    run,
    serving,
    talking,
    until,
)


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
