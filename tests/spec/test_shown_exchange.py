"""What two running nodes do on the wire, held against the specifications."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Final

import pytest
from lxml import etree

from postroad.agreement.loading import load_sources
from postroad.api.client import Payload
from postroad.store.records import Recorded
from tests.as4.bench import (
    C2,
    NOTHING,
    PATIENCE,
    Answer,
    Bench,
    Corner,
    Listener,
    Loop,
    Terms,
    post,
    start,
)
from tests.as4.foreign import Letter
from tests.as4.reading import EB3, read, references
from tests.ports import free_port

ORDER: Final = b"<order>paper</order>"
NEXT_MSH: Final = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/part2/200811/nextmsh"
SOAP: Final = {
    "1.1": "{http://schemas.xmlsoap.org/soap/envelope/}",
    "1.2": "{http://www.w3.org/2003/05/soap-envelope}",
}
TARGET: Final = {"1.1": f"{SOAP['1.1']}actor", "1.2": f"{SOAP['1.2']}role"}


@dataclass(frozen=True)
class Edge(Terms):
    """A P-Mode as endpoints of a path with intermediaries have it, too."""

    soap: str = "1.2"
    next_msh: bool = False
    units: bool = False
    """Whether each corner has a unit of its own, with `.init` or `.resp`."""
    reply_to: str | None = None
    address_at_c3: str | None = None

    def pmode(self, corner: str, relay: str, back: str) -> dict[str, Any]:
        made = super().pmode(corner, relay, back)
        leg = made["legs"][0]
        leg["protocol"]["soap_version"] = self.soap
        if self.next_msh:
            leg["protocol"]["add_actor_or_role_attribute"] = True
        if self.units:
            made["id"] += ".init" if corner == C2 else ".resp"
        if self.reply_to is not None:
            leg["security"]["send_receipt"]["reply_to"] = self.reply_to
        if self.address_at_c3 is not None and corner != C2:
            leg["protocol"]["address"] = self.address_at_c3
        return made


class Mailbox(Listener):
    """Takes what it is sent, and says no more than that it has it."""

    def __init__(self) -> None:
        super().__init__(self._take)
        self._taken: list[tuple[str, bytes]] = []
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/msh"

    async def _take(self, fields: dict[str, str], body: bytes) -> Answer:
        with self._changed:
            self._taken.append((fields["content-type"], body))
            self._changed.notify_all()
        return NOTHING

    def about(self, message_id: str) -> list[tuple[str, bytes]]:
        with self._changed:
            return [one for one in self._taken if message_id.encode() in one[1]]

    def taken(self, message_id: str, count: int = 1) -> tuple[str, bytes]:
        """What came about a message at last, when it is so much; waits for it."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.about(message_id)) >= count, PATIENCE)
        return self.about(message_id)[count - 1]


@dataclass(frozen=True)
class World:
    bench: Bench
    hub: Mailbox
    """An intermediary that stores; a test forwards."""
    receipts: Mailbox

    @property
    def c2(self) -> Corner:
        return self.bench.c2

    @property
    def c3(self) -> Corner:
        return self.bench.c3

    def post_to_c2(self, content_type: str, body: bytes) -> Answer:
        return self.bench.loop.run(post(self.bench.relay.http, self.c2.url, content_type, body))

    def journal(self, corner: Corner) -> list[Recorded]:
        assert corner.running is not None
        store = corner.running.node.context.store
        return self.bench.loop.run(store.look(lambda reader: reader.journal(0, 100_000)))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    loop, stack = Loop(), AsyncExitStack()
    hub, receipts = Mailbox(), Mailbox()
    try:
        for listener in (hub, receipts):
            loop.run(listener.start())
            stack.push_async_callback(listener.stop)
        terms = (
            Edge("signed"),
            Edge("unproven", non_repudiation=False),
            Edge("plain-1.1", sign=False, soap="1.1"),
            Edge("plain-1.2", sign=False),
            Edge("hop-1.1", next_msh=True, soap="1.1"),
            Edge("hop-1.2", next_msh=True),
            Edge("unit", units=True, next_msh=True, agreement="http://example.com/a/1"),
            Edge("reply-to", receipt="callback", reply_to=receipts.url),
            Edge(
                "through-a-hub",
                next_msh=True,
                receipt="callback",
                address=hub.url,
                address_at_c3="http://127.0.0.1:9/another-edge",
            ),
            Edge("unreachable", address=f"http://127.0.0.1:{free_port()}/msh"),
            Edge("demanding", demands="urgency"),
        )
        folder = tmp_path_factory.mktemp("shown")
        yield World(Bench(loop, *loop.run(start(folder, terms, stack))), hub, receipts)
    finally:
        loop.run(stack.aclose())
        loop.close()


def messaging(body: bytes) -> etree._Element:
    """The eb:Messaging of an envelope that stands alone."""
    [found] = etree.fromstring(body).iter(f"{{{EB3}}}Messaging")
    return found


@pytest.mark.req("P2-2.4.5-05", "P2-2.4.5-07", "P2-2.6-01", "P2-6.4.2-02")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_the_header_is_for_the_next_msh_where_the_pmode_says_so(world: World, version: str) -> None:
    sent = world.c2.send(f"hop-{version}")
    assert sent.state == "acknowledged"
    header = messaging(world.bench.exchange(sent.message_id).body)
    assert header.get(TARGET[version]) == NEXT_MSH
    other = TARGET["1.2" if version == "1.1" else "1.1"]
    assert header.get(other) is None
    assert header.get(f"{SOAP[version]}mustUnderstand") in ("1", "true")
    assert world.c3.delivered(sent.message_id) is not None


@pytest.mark.req("P2-2.4.5-08")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_the_header_is_for_the_ultimate_receiver_otherwise(world: World, version: str) -> None:
    sent = world.c2.send(f"plain-{version}")
    header = messaging(world.bench.exchange(sent.message_id).body)
    assert not set(TARGET.values()) & set(header.attrib)


@pytest.mark.req("P2-2.7.2-03")
def test_the_agreement_names_the_pmode_without_the_suffix_of_its_unit(world: World) -> None:
    sent = world.c2.send("unit.init", ORDER)
    assert sent.state == "acknowledged"
    ref = world.bench.exchange(sent.message_id).seen.one("//eb:AgreementRef")
    assert ref.get("pmode") == "unit"
    received = world.c3.delivered(sent.message_id)
    assert received is not None
    assert received.pmode == "unit.resp"


@pytest.mark.req("P2-2.4.7.1-01", "P2-2.4.1-03")
def test_endpoints_push_through_an_intermediary_each_by_its_own_pmode(world: World) -> None:
    message_id = "first-and-last-push@c2"
    world.c2.client.send(pmode="through-a-hub", payloads=[ORDER], message_id=message_id)
    content_type, body = world.hub.taken(message_id)
    assert world.c3.delivered(message_id) is None
    assert world.bench.deliver((content_type, body)).status == 202
    assert world.c2.client.wait(message_id, PATIENCE).state == "acknowledged"
    assert world.c3.payloads(message_id) == [ORDER]
    assert not world.bench.relay.about(message_id)


@pytest.mark.req("P2-2.4.6-01")
def test_the_edges_of_a_path_are_bound_by_the_uris_of_the_core_and_no_others() -> None:
    def problems(binding: str) -> int:
        text = (
            f"id: hop.init\nmep: oneWay\nmep_binding: {binding}\ninitiator: {{party: 'urn:a'}}\n"
            "responder: {party: 'urn:b'}\nlegs:\n  - protocol: {address: 'https://hub.example/',"
            " add_actor_or_role_attribute: true}\n"
        )
        return len(load_sources([("hop.yaml", text)], supported=None).problems)

    assert problems(f"{EB3}push") == 0
    assert problems("http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/part2/200811/push") == 1
    assert problems("First-and-Last-Push") == 1


@pytest.mark.req("P2-6.7.1-04", "OV004-1-11")
def test_a_receipt_that_is_no_response_goes_to_the_address_for_receipts(world: World) -> None:
    message_id = "reply-to@c2"
    world.c2.client.send(pmode="reply-to", payloads=[ORDER], message_id=message_id)
    seen = read(*world.receipts.taken(message_id))
    assert seen.text("//eb:SignalMessage/eb:MessageInfo/eb:RefToMessageId") == message_id
    seen.one("//eb:SignalMessage/eb:Receipt")
    exchange = world.bench.exchange(message_id)
    assert exchange.answer == NOTHING
    copied = world.bench.deliver((exchange.content_type, exchange.body))
    assert (copied.status, copied.body) == (202, b"")
    assert world.receipts.taken(message_id, 2) == world.receipts.about(message_id)[0]


@pytest.mark.req("P2-6.7.1-05", "P2-3.6.2-02")
def test_a_receipt_with_nonrepudiation_repeats_the_digests_of_the_signature(world: World) -> None:
    sent = world.c2.send("signed", ORDER, b"sealing wax")
    exchange = world.bench.exchange(sent.message_id)
    [content] = exchange.answer.seen.one("//eb:SignalMessage/eb:Receipt")
    assert content.tag == f"{{{content.nsmap[content.prefix]}}}NonRepudiationInformation"
    assert content.nsmap[content.prefix] == "http://docs.oasis-open.org/ebxml-bp/ebbp-signals-2.0"
    assert {etree.QName(one).localname for one in content} == {"MessagePartNRInformation"}
    assert all([etree.QName(inner).localname for inner in one] == ["Reference"] for one in content)
    told = references(
        exchange.answer.seen, "//eb:Receipt//ebbp:MessagePartNRInformation/ds:Reference"
    )
    assert sorted(told) == sorted(references(exchange.seen, "//ds:SignedInfo/ds:Reference"))
    assert len([one for one in told if one[0].startswith("cid:")]) == 2

    plain = world.bench.exchange(world.c2.send("unproven", ORDER).message_id).answer.seen
    assert not plain.all("//ebbp:NonRepudiationInformation")


@pytest.mark.req("OV004-1-13", "OV004-1-14", "RM000-1-01")
def test_the_application_is_told_when_the_partner_cannot_be_reached(world: World) -> None:
    sent = world.c2.send("unreachable", ORDER)
    assert sent.state == "failed"
    told = world.c2.application.told(sent.message_id)
    assert (told["event"], told["state"], told["error_code"]) == ("failed", "failed", "EBMS:0005")
    assert "delivery_failed" in world.c2.journal(sent.message_id)


@pytest.mark.req("OV004-2-07")
def test_an_application_can_ask_what_became_of_a_message(world: World) -> None:
    good, bad = world.c2.send("signed", ORDER), world.c2.send("unreachable", ORDER)
    assert world.c2.status(good.message_id).state == "acknowledged"
    assert world.c2.status(bad.message_id).state == "failed"


def test_an_error_of_the_partner_is_passed_up_and_sending_goes_on(world: World) -> None:
    refused = world.c2.send("demanding", ORDER)
    told = world.c2.application.told(refused.message_id)
    assert told["event"] == "failed"
    assert told["error_code"] == world.bench.exchange(refused.message_id).answer.codes[0]
    assert len(world.bench.relay.about(refused.message_id)) == 1
    assert world.c2.send("signed", ORDER).state == "acknowledged"


FAULTS: Final = {
    "1.1": "<{s}Fault><faultcode>{s}Server</faultcode><faultstring>out of paper</faultstring>"
    "</{s}Fault>",
    "1.2": "<{s}Fault><{s}Code><{s}Value>{s}Receiver</{s}Value></{s}Code><{s}Reason>"
    '<{s}Text xml:lang="en">out of paper</{s}Text></{s}Reason></{s}Fault>',
}


@pytest.mark.req("MS098-11-02")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("broken", [True, False], ids=["receiver's", "message's"])
def test_a_soap_fault_is_taken_for_the_answer(world: World, version: str, broken: bool) -> None:
    """A receiver that broke down may have taken the message before."""
    kind = {"1.1": "text/xml", "1.2": "application/soap+xml"}[version]
    fault = FAULTS[version].format(s="s:")
    if not broken:
        fault = fault.replace("s:Server", "s:Client").replace("s:Receiver", "s:Sender")
    body = (
        f'<s:Envelope xmlns:s="{SOAP[version][1:-1]}"><s:Body>{fault}</s:Body></s:Envelope>'
    ).encode()
    message_id = f"fault-{version}-{broken}@c2"
    world.bench.relay.intercept(message_id, answer=lambda _: Answer(500, kind, body))
    sent = world.c2.send(f"plain-{version}", ORDER, message_id=message_id)
    assert sent.state == ("in_doubt" if broken else "failed")
    assert "out of paper" in (world.c2.status(message_id).detail or "")


def withheld(world: World, message_id: str) -> Answer:
    """Send a message whose receipt is kept back; the receipt."""
    kept: list[Answer] = []

    def keep(answer: Answer) -> Answer:
        kept.append(answer)
        return NOTHING

    world.bench.relay.intercept(message_id, answer=keep)
    sent = world.c2.send("signed", ORDER, message_id=message_id)
    assert sent.state == "in_doubt"
    return kept[0]


@pytest.mark.req("OV004-2-05", "MS098-10.3.1.2-01", "MS098-10.3.1.2-02")
def test_receipts_settle_their_message_however_often_they_come_and_get_no_answer(
    world: World,
) -> None:
    message_id = "receipts@c2"
    receipt = withheld(world, message_id)
    for _ in range(2):
        answer = world.post_to_c2(receipt.content_type, receipt.body)
        assert (answer.status, answer.body) == (202, b"")
        assert world.c2.status(message_id).state == "settled"
    journal = world.c2.journal(message_id)
    assert journal.count("receipt_received") == 1
    assert journal.count("settled") == 1
    assert not world.bench.relay.about(receipt.seen.text("//eb:SignalMessage//eb:MessageId"))


@pytest.mark.req("MS098-10.3.1.5-01")
def test_what_is_sent_again_is_identical(world: World) -> None:
    message_id = "again@c2"
    withheld(world, message_id)
    world.bench.relay.let_pass(message_id)
    world.c2.client.resend(message_id)
    assert world.c2.client.wait(message_id, PATIENCE).state == "acknowledged"
    first, second = world.bench.relay.about(message_id)
    assert (second.content_type, second.body) == (first.content_type, first.body)


def test_the_receipt_of_another_message_settles_nothing(world: World) -> None:
    other = world.bench.exchange(world.c2.send("signed", ORDER).message_id).answer
    message_id = "not-mine@c2"
    world.bench.relay.intercept(message_id, answer=lambda _: other)
    assert world.c2.send("signed", ORDER, message_id=message_id).state == "in_doubt"


@pytest.mark.req("MS098-11.3-02", "MS098-11.3-04")
def test_an_error_that_fits_nothing_is_noted_and_not_answered(world: World) -> None:
    body = (
        f'<s:Envelope xmlns:s="{SOAP["1.2"][1:-1]}" xmlns:eb="{EB3}"><s:Header>'
        '<eb:Messaging s:mustUnderstand="true"><eb:SignalMessage><eb:MessageInfo>'
        "<eb:Timestamp>2024-06-01T12:00:00Z</eb:Timestamp><eb:MessageId>loop@x</eb:MessageId>"
        "<eb:RefToMessageId>never-sent@c3</eb:RefToMessageId></eb:MessageInfo>"
        '<eb:Error errorCode="EBMS:0004" severity="failure" origin="ebMS" category="Content"/>'
        "</eb:SignalMessage></eb:Messaging></s:Header><s:Body/></s:Envelope>"
    ).encode()
    before = len(world.journal(world.c3))
    answer = world.bench.deliver(("application/soap+xml; charset=UTF-8", body))
    assert (answer.status, answer.body) == (202, b"")
    [noted] = [
        one.event
        for one in world.journal(world.c3)[before:]
        if "never-sent@c3" in (one.event.detail or "")
    ]
    assert noted.event == "error_raised"


@pytest.mark.req("MS098-11.3-01", "MS098-11.3.1-01")
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"action": "unknown"}, id="no agreement"),
        pytest.param({"conversation_id": "<eb:Twice/>"}, id="no conversation"),
        pytest.param({"sender": ""}, id="no sender"),
    ],
)
def test_a_message_with_an_error_in_its_header_is_answered_by_an_error(
    world: World, wrong: dict[str, Any]
) -> None:
    letter = Letter(f"wrong-{'-'.join(wrong)}@c2", "plain-1.2").but(**wrong)
    answer = world.bench.post(letter)
    assert answer.codes
    assert answer.ref == letter.message_id
    assert world.c3.delivered(letter.message_id) is None


def packaged(world: World, *payloads: Payload) -> tuple[str, bytes, list[Message]]:
    """A message in SOAP 1.1 as it went over the wire: its type, its body, and its MIME parts."""
    sent = world.c2.send("plain-1.1", *payloads, properties={"place": "Zürich ☕"})
    assert sent.state == "acknowledged"
    exchange = world.bench.exchange(sent.message_id)
    head = f"Content-Type: {exchange.content_type}\r\n\r\n".encode()
    whole = BytesParser(policy=HTTP).parsebytes(head + exchange.body)
    return exchange.content_type, exchange.body, list(whole.iter_parts())


def content(part: Message) -> bytes:
    octets = part.get_payload(decode=True)
    assert isinstance(octets, bytes)
    return octets


TWO: Final = (
    Payload(ORDER, "application/xml", content_id="order@c2"),
    Payload(b"sealing wax", "text/plain", content_id="wax@c2"),
)


def test_the_root_part_is_one_soap_1_1_envelope_of_type_text_xml(world: World) -> None:
    content_type, _, parts = packaged(world, *TWO)
    assert 'type="text/xml"' in content_type
    root = parts[0]
    assert root.get_content_type() == "text/xml"
    assert root.get_param("charset") == "UTF-8"
    assert f'start="{root["content-id"]}"' in content_type
    envelope = etree.fromstring(content(root))
    assert envelope.tag == f"{SOAP['1.1']}Envelope"
    assert [one.tag for one in envelope] == [f"{SOAP['1.1']}Header", f"{SOAP['1.1']}Body"]


def test_the_envelope_is_utf_8_and_its_declaration_and_its_type_say_so(world: World) -> None:
    root = packaged(world, *TWO)[2][0]
    octets = content(root)
    assert octets.startswith(b'<?xml version="1.0" encoding="UTF-8"?>')
    assert root.get_param("charset") == "UTF-8"
    assert "Zürich ☕" in octets.decode("utf-8")


def test_each_payload_is_a_part_of_its_own_and_without_payloads_there_is_none(
    world: World,
) -> None:
    _, _, parts = packaged(world, *TWO)
    assert [(one["content-id"], content(one)) for one in parts[1:]] == [
        ("<order@c2>", ORDER),
        ("<wax@c2>", b"sealing wax"),
    ]
    envelope = etree.fromstring(content(parts[0]))
    assert not list(envelope[1])
    assert ORDER not in content(parts[0])

    content_type, body, none = packaged(world)
    assert content_type.partition(";")[0] == "text/xml"
    assert not none
    assert etree.fromstring(body).tag == f"{SOAP['1.1']}Envelope"


Encode = Callable[[str], bytes]


@pytest.mark.parametrize(
    "encode",
    [
        pytest.param(lambda text: text.encode("utf-16"), id="by its mark"),
        pytest.param(
            lambda text: ('<?xml version="1.0" encoding="ISO-8859-1"?>' + text).encode("latin-1"),
            id="by its declaration",
        ),
    ],
)
def test_without_a_charset_the_encoding_is_told_by_the_xml(
    world: World, encode: Encode, request: pytest.FixtureRequest
) -> None:
    message_id = f"{len(request.node.name)}-encoded@c2"
    letter = Letter(message_id, "plain-1.1", properties=(("place", "Zürich", None),))
    body = letter.wire()[1].decode().replace(SOAP["1.2"][1:-1], SOAP["1.1"][1:-1])
    body = body.replace('mustUnderstand="true"', 'mustUnderstand="1"')
    answer = world.bench.deliver(("text/xml", encode(body)))
    assert answer.status == 200
    received = world.c3.delivered(message_id)
    assert received is not None
    assert received.properties[0].value == "Zürich"
