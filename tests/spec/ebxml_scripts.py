"""Scripts of reliable ebXML messaging that the tests of several documents share."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from tests.node.ebxml_letters import RELIABLY, M, header, manifest, order, packed, trace, via
from tests.node.ebxml_letters import envelope as write_envelope
from tests.node.reliable import Answering, Posted, Reply, party
from tests.spec.kit import (
    BUYER,
    CARRIER,
    SELLER,
    Call,
    Ebxml,
    Network,
    Post,
    Recording,
    Restart,
    Script,
    Send,
    Settings,
    Term,
    Wait,
    WireMessage,
    World,
    address,
    lost,
    status,
)

NO_BREAKER: Final[tuple[Term, ...]] = tuple(
    Settings(at, {"send": {"breaker": {"failures": 0}}}) for at in (BUYER, CARRIER)
)
"""A partner that does not answer is tried again, however often it failed."""
ORDER: Final = "eb:Manifest"
ACK: Final = "eb:MessageHeader[eb:Action='Acknowledgment']"
FAILURE: Final = "eb:Error[@eb:errorCode='DeliveryFailure']"
SCHEDULE: Final = [0.0, 5.0, 15.0, 25.0]
"""A timeout of five seconds, then three retries each ten seconds after the one before it."""


def reliable(profile: str, name: str = "orders", **terms: Any) -> Ebxml:
    """A P-Mode of ebXML 0.98b with once-and-only-once delivery."""
    semantics = "OnceAndOnlyOnce"
    return Ebxml(name, version="0.98b", profile=profile, delivery_semantics=semantics, **terms)


def letter(*blocks: str, **named: Any) -> tuple[str, bytes]:
    """An order of the buyer's as its bytes, by nobody's code but the tests'."""
    return packed(order("0.98b", *blocks, **({"inside": RELIABLY} | named)))


def reply(**named: Any) -> tuple[str, bytes]:
    """A reliable message of the seller's application about M."""
    given = {"id": "r@seller.example", "ref": M, "action": "answers", "inside": RELIABLY} | named
    said = header(frm=party(SELLER), to=party(BUYER), **given)
    return packed(write_envelope(said, trace(address(SELLER), address(BUYER)), body=manifest()))


def posted(profile: str, *letters: tuple[str, bytes], **terms: Any) -> Script:
    """Letters to a seller with these terms, one after the other."""
    steps = [step for one in letters for step in (Post(SELLER, *one), Wait(1))]
    taken = Network(BUYER, *[status(204)] * 9)
    return Script((reliable(profile, **terms),), (taken, *steps), nodes=(SELLER,))


@cache
def sent(profile: str, **terms: Any) -> Script:
    """One message from the buyer to the seller."""
    return Script((reliable(profile, **terms),), (Send(M), Wait(1)))


@cache
def unanswered(profile: str, fault: Answering = lost) -> Script:
    """The seller is never reached."""
    steps = (Network(SELLER, *[fault] * 9), Send(M), Wait(200))
    return Script((reliable(profile), *NO_BREAKER), steps)


@cache
def duplicated(profile: str) -> Script:
    """Two messages, and a second copy of the first one."""
    return posted(profile, letter(), letter(id="other@buyer.example"), letter())


@cache
def interrupted(profile: str, *restarted: str) -> Script:
    """The first copy and the first acknowledgment are lost; then nodes are killed and restarted."""
    steps = (
        Network(SELLER, lost),
        Network(BUYER, *[lost] * 4),
        Send(M),
        Wait(2),
        *[Restart(one) for one in restarted],
        Wait(8),
        *[Restart(one) for one in restarted],
        Wait(60),
    )
    return Script((reliable(profile),), steps, store="sqlite")


def relay_terms(profile: str, asked: str = "UnSigned") -> tuple[Term, ...]:
    """Buyer and seller, and a carrier between them."""
    ends = {"ack_requested": asked, "delivery_receipt": "UnSigned"}
    return (
        reliable(profile, at=(BUYER,), url=address(CARRIER), hops=1, **ends),
        reliable(profile, at=(SELLER,), **ends),
        reliable(profile, "there", at=(CARRIER,), relay=True, ack_requested=asked),
        Ebxml("back", at=(CARRIER,), frm=SELLER, to=BUYER, version="0.98b", relay=True),
        *NO_BREAKER,
    )


@cache
def relayed(profile: str, fault: Answering | None = None) -> Script:
    """A message over the carrier, to which the seller answers in this way."""
    faults = [Network(SELLER, *[fault] * 9)] if fault else []
    nodes = (BUYER, CARRIER, SELLER)
    return Script(relay_terms(profile), (*faults, Send(M), Wait(200)), nodes=nodes)


@cache
def carried(profile: str, *blocks: str) -> Script:
    """A message to the carrier that went over another MSH before, and its copy."""
    before = "http://first.example/msh"
    both = trace(address(BUYER), before), trace(before, address(CARRIER))
    hops = both[0].replace("</eb:TraceHeaderList>", both[1].partition(">")[2])
    one = packed(write_envelope(header(inside=RELIABLY), hops, *blocks, body=manifest()))
    taken = Network(BUYER, *[status(204)] * 9)
    steps = (taken, Post(CARRIER, *one), Wait(1), Post(CARRIER, *one), Wait(1))
    return Script(relay_terms(profile), steps, nodes=(CARRIER, SELLER))


async def _answer(world: World) -> None:
    await world.stations[SELLER].answer("r@seller.example", "answers", to=M)


@cache
def replied(profile: str) -> Script:
    """The application's reply is the response, and acknowledges the message."""
    terms = reliable(profile, sync_reply="signalsAndResponse", ack_requested="UnSigned")
    back = Ebxml("answers", frm=SELLER, to=BUYER, version="0.98b")
    return Script((terms, back), (Send(M), Wait(2), Call(_answer), Wait(2)))


@cache
def without_response(profile: str) -> Script:
    """Copies of a message to which no response is stored: one that waits for it, one that not."""
    waits, calls = (via(f' eb:syncReply="{one}"') for one in ("true", "false"))
    terms = reliable(profile, sync_reply="signalsAndResponse")
    impatient = Settings(SELLER, {"http": {"reply_timeout": "PT3S"}})
    taken = Network(BUYER, *[status(204)] * 9)
    copies = (waits, waits, calls)
    steps = [step for one in copies for step in (Post(SELLER, *letter(one)), Wait(1))]
    return Script((terms, impatient), (taken, *steps), nodes=(SELLER,))


@cache
def referred(profile: str) -> Script:
    """An unacknowledged message of the buyer's, and a new one of the seller's that refers to it."""
    terms = reliable(profile), reliable(profile, "answers", frm=SELLER, to=BUYER)
    taken = Network(SELLER, *[status(204)] * 9)
    steps = (taken, Send(M), Wait(1), Post(BUYER, *reply(), sender=SELLER), Wait(30))
    return Script(terms, steps, nodes=(BUYER,))


class Witness:
    """Loses requests, and tells what of the message is stored while they are on the wire."""

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self.stored: list[str | None] = []

    async def __call__(self, world: World, posted: Posted) -> Reply:
        found = await world.stations[self._sender].node.message(M)
        self.stored.append(None if found is None else found.state.value)
        return await lost(world, posted)


def orders(recording: Recording, receiver: str = SELLER) -> list[WireMessage]:
    """The copies of the order that went to a party."""
    return recording.requests(receiver=receiver, containing=ORDER)


def times(messages: Sequence[WireMessage]) -> list[float]:
    return [round(one.at, 1) for one in messages]


def without_hop(message: WireMessage) -> bytes:
    """Return a message without its TraceHeaderList, which belongs to the transmission."""
    before, _, rest = message.body.partition(b"<eb:TraceHeaderList")
    return before + rest.partition(b"</eb:TraceHeaderList>")[2]
