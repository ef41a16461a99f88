"""Views on content: slices and joined contents are read from any place, and copy nothing."""

from collections.abc import Iterator

import pytest

from postroad.store.spool import SpoolSink
from postroad.wire.content import BytesContent, Content, Joined, Slice, Spanned, read_all, span
from postroad.wire.mime import OutgoingPart, write_multipart
from postroad.wire.mime_writer import multipart_content

DATA = bytes(range(256)) * 5


class FromTheBeginning:
    """Content that cannot be read from its middle."""

    size = len(DATA)

    def chunks(self) -> Iterator[bytes]:
        for at in range(0, len(DATA), 100):
            yield DATA[at : at + 100]


def spooled(memory: int) -> Content:
    sink = SpoolSink(memory)
    sink.write(DATA)
    return sink.finish()


CONTENTS = {
    "memory": BytesContent(DATA),
    "a spool": spooled(10_000),
    "a spool file": spooled(1),
    "a stream": FromTheBeginning(),
    "a slice": Slice(BytesContent(b"xy" + DATA + b"z"), 2, len(DATA)),
    "joined": Joined(
        [BytesContent(DATA[:300]), BytesContent(b""), FromTheBeginning(), BytesContent(DATA[300:])]
    ),
}
CONTENTS["a slice of joined"] = Slice(
    Joined([BytesContent(b"ab"), BytesContent(DATA[:7]), BytesContent(DATA[7:] + b"c")]),
    2,
    len(DATA),
)


@pytest.mark.parametrize("kind", [kind for kind in CONTENTS if kind != "joined"])
def test_content_is_read_from_any_place(kind: str) -> None:
    content = CONTENTS[kind]
    assert read_all(content, 10_000) == DATA
    for begin in (0, 1, 99, 100, 101, 300, 1279, 1280):
        for size in (0, 1, 100, 250):
            length = min(size, len(DATA) - begin)
            assert b"".join(span(content, begin, length)) == DATA[begin : begin + length]


def test_joined_contents_are_read_over_their_seams() -> None:
    content = CONTENTS["joined"]
    whole = DATA[:300] + DATA + DATA[300:]
    assert content.size == len(whole)
    assert read_all(content, 10_000) == whole
    for begin in (0, 299, 300, 301, 1579, 1580, 1581):
        assert b"".join(span(content, begin, 500)) == whole[begin : begin + 500]


def test_what_is_joined_of_nothing_is_empty() -> None:
    assert Joined([]).size == 0
    assert list(Joined([]).chunks()) == []
    assert list(span(Joined([]), 0, 0)) == []


def test_a_slice_beyond_the_end_is_refused() -> None:
    for begin, size in ((0, 1281), (1280, 1), (-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="not there"):
            Slice(BytesContent(DATA), begin, size)


def test_content_that_ends_before_its_size_is_told() -> None:
    with pytest.raises(ValueError, match="ends after 1280 bytes"):
        list(span(FromTheBeginning(), 1200, 100))


def test_a_package_can_be_read_from_its_middle() -> None:
    parts = [OutgoingPart("a@x", "text/plain", BytesContent(DATA))]
    frame = {"boundary": "b", "root_id": "root@x"}
    written = b"".join(write_multipart(b"<envelope/>", parts, **frame))
    content = multipart_content(b"<envelope/>", parts, **frame)
    assert isinstance(content, Spanned)
    assert content.size == len(written)
    assert read_all(content, 10_000) == written
    for begin in range(0, len(written), 37):
        assert b"".join(span(content, begin, 5)) == written[begin : begin + 5]
