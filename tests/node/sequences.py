"""Orders in sequences of WS-ReliableMessaging, and what of that is seen on the wire."""

from collections.abc import Callable
from typing import Any, Final

from postroad.wire.soap import Envelope, read_envelope
from postroad.wire.wsrm import RmHeaders
from postroad.wire.wsrm_reader import read_rm_headers
from postroad.wire.xml import elements, local, parse
from tests.node.reliable import BUYER, ORDERS, SELLER, Answering, Posted, World, address, passed

RETRY: Final[dict[str, Any]] = {"max_retries": 3, "timeout": "PT5S", "period": "PT10S"}


def agree(
    world: World,
    name: str = ORDERS,
    *,
    pattern: str = "Response",
    in_order: bool = False,
    signed: bool = False,
    retry: dict[str, Any] | None = None,
    acks_to: Any = None,
    soap: str = "1.2",
    receipts: bool = False,
    **more: Any,
) -> None:
    """Orders of the buyer's that go in a sequence."""
    world.agree(name, signed=signed, receipt="callback" if receipts else "response")
    for station in (BUYER, SELLER):
        leg = world._pmodes[station][-1]["legs"][0]
        contract: dict[str, Any] = {"enabled": True}
        if pattern == "Callback" and acks_to is None:
            acks_to = address(BUYER)
        if acks_to is not None:
            contract["acks_to"] = acks_to
        if not receipts:
            leg["security"]["send_receipt"]["enabled"] = False
        leg["protocol"]["soap_version"] = soap
        leg["reliability"] = {
            "protocol": "wsrm",
            "at_least_once": {"contract": contract, "reply_pattern": pattern},
            "at_most_once": True,
            "in_order": in_order,
            "retry": retry or RETRY,
        } | more


def envelope_of(posted: Posted) -> Envelope:
    """The SOAP envelope of a request, alone or in MIME."""
    body = posted.body
    start = body.index(b"<?xml") if b"<?xml" in body else 0
    for name in (b"</S12:Envelope>", b"</S11:Envelope>"):
        end = body.find(name, start)
        if end > 0:
            return read_envelope(parse(body[start : end + len(name)]))
    raise AssertionError("there is no envelope")


def kind_of(posted: Posted) -> str:
    """What a request is: the protocol message in its Body, else message or ack."""
    envelope = envelope_of(posted)
    for one in elements(envelope.body):
        return local(one)
    if any(local(block.element) == "Messaging" for block in envelope.blocks):
        return "message"
    return "ack"


def headers_of(posted: Posted) -> RmHeaders | None:
    return read_rm_headers(envelope_of(posted))[0]


def kinds(world: World, receiver: str = SELLER) -> list[str]:
    return [kind_of(one) for one in world.wire.to(receiver)]


def numbers(world: World) -> list[tuple[str, int]]:
    """The sequences and numbers of the messages that were posted."""
    found = [headers_of(one) for one in world.wire.to(SELLER) if kind_of(one) == "message"]
    return [
        (one.sequence.identifier, one.sequence.message_number)
        for one in found
        if one is not None and one.sequence is not None
    ]


def unless(wanted: Callable[[Posted], bool], otherwise: Answering) -> Answering:
    """Passed on, but for what is wanted."""

    async def answer(world: World, posted: Posted) -> Any:
        return await (otherwise if wanted(posted) else passed)(world, posted)

    return answer
