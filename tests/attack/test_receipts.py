"""Receipts that prove something else than they should."""

from datetime import timedelta

import pytest

from postroad.security.algorithms import ECDSA_SHA256, SHA1
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.wire.ebms3 import MessageInfo, Messaging, Reference, SignalMessage
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import EbmsError
from postroad.wire.receipts import awareness_receipt, check_receipt, nonrepudiation_receipt
from tests.attack.messages import (
    NOW,
    TWO,
    VERSION,
    Package,
    assert_holds,
    assert_refused,
    buyer,
    look,
    make,
    soap,
)
from tests.changing import replace

FIRST = "order-1@buyer.example"
SECOND = "order-2@buyer.example"


def _info(ref: str) -> MessageInfo:
    return MessageInfo(NOW, "receipt-1@seller.example", ref)


@pytest.fixture(scope="module")
def first() -> Package:
    return make(TWO, id=FIRST)


@pytest.fixture(scope="module")
def second() -> Package:
    return make(TWO, id=SECOND)


def _refused(receipt: SignalMessage, sent: Package, id: str = SECOND) -> None:
    with pytest.raises(EbmsError) as caught:
        check_receipt(receipt, sent_message_id=id, sent_references=sent.references)
    assert caught.value.code == "EBMS:0302"
    assert caught.value.detail
    assert caught.value.location


def test_the_proof_of_one_message_does_not_prove_another(first: Package, second: Package) -> None:
    """The attachments are the same in both, so most digests are: one that differs is enough."""
    _refused(nonrepudiation_receipt(first.references, message_info=_info(SECOND)), second)
    right = nonrepudiation_receipt(second.references, message_info=_info(SECOND))
    check_receipt(right, sent_message_id=SECOND, sent_references=second.references)


def test_a_receipt_for_another_message_is_refused(first: Package) -> None:
    receipt = nonrepudiation_receipt(first.references, message_info=_info(FIRST))
    _refused(receipt, first, SECOND)


def test_a_proof_that_leaves_a_part_out_is_refused(second: Package) -> None:
    for left_out in range(len(second.references)):
        some = [one for at, one in enumerate(second.references) if at != left_out]
        _refused(nonrepudiation_receipt(some, message_info=_info(SECOND)), second)


def test_a_proof_of_more_than_was_sent_is_refused(first: Package, second: Package) -> None:
    extra = Reference("cid:extra@buyer.example", (), second.references[0].digest_method, b"\0" * 32)
    for more in (extra, first.references[0]._replace()):
        receipt = nonrepudiation_receipt([*second.references, more], message_info=_info(SECOND))
        _refused(receipt, second)


@pytest.mark.parametrize("at", range(5))
def test_a_proof_with_another_digest_or_algorithm_is_refused(second: Package, at: int) -> None:
    references = list(second.references)
    if at >= len(references):
        return
    own = references[at]
    for other in (
        own._replace(digest_value=own.digest_value[:-1] + bytes((own.digest_value[-1] ^ 1,))),
        own._replace(digest_value=b""),
        own._replace(digest_value=own.digest_value[:16]),
        own._replace(digest_method=SHA1),
        own._replace(uri=own.uri.upper()),
    ):
        changed = [*references[:at], other, *references[at + 1 :]]
        _refused(nonrepudiation_receipt(changed, message_info=_info(SECOND)), second)


def test_digests_that_were_swapped_between_parts_are_refused(second: Package) -> None:
    one, two = (r for r in second.references if r.uri.startswith("cid:"))
    rest = [r for r in second.references if not r.uri.startswith("cid:")]
    swapped = [
        *rest,
        one._replace(digest_value=two.digest_value),
        two._replace(digest_value=one.digest_value),
    ]
    _refused(nonrepudiation_receipt(swapped, message_info=_info(SECOND)), second)


def test_a_copy_of_the_message_is_no_proof_of_a_signed_one(second: Package) -> None:
    assert second.user_message is not None
    _refused(awareness_receipt(second.user_message, message_info=_info(SECOND)), second)


def test_a_copy_of_another_message_is_refused() -> None:
    first, second = (make((), unsigned=True, id=id) for id in (FIRST, SECOND))
    assert first.user_message is not None
    assert second.user_message is not None
    copied = replace(
        awareness_receipt(first.user_message, message_info=_info(FIRST)),
        message_info=_info(SECOND),
    )
    with pytest.raises(EbmsError) as caught:
        check_receipt(
            copied,
            sent_message_id=SECOND,
            sent_references=None,
            sent_user_message=second.user_message,
        )
    assert caught.value.code == "EBMS:0302"


def test_a_receipt_whose_proof_was_changed_on_the_way_does_not_hold(
    first: Package, second: Package
) -> None:
    """The receipt is signed: putting the proof of another message into it breaks it."""
    receipt = nonrepudiation_receipt(second.references, message_info=_info(SECOND))
    made = secure(
        VERSION,
        [Block("_r", write_messaging(Messaging((receipt,), id="_r"), VERSION))],
        (),
        signing=Signing(buyer(), ECDSA_SHA256),
        lifetime=Lifetime(NOW, timedelta(hours=1)),
    )
    found = look(soap(made.envelope))
    assert_holds(found)
    assert found["kind"] == "receipt"
    other = nonrepudiation_receipt(first.references, message_info=_info(SECOND))
    forged = write_messaging(Messaging((other,), id="_r"), VERSION).encode()
    start, stop = made.envelope.index(b"<eb:Messaging"), made.envelope.index(b"</S12:Header>")
    changed = made.envelope[:start] + forged + made.envelope[stop:]
    assert_refused(look(soap(changed)), "EBMS:0101")
