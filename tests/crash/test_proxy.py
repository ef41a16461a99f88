"""Each fault of the proxy does what its name says, and no other."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Outgoing, Pieces, Reply, TransportFailure
from tests.crash.proxy import Fault, Message, Proxy, Times, in_a_thread
from tests.ports import free_port
from tests.transport.wires import in_loop, read_request, run, talking, until

BODY = bytes(range(256)) * 40
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 1000\r\n\r\n" + b"r" * 1000
TIMES = Times(refused=0.2, half_open=0.05, late=0.05, drip=0.0)


@dataclass
class Seen:
    """What the target saw, by connection: whole bodies, and how many bytes a connection brought."""

    bodies: list[bytes] = field(default_factory=list)
    opened: int = 0
    broken: list[int] = field(default_factory=list)
    """Bytes of a request that ended before its end."""


@asynccontextmanager
async def between(
    rates: dict[Fault, float], answer: bytes = ANSWER
) -> AsyncIterator[tuple[Proxy, Seen]]:
    """A proxy before a server that gives this answer to everything."""
    seen = Seen()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.opened += 1
        while not reader.at_eof():
            try:
                _, body = await read_request(reader)
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    seen.broken.append(len(error.partial))
                return
            seen.bodies.append(body)
            writer.write(answer)

    async with talking(talk) as url:
        proxy = Proxy(int(url.rpartition(":")[2]), random.Random(1), rates, times=TIMES)
        await proxy.start()
        try:
            yield proxy, seen
        finally:
            await proxy.close()


async def post(proxy: Proxy, client: HttpClient, body: bytes = BODY) -> Reply:
    return await client.post(Outgoing(proxy.url, "text/plain", body))


async def failure(proxy: Proxy, client: HttpClient) -> TransportFailure:
    with pytest.raises(TransportFailure) as caught:
        await post(proxy, client)
    return caught.value


@in_loop
async def test_without_faults_everything_passes_on_one_connection() -> None:
    async with between({}) as (proxy, seen), HttpClient() as client:
        for body in (b"", b"small", BODY * 200):
            reply = await post(proxy, client, body)
            assert (reply.status, reply.body) == (200, b"r" * 1000)
        assert seen.bodies == [b"", b"small", BODY * 200]
        assert (seen.opened, proxy.exchanges, proxy.met.total()) == (1, 3, 0)


@in_loop
async def test_a_cut_request_reaches_the_target_in_part() -> None:
    async with between({Fault.CUT_REQUEST: 1}) as (proxy, seen), HttpClient() as client:
        assert (await failure(proxy, client)).transmitted
        await until(lambda: bool(seen.broken))
        assert 0 < seen.broken[0] < len(BODY)
        assert seen.bodies == []


@in_loop
async def test_a_dropped_reply_is_lost_after_the_target_gave_it() -> None:
    async with between({Fault.DROP_REPLY: 1}) as (proxy, seen), HttpClient() as client:
        lost = await failure(proxy, client)
        assert "before an answer came" in lost.reason
        assert lost.transmitted
        assert seen.bodies == [BODY]


@pytest.mark.parametrize(
    "answer", [ANSWER, b"HTTP/1.1 204 No Content\r\n\r\n"], ids=["with a body", "without"]
)
def test_a_cut_reply_breaks_off(answer: bytes) -> None:
    async def scenario() -> None:
        rates = {Fault.CUT_REPLY: 1.0}
        async with between(rates, answer) as (proxy, seen), HttpClient() as client:
            assert "in the midst of its answer" in (await failure(proxy, client)).reason
            assert seen.bodies == [BODY]

    run(scenario())


@in_loop
async def test_a_half_open_connection_takes_the_request_and_is_silent() -> None:
    async with between({Fault.HALF_OPEN: 1}) as (proxy, seen), HttpClient() as client:
        assert (await failure(proxy, client)).transmitted
        assert (seen.opened, seen.bodies) == (0, [])


@in_loop
async def test_a_duplicated_request_is_answered_once_and_arrives_twice() -> None:
    async with between({Fault.DUPLICATE: 1}) as (proxy, seen), HttpClient() as client:
        named = b"<eb:MessageId>a@b</eb:MessageId>" + BODY
        assert (await post(proxy, client, named)).body == b"r" * 1000
        await until(lambda: len(seen.bodies) == 2)
        assert seen.bodies == [named, named]
        assert proxy.doubled == {"a@b": 1}


@in_loop
async def test_a_delayed_request_arrives_even_when_its_client_is_gone() -> None:
    async with between({Fault.DELAY: 1}) as (proxy, seen):
        async with HttpClient() as client:
            sending = asyncio.create_task(post(proxy, client))
            await until(lambda: proxy.met[Fault.DELAY] == 1)
        await asyncio.wait([sending])
        await until(lambda: seen.bodies == [BODY])


@in_loop
async def test_what_is_slow_is_whole() -> None:
    async with between({Fault.SLOW: 1}) as (proxy, seen), HttpClient() as client:
        assert (await post(proxy, client)).body == b"r" * 1000
        assert seen.bodies == [BODY]


@in_loop
async def test_while_nobody_listens_no_byte_leaves_and_then_somebody_does() -> None:
    async with between({Fault.REFUSE: 1}) as (proxy, seen), HttpClient() as client:
        assert (await failure(proxy, client)).transmitted
        refused = await failure(proxy, client)
        assert (refused.kind, refused.transmitted) == ("refused", False)
        proxy.heal()

        async def is_back() -> bool:
            try:
                return (await post(proxy, client)).status == 200
            except TransportFailure:
                return False

        while not await is_back():
            await asyncio.sleep(0.001)
        assert seen.bodies == [BODY]
        assert proxy.met == {Fault.REFUSE: 1}


@in_loop
async def test_a_request_that_its_client_breaks_off_is_broken_off_for_the_target() -> None:
    async with between({}) as (proxy, seen), HttpClient() as client:

        def half() -> Iterator[bytes]:
            yield BODY
            raise OSError("the disk is gone")

        with pytest.raises(TransportFailure):
            await client.post(Outgoing(proxy.url, "text/plain", Pieces(2 * len(BODY), half)))
        await until(lambda: bool(seen.broken))
        assert seen.bodies == []


@in_loop
async def test_a_target_that_is_down_is_a_connection_that_breaks() -> None:
    proxy = Proxy(free_port(), random.Random(1), {}, times=TIMES)
    await proxy.start()
    async with HttpClient() as client:
        assert (await failure(proxy, client)).kind == "closed"
    await proxy.close()


def test_one_seed_gives_one_sequence_of_faults_in_their_proportions() -> None:
    rates = {Fault.DROP_REPLY: 0.1, Fault.SLOW: 0.2}

    def drawn(seed: int) -> list[Fault | None]:
        proxy = Proxy(1, random.Random(seed), rates)
        return [proxy._draw() for _ in range(2000)]

    first = drawn(7)
    assert first == drawn(7) != drawn(8)
    assert 150 < first.count(Fault.DROP_REPLY) < 250
    assert 330 < first.count(Fault.SLOW) < 470


def test_what_the_first_exchanges_meet_can_be_said_until_it_heals() -> None:
    told = (Fault.SLOW, None, Fault.DROP_REPLY)
    proxy = Proxy(1, random.Random(7), {Fault.REFUSE: 1.0}, first=told)
    assert [proxy._draw() for _ in range(4)] == [*told, Fault.REFUSE]
    assert proxy.met == {Fault.SLOW: 1, Fault.DROP_REPLY: 1, Fault.REFUSE: 1}
    proxy = Proxy(1, random.Random(7), {}, first=told)
    proxy.heal()
    assert proxy._draw() is None


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 3),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n0\r\n\r\n", None),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nX-T: 1\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0),
    ],
    ids=["length", "chunked", "trailers", "no body"],
)
def test_the_end_of_a_request_is_found(sent: bytes, body: int | None) -> None:
    async def scenario() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(sent + b"GET / HTTP/1.1\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        message = Message(head, reader)
        assert message.length == body
        assert b"".join([piece async for piece in message.pieces()]) == sent
        assert await reader.readuntil(b"\r\n\r\n") == b"GET / HTTP/1.1\r\n\r\n"

    run(scenario())


def test_proxies_run_beside_code_that_waits() -> None:
    proxy = Proxy(free_port(), random.Random(1), {})
    with in_a_thread(proxy), pytest.raises(httpx.TransportError):
        httpx.post(proxy.url, content=b"hello")
    assert proxy.exchanges == 1
