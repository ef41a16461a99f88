"""What an MSH answers to an ebXML message, and what the other reads of it."""

from typing import Any

import pytest

from postroad.msh.answers import Answer
from postroad.msh.ebxml_answers import error_answer, write_signal
from postroad.msh.ebxml_inbound import HEADER
from postroad.msh.ebxml_outbound import hop, via_of
from postroad.msh.ebxml_terms import party_name, reliable
from postroad.msh.lens import Inspection
from postroad.reliability.ebxml import Receiver, Signal, receive
from postroad.reliability.ebxml_terms import agree
from postroad.wire.ebxml import EbxmlMessage
from postroad.wire.errors import EbmsError
from tests.unit.ebxml_world import NOW, SELLER, VERSIONS, World, later

ORDER = b"<order/>"
ANSWER_ID = "answer-1@seller.example"
RELIABLE = {"delivery_semantics": "OnceAndOnlyOnce"}
ASKED = {**RELIABLE, "ack_requested": "UnSigned"}
SIGNED = {**RELIABLE, "ack_requested": "Signed"}
OLDER = ("0.98b", "1.0")
BUYER_URI, SELLER_URI = "http://buyer.example/msh", "http://seller.example/msh"

every_version = pytest.mark.parametrize("version", VERSIONS)


def transmitted(world: World) -> tuple[Inspection, Any]:
    """A message as the seller finds it, and as the buyer packaged it."""
    made = world.package(ORDER)
    envelope = hop(
        made.envelope,
        world.dialect,
        sender_uri=BUYER_URI,
        receiver_uri=SELLER_URI,
        now=NOW,
        via=via_of(world.match.leg),
    )
    found = world.receive(made, envelope)
    assert found.holds, found.problems
    return found, made


def acknowledged(world: World, **given: Any) -> tuple[Answer | None, Any]:
    """The seller's acknowledgment of a message, by way of the machine."""
    found, made = transmitted(world)
    message, terms = found.ebxml, found.ebxml_terms
    assert message is not None
    assert terms is not None
    seller = Receiver(party_name(SELLER), SELLER_URI)
    reception = receive(reliable(message), terms, seller, later(5))
    assert reception.acknowledgment is not None
    references = found.verification.signed_references if found.verification else ()
    answer = write_signal(
        reception.acknowledgment,
        message.dialect,
        message_id=ANSWER_ID,
        now=later(6),
        to=message,
        signing=world.sellers_signing,
        references=references,
        **given,
    )
    return answer, made


def heard(world: World, answer: Answer | None) -> EbxmlMessage:
    """What the buyer reads."""
    assert answer is not None
    found = world.hear(answer)
    assert found.holds, found.problems
    assert found.ebxml is not None
    return found.ebxml


def failure(code: str = "Inconsistent", location: str | None = HEADER) -> EbmsError:
    """Something that is wrong with a message."""
    return EbmsError(code, "what is wrong", location=location)


def about(world: World, *problems: EbmsError, **given: Any) -> Answer | None:
    """The error message about an order."""
    message = world.read(world.package(ORDER))
    return error_answer(
        problems, world.dialect, about=message, message_id=ANSWER_ID, now=NOW, **given
    )


def signal_about(message: EbxmlMessage, *, signed: bool = False, **given: Any) -> Signal:
    """The acknowledgment that the machine asks for."""
    terms = agree({}, {"ackRequested": "Signed" if signed else "Unsigned"}, timestamp=NOW)
    receiver = Receiver(**{"party": party_name(SELLER), **given})
    reception = receive(reliable(message), terms, receiver, NOW)
    assert reception.acknowledgment is not None
    return reception.acknowledgment
