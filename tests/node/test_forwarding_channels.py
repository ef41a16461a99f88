"""Pull on push: a hub puts what it is sent into channels, and the receiver pulls it there."""

from typing import Any

import pytest

from postroad.store.records import State
from postroad.wire.names import DEFAULT_MPC
from tests.node.collecting import errors, given, request
from tests.node.hubs import FAR, NEAR, hub, road, rule
from tests.node.reliable import (
    BUYER,
    LARGE,
    ORDERS,
    SELLER,
    SOAP,
    STORES,
    Station,
    World,
    address,
    party,
    played,
    refused,
)

M, N = "m@buyer", "n@buyer"
USER = {"username": "seller", "password": "a secret of ours"}


def last_pull(
    world: World, *, extension: str | None = "seller", user: dict[str, str] = USER, **channel: Any
) -> None:
    """buyer, near, far by push; the seller pulls from far."""
    road(world)
    to = {"authorization": USER} | ({"extension": extension} if extension else {}) | channel
    there = {"id": "seller", "match": {"to_party": party(SELLER)}, "to": {"channel": to}}
    hub(world, FAR, there, rule("back", NEAR, to_party=party(BUYER)))
    [pmode] = world._pmodes[SELLER]
    [leg] = pmode["legs"]
    leg["protocol"]["address"] = address(FAR)
    leg["pulling"] = {"scheduled": False}
    if extension:
        leg["business_info"]["sub_mpc_ext"] = extension
    pmode |= {
        "mep_binding": "pull",
        "initiator": pmode["responder"] | {"authorization": user},
        "responder": pmode["initiator"],
    }


async def start(world: World) -> tuple[Station, Station, Station]:
    buyer, seller = await world.both()
    await world.start(NEAR)
    return buyer, await world.start(FAR), seller


async def pull(seller: Station) -> tuple[str, ...]:
    return (await seller.process.ask(seller.node.pull(ORDERS))).messages


@pytest.mark.req(
    "P2-2.4.1-02", "P2-2.5.1-02", "P2-2.5.3-01", "P2-2.5.3-02", "P2-2.4.4-02", "P2-2.5.5-17"
)
@pytest.mark.parametrize("payload", [b"<order/>", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("extension", [None, "seller"])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_what_was_pushed_to_a_hub_is_pulled_from_it(
    world: World, kept_in: str, extension: str | None, payload: bytes
) -> None:
    world.kept_in = kept_in
    last_pull(world, extension=extension)
    buyer, far, seller = await start(world)
    assert await pull(seller) == ()
    await buyer.send(M, payload=payload)
    await world.wait(2)
    assert await far.story(M) == ["received", "queued"]
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await far.story(M) == ["received", "queued", "forwarded"]
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await pull(seller) == ()
    assert await far.work() == {}


@pytest.mark.req("P2-2.5.4-07", "P2-2.5.4-08")
@played
async def test_every_byte_is_as_it_was_and_the_mpc_stays_that_of_the_message(world: World) -> None:
    last_pull(world)
    buyer, far, seller = await start(world)
    await buyer.send(M)
    await world.wait(2)
    [sent] = world.wire.to(NEAR)
    answer = await far.receive(SOAP, request(seller))
    assert (answer.body, answer.content_type) == (sent.body, sent.content_type)
    assert (await far.message(M)).channel == f"{DEFAULT_MPC}/seller"
    assert b"/seller" not in answer.body.partition(b"</eb:Messaging>")[0]


@pytest.mark.req("P2-2.5.4-02")
@pytest.mark.parametrize(
    "user", [{"username": "seller", "password": "wrong"}, {"username": "other", "password": "x"}]
)
@played
async def test_who_shows_the_wrong_password_gets_nothing(
    world: World, user: dict[str, str]
) -> None:
    last_pull(world, user=user)
    buyer, far, seller = await start(world)
    await buyer.send(M)
    await world.wait(2)
    assert errors(await far.receive(SOAP, request(seller))) == ["EBMS:0101"]
    assert await far.state(M) is State.READY


@played
async def test_a_pull_request_serves_once(world: World) -> None:
    last_pull(world)
    buyer, far, seller = await start(world)
    for name in (M, N):
        await buyer.send(name)
    await world.wait(2)
    asking = request(seller)
    assert given(await far.receive(SOAP, asking)) == M
    assert errors(await far.receive(SOAP, asking)) == ["EBMS:0101"]
    assert given(await far.receive(SOAP, request(seller))) == N
    assert errors(await far.receive(SOAP, request(seller))) == ["EBMS:0006"]


@pytest.mark.req("P2-2.5.4-04")
@played
async def test_a_sibling_channel_is_not_reached(world: World) -> None:
    last_pull(world)
    buyer, far, seller = await start(world)
    await buyer.send(M)
    await world.wait(2)
    other = request(seller).replace(b"defaultMPC/seller", b"defaultMPC/other")
    assert errors(await far.receive(SOAP, other)) == ["EBMS:0006"]


@pytest.mark.req("P2-2.5.6-16")
@played
async def test_a_full_channel_refuses(world: World) -> None:
    last_pull(world, capacity=1)
    buyer, far, _ = await start(world)
    await buyer.send(M)
    await world.wait(2)
    await buyer.send(N)
    await world.wait(2)
    [raised] = await far.journal("error_raised")
    assert (raised.message_id, raised.error_code) == (N, "EBMS:0021")


@pytest.mark.req("P2-2.5.6-17", "P2-2.5.6-18", "P2-2.5.6-19")
@played
async def test_what_nobody_pulls_in_time_is_given_up_and_told(world: World) -> None:
    last_pull(world, keep="PT1M")
    buyer, far, seller = await start(world)
    await buyer.send(M)
    await world.wait(59)
    assert await far.state(M) is State.READY
    await world.wait(5)
    assert await far.state(M) is State.EXPIRED
    assert await pull(seller) == ()
    [told] = world.wire.to(BUYER, "EBMS:0022")
    assert b"MessagePersistenceTimeout" in told.body
    assert await far.work() == {}


@played
async def test_a_copy_of_what_was_pulled_is_offered_again(world: World) -> None:
    last_pull(world, keep="PT1H")
    buyer, far, seller = await start(world)
    world.wire.will(refused, at=BUYER)
    await buyer.send(M)
    await world.wait(1)
    [sent] = world.wire.to(FAR, M)
    answer = await far.receive(SOAP, request(seller))
    assert answer.handed is not None
    await answer.handed(True)
    assert given(answer) == M
    assert (await far.receive(sent.content_type, sent.body)).status == 202
    assert await pull(seller) == (M,)
    assert await seller.inbox() == [M]
    assert await far.story(M) == [
        *("received", "queued", "forwarded"),
        *("duplicate", "queued", "forwarded"),
    ]


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_what_waits_survives_a_crash(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    last_pull(world, keep="PT1H")
    buyer, far, seller = await start(world)
    await buyer.send(M)
    await world.wait(1)
    far = await world.start_again(FAR)
    assert await pull(seller) == (M,)
    assert await far.state(M) is State.SENT
    await world.wait(2)


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_message_whose_response_was_not_taken_is_offered_again(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    last_pull(world, keep="PT1H")
    buyer, far, seller = await start(world)
    await buyer.send(M)
    await world.wait(1)
    answer = await far.receive(SOAP, request(seller))
    assert answer.handed is not None
    assert await pull(seller) == ()
    await answer.handed(False)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await far.state(M) is State.SENT
    assert await far.story(M) == ["received", "queued", "forwarded", "forwarded"]
    assert await far.work() == {}


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_hub_that_is_killed_while_it_hands_out_offers_again(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    last_pull(world, keep="PT1H")
    buyer, far, seller = await start(world)
    await buyer.send(M)
    await world.wait(1)
    assert given(await far.receive(SOAP, request(seller))) == M
    far = await world.start_again(FAR)
    assert await pull(seller) == ()
    await world.wait(301)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await seller.inbox() == [M]
    assert await far.work() == {}


@played
async def test_what_waits_without_its_rule_is_told(world: World) -> None:
    last_pull(world)
    buyer, far, _ = await start(world)
    await buyer.send(M)
    await world.wait(2)
    assert (await far.process.ask(far.node.health())).problems == ()
    hub(world, FAR, rule("back", NEAR, to_party=party(BUYER)))
    far = await world.start_again(FAR)
    [problem] = (await far.process.ask(far.node.health())).problems
    assert problem.startswith("1 wait to be pulled with route seller")


WARDEN = {"username": "warden", "password": "a third secret"}


@pytest.mark.req("P2-2.5.4-03", "P2-2.5.4-04")
@played
async def test_a_sub_channel_is_pulled_from_its_parent_by_who_may(world: World) -> None:
    last_pull(world, parent=WARDEN)
    buyer, far, seller = await start(world)
    await buyer.send(M)
    await world.wait(2)
    [sent] = world.wire.to(NEAR)
    for user, mpc, said in (
        (USER, "unset", ["EBMS:0006"]),
        (WARDEN, "seller", ["EBMS:0006"]),
        (WARDEN | {"password": "wrong"}, "unset", ["EBMS:0101"]),
    ):
        await _pulls_as(world, seller, user, mpc)
        assert errors(await far.receive(SOAP, request(seller))) == said
    await _pulls_as(world, seller, WARDEN, "unset")
    answer = await far.receive(SOAP, request(seller))
    assert answer.body == sent.body


async def _pulls_as(world: World, seller: Station, user: dict[str, str], extension: str) -> None:
    """From now on the seller shows this, and asks for a sub-channel or for none."""
    [pmode] = world._pmodes[SELLER]
    [leg] = pmode["legs"]
    pmode["initiator"]["authorization"] = user
    leg["business_info"].pop("sub_mpc_ext", None)
    if extension != "unset":
        leg["business_info"]["sub_mpc_ext"] = extension
    world._write(SELLER)
    assert (await seller.node.reload()).ok
