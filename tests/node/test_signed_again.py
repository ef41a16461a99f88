"""Fragments, and signals that wait to be pulled, are signed again with a new key."""

from typing import Any

import pytest

from postroad.node.base.requests import Response
from postroad.store.records import Message, Signal, State
from tests.node import test_pulled_signals as pulled
from tests.node.collecting import collect, errors, request, said
from tests.node.collecting import pull as pull_messages
from tests.node.reliable import (
    BEGIN,
    BUYER,
    SELLER,
    SOAP,
    STORES,
    Station,
    World,
    lost,
    passed,
    played,
    refused,
    status,
)
from tests.node.splitting import BIG, PAYLOAD, fragments, splitting
from tests.node.test_own_certificate import (
    HOUR,
    LATE,
    NEW,
    OLD,
    SAID,
    key,
    reload,
    replace_key,
)
from tests.node.test_splitting_exchange import verdict_of

RETRY: dict[str, Any] = {"max_retries": 30, "timeout": "PT10S", "period": "PT20S"}
FOUR = [1, 2, 3, 4]
M = "m@buyer"
in_every_store = pytest.mark.parametrize("kept_in", STORES)


def agree(world: World, *, encrypted: bool = False, **terms: Any) -> None:
    world.agree(splitting=splitting(), signed=True, receipt="callback", retry=RETRY, **terms)
    for station in (BUYER, SELLER) if encrypted else ():
        encryption = {"encrypt": True, "certificate": "../keys/seller.pem"}
        if station == SELLER:
            encryption["key"] = "../keys/seller.p12"
        world._pmodes[station][-1]["legs"][0]["security"]["x509"]["encryption"] = encryption


async def signed_again(station: Station) -> list[int | None]:
    """The numbers of the fragments of which the journal says so."""
    found = await station.journal("signed_again")
    assert {(one.group_id, one.detail) for one in found} <= {(BIG, SAID)}
    return sorted(one.fragment or 0 for one in found)


async def arrived(world: World) -> None:
    """The message came once, all fragments were answered, and the evidence holds at both ends."""
    buyer, seller = world.stations[BUYER], world.stations[SELLER]
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert {one.state for one in await fragments(buyer)} == {State.ACKNOWLEDGED}
    assert await seller.inbox() == [BIG]
    for station in (buyer, seller):
        verdict = verdict_of(await station.node.evidence(BIG))
        assert verdict["holds"] is True, verdict["errors"]
        assert all(digest["equal"] for one in verdict["receipts"] for digest in one["digests"])


@pytest.mark.parametrize("encrypted", [False, True])
@in_every_store
@played
async def test_fragments_that_wait_are_signed_again_with_the_new_key(
    world: World, kept_in: str, encrypted: bool
) -> None:
    world.kept_in = kept_in
    agree(world, encrypted=encrypted)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = refused
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(15)
    assert all(one.envelope is not None for one in await fragments(buyer))
    replace_key(world, NEW)
    await reload(buyer, seller)
    world.wire.usual.clear()
    await world.wait(120)
    await arrived(world)
    assert await signed_again(buyer) == FOUR


@played
async def test_a_group_is_joined_of_fragments_with_old_and_new_signatures(world: World) -> None:
    agree(world)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    world.wire.will(passed, passed, refused, refused)
    world.wire.usual[SELLER] = refused
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(15)
    replace_key(world, NEW)
    await reload(buyer, seller)
    world.wire.usual.clear()
    await world.wait(120)
    await arrived(world)
    assert len(await signed_again(buyer)) == 2


@pytest.mark.parametrize("encrypted", [False, True])
@played
async def test_receipts_for_fragments_that_left_before_fit_the_new_signature(
    world: World, encrypted: bool
) -> None:
    """The seller has some of them, and answers copies as it answered them first."""
    agree(world, encrypted=encrypted)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    world.wire.will(passed, passed, passed, refused)
    world.wire.usual[BUYER] = status(202)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(5)
    assert len(await seller.journal("receipt_sent")) == 3
    first = len(world.wire.to(SELLER))
    replace_key(world, NEW)
    await reload(buyer, seller)
    world.wire.usual.clear()
    await world.wait(120)
    await arrived(world)
    assert await signed_again(buyer) == FOUR
    old, new = world.wire.to(SELLER)[:first], world.wire.to(SELLER)[first:]
    assert {one.body for one in old}.isdisjoint(one.body for one in new)
    assert len(await seller.journal("duplicate")) == 3


@played
async def test_fragments_wait_while_the_certificate_is_expired_and_say_why(world: World) -> None:
    agree(world)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    world.wire.will(passed, refused, refused, refused)
    world.wire.usual[SELLER] = refused
    await world.wait(HOUR.total_seconds() - 10)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.wait(60)
    before = len(world.wire.to(SELLER))
    await world.wait(120)
    assert len(world.wire.to(SELLER)) == before
    waiting = [one for one in await fragments(buyer) if one.state is not State.ACKNOWLEDGED]
    assert len(waiting) == 3
    for one in (*waiting, await buyer.message(BIG)):
        assert "our certificate" in (one.detail or ""), one
    replace_key(world, LATE)
    await reload(buyer, seller)
    world.wire.usual.clear()
    await world.wait(120)
    await arrived(world)
    assert (await buyer.message(BIG)).detail is None
    assert len(await signed_again(buyer)) == 3


@played
async def test_what_kept_a_message_in_fragments_is_gone_when_one_leaves(world: World) -> None:
    agree(world)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    await world.wait(HOUR.total_seconds() + 10)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.wait(10)
    assert "our certificate" in ((await buyer.message(BIG)).detail or "")
    replace_key(world, LATE)
    await reload(buyer, seller)
    world.wire.usual[SELLER] = lost
    await world.wait(65)
    assert await buyer.state(BIG) is State.WAITING
    assert (await buyer.message(BIG)).detail is None
    world.wire.usual.clear()
    await world.wait(120)
    await arrived(world)


def collect_split(world: World) -> None:
    collect(world, signed=True, retry=RETRY)
    for station in (BUYER, SELLER):
        world._pmodes[station][-1]["legs"][0]["splitting"] = splitting()


@in_every_store
@played
async def test_fragments_are_pulled_with_the_new_signature(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    collect_split(world)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    await world.wait(HOUR.total_seconds() - 60)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.wait(1)
    assert len(await pull_messages(seller, most=2)) == 2
    await world.wait(120)
    assert await pull_messages(seller) == ()
    replace_key(world, LATE)
    await reload(buyer, seller)
    assert len(await pull_messages(seller, most=4)) == 2
    await world.wait(5)
    await arrived(world)
    assert await signed_again(buyer) == [3, 4]


# Signals that wait to be pulled

THEIRS = key("seller old", BEGIN - HOUR, BEGIN + HOUR, SELLER)
OURS = key("seller late", BEGIN + HOUR, BEGIN + 1000 * HOUR, SELLER)


async def signals(station: Station, message_id: str = M) -> list[Signal]:
    message: Message = await station.message(message_id)
    store = station.node.context.store
    return await store.look(lambda reader: reader.signals(message.side, message.message_id))


async def ask(world: World) -> Response:
    seller = world.stations[SELLER]
    return await seller.receive(SOAP, request(world.stations[BUYER]))


@pytest.mark.parametrize("refusing", [False, True])
@in_every_store
@played
async def test_signals_are_not_handed_out_with_an_expired_certificate_and_signed_again(
    world: World, kept_in: str, refusing: bool
) -> None:
    world.kept_in = kept_in
    many = {"max_retries": 2, "timeout": "PT3H", "period": "PT3H"}
    pulled.agree(world, signed=True, retry=many, most="1 B" if refusing else None)
    replace_key(world, THEIRS, of=SELLER)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    [before] = await signals(seller)
    assert before.kind == ("error" if refusing else "receipt")
    await world.wait(HOUR.total_seconds() + 60)
    assert errors(await ask(world)) == ["EBMS:0006"]
    assert await seller.journal("receipt_sent", "signed_again") == []
    replace_key(world, OURS, of=SELLER)
    await reload(buyer, seller)
    assert await pulled.pull(buyer) == (M,)
    ended = State.FAILED if refusing else State.ACKNOWLEDGED
    assert await buyer.state(M) is ended, await buyer.events(M)
    [after] = await signals(seller)
    assert (after.signal_id, after.kind) == (before.signal_id, before.kind)
    [again] = await seller.journal("signed_again")
    assert (again.message_id, again.signal_id, again.detail) == (M, after.signal_id, SAID)
    if not refusing:
        [left] = await seller.journal("receipt_sent")
        assert left.evidence == again.evidence
        for station in (buyer, seller):
            verdict = verdict_of(await station.node.evidence(M))
            assert verdict["holds"] is True, verdict["errors"]


@played
async def test_a_receipt_is_handed_out_as_it_was_while_nothing_changed(world: World) -> None:
    pulled.agree(world, signed=True)
    replace_key(world, THEIRS, of=SELLER)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    [kept] = await signals(seller)
    given = await ask(world)
    assert said(given).signals[0].receipt is not None
    content = seller.node.context.store.content(kept.envelope)
    assert given.body == b"".join(content.chunks())
    assert await seller.journal("signed_again") == []


@played
async def test_an_unsigned_receipt_is_signed_when_the_pmode_signs_by_now(world: World) -> None:
    pulled.agree(world, signed=True)
    replace_key(world, THEIRS, of=SELLER)
    signed = [world._pmodes.pop(one) for one in (BUYER, SELLER)]
    pulled.agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert b"SignedInfo" not in (await ask_kept(seller))
    world._pmodes[BUYER], world._pmodes[SELLER] = signed
    for one in (BUYER, SELLER):
        world._write(one)
    await reload(buyer, seller)
    assert b"SignedInfo" in (await ask(world)).body


async def ask_kept(station: Station) -> bytes:
    [kept] = await signals(station)
    return b"".join(station.node.context.store.content(kept.envelope).chunks())
