"""Multi-hop messaging on running endpoints and hubs: Advanced Features, section 2."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from lxml import etree
from typer.testing import CliRunner, Result

from postroad.cli.main import app
from tests.node import sequences
from tests.node import test_wsreliability as wsreliability
from tests.node import test_wsrm_routed as wsrm
from tests.node.collecting import MPC
from tests.node.hubs import FAR, NEAR, PATIENT, by_way_of, hub, rule
from tests.node.reliable import party
from tests.node.test_pull_relaying import pull, relay
from tests.node.test_pull_relaying import road as pull_road
from tests.spec.kit import (
    BUYER,
    NAMESPACES,
    ORDERS,
    SELLER,
    Call,
    Row,
    Script,
    Send,
    Start,
    Wait,
    WireMessage,
    World,
    address,
    check,
    record,
    shows,
    status,
)

PART2: Final = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/part2/200811/"
I_CLOUD: Final = f"{PART2}icloud"
NEXT_MSH: Final = f"{PART2}nextmsh"
ANONYMOUS: Final = "http://www.w3.org/2005/08/addressing/anonymous"
REFUSED: Final = "refused"
"""A P-Mode whose messages the seller refuses."""
EVERYBODY: Final = (BUYER, NEAR, FAR, SELLER)


def script(
    prepare: Callable[[World], None], *steps: Any, nodes: Sequence[str] = EVERYBODY
) -> Script:
    """Make a script that prepares P-Modes and routes first, then starts nodes."""

    async def prepared(world: World) -> None:
        prepare(world)

    return Script((), (Call(prepared), *(Start(name) for name in nodes), *steps))


def agree(world: World, *, soap: str = "1.2", signed: bool = False, epr: Any = None) -> None:
    """buyer, near, far, seller: orders and messages that are refused; signals come back so."""
    for name in (ORDERS, REFUSED):
        world.agree(name, receipt="callback", signed=signed, soap=soap, retry=PATIENT)
    by_way_of(world, NEAR)
    for pmode in world._pmodes[SELLER]:
        pmode["legs"][0]["security"]["send_receipt"]["reply_to"] = address(FAR)
    world._pmodes[SELLER][1]["legs"][0]["business_info"]["payload_profile"] = {"max_size": "1 B"}
    for at in (BUYER, SELLER) if epr else ():
        for pmode in world._pmodes[at]:
            pmode["responder"]["addressing"] = deepcopy(epr)
    there, back = {"to_party": party(SELLER)}, {"to_party": party(BUYER)}
    hub(world, NEAR, rule("over", FAR, **there), rule("home", BUYER, **back))
    hub(world, FAR, rule("home", SELLER, **there), rule("over", NEAR, **back))


# Headers of messages that are routed

EPR: Final = {
    "address": "icloud",
    "epr": {"routing_input": {"business_info": {"action": "post"}}},
}


def routed(soap: str) -> Script:
    """Signed messages with routing input, their receipt, and an error about the second."""
    return script(
        lambda world: agree(world, soap=soap, signed=True, epr=EPR),
        *(Send("m@buyer"), Send("n@buyer", REFUSED), Wait(5)),
    )


def reliable(soap: str) -> Script:
    """A sequence of WS-ReliableMessaging from end to end, and its end."""
    return script(
        lambda world: wsrm.there_and_back(
            world, "store", signed=True, soap=soap, in_order=True, max_idle="PT1M"
        ),
        *(Send("m@buyer"), Send("n@buyer"), Wait(200)),
    )


def _pulled(world: World) -> None:
    pull_road(world, signed=True)
    for at in (BUYER, SELLER):
        world._pmodes[at][0]["legs"][0]["addressing"] = {"address": "icloud"}
    # The routing input of a PullRequest names no MPC: it is routed by its parties.
    hub(world, FAR, relay("over", NEAR, to_party=party(BUYER)), relay("mpc", NEAR, mpc=MPC))
    hub(world, NEAR, relay("home", BUYER, to_party=party(BUYER)), relay("mpc", BUYER, mpc=MPC))


async def _pull(world: World) -> None:
    assert await pull(world.stations[SELLER]) == ("m@buyer",)


ROUTED: Final = {soap: routed(soap) for soap in ("1.1", "1.2")}
RELIABLE: Final = {soap: reliable(soap) for soap in ("1.1", "1.2")}
PULLED: Final = script(_pulled, Send("m@buyer"), Call(_pull), Wait(3))
TARGET: Final = {"1.1": "s11:actor", "1.2": "s12:role"}
_IRI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+")


def is_iri(found: Any) -> bool:
    return len(found) == 1 and _IRI.fullmatch(found[0].text) is not None


def _header_rows() -> list[Any]:
    """What each message that is routed has, by script, SOAP version and sender."""
    rows = []
    for soap, target in TARGET.items():
        for name, made in (("messages and signals", ROUTED), ("sequence", RELIABLE)):
            for sender in (BUYER, SELLER):
                for ids, path, expected in (
                    ("P2-2.4.5-10", f"s:Header/wsa:To[. = '{I_CLOUD}']/@{target}", NEXT_MSH),
                    ("P2-2.5.5-10", "s:Header/ebint:RoutingInput/*", 1),
                    ("P2-2.5.5-10", "s:Header/ebint:RoutingInput/ebint:UserMessage", 1),
                    ("P2-2.5.5-10", f"s:Header/ebint:RoutingInput/@{target}", NEXT_MSH),
                    (
                        "P2-2.5.5-10",
                        "s:Header/ebint:RoutingInput/@wsa:IsReferenceParameter",
                        "true",
                    ),
                    ("P2-2.6.3.2-01 P2-2.7.1.1-01", "s:Header/wsa:To", I_CLOUD),
                    ("P2-2.6.3.2-01", "s:Header/wsa:Action", 1),
                    ("P2-2.6.3.2-05", "s:Header/wsa:Action", is_iri),
                    ("P2-2.6.3.2-07", "s:Header/wsa:Action/@*[local-name() = 'role']", 0),
                    ("P2-2.6.3.2-07", "s:Header/wsa:Action/@*[local-name() = 'actor']", 0),
                    ("P2-2.6.3.1-03", "count(//@s12:role)", 0.0),
                    ("P2-2.6.3.1-03", "boolean(//wsa:To/@s11:actor)", True),
                ):
                    if "2.6.3.1-03" in ids and soap == "1.2":
                        continue
                    rows.append(
                        shows(
                            ids,
                            made[soap],
                            path,
                            expected,
                            sender=sender,
                            containing="s:Header/ebint:RoutingInput",
                            name=f"{ids} {path.partition('[')[0]} {name} {soap} {sender}",
                        )
                    )
    acks_to = "wsrm:CreateSequence/wsrm:AcksTo"
    reference = "wsa:ReferenceParameters/ebint:RoutingInput"
    for soap, target in TARGET.items():
        ids = "P2-2.6.3.1-03" if soap == "1.1" else "P2-2.5.5-10"
        for place in ("wsa:Address", reference):
            path = f"{acks_to}/{place}/@{target}"
            rows.append(shows(ids, RELIABLE[soap], path, NEXT_MSH, containing=acks_to))
    return rows


@pytest.mark.parametrize("row", _header_rows())
def test_what_is_routed_has_the_headers_for_it(row: Row) -> None:
    check(row)


ROUTING_INPUT: Final = f"""
<grammar xmlns="http://relaxng.org/ns/structure/1.0"
  datatypeLibrary="http://www.w3.org/2001/XMLSchema-datatypes" ns="{NAMESPACES["ebint"]}"
  xmlns:eb="http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/">
 <start><element name="RoutingInput"><ref name="soap"/>
  <element name="UserMessage">
   <optional><attribute name="mpc" ns=""><data type="anyURI"/></attribute></optional>
   <optional><element name="eb:MessageInfo"><ref name="any"/></element></optional>
   <element name="eb:PartyInfo">
    <element name="eb:From"><ref name="party"/></element>
    <element name="eb:To"><ref name="party"/></element>
   </element>
   <element name="eb:CollaborationInfo">
    <optional><element name="eb:AgreementRef"><ref name="typed"/>
     <optional><attribute name="pmode" ns=""/></optional></element></optional>
    <element name="eb:Service"><ref name="typed"/></element>
    <element name="eb:Action"><ref name="text"/></element>
    <element name="eb:ConversationId"><ref name="text"/></element>
   </element>
   <optional><element name="eb:MessageProperties"><oneOrMore><element name="eb:Property">
    <attribute name="name" ns=""/><ref name="typed"/></element></oneOrMore></element></optional>
   <optional><element name="eb:PayloadInfo"><ref name="any"/></element></optional>
  </element></element></start>
 <define name="soap"><zeroOrMore><attribute><anyName><except><nsName ns=""/></except></anyName>
  </attribute></zeroOrMore></define>
 <define name="party"><oneOrMore><element name="eb:PartyId"><ref name="typed"/></element>
  </oneOrMore><element name="eb:Role"><ref name="text"/></element></define>
 <define name="typed"><optional><attribute name="type" ns=""/></optional><ref name="text"/></define>
 <define name="text"><data type="token"><param name="minLength">1</param></data></define>
 <define name="any"><zeroOrMore><choice><attribute><anyName/></attribute><text/>
  <element><anyName/><ref name="any"/></element></choice></zeroOrMore></define>
</grammar>"""
"""The schema of Appendix C, with what it takes from the schema of the core, in RELAX NG."""


@cache
def schema() -> etree.RelaxNG:
    return etree.RelaxNG(etree.fromstring(ROUTING_INPUT))


@pytest.mark.req("P2-2.7.1.2-01")
@pytest.mark.parametrize(
    ("made", "containing"),
    [
        (ROUTED["1.2"], "eb:UserMessage"),
        (ROUTED["1.2"], "eb:Receipt"),
        (ROUTED["1.2"], "eb:Error"),
        (ROUTED["1.1"], "eb:Receipt"),
        (PULLED, "eb:PullRequest"),
        (RELIABLE["1.2"], "wsrm:CreateSequence"),
        (RELIABLE["1.2"], "wsrm:CreateSequenceResponse"),
        (RELIABLE["1.2"], "wsrm:SequenceAcknowledgement"),
    ],
)
def test_routing_input_in_messages_is_valid_by_its_schema(made: Script, containing: str) -> None:
    found = [
        element
        for message in record(made).requests(containing=containing)
        for element in message.xpath("ebint:RoutingInput")
    ]
    assert found
    for element in found:
        schema().assertValid(element)


def test_the_schema_of_routing_input_can_be_broken() -> None:
    [message] = record(ROUTED["1.2"]).requests(NEAR, FAR, "eb:Messaging[.//eb:MessageId='m@buyer']")
    [element] = deepcopy(message.xpath("ebint:RoutingInput"))
    schema().assertValid(element)
    for name in ("To", "Action", "Service", "PartyId"):
        broken = deepcopy(element)
        [one, *_] = broken.iter(f"{{*}}{name}")
        one.getparent().remove(one)
        assert not schema().validate(broken), name


@pytest.mark.req("P2-2.5.5-11")
def test_hubs_route_by_routing_input_without_message_info() -> None:
    recording = record(ROUTED["1.2"])
    for receiver in (FAR, NEAR, BUYER):
        [receipt] = recording.requests(None, receiver, "eb:Receipt")
        assert receipt.count("ebint:RoutingInput") == 1
        assert receipt.count("ebint:RoutingInput//eb:MessageInfo") == 0
    assert recording.state(BUYER, "m@buyer") == "acknowledged"
    for at in (NEAR, FAR):
        assert not [one for one in recording.journals[at] if one.event == "error_raised"]


# Signatures

WSR: Final = "http://docs.oasis-open.org/wsrm/2004/06/ws-reliability-1.1.xsd"
TO_BE_SIGNED: Final = {WSR, *(NAMESPACES[name] for name in ("wsa", "wsrm", "ebint"))}


def _wsr(world: World) -> None:
    wsreliability.agree(world, signed=True, pattern="Callback")


async def _forget(world: World) -> None:
    """The seller loses its store, and so its end of the sequence."""
    world.stations[SELLER].kill()
    world._memories.pop(SELLER)
    await world.start(SELLER)


FORGOTTEN: Final = script(
    lambda world: wsrm.there_and_back(world, "store", signed=True, soap="1.1"),
    *(Send("m@buyer"), Wait(5), Call(_forget), Send("n@buyer"), Wait(20)),
)
GROUPED: Final = script(_wsr, Send("m@buyer"), Wait(3), nodes=(BUYER, SELLER))


def coverage(message: WireMessage) -> tuple[set[str], set[str]]:
    """Return the names of header blocks that must be signed, and of those that are."""
    covered = {one.removeprefix("#") for one in message.xpath("ds:SignedInfo/ds:Reference/@URI")}
    wsu = f"{{{NAMESPACES['wsu']}}}Id"
    blocks = [
        one for one in message.xpath("s:Header/*") if etree.QName(one).namespace in TO_BE_SIGNED
    ]
    names = {etree.QName(one).localname: one.get(wsu) or one.get("id") for one in blocks}
    return set(names), {name for name, value in names.items() if value in covered}


@pytest.mark.req("P2-2.4.5-02")
@pytest.mark.parametrize(
    ("made", "seen"),
    [
        (ROUTED["1.2"], {"To", "Action", "RoutingInput"}),
        (ROUTED["1.1"], {"To", "Action", "RoutingInput"}),
        (PULLED, {"To", "Action", "RoutingInput"}),
        (
            RELIABLE["1.2"],
            {"To", "Action", "MessageID", "RelatesTo", "RoutingInput", "Sequence"}
            | {"SequenceAcknowledgement"},
        ),
        (FORGOTTEN, {"To", "Action", "RoutingInput", "Sequence", "SequenceFault"}),
        (GROUPED, {"Request", "Response"}),
    ],
    ids=["messages and signals", "SOAP 1.1", "PullRequest", "sequence", "fault", "group"],
)
def test_headers_of_addressing_and_reliability_are_signed_where_messages_are(
    made: Script, seen: set[str]
) -> None:
    found = set()
    for message in record(made).messages:
        if message.sender not in (BUYER, SELLER) or not message.body:
            continue
        asked, signed = coverage(message)
        if message.count("ds:Signature"):
            assert signed == asked, etree.tostring(message.root)[:2000]
            found |= asked
    assert seen <= found


# The routing function


def _set(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(pmode: dict[str, Any]) -> None:
        place: Any = pmode
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return change


_INFO: Final = ("legs", 0, "business_info")
_TYPED: Final = {"value": "trade", "type": "urn:example:services"}
_PAIR: Final = [party(BUYER), {"id": "0088", "type": "urn:example:gln"}]
_MATCHES: Final = (
    ("mpc", "P2-2.5.5-03", "urn:example:mpc", _set(*_INFO, "mpc", value="urn:example:mpc")),
    (
        "from_party",
        "P2-2.5.5-04",
        {"id": "0088", "type": "urn:example:gln"},
        _set("initiator", "party", value=_PAIR),
    ),
    (
        "to_party",
        "P2-2.5.5-04",
        "urn:example:box",
        _set("responder", "party", value="urn:example:box"),
    ),
    (
        "from_role",
        "P2-2.5.5-04",
        "urn:example:desk",
        _set("initiator", "role", value="urn:example:desk"),
    ),
    (
        "to_role",
        "P2-2.5.5-04",
        "urn:example:till",
        _set("responder", "role", value="urn:example:till"),
    ),
    ("service", "P2-2.5.5-05", _TYPED, _set(*_INFO, "service", value=_TYPED)),
    ("action", "P2-2.5.5-05", "cancel", _set(*_INFO, "action", value="cancel")),
    ("agreement", "P2-2.5.5-05", "urn:example:a", _set("agreement", value="urn:example:a")),
    ("conversation_id", "P2-2.5.5-05", "c1", lambda _: None),
)
ELSEWHERE: Final = "elsewhere"


def station(criterion: str) -> str:
    """Return the name of the node that a rule of this criterion leads to."""
    return f"by-{criterion.replace('_', '-')}"


def _by_criteria(world: World) -> None:
    names = [ELSEWHERE, *(name for name, *_ in _MATCHES)]
    changes = {name: change for name, _, _, change in _MATCHES}
    for name in names:
        world.agree(name, receipts=False)
        pmode = world._pmodes[BUYER][-1]
        changes.get(name, lambda _: None)(pmode)
        world.wire.usual[station(name)] = status(202)
    by_way_of(world, NEAR)
    rules = [rule(name, station(name), **{name: value}) for name, _, value, _ in _MATCHES]
    hub(world, NEAR, *rules, rule(ELSEWHERE, station(ELSEWHERE)))


SENT_BY_CRITERIA: Final = script(
    _by_criteria,
    *(
        Send(f"{name}@buyer", name, conversation="c1" if name == "conversation_id" else None)
        for name in (ELSEWHERE, *(name for name, *_ in _MATCHES))
    ),
    Wait(5),
    nodes=(BUYER, NEAR),
)


@pytest.mark.req("P2-2.5.5-01")
@pytest.mark.parametrize(
    "criterion",
    [
        ELSEWHERE,
        *(pytest.param(name, marks=pytest.mark.req(one)) for name, one, *_ in _MATCHES),
    ],
)
def test_a_hub_routes_by_each_element_of_the_header(criterion: str) -> None:
    recording = record(SENT_BY_CRITERIA)
    wanted = f"{criterion}@buyer"
    passed_on = [
        one.receiver for one in recording.requests(NEAR, None, f"eb:MessageId[. = '{wanted}']")
    ]
    assert passed_on == [station(criterion)]


# Errors of a hub


def reference(name: str, to: str, place: str | None = None) -> bytes:
    """Write a wsa:FaultTo or wsa:ReplyTo, with routing input where a party is given."""
    parameters = ""
    if place is not None:
        parameters = (
            f'<wsa:ReferenceParameters><ebint:RoutingInput xmlns:ebint="{NAMESPACES["ebint"]}">'
            '<ebint:UserMessage xmlns:eb="http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/'
            f'200704/"><eb:PartyInfo><eb:From><eb:PartyId>{party(SELLER)}</eb:PartyId>'
            "<eb:Role>urn:example:answers</eb:Role></eb:From>"
            f"<eb:To><eb:PartyId>{party(place)}</eb:PartyId><eb:Role>urn:example:asks</eb:Role>"
            "</eb:To></eb:PartyInfo><eb:CollaborationInfo><eb:Service>urn:example:post</eb:Service>"
            f"<eb:Action>{place}</eb:Action><eb:ConversationId>1</eb:ConversationId>"
            "</eb:CollaborationInfo></ebint:UserMessage></ebint:RoutingInput>"
            "</wsa:ReferenceParameters>"
        )
    return (
        f'<wsa:{name} xmlns:wsa="{NAMESPACES["wsa"]}"><wsa:Address>{to}</wsa:Address>'
        f"{parameters}</wsa:{name}>"
    ).encode()


def posting(message_id: str, to: str, *headers: bytes, pmode: str = ORDERS) -> Call:
    """Post what the buyer sends, with more headers."""

    async def run(world: World) -> None:
        world.wire.will(status(202), at=NEAR)
        await world.stations[BUYER].send(message_id, pmode)
        await world.wait(1)
        [sent] = world.wire.to(NEAR, message_id)
        end = b"</S12:Header>"
        body = sent.body.replace(end, b"".join(headers) + end, 1)
        await world.wire.post(BUYER, to, sent.content_type, body, None)

    return Call(run)


FAULTS, REPLIES = "faults", "replies"
URLS: Final = {"FaultTo": address(FAULTS), "ReplyTo": address(REPLIES)}
BOTH_URLS: Final = (reference("FaultTo", URLS["FaultTo"]), reference("ReplyTo", URLS["ReplyTo"]))
BOTH_ROUTED: Final = (
    reference("ReplyTo", I_CLOUD, REPLIES),
    reference("FaultTo", I_CLOUD, FAULTS),
)


def _unreachable(world: World) -> None:
    agree(world)
    world.wire.usual |= {FAULTS: status(202), REPLIES: status(202), SELLER: status(400)}
    hub(
        world,
        NEAR,
        rule("there", SELLER, to_party=party(SELLER)),
        rule("home", BUYER, to_party=party(BUYER)),
        *(rule(name, name, to_party=party(name)) for name in (FAULTS, REPLIES)),
    )


NAMED: Final = {
    "urls": BOTH_URLS,
    "reply-url": (reference("ReplyTo", URLS["ReplyTo"]),),
    "fault-url": (reference("FaultTo", URLS["FaultTo"]),),
    "routed": BOTH_ROUTED,
    "routed-reply": (reference("ReplyTo", ANONYMOUS, REPLIES),),
    "routed-fault": (reference("FaultTo", ANONYMOUS, FAULTS),),
}
REPORTED: Final = script(
    _unreachable,
    *(posting(f"{name}@buyer", NEAR, *headers) for name, headers in NAMED.items()),
    Wait(5),
    nodes=(BUYER, NEAR),
)


@pytest.mark.parametrize(
    ("name", "receiver", "is_routed"),
    [
        pytest.param(name, receiver, is_routed, marks=pytest.mark.req(*ids.split()), id=name)
        for ids, name, receiver, is_routed in (
            ("P2-2.5.6-02 P2-2.5.6-03", "urls", FAULTS, False),
            ("P2-2.5.6-03", "reply-url", REPLIES, False),
            ("P2-2.5.6-03", "fault-url", FAULTS, False),
            ("P2-2.5.6-04 P2-2.5.6-06", "routed", FAULTS, True),
            ("P2-2.5.6-04", "routed-reply", REPLIES, True),
            ("P2-2.5.6-04", "routed-fault", FAULTS, True),
        )
    ],
)
def test_a_hub_reports_an_error_where_the_message_says(
    name: str, receiver: str, is_routed: bool
) -> None:
    about = f"eb:Error[@refToMessageInError = '{name}@buyer']"
    [error] = record(REPORTED).requests(NEAR, None, about)
    assert error.receiver == receiver
    assert error.text("eb:Error/@errorCode") == "EBMS:0005"
    to = error.text("s:Header/ebint:RoutingInput//eb:To/eb:PartyId")
    assert to == (party(receiver) if is_routed else None)
    assert error.text("s:Header/ebint:RoutingInput//eb:Action") == (receiver if is_routed else None)


# Signals of an endpoint


def _answering(world: World) -> None:
    agree(world)
    world.wire.usual[FAR] = status(202)


def _answering_by_epr(world: World) -> None:
    _answering(world)
    epr = {"epr": {"routing_input": {"business_info": {"action": "agreed"}}}}
    for at in (BUYER, SELLER):
        for pmode in world._pmodes[at]:
            pmode["initiator"]["addressing"] = deepcopy(epr)


ANSWERED: Final = script(
    _answering,
    posting("both@buyer", SELLER, *BOTH_ROUTED),
    posting("both-refused@buyer", SELLER, *BOTH_ROUTED, pmode=REFUSED),
    posting("reply-refused@buyer", SELLER, BOTH_ROUTED[0], pmode=REFUSED),
    Wait(5),
    nodes=(BUYER, SELLER),
)
ANSWERED_BY_EPR: Final = script(
    _answering_by_epr,
    posting("agreed@buyer", SELLER),
    posting("agreed-refused@buyer", SELLER, pmode=REFUSED),
    Wait(5),
    nodes=(BUYER, SELLER),
)


@pytest.mark.parametrize(
    ("made", "name", "kind", "action"),
    [
        pytest.param(made, name, kind, action, marks=pytest.mark.req(*ids.split()), id=name)
        for ids, made, name, kind, action in (
            ("P2-2.6.2-03", ANSWERED, "both", "eb:Receipt", REPLIES),
            ("P2-2.6.2-03 P2-2.6.2-04", ANSWERED, "both-refused", "eb:Error", FAULTS),
            ("P2-2.6.2-03", ANSWERED, "reply-refused", "eb:Error", REPLIES),
            ("P2-2.6.2-03", ANSWERED_BY_EPR, "agreed", "eb:Receipt", "agreed"),
            ("P2-2.6.2-03", ANSWERED_BY_EPR, "agreed-refused", "eb:Error", "agreed"),
        )
    ],
)
def test_a_signal_is_routed_by_what_message_or_pmode_say(
    made: Script, name: str, kind: str, action: str
) -> None:
    about = f"eb:SignalMessage[.//eb:RefToMessageId = '{name}@buyer']"
    [signal] = record(made).requests(SELLER, None, about)
    assert signal.count(kind) == 1
    assert signal.receiver == FAR
    assert signal.text("s:Header/ebint:RoutingInput//eb:Action") == action


# Sequences

SHARED: Final = "eb3:CollaborationInfo/eb3:ConversationId"
_POST: Final = {"epr": {"routing_input": {"business_info": {"action": "post"}}}}
_MAIL: Final = {"epr": {"routing_input": {"business_info": {"action": "mail"}}}}
SEQUENCES: Final[Mapping[str, tuple[str | None, Any]]] = {
    "direct": (None, None),
    "direct-too": (None, None),
    "mpc": ("urn:example:mpc", None),
    "mpc-too": ("urn:example:mpc", None),
    "posted": (None, _POST),
    "posted-too": (None, _POST),
    "mailed": (None, _MAIL),
    "by-header": (None, {"address": "icloud"}),
    "by-header-too": (None, {"address": "icloud"}),
}
"""MPC and Addressing of P-Modes with one Correlation."""


def _correlated(world: World) -> None:
    for name, (mpc, addressing) in SEQUENCES.items():
        sequences.agree(world, name, correlation=SHARED)
        for at in (BUYER, SELLER):
            pmode = world._pmodes[at][-1]
            if mpc is not None:
                pmode["legs"][0]["business_info"]["mpc"] = mpc
            if addressing is not None:
                pmode["responder"]["addressing"] = deepcopy(addressing)


CORRELATED: Final = script(
    _correlated,
    *(Send(f"{name}@buyer", name, conversation="c") for name in SEQUENCES),
    Wait(5),
    nodes=(BUYER, SELLER),
)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        pytest.param(one, other, together, marks=pytest.mark.req(ids), id=f"{one} {other}")
        for ids, one, other, together in (
            ("P2-2.8.1-06", "direct", "direct-too", True),
            ("P2-2.8.1-06", "mpc", "mpc-too", True),
            ("P2-2.8.1-06", "direct", "mpc", False),
            ("P2-2.8.1-10", "posted", "posted-too", True),
            ("P2-2.8.1-10", "posted", "mailed", False),
            ("P2-2.8.1-10", "posted", "direct", False),
            ("P2-2.8.1-10", "by-header", "by-header-too", False),
        )
    ],
)
def test_messages_of_one_mpc_and_routing_input_share_a_sequence(
    one: str, other: str, together: bool
) -> None:
    recording = record(CORRELATED)
    found = []
    for name in (one, other):
        about = f"eb:UserMessage[.//eb:MessageId = '{name}@buyer']"
        [message] = recording.requests(BUYER, SELLER, about)
        found.append(message.text("s:Header/wsrm:Sequence/wsrm:Identifier"))
        assert recording.state(BUYER, f"{name}@buyer") == "acknowledged"
    assert (found[0] == found[1]) == together


@pytest.mark.req("P2-2.7.1.4-07")
def test_acknowledgements_go_to_the_hub_that_acks_to_names() -> None:
    recording = record(RELIABLE["1.2"])
    acks = recording.requests(SELLER, containing="wsrm:SequenceAcknowledgement")
    assert {one.receiver for one in acks} == {FAR}
    assert recording.requests(BUYER, containing=f"wsrm:AcksTo/wsa:Address[. = '{I_CLOUD}']")


# P-Modes and routes, as an operator checks them


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def checked(folder: Path, *pmodes: Mapping[str, Any]) -> tuple[int, str]:
    """Return exit code and output of `postroad pmode check`."""
    files = []
    for number, pmode in enumerate(pmodes, 1):
        files.append(folder / f"{number}.yaml")
        files[-1].write_text(json.dumps(pmode))
    result = run("pmode", "check", *files)
    return result.exit_code, result.output


POINT_TO_POINT: Final[dict[str, Any]] = {
    "id": "orders",
    "mep": "oneWay",
    "mep_binding": "push",
    "initiator": {"party": "urn:example:buyer", "role": "Buyer"},
    "responder": {"party": "urn:example:seller", "role": "Seller"},
    "legs": [
        {
            "protocol": {"address": "https://seller.example/msh", "soap_version": "1.2"},
            "business_info": {"service": "urn:example:trade", "action": "Order"},
            "error_handling": {"report": {"as_response": False}},
            "reliability": {
                "protocol": "wsrm",
                "at_least_once": {
                    "contract": {"acks_to": "https://buyer.example/msh"},
                    "reply_pattern": "Callback",
                },
                "at_most_once": True,
            },
            "security": {
                "send_receipt": {
                    "reply_pattern": "callback",
                    "reply_to": "https://buyer.example/msh",
                },
            },
        }
    ],
}


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two units that `postroad pmode multihop` makes."""
    folder = tmp_path_factory.mktemp("units")
    (folder / "orders.yaml").write_text(json.dumps(POINT_TO_POINT))
    hubs = "--initiator-hub", "https://near.example/msh", "--responder-hub", "https://far.example/"
    result = run("pmode", "multihop", folder / "orders.yaml", *hubs)
    assert result.exit_code == 0, result.output
    init, resp = (
        yaml.safe_load((folder / f"orders.{end}.yaml").read_text()) for end in ("init", "resp")
    )
    return _only(init), _only(resp)


def _only(content: dict[str, Any]) -> dict[str, Any]:
    if "pmodes" not in content:
        return content
    [pmode] = content["pmodes"]
    found: dict[str, Any] = pmode
    return found


def changed(unit: dict[str, Any], *path: str | int, value: Any) -> dict[str, Any]:
    made = deepcopy(unit)
    _set(*path, value=value)(made)
    return made


_LEG: Final = ("legs", 0)
_RM: Final = (*_LEG, "reliability")
_SECURITY: Final = (*_LEG, "security")


@pytest.mark.req("P2-2.7.2-01", "P2-2.7.2-02", "P2-2.7.2-05")
def test_the_units_of_a_pmode_are_named_by_its_id(
    tmp_path: Path, units: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    init, resp = units
    assert (init["id"], resp["id"]) == ("orders.init", "orders.resp")
    # Units with the same stem belong together, others do not.
    resp = changed(resp, *_LEG, "business_info", "action", value="Cancel")
    code, said = checked(tmp_path, init, resp)
    assert (code, "both units of a multi-hop P-Mode share it" in said) == (1, True)
    assert checked(tmp_path, init, {**resp, "id": "cancellations.resp"})[0] == 0


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        pytest.param(path, value, name, marks=pytest.mark.req("P2-2.7.2-04", one), id=name)
        for one, path, value, name in (
            ("P2-2.7.2-07", ("initiator", "role"), "Payer", "PMode.Initiator.Role"),
            ("P2-2.7.2-07", ("initiator", "party"), "urn:x", "PMode.Initiator.Party[1]"),
            ("P2-2.7.2-08", ("responder", "role"), "Payee", "PMode.Responder.Role"),
            ("P2-2.7.2-08", ("responder", "party"), "urn:x", "PMode.Responder.Party[1]"),
            (
                "P2-2.7.2-09",
                (*_LEG, "protocol", "soap_version"),
                "1.1",
                "PMode[1].Protocol.SOAPVersion",
            ),
            (
                "P2-2.7.2-10",
                (*_LEG, "business_info", "action"),
                "Cancel",
                "PMode[1].BusinessInfo.Action",
            ),
            (
                "P2-2.7.2-10",
                (*_LEG, "business_info", "service"),
                "urn:x",
                "PMode[1].BusinessInfo.Service",
            ),
            (
                "P2-2.7.2-11",
                (*_RM, "at_most_once"),
                False,
                "PMode[1].Reliability.AtMostOnce.Contract",
            ),
            (
                "P2-2.7.2-11",
                (*_RM, "correlation"),
                "eb3:CollaborationInfo/eb3:Service",
                "PMode[1].Reliability.Correlation",
            ),
            ("P2-2.7.2-12", (*_SECURITY, "wss_version"), "1.1", "PMode[1].Security.WSSVersion"),
            (
                "P2-2.7.2-12",
                (*_SECURITY, "send_receipt", "non_repudiation"),
                True,
                "PMode[1].Security.SendReceipt.NonRepudiation",
            ),
        )
    ],
)
def test_what_both_units_share_is_the_same(
    tmp_path: Path,
    units: tuple[dict[str, Any], dict[str, Any]],
    path: tuple[str | int, ...],
    value: Any,
    name: str,
) -> None:
    init, resp = units
    assert checked(tmp_path, init, resp)[0] == 0
    code, said = checked(tmp_path, init, changed(resp, *path, value=value))
    assert code == 1
    assert f"error: {name}: it is " in said
    assert "in 'orders.init'" in said


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(path, value, marks=pytest.mark.req(one), id=str(path[-1]))
        for one, path, value in (
            ("P2-2.7.2-11", (*_RM, "at_least_once", "reply_pattern"), "Response"),
            ("P2-2.7.2-12", (*_SECURITY, "send_receipt", "reply_pattern"), "response"),
        )
    ],
)
def test_reply_patterns_may_differ_between_units(
    tmp_path: Path,
    units: tuple[dict[str, Any], dict[str, Any]],
    path: tuple[str | int, ...],
    value: Any,
) -> None:
    init, resp = units
    code, said = checked(tmp_path, init, changed(resp, *path, value=value))
    assert (code, "orders.init" in said) == (0, False), said


_SAME: Final = {"routing_input": {"business_info": {"action": "post"}}}
_OTHER: Final = {"routing_input": {"business_info": {"action": "mail"}}}
_ACKS_TO: Final = ("reliability", "at_least_once", "contract", "acks_to")


@pytest.mark.parametrize(
    ("path", "right", "wrong", "code", "said"),
    [
        pytest.param(path, right, wrong, code, said, marks=pytest.mark.req(one), id=one)
        for one, path, right, wrong, code, said in (
            (
                "P2-2.7.1.1-01",
                ("responder", "addressing"),
                {"address": I_CLOUD, "epr": _SAME},
                {"address": "https://hub.example/", "epr": _SAME},
                1,
                "the address is not the I-Cloud's",
            ),
            (
                "P2-2.7.1.4-07",
                (*_LEG, *_ACKS_TO),
                {"value": "https://near.example/msh", "addressing": {"address": I_CLOUD}},
                {"addressing": {"address": I_CLOUD}},
                1,
                "AcksTo is the URI of the intermediary that routes",
            ),
            (
                "P2-2.6.3.2-05",
                ("responder", "addressing"),
                {"epr": _SAME, "action": "urn:example:submit"},
                {"epr": _SAME, "action": "submit the order"},
                1,
                "PMode.Responder.Addressing.Action",
            ),
        )
    ],
)
def test_the_check_refuses_what_cannot_be_routed(
    tmp_path: Path,
    units: tuple[dict[str, Any], dict[str, Any]],
    path: tuple[str | int, ...],
    right: Any,
    wrong: Any,
    code: int,
    said: str,
) -> None:
    init, _ = units
    assert checked(tmp_path, changed(init, *path, value=right))[0] == 0
    found = checked(tmp_path, changed(init, *path, value=wrong))
    assert (found[0], said in found[1]) == (code, True), found


@pytest.mark.req("P2-2.7.1.2-04")
def test_pmodes_that_route_to_one_destination_in_two_ways_get_a_warning(
    tmp_path: Path, units: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    first = changed(units[0], "responder", "addressing", value={"epr": _SAME})
    second = changed(first, *_LEG, "business_info", "action", value="Cancel")
    second["id"] = "cancellations.init"
    said = "warning: PMode.Responder.Addressing.EPR.RoutingInput.BusinessInfo"
    assert said not in checked(tmp_path, first, second)[1]
    second["responder"]["addressing"] = {"epr": _OTHER}
    assert said in checked(tmp_path, first, second)[1]


@pytest.mark.req("P2-2.5.5-18")
@pytest.mark.parametrize(("to", "warned"), [(FAR, False), (SELLER, True)])
def test_a_channel_that_alone_decides_and_leads_to_two_places_gets_a_warning(
    tmp_path: Path, to: str, warned: bool
) -> None:
    rules = [rule("special", to, mpc="urn:m", action="a"), rule("channel", FAR, mpc="urn:m")]
    file = tmp_path / "routes.yaml"
    file.write_text(json.dumps({"routes": rules}))
    result = run("route", "check", file)
    assert ("urn:m alone decides here" in result.output) == warned, result.output
