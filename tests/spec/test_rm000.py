"""The draft of ebXML Reliable Messaging (000), on nodes with `profile: rm000`."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from postroad.cli.main import app
from postroad.store.interface import StoreFull
from postroad.store.records import Side, State
from tests.node.ebxml_letters import M, quality, via
from tests.node.reliable import Held, failing, party
from tests.spec.ebxml_scripts import (
    ACK,
    FAILURE,
    ORDER,
    SCHEDULE,
    Witness,
    carried,
    duplicated,
    interrupted,
    letter,
    orders,
    posted,
    referred,
    relayed,
    reliable,
    replied,
    sent,
    times,
    unanswered,
    without_hop,
    without_response,
)
from tests.spec.kit import (
    BUYER,
    CARRIER,
    SELLER,
    Ebxml,
    Network,
    PMode,
    Row,
    Script,
    Send,
    Wait,
    World,
    address,
    check,
    lost,
    played,
    record,
    refused,
    shows,
    start,
    wire,
)

DATA: Final = Path(__file__).parents[1] / "data" / "pmodes"
RM: Final = "rm000"
SERVICE: Final = "http://www.ebxml.org/namespaces/messageService/MessageAcknowledgment"
METHOD: Final = "http://www.ebxml.org/namespaces/reliableMessaging"
TO: Final = "eb:MessageHeader/eb:To/eb:PartyId"
FROM: Final = "eb:MessageHeader/eb:From/eb:PartyId"
REF: Final = "eb:MessageData/eb:RefToMessageId"
QUALITY: Final = "eb:QualityOfServiceInfo/@eb:deliverySemantics"
ASKED: Final = via(' eb:ackRequested="Unsigned"')
HOP_ACK: Final = (
    f"eb:MessageHeader[eb:Action='Acknowledgment'][eb:From/eb:PartyId='{address(CARRIER)}']"
)

PLAIN: Final = sent(RM)
WITH_ELEMENT: Final = sent(RM, ack_requested="UnSigned")
CARRIED: Final = carried(RM, ASKED)
NOT_SENT: Final = relayed(RM, refused)
NOT_ACKNOWLEDGED: Final = relayed(RM, lost)
TWO_TERMS: Final = Script(
    (reliable(RM), Ebxml("offers", version="0.98b", delivery_semantics="BestEffort")),
    (Send(M), Send("o@buyer.example", "offers"), Wait(1)),
)
SILENT_HEADER: Final = posted(RM, letter(inside=""), letter(inside=""), ack_requested="UnSigned")
"""A message that says nothing of the terms, and its copy; only the P-Mode asks for an element."""

ROWS: Final = [
    shows(
        "RM000-1.2.1-01", TWO_TERMS, QUALITY, "OnceAndOnlyOnce", containing=f"eb:MessageId[.='{M}']"
    ),
    shows(
        "RM000-1.2.1-01",
        TWO_TERMS,
        f"{QUALITY}[.!='BestEffort']",
        0,
        containing="eb:MessageId[.='o@buyer.example']",
        name="RM000-1.2.1-01 BestEffort",
    ),
    shows("RM000-1.2.5-02", SILENT_HEADER, "eb:Acknowledgment", 0, sender=SELLER, containing=ACK),
    shows("RM000-1.2.5-02", PLAIN, "eb:Via/@eb:ackRequested[.!='None']", 0, containing=ORDER),
    shows("RM000-1.2-02", SILENT_HEADER, "eb:Acknowledgment", 0, sender=SELLER, containing=ACK),
    shows("RM000-1.3.1-03 RM000-1.3.1.2-05", PLAIN, REF, M, sender=SELLER, containing=ACK),
    shows("RM000-1.3.1.1-01", PLAIN, QUALITY, "OnceAndOnlyOnce"),
    shows("RM000-1.3.1.1-02", PLAIN, "eb:TraceHeader/eb:SenderURI", address(BUYER)),
    shows("RM000-1.3.1.1-02", PLAIN, "eb:TraceHeader/eb:ReceiverURI", address(SELLER)),
    shows(
        "RM000-1.3.1.3-01",
        replied(RM),
        "eb:Service",
        "urn:example:trade",
        sender=SELLER,
        containing="eb:Acknowledgment",
    ),
    shows(
        "RM000-1.3.1.3-01",
        replied(RM),
        "eb:Action",
        "answers",
        sender=SELLER,
        containing="eb:Acknowledgment",
    ),
    shows("RM000-1.3.1.3-02", PLAIN, "eb:Service", SERVICE, sender=SELLER, containing=ACK),
    shows(
        "RM000-1.3.1.3-02",
        NOT_SENT,
        "eb:Service",
        SERVICE,
        sender=BUYER,
        containing=ACK,
        name="RM000-1.3.1.3-02 of a notice",
    ),
    shows(
        "RM000-1.3.1.3-03",
        WITH_ELEMENT,
        "eb:Acknowledgment/@eb:type",
        "Acknowledgment",
        sender=SELLER,
    ),
    shows("RM000-1.3.1.3-03", WITH_ELEMENT, "eb:Action", "Acknowledgment", sender=SELLER),
    shows("RM000-1.3.2.1-02", CARRIED, "eb:Acknowledgment", 1, sender=CARRIER, containing=HOP_ACK),
    shows("RM000-1.3.2.1-03", CARRIED, "eb:Service", SERVICE, sender=CARRIER, containing=HOP_ACK),
    shows(
        "RM000-1.3.2.1-03",
        CARRIED,
        "boolean(//eb:Action = //eb:Acknowledgment/@eb:type)",
        True,
        sender=CARRIER,
        containing=HOP_ACK,
    ),
    shows(
        "RM000-1.3.2.1-04",
        CARRIED,
        FROM,
        address(CARRIER),
        sender=CARRIER,
        containing="eb:Acknowledgment[../..//eb:MessageId[contains(., '@carrier')]]",
    ),
    shows(
        "RM000-1.3.2.1-05",
        CARRIED,
        TO,
        "http://first.example/msh",
        sender=CARRIER,
        containing=HOP_ACK,
    ),
    shows("RM000-1.3.2.1-06", CARRIED, REF, M, sender=CARRIER, containing=HOP_ACK),
    shows("RM000-1.3.2.1-07", CARRIED, QUALITY, "BestEffort", sender=CARRIER, containing=HOP_ACK),
    *[
        shows(ids, script, path, expected, sender=CARRIER, containing=FAILURE, name=f"{ids} {why}")
        for why, script in (("not sent", NOT_SENT), ("not acknowledged", NOT_ACKNOWLEDGED))
        for ids, path, expected in (
            ("RM000-1.4-02", FROM, party(CARRIER)),
            ("RM000-1.4-03", TO, party(BUYER)),
            ("RM000-1.4-05", QUALITY, "OnceAndOnlyOnce"),
            ("RM000-1-01 RM000-1.3.1.4-06", REF, M),
        )
    ],
    shows(
        "RM000-1.4-04",
        NOT_SENT,
        "eb:Service",
        "uri:www.ebxml.org/messageService/",
        sender=CARRIER,
        containing="eb:ErrorList",
    ),
    shows(
        "RM000-1.4-04",
        NOT_SENT,
        "eb:Action",
        "MessageError",
        sender=CARRIER,
        containing="eb:ErrorList",
    ),
    shows(
        "RM000-1.4-06",
        NOT_SENT,
        "eb:Error/@eb:severity",
        "Error",
        sender=CARRIER,
        containing=FAILURE,
    ),
    shows(
        "RM000-1.4-07",
        NOT_ACKNOWLEDGED,
        "eb:Error/@eb:severity",
        "Warning",
        sender=CARRIER,
        containing=FAILURE,
    ),
    shows(
        "RM000-1.4-08",
        NOT_SENT,
        "eb:Error/@eb:errorCode",
        "DeliveryFailure",
        sender=CARRIER,
        containing="eb:ErrorList",
    ),
    shows(
        "RM000-1.4-08",
        NOT_ACKNOWLEDGED,
        "eb:Error/@eb:errorCode",
        "DeliveryFailure",
        sender=CARRIER,
        containing="eb:ErrorList",
        name="RM000-1.4-08 not acknowledged",
    ),
]


@pytest.mark.parametrize("row", ROWS)
def test_messages_are_as_the_draft_says(row: Row) -> None:
    check(row)


def _answer(*letters: tuple[str, bytes], **terms: Any) -> Any:
    """What a seller sends about the last of these letters."""
    return record(posted(RM, *letters, **terms)).sent_by(SELLER)[-1]


# 1 and 1.1: what is kept


@pytest.mark.req("RM000-1-01", "RM000-1.3.1.4-06")
@pytest.mark.parametrize(
    ("fault", "severity"), [(refused, "Error"), (lost, "Warning")], ids=["not sent", "lost"]
)
def test_the_from_party_is_told_when_its_own_msh_gives_up(fault: Any, severity: str) -> None:
    recording = record(unanswered(RM, fault))
    [notice] = recording.notices[BUYER]
    assert (notice.message_id, notice.severity) == (M, severity)
    assert times(orders(recording)) == SCHEDULE


@pytest.mark.req("RM000-1.1-01", "RM000-1.1-04", "RM000-1.3.1.2-02")
@pytest.mark.parametrize("killed", [(BUYER,), (SELLER,), (BUYER, SELLER)])
def test_after_a_crash_all_goes_on_as_if_nothing_had_happened(killed: tuple[str, ...]) -> None:
    usual, after = record(interrupted(RM)), record(interrupted(RM, *killed))
    assert len(orders(after)) > 2
    for one in (orders(after), after.requests(SELLER, BUYER, ACK)):
        assert len({without_hop(copy) for copy in one}) == 1
    assert [(one.at, one.receiver) for one in after.requests()] == [
        (one.at, one.receiver) for one in usual.requests()
    ]
    assert after.inboxes == usual.inboxes == {BUYER: [], SELLER: [M]}
    assert after.state(BUYER, M) == "acknowledged"


@pytest.mark.req("RM000-1.1-04")
@played
async def test_what_was_being_sent_when_a_node_was_killed_is_sent_again(world: World) -> None:
    world.kept_in = "sqlite"
    reliable(RM).add(world)
    world.wire.will(Held())
    buyer = await start(world, BUYER)
    seller = await start(world, SELLER)
    await buyer.send(M)
    await world.wait(1)
    assert await seller.inbox() == [], "the first copy is still on the wire"
    buyer.kill()
    buyer = await start(world, BUYER)
    await world.wait(30)
    first, second = world.wire.to(SELLER, M)
    assert first.body == second.body
    assert await seller.inbox() == [M]
    assert await buyer.state(M) is State.ACKNOWLEDGED


@pytest.mark.req("RM000-1.3.1-02", "OV004-1-05")
@played
async def test_nothing_is_acknowledged_that_is_not_stored(world: World) -> None:
    world.kept_in = "sqlite"
    reliable(RM).add(world)
    seller = await start(world, SELLER)
    with failing(seller.node.context.store, StoreFull("no room"), times=9) as failed:
        await world.wire.post(BUYER, SELLER, *letter(), '"ebXML"')
        await world.wait(5)
    assert failed
    assert not [one for one in wire(world) if one.sender == SELLER and one.body and one.xpath(ACK)]
    stored: list[int] = []

    async def look(world: World, posted: Any) -> Any:
        """Count what another connection, which sees only what is committed, finds."""
        file = f"file:{world.folder / SELLER / 'data' / 'postroad.db'}?mode=ro"
        with closing(sqlite3.connect(file, uri=True)) as beside:
            query = "SELECT count(*) FROM messages WHERE message_id = ?"
            stored.append(beside.execute(query, (M,)).fetchone()[0])
        return await refused(world, posted)

    world.wire.will(look, at=BUYER)
    await world.wire.post(BUYER, SELLER, *letter(), '"ebXML"')
    await world.wait(0.5)
    assert stored == [1]
    assert wire(world)[-1].xpath(ACK)


# 1.2: parameters


@pytest.mark.req("RM000-1.2-01")
def test_what_the_agreement_says_rules_where_the_header_is_silent() -> None:
    recording = record(SILENT_HEADER)
    assert len(recording.requests(SELLER, BUYER, ACK)) == 2
    assert recording.inboxes[SELLER] == [M]


@pytest.mark.req("RM000-1.2-01")
def test_a_header_does_not_overrule_the_agreement() -> None:
    said = _answer(letter(inside=quality("BestEffort")))
    assert said.text("eb:Error/@eb:errorCode") == "Inconsistent"
    assert said.text(REF) == M


@pytest.mark.req("RM000-1.2-01")
@pytest.mark.parametrize(("mode", "kinds"), [("mshSignalsOnly", 1), ("responseOnly", 0)])
def test_sync_reply_mode_of_the_agreement_says_what_the_response_holds(
    mode: str, kinds: int
) -> None:
    sync = via(' eb:syncReply="true"')
    recording = record(posted(RM, letter(sync), sync_reply=mode))
    assert len(recording.sent_by(SELLER, ACK)) == kinds
    assert not recording.requests(SELLER)


@pytest.mark.req("RM000-1.2-02", "RM000-1.2-05", "RM000-1.2.5-01")
@pytest.mark.parametrize("agreed", ["None", "UnSigned"])
@pytest.mark.parametrize(
    ("word", "elements"), [("None", 0), ("Unsigned", 1), ("UnSigned", 1), ("Signed", 1)]
)
def test_the_header_alone_asks_for_an_acknowledgment_element(
    agreed: str, word: str, elements: int
) -> None:
    asked = letter(via(f' eb:ackRequested="{word}" eb:syncReply="false"'))
    said = _answer(asked, ack_requested=agreed)
    if word == "Signed":
        # Nothing is agreed about signatures here, so it cannot be given.
        assert said.text("eb:Error/@eb:errorCode") == "NotSupported"
        return
    assert said.count("eb:Acknowledgment") == elements
    assert said.count(ACK) == 1


@pytest.mark.req("RM000-1.2.5-01")
def test_another_word_for_an_acknowledgment_is_not_recognized() -> None:
    said = _answer(letter(via(' eb:ackRequested="Maybe"')))
    assert said.text("eb:Error/@eb:errorCode") == "ValueNotRecognized"
    assert "ackRequested" in (said.text("eb:Error/@eb:location") or "")


@pytest.mark.req("RM000-1.2-05", "RM000-1.2.4-01")
@pytest.mark.parametrize(
    ("word", "code"),
    [("ebXML", None), ("Transport", "NotSupported"), ("Pigeon", "ValueNotRecognized")],
)
def test_the_header_says_by_which_method_a_message_is_reliable(word: str, code: str | None) -> None:
    said = _answer(letter(via(f' eb:reliableMessagingMethod="{word}"')))
    assert said.text("eb:Error/@eb:errorCode") == code
    assert said.count(ACK) == (code is None)


RETRIES: Final = {"max_retries": 2, "timeout": "PT3S", "period": "PT7S", "persist_duration": "P1D"}


@pytest.mark.req(
    "RM000-1.2-01", "RM000-1.2-04", "RM000-1.2.6-01", "RM000-1.3.1.4-01", "RM000-1.3.1.4-02"
)
def test_the_agreement_alone_says_when_and_how_often_a_message_is_sent_again() -> None:
    steps = (Network(SELLER, *[lost] * 9), Send(M), Wait(200))
    recording = record(Script((reliable(RM, retry=RETRIES),), steps))
    assert times(orders(recording)) == [0.0, 3.0, 10.0]
    names = "timeout retries retryInterval persistDuration reliableMessagingMethodsSupported"
    for name in names.split():
        path = f"//@*[local-name()='{name}'] | //*[local-name()='{name}']"
        assert not any(one.count(path) for one in recording.requests())


@pytest.mark.req("RM000-1.2.6-01", "RM000-1.3.1.4-01", "RM000-1.3.1.4-02")
def test_a_message_is_sent_again_after_the_timeout_and_then_each_interval() -> None:
    assert times(orders(record(unanswered(RM)))) == SCHEDULE


@pytest.mark.req("RM000-1.2-04", "RM000-1.2.9-02")
@pytest.mark.parametrize(
    ("methods", "code"),
    [
        ([METHOD], None),
        (["urn:example:queue", METHOD], None),
        (["urn:example:queue"], "NotSupported"),
    ],
)
def test_reliable_messages_are_taken_where_the_agreement_has_the_method(
    methods: list[str], code: str | None
) -> None:
    """The P-Mode leaves deliverySemantics to the header, which asks for OnceAndOnlyOnce."""
    terms = Ebxml(version="0.98b", methods_supported=methods)
    script = Script((terms,), posted(RM, letter()).steps, nodes=(SELLER,))
    said = record(script).sent_by(SELLER)[-1]
    assert said.text("eb:Error/@eb:errorCode") == code
    assert said.count(ACK) == (code is None)


def _checked(tmp_path: Path, **ebxml: Any) -> str:
    """What `postroad pmode check` says about a P-Mode with these parameters."""
    terms = {"version": "0.98b", "profile": RM, "delivery_semantics": "OnceAndOnlyOnce"} | ebxml
    leg = {
        "protocol": {"address": address(SELLER)},
        "business_info": {"service": "urn:example:trade", "action": "orders"},
        "ebxml": terms,
    }
    pmode = {
        "id": "orders",
        "agreement": "urn:example:cpa",
        "initiator": {"party": party(BUYER)},
        "responder": {"party": party(SELLER)},
        "legs": [leg],
    }
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(pmode))
    return CliRunner().invoke(app, ["pmode", "check", str(file)]).output


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        pytest.param({"methods_supported": [METHOD]}, "", id="the method of the draft"),
        pytest.param(
            {"methods_supported": ["a queue", METHOD]},
            "URI",
            marks=pytest.mark.req("RM000-1.2.9-01"),
            id="no URI",
        ),
        pytest.param(
            {"methods_supported": ["urn:example:queue"]},
            METHOD,
            marks=pytest.mark.req("RM000-1.2.9-02"),
            id="without the method of the draft",
        ),
        pytest.param(
            {"method": "Pigeon"}, "Pigeon", marks=pytest.mark.req("RM000-1.2.4-01"), id="method"
        ),
        pytest.param(
            {"ack_requested": "Maybe"}, "Maybe", marks=pytest.mark.req("RM000-1.2.5-01"), id="ack"
        ),
    ],
)
def test_a_sender_agrees_on_nothing_but_what_the_draft_has(
    tmp_path: Path, parameters: dict[str, Any], said: str
) -> None:
    output = _checked(tmp_path, **parameters)
    assert (said or "0 errors, 0 warnings") in output, output


def _imported(tmp_path: Path, retries: str) -> dict[str, Any]:
    """The P-Mode for orders that `postroad pmode import` makes of a CPA."""
    text = (DATA / "cpa.xml").read_text()
    for old, new in (
        (' tp:type="urn:example:names">acme<', f">{party(BUYER)}<"),
        ("urn:example:globex", party(SELLER)),
        ("https://acme.example/answers", address(BUYER)),
        ("https://globex.example/msh", address(SELLER)),
        ('Binding tp:version="2.0"', 'Binding tp:version="1.0"'),
        ('isNonRepudiationRequired="true"', 'isNonRepudiationRequired="false"'),
        ('ackSignatureRequested="always"', 'ackSignatureRequested="never"'),
        ("<tp:Retries>5<", f"<tp:Retries>{retries}<"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    file = tmp_path / "cpa.xml"
    file.write_text(text)
    CliRunner().invoke(app, ["pmode", "import", str(file), "--out", str(tmp_path)])
    pmodes = yaml.safe_load((tmp_path / "cpa.yaml").read_text())["pmodes"]
    found: dict[str, Any] = next(one for one in pmodes if one["id"].endswith("New-Order"))
    found["legs"][0]["ebxml"] |= {"profile": RM, "transports": []}
    return found


@pytest.mark.req("RM000-1.2-01", "RM000-1.2-04", "RM000-1.2.1-01")
@pytest.mark.parametrize("retries", ["2", "3"])
def test_a_node_sends_as_the_cpa_says(tmp_path: Path, retries: str) -> None:
    pmode = _imported(tmp_path, retries)
    steps = (Network(SELLER, *[lost] * 9), Send(M, pmode["id"]), Wait(5000))
    recording = record(Script((PMode((BUYER,), pmode),), steps, nodes=(BUYER,)))
    copies = orders(recording)
    assert times(copies) == [300.0 * number for number in range(int(retries) + 1)]
    assert copies[0].text("eb:CPAId") == "urn:example:cpa:17"
    assert copies[0].text(QUALITY) == "OnceAndOnlyOnce"


@pytest.mark.req("RM000-1.2.10-01")
@played
async def test_a_message_is_kept_for_persist_duration(world: World) -> None:
    kept = {"max_retries": 3, "period": "PT1M", "time_to_live": "PT3H", "persist_duration": "P7D"}
    reliable(RM, retry=kept).add(world)
    await start(world, BUYER)
    seller = await start(world, SELLER)
    await world.stations[BUYER].send(M)
    await world.wait(1)
    await seller.node.acknowledge(M)
    world.clock.ahead += timedelta(days=6, hours=23)
    assert await seller.node.purge(0) == 0
    before = len(world.wire.to(SELLER))
    first = world.wire.to(SELLER)[0]
    await world.wire.post(BUYER, SELLER, first.content_type, first.body, '"ebXML"')
    await world.wait(1)
    assert before + 1 == len(world.wire.to(SELLER))
    assert (await seller.story(M)).count("duplicate") == 1
    assert (await seller.message(M, Side.RECEIVING)).message_id == M


# 1.3: the protocol


@pytest.mark.req("RM000-1.3.1-01")
@pytest.mark.parametrize("blocks", [(), (via(' eb:reliableMessagingMethod="ebXML"'),)])
def test_the_protocol_is_followed_by_default_and_where_it_is_named(blocks: tuple[str, ...]) -> None:
    copies = record(posted(RM, letter(*blocks), letter(*blocks)))
    assert len(copies.requests(SELLER, BUYER, ACK)) == 2
    assert copies.inboxes[SELLER] == [M]


@pytest.mark.req("RM000-1.3.1-01")
def test_only_once_and_only_once_is_sent_again() -> None:
    offers = Ebxml("offers", version="0.98b", delivery_semantics="BestEffort")
    steps = (Network(SELLER, lost, lost), Send(M), Send("o@buyer.example", "offers"), Wait(60))
    recording = record(Script((reliable(RM), offers), steps))
    ids = [one.text("eb:MessageData/eb:MessageId") for one in orders(recording)]
    assert ids == [M, "o@buyer.example", M]
    assert recording.inboxes[SELLER] == [M]
    assert recording.state(BUYER, M) == "acknowledged"


@pytest.mark.req("RM000-1.3.1.1-03", "RM000-1.3.1.1-04")
@played
async def test_a_message_is_stored_before_it_is_sent_to_the_receiver(world: World) -> None:
    """A sender that is killed has the message and sends it again."""
    world.kept_in = "sqlite"
    reliable(RM).add(world)
    witness = Witness(BUYER)
    world.wire.will(witness)
    buyer = await start(world, BUYER)
    await start(world, SELLER)
    await buyer.send(M)
    await world.wait(1)
    buyer.kill()
    await start(world, BUYER)
    await world.wait(30)
    assert witness.stored == ["ready"]
    copies = [one for one in wire(world) if one.sender == BUYER and one.body]
    assert len({one.body for one in copies}) == 1
    assert await world.stations[SELLER].inbox() == [M]


@pytest.mark.req("RM000-1.3.1.1-05", "RM000-1.3.2-03")
def test_the_identical_message_is_sent_until_it_is_acknowledged() -> None:
    assert len({one.body for one in orders(record(unanswered(RM)))}) == 1
    recording = record(interrupted(RM))
    assert times(orders(recording)) == [0.0, 5.0, 15.0]
    assert len({one.body for one in orders(recording)}) == 1


@pytest.mark.req("RM000-1.3.1.2-01", "RM000-1.3.2-05")
def test_a_duplicate_is_known_by_its_message_id_and_delivered_once() -> None:
    recording = record(duplicated(RM))
    assert recording.inboxes[SELLER] == [M, "other@buyer.example"]
    assert recording.events(SELLER, M).count("delivered") == 1
    assert recording.events(SELLER, M).count("duplicate") == 1


@pytest.mark.req("RM000-1.3.1.2-06", "RM000-1.3.1.2-08", "RM000-1.3.2-04")
def test_a_duplicate_gets_the_message_that_was_first_sent_in_response() -> None:
    given = record(duplicated(RM)).requests(SELLER, BUYER, ACK)
    assert [one.text(REF) for one in given] == [M, "other@buyer.example", M]
    assert without_hop(given[2]) == without_hop(given[0])
    assert times(given) == [0.0, 1.0, 2.0]


@pytest.mark.req("RM000-1.3.1.2-04")
def test_a_message_that_refers_to_another_marks_it_delivered() -> None:
    recording = record(referred(RM))
    assert recording.state(BUYER, M) == "acknowledged"
    assert len(orders(recording)) == 1
    assert recording.inboxes[BUYER] == ["r@seller.example"]


@pytest.mark.req("RM000-1.3.1.2-07")
def test_a_duplicate_without_a_response_is_ignored() -> None:
    recording = record(without_response(RM))
    assert recording.events(SELLER, M).count("duplicate") == 2
    assert recording.sent_by(SELLER) == []
    assert recording.inboxes[SELLER] == [M]


@pytest.mark.req("RM000-1.3.2.1-02")
def test_each_copy_of_a_message_is_acknowledged_by_the_relay() -> None:
    given = record(CARRIED).sent_by(CARRIER, HOP_ACK)
    assert [round(one.at, 1) for one in given] == [0.0, 1.0]
    assert without_hop(given[0]) == without_hop(given[1])
