"""Terms and pieces of ebXML messages that several tests share."""

from typing import Any, Final

from postroad.msh.securing import signing
from postroad.security.ebxml_signature import sign_ebxml
from postroad.wire.ebxml import MS098
from postroad.wire.ebxml_hops import insert_signature
from tests.node.ebxml_letters import (
    quality,
    spoiled,
    trace,
)
from tests.node.reliable import (
    BUYER,
    CARRIER,
    Station,
    World,
    address,
)

EBXML: Final = '"ebXML"'
RELIABLE: Final[dict[str, Any]] = {"version": "0.98b", "delivery_semantics": "OnceAndOnlyOnce"}
BY_BUYER: Final = {
    "x509": {
        "sign": True,
        "signature": {"certificate": "../keys/buyer.pem", "algorithm": "rsa-sha256"},
    }
}
"""Whoever sends has the buyer's key: there are but two in these worlds."""


def by_key_of_the_buyer(buyer: Station, pmode: str, letter: str) -> bytes:
    """A letter with the signature that a P-Mode asks for."""
    in_force = buyer.node.context.in_force
    match = in_force.match(pmode, 1)
    assert match is not None
    how = signing(match.leg, in_force.keyring.signing)
    assert how is not None
    signature, _ = sign_ebxml(letter.encode(), MS098, (), how)
    return insert_signature(letter.encode(), signature)


def linked(number: int) -> str:
    """The TraceHeaderList of a message over a link to the carrier."""
    said = '<r:SequenceNumber xmlns:r="http://www.ebxml.org/namespaces/reliableMessaging">'
    said += f"{number}</r:SequenceNumber></eb:TraceHeader>"
    return spoiled(trace(address(BUYER), address(CARRIER)), "</eb:TraceHeader>", said)


def in_order(number: int) -> str:
    """What the header of a message says that has this number in its conversation."""
    how = "Continue" if number else "Reset"
    said = f'<eb:SequenceNumber eb:status="{how}">{number}</eb:SequenceNumber>'
    return quality("OnceAndOnlyOnce", "Guaranteed") + said


async def start(world: World, name: str) -> Station:
    station = await world.start(name)
    station.node.context.msh_url = address(name)
    return station
