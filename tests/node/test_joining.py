"""Fragments become one message again: gathered, joined, delivered once, answered by a call."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from hashlib import sha256
from io import BytesIO
from typing import Any

import pytest
from cryptography.x509 import load_pem_x509_certificates

from postroad.msh.joined_receipts import part_references
from postroad.msh.lens import Lens
from postroad.msh.outbound import Draft
from postroad.node.evidence.check import Evidence, check_evidence
from postroad.node.steps.fragment_groups import group_there
from postroad.node.walks.joining import Joining
from postroad.security.attachments import Attachment
from postroad.store.interface import StoreFull
from postroad.store.records import Side, State
from postroad.wire.content import BytesContent
from postroad.wire.fragments import COMPRESSION_ALGORITHMS
from postroad.wire.receipts import check_receipt
from postroad.wire.soap import SoapVersion, read_envelope
from postroad.wire.xml import parse
from tests.node.joining import (
    DRAWING,
    GROUP,
    SOURCE,
    agree_on_splitting,
    bring,
    drafts,
    errors,
    large,
    payloads,
    receipts,
)
from tests.node.reliable import ORDERS, SELLER, STORES, Station, World, failing, played

KEY = ('[["", "urn:example:buyer"]]', f"{ORDERS}/1\n{GROUP}")
HUGE = bytes(range(256)) * 2000
"""Above what is held in memory."""
FRAGMENT = 300_000
BUNDLES = {
    "policy": "optional",
    "compatibility": {"pmode_list": [ORDERS]},
    "max_size": "9 MiB",
    "max_delay": "PT10S",
}


@pytest.mark.req("P2-4.2.1-01", "P2-4.3.2-01", "P2-4.3.2-05", "P2-4.3.2-11", "P2-4.3.2-15")
@pytest.mark.req("P2-7.4-01", "P2-4.4.2-05", "P2-4.4.2-17", "P2-4.4.2-19")
@pytest.mark.parametrize("kept_in", STORES)
@pytest.mark.parametrize("signed", [False, True])
@played
async def test_fragments_in_any_order_are_delivered_as_one_message(
    world: World, kept_in: str, signed: bool
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, signed=signed)
    buyer, seller = await world.both()
    given = large(buyer)
    assert given.count == 3
    await bring(seller, given, 3, 1)
    await world.wait(60)
    assert await seller.inbox() == []
    await bring(seller, given, 2)
    await world.wait(5)
    assert await seller.inbox() == [SOURCE]
    assert await payloads(seller) == [DRAWING]
    assert await seller.story(SOURCE) == ["received", "joined", "delivered", "receipt_sent"]
    fragment = f"1.{GROUP}@buyer.example"
    assert await seller.state(fragment) is State.RECEIVED
    assert await seller.story(fragment) == ["received", "receipt_sent"]
    assert len(receipts(world)) == 4
    assert len(receipts(world, fragment)) == len(receipts(world, SOURCE)) == 1
    assert errors(world) == []
    assert await seller.work() == {}


@pytest.mark.req("P2-4.2.4-01", "P2-4.2.4-02", "P2-4.3.2-13", "P2-4.5-02")
@pytest.mark.parametrize("kept_in", STORES)
@pytest.mark.parametrize("algorithm", COMPRESSION_ALGORITHMS)
@played
async def test_what_was_compressed_before_it_was_split_is_opened(
    world: World, kept_in: str, algorithm: str
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, compression={"algorithm": algorithm}, fragment_size="1 KiB")
    buyer, seller = await world.both()
    await bring(seller, large(buyer, DRAWING * 3, b"small", algorithm=algorithm, size=1024))
    await world.wait(2)
    assert await payloads(seller) == [DRAWING * 3, b"small"]
    assert errors(world) == []


@pytest.mark.req("P2-4.2.3-01", "P2-4.3.2-15")
@pytest.mark.parametrize("version", SoapVersion)
@pytest.mark.parametrize("mtom", [False, True])
@played
async def test_messages_of_each_format_are_joined(
    world: World, version: SoapVersion, mtom: bool
) -> None:
    agree_on_splitting(world, signed=True)
    for at in world._pmodes.values():
        at[-1]["legs"][0]["protocol"]["soap_version"] = version.number
    buyer, seller = await world.both()
    given = large(buyer, DRAWING, b"small", version=version, mtom=mtom)
    assert given.splitting.mtom is mtom
    await bring(seller, given)
    await world.wait(2)
    assert errors(world) == []
    assert await payloads(seller) == [DRAWING, b"small"]
    assert (await seller.message(SOURCE, Side.RECEIVING)).soap == version.number


@pytest.mark.req("P2-4.4.2-20")
@pytest.mark.parametrize("algorithm", [None, "gzip"])
@played
async def test_the_receipt_of_the_whole_has_the_digests_of_its_parts(
    world: World, algorithm: str | None
) -> None:
    agree_on_splitting(world, signed=True)
    buyer, seller = await world.both()
    given = large(buyer, DRAWING, b"small", algorithm=algorithm)
    await bring(seller, given)
    await world.wait(2)
    [receipt] = receipts(world, SOURCE)
    kept = await seller.message(SOURCE, Side.RECEIVING)
    assert kept.envelope is not None
    envelope = b"".join(seller.node.context.store.content(kept.envelope).chunks())
    assert envelope in given.body
    names = [part.content_id or "" for part in kept.parts]
    parts = [
        Attachment(name, BytesContent(data), "application/octet-stream")
        for name, data in zip(names, (DRAWING, b"small"), strict=True)
    ]
    references = part_references(read_envelope(parse(envelope)), parts)
    assert len(references) == 3
    check_receipt(receipt, sent_message_id=SOURCE, sent_references=references)
    assert receipt.receipt is not None
    assert receipt.receipt.non_repudiation is not None
    told = {one.uri: one.digest_value for one in receipt.receipt.non_repudiation.references}
    for name, data in zip(names, (DRAWING, b"small"), strict=True):
        assert told[f"cid:{name}"] == sha256(data).digest()


async def places(station: Station, message_id: str) -> list[str]:
    kept = await station.message(message_id, Side.RECEIVING)
    return [part.stored.place[:1] for part in kept.parts]


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_large_parts_stay_where_the_fragments_lie_and_go_with_the_message(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, fragment_size="300 KB")
    buyer, seller = await world.both()
    await bring(seller, large(buyer, HUGE, b"small", HUGE, size=FRAGMENT))
    await world.wait(2)
    assert await payloads(seller) == [HUGE, b"small", HUGE]
    if kept_in == "sqlite":
        assert await places(seller, SOURCE) == ["j", "s", "j"]
    figures = await seller.node.context.store.look(lambda reader: reader.figures())
    world.clock.ahead = timedelta(days=100)
    assert await seller.process.ask(seller.node.purge(0)) > 0
    left = await seller.node.context.store.look(lambda reader: reader.figures())
    # All that had a file of its own; what is small goes with its segment.
    assert kept_in == "memory" or left.bytes < figures.bytes - len(HUGE)


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_bundle_that_was_split_is_taken_unit_by_unit(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, fragment_size="300 KB", signed=True)
    for at in world._pmodes.values():
        at[-1]["legs"][0]["bundling"] = BUNDLES
    buyer, seller = await world.both()
    other = Draft("other@buyer.example", "conversation-2", drafts("other", HUGE))
    await bring(seller, large(buyer, HUGE, others=[other], size=FRAGMENT))
    await world.wait(2)
    assert errors(world) == []
    assert await seller.inbox() == [SOURCE, "other@buyer.example"]
    assert await payloads(seller, "other@buyer.example") == [HUGE]
    assert len(receipts(world, SOURCE)) == len(receipts(world, "other@buyer.example")) == 1
    assert (await seller.message(SOURCE, Side.RECEIVING)).bundle == SOURCE
    # What both have in common is there as long as one of them is.
    await seller.process.ask(seller.node.acknowledge(SOURCE))
    await world.wait(60)
    store, now = seller.node.context.store, world.clock()
    gone = await store.run(lambda tx: tx.purge(now, (State.CONSUMED,), 10))
    assert [one.message_id for one in gone] == [SOURCE]
    assert await payloads(seller, "other@buyer.example") == [HUGE]


@pytest.mark.req("P2-4.3.2-15")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_joined_message_that_came_before_is_a_copy(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    buyer, seller = await world.both()
    await bring(seller, large(buyer))
    await world.wait(2)
    await bring(seller, large(buyer, group_id="group-2"))
    await world.wait(2)
    assert (await seller.story(SOURCE)).count("duplicate") == 1
    first, again = receipts(world, SOURCE)
    assert first == again
    await bring(seller, large(buyer, b"another" * 1000, group_id="group-3"))
    await world.wait(2)
    assert errors(world, SOURCE) == []
    assert receipts(world, SOURCE) == [first] * 3
    told = [one.detail for one in await seller.events(SOURCE) if one.event == "duplicate"]
    assert told == [None, "its contents differ from those of the first message: payloads"]
    assert await payloads(seller) == [DRAWING]
    assert await seller.inbox() == [SOURCE]
    assert await seller.work() == {}
    groups = await seller.node.context.store.look(lambda reader: reader.fragment_groups(None, 9))
    assert groups == []


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_joined_message_that_breaks_its_pmode_is_refused_by_a_call(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    seller_leg = world._pmodes[SELLER][-1]["legs"][0]
    seller_leg["business_info"]["payload_profile"] = {"max_size": "1 KiB"}
    buyer, seller = await world.both()
    await bring(seller, large(buyer))
    await world.wait(2)
    [code] = errors(world, SOURCE)
    assert (await seller.message(SOURCE, Side.RECEIVING)).error_code == code
    assert await seller.state(SOURCE) is State.REJECTED
    assert await seller.inbox() == []
    assert await seller.work() == {}


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_fragments_come_over_several_connections_at_once(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, fragment_size="1 KiB")
    buyer, seller = await world.both()
    given = large(buyer, size=1024)
    bodies = [given.fragment(number) for number in range(1, given.count + 1)]
    copies = bodies[:3]
    await asyncio.gather(*(seller.receive(*one) for one in (*reversed(bodies), *copies)))
    await world.wait(2)
    assert await seller.inbox() == [SOURCE]
    assert await payloads(seller) == [DRAWING]
    assert errors(world) == []


@pytest.mark.parametrize("kept_in", STORES)
@pytest.mark.parametrize("after", [1, 2, 3])
@played
async def test_a_node_that_is_killed_goes_on_with_what_came(
    world: World, kept_in: str, after: int
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, signed=kept_in == "memory")
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, *range(1, after + 1))
    seller = await world.start_again(SELLER)
    await bring(seller, given, *range(after + 1, 4))
    await world.wait(90)
    assert await seller.inbox() == [SOURCE]
    assert await payloads(seller) == [DRAWING]
    assert (await seller.story(SOURCE)).count("delivered") == 1
    assert len(receipts(world, SOURCE)) == 1


@pytest.mark.parametrize("kept_in", STORES)
@pytest.mark.parametrize("kept", [False, True])
@played
async def test_a_node_that_is_killed_while_it_joins_delivers_once(
    world: World, kept_in: str, kept: bool
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    with failing(
        seller.node.context.store, StoreFull("killed here"), kept=kept, about="around"
    ) as failed:
        await bring(seller, given)
        await world.wait(0.1)
        seller.kill()
    assert failed
    seller = await world.start_again(SELLER)
    await world.wait(90)
    assert await seller.inbox() == [SOURCE]
    assert (await seller.story(SOURCE)).count("delivered") == 1
    assert len(receipts(world, SOURCE)) == 1
    assert await seller.work() == {}


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_who_lost_the_claim_while_it_joined_does_not_deliver_again(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, 1, 2)
    context = seller.node.context
    kept = await context.store.look(lambda reader: group_there(reader, KEY))
    assert kept is not None
    work = await context.store.look(lambda reader: reader.work(kept.work))
    assert work is not None
    await bring(seller, given, 3)
    others = [Joining(context).perform(work) for _ in range(3)]
    await seller.process.ask(_all(others))
    await world.wait(90)
    assert (await seller.story(SOURCE)).count("delivered") == 1
    assert await seller.work() == {}


async def _all(these: list[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*these)


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_groups_that_ended_are_forgotten_after_a_while(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given)
    await world.wait(2)
    world.clock.ahead = timedelta(days=100)
    await seller.process.ask(seller.node.purge())
    store = seller.node.context.store
    assert await store.look(lambda reader: reader.fragment_group(*KEY)) is None


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_it_is_told_how_far_a_message_is_that_comes_in(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, 3)
    [one] = await seller.node.arriving()
    assert (one.group_id, one.from_party) == (GROUP, "urn:example:buyer")
    assert (one.arrived, one.fragments, one.bytes) == (1, None, None)
    await bring(seller, given, 1)
    [one] = await seller.node.arriving()
    assert (one.arrived, one.fragments, one.bytes) == (2, 3, given.whole.size)
    assert one.arrived_bytes == given.whole.size - 4096
    event = (await seller.events(f"1.{GROUP}@buyer.example"))[0]
    said = (event.kind, event.group_id, event.fragment, event.fragments)
    assert said == ("fragment", GROUP, 1, 3)
    await bring(seller, given, 2)
    await world.wait(2)
    assert await seller.node.arriving() == []


@pytest.mark.req("P2-4.4.2-20")
@pytest.mark.parametrize("algorithm", [None, "gzip"])
@played
async def test_the_evidence_of_a_joined_message_holds(world: World, algorithm: str | None) -> None:
    agree_on_splitting(world, signed=True)
    buyer, seller = await world.both()
    await bring(seller, large(buyer, DRAWING, b"small", algorithm=algorithm))
    await world.wait(2)
    zipped = b"".join(await seller.node.evidence(SOURCE, Side.RECEIVING))
    evidence = _checked(world, zipped)
    assert evidence.holds, evidence.findings and evidence.findings.all_problems()
    assert evidence.findings is not None
    [receipt] = evidence.findings.signals
    assert receipt.found.trusted
    assert len(receipt.digests) == 3
    assert not _checked(world, zipped.replace(b"small", b"smell")).holds


def _checked(world: World, zipped: bytes) -> Evidence:
    authority = (world.folder / "buyer" / "keys" / "authority.pem").read_bytes()
    trusted = tuple(load_pem_x509_certificates(authority))
    return check_evidence(BytesIO(zipped), Lens(world.clock(), trusted=trusted))
