"""What must not happen to conversations in order, and to links."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from postroad.node.service import Refused
from postroad.node.steps.ebxml_order import conversation_of
from postroad.node.walks import packaging
from postroad.reliability.order import Numbering
from postroad.store.records import State
from tests.node.ebxml_letters import (
    RELIABLY,
    M,
    Said,
    envelope,
    header,
    listening,
    manifest,
    order,
    packed,
)
from tests.node.ebxml_stations import EBXML, RELIABLE, in_order, linked, start
from tests.node.reliable import (
    BUYER,
    CARRIER,
    SELLER,
    STORES,
    World,
    address,
    lost,
    played,
    refused,
    status,
)


@played
async def test_what_could_not_be_packaged_leaves_no_hole_in_its_conversation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.speak(message_order="Guaranteed", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    make = packaging.make_package

    def broken(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(packaging, "make_package", make)
        raise Refused(422, "the key is gone")

    monkeypatch.setattr(packaging, "make_package", broken)
    await buyer.send("m0@buyer.example", conversation="c")
    await world.wait(2)
    assert await buyer.state("m0@buyer.example") is State.FAILED
    await buyer.send("m1@buyer.example", conversation="c")
    await world.wait(2)
    assert await seller.inbox() == ["m1@buyer.example"]


@played
async def test_a_message_without_a_link_is_refused_where_links_are_spoken(world: World) -> None:
    world.speak(profile="rm001", **RELIABLE)
    seller = await listening(world)
    letter = envelope(header(inside=RELIABLY), body=manifest())
    response = await seller.receive(*packed(letter), EBXML)
    await world.wait(1)
    said = [Said.read(one.body) for one in world.wire.to(BUYER)]
    assert response.status < 500 or Said.read(response.body).fault
    assert response.body or said


@played
async def test_a_conversation_goes_on_after_what_is_old_was_removed(world: World) -> None:
    world.speak(message_order="Guaranteed", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    for name in ("m0@buyer.example", "m1@buyer.example"):
        await buyer.send(name, conversation="c")
        await world.wait(2)
    world.clock.ahead += timedelta(days=40)
    await seller.node.purge(30)
    await buyer.send("m2@buyer.example", conversation="c")
    await world.wait(2)
    assert "m2@buyer.example" in await seller.inbox()


@played
async def test_what_is_held_for_its_order_is_not_removed_while_it_waits(world: World) -> None:
    """It was acknowledged: nobody sends it again."""
    world.speak(message_order="Guaranteed", **RELIABLE)
    seller = await listening(world)
    await seller.receive(*packed(order(inside=in_order(1))), EBXML)
    world.clock.ahead += timedelta(days=40)
    await seller.node.purge(30)
    assert await seller.state(M) is State.HELD


@played
async def test_two_p_modes_of_one_conversation_leave_no_hole_in_it(world: World) -> None:
    world.speak(message_order="Guaranteed", url=address("nowhere"), **RELIABLE)
    world.speak("changes", message_order="Guaranteed", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    world.wire.usual["nowhere"] = refused
    await buyer.send("m0@buyer.example", conversation="c")
    await world.wait(1)
    await buyer.send("m1@buyer.example", "changes", conversation="c")
    await world.wait(600)
    assert await buyer.state("m0@buyer.example") is State.FAILED
    assert await seller.inbox() == ["m1@buyer.example"]


@played
async def test_each_hole_of_a_conversation_is_reported(world: World) -> None:
    world.speak(message_order="Guaranteed", **RELIABLE)
    seller = await listening(world)

    async def come(number: int) -> None:
        named = {"id": f"m{number}@buyer.example", "inside": in_order(number)}
        await seller.receive(*packed(order(**named)), EBXML)

    for number in (0, 2, 4, 6):
        await come(number)
    await world.wait(2 * 3600)
    await come(1)
    await world.wait(2 * 3600)
    holes = [one.detail or "" for one in await seller.journal("error_raised")]
    assert [one.split()[1] for one in holes] == ["1", "3"]


@played
async def test_applications_are_told_of_a_conversation_in_its_order(world: World) -> None:
    world.configure(SELLER, webhook={"url": "http://shop.example/told"})
    world.wire.will(status(500), at="shop")
    world.wire.usual["shop"] = status(204)
    world.speak(message_order="Guaranteed", **RELIABLE)
    seller = await listening(world)
    for number in (1, 0):
        await seller.receive(
            *packed(order(id=f"m{number}@buyer.example", inside=in_order(number))), EBXML
        )
    await world.wait(300)
    told = [one.told["message_id"][:2] for one in world.wire.to("shop")]
    assert told == ["m0", "m0", "m1"]


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_the_inbox_lists_a_conversation_in_its_order(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    world.speak(message_order="Guaranteed", **RELIABLE)
    seller = await listening(world)
    for number in (2, 1, 0):
        await seller.receive(
            *packed(order(id=f"m{number}@buyer.example", inside=in_order(number))), EBXML
        )
        await world.wait(1)
    assert [one[:2] for one in await seller.inbox()] == ["m0", "m1", "m2"]


@played
async def test_over_a_link_too_what_is_too_late_is_refused(world: World) -> None:
    world.speak(profile="rm001", **RELIABLE)
    seller = await listening(world)
    to_seller = linked(1).replace(address(CARRIER), address(SELLER))
    late = header(inside=RELIABLY, live="2024-05-31T12:00:00Z")
    await seller.receive(*packed(envelope(late, to_seller, body=manifest())), EBXML)
    assert await seller.inbox() == []


@played
async def test_wrong_numbers_of_a_link_are_journaled_so_many_times(world: World) -> None:
    """Nothing is signed: anybody can send them."""
    world.speak(profile="rm001", **RELIABLE)
    world.configure(SELLER, limits={"refused": {"events": 3}})
    seller = await listening(world)
    for number in range(50, 60):
        to_seller = linked(number).replace(address(CARRIER), address(SELLER))
        letter = envelope(header(inside=RELIABLY, id=f"{number}@x"), to_seller, body=manifest())
        await seller.receive(*packed(letter), EBXML)
    raised = await seller.journal("error_raised")
    assert {one.error_code for one in raised} == {"Inconsistent"}
    assert len(raised) == 3


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_what_expires_before_its_turn_takes_no_number(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    retry = {"max_retries": 3, "timeout": "PT5S", "period": "PT10S", "time_to_live": "PT30S"}
    world.speak(message_order="Guaranteed", retry=retry, **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    world.wire.usual[SELLER] = lost
    for name in ("m0", "m1", "m2"):
        await buyer.send(f"{name}@buyer.example", conversation="c")
    await world.wait(60)
    assert await buyer.state("m2@buyer.example") is State.EXPIRED
    del world.wire.usual[SELLER]
    await buyer.process.ask(buyer.node.settle("m0@buyer.example", "not_received"))
    await buyer.send("m3@buyer.example", conversation="c")
    await world.wait(5)
    assert await seller.inbox() == ["m3@buyer.example"]


@played
async def test_each_partner_of_a_conversation_gets_numbers_without_holes(world: World) -> None:
    world.speak(message_order="Guaranteed", **RELIABLE)
    world.speak("transport", to=CARRIER, message_order="Guaranteed", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    carrier = await start(world, CARRIER)
    await buyer.send("m0@buyer.example", conversation="order 4711")
    await world.wait(2)
    await buyer.send("t0@buyer.example", "transport", conversation="order 4711")
    await world.wait(2)
    assert await seller.inbox() == ["m0@buyer.example"]
    assert await carrier.inbox() == ["t0@buyer.example"]


@played
async def test_a_link_is_one_whoever_says_our_address(world: World) -> None:
    """The receiver knows a link by the two URIs of the TraceHeader, and so must who numbers."""
    terms = RELIABLE | {"profile": "rm001"}
    world.speak(**terms)
    world.speak("changes", reply_to=address(BUYER), **terms)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    for number in range(3):
        await buyer.send(f"m{number}@buyer.example")
        await buyer.send(f"c{number}@buyer.example", "changes")
        await world.wait(3)
    assert len(await seller.inbox()) == 6


@played
async def test_a_conversation_goes_on_when_somebody_was_wrong_about_what_arrived(
    world: World,
) -> None:
    world.speak(message_order="Guaranteed", **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    await buyer.send("m0@buyer.example", conversation="c")
    await world.wait(2)
    world.wire.usual[BUYER] = refused
    await buyer.send("m1@buyer.example", conversation="c")
    await world.wait(60)
    assert await buyer.state("m1@buyer.example") is State.IN_DOUBT
    await buyer.process.ask(buyer.node.settle("m1@buyer.example", "not_received"))
    del world.wire.usual[BUYER]
    await world.wait(600)
    for name in ("m2@buyer.example", "m3@buyer.example"):
        await buyer.send(name, conversation="c")
        await world.wait(30)
    assert len(await seller.inbox()) == 4


@pytest.mark.parametrize("sync_reply", ["none", "mshSignalsOnly"])
@played
async def test_a_conversation_goes_on_when_its_numbers_were_set_back(
    world: World, sync_reply: str
) -> None:
    """As when the store of the sender comes from a backup."""
    world.speak(message_order="Guaranteed", sync_reply=sync_reply, **RELIABLE)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    for number in range(3):
        await buyer.send(f"m{number}@buyer.example", conversation="c")
        await world.wait(2)
    name = f"numbers:{conversation_of(await buyer.message('m0@buyer.example'))}"
    back = msgspec.json.encode(Numbering(1))
    store = buyer.node.context.store
    await store.run(lambda tx: tx.set_state(name, back, world.clock()))
    for number in range(3, 6):
        await buyer.send(f"m{number}@buyer.example", conversation="c")
        await world.wait(30)
    assert (await seller.inbox())[3:] == ["m4@buyer.example", "m5@buyer.example"]
