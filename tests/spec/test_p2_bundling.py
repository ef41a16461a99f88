"""Message unit bundling between running nodes: Advanced Features, section 3."""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from lxml import etree

from tests.node.bundled import RETRY, UPDATES, bundling
from tests.node.hubs import NEAR, by_way_of, hub, rule
from tests.node.reliable import BEGIN
from tests.spec.kit import (
    BUYER,
    CARRIER,
    SELLER,
    Call,
    Network,
    Recording,
    Row,
    Script,
    Send,
    Wait,
    WireMessage,
    World,
    address,
    check,
    lost,
    record,
    shows,
    status,
)
from tests.spec.test_p2_multihop import changed, checked, run, script

NOTES: Final = "notes"
"""Their units are secondary to updates, never primary."""
FIRST, LAST, ALSO = "first@buyer", "last@buyer", "also@buyer"
PAIR: Final = (BUYER, SELLER)
Change = Callable[[Any], None]


def agree(world: World, *, both: Any = None, updates: Any = None, **terms: Any) -> None:
    """Agree on updates and notes; `updates` changes the leg of the former, `both` both legs."""
    for name in (UPDATES, NOTES):
        world.agree(name, bundling=bundling(), **terms)
        for at in PAIR:
            leg = world._pmodes[at][-1]["legs"][0]
            for change in (both, updates if name == UPDATES else None):
                if change is not None:
                    change(leg)


def units(message: WireMessage) -> list[str]:
    """Return the ids of user messages in their order."""
    return [str(one) for one in message.xpath("eb:UserMessage/eb:MessageInfo/eb:MessageId/text()")]


def bundle_of(recording: Recording, receiver: str = SELLER) -> WireMessage:
    """Return the one bundle that the buyer sent."""
    [found] = recording.requests(BUYER, receiver, "eb:UserMessage[2]")
    return found


# How a bundle is packaged

SENT: Final = (
    Send(FIRST, NOTES, payload=b"<note>one</note>", media_type="application/xml"),
    Wait(1),
    Send(LAST, UPDATES, payload=b"<update>two</update>", media_type="application/xml"),
    Wait(1),
    Send(ALSO, UPDATES, payload=b"<update>three</update>", media_type="application/xml"),
    Wait(10),
)
"""A note, then two updates: the second is the primary."""


def _encrypted(world: World) -> None:
    agree(world, signed=True)
    for at in PAIR:
        encryption = {"encrypt": True, "certificate": "../keys/seller.pem"}
        if at == SELLER:
            encryption["key"] = "../keys/seller.p12"
        world._pmodes[at][0]["legs"][0]["security"]["x509"]["encryption"] = encryption


def _mixed(world: World) -> None:
    """Notes are sent elsewhere, in another version of SOAP, and not a second time."""
    world.agree(UPDATES, bundling=bundling(), soap="1.1", retry=RETRY)
    world.agree(NOTES, bundling=bundling(), soap="1.2", url=address(CARRIER))


SIGNED: Final = script(lambda world: agree(world, signed=True), *SENT, nodes=PAIR)
PLAIN: Final = script(agree, *SENT, nodes=PAIR)
ENCRYPTED: Final = script(_encrypted, *SENT, nodes=PAIR)
MIXED: Final = script(_mixed, Network(SELLER, lost), *SENT, Wait(20), nodes=PAIR)
IDS: Final = [LAST, FIRST, ALSO]


@pytest.mark.parametrize(
    "row",
    [
        shows(ids, made, path, expected, containing="eb:UserMessage[2]", name=f"{ids} {path}")
        for ids, made, path, expected in (
            ("P2-3.2.1-01", SIGNED, "eb:Messaging", 1),
            ("P2-3.2.1-01", SIGNED, "eb:Messaging/eb:UserMessage", 3),
            ("P2-3.2.1-02", SIGNED, "s:Body", 1),
            ("P2-3.2.1-02", SIGNED, "s:Body/*", 0),
            ("P2-3.2.1-04", SIGNED, "eb:PartInfo[starts-with(@href, 'cid:')]", 3),
            ("P2-3.2.1-04", SIGNED, "eb:PartInfo", 3),
            ("P2-3.2.1-06", SIGNED, "eb:Messaging/eb:UserMessage[1]//eb:MessageId", LAST),
            ("P2-3.2.1-06", SIGNED, "eb:Messaging/eb:UserMessage[1]//eb:Action", UPDATES),
            ("P2-3.2.1-10", SIGNED, "eb:MessageId", IDS),
            ("P2-3.2.1-10", SIGNED, "eb:Messaging/*[not(self::eb:UserMessage)]", 0),
            ("P2-3.2.2-02", SIGNED, "ds:Signature", 1),
            ("P2-3.2.2-02", SIGNED, "ds:Reference[starts-with(@URI, 'cid:')]", 3),
            (
                "P2-3.2.2-02",
                SIGNED,
                "ds:SignedInfo/ds:Reference[@URI = concat('#', //eb:Messaging/@wsu:Id)]",
                1,
            ),
            (
                "P2-3.2.2-02",
                SIGNED,
                "eb:PartInfo[not(@href = //ds:SignedInfo/ds:Reference/@URI)]",
                0,
            ),
            ("P2-3.2.2-03", ENCRYPTED, "xenc:EncryptedData//xenc:CipherReference", 3),
            ("P2-3.2.2-03", ENCRYPTED, "xenc:EncryptedKey", 1),
            ("P2-3.2.2-10", MIXED, "boolean(/s11:Envelope)", True),
        )
    ],
)
def test_a_bundle_has_the_headers_of_all_units_in_one_envelope(row: Row) -> None:
    check(row)


@pytest.mark.req("P2-3.2.1-04")
def test_every_payload_is_the_attachment_that_its_unit_names() -> None:
    bundle = bundle_of(record(PLAIN))
    parts = {
        f"cid:{str(one['Content-ID']).strip('<>')}": one.get_payload(decode=True)
        for one in bundle.parts[1:]
    }
    hrefs = [str(one) for one in bundle.xpath("eb:PartInfo/@href")]
    contents = [b"<update>two</update>", b"<note>one</note>", b"<update>three</update>"]
    assert [parts[one] for one in hrefs] == contents
    assert len(bundle.parts) == 4


@pytest.mark.req("P2-3.2.2-03")
def test_payloads_of_all_units_are_encrypted_as_the_primary_is() -> None:
    recording = record(ENCRYPTED)
    bundle = bundle_of(recording)
    for content in (b"<note>", b"<update>"):
        assert content not in bundle.body
        assert content in bundle_of(record(SIGNED)).body
    assert sorted(recording.inboxes[SELLER]) == sorted(IDS)


@pytest.mark.req("P2-3.2.1-08")
def test_the_times_of_units_are_in_utc() -> None:
    bundle = bundle_of(record(SIGNED))
    times = [str(one) for one in bundle.xpath("eb:UserMessage//eb:Timestamp/text()")]
    assert all(one.endswith("Z") for one in times)
    after = [(datetime.fromisoformat(one) - BEGIN).total_seconds() for one in times]
    assert [round(one) for one in after] == [1, 0, 2]


@pytest.mark.req("P2-3.2.1-10")
def test_receipts_refer_to_units() -> None:
    [answer] = [one for one in record(SIGNED).sent_by(SELLER) if one.count("eb:Receipt")]
    refs = [str(one) for one in answer.xpath("eb:SignalMessage//eb:RefToMessageId/text()")]
    assert refs == IDS
    assert answer.count("eb:SignalMessage/eb:Receipt") == 3


@pytest.mark.req("P2-3.2.2-10", "P2-3.6.3-01")
def test_a_bundle_goes_where_and_as_often_as_its_primary_says() -> None:
    recording = record(MIXED)
    sent = recording.requests(BUYER)
    assert [one.receiver for one in sent] == [SELLER, SELLER]
    assert sent[0].body == sent[1].body
    assert units(sent[1]) == IDS
    assert {recording.state(BUYER, one) for one in IDS} == {"acknowledged"}


@pytest.mark.req("P2-3.9-03")
def test_a_hub_routes_a_bundle_by_its_primary() -> None:
    recording = record(ROUTED)
    bundles = recording.requests(NEAR, None, "eb:UserMessage[2]")
    assert [(one.receiver, units(one)) for one in bundles] == [(SELLER, IDS)]
    [alone] = recording.requests(NEAR, CARRIER)
    assert units(alone) == ["alone@buyer"]


def _routed(world: World) -> None:
    agree(world)
    by_way_of(world, NEAR)
    hub(world, NEAR, rule("notes", CARRIER, action=NOTES), rule("updates", SELLER, action=UPDATES))
    world.wire.usual[CARRIER] = status(202)


ROUTED: Final = script(_routed, *SENT, Send("alone@buyer", NOTES), Wait(10), nodes=(*PAIR, NEAR))


# Bundling policy

NEVER: Final = "never"
UNSAID: Final = "unsaid"


def _policies(world: World) -> None:
    agree(world)
    world.agree(NEVER, bundling=bundling("never"))
    world.agree(UNSAID)


ALONE: Final = script(
    _policies,
    *(Send(f"{name}-{n}@buyer", name) for n in (1, 2) for name in (UPDATES, NEVER, UNSAID)),
    Wait(10),
    nodes=PAIR,
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(NEVER, marks=pytest.mark.req("P2-3.3-01", "P2-7.2-02")),
        pytest.param(UNSAID, marks=pytest.mark.req("P2-3.3-04")),
    ],
)
def test_units_that_are_never_bundled_go_alone_and_at_once(name: str) -> None:
    recording = record(ALONE)
    assert units(bundle_of(recording)) == ["updates-1@buyer", "updates-2@buyer"]
    sent = recording.requests(BUYER, SELLER, f"eb:Action[. = '{name}']")
    assert [units(one) for one in sent] == [[f"{name}-1@buyer"], [f"{name}-2@buyer"]]
    assert all(one.at < 1 for one in sent)


def _refusing(policy: dict[str, Any] | None) -> Change:
    """The seller never agreed on bundles of notes."""

    def prepare(world: World) -> None:
        agree(world)
        leg = world._pmodes[SELLER][1]["legs"][0]
        del leg["bundling"]
        if policy is not None:
            leg["bundling"] = policy

    return prepare


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(
            script(_refusing({"policy": "never"}), *SENT, nodes=PAIR),
            marks=pytest.mark.req("P2-3.3-01"),
            id="never",
        ),
        pytest.param(
            script(_refusing(None), *SENT, nodes=PAIR),
            marks=pytest.mark.req("P2-3.3-04"),
            id="unsaid",
        ),
    ],
)
def test_a_bundle_with_a_unit_that_is_never_bundled_is_refused(made: Script) -> None:
    recording = record(made)
    [answer] = [one for one in recording.sent_by(SELLER) if one.count("eb:Error")]
    assert answer.text("eb:Error/@errorCode") == "EBMS:0030"
    assert answer.text("eb:Error/@refToMessageInError") == LAST
    assert recording.inboxes[SELLER] == []


# Bundles as others write them


def written(message: WireMessage, change: Change, left_out: Sequence[int]) -> tuple[str, bytes]:
    """Write a message again with a changed envelope, without the parts of some numbers."""
    root = deepcopy(message.root)
    change(root)
    contents = [("application/soap+xml; charset=UTF-8", "<root@again>", etree.tostring(root))]
    for number, part in enumerate(message.parts[1:], 1):
        data = part.get_payload(decode=True)
        if number not in left_out and isinstance(data, bytes):
            contents.append((part.get_content_type(), str(part["Content-ID"]), data))
    body = b"".join(
        f"--again\r\nContent-Type: {kind}\r\nContent-ID: {name}\r\n\r\n".encode() + data + b"\r\n"
        for kind, name, data in contents
    )
    kind = 'multipart/related; type="application/soap+xml"; start="<root@again>"; boundary=again'
    return kind, body + b"--again--\r\n"


def posting(change: Change, *, left_out: Sequence[int] = ()) -> Call:
    """Post the bundle of `PLAIN` with a changed envelope, without the parts of some numbers."""

    async def post(world: World) -> None:
        bundle = written(bundle_of(record(PLAIN)), change, left_out)
        await world.wire.post(BUYER, SELLER, *bundle, None)

    return Call(post)


def _units_of(root: Any) -> list[Any]:
    return list(root.iter("{*}UserMessage"))


def moved(order: str) -> Change:
    """Put the units into another order, by their first letters."""

    def change(root: Any) -> None:
        found = {one.findtext(".//{*}MessageId")[0]: one for one in _units_of(root)}
        messaging = _units_of(root)[0].getparent()
        for name in order:
            messaging.append(found[name])

    return change


def timed(order: str, *seconds: float) -> Change:
    """As `moved`, with other timestamps."""

    def change(root: Any) -> None:
        moved(order)(root)
        for unit, after in zip(_units_of(root), seconds, strict=True):
            when = BEGIN + timedelta(seconds=after)
            unit.find(".//{*}Timestamp").text = when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    return change


def in_body(number: int) -> Change:
    """Name the Body as the payload of a unit."""

    def change(root: Any) -> None:
        part = _units_of(root)[number].find(".//{*}PartInfo")
        del part.attrib["href"]
        body = root.find("{*}Body")
        body.append(body.makeelement("content"))

    return change


def received(made: Script) -> Recording:
    """Run a script that posts the bundle of `PLAIN`, which has to be there before."""
    record(PLAIN)
    return record(made)


def codes(made: Script) -> dict[str, str]:
    """Return what the seller said about each unit: a code, or receipt."""
    [answer] = received(made).sent_by(SELLER)
    return {
        str(one.findtext(".//{*}RefToMessageId")): next(
            (error.get("errorCode") for error in one.iter("{*}Error")), "receipt"
        )
        for one in answer.xpath("eb:SignalMessage")
    }


def posted(change: Change, *, ordering: str | None = None, left_out: Sequence[int] = ()) -> Script:
    """A seller that gets a bundle, and has this ordering policy for updates."""

    def prepare(world: World) -> None:
        def updates(leg: Any) -> None:
            if ordering is not None:
                leg["bundling"] = {**leg["bundling"], "ordering": {"policy": ordering}}

        agree(world, updates=updates)

    return script(prepare, posting(change, left_out=left_out), Wait(1), nodes=(SELLER,))


def test_a_bundle_that_was_written_again_is_received() -> None:
    assert codes(posted(lambda _: None)) == dict.fromkeys(IDS, "receipt")


@pytest.mark.req("P2-3.2.1-05")
def test_the_first_unit_of_a_bundle_is_its_primary() -> None:
    # Updates do not list notes as a primary.
    assert codes(posted(moved("fla"))) == {FIRST: "EBMS:0030"}
    assert codes(posted(moved("alf"))) == dict.fromkeys(IDS, "receipt")


@pytest.mark.req("P2-3.2.1-03")
def test_a_payload_in_the_body_is_that_of_the_primary() -> None:
    primary = codes(posted(in_body(0), left_out=[1]))
    assert primary == dict.fromkeys(IDS, "receipt")
    secondary = codes(posted(in_body(1), left_out=[2]))
    assert secondary[LAST] == secondary[ALSO] == "receipt"
    assert secondary[FIRST].startswith("EBMS:")


@pytest.mark.parametrize(
    ("made", "delivered"),
    [
        pytest.param(
            posted(change, ordering=policy), delivered, marks=pytest.mark.req(*ids.split()), id=name
        )
        for name, ids, policy, change, delivered in (
            (
                "document order",
                "P2-3.10.1-02 P2-3.10.2-02",
                "documentorder",
                timed("lfa", 2, 1, 0),
                [LAST, FIRST, ALSO],
            ),
            (
                "another document order",
                "P2-3.10.1-02 P2-3.10.2-02",
                "documentorder",
                timed("alf", 2, 1, 0),
                [ALSO, LAST, FIRST],
            ),
            (
                "time",
                "P2-3.10.2-03 P2-3.10.2-04",
                "timestamp",
                timed("lfa", 2, 1, 0),
                [ALSO, FIRST, LAST],
            ),
            (
                "fractions of a second",
                "P2-3.10.2-03 P2-3.10.2-04",
                "timestamp",
                timed("lfa", 1.002, 1.003, 1.001),
                [ALSO, LAST, FIRST],
            ),
            ("same time", "P2-3.10.2-05", "timestamp", timed("laf", 1, 1, 1), [LAST, ALSO, FIRST]),
            (
                "partly the same time",
                "P2-3.10.2-05",
                "timestamp",
                timed("alf", 1, 0, 0),
                [LAST, FIRST, ALSO],
            ),
        )
    ],
)
def test_units_are_delivered_in_the_order_of_the_primary_s_policy(
    made: Script, delivered: list[str]
) -> None:
    recording = received(made)
    events = [one.message_id for one in recording.journals[SELLER] if one.event == "delivered"]
    assert events == recording.inboxes[SELLER] == delivered


@pytest.mark.req("P2-3.10.1-06")
@pytest.mark.parametrize(
    ("policy", "said"),
    [(None, "receipt"), ("undefined", "receipt"), ("documentorder", "EBMS:0031")],
)
def test_without_an_ordering_policy_units_do_not_depend_on_each_other(
    policy: str | None, said: str
) -> None:
    found = codes(posted(in_body(1), ordering=policy, left_out=[2]))
    assert found[FIRST].startswith("EBMS:")
    assert (found[LAST], found[ALSO]) == ("receipt", said)


def _by_time(leg: Any) -> None:
    leg["bundling"] = {**leg["bundling"], "ordering": {"policy": "timestamp"}}


TIMED: Final = script(lambda world: agree(world, both=_by_time), *SENT, nodes=PAIR)


@pytest.mark.req("P2-3.10.1-05")
def test_timestamps_show_the_order_of_submission() -> None:
    recording = record(TIMED)
    bundle = bundle_of(recording)
    times = dict(
        zip(units(bundle), bundle.xpath("eb:UserMessage//eb:Timestamp/text()"), strict=True)
    )
    assert sorted(times, key=times.__getitem__) == [FIRST, LAST, ALSO]
    assert len(set(times.values())) == 3
    assert units(bundle)[0] == LAST
    assert recording.inboxes[SELLER] == [FIRST, LAST, ALSO]


# P-Modes, as an operator checks them


def pmode(name: str, bundled: Any = None, **leg: Any) -> dict[str, Any]:
    return {
        "id": name,
        "mep": "oneWay",
        "mep_binding": "push",
        "initiator": {"party": "urn:example:buyer", "role": "Buyer"},
        "responder": {"party": "urn:example:seller", "role": "Seller"},
        "legs": [
            {
                "protocol": {"address": "https://seller.example/msh", "soap_version": "1.2"},
                "business_info": {"service": "urn:example:trade", "action": name},
                "security": {"send_receipt": {"reply_pattern": "response"}},
                **({} if bundled is None else {"bundling": bundled}),
                **leg,
            }
        ],
    }


BY_TIME: Final = {"ordering": {"policy": "timestamp"}}
SCOPE: Final = "eb3:CollaborationInfo/eb3:ConversationId"
SCOPED: Final = {"ordering": {"policy": "timestamp", "scope": [SCOPE]}}
IN_ORDER: Final[dict[str, Any]] = {"reception_awareness": {"in_order": "conversation"}}
IN_ONE_ORDER: Final[dict[str, Any]] = {"reception_awareness": {"in_order": "pmode"}}
UNIT: Final = pmode(NOTES, bundling(**BY_TIME), **IN_ORDER)
PRIMARY: Final = pmode(UPDATES, bundling(**BY_TIME), **IN_ORDER)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        pytest.param(right, wrong, said, marks=pytest.mark.req(*ids.split()), id=f"{ids} {name}")
        for ids, name, right, wrong, said in (
            (
                "P2-3.3-05",
                "optional",
                [pmode(UPDATES, bundling())],
                [pmode(UPDATES, bundling(max_delay="PT0S"))],
                "it is 0 with policy optional",
            ),
            (
                "P2-3.3-05",
                "always",
                [pmode(UPDATES, bundling("always"))],
                [pmode(UPDATES, bundling("always", max_delay="PT0S"))],
                "it is 0 with policy always",
            ),
            (
                "P2-3.3-07",
                "never",
                [pmode(UPDATES, bundling()), pmode(NOTES, bundling())],
                [pmode(UPDATES, {"policy": "never"}), pmode(NOTES, bundling())],
                "P-Mode 'updates' is never bundled",
            ),
            (
                "P2-3.3-07 P2-3.3-04",
                "unsaid",
                [pmode(UPDATES, bundling()), pmode(NOTES, bundling())],
                [pmode(UPDATES), pmode(NOTES, bundling())],
                "P-Mode 'updates' is never bundled",
            ),
            (
                "P2-3.6.3-03 P2-3.10.1-01",
                "undefined",
                [PRIMARY, UNIT],
                [pmode(UPDATES, bundling(), **IN_ORDER), UNIT],
                "is delivered in order, and 'updates' leaves it undefined",
            ),
            (
                "P2-3.6.3-01",
                "not in order",
                [PRIMARY, UNIT],
                [pmode(UPDATES, bundling(**BY_TIME)), UNIT],
                "is delivered in order, and 'updates' is not",
            ),
            (
                "P2-3.6.3-04",
                "correlation",
                [PRIMARY, UNIT],
                [pmode(UPDATES, bundling(**BY_TIME), **IN_ONE_ORDER), UNIT],
                "have different reliability correlations",
            ),
            (
                "P2-3.10.1-01",
                "own kind",
                [PRIMARY],
                [pmode(UPDATES, bundling(), **IN_ORDER)],
                "leaves it undefined",
            ),
            (
                "P2-3.10.1-09",
                "scope",
                [pmode(UPDATES, bundling(**SCOPED), **IN_ORDER)],
                [pmode(UPDATES, bundling(ordering={"scope": [SCOPE]}))],
                "it is only for an ordering policy other than undefined",
            ),
        )
    ],
)
def test_the_check_refuses_what_cannot_be_bundled(
    tmp_path: Path, right: list[dict[str, Any]], wrong: list[dict[str, Any]], said: str
) -> None:
    assert checked(tmp_path, *right)[0] == 0, checked(tmp_path, *right)
    code, output = checked(tmp_path, *wrong)
    assert (code, said in output) == (1, True), output


@pytest.mark.req("P2-3.10.1-10")
def test_scope_and_correlation_are_equal(tmp_path: Path) -> None:
    reliability = {
        "protocol": "wsrm",
        "at_least_once": {"contract": True},
        "at_most_once": True,
        "in_order": True,
        "correlation": [SCOPE],
    }
    made = pmode(UPDATES, {"policy": "never", **SCOPED}, reliability=reliability)
    made["legs"][0]["security"] = {}
    code, said = checked(tmp_path, made)
    assert (code, "differs" in said) == (0, False), said
    other = changed(made, "legs", 0, "reliability", "correlation", value=["eb3:PartyInfo/eb3:To"])
    code, said = checked(tmp_path, other)
    assert (code, "it differs from Reliability.Correlation" in said) == (1, True), said


@pytest.mark.req("P2-3.3-04", "P2-3.10.1-06")
def test_a_pmode_shows_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "pmode.yaml"
    file.write_text(json.dumps(pmode(UPDATES, {"ordering": {}})))
    shown = run("pmode", "show", file).output
    assert "PMode[1].bundling.policy = never" in shown
    assert "PMode[1].bundling.ordering.policy = undefined" in shown
