"""Each rule of sections 7 and 8 of ebXML MS 0.98b broken once: what a whole node answers.

The letters are written by hand. Nothing that is refused is delivered, whatever else happens.
"""

from typing import Final

import pytest

from tests.node.ebxml_broken import BROKEN, FOREIGN, MUST, element
from tests.node.ebxml_letters import (
    CID,
    DATA,
    GOOD,
    HEADER,
    MANIFEST,
    NAMESPACES,
    NEXT,
    RELIABLY,
    SERVICES,
    M,
    Outcome,
    Packed,
    Said,
    agreed,
    case,
    hand,
    listening,
    order,
    pack,
    pointer,
    spoiled,
    without,
)
from tests.node.reliable import BUYER, CPA, ORDER, ORDERS, SELLER, World, address, party, played


def told(outcome: Outcome) -> Said:
    """The report about the letter, after what is true of every report was seen."""
    said = outcome.said
    assert outcome.delivered == []
    assert said.names == ["MessageHeader", "ErrorList"]
    assert said.service == (SERVICES["0.98b"], "MessageError")
    assert said.data("RefToMessageId") == M
    assert said.text("MessageHeader/CPAId") == CPA
    assert said.text("MessageHeader/ConversationId") == "c1"
    assert said.attribute("ErrorList", "highestSeverity") == "Error"
    assert {one.error_code for one in outcome.raised} == {code for code, _, _ in said.errors}
    return said


@pytest.mark.req(
    "MS098-8.4.6.3-03",
    "MS098-8.5.3.1-01",
    "MS098-8.7.4-01",
    "MS098-8.7.5.2-01",
    "MS098-8.7.5.3-01",
    "MS098-8.7.5.4-01",
    "MS098-11.4-02",
    "MS098-11.5-02",
    "MS098-11.5-04",
)
@pytest.mark.parametrize(("letter", "code", "place"), BROKEN)
@played
async def test_a_broken_rule_is_reported_to_the_sender_uri(
    world: World, letter: str | Packed, code: str, place: str
) -> None:
    agreed(world)
    seller = await listening(world)
    outcome = await hand(world, seller, letter)
    said = told(outcome)
    assert said.errors[0] == (code, "Error", pointer(place))
    assert said.parties == (party(SELLER), party(BUYER))
    [posted] = outcome.posted
    assert (posted.receiver, posted.soap_action) == (BUYER, '"ebXML"')
    story = await seller.story(M)
    assert story[-1] == "rejected"
    assert set(story) == {"error_raised", "rejected"}


@pytest.mark.req("MS098-8.7.5.4-02")
@pytest.mark.parametrize(
    "letter",
    [
        pack(GOOD, (CID, ORDER), ("more@buyer.example", ORDER)),
        pack(order(body="", inside=RELIABLY), ("more@buyer.example", ORDER)),
    ],
    ids=["beside others", "without a Manifest"],
)
@played
async def test_a_part_that_the_manifest_does_not_list_is_named_by_its_content_id(
    world: World, letter: Packed
) -> None:
    agreed(world)
    said = told(await hand(world, await listening(world), letter))
    assert said.errors == [("MimeProblem", "Error", "cid:more@buyer.example")]


@pytest.mark.parametrize(
    ("letter", "code", "place"),
    [
        case(
            "unknown CPAId",
            spoiled(GOOD, element("CPAId", CPA), element("CPAId", "urn:example:cpa:none")),
            "ValueNotRecognized",
            f"{HEADER}/eb:CPAId",
            req="MS098-8.4.2-02 MS098-8.4.2-09",
        ),
        case(
            "a CPAId of others",
            order(frm="urn:example:stranger", inside=RELIABLY),
            "Inconsistent",
            HEADER,
            req="MS098-8.4.2-02 MS098-8.4.2-08",
        ),
    ],
)
@played
async def test_where_a_stranger_wants_to_be_called_is_not_called(
    world: World, letter: str, code: str, place: str
) -> None:
    """It is told on the response: who else may call whom would be the stranger's to say."""
    agreed(world)
    outcome = await hand(world, await listening(world), letter)
    assert outcome.posted == []
    assert outcome.said.errors == [(code, "Error", pointer(place))]
    assert outcome.said.data("RefToMessageId") == M
    assert outcome.delivered == []


@pytest.mark.req("MS098-11.4-02")
@pytest.mark.parametrize(
    ("letter", "code", "place"),
    [
        case(
            "no Service",
            spoiled(GOOD, element("Service", "urn:example:trade"), ""),
            "OtherXml",
            HEADER,
        ),
        case(
            "Service is no URI",
            order(service="trade", inside=RELIABLY),
            "Inconsistent",
            f"{HEADER}/eb:Service",
            req="MS098-8.4.4.1-03",
        ),
        case(
            "no Action",
            spoiled(GOOD, element("Action", ORDERS), ""),
            "OtherXml",
            HEADER,
        ),
        case(
            "another Action",
            order(action="cancel", inside=RELIABLY),
            "Inconsistent",
            HEADER,
            req="MS098-8.4.2-08",
        ),
    ],
)
@played
async def test_a_partner_without_a_p_mode_for_it_is_told_where_its_cpa_says(
    world: World, letter: str, code: str, place: str
) -> None:
    """The CPA is known by CPAId and sender, even where it has no such Service and Action."""
    agreed(world)
    outcome = await hand(world, await listening(world), letter)
    assert told(outcome).errors[0] == (code, "Error", pointer(place))
    assert [one.receiver for one in outcome.posted] == [BUYER]


UNNAMED: Final = [
    case(
        "no From",
        spoiled(GOOD, f"<eb:From>{element('PartyId', party(BUYER))}</eb:From>", ""),
        "From",
    ),
    case(
        "no To",
        spoiled(GOOD, f"<eb:To>{element('PartyId', party(SELLER))}</eb:To>", ""),
        "To",
    ),
    case(
        "no PartyId",
        spoiled(GOOD, f"<eb:From>{element('PartyId', party(BUYER))}</eb:From>", "<eb:From/>"),
        "PartyId",
    ),
    case(
        "two PartyIds",
        spoiled(
            GOOD, "</eb:PartyId></eb:From>", f"</eb:PartyId>{element('PartyId', 'urn:b')}</eb:From>"
        ),
        "PartyId",
    ),
    case(
        "a PartyId that is no URI",
        order(frm="the buyer", inside=RELIABLY),
        "PartyId",
        req="MS098-8.4.1-07",
    ),
    case("no CPAId", spoiled(GOOD, element("CPAId", CPA), ""), "CPAId"),
    case(
        "no ConversationId",
        spoiled(GOOD, element("ConversationId", "c1"), ""),
        "ConversationId",
    ),
    case(
        "no MessageData",
        without("<eb:MessageData>", "</eb:MessageData>"),
        "MessageData",
    ),
    case(
        "no MessageId",
        spoiled(GOOD, element("MessageId", M), ""),
        "MessageId",
    ),
]


@pytest.mark.req("MS098-11.3.1-01", "MS098-11-03")
@pytest.mark.parametrize(("letter", "what"), UNNAMED)
@played
async def test_what_no_error_list_can_be_addressed_to_gets_a_soap_fault(
    world: World, letter: str, what: str
) -> None:
    agreed(world)
    outcome = await hand(world, await listening(world), letter)
    assert outcome.response.status == 500
    assert outcome.said.fault is not None
    code, text = outcome.said.fault
    assert code == "Client"
    assert what in text
    assert outcome.delivered == []
    assert outcome.raised


@pytest.mark.req("MS098-8.4.11-02", "MS098-11-03")
@pytest.mark.parametrize("actor", ["", f' SOAP-ENV:actor="{NEXT}"'], ids=["", "next"])
@played
async def test_a_header_block_that_is_not_understood_gets_a_soap_fault(
    world: World, actor: str
) -> None:
    agreed(world)
    letter = spoiled(
        GOOD, "</SOAP-ENV:Header>", FOREIGN.format(MUST + actor) + "</SOAP-ENV:Header>"
    )
    outcome = await hand(world, await listening(world), letter)
    assert outcome.response.status == 500
    assert outcome.said.fault is not None
    assert outcome.said.fault[0] == "MustUnderstand"
    assert outcome.delivered == []


@pytest.mark.req("MS098-8.2.3-04", "MS098-8.2.3-06")
@pytest.mark.parametrize("understand", ["", ' SOAP-ENV:mustUnderstand="0"'], ids=["", "0"])
@pytest.mark.parametrize(
    "place", ["</eb:TraceHeader>", "</eb:Manifest>", "</SOAP-ENV:Header>"], ids=str
)
@played
async def test_what_need_not_be_understood_is_passed_over(
    world: World, place: str, understand: str
) -> None:
    agreed(world)
    letter = spoiled(GOOD, place, FOREIGN.format(understand) + place)
    outcome = await hand(world, await listening(world), letter)
    assert outcome.delivered == [M]


@played
async def test_a_block_for_another_actor_is_passed_over(world: World) -> None:
    agreed(world)
    other = FOREIGN.format(MUST + ' SOAP-ENV:actor="urn:example:archive"')
    letter = spoiled(GOOD, "</SOAP-ENV:Header>", other + "</SOAP-ENV:Header>")
    assert (await hand(world, await listening(world), letter)).delivered == [M]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        pytest.param(
            "</eb:MessageData>",
            "<eb:TimeToLive>soon</eb:TimeToLive></eb:MessageData>",
            "OtherXml",
            f"{DATA}/eb:TimeToLive",
            id="TimeToLive is no time",
        ),
        pytest.param(
            "</eb:Manifest>",
            FOREIGN.format(MUST) + "</eb:Manifest>",
            "NotSupported",
            f"{MANIFEST}/*[local-name()='a']",
            id="foreign element",
        ),
        pytest.param(
            f"cid:{CID}",
            "cid:gone@buyer.example",
            "MimeProblem",
            f"{MANIFEST}/eb:Reference[1]/@xlink:href",
            id="a part is missing",
        ),
    ],
)
@played
async def test_each_version_reports_in_its_own_words(
    world: World, version: str, old: str, new: str, code: str, place: str
) -> None:
    """To the ErrorURI of the CPA: 2.0 has no TraceHeader."""
    world.speak(version=version, report={"receiver_errors_to": address(BUYER)})
    letter = spoiled(order(version), old, new)
    outcome = await hand(world, await listening(world), pack(letter, (CID, ORDER)))
    said = outcome.said
    assert said.errors[0] == (code, "Error", pointer(place))
    assert said.namespace == NAMESPACES[version]
    assert said.attribute("MessageHeader", "version") == version
    assert said.service == (SERVICES[version], "MessageError")
    assert said.data("RefToMessageId") == M
    assert [one.receiver for one in outcome.posted] == [BUYER]
    assert outcome.delivered == []
