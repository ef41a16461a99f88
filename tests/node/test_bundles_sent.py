"""Bundles that go out: units wait, are planned, packaged, sent and answered."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from unittest.mock import patch

import pytest

from postroad.node.walks.bundling import Bundling, Unit
from postroad.store.interface import StoreError, Transaction
from postroad.store.records import Side, State
from tests.node.bundled import NAMES, RETRY, UPDATES, bundling, in_every_store, units
from tests.node.reliable import (
    BEGIN,
    BUYER,
    CARRIER,
    SELLER,
    Held,
    World,
    failing,
    lost,
    passed,
    played,
    refused,
    reply_lost,
    told,
)

ORDERED: Final = {"ordering": {"policy": "documentorder"}}


@pytest.mark.req("P2-3.1.3-01", "P2-3.3-02", "P2-3.4-02", "P2-7.2-01", "P2-7.2-04")
@in_every_store
@played
async def test_what_is_submitted_within_the_delay_goes_in_one_envelope(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(UPDATES, bundling=bundling(), signed=True)
    buyer, seller = await world.both()
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(4)
    assert world.wire.posted == []
    await world.until(6)
    [posted] = world.wire.to(SELLER)
    assert units(posted) == list(NAMES)
    assert await seller.inbox() == list(NAMES)
    for name in NAMES:
        assert await buyer.state(name) is State.ACKNOWLEDGED
        story = ["submitted", "bundled", "sent", "acknowledged"]
        events = [one.event for one in await buyer.events(name)]
        assert events[:3] == story[:3]
        assert "receipt_received" in events
        [sent] = [one for one in await buyer.events(name) if one.event == "sent"]
        assert sent.envelope == NAMES[0]
    assert await buyer.work() == {}


@pytest.mark.req("P2-3.1.3-03", "P2-3.3-03", "P2-3.5-06", "P2-7.2-02")
@played
async def test_who_must_have_company_and_finds_none_has_failed(world: World) -> None:
    world.agree(UPDATES, bundling=bundling("always"))
    buyer, _ = await world.both()
    await buyer.send(NAMES[0], UPDATES)
    await world.until(6)
    message = await buyer.message(NAMES[0])
    assert (message.state, message.error_code) == (State.FAILED, "EBMS:0030")
    assert world.wire.posted == []
    [notice] = await buyer.notices(NAMES[0])
    assert notice.error_code == "EBMS:0030"


@played
async def test_a_unit_without_company_goes_alone_as_a_plain_message(world: World) -> None:
    world.agree(UPDATES, bundling=bundling())
    buyer, seller = await world.both()
    await buyer.send(NAMES[0], UPDATES)
    await world.until(6)
    assert await seller.inbox() == [NAMES[0]]
    assert "bundled" not in await buyer.story(NAMES[0])
    assert await buyer.state(NAMES[0]) is State.ACKNOWLEDGED


@in_every_store
@played
async def test_units_that_waited_when_a_node_died_are_sent_by_the_next(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(UPDATES, bundling=bundling(), signed=True)
    buyer, seller = await world.both()
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(2)
    buyer = await world.start_again(BUYER)
    await world.until(10)
    assert sorted(await seller.inbox()) == list(NAMES)
    assert [units(one) for one in world.wire.to(SELLER)] == [list(NAMES)]
    assert await buyer.state(NAMES[2]) is State.ACKNOWLEDGED
    assert await buyer.work() == {}


@played
async def test_units_that_could_not_be_read_when_a_node_started_are_sent_later(
    world: World,
) -> None:
    world.agree(UPDATES, bundling=bundling(), signed=True)
    buyer, seller = await world.both()
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(2)
    buyer.kill()
    buyer = await world.start(BUYER)
    store, failed = buyer.node.context.store, []
    look = store.look

    async def broken(ask: Any) -> Any:
        if "_load" in ask.__qualname__ and not failed:
            failed.append(ask)
            raise StoreError("The database cannot be used: try again.")
        return await look(ask)

    with patch.object(store, "look", broken):
        await world.until(120)
    assert failed
    assert sorted(await seller.inbox()) == list(NAMES)
    assert await buyer.work() == {}


@in_every_store
@played
async def test_a_bundle_that_was_being_sent_when_a_node_died_is_sent_again_and_delivered_once(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(UPDATES, bundling=bundling(), retry=RETRY)
    buyer, seller = await world.both()
    world.wire.will(Held(lost))
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(7)
    buyer = await world.start_again(BUYER)
    await world.until(12)
    first, second = world.wire.to(SELLER)
    assert first.body == second.body
    assert sorted(await seller.inbox()) == list(NAMES)
    for name in NAMES:
        assert await buyer.state(name) is State.ACKNOWLEDGED
        events = [one.event for one in await buyer.events(name)]
        assert events[:4] == ["submitted", "bundled", "sent", "resent"]
    assert await buyer.work() == {}


@played
async def test_a_bundle_whose_answer_was_lost_is_sent_again_with_the_same_bytes(
    world: World,
) -> None:
    world.agree(UPDATES, bundling=bundling(), retry=RETRY)
    buyer, seller = await world.both()
    world.wire.will(refused, reply_lost)
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(80)
    bodies = {one.body for one in world.wire.to(SELLER)}
    assert len(bodies) == 1
    assert await seller.inbox() == list(NAMES)
    for name in NAMES:
        assert await buyer.state(name) is State.ACKNOWLEDGED
        story = await buyer.story(name)
        assert story.index("send_failed") < story.index("resent")
    assert await buyer.work() == {}


@played
async def test_without_an_answer_all_units_are_in_doubt(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(), retry=RETRY)
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = lost
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(400)
    for name in NAMES:
        assert await buyer.state(name) is State.IN_DOUBT
    assert await buyer.work() == {}


@played
async def test_a_bundling_error_about_the_primary_fails_all_units(world: World) -> None:
    world.agree(UPDATES, bundling=bundling())
    buyer, _ = await world.both()
    world.wire.will(told(200, "EBMS:0030", NAMES[0]))
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(6)
    for name in NAMES:
        message = await buyer.message(name)
        assert (message.state, message.error_code) == (State.FAILED, "EBMS:0030")


@pytest.mark.req("P2-3.8-05")
@played
async def test_receipts_that_come_later_acknowledge_each_unit(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(), receipt="callback", retry=RETRY)
    buyer, seller = await world.both()
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(8)
    assert await seller.inbox() == list(NAMES)
    for name in NAMES:
        assert await buyer.state(name) is State.ACKNOWLEDGED
    # The row that would send it again is done with the last receipt, and not when it is due.
    assert await buyer.work() == {}
    await world.until(60)
    assert len(world.wire.to(SELLER)) == 1


@played
async def test_receipts_of_some_units_leave_the_row_for_the_others(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(), receipt="callback", retry=RETRY)
    buyer, _ = await world.both()
    held = Held()
    world.wire.will(passed, held, passed, at=BUYER)
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(8)
    states = sorted([await buyer.state(name) for name in NAMES])
    assert states == [State.ACKNOWLEDGED, State.ACKNOWLEDGED, State.WAITING]
    assert await buyer.work() == {"send": 1}
    held.release()
    await world.until(9)
    assert [await buyer.state(name) for name in NAMES] == 3 * [State.ACKNOWLEDGED]
    assert await buyer.work() == {}


@pytest.mark.req("P2-3.5-02")
@played
async def test_a_bundling_error_that_comes_later_fails_all_units(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(max_size="1 MiB"), receipt="callback", retry=RETRY)
    buyer = await world.start(BUYER)
    world._pmodes[SELLER][0]["legs"][0]["bundling"]["max_size"] = "1 KiB"
    await world.start(SELLER)
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(8)
    for name in NAMES:
        message = await buyer.message(name)
        assert (message.state, message.error_code) == (State.FAILED, "EBMS:0030")
    assert await buyer.work() == {}


@pytest.mark.req("P2-3.1.3-03", "P2-3.3-08", "P2-3.4-03", "P2-7.2-06")
@played
async def test_a_full_bundle_does_not_wait(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(max_size="6 KiB", max_delay="PT60S"))
    buyer, seller = await world.both()
    for number in range(8):
        await buyer.send(f"{number}@buyer", UPDATES, bytes(1000))
    await world.until(5)
    posted = world.wire.to(SELLER)
    assert posted
    assert all(len(one.body) <= 6 * 1024 for one in posted)
    await world.until(70)
    assert len(await seller.inbox()) == 8


@pytest.mark.req("P2-3.2.2-09", "P2-3.10.1-08")
@played
async def test_bundles_of_a_series_go_one_after_the_other(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(**ORDERED), retry=RETRY, in_order="pmode")
    buyer, seller = await world.both()
    held = Held()
    world.wire.will(held)
    await buyer.send(NAMES[0], UPDATES)
    await buyer.send(NAMES[1], UPDATES)
    await world.until(6)
    await buyer.send(NAMES[2], UPDATES)
    await buyer.send("d@buyer", UPDATES)
    await world.until(9)
    held.release(lost)
    await world.until(60)
    assert [units(one) for one in world.wire.to(SELLER)] == [
        list(NAMES[:2]),
        list(NAMES[:2]),
        [NAMES[2], "d@buyer"],
    ]
    assert await seller.inbox() == [*NAMES, "d@buyer"]
    assert await buyer.work() == {}


@played
async def test_a_unit_that_fails_alone_does_not_keep_its_neighbours(world: World) -> None:
    compared = {"compare": "contents"}
    world.agree(UPDATES, bundling=bundling(), duplicate_detection=compared)
    buyer, seller = await world.both()
    await buyer.send(NAMES[1], UPDATES, b"first")
    await world.until(7)
    with world.elsewhere():
        other = await world.start(BUYER)
        for name in NAMES:
            await other.send(name, UPDATES)
        world.stations[SELLER] = seller
        await world.until(14)
        states = [await other.state(name) for name in NAMES]
    assert states == [State.ACKNOWLEDGED, State.FAILED, State.ACKNOWLEDGED]


@played
async def test_a_bundle_of_which_a_unit_was_removed_is_not_sent_in_part(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(), retry=RETRY)
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = lost
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(400)
    posted = len(world.wire.to(SELLER))
    await buyer.node.settle(NAMES[1], "delivered", "operator")
    long_ago = BEGIN + timedelta(days=1)
    store = buyer.node.context.store
    assert await store.run(lambda tx: tx.purge(long_ago, [State.SETTLED], 10))
    await buyer.node.resend(NAMES[0])
    await world.until(500)
    assert len(world.wire.to(SELLER)) == posted
    assert "was removed" in ((await buyer.message(NAMES[0])).detail or "")


@in_every_store
@played
async def test_who_must_have_company_finds_it_in_another_process(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(UPDATES, bundling=bundling("always"))
    buyer, seller = await world.both()
    other = await world.start(BUYER, beside=True)
    await buyer.send(NAMES[0], UPDATES)
    await world.until(1)
    await other.send(NAMES[1], UPDATES)
    await world.until(20)
    assert [units(one) for one in world.wire.to(SELLER)] == [list(NAMES[:2])]
    assert await seller.inbox() == list(NAMES[:2])
    assert [await buyer.state(name) for name in NAMES[:2]] == 2 * [State.ACKNOWLEDGED]
    assert await buyer.work() == {}


@pytest.mark.req("P2-3.10.1-08")
@played
async def test_units_of_a_series_keep_their_order_in_whichever_process_they_wait(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    order = ORDERED | {"max_size": "4 KiB"}
    world.agree(UPDATES, bundling=bundling(**order), retry=RETRY, in_order="pmode")
    buyer, seller = await world.both()
    other = await world.start(BUYER, beside=True)
    names = [f"{number}@buyer" for number in range(12)]
    await buyer.send(names[0], UPDATES)
    for name in names[1:]:
        # These are soon too many for one bundle, and do not wait.
        await other.send(name, UPDATES)
    await world.until(30)
    assert [name for one in world.wire.to(SELLER) for name in units(one)] == names
    assert await seller.inbox() == names
    assert await buyer.work() == {}
    (told,) = {
        (one.levelname, one.__dict__["detail"])
        for one in caplog.records
        if one.getMessage().startswith("not bundled")
    }
    assert told == ("INFO", "a unit of it left with another bundle, or came to rest")


@played
async def test_who_looks_for_company_elsewhere_lets_nobody_overtake_those_who_wait_here(
    world: World,
) -> None:
    order = ORDERED | {"max_delay": "PT1M"}
    world.agree(UPDATES, bundling=bundling(**order), retry=RETRY, in_order="pmode")
    alone = bundling("always", compatibility={"pmode_list": ["urgent"]})
    world.agree("urgent", bundling=alone, retry=RETRY)
    buyer, seller = await world.both()
    other = await world.start(BUYER, beside=True)
    await buyer.send(NAMES[0], UPDATES)
    await other.send(NAMES[1], UPDATES)
    await buyer.send("lonely@buyer", "urgent")
    await world.until(100)
    assert [name for one in world.wire.to(SELLER) for name in units(one)] == list(NAMES[:2])
    assert await seller.inbox() == list(NAMES[:2])
    assert await buyer.state("lonely@buyer") is State.FAILED


@pytest.mark.parametrize(("count", "loaded_after"), [(1, 3), (1, 60), (7, 60)])
@in_every_store
@played
async def test_who_waited_when_a_node_died_is_not_overtaken_before_it_is_loaded(
    world: World, kept_in: str, count: int, loaded_after: int
) -> None:
    world.kept_in = kept_in
    world.agree(UPDATES, bundling=bundling(**ORDERED), retry=RETRY, in_order="pmode")
    apart = bundling(compatibility={"pmode_list": ["apart"]})
    world.agree("apart", to=CARRIER, bundling=apart)
    world.configure(BUYER, limits={"units": 3})
    (buyer, seller), _ = await world.both(), await world.start(CARRIER)
    names = [f"{number}@buyer" for number in range(count + 1)]
    buyer.node._bundling._open = False
    for number in range(4):
        await buyer.send(f"apart{number}@buyer", "apart")
    for name in names[:-1]:
        await buyer.send(name, UPDATES)
    buyer.kill()

    def nobody_has_them(tx: Transaction) -> None:
        for work in tx.release_work(""):
            tx.postpone_work(work.id, BEGIN + timedelta(seconds=loaded_after))

    await buyer.node.context.store.run(nobody_has_them)
    buyer = await world.start(BUYER)
    await buyer.send(names[-1], UPDATES)
    await world.until(100)
    sent = [name for one in world.wire.to(SELLER) for name in units(one)]
    assert sent == await seller.inbox() == names
    assert await buyer.work() == {}


@played
async def test_who_could_not_be_stored_is_not_overtaken(world: World) -> None:
    order = ORDERED | {"max_size": "4 KiB"}
    world.agree(UPDATES, bundling=bundling(**order), retry=RETRY, in_order="pmode")
    buyer, seller = await world.both()
    names = [f"{number}@buyer" for number in range(12)]
    for name in names:
        await buyer.send(name, UPDATES)
    with failing(buyer.node.context.store, StoreError("it died"), about="_kept") as failed:
        await world.until(60)
    assert failed
    assert [name for one in world.wire.to(SELLER) for name in units(one)] == names
    assert len(world.wire.to(SELLER)) > 2
    assert await seller.inbox() == names
    assert await buyer.work() == {}


@played
async def test_who_could_not_be_stored_is_not_overtaken_before_it_is_loaded_again(
    world: World,
) -> None:
    world.agree(UPDATES, bundling=bundling(**ORDERED), retry=RETRY, in_order="pmode")
    buyer, seller = await world.both()
    store, error = buyer.node.context.store, StoreError("it died")
    await buyer.send(NAMES[0], UPDATES)
    with (
        failing(store, error, about="_kept") as failed,
        failing(store, error, about="_give_back", times=1000),
    ):
        await world.until(6)
        assert failed
        await buyer.send(NAMES[1], UPDATES)
        await world.until(20)
    await world.until(60)
    sent = [name for one in world.wire.to(SELLER) for name in units(one)]
    assert sent == await seller.inbox() == list(NAMES[:2])
    assert await buyer.work() == {}


@played
async def test_who_is_packaged_for_long_is_not_overtaken(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(**ORDERED), retry=RETRY, in_order="pmode")
    buyer, seller = await world.both()
    packaged: list[str] = []
    package = Bundling.package_or_cut

    async def slowly(self: Bundling, given: Sequence[Unit]) -> Any:
        packaged.extend(one.message.message_id for one in given)
        if len(packaged) == 1:
            await world.wait(20)
        return await package(self, given)

    with patch.object(Bundling, "package_or_cut", slowly):
        await buyer.send(NAMES[0], UPDATES)
        await world.until(6)
        await buyer.send(NAMES[1], UPDATES)
        await world.until(60)
    assert packaged == await seller.inbox() == list(NAMES[:2])
    assert await buyer.work() == {}


@played
async def test_what_follows_in_order_goes_on_when_all_units_in_doubt_are_settled(
    world: World,
) -> None:
    world.agree(UPDATES, bundling=bundling(**ORDERED), in_order="pmode")
    buyer, _ = await world.both()
    world.wire.will(lost)
    for name in NAMES[:2]:
        await buyer.send(name, UPDATES)
    await world.until(10)
    await buyer.send(NAMES[2], UPDATES)
    await world.until(20)
    assert [await buyer.state(name) for name in NAMES[:2]] == 2 * [State.IN_DOUBT]
    await buyer.node.settle(NAMES[0], "received")
    await world.until(21)
    assert await buyer.state(NAMES[2]) is State.READY
    await buyer.node.settle(NAMES[1], "received")
    await world.until(22)
    assert await buyer.state(NAMES[2]) is State.ACKNOWLEDGED
    assert await buyer.work() == {}


@in_every_store
@played
async def test_receipts_of_all_overwrite_nothing_that_somebody_changed_meanwhile(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(UPDATES, bundling=bundling(), retry=RETRY)
    buyer, _ = await world.both()
    held = Held()
    world.wire.will(held)
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(7)
    store, at_work = buyer.node.context.store, (State.READY, State.WAITING)
    assert await store.run(
        lambda tx: tx.change_message(Side.SENDING, NAMES[1], at_work, best_effort=True)
    )
    held.release()
    await world.until(8)
    assert (await buyer.message(NAMES[1])).best_effort
    for name in NAMES:
        assert await buyer.state(name) is State.ACKNOWLEDGED
        story = await buyer.story(name)
        assert story == ["submitted", "bundled", "sent", "receipt_received"]
    assert await buyer.work() == {}


@played
async def test_a_unit_that_was_settled_meanwhile_gets_its_receipt_with_the_others(
    world: World,
) -> None:
    world.agree(UPDATES, bundling=bundling(), retry=RETRY)
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = lost
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(400)
    assert [await buyer.state(name) for name in NAMES] == 3 * [State.IN_DOUBT]
    await buyer.node.settle(NAMES[1], "delivered", "operator")
    del world.wire.usual[SELLER]
    await buyer.node.resend(NAMES[0])
    await world.until(420)
    states = [await buyer.state(name) for name in NAMES]
    assert states == [State.ACKNOWLEDGED, State.SETTLED, State.SETTLED]
    for name in NAMES:
        assert (await buyer.story(name)).count("receipt_received") == 1
    assert await buyer.work() == {}
