"""ebXML over real sockets: HTTP and mail, relays, bad lines and bad mail."""

import asyncio
import base64
import random
import re
import smtplib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from copy import deepcopy
from datetime import UTC, datetime
from email.parser import BytesParser
from pathlib import Path
from typing import Any, Final

import pytest

from postroad.wire.ebms3 import Party, PartyId, Service
from postroad.wire.ebxml import MS098, EbxmlMessage, MessageHeader, TraceHeader
from postroad.wire.ebxml_writer import write_ebxml
from tests.crash.proxy import Fault, Proxy, Times
from tests.e2e.ebxml_nodes import (
    CPA,
    HOST,
    PATIENCE,
    Company,
    Line,
    Running,
    Talk,
    make_keys,
    run,
    running,
    speaks,
)
from tests.ports import free_port

ORDER = b"<order>paper</order>"
RELIABLY: Final[dict[str, Any]] = {
    "delivery_semantics": "OnceAndOnlyOnce",
    "ack_requested": "UnSigned",
}
FAULTS = {
    Fault.REFUSE: 0.1,
    Fault.CUT_REQUEST: 0.15,
    Fault.DROP_REPLY: 0.15,
    Fault.DUPLICATE: 0.1,
}
TIMES = Times(refused=0.1, half_open=0.5, late=0.3)


@pytest.fixture
def buyer(tmp_path: Path) -> Company:
    return Company("buyer", tmp_path / "buyer")


@pytest.fixture
def carrier(tmp_path: Path) -> Company:
    return Company("carrier", tmp_path / "carrier")


@pytest.fixture
def seller(tmp_path: Path) -> Company:
    return Company("seller", tmp_path / "seller")


@pytest.mark.req(
    "MS098-8.4.7.1-04",
    "MS098-8.4.8-01",
    "MS098-8.4.8-03",
    "MS098-8.5.3.1-01",
    "MS098-10.3.1.5-06",
)
def test_a_conversation_over_a_relay_and_bad_lines_arrives_once_and_in_order(
    buyer: Company, carrier: Company, seller: Company
) -> None:
    """Buyer to carrier over HTTP, carrier to seller by mail, signed receipts all the way back.

    The carrier has nobody's key.
    """
    ids = [f"order-{number}@buyer.example" for number in range(8)]

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            webs = [
                Proxy(one.http, random.Random(seed), FAULTS, times=TIMES)
                for one, seed in ((carrier, 5), (buyer, 6))
            ]
            for web in webs:
                await web.start()
                stack.push_async_callback(web.close)
            carrier.line, buyer.line = (web.port for web in webs)
            mails = [
                await stack.enter_async_context(Line(seller.smtp, "cut", "fine", "unheard")),
                await stack.enter_async_context(Line(carrier.smtp, "unheard", "refused", "cut")),
            ]
            carrier.mails_through(mails[0].port)
            seller.mails_through(mails[1].port)
            _three_agree(buyer, carrier, seller)
            nodes = await stack.enter_async_context(running(buyer, carrier, seller))
            first, relay, last = nodes
            for one in ids:
                await first.client.send(
                    pmode="orders", payloads=[ORDER], message_id=one, conversation_id="paper"
                )
            for one in ids:
                await first.comes_to(one, "acknowledged")
            assert await last.delivered() == ids
            assert await last.inbox() == ids
            for number, one in enumerate(ids):
                await _told_by_all(one, number, first, relay, last)
            assert await first.journal("hop_acked")
            assert {one.peer for one in await relay.journal("hop_acked")} >= {seller.mailto}
            assert await last.journal("duplicate")
            assert all(web.met for web in webs)
            assert [one.failed for one in mails] == [2, 3]
            assert all(one.protocol == "ebxml-0.98b" for one in await first.events(ids[0]))

    run(scenario())


def _three_agree(buyer: Company, carrier: Company, seller: Company) -> None:
    make_keys(buyer, seller)
    terms: dict[str, Any] = {"version": "0.98b", "message_order": "Guaranteed"} | RELIABLY
    ends = terms | {"delivery_receipt": "Signed", "signed": True}
    speaks([buyer], "orders", buyer, seller, carrier.url, hops=1, **ends)
    speaks([seller], "orders", buyer, seller, seller.mailto, **ends)
    speaks([carrier], "there", buyer, seller, seller.mailto, relay=True, **terms)
    speaks([carrier], "back", seller, buyer, buyer.url, relay=True, version="0.98b")


async def _told_by_all(
    message_id: str, number: int, first: Running, relay: Running, last: Running
) -> None:
    """What the three journals say about a message that went all the way.

    The receipt of the far end may be there before the one of the next hop, which bad lines lost.
    """
    sender = await first.events(message_id)
    story = [one.event for one in sender]
    assert story[0] == "submitted"
    assert {"sent", "ack_received"} <= set(story)
    assert "hop_acked" not in story[: story.index("sent")]
    assert {one.sequence_number for one in sender if one.event == "sent"} == {number}
    passed = await relay.events(message_id)
    assert {one.side for one in passed} == {"forwarding"}
    own = [one for one in passed if one.signal_id is None]
    assert own[0].event == "received"
    assert {one.peer for one in own if one.event == "forwarded"} == {last.company.mailto}
    back = [one for one in passed if one.event == "forwarded" and one.signal_id is not None]
    assert {one.peer for one in back} == {first.company.url}
    taken = await last.events(message_id)
    assert [one.event for one in taken if one.event in ("received", "delivered")] == [
        "received",
        "delivered",
    ]
    acked = [one for one in taken if one.event == "acked"]
    assert {one.peer for one in acked} == {relay.company.mailto}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_relay_passes_on_messages_of_later_versions_and_questions(
    buyer: Company, carrier: Company, seller: Company, version: str
) -> None:
    carrier.mails_through(seller.smtp)
    seller.mails_through(carrier.smtp)
    terms = RELIABLY | {"version": version}
    speaks([buyer], "orders", buyer, seller, carrier.url, reply_to=buyer.url, hops=1, **terms)
    speaks([seller], "orders", buyer, seller, seller.mailto, reply_to=carrier.mailto, **terms)
    speaks([carrier], "there", buyer, seller, seller.mailto, relay=True, **terms)
    speaks([carrier], "back", seller, buyer, buyer.url, relay=True, version=version)

    async def scenario() -> None:
        async with running(buyer, carrier, seller) as (first, _, last):
            await first.client.send(pmode="orders", payloads=[ORDER], message_id="m@b")
            await first.comes_to("m@b", "acknowledged")
            assert await last.inbox() == ["m@b"]
            assert (await first.client.ping("orders")).answer == "Pong"
            assert (await first.client.query("m@b")).answer == "Received"

    run(scenario())


@pytest.mark.req(
    "MS098-10.2.7-01",
    "MS098-10.3.1.4-04",
    "MS098-10.3.1.5-02",
    "RM000-1.3.1.4-04",
    "RM000-1.3.1.4-05",
    "RM000-1.3.2-01",
)
def test_the_next_transport_is_tried_when_one_has_used_up_its_retries(
    buyer: Company, seller: Company
) -> None:
    nobody = f"http://{HOST}:{free_port()}/msh"
    buyer.mails_through(seller.smtp)
    seller.mails_through(buyer.smtp)
    speaks(
        [buyer, seller],
        "orders",
        buyer,
        seller,
        nobody,
        version="1.0",
        transports=[seller.mailto],
        retry={"max_retries": 2, "period": "PT0.2S"},
        **RELIABLY,
    )

    async def scenario() -> None:
        async with running(buyer, seller) as (sender, receiver):
            sent = await sender.client.send(pmode="orders", payloads=[ORDER])
            await sender.comes_to(sent.message_id, "acknowledged")
            events = await sender.events(sent.message_id)
            ways = [(one.event, one.peer) for one in events if one.attempt]
            assert ways[:4] == [("send_failed", nobody)] * 3 + [("resent", seller.mailto)]
            assert await receiver.inbox() == [sent.message_id]
            assert await receiver.client.part(sent.message_id) == ORDER

    run(scenario())


@pytest.mark.parametrize(
    ("relay", "arrives"),
    [
        ({}, True),
        ({"starttls": "never", "username": None, "password_file": None}, False),
        ({"password_file": "keys/api.token"}, False),
    ],
    ids=["both", "no TLS", "another password"],
)
def test_mail_goes_over_tls_and_after_a_login_where_that_is_asked_for(
    buyer: Company, seller: Company, relay: dict[str, str | None], arrives: bool
) -> None:
    make_keys(buyer, seller)
    (buyer.folder / "keys/password").write_text("open sesame\n")
    (seller.folder / "keys/users").write_text("buyer:open sesame\n")
    seller.mail |= {
        "tls": {"certificate": "keys/tls.p12"},
        "require_tls": True,
        "users_file": "keys/users",
    }
    login = {"username": "buyer", "password_file": "keys/password", "starttls": "required"}
    given = {"authorities": ["keys/authority.pem"]} | login | relay
    buyer.mails_through(seller.smtp, **{key: one for key, one in given.items() if one is not None})
    speaks(
        [buyer, seller],
        "orders",
        buyer,
        seller,
        seller.mailto,
        reply_to=buyer.url,
        version="2.0",
        retry={"max_retries": 0, "period": "PT5S"},
        **RELIABLY,
    )

    async def scenario() -> None:
        async with running(buyer, seller) as (sender, receiver):
            sent = await sender.client.send(pmode="orders", payloads=[ORDER], message_id="m@x")
            await sender.comes_to(sent.message_id, "acknowledged" if arrives else "failed")
            assert await receiver.inbox() == ["m@x"] * arrives
            story = await sender.story(sent.message_id)
            last = ["sent", "ack_received"] if arrives else ["send_failed", "delivery_failed"]
            assert story == ["submitted", *last]

    run(scenario())


@pytest.mark.req("RM001-3.1-01", "RM001-3.1-02")
def test_over_http_each_message_ack_and_error_is_a_post_of_its_own(
    buyer: Company, seller: Company
) -> None:
    talks = _link(buyer, seller, by_mail=False)
    posts = [one for talk in talks for one in talk.up.split(b"POST /msh HTTP/1.1\r\n")[1:]]
    assert [_kind(one) for one in posts].count("message") == 2
    assert sorted({_kind(one) for one in posts}) == ["acknowledgment", "error", "message"]
    replies = [one for talk in talks for one in talk.down.split(b"HTTP/1.1 ")[1:]]
    assert len(replies) == len(posts)
    assert all(one.startswith(b"20") and one.endswith(b"\r\n\r\n") for one in replies)


@pytest.mark.req("RM001-2.6.3-01")
def test_a_connection_that_ended_is_replaced_by_the_transport_without_a_retry(
    buyer: Company, seller: Company
) -> None:
    terms = {"version": "0.98b", "profile": "rm001", "delivery_semantics": "OnceAndOnlyOnce"}

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            there = await stack.enter_async_context(Line(seller.http))
            seller.line = there.port
            speaks([buyer, seller], "orders", buyer, seller, seller.url, **terms)
            sender, _ = await stack.enter_async_context(running(buyer, seller))
            for name in ("1@b", "2@b", "3@b"):
                await sender.client.send(pmode="orders", payloads=[ORDER], message_id=name)
                await sender.comes_to(name, "acknowledged")
                assert await sender.story(name) == ["submitted", "sent", "ack_received"]
                await there.hang_up()
            assert len(there.talks) == 3

    run(scenario())


@pytest.mark.req("RM001-3.2-01")
def test_by_mail_each_message_ack_and_error_is_a_mail_of_its_own(
    buyer: Company, seller: Company
) -> None:
    talks = _link(buyer, seller, by_mail=True)
    mails = []
    for talk in talks:
        assert talk.up.count(b"\r\nDATA\r\n") == 1
        whole = talk.up.partition(b"\r\nDATA\r\n")[2].partition(b"\r\n.\r\n")[0]
        parts = BytesParser().parsebytes(whole).walk()
        decoded = [one.get_payload(decode=True) for one in parts if not one.is_multipart()]
        mails.append(b"".join(one for one in decoded if isinstance(one, bytes)))
    assert [_kind(one) for one in mails].count("message") == 2
    assert sorted({_kind(one) for one in mails}) == ["acknowledgment", "error", "message"]


def _kind(said: bytes) -> str:
    """What one exchange carried; there is one header in it."""
    assert said.count(b"<eb:MessageHeader") == 1
    found = re.search(rb"<rm:MessageType[^>]*>(\w+)<", said)
    return "message" if found is None else _TYPES[found.group(1)]


_TYPES = {b"Acknowledgement": "acknowledgment", b"Error": "error"}


def _link(buyer: Company, seller: Company, *, by_mail: bool) -> list[Talk]:
    """Two messages by the draft's discipline, one of which is refused; what went over the lines."""
    terms: dict[str, Any] = {
        "version": "0.98b",
        "profile": "rm001",
        "delivery_semantics": "OnceAndOnlyOnce",
    }
    talks: list[Talk] = []

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            ends = (seller.smtp, buyer.smtp) if by_mail else (seller.http, buyer.http)
            there, back = [await stack.enter_async_context(Line(one)) for one in ends]
            buyer.mails_through(there.port)
            seller.mails_through(back.port)
            seller.line, buyer.line = there.port, back.port
            address = seller.mailto if by_mail else seller.url
            speaks([buyer, seller], "orders", buyer, seller, address, **terms)
            sender, receiver = await stack.enter_async_context(running(buyer, seller))
            await sender.client.send(pmode="orders", payloads=[ORDER], message_id="1@b")
            await sender.comes_to("1@b", "acknowledged")
            agreed = deepcopy(seller.pmodes[0])
            agreed["legs"][0]["business_info"]["payload_profile"] = {"max_size": "10 B"}
            seller.pmodes = [agreed]
            seller.write()
            await receiver.client.reload()
            await sender.client.send(pmode="orders", payloads=[ORDER], message_id="2@b")
            await sender.comes_to("2@b", "failed")
            talks.extend((*there.talks, *back.talks))

    run(scenario())
    return talks


# Mail that nobody wants


def _bounce() -> tuple[str, bytes]:
    said = (
        "Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n"
        "--b\r\nContent-Type: text/plain\r\n\r\nnobody has this address\r\n--b--\r\n"
    )
    return "", _mail(said, subject="Undelivered Mail Returned to Sender")


def _auto_reply() -> tuple[str, bytes]:
    said = "Auto-Submitted: auto-replied\r\nContent-Type: text/plain\r\n\r\nback in May\r\n"
    return "someone@buyer.example", _mail(said, subject="Out of office")


def _plain() -> tuple[str, bytes]:
    return "someone@buyer.example", b"Subject: hello\r\n\r\nhow are you?\r\n"


def _stranger() -> tuple[str, bytes]:
    """A message as good as any, of somebody with whom there is no agreement."""
    header = MessageHeader(
        from_party=Party((PartyId("urn:example:stranger"),), ""),
        to_party=Party((PartyId("urn:example:seller"),), ""),
        cpa_id=CPA,
        conversation_id="c",
        service=Service("urn:example:trade"),
        action="Order",
        message_id="m@stranger.example",
        timestamp=datetime.now(UTC),
        delivery_semantics="OnceAndOnlyOnce",
    )
    now = datetime.now(UTC)
    trace = (TraceHeader("mailto:msh@stranger.example", "mailto:msh@seller.example", now),)
    made = write_ebxml(EbxmlMessage(dialect=MS098, header=header, trace=trace))
    envelope = base64.encodebytes(made).replace(b"\n", b"\r\n").decode()
    said = (
        'SOAPAction: "ebXML"\r\nContent-Type: text/xml; charset=UTF-8\r\n'
        f"Content-Transfer-Encoding: base64\r\n\r\n{envelope}"
    )
    return "msh@stranger.example", _mail(said, subject="ebXML message")


def _mail(rest: str, *, subject: str) -> bytes:
    return f"Subject: {subject}\r\nMIME-Version: 1.0\r\n{rest}".encode()


@pytest.mark.parametrize(
    ("made", "code", "event", "told"),
    [
        (_bounce, 250, "error_raised", "a bounce: Undelivered Mail Returned to Sender"),
        (_auto_reply, 250, "error_raised", "an automatic reply: Out of office"),
        (_plain, 554, "error_raised", "MIME-Version"),
        (_stranger, 250, "rejected", "urn:example:stranger"),
    ],
    ids=["bounce", "auto-reply", "no MIME-Version", "stranger"],
)
def test_mail_that_nobody_wants_is_told_and_not_answered(
    buyer: Company,
    seller: Company,
    made: Callable[[], tuple[str, bytes]],
    code: int,
    event: str,
    told: str,
) -> None:
    sender, mail = made()

    async def scenario(receiver: Running) -> None:
        assert (await _handed_in(seller, sender, mail))[0] == code
        [found] = await receiver.journal(event)
        assert told in found.detail

    _not_answered(buyer, seller, scenario)


@pytest.mark.parametrize("announced", [True, False])
def test_a_mail_of_50_mb_is_refused_where_less_is_taken(
    buyer: Company, seller: Company, announced: bool
) -> None:
    seller.mail["max_size"] = "10 MiB"
    line = b"A" * 74 + b"\r\n"
    head = _mail('SOAPAction: "ebXML"\r\nContent-Type: text/xml\r\n\r\n', subject="much")
    mail = head + line * (50_000_000 // len(line))

    async def scenario(receiver: Running) -> None:
        code, said = await _handed_in(
            seller, "msh@buyer.example", mail, size=len(mail) if announced else None
        )
        assert code == 552, said
        if not announced:
            assert await receiver.journal("error_raised")

    _not_answered(buyer, seller, scenario)


def _not_answered(
    buyer: Company, seller: Company, scenario: Callable[[Running], Awaitable[None]]
) -> None:
    """Whatever happens, nothing is delivered and nothing sent."""

    async def whole() -> None:
        async with Line(buyer.smtp) as line:
            seller.mails_through(line.port)
            terms = RELIABLY | {"version": "0.98b"}
            speaks([buyer, seller], "orders", buyer, seller, seller.mailto, **terms)
            async with running(seller) as (receiver,):
                await scenario(receiver)
                assert await receiver.inbox() == []
                work = (await receiver.client.node()).work
                assert not any(count for kind, count in work.items() if kind != "notify"), work
            assert line.talks == []

    run(whole())


async def _handed_in(
    to: Company, sender: str, mail: bytes, size: int | None = None
) -> tuple[int, bytes]:
    """What the mail server says to a mail, as soon as it says no."""

    def hand_in() -> tuple[int, bytes]:
        with smtplib.SMTP(HOST, to.smtp, timeout=PATIENCE) as server:
            server.ehlo("mail.example")
            said = server.mail(sender, () if size is None else (f"SIZE={size}",))
            if said[0] == 250:
                said = server.rcpt(to.mailbox)
            return server.data(mail) if said[0] == 250 else said

    return await asyncio.to_thread(hand_in)
