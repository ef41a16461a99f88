"""The services of an ebXML MSH (0.98b, section 9): ping and message status, asked by anybody."""

from typing import Any, Final

import pytest

from tests.node.ebxml_letters import (
    CID,
    NAMESPACES,
    RELIABLY,
    SERVICES,
    TIME,
    VERSIONS,
    M,
    Outcome,
    Said,
    block,
    envelope,
    hand,
    header,
    listening,
    manifest,
    order,
    pack,
    reliable_terms,
    spoiled,
    trace,
    via,
)
from tests.node.reliable import (
    BUYER,
    CPA,
    ORDER,
    ORDERS,
    SELLER,
    Station,
    World,
    address,
    party,
    passed,
    played,
    status,
)

P: Final = "p@buyer.example"
STRANGER: Final = "urn:example:stranger"


def asked(action: str, version: str = "0.98b", *blocks: str, body: str = "", **named: Any) -> str:
    """A message to the MSH itself."""
    given = {"id": P, "service": SERVICES[version], "action": action} | named
    traced = (trace(),) if version == "0.98b" else ()
    return envelope(header(version, **given), *traced, *blocks, body=body, version=version)


def ping(version: str = "0.98b", *blocks: str, **named: Any) -> str:
    return asked("Ping", version, *blocks, **named)


def status_request(version: str = "0.98b", about: str = M, **named: Any) -> str:
    """0.98b names the message in MessageData, later versions in an element."""
    if version == "0.98b":
        return asked("StatusRequest", ref=about, **named)
    understood = ' SOAP-ENV:mustUnderstand="1"' if version == "1.0" else ""
    body = (
        f'<eb:StatusRequest{understood} eb:version="{version}">'
        f"<eb:RefToMessageId>{about}</eb:RefToMessageId></eb:StatusRequest>"
    )
    return asked("StatusRequest", version, body=body, **named)


def agreed(world: World, version: str = "0.98b", **terms: Any) -> None:
    """Answers go to the SenderURI, or where the CPA says: 2.0 has no TraceHeader."""
    back = {"send_receipt": {"reply_to": address(BUYER)}} if version != "0.98b" else None
    world.speak(security=back, **(reliable_terms(version) | terms))


def answered(outcome: Outcome, action: str, version: str = "0.98b") -> Said:
    """The answer of an MSH, after what is true of all of them was seen."""
    said = outcome.said
    assert said.namespace == NAMESPACES[version]
    assert said.service == (SERVICES[version], action)
    assert said.parties == (party(SELLER), party(BUYER))
    assert said.text("MessageHeader/CPAId") == CPA
    assert said.text("MessageHeader/ConversationId") == "c1"
    assert said.data("RefToMessageId") == P
    assert said.find("Manifest") == []
    assert outcome.delivered in ([], [M])
    return said


def element(version: str) -> str:
    return "StatusData" if version == "0.98b" else "StatusResponse"


@pytest.mark.req(
    "MS098-9.2.2-03",
    "MS098-9.2.2-04",
    "MS098-9.2.2-05",
    "MS098-9.2.2-06",
    "MS098-9.2.2-07",
    "MS098-8.4.3-03",
)
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_ping_of_a_partner_gets_a_pong(world: World, version: str) -> None:
    agreed(world, version)
    outcome = await hand(world, await listening(world), ping(version))
    assert answered(outcome, "Pong", version).names == ["MessageHeader"]
    assert [one.receiver for one in outcome.posted] == [BUYER]
    assert outcome.raised == []


@played
async def test_with_sync_reply_a_pong_is_the_response(world: World) -> None:
    agreed(world)
    outcome = await hand(world, await listening(world), ping("0.98b", via(' eb:syncReply="1"')))
    answered(outcome, "Pong")
    assert outcome.posted == []


@pytest.mark.req("MS098-9.2.3-02")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_ping_of_a_stranger_gets_no_pong(world: World, version: str) -> None:
    agreed(world, version)
    outcome = await hand(world, await listening(world), ping(version, frm=STRANGER))
    assert outcome.posted == []
    assert b"Pong" not in (outcome.response.body or b"")


@pytest.mark.parametrize(("who", "names"), [("anybody", ["Pong"]), ("partner", [])])
@played
async def test_whether_an_unproven_ping_gets_a_pong_is_agreed(
    world: World, who: str, names: list[str]
) -> None:
    """As the response: where somebody who proves nothing wants to be called is not called."""
    world.speak(signed=True, ping=who, **(reliable_terms() | {"ack_requested": "Signed"}))
    outcome = await hand(world, await listening(world), ping())
    assert outcome.posted == []
    body = outcome.response.body
    assert ([Said.read(body).service[1]] if body else []) == names


@pytest.mark.req("MS098-9-02", "MS098-11-03")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("what", ["ping", "status_requests"])
@played
async def test_a_service_that_is_not_offered_gets_a_soap_fault(
    world: World, version: str, what: str
) -> None:
    agreed(world, version, **{what: "nobody"})
    letter = ping(version) if what == "ping" else status_request(version)
    outcome = await hand(world, await listening(world), letter)
    assert outcome.response.status == 500
    assert outcome.said.fault is not None
    assert outcome.said.fault[0] == "MustUnderstand"


@pytest.mark.req("MS098-9-02")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_service_of_the_msh_that_nobody_knows_gets_a_soap_fault(
    world: World, version: str
) -> None:
    agreed(world, version)
    outcome = await hand(world, await listening(world), asked("Sing", version))
    assert outcome.response.status == 500
    assert outcome.said.fault is not None
    assert outcome.said.fault[0] == "MustUnderstand"
    assert outcome.delivered == []


@played
async def test_a_ping_with_a_payload_is_inconsistent(world: World) -> None:
    agreed(world)
    letter = pack(asked("Ping", body=manifest()), (CID, ORDER))
    outcome = await hand(world, await listening(world), letter)
    assert outcome.delivered == []
    assert b"Pong" not in b"".join(one.body for one in outcome.posted)


@pytest.mark.req(
    "MS098-9.1.2-01",
    "MS098-9.1.2-03",
    "MS098-9.1.2-04",
    "MS098-9.1.2-05",
    "MS098-9.1.2-06",
    "MS098-9.1.2-07",
    "MS098-8.11.1-01",
    "MS098-8.11.5-01",
    "MS098-10.1.1-07",
    "RM000-1.1-07",
)
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_the_sender_is_told_that_its_message_was_received_and_when(
    world: World, version: str
) -> None:
    agreed(world, version)
    seller = await listening(world)
    quality = RELIABLY if version != "2.0" else "<eb:DuplicateElimination/>"
    await hand(world, seller, order(version, inside=quality))
    assert await seller.inbox() == [M]
    await world.wait(100)
    outcome = await hand(world, seller, status_request(version))
    said = answered(outcome, "StatusResponse", version)
    name = element(version)
    assert said.names == ["MessageHeader", name]
    assert said.attribute(name, "messageStatus") == "Received"
    assert said.text(f"{name}/RefToMessageId") == M
    assert said.text(f"{name}/Timestamp") == TIME


@pytest.mark.req("MS098-8.11.2-01", "MS098-8.11.5-01")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_message_that_never_came_is_not_recognized(world: World, version: str) -> None:
    agreed(world, version)
    outcome = await hand(world, await listening(world), status_request(version))
    said = answered(outcome, "StatusResponse", version)
    name = element(version)
    assert said.attribute(name, "messageStatus") == "NotRecognized"
    assert said.text(f"{name}/RefToMessageId") == M
    assert said.find(f"{name}/Timestamp") == []


@played
async def test_what_was_refused_is_not_recognized(world: World) -> None:
    agreed(world)
    seller = await listening(world)
    bad = spoiled(order(inside=RELIABLY), "OnceAndOnlyOnce", "Perhaps")
    assert (await hand(world, seller, bad)).delivered == []
    said = answered(await hand(world, seller, status_request()), "StatusResponse")
    assert said.attribute("StatusData", "messageStatus") == "NotRecognized"


@pytest.mark.req("MS098-8.11.2-01", "MS098-9.1.3-01")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_stranger_is_unauthorized_and_learns_nothing(world: World, version: str) -> None:
    agreed(world, version)
    seller = await listening(world)
    await hand(world, seller, order(version))
    told = []
    for about in (M, "never@buyer.example"):
        outcome = await hand(world, seller, status_request(version, about, frm=STRANGER))
        assert outcome.posted == []
        said, name = outcome.said, element(version)
        assert said.service == (SERVICES[version], "StatusResponse")
        assert said.data("RefToMessageId") == P
        assert said.parties == (party(SELLER), STRANGER)
        assert said.text(f"{name}/RefToMessageId") == about
        assert said.find(f"{name}/Timestamp") == []
        told.append(said.attribute(name, "messageStatus"))
    assert told == ["UnAuthorized", "UnAuthorized"]


@played
async def test_a_partner_learns_nothing_about_the_messages_of_others(world: World) -> None:
    agreed(world)
    world.speak("theirs", frm="carrier", at=(SELLER,), **reliable_terms())
    seller = await listening(world)
    await hand(world, seller, order(inside=RELIABLY, frm=party("carrier"), action="theirs"))
    assert await seller.inbox() == [M]
    said = answered(await hand(world, seller, status_request()), "StatusResponse")
    assert said.attribute("StatusData", "messageStatus") in ("NotRecognized", "UnAuthorized")
    assert said.find("StatusData/Timestamp") == []


@played
async def test_a_status_request_may_be_to_our_address(world: World) -> None:
    """To is the ReceiverURI where the message had a TraceHeader."""
    agreed(world)
    seller = await listening(world)
    await hand(world, seller, order(inside=RELIABLY))
    outcome = await hand(world, seller, status_request(to=address(SELLER)))
    assert outcome.said.attribute("StatusData", "messageStatus") == "Received"


@played
async def test_a_service_without_its_slash_is_the_same(world: World) -> None:
    agreed(world)
    letter = status_request(service=SERVICES["0.98b"].rstrip("/"))
    said = answered(await hand(world, await listening(world), letter), "StatusResponse")
    assert said.attribute("StatusData", "messageStatus") == "NotRecognized"


@played
async def test_a_status_request_about_nothing_is_inconsistent(world: World) -> None:
    agreed(world)
    outcome = await hand(world, await listening(world), asked("StatusRequest"))
    assert "Inconsistent" in {one.error_code for one in outcome.raised}
    assert outcome.said.errors or outcome.said.fault


@pytest.mark.req("MS098-9.1.3-02", "MS098-8.11.2-01")
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_where_messages_are_signed_an_unsigned_question_is_not_authorized(
    world: World, version: str
) -> None:
    world.speak(signed=True, **(reliable_terms(version) | {"ack_requested": "Signed"}))
    seller = await listening(world)
    outcome = await hand(world, seller, status_request(version))
    assert outcome.posted == []
    assert outcome.said.attribute(element(version), "messageStatus") == "UnAuthorized"
    outcome = await hand(world, seller, ping(version))
    assert b"Pong" not in (outcome.response.body or b"")


async def both(world: World) -> tuple[Station, Station]:
    buyer, seller = await world.both()
    for one in (buyer, seller):
        one.node.context.msh_url = address(one.name)
    return buyer, seller


def between(world: World, version: str, *, signed: bool = False) -> None:
    terms = reliable_terms(version) | {"reply_to": address(BUYER)}
    security = None if version != "2.0" else {"send_receipt": {"reply_to": address(BUYER)}}
    if signed:
        terms |= {"ack_requested": "Signed", "sync_reply": "mshSignalsOnly"}
        security = None
    world.speak(signed=signed, security=security, **terms)


@pytest.mark.req(
    "MS098-9.2.1-03",
    "MS098-9.2.1-04",
    "MS098-9.2.1-05",
    "MS098-9.2.1-06",
    "MS098-9.2.1-01",
)
@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_node_pings_its_partner(world: World, version: str) -> None:
    between(world, version)
    buyer, _ = await both(world)
    asking = await buyer.process.ask(buyer.node.ping(ORDERS, 10))
    assert asking.answer == "Pong"
    said = Said.read(world.wire.to(SELLER)[0].body)
    assert said.service == (SERVICES[version], "Ping")
    assert said.parties == (party(BUYER), party(SELLER))
    assert said.names == ["MessageHeader"]
    assert said.text("MessageHeader/CPAId") == CPA


@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_node_asks_what_became_of_its_message(world: World, version: str) -> None:
    between(world, version)
    buyer, _ = await both(world)
    await buyer.send(M)
    await world.wait(100)
    asking = await buyer.process.ask(buyer.node.query(M, 10))
    assert asking.answer == "Received"
    assert asking.timestamp is not None
    assert asking.timestamp.isoformat() == "2024-06-01T12:00:00+00:00"


@pytest.mark.req(
    "MS098-9.1.1-01",
    "MS098-9.1.1-03",
    "MS098-9.1.1-04",
    "MS098-9.1.1-05",
    "MS098-9.1.1-06",
    "MS098-9.1.1-07",
)
@played
async def test_a_status_request_names_the_message_and_goes_where_that_went(world: World) -> None:
    between(world, "0.98b")
    world.wire.usual[SELLER] = status(204)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.wait(1)
    await buyer.process.ask(buyer.node.query(M, 1))
    said = Said.read(world.wire.to(SELLER, "StatusRequest")[0].body)
    assert (said.service[0] or "").rstrip("/") == "uri:www.ebxml.org/messageService"
    assert said.service[1] == "StatusRequest"
    assert said.parties == (party(BUYER), address(SELLER))
    assert said.data("RefToMessageId") == M
    assert said.names == ["MessageHeader"]


@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_answers_are_signed_where_that_is_agreed(world: World, version: str) -> None:
    between(world, version, signed=True)
    seen: list[Said] = []

    async def overheard(world: World, posted: Any) -> Any:
        reply = await passed(world, posted)
        seen.append(Said.read(reply.body or posted.body))
        return reply

    world.wire.usual[SELLER] = world.wire.usual[BUYER] = overheard
    buyer, _ = await both(world)
    asking = await buyer.process.ask(buyer.node.ping(ORDERS, 10))
    assert asking.answer == "Pong"
    await buyer.send(M)
    await world.wait(1)
    asking = await buyer.process.ask(buyer.node.query(M, 10))
    assert asking.answer == "Received"
    answers = [one for one in seen if one.service[1] in ("Pong", "StatusResponse")]
    assert {one.service[1] for one in answers} == {"Pong", "StatusResponse"}
    assert all(one.signed for one in answers)


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("Pong", ""),
        (
            "StatusResponse",
            block(
                "StatusData",
                f"<eb:RefToMessageId>{M}</eb:RefToMessageId>",
                more=' eb:messageStatus="Received"',
            ),
        ),
    ],
)
@played
async def test_an_answer_that_nobody_asked_for_is_ignored(
    world: World, action: str, body: str
) -> None:
    agreed(world)
    outcome = await hand(world, await listening(world), asked(action, body=body, ref="0@seller"))
    assert outcome.silent
    assert outcome.delivered == []


@played
async def test_a_forged_pong_is_not_believed_where_answers_are_signed(world: World) -> None:
    between(world, "0.98b", signed=True)
    world.wire.usual[SELLER] = status(204)
    buyer = await world.start(BUYER)
    buyer.node.context.msh_url = address(BUYER)

    async def forged(world: World, posted: Any) -> Any:
        name = Said.read(posted.body).data("MessageId")
        letter = asked("Pong", frm=party(SELLER), to=party(BUYER), ref=name or "")
        await buyer.receive("text/xml; charset=UTF-8", letter.encode(), '"ebXML"')
        return await status(204)(world, posted)

    world.wire.usual[SELLER] = forged
    asking = await buyer.process.ask(buyer.node.ping(ORDERS, 5))
    assert asking.answer is None
