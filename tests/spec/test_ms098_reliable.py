"""ebXML Message Service 0.98b: its services (9) and reliable messaging (10), on running nodes."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from postroad.cli.main import app
from tests.node.ebxml_letters import RELIABLY, SERVICES, M, envelope, header, packed, trace, via
from tests.node.reliable import party
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
    Post,
    Row,
    Script,
    Send,
    Settings,
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
    status,
    wire,
)

MS: Final = "ms098"
SERVICE: Final = SERVICES["0.98b"]
REF: Final = "eb:MessageData/eb:RefToMessageId"
PLAIN: Final = sent(MS)
NOT_SENT: Final = relayed(MS, refused)
NOT_ACKNOWLEDGED: Final = relayed(MS, lost)
OFFERS: Final = Ebxml("offers", version="0.98b", delivery_semantics="BestEffort")

WARNING: Final = "eb:ErrorList[@eb:highestSeverity='Warning']"

ROWS: Final = [
    shows(
        "MS098-10.3-02 MS098-10.3.1.2-07 MS098-10.3.1.3-01 MS098-10.3.1.3-02 MS098-10.3.1.3-09",
        PLAIN,
        REF,
        M,
        sender=SELLER,
    ),
    shows("MS098-10.3.1.3-05", PLAIN, "eb:Service", SERVICE, sender=SELLER),
    shows("MS098-10.3.1.3-06", PLAIN, "eb:Action", "Acknowledgment", sender=SELLER),
    shows("MS098-10.2.5-01", PLAIN, "eb:Via/@eb:ackRequested[.!='None']", 0, containing=ORDER),
    *[
        shows(ids, script, path, expected, sender=CARRIER, containing=FAILURE, name=f"{ids} {why}")
        for why, script in (("not sent", NOT_SENT), ("not acknowledged", NOT_ACKNOWLEDGED))
        for ids, path, expected in (
            ("MS098-10.4-02", "eb:MessageHeader/eb:From/eb:PartyId", party(CARRIER)),
            ("MS098-10.4-03", "eb:MessageHeader/eb:To/eb:PartyId", party(BUYER)),
        )
    ],
    shows("MS098-11-04", NOT_ACKNOWLEDGED, "s:Fault", 0, sender=CARRIER, containing=WARNING),
    shows("MS098-10.4-04", NOT_SENT, "eb:Service", SERVICE, sender=CARRIER, containing="eb:Error"),
    shows(
        "MS098-10.4-04",
        NOT_SENT,
        "eb:Action",
        "MessageError",
        sender=CARRIER,
        containing="eb:Error",
    ),
    *[
        shows(ids, script, f"eb:Error/@eb:{name}", value, sender=CARRIER, containing="eb:Error")
        for ids, script, name, value in (
            ("MS098-10.4-05", NOT_SENT, "severity", "Error"),
            ("MS098-10.4-06", NOT_ACKNOWLEDGED, "severity", "Warning"),
            ("MS098-10.4-07", NOT_SENT, "errorCode", "DeliveryFailure"),
        )
    ],
]


@pytest.mark.parametrize("row", ROWS)
def test_messages_are_as_section_10_says(row: Row) -> None:
    check(row)


# 9: services


def _asked(action: str, **named: Any) -> tuple[str, bytes]:
    """A question to the MSH of the seller."""
    given = {"id": "q@buyer.example", "service": SERVICE, "action": action} | named
    return packed(envelope(header(**given), trace()))


@pytest.mark.req("MS098-9.1-01")
@pytest.mark.parametrize("inside", [RELIABLY, ""], ids=["reliably", "not reliably"])
def test_a_status_request_about_a_stored_message_is_answered(inside: str) -> None:
    question = _asked("StatusRequest", ref=M, inside=inside)
    recording = record(posted(MS, letter(), question))
    [said] = recording.sent_by(SELLER, "eb:StatusData")
    assert said.text("eb:StatusData/@eb:messageStatus") == "Received"
    assert said.text(f"eb:MessageHeader/{REF}") == "q@buyer.example"
    assert said.text("eb:StatusData/eb:RefToMessageId") == M


@pytest.mark.req("MS098-9.2.3-01")
def test_each_ping_of_a_partner_is_answered() -> None:
    """Also a second time, and where the ping asks for reliable delivery."""
    pings = [
        _asked("Ping", id=f"{number}@buyer.example", inside=inside)
        for number, inside in ((1, ""), (1, ""), (2, RELIABLY))
    ]
    said = record(posted(MS, *pings)).sent_by(SELLER)
    assert [one.text("eb:Action") for one in said] == ["Pong"] * 3
    assert [one.text(REF) for one in said] == [f"{number}@buyer.example" for number in (1, 1, 2)]


# 10.1: persistent storage


@pytest.mark.req("MS098-10.1.1-01", "MS098-10.1.1-04", "MS098-10.3.1.2-04")
@pytest.mark.parametrize("killed", [(BUYER,), (SELLER,), (BUYER, SELLER)])
def test_after_a_crash_all_goes_on_as_though_nothing_had_happened(killed: tuple[str, ...]) -> None:
    usual, after = record(interrupted(MS)), record(interrupted(MS, *killed))
    assert len(orders(after)) > 2
    for one in (orders(after), after.requests(SELLER, BUYER, ACK)):
        assert len({without_hop(copy) for copy in one}) == 1
    assert [(one.at, one.receiver) for one in after.requests()] == [
        (one.at, one.receiver) for one in usual.requests()
    ]
    assert after.inboxes == usual.inboxes == {BUYER: [], SELLER: [M]}
    assert after.state(BUYER, M) == "acknowledged"


# 10.2: parameters


@pytest.mark.req("MS098-10.2.1-01", "MS098-10.2.1-02", "MS098-10.2.1-04", "MS098-10.3-01")
@pytest.mark.parametrize(
    ("terms", "copies"),
    [
        ({}, 1),
        ({"delivery_semantics": "BestEffort"}, 1),
        ({"delivery_semantics": "OnceAndOnlyOnce"}, 2),
    ],
    ids=["default", "BestEffort", "OnceAndOnlyOnce"],
)
def test_delivery_semantics_decides_whether_a_message_is_sent_again(
    terms: dict[str, str], copies: int
) -> None:
    steps = (Network(SELLER, lost), Send(M), Wait(60))
    recording = record(Script((Ebxml(version="0.98b", **terms),), steps))
    assert len(orders(recording)) == copies
    assert len(recording.requests(SELLER, BUYER, ACK)) == copies - 1
    assert recording.inboxes[SELLER] == [M] * (copies - 1)


@pytest.mark.req("MS098-10.2.1-03")
@pytest.mark.parametrize(
    ("terms", "code"), [(OFFERS, None), (reliable(MS, "offers"), "NotSupported")]
)
def test_with_best_effort_the_method_is_ignored(terms: Ebxml, code: str | None) -> None:
    other = via(' eb:reliableMessagingMethod="Transport"')
    steps = posted(MS, letter(other, inside="", action="offers")).steps
    recording = record(Script((terms,), steps, nodes=(SELLER,)))
    assert recording.inboxes[SELLER] == ([M] if code is None else [])
    said = [one.text("eb:Error/@eb:errorCode") for one in recording.sent_by(SELLER)]
    assert said == ([] if code is None else [code])


@pytest.mark.req("MS098-10.2.1-05")
@pytest.mark.parametrize("fault", [refused, lost, status(500)], ids=["refused", "lost", "HTTP 500"])
def test_with_best_effort_an_msh_that_cannot_deliver_does_nothing(fault: Any) -> None:
    terms = (
        Ebxml(at=(BUYER,), url=address(CARRIER), version="0.98b"),
        reliable(MS, "there", at=(CARRIER,), relay=True),
        Settings(CARRIER, {"send": {"breaker": {"failures": 0}}}),
    )
    steps = (Network(SELLER, *[fault] * 9), Send(M), Wait(300))
    recording = record(Script(terms, steps, nodes=(BUYER, CARRIER)))
    assert [one.receiver for one in recording.requests()] == [CARRIER, SELLER]
    assert recording.notices[CARRIER] == []


@pytest.mark.req("MS098-10.2.5-01")
@pytest.mark.parametrize(
    ("word", "elements"), [(None, 0), ("None", 0), ("Unsigned", 1), ("UnSigned", 1)]
)
def test_an_acknowledgment_element_is_given_where_the_header_asks_for_it(
    word: str | None, elements: int
) -> None:
    blocks = [] if word is None else [via(f' eb:ackRequested="{word}"')]
    for agreed in ("None", "UnSigned"):
        [said] = record(posted(MS, letter(*blocks), ack_requested=agreed)).sent_by(SELLER)
        assert said.count("eb:Acknowledgment") == elements
        assert said.count(ACK) == 1


@pytest.mark.req("MS098-10.2.2-01")
@pytest.mark.parametrize(
    ("accuracy", "right"),
    [
        ("02:30", True),
        ("99:59", True),
        ("90s", False),
        ("2:30", False),
        ("00:60", False),
        ("PT30S", False),
    ],
)
def test_the_accuracy_of_clocks_is_written_in_minutes_and_seconds(
    tmp_path: Path, accuracy: str, right: bool
) -> None:
    leg = {
        "protocol": {"address": address(SELLER)},
        "business_info": {"service": "urn:example:trade", "action": "orders"},
        "ebxml": {"version": "0.98b", "msh_time_accuracy": accuracy},
    }
    parties = {"initiator": {"party": party(BUYER)}, "responder": {"party": party(SELLER)}}
    pmode = {"id": "orders", "agreement": "urn:example:cpa", **parties, "legs": [leg]}
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(pmode))
    output = CliRunner().invoke(app, ["pmode", "check", str(file)]).output
    assert ("0 errors" if right else "mm:ss") in output, output


@pytest.mark.req("MS098-10.2.2-01")
@pytest.mark.parametrize(("accuracy", "live"), [("02:30", "13:02:30"), ("00:45", "13:00:45")])
def test_time_to_live_is_later_by_minutes_and_seconds_of_the_accuracy(
    accuracy: str, live: str
) -> None:
    retry = {"max_retries": 1, "time_to_live": "PT1H"}
    terms = reliable(MS, retry=retry, msh_time_accuracy=accuracy)
    [said] = record(Script((terms,), (Send(M), Wait(1)))).sent_by(BUYER)
    assert said.text("eb:TimeToLive") == f"2024-06-01T{live}.000Z"


# 10.3: the protocol


@pytest.mark.req(
    "MS098-10.2.6-01",
    "MS098-10.2.8-01",
    "MS098-10.3.1.1-04",
    "MS098-10.3.1.4-01",
    "MS098-10.3.1.4-02",
)
def test_a_message_is_sent_again_after_the_timeout_and_then_each_interval() -> None:
    recording = record(unanswered(MS))
    assert times(orders(recording)) == SCHEDULE
    assert recording.state(BUYER, M) == "in_doubt"


@pytest.mark.req("MS098-10.3.1.1-04", "MS098-10.3.1.5-01", "MS098-10.3.1.5-04")
def test_the_identical_message_is_sent_until_it_is_acknowledged() -> None:
    for script in (unanswered(MS), interrupted(MS)):
        assert len({one.body for one in orders(record(script))}) == 1
    assert times(orders(record(interrupted(MS)))) == [0.0, 5.0, 15.0]


@pytest.mark.req("MS098-10.2.1-04", "MS098-10.3-01")
@pytest.mark.parametrize("blocks", [(), (via(' eb:reliableMessagingMethod="ebXML"'),)])
def test_a_receiver_follows_the_protocol(blocks: tuple[str, ...]) -> None:
    copies = record(posted(MS, letter(*blocks), letter(*blocks)))
    assert len(copies.requests(SELLER, BUYER, ACK)) == 2
    assert copies.inboxes[SELLER] == [M]


@pytest.mark.req("MS098-10.3.1.1-02", "MS098-10.3.1.1-03")
@played
async def test_a_message_is_stored_before_it_is_sent_to_the_receiver(world: World) -> None:
    """A sender that is killed has the message and sends it again."""
    world.kept_in = "sqlite"
    reliable(MS).add(world)
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


@pytest.mark.req("MS098-10.3.1.2-03", "MS098-10.3.1.5-06")
def test_a_duplicate_is_known_by_its_message_id_and_delivered_once() -> None:
    recording = record(duplicated(MS))
    assert recording.inboxes[SELLER] == [M, "other@buyer.example"]
    assert recording.events(SELLER, M).count("delivered") == 1


@pytest.mark.req("MS098-10.3.1.2-08", "MS098-10.3.1.5-05")
def test_a_duplicate_gets_the_message_that_was_first_sent_in_response() -> None:
    given = record(duplicated(MS)).requests(SELLER, BUYER, ACK)
    assert [one.text(REF) for one in given] == [M, "other@buyer.example", M]
    assert without_hop(given[2]) == without_hop(given[0])


@pytest.mark.req("MS098-10.3.1.2-08", "MS098-10.3.1.5-05")
def test_a_relay_acknowledges_a_duplicate_as_it_did_the_first() -> None:
    own = "eb:MessageId[contains(., '@carrier')]"
    given = record(carried(MS, via(' eb:ackRequested="UnSigned"'))).sent_by(CARRIER, own)
    assert [round(one.at, 1) for one in given] == [0.0, 1.0]
    assert without_hop(given[0]) == without_hop(given[1])


@pytest.mark.req("MS098-10.3.1.2-06")
def test_a_message_that_refers_to_another_marks_it_delivered() -> None:
    recording = record(referred(MS))
    assert recording.state(BUYER, M) == "acknowledged"
    assert len(orders(recording)) == 1
    assert recording.inboxes[BUYER] == ["r@seller.example"]


@pytest.mark.req("MS098-10.3.1.2-01", "MS098-10.3.1.2-02")
def test_an_acknowledgment_marks_the_message_that_it_refers_to() -> None:
    def acknowledging(ref: str) -> tuple[str, bytes]:
        parties = {"frm": party(SELLER), "to": party(BUYER)}
        named = {"id": f"a{ref}", "ref": ref, "service": SERVICE, "action": "Acknowledgment"}
        said = header(**parties, **named)
        return packed(envelope(said, trace(address(SELLER), address(BUYER))))

    other = "other@buyer.example"
    taken = Network(SELLER, status(204), status(204))
    sending = (taken, Send(M), Send(other), Wait(1))
    told = (Post(BUYER, *acknowledging(other), sender=SELLER), Wait(1))
    recording = record(Script((reliable(MS),), (*sending, *told), nodes=(BUYER,)))
    assert recording.state(BUYER, other) == "acknowledged"
    assert recording.state(BUYER, M) == "waiting"


@pytest.mark.req("MS098-10.3.1.2-09", "MS098-10.3.1.2-10")
def test_a_duplicate_without_a_response_is_acknowledged_unless_the_application_answers() -> None:
    """The first copies wait for the response of the application, the last one does not."""
    recording = record(without_response(MS))
    assert recording.inboxes[SELLER] == [M]
    story = ["received", "delivered", "duplicate", "duplicate", "acked"]
    assert recording.events(SELLER, M) == story
    [said] = recording.sent_by(SELLER)
    assert said.at == recording.requests(BUYER)[2].at
    assert (said.receiver, said.text("eb:Action"), said.text(REF)) == (BUYER, "Acknowledgment", M)


@pytest.mark.req("MS098-10.3.1.3-04")
def test_a_reply_acknowledges_with_its_own_service_and_action() -> None:
    [said] = record(replied(MS)).sent_by(SELLER)
    assert said.count("eb:Acknowledgment") == 1
    assert (said.text("eb:Service"), said.text("eb:Action")) == ("urn:example:trade", "answers")
