"""Whose message is it? Copies, borrowed ids, and what others say about messages that we sent."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

import pytest

import postroad
from postroad.api.client import ApiError
from postroad.msh.answers import SentMessage, sent_message
from postroad.security.keys import KeyPair
from postroad.store.records import Message, Side, State
from postroad.wire.ebms3 import Error, MessageInfo, SignalMessage
from postroad.wire.names import WSA, XENC
from postroad.wire.receipts import awareness_receipt, nonrepudiation_receipt
from tests.attack.forging import resigned
from tests.attack.messages import NOW, Package, Part, buyer, for_seller, http, seller, soap
from tests.attack.network import (
    BUYER,
    LATER,
    ORDER,
    PRICES,
    RIVAL,
    STATUS,
    TOKEN,
    Partner,
    Town,
    http_answer,
    order,
    pmode,
    renamed,
    rival,
    signal_message,
    stranger,
    until,
)
from tests.changing import replace
from tests.node import ebxml_letters as letters


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    """Here connections are what it is about."""


@pytest.fixture(scope="module")
def partner(place: Town) -> Iterator[Partner]:
    """In the seller's stead: `captured` is called back, `answered` is answered."""
    made = Partner(place)
    made.agree("captured", called_back=True)
    made.agree("answered")
    yield made
    made.close()


# Copies


def test_a_captured_message_is_delivered_once_and_answered_the_same(place: Town) -> None:
    name = place.new_id()
    message = order(name)
    first = place.post(message)
    assert first.is_receipt
    for head in ("", "X-Forwarded-For: 10.0.0.1\r\n", 'SOAPAction: "again"\r\n'):
        again = place.post(message, head=head)
        assert (again.status, again.body) == (200, first.body)
    assert place.events(name) == ["received", "delivered", "receipt_sent", *["duplicate"] * 3]


def test_copies_that_come_at_once_are_delivered_once(place: Town) -> None:
    name = place.new_id()
    data = order(name).wire()
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(place.say, [data] * 10))
    assert {one.status for one in answers} == {200}
    assert len({one.body for one in answers}) == 1
    assert sorted(place.events(name)) == sorted(
        ["received", "delivered", "receipt_sent", *["duplicate"] * 9]
    )


def test_a_partner_who_may_write_anybody_into_from_keeps_no_other_out(place: Town) -> None:
    """The P-Mode pins a certificate, and names no sender."""
    text = pmode("loose", "Loose", f"{place.seller.url}/msh", pin="rival.pem")
    file = place.folder / "seller" / "pmodes" / "loose.yaml"
    file.write_text(text.replace(f'party: "{BUYER}", ', ""))
    assert place.run(place.seller.node.reload()).ok
    for first_id_is_taken in (False, True):
        name = place.new_id()
        if first_id_is_taken:
            assert place.post(order(name, signed=False, action=PRICES)).is_receipt
        assert place.post(order(name, signer=rival(), action="Loose")).is_receipt
        for _ in range(2):
            assert place.post(order(name)).is_receipt
            assert place.post(order(name, signer=rival(), action="Loose")).is_receipt
        received = place.run(place.seller.node.received(name))
        assert {one.from_party for one in received} == {BUYER}
        assert [one.state for one in received] == [State.DELIVERED] * (2 + first_id_is_taken)


def test_a_message_that_its_sender_signed_anew_is_still_the_same(place: Town) -> None:
    name = place.new_id()
    first = place.post(order(name))
    again = place.post(resigned(order(name)))
    assert again.body == first.body
    assert place.events(name).count("delivered") == 1


def test_a_copy_that_is_older_than_our_memory_is_not_taken_for_new(place: Town) -> None:
    """Once a message was removed by its age, nobody could tell a copy from it."""
    name = place.good()
    message = order(name)
    clock = place.seller.clock
    clock.ahead = timedelta(days=91)
    try:
        assert place.run(place.seller.node.purge()) > 0
        assert place.message(name) is None
        answer = place.post(message)
        assert answer.codes == ["EBMS:0003"]
        assert name not in place.inbox()
    finally:
        clock.ahead = timedelta(0)
    place.good()


def test_a_copy_is_answered_the_way_that_is_agreed(place: Town) -> None:
    """The receipt may have been lost: it goes to the partner's address once more."""
    name = place.new_id()
    assert place.post(order(name, action=LATER)).status == 202
    until(lambda: "receipt_sent" in place.events(name))
    assert place.post(order(name, action=LATER)).status == 202
    until(lambda: place.events(name).count("receipt_sent") == 2)


# Borrowed ids


BORROWED: Final[dict[str, Callable[[str], Package]]] = {
    "the same partner, another action": lambda name: order(name, action=LATER),
    "nobody, unsigned as is agreed": lambda name: order(name, signed=False, action=PRICES),
}


@pytest.mark.parametrize("who", BORROWED)
def test_who_borrows_an_id_gets_no_receipt_and_changes_nothing(place: Town, who: str) -> None:
    name = place.new_id()
    first = place.post(order(name))
    before = place.message(name)
    answer = place.refuses(BORROWED[who](name), "EBMS:0003")
    assert first.body not in answer.body
    assert not answer.is_signed, "it could be shown to who really sent it"
    assert place.message(name) == before
    assert place.events(name) == ["received", "delivered", "receipt_sent", "error_raised"]
    assert [one.kind for one in place.signals(name, Side.RECEIVING)] == ["receipt"]
    assert place.post(order(name)).body == first.body


def test_a_partner_that_built_its_message_anew_gets_the_first_receipt(place: Town) -> None:
    """AS4 knows duplicates by MessageId; the other contents are dropped."""
    name = place.new_id()
    first = place.post(order(name))
    before = place.message(name)
    again = place.post(order(name, b"two hundred apples"))
    assert (again.status, again.body) == (first.status, first.body)
    assert place.message(name) == before
    assert place.events(name) == ["received", "delivered", "receipt_sent", "duplicate"]


@pytest.mark.parametrize("signer", [stranger, rival])
def test_other_contents_under_a_known_id_get_no_receipt_unless_the_partner_signed_them(
    place: Town, signer: Callable[[], KeyPair]
) -> None:
    name = place.new_id()
    first = place.post(order(name))
    answer = place.refuses(order(name, b"two hundred apples", signer=signer()), "EBMS:0101")
    assert first.body not in answer.body
    assert "duplicate" not in place.events(name)


OCCUPIED: Final[dict[str, Callable[[str], Package]]] = {
    "a stranger, unsigned as is agreed": lambda name: order(name, signed=False, action=PRICES),
    "another partner": lambda name: order(name, sender=RIVAL, signer=rival()),
}


@pytest.mark.parametrize("who", OCCUPIED)
def test_message_is_delivered_although_another_sender_used_its_id_first(
    place: Town, who: str
) -> None:
    name = place.new_id()
    assert place.post(OCCUPIED[who](name)).is_receipt
    [first] = _received(place, name)
    answer = place.post(order(name))
    assert answer.is_receipt, answer
    assert answer.signal.message_info.ref_to_message_id == name
    assert [one.state for one in _received(place, name)] == [State.DELIVERED] * 2
    assert _received(place, name)[0] == first
    assert place.events(name) == ["received", "delivered", "receipt_sent"] * 2
    assert [one.event.pmode for one in place.recorded(name)][-1] == "order"
    again = place.post(order(name))
    assert again.body == answer.body
    assert place.post(OCCUPIED[who](name)).is_receipt, "a copy is a copy, whoever came later"
    assert place.events(name)[6:] == ["duplicate", "duplicate"]
    refused = place.refuses(order(name, b"other", action=STATUS), "EBMS:0003")
    assert not refused.is_signed, "a partner cannot use an id twice, by two P-Modes neither"


def test_copy_is_known_after_the_other_message_of_its_id_is_gone(place: Town) -> None:
    """And a stranger's refused message in its place changes nothing."""
    name = place.new_id()
    assert place.post(order(name, signed=False, action=PRICES)).is_receipt
    first = place.post(order(name))
    place.run(place.seller.node.acknowledge(name, _received(place, name)[0].key))
    later = place.seller.clock() + timedelta(hours=1)
    place.run(place.seller.store.run(lambda tx: tx.purge(later, [State.CONSUMED], 1000)))
    [left] = _received(place, name)
    place.refuses(order(name, signer=stranger()), "EBMS:0101")
    assert place.post(order(name)).body == first.body
    assert left in _received(place, name)
    assert place.events(name).count("delivered") == 2


def test_receipt_and_evidence_are_those_of_the_senders_own_message(place: Town) -> None:
    name = place.new_id()
    assert place.post(order(name, signed=False, action=PRICES)).is_receipt
    assert place.post(order(name, action=LATER)).status == 202
    until(lambda: place.events(name).count("receipt_sent") == 2)
    other, own = _received(place, name)
    assert (own.from_party, own.action) == (BUYER, LATER)
    kinds = [place.run(place.seller.node.signals(one)) for one in (other, own)]
    assert [len(one) for one in kinds] == [1, 1]
    zipped = b"".join(place.run(place.seller.node.evidence(name, Side.RECEIVING, own.key)))
    anchor = place.folder / "seller" / "keys" / "authority.pem"
    facts = postroad.inspect(zipped, trust=anchor, at=NOW + timedelta(minutes=1))
    assert facts["holds"] is True, facts
    again = place.post(order(name, action=LATER))
    assert again.status == 202
    until(lambda: place.events(name).count("receipt_sent") == 3)


def test_messages_of_one_id_are_told_apart_by_their_cursors(place: Town) -> None:
    """Each is listed, read and acknowledged by itself; by the id alone none is guessed."""
    name = place.new_id()
    assert place.post(order(name, b"forged", signed=False, action=PRICES)).is_receipt
    assert place.post(order(name, b"genuine")).is_receipt
    with postroad.Client(place.seller.url, token=TOKEN) as client:
        both = [one for one in client.inbox() if one.message_id == name]
        assert [one.pmode for one in both] == ["prices", "order"]
        calls: list[Callable[[], object]] = [
            lambda: client.received(name),
            lambda: client.part(name),
            lambda: client.ack(name),
            lambda: client.status(name),
            lambda: client.evidence(name),
            lambda: client.signals(name, side="receiving"),
        ]
        for call in calls:
            with pytest.raises(ApiError, match="Choose one with cursor") as refused:
                call()
            assert refused.value.status == 409
            assert all(f"{one.cursor} (from" in refused.value.detail for one in both)
        parts = [client.part(name, cursor=one.cursor) for one in both]
        assert parts == [b"forged", b"genuine"]
        assert client.status(name, cursor=both[1].cursor).pmode == "order"
        assert len(client.signals(name, cursor=both[0].cursor)) == 1
        assert client.ack(name, cursor=both[1].cursor).state == "consumed"
        assert [one.pmode for one in client.inbox() if one.message_id == name] == ["prices"]
        with pytest.raises(ApiError, match="no message") as gone:
            client.ack(name, cursor="999999")
        assert gone.value.status == 404


def test_message_whose_id_has_a_control_character_can_be_taken_from_the_inbox(place: Town) -> None:
    """XML allows U+007F to U+009F: whoever sends such an id must not leave an inbox stuck."""
    name = f"a\x7f\x9b2J-{place.new_id()}"
    assert place.post(order(name, b"one")).is_receipt
    with postroad.Client(place.seller.url, token=TOKEN) as client:
        assert client.received(name).state == "delivered"
        assert client.part(name) == b"one"
        assert client.ack(name).state == "consumed"


def _received(place: Town, name: str) -> list[Message]:
    return place.run(place.seller.node.received(name))


def test_a_refused_message_does_not_block_the_good_one(place: Town) -> None:
    name = place.new_id()
    place.refuses(order(name, signer=stranger()), "EBMS:0101")
    assert place.post(order(name)).is_receipt
    assert place.events(name)[-3:] == ["received", "delivered", "receipt_sent"]
    found = place.message(name)
    assert found is not None
    assert (found.state, found.error_code, found.detail) == (State.DELIVERED, None, None)


# Ways that a message asks for


def test_no_address_in_a_message_is_ever_called(place: Town) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/evil"
        block = f'<wsa:To xmlns:wsa="{WSA}">{url}</wsa:To>' + "".join(
            f'<wsa:{name} xmlns:wsa="{WSA}"><wsa:Address>{url}</wsa:Address></wsa:{name}>'
            for name in ("ReplyTo", "FaultTo", "From")
        )
        for action, signed in ((ORDER, True), (LATER, True), (ORDER, False)):
            message = order(place.new_id(), signed=signed, action=action)
            attack = message.replaced("</S12:Header>", f"{block}</S12:Header>")
            place.post(attack)
        place.good()
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_who_proved_nothing_makes_us_call_nobody(place: Town) -> None:
    """Errors of this P-Mode go to the partner's address, but not on a stranger's word."""
    mark = place.mark("buyer")
    for attack in (
        order(place.new_id(), action=LATER, signed=False),
        order(place.new_id(), action=LATER, signer=stranger()),
        order(place.new_id(), action=LATER, signer=rival()),
    ):
        answer = place.refuses(attack, "EBMS:0101", "EBMS:0103")
        assert answer.status == 200
    assert place.run(place.seller.node.health()).figures.work.get("signal", 0) == 0
    assert place.told(mark, "buyer") == []


ALTERED: Final[dict[str, tuple[str, Callable[[Package], Package]]]] = {
    "a second Body": (
        "EBMS:0009",
        lambda one: one.replaced("</S12:Header>", "<S12:Body/></S12:Header>"),
    ),
    "a header block to be understood": (
        "EBMS:0008",
        lambda one: one.replaced(
            "</S12:Header>", '<x:a xmlns:x="urn:x" S12:mustUnderstand="true"/></S12:Header>'
        ),
    ),
    "a key that opens nothing": (
        "EBMS:0102",
        lambda one: one.replaced(
            "</wsse:Security>", f'<e:EncryptedKey xmlns:e="{XENC}"/></wsse:Security>'
        ),
    ),
    "a part without a name": (
        "EBMS:0007",
        lambda one: one.with_parts(*one.parts, Part(None, "text/plain", b"more")),
    ),
    "a ciphertext that was cut": (
        "EBMS:0102",
        lambda one: one.with_parts(replace(one.parts[0], content=one.parts[0].content[:-1])),
    ),
}


@pytest.mark.parametrize("action", [ORDER, LATER])
@pytest.mark.parametrize("name", ALTERED)
def test_who_adds_to_a_captured_message_gets_nothing_that_is_signed(
    place: Town, name: str, action: str
) -> None:
    """Its signature still holds; a signed error about it would fail it where it came from."""
    code, alter = ALTERED[name]
    sealed = for_seller() if "ciphertext" in name else None
    message = order(place.new_id(), action=action, encryption=sealed)
    mark = place.mark("buyer")
    answer = place.refuses(alter(message), code, status=200)
    assert not answer.is_signed
    assert place.run(place.seller.node.health()).figures.work.get("signal", 0) == 0
    assert place.told(mark, "buyer") == []


# What others say about what we sent


def _error(ref: str) -> SignalMessage:
    said = Error("EBMS:0004", "failure", "Content", "ebMS", "Other", ref_to_message_in_error=ref)
    return SignalMessage(MessageInfo(NOW, f"error-about-{ref}", ref), errors=(said,))


def _proof(sent: SentMessage) -> SignalMessage:
    ref = sent.user_message.message_info.message_id
    info = MessageInfo(NOW, f"receipt-for-{ref}", ref)
    return nonrepudiation_receipt(sent.references, message_info=info)


def _sent(place: Town, pmode: str) -> tuple[str, SentMessage]:
    """A message that the buyer sent and waits for, and what is in it."""
    name = place.submit(pmode)
    return name, sent_message(place.run(_kept(place, name)))


async def _kept(place: Town, name: str) -> bytes:
    node = place.buyer.node
    message = await node.message(name, Side.SENDING)
    assert message is not None
    assert message.envelope is not None
    return b"".join(place.buyer.store.content(message.envelope).chunks())


def _state(place: Town, name: str) -> Message:
    found = place.message(name, Side.SENDING)
    assert found is not None
    return found


Forge = Callable[[SentMessage, SentMessage], tuple[SignalMessage, KeyPair | None]]
"""From the message and another one: what is said about it, and by whom."""

FORGED: Final[dict[str, Forge]] = {
    "a receipt that nobody signed": lambda sent, _: (_proof(sent), None),
    "a receipt of a stranger": lambda sent, _: (_proof(sent), stranger()),
    "a receipt of another partner": lambda sent, _: (_proof(sent), rival()),
    "a receipt of our own making": lambda sent, _: (_proof(sent), buyer()),
    "the proof of another message": lambda sent, other: (
        renamed(_proof(other), ref_to_message_id=sent.user_message.message_info.message_id),
        seller(),
    ),
    "a proof that leaves something out": lambda sent, _: (
        _proof(replace(sent, references=sent.references[1:])),
        seller(),
    ),
    "a receipt without a proof": lambda sent, _: (
        awareness_receipt(sent.user_message, message_info=_proof(sent).message_info),
        seller(),
    ),
    "an error that nobody signed": lambda sent, _: (
        _error(sent.user_message.message_info.message_id),
        None,
    ),
    "an error of a stranger": lambda sent, _: (
        _error(sent.user_message.message_info.message_id),
        stranger(),
    ),
    "an error of another partner": lambda sent, _: (
        _error(sent.user_message.message_info.message_id),
        rival(),
    ),
    "an error of our own making": lambda sent, _: (
        _error(sent.user_message.message_info.message_id),
        buyer(),
    ),
}


def test_what_the_partner_says_later_settles_the_message(place: Town, partner: Partner) -> None:
    """Else the forgeries below would prove nothing."""
    name, sent = _waiting(place, partner)
    place.say(soap(signal_message(_proof(sent), seller())), "buyer")
    assert _state(place, name).state is State.ACKNOWLEDGED
    assert place.events(name, "buyer") == ["submitted", "sent", "receipt_received"]
    place.say(soap(signal_message(_error(name), seller())), "buyer")
    assert _state(place, name).state is State.ACKNOWLEDGED, "who acknowledged cannot take it back"
    name, sent = _waiting(place, partner)
    place.say(soap(signal_message(_error(name), seller())), "buyer")
    assert _state(place, name).state is State.FAILED
    assert place.events(name, "buyer")[-2:] == ["error_received", "delivery_failed"]


def _waiting(place: Town, partner: Partner) -> tuple[str, SentMessage]:
    partner.answer = lambda _: http_answer(202)
    name, sent = _sent(place, "captured")
    until(lambda: _state(place, name).state is State.WAITING)
    return name, sent


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_signal_settles_nothing(place: Town, partner: Partner, how: str) -> None:
    name, sent = _waiting(place, partner)
    _, other = _waiting(place, partner)
    signal, signer = FORGED[how](sent, other)
    with place.harmless(who="buyer"):
        answer = place.say(soap(signal_message(signal, signer)), "buyer")
        assert answer.status == 202
    assert _state(place, name).state is State.WAITING
    [event] = [one.event for one in place.recorded(name, "buyer")][2:]
    assert (event.event, event.side) == ("error_raised", Side.SENDING)
    assert "not believed" in (event.detail or "")
    assert [one.valid for one in place.signals(name, Side.SENDING)] == [False]
    place.say(soap(signal_message(_proof(sent), seller())), "buyer")
    assert _state(place, name).state is State.ACKNOWLEDGED


def test_a_signed_receipt_that_was_changed_settles_nothing(place: Town, partner: Partner) -> None:
    name, sent = _waiting(place, partner)
    other, proof = _waiting(place, partner)
    changed = signal_message(_proof(sent), seller()).replace(name.encode(), other.encode())
    with place.harmless(who="buyer"):
        place.say(soap(changed), "buyer")
    assert {_state(place, one).state for one in (name, other)} == {State.WAITING}
    assert proof.references


@pytest.mark.parametrize("version", ["0.98b", "1.0", "2.0"])
def test_ebxml_signal_about_an_as4_message_changes_nothing(
    place: Town, partner: Partner, version: str
) -> None:
    name, _ = _waiting(place, partner)
    for letter in (
        letters.envelope(
            letters.header(
                version,
                id=f"signal-about-{name}",
                ref=name,
                frm="urn:example:seller",
                to=BUYER,
                service=letters.SERVICES[version],
                action=action,
            ),
            *blocks,
            version=version,
        )
        for action, blocks in (
            ("Acknowledgment", ()),
            ("MessageError", (letters.error("SecurityFailure", "Error", version),)),
        )
    ):
        with place.harmless("ValueNotRecognized", who="buyer"):
            data = http("text/xml", letter.encode(), head='SOAPAction: "ebXML"\r\n')
            assert place.say(data, "buyer").status == 202
        assert _state(place, name).state is State.WAITING


def test_a_signal_about_no_message_of_ours_is_written_down(place: Town) -> None:
    for ref in ("unknown@buyer.example", "x" * 10_000):
        with place.harmless("EBMS:0003", who="buyer"):
            assert place.say(soap(signal_message(_error(ref), seller())), "buyer").status == 202


def test_the_error_that_a_stranger_provoked_is_no_weapon(place: Town, partner: Partner) -> None:
    """Who knows an id sends rubbish under it to the seller, and the answer to the buyer."""
    name, _ = _waiting(place, partner)
    for attack in (
        order(name, action=LATER, signed=False),
        order(name, signer=stranger()),
        order(name, b"x", sender=RIVAL, signer=stranger()),
    ):
        answer = place.post(attack)
        assert answer.signal.message_info.ref_to_message_id == name
        with place.harmless(who="buyer"):
            place.say(soap(answer.body), "buyer")
        assert _state(place, name).state is State.WAITING


@pytest.mark.parametrize("kind", ["receipt", "error"])
def test_unsigned_signal_counts_only_on_the_agreed_way(
    place: Town, partner: Partner, kind: str
) -> None:
    """The P-Mode says: in the response. Who pushes one knows an id, and proves nothing."""
    partner.agree("unsigned", signed=False)
    asked: list[bytes] = []

    def say_nothing(body: bytes) -> bytes:
        asked.append(body)
        return b""

    partner.answer = say_nothing
    name = place.submit("unsigned")
    until(lambda: bool(asked))
    sent = sent_message(place.run(_kept(place, name)))
    info = MessageInfo(NOW, f"{kind}-for-{name}", name)
    signal = (
        _error(name) if kind == "error" else awareness_receipt(sent.user_message, message_info=info)
    )
    before = _state(place, name).state
    with place.harmless("EBMS:0010", who="buyer"):
        assert place.say(soap(signal_message(signal, None)), "buyer").status == 202
    assert _state(place, name).state is before
    assert [one.valid for one in place.signals(name, Side.SENDING)] == [False]
    partner.hang_up()


# What a partner's server answers


def _answered(place: Town, partner: Partner, answer: Callable[[bytes], bytes]) -> str:
    partner.answer = answer
    name = place.submit("answered")
    place.settled(name)
    return name


@pytest.mark.parametrize("how", [name for name in FORGED if "receipt" in name or "proof" in name])
def test_a_forged_receipt_in_the_answer_settles_nothing(
    place: Town, partner: Partner, how: str
) -> None:
    other = _sent(place, "status")[1]

    def answer(body: bytes) -> bytes:
        envelope = body[body.index(b"<?xml") : body.index(b"</S12:Envelope>") + 15]
        signal, signer = FORGED[how](sent_message(envelope), other)
        return http_answer(200, signal_message(signal, signer))

    name = _answered(place, partner, answer)
    assert _state(place, name).state is State.IN_DOUBT
    assert place.events(name, "buyer") == ["submitted", "sent", "error_raised", "in_doubt"]


HOSTILE: Final[dict[str, tuple[bytes, State]]] = {
    "a redirect": (http_answer(307, b"", "Location: {evil}"), State.IN_DOUBT),
    "another redirect": (http_answer(302, b"moved", "Location: {evil}"), State.IN_DOUBT),
    "a page": (http_answer(200, b"<html>", "Content-Type: text/html"), State.IN_DOUBT),
    "an empty envelope": (http_answer(200, b"<x/>"), State.IN_DOUBT),
    "an envelope with a DTD": (
        http_answer(200, b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'),
        State.IN_DOUBT,
    ),
    "nothing": (http_answer(200), State.IN_DOUBT),
    "no HTTP": (b"220 mail.example ESMTP\r\n", State.IN_DOUBT),
    "more than it may be": (
        http_answer(200).replace(b"Content-Length: 0", b"Content-Length: 99999999999"),
        State.IN_DOUBT,
    ),
    "an encoded answer": (
        http_answer(200, b"\x1f\x8b\x08", "Content-Encoding: gzip"),
        State.IN_DOUBT,
    ),
    "server trouble": (http_answer(500, b"oops", "Content-Type: text/plain"), State.IN_DOUBT),
    "not found": (http_answer(404, b"what?", "Content-Type: text/plain"), State.FAILED),
}


UNREADABLE: Final = frozenset(
    ("another redirect", "an empty envelope", "an envelope with a DTD", "an encoded answer")
)
"""Answers that say they are SOAP and are not."""


@pytest.mark.parametrize("how", HOSTILE)
def test_a_strange_answer_acknowledges_nothing_and_leads_nowhere(
    place: Town, partner: Partner, how: str
) -> None:
    said, state = HOSTILE[how]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        evil = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        name = _answered(place, partner, lambda _: said.replace(b"{evil}", evil.encode()))
        assert _state(place, name).state is state
        raised = ["error_raised"] if how in UNREADABLE else []
        if how == "not found":
            raised = ["error_received"]
        end = "in_doubt" if state is State.IN_DOUBT else "delivery_failed"
        assert place.events(name, "buyer") == ["submitted", "sent", *raised, end]
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_receipt_that_overtakes_the_answer_is_the_last_word(
    place: Town, partner: Partner
) -> None:
    """The partner calls back before it answers, and then its connection breaks."""
    receipts: list[bytes] = []

    def answer(body: bytes) -> bytes:
        envelope = body[body.index(b"<?xml") : body.index(b"</S12:Envelope>") + 15]
        receipts.append(soap(signal_message(_proof(sent_message(envelope)), seller())))
        return b""

    partner.answer = answer
    name = place.submit("captured")
    until(lambda: bool(receipts))
    place.say(receipts[0], "buyer")
    assert _state(place, name).state is State.ACKNOWLEDGED
    partner.hang_up()
    until(lambda: "sent" in place.events(name, "buyer"))
    assert place.events(name, "buyer") == ["submitted", "receipt_received", "sent"]
    assert _state(place, name).state is State.ACKNOWLEDGED
