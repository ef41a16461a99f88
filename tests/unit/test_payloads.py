"""Header, MIME parts and compression must agree about every payload."""

import gzip
import hashlib
from collections.abc import Sequence
from typing import Final

import pytest

from postroad.msh.payloads import Payload, open_payloads, root_type_problems, unlisted
from postroad.node.first_steps.example import order_message
from postroad.security.attachments import Attachment
from postroad.wire.content import BytesContent, read_all
from postroad.wire.ebms3 import (
    CHARACTER_SET,
    COMPRESSION_TYPE,
    GZIP,
    MIME_TYPE,
    PartInfo,
    Property,
)
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import MIB, Limits
from postroad.wire.names import S12, WSU
from postroad.wire.xml import parse
from tests import pki
from tests.changing import replace

WHERE: Final = "eb:UserMessage"
PLAIN: Final = b"<order>5</order>"
PACKED: Final = gzip.compress(PLAIN, mtime=0)
FULL_BODY: Final = (
    f'<S:Body xmlns:S="{S12}" xmlns:u="{WSU}"><d Id="a"/><d id="b"/><d u:Id="c"/><d xml:id="e"/>'
    '<f><g Id="deep"/></f><h Id="twice"/><h id="twice"/></S:Body>'
)
EMPTY_BODY: Final = f'<S:Body xmlns:S="{S12}"/>'


def part(href: str | None, **properties: str) -> PartInfo:
    return PartInfo(href, tuple(Property(name, value) for name, value in properties.items()))


def compressed(href: str = "cid:order@a", **changes: str) -> PartInfo:
    return part(href, **{MIME_TYPE: "application/xml", COMPRESSION_TYPE: GZIP, **changes})


def attachment(
    data: bytes = PACKED, media_type: str = GZIP, content_id: str = "order@a"
) -> Attachment:
    digest = hashlib.sha256(data).digest()
    return Attachment(content_id, BytesContent(data), media_type, digest)


def opened(
    parts: Sequence[PartInfo],
    attachments: Sequence[Attachment] = (),
    *,
    body: str = EMPTY_BODY,
    closed: frozenset[str] = frozenset(),
    envelope_only: bool = False,
    limits: Limits | None = None,
) -> tuple[tuple[Payload, ...], list[EbmsError]]:
    return open_payloads(
        replace(order_message(pki.NOW), part_infos=tuple(parts)),
        WHERE,
        {one.content_id: one for one in attachments},
        parse(body.encode()),
        limits=limits or Limits(),
        closed=closed,
        envelope_only=envelope_only,
    )


def told(problems: Sequence[EbmsError]) -> list[tuple[str, str | None]]:
    return [(problem.code, problem.location) for problem in problems]


PLACE: Final = f"{WHERE}/eb:PayloadInfo/eb:PartInfo[1]"


def test_a_plain_payload_is_the_attachment() -> None:
    one = attachment(PLAIN, "application/xml")
    [payload], problems = opened([part("cid:order@a")], [one])
    assert problems == []
    assert payload.content is one.content
    assert payload.sha256 == one.sha256
    assert payload.media_type == "application/xml"
    assert not payload.compressed


def test_the_media_type_of_the_header_goes_before_that_of_the_part() -> None:
    one = attachment(PLAIN, "application/octet-stream")
    [payload], _ = opened([part("cid:order@a", MimeType="text/xml")], [one])
    assert payload.media_type == "text/xml"


def test_a_compressed_payload_is_opened() -> None:
    [payload], problems = opened([compressed()], [attachment()])
    assert problems == []
    assert payload.compressed
    assert payload.content is not None
    assert read_all(payload.content, MIB) == PLAIN
    assert payload.sha256 == hashlib.sha256(PLAIN).digest()
    assert payload.media_type == "application/xml"


def test_content_ids_are_found_however_the_url_is_written() -> None:
    one = attachment(PLAIN, "text/xml", "order 1%@a")
    [payload], problems = opened([part("cid:order%201%25@a")], [one])
    assert problems == []
    assert payload.content is one.content


def test_payloads_keep_the_order_of_the_header() -> None:
    ones = [attachment(PLAIN, "text/xml", name) for name in ("a", "b", "c")]
    payloads, problems = opened([part(f"cid:{name}") for name in ("c", "a", "b")], ones)
    assert problems == []
    assert [payload.content_id for payload in payloads] == ["c", "a", "b"]


def test_a_part_that_is_not_there_is_told_at_its_place() -> None:
    payloads, problems = opened([part("cid:order@a"), part("cid:gone@a")], [attachment()])
    assert told(problems) == [("EBMS:0007", f"{WHERE}/eb:PayloadInfo/eb:PartInfo[2]")]
    assert problems[0].severity is Severity.FAILURE
    assert payloads[1].content is None
    assert payloads[1].content_id == "gone@a"


def test_a_missing_part_says_nothing_where_only_the_envelope_was_kept() -> None:
    _, problems = opened([part("cid:gone@a")], envelope_only=True)
    assert told(problems) == [("EBMS:0007", PLACE)]
    assert problems[0].severity is Severity.WARNING


def test_other_problems_stay_failures_where_only_the_envelope_was_kept() -> None:
    _, problems = opened([part("http://example.com/a")], envelope_only=True)
    assert [problem.severity for problem in problems] == [Severity.FAILURE]


@pytest.mark.parametrize("href", ["#a", "#b", "#c", "#e", "#deep"])
def test_a_fragment_names_one_element_of_the_body(href: str) -> None:
    [payload], problems = opened([part(href, MimeType="application/xml")], body=FULL_BODY)
    assert problems == []
    assert payload.content_id is None
    assert payload.content is not None
    assert payload.content.size > 0
    assert payload.sha256 == hashlib.sha256(read_all(payload.content, MIB)).digest()
    assert payload.media_type == "application/xml"


@pytest.mark.parametrize("href", ["#nowhere", "#twice", "#"])
def test_a_fragment_that_names_no_or_two_elements_is_told(href: str) -> None:
    _, problems = opened([part(href)], body=FULL_BODY)
    assert told(problems) == [("EBMS:0007", PLACE)]
    assert "exactly one is expected" in problems[0].detail


def test_a_part_without_href_is_the_body() -> None:
    assert opened([part(None)], body=FULL_BODY)[1] == []
    _, problems = opened([part(None)])
    assert told(problems) == [("EBMS:0007", PLACE)]


@pytest.mark.parametrize("href", ["http://example.com/order.xml", "ftp://example.com/a", "urn:a:b"])
def test_a_payload_elsewhere_is_not_fetched(href: str) -> None:
    [payload], problems = opened([part(href)])
    assert told(problems) == [("EBMS:0011", PLACE)]
    assert payload.content is None


def test_a_compressed_part_needs_the_media_type_it_had() -> None:
    bare = part("cid:order@a", CompressionType=GZIP)
    [payload], problems = opened([bare], [attachment()])
    assert told(problems) == [("EBMS:0303", PLACE)]
    assert MIME_TYPE in problems[0].detail
    assert payload.content is not None


def test_another_compression_does_not_exist() -> None:
    for kind in ("application/zip", "gzip", ""):
        [payload], problems = opened([compressed(CompressionType=kind)], [attachment()])
        assert told(problems) == [("EBMS:0303", PLACE)]
        assert payload.content is None
        assert payload.compressed


@pytest.mark.parametrize("charset", ["UTF-8", "utf-16", "ISO-8859-1", "us-ascii", "windows-1252"])
def test_a_character_set_that_exists_is_taken(charset: str) -> None:
    assert opened([compressed(CharacterSet=charset)], [attachment()])[1] == []


@pytest.mark.parametrize("charset", ["UTF-9", "", "utf 8 or so", "\0", "é"])
def test_a_character_set_that_does_not_exist_is_told(charset: str) -> None:
    _, problems = opened([compressed(CharacterSet=charset)], [attachment()])
    assert told(problems) == [("EBMS:0003", PLACE)]
    assert CHARACTER_SET in problems[0].detail


def test_a_compressed_part_must_say_gzip_in_its_mime_header() -> None:
    [payload], problems = opened([compressed()], [attachment(media_type="application/xml")])
    assert told(problems) == [("EBMS:0007", "cid:order@a")]
    assert payload.sha256 == hashlib.sha256(PLAIN).digest()


def test_a_payload_that_does_not_open_is_told_at_its_part() -> None:
    [payload], problems = opened([compressed()], [attachment(PACKED[:-3])])
    assert told(problems) == [("EBMS:0303", "cid:order@a")]
    assert payload.content is None


def test_one_bad_payload_does_not_hide_the_others() -> None:
    parts = [compressed(), compressed("cid:two@a"), part("cid:gone@a")]
    attachments = [attachment(b"no gzip"), attachment(content_id="two@a")]
    payloads, problems = opened(parts, attachments)
    assert [problem.code for problem in problems] == ["EBMS:0303", "EBMS:0007"]
    assert payloads[1].sha256 == hashlib.sha256(PLAIN).digest()


def test_a_bomb_is_refused_by_the_limits_given() -> None:
    limits = Limits(decompressed_bytes=5)
    _, problems = opened([compressed()], [attachment()], limits=limits)
    assert told(problems) == [("EBMS:0303", "cid:order@a")]


def test_what_is_still_encrypted_is_not_looked_into() -> None:
    sealed = attachment(b"ciphertext", "application/octet-stream")
    closed = frozenset(["order@a"])
    [payload], problems = opened([compressed()], [sealed], closed=closed)
    assert problems == []
    assert payload.content is None
    assert payload.sha256 is None
    assert payload.media_type == "application/xml"


def test_a_gzip_file_sent_as_such_stays_packed_and_is_looked_into() -> None:
    one = attachment()
    [payload], problems = opened([part("cid:order@a")], [one])
    assert problems == []
    assert payload.content is one.content
    assert not payload.compressed
    assert payload.unpacked is not None
    assert payload.unpacked.sha256 == hashlib.sha256(PLAIN).digest()


def test_damage_in_a_gzip_file_sent_as_such_is_only_a_warning() -> None:
    [payload], problems = opened([part("cid:order@a")], [attachment(PACKED[:-1])])
    assert [problem.severity for problem in problems] == [Severity.WARNING]
    assert payload.unpacked is None
    assert payload.content is not None


def test_attachments_that_nobody_lists_are_told() -> None:
    problems = unlisted(["a@a", "b b@a", "c@a"], ["cid:a@a", "cid:b%20b@a", None, "#c@a"])
    assert told(problems) == [("EBMS:0007", "cid:c@a")]
    assert unlisted([], ["cid:a@a"]) == []


@pytest.mark.parametrize(
    ("media_type", "charset", "encoding", "problems"),
    [
        ("application/soap+xml", None, "UTF-8", 0),
        (None, None, None, 0),
        ("application/xop+xml", "utf-8", "UTF-8", 0),
        ("text/xml", None, "UTF-8", 1),
        ("application/soap+xml", "UTF-8", "ASCII", 0),
        ("application/soap+xml", "utf8", "UTF-8", 0),
        ("application/soap+xml", "iso-8859-1", "UTF-8", 1),
        ("application/soap+xml", "no-such-charset", "UTF-8", 1),
        ("application/octet-stream", "utf-16", "UTF-8", 2),
    ],
)
def test_media_type_and_charset_of_the_envelope_must_be_true(
    media_type: str | None, charset: str | None, encoding: str | None, problems: int
) -> None:
    found = root_type_problems(media_type, "application/soap+xml", charset, encoding, "HTTP")
    assert told(found) == [("EBMS:0007", "HTTP")] * problems
