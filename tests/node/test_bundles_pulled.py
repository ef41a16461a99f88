"""Bundles that are pulled: made of what waits in the channel when somebody asks."""

import pytest

from postroad.node.base.requests import Response
from postroad.node.service import Refused, Submission
from postroad.store.records import State
from postroad.wire.ebms3 import Selection
from tests.node.bundled import NAMES, UPDATES, bundling, in_every_store
from tests.node.collecting import collect, errors, pull, queued, request, said
from tests.node.reliable import BUYER, SOAP, Station, World, lost, passed, played


def units(response: Response) -> list[str]:
    return [one.message_info.message_id for one in said(response).user_messages]


async def asked(buyer: Station, seller: Station) -> Response:
    return await buyer.receive(SOAP, request(seller, UPDATES))


@pytest.mark.req("P2-3.4-04", "P2-3.7-01", "P2-3.7-02", "P2-3.7-03")
@pytest.mark.parametrize("policy", ["optional", "always"])
@in_every_store
@played
async def test_a_pull_request_gets_what_waits_in_one_envelope(
    world: World, kept_in: str, policy: str
) -> None:
    world.kept_in = kept_in
    collect(world, UPDATES, bundling=bundling(policy), signed=True)
    buyer, seller = await world.both()
    for name in NAMES:
        await buyer.send(name, UPDATES)
    assert await pull(seller, UPDATES) == NAMES
    await world.wait(2)
    assert await seller.inbox() == list(NAMES)
    for name in NAMES:
        story = ["submitted", "queued", "bundled", "sent", "receipt_received"]
        assert await buyer.story(name) == story
        [sent] = [one for one in await buyer.events(name) if one.event == "sent"]
        assert sent.envelope == NAMES[0]
    assert [await buyer.state(name) for name in NAMES] == 3 * [State.ACKNOWLEDGED]
    assert await queued(buyer) == 0
    assert await pull(seller, UPDATES) == ()
    assert await buyer.work() == await seller.work() == {}


@pytest.mark.req("P2-3.7-01")
@played
async def test_a_unit_that_waits_alone_is_not_kept_back(world: World) -> None:
    collect(world, UPDATES, bundling=bundling())
    buyer, seller = await world.both()
    await buyer.send(NAMES[0], UPDATES)
    assert units(await asked(buyer, seller)) == [NAMES[0]]
    assert "bundled" not in await buyer.story(NAMES[0])


@in_every_store
@played
async def test_a_bundle_that_nobody_acknowledged_is_handed_out_again_with_the_same_bytes(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    collect(world, UPDATES, bundling=bundling())
    buyer, seller = await world.both()
    for name in NAMES:
        await buyer.send(name, UPDATES)
    first = await asked(buyer, seller)
    assert units(first) == list(NAMES)
    await buyer.send("d@buyer", UPDATES)
    # The bundle is with somebody; what came since goes by itself.
    assert units(await asked(buyer, seller)) == ["d@buyer"]
    assert errors(await asked(buyer, seller)) == ["EBMS:0006"]
    buyer = await world.start_again(BUYER)
    await world.until(10.5)
    again = await asked(buyer, seller)
    assert (again.body, again.content_type) == (first.body, first.content_type)
    for name in NAMES:
        message = await buyer.message(name)
        assert (message.state, message.attempts) == (State.WAITING, 2)


@played
async def test_a_bundle_comes_again_until_the_last_unit_is_acknowledged(world: World) -> None:
    collect(world, UPDATES, bundling=bundling())
    buyer, seller = await world.both()
    for name in NAMES[:2]:
        await buyer.send(name, UPDATES)
    # The request and one receipt arrive, the other receipt does not.
    world.wire.will(passed, passed, *(10 * [lost]), at=BUYER)
    assert await pull(seller, UPDATES) == NAMES[:2]
    await world.until(9)
    states = sorted([await buyer.state(name) for name in NAMES[:2]])
    assert states == [State.ACKNOWLEDGED, State.WAITING]
    assert await queued(buyer) == 1
    world.wire._next[BUYER].clear()
    await world.until(200)
    assert await pull(seller, UPDATES) in ((), NAMES[:2])
    await world.wait(2)
    assert await seller.inbox() == list(NAMES[:2])
    assert [await buyer.state(name) for name in NAMES[:2]] == 2 * [State.ACKNOWLEDGED]
    assert await buyer.work() == {}


@pytest.mark.req("P2-3.5-06")
@played
async def test_who_must_have_company_waits_for_it_in_the_channel_and_fails_in_time(
    world: World,
) -> None:
    collect(world, UPDATES, bundling=bundling("always"))
    buyer, seller = await world.both()
    await buyer.send(NAMES[0], UPDATES)
    assert errors(await asked(buyer, seller)) == ["EBMS:0006"]
    await world.until(6)
    message = await buyer.message(NAMES[0])
    assert (message.state, message.error_code) == (State.FAILED, "EBMS:0030")
    assert await queued(buyer) == 0
    assert await buyer.work() == {}


@played
async def test_who_found_company_in_time_may_be_pulled_later(world: World) -> None:
    collect(world, UPDATES, bundling=bundling("always"))
    buyer, seller = await world.both()
    for name in NAMES[:2]:
        await buyer.send(name, UPDATES)
    await world.until(600)
    assert units(await asked(buyer, seller)) == list(NAMES[:2])


@played
async def test_only_what_is_selected_is_bundled(world: World) -> None:
    collect(world, UPDATES, bundling=bundling())
    buyer, seller = await world.both()
    for name, conversation in zip(NAMES, "121", strict=True):
        await buyer.send(name, UPDATES, conversation=conversation)
    selected = request(seller, UPDATES, Selection(conversation_id="1"))
    assert units(await buyer.receive(SOAP, selected)) == [NAMES[0], NAMES[2]]
    assert units(await asked(buyer, seller)) == [NAMES[1]]


@played
async def test_a_unit_that_was_given_up_does_not_keep_its_neighbours(world: World) -> None:
    collect(world, UPDATES, bundling=bundling(), keep="PT30S")
    buyer, seller = await world.both()
    await buyer.send(NAMES[0], UPDATES)
    await world.until(4)
    await buyer.send(NAMES[1], UPDATES)
    first = await asked(buyer, seller)
    await world.until(32)
    again = await asked(buyer, seller)
    assert (units(again), again.body) == (list(NAMES[:2]), first.body)


@played
async def test_a_bundle_of_messages_that_are_pulled_is_not_submitted_as_one(world: World) -> None:
    collect(world, UPDATES, bundling=bundling())
    buyer, _ = await world.both()
    with pytest.raises(Refused, match="is pulled") as refused:
        await buyer.node.submit_bundle([Submission(UPDATES), Submission(UPDATES)])
    assert (refused.value.status, refused.value.code) == (422, "EBMS:0030")
