"""What only the next MSH is told, and what a Manifest says of payloads: from P-Mode to the wire."""

import hashlib

import pytest

from postroad.node.service import Submission, SubmittedPayload
from postroad.wire.content import BytesContent
from tests.node.ebxml_letters import (
    RELIABLY,
    Said,
    hand,
    listening,
    order,
    reliable_terms,
    via,
)
from tests.node.ebxml_stations import RELIABLE, start
from tests.node.reliable import (
    BUYER,
    CARRIER,
    CPA,
    ORDER,
    ORDERS,
    SELLER,
    Posted,
    World,
    address,
    played,
)

M = "m@buyer.example"


def said_in(posted: Posted) -> Said:
    """The envelope of what was posted."""
    body, end = posted.body, b"</SOAP-ENV:Envelope>"
    return Said.read(body[body.index(b"<?xml") : body.index(end) + len(end)])


@pytest.mark.req("MS098-8.6-05", "MS098-8.6.8-01", "MS098-8.6.8-02", "MS098-8.6.7-01")
@pytest.mark.parametrize("version", ["0.98b", "1.0"])
@played
async def test_service_and_action_in_via_are_for_the_next_msh_alone(
    world: World, version: str
) -> None:
    hop = {"via_cpa_id": "urn:example:hop", "via_service": "urn:example:relay", "via_action": "go"}
    terms = RELIABLE | {"version": version}
    world.speak(at=(BUYER,), url=address(CARRIER), hops=1, **terms, **hop)
    world.speak(at=(SELLER,), **terms)
    taken = {"service": "urn:example:relay", "action": "go"}
    world.speak("there", at=(CARRIER,), relay=True, service=taken, **terms)
    world._pmodes[CARRIER][0]["agreement"] = "urn:example:hop"
    buyer = await start(world, BUYER)
    seller = await start(world, SELLER)
    await start(world, CARRIER)
    await buyer.send(M)
    await world.wait(2)
    said = said_in(world.wire.to(CARRIER, "eb:Manifest")[0])
    assert said.text("Via/Service") == "urn:example:relay"
    assert said.text("Via/Action") == "go"
    assert said.service == ("urn:example:trade", ORDERS)
    assert said_in(world.wire.to(SELLER, "eb:Manifest")[0]).find("Via/Service") == []
    assert await seller.inbox() == [M], "the carrier found its P-Mode by Via"


@pytest.mark.req("MS098-8.10.5.1-01", "MS098-8.10.5.1-02")
@pytest.mark.parametrize("version", ["0.98b", "1.0", "2.0"])
@played
async def test_the_schema_of_a_payload_stands_in_the_manifest_and_reaches_the_application(
    world: World, version: str
) -> None:
    world.speak(version=version)
    buyer, seller = await start(world, BUYER), await start(world, SELLER)
    properties = (("Schema", "http://example.org/order.xsd", "2.1"),)
    digest = hashlib.sha256(ORDER).digest()
    payload = SubmittedPayload(BytesContent(ORDER), digest, "text/xml", properties=properties)
    await buyer.process.ask(buyer.node.submit(Submission(ORDERS, (payload,), M)))
    await world.wait(2)
    said = said_in(world.wire.to(SELLER)[0])
    place = "Manifest/Reference/Schema"
    assert said.attribute(place, "location") == "http://example.org/order.xsd"
    assert said.attribute(place, "version") == "2.1"
    [part] = (await seller.message(M)).parts
    assert ("Schema", "http://example.org/order.xsd", "2.1") in part.properties


@played
async def test_a_via_does_not_lead_an_unsigned_message_around_the_p_mode_that_signs(
    world: World,
) -> None:
    """No signature covers Via, so whoever writes it does not choose by which terms is delivered."""
    loose = {"service": "urn:example:loose", "action": "loose"}
    world.speak(signed=True, **reliable_terms())
    world.speak("loose", service=loose, **reliable_terms())
    seller = await listening(world)
    said = "<eb:Service>urn:example:loose</eb:Service><eb:Action>loose</eb:Action>"
    honest = order(inside=RELIABLY, id="loose@buyer.example", **loose)
    assert (await hand(world, seller, honest)).delivered == ["loose@buyer.example"]
    for content in (said, f"<eb:CPAId>{CPA}</eb:CPAId>{said}"):
        outcome = await hand(world, seller, order("0.98b", via(content=content), inside=RELIABLY))
        assert outcome.delivered == ["loose@buyer.example"]
        assert outcome.raised[-1].error_code == "EBMS:0103"
