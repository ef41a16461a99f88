"""Bundles that an application puts together: taken over whole or not at all, and sent at once."""

from collections.abc import Sequence
from typing import Any

import pytest

from postroad.node.service import Refused, Submission, Submitted
from postroad.store.interface import StoreError
from postroad.store.records import Side, State, Wanted
from tests.node.bundled import NAMES, RETRY, UPDATES, bundling, in_every_store, submit, unit, units
from tests.node.reliable import BUYER, CARRIER, SELLER, Held, Station, World, failing, lost, played

OTHERS = "others"


async def submit_names(station: Station, names: Sequence[str]) -> list[Submitted]:
    return await submit(station, *map(unit, names))


async def refusal(station: Station, *given: Submission) -> Refused:
    """Why a bundle was not taken; nothing of it was."""
    with pytest.raises(Refused) as refused:
        await submit(station, *given)
    assert await station.node.messages(Wanted(Side.SENDING)) == []
    assert await station.work() == {}
    return refused.value


@pytest.mark.req("P2-3.1.3-04", "P2-3.4-01", "P2-3.4-02")
@in_every_store
@played
async def test_a_bundle_goes_at_once_and_each_unit_has_its_own_life(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    world.agree(UPDATES, bundling=bundling("always"), signed=True)
    buyer, seller = await world.both()
    taken = await submit_names(buyer, NAMES)
    assert [one.message.message_id for one in taken] == list(NAMES)
    await world.until(1)
    [posted] = world.wire.to(SELLER)
    assert units(posted) == list(NAMES)
    assert await seller.inbox() == list(NAMES)
    for name in NAMES:
        assert await buyer.state(name) is State.ACKNOWLEDGED
        story = await buyer.story(name)
        assert story[:3] == ["submitted", "bundled", "sent"]
    assert await buyer.work() == {}


@played
async def test_a_bundle_is_durable_when_it_was_taken(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(), retry=RETRY)
    buyer, seller = await world.both()
    world.wire.will(Held(lost))
    await submit_names(buyer, NAMES)
    await world.until(1)
    buyer = await world.start_again(BUYER)
    await world.until(12)
    assert sorted(await seller.inbox()) == list(NAMES)
    assert await buyer.state(NAMES[1]) is State.ACKNOWLEDGED


@pytest.mark.parametrize("kept", [False, True], ids=["before it is kept", "before the answer"])
@played
async def test_a_node_that_dies_in_the_step_of_a_bundle_has_all_units_or_none(
    world: World, kept: bool
) -> None:
    world.agree(UPDATES, bundling=bundling(), retry=RETRY)
    buyer, seller = await world.both()
    store = buyer.node.context.store
    with (
        failing(store, StoreError("it died"), kept=kept, about="send_at_once") as failed,
        pytest.raises(StoreError),
    ):
        await submit_names(buyer, NAMES)
    assert len(failed) == 1
    buyer = await world.start_again(BUYER)
    there = [one.message_id for one in await buyer.node.messages(Wanted(Side.SENDING))]
    assert sorted(there) == (list(NAMES) if kept else [])
    again = await submit_names(buyer, NAMES)
    assert [one.repeated for one in again] == 3 * [kept]
    await world.until(30)
    assert await seller.inbox() == list(NAMES)
    for name in NAMES:
        assert await buyer.state(name) is State.ACKNOWLEDGED
        assert (await buyer.story(name)).count("submitted") == 1
    assert await buyer.work() == {}


@played
async def test_the_same_bundle_again_is_taken_once(world: World) -> None:
    world.agree(UPDATES, bundling=bundling())
    buyer, _ = await world.both()
    first, second = await submit_names(buyer, NAMES), await submit_names(buyer, NAMES)
    assert [one.repeated for one in first + second] == 3 * [False] + 3 * [True]
    await world.until(1)
    assert len(world.wire.to(SELLER)) == 1


@played
async def test_a_unit_that_was_submitted_before_is_not_taken_with_others(world: World) -> None:
    world.agree(UPDATES, bundling=bundling())
    buyer, _ = await world.both()
    await submit_names(buyer, NAMES[:2])
    with pytest.raises(Refused, match="leave it out") as refused:
        await submit_names(buyer, NAMES[1:])
    assert refused.value.status == 409
    with pytest.raises(Refused, match="another message") as refused:
        await submit(buyer, unit(NAMES[0], content=b"2"), unit(NAMES[1]))
    assert refused.value.status == 409
    assert await buyer.node.message(NAMES[2]) is None


@pytest.mark.req("P2-3.4-01")
@pytest.mark.parametrize(
    ("terms", "other", "said"),
    [
        ({}, {"compatibility": {"pmode_list": [OTHERS]}}, "does not list 'updates' as a primary"),
        ({"max_size": "1 KiB"}, {}, "allows 1 KiB"),
        ({}, {"policy": "never", "compatibility": None, "max_delay": None}, "go alone"),
    ],
    ids=["stranger", "too large", "never"],
)
@played
async def test_a_bundle_that_its_pmodes_do_not_allow_is_refused_whole(
    world: World, terms: dict[str, Any], other: dict[str, Any], said: str
) -> None:
    world.agree(UPDATES, bundling=bundling() | terms)
    given = {name: value for name, value in (bundling() | other).items() if value is not None}
    world.agree(OTHERS, bundling=given)
    buyer, _ = await world.both()
    refused = await refusal(buyer, unit(NAMES[0]), unit(NAMES[1], OTHERS))
    assert (refused.status, refused.code) == (422, "EBMS:0030")
    assert said in refused.detail


@played
async def test_units_for_different_partners_are_no_bundle(world: World) -> None:
    world.agree(UPDATES, bundling=bundling())
    world.agree(OTHERS, bundling=bundling(), to=CARRIER)
    buyer, _ = await world.both()
    refused = await refusal(buyer, unit(NAMES[0]), unit(NAMES[1], OTHERS))
    assert (refused.status, refused.code) == (422, "EBMS:0030")
    assert "the primary to" in refused.detail


@played
async def test_a_unit_that_is_always_bundled_is_not_taken_alone(world: World) -> None:
    world.agree(UPDATES, bundling=bundling("always"))
    buyer, _ = await world.both()
    refused = await refusal(buyer, unit(NAMES[0]))
    assert (refused.status, refused.code) == (422, "EBMS:0030")


@played
async def test_two_units_with_one_id_or_one_content_id_are_refused(world: World) -> None:
    world.agree(UPDATES, bundling=bundling())
    buyer, _ = await world.both()
    twins = await refusal(buyer, unit(NAMES[0]), unit(NAMES[0], content=b"2"))
    assert (twins.status, NAMES[0] in twins.detail) == (400, True)
    shared = [unit(name, content_id="part@buyer") for name in NAMES]
    assert "Content-ID 'part@buyer'" in (await refusal(buyer, *shared)).detail


@played
async def test_a_bundle_of_very_many_units_is_refused_before_they_are_looked_at(
    world: World,
) -> None:
    world.agree(UPDATES, bundling=bundling())
    buyer, _ = await world.both()
    refused = await refusal(buyer, *(100_000 * [unit(None)]))
    assert (refused.status, "at most 500 units" in refused.detail) == (413, True)


@played
async def test_one_unit_that_is_not_valid_keeps_all_others_out(world: World) -> None:
    world.agree(UPDATES, bundling=bundling())
    buyer, _ = await world.both()
    assert (await refusal(buyer, unit(NAMES[0]), unit("no id"))).status == 400
    assert (await refusal(buyer, unit(NAMES[0]), unit(NAMES[1], "nobody's"))).status == 422


@pytest.mark.req("P2-3.10.1-08")
@played
async def test_what_waits_and_goes_before_a_bundle_leaves_before_it(world: World) -> None:
    ordering = {"policy": "documentorder", "scope": ["eb:CollaborationInfo/eb:ConversationId"]}
    terms = bundling(ordering=ordering)
    world.agree(UPDATES, bundling=terms, retry=RETRY, in_order="conversation")
    buyer, _ = await world.both()
    await buyer.send("before@buyer", UPDATES, conversation="c")
    given = [unit(name) for name in NAMES]
    await submit(buyer, *[Submission(UPDATES, one.payloads, one.message_id, "c") for one in given])
    await world.until(1)
    assert [units(one) for one in world.wire.to(SELLER)] == [["before@buyer"], list(NAMES)]
