"""Headers as partners write them: untyped identifiers, and P-Mode names of their own."""

import pytest

from postroad.store.records import State
from tests.node.reliable import BUYER, SELLER, World, played

M = "m@buyer"


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
