"""Large messages from one node to another: cut there, joined here, delivered once."""

import io
import json
import random
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from postroad.store.records import Message, Side, State
from tests.node.asking import ASYNCHRONOUS, PRICES, Q, R, ask, reply
from tests.node.collecting import collect
from tests.node.joining import payloads
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    STORES,
    Held,
    Posted,
    Station,
    World,
    address,
    lost,
    passed,
    played,
    reply_lost,
)
from tests.node.splitting import BIG, PAYLOAD, RETRY, agree, fragments, splitting

in_every_store = pytest.mark.parametrize("kept_in", STORES)


def encrypted(world: World) -> None:
    """What the buyer and the seller agreed on is also encrypted."""
    for at in (BUYER, SELLER):
        x509 = world._pmodes[at][-1]["legs"][0]["security"]["x509"]
        x509["encryption"] = {"encrypt": True, "certificate": "../keys/seller.pem"}
        if at == SELLER:
            x509["encryption"]["key"] = "../keys/seller.p12"


async def arrives(world: World, payload: bytes = PAYLOAD) -> None:
    """Everything is at rest, at both ends, and the message was delivered once."""
    buyer, seller = world.stations[BUYER], world.stations[SELLER]
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert {one.state for one in await fragments(buyer)} == {State.ACKNOWLEDGED}
    assert await seller.inbox() == [BIG]
    assert await payloads(seller, BIG) == [payload]
    assert await buyer.work() == {}
    assert await seller.work() == {}


def big(world: World) -> list[Posted]:
    """The fragments that were posted, copies too."""
    return [one for one in world.wire.to(SELLER) if b"MessageFragment" in one.body]


@pytest.mark.req("P2-4.4.2-01")
@played
async def test_a_message_of_the_same_size_is_split_only_where_its_pmode_says_so(
    world: World,
) -> None:
    agree(world)
    agree(world, "whole", splitting=splitting(enabled=False))
    world.agree("unsaid", receipt="callback", retry=RETRY)
    buyer, seller = await world.both()
    for name, pmode in (("cut", ORDERS), ("whole", "whole"), ("unsaid", "unsaid")):
        await buyer.send(f"{name}@buyer", pmode, PAYLOAD)
    await world.until(5)
    for name, count in (("cut", 4), ("whole", 0), ("unsaid", 0)):
        assert len(await fragments(buyer, f"{name}@buyer")) == count
        assert await payloads(seller, f"{name}@buyer") == [PAYLOAD]
    assert len(world.wire.to(SELLER)) == 4 + 1 + 1


@pytest.mark.req("P2-4.2.2-01", "P2-4.3.1-01", "P2-4.3.1-02", "P2-4.3.1-08", "P2-4.3.1-11")
@pytest.mark.req("P2-4.3.1-10", "P2-4.3.1-13", "P2-4.4.2-02", "P2-4.4.2-06", "P2-7.4-03")
@in_every_store
@pytest.mark.parametrize("secured", ["plain", "signed", "encrypted"])
@played
async def test_a_large_message_arrives_in_fragments(
    world: World, kept_in: str, secured: str
) -> None:
    world.kept_in = kept_in
    agree(world, signed=secured != "plain")
    if secured == "encrypted":
        encrypted(world)
    buyer, _ = await world.both()
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(5)
    await arrives(world)
    assert len(big(world)) == 4
    assert (await buyer.message(BIG)).attempts == 1
    story = await buyer.story(BIG)
    assert story == ["submitted", "split", "sent", "receipt_received"]


@pytest.mark.req("P2-4.3.1-04", "P2-4.3.2-13", "P2-4.2.4-02")
@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@pytest.mark.parametrize("algorithm", [None, "gzip", "identity"])
@played
async def test_it_does_in_each_version_of_soap_and_compressed(
    world: World, soap: str, algorithm: str | None
) -> None:
    more: dict[str, Any] = {}
    if algorithm is not None:
        more["compression"] = {"enabled": True, "algorithm": algorithm}
    agree(world, soap=soap, signed=True, splitting=splitting("2 KiB", **more))
    buyer, _ = await world.both()
    payload = random.Random(7).randbytes(50_000)
    await buyer.send(BIG, payload=payload)
    await world.until(5)
    assert len(big(world)) > 1
    await arrives(world, payload)


@in_every_store
@pytest.mark.parametrize(("trouble", "again"), [(lost, 1), (reply_lost, 0)])
@played
async def test_a_line_that_breaks_costs_one_fragment_at_most(
    world: World, kept_in: str, trouble: Any, again: int
) -> None:
    world.kept_in = kept_in
    agree(world, signed=True)
    buyer, _ = await world.both()
    world.configure(BUYER, send={"parallel": 1})
    world.wire.will(*[passed] * 2, trouble)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(60)
    await arrives(world)
    posted = [one.body for one in big(world)]
    assert len(posted) == 4 + again
    assert len(set(posted)) == 4


@in_every_store
@pytest.mark.parametrize("who", [BUYER, SELLER])
@played
async def test_either_end_may_die_in_the_middle(world: World, kept_in: str, who: str) -> None:
    world.kept_in = kept_in
    agree(world, signed=True, size="10000 B")
    world.configure(BUYER, send={"parallel": 2})
    buyer, _ = await world.both()
    holds = [Held() for _ in range(2)]
    world.wire.will(*[passed] * 4, *holds)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(3)
    assert len(big(world)) == 6
    await world.start_again(who)
    for one in holds:
        one.release(lost)
    await world.until(120)
    await arrives(world)
    assert len(big(world)) <= 11 + 2


@pytest.mark.req("P2-4.4.2-04", "P2-4.4.2-14", "P2-4.4.2-15")
@in_every_store
@played
async def test_fragments_are_pulled_one_by_one_in_ascending_order(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    collect(world, signed=True)
    for at in (BUYER, SELLER):
        world._pmodes[at][-1]["legs"][0]["splitting"] = splitting()
    buyer, seller = await world.both()
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    assert await seller.inbox() == []
    for _ in range(4):
        await seller.process.ask(seller.node.pull(ORDERS))
    await world.until(5)
    await arrives(world)
    found = await fragments(buyer)
    sent = [one for one in await buyer.journal("sent") if one.kind == "fragment"]
    assert [one.message_id for one in sent] == [one.message_id for one in found]
    assert [one.fragment for one in sent] == [1, 2, 3, 4]


@pytest.mark.parametrize("binding", ASYNCHRONOUS)
@played
async def test_requests_and_replies_go_in_fragments(world: World, binding: str) -> None:
    ask(world, binding, signed=True)
    for at in (BUYER, SELLER):
        for leg, sender in zip(world._pmodes[at][0]["legs"], (BUYER, SELLER), strict=True):
            leg["splitting"] = splitting()
            back = {"reply_pattern": "callback", "reply_to": address(sender)}
            leg["security"]["send_receipt"] |= back
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES, payload=PAYLOAD)
    await fetched(world, seller)
    assert await payloads(seller, Q) == [PAYLOAD]
    await reply(seller, payload=PAYLOAD)
    await fetched(world, buyer)
    assert await payloads(buyer, R) == [PAYLOAD]
    assert await buyer.state(Q) is await seller.state(R) is State.ACKNOWLEDGED
    assert (await buyer.message(Q, Side.SENDING)).reply_message_id == R
    assert await buyer.work() == await seller.work() == {}


async def fetched(world: World, puller: Station) -> None:
    """What is pulled there is pulled; the rest comes by itself."""
    await world.wait(3)
    if any(one.pmode.id == PRICES for one in puller.node.context.in_force.pulled):
        await puller.process.ask(puller.node.pull(PRICES, most=10))
    await world.wait(5)


@played
async def test_what_is_to_follow_in_order_waits_for_all_fragments(world: World) -> None:
    agree(world, in_order="pmode", signed=True)
    world.configure(BUYER, send={"parallel": 1})
    buyer, seller = await world.both()
    hold = Held()
    world.wire.will(passed, hold)
    await buyer.send(BIG, payload=PAYLOAD)
    await buyer.send("next@buyer")
    await world.until(3)
    assert world.wire.to(SELLER, "next@buyer") == []
    hold.release()
    await world.until(10)
    assert await seller.inbox() == [BIG, "next@buyer"]


@played
async def test_a_joined_message_that_comes_again_in_a_new_group_is_delivered_once(
    world: World,
) -> None:
    agree(world, signed=True, retry=RETRY | {"max_retries": 1})
    buyer, seller = await world.both()
    world.wire.usual[BUYER] = lost
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(120)
    assert await buyer.state(BIG) is State.IN_DOUBT
    del world.wire.usual[BUYER]
    await buyer.node.resend(BIG)
    await world.until(180)
    assert await seller.inbox() == [BIG]
    assert await buyer.state(BIG) in (State.ACKNOWLEDGED, State.SETTLED)


@played
async def test_how_far_it_is_can_be_asked_all_the_while(world: World) -> None:
    agree(world)
    world.configure(BUYER, send={"parallel": 1})
    buyer, _ = await world.both()
    hold = Held()
    world.wire.will(passed, passed, hold)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(3)
    whole = await buyer.message(BIG, Side.SENDING)
    done = await buyer.node.transfer(whole)
    assert done is not None
    assert (done.fragments, done.sent, done.arrived) == (4, 2, 2)
    assert done.arrived_bytes == 60_000 < done.bytes
    hold.release()
    await world.until(6)
    done = await buyer.node.transfer(await buyer.message(BIG, Side.SENDING))
    assert done is not None
    assert (done.sent, done.arrived, done.arrived_bytes) == (4, 4, done.bytes)
    small = Message(Side.SENDING, "x", State.SENT, whole.created_at, whole.created_at)
    assert await buyer.node.transfer(small) is None


@pytest.mark.req("P2-4.4.2-20")
@played
async def test_the_receipt_for_the_whole_is_evidence_at_both_ends(world: World) -> None:
    agree(world, signed=True)
    await (await world.start(BUYER)).send(BIG, payload=PAYLOAD)
    await world.start(SELLER)
    await world.until(30)
    await arrives(world)
    for station in world.stations.values():
        verdict = verdict_of(await station.node.evidence(BIG))
        assert verdict["holds"] is True
        [receipt] = verdict["receipts"]
        assert [one["equal"] for one in receipt["digests"]] == [True, True]
        [told] = verdict["errors"]
        assert told["severity"] == "warning"
        assert "its signed receipt proves that the receiver has it" in told["detail"]


@played
async def test_without_a_signature_the_receipt_for_the_whole_proves_nothing(world: World) -> None:
    agree(world)
    buyer, _ = await world.both()
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(5)
    await arrives(world)
    told, *_ = verdict_of(await buyer.node.evidence(BIG))["errors"]
    assert "this proves nothing" in told["detail"]


@played
async def test_the_receipt_of_a_fragment_is_evidence_of_it_at_both_ends(world: World) -> None:
    agree(world, signed=True)
    buyer, seller = await world.both()
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(5)
    await arrives(world)
    name = (await fragments(buyer))[1].message_id
    for station in (buyer, seller):
        verdict = verdict_of(await station.node.evidence(name))
        assert verdict["holds"] is True
        [told] = verdict["errors"]
        assert told["severity"] == "warning"
        assert "data@fragment is not checked" in told["detail"]
        [receipt] = verdict["receipts"]
        assert {one["equal"] for one in receipt["digests"]} == {True}


def verdict_of(pieces: Iterator[bytes]) -> dict[str, Any]:
    zipped = zipfile.ZipFile(io.BytesIO(b"".join(pieces)))
    read: dict[str, Any] = json.loads(zipped.read("verdict.json"))
    return read


@played
async def test_a_message_too_large_for_company_goes_in_fragments_at_once(world: World) -> None:
    company = {"compatibility": {"pmode_list": [ORDERS]}, "max_delay": "PT5S"}
    agree(world, signed=True, bundling={"policy": "optional", "max_size": "64 KiB", **company})
    buyer, seller = await world.both()
    await buyer.send("small@buyer")
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(3)
    assert await seller.inbox() == [BIG]
    await world.until(10)
    assert await seller.inbox() == [BIG, "small@buyer"]
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
