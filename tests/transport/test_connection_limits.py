"""No address takes all connections, the longest wait ends first, and health checks are served."""

import asyncio
import logging
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network
from typing import Any

import pytest

from postroad.transport.admission import AddressRules, Admission, Scope, Slot, counted_address
from postroad.transport.http_limits import ServerLimits
from postroad.transport.http_server import HttpServer
from postroad.transport.incidents import Incident, Incidents
from postroad.transport.tls import server_context
from tests.transport.handshakes import Files
from tests.transport.test_smtp_server import client_tls
from tests.transport.wires import Clock, Line, Seen, line_to, post, run, serving, until

EVERYBODY = AddressRules(exempt=())
ONE, TWO, THREE = "127.0.0.1", "127.0.0.2", "127.0.0.3"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
BEGUN = post(b"x" * 100)[:-50]
"""A request whose head is complete, and whose body is not."""


class Place:
    """A server with limits, and lines to it from any address of this machine."""

    def __init__(self, server: HttpServer, tls: ssl.SSLContext | None) -> None:
        self.server = server
        self.clock = Clock()
        self.counted: Counter[str] = Counter()
        self._tls = tls
        self._lines = AsyncExitStack()

    async def line(self, address: str = ONE) -> Line:
        """A line that stays open, past its handshake."""
        options: dict[str, Any] = {"local_addr": (address, 0)}
        if self._tls is not None:
            options |= {"ssl": self._tls, "server_hostname": "localhost"}
        return await self._lines.enter_async_context(line_to(self.server, **options))

    async def silent(self, address: str) -> Line:
        """A line without a handshake."""
        local = (address, 0)
        return await self._lines.enter_async_context(line_to(self.server, local_addr=local))

    async def asks(self, address: str = ONE, request: bytes = b"") -> tuple[int, bytes, bytes]:
        """What a new line is answered."""
        line = await self.line(address)
        line.say(request or post(b"hello"))
        answer = await line.hear()
        line.hang_up()
        return answer

    async def working(self, address: str, count: int) -> list[Line]:
        """Lines with a request in progress each."""
        before = sum(connection.answering for connection in self.server._state.open)
        lines = [await self.line(address) for _ in range(count)]
        for line in lines:
            line.say(BEGUN)
        open_now = self.server._state.open
        await until(lambda: sum(one.answering for one in open_now) == before + count)
        return lines

    async def has(self, connections: int) -> None:
        await until(lambda: self.server.connections == connections)

    async def close(self) -> None:
        await self._lines.aclose()


@asynccontextmanager
async def placed(files: Files | None, limits: ServerLimits) -> AsyncIterator[Place]:
    counted: Counter[str] = Counter()
    clock = Clock()
    incidents = Incidents(
        logging.getLogger("postroad.http"), lambda reason: counted.update([reason]), clock
    )
    options: dict[str, Any] = {
        "clock": clock,
        "incidents": incidents,
        "health_paths": ("/healthz", "/readyz"),
    }
    if files is not None:
        options["ssl"] = server_context(files.of_server())
    async with serving(Seen(), limits, **options) as server:
        place = Place(server, client_tls(files) if files is not None else None)
        place.clock, place.counted = clock, counted
        try:
            yield place
        finally:
            await place.close()


@pytest.fixture(params=["http", "https"])
def tls(request: pytest.FixtureRequest) -> Files | None:
    """Certificates where TLS is spoken."""
    if request.param == "http":
        return None
    files: Files = request.getfixturevalue("files")
    return files


def limits(**values: Any) -> ServerLimits:
    return ServerLimits(**({"address_rules": EVERYBODY, "health_connections": 8} | values))


def test_an_address_gets_its_share_and_its_oldest_waiting_connection_gives_way(
    tls: Files | None,
) -> None:
    async def scenario() -> None:
        async with placed(tls, limits(connections_per_address=3, connections=10)) as place:
            lines = [await place.line(TWO) for _ in range(3)]
            lines[0].say(BEGUN)
            await until(lambda: sum(one.answering for one in place.server._state.open) == 1)
            lines += [await place.line(TWO) for _ in range(2)]
            assert await lines[1].closed() == b""
            assert await lines[2].closed() == b""
            await place.has(3)
            for address in (ONE, THREE, TWO):
                assert (await place.asks(address))[::2] == (200, b"5")
            lines[0].say(b"x" * 50)
            assert (await lines[0].hear())[::2] == (200, b"100")
            assert place.counted == {"evicted_address": 3}

    run(scenario())


def test_silent_clients_of_one_address_and_of_many_keep_nobody_out(tls: Files | None) -> None:
    async def scenario() -> None:
        async with placed(tls, limits(connections_per_address=20, connections=50)) as place:
            for _ in range(100):
                await place.silent(TWO)
            for _ in range(3):
                assert (await place.asks(ONE))[0] == 200
                assert (await place.asks(TWO))[0] == 200
            assert place.server.connections <= 21
            for number in range(100):
                await place.silent(f"127.0.1.{number + 1}")
            await until(lambda: place.counted["evicted_total"] > 60)
            for _ in range(3):
                assert (await place.asks(ONE))[0] == 200
                assert (await place.asks(THREE, HEALTH))[0] == 200
            assert place.server.connections <= 50

    run(scenario())


def test_under_pressure_the_connection_that_waited_longest_is_closed(tls: Files | None) -> None:
    async def scenario() -> None:
        async with placed(tls, limits(connections=3)) as place:
            idle = await place.line(ONE)
            idle.say(post(b"hello"))
            assert (await idle.hear())[0] == 200
            half = await place.line(TWO)
            half.say(b"POST /msh HTTP/1.1\r\n")
            [working] = await place.working(TWO, 1)
            await place.has(3)
            newcomers = [await place.line(THREE)]
            assert await idle.closed() == b""
            newcomers.append(await place.line(THREE))
            assert await half.closed() == b""
            for line in newcomers:
                line.say(post(b"hello"))
                assert (await line.hear())[0] == 200
            working.say(b"x" * 50)
            assert (await working.hear())[0] == 200
            assert place.counted == {"evicted_total": 2}

    run(scenario())


@pytest.mark.parametrize("limit", ["connections", "connections_per_address"])
def test_where_all_work_a_newcomer_is_told_to_come_again_and_health_is_served(
    tls: Files | None, limit: str
) -> None:
    async def scenario() -> None:
        async with placed(tls, limits(**{limit: 3})) as place:
            lines = await place.working(TWO, 3)
            for _ in range(2):
                # Those in the reserve give way to one another.
                for _ in range(12):
                    await place.silent(TWO)
                status, head, _ = await place.asks(TWO)
                assert (status, b"retry-after: 2\r\n" in head) == (503, True)
                status, head, _ = await place.asks(TWO, HEALTH)
                assert (status, b"connection: close" in head) == (200, True)
            assert (await place.asks(TWO, HEALTH.replace(b"/healthz", b"/readyz?x=1")))[0] == 200
            assert place.server.connections <= 3 + 8
            other = (await place.asks(THREE))[0]
            assert other == (503 if limit == "connections" else 200)
            for line in lines:
                line.say(b"x" * 50)
                assert (await line.hear())[::2] == (200, b"100")
            assert (await place.asks(TWO))[0] == 200
            reason = "refused_total" if limit == "connections" else "refused_address"
            assert place.counted[reason] >= 29

    run(scenario())


def test_without_health_paths_there_is_no_reserve() -> None:
    async def scenario() -> None:
        async with (
            serving(Seen(), limits(connections=1)) as server,
            line_to(server) as first,
            line_to(server) as second,
        ):
            assert await first.closed() == b""
            second.say(BEGUN)
            await until(lambda: any(one.answering for one in server._state.open))
            async with line_to(server) as third:
                assert (await third.hear())[0] == 503
                assert await third.closed() == b""

    run(scenario())


def test_a_response_that_is_being_read_is_not_cut_off() -> None:
    class Large(Seen):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            body = b"x" * 20_000_000
            length = (b"content-length", b"%d" % len(body))
            await send({"type": "http.response.start", "status": 200, "headers": [length]})
            await send({"type": "http.response.body", "body": body})

    async def scenario() -> None:
        async with (
            serving(Large(), limits(connections=2), health_paths=("/healthz",)) as server,
            line_to(server) as reader,
            AsyncExitStack() as others,
        ):
            reader.say(post(b""))
            await until(lambda: any(one.given > 1_000_000 for one in server._state.open))
            for _ in range(5):
                await others.enter_async_context(line_to(server))
            assert len((await reader.hear())[2]) == 20_000_000
            server.sweep()
            for _ in range(2):
                await others.enter_async_context(line_to(server))
            assert await reader.closed() == b""

    run(scenario())


def test_what_came_quickly_is_no_excuse_for_a_body_that_then_stands_still() -> None:
    async def scenario() -> None:
        async with placed(None, limits()) as place:
            patience = place.server._state.limits.body_seconds
            line = await place.line()
            line.say(post(b"x" * 500_000)[:-100_000])
            await place.has(1)
            [connection] = place.server._state.open
            await until(lambda: connection.body_bytes == 400_000)
            for second in range(int(patience) + 1):
                place.clock.now += 1
                place.server.sweep()
                line.say(b"x")
                came = 400_001 + second
                await until(lambda came=came: connection.body_bytes == came)
            place.clock.now += 1
            place.server.sweep()
            assert await line.closed() == b""
            assert place.counted["slow_body"] == 1

    run(scenario())


def test_handshakes_that_are_not_finished_have_a_deadline_and_are_counted(files: Files) -> None:
    async def scenario() -> None:
        async with placed(files, limits()) as place:
            silent = await place.silent(TWO)
            await place.has(1)
            place.clock.now += place.server._state.limits.header_seconds + 1
            place.server.sweep()
            assert await silent.closed() == b""
            await place.has(0)
            assert place.counted == {"handshake": 1}

    run(scenario())


def test_a_network_that_is_exempt_has_the_limit_of_all_alone() -> None:
    async def scenario() -> None:
        rules = AddressRules(exempt=(ip_network("127.0.0.2/32"),))
        given = limits(connections_per_address=2, connections=10, address_rules=rules)
        async with placed(None, given) as place:
            await place.working(TWO, 5)
            assert (await place.asks(TWO))[0] == 200
            await place.working(THREE, 2)
            assert (await place.asks(THREE))[0] == 503

    run(scenario())


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("no address", "no address"),
    ],
)
def test_ipv6_clients_are_counted_by_their_network(host: str, address: str | None) -> None:
    assert counted_address(host) == address


def test_ipv6_prefix_is_a_setting() -> None:
    assert counted_address("2001:db8:1:2::1", AddressRules(ipv6_prefix=48)) == "2001:db8:1::/48"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_clients_do_the_limits_hold_and_nothing_is_left(seed: int) -> None:
    dice = random.Random(seed)
    admission = Admission(10, 4, reserve=8, rules=EVERYBODY)
    slots: list[Slot] = []
    evicted: list[Scope] = []

    def admitted() -> Slot | None:
        def close(scope: Scope) -> None:
            assert slot is not None
            assert slot.is_waiting is False
            slots.remove(slot)
            evicted.append(scope)

        slot = admission.admit(f"192.0.2.{dice.randrange(6)}", close, lambda _: None)
        return slot

    for _ in range(500):
        what = dice.randrange(5)
        if what < 2 and (slot := admitted()) is not None:
            slots.append(slot)
        elif what > 1 and slots:
            [Slot.wait, Slot.work, Slot.leave][what - 2](one := dice.choice(slots))
            if what == 4:
                one.leave()
                slots.remove(one)
        usual = [one for one in slots if not one.restricted]
        assert len(usual) <= 10
        assert len(slots) <= 18
        assert all(count <= 4 for count in Counter(one.address for one in usual).values())
        assert all(count <= 5 for count in Counter(one.address for one in slots).values())
    assert set(evicted) == {"address", "total"}
    for slot in slots:
        slot.leave()
    assert (admission._all.size, admission._all.reserve_size, admission._by_address) == (0, 0, {})


def test_incidents_are_all_counted_and_seldom_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock, counted = Clock(), Counter[str]()
    log = logging.getLogger("postroad.http")
    incidents = Incidents(log, lambda reason: counted.update([reason]), clock)
    with caplog.at_level(logging.INFO, "postroad.http"):
        for number in range(1000):
            incidents.note(Incident.EVICTED_TOTAL, f"192.0.2.{number % 200}")
        incidents.note(Incident.SLOW_BODY, "192.0.2.1", "detail")
        clock.now += 59
        incidents.flush()
        assert len(caplog.records) == 2
        clock.now += 1
        incidents.flush()
        incidents.flush()
    told = [(one.levelname, getattr(one, "count", 1)) for one in caplog.records]
    assert told == [("WARNING", 1), ("INFO", 1), ("WARNING", 999)]
    assert counted == {"evicted_total": 1000, "slow_body": 1}


def test_loops_of_both_kinds_close_handshakes_to_make_room(files: Files) -> None:
    async def scenario() -> None:
        async with placed(files, limits(connections=3)) as place:
            silent = [await place.silent(TWO) for _ in range(5)]
            for line in silent[:2]:
                assert await line.closed() == b""
            assert (await place.asks(ONE))[0] == 200
            assert await silent[2].closed() == b""
            await asyncio.sleep(0)

    for loop in ("asyncio", "uvloop"):
        run(scenario(), loop)
