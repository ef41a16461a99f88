"""What holds for every message: it comes back as it was sent, or it does not hold."""

import gzip
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st
from lxml import etree

import postroad
from postroad.node.first_steps.example import order_message
from postroad.security import algorithms as alg
from postroad.security.algorithms import DATA_CIPHERS, DIGESTS, SIGNATURES
from postroad.security.attachments import Attachment
from postroad.security.keyestablishment import Encryption
from postroad.security.keys import KeyPair
from postroad.security.secure import Lifetime, Secured, secure
from postroad.security.sign import Block, Signing
from postroad.security.tokens import TokenReference
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import COMPRESSION_TYPE, GZIP, MIME_TYPE, Messaging, PartInfo, Property
from postroad.wire.ebms3_writer import write_messaging, write_timestamp
from postroad.wire.mime import (
    OutgoingPart,
    boundary_is_free,
    cid_url,
    multipart_content_type,
    write_multipart,
)
from postroad.wire.soap import SoapVersion
from tests import pki
from tests.changing import replace
from tests.property import strategies

Report = dict[str, Any]

EXAMPLES: Final = settings.default.max_examples
CA: Final = pki.authority("Property CA")
BOUNDARY: Final = "property-boundary-5d1f"
ROOT_ID: Final = "root@property.example"
SIGNERS: Final = (
    (alg.ECDSA_SHA256, "p256"),
    (alg.ED25519, "ed25519"),
    (alg.ED448, "ed448"),
    (alg.RSA_SHA256, "rsa"),
    (alg.RSA_PSS_SHA256, "rsa"),
    ("http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha512", "brainpool"),
)
RECIPIENTS: Final = (
    (alg.RSA_OAEP, "rsa"),
    (alg.ECDH_ES, "p384"),
    (alg.X25519, "x25519"),
    (alg.X448, "x448"),
)
GCM: Final = [uri for uri, cipher in DATA_CIPHERS.items() if not cipher.weak]
STRONG_DIGESTS: Final = [uri for uri, digest in DIGESTS.items() if not digest.weak]


@cache
def party(kind: str) -> KeyPair:
    return pki.issue(CA, f"party {kind}", key=kind)


@dataclass(frozen=True)
class Part:
    """A payload as its sender has it, and how it is to travel."""

    content_id: str
    media_type: str
    data: bytes
    compressed: bool

    @property
    def attachment(self) -> Attachment:
        if self.compressed:
            packed = gzip.compress(self.data, mtime=0)
            return Attachment(self.content_id, BytesContent(packed), GZIP)
        return Attachment(self.content_id, BytesContent(self.data), self.media_type)

    @property
    def info(self) -> PartInfo:
        properties = [Property(MIME_TYPE, self.media_type)]
        if self.compressed:
            properties.append(Property(COMPRESSION_TYPE, GZIP))
        return PartInfo(cid_url(self.content_id), tuple(properties))


def http(secured: Secured, version: SoapVersion) -> bytes:
    parts = [OutgoingPart(a.content_id, a.media_type, a.content) for a in secured.attachments]
    kind = multipart_content_type(boundary=BOUNDARY, root_id=ROOT_ID, root_type=version.media_type)
    body = write_multipart(
        secured.envelope,
        parts,
        boundary=BOUNDARY,
        root_id=ROOT_ID,
        root_type=version.media_type,
    )
    return f"POST /msh HTTP/1.1\r\nContent-Type: {kind}\r\n\r\n".encode() + b"".join(body)


def inspect(data: bytes, *, known: Sequence[KeyPair] = (), key: KeyPair | None = None) -> Report:
    trust = [CA.certificate, *(pair.certificate for pair in known)]
    return postroad.inspect(data, trust=trust, key=key, at=pki.NOW)


def values(report: Report) -> list[Any]:
    """All that a receiver would act on: the units with their payloads and digests."""
    return [report["kind"], report["role"], report["units"], report["addressing"]]


def _element(name: str, text: str, attribute: str) -> bytes:
    element = etree.Element(name, at=attribute)
    element.text = text
    return etree.tostring(element)


_xml = st.builds(_element, strategies.xml_ids, strategies.texts, strategies.texts)
_content_ids = st.text("abcXYZ019-._~@!$&'()*+,;=é", min_size=1, max_size=12)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    kind = draw(
        st.sampled_from(
            ("application/xml", "text/xml", "text/plain", "application/octet-stream", "image/png")
        )
    )
    compressed = draw(st.booleans())
    if kind.endswith("xml") and not compressed:
        data = draw(_xml)
    else:
        data = draw(st.binary(max_size=300) | st.just(bytes(3000)))
    return Part(draw(_content_ids), kind, data, compressed)


part_lists = st.lists(parts(), max_size=3, unique_by=lambda one: one.content_id)


@given(
    strategies.user_messages(),
    part_lists,
    st.sampled_from(SoapVersion),
    st.sampled_from(SIGNERS),
    st.none() | st.sampled_from(RECIPIENTS),
    st.sampled_from(TokenReference),
    st.sampled_from(STRONG_DIGESTS),
    st.sampled_from(GCM),
    st.none() | _xml,
)
def test_a_secured_message_comes_back_as_it_was_sent(
    message: Any,
    sent: list[Part],
    version: SoapVersion,
    signer: tuple[str, str],
    recipient: tuple[str, str] | None,
    form: TokenReference,
    digest: str,
    data: str,
    body: bytes | None,
) -> None:
    infos = [part.info for part in sent] + ([PartInfo()] if body else [])
    message = replace(message, part_infos=tuple(infos))
    header = write_messaging(Messaging((message,), id="_messaging"), version)
    algorithm, kind = signer
    pair = party(kind)
    key, whom = recipient or ("", "")
    randomness = random.Random(5)
    secured = secure(
        version,
        [Block("_messaging", header)],
        [part.attachment for part in sent],
        signing=Signing(pair, algorithm, digest, form),
        encryption=Encryption(party(whom).certificate, data, key, reference=form)
        if recipient
        else None,
        entropy=randomness.randbytes,
        lifetime=Lifetime(pki.NOW, timedelta(minutes=5)),
        body_content=body.decode() if body else "",
    )
    if not all(
        boundary_is_free(BOUNDARY, b"".join(a.content.chunks())) for a in secured.attachments
    ):
        return
    report = inspect(http(secured, version), known=[pair], key=party(whom) if recipient else None)
    assert [e["detail"] for e in report["errors"] if e["severity"] == "failure"] == []
    assert report["holds"] is True
    assert report["signature"]["valid"] is True
    assert report["signature"]["trusted"] is True
    if recipient and (sent or body):
        assert report["encryption"]["decrypted"] is True
    [unit] = report["units"]
    assert unit["message_id"] == message.message_info.message_id
    assert unit["timestamp"] == write_timestamp(message.message_info.timestamp)
    assert unit["from"] == str(message.from_party)
    assert unit["to"] == str(message.to_party)
    assert unit["service"] == message.collaboration_info.service.value
    assert unit["action"] == message.collaboration_info.action
    assert unit["conversation_id"] == message.collaboration_info.conversation_id
    got = [(p["sha256"], p["content_type"], p["compressed"]) for p in unit["payloads"] if p["href"]]
    assert got == [
        (hashlib.sha256(part.data).hexdigest(), part.media_type, part.compressed) for part in sent
    ]
    assert all(part["signed"] for part in report["parts"])


@cache
def honest() -> tuple[bytes, Report]:
    """A signed message with two payloads that are digested as they are, and its report."""
    sent = [
        Part("order@a", "application/xml", b"<order>\n5\n</order>", True),
        Part("drawing@a", "application/octet-stream", bytes(range(60)), False),
    ]
    message = replace(
        order_message(pki.NOW), part_infos=(*(part.info for part in sent), PartInfo())
    )
    version = SoapVersion.SOAP_12
    header = write_messaging(Messaging((message,), id="_messaging"), version)
    secured = secure(
        version,
        [Block("_messaging", header)],
        [part.attachment for part in sent],
        signing=Signing(party("ed25519"), alg.ED25519),
        body_content="<d:doc xmlns:d='urn:d'>copper</d:doc>",
        lifetime=Lifetime(pki.NOW, timedelta(minutes=5)),
    )
    data = http(secured, version)
    report = inspect(data)
    assert report["holds"] is True
    return data, report


def assert_unchanged_or_refused(data: bytes, *, unsigned_counts: bool = False) -> None:
    """What is believed of the bytes is what was signed, and by the one who signed it.

    A message without signature says nothing of its signer: it counts only where no change could
    have both cut the signature out and changed what it covered.
    """
    _, original = honest()
    report = inspect(data)
    if report["holds"] and (report["signature"]["present"] or unsigned_counts):
        assert values(report) == values(original)
        assert report["timestamp"] == original["timestamp"]
    if report["holds"] and report["signature"]["present"]:
        assert report["signature"]["certificate"] == original["signature"]["certificate"]


_place = st.floats(0, 1, exclude_max=True)


@settings(max_examples=8 * EXAMPLES)
@given(_place, st.integers(1, 255))
def test_a_flipped_byte_never_makes_another_message_hold(place: float, mask: int) -> None:
    data = bytearray(honest()[0])
    data[int(place * len(data))] ^= mask
    assert_unchanged_or_refused(bytes(data), unsigned_counts=True)


@settings(max_examples=8 * EXAMPLES)
@given(st.lists(st.tuples(_place, st.integers(1, 255)), min_size=2, max_size=5))
def test_flipped_bytes_never_make_another_message_hold(flips: list[tuple[float, int]]) -> None:
    data = bytearray(honest()[0])
    for place, mask in flips:
        data[int(place * len(data))] ^= mask
    assert_unchanged_or_refused(bytes(data))


@settings(max_examples=3 * EXAMPLES)
@given(_place, st.integers(1, 40))
def test_bytes_taken_out_never_make_another_message_hold(place: float, count: int) -> None:
    data = honest()[0]
    at = int(place * len(data))
    assert_unchanged_or_refused(data[:at] + data[at + count :])


@settings(max_examples=3 * EXAMPLES)
@given(
    _place, st.binary(min_size=1, max_size=8) | st.sampled_from((b"\n", b"<!---->", b" ", b"\0"))
)
@example(0.5, b"\r\n")
def test_bytes_put_in_never_make_another_message_hold(place: float, more: bytes) -> None:
    data = honest()[0]
    at = int(place * len(data))
    assert_unchanged_or_refused(data[:at] + more + data[at:])


@settings(max_examples=3 * EXAMPLES)
@given(_place, _place, st.integers(1, 400))
def test_a_piece_copied_elsewhere_never_makes_another_message_hold(
    source: float, target: float, count: int
) -> None:
    data = honest()[0]
    begin, at = int(source * len(data)), int(target * len(data))
    assert_unchanged_or_refused(data[:at] + data[begin : begin + count] + data[at:])


@given(_place)
def test_a_message_that_was_cut_off_never_holds_as_another(place: float) -> None:
    data = honest()[0]
    assert_unchanged_or_refused(data[: int(place * len(data))])


@given(st.sampled_from(sorted(SIGNATURES)), st.sampled_from(sorted(DIGESTS)))
def test_other_algorithm_names_never_make_a_message_hold(method: str, digest: str) -> None:
    data = honest()[0]
    other = data.replace(alg.ED25519.encode(), method.encode())
    other = other.replace(alg.SHA256.encode(), digest.encode())
    report = inspect(other)
    assert report["holds"] is (other == data)
