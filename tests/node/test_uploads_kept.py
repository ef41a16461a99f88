"""What is kept of uploads, for whom and how long."""

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as changed

from postroad.msh.outbound import MESSAGING_ID
from postroad.msh.restarting import begun
from postroad.msh.securing import signing
from postroad.node.base.requests import Request, Response, Upload
from postroad.node.large import reception
from postroad.node.large.restarting import Restarting
from postroad.node.settings.config_groups import Restart
from postroad.node.upkeep import Upkeep
from postroad.node.walks.receiving import Receiver
from postroad.security.secure import secure
from postroad.security.sign import Block
from postroad.store.interface import Store, StoreError
from postroad.store.memory import MemoryStore
from postroad.store.records import Side, State
from postroad.store.sqlite import open_sqlite
from postroad.transport.http_body import Truncated
from postroad.wire.content import BytesSink
from postroad.wire.restart import ContentRange
from postroad.wire.soap import SoapVersion
from tests.node.exchange import BEGIN, BUYER, SELLER, Exchange, make_parties
from tests.node.uploads import PAYLOAD, M, agreed
from tests.transport.wires import in_loop

MESSAGING = re.compile(rb"<eb:Messaging.*</eb:Messaging>", re.DOTALL)
NAME = "a-name-that-nobody-would-ever-guess-0001"
HOME = "192.0.2.1"
HALF = len(PAYLOAD) // 2
PMODE = "buyer-to-seller-signed"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_parties(folder)
    agreed(folder / BUYER, PMODE, True)
    agreed(folder / SELLER, PMODE, {"interval": "PT1H"})
    return folder


@dataclass
class World:
    """A seller to whom a test sends what it likes, on time that is made up."""

    exchange: Exchange
    restarting: Restarting
    kind: str
    body: bytes

    @property
    def store(self) -> Store:
        return self.exchange.contexts[SELLER].store

    async def ask(
        self,
        body: bytes | None,
        given: ContentRange | None = None,
        *,
        breaks: bool = False,
        peer: str | None = HOME,
        name: str = NAME,
        path: str = "/msh",
        certificate: bytes | None = None,
        length: int | None = None,
    ) -> Response:
        """Send a request; None as a body asks how much is there."""
        upload = Upload(path, name, given, probe=body is None)
        if length is None:
            length = given.size if given is not None else len(self.body)
        request = Request(
            self.kind, peer, pieces(body or b"", breaks), certificate, length=length, upload=upload
        )
        return await self.restarting.receive(request)

    async def begin(self, size: int = HALF, **values: Any) -> None:
        """An upload that breaks off after so many bytes."""
        with pytest.raises(Truncated):
            await self.ask(self.body[:size], breaks=True, **values)

    async def rest(self, start: int = HALF, **values: Any) -> Response:
        total = len(self.body)
        return await self.ask(self.body[start:], ContentRange(start, total - 1, total), **values)

    async def there(self, **values: Any) -> int | None:
        said = await self.ask(None, **values)
        assert said.status == 200
        return said.length

    async def state(self) -> State | None:
        found = await self.store.look(lambda r: r.message(Side.RECEIVING, M))
        return found.state if found is not None else None

    async def held(self) -> int:
        return (await self.store.look(lambda reader: reader.held())).transfers


async def pieces(body: bytes, breaks: bool) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), 100_000):
        yield body[begin : begin + 100_000]
    if breaks:
        raise Truncated(len(body))


_READY: dict[Path, tuple[Exchange, str, bytes]] = {}
"""Parties whose keys were read, and a message that goes over the wire."""


async def opened(made: Path, store: Store | None = None, **settings: Any) -> World:
    """A seller with these settings, and a message for it."""
    stores: dict[str, Store] = {BUYER: MemoryStore(BUYER), SELLER: store or MemoryStore(SELLER)}
    if made not in _READY:
        exchange = Exchange(made, stores)
        large = ("application/octet-stream", PAYLOAD)
        message = await exchange.send(M, large, kind="signed")
        _READY[made] = exchange, *exchange.wire(message)
    exchange, kind, body = _READY[made]
    exchange.clock.now = BEGIN
    known = exchange.contexts[SELLER]
    restart = Restart.model_validate(settings)
    config = known.config.model_copy(update={"restart": restart})
    context = dataclasses.replace(known, store=stores[SELLER], config=config)
    exchange.contexts[SELLER] = context
    return World(exchange, Restarting(context, Receiver(context).receive), kind, body)


@in_loop
async def test_what_broke_off_is_kept_and_gone_on_with(made: Path) -> None:
    world = await opened(made)
    assert await world.there() == 0
    await world.begin()
    assert await world.there() == HALF
    assert (await world.rest()).status == 200
    assert await world.state() is State.DELIVERED
    assert await world.held() == 0


@in_loop
async def test_a_rest_that_begins_elsewhere_is_told_what_is_there(made: Path) -> None:
    world = await opened(made)
    await world.begin()
    for start in (1, HALF - 1, HALF + 1):
        said = await world.rest(start)
        assert (said.status, dict(said.headers)["content-range"]) == (416, f"bytes */{HALF}")
    assert (await world.rest()).status == 200


@in_loop
async def test_a_rest_of_something_else_is_refused_and_the_part_forgotten(made: Path) -> None:
    world = await opened(made)
    await world.begin()
    other = ContentRange(HALF, HALF + 9, HALF + 10)
    assert (await world.ask(b"0123456789", other)).status == 409
    assert await world.there() == 0


@pytest.mark.parametrize("length", [5, 50])
@in_loop
async def test_a_body_that_is_not_what_its_range_says_leaves_the_part_as_it_is(
    made: Path, length: int
) -> None:
    world = await opened(made)
    await world.begin()
    assert (await world.rest(length=length)).status == 400
    short = ContentRange(HALF, HALF + 9, len(world.body))
    assert (await world.ask(world.body[HALF : HALF + 10], short)).status == 400
    assert await world.there() == HALF
    assert (await world.rest()).status == 200


# Strangers


@pytest.mark.parametrize(
    "other",
    [
        {"peer": "192.0.2.9"},
        {"certificate": b"another"},
        {"path": "/other"},
        {"name": NAME.replace("1", "2")},
        {"peer": None},
    ],
)
@in_loop
async def test_nobody_else_sees_a_part_goes_on_with_it_or_hears_its_answer(
    made: Path, other: dict[str, Any]
) -> None:
    world = await opened(made)
    await world.begin()
    assert await world.there(**other) == 0
    said = await world.rest(**other)
    assert (said.status, dict(said.headers)["content-range"]) == (416, "bytes */0")
    answer = await world.rest()
    assert answer.status == 200
    assert await world.there(**other) == 0
    nonsense = await world.ask(bytes(len(world.body)), **other)
    assert nonsense.status == 400
    assert nonsense.body != answer.body


@in_loop
async def test_a_certificate_says_who_goes_on_wherever_it_comes_from(made: Path) -> None:
    world = await opened(made)
    await world.begin(certificate=b"mine", name="short")
    assert await world.there(certificate=b"mine", name="short", peer="198.51.100.7") == HALF
    assert await world.there(certificate=b"yours", name="short") == 0
    assert await world.there(name="short") == 0


@in_loop
async def test_without_a_certificate_a_name_that_can_be_guessed_is_none(made: Path) -> None:
    world = await opened(made)
    await world.begin(name="transfer-1")
    assert await world.held() == 0


@in_loop
async def test_a_beginning_that_no_partner_signed_is_not_kept(made: Path) -> None:
    world = await opened(made)
    original = world.body
    world.body = original.replace(b"OrderStatus<", b"OrderStatu5<")
    await world.begin()
    world.body = (
        original[: original.index(b"<wsse:Security")]
        + original[original.index(b"</wsse:Security>") + len(b"</wsse:Security>") :]
    )
    await world.begin()
    assert (await world.ask(bytes(len(original)))).status == 400
    assert await world.held() == 0
    world.body = original
    await world.begin()
    assert await world.held() == 1


@in_loop
async def test_a_signature_beside_the_header_proves_nothing_of_it(made: Path) -> None:
    world = await opened(made)
    sending = world.exchange.contexts[BUYER].in_force.sending(PMODE)
    how = signing(sending.match.leg, sending.material.signing)
    assert how is not None
    lens = world.exchange.contexts[SELLER].in_force.lens(BEGIN, BytesSink)
    envelope = world.body[world.body.index(b"<S12:Envelope") :].partition(b"</S12:Envelope>")[0]
    header = MESSAGING.search(envelope)
    assert header is not None
    for name, known in (("", False), (MESSAGING_ID, True)):
        block = Block(name, header[0].decode())
        again = secure(SoapVersion.SOAP_12, [block], [], signing=how)
        assert (begun(again.envelope, lens) is not None) is known


@in_loop
async def test_before_the_envelope_is_there_nothing_is_kept(made: Path) -> None:
    world = await opened(made)
    await world.begin(1000)
    assert await world.held() == 0


@in_loop
async def test_where_the_p_mode_says_nothing_of_it_nothing_is_kept(
    made: Path, tmp_path: Path
) -> None:
    make_parties(tmp_path)
    agreed(tmp_path / SELLER, "buyer-to-seller-order", True)
    world = await opened(tmp_path)
    await world.begin()
    assert await world.held() == 0


@in_loop
async def test_where_no_p_mode_speaks_of_it_nobody_is_told_anything(tmp_path: Path) -> None:
    make_parties(tmp_path)
    world = await opened(tmp_path)
    assert (await world.ask(None)).status == 405
    await world.begin()
    assert (await world.rest()).status == 416


# How much, and how long


@pytest.mark.parametrize(
    "allowed",
    [
        {"copies": 1},
        {"copies_per_partner": 1},
        {"bytes": "2 MiB"},
        {"bytes_per_partner": "2 MiB"},
    ],
)
@in_loop
async def test_no_more_is_kept_than_is_allowed(made: Path, allowed: dict[str, Any]) -> None:
    world = await opened(made, **allowed)
    second = NAME.replace("1", "2")
    await world.begin()
    await world.begin(name=second)
    assert await world.there() == HALF
    assert await world.there(name=second) == 0
    assert (await world.rest()).status == 200
    await world.begin(name=second)
    assert await world.there(name=second) == HALF


@in_loop
async def test_a_message_goes_its_way_where_there_is_no_room_for_parts(made: Path) -> None:
    world = await opened(made, copies=0)
    assert (await world.ask(world.body)).status == 200
    assert await world.state() is State.DELIVERED


@pytest.mark.req("P2-6.4.3-03")
@pytest.mark.parametrize(("longest", "seconds"), [("P1D", 3600), ("PT10M", 600)])
@in_loop
async def test_a_part_is_kept_for_the_agreed_interval_and_no_longer(
    made: Path, longest: str, seconds: int
) -> None:
    world = await opened(made, longest_interval=longest)
    upkeep = Upkeep(world.exchange.contexts[SELLER], leads=True)
    await world.begin()
    world.exchange.clock.wait(seconds - 1)
    await upkeep.forget_uploads()
    assert await world.there() == HALF
    world.exchange.clock.wait(1)
    assert await world.there() == 0
    assert await world.held() == 1
    await upkeep.forget_uploads()
    assert await world.held() == 0
    assert (await world.rest()).status == 416


@in_loop
async def test_each_piece_that_comes_lets_the_time_begin_anew(made: Path) -> None:
    world = await opened(made)
    await world.begin()
    world.exchange.clock.wait(3000)
    given = ContentRange(HALF, len(world.body) - 1, len(world.body))
    with pytest.raises(Truncated):
        await world.ask(world.body[HALF : HALF + 1000], given, breaks=True)
    world.exchange.clock.wait(3000)
    assert await world.there() == HALF + 1000
    assert (await world.rest(HALF + 1000)).status == 200


# Answers


@in_loop
async def test_the_answer_is_given_again_before_anything_is_read(made: Path) -> None:
    world = await opened(made)
    await world.begin()
    answer = await world.rest()
    assert await world.there() == len(world.body)
    again = await world.ask(b"")
    assert (again.status, again.content_type, again.body) == (
        answer.status,
        answer.content_type,
        answer.body,
    )
    said = await world.rest()
    assert dict(said.headers)["content-range"] == f"bytes */{len(world.body)}"


@in_loop
async def test_an_answer_is_remembered_for_as_long_as_a_part(made: Path) -> None:
    world = await opened(made)
    await world.ask(world.body)
    world.exchange.clock.wait(3599)
    assert await world.there() == len(world.body)
    world.exchange.clock.wait(1)
    assert await world.there() == 0


@in_loop
async def test_only_so_many_answers_are_remembered(made: Path) -> None:
    world = await opened(made, answers=0)
    await world.ask(world.body)
    assert await world.there() == 0


@in_loop
async def test_a_refusal_is_not_remembered(made: Path) -> None:
    world = await opened(made)
    damaged = bytearray(world.body)
    damaged[HALF] ^= 1
    assert (await world.ask(bytes(damaged))).status == 200
    assert await world.state() is not State.DELIVERED
    assert await world.there() == 0
    await world.ask(world.body)
    assert await world.state() is State.DELIVERED


# Several at once, and ends of processes


@in_loop
async def test_two_do_not_write_at_once(made: Path) -> None:
    world = await opened(made)
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield world.body[:HALF]
        gate.set()
        await asyncio.Event().wait()

    upload = Upload("/msh", NAME)
    request = Request(world.kind, HOME, slow(), length=len(world.body), upload=upload)
    first = asyncio.create_task(world.restarting.receive(request))
    await gate.wait()
    assert (await world.ask(world.body)).status == 409
    assert await world.there() == HALF
    assert (await first).status == 409
    assert (await world.rest()).status == 200


@pytest.fixture
def soon() -> Iterator[None]:
    """Nobody who asks waits long for what is decided, and others are told at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reception, "ENDED_WITHIN", 0.01)
        patch.setattr(reception, "DECIDED_SOON", 0.0)
        yield


class Deciding:
    """A walk in that has read a message and takes its time."""

    def __init__(self, world: World) -> None:
        self._receive = Receiver(world.exchange.contexts[SELLER]).receive
        self.came, self.decided = asyncio.Event(), asyncio.Event()

    async def receive(self, request: Request) -> Response:
        body = b"".join([chunk async for chunk in request.body])
        self.came.set()
        await self.decided.wait()
        return await self._receive(changed(request, body=pieces(body, False)))


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("begun", [0, HALF], ids=["at once", "gone on with"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "another process"])
@in_loop
async def test_all_of_an_upload_is_there_while_it_is_decided(
    made: Path, begun: int, elsewhere: bool
) -> None:
    world = await opened(made)
    context, total = world.exchange.contexts[SELLER], len(world.body)
    if begun:
        await world.begin(begun)
    walk = Deciding(world)
    world.restarting = Restarting(context, walk.receive)
    first = asyncio.create_task(world.rest(begun) if begun else world.ask(world.body))
    await walk.came.wait()
    if elsewhere:
        world.restarting = Restarting(context, Receiver(context).receive)
        key = (f"address {HOME}", "/msh", NAME)
        known = None
        while known is None or not msgspec.json.decode(known.details)["whole"]:
            await asyncio.sleep(0)
            known = await world.store.look(lambda reader: reader.transfer(*key))
    assert await world.there() == total
    assert (await world.ask(world.body)).status == 409, "it is being decided"
    assert await world.there() == total
    walk.decided.set()
    answer = await first
    assert answer.status == 200
    again = await world.ask(b"")
    assert (again.status, again.body) == (answer.status, answer.body)


@pytest.mark.usefixtures("soon")
@in_loop
async def test_of_an_upload_that_is_refused_in_the_end_nothing_is_there(made: Path) -> None:
    world = await opened(made)
    walk = Deciding(world)
    world.restarting = Restarting(world.exchange.contexts[SELLER], walk.receive)
    damaged = bytearray(world.body)
    damaged[HALF] ^= 1
    first = asyncio.create_task(world.ask(bytes(damaged)))
    await walk.came.wait()
    assert await world.there() == len(world.body)
    walk.decided.set()
    await first
    assert await world.state() is not State.DELIVERED
    assert await world.there() == 0
    assert await world.held() == 0


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("begun", [0, HALF], ids=["at once", "gone on with"])
@in_loop
async def test_what_could_not_be_decided_comes_again_at_once(made: Path, begun: int) -> None:
    world = await opened(made)
    context = world.exchange.contexts[SELLER]
    if begun:
        await world.begin(begun)
    walk = Deciding(world)

    async def fail(request: Request) -> Response:
        await walk.receive(request)
        raise StoreError("there is no room")

    world.restarting = Restarting(context, fail)
    first = asyncio.create_task(world.rest(begun) if begun else world.ask(world.body))
    await walk.came.wait()
    assert await world.there() == len(world.body)
    walk.decided.set()
    with pytest.raises(StoreError):
        await first
    world.restarting = Restarting(context, Receiver(context).receive)
    assert await world.there() == begun
    assert (await (world.rest(begun) if begun else world.ask(world.body))).status == 200
    assert await world.state() is State.DELIVERED


@pytest.fixture
def each_piece() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reception, "CHECKPOINT", reception.CHECKPOINT * 0)
        yield


@pytest.mark.usefixtures("each_piece")
@in_loop
async def test_what_came_is_kept_from_time_to_time_and_outlives_its_process(
    made: Path, tmp_path: Path
) -> None:
    store = await open_sqlite(tmp_path / "data", SELLER)
    world = await opened(made, store)
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        async for piece in pieces(world.body[:HALF], False):
            yield piece
        gate.set()
        await asyncio.Event().wait()

    upload = Upload("/msh", NAME)
    request = Request(world.kind, HOME, slow(), length=len(world.body), upload=upload)
    task = asyncio.create_task(world.restarting.receive(request))
    await gate.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()
    again = await open_sqlite(tmp_path / "data", SELLER)
    world = await opened(made, again)
    world.exchange.clock.wait(reception.LEASE.total_seconds() + 1)
    assert await world.there() == HALF
    await again.close()


@in_loop
async def test_who_was_silent_for_long_does_not_spoil_what_another_process_keeps(
    made: Path,
) -> None:
    world = await opened(made)
    context = world.exchange.contexts[SELLER]
    await world.begin()
    taken, cut = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield world.body[HALF : HALF + 500]
        taken.set()
        await cut.wait()
        raise Truncated(500)

    total = len(world.body)
    upload = Upload("/msh", NAME, ContentRange(HALF, total - 1, total))
    request = Request(world.kind, HOME, slow(), length=total - HALF, upload=upload)
    silent = asyncio.create_task(world.restarting.receive(request))
    await taken.wait()
    world.exchange.clock.wait(reception.LEASE.total_seconds())
    other = dataclasses.replace(context, owner="seller/other")
    world.restarting = Restarting(other, Receiver(other).receive)
    with pytest.raises(Truncated):
        await world.ask(world.body[HALF : HALF + 1000], upload.range, breaks=True)
    cut.set()
    with pytest.raises(Truncated):
        await silent
    assert await world.there() == HALF + 1000
    assert (await world.rest(HALF + 1000)).status == 200
