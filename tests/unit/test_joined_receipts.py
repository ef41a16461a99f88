"""The receipt for a joined message proves what its sender sent, by the digests of the parts."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from postroad.msh.fragment_group import Terms
from postroad.msh.joined import capture_joined
from postroad.msh.joined_receipts import part_references
from postroad.security.attachments import Attachment
from postroad.wire import xml
from postroad.wire.content import BytesContent, BytesSink
from postroad.wire.ebms3 import MessageInfo, Reference
from postroad.wire.errors import EbmsError
from postroad.wire.receipts import check_receipt, nonrepudiation_receipt
from postroad.wire.soap import Envelope, SoapVersion, read_envelope
from tests.unit.splits import MADE, MESSAGE, ROUTING, Receiver, Source, arrival, cut, source

PHOTO = b"<photo>\r\n</photo>" * 100
ID = MESSAGE.message_info.message_id
INFO = MessageInfo(MADE, "receipt@seller.example", ID)


def sent(given: Source) -> tuple[Reference, ...]:
    """What the sender keeps of the message before it is split."""
    parts = [Attachment(one.content_id, one.content, one.content_type) for one in given.form.parts]
    return part_references(read_envelope(xml.parse(given.form.envelope)), parts)


def joined(given: Source) -> tuple[Envelope, list[Attachment]]:
    receiver = Receiver(Terms(timedelta(hours=1), routing_properties=ROUTING))
    for piece in cut(given, 300, algorithm="gzip").fragments():
        group = receiver.take(arrival(piece), piece.data).group
    capture = capture_joined(group, receiver.data(group), new_sink=BytesSink)
    parts = [
        Attachment(one.content_id or "", one.content, one.content_type.media_type, one.sha256)
        for one in capture.attachments
    ]
    return read_envelope(xml.parse(capture.envelope)), parts


@pytest.mark.req("P2-4.4.2-20")
@pytest.mark.parametrize("version", list(SoapVersion))
def test_the_receipt_names_every_part_with_its_digest(version: SoapVersion) -> None:
    given = source(PHOTO, version=version)
    receipt = nonrepudiation_receipt(part_references(*joined(given)), message_info=INFO)
    references = sent(given)
    assert [one.uri for one in references] == ["#_messaging", "cid:photo@buyer.example"]
    check_receipt(receipt, sent_message_id=ID, sent_references=references)


@pytest.mark.parametrize("changed", [PHOTO + b" ", PHOTO.replace(b"\r\n", b"\n")])
def test_another_message_has_another_receipt(changed: bytes) -> None:
    given = part_references(*joined(source(changed)))
    receipt = nonrepudiation_receipt(given, message_info=INFO)
    with pytest.raises(EbmsError) as caught:
        check_receipt(receipt, sent_message_id=ID, sent_references=sent(source(PHOTO)))
    assert caught.value.code == "EBMS:0302"


def test_digests_that_are_known_are_not_taken_again() -> None:
    class Unread:
        size = 7

        def chunks(self) -> Iterator[bytes]:
            raise AssertionError("read")

    envelope, _ = joined(source(PHOTO))
    *_, reference = part_references(envelope, [Attachment("a@x", Unread(), "a/b", b"known")])
    assert reference.digest_value == b"known"


def test_a_body_with_content_is_a_part() -> None:
    soap = SoapVersion.SOAP_12
    wsu = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd"
    text = (
        f'<s:Envelope xmlns:s="{soap.namespace}"><s:Body xmlns:w="{wsu}" w:Id="b"><x/></s:Body>'
        "</s:Envelope>"
    )
    (reference,) = part_references(read_envelope(xml.parse(text.encode())), [])
    assert reference.uri == "#b"
    without = text.replace("<x/>", "")
    parts = [Attachment("a@x", BytesContent(b"1"), "a/b")]
    (only,) = part_references(read_envelope(xml.parse(without.encode())), parts)
    assert only.uri == "cid:a@x"
