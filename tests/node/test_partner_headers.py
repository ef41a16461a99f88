"""Headers as partners write them: untyped identifiers, and P-Mode names of their own."""

import pytest

from postroad.store.records import Side, State
from tests.node.reliable import BUYER, ORDERS, SELLER, Posted, World, lost, played

M = "m@buyer"
AGREEMENT = "urn:example:agreement"


@pytest.mark.parametrize(
    ("agreement", "service"),
    [("EU-ICS2-TI-V1.0", "eu_ics2_c2t"), ("EDELIVERY-1110", "urn:example:trade")],
)
@played
async def test_untyped_agreements_and_services_that_are_no_uris_are_sent_and_received(
    world: World, agreement: str, service: str
) -> None:
    world.agree(signed=True, agreement=agreement, service=service)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]
    found = await seller.message(M)
    assert (found.agreement, found.service) == (agreement, service)
    assert await seller.story(M) == ["received", "delivered", "receipt_sent"]


@played
async def test_a_party_id_without_a_type_that_is_no_uri_is_taken(world: World) -> None:
    world.agree()
    for one in (BUYER, SELLER):
        world.configure(one, party=one)
        for pmode in world._pmodes[one]:
            pmode["initiator"]["party"], pmode["responder"]["party"] = BUYER, SELLER
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert (await seller.message(M)).from_party == BUYER


async def captured(world: World) -> Posted:
    """A message as it left the buyer, which by itself gets nowhere."""
    world.wire.usual[SELLER] = lost
    await world.stations[BUYER].send(M)
    await world.wait(0.1)
    return world.wire.to(SELLER, M)[-1]


@played
async def test_no_message_names_its_pmode_unless_the_pmode_says_so(world: World) -> None:
    """ENTSOG, BDEW and EU customs refuse messages with AgreementRef/@pmode."""
    world.agree(agreement=AGREEMENT)
    world.agree("named", agreement={"value": AGREEMENT, "include_pmode": True})
    buyer, _ = await world.both()
    for name in (ORDERS, "named"):
        await buyer.send(f"{name}@buyer", name)
    await world.wait(1)
    [silent], [told] = (world.wire.to(SELLER, f"{name}@buyer") for name in (ORDERS, "named"))
    assert f"<eb:AgreementRef>{AGREEMENT}<".encode() in silent.body
    assert f'<eb:AgreementRef pmode="named">{AGREEMENT}<'.encode() in told.body


@pytest.mark.parametrize("strict", [False, True])
@played
async def test_a_message_under_another_pmode_name_is_refused_only_where_that_is_agreed(
    world: World, strict: bool
) -> None:
    world.agree(agreement={"value": AGREEMENT, "include_pmode": True, "match_pmode": strict})
    _, seller = await world.both()
    posted = await captured(world)
    body = posted.body.replace(b'pmode="orders"', b'pmode="theirs"')
    assert body != posted.body
    answer = await seller.receive(posted.content_type, body)
    if strict:
        assert b"EBMS:0010" in answer.body
        assert (await seller.message(M)).detail is not None
        assert await seller.inbox() == []
    else:
        assert b"Receipt>" in answer.body
        assert (await seller.message(M)).pmode == ORDERS
        assert await seller.inbox() == [M]


@played
async def test_the_pmode_that_a_message_names_is_taken_among_equals(world: World) -> None:
    agreed = {"value": AGREEMENT, "include_pmode": True}
    for name in ("first", "second"):
        world.agree(name, action="Order", agreement=agreed)
    buyer, seller = await world.both()
    for name in ("first", "second"):
        await buyer.send(f"{name}@buyer", name)
    await world.wait(1)
    for name in ("first", "second"):
        assert (await seller.message(f"{name}@buyer", Side.RECEIVING)).pmode == name
