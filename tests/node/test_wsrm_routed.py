"""Sequences from end to end over hubs: what is about them is routed as messages are."""

from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest

from postroad.msh import wsrm
from postroad.store.records import State
from postroad.wire.multihop import find_routing_input, read_routing_input
from postroad.wire.names import DEFAULT_MPC, I_CLOUD, NEXT_MSH, WSRM
from postroad.wire.wsa import read_addressing
from tests.node.collecting import USER
from tests.node.hubs import FAR, NEAR, by_way_of, hub, rule
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    Held,
    Station,
    World,
    address,
    lost,
    party,
    played,
)
from tests.node.sequences import agree, envelope_of, kind_of, kinds
from tests.node.test_routed_endpoints import box, divided

M, N = "m@buyer", "n@buyer"
LONG: dict[str, Any] = {"max_retries": 9, "timeout": "PT30S", "period": "PT10S"}


def road(world: World, forward: str, **how: Any) -> None:
    """buyer, near, far, seller; the seller is known to hubs by its party and the service."""
    agree(world, **how)
    by_way_of(world, NEAR)
    for at in (BUYER, SELLER):
        [pmode] = world._pmodes[at]
        epr = {"routing_input": {"business_info": {"action": "routed"}}}
        pmode["responder"]["addressing"] = {"address": "icloud", "epr": epr}
    there = {"to_party": party(SELLER)}
    for name, to in ((NEAR, FAR), (FAR, SELLER)):
        one = rule("there", to, **there)
        hub(world, name, {**one, "to": {"push": one["to"]["push"], "forward": forward}})


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.req("P2-2.8-01", "P2-2.8.1-02", "P2-2.8.1-03", "P2-2.6.1-07", "P2-2.6.3.2-08")
@played
async def test_a_sequence_reaches_from_end_to_end(world: World, signed: bool) -> None:
    road(world, "sync", signed=signed, in_order=True, max_idle="PT1M")
    for name in (NEAR, FAR):
        await world.start(name)
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.send(N)
    await world.wait(200)
    assert [await buyer.state(one) for one in (M, N)] == [State.ACKNOWLEDGED] * 2
    assert await seller.inbox() == [M, N]
    asked = ["CreateSequence", "message", "message", "CloseSequence", "TerminateSequence"]
    assert kinds(world, NEAR) == kinds(world, SELLER) == asked
    for posted in world.wire.to(SELLER):
        envelope = envelope_of(posted)
        addressing, _ = read_addressing(envelope)
        block = find_routing_input(envelope)
        assert addressing is not None
        assert block is not None
        found, _ = read_routing_input(block)
        assert found is not None
        assert (addressing.to, found.role) == (I_CLOUD, NEXT_MSH)
        assert found.user_message.collaboration_info.action == "routed"
        if kind_of(posted) != "message":
            assert addressing.action == f"{WSRM}/{kind_of(posted)}"


@pytest.mark.parametrize("forward", ["store", "stream"])
@played
async def test_answers_on_the_response_do_not_pass_a_hub_that_gives_none(
    world: World, forward: str
) -> None:
    road(world, forward)
    for name in (NEAR, FAR):
        await world.start(name)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(100)
    message = await buyer.message(M)
    assert message.state is State.FAILED
    assert "let the hubs on the way stream" in (message.detail or "")


def there_and_back(world: World, forward: str, *, mpc: str | None = None, **how: Any) -> None:
    """As `road`; what the seller says of a sequence goes to its hub, and by routing input home."""
    epr = {"routing_input": {"business_info": {"mpc": mpc}}} if mpc else {}
    acks_to = {
        "value": address(FAR),
        "addressing": {"address": "icloud"} | ({"epr": epr} if epr else {}),
    }
    road(world, forward, pattern="Callback", acks_to=acks_to, **how)
    back = {"to_party": party(BUYER)}
    for name, on, home in ((NEAR, FAR, BUYER), (FAR, SELLER, NEAR)):
        there = streamed("there", on, forward, to_party=party(SELLER))
        hub(world, name, there, streamed("back", home, forward, **back))


def streamed(name: str, to: str, forward: str, **match: Any) -> Any:
    made = rule(name, to, **match)
    return {**made, "to": {"push": made["to"]["push"], "forward": forward}}


async def all_four(world: World) -> tuple[Station, Station]:
    for name in (NEAR, FAR):
        await world.start(name)
    return await world.both()


@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("forward", ["store", "stream", "sync"])
@pytest.mark.req(
    "P2-2.8-01", "P2-2.8.1-02", "P2-2.6.2-05", "P2-2.6.2-06", "P2-2.6.1-07", "P2-2.6.3.2-08"
)
@played
async def test_a_sequence_lives_and_ends_over_hubs_and_every_answer_is_routed_home(
    world: World, forward: str, signed: bool, soap: str
) -> None:
    there_and_back(world, forward, signed=signed, soap=soap, in_order=True, max_idle="PT1M")
    buyer, seller = await all_four(world)
    await buyer.send(M)
    await buyer.send(N)
    await world.wait(200)
    assert [await buyer.state(one) for one in (M, N)] == [State.ACKNOWLEDGED] * 2
    assert await seller.inbox() == [M, N]
    asked = ["CreateSequence", "message", "message", "CloseSequence", "TerminateSequence"]
    assert kinds(world, NEAR)[0] == "CreateSequence"
    assert kinds(world, SELLER) == asked
    answers = kinds(world, BUYER)
    assert answers[0] == "CreateSequenceResponse"
    assert answers[-2:] == ["CloseSequenceResponse", "TerminateSequenceResponse"]
    assert set(answers[1:-2]) == {"ack"}
    [created] = [one for one in world.wire.to(SELLER) if kind_of(one) == "CreateSequence"]
    addressing, _ = read_addressing(envelope_of(created))
    for posted in world.wire.to(BUYER):
        envelope = envelope_of(posted)
        said, _ = read_addressing(envelope)
        block = find_routing_input(envelope)
        assert said is not None
        assert block is not None
        found, _ = read_routing_input(block)
        assert found is not None
        assert (said.to, found.role) == (I_CLOUD, NEXT_MSH)
        assert found.user_message.collaboration_info.action.endswith(".response")
        if kind_of(posted) == "CreateSequenceResponse":
            assert addressing is not None
            assert [one.uri for one in said.relates_to] == [addressing.message_id]
    for station in (buyer, seller):
        assert await station.journal("error_raised") == []


@played
async def test_an_answer_that_comes_late_serves_the_next_attempt(world: World) -> None:
    there_and_back(world, "store", retry={"max_retries": 3, "timeout": "PT5S", "period": "PT1M"})
    buyer, seller = await all_four(world)
    held = Held()
    world.wire.will(held, at=BUYER)
    await buyer.send(M)
    await world.wait(15)
    assert await buyer.state(M) is State.SUBMITTED
    held.release()
    await world.wait(100)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]
    assert kinds(world, SELLER).count("CreateSequence") == 1


@played
async def test_two_answers_to_one_question_make_one_sequence(world: World) -> None:
    there_and_back(world, "store")
    buyer, _ = await all_four(world)
    await buyer.send(M)
    await world.wait(5)
    [answer] = [one for one in world.wire.to(BUYER) if kind_of(one) == "CreateSequenceResponse"]
    assert (await buyer.receive(answer.content_type, answer.body)).status == 202
    await buyer.send(N)
    await world.wait(5)
    assert await buyer.state(N) is State.ACKNOWLEDGED
    assert kinds(world, SELLER).count("CreateSequence") == 1


@pytest.mark.parametrize("signed", [False, True])
@played
async def test_who_makes_no_sequence_says_so_over_the_hubs(world: World, signed: bool) -> None:
    there_and_back(world, "store", signed=signed)
    [pmode] = world._pmodes[SELLER]
    pmode["legs"][0]["reliability"]["in_order"] = True
    buyer, seller = await all_four(world)
    await buyer.send(M)
    await world.wait(100)
    message = await buyer.message(M)
    assert message.state is State.FAILED
    assert message.error_code == "EBMS:0201"
    assert "another order is agreed on" in (message.detail or "")
    assert await seller.inbox() == []


@pytest.mark.parametrize("signed", [False, True])
@played
async def test_a_sequence_that_the_receiver_forgot_is_made_anew_over_the_hubs(
    world: World, signed: bool
) -> None:
    there_and_back(world, "store", signed=signed, in_order=True)
    buyer, seller = await all_four(world)
    await buyer.send(M)
    await world.wait(5)
    seller.kill()
    world._memories.pop(SELLER)
    seller = await world.start(SELLER)
    await buyer.send(N)
    await world.wait(60)
    assert await buyer.state(N) is State.ACKNOWLEDGED
    assert await seller.inbox() == [N]
    assert kinds(world, SELLER).count("CreateSequence") == 2


@pytest.mark.parametrize(("covered", "created"), [(True, 2), (False, 1)])
@played
async def test_a_fault_that_names_its_sequence_outside_the_signature_is_not_believed(
    world: World, covered: bool, created: int
) -> None:
    there_and_back(world, "store", signed=True, soap="1.1", in_order=True)
    buyer, seller = await all_four(world)
    await buyer.send(M)
    await world.wait(5)
    seller.kill()
    world._memories.pop(SELLER)
    await world.start(SELLER)
    with nullcontext() if covered else patch.object(wsrm, "_FAULT_ID", ""):
        await buyer.send(N)
        await world.wait(60)
    assert any(b"SequenceFault" in one.body for one in world.wire.to(BUYER))
    assert kinds(world, SELLER).count("CreateSequence") == created


@played
async def test_an_answer_that_nobody_signed_makes_no_sequence_where_messages_are_signed(
    world: World,
) -> None:
    there_and_back(world, "store", signed=True)
    buyer, _ = await all_four(world)
    world.wire.usual[BUYER] = lost
    await buyer.send(M)
    await world.wait(5)
    answer = world.wire.to(BUYER)[0]
    assert kind_of(answer) == "CreateSequenceResponse"
    begin = answer.body.index(b"<wsse:Security")
    end = answer.body.index(b"</wsse:Security>") + len(b"</wsse:Security>")
    await buyer.receive(answer.content_type, answer.body[:begin] + answer.body[end:])
    await world.wait(1)
    assert await buyer.state(M) is State.SUBMITTED
    [raised] = await buyer.journal("error_raised")
    assert "is not believed" in (raised.detail or "")
    assert kinds(world, SELLER) == ["CreateSequence"]


@pytest.mark.req("P2-2.5.1-04", "P2-2.6.2-06")
@played
async def test_answers_about_a_sequence_wait_in_a_channel_of_the_hub(world: World) -> None:
    there_and_back(world, "store", mpc=f"{DEFAULT_MPC}.response")
    [pmode] = world._pmodes[BUYER]
    pmode["initiator"]["authorization"] = USER
    leg = pmode["legs"][0]
    leg["reliability"]["at_least_once"]["reply_pattern"] = "Pull"
    leg["pulling"] = {"interval": "PT2S"}
    channel = {"channel": {"authorization": USER}}
    back = {"id": "back", "match": {"to_party": party(BUYER)}, "to": channel}
    hub(world, NEAR, rule("there", FAR, to_party=party(SELLER)), back)
    buyer, seller = await all_four(world)
    await buyer.send(M)
    await world.wait(60)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]
    assert world.wire.to(BUYER) == []


@pytest.mark.req("P2-2.7.2-13", "P2-2.5.1-03", "P2-2.5.1-04", "P2-2.8.3-02")
@pytest.mark.parametrize("pulls", ["", "initiator", "responder", "initiator responder"])
@played
async def test_units_of_a_reliable_p_mode_carry_its_sequences_whoever_pulls(
    world: World, pulls: str
) -> None:
    agree(world, signed=True, in_order=True, retry=LONG)
    divided(world, **{f"{one}_pulls": True for one in pulls.split()})
    for at in (BUYER, SELLER):
        [leg] = world._pmodes[at][0]["legs"]
        if "pulling" in leg:
            leg["pulling"] = {"interval": "PT2S"}
    for name, who, other, beyond in ((NEAR, BUYER, SELLER, FAR), (FAR, SELLER, BUYER, NEAR)):
        home = rule("home", who, to_party=party(who))
        if ("initiator" if who == BUYER else "responder") in pulls:
            secret = {BUYER: "a secret of ours", SELLER: "another secret"}[who]
            home = box("home", who, who, secret)
        hub(world, name, home, rule("over", beyond, to_party=party(other)))
    buyer, seller = await all_four(world)
    await buyer.send(M, f"{ORDERS}.init")
    await buyer.send(N, f"{ORDERS}.init")
    await world.wait(120)
    assert await seller.inbox() == [M, N]
    assert [await buyer.state(one) for one in (M, N)] == [State.ACKNOWLEDGED] * 2
    assert (world.wire.to(BUYER) == []) == ("initiator" in pulls)
    assert (world.wire.to(SELLER) == []) == ("responder" in pulls)
