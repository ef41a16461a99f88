"""Store and forward: what two hubs in a row do with messages that are not for them."""

from unittest.mock import patch

import pytest

from postroad.msh.forwarding import read_routable
from postroad.store.records import State
from postroad.wire import xml
from postroad.wire.multihop import RoutingUserMessage
from postroad.wire.names import NEXT_MSH
from postroad.wire.xml import parse
from tests.node.hubs import (
    FAR,
    NEAR,
    SOON,
    assert_every_byte_was_passed_on,
    by_way_of,
    hub,
    road,
    rule,
)
from tests.node.reliable import (
    BUYER,
    CARRIER,
    LARGE,
    SELLER,
    STORES,
    Answering,
    Held,
    Station,
    World,
    address,
    lost,
    party,
    played,
    refused,
    reply_lost,
    status,
)

M = "m@buyer"


@pytest.mark.req("P2-2.2-01", "P2-7.1-01", "P2-7.1-02", "P2-7.1-03")
@pytest.mark.req("P2-2.4.1-01", "P2-2.4.3-01", "P2-2.4.3-05", "P2-2.4.5-01", "P2-2.4.5-03")
@pytest.mark.req("P2-2.5.1-01", "P2-2.5.5-13")
@pytest.mark.parametrize("payload", [b"<order/>", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_two_hubs_pass_on_every_byte_and_the_signature_holds(
    world: World, kept_in: str, payload: bytes
) -> None:
    world.kept_in = kept_in
    road(world)
    buyer, seller = await world.both()
    near, far = await world.start(NEAR), await world.start(FAR)
    await buyer.send(M, payload=payload)
    await world.wait(5)
    assert_every_byte_was_passed_on(world)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    for station in (near, far):
        assert await station.story(M) == ["received", "forwarded"]
        assert (await station.message(M)).state is State.SENT
        assert await station.work() == {}
    peers = [one.peer for one in await near.events(M)]
    assert peers == ["192.0.2.1", "http://far.example/msh"]


async def hubs(world: World) -> tuple[Station, Station, Station, Station]:
    buyer, seller = await world.both()
    return buyer, await world.start(NEAR), await world.start(FAR), seller


def of(world: World, name: str) -> list[bytes]:
    """The messages that were posted to somebody, without signals."""
    return [one.body for one in world.wire.to(name) if one.content_type.startswith("multipart")]


@pytest.mark.req("P2-2.5.2-01")
@played
async def test_who_brings_a_message_is_answered_before_the_next_msh_has_it(world: World) -> None:
    road(world)
    buyer, near, _, seller = await hubs(world)
    world.wire.usual[FAR] = refused
    await buyer.send(M)
    await world.wait(3)
    assert (await buyer.message(M)).first_sent_at is not None
    assert await near.state(M) is State.READY
    assert await near.story(M) == ["received", "send_failed"]
    del world.wire.usual[FAR]
    await world.wait(10)
    assert await near.story(M) == ["received", "send_failed", "forwarded"]
    assert await seller.inbox() == [M]


@pytest.mark.parametrize("trouble", [refused, lost, reply_lost, status(500), status(503)])
@played
async def test_a_hub_sends_again_until_the_next_one_has_it(
    world: World, trouble: Answering
) -> None:
    road(world)
    buyer, near, _, seller = await hubs(world)
    world.wire.will(trouble, at=FAR)
    await buyer.send(M)
    await world.wait(30)
    assert len(set(of(world, FAR))) == 1
    assert await near.state(M) is State.SENT
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.parametrize("down", [refused, status(429)])
@played
async def test_the_next_address_is_tried_at_once(world: World, down: Answering) -> None:
    road(world)
    hub(world, NEAR, rule("over", [CARRIER, FAR], to_party=party(SELLER)))
    world.wire.usual[CARRIER] = down
    buyer, near, _, seller = await hubs(world)
    await buyer.send(M)
    await world.wait(2)
    assert await seller.inbox() == [M]
    [_, forwarded] = await near.events(M)
    assert (forwarded.event, forwarded.peer) == ("forwarded", address(FAR))


@played
async def test_after_a_silent_address_the_next_attempt_begins_with_another(world: World) -> None:
    road(world)
    hub(world, NEAR, rule("over", [CARRIER, FAR], to_party=party(SELLER)))
    world.wire.usual[CARRIER] = lost
    buyer, near, _, seller = await hubs(world)
    await buyer.send(M)
    await world.wait(10)
    assert [one.peer for one in await near.events(M) if one.event == "forwarded"] == [
        address(CARRIER),
        address(FAR),
    ]
    assert await seller.inbox() == [M]


@pytest.mark.req("P2-7.1-05")
@pytest.mark.req("P2-2.5.1-05", "P2-2.5.6-01", "P2-2.5.6-12", "P2-2.5.6-13", "P2-2.5.6-14")
@pytest.mark.req("P2-2.5.6-15")
@played
async def test_what_no_rule_matches_is_refused_at_once_with_a_routing_failure(
    world: World,
) -> None:
    road(world)
    hub(world, NEAR, rule("other", FAR, to_party="urn:example:other"))
    buyer, near, _, seller = await hubs(world)
    await buyer.send(M)
    await world.wait(2)
    [raised] = await near.journal("error_raised")
    assert (raised.error_code, raised.message_id, raised.side) == ("EBMS:0020", M, "forwarding")
    assert (await buyer.message(M)).error_code == "EBMS:0020"
    assert await buyer.state(M) is State.FAILED
    assert await seller.inbox() == []


@pytest.mark.req("P2-2.5.6-07", "P2-2.5.6-08", "P2-2.5.6-05", "P2-7.1-05")
@played
async def test_a_next_msh_that_stays_away_is_told_to_the_sender_through_the_hubs(
    world: World,
) -> None:
    road(world, signed=False)
    buyer, _, far, _ = await hubs(world)
    world.wire.usual[SELLER] = refused
    await buyer.send(M)
    await world.wait(60)
    assert await far.story(M) == [
        "received",
        *["send_failed"] * 4,
        "delivery_failed",
        "error_raised",
    ]
    [report] = world.wire.to(NEAR, "EBMS:0005")
    [passed_on] = world.wire.to(BUYER, "EBMS:0005")
    assert report.body == passed_on.body
    said = read_routable(report.body)
    assert said.by == "RoutingInput"
    assert isinstance(said.input, RoutingUserMessage)
    assert said.input.collaboration_info.action == "orders.error"
    assert str(said.input.to_party) == party(BUYER)
    assert said.messaging is not None
    assert said.messaging.role is None
    [error] = await buyer.journal("error_received")
    assert (error.message_id, error.error_code) == (M, "EBMS:0005")


@pytest.mark.req("P2-2.5.6-01")
@played
async def test_errors_go_where_the_rules_say(world: World) -> None:
    road(world)
    hub(world, FAR, rule("home", SELLER, to_party=party(SELLER)), errors=address(CARRIER))
    world.wire.usual |= {SELLER: refused, CARRIER: status(202)}
    buyer, _, far, _ = await hubs(world)
    await buyer.send(M)
    await world.wait(60)
    [report] = world.wire.to(CARRIER)
    assert b"EBMS:0005" in report.body
    assert world.wire.to(BUYER) == []
    assert await far.work() == {}


@played
async def test_errors_may_be_logged_only(world: World) -> None:
    road(world)
    hub(world, FAR, rule("home", SELLER, to_party=party(SELLER)), errors="log")
    world.wire.usual[SELLER] = refused
    buyer, _, far, _ = await hubs(world)
    await buyer.send(M)
    await world.wait(60)
    assert world.wire.to(BUYER) == []
    [raised] = await far.journal("error_raised")
    assert (raised.detail or "").startswith("logged only")


@pytest.mark.req("P2-2.5.6-26")
@played
async def test_nobody_is_told_of_an_error_about_an_error(world: World) -> None:
    road(world)
    buyer, near, far, _ = await hubs(world)
    world.wire.usual |= {SELLER: refused, BUYER: refused}
    await buyer.send(M)
    await world.wait(200)
    errors = world.wire.to(NEAR, "EBMS:0005")
    assert len(errors) == 1
    assert len({one.body for one in world.wire.to(BUYER)}) == 1
    assert await near.work() == await far.work() == {}
    lost_error = [one for one in await near.journal("delivery_failed") if one.signal_id]
    assert len(lost_error) == 1


@pytest.mark.req("P2-2.5.6-10")
@played
async def test_an_intermediary_never_speaks_of_p_modes(world: World) -> None:
    road(world)
    world.agree("other", to=NEAR, signed=False)
    hub(world, NEAR, rule("other", FAR, to_party="urn:example:other"))
    buyer, near, *_ = await hubs(world)
    await buyer.send(M)
    await world.wait(2)
    codes = {one.error_code for one in await near.journal("error_raised")}
    assert codes == {"EBMS:0020"}


@played
async def test_what_the_next_msh_refuses_is_given_up_and_told(world: World) -> None:
    road(world, signed=False)
    hub(world, FAR, rule("other", SELLER, to_party="urn:example:other"))
    buyer, near, *_ = await hubs(world)
    await buyer.send(M)
    await world.wait(5)
    assert await near.state(M) is State.FAILED
    [report] = world.wire.to(BUYER, "EBMS:0020")
    assert read_routable(report.body).ref_to_message_id == M
    assert await buyer.state(M) is State.FAILED


@played
async def test_a_copy_that_the_sender_sends_again_passes_again(world: World) -> None:
    road(world, retry=SOON)
    buyer, near, _, seller = await hubs(world)
    world.wire.will(lost, at=SELLER)
    world.wire.will(lost, at=BUYER)
    await buyer.send(M)
    await world.wait(40)
    assert len(of(world, NEAR)) >= 2
    assert len(of(world, SELLER)) >= 2
    assert len(set(of(world, SELLER))) == 1
    assert "duplicate" in await near.story(M)
    assert (await near.message(M)).copies >= 2
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_a_copy_of_what_still_waits_adds_nothing(world: World) -> None:
    road(world)
    buyer, near, *_ = await hubs(world)
    held = Held()
    world.wire.will(held, at=FAR)
    await buyer.send(M)
    await world.wait(1)
    [first] = world.wire.to(NEAR)
    answer = await near.receive(first.content_type, first.body)
    assert answer.status == 202
    assert await near.work() == {"forward": 1}
    other = first.body.replace(b"orders</eb:Action>", b"ordres</eb:Action>")
    answer = await near.receive(first.content_type, other)
    assert answer.status == 503
    assert b"EBMS:0202" in answer.body
    held.release()
    await world.wait(5)
    assert await near.state(M) is State.SENT


@played
async def test_a_circle_is_seen_when_a_message_comes_back(world: World) -> None:
    road(world)
    hub(world, FAR, rule("round", NEAR, to_party=party(SELLER)))
    buyer, near, far, _ = await hubs(world)
    await buyer.send(M)
    await world.wait(4)
    assert len(of(world, FAR)) == 1
    [raised] = [one for one in await near.journal("error_raised") if one.error_code == "EBMS:0020"]
    assert "it was here before, and comes in a circle" in (raised.detail or "")
    assert await far.state(M) is State.FAILED


@played
async def test_a_circle_over_hubs_that_tell_no_stations_ends_too(world: World) -> None:
    road(world)
    buyer, near, *_ = await hubs(world)
    await buyer.send(M)
    await world.wait(2)
    [first] = of(world, NEAR)
    kind = world.wire.to(NEAR)[0].content_type
    for _ in range(100):
        answer = await near.receive(kind, first)
        await world.wait(1)
        if answer.status != 202:
            break
    assert b"EBMS:0020" in answer.body
    assert (await near.message(M)).copies == 64


@played
async def test_a_header_that_is_not_aimed_at_us_is_not_passed_on(world: World) -> None:
    road(world)
    for pmode in world._pmodes[BUYER]:
        pmode["legs"][0]["protocol"]["add_actor_or_role_attribute"] = False
    buyer, *_ = await hubs(world)
    await buyer.send(M)
    await world.wait(2)
    assert of(world, FAR) == []


@played
async def test_a_hub_takes_its_own_messages_as_an_endpoint(world: World) -> None:
    world.agree(retry=None)
    hub(world, SELLER, rule("all", FAR))
    by_way_of(world, SELLER)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(2)
    assert await seller.inbox() == [M]
    assert world.wire.to(FAR) == []


UNKNOWN = f"<x:y xmlns:x='urn:x' S12:mustUnderstand='true' S12:role='{NEXT_MSH}'/>"


@pytest.mark.req("P2-2.4.5-04", "P2-2.5.6-09")
@pytest.mark.parametrize(
    ("said", "instead"),
    [
        ("</eb:UserMessage>", "<eb:Nonsense/></eb:UserMessage>"),
        ("</S12:Header>", f"{UNKNOWN}</S12:Header>"),
    ],
)
@played
async def test_a_header_for_us_that_cannot_be_read_is_an_invalid_header(
    world: World, said: str, instead: str
) -> None:
    road(world, signed=False)
    buyer, near, *_ = await hubs(world)
    world.wire.will(lost, at=NEAR)
    await buyer.send(M)
    await world.wait(1)
    [first] = world.wire.to(NEAR)
    wrong = first.body.replace(said.encode(), instead.encode())
    answer = await near.receive(first.content_type, wrong)
    assert b"EBMS:0009" in answer.body
    assert of(world, FAR) == []


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_hub_that_is_killed_goes_on_where_it_was(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    road(world)
    buyer, near, _, seller = await hubs(world)
    held = Held(lost)
    world.wire.will(held, at=FAR)
    await buyer.send(M)
    await world.wait(1)
    assert await near.state(M) is State.READY
    near = await world.start_again(NEAR)
    await world.wait(60)
    assert await near.state(M) is State.SENT
    assert await seller.inbox() == [M]


@played
async def test_a_message_follows_rules_that_change_while_it_waits(world: World) -> None:
    road(world)
    world.wire.usual[FAR] = refused
    buyer, near, _, seller = await hubs(world)
    await buyer.send(M)
    await world.wait(1)
    hub(world, NEAR, rule("straight", SELLER, to_party=party(SELLER)))
    assert (await near.node.reload()).ok
    await world.wait(10)
    assert await seller.inbox() == [M]
    assert [one.peer for one in await near.events(M)][-1] == address(SELLER)


@pytest.mark.req("P2-2.3.1-01", "P2-2.4.5-05")
@pytest.mark.parametrize("forward", ["store", "sync"])
@played
async def test_a_hub_is_an_endpoint_for_what_is_its_own_and_parses_it_once(
    world: World, forward: str
) -> None:
    road(world, signed=False)
    over = rule("over", FAR, to_party="urn:example:other")
    over["to"]["forward"] = forward
    if forward == "sync":
        del over["to"]["retry"]
    hub(world, SELLER, over)
    world.wire.usual[FAR] = status(202)
    buyer, seller = await world.both()
    world.wire.will(lost, at=NEAR)
    await buyer.send(M)
    await world.wait(1)
    [sent] = world.wire.to(NEAR)
    parsed: list[bytes] = []
    with patch.object(xml, "parse", lambda data, *more: parsed.append(data) or parse(data, *more)):
        assert (await seller.receive(sent.content_type, sent.body)).status < 300
    assert len([one for one in parsed if M.encode() in one]) == 1
    assert await seller.inbox() == [M]
    other = sent.body.replace(party(SELLER).encode(), b"urn:example:other")
    other = other.replace(M.encode(), b"n@buyer")
    assert (await seller.receive(sent.content_type, other)).status == 202
    await world.wait(2)
    assert len(world.wire.to(FAR, "n@buyer")) == 1
