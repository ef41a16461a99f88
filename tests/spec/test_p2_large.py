"""Large messages in fragments, selective pulling and alternate exchange patterns on the wire.

Sections 4, 5 and 7 of the ebMS 3.0 Advanced Features.
"""

import hashlib
from typing import Any, Final

import pytest

from postroad.node.service import Submission, SubmittedPayload
from postroad.store.records import State
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import AgreementRef, Party, PartyId, Property, Selection, Service
from tests.node.asking import PRICES, Q, R, ask, reply
from tests.node.bundled import bundling
from tests.node.collecting import collect, request
from tests.node.hubs import NEAR, by_way_of, hub, rule
from tests.node.joining import payloads
from tests.node.reliable import SOAP, party
from tests.node.splitting import BIG, PAYLOAD, RETRY, splitting
from tests.spec.kit import (
    BUYER,
    ORDERS,
    SELLER,
    As4,
    Call,
    Row,
    Script,
    Send,
    Wait,
    WireMessage,
    World,
    address,
    check,
    played,
    record,
    shows,
    wire,
)

_FRAGMENT: Final = "mf:MessageFragment"
_REPETITIVE: Final = b"paper " * 20_000
"""Compressed, it fits into one fragment."""


def _split(**more: Any) -> As4:
    terms: dict[str, Any] = {"receipt": "callback", "retry": RETRY, "splitting": splitting()}
    return As4(**terms | more)


def _submit(pmode: str = ORDERS, **more: Any) -> Call:
    """Submit a large message."""
    given = SubmittedPayload(BytesContent(PAYLOAD), hashlib.sha256(PAYLOAD).digest())

    async def submit(world: World) -> None:
        buyer = world.stations[BUYER]
        await buyer.process.ask(buyer.node.submit(Submission(pmode, (given,), BIG, **more)))

    return Call(submit)


_PLAIN = Script((_split(),), (Send(BIG, payload=PAYLOAD), Wait(5)))
_SOAP_11 = Script((_split(soap="1.1"),), (Send(BIG, payload=PAYLOAD), Wait(5)))
_COMPRESSED = Script(
    (_split(splitting=splitting("2 KiB", compression={"algorithm": "gzip"})),),
    (Send(BIG, payload=PAYLOAD + hashlib.sha512(b"x").digest() * 50), Wait(5)),
)
_ONE = Script(
    (_split(splitting=splitting(compression={"algorithm": "gzip"})),),
    (Send(BIG, payload=_REPETITIVE), Wait(5)),
)
_PROPERTIES = Script(
    (_split(splitting=splitting(routing_properties=["region", "lane"])),),
    (
        _submit(
            properties=(
                ("region", "North-West", None),
                ("secret", "yes", None),
                ("lane", "7", "string"),
            )
        ),
        Wait(5),
    ),
)


def _fragments(script: Script) -> list[WireMessage]:
    found = record(script).requests(BUYER, containing=_FRAGMENT)
    assert found, "the script made no fragment"
    return found


def _joined(fragments: list[WireMessage]) -> bytes:
    """The source as it stands in the fragments."""
    return b"".join(bytes(one.parts[1].get_payload(decode=True)) for one in fragments)  # type: ignore[arg-type]


@pytest.mark.req("P2-4.2.2-04")
@pytest.mark.parametrize("script", [_PLAIN, _COMPRESSED, _ONE], ids=["plain", "gzip", "one"])
def test_fragment_numbers_run_from_one_to_the_count(script: Script) -> None:
    fragments = _fragments(script)
    [count] = [one.text("mf:FragmentCount") for one in fragments if one.count("mf:FragmentCount")]
    numbers = [int(one.text("mf:FragmentNum") or "") for one in fragments]
    assert numbers == list(range(1, int(count or "") + 1))


@pytest.mark.req("P2-4.3.1-12")
def test_a_message_whose_compressed_form_fits_into_one_fragment_is_the_first_of_one() -> None:
    [only] = _fragments(_ONE)
    assert (only.text("mf:FragmentNum"), only.text("mf:FragmentCount")) == ("1", "1")
    assert record(_ONE).inboxes[SELLER] == [BIG]


@pytest.mark.req("P2-4.3.1-03")
@pytest.mark.parametrize(
    ("script", "media_type"),
    [(_PLAIN, "application/soap+xml"), (_SOAP_11, "text/xml")],
    ids=["SOAP 1.2", "SOAP 1.1"],
)
def test_fragments_of_a_soap_with_attachments_message_are_such_messages(
    script: Script, media_type: str
) -> None:
    fragments = _fragments(script)
    assert fragments[0].text("mf:MessageHeader/mf:Type") == media_type
    source = _joined(fragments)
    assert f"Content-Type: {media_type};".encode() in source.partition(b"\r\n\r\n")[0]
    for one in fragments:
        assert one.package.get_content_type() == "multipart/related"
        assert one.package.get_param("type") == media_type
        assert one.package.get_param("start-info") is None
        assert one.parts[0].get_content_type() == media_type


@pytest.mark.parametrize(
    "row",
    [
        shows("P2-4.4.2-09", _PLAIN, "eb:UserMessage/eb:PayloadInfo", 0, containing=_FRAGMENT),
        shows(
            "P2-4.4.2-11",
            _PROPERTIES,
            "eb:MessageProperties/eb:Property",
            ["North-West", "7"],
            containing=_FRAGMENT,
        ),
        shows(
            "P2-4.4.2-11",
            _PROPERTIES,
            "eb:MessageProperties/eb:Property/@name",
            ["region", "lane"],
            containing=_FRAGMENT,
        ),
        shows(
            "P2-4.4.2-11",
            _PROPERTIES,
            "eb:MessageProperties/eb:Property/@type",
            ["string"],
            containing=_FRAGMENT,
        ),
        shows("P2-4.4.2-11", _PLAIN, "eb:MessageProperties", 0, containing=_FRAGMENT),
    ],
)
def test_the_header_of_a_fragment(row: Row) -> None:
    check(row)


@pytest.mark.req("P2-4.4.2-09", "P2-4.4.2-11")
def test_what_fragments_leave_out_stands_in_the_source() -> None:
    source = _joined(_fragments(_PROPERTIES))
    for expected in (b"<eb:PayloadInfo>", b'name="secret"', b'name="region"'):
        assert expected in source


_BUNDLED = Script(
    (
        _split(
            bundling=bundling(max_size="1 MiB", compatibility={"pmode_list": [ORDERS]}),
            splitting=splitting("20000 B"),
        ),
    ),
    (
        Send(BIG, payload=PAYLOAD[:18_000], conversation="talk"),
        Send("second@buyer", payload=PAYLOAD[:18_000], conversation="talk"),
        Wait(20),
    ),
)


@pytest.mark.req("P2-4.4.2-10")
def test_fragments_carry_the_first_user_message_and_no_signal() -> None:
    source = _joined(_fragments(_BUNDLED))
    assert source.count(b"<eb:UserMessage") == 2
    for one in _fragments(_BUNDLED):
        assert [child.tag.rpartition("}")[2] for child in one.xpath("eb:Messaging/*")] == [
            "UserMessage"
        ]


@pytest.mark.req("P2-4.4.2-10")
@played
async def test_receipts_travel_beside_the_fragments_of_a_reply_and_not_in_them(
    world: World,
) -> None:
    ask(world, "pushAndPush", receipts=("callback", "callback"))
    for at in (BUYER, SELLER):
        for leg, sender in zip(world._pmodes[at][0]["legs"], (BUYER, SELLER), strict=True):
            leg["splitting"] = splitting()
            leg["security"]["send_receipt"]["reply_to"] = address(sender)
    buyer, seller = await world.both()
    await buyer.send(Q, PRICES)
    await world.wait(0.1)
    await reply(seller, payload=PAYLOAD)
    await world.wait(5)
    assert await payloads(buyer, R) == [PAYLOAD]
    sent = [one for one in wire(world) if one.sender == SELLER and one.status is None]
    fragments = [one for one in sent if one.count(_FRAGMENT)]
    receipts = [one for one in sent if one.count("eb:Receipt")]
    assert len(fragments) == 4
    assert all(one.count("eb:SignalMessage") == 0 for one in fragments)
    assert [one.text("eb:RefToMessageId") for one in receipts] == [Q]


def _routed(world: World) -> None:
    """The buyer's messages are split and routed over a hub by the EPR of the receiver."""
    world.agree(receipt="callback", retry=RETRY, splitting=splitting())
    by_way_of(world, NEAR)
    epr = {"routing_input": {"business_info": {"action": "routed"}}}
    for at in (BUYER, SELLER):
        [pmode] = world._pmodes[at]
        pmode["responder"]["addressing"] = {"epr": epr, "action": "urn:example:deliver"}
    there, back = {"to_party": party(SELLER)}, {"to_party": party(BUYER)}
    hub(world, NEAR, rule("there", SELLER, **there), rule("home", BUYER, **back))


@pytest.mark.req("P2-4.4.1-02", "P2-4.4.1-03", "P2-7.4-02")
@played
async def test_each_fragment_has_a_message_id_of_ws_addressing_of_its_own(world: World) -> None:
    _routed(world)
    await world.start(NEAR)
    buyer, seller = await world.both()
    await buyer.send("small@buyer")
    await buyer.send(BIG, payload=PAYLOAD)
    await world.wait(10)
    assert sorted(await seller.inbox()) == [BIG, "small@buyer"]
    sent = [one for one in wire(world) if one.sender == BUYER and one.status is None]
    [small] = [one for one in sent if one.text("eb:MessageId") == "small@buyer"]
    assert small.text("wsa:MessageID") == "mid:small@buyer"
    fragments = [one for one in sent if one.count(_FRAGMENT)]
    assert len(fragments) == 4
    assert f"mid:{BIG}</wsa:MessageID>".encode() in _joined(fragments)
    ids = [one.text("wsa:MessageID") for one in fragments]
    assert len(set(ids)) == 4
    assert None not in ids
    assert f"mid:{BIG}" not in ids
    for one in fragments:
        assert one.text("wsa:Action") == "urn:example:deliver"
        assert one.count("ebint:RoutingInput") == 1


@pytest.mark.req("P2-4.4.2-12")
@played
async def test_a_pull_request_larger_than_a_fragment_is_sent_whole(world: World) -> None:
    collect(world)
    for at in (BUYER, SELLER):
        world._pmodes[at][0]["legs"][0]["splitting"] = splitting("400 B")
    buyer, seller = await world.both()
    await buyer.send(BIG, payload=PAYLOAD[:3000], conversation="talk")
    await world.wait(2)
    selection = Selection(conversation_id="talk")
    await seller.process.ask(seller.node.pull(ORDERS, selection, most=100))
    await world.wait(5)
    assert await payloads(seller, BIG) == [PAYLOAD[:3000]]
    asked = [one for one in wire(world) if one.status is None and one.count("eb:PullRequest")]
    handed_out = [one for one in wire(world) if one.status == 200 and one.count(_FRAGMENT)]
    assert len(handed_out) >= 8
    assert len(asked) >= len(handed_out)
    for one in asked:
        assert len(one.body) > 400
        assert (one.count(_FRAGMENT), len(one.parts)) == (0, 1)
        assert one.text("eb:PullRequest/eb:ConversationId") == "talk"


_MANY_ITEMS: Final = Selection(
    conversation_id="talk",
    agreement_ref=AgreementRef("17"),
    service=Service("urn:example:trade"),
    action=ORDERS,
    from_party=Party((PartyId(party(BUYER)),), "urn:example:sender"),
    to_party=Party((PartyId(party(SELLER)),), "urn:example:receiver"),
    properties=(Property("colour", "red"),),
)
_ITEMS: Final = (
    *("ConversationId", "AgreementRef", "Service", "Action"),
    *("From", "To", "MessageProperties"),
)


async def _selectively(world: World, item: str) -> WireMessage:
    """Return the answer to a PullRequest with this selection item."""
    collect(world)
    for at in (BUYER, SELLER):
        world._pmodes[at][0]["agreement"] = "17"
    buyer, seller = await world.both()
    given = SubmittedPayload(BytesContent(b"x"), hashlib.sha256(b"x").digest())
    red = (("colour", "red", None),)
    submission = Submission(ORDERS, (given,), BIG, "talk", "r@seller", properties=red)
    await buyer.process.ask(buyer.node.submit(submission))
    body = request(seller, selection=Selection(action="item"))
    asked = body.replace(b"<eb:Action>item</eb:Action>", item.encode())
    assert asked != body
    await world.wire.post(SELLER, BUYER, SOAP, asked, None)
    return wire(world)[-1]


_PARTY: Final = "<eb:PartyId>urn:example:{0}</eb:PartyId>"


@pytest.mark.req("P2-5.1-01")
@pytest.mark.parametrize(
    "item",
    [
        "<eb:RefToMessageId>r@seller</eb:RefToMessageId>",
        "<eb:ConversationId>talk</eb:ConversationId>",
        "<eb:AgreementRef>17</eb:AgreementRef>",
        "<eb:Service>urn:example:trade</eb:Service>",
        "<eb:Action>orders</eb:Action>",
        f"<eb:From>{_PARTY.format(BUYER)}</eb:From>",
        f"<eb:To>{_PARTY.format(SELLER)}</eb:To>",
        '<eb:MessageProperties><eb:Property name="colour">red</eb:Property></eb:MessageProperties>',
    ],
)
@played
async def test_a_pull_request_may_select_by_each_of_eight_items(world: World, item: str) -> None:
    answer = await _selectively(world, item)
    assert answer.text("eb:UserMessage/eb:MessageInfo/eb:MessageId") == BIG


@pytest.mark.req("P2-5.1-01")
@pytest.mark.parametrize(
    "item",
    [
        f"<eb:MessageId>{BIG}</eb:MessageId>",
        "<eb:Timestamp>2024-06-01T12:00:00Z</eb:Timestamp>",
        "<eb:PartyInfo/>",
        "<eb:CollaborationInfo><eb:Action>orders</eb:Action></eb:CollaborationInfo>",
        "<eb:PayloadInfo/>",
        '<Action xmlns="urn:x">orders</Action>',
    ],
)
@played
async def test_a_pull_request_with_any_other_child_is_refused(world: World, item: str) -> None:
    answer = await _selectively(world, item)
    assert answer.count("eb:UserMessage") == 0
    assert answer.text("eb:Error/@errorCode") == "EBMS:0009"
    assert await world.stations[BUYER].state(BIG) is State.READY


@pytest.mark.req("P2-5.1-01")
@played
async def test_who_pulls_writes_nothing_but_selection_items(world: World) -> None:
    collect(world)
    _, seller = await world.both()
    await seller.process.ask(seller.node.pull(ORDERS, _MANY_ITEMS))
    [asked] = [one for one in wire(world) if one.status is None]
    written = [child.tag for child in asked.xpath("eb:PullRequest/*")]
    assert sorted(written) == sorted(f"{{{asked.namespaces['eb']}}}{name}" for name in _ITEMS)
