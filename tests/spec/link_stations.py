"""Links of draft 001 between nodes that speak `profile: rm001`, for tests of the draft.

The buyer is the Sender and the seller the Receiver of a link; a carrier is a Router between them.
Where a test plays one end itself, its messages are written by hand.
"""

from typing import Any, Final

from postroad.node.base.requests import Response
from tests.node.ebxml_letters import (
    Said,
    error,
    header,
    listening,
    order,
    packed,
    quality,
    spoiled,
    trace,
)
from tests.node.ebxml_letters import envelope as written
from tests.node.ebxml_stations import EBXML, start
from tests.node.reliable import (
    BUYER,
    SELLER,
    Posted,
    Station,
    World,
    address,
)

RM: Final = "http://www.ebxml.org/namespaces/reliableMessaging"
M: Final = "m@buyer.example"
TIMEOUT: Final = 20
INTERVAL: Final = 7
RETRIES: Final = 3
RETRY: Final[dict[str, Any]] = {
    "max_retries": RETRIES,
    "timeout": f"PT{TIMEOUT}S",
    "period": f"PT{INTERVAL}S",
}
LINKED: Final[dict[str, Any]] = {
    "version": "0.98b",
    "profile": "rm001",
    "delivery_semantics": "OnceAndOnlyOnce",
    "retry": RETRY,
}
UNRELIABLE: Final[dict[str, Any]] = {
    "version": "0.98b",
    "profile": "rm001",
    "delivery_semantics": "BestEffort",
}
LINK: Final = "TraceHeaderList/TraceHeader"
NUMBER: Final = f"{LINK}/SequenceNumber"
SEMANTICS: Final = ("MessageHeader/QualityOfServiceInfo", "deliverySemantics")


def said_in(posted: Posted) -> Said:
    """The envelope of what was posted."""
    body, end = posted.body, b"</SOAP-ENV:Envelope>"
    return Said.read(body[body.index(b"<?xml") : body.index(end) + len(end)])


def numbers(world: World, receiver: str = SELLER) -> list[str | None]:
    """The SequenceNumbers of the messages that were posted to somebody, in that order."""
    found = [said_in(one) for one in world.wire.to(receiver, "eb:Manifest")]
    return [one.find(NUMBER)[-1].text if one.find(NUMBER) else None for one in found]


def message(
    number: int | None = 1, id: str = M, semantics: str = "AtMostOnce", **named: Any
) -> str:
    """A message of the buyer's over its link to the seller, written by hand."""
    letter = order(id=id, inside=quality(semantics), **named)
    if number is None:
        return letter
    element = f'<rm:SequenceNumber xmlns:rm="{RM}">{number}</rm:SequenceNumber></eb:TraceHeader>'
    return spoiled(letter, "</eb:TraceHeader>", element)


def answer(
    ref: str = M,
    kind: str = "Acknowledgement",
    *,
    id: str = "a@seller.example",
    code: str | None = None,
    seconds: int | None = None,
    frm: str = address(SELLER),
    to: str = address(BUYER),
) -> str:
    """An acknowledgement or error of the seller's, written by hand as 2.6.2 has it."""
    said = header(id=id, ref=ref, frm=frm, to=to, inside=quality("Unspecified"))
    first, last = said.index("<eb:Service>"), said.index("</eb:Action>") + len("</eb:Action>")
    typed = f'<rm:MessageType xmlns:rm="{RM}">{kind}</rm:MessageType>'
    blocks = [said[:first] + typed + said[last:], trace(address(SELLER), address(BUYER))]
    if code is not None:
        asked = "" if seconds is None else f' xmlns:rm="{RM}" rm:MinRetrySecs="{seconds}"'
        blocks.append(spoiled(error(code), "<eb:Error ", f"<eb:Error{asked} "))
    return written(*blocks)


async def tell(buyer: Station, letter: str) -> Response:
    """Bring an answer to the buyer."""
    return await buyer.receive(*packed(letter), EBXML)


def agree(world: World, **terms: Any) -> None:
    world.speak(**(LINKED | terms))


async def talking(world: World) -> tuple[Station, Station]:
    """Buyer and seller, both nodes."""
    return await start(world, BUYER), await start(world, SELLER)


async def sender(world: World, **terms: Any) -> Station:
    """A buyer whose partner takes what is posted to it, and answers only by hand."""
    agree(world, **terms)
    return await listening(world, BUYER)


async def receiver(world: World) -> Station:
    """A seller whose partner only takes what is posted to it."""
    agree(world)
    return await listening(world)
