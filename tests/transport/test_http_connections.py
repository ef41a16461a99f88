"""Connections are kept and used again, shared fairly, and closed when nobody waits any more."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from postroad.transport.http_client import HttpClient, connect, parse_address
from postroad.transport.http_outgoing import Pieces, TransportFailure
from postroad.transport.tls import TlsProfile
from postroad.wire.limits import MIB
from tests.transport.posting import OK, answering, failure, outgoing, ports
from tests.transport.wires import Seen, in_loop, read_request, run, serving, talking, until


@in_loop
async def test_a_connection_is_used_again() -> None:
    app = Seen()
    async with serving(app) as server, HttpClient() as client:
        for size in (5, 300_000, 0):
            assert (await client.post(outgoing(server.url, b"x" * size))).body == b"%d" % size
        assert len(set(ports(app))) == 1


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
        assert len(set(ports(app))) == 3


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
