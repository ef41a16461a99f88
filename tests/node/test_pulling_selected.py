"""Selective pulling: every item, matched exactly, and all of them together (Part 2, 5.1)."""

import hashlib

import pytest

from postroad.node.service import Submission, SubmittedPayload
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import AgreementRef, Party, PartyId, Property, Selection, Service
from tests.node.collecting import collect, errors, given, request
from tests.node.reliable import BUYER, ORDERS, SELLER, SOAP, STORES, Station, World, party, played

A, B = "a@buyer", "b@buyer"
TRADE = Service("urn:example:trade")


async def send(buyer: Station, message_id: str, **fields: object) -> None:
    payload = SubmittedPayload(BytesContent(b"x"), hashlib.sha256(b"x").digest())
    given = {"conversation_id": "talk", "ref_to_message_id": None, "properties": ()} | fields
    submission = Submission(ORDERS, (payload,), message_id, **given)  # type: ignore[arg-type]
    await buyer.process.ask(buyer.node.submit(submission))


async def selected(buyer: Station, seller: Station, selection: Selection) -> str | None:
    answer = await buyer.receive(SOAP, request(seller, selection=selection))
    found = given(answer)
    assert found is not None or errors(answer) == ["EBMS:0006"]
    return found


def party_of(name: str, role: str = "", type: str | None = None) -> Party:
    return Party((PartyId(party(name), type),), role)


@pytest.mark.req("P2-5.1-02", "P2-5.1-03", "P2-5.1-04", "P2-5.1-06", "P2-7.3-01")
@pytest.mark.parametrize(
    "selection",
    [
        Selection(ref_to_message_id="first@seller"),
        Selection(conversation_id="other"),
        Selection(properties=(Property("colour", "red"),)),
        Selection(properties=(Property("size", "4"),)),
        Selection(properties=(Property("width", "7", "cm"),)),
        Selection(properties=(Property("size", "4", "cm"), Property("colour", "red"))),
        Selection(conversation_id="other", service=TRADE, action=ORDERS),
        Selection(
            from_party=party_of(BUYER),
            to_party=party_of(SELLER, "urn:example:receiver"),
            conversation_id="other",
        ),
    ],
)
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_the_message_that_fits_is_pulled(
    world: World, selection: Selection, kept_in: str
) -> None:
    world.kept_in = kept_in
    collect(world)
    buyer, seller = await world.both()
    blue = (("colour", "blue", None), ("size", "44", "cm"), ("width", "7", "inch"))
    red = (("colour", "red", None), ("size", "4", "cm"), ("width", "7", "cm"))
    await send(buyer, A, properties=blue)
    await send(buyer, B, conversation_id="other", ref_to_message_id="first@seller", properties=red)
    assert await selected(buyer, seller, selection) == B
    assert await selected(buyer, seller, selection) is None
    assert given(await buyer.receive(SOAP, request(seller))) == A


@pytest.mark.req("P2-5.1-02", "P2-5.1-06", "P2-5.1-07")
@played
async def test_an_agreement_is_selected_with_all_that_it_says(world: World) -> None:
    collect(world)
    for station in (BUYER, SELLER):
        world._pmodes[station][-1]["agreement"] = {
            "value": "17",
            "type": "urn:type",
            "include_pmode": True,
        }
    buyer, seller = await world.both()
    await send(buyer, A)
    for other in (AgreementRef("17", "urn:type"), AgreementRef("17", None, ORDERS)):
        assert await selected(buyer, seller, Selection(agreement_ref=other)) is None
    wanted = Selection(agreement_ref=AgreementRef("17", "urn:type", ORDERS))
    assert await selected(buyer, seller, wanted) == A


@pytest.mark.req("P2-5.1-02", "P2-5.1-03", "P2-5.1-04", "P2-5.1-05", "P2-5.1-07")
@pytest.mark.parametrize(
    "selection",
    [
        Selection(ref_to_message_id="first@selle"),
        Selection(ref_to_message_id="talk"),
        Selection(conversation_id="tal"),
        Selection(conversation_id="Talk"),
        Selection(service=Service("urn:example:trade", "urn:type")),
        Selection(service=Service("urn:example")),
        Selection(action="order"),
        Selection(agreement_ref=AgreementRef("urn:agreement")),
        Selection(from_party=party_of(SELLER)),
        Selection(from_party=party_of(BUYER, type="urn:type")),
        Selection(to_party=party_of(SELLER, "urn:example:sender")),
        Selection(to_party=Party((PartyId(party(SELLER)), PartyId(party(BUYER))), "")),
        Selection(properties=(Property("colour", "re"),)),
        Selection(properties=(Property("Colour", "red"),)),
        Selection(properties=(Property("colour", "red", "paint"),)),
        Selection(properties=(Property("colour", "red"), Property("size", "4"))),
        Selection(conversation_id="talk", action="another"),
    ],
)
@played
async def test_a_message_that_does_not_fit_in_everything_is_not_pulled(
    world: World, selection: Selection
) -> None:
    collect(world)
    buyer, seller = await world.both()
    red = (("colour", "red", None),)
    await send(buyer, A, ref_to_message_id="first@seller", properties=red)
    assert await selected(buyer, seller, selection) is None


@pytest.mark.req("P2-7.3-01")
@played
async def test_who_pulls_by_itself_selects_too(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    for number in range(3):
        await send(buyer, f"{number}@buyer", conversation_id=f"talk {number % 2}")
    pulled = seller.node.pull(ORDERS, Selection(conversation_id="talk 0"), most=1000)
    collected = await seller.process.ask(pulled)
    assert collected.messages == ("0@buyer", "2@buyer")
