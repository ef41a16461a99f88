"""Requests that may be pipelined share a connection; others wait, and nothing is passed over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Outgoing, Pieces, Reply, Timeouts, TransportFailure
from tests.transport.wires import Seen, in_loop, read_request, serving, talking

CLOSES = "Connection: close\r\n"


def outgoing(url: str, body: bytes | Pieces, *, pipelined: bool = True, **more: object) -> Outgoing:
    return Outgoing(url, "text/plain", body, pipelined=pipelined, **more)  # type: ignore[arg-type]


def answer(body: bytes, more: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Partner:
    """A server that is told when to answer what; what it was asked, connection by connection."""

    url: str = ""
    asked: list[list[bytes]] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine: list[bytes] = []
        self.asked.append(mine)
        self.writers.append(writer)
        while True:
            mine.append((await read_request(reader))[1])
            self.changed.set()

    async def until_asked(self, *bodies: list[bytes]) -> None:
        """Wait until each connection was asked just this."""
        while self.asked != list(bodies):
            self.changed.clear()
            await self.changed.wait()

    def say(self, *bodies: bytes, to: int = 0, more: str = "") -> None:
        self.writers[to].write(b"".join(answer(body, more) for body in bodies))


@asynccontextmanager
async def partner() -> AsyncIterator[Partner]:
    made = Partner()
    async with talking(made.talk) as made.url:
        yield made


async def kept(client: HttpClient, there: Partner) -> None:
    """Let the partner show that it keeps its connection."""
    first = asyncio.create_task(client.post(outgoing(there.url, b"first")))
    await there.until_asked([b"first"])
    there.say(b"FIRST")
    assert (await first).body == b"FIRST"


def posting(client: HttpClient, *requests: Outgoing) -> list[asyncio.Task[Reply]]:
    return [asyncio.create_task(client.post(one)) for one in requests]


@in_loop
async def test_requests_go_before_earlier_ones_are_answered_and_each_gets_its_answer() -> None:
    async with partner() as there, HttpClient() as client:
        await kept(client, there)
        pieces = Pieces(2, lambda: iter((b"t", b"o")))
        sent = posting(client, *(outgoing(there.url, one) for one in (b"one", pieces, b"three")))
        await there.until_asked([b"first", b"one", b"to", b"three"])
        there.say(b"ONE", b"TWO")
        assert [(await one).body for one in sent[:2]] == [b"ONE", b"TWO"]
        assert not sent[2].done()
        there.say(b"THREE")
        assert (await sent[2]).body == b"THREE"


@in_loop
async def test_the_connection_is_kept_and_used_again_by_one_after_all_were_answered() -> None:
    async with partner() as there, HttpClient() as client:
        await kept(client, there)
        sent = posting(client, *(outgoing(there.url, one) for one in (b"one", b"two")))
        await there.until_asked([b"first", b"one", b"two"])
        there.say(b"", b"")
        await asyncio.gather(*sent)
        posting(client, *(outgoing(there.url, b"alone", pipelined=False) for _ in range(2)))
        await there.until_asked([b"first", b"one", b"two", b"alone"], [b"alone"])


@pytest.mark.req("P2-6.3.2-02")
@in_loop
async def test_what_is_not_to_be_pipelined_waits_for_no_other_and_none_goes_behind_it() -> None:
    async with partner() as there, HttpClient() as client:
        await kept(client, there)
        posting(client, outgoing(there.url, b"pull", pipelined=False))
        await there.until_asked([b"first", b"pull"])
        posting(client, outgoing(there.url, b"push"))
        await there.until_asked([b"first", b"pull"], [b"push"])
        posting(client, outgoing(there.url, b"again", pipelined=False))
        await there.until_asked([b"first", b"pull"], [b"push"], [b"again"])


@in_loop
async def test_nothing_is_pipelined_before_a_server_has_kept_its_connection() -> None:
    async with partner() as there, HttpClient() as client:
        sent = posting(client, outgoing(there.url, b"one"))
        await there.until_asked([b"one"])
        sent += posting(client, outgoing(there.url, b"two"))
        await there.until_asked([b"one"], [b"two"])
        for number in range(2):
            there.say(b"", to=number, more=CLOSES)
        await asyncio.gather(*sent)
        posting(client, outgoing(there.url, b"three"))
        await there.until_asked([b"one"], [b"two"], [b"three"])


@in_loop
async def test_only_so_many_wait_on_one_connection() -> None:
    async with partner() as there, HttpClient() as client:
        await kept(client, there)
        posting(client, *(outgoing(there.url, b"%d" % number) for number in range(9)))
        some = [b"%d" % number for number in range(8)]
        await there.until_asked([b"first", *some], [b"8"])


@in_loop
async def test_the_next_one_goes_as_soon_as_there_is_room() -> None:
    async with partner() as there, HttpClient(per_host=1) as client:
        await kept(client, there)
        posting(client, *(outgoing(there.url, b"%d" % number) for number in range(9)))
        some = [b"%d" % number for number in range(8)]
        await there.until_asked([b"first", *some])
        there.say(b"")
        await there.until_asked([b"first", *some, b"8"])


@in_loop
async def test_who_waits_for_a_connection_of_its_own_gets_it_though_others_come() -> None:
    async with partner() as there, HttpClient(per_host=1) as client:
        await kept(client, there)
        posting(client, outgoing(there.url, b"one"))
        await there.until_asked([b"first", b"one"])
        posting(client, outgoing(there.url, b"pull", pipelined=False), outgoing(there.url, b"two"))
        await asyncio.sleep(0)
        there.say(b"")
        await there.until_asked([b"first", b"one", b"pull"])
        there.say(b"")
        await there.until_asked([b"first", b"one", b"pull", b"two"])


@pytest.mark.parametrize("more", ["", CLOSES])
@in_loop
async def test_when_the_connection_ends_each_that_was_not_answered_may_have_arrived(
    more: str,
) -> None:
    async with partner() as there, HttpClient() as client:
        await kept(client, there)
        sent = posting(client, *(outgoing(there.url, one) for one in (b"one", b"two", b"three")))
        await there.until_asked([b"first", b"one", b"two", b"three"])
        there.say(b"ONE", more=more)
        if not more:
            there.writers[0].close()
        one, *others = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(one, Reply)
        assert one.body == b"ONE"
        for other in others:
            assert isinstance(other, TransportFailure)
            assert (other.kind, other.transmitted) == ("closed", True)


@in_loop
async def test_who_is_not_answered_in_time_ends_the_wait_of_those_behind_it() -> None:
    async with partner() as there, HttpClient() as client:
        await kept(client, there)
        brief = Timeouts(answer=0.05)
        sent = posting(
            client, outgoing(there.url, b"one", timeouts=brief), outgoing(there.url, b"two")
        )
        failures = await asyncio.gather(*sent, return_exceptions=True)
        assert [(one.kind, one.transmitted) for one in failures] == [  # type: ignore[union-attr]
            ("timeout", True),
            ("closed", True),
        ]


@in_loop
async def test_our_own_server_answers_what_our_client_pipelines() -> None:
    app = Seen()
    async with serving(app) as server, HttpClient(per_host=1) as client:
        url = f"http://127.0.0.1:{server.port}/"
        await client.post(outgoing(url, b""))
        sizes = [3, 70_000, 1, 300_000, 0, 2, 5, 4, 9, 8, 7]
        replies = await asyncio.gather(*posting(client, *(outgoing(url, b"x" * n) for n in sizes)))
        assert [int(one.body) for one in replies] == sizes
        assert len({scope["client"] for scope in app.scopes}) == 1
