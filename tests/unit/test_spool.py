"""Content that spills to disk."""

import gc
import os
from pathlib import Path

import pytest

from postroad.store.spool import SpoolSink
from postroad.wire.content import CHUNK, read_all
from postroad.wire.limits import KIB, MIB
from tests.descriptors import open_files


@pytest.mark.parametrize("size", [0, 1, 10, 11, 300 * KIB])
def test_what_was_written_can_be_read_again_and_again(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    sink = SpoolSink(memory_bytes=10, folder=str(tmp_path))
    for at in range(0, size, 100_000):
        sink.write(memoryview(data)[at : at + 100_000])
    content = sink.finish()
    assert content.size == size
    assert read_all(content, MIB) == read_all(content, MIB) == data


def test_two_readers_do_not_disturb_each_other(tmp_path: Path) -> None:
    data = os.urandom(3 * CHUNK)
    sink = SpoolSink(memory_bytes=10, folder=str(tmp_path))
    sink.write(data)
    content = sink.finish()
    pairs = list(zip(content.chunks(), content.chunks(), strict=True))
    assert b"".join(one for one, _ in pairs) == b"".join(two for _, two in pairs) == data


def test_pieces_are_of_bounded_size(tmp_path: Path) -> None:
    sink = SpoolSink(memory_bytes=10, folder=str(tmp_path))
    sink.write(bytes(2 * CHUNK + 1))
    assert [len(chunk) for chunk in sink.finish().chunks()] == [CHUNK, CHUNK, 1]


def test_small_content_opens_no_file(tmp_path: Path) -> None:
    sink = SpoolSink(memory_bytes=10, folder=str(tmp_path))
    sink.write(b"x" * 10)
    assert open_files(tmp_path) == 0
    sink.write(b"x")
    assert open_files(tmp_path) == 1
    sink.discard()


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    sink = SpoolSink(memory_bytes=10, folder=str(tmp_path))
    sink.write(b"x" * 100)
    assert list(tmp_path.iterdir()) == []
    assert open_files(tmp_path) == 1
    content = sink.finish()
    del sink
    gc.collect()
    assert read_all(content, MIB) == b"x" * 100
    del content
    gc.collect()
    assert open_files(tmp_path) == 0


def test_a_discarded_sink_closes_its_file(tmp_path: Path) -> None:
    sink = SpoolSink(memory_bytes=10, folder=str(tmp_path))
    sink.write(b"x" * 100)
    sink.discard()
    assert open_files(tmp_path) == 0


def test_content_above_what_fits_in_memory_is_not_read_whole(tmp_path: Path) -> None:
    sink = SpoolSink(memory_bytes=10, folder=str(tmp_path))
    sink.write(b"x" * 100)
    with pytest.raises(ValueError, match="more than 99 bytes"):
        read_all(sink.finish(), 99)
