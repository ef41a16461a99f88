"""WS-Reliability 1.1 between two nodes: acknowledgments by each way, copies, expiry, faults."""

from typing import Any

import pytest

from postroad.store.records import State
from postroad.wire.wsreliability import FaultCode, ReplyPattern, WsrHeaders, read_wsr_headers
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    STORES,
    Posted,
    World,
    address,
    lost,
    played,
    reply_lost,
)
from tests.node.sequences import RETRY, envelope_of

M, N = "m@buyer", "n@buyer"


def agree(world: World, *, pattern: str = "Response", signed: bool = False, **more: Any) -> None:
    """Orders of the buyer's that are sent with WS-Reliability."""
    world.agree(ORDERS, signed=signed)
    for station in (BUYER, SELLER):
        leg = world._pmodes[station][-1]["legs"][0]
        leg["security"]["send_receipt"]["enabled"] = False
        leg["protocol"]["soap_version"] = more.get("soap", "1.2")
        contract: dict[str, Any] = {"enabled": True}
        if pattern == "Callback":
            contract["acks_to"] = address(BUYER)
        leg["reliability"] = {
            "protocol": "ws-reliability",
            "at_least_once": {"contract": contract, "reply_pattern": pattern},
            "at_most_once": True,
            "retry": more.get("retry", RETRY),
        }


def headers_of(posted: Posted) -> WsrHeaders:
    found, broken = read_wsr_headers(envelope_of(posted))
    assert found is not None, broken
    return found


def faults(body: bytes) -> list[FaultCode | None]:
    found = headers_of(Posted(0.0, SELLER, BUYER, "application/soap+xml", body))
    return [one.fault for one in found.response]


@pytest.mark.parametrize("kept_in", STORES)
@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("pattern", ["Response", "Callback", "Poll"])
@pytest.mark.req("P2-6.6.1-02")
@played
async def test_a_message_is_acknowledged_by_its_group(
    world: World, kept_in: str, soap: str, signed: bool, pattern: str
) -> None:
    world.kept_in = kept_in
    agree(world, signed=signed, pattern=pattern, soap=soap)
    buyer, seller = await world.both()
    await buyer.send(M)
    await buyer.send(N)
    await world.wait(1)
    assert [await buyer.state(one) for one in (M, N)] == [State.ACKNOWLEDGED] * 2
    assert await seller.inbox() == [M, N]
    request = headers_of(world.wire.to(SELLER)[0]).request
    assert request is not None
    assert request.group_id == f"mid:{M}"
    assert request.reply_pattern is ReplyPattern(pattern)
    assert request.ack_requested
    assert request.duplicate_elimination
    assert await buyer.story(M) == ["submitted", "sent", "ack_received"]
    polls = [one for one in world.wire.to(SELLER) if headers_of(one).poll_request is not None]
    assert bool(polls) == (pattern == "Poll")
    assert bool(world.wire.to(BUYER)) == (pattern == "Callback")


@pytest.mark.parametrize("pattern", ["Response", "Poll"])
@played
async def test_a_copy_is_dropped_and_acknowledged_again(world: World, pattern: str) -> None:
    agree(world, pattern=pattern)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = reply_lost
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.WAITING
    world.wire.usual.clear()
    await world.wait(30)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]
    assert "duplicate" in await seller.story(M)
    sent = [one.body for one in world.wire.to(SELLER) if headers_of(one).request is not None]
    assert len(set(sent)) == 1


@played
async def test_a_message_that_nobody_acknowledges_is_in_doubt(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = reply_lost
    await buyer.send(M)
    await world.wait(120)
    assert await buyer.state(M) is State.IN_DOUBT
    assert await seller.inbox() == [M]


async def _recorded(world: World) -> Posted:
    """A message as it left, which nobody got."""
    world.wire.usual[SELLER] = lost
    await world.stations[BUYER].send(M)
    await world.wait(1)
    world.wire.usual.clear()
    return world.wire.to(SELLER)[0]


@played
async def test_a_message_that_expired_is_not_delivered(world: World) -> None:
    agree(world)
    _, seller = await world.both()
    recorded = await _recorded(world)
    world.stations[BUYER].kill()
    await world.wait(3600)
    answer = await seller.receive(recorded.content_type, recorded.body)
    assert faults(answer.body) == [FaultCode.INVALID_EXPIRY_TIME]
    assert await seller.inbox() == []


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (b"<wsr:AckRequested></wsr:AckRequested>", b"", FaultCode.INVALID_MESSAGE_PARAMETERS),
        (b">Response</wsr:Value>", b">Poll</wsr:Value>", FaultCode.INVALID_REPLY_PATTERN),
        (b">Response</wsr:Value>", b">Pigeon</wsr:Value>", FaultCode.INVALID_REPLY_PATTERN),
        (b"<wsr:ExpiryTime>2", b"<wsr:ExpiryTime>x2", FaultCode.INVALID_EXPIRY_TIME),
        (
            b"></wsr:MessageId>",
            b'><wsr:SequenceNum number="minus"></wsr:SequenceNum></wsr:MessageId>',
            FaultCode.INVALID_MESSAGE_ID,
        ),
    ],
)
@played
async def test_what_is_wrong_with_a_request_is_a_fault_of_the_protocol(
    world: World, before: bytes, after: bytes, fault: FaultCode
) -> None:
    agree(world)
    _, seller = await world.both()
    recorded = await _recorded(world)
    assert before in recorded.body
    body = recorded.body.replace(before, after)
    answer = await seller.receive(recorded.content_type, body)
    assert faults(answer.body) == [fault]
    assert await seller.inbox() == []


@played
async def test_order_is_not_promised(world: World) -> None:
    agree(world)
    _, seller = await world.both()
    recorded = await _recorded(world)
    body = recorded.body.replace(
        b"></wsr:MessageId>", b'><wsr:SequenceNum number="0"></wsr:SequenceNum></wsr:MessageId>'
    ).replace(
        b"</wsr:DuplicateElimination>",
        b"</wsr:DuplicateElimination><wsr:MessageOrder></wsr:MessageOrder>",
    )
    answer = await seller.receive(recorded.content_type, body)
    assert faults(answer.body) == [FaultCode.FEATURE_NOT_SUPPORTED]


@played
async def test_an_identity_is_for_one_message(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(1)
    first = world.wire.to(SELLER)[0]
    other = first.body.replace(f">{M}<".encode(), f">{N}<".encode())
    assert other != first.body
    answer = await seller.receive(first.content_type, other)
    assert faults(answer.body) == [FaultCode.INVALID_MESSAGE_ID]
    assert await seller.inbox() == [M]


@pytest.mark.parametrize("fault", ["", ' fault="wsr:PermanentProcessingFailure"'])
@pytest.mark.parametrize(
    ("pattern", "signed"), [("Callback", True), ("Response", True), ("Response", False)]
)
@played
async def test_an_unsigned_reply_is_believed_only_on_the_agreed_way(
    world: World, pattern: str, signed: bool, fault: str
) -> None:
    agree(world, pattern=pattern, signed=signed)
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = world.wire.usual[BUYER] = lost
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.WAITING
    forged = (
        '<S12:Envelope xmlns:S12="http://www.w3.org/2003/05/soap-envelope"><S12:Header>'
        '<wsr:Response xmlns:wsr="http://docs.oasis-open.org/wsrm/2004/06/ws-reliability-1.1.xsd">'
        f'<wsr:NonSequenceReply groupId="mid:{M}"{fault}/></wsr:Response></S12:Header>'
        "<S12:Body/></S12:Envelope>"
    )
    await buyer.receive("application/soap+xml", forged.encode())
    assert await buyer.state(M) is State.WAITING


@played
async def test_a_message_without_its_header_is_refused(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    del world._pmodes[BUYER][-1]["legs"][0]["reliability"]
    buyer = await world.start_again(BUYER)
    await buyer.send(M)
    await world.wait(1)
    assert await buyer.state(M) is State.FAILED
    assert await seller.inbox() == []
