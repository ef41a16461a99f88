"""Bundles that are larger than a fragment: made, cut, sent, joined, and taken unit by unit."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import pytest

from postroad.node.service import Refused
from postroad.store.interface import StoreError
from postroad.store.records import Message, Side, State, Wanted
from tests.node.bundled import NAMES, UPDATES, bundling, submit, unit
from tests.node.collecting import AGAIN, collect, pull, queued, request
from tests.node.joining import payloads
from tests.node.reliable import (
    BUYER,
    SELLER,
    SOAP,
    STORES,
    Held,
    Posted,
    World,
    failing,
    lost,
    passed,
    played,
    refused,
    reply_lost,
)
from tests.node.splitting import RETRY, Partner, agree, fragments, splitting
from tests.node.test_splitting_exchange import verdict_of

A, B, C = NAMES
CONTENTS: Final = {name: bytes([number]) * 25_000 for number, name in enumerate(NAMES)}
"""75,000 bytes in all: three fragments of 30,000."""
in_every_store = pytest.mark.parametrize("kept_in", STORES)


def agree_on_both(world: World, name: str = UPDATES, **terms: Any) -> None:
    """Messages are bundled, and bundles are split."""
    company = terms.pop("bundling", bundling(max_size="1 MiB"))
    agree(world, name, bundling=company, **terms)


async def send_all(world: World, names: Sequence[str] = NAMES, pmode: str = UPDATES) -> None:
    for name in names:
        await world.stations[BUYER].send(name, pmode, CONTENTS[name])


def cut(world: World) -> list[Posted]:
    """The fragments that were posted, copies too."""
    return [one for one in world.wire.to(SELLER) if b"MessageFragment" in one.body]


async def states(world: World, names: Sequence[str] = NAMES) -> list[State]:
    return [await world.stations[BUYER].state(name) for name in names]


async def fragments_of(world: World, name: str = A) -> list[Message]:
    return await fragments(world.stations[BUYER], name)


async def all_arrive(world: World) -> None:
    """Everything is at rest at both ends, and each unit was delivered once."""
    buyer, seller = world.stations[BUYER], world.stations[SELLER]
    assert await states(world) == 3 * [State.ACKNOWLEDGED]
    assert {one.state for one in await fragments_of(world)} == {State.ACKNOWLEDGED}
    assert await seller.inbox() == list(NAMES)
    for name, content in CONTENTS.items():
        assert await payloads(seller, name) == [content]
    assert await buyer.work() == await seller.work() == {}


@pytest.mark.req("P2-4.4.2-07", "P2-3.1.3-01", "P2-4.3.2-15")
@in_every_store
@pytest.mark.parametrize("algorithm", [None, "gzip"])
@played
async def test_a_bundle_larger_than_a_fragment_is_split_and_each_unit_delivered_once(
    world: World, kept_in: str, algorithm: str | None
) -> None:
    world.kept_in = kept_in
    size, more = "30000 B", {}
    if algorithm is not None:
        size, more = "1 KiB", {"compression": {"enabled": True, "algorithm": algorithm}}
    agree_on_both(world, signed=True, splitting=splitting(size, **more))
    buyer, seller = await world.both()
    await send_all(world)
    await world.until(20)
    await all_arrive(world)
    assert len(cut(world)) == len(await fragments_of(world)) > 1
    first = (await fragments_of(world))[0].message_id
    for name in NAMES:
        story = ["submitted", "bundled", "split", "sent", "receipt_received"]
        assert await buyer.story(name) == story
        [sent] = [one for one in await buyer.events(name) if one.event == "sent"]
        assert (sent.envelope, sent.attempt) == (first, 1)
        assert (await seller.story(name))[:3] == ["received", "joined", "delivered"]


@pytest.mark.req("P2-3.2.2-05", "P2-4.4.2-20")
@played
async def test_the_receipt_of_each_unit_is_evidence_of_it_at_both_ends(world: World) -> None:
    agree_on_both(world, signed=True)
    await world.both()
    await send_all(world)
    await world.until(20)
    await all_arrive(world)
    for station in world.stations.values():
        for name in NAMES:
            verdict = verdict_of(await station.node.evidence(name))
            assert verdict["holds"] is True
            [receipt] = verdict["receipts"]
            digests = receipt["digests"]
            # Of the header, which all have in common, and of its own payload.
            assert [one["equal"] for one in digests] == [True, True]
            [*_, told] = verdict["errors"]
            assert "its signed receipt proves that the receiver has it" in told["detail"]


@pytest.mark.req("P2-3.2.2-06")
@played
async def test_a_receipt_may_name_the_parts_of_other_units_too(world: World) -> None:
    agree_on_both(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await send_all(world)
    await world.until(6)
    await partner.acknowledge_whole(world, B)
    assert await states(world) == [State.WAITING, State.ACKNOWLEDGED, State.WAITING]
    number, (name, data) = 1, partner.data[1]
    partner.data[number] = (name, data.replace(CONTENTS[A][:100], bytes(range(100))))
    await partner.acknowledge_whole(world, C)
    assert await buyer.state(C) is State.WAITING


@played
async def test_a_small_bundle_goes_whole(world: World) -> None:
    agree_on_both(world, size="100000 B")
    buyer, seller = await world.both()
    await send_all(world)
    await world.until(10)
    assert len(world.wire.to(SELLER)) == 1
    assert await seller.inbox() == list(NAMES)
    assert "split" not in await buyer.story(A)


@in_every_store
@played
async def test_a_bundle_of_an_application_is_split_too(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree_on_both(world)
    buyer, _ = await world.both()
    await submit(buyer, *(unit(name, content=CONTENTS[name]) for name in NAMES))
    await world.until(10)
    await all_arrive(world)
    assert len(cut(world)) == 3


@played
async def test_the_primary_says_how_large_fragments_are(world: World) -> None:
    """A unit of another P-Mode, which is never split, goes in the fragments of the primary."""
    company = bundling(max_size="1 MiB")
    agree_on_both(world, bundling=company)
    world.agree("others", bundling=company)
    buyer, seller = await world.both()
    await submit(
        buyer,
        unit(A, content=CONTENTS[A]),
        unit(B, "others", content=CONTENTS[B]),
        unit(C, content=CONTENTS[C]),
    )
    await world.until(10)
    await all_arrive(world)
    assert len(cut(world)) == 3
    assert (await seller.message(B)).pmode == "others"


@in_every_store
@pytest.mark.parametrize(("trouble", "again"), [(lost, 1), (reply_lost, 0)])
@played
async def test_a_lost_fragment_is_sent_again_alone(
    world: World, kept_in: str, trouble: Any, again: int
) -> None:
    world.kept_in = kept_in
    agree_on_both(world)
    world.configure(BUYER, send={"parallel": 1})
    await world.both()
    world.wire.will(passed, trouble)
    await send_all(world)
    await world.until(60)
    await all_arrive(world)
    posted = [one.body for one in cut(world)]
    assert len(posted) == 3 + again
    assert len(set(posted)) == 3


@in_every_store
@pytest.mark.parametrize("who", [BUYER, SELLER])
@played
async def test_either_end_may_die_in_the_middle_of_a_bundle(
    world: World, kept_in: str, who: str
) -> None:
    world.kept_in = kept_in
    agree_on_both(world, size="10000 B")
    world.configure(BUYER, send={"parallel": 2})
    await world.both()
    holds = [Held() for _ in range(2)]
    world.wire.will(*[passed] * 3, *holds)
    await send_all(world)
    await world.until(8)
    assert len(cut(world)) == 5
    await world.start_again(who)
    for one in holds:
        one.release(lost)
    await world.until(120)
    await all_arrive(world)
    assert len(cut(world)) <= 8 + 2


@played
async def test_one_unit_that_is_refused_fails_alone(world: World) -> None:
    agree_on_both(world)
    buyer, seller = await world.both()
    await seller.node.context.store.run(
        lambda tx: tx.add_message(
            Message(Side.RECEIVING, B, State.DELIVERED, world.clock(), world.clock())
        )
    )
    await send_all(world)
    await world.until(20)
    assert await states(world) == [State.ACKNOWLEDGED, State.FAILED, State.ACKNOWLEDGED]
    assert (await buyer.message(B)).error_code == "EBMS:0003"
    assert sorted(await seller.inbox()) == list(NAMES)
    assert {one.state for one in await fragments_of(world)} == {State.ACKNOWLEDGED}
    assert await buyer.work() == {}


@played
async def test_a_unit_that_came_before_is_answered_again_and_delivered_once(world: World) -> None:
    agree_on_both(world, retry=RETRY | {"max_retries": 1})
    buyer, seller = await world.both()
    world.wire.usual[BUYER] = lost
    await send_all(world)
    await world.until(1500)
    assert await states(world) == 3 * [State.IN_DOUBT]
    assert await buyer.work() == {}
    del world.wire.usual[BUYER]
    await buyer.node.resend(B)
    await world.until(1600)
    assert await seller.inbox() == list(NAMES)
    assert await buyer.state(B) is State.ACKNOWLEDGED
    # The whole bundle went again, and the others were answered with it.
    assert await states(world, (A, C)) == 2 * [State.SETTLED]
    for name in NAMES:
        assert [one.event for one in await buyer.events(name)].count("resent") == 1
    assert len({one.message_id for one in await fragments_of(world)}) == 3
    assert await buyer.work() == {}


@pytest.mark.req("P2-4.3.2-16")
@in_every_store
@played
async def test_a_group_that_is_rejected_fails_every_unit_with_its_error(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree_on_both(world)
    for at, size in ((BUYER, "30000 B"), (SELLER, "20000 B")):
        world._pmodes[at][-1]["legs"][0]["splitting"] = splitting(size)
    buyer, seller = await world.both()
    await send_all(world)
    await world.until(60)
    for name in NAMES:
        message = await buyer.message(name)
        assert (message.state, message.error_code) == (State.FAILED, "EBMS:0040")
        assert "fragment" in (message.detail or "")
        [notice] = await buyer.notices(name)
        assert notice.error_code == "EBMS:0040"
    assert await seller.inbox() == []
    assert await buyer.work() == {}


@played
async def test_a_group_that_is_rejected_late_fails_every_unit(world: World) -> None:
    agree_on_both(world, retry=RETRY | {"max_retries": 3, "timeout": "PT1H"})
    world._pmodes[BUYER][-1]["legs"][0]["splitting"]["join_interval"] = "PT1M"
    world.configure(BUYER, send={"parallel": 1})
    buyer, _ = await world.both()
    hold = Held()
    world.wire.will(passed, hold)
    await send_all(world)
    await world.until(100)
    for name in NAMES:
        message = await buyer.message(name)
        assert (message.state, message.error_code) == (State.FAILED, "EBMS:0051")
    hold.release(refused)
    await world.until(200)
    assert await buyer.work() == {}


@played
async def test_a_bundling_error_about_the_joined_bundle_fails_every_unit(world: World) -> None:
    agree_on_both(world)
    for at, size in ((BUYER, "1 MiB"), (SELLER, "40 KiB")):
        world._pmodes[at][-1]["legs"][0]["bundling"] = bundling(max_size=size)
    buyer, seller = await world.both()
    await send_all(world)
    await world.until(20)
    for name in NAMES:
        message = await buyer.message(name)
        assert (message.state, message.error_code) == (State.FAILED, "EBMS:0030")
    assert await seller.inbox() == []
    assert await buyer.work() == await seller.work() == {}


@played
async def test_a_partner_out_of_reach_fails_every_unit_once(world: World) -> None:
    agree_on_both(world, retry={"max_retries": 1, "timeout": "PT1S", "period": "PT1S"})
    buyer = await world.start(BUYER)
    world.wire.usual[SELLER] = refused
    await send_all(world)
    await world.until(600)
    assert await states(world) == 3 * [State.FAILED]
    for name in NAMES:
        assert len(await buyer.notices(name)) == 1
    assert await buyer.work() == {}


@played
async def test_suspended_units_go_on_with_what_is_missing(world: World) -> None:
    agree_on_both(world, retry={"max_retries": 1, "period": "PT5S", "then": "suspend"})
    world.configure(BUYER, send={"parallel": 1})
    buyer, _ = await world.both()
    world.wire.will(passed)
    world.wire.usual[SELLER] = refused
    await send_all(world)
    await world.until(300)
    assert await states(world) == 3 * [State.SUSPENDED]
    del world.wire.usual[SELLER]
    await buyer.node.resume("urn:example:seller")
    await world.until(360)
    await all_arrive(world)


@played
async def test_units_without_receipts_were_sent_when_all_fragments_arrived(world: World) -> None:
    """Each unit by its own P-Mode."""
    company = bundling(max_size="1 MiB")
    agree_on_both(world, bundling=company)
    world.agree("silent", bundling=company, receipts=False)
    buyer, seller = await world.both()
    world.wire.usual[BUYER] = hold = Held()
    await submit(
        buyer,
        unit(A, content=CONTENTS[A]),
        unit(B, "silent", content=CONTENTS[B]),
        unit(C, content=CONTENTS[C]),
    )
    await world.until(3)
    assert await states(world) == 3 * [State.WAITING]
    del world.wire.usual[BUYER]
    hold.release()
    await world.until(60)
    assert await states(world) == [State.ACKNOWLEDGED, State.ACKNOWLEDGED, State.ACKNOWLEDGED]
    assert await seller.inbox() == list(NAMES)
    assert not [one for one in await buyer.story(B) if one == "receipt_received"]
    assert await buyer.work() == {}


@played
async def test_units_whose_receipts_are_missing_are_in_doubt_each_for_itself(world: World) -> None:
    agree_on_both(world)
    buyer, _ = await world.both()

    async def not_about_b(given: World, posted: Posted) -> Any:
        return await (lost if b"RefToMessageId>b@buyer<" in posted.body else passed)(given, posted)

    world.wire.usual[BUYER] = not_about_b
    await send_all(world)
    await world.until(30)
    assert await states(world) == [State.ACKNOWLEDGED, State.WAITING, State.ACKNOWLEDGED]
    with pytest.raises(Refused, match="nothing to resend"):
        await buyer.node.resend(B)
    await world.until(1200)
    message = await buyer.message(B)
    assert (message.state, message.error_code) == (State.IN_DOUBT, "EBMS:0301")
    assert await buyer.work() == {}
    await buyer.node.settle(B, "delivered")
    assert await buyer.state(B) is State.SETTLED


@played
async def test_how_far_a_bundle_is_can_be_asked_of_each_unit(world: World) -> None:
    agree_on_both(world)
    world.configure(BUYER, send={"parallel": 1})
    buyer, _ = await world.both()
    hold = Held()
    world.wire.will(passed, hold)
    await send_all(world)
    await world.until(8)
    for name in NAMES:
        message = await buyer.message(name, Side.SENDING)
        done = await buyer.node.transfer(message)
        assert done is not None
        assert (done.fragments, done.sent, done.arrived) == (3, 1, 1)
        listed = await buyer.node.fragments(message)
        assert [one.fragment for one in listed] == [1, 2, 3]
    hold.release()
    await world.until(20)
    await all_arrive(world)


@played
async def test_bundles_of_a_series_wait_for_all_fragments_of_the_one_before(world: World) -> None:
    order = {"policy": "documentorder", "scope": ["eb3:CollaborationInfo/eb3:ConversationId"]}
    company = bundling(max_size="1 MiB", ordering=order)
    agree_on_both(world, bundling=company, in_order="conversation")
    world.configure(BUYER, send={"parallel": 1})
    buyer, seller = await world.both()
    hold = Held()
    world.wire.will(passed, hold)
    for name in NAMES:
        await buyer.send(name, UPDATES, CONTENTS[name], conversation="c")
    await world.until(6)
    await buyer.send("next@buyer", UPDATES, conversation="c")
    await world.until(15)
    assert world.wire.to(SELLER, "next@buyer") == []
    hold.release()
    await world.until(30)
    assert await seller.inbox() == [*NAMES, "next@buyer"]
    assert await buyer.work() == {}


@played
async def test_a_bundle_of_which_a_unit_was_removed_is_not_resent(world: World) -> None:
    agree_on_both(world, retry={"max_retries": 1, "period": "PT5S"})
    buyer = await world.start(BUYER)
    world.wire.usual[SELLER] = refused
    await send_all(world)
    await world.until(800)
    assert await states(world) == 3 * [State.FAILED]
    await world.until(900)
    now = world.clock()
    await buyer.node.context.store.run(
        lambda tx: tx.change_message(Side.SENDING, B, (State.FAILED,), updated_at=now)
    )
    await buyer.process.ask(buyer.node.purge(90 / 86400))
    assert await buyer.node.message(A) is None
    with pytest.raises(Refused, match="a message of its bundle was removed since"):
        await buyer.node.resend(B)


def collect_split(world: World, **more: Any) -> None:
    """Bundles are pulled, and split."""
    collect(world, UPDATES, bundling=bundling(max_size="1 MiB"), **more)
    for at in (BUYER, SELLER):
        world._pmodes[at][-1]["legs"][0]["splitting"] = splitting()


@pytest.mark.req("P2-4.4.2-14", "P2-3.7-01", "P2-3.7-03")
@in_every_store
@played
async def test_a_bundle_is_pulled_fragment_by_fragment(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    collect_split(world, signed=True)
    buyer, seller = await world.both()
    await send_all(world)
    await world.until(1)
    for _ in range(3):
        assert len(await pull(seller, UPDATES)) == 1
    await world.until(10)
    await all_arrive(world)
    assert await queued(buyer) == 0
    for name in NAMES:
        story = ["submitted", "queued", "bundled", "split", "sent", "receipt_received"]
        assert await buyer.story(name) == story
    assert [one.fragment for one in await fragments_of(world)] == [1, 2, 3]


@in_every_store
@played
async def test_who_dies_while_a_bundle_is_cut_for_a_pull_request_loses_nothing(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    collect_split(world)
    buyer, seller = await world.both()
    await send_all(world)
    await world.until(1)
    store = buyer.node.context.store
    with failing(store, StoreError("it died"), about="_write_some") as failed:
        await pull(seller, UPDATES)
    assert failed
    await world.start_again(BUYER)
    await world.until(3)
    for _ in range(3):
        await pull(seller, UPDATES)
    await world.until(10)
    await all_arrive(world)


@played
async def test_a_fragment_of_a_pulled_bundle_comes_again_until_it_is_acknowledged(
    world: World,
) -> None:
    collect_split(world)
    buyer, seller = await world.both()
    await send_all(world)
    await world.until(1)
    first = await buyer.receive(SOAP, request(seller, UPDATES))
    for _ in range(2):
        await pull(seller, UPDATES)
    await world.until(12)
    assert await states(world) == 3 * [State.WAITING]
    again = await buyer.receive(SOAP, request(seller, UPDATES))
    assert b"".join(again.pieces.read() if again.pieces else [again.body]) == first.body
    await world.until(40)
    await pull(seller, UPDATES)
    await world.until(50)
    await all_arrive(world)


@played
async def test_fragments_are_sent_again_until_the_last_unit_is_at_rest(world: World) -> None:
    """The primary may be at rest before the others; with the last one everything is."""
    agree_on_both(world)
    buyer, _ = await world.both()
    held = Held()

    async def little_is_heard(given: World, posted: Posted) -> Any:
        if b"RefToMessageId>c@buyer<" in posted.body:
            return await held(given, posted)
        heard = (
            b"RefToMessageId>a@buyer<" in posted.body or b"RefToMessageId>b@buyer<" in posted.body
        )
        return await (passed if heard else lost)(given, posted)

    world.wire.usual[BUYER] = little_is_heard
    await send_all(world)
    await world.until(18)
    assert await states(world) == [State.ACKNOWLEDGED, State.ACKNOWLEDGED, State.WAITING]
    assert {one.state for one in await fragments_of(world)} == {State.WAITING}
    assert len(cut(world)) == 6
    held.release()
    await world.until(19)
    assert await states(world) == 3 * [State.ACKNOWLEDGED]
    assert await buyer.work() == {}
    for one in await fragments_of(world):
        assert one.state is State.ACKNOWLEDGED
        assert (await buyer.story(one.message_id))[-1] == "settled"


@played
async def test_a_unit_is_not_resent_while_others_are_on_their_way(world: World) -> None:
    agree_on_both(world)
    buyer, seller = await world.both()
    await seller.node.context.store.run(
        lambda tx: tx.add_message(
            Message(Side.RECEIVING, B, State.DELIVERED, world.clock(), world.clock())
        )
    )

    async def errors_alone(given: World, posted: Posted) -> Any:
        return await (passed if b"EBMS:0003" in posted.body else lost)(given, posted)

    world.wire.usual[BUYER] = errors_alone
    await send_all(world)
    await world.until(8)
    assert await states(world) == [State.WAITING, State.FAILED, State.WAITING]
    with pytest.raises(Refused, match="others of its bundle are on their way"):
        await buyer.node.resend(B)


@played
async def test_a_bundle_expires_with_its_oldest_unit(world: World) -> None:
    agree_on_both(world, retry=RETRY | {"max_retries": 50, "time_to_live": "PT1M"})
    buyer = await world.start(BUYER)
    world.wire.usual[SELLER] = refused
    for name in NAMES:
        await buyer.send(name, UPDATES, CONTENTS[name])
        await world.wait(2)
    assert await states(world) == 3 * [State.READY]
    await world.until(61)
    assert await states(world) == 3 * [State.EXPIRED]
    assert await buyer.work() == {}


@in_every_store
@played
async def test_retention_removes_all_units_with_their_fragments(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    compressed = splitting("1 KiB", compression={"enabled": True, "algorithm": "gzip"})
    agree_on_both(world, splitting=compressed)
    buyer, seller = await world.both()
    await send_all(world)
    await world.until(20)
    await all_arrive(world)
    world.clock.ahead = timedelta(days=100)
    for station in (buyer, seller):
        await station.process.ask(station.node.purge())
        assert await station.node.messages(Wanted()) == []
    assert await fragments_of(world) == []


@played
async def test_a_pulled_bundle_is_resent_as_another_group(world: World) -> None:
    collect_split(world, retry=AGAIN | {"max_retries": 0})
    buyer, seller = await world.both()
    await send_all(world)
    await world.until(1)
    world.wire.will(passed, passed, passed, at=BUYER)
    world.wire.usual[BUYER] = lost
    for _ in range(3):
        await pull(seller, UPDATES)
    await world.until(2000)
    assert await states(world) == 3 * [State.IN_DOUBT]
    del world.wire.usual[BUYER]
    first = {one.message_id for one in await fragments_of(world)}
    await buyer.node.resend(C)
    await world.wait(2)
    for _ in range(3):
        assert len(await pull(seller, UPDATES)) == 1
    await world.wait(20)
    assert await states(world) == [State.SETTLED, State.SETTLED, State.ACKNOWLEDGED]
    assert first.isdisjoint(one.message_id for one in await fragments_of(world))
    assert await seller.inbox() == list(NAMES)
    assert await buyer.work() == {}
