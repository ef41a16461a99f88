"""Endpoints behind hubs: what their messages are routed by, and how signals find their way back."""

from dataclasses import replace
from typing import Any, Final

import pytest

from postroad.agreement.places import is_pulled
from postroad.agreement.pmode import PMode
from postroad.agreement.reply_patterns import signal_channels
from postroad.agreement.units import derive_units
from postroad.agreement.writing import pmode_data
from postroad.store.records import State
from postroad.transport.http_outgoing import Reply
from postroad.wire.multihop import (
    RoutingInput,
    find_routing_input,
    read_routing_input,
    routing_user_message,
    write_routing_input,
)
from postroad.wire.names import EB3, EBINT, I_CLOUD, NEXT_MSH, WSA
from postroad.wire.soap import SoapVersion, read_envelope
from postroad.wire.wsa import Addressing, EndpointReference, read_addressing, write_addressing
from postroad.wire.xml import parse
from tests.node.asking import PRICES, Q, R, ask, reply
from tests.node.collecting import MPC, USER, collect
from tests.node.hubs import FAR, NEAR, hub, rule, there_and_back
from tests.node.reliable import (
    BUYER,
    CARRIER,
    LARGE,
    SELLER,
    Answering,
    Posted,
    Station,
    World,
    address,
    lost,
    party,
    passed,
    played,
    status,
)
from tests.unit.splits import MESSAGE

M = "m@buyer"


async def started(world: World) -> tuple[Station, Station]:
    for name in (NEAR, FAR):
        await world.start(name)
    return await world.both()


def signals(world: World, to: str) -> list[Posted]:
    return [one for one in world.wire.to(to) if not one.content_type.startswith("multipart")]


def routed(body: bytes) -> tuple[str, str, str, str, str | None]:
    """From, To, Service, Action and mpc of the RoutingInput."""
    start = body.index(b"<S12:Envelope")
    envelope = read_envelope(parse(body[start : body.index(b"</S12:Envelope>") + 15]))
    block = find_routing_input(envelope)
    assert block is not None
    value, problems = read_routing_input(block)
    assert value is not None
    assert (problems, value.role) == ([], NEXT_MSH)
    addressing, _ = read_addressing(envelope)
    assert addressing is not None
    assert (addressing.to, addressing.to_role) == (I_CLOUD, NEXT_MSH)
    message = value.user_message
    info = message.collaboration_info
    sides = str(message.from_party), str(message.to_party)
    return *sides, str(info.service), info.action, message.mpc


@pytest.mark.req("P2-2.6-03", "P2-2.6.3-01", "P2-2.6.3.1-01", "P2-7.1-07", "P2-7.1-08", "P2-7.1-09")
@pytest.mark.req("P2-2.6-02", "P2-2.6.2-07", "P2-2.6.2-08", "P2-2.6.2-11", "P2-2.6.3.1-04")
@played
async def test_the_signed_receipt_finds_its_way_back_through_both_hubs(world: World) -> None:
    there_and_back(world)
    buyer, seller = await started(world)
    await buyer.send(M)
    await world.wait(5)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    [first], [second], [third] = (signals(world, name) for name in (FAR, NEAR, BUYER))
    assert first.body == second.body == third.body
    trade = "urn:example:trade"
    assert routed(first.body) == (party(SELLER), party(BUYER), trade, "orders.receipt", None)
    assert first.body.count(b"<ds:Reference URI=") >= 5
    assert (await seller.story(M))[-1] == "receipt_sent"


@pytest.mark.req("P2-2.6.2-11")
@played
async def test_an_error_finds_its_way_back_through_both_hubs(world: World) -> None:
    there_and_back(world)
    [leg] = world._pmodes[SELLER][0]["legs"]
    leg["business_info"]["payload_profile"] = {"max_size": "1 B"}
    buyer, _ = await started(world)
    await buyer.send(M)
    await world.wait(5)
    [error] = signals(world, FAR)
    assert routed(error.body)[3] == "orders.error"
    assert await buyer.state(M) is State.FAILED


def _addressed(world: World, side: str, **given: Any) -> None:
    for at in (BUYER, SELLER):
        world._pmodes[at][0][side]["addressing"] = given


@pytest.mark.req("P2-2.7.1.2-05", "P2-2.7.1-01", "P2-2.6.3.2-06")
@played
async def test_a_user_message_is_routed_by_the_epr_of_its_receiver(world: World) -> None:
    there_and_back(world)
    known = {"business_info": {"service": "urn:example:post", "action": "all"}}
    epr = {"routing_input": {**known, "responder": {"party": "urn:example:box"}}}
    _addressed(world, "responder", epr=epr, action="urn:example:deliver")
    box = {"to_party": "urn:example:box", "service": "urn:example:post"}
    hub(world, NEAR, rule("over", FAR, **box), rule("home", BUYER, to_party=party(BUYER)))
    hub(world, FAR, rule("home", SELLER, **box), rule("over", NEAR, to_party=party(BUYER)))
    buyer, seller = await started(world)
    await buyer.send(M)
    await world.wait(5)
    sent = world.wire.to(NEAR)[0]
    assert routed(sent.body) == (
        party(BUYER),
        "urn:example:box",
        "urn:example:post",
        "all",
        None,
    )
    assert b"urn:example:deliver<" in sent.body
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    [receipt] = signals(world, FAR)
    assert routed(receipt.body)[2:4] == ("urn:example:post", "all.receipt")
    assert b"urn:example:deliver.receipt<" in receipt.body


@pytest.mark.req("P2-2.7.1.4-03")
@played
async def test_signals_are_routed_by_the_epr_of_who_sent_the_message(world: World) -> None:
    there_and_back(world)
    business = {"action": "answers", "mpc": "urn:example:buyer-in"}
    _addressed(world, "initiator", epr={"routing_input": {"business_info": business}})
    buyer, _ = await started(world)
    await buyer.send(M)
    await world.wait(5)
    [receipt] = signals(world, FAR)
    assert routed(receipt.body)[3:] == ("answers", "urn:example:buyer-in")
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.req("P2-2.7.1.4-01")
@played
async def test_a_sender_with_an_address_alone_is_answered_there_without_routing(
    world: World,
) -> None:
    there_and_back(world)
    _addressed(world, "initiator", address=address(BUYER))
    for at in (BUYER, SELLER):
        del world._pmodes[at][0]["legs"][0]["security"]["send_receipt"]["reply_to"]
    buyer, _ = await started(world)
    await buyer.send(M)
    await world.wait(5)
    assert signals(world, FAR) == []
    [receipt] = signals(world, BUYER)
    assert b"RoutingInput" not in receipt.body
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_a_receipt_between_two_points_has_no_routing_input(world: World) -> None:
    world.agree(receipt="callback", signed=True)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(5)
    [receipt] = world.wire.to(BUYER)
    assert b"RoutingInput" not in receipt.body
    assert await buyer.state(M) is State.ACKNOWLEDGED


def unit_of(pmode: dict[str, Any], place: int, *, initiator_pulls: bool = False) -> PMode:
    return derive_units(
        PMode.model_validate(pmode),
        initiator_hub=address(NEAR),
        responder_hub=address(FAR),
        initiator_pulls=initiator_pulls,
    )[place]


@pytest.mark.req("P2-2.6-03", "P2-7.1-07", "P2-7.1-08")
@pytest.mark.req("P2-2.7.2-03", "P2-2.7.2-13", "P2-2.6.3.2-03")
@played
async def test_the_derived_units_carry_a_request_and_its_reply_through_both_hubs(
    world: World,
) -> None:
    ask(world, "pushAndPush", signed=True)
    for at, place in ((BUYER, 0), (SELLER, 1)):
        [pmode] = world._pmodes[at]
        world._pmodes[at] = [pmode_data(unit_of(pmode, place))]
    there, back = {"to_party": party(SELLER)}, {"to_party": party(BUYER)}
    hub(world, NEAR, rule("over", FAR, **there), rule("home", BUYER, **back))
    hub(world, FAR, rule("home", SELLER, **there), rule("over", NEAR, **back))
    buyer, seller = await started(world)
    await buyer.send(Q, f"{PRICES}.init")
    await world.wait(5)
    assert await seller.inbox() == [Q]
    await reply(seller, pmode=f"{PRICES}.resp")
    await world.wait(5)
    assert await buyer.inbox() == [R]
    assert await buyer.state(Q) is await seller.state(R) is State.ACKNOWLEDGED
    assert {one.sender for one in world.wire.to(SELLER)} == {FAR}
    assert {one.sender for one in world.wire.to(BUYER)} == {NEAR}
    about_request, about_reply = signals(world, BUYER)[0], signals(world, SELLER)[0]
    assert b"twoWay.request.receipt<" in about_request.body
    assert b"twoWay.reply.receipt<" in about_reply.body
    assert routed(about_reply.body)[:2] == (party(BUYER), party(SELLER))


@pytest.mark.req("P2-2.6.2-10")
@played
async def test_a_buyer_that_nobody_can_reach_pulls_its_receipt_from_its_hub(world: World) -> None:
    """Appendix G: the receipt waits in the channel of the message with `.receipt`."""
    there_and_back(world)
    channel = "http://near.example/buyer"
    user = {"username": "buyer", "password": "a secret of ours"}
    for at, place in ((BUYER, 0), (SELLER, 1)):
        [pmode] = world._pmodes[at]
        pmode["initiator"]["authorization"] = user
        pmode["legs"][0]["business_info"]["mpc"] = channel
        world._pmodes[at] = [pmode_data(unit_of(pmode, place, initiator_pulls=True))]
    world._pmodes[BUYER][0]["legs"][0]["pulling"] = {"scheduled": False}
    box = {"id": "box", "match": {"to_party": party(BUYER)}}
    box |= {"to": {"channel": {"authorization": user}}}
    hub(world, NEAR, rule("over", FAR, to_party=party(SELLER)), box)
    buyer, _ = await started(world)
    await buyer.send(M, "orders.init")
    await world.wait(5)
    assert (await buyer.state(M), world.wire.to(BUYER)) == (State.WAITING, [])
    [receipt] = signals(world, FAR)
    assert routed(receipt.body)[4] == f"{channel}.receipt"
    pulled = await buyer.process.ask(buyer.node.pull("orders.init"))
    assert pulled.answered == (M,)
    assert await buyer.state(M) is State.ACKNOWLEDGED


def reply_to(place: str) -> bytes:
    """wsa:ReplyTo with routing input to a party of another name."""
    named = (
        f'<ebint:RoutingInput xmlns:ebint="{EBINT}"><ebint:UserMessage xmlns:eb="{EB3}">'
        f"<eb:PartyInfo><eb:From><eb:PartyId>{party(SELLER)}</eb:PartyId>"
        "<eb:Role>urn:example:answers</eb:Role></eb:From>"
        f"<eb:To><eb:PartyId>{place}</eb:PartyId><eb:Role>urn:example:asks</eb:Role></eb:To>"
        "</eb:PartyInfo><eb:CollaborationInfo><eb:Service>urn:example:post</eb:Service>"
        "<eb:Action>back</eb:Action><eb:ConversationId>1</eb:ConversationId>"
        "</eb:CollaborationInfo></ebint:UserMessage></ebint:RoutingInput>"
    )
    return (
        f'<wsa:ReplyTo xmlns:wsa="{WSA}"><wsa:Address>{I_CLOUD}</wsa:Address>'
        f"<wsa:ReferenceParameters>{named}</wsa:ReferenceParameters></wsa:ReplyTo>"
    ).encode()


async def asked_for_a_box(world: World) -> tuple[Station, Station]:
    """Buyer and seller; the seller has a request that wants its reply at urn:example:box."""
    hub(world, FAR, rule("over", NEAR, to_party="urn:example:box"))
    hub(world, NEAR, rule("over", SELLER, to_party=party(SELLER)), rule("home", BUYER))
    buyer, seller = await started(world)
    world.wire.will(lost, at=NEAR)
    await buyer.send(Q, f"{PRICES}.init")
    await world.wait(1)
    [first] = world.wire.to(NEAR)
    named = first.body.replace(b"</S12:Header>", reply_to("urn:example:box") + b"</S12:Header>", 1)
    assert (await seller.receive(first.content_type, named)).status < 300
    return buyer, seller


@pytest.mark.req("P2-2.6.2-01", "P2-2.4.5-06")
@pytest.mark.parametrize("payload", [b"12 a piece", LARGE], ids=["small", "large"])
@played
async def test_a_reply_is_routed_to_where_its_request_says(world: World, payload: bytes) -> None:
    ask(world, "pushAndPush")
    for at, place in ((BUYER, 0), (SELLER, 1)):
        [pmode] = world._pmodes[at]
        world._pmodes[at] = [pmode_data(unit_of(pmode, place))]
    buyer, seller = await asked_for_a_box(world)
    await reply(seller, pmode=f"{PRICES}.resp", payload=payload)
    await world.wait(5)
    [sent] = [one for one in world.wire.to(FAR, R) if one.content_type.startswith("multipart")]
    box = (party(SELLER), "urn:example:box", "urn:example:post", "back", None)
    assert routed(sent.body) == box
    assert sent.body.count(NEXT_MSH.encode()) == 2, "wsa:To and the RoutingInput alone"
    assert await buyer.inbox() == [R]


@pytest.mark.req("P2-4.4.1-01")
@played
async def test_fragments_of_a_reply_are_routed_to_where_its_request_says(world: World) -> None:
    ask(world, "pushAndPush")
    for at, place in ((BUYER, 0), (SELLER, 1)):
        [pmode] = world._pmodes[at]
        world._pmodes[at] = [pmode_data(unit_of(pmode, place))]
        for leg in world._pmodes[at][0]["legs"]:
            leg["splitting"] = {"fragment_size": "500 kB"}
            leg["security"] = {"send_receipt": {"enabled": False}}
            leg["error_handling"] = {"report": {"as_response": False}}
            del leg["reception_awareness"]
    buyer, seller = await asked_for_a_box(world)
    await reply(seller, pmode=f"{PRICES}.resp", payload=LARGE)
    await world.wait(5)
    sent = [one for one in world.wire.to(FAR) if b"MessageFragment" in one.body]
    assert len(sent) == 3
    box = (party(SELLER), "urn:example:box", "urn:example:post", "back", None)
    for one in sent:
        assert routed(one.body) == box
    assert await buyer.inbox() == [R]


@played
async def test_a_reply_whose_request_names_nothing_is_routed_by_its_header(world: World) -> None:
    ask(world, "pushAndPush")
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(1)
    await reply(seller)
    await world.wait(1)
    [sent] = world.wire.to(BUYER, R)
    assert b"RoutingInput" not in sent.body
    assert await buyer.inbox() == [R]


@pytest.mark.req("P2-2.7.1.4-02")
@pytest.mark.parametrize("named", [True, False])
@played
async def test_the_senders_errors_are_routed_whither_the_p_mode_says(
    world: World, named: bool
) -> None:
    retry = {"max_retries": 0, "timeout": "PT10S"}
    there_and_back(world, retry=retry)
    for at in (BUYER, SELLER):
        to: dict[str, Any] = {"value": [address(CARRIER)]} if named else {}
        epr = {"routing_input": {"initiator": {"party": "urn:example:desk"}}}
        to["addressing"] = {"epr": epr}
        world._pmodes[at][0]["legs"][0]["error_handling"]["report"]["sender_errors_to"] = to
    world.wire.usual[NEAR] = lost
    world.wire.usual[CARRIER] = status(202)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(3)
    world.wire.usual[NEAR] = status(202)
    await world.wait(30)
    assert await buyer.state(M) is State.IN_DOUBT
    [told] = world.wire.to(CARRIER if named else NEAR, "EBMS:0301")
    expected = (party(SELLER), "urn:example:desk", "urn:example:trade", "orders.error", None)
    assert routed(told.body) == expected
    assert b"<ds:Signature" in told.body


@played
async def test_what_the_partner_said_itself_is_not_told_again(world: World) -> None:
    there_and_back(world, retry={"max_retries": 0, "timeout": "PT10S"})
    for at in (BUYER, SELLER):
        report = world._pmodes[at][0]["legs"][0]["error_handling"]["report"]
        report["sender_errors_to"] = [address(CARRIER)]
    world._pmodes[SELLER][0]["legs"][0]["business_info"]["payload_profile"] = {"max_size": "1 B"}
    world.wire.usual[CARRIER] = status(202)
    buyer, _ = await started(world)
    await buyer.send(M)
    await world.wait(60)
    assert await buyer.state(M) is State.FAILED
    assert world.wire.to(CARRIER) == []


def divided(world: World, **pulls: bool) -> None:
    """Each end has the unit that is derived from what the two agreed on."""
    users = {
        BUYER: {"username": "buyer", "password": "a secret of ours"},
        SELLER: {"username": "seller", "password": "another secret"},
    }
    for at in (BUYER, SELLER):
        [pmode] = world._pmodes[at]
        for side, who in (("initiator", BUYER), ("responder", SELLER)):
            if pulls.get(f"{side}_pulls"):
                pmode[side]["authorization"] = users[who]
        buys = pmode["initiator"]["party"] == party(BUYER)
        first, last = (NEAR, FAR) if buys else (FAR, NEAR)
        hubs = {"initiator_hub": address(first), "responder_hub": address(last)}
        made = derive_units(PMode.model_validate(pmode), **hubs, **pulls)  # type: ignore[arg-type]
        unit = made[0 if (at == BUYER) == buys else 1]
        data = pmode_data(unit)
        for index, leg in enumerate(data["legs"]):
            if is_pulled(unit, index) or signal_channels(unit.legs[index]):
                leg["pulling"] = {"scheduled": False}
        world._pmodes[at] = [data]


def box(name: str, who: str, user: str, password: str) -> dict[str, Any]:
    to = {"channel": {"authorization": {"username": user, "password": password}}}
    return {"id": name, "match": {"to_party": party(who)}, "to": to}


@pytest.mark.req("P2-2.4.7.1-02", "P2-2.7.2-06")
@played
async def test_a_responder_that_nobody_can_reach_pulls_from_its_hub(world: World) -> None:
    """First-push-last-pull by derived units."""
    there_and_back(world)
    divided(world, responder_pulls=True)
    home = box("home", SELLER, "seller", "another secret")
    hub(world, FAR, home, rule("over", NEAR, to_party=party(BUYER)))
    buyer, seller = await started(world)
    await buyer.send(M, "orders.init")
    await world.wait(3)
    pulled = await seller.process.ask(seller.node.pull("orders.resp"))
    assert pulled.messages == (M,)
    await world.wait(3)
    assert world.wire.to(SELLER) == []
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.req("P2-2.4.8.1-02", "P2-2.7.2-06")
@played
async def test_a_request_and_its_reply_between_two_that_nobody_can_reach(world: World) -> None:
    """Request-push-last-pull and Reply-push-last-pull: both ends pull all from their hubs."""
    ask(world, "pushAndPush", signed=True)
    divided(world, initiator_pulls=True, responder_pulls=True)
    home = box("home", SELLER, "seller", "another secret")
    hub(world, FAR, home, rule("over", NEAR, to_party=party(BUYER)))
    home = box("home", BUYER, "buyer", "a secret of ours")
    hub(world, NEAR, home, rule("over", FAR, to_party=party(SELLER)))
    buyer, seller = await started(world)
    await buyer.send(Q, f"{PRICES}.init")
    await world.wait(3)
    await seller.process.ask(seller.node.pull(f"{PRICES}.resp"))
    assert await seller.inbox() == [Q]
    await reply(seller, pmode=f"{PRICES}.resp")
    await world.wait(3)
    for _ in range(2):
        await buyer.process.ask(buyer.node.pull(f"{PRICES}.init"))
        await world.wait(3)
        await seller.process.ask(seller.node.pull(f"{PRICES}.resp"))
    assert await buyer.inbox() == [R]
    assert await buyer.state(Q) is State.ACKNOWLEDGED
    assert await seller.state(R) is State.ACKNOWLEDGED
    assert world.wire.to(BUYER) == world.wire.to(SELLER) == []


@pytest.mark.req("P2-2.4.8.2-02")
@played
async def test_a_response_comes_back_through_hubs_that_stream(world: World) -> None:
    """First-sync-last-sync."""
    ask(world, "sync", signed=True)
    divided(world)
    for name, over, home in ((NEAR, FAR, BUYER), (FAR, SELLER, NEAR)):
        there = rule("there", over, to_party=party(SELLER))
        there["to"] = {"push": address(over), "forward": "sync"}
        hub(world, name, there, rule("back", home, to_party=party(BUYER)))
    buyer, seller = await started(world)
    await buyer.send(Q, f"{PRICES}.init")
    await world.wait(1)
    assert await seller.inbox() == [Q]
    await reply(seller, pmode=f"{PRICES}.resp")
    await world.wait(5)
    assert await buyer.inbox() == [R]
    assert await buyer.state(Q) is State.ACKNOWLEDGED
    assert await seller.state(R) is State.ACKNOWLEDGED
    assert [one.receiver for one in world.wire.to(BUYER)] == []


@pytest.mark.req("P2-2.4.7.2-03", "P2-2.4.7.2-04")
@pytest.mark.parametrize("last", ["pulled", "pushed"])
@played
async def test_a_sender_that_is_pulled_from_by_its_hub(world: World, last: str) -> None:
    """Case 3b: each hop is pulled with other credentials; case 4: the last hop is pushed."""
    collect(world, mpc=MPC)
    divided(world)
    [sender] = world._pmodes[BUYER]
    sender["initiator"]["authorization"] = {"username": "hub", "password": "hub to buyer"}
    inbound = {"mpc": MPC, "address": address(BUYER), "interval": "PT5S"}
    inbound |= {"authorization": sender["initiator"]["authorization"]}
    home = box("home", SELLER, *USER.values())
    if last == "pushed":
        home = rule("home", SELLER, to_party=party(SELLER))
        [receiver] = world._pmodes[SELLER]
        receiver["initiator"].pop("authorization")
        receiver["initiator"], receiver["responder"] = receiver["responder"], receiver["initiator"]
        receiver["mep_binding"] = "push"
        del receiver["legs"][0]["pulling"]
    there, back = {"to_party": party(SELLER)}, {"to_party": party(BUYER)}
    hub(world, NEAR, rule("over", FAR, **there), rule("home", BUYER, **back), pull=[inbound])
    hub(world, FAR, home, rule("over", NEAR, **back))
    buyer, seller = await started(world)
    await buyer.send(M, "orders.resp")
    await world.wait(10)
    if last == "pulled":
        await seller.process.ask(seller.node.pull("orders.init"))
        await world.wait(3)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.req("P2-2.4.8.2-01")
@pytest.mark.parametrize("payload", [b"12 a piece", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("forward", ["store", "stream"])
@played
async def test_a_reply_that_is_the_response_at_the_last_hop_waits_at_the_first(
    world: World, forward: str, payload: bytes
) -> None:
    """Request-push-last-sync and Reply-last-pull: hubs give no response to the first hop."""
    world._settings[FAR] = {"limits": {"envelope_bytes": "64 KiB"}}
    ask(world, "pushAndPush", receipts=(None, None), retry=None)
    divided(world, initiator_pulls=True)
    [resp] = world._pmodes[SELLER]
    resp["mep_binding"] = {"value": "sync"}
    del resp["legs"][1]["protocol"]["address"]
    there, back = {"to_party": party(SELLER)}, {"to_party": party(BUYER)}
    home = box("home", BUYER, "buyer", "a secret of ours")
    hub(world, NEAR, rule("over", FAR, **there), home)
    last = rule("home", SELLER, **there)
    last["to"] = {"push": last["to"]["push"], "forward": forward}
    hub(world, FAR, last, rule("over", NEAR, **back))
    buyer, seller = await started(world)
    await buyer.send(Q, f"{PRICES}.init")
    await world.wait(1)
    assert await seller.inbox() == [Q]
    await reply(seller, pmode=f"{PRICES}.resp", payload=payload)
    await world.wait(5)
    assert world.wire.to(SELLER, R) == world.wire.to(BUYER) == []
    await buyer.process.ask(buyer.node.pull(f"{PRICES}.init"))
    assert await buyer.inbox() == [R]


# Routing headers that the receiver did not sign


ROUTED: Final = Addressing(to=I_CLOUD, to_role=NEXT_MSH, action=f"{EB3}oneWay.receipt")


def unsigned(headers: Addressing) -> Answering:
    """A receiver that adds routing headers to its signal after signing it, as AS4.NET does."""

    async def answer(world: World, posted: Posted) -> Reply:
        reply = await passed(world, posted)
        version, opening = SoapVersion.SOAP_12, b"<S12:Header>"
        routing = RoutingInput(routing_user_message(MESSAGE))
        blocks = [*write_addressing(headers, version), write_routing_input(routing, version)]
        assert reply.body.count(opening) == 1
        body = reply.body.replace(opening, opening + "".join(blocks).encode())
        return Reply(reply.status, reply.content_type, reply.headers, body)

    return answer


@pytest.mark.parametrize(
    ("allowed", "headers", "refused"),
    [
        (True, ROUTED, None),
        (False, ROUTED, "To"),
        (True, replace(ROUTED, reply_to=EndpointReference("http://thief.example/")), "ReplyTo"),
    ],
    ids=["allowed", "not allowed", "where to answer is never allowed"],
)
@played
async def test_unsigned_routing_headers_of_a_signal_are_accepted_where_the_pmode_says_so(
    world: World, allowed: bool, headers: Addressing, refused: str | None
) -> None:
    world.agree(signed=True)
    [leg] = world._pmodes[BUYER][0]["legs"]
    leg["security"]["send_receipt"]["allow_unsigned_routing"] = allowed
    world.wire.usual[SELLER] = unsigned(headers)
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(5)
    events = {one.event: one for one in await buyer.events(M)}
    if refused is None:
        assert await buyer.state(M) is State.ACKNOWLEDGED
        said = "its signature does not cover To, Action, RoutingInput; the P-Mode accepts that"
        assert events["receipt_received"].detail == said
    else:
        assert await buyer.state(M) is not State.ACKNOWLEDGED
        said = f"receipt not believed: the signature does not cover {refused}"
        raised = events["error_raised"]
        assert (raised.error_code, raised.detail) == ("EBMS:0103", said)
