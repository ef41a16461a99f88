"""Rules that only 2.0 or only the link discipline of draft 001 has, broken once each."""

from typing import Any, Final

import pytest

from tests.node.ebxml_letters import (
    HEADER,
    NEXT,
    RELIABLY,
    SERVICES,
    TOP,
    M,
    Said,
    block,
    case,
    hand,
    listening,
    order,
    pointer,
    reliable_terms,
    spoiled,
)
from tests.node.reliable import BUYER, CPA, SELLER, World, address, played

ONCE: Final = "<eb:DuplicateElimination/>"
ACK: Final = block("AckRequested", "", "2.0", ' eb:signed="false"')
SYNC: Final = block("SyncReply", "", "2.0", f' SOAP-ENV:actor="{NEXT}"')


def ordered(number: Any = 0, word: str = "Reset") -> str:
    return block(
        "MessageOrder",
        f'<eb:SequenceNumber eb:status="{word}">{number}</eb:SequenceNumber>',
        "2.0",
    )


def newer(*blocks: str, inside: str = ONCE, **named: Any) -> str:
    return order("2.0", *blocks, inside=inside, **named)


NEWER: Final = [
    case(
        "MessageOrder without DuplicateElimination",
        newer(ACK, ordered(), inside=""),
        "Inconsistent",
        f"{TOP}/eb:MessageOrder",
    ),
    case(
        "MessageOrder with SyncReply",
        newer(SYNC, ordered(), ACK),
        "Inconsistent",
        f"{TOP}/eb:MessageOrder",
    ),
    case(
        "MessageOrder without SequenceNumber",
        newer(block("MessageOrder", "", "2.0"), ACK),
        "OtherXml",
        f"{TOP}/eb:MessageOrder",
    ),
    case(
        "unknown status of a SequenceNumber",
        newer(ordered(0, "Again"), ACK),
        "ValueNotRecognized",
        f"{TOP}/eb:MessageOrder/eb:SequenceNumber/@eb:status",
    ),
    case(
        "AckRequested without signed",
        newer(block("AckRequested", "", "2.0")),
        "OtherXml",
        f"{TOP}/eb:AckRequested",
    ),
    case(
        "AckRequested that is perhaps signed",
        newer(spoiled(ACK, "false", "perhaps")),
        "ValueNotRecognized",
        f"{TOP}/eb:AckRequested/@eb:signed",
    ),
    case(
        "AckRequested for an unknown actor",
        newer(spoiled(ACK, ' eb:signed="false"', ' eb:signed="false" SOAP-ENV:actor="urn:x"')),
        "OtherXml",
        f"{TOP}/eb:AckRequested/@SOAP-ENV:actor",
    ),
    case(
        "a signed acknowledgment without a key",
        newer(spoiled(ACK, "false", "true")),
        "NotSupported",
        HEADER,
    ),
    case(
        "SyncReply without actor",
        newer(block("SyncReply", "", "2.0"), ACK),
        "OtherXml",
        f"{TOP}/eb:SyncReply",
    ),
    case(
        "DuplicateElimination against the CPA",
        newer(action="besteffort"),
        "Inconsistent",
        HEADER,
    ),
    case(
        "a Role that is empty",
        spoiled(newer(ACK), "</eb:PartyId></eb:From>", "</eb:PartyId><eb:Role/></eb:From>"),
        "OtherXml",
        f"{HEADER}/eb:From/eb:Role",
    ),
    case(
        "QualityOfServiceInfo, which is of older versions",
        newer(ACK, inside=ONCE + RELIABLY),
        "OtherXml",
        f"{HEADER}/eb:QualityOfServiceInfo",
    ),
]


@pytest.mark.parametrize(("letter", "code", "place"), NEWER)
@played
async def test_a_broken_rule_of_2_0_is_reported_where_the_cpa_says(
    world: World, letter: str, code: str, place: str
) -> None:
    to = {"receiver_errors_to": address(BUYER)}
    world.speak(report=to, **reliable_terms("2.0"))
    world.speak("besteffort", report=to, version="2.0", delivery_semantics="BestEffort")
    outcome = await hand(world, await listening(world), letter)
    assert outcome.said.errors[0] == (code, "Error", pointer(place))
    assert outcome.said.service == (SERVICES["2.0"], "MessageError")
    assert outcome.said.data("RefToMessageId") == M
    assert outcome.delivered == []
    if "<eb:SyncReply" in letter:
        assert outcome.posted == []
    else:
        assert [one.receiver for one in outcome.posted] == [BUYER]


LINK: Final = "http://www.ebxml.org/namespaces/reliableMessaging"


def linked(number: object, name: str, more: str = "") -> str:
    """A message with a number of draft 001."""
    letter = order(id=f"{name}@buyer.example", inside=RELIABLY)
    known = f'<rm:SequenceNumber xmlns:rm="{LINK}"{more}>{number}</rm:SequenceNumber>'
    return spoiled(letter, "</eb:TraceHeader>", f"{known}</eb:TraceHeader>")


async def brought(world: World, *steps: tuple[int, str]) -> tuple[list[str], list[Said]]:
    """What is delivered in the end, and what was said to each of these messages."""
    world.speak(profile="rm001", **reliable_terms())
    seller = await listening(world)
    said = []
    for number, name in steps:
        outcome = await hand(world, seller, linked(number, name))
        assert not outcome.response.body
        assert [one.receiver for one in outcome.posted] == [BUYER]
        said.append(outcome.said)
    return [one.partition("@")[0] for one in await seller.inbox()], said


def kinds(said: list[Said]) -> list[str]:
    return ["error" if one.errors else "ack" for one in said]


@pytest.mark.req(
    "RM001-2.1-07",
    "RM001-2.1-08",
    "RM001-2.1-10",
    "RM001-2.1-14",
    "RM001-2.5-01",
    "RM001-2.5-02",
    "RM001-2.5-05",
    "RM001-3.1-01",
    "RM001-3.1-02",
)
@played
async def test_over_a_link_each_number_follows_the_last(world: World) -> None:
    delivered, said = await brought(world, (1, "a"), (2, "b"), (2, "b"), (4, "d"), (3, "c"))
    assert delivered == ["a", "b", "c"]
    assert kinds(said) == ["ack", "ack", "ack", "error", "ack"]


@pytest.mark.req("RM001-2.5-03", "RM001-2.5-04")
@played
async def test_over_a_link_number_one_begins_anew(world: World) -> None:
    delivered, said = await brought(world, (1, "a"), (1, "a"), (1, "b"), (2, "c"), (1, "d"))
    assert delivered == ["a", "b", "c", "d"]
    assert kinds(said) == ["ack"] * 5


@pytest.mark.req(
    "RM001-2.6.2-01",
    "RM001-2.6.2-02",
    "RM001-2.6.2-03",
    "RM001-2.6.2-05",
    "RM001-2.6.7-02",
)
@played
async def test_over_a_link_answers_go_from_the_receiver_to_the_sender(world: World) -> None:
    _, said = await brought(world, (1, "a"), (7, "g"))
    for one, name in zip(said, ("a", "g"), strict=True):
        assert one.parties == (address(SELLER), address(BUYER))
        assert one.text("MessageHeader/CPAId") == CPA
        assert one.text("MessageHeader/ConversationId") == "c1"
        assert one.data("RefToMessageId") == f"{name}@buyer.example"
        assert one.find("Manifest") == []


@pytest.mark.parametrize("number", ["0", "4294967296", "first", "-1"])
@played
async def test_a_number_that_no_link_has_is_refused(world: World, number: str) -> None:
    world.speak(profile="rm001", **reliable_terms())
    outcome = await hand(world, await listening(world), linked(number, "m"))
    assert outcome.said.errors[0][:2] == ("OtherXml", "Error")
    assert outcome.delivered == []


@played
async def test_a_message_without_a_number_is_refused_over_a_link(world: World) -> None:
    world.speak(profile="rm001", **reliable_terms())
    outcome = await hand(world, await listening(world), order(inside=RELIABLY))
    assert outcome.delivered == []
    assert outcome.said.errors[0][1] == "Error"
