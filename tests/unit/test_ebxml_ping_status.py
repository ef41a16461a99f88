"""Ping, pong, and the status of a message: what MSHs ask each other in ebXML."""

from typing import Any

import pytest

from postroad.msh.ebxml_answers import asked_by_partner
from postroad.msh.ebxml_services import ping, pong, status_request, status_response
from postroad.wire.ebms3 import Party, PartyId
from postroad.wire.ebxml import MS098, EbxmlMessage, kind_of
from tests.unit.ebxml_answering import ANSWER_ID, SELLER_URI, every_version, heard
from tests.unit.ebxml_world import BUYER, MESSAGE_ID, NOW, SELLER, World, alone, asking, later


@every_version
@pytest.mark.req(
    "MS098-9.2.1-01", "MS098-9.2.1-02", "MS098-9.2.1-03", "MS098-9.2.1-04", "MS098-9.2.1-05",
    "MS098-9.2.1-06",
)  # fmt: skip
def test_a_ping_asks_a_party(version: str) -> None:
    world = World(version)
    message = world.look(alone(ping(world.dialect, **asking()).envelope)).ebxml
    assert message is not None
    header = message.header
    assert kind_of(message) == "ping"
    assert (header.from_party, header.to_party) == (BUYER, SELLER)
    assert (header.service.value, header.action) == (world.dialect.msh_service, "Ping")
    assert message.manifest is None


@every_version
@pytest.mark.req(
    "MS098-9.2.2-02", "MS098-9.2.2-03", "MS098-9.2.2-04", "MS098-9.2.2-05", "MS098-9.2.2-06",
    "MS098-9.2.2-07",
)  # fmt: skip
def test_a_pong_answers_it(version: str) -> None:
    world = World(version)
    asked = world.look(alone(ping(world.dialect, **asking()).envelope)).ebxml
    assert asked is not None
    message = heard(world, pong(asked, message_id=ANSWER_ID, now=NOW))
    header = message.header
    assert kind_of(message) == "pong"
    assert (header.from_party, header.to_party) == (SELLER, BUYER)
    assert (header.service.value, header.action) == (world.dialect.msh_service, "Pong")
    assert header.ref_to_message_id == "ask-1@buyer.example"


@every_version
@pytest.mark.req(
    "MS098-9.1.1-01", "MS098-9.1.1-02", "MS098-9.1.1-03", "MS098-9.1.1-05", "MS098-9.1.1-06",
    "MS098-9.1.1-07",
)  # fmt: skip
def test_a_status_request_asks_about_a_message(version: str) -> None:
    world = World(version)
    answer = status_request(world.dialect, about=MESSAGE_ID, **asking())
    message = world.look(alone(answer.envelope)).ebxml
    assert message is not None
    header = message.header
    assert (header.service.value, header.action) == (world.dialect.msh_service, "StatusRequest")
    assert header.from_party == BUYER
    assert message.asked_about == MESSAGE_ID
    assert message.manifest is None


@pytest.mark.req("MS098-9.1.1-04")
def test_a_status_request_goes_to_where_the_message_went() -> None:
    world = World("0.98b")
    answer = status_request(MS098, about=MESSAGE_ID, receiver_uri=SELLER_URI, **asking())
    message = world.look(alone(answer.envelope)).ebxml
    assert message is not None
    assert message.header.to_party.party_ids == (PartyId(SELLER_URI),)


def status(world: World, word: str) -> EbxmlMessage:
    request = status_request(world.dialect, about=MESSAGE_ID, **asking())
    asked = world.look(alone(request.envelope)).ebxml
    assert asked is not None
    answer = status_response(
        asked, status=word, received_at=later(-60), message_id=ANSWER_ID, now=NOW
    )
    return heard(world, answer)


@every_version
@pytest.mark.req(
    "MS098-9.1.2-01", "MS098-9.1.2-02", "MS098-9.1.2-03", "MS098-9.1.2-04", "MS098-9.1.2-05",
    "MS098-9.1.2-06", "MS098-9.1.2-07", "MS098-8.11.1-01",
)  # fmt: skip
def test_a_status_response_tells_when_a_message_came(version: str) -> None:
    world = World(version)
    message = status(world, "Received")
    header, told = message.header, message.status_data
    assert (header.from_party, header.to_party) == (SELLER, BUYER)
    assert (header.service.value, header.action) == (world.dialect.msh_service, "StatusResponse")
    assert header.ref_to_message_id == "ask-1@buyer.example"
    assert told is not None
    assert (told.ref_to_message_id, told.message_status) == (MESSAGE_ID, "Received")
    assert told.timestamp == later(-60)


@every_version
@pytest.mark.parametrize("word", ["NotRecognized", "UnAuthorized"])
@pytest.mark.req("MS098-8.11.2-01")
def test_a_stranger_is_not_told_when_a_message_came(version: str, word: str) -> None:
    told = status(World(version), word).status_data
    assert told is not None
    assert told.message_status == word
    assert told.timestamp is None


@pytest.mark.req("MS098-8.11.5-01")
def test_only_two_point_zero_knows_more_than_three_statuses() -> None:
    assert status(World("2.0"), "Processed").status_data is not None
    with pytest.raises(ValueError, match="none of"):
        status(World("0.98b"), "Processed")


@every_version
@pytest.mark.req("MS098-9.1.3-02", "MS098-9.2.3-02")
def test_who_asks_is_a_partner_when_the_p_mode_knows_and_trusts_it(version: str) -> None:
    plain, signing = World(version), World(version, signed=True)
    asked = ping(plain.dialect, **asking())
    stranger = ping(plain.dialect, **asking(from_party=Party((PartyId("urn:example:x"),), "")))
    signed = ping(plain.dialect, **asking(), signing=signing_of(signing))
    assert asked_by_partner(plain.look(alone(asked.envelope)))
    assert not asked_by_partner(plain.look(alone(stranger.envelope)))
    assert not asked_by_partner(signing.look(alone(asked.envelope)))
    assert asked_by_partner(signing.look(alone(signed.envelope)))


def signing_of(world: World) -> Any:
    how = world.sellers_signing
    assert how is not None
    return type(how)(world.buyer, how.algorithm, how.digest, how.reference)
