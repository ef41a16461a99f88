"""Any bytes, cut in any way, come back from any coding; any other bytes are refused or read."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.msh.compression import begun, next_portion
from postroad.wire.codings import CODINGS, Damaged, decoded, encoded
from postroad.wire.content import BytesContent, BytesSink, read_all

WORDS = st.sampled_from([b"a", b"ab", b"\0", b"\xff", b"order", b"order line 1\r\n"])
CHUNKS = st.lists(
    st.one_of(st.binary(max_size=200), st.lists(WORDS, max_size=300).map(b"".join)), max_size=20
)


@pytest.mark.parametrize("coding", CODINGS)
@given(chunks=CHUNKS, size=st.integers(1, 500))
def test_what_is_encoded_is_decoded_to_the_same(
    coding: str, chunks: list[bytes], size: int
) -> None:
    coded = b"".join(encoded(coding, chunks))
    pieces = [coded[at : at + size] for at in range(0, len(coded), size)]
    assert b"".join(decoded(coding, pieces)) == b"".join(chunks)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@given(chunks=CHUNKS, sizes=st.lists(st.integers(1, 300), min_size=1))
def test_what_is_encoded_in_portions_is_decoded_to_the_same(
    coding: str, chunks: list[bytes], sizes: list[int]
) -> None:
    whole = BytesContent(b"".join(chunks))
    coded, pieces, last = begun(coding), [], False
    while not last:
        size = sizes[len(pieces) % len(sizes)]
        portion = next_portion(coding, whole, coded, size=size, new_sink=BytesSink)
        pieces.append(read_all(portion.content, 1 << 20))
        coded, last = portion.coded, portion.last
    assert b"".join(decoded(coding, pieces)) == whole.data


@pytest.mark.parametrize("coding", CODINGS)
@given(data=st.binary(max_size=300), flags=st.integers(0, 255))
def test_no_bytes_make_a_reader_stumble(coding: str, data: bytes, flags: int) -> None:
    with suppress(Damaged):
        list(decoded(coding, [data]))
    with suppress(Damaged):
        list(decoded(coding, [b"\x1f\x9d" + bytes((flags,)) + data]))
