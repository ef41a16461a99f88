"""WS-ReliableMessaging from strangers: nobody ends, fills or acknowledges what is not his."""

from typing import Any

import pytest

from postroad.msh.wsrm import write_message, write_rm_fault
from postroad.node.base.requests import Response
from postroad.node.steps.wsrm_states import MOST_UNUSED, destination_of
from postroad.store.interface import Reader
from postroad.store.records import State
from postroad.wire.soap import SoapVersion, read_envelope
from postroad.wire.wsa import ANONYMOUS, EndpointReference
from postroad.wire.wsrm import (
    Assurance,
    CloseSequence,
    CreateSequence,
    CreateSequenceResponse,
    Lifecycle,
    SequenceAcknowledgement,
    TerminateSequence,
)
from postroad.wire.wsrm_faults import Code, RmFault, read_rm_fault
from postroad.wire.wsrm_reader import read_lifecycle
from postroad.wire.xml import parse
from tests.node.reliable import (
    BEGIN,
    BUYER,
    ORDERS,
    SELLER,
    SOAP,
    Station,
    World,
    lost,
    played,
    refused,
    reply_lost,
)
from tests.node.sequences import agree, kind_of, kinds, numbers, unless

M, N = "m@buyer", "n@buyer"
BACK = EndpointReference(ANONYMOUS)


async def tell(
    station: Station, body: Lifecycle | None, *acks: SequenceAcknowledgement
) -> Response:
    """What a stranger says, who signs nothing."""
    written = write_message(
        body, SoapVersion.SOAP_12, message_id="x@stranger", now=BEGIN, how=None, acks=acks
    )
    return await station.receive(SOAP, written.envelope)


def fault_of(response: Response) -> RmFault:
    found = read_rm_fault(read_envelope(parse(response.body)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("asked", "signed", "said"),
    [
        (CreateSequence(BACK), True, "not signed"),
        (CreateSequence(EndpointReference("http://victim.example/")), False, "AcksTo"),
        (CreateSequence(BACK, assurance=Assurance(True, True, True)), False, "order"),
    ],
)
@played
async def test_a_sequence_is_made_only_as_agreed_on(
    world: World, asked: CreateSequence, signed: bool, said: str
) -> None:
    agree(world, signed=signed)
    _, seller = await world.both()
    fault = fault_of(await tell(seller, asked))
    assert fault.code is Code.CREATE_SEQUENCE_REFUSED
    assert said in fault.reason
    [event] = await seller.journal("error_raised")
    assert event.error_code == "EBMS:0201"


@played
async def test_where_no_pmode_has_sequences_none_is_made(world: World) -> None:
    world.agree()
    _, seller = await world.both()
    fault = fault_of(await tell(seller, CreateSequence(BACK)))
    assert "no P-Mode" in fault.reason


@pytest.mark.parametrize("end", [CloseSequence, TerminateSequence])
@played
async def test_nobody_ends_the_sequence_of_somebody_else(world: World, end: Any) -> None:
    agree(world, signed=True)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    [(identifier, _)] = numbers(world)
    assert fault_of(await tell(seller, end(identifier))).code is Code.UNKNOWN_SEQUENCE
    await buyer.send(N)
    await world.wait(1)
    assert await buyer.state(N) is State.ACKNOWLEDGED
    assert kinds(world).count("CreateSequence") == 1


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "in the response"])
@played
async def test_what_nobody_signed_is_believed_only_on_the_agreed_way(
    world: World, signed: bool
) -> None:
    agree(world, signed=signed)
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = unless(lambda one: kind_of(one) == "message", lost)
    await buyer.send(M)
    await world.wait(1)
    [(identifier, _)] = numbers(world)
    response = await tell(buyer, None, SequenceAcknowledgement(identifier, ((1, 1),)))
    assert response.status == 202
    assert await buyer.state(M) is State.WAITING
    assert "not believed" in (await buyer.journal("error_raised"))[-1].detail
    gone = RmFault(Code.SEQUENCE_TERMINATED, "no more of this", identifier)
    fault = write_rm_fault(gone, SoapVersion.SOAP_12, message_id="f@stranger", now=BEGIN)
    assert (await buyer.receive(SOAP, fault.envelope)).status == 202
    assert len(await buyer.journal("error_raised")) == 2
    del world.wire.usual[SELLER]
    await world.wait(20)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert kinds(world).count("CreateSequence") == 1, "its sequence is not given up"


@played
async def test_message_in_a_sequence_is_taken_although_a_stranger_used_its_id(
    world: World,
) -> None:
    world.agree("open", action="open")
    agree(world, signed=True)
    buyer, seller = await world.both()
    await buyer.send(M, "open")
    await world.wait(1)
    await buyer.stop()
    world._memories.pop(BUYER)
    buyer = await world.start(BUYER)
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    received = await seller.node.received(M)
    assert [(one.pmode, one.state) for one in received] == [
        ("open", State.DELIVERED),
        (ORDERS, State.DELIVERED),
    ]
    story = await seller.story(M)
    assert story[:3] == ["received", "delivered", "receipt_sent"]
    assert story[3:] == ["received", "delivered", "acked"]


@played
async def test_an_acknowledgement_of_what_was_never_sent_is_told_and_ignored(world: World) -> None:
    agree(world, pattern="Callback")
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = unless(lambda one: kind_of(one) == "message", lost)
    await buyer.send(M)
    await world.wait(1)
    [(identifier, _)] = numbers(world)
    await tell(buyer, None, SequenceAcknowledgement(identifier, ((1, 7),)))
    assert await buyer.state(M) is State.WAITING
    assert "InvalidAcknowledgement" in (await buyer.journal("error_raised"))[-1].detail
    await tell(buyer, None, SequenceAcknowledgement("urn:other", ((1, 1),)))
    assert await buyer.state(M) is State.WAITING


@played
async def test_a_message_outside_of_a_sequence_is_refused(world: World) -> None:
    agree(world)
    world.agree("plain")
    buyer, seller = await world.both()
    await buyer.send(N, "plain")
    await world.wait(1)
    body = world.wire.to(SELLER, N)[0]
    await seller.stop()
    assert await buyer.state(N) is State.ACKNOWLEDGED
    # The same message, once its P-Mode asks for a sequence.
    world._pmodes[SELLER][:] = [world._pmodes[SELLER][0] | {"id": "plain"}]
    world._pmodes[SELLER][0]["legs"][0]["business_info"]["action"] = "plain"
    world._memories.pop(SELLER)
    seller = await world.start(SELLER)
    response = await seller.receive(body.content_type, body.body)
    assert b"WSRMRequired" in response.body
    assert await seller.inbox() == []


@played
async def test_a_sequence_where_none_is_agreed_on_is_refused(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    [posted] = world.wire.to(SELLER, M)
    await seller.stop()
    del world._pmodes[SELLER][0]["legs"][0]["reliability"]
    world._memories.pop(SELLER)
    seller = await world.start(SELLER)
    response = await seller.receive(posted.content_type, posted.body)
    assert b"EBMS:0010" in response.body
    assert await seller.inbox() == []


@played
async def test_a_message_of_an_unknown_sequence_is_not_taken(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    [posted] = world.wire.to(SELLER, M)
    changed = posted.body.replace(numbers(world)[0][0].encode(), b"urn:other")
    response = await seller.receive(posted.content_type, changed.replace(M.encode(), b"o@buyer"))
    assert fault_of(response).code is Code.UNKNOWN_SEQUENCE
    assert await seller.inbox() == [M]


@pytest.mark.parametrize("end", [CloseSequence, TerminateSequence])
@played
async def test_a_request_about_an_unknown_sequence_is_counted(world: World, end: Any) -> None:
    agree(world)
    seller = await world.start(SELLER)
    for _ in range(3):
        told = await tell(seller, end("urn:uuid:nobody-made-it"))
        assert fault_of(told).code is Code.UNKNOWN_SEQUENCE
    counters = seller.node.context.counters
    assert counters['postroad_unproven_refusals_total{reason="EBMS:0201"}'] == 3


@played
async def test_a_closed_sequence_says_what_came(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    [(identifier, _)] = numbers(world)
    closed = await tell(seller, CloseSequence(identifier, 1))
    assert b"Final" in closed.body
    await buyer.send(N)
    await world.wait(20)
    assert await buyer.state(N) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M, N]
    assert kinds(world).count("CreateSequence") == 2


@played
async def test_nonsense_of_the_protocol_is_answered_by_a_fault(world: World) -> None:
    agree(world)
    _, seller = await world.both()
    body = (
        b'<S:Envelope xmlns:S="http://www.w3.org/2003/05/soap-envelope"><S:Body>'
        b'<r:CreateSequence xmlns:r="http://docs.oasis-open.org/ws-rx/wsrm/200702"/>'
        b"</S:Body></S:Envelope>"
    )
    response = await seller.receive(SOAP, body)
    assert response.status == 400
    assert b"AcksTo is missing" in response.body
    older = body.replace(
        b"http://docs.oasis-open.org/ws-rx/wsrm/200702", b"http://schemas.xmlsoap.org/ws/2005/02/rm"
    )
    assert b"1.1 and 1.2 are spoken here" in (await seller.receive(SOAP, older)).body


@played
async def test_an_answer_that_nobody_asked_for_is_only_noted(world: World) -> None:
    agree(world)
    buyer, _ = await world.both()
    response = await tell(buyer, CreateSequenceResponse("urn:s"))
    assert response.status == 202
    assert "nobody asked for" in (await buyer.journal("error_raised"))[-1].detail


@played
async def test_a_refused_sequence_fails_the_message_with_the_reason(world: World) -> None:
    agree(world)
    world._pmodes[SELLER][0]["legs"][0]["reliability"]["in_order"] = True
    buyer, _ = await world.both()
    await buyer.send(M)
    await world.wait(1)
    message = await buyer.message(M)
    assert message.state is State.FAILED
    assert message.error_code == "EBMS:0201"
    assert "order" in (message.detail or "")


@played
async def test_a_sequence_whose_answer_is_lost_is_asked_for_again(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    world.wire.will(reply_lost, refused)
    await buyer.send(M)
    await world.wait(30)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_what_waits_is_freed_by_an_operator(world: World) -> None:
    agree(world, in_order=True)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = unless(lambda one: M.encode() in one.body, lost)
    await buyer.send(M)
    await buyer.send(N)
    await world.wait(1)
    assert await seller.state(N) is State.HELD
    await seller.process.ask(seller.node.release(N))
    assert await seller.inbox() == [N]
    world.wire.usual.clear()
    await world.wait(6)
    assert await seller.inbox() == [N, M]
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_sequences_that_nobody_uses_are_bounded(world: World) -> None:
    """Where nothing is signed anybody can ask for them; one that is in use stays."""
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    made = [created_by(await tell(seller, CreateSequence(BACK))) for _ in range(MOST_UNUSED + 20)]
    store = seller.node.context.store

    def known(reader: Reader) -> list[bool]:
        return [destination_of(reader, one, BEGIN) is not None for one in made]

    assert await store.look(known) == [False] * 20 + [True] * MOST_UNUSED
    await buyer.send(N)
    await world.wait(1)
    assert await seller.inbox() == [M, N]
    assert kinds(world).count("CreateSequence") == 1


def created_by(response: Response) -> str:
    body, _ = read_lifecycle(read_envelope(parse(response.body)))
    assert isinstance(body, CreateSequenceResponse)
    return body.identifier
