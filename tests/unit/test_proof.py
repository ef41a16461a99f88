"""What a receipt that was kept is worth."""

import random
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import pairwise

import pytest
from msgspec.structs import replace as replace_fields

from postroad.msh import proof as proofs
from postroad.msh.answers import sent_message, write_answer
from postroad.msh.outbound import MESSAGING_ID
from postroad.msh.proof import Proof, Prover, trust_in
from postroad.msh.usual_proof import UsualReceipts
from postroad.node.first_steps.example import order_message
from postroad.security.algorithms import RSA_SHA256
from postroad.security.attachments import Attachment
from postroad.security.keys import KeyPair, load_certificates, load_key_pair
from postroad.security.revocation import Revocation, read_list
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import MessageInfo, Messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.names import RECEIPT_COPY, WSA
from postroad.wire.receipts import nonrepudiation_receipt
from postroad.wire.soap import SoapVersion
from tests.pipeline.kept import Books, Receipt, at_another_time, changed, exchanged, signature_of
from tests.pki import revocation_list

SIGNED, SEALED, PLAIN = "signed-1@buyer.example", "order-1@buyer.example", "plain-1@buyer.example"
SELLER_NAME = "CN=seller,O=Postroad development"


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    folder = tmp_path_factory.mktemp("books")
    return exchanged(
        folder,
        [(SIGNED, "signed"), (SEALED, "order"), (PLAIN, "plain"), ("two@buyer.example", "signed")],
    )


def prover(books: Books, name: str = "authority") -> Prover:
    return Prover(trust_in(load_certificates(books.certificate(name).read_bytes())))


def proven(by: Prover, one: Receipt) -> Proof:
    return by.prove(one.receipt, one.sent, one.message_id, one.receipt_id, one.micros)


def whole(by: Prover, one: Receipt) -> Proof:
    return by._whole(one.receipt, one.sent, one.message_id, one.receipt_id, one.micros)


def is_usual(one: Receipt) -> bool:
    ids = one.message_id.encode(), one.receipt_id.encode()
    return UsualReceipts().take(one.receipt, one.sent, *ids) is not None


@pytest.mark.parametrize("message_id", [SIGNED, SEALED])
@pytest.mark.parametrize("trusted", ["authority", "seller"])
def test_a_receipt_for_what_was_sent_holds(books: Books, message_id: str, trusted: str) -> None:
    found = proven(prover(books, trusted), books.receipts[message_id])
    assert found == Proof(True, True, True, True, SELLER_NAME)


@pytest.mark.parametrize("message_id", [SIGNED, SEALED])
def test_what_postroad_writes_is_usual_and_proven_as_a_whole_look_proves_it(
    books: Books, message_id: str
) -> None:
    one = books.receipts[message_id]
    assert is_usual(one)
    assert whole(prover(books), one) == proven(prover(books), one)


def test_what_is_not_signed_fits_together_and_proves_nothing(books: Books) -> None:
    found = proven(prover(books), books.receipts[PLAIN])
    assert found == Proof(None, None, None, True, None, proofs.NOT_SIGNED)


def test_an_unsigned_receipt_that_was_kept_in_an_older_form_fits_as_well(books: Books) -> None:
    """Stores and evidence have receipts with eb:UserMessage itself, and those of other products."""
    one = books.receipts[PLAIN]
    opening = f'<copy:UserMessage xmlns:copy="{RECEIPT_COPY}"'.encode()
    assert opening in one.receipt
    older = one.receipt.replace(opening, b"<eb:UserMessage").replace(b"</copy:", b"</eb:")
    wrapped = older.replace(b"<eb:Receipt>", b'<eb:Receipt><x:Original xmlns:x="urn:x">')
    wrapped = wrapped.replace(b"</eb:Receipt>", b"</x:Original></eb:Receipt>")
    for receipt in (older, wrapped):
        found = proven(prover(books), replace(one, receipt=receipt))
        assert found == Proof(None, None, None, True, None, proofs.NOT_SIGNED)


def test_a_receipt_is_proven_without_its_routing_headers(books: Books) -> None:
    """They only led it to its sender; whether they must be signed was up to the P-Mode."""
    one = books.receipts[SIGNED]
    for name, valid in (("To", True), ("Action", True), ("ReplyTo", False)):
        header = f'<S12:Header><wsa:{name} xmlns:wsa="{WSA}">urn:example:x</wsa:{name}>'.encode()
        receipt = one.receipt.replace(b"<S12:Header>", header)
        assert receipt != one.receipt
        assert proven(prover(books), replace(one, receipt=receipt)).valid is valid


def test_an_unsigned_receipt_for_another_header_is_not_valid(books: Books) -> None:
    one = books.receipts[PLAIN]
    other = replace(one, sent=changed(one.sent, b"PriceList", b"PriceLost"))
    found = proven(prover(books), other)
    assert (found.valid, found.digests) == (False, False)
    assert "Action was PriceLost, found PriceList" in str(found.detail)


def test_a_changed_signature_value_does_not_hold(books: Books) -> None:
    one = books.receipts[SIGNED]
    value = signature_of(one.receipt)
    forged = (b"A" if value[:1] != b"A" else b"B") + value[1:]
    found = proven(prover(books), replace(one, receipt=changed(one.receipt, value, forged)))
    assert (found.valid, found.signature, found.chain, found.digests) == (False, False, True, True)
    assert found.signer == SELLER_NAME


def test_a_receipt_for_other_digests_is_about_something_else(books: Books) -> None:
    one = books.receipts[SIGNED]
    last = re.findall(rb"<ds:DigestValue>([^<]+)", one.sent)[-1]
    other = (b"A" if last[:1] != b"A" else b"B") + last[1:]
    found = proven(prover(books), replace(one, sent=changed(one.sent, last, other)))
    assert (found.valid, found.signature, found.chain, found.digests) == (False, True, True, False)
    assert "the digest of" in str(found.detail)


def test_a_message_that_was_changed_after_it_was_signed_is_not_what_was_sent(books: Books) -> None:
    one = books.receipts[SIGNED]
    found = proven(
        prover(books), replace(one, sent=changed(one.sent, b"purchasing", b"purchasinG"))
    )
    assert (found.signature, found.digests) == (True, False)
    assert "is not the one that was signed" in str(found.detail)


def test_the_receipt_of_another_message_is_not_taken(books: Books) -> None:
    one, other = books.receipts[SIGNED], books.receipts["two@buyer.example"]
    found = proven(prover(books), replace(one, receipt=other.receipt))
    assert (found.valid, found.digests) == (False, False)
    assert "not the receipt" in str(found.detail)


def test_a_signer_whom_nobody_trusts_is_told_by_name(books: Books) -> None:
    found = proven(prover(books, "buyer"), books.receipts[SIGNED])
    assert (found.valid, found.signature, found.chain, found.digests) == (False, True, False, True)
    assert found.signer == SELLER_NAME
    assert "untrusted" in str(found.detail)


def test_a_certificate_counts_as_of_when_the_receipt_came(books: Books) -> None:
    one, by = books.receipts[SIGNED], prover(books)
    assert proven(by, one).valid
    late = proven(by, at_another_time(one, 400))
    assert (late.valid, late.signature, late.chain) == (False, True, False)
    assert "expired" in str(late.detail)
    assert proven(by, one).valid


def test_a_revoked_certificate_counts_until_the_day_it_was_revoked(books: Books) -> None:
    authority = load_key_pair((books.folder / "buyer" / "keys" / "authority.p12").read_bytes())
    (seller,) = load_certificates(books.certificate("seller").read_bytes())
    one = books.receipts[SIGNED]
    on, until = one.at + timedelta(days=2), one.at + timedelta(days=90)
    crl = revocation_list(authority, [seller], on=on, this_update=on, next_update=until)
    revocation = Revocation((read_list(crl),), historical=True)
    by = Prover(trust_in([authority.certificate]), revocation=revocation)
    assert [proven(by, at_another_time(one, days)).chain for days in (1, 3, 0)] == [
        True,
        False,
        True,
    ]
    assert "revoked" in str(proven(by, at_another_time(one, 3)).detail)


def test_a_receipt_that_came_days_before_it_was_made_does_not_hold(books: Books) -> None:
    one = books.receipts[SIGNED]
    early = replace(one, at=one.at - timedelta(days=1, seconds=1, milliseconds=300))
    found = proven(prover(books), early)
    assert (found.valid, found.signature, found.chain) == (False, False, True)
    assert "in the future" in str(found.detail)


def test_a_receipt_under_another_id_is_not_taken(books: Books) -> None:
    found = proven(prover(books), replace(books.receipts[SIGNED], receipt_id="other@seller"))
    assert (found.valid, found.digests) == (False, False)
    assert "not the receipt other@seller" in str(found.detail)


def test_a_receipt_that_names_another_message_does_not_prove_that_one(books: Books) -> None:
    """Even where who signed it lists the digests of what was sent."""
    one, other = books.receipts[SIGNED], "other@buyer.example"
    seller = load_key_pair((books.folder / "seller" / "keys" / "seller.p12").read_bytes())
    info = MessageInfo(one.at, one.receipt_id, other)
    signal = nonrepudiation_receipt(sent_message(one.sent).references, message_info=info)
    answer = write_answer(signal, SoapVersion.SOAP_12, Signing(seller, RSA_SHA256), one.at)
    found = proven(prover(books), replace(one, receipt=answer.envelope, message_id=other))
    assert (found.valid, found.signature, found.chain, found.digests) == (False, True, True, False)
    assert "what was kept is not the message other@buyer.example" in str(found.detail)


def test_a_receipt_signed_by_the_sender_itself_says_nothing(books: Books) -> None:
    one = books.receipts[SIGNED]
    tokens = [re.findall(rb'-token">([^<]+)', data)[0] for data in (one.sent, one.receipt)]
    own = replace(one, sent=one.sent.replace(tokens[0], tokens[1]))
    assert is_usual(own)
    found = proven(prover(books), own)
    assert (found.valid, found.chain) == (False, False)
    assert "with the key of who sent the message" in str(found.detail)


@pytest.mark.parametrize(("name", "holds"), [("seller", True), ("somebody else", False)])
def test_an_authority_vouches_only_for_the_name_that_was_said(
    books: Books, name: str, holds: bool
) -> None:
    trust = trust_in(load_certificates(books.certificate("authority").read_bytes()))
    by = Prover(trust, signers={"urn:example:seller": frozenset((name,))})
    found = proven(by, books.receipts[SIGNED])
    assert (found.valid, found.chain) == (holds, holds)


def test_without_the_message_signature_and_signer_are_still_told(books: Books) -> None:
    one = books.receipts[SIGNED]
    found = prover(books).prove(one.receipt, None, one.message_id, one.receipt_id, one.micros)
    assert found == Proof(False, True, True, None, SELLER_NAME, proofs.NOT_KEPT)


@pytest.mark.parametrize(
    "receipt", [b"", b"\x00\xff" * 40, b"<a>", b"<!DOCTYPE a><a/>", b"<a/>", b"hello"]
)
def test_bytes_that_are_no_receipt_get_an_answer(books: Books, receipt: bytes) -> None:
    found = proven(prover(books), replace(books.receipts[SIGNED], receipt=receipt))
    assert found.valid is False
    assert found.detail


@pytest.mark.parametrize("message_id", [SIGNED, SEALED])
@pytest.mark.parametrize("name", ["receipt", "sent"])
def test_no_byte_can_be_changed_without_being_looked_at_as_a_whole(
    books: Books, name: str, message_id: str
) -> None:
    one, by = books.receipts[message_id], prover(books)
    data = one.receipt if name == "receipt" else one.sent
    ids = one.message_id.encode(), one.receipt_id.encode()
    knowing = UsualReceipts()
    for place in range(len(data)):
        assert knowing.take(one.receipt, one.sent, *ids) is not None
        other = data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :]
        pair = (other, one.sent) if name == "receipt" else (one.receipt, other)
        found = knowing.take(*pair, *ids)
        assert found == UsualReceipts().take(*pair, *ids)
        if found is None or (name == "sent" and _beside_the_signature(one.sent, other)):
            continue
        before = data[:place].rpartition(b">")[0].rpartition(b"<")[2]
        if name == "sent":
            assert before.startswith((b"ds:SignatureValue", b"wsse:BinarySecurityToken"))
        elif place % 10 == 0:
            changed_one = replace(one, receipt=other)
            assert before.startswith((b"ds:SignatureValue", b"wsse:BinarySecurityToken"))
            assert not proven(by, changed_one).valid


@pytest.mark.parametrize("message_id", [SIGNED, SEALED])
@pytest.mark.parametrize("name", ["receipt", "sent"])
def test_a_token_larger_than_any_certificate_is_not_usual(
    books: Books, name: str, message_id: str
) -> None:
    """What is remembered of each party is small, whoever wrote it."""
    one = books.receipts[message_id]
    end = b"</wsse:BinarySecurityToken>"
    larger = getattr(one, name).replace(end, b"A" * 16 * 1024 + end, 1)
    assert is_usual(one)
    assert not is_usual(replace(one, **{name: larger}))


def test_a_party_may_begin_in_many_ways_by_turns(books: Books) -> None:
    """Its timestamps, and the names and the number of its attachments, need not be alike."""
    pairs = [
        load_key_pair((books.folder / name / "keys" / f"{name}.p12").read_bytes())
        for name in ("buyer", "seller")
    ]
    now = books.receipts[SIGNED].at
    many = [
        _exchange(pairs, [f"{number}{name}@buyer.example" for number in range(count)], lasting, now)
        for count in (0, 1, 2, 40)
        for name in ("a", "longer")
        for lasting in (None, timedelta(hours=1))
    ]
    knowing, by = UsualReceipts(), prover(books)
    for one in [*many, *reversed(many), *many]:
        ids = one.message_id.encode(), one.receipt_id.encode()
        found = knowing.take(one.receipt, one.sent, *ids)
        assert found == UsualReceipts().take(one.receipt, one.sent, *ids) is not None
        assert proven(by, one) == Proof(True, True, True, True, SELLER_NAME)
    for one, other in pairwise(many):
        assert proven(by, replace(one, sent=other.sent)).digests is False


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        (b"other@buyer.example", True),
        (b"", True),
        (b"oth%65r@buyer.example", False),
        (b"oth&#101;r@buyer.example", False),
        (b"o<her@buyer.example", False),
        (b"o her@buyer.example", False),
        ("\u00f6ther@buyer.example".encode(), False),
    ],
)
def test_a_name_that_xml_or_urls_may_write_otherwise_is_not_usual(
    books: Books, name: bytes, usual: bool
) -> None:
    assert is_usual(_renamed(books.receipts[SIGNED], [name, b"second"])) is usual


def test_two_attachments_of_one_name_are_not_usual(books: Books) -> None:
    assert not is_usual(_renamed(books.receipts[SIGNED], [b"same", b"same"]))


@pytest.mark.parametrize(
    "digest", [b"A" * 44, b"A" * 42 + b"==", b"=" + b"A" * 43, b"-" * 43 + b"="]
)
def test_what_is_no_digest_of_an_attachment_is_not_usual(books: Books, digest: bytes) -> None:
    one = books.receipts[SIGNED]
    last = re.findall(rb"<ds:DigestValue>([^<]+)", one.sent)[-1]
    assert is_usual(_rewritten(one, last, b"A" * 43 + b"="))
    assert not is_usual(_rewritten(one, last, digest))


@pytest.mark.parametrize("hidden", [b"<!---->", b"<?a?>", b"<ds:Signature/>", b"<x>Signature</x>"])
def test_nothing_beside_the_encryption_hides_a_signature_or_looks_like_one(
    books: Books, hidden: bytes
) -> None:
    one, knowing = books.receipts[SEALED], UsualReceipts()
    ids = one.message_id.encode(), one.receipt_id.encode()
    start = one.sent.index(b"<xenc:")
    for there, usual in ((b"A" * len(hidden), True), (hidden, False)):
        sent = one.sent[:start] + there + one.sent[start:]
        assert (knowing.take(one.receipt, sent, *ids) is not None) is usual


def test_a_receipt_with_anything_beside_its_signature_is_not_usual(books: Books) -> None:
    one, end = books.receipts[SIGNED], b"</wsse:BinarySecurityToken>"
    assert not is_usual(replace(one, receipt=one.receipt.replace(end, end + b"<x/>")))


def test_a_receipt_in_another_version_of_soap_is_not_usual(books: Books) -> None:
    one = books.receipts[SIGNED]
    seller = load_key_pair((books.folder / "seller" / "keys" / "seller.p12").read_bytes())
    info = MessageInfo(one.at, one.receipt_id, one.message_id)
    signal = nonrepudiation_receipt(sent_message(one.sent).references, message_info=info)
    for version in SoapVersion:
        answer = write_answer(signal, version, Signing(seller, RSA_SHA256), one.at)
        other = replace(one, receipt=answer.envelope)
        assert is_usual(other) is (version is SoapVersion.SOAP_12)


@pytest.mark.parametrize(
    ("created", "usual"),
    [
        (b"2026-02-28T23:59:59.999Z</wsu:Created>", True),
        (b"2026-02-30T23:59:59.999Z</wsu:Created>", False),
        (b"2026-02-28T23:59:59+0000</wsu:Created>", False),
        (b"2026-02-28T23:59:59.999Z", False),
        (b"</wsu:Timestamp>xxxxxxxx</wsu:Created>", False),
    ],
)
@pytest.mark.parametrize("name", ["receipt", "sent"])
def test_a_timestamp_is_one_even_where_a_digest_holds(
    books: Books, name: str, created: bytes, usual: bool
) -> None:
    one, knowing = books.receipts[SIGNED], UsualReceipts()
    ids = one.message_id.encode(), one.receipt_id.encode()
    other = replace(one, **{name: _at_time(getattr(one, name), created)})
    if name == "sent":
        # What time it says does not matter to a receipt.
        digests = [re.findall(rb"DigestValue>([^<]+)<", data)[2] for data in (one.sent, other.sent)]
        other = _rewritten(other, *digests)
        usual = not created.startswith(b"<")
    assert knowing.take(one.receipt, one.sent, *ids) is not None
    assert (knowing.take(other.receipt, other.sent, *ids) is not None) is usual


def _at_time(envelope: bytes, created: bytes) -> bytes:
    """With something else in the timestamp, whose digest holds."""
    stamp = re.findall(b"<wsu:Timestamp.*</wsu:Timestamp>", envelope)[0]
    other = re.sub(b"Created>.*</wsu:T", b"Created>%b</wsu:T" % created, stamp)
    digest, another = (b64encode(sha256(data).digest()) for data in (stamp, other))
    return envelope.replace(stamp, other).replace(digest, another, 1)


def _exchange(
    pairs: Sequence[KeyPair], names: Sequence[str], lasting: timedelta | None, now: datetime
) -> Receipt:
    """A message with attachments of these names, and the receipt for it."""
    buyer, seller = (Signing(pair, RSA_SHA256) for pair in pairs)
    message_id, receipt_id = f"{len(names)}@buyer.example", "receipt@seller.example"
    example = order_message(now)
    info = replace_fields(example.message_info, message_id=message_id)
    message = replace_fields(example, message_info=info)
    header = write_messaging(Messaging((message,), id=MESSAGING_ID), SoapVersion.SOAP_12)
    sent = secure(
        SoapVersion.SOAP_12,
        [Block(MESSAGING_ID, header)],
        [Attachment(name, BytesContent(name.encode()), "text/plain") for name in names],
        signing=buyer,
        lifetime=Lifetime(now, lasting),
    )
    signal = nonrepudiation_receipt(
        sent.references, message_info=MessageInfo(now, receipt_id, message_id)
    )
    answer = write_answer(signal, SoapVersion.SOAP_12, seller, now)
    return Receipt(message_id, receipt_id, answer.envelope, sent.envelope, now)


def _renamed(one: Receipt, names: Sequence[bytes]) -> Receipt:
    """With these names of attachments in the signature and in the receipt, whose digest holds."""
    for old, new in zip(re.findall(rb'URI="(cid:[^"]+)"', one.sent), names, strict=True):
        one = _rewritten(one, old, b"cid:" + new)
    return one


def _rewritten(one: Receipt, old: bytes, new: bytes) -> Receipt:
    header = re.compile(b"<eb:Messaging.*</eb:Messaging>")
    digest, other = (
        b64encode(sha256(header.findall(data)[0]).digest())
        for data in (one.receipt, one.receipt.replace(old, new))
    )
    receipt = changed(one.receipt.replace(old, new), digest, other)
    return replace(one, receipt=receipt, sent=one.sent.replace(old, new, 1))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_proven_quickly_is_what_a_whole_look_proves(books: Books, seed: int) -> None:
    """Whatever is done to the bytes, the quick way never finds anything better than they are."""
    dice, by = random.Random(seed), prover(books)
    for _ in range(60):
        one = books.receipts[dice.choice([SIGNED, SEALED])]
        if dice.random() < 0.5:
            other = replace(one, receipt=_mutated(one.receipt, dice))
        else:
            other = replace(one, sent=_mutated(one.sent, dice))
            if _beside_the_signature(one.sent, other.sent):
                continue
        quick = proven(by, other)
        if quick.valid:
            assert whole(by, other) == quick


def _mutated(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    piece = data[at : at + dice.choice([1, 1, 1, 8, 200])]
    others = [b"", b" ", b"<!---->", b"&amp;", b"\n", b"x", b"A", b"=", b"<x/>", piece + piece]
    return data[:at] + dice.choice(others) + data[at + len(piece) :]


def _beside_the_signature(sent: bytes, other: bytes) -> bool:
    """Encryption is not signed, and a receipt is not about it."""
    start, end = sent.find(b"</wsse:BinarySecurityToken>"), sent.find(b"<ds:Signature ")
    return other.startswith(sent[:start]) and other.endswith(sent[end:])
