"""What the WS-I Reliable Secure Profile 1.0 asks of both ends of a sequence.

Each test is one point of it, held against what is seen on the wire.
"""

from collections import defaultdict
from typing import Any

import pytest

from postroad.store.records import State
from postroad.wire.names import DS, ONE_WAY, WSA, WSRM, WSU
from postroad.wire.soap import Envelope, SoapVersion, read_envelope
from postroad.wire.wsa import ANONYMOUS, read_addressing
from postroad.wire.wsrm import (
    CloseSequence,
    CreateSequence,
    CreateSequenceResponse,
    TerminateSequence,
)
from postroad.wire.wsrm_faults import FAULT_ACTION, Code, read_rm_fault
from postroad.wire.wsrm_reader import read_lifecycle, read_rm_headers
from postroad.wire.xml import namespace, parse
from tests.node.reliable import (
    BUYER,
    SELLER,
    Posted,
    World,
    address,
    passed,
    played,
    reply_lost,
)
from tests.node.sequences import agree, envelope_of, headers_of, kind_of, numbers, unless

M, N = "m@buyer", "n@buyer"


class Heard:
    """What is posted to the seller, and each answer with it."""

    def __init__(self, world: World) -> None:
        self.both: list[tuple[Posted, Envelope]] = []
        world.wire.usual[SELLER] = self

    async def __call__(self, world: World, posted: Posted) -> Any:
        reply = await passed(world, posted)
        if reply.body:
            self.both.append((posted, read_envelope(parse(reply.body))))
        return reply


async def _life(world: World, **how: Any) -> Heard:
    """A sequence from its beginning to its end, with two messages."""
    agree(world, in_order=True, max_idle="PT1M", **how)
    buyer, _ = await world.both()
    heard = Heard(world)
    for one in (M, N):
        await buyer.send(one)
    await world.wait(200)
    assert [await buyer.state(one) for one in (M, N)] == [State.ACKNOWLEDGED] * 2
    kinds = [kind_of(posted) for posted, _ in heard.both]
    assert kinds == ["CreateSequence", "message", "message", "CloseSequence", "TerminateSequence"]
    return heard


def _said(envelope: Envelope) -> Any:
    found, _ = read_addressing(envelope)
    assert found is not None
    return found


@pytest.mark.parametrize("soap", SoapVersion)
@played
async def test_all_messages_of_a_sequence_and_all_answers_have_one_soap_version(
    world: World, soap: SoapVersion
) -> None:
    for posted, answer in (await _life(world, soap=soap.number)).both:
        assert envelope_of(posted).version is soap
        assert answer.version is soap


@played
async def test_each_message_about_a_sequence_says_what_it_is_and_is_answered_as_such(
    world: World,
) -> None:
    names = set()
    for posted, answer in (await _life(world)).both:
        kind, said = kind_of(posted), _said(answer)
        names.add(said.message_id)
        if kind == "message":
            assert said.action == f"{WSRM}/SequenceAcknowledgement"
            continue
        asked = _said(envelope_of(posted))
        names.add(asked.message_id)
        assert asked.action == f"{WSRM}/{kind}"
        assert said.action == f"{WSRM}/{kind}Response"
        assert [one.uri for one in said.relates_to] == [asked.message_id]
    assert len(names) == 8


@played
async def test_a_message_in_a_sequence_is_addressed_and_its_acknowledgement_relates_to_it(
    world: World,
) -> None:
    messages = [both for both in (await _life(world)).both if kind_of(both[0]) == "message"]
    for (posted, answer), message_id in zip(messages, (M, N), strict=True):
        asked = _said(envelope_of(posted))
        assert asked.to == address(SELLER)
        assert asked.action == ONE_WAY
        assert asked.message_id == f"mid:{message_id}"
        assert [one.uri for one in _said(answer).relates_to] == [asked.message_id]


@played
async def test_a_message_id_that_is_no_uri_is_escaped_in_its_addressing(world: World) -> None:
    agree(world)
    buyer, _ = await world.both()
    await buyer.send("a|b%c`{d}@buyer")
    await world.wait(1)
    [posted] = world.wire.to(SELLER, "a|b%c`{d}@buyer")
    assert _said(envelope_of(posted)).message_id == "mid:a%7Cb%25c%60%7Bd%7D@buyer"


@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@played
async def test_headers_of_reliability_and_addressing_are_signed_together_with_the_body(
    world: World, soap: str
) -> None:
    heard = await _life(world, signed=True, soap=soap)
    for envelope in [one for posted, answer in heard.both for one in (envelope_of(posted), answer)]:
        [signature] = envelope.root.iter(f"{{{DS}}}Signature")
        signed = {one.get("URI", "") for one in signature.iter(f"{{{DS}}}Reference")}
        bound = [
            block.element for block in envelope.blocks if namespace(block.element) in (WSA, WSRM)
        ]
        assert bound
        for element in (*bound, envelope.body):
            assert f"#{element.get(f'{{{WSU}}}Id')}" in signed


@pytest.mark.parametrize("header", ["AckRequested", "SequenceAcknowledgement"])
@played
async def test_a_header_of_reliability_that_nobody_signed_is_not_taken(
    world: World, header: str
) -> None:
    agree(world, signed=True)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = unless(lambda one: kind_of(one) == "message", reply_lost)
    await buyer.send(M)
    await world.wait(1)
    [posted] = world.wire.to(SELLER, M)
    [(identifier, _)] = numbers(world)
    inner = f"<r:Identifier>{identifier}</r:Identifier>"
    if header == "SequenceAcknowledgement":
        inner += "<r:None/>"
    block = f'<r:{header} xmlns:r="{WSRM}">{inner}</r:{header}>'.encode()
    forged = posted.body.replace(b"</S12:Header>", block + b"</S12:Header>")
    response = await seller.receive(posted.content_type, forged)
    assert b"EBMS:0103" in response.body or b"EBMS:0101" in response.body


@played
async def test_the_end_of_a_sequence_says_its_last_number(world: World) -> None:
    ends = {}
    for posted, _ in (await _life(world)).both:
        body, _ = read_lifecycle(envelope_of(posted))
        if isinstance(body, CloseSequence | TerminateSequence):
            ends[type(body)] = body.last
    assert ends == {CloseSequence: 2, TerminateSequence: 2}


@played
async def test_the_final_acknowledgement_comes_with_the_answer_to_the_end(world: World) -> None:
    finals = {}
    for posted, answer in (await _life(world)).both:
        headers, _ = read_rm_headers(answer)
        for ack in headers.acknowledgements if headers is not None else ():
            finals[kind_of(posted)] = (ack.ranges, ack.final)
    assert finals == {
        "message": (((1, 2),), False),
        "CloseSequence": (((1, 2),), True),
        "TerminateSequence": (((1, 2),), True),
    }


@pytest.mark.parametrize("signed", [False, True])
@played
async def test_what_is_sent_again_is_the_same_byte_for_byte(world: World, signed: bool) -> None:
    agree(world, signed=signed)
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = unless(lambda one: kind_of(one) == "message", reply_lost)
    await buyer.send(M)
    await world.wait(40)
    copies = world.wire.to(SELLER, M)
    assert len(copies) > 1
    assert len({one.body for one in copies}) == 1


@played
async def test_every_message_asks_for_an_acknowledgement_of_its_own_sequence(world: World) -> None:
    for posted, _ in (await _life(world)).both:
        headers = headers_of(posted)
        if headers is not None and headers.sequence is not None:
            assert headers.ack_requested == (headers.sequence.identifier,)


@played
async def test_an_anonymous_acks_to_means_the_response_and_another_one_never_does(
    world: World,
) -> None:
    agree(world)
    agree(world, "called", pattern="Callback")
    buyer, _ = await world.both()
    heard = Heard(world)
    await buyer.send(M)
    await buyer.send(N, "called")
    await world.wait(5)
    answers = defaultdict(list)
    for posted, answer in heard.both:
        answers[kind_of(posted)].append((posted, answer))
    made = [read_lifecycle(envelope_of(posted))[0] for posted, _ in answers["CreateSequence"]]
    places = [one.acks_to.address for one in made if isinstance(one, CreateSequence)]
    assert sorted(places) == sorted((ANONYMOUS, address(BUYER)))
    assert [M.encode() in posted.body for posted, _ in answers["message"]] == [True]
    [back] = world.wire.to(BUYER)
    assert _said(envelope_of(back)).to == address(BUYER)


@played
async def test_each_create_sequence_makes_a_sequence_of_its_own(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    heard = Heard(world)
    await buyer.send(M)
    await world.wait(1)
    [asked] = [one for one in world.wire.to(SELLER) if kind_of(one) == "CreateSequence"]
    again = await seller.receive(asked.content_type, asked.body)
    answers = (heard.both[0][1], read_envelope(parse(again.body)))
    bodies = [read_lifecycle(one)[0] for one in answers]
    names = {one.identifier for one in bodies if isinstance(one, CreateSequenceResponse)}
    assert len(names) == 2
    assert all(one.startswith("urn:uuid:") for one in names)


@pytest.mark.parametrize(("soap", "status"), [("1.1", 500), ("1.2", 400)])
@played
async def test_a_fault_has_its_code_its_action_and_the_sequence_that_it_is_about(
    world: World, soap: str, status: int
) -> None:
    agree(world, soap=soap)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    [posted] = world.wire.to(SELLER, M)
    [(identifier, _)] = numbers(world)
    forged = posted.body.replace(identifier.encode(), b"urn:uuid:another")
    response = await seller.receive(posted.content_type, forged.replace(M.encode(), N.encode()))
    assert response.status == status
    envelope = read_envelope(parse(response.body))
    fault = read_rm_fault(envelope)
    assert fault is not None
    assert (fault.code, fault.identifier) == (Code.UNKNOWN_SEQUENCE, "urn:uuid:another")
    assert _said(envelope).action == FAULT_ACTION


@pytest.mark.parametrize(
    "inner",
    [
        '<r:AcknowledgementRange Lower="1" Upper="1"/><r:Nack>2</r:Nack>',
        "<r:None/><r:Nack>1</r:Nack>",
        "<r:Nack>1</r:Nack><r:Final/>",
        '<r:AcknowledgementRange Lower="2" Upper="1"/>',
        "",
    ],
)
def test_an_acknowledgement_says_what_came_or_what_is_missing_and_not_both(inner: str) -> None:
    said = f"<r:Identifier>urn:s</r:Identifier>{inner}"
    ack = f'<r:SequenceAcknowledgement xmlns:r="{WSRM}">{said}</r:SequenceAcknowledgement>'
    soap = SoapVersion.SOAP_12.namespace
    text = f'<S:Envelope xmlns:S="{soap}"><S:Header>{ack}</S:Header><S:Body/></S:Envelope>'
    headers, problems = read_rm_headers(read_envelope(parse(text.encode())))
    assert headers is None
    assert [one.code for one in problems] == ["EBMS:0201"]
