"""What the columns of the journal say, as the contract with the pipeline has it."""

from typing import Final

import pytest

from postroad.store.journal_columns import EVENTS
from postroad.store.records import Event, Stored
from tests.node.reliable import (
    BUYER,
    LARGE,
    ORDER,
    SELLER,
    STORES,
    Station,
    World,
    lost,
    party,
    played,
    refused,
)

M: Final = "m@buyer"
RETRY: Final = {"max_retries": 3, "period": "PT10S"}
in_every_store = pytest.mark.parametrize("kept_in", STORES)


def signed_bytes(station: Station, event: Event) -> bytes:
    """What lies where the event says."""
    assert event.evidence is not None, event.event
    place, offset, size = event.evidence.rsplit(":", 2)
    stored = Stored(place, int(offset), int(size))
    return b"".join(station.node.context.store.content(stored).chunks())


async def one(station: Station, name: str) -> Event:
    [event] = await station.journal(name)
    return event


@in_every_store
@pytest.mark.parametrize("receipt", ["response", "callback"])
@played
async def test_evidence_leads_to_the_signed_bytes(world: World, kept_in: str, receipt: str) -> None:
    world.kept_in = kept_in
    world.agree(receipt=receipt)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(5)
    sent = signed_bytes(buyer, await one(buyer, "sent"))
    assert b"UserMessage>" in sent
    assert signed_bytes(buyer, await one(buyer, "submitted")) == sent
    assert signed_bytes(seller, await one(seller, "received")) == sent
    receipt_sent = signed_bytes(seller, await one(seller, "receipt_sent"))
    assert b"Receipt>" in receipt_sent
    assert signed_bytes(buyer, await one(buyer, "receipt_received")) == receipt_sent


@played
async def test_evidence_of_what_is_packaged_later_stands_with_its_sending(world: World) -> None:
    world.agree()
    buyer, seller = await world.both()
    await buyer.send(M, payload=LARGE)
    await world.wait(30)
    assert (await one(buyer, "submitted")).evidence is None
    sent = signed_bytes(buyer, await one(buyer, "sent"))
    assert signed_bytes(seller, await one(seller, "received")) == sent


@played
async def test_every_event_of_a_message_tells_the_same_bytes_and_digests(world: World) -> None:
    world.agree(retry=RETRY)
    buyer, seller = await world.both()
    world.wire.will(lost)
    await buyer.send(M, payload=LARGE)
    await world.wait(60)
    told = [*await buyer.events(M), *await seller.events(M)]
    assert len(told) >= 6
    assert {event.bytes for event in told} == {len(LARGE)}
    assert len({event.payload_digests for event in told}) == 1


@played
async def test_what_was_refused_tells_no_bytes(world: World) -> None:
    """A good copy may follow, and the first value that is not null counts."""
    world.agree()
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = lost
    await buyer.send(M)
    await world.wait(1)
    [posted] = world.wire.to(SELLER, M)
    await seller.receive(posted.content_type, posted.body.replace(b"urn:example:trade", b"urn:x"))
    for event in await seller.events(M):
        assert event.event in ("error_raised", "rejected")
        assert (event.bytes, event.payload_digests) == (None, None)
    await seller.receive(posted.content_type, posted.body)
    [delivered] = await seller.journal("delivered")
    assert delivered.bytes == len(ORDER)


@played
async def test_each_attempt_has_its_number_its_envelope_and_what_went_over_the_wire(
    world: World,
) -> None:
    world.agree(retry=RETRY)
    buyer = await world.start(BUYER)
    world.wire.will(refused, lost)
    await buyer.send(M)
    await world.wait(15)
    seller = await world.start(SELLER)
    await world.wait(30)
    failed = await one(buyer, "send_failed")
    assert (failed.attempt, failed.envelope, failed.wire_bytes) == (1, None, None)
    again = await buyer.journal("resent")
    assert [event.attempt for event in again] == list(range(2, 2 + len(again)))
    assert all(event.envelope == M for event in again)
    came = await one(seller, "received")
    assert (came.envelope, came.wire_bytes) == (M, again[-1].wire_bytes)
    assert came.wire_bytes


@played
async def test_what_is_about_no_message_has_no_side(world: World) -> None:
    world.agree(retry=RETRY)
    buyer, seller = await world.both()
    await buyer.node.suspend(party(SELLER), "why not")
    await buyer.node.resume(party(SELLER))
    await buyer.send(M)
    await seller.receive("text/plain", b"hello")
    await world.wait(5)
    for station in (buyer, seller):
        for event in await station.journal(*EVENTS):
            assert (event.message_id is None) == (event.side is None), event.event
            assert event.side in EVENTS[event.event]
