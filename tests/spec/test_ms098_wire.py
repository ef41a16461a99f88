"""What nodes write in ebXML 0.98b (sections 7 and 8), read on the wire, message by message.

Most rows hold for every message of every script here: of buyer, carrier and seller, orders and
answers, good ones and those that report errors.
"""

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pytest

from postroad.node.service import Refused, Submission, SubmittedPayload
from postroad.reliability.order import LAST, Numbering
from postroad.transport.http_outgoing import Reply
from postroad.wire.content import BytesContent
from tests.node.ebxml_broken import BROKEN
from tests.node.ebxml_letters import (
    SERVICES,
    M,
    Packed,
    envelope,
    error,
    header,
    packed,
)
from tests.node.ebxml_stations import RELIABLE
from tests.node.reliable import BEGIN, CPA, Posted, party
from tests.spec.kit import (
    BUYER,
    CARRIER,
    ORDER,
    ORDERS,
    SELLER,
    Call,
    Ebxml,
    Network,
    PMode,
    Post,
    Script,
    Send,
    Settings,
    Wait,
    WireMessage,
    World,
    address,
    check,
    lost,
    record,
    refused,
    shows,
    status,
)

_PLAIN: Final = {"version": "0.98b"}
_ASKING: Final = {"ack_requested": "UnSigned"} | RELIABLE
_ENDS: Final = {"delivery_receipt": "UnSigned"} | _ASKING
_MSH: Final = SERVICES["0.98b"]
_LINK: Final = "http://www.ebxml.org/namespaces/reliableMessaging"
_CONTEXT: Final = "http://www.ebxml.org/messageServiceErrors"
_SAID: Final = ("@eb:syncReply", "@eb:reliableMessagingMethod", "@eb:ackRequested", "eb:CPAId")
_DS: Final = "http://www.w3.org/2000/09/xmldsig#"
_NS: Final = "http://www.ebxml.org/namespaces/messageHeader"


def _submit(message_id: str, *payloads: tuple[str, bytes], **more: Any) -> Call:
    """Submit payloads by type; each has a role, and the message a description."""

    async def run(world: World) -> None:
        given = tuple(
            SubmittedPayload(
                BytesContent(content),
                hashlib.sha256(content).digest(),
                media_type,
                properties=(("role", "urn:example:role", None), ("Description", "Papier", "de")),
            )
            for media_type, content in payloads
        )
        buyer = world.stations[BUYER]
        about = (("Description", "Zürich ☕", None),)
        submission = Submission(ORDERS, given, message_id, properties=about, **more)
        await buyer.process.ask(buyer.node.submit(submission))

    return Call(run)


def _refused(**other: str) -> Call:
    """What contradicts the P-Mode, which the node does not take."""

    async def run(world: World) -> None:
        with pytest.raises(Refused):
            await _submit("no@buyer.example", ("text/plain", b"x"), **other).run(world)

    return Call(run)


def _ask(*message_ids: str) -> Call:
    """The operator of the buyer pings the seller and asks for the status of messages."""

    async def run(world: World) -> None:
        buyer = world.stations[BUYER]
        await buyer.process.ask(buyer.node.ping(ORDERS, 5.0))
        for message_id in message_ids:
            await buyer.process.ask(buyer.node.query(message_id, 5.0))

    return Call(run)


_TYPED: Final = PMode(
    (BUYER,),
    {
        "id": "typed",
        "agreement": "urn:example:cpa:typed",
        "initiator": {"party": party(BUYER)},
        "responder": {"party": {"id": party(SELLER), "type": "urn:example:names"}},
        "legs": [
            {
                "protocol": {"address": address(SELLER)},
                "business_info": {
                    "service": {"value": "trade", "type": "names"},
                    "action": "order",
                },
                "ebxml": _PLAIN,
            }
        ],
    },
)
TALK: Final = Script(
    (
        Ebxml(**RELIABLE),
        Ebxml("effort", **_PLAIN),
        Ebxml("receipts", **_ENDS),
        Ebxml("responses", sync_reply="mshSignalsOnly", method="ebXML", **_ASKING),
    ),
    (
        Send(M),
        *(Send(f"{name}@buyer.example", name) for name in ("effort", "receipts", "responses")),
        _submit("two@buyer.example", ("text/plain", b"wax"), ("application/xml", ORDER)),
        _submit("none@buyer.example"),
        *(_refused(**{name: _MSH}) for name in ("service", "action")),
        Wait(2),
        Network(SELLER, lost),
        Send("gone@buyer.example", "effort"),
        _ask(M, "gone@buyer.example"),
        Wait(2),
    ),
)
OTHERS: Final = Script(
    (Ebxml("linked", profile="rm001", **RELIABLE), _TYPED),
    (
        Network(SELLER, status(204), status(204)),
        *(Send(f"{name}@buyer.example", name) for name in ("linked", "typed")),
        Wait(1),
    ),
    nodes=(BUYER,),
)
"""A number of draft 001 in the TraceHeader; identifiers with types."""
SIGNED: Final = Script(
    (Ebxml(signed=True, delivery_receipt="Signed", ack_requested="Signed", **RELIABLE),),
    (Send(M), Wait(2), _ask(M), Wait(2)),
)
RELAY: Final = (
    Ebxml(at=(BUYER,), url=address(CARRIER), hops=1, **_ENDS),
    Ebxml(at=(SELLER,), **_ENDS),
    Ebxml("there", at=(CARRIER,), relay=True, via_cpa_id="urn:example:cpa:hop", **_ASKING),
    Ebxml("back", at=(CARRIER,), frm=SELLER, to=BUYER, relay=True, **_PLAIN),
)
RELAYED: Final = Script(RELAY, (Send(M), Wait(5)), nodes=(BUYER, CARRIER, SELLER))
NOTICE: Final = Script(
    (*RELAY, Settings(CARRIER, {"send": {"breaker": {"failures": 0}}})),
    (Network(SELLER, *[refused] * 20), Send(M), Wait(200)),
    nodes=(BUYER, CARRIER),
)


def _letter(number: int, letter: str | Packed) -> Packed:
    """A letter under an id of its own."""
    kind, body = packed(letter) if isinstance(letter, str) else letter
    return kind, body.replace(M.encode(), f"{number}@buyer.example".encode())


async def _prepare(world: World) -> None:
    world.wire.usual[BUYER] = status(204)


ERRORS: Final = Script(
    (
        Ebxml(**RELIABLE),
        Ebxml("besteffort", delivery_semantics="BestEffort", **_PLAIN),
        Ebxml("unordered", message_order="NotGuaranteed", **RELIABLE),
    ),
    (
        Call(_prepare),
        *(
            Post(SELLER, *_letter(number, one.values[0]))  # type: ignore[arg-type]
            for number, one in enumerate(BROKEN)
        ),
        Wait(2),
    ),
    nodes=(SELLER,),
)


_BY_HAND: Final = "by-hand-"


def _answer(ref: str, action: str, *blocks: str) -> bytes:
    named = {"frm": party(SELLER), "to": party(BUYER), "service": _MSH, "conversation": "a"}
    said = header(id=f"{_BY_HAND}{ref}", ref=ref, action=action, **named)
    return envelope(said, *blocks).encode()


def _rejection(ref: str) -> Any:
    return status(200, _answer(ref, "MessageError", error()), "text/xml; charset=UTF-8")


SERIES: Final = Script(
    (Ebxml(message_order="Guaranteed", **RELIABLE),),
    (
        Network(SELLER, lost),
        *(
            Send(f"{name}@buyer.example", conversation=name[0])
            for name in ("a1", "a2", "b1", "a3", "b2")
        ),
        Wait(60),
        Network(SELLER, _rejection("a4@buyer.example")),
        Send("a4@buyer.example", conversation="a"),
        Send("a5@buyer.example", conversation="a"),
        Wait(60),
    ),
)


async def _acknowledged(world: World, posted: Posted) -> Reply:
    """The partner acknowledges in the response."""
    found = re.search(rb"<eb:MessageId>([^<]+)", posted.body)
    assert found is not None
    body = _answer(found[1].decode(), "Acknowledgment")
    return Reply(200, "text/xml; charset=UTF-8", (), body)


async def _numbered_to_the_end(world: World) -> None:
    """A conversation in which all numbers but the last one were used."""
    name = f"numbers:{party(BUYER)}\0{party(SELLER)}\0a"
    store = world.stations[BUYER].node.context.store
    state = msgspec.json.encode(Numbering(LAST))
    await store.run(lambda tx: tx.set_state(name, state, BEGIN))


WRAPPED: Final = Script(
    (Ebxml(message_order="Guaranteed", **RELIABLE),),
    (
        Call(_numbered_to_the_end),
        Network(SELLER, *[_acknowledged] * 3),
        *(Send(f"{name}@buyer.example", conversation="a") for name in "123"),
        Wait(30),
    ),
    nodes=(BUYER,),
)
SCRIPTS: Final = (TALK, OTHERS, SIGNED, RELAYED, NOTICE, ERRORS, SERIES, WRAPPED)


@cache
def written() -> list[WireMessage]:
    """All ebXML messages that nodes wrote, in requests and responses; no SOAP Faults."""
    return [
        message
        for script in SCRIPTS
        for message in record(script).messages
        if message.sender in script.nodes
        and message.body
        and not message.xpath(f"(//s:Fault | //eb:MessageId[starts-with(., '{_BY_HAND}')])")
    ]


def each(holds: Callable[[str], object]) -> Callable[[Any], bool]:
    """Something found, and all of it so: texts of elements, values of attributes."""
    return lambda found: bool(found) and all(holds(getattr(one, "text", one)) for one in found)


def is_uri(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+", text) is not None


def is_time(text: str) -> bool:
    """A timeInstant that lies within the script."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text)
    at = datetime.fromisoformat(text).astimezone(UTC)
    return BEGIN <= at <= BEGIN + timedelta(hours=1)


def is_id(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][\w.-]*", text, re.ASCII) is not None


def only(*words: str) -> Callable[[Any], bool]:
    return each(lambda one: one in words)


def req(ids: str) -> Any:
    return pytest.mark.req(*(f"MS098-{one}" for one in ids.split()))


def rule(ids: str, path: str, holds: Any = True, where: str | None = None) -> Any:
    """A row: in every message that has what `where` finds, `path` gives what is expected.

    Without `where` it is about the elements of the path, and any attribute must be there.
    """
    about = path.partition("/@")[0] if where is None else where
    return pytest.param(path, holds, about, id=f"{ids} {path}", marks=req(ids))


_ALL: Final = "eb:MessageHeader"
_HEAD: Final = "/s:Envelope/s:Header"
_BODY: Final = "/s:Envelope/s:Body"
_ONCE: Final = "boolean(//eb:QualityOfServiceInfo[@eb:deliverySemantics='OnceAndOnlyOnce'])"
_ORDERED: Final = "@eb:messageOrderSemantics[. = 'Guaranteed']"
_ERRORS: Final = "eb:ErrorList[@eb:highestSeverity='Error']"
_CODES: Final = (
    *("ValueNotRecognized", "NotSupported", "Inconsistent", "OtherXml", "DeliveryFailure"),
    *("TimeToLiveExpired", "SecurityFailure", "Unknown", "MimeProblem"),
)
"""8.7.8 and 8.7.9, and what 8.10.7 names besides."""
_RULES: Final = [
    rule("7.1.1-01 8.3-01", "count(/s11:Envelope[count(*) = 2]/*[1][self::s11:Header])", 1.0, _ALL),
    rule("7.1.1-01 8.9-01", "count(/s11:Envelope[count(*) = 2]/*[2][self::s11:Body])", 1.0, _ALL),
    rule("8.2-01 8.2.1-01", "namespace-uri(//*[local-name()='MessageHeader'])", _NS, _ALL),
    rule("8.2-01", f"not({_HEAD}//*[namespace-uri()=''])", True, _ALL),
    rule("8.2-01", f"not({_BODY}//*[namespace-uri()=''])", True, _ALL),
    rule("8.2-03", f"count(/s:Envelope/namespace::*[. = '{_NS}'])", 1.0, _ALL),
    rule("8.2.2-01 8.4-01 8.13.2-01", f"count({_HEAD}/eb:MessageHeader)", 1.0, _ALL),
    rule("8.2.3-01 8.2.3-02", "namespace-uri(//eb:TraceHeader/*[4])", _LINK, "eb:TraceHeader/*[4]"),
    rule("8.2.3-03", "eb:TraceHeader/*[4]/@s11:mustUnderstand", ["0"]),
    rule("8.4-02 8.4.11-01", f"{_HEAD}/eb:MessageHeader/@s11:mustUnderstand", ["1"]),
    rule("8.4-02 8.4.10-01 8.4.10-02", "eb:MessageHeader/@eb:version", ["0.98b"]),
    rule("8.4.1-03", "count(//eb:MessageHeader/eb:From/eb:PartyId)", 1.0, _ALL),
    rule("8.4.1-03", "count(//eb:MessageHeader/eb:To/eb:PartyId)", 1.0, _ALL),
    rule("8.4.1-05", "eb:PartyId[@*]/@eb:type", each(is_uri)),
    rule("8.4.1-06", "eb:PartyId[not(@*)]", each(is_uri)),
    rule("8.4.1-08", "eb:PartyId", each(is_uri), _ALL),
    rule("8.4.2-01 8.4.2-04", "eb:MessageHeader/eb:CPAId", each(is_uri), _ALL),
    rule("8.4.3-01", "eb:MessageHeader/eb:ConversationId", each(bool), _ALL),
    rule("8.4.4-01", "eb:MessageHeader/eb:Service", each(bool), _ALL),
    rule("8.4.4-02", "not(//eb:Manifest)", True, f"eb:Service[starts-with(., '{_MSH}')]"),
    rule("8.4.4.1-02", "eb:MessageHeader/eb:Service[not(@*)]", each(is_uri)),
    rule("8.4.5-01", "eb:MessageHeader/eb:Action", each(bool), _ALL),
    rule("8.4.6-01", "count(//eb:MessageHeader/eb:MessageData)", 1.0, _ALL),
    rule("8.4.6.2-01", "eb:MessageData/eb:Timestamp", each(is_time), _ALL),
    rule("8.4.7-01", _ONCE, True, f"eb:Action[. = '{ORDERS}']"),
    rule("8.4.7.2-03", _ONCE, True, _ORDERED),
    rule("8.4.8-04", _ONCE, True, "eb:SequenceNumber"),
    rule("8.4.8-08", "eb:SequenceNumber", each(lambda one: 0 <= int(one) <= 99999999)),
    rule("8.4.8-09", "eb:SequenceNumber/@eb:status", only("Reset", "Continue")),
    rule("8.4.9-01", "eb:MessageHeader/eb:Description/@xml:lang", ["en"]),
    rule("8.5-03 8.5.1-01", f"{_HEAD}/eb:TraceHeaderList/@s11:mustUnderstand", ["1"]),
    rule("8.5-03 8.5.2-01 8.5.2-02", "eb:TraceHeaderList/@eb:version", ["0.98b"]),
    rule("8.5.3.3-01", "eb:TraceHeader/eb:Timestamp", each(is_time), "eb:TraceHeader"),
    rule("8.6-01", f"{_HEAD}/eb:Via/@s11:mustUnderstand", ["1"]),
    rule("8.6-02", "eb:Via/@s11:actor", ["http://schemas.xmlsoap.org/soap/actor/next"]),
    rule("8.6-03 8.6.3-01 8.6.3-02", "eb:Via/@eb:version", ["0.98b"]),
    rule("8.6-04", f"count(//eb:Via[{' or '.join(_SAID)}])", 1.0, "eb:Via"),
    rule("8.6.5-01", "@eb:reliableMessagingMethod", only("ebXML", "Transport")),
    rule("8.6.6-01", "@eb:ackRequested", only("Signed", "UnSigned", "None")),
    rule("8.7-01", "eb:ErrorList/eb:Error", bool, "eb:ErrorList"),
    rule("8.7.1-01", "eb:ErrorList/@id", each(is_id)),
    rule("8.7.1-01", "count(//@id[. = //eb:ErrorList/@id])", 1.0, "eb:ErrorList"),
    rule("8.7.2-01", f"{_HEAD}/eb:ErrorList/@s11:mustUnderstand", ["1"]),
    rule("8.7.3-01 8.7.3-02", "eb:ErrorList/@eb:version", ["0.98b"]),
    rule("8.7.5.1-04", "eb:Error/@eb:errorCode", only(*_CODES)),
    rule("8.7.5.1-01 8.7.5.1-04", "eb:Error/@eb:codeContext", only(_CONTEXT)),
    rule("8.8-02", "namespace-uri(//*[local-name()='Signature'])", _DS, "ds:SignatureValue"),
    rule("8.10-02", "eb:Manifest/eb:Reference", bool, "eb:Manifest"),
    rule("8.10-02 8.10.1-01", f"{_BODY}/eb:Manifest/@id", each(is_id)),
    rule("8.10-02 8.10.2-01", f"{_BODY}/eb:Manifest/@s11:mustUnderstand", ["1"]),
    rule("8.10-02 8.10.3-01 8.10.3-02", "eb:Manifest/@eb:version", ["0.98b"]),
    rule("8.10.5-02", "eb:Reference/@id", each(is_id)),
    rule("8.10.5-02", "not(//eb:Reference[@id = preceding::*/@id])", True, "eb:Manifest"),
    rule("8.10.5-02", "not(//eb:Reference[not(@id)])", True, "eb:Manifest"),
    rule("8.10.5-03", "not(//eb:Reference[not(@xlink:type = 'simple')])", True, "eb:Manifest"),
    rule("8.10.5-04", "not(//eb:Reference[not(@xlink:href)])", True, "eb:Manifest"),
    rule("8.10.5-04", "eb:Reference/@xlink:href", each(is_uri)),
    rule("8.10.5-05", "eb:Reference[@*[name() = 'xlink:role']]/@xlink:role", each(is_uri)),
    rule("8.10.5.2-01 8.10.5.2-02", "eb:Reference/eb:Description/@xml:lang", only("de")),
    rule("8.11-01", "eb:StatusData/eb:RefToMessageId", each(bool), "eb:StatusData"),
    rule("8.11-01 8.11.3-01", f"{_BODY}/eb:StatusData/@s11:mustUnderstand", ["1"]),
    rule("8.11-01 8.11.4-01 8.11.4-02", "eb:StatusData/@eb:version", ["0.98b"]),
    rule("8.12-01 8.12.3-01", f"{_BODY}/eb:Acknowledgment/@s11:mustUnderstand", ["1"]),
    rule("8.12-01 8.12.4-01 8.12.4-02", "eb:Acknowledgment/@eb:version", ["0.98b"]),
    rule("8.12.5-01", "eb:Acknowledgment/@eb:type", only("DeliveryReceipt", "Acknowledgement")),
    rule("8.12.6-01", "//*[//ds:Signature]/eb:Acknowledgment/@eb:signed", ["true"]),
    rule("8.12.6-01", "//*[not(//ds:Signature)]/eb:Acknowledgment/@eb:signed", ["false"]),
    rule("8.13.4-01 8.13.4-02", f"not(//eb:Manifest | //{_ERRORS})", True, "eb:StatusData"),
    rule("8.13.5-02 8.13.5-03", "not(//eb:Manifest | //eb:StatusData)", True, _ERRORS),
    rule("8.13.8-01", "count(//eb:Via)", 1.0, "eb:Via"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "holds", "where"), _RULES)
def test_every_message(path: str, holds: Any, where: str) -> None:
    found = [message for message in written() if message.xpath(where)]
    assert found, "no script makes such a message"
    for message in found:
        value = message.xpath(path)
        if isinstance(holds, list):
            value = [str(one) for one in value]
        assert holds(value) if callable(holds) else value == holds, message.body


@req("8.4.7.2-03 8.4.8-04")
def test_best_effort_has_neither_order_nor_numbers() -> None:
    found = [one for one in written() if one.xpath(_ONCE) is False]
    assert found
    assert not any(
        one.xpath("(//eb:SequenceNumber | //@eb:messageOrderSemantics)") for one in found
    )


def _content(part: Any) -> bytes:
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content


def _content_ids(message: WireMessage) -> list[str]:
    return [str(part["content-id"]) for part in message.parts]


def _hrefs(message: WireMessage) -> list[str]:
    """The Content-IDs that the Manifest names."""
    return [f"<{unquote(str(one).removeprefix('cid:'))}>" for one in message.xpath("@xlink:href")]


def _charsets(message: WireMessage) -> set[str]:
    """What the MIME header, the XML declaration and the bytes themselves say of the encoding."""
    root = _content(message.parts[0])
    root.decode("utf-8", "strict")
    declared = re.match(rb"<\?xml version=\"1.0\" encoding=\"([^\"]+)\"\?>", root)
    return {
        str(message.parts[0].get_param("charset")),
        declared[1].decode() if declared else "none",
    }


def package(ids: str, name: str, holds: Callable[[WireMessage], object]) -> Any:
    return pytest.param(holds, id=f"{ids} {name}", marks=req(ids))


def _type(part: Any) -> str:
    return str(part.get_content_type())


def _is_named(message: WireMessage) -> bool:
    names = _content_ids(message)
    return len(set(names)) == len(names) and all(
        re.fullmatch("<[^<>@]+@[^<>@]+>", name) for name in names
    )


def _starts(message: WireMessage) -> bool:
    return message.package.get_param("start") == message.parts[0]["content-id"]


def _is_apart(message: WireMessage) -> bool:
    root, *payloads = map(_content, message.parts)
    return bool(payloads) and not any(payload in root for payload in payloads)


_PACKAGES: Final = [
    package("7.1.1-02 7.2-01", "kind", lambda one: _type(one.package) == "multipart/related"),
    package("7.2-01 7.2-04", "Content-ID", _is_named),
    package("7.2-01 7.2-05", "start", _starts),
    package("7.2-02", "type", lambda one: one.package.get_param("type") == _type(one.parts[0])),
    package("7.4-01 7.4-02", "payloads", _is_apart),
    package("7.4-04", "parts", lambda one: set(_content_ids(one)[1:]) <= set(_hrefs(one))),
    package("8.10.7-01", "cid:", lambda one: set(_hrefs(one)) <= set(_content_ids(one)[1:])),
    package("8.13.1-01", "Manifest", lambda one: one.count("eb:Manifest") == 1),
]


@pytest.mark.parametrize("holds", _PACKAGES)
def test_every_package(holds: Callable[[WireMessage], object]) -> None:
    found = [one for one in written() if one.package.is_multipart()]
    assert {len(one.parts) for one in found} == {2, 3}
    for one in found:
        assert holds(one), one.body


_ENCODING: Final = (
    "7.3.1-02 7.3.1.1-01 7.3.1.1-02 7.3.1.1-03 8.1-01 8.1.1-01 8.1.1-02 8.1.2-01 8.1.2-02 8.1.2-03 "
    "8.1.2-04"
)
_CONTAINERS: Final = [
    package("7.2-03 7.3.1-01", "type", lambda one: _type(one.parts[0]) == "text/xml"),
    package("7.3-01", "content", lambda one: _content(one.parts[0]).count(b":Envelope ") == 1),
    package(_ENCODING, "", lambda one: _charsets(one) == {"UTF-8"}),
    package("7.4-03", "", lambda one: one.package.is_multipart() == bool(one.xpath("eb:Manifest"))),
    package("8.10-01", "", lambda one: not one.xpath(f"{_BODY}/*[not(self::eb:*)]")),
]


@pytest.mark.parametrize("holds", _CONTAINERS)
def test_every_header_container(holds: Callable[[WireMessage], object]) -> None:
    for one in written():
        assert holds(one), one.body


def _orders(script: Script, sender: str = BUYER) -> dict[str, WireMessage]:
    """The messages of applications that a node sent, by their ids."""
    found = record(script).requests(sender, containing="eb:MessageHeader")
    orders = {str(one.text("string(//eb:MessageId)")): one for one in found}
    return {id: one for id, one in orders.items() if one.text("string(//eb:Service)") != _MSH}


_FROM: Final = "eb:MessageHeader/eb:From/eb:PartyId"
_MANIFEST: Final = "eb:Manifest"
_TO: Final = "eb:MessageHeader/eb:To/eb:PartyId"
_OWN: Final = "eb:Acknowledgment/@eb:type"
_HOP: Final = "Acknowledgement"
_BY_HOP: Final = f"(//eb:Acknowledgment[//eb:From/eb:PartyId = '{address(CARRIER)}'])"


@pytest.mark.parametrize(
    "row",
    [
        shows("MS098-8.4.1-01", TALK, _FROM, party(BUYER)),
        shows("MS098-8.4.1-02", TALK, _TO, party(SELLER), containing="eb:Manifest"),
        shows("MS098-8.4.1-02", TALK, _TO, party(BUYER), sender=SELLER),
        shows("MS098-8.4.1-01", SIGNED, _FROM, party(SELLER), sender=SELLER, containing=_OWN),
        shows("MS098-8.4.1-01", RELAYED, _FROM, party(BUYER), sender=CARRIER, containing=_MANIFEST),
        shows("MS098-8.4.1-02", RELAYED, _TO, party(SELLER), sender=CARRIER, containing=_MANIFEST),
        shows("MS098-8.7-01", TALK, "eb:ErrorList", 0),
        shows("MS098-8.7-01", TALK, "eb:ErrorList", 0, sender=SELLER),
        shows("MS098-8.12.5-01", RELAYED, _OWN, "DeliveryReceipt", sender=SELLER),
        shows("MS098-8.12.5-01", RELAYED, _OWN, _HOP, sender=CARRIER, containing=_BY_HOP),
    ],
)  # fmt: skip
def test_messages_of(row: Any) -> None:
    check(row)


@req("8.4.6.3-05 8.11-01 8.11.2-01 8.11.5-01")
def test_a_status_response_names_the_message_in_status_data_and_the_request_in_the_header() -> None:
    """8.4.6.3 and 9.1.2 want two ids in RefToMessageId; each has its place."""
    asked = record(TALK).requests(BUYER, containing="eb:Action[. = 'StatusRequest']")
    told = record(TALK).requests(SELLER, containing="eb:StatusData")
    for request, response in zip(asked, told, strict=True):
        about = request.text("eb:MessageData/eb:RefToMessageId")
        assert response.text("eb:StatusData/eb:RefToMessageId") == about
        ref = response.text("eb:MessageData/eb:RefToMessageId")
        assert ref == request.text("eb:MessageData/eb:MessageId")
    statuses = [
        (one.text("@eb:messageStatus"), one.count("eb:StatusData/eb:Timestamp")) for one in told
    ]
    assert statuses == [("Received", 1), ("NotRecognized", 0)]


@req("8.2.2-03")
@pytest.mark.parametrize("script", [ERRORS, NOTICE], ids=["errors", "notice"])
def test_an_error_list_is_about_a_message_that_came_before(script: Script) -> None:
    before: set[str | None] = set()
    seen = 0
    for one in record(script).messages:
        if not one.body or one.xpath("s:Fault"):
            continue
        if one.xpath("eb:ErrorList") and one.sender in script.nodes:
            assert one.text("eb:MessageData/eb:RefToMessageId") in before
            seen += 1
        before |= {str(id.text) for id in one.xpath("eb:MessageData/eb:MessageId")}
    assert seen


_SERIES: Final = (
    "a1 0 Reset, a2 1 Continue, a3 2 Continue, a4 3 Continue, a5 0 Reset, b1 0 Reset, b2 1 Continue"
)


@req("8.4.8-03 8.4.8-10 8.4.8-11")
def test_numbers_begin_with_a_reset_and_go_on_with_continue() -> None:
    """The partner rejected a4, so that a5 begins anew."""
    found = [
        f"{id[:2]} {one.text('eb:SequenceNumber')} {one.text('eb:SequenceNumber/@eb:status')}"
        for id, one in _orders(SERIES).items()
    ]
    assert ", ".join(sorted(found)) == _SERIES


@req("8.4.8-12")
def test_numbers_are_reset_only_when_everything_sent_before_is_answered() -> None:
    """The first copy of a1 is lost, so that its acknowledgment comes late."""
    answered: set[str] = set()
    sent: set[str] = set()
    resets = 0
    for one in record(SERIES).messages:
        if not one.body or not one.xpath("eb:ConversationId[. = 'a']"):
            continue
        if one.sender == SELLER:
            answered.add(str(one.text("eb:MessageData/eb:RefToMessageId")))
            continue
        id = str(one.text("eb:MessageData/eb:MessageId"))
        if one.xpath("eb:SequenceNumber[@eb:status='Reset']"):
            resets += 1
            assert sent - {id} <= answered
        sent.add(id)
    assert resets == 3


@req("8.4.8-08 8.4.8-11")
def test_after_the_last_number_comes_zero_with_continue() -> None:
    found = [
        (one.text("eb:SequenceNumber"), one.text("eb:SequenceNumber/@eb:status"))
        for one in _orders(WRAPPED).values()
    ]
    assert found == [("99999999", "Continue"), ("0", "Continue"), ("1", "Continue")]


@req("8.4.2-07 8.4.4-02")
def test_what_is_sent_has_service_action_and_cpa_id_of_the_p_mode() -> None:
    orders = _orders(TALK)
    assert "no@buyer.example" not in orders
    names = ("CPAId", "Service", "Action")
    said = {tuple(one.text(f"string(//eb:{name})") for name in names) for one in orders.values()}
    agreed = (ORDERS, "effort", "receipts", "responses")
    assert said == {(CPA, "urn:example:trade", name) for name in agreed}


@req("8.4.4-02")
def test_a_p_mode_has_no_service_of_mshs() -> None:
    terms = Ebxml(service={"service": f"{_MSH}orders", "action": "order"}, **_PLAIN)
    with pytest.raises(Exception, match="belongs to the MSHs"):
        record(Script((terms,), ()))
