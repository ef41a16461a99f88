"""Receipts that are written once more and compared, held against a whole look at them."""

import random
from collections.abc import Sequence
from datetime import timedelta

import pytest

from postroad.msh.answers import (
    Answer,
    SentMessage,
    foreseen_receipt,
    sent_messages,
    write_answers,
)
from postroad.msh.capture import Capture, Incoming
from postroad.msh.inspection import Look
from postroad.msh.lens import Lens
from postroad.msh.outbound import Package
from postroad.msh.securing import key_signing
from postroad.node.steps.hearing import Hearing, heard_as_foreseen, judged
from postroad.security.algorithms import SHA1
from postroad.security.keys import KeyPair
from postroad.security.sign import Signing
from postroad.security.tokens import TokenReference
from postroad.wire.content import BytesSink
from postroad.wire.ebms3 import MessageInfo
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.soap import SoapVersion
from tests.changing import replace
from tests.pki import NOW, issue
from tests.unit.bundles import CA, SELLER, World, pmode_text

LATER = NOW + timedelta(seconds=11)
PLAIN = """
      send_receipt: {reply_pattern: response}"""
STRANGER = issue(CA, "urn:example:stranger", key="ed25519")
UNSIGNED = World(pmode_text("invoices", "Invoice", security=PLAIN))
SIGNED = World()


def one(world: World) -> Package:
    return world.package(world.unit("m1@x", b"one", pmode="invoices"))


def three(world: World) -> Package:
    return world.package(
        world.unit("m1@x", b"one", pmode="invoices"),
        world.unit("m2@x", b"two", b"three"),
        world.unit("m3@x"),
    )


def sent_of(made: Package) -> list[SentMessage]:
    return list(sent_messages(made.envelope).values())


def answered(
    world: World,
    sent: Sequence[SentMessage],
    key: KeyPair = SELLER,
    seconds: float = 0,
    how: Signing | None = None,
) -> Answer:
    """The receipts of a partner, so many seconds later."""
    match, now = world.matches["invoices"], LATER + timedelta(seconds=seconds)
    signals = []
    for number, message in enumerate(sent):
        ref = message.user_message.message_info.message_id
        info = MessageInfo(now, f"signal-{number}@y", ref)
        signals.append(foreseen_receipt(message, match, info))
    if how is None and world is SIGNED:
        how = key_signing(match.leg, key)
    return write_answers(signals, SoapVersion.SOAP_12, how, now)[0]


def captured(envelope: bytes, content_type: str = "application/soap+xml; charset=UTF-8") -> Capture:
    incoming = Incoming(content_type, new_sink=BytesSink)
    incoming.feed(envelope)
    return incoming.close()


def lens_of(world: World, limits: Limits = DEFAULT) -> Lens:
    return Lens(at=LATER, receiving=True, expectation=world.expectation, limits=limits)


def foreseen(
    world: World, capture: Capture, sent: Sequence[SentMessage], limits: Limits = DEFAULT
) -> list[Hearing] | None:
    match = world.matches["invoices"]
    terms = world.expectation.answer_terms(match)
    pairs = [(message, match) for message in sent]
    return heard_as_foreseen(capture, lens_of(world, limits), terms, pairs)


def whole(world: World, capture: Capture, sent: Sequence[SentMessage]) -> list[Hearing]:
    match = world.matches["invoices"]
    look = Look(capture, lens_of(world))
    if look.read():
        look.judge(world.expectation.answer_terms(match))
    return [judged(look.found, capture, match, message, on_response=True) for message in sent]


@pytest.mark.parametrize("made", [one(SIGNED), three(SIGNED)], ids=["one", "three"])
def test_signed_receipts_as_we_write_them_are_believed_like_by_a_whole_look(made: Package) -> None:
    sent = sent_of(made)
    capture = captured(answered(SIGNED, sent).envelope)
    found = foreseen(SIGNED, capture, sent)
    assert found is not None
    assert found == whole(SIGNED, capture, sent)
    assert [one.said is not None for one in found] == [True] * len(sent)


def test_an_unsigned_receipt_as_we_write_it_is_believed_like_by_a_whole_look() -> None:
    sent = sent_of(one(UNSIGNED))
    capture = captured(answered(UNSIGNED, sent).envelope)
    assert foreseen(UNSIGNED, capture, sent) == whole(UNSIGNED, capture, sent)
    assert foreseen(UNSIGNED, capture, sent) is not None


def test_a_receipt_is_held_against_the_user_message_as_it_was_written() -> None:
    made = one(UNSIGNED)
    [sent] = sent_of(made)
    capture = captured(answered(UNSIGNED, [sent]).envelope)
    assert made.header is not None
    kept = replace(sent, written=made.header)
    assert foreseen(UNSIGNED, capture, [kept]) == whole(UNSIGNED, capture, [sent])
    other = replace(sent, written=made.header.replace("Invoice", "Invoices"))
    assert foreseen(UNSIGNED, capture, [other]) is None


def test_no_byte_of_a_signed_receipt_can_be_changed_unseen() -> None:
    sent = sent_of(one(SIGNED))
    envelope = answered(SIGNED, sent).envelope
    for place in range(len(envelope)):
        other = envelope[:place] + bytes((envelope[place] ^ 1,)) + envelope[place + 1 :]
        assert foreseen(SIGNED, captured(other), sent) is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("world", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])
def test_whatever_is_done_to_the_bytes_a_whole_look_says_the_same(world: World, seed: int) -> None:
    dice, sent = random.Random(seed), sent_of(one(world))
    envelope = answered(world, sent).envelope
    for _ in range(150):
        capture = captured(_mutated(envelope, dice))
        found = foreseen(world, capture, sent)
        if found is not None:
            assert found == whole(world, capture, sent)


def _mutated(data: bytes, dice: random.Random) -> bytes:
    start = dice.randrange(len(data))
    end = start + dice.choice([0, 1, 1, 4, 40])
    piece = data[(at := dice.randrange(len(data))) : at + dice.choice([0, 1, 1, 8])]
    digit = str(dice.randrange(10)).encode()
    return data[:start] + dice.choice([piece, digit, b""]) + data[end:]


@pytest.mark.parametrize("other", [b" ", b"<!-- -->"])
def test_what_is_written_in_another_way_is_left_to_a_whole_look(other: bytes) -> None:
    sent = sent_of(one(UNSIGNED))
    envelope = answered(UNSIGNED, sent).envelope.replace(b"<eb:Receipt>", b"<eb:Receipt>" + other)
    assert foreseen(UNSIGNED, captured(envelope), sent) is None
    assert whole(UNSIGNED, captured(envelope), sent)[0].said is not None


def test_the_receipt_of_another_message_is_not_foreseen() -> None:
    sent = sent_of(one(SIGNED))
    other = sent_of(SIGNED.package(SIGNED.unit("m9@x", b"one", pmode="invoices")))
    assert foreseen(SIGNED, captured(answered(SIGNED, other).envelope), sent) is None


def test_receipts_in_another_order_or_number_are_left_to_a_whole_look() -> None:
    sent = sent_of(three(SIGNED))
    for some in (sent[::-1], sent[:2]):
        capture = captured(answered(SIGNED, some).envelope)
        assert foreseen(SIGNED, capture, sent) is None
        assert whole(SIGNED, capture, sent)[1].said is not None


def test_two_receipts_with_one_id_are_not_foreseen() -> None:
    sent = sent_of(three(UNSIGNED))
    envelope = answered(UNSIGNED, sent).envelope.replace(b"signal-1@y", b"signal-0@y")
    assert foreseen(UNSIGNED, captured(envelope), sent) is None


@pytest.mark.parametrize(
    ("key", "seconds"),
    [(STRANGER, 0.0), (SELLER, 301.0), (SELLER, 86_500.0)],
    ids=["stranger", "from the future", "from tomorrow"],
)
def test_a_signer_or_time_that_is_not_believed_is_not_foreseen(
    key: KeyPair, seconds: float
) -> None:
    sent = sent_of(one(SIGNED))
    capture = captured(answered(SIGNED, sent, key, seconds).envelope)
    assert foreseen(SIGNED, capture, sent) is None
    assert whole(SIGNED, capture, sent)[0].said is None


def test_a_weak_digest_is_not_foreseen() -> None:
    sent = sent_of(one(SIGNED))
    usual = key_signing(SIGNED.matches["invoices"].leg, SELLER)
    weak = Signing(SELLER, usual.algorithm, SHA1)
    capture = captured(answered(SIGNED, sent, how=weak).envelope)
    assert foreseen(SIGNED, capture, sent) is None
    assert whole(SIGNED, capture, sent)[0].said is None


def test_a_certificate_that_is_named_otherwise_is_left_to_a_whole_look() -> None:
    sent = sent_of(one(SIGNED))
    usual = key_signing(SIGNED.matches["invoices"].leg, SELLER)
    named = Signing(SELLER, usual.algorithm, usual.digest, TokenReference.THUMBPRINT)
    capture = captured(answered(SIGNED, sent, how=named).envelope)
    assert foreseen(SIGNED, capture, sent) is None
    assert whole(SIGNED, capture, sent)[0].said is not None


def test_an_unsigned_receipt_is_not_foreseen_where_the_pmode_signs() -> None:
    sent = sent_of(one(SIGNED))
    capture = captured(answered(UNSIGNED, sent).envelope)
    assert foreseen(SIGNED, capture, sent) is None
    assert whole(SIGNED, capture, sent)[0].said is None


def test_a_receipt_of_another_media_type_is_not_foreseen() -> None:
    sent = sent_of(one(UNSIGNED))
    envelope = answered(UNSIGNED, sent).envelope
    for kind in ("text/xml; charset=UTF-8", "application/soap+xml; charset=UTF-16"):
        assert foreseen(UNSIGNED, captured(envelope, kind), sent) is None


@pytest.mark.parametrize(
    "limits", [Limits(envelope_bytes=500), Limits(xml_elements=10), Limits(units=0)]
)
def test_limits_hold(limits: Limits) -> None:
    sent = sent_of(one(UNSIGNED))
    capture = captured(answered(UNSIGNED, sent).envelope)
    assert foreseen(UNSIGNED, capture, sent, limits) is None
