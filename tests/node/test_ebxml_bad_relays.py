"""What an MSH on the way does with messages that break a rule: its own part it reports."""

import pytest

from tests.node.ebxml_letters import (
    CID,
    HEADER,
    MANIFEST,
    NEXT,
    RELIABLY,
    TOP,
    M,
    Outcome,
    Packed,
    Said,
    hand,
    listening,
    manifest,
    order,
    pack,
    pointer,
    quality,
    reliable_terms,
    spoiled,
    via,
)
from tests.node.reliable import BUYER, CARRIER, ORDER, SELLER, World, played, status

ASKED = via(' eb:ackRequested="UnSigned"')
GOOD = order("0.98b", ASKED, inside=RELIABLY)
FOREIGN = '<x:a xmlns:x="urn:example:x" SOAP-ENV:mustUnderstand="1"{}/>'


async def passed_to_carrier(world: World, *letters: str | Packed) -> Outcome:
    """What became of the last of these at an MSH between buyer and seller."""
    world.speak("there", at=(CARRIER,), relay=True, **reliable_terms())
    world.wire.usual[CARRIER] = status(204)
    carrier = await listening(world, CARRIER)
    for letter in letters:
        outcome = await hand(world, carrier, letter)
    return outcome


def onward(outcome: Outcome) -> list[bytes]:
    return [one.body for one in outcome.posted if one.receiver == SELLER]


def back(outcome: Outcome) -> Said:
    """The one answer to who sent it."""
    bodies = [one.body for one in outcome.posted if one.receiver == BUYER]
    [body] = bodies + ([outcome.response.body] if outcome.response.body else [])
    return Said.read(body)


@pytest.mark.parametrize(
    "letter",
    [
        GOOD,
        order("0.98b", ASKED, FOREIGN.format(""), inside=RELIABLY),
        order("0.98b", ASKED, live="2024-06-01T11:59:59Z", inside=RELIABLY),
        order("0.98b", ASKED, inside=RELIABLY, body=manifest(hrefs=("http://x.example/1",))),
    ],
    ids=[
        "nothing",
        "a block for the To Party",
        "TimeToLive",
        "a payload elsewhere",
    ],
)
@played
async def test_what_is_wrong_for_the_to_party_is_passed_on_as_it_came(
    world: World, letter: str
) -> None:
    """It is the To Party's to judge, and byte for byte the same, but for what is of the hop."""
    outcome = await passed_to_carrier(world, letter)
    [body] = onward(outcome)
    for piece in ("<eb:MessageHeader ", "<eb:Manifest "):
        end = piece.replace("<", "</").replace(" ", ">")
        whole = letter[letter.index(piece) : letter.index(end) + len(end)]
        assert whole.encode() in body
    assert back(outcome).service[1] == "Acknowledgment"


@pytest.mark.req("MS098-8.10.7-02")
@pytest.mark.parametrize(
    ("letter", "place"),
    [
        (pack(GOOD), pointer(f"{MANIFEST}/eb:Reference[1]/@xlink:href")),
        (pack(GOOD, (CID, ORDER), ("more@buyer.example", ORDER)), "cid:more@buyer.example"),
    ],
    ids=["a part is missing", "a part is not listed"],
)
@played
async def test_parts_that_do_not_fit_the_manifest_are_not_carried(
    world: World, letter: Packed, place: str
) -> None:
    """Nothing is left out on the way."""
    outcome = await passed_to_carrier(world, letter)
    assert onward(outcome) == []
    assert back(outcome).errors == [("MimeProblem", "Error", place)]


@pytest.mark.req("MS098-8.6.2-01", "MS098-8.6.1-01", "MS098-11-03")
@played
async def test_a_block_for_the_next_msh_that_it_does_not_understand_is_a_fault(
    world: World,
) -> None:
    foreign = FOREIGN.format(f' SOAP-ENV:actor="{NEXT}"')
    outcome = await passed_to_carrier(world, order("0.98b", foreign, inside=RELIABLY))
    assert onward(outcome) == []
    assert back(outcome).fault is not None
    assert outcome.response.status == 500


@pytest.mark.req("MS098-8.6.2-01")
@pytest.mark.parametrize(
    ("letter", "code", "place"),
    [
        (
            order("0.98b", ASKED, ASKED, inside=RELIABLY),
            "OtherXml",
            f"{TOP}/eb:Via[2]",
        ),
        (order("0.98b", via(), inside=RELIABLY), "OtherXml", f"{TOP}/eb:Via"),
        (
            order("0.98b", via(' eb:ackRequested="Maybe"'), inside=RELIABLY),
            "ValueNotRecognized",
            f"{TOP}/eb:Via/@eb:ackRequested",
        ),
        (
            order("0.98b", via(' eb:ackRequested="Signed"'), inside=RELIABLY),
            "NotSupported",
            HEADER,
        ),
        (
            order("0.98b", ASKED, inside=quality("Perhaps")),
            "NotSupported",
            f"{HEADER}/eb:QualityOfServiceInfo/@eb:deliverySemantics",
        ),
    ],
    ids=[
        "two Vias",
        "an empty Via",
        "unknown ackRequested",
        "signed without a key",
        "unknown deliverySemantics",
    ],
)
@played
async def test_what_is_wrong_for_the_next_msh_is_reported_by_it(
    world: World, letter: str, code: str, place: str
) -> None:
    outcome = await passed_to_carrier(world, letter)
    said = back(outcome)
    assert said.errors[0] == (code, "Error", pointer(place))
    assert said.data("RefToMessageId") == M
    assert onward(outcome) == []


@played
async def test_what_has_no_message_id_is_not_carried(world: World) -> None:
    letter = spoiled(GOOD, f"<eb:MessageId>{M}</eb:MessageId>", "")
    outcome = await passed_to_carrier(world, letter)
    assert onward(outcome) == []
    fault = back(outcome).fault
    assert fault is not None
    assert fault[0] == "Client"


@played
async def test_a_copy_is_carried_once_and_acknowledged_again(world: World) -> None:
    outcome = await passed_to_carrier(world, GOOD, GOOD)
    assert onward(outcome) == []
    assert back(outcome).service[1] == "Acknowledgment"
    assert back(outcome).data("RefToMessageId") == M


@played
async def test_something_else_under_a_known_message_id_is_inconsistent(world: World) -> None:
    outcome = await passed_to_carrier(world, GOOD, pack(GOOD, (CID, b"other")))
    assert onward(outcome) == []
    assert back(outcome).errors[0][:2] == ("Inconsistent", "Error")


@pytest.mark.req("MS098-8.4.2-02")
@played
async def test_what_nobody_agreed_to_carry_is_refused(world: World) -> None:
    letter = order("0.98b", ASKED, inside=RELIABLY, frm="urn:example:stranger")
    outcome = await passed_to_carrier(world, letter)
    assert outcome.posted == []
    assert back(outcome).errors[0][:2] == ("Inconsistent", "Error")


@pytest.mark.req("MS098-7.6-01")
@played
async def test_a_broken_package_is_not_carried(world: World) -> None:
    letter = pack(GOOD, (CID, ORDER), inner='text/xml; charset="ISO-8859-1"')
    outcome = await passed_to_carrier(world, letter)
    assert outcome.posted == []
    assert back(outcome).fault is not None
