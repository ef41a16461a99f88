"""Elements and attachments that a P-Mode lists to be signed or encrypted (Core D.3.6), on the wire.

The buyer sends, the seller receives; the two may have agreed on different lists. What went over the
wire is read with the standard library and lxml.
"""

import hashlib
from base64 import b64decode
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Final

import pytest
from lxml import etree

import postroad
from postroad.node.service import Refused, Submission, SubmittedPayload
from postroad.store.records import State
from postroad.wire.content import BytesContent
from tests.node.reliable import BUYER, ORDERS, SELLER, Posted, Station, World, lost, played

M: Final = "m@buyer"
SHEET: Final = "sheet@buyer"
NOTE: Final = "note@buyer"
PAYLOADS: Final = {SHEET: b"twenty sheets", NOTE: b"in a hurry"}
WSU: Final = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd"
WSSE: Final = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd"
DS: Final = "http://www.w3.org/2000/09/xmldsig#"
XENC: Final = "http://www.w3.org/2001/04/xmlenc#"
TOKEN: Final = {"username": "buyer", "password": "correct horse", "digest": False}


def agree(
    world: World,
    at: str,
    *,
    sign: dict[str, Any] | None = None,
    encrypt: dict[str, Any] | bool | None = None,
    token: bool = False,
    **terms: Any,
) -> None:
    """A signed P-Mode of one party, with lists of what is signed and encrypted."""
    world.agree(signed=True, **terms)
    for one in (BUYER, SELLER):
        if one != at:
            world._pmodes[one].pop()
    security = world._pmodes[at][-1]["legs"][0]["security"]
    security["x509"]["sign"] = sign or True
    if encrypt is not None:
        security["x509"]["encryption"] = {
            "encrypt": encrypt,
            "certificate": "../keys/seller.pem",
        } | ({"key": "../keys/seller.p12"} if at == SELLER else {})
    if token:
        security["username_token"] = TOKEN


async def send(
    buyer: Station, payloads: dict[str, bytes] | None = None, pmode: str = ORDERS
) -> None:
    given = [
        SubmittedPayload(
            BytesContent(data), hashlib.sha256(data).digest(), "text/csv", content_id=name
        )
        for name, data in (PAYLOADS if payloads is None else payloads).items()
    ]
    await buyer.process.ask(buyer.node.submit(Submission(pmode, tuple(given), M)))


def read(posted: Posted) -> tuple[etree._Element, dict[str, EmailMessage]]:
    """The envelope, and the attachments by Content-ID."""
    head = f"Content-Type: {posted.content_type}\r\n\r\n".encode()
    message = message_from_bytes(head + posted.body, policy=policy.HTTP)
    first, *others = message.iter_parts()
    envelope = etree.fromstring(first.get_payload(decode=True))
    return envelope, {str(one["Content-ID"]).strip("<>"): one for one in others}


def signed(envelope: etree._Element) -> set[str]:
    """What the signature covers: local names of elements, and Content-IDs; digests are checked."""
    found = set()
    for reference in envelope.iter(f"{{{DS}}}Reference"):
        uri = reference.get("URI")
        if uri.startswith("cid:"):
            found.add(uri[4:])
            continue
        [element] = envelope.xpath("//*[@*[local-name()='Id'] = $id]", id=uri[1:])
        digest = hashlib.sha256(etree.tostring(element, method="c14n", exclusive=True)).digest()
        assert b64decode(reference.findtext(f"{{{DS}}}DigestValue")) == digest, element.tag
        found.add(etree.QName(element).localname)
    return found


def encrypted(envelope: etree._Element) -> set[str]:
    """Content-IDs of encrypted attachments, and `Element` for what is encrypted in its place."""
    found = {one.get("URI")[4:] for one in envelope.iter(f"{{{XENC}}}CipherReference")}
    kinds = (one.get("Type") for one in envelope.iter(f"{{{XENC}}}EncryptedData"))
    return found | {one.partition("#")[2] for one in kinds if one.startswith(XENC)}


async def exchanged(world: World) -> tuple[Station, Station, Posted]:
    """One message, sent and answered."""
    buyer, seller = await world.both()
    await send(buyer)
    await world.wait(1)
    return buyer, seller, world.wire.to(SELLER, M)[0]


async def refusal(world: World, code: str = "EBMS:0103") -> str:
    """The detail with which the seller refuses the message."""
    buyer, seller, _ = await exchanged(world)
    assert await seller.inbox() == []
    assert await buyer.state(M) is State.FAILED
    found = await seller.message(M)
    assert found.error_code == code
    assert found.detail is not None
    return found.detail


ALL: Final = {"Messaging", "Body", "Timestamp", SHEET, NOTE}


@pytest.mark.parametrize(
    ("element", "more"),
    [
        (["wsse:UsernameToken"], {"UsernameToken"}),
        (
            ["BinarySecurityToken", f"{{{WSSE}}}UsernameToken"],
            {"BinarySecurityToken", "UsernameToken"},
        ),
        (["eb:Messaging", "S12:Body", "wsu:Timestamp"], set()),
    ],
)
@played
async def test_listed_elements_are_signed_beside_what_as4_requires(
    world: World, element: list[str], more: set[str]
) -> None:
    for at in (BUYER, SELLER):
        agree(world, at, sign={"element": element}, token=True)
    buyer, seller, posted = await exchanged(world)
    assert signed(read(posted)[0]) == ALL | more
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_a_message_without_a_listed_signed_element_is_refused(world: World) -> None:
    agree(world, BUYER, token=True)
    agree(world, SELLER, sign={"element": "wsse:UsernameToken"}, token=True)
    assert "the signature does not cover UsernameToken" in await refusal(world)


@played
async def test_a_message_without_a_listed_element_is_refused(world: World) -> None:
    agree(world, BUYER)
    agree(world, SELLER, sign={"element": "{urn:example:community}Trace"})
    assert "{urn:example:community}Trace to be signed, and the message has none" in await refusal(
        world
    )


@played
async def test_a_message_without_a_listed_element_is_not_sent(world: World) -> None:
    for at in (BUYER, SELLER):
        agree(world, at, sign={"element": "{urn:example:community}Trace"})
    buyer, _ = await world.both()
    with pytest.raises(Refused, match="lists Trace to be signed, and the message has none"):
        await send(buyer)
    assert world.wire.posted == []


@pytest.mark.parametrize("how", ["sign", "encrypt"])
@played
async def test_a_message_without_a_listed_attachment_is_not_sent(world: World, how: str) -> None:
    for at in (BUYER, SELLER):
        agree(world, at, **{how: {"attachment": ["missing@buyer"]}})
    buyer, _ = await world.both()
    with pytest.raises(Refused, match="lists the attachment missing@buyer, and no payload has"):
        await send(buyer)
    assert world.wire.posted == []


@pytest.mark.parametrize("how", ["sign", "encrypt"])
@played
async def test_a_message_without_a_listed_attachment_is_refused(world: World, how: str) -> None:
    agree(world, BUYER, encrypt=True)
    agree(world, SELLER, **{"encrypt": True} | {how: {"attachment": ["missing@buyer"]}})
    assert "lists the attachment missing@buyer to be" in await refusal(world)


@played
async def test_only_listed_attachments_are_signed_where_both_agree_on_less(world: World) -> None:
    for at in (BUYER, SELLER):
        agree(world, at, sign={"attachment": [f"cid:{SHEET}"], "only": True})
    buyer, seller, posted = await exchanged(world)
    assert signed(read(posted)[0]) == ALL - {NOTE}
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_an_attachment_that_only_the_sender_leaves_unsigned_is_refused(world: World) -> None:
    agree(world, BUYER, sign={"attachment": SHEET, "only": True})
    agree(world, SELLER, sign={"attachment": SHEET})
    assert "the signature does not cover this attachment" in await refusal(world)


@played
async def test_a_listed_attachment_that_is_not_signed_is_refused(world: World) -> None:
    agree(world, BUYER, sign={"attachment": NOTE, "only": True})
    agree(world, SELLER, sign={"attachment": SHEET, "only": True})
    assert "the signature does not cover this attachment" in await refusal(world)


@played
async def test_the_body_is_left_out_only_by_name(world: World) -> None:
    for at in (BUYER, SELLER):
        agree(world, at, sign={"element": ["eb:Messaging"], "only": True})
    buyer, seller, posted = await exchanged(world)
    assert signed(read(posted)[0]) == ALL - {"Body"}
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_a_listed_body_has_to_be_signed(world: World) -> None:
    agree(world, BUYER, sign={"element": ["eb:Messaging"], "only": True})
    agree(world, SELLER, sign={"element": ["Body"]})
    assert "the signature does not cover Body" in await refusal(world)


@played
async def test_a_listed_user_name_token_is_signed_and_encrypted(world: World) -> None:
    lists = {"element": "wsse:UsernameToken"}
    for at in (BUYER, SELLER):
        agree(world, at, sign=lists, encrypt=lists, token=True)
    buyer, seller, posted = await exchanged(world)
    envelope, parts = read(posted)
    assert b"correct horse" not in posted.body
    assert envelope.find(f".//{{{WSSE}}}UsernameToken") is None
    assert encrypted(envelope) == {SHEET, NOTE, "Element"}
    assert {one.get_content_type() for one in parts.values()} == {"application/octet-stream"}
    key = envelope.find(f".//{{{XENC}}}EncryptedKey")
    assert len(key.findall(f".//{{{XENC}}}DataReference")) == 3
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@pytest.mark.parametrize("party", [BUYER, SELLER])
@played
async def test_evidence_holds_though_a_signed_token_stays_encrypted(
    world: World, party: str
) -> None:
    lists = {"element": "wsse:UsernameToken"}
    for at in (BUYER, SELLER):
        agree(world, at, sign=lists, encrypt=lists, token=True)
    await exchanged(world)
    pieces = await world.stations[party].node.evidence(M)
    assert pieces is not None
    facts = postroad.inspect(b"".join(pieces))
    assert [one for one in facts["errors"] if one["severity"] == "failure"] == []
    assert (facts["holds"], facts["signed"]) == (True, True)
    assert all(one["equal"] for one in facts["receipts"][0]["digests"])


@played
async def test_a_user_name_token_in_the_clear_is_refused_where_it_is_listed(world: World) -> None:
    agree(world, BUYER, encrypt=True, token=True)
    agree(world, SELLER, encrypt={"element": "wsse:UsernameToken"}, token=True)
    assert "the user name token is not encrypted" in await refusal(world)


@played
async def test_only_listed_attachments_are_encrypted_where_both_agree_on_less(world: World) -> None:
    for at in (BUYER, SELLER):
        agree(world, at, encrypt={"attachment": SHEET, "only": True})
    buyer, seller, posted = await exchanged(world)
    envelope, parts = read(posted)
    assert encrypted(envelope) == {SHEET}
    assert parts[NOTE].get_payload(decode=True) == PAYLOADS[NOTE]
    assert parts[NOTE].get_content_type() == "text/csv"
    assert parts[SHEET].get_content_type() == "application/octet-stream"
    assert PAYLOADS[SHEET] not in posted.body
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert [part.media_type for part in (await seller.message(M)).parts] == ["text/csv"] * 2


@played
async def test_an_attachment_that_only_the_sender_leaves_open_is_refused(world: World) -> None:
    agree(world, BUYER, encrypt={"attachment": SHEET, "only": True})
    agree(world, SELLER, encrypt={"attachment": SHEET})
    assert "this attachment is not encrypted" in await refusal(world)


@played
async def test_a_copy_is_sent_again_to_the_same_bytes(world: World) -> None:
    """What is not encrypted of a message stays as it is, also when it is sent once more."""
    retry = {"max_retries": 2, "timeout": "PT5S", "period": "PT5S"}
    for at in (BUYER, SELLER):
        agree(world, at, encrypt={"attachment": SHEET, "only": True}, retry=retry)
    world.wire.will(lost)
    buyer, seller = await world.both()
    await send(buyer)
    await world.wait(10)
    first, second = world.wire.to(SELLER, M)
    assert first.body == second.body
    assert await seller.inbox() == [M]


@played
async def test_a_message_that_waits_is_signed_again_when_the_list_changes(world: World) -> None:
    retry = {"max_retries": 5, "timeout": "PT5S", "period": "PT5S"}
    for at in (BUYER, SELLER):
        agree(world, at, retry=retry, token=True)
    buyer, seller = await world.both()
    await seller.stop()
    del world.stations[SELLER]
    await send(buyer)
    await world.wait(1)
    for at in (BUYER, SELLER):
        world._pmodes[at].clear()
        agree(world, at, sign={"element": "wsse:UsernameToken"}, retry=retry, token=True)
    world._write(BUYER)
    assert (await buyer.node.reload()).ok
    seller = await world.start(SELLER)
    await world.wait(20)
    assert "UsernameToken" not in signed(read(world.wire.to(SELLER, M)[0])[0])
    assert "UsernameToken" in signed(read(world.wire.to(SELLER, M)[-1])[0])
    assert await seller.inbox() == [M]


@played
async def test_a_test_message_needs_no_listed_attachment(world: World) -> None:
    for at in (BUYER, SELLER):
        agree(world, at, sign={"attachment": SHEET}, encrypt={"attachment": SHEET})
    buyer, _ = await world.both()
    await buyer.process.ask(buyer.node.submit(Submission(ORDERS, (), M, test=True)))
    await world.wait(1)
    assert await buyer.state(M) is State.ACKNOWLEDGED


@played
async def test_a_message_of_which_nothing_is_to_be_encrypted_is_not_signed_again(
    world: World,
) -> None:
    nothing = {"enabled": True, "only": True, "attachment": []}
    retry = {"max_retries": 3, "timeout": "PT5S", "period": "PT10S"}
    agree(world, BUYER, encrypt=nothing, retry=retry)
    world.wire.usual[SELLER] = lost
    buyer = await world.start(BUYER)
    await send(buyer)
    await world.wait(60)
    copies = [one.body for one in world.wire.to(SELLER)]
    assert len(copies) == 4
    assert len(set(copies)) == 1
    assert await buyer.journal("signed_again") == []
