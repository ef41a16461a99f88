"""What holds for every multipart message, however it is cut into pieces."""

import base64
import quopri
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroad.wire import mime
from postroad.wire.content import BytesContent, read_all
from postroad.wire.errors import EbmsError
from postroad.wire.http import HttpHead, body_chunks, read_head
from postroad.wire.limits import DEFAULT
from postroad.wire.mime import (
    ContentType,
    Multipart,
    MultipartReader,
    OutgoingPart,
    boundary_is_free,
    cid_url,
    content_id_of,
    multipart_content_type,
    multipart_length,
    parse_content_type,
    write_multipart,
)
from postroad.wire.mime_headers import Headers, parse_headers

OUTER = ContentType("multipart/related", (("boundary", "b"), ("type", "text/xml")))

TRICKY = b"\r,\n,\r\n,-,--,--b,--b--,b,:,x,=,\0,\xff,\xef\xbb\xbf,YQ==,<e/>, ,\t".split(b",")
HEADERS = (
    b"Content-ID: <a>",
    b"Content-Type: text/xml",
    b"Content-Transfer-Encoding: base64",
)
tricky = st.lists(st.sampled_from([*TRICKY, *HEADERS]), max_size=40).map(b"".join)
content = st.one_of(st.binary(max_size=200), tricky)
ids = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp"), exclude_characters="<>%"),
    min_size=1,
    max_size=30,
)
cuts = st.lists(st.integers(1, 50), min_size=1, max_size=20)


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    cut: list[bytes] = []
    at = 0
    while at < len(data):
        size = sizes[len(cut) % len(sizes)]
        cut.append(data[at : at + size])
        at += size
    return cut


def read(content_type: ContentType | None, chunks: list[bytes]) -> Multipart:
    reader = MultipartReader(content_type)
    for chunk in chunks:
        reader.feed(chunk)
    return reader.close()


def told(content_type: ContentType | None, chunks: list[bytes]) -> Any:
    """All that a reading tells, its failure included."""
    try:
        package = read(content_type, chunks)
    except EbmsError as error:
        return str(error)
    parts = [
        (
            part.index,
            part.headers,
            part.content_type,
            part.content_id,
            part.transfer_encoding,
            read_all(part.content, 1 << 20),
            part.sha256,
        )
        for part in package.parts
    ]
    return package.content_type, parts, package.root.index, list(map(str, package.problems))


@given(st.lists(st.tuples(ids, content), max_size=4, unique_by=lambda x: x[0]), content, cuts)
def test_what_is_written_is_read_back(
    payloads: list[tuple[str, bytes]], envelope: bytes, sizes: list[int]
) -> None:
    at: dict[str, Any] = {"boundary": "=_0 (b)?'", "root_id": "root"}
    payloads = [(name, data) for name, data in payloads if name != "root"]
    parts = [OutgoingPart(name, "text/xml", BytesContent(data)) for name, data in payloads]
    body = b"".join(write_multipart(envelope, parts, **at))
    assert len(body) == multipart_length(envelope, parts, **at)
    package = read(parse_content_type(multipart_content_type(**at)), pieces(body, sizes))
    assert package.problems == ()
    assert package.root is package.parts[0]
    assert [(part.content_id, read_all(part.content, 1 << 20)) for part in package.parts] == [
        ("root", envelope),
        *payloads,
    ]


@pytest.mark.parametrize("content_type", [OUTER, None])
@given(body=tricky, sizes=cuts)
@example(body=b"--b\r\n\r\n\r\n--b--", sizes=[1])
@example(body=b"--b\n\r\n--b \r\n\nx\r\n \t--b--", sizes=[1])
def test_how_a_message_is_cut_makes_no_difference(
    content_type: ContentType | None, body: bytes, sizes: list[int]
) -> None:
    body = b"--b\r\nContent-Type: text/xml\r\n" + body
    assert told(content_type, pieces(body, sizes)) == told(content_type, [body])


def mostly(usual: bytes, *others: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from([usual] * 10 * len(others) + list(others))


line_ends = mostly(b"\r\n", b"\n", b" \r\n", b"\t\n", b"\r", b"\n\r\n")
delimiters = mostly(b"--b", b" --b", b"--bb", b"--b--", b"--b --", b"--", b"")
header_lines = st.sampled_from(HEADERS[:2]) | mostly(
    b"Content-Transfer-Encoding: binary",
    b"Content-Type:a/b;c=d",
    b"Content-Type: ",
    b"Content-Type",
    b"Content-Type: nonsense",
    b"Content-Type : text/xml",
    b"Content-ID: <a>",
    b"Content-ID: <%61>",
    b"Content-Id:b ",
    b"Content-ID:\t<c>",
    b"Content-ID: <\xc3\xa4>",
    b"Content-Transfer-Encoding: Binary",
    b"Content-Transfer-Encoding: base64",
    b"Content-Disposition: attachment;",
    b" filename=x",
    b"X-Other: y",
    b"Content-Description: \x01",
    b"--b",
    b"",
)
contents = mostly(b"<e/>", b"", b"\r", b"\n", b"\r\n", b"--b", b"\n--b", b"\n--bc", b"YQ==")
package_parts = st.builds(
    lambda lines, ends, blank, data, end, delimiter, after: b"".join(
        [
            *(line + one for line, one in zip(lines, ends, strict=False)),
            blank,
            data,
            end,
            delimiter,
            after,
        ]
    ),
    st.lists(header_lines, max_size=4, unique=True),
    st.lists(line_ends, min_size=4, max_size=4),
    line_ends,
    contents,
    line_ends,
    delimiters,
    line_ends,
)
packages = st.builds(
    lambda start, parts, end: b"".join([start, *parts]).removesuffix(b"\r\n") + end,
    mostly(b"--b\r\n", b"--b\n", b"\r\n--b\r\n", b"x\r\n--b\r\n", b"--b"),
    st.lists(package_parts, max_size=3),
    st.sampled_from([b"--\r\n", b"--", b"", b"\r\n", b"--\r\nepilogue", b"-- ", b"--x"]),
)
STARTING = ContentType("multipart/related", (*OUTER.params, ("start", "<a>")))


@pytest.mark.parametrize("content_type", [OUTER, STARTING])
@settings(max_examples=max(300, settings().max_examples))
@given(packages, st.integers(0, 300))
@example(b"--b\r\nContent-Type: text/xml\r\n\r\n<e/>\r\n--b--", 1)
def test_a_message_in_one_piece_is_read_as_the_same_message_in_two(
    content_type: ContentType, body: bytes, cut: int
) -> None:
    assert told(content_type, [body]) == told(content_type, [body[:cut], body[cut:]])


@given(content, st.sampled_from([None, OUTER]))
def test_any_bytes_are_read_or_refused_with_an_error_code(
    body: bytes, content_type: ContentType | None
) -> None:
    for data in (body, b"--b\n" + body, b"--b\n\n" + body + b"\n--b--"):
        told(content_type, [data])


@given(content.filter(lambda data: boundary_is_free("b", data)))
def test_content_without_the_boundary_comes_through_unchanged(data: bytes) -> None:
    package = read(OUTER, [b"--b\r\n\r\n" + data + b"\r\n--b--"])
    assert read_all(package.root.content, 1 << 20) == data


@given(content, cuts, st.sampled_from(["base64", "quoted-printable"]))
def test_encoded_content_is_decoded_as_the_standard_library_does(
    data: bytes, sizes: list[int], encoding: str
) -> None:
    if encoding == "base64":
        encoded, expected = base64.encodebytes(data), data
    else:
        encoded = quopri.encodestring(data)
        expected = quopri.decodestring(encoded)
    outer = ContentType("multipart/related", (("boundary", "=_"), ("type", "text/xml")))
    head = f"--=_\r\nContent-Type: text/xml\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n"
    body = head.encode() + encoded + b"\r\n--=_--\r\n"
    assert read_all(read(outer, pieces(body, sizes)).root.content, 1 << 20) == expected


@given(st.text(max_size=60))
def test_any_content_type_is_read_or_refused(value: str) -> None:
    for text in (value, "a/b;" + value, "a/b; c=" + value, 'a/b; c="' + value):
        try:
            read = parse_content_type(text)
        except EbmsError:
            continue
        flat = "".join(name + value for name, value in read.params)
        if "*" not in flat and flat.isprintable():
            assert parse_content_type(str(read)) == read


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True),
        st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=30),
        max_size=5,
    )
)
def test_a_written_content_type_is_read_back(params: dict[str, str]) -> None:
    read = parse_content_type(str(ContentType("multipart/related", tuple(params.items()))))
    assert dict(read.params) == params


@given(ids)
def test_the_url_of_a_content_id_leads_back_to_it(content_id: str) -> None:
    assert cid_url(content_id).isascii()
    assert content_id_of(cid_url(content_id)) == content_id


@given(content)
def test_any_header_block_is_read_or_refused(block: bytes) -> None:
    with suppress(EbmsError):
        for _, value in parse_headers(block):
            assert "\n" not in value
            assert "\r" not in value


@given(content, content, cuts)
def test_any_capture_is_read_or_refused(head: bytes, body: bytes, sizes: list[int]) -> None:
    codings = Headers((("Transfer-Encoding", "chunked"), ("Content-Encoding", "gzip")))
    for data in (head, b"POST / HTTP/1.1\r\n" + head, b"A: b\n" + head):
        with suppress(EbmsError):
            found = read_head(data)
            if found is not None:
                b"".join(body_chunks(found, pieces(data[found.body_offset :], sizes)))
    with suppress(EbmsError):
        b"".join(body_chunks(HttpHead(None, codings, 0), pieces(b"5\r\n" + body, sizes)))


@given(st.lists(st.binary(min_size=1, max_size=50)), cuts)
def test_chunks_are_taken_away_however_they_are_cut(chunks: list[bytes], sizes: list[int]) -> None:
    head = HttpHead(None, Headers((("Transfer-Encoding", "chunked"),)), 0)
    sent = b"".join(b"%x;a=b\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    assert b"".join(body_chunks(head, pieces(sent, sizes), DEFAULT)) == b"".join(chunks)


@given(tricky, cuts)
def test_large_pieces_of_content_are_read_as_small_ones_are(data: bytes, sizes: list[int]) -> None:
    body = b"--b\r\nContent-ID: <a>\r\n\r\n" + data + b"\r\n--b--\r\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mime, "_LARGE", 1 << 30)
        in_steps = told(OUTER, pieces(body, sizes))
        patch.setattr(mime, "_LARGE", len(b"\n--b"))
        assert told(OUTER, pieces(body, sizes)) == in_steps
