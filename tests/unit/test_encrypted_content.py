"""Content passes through ciphers in pieces; what does not open is thrown away."""

import hashlib
import tracemalloc
from collections.abc import Iterator

import pytest
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, modes
from cryptography.hazmat.primitives.ciphers.algorithms import AES

from postroad.security import algorithms as alg
from postroad.security.algorithms import DATA_CIPHERS
from postroad.security.ciphers import NotDecrypted, Sealed, decrypt_content, iv_bytes
from postroad.store.spool import SpoolSink
from postroad.wire.content import CHUNK, BytesContent, BytesSink, Content, read_all
from postroad.wire.limits import MIB
from postroad.wire.names import XENC
from tests.naming import short
from tests.unit.encrypting import CBC, CLOSED, Dice, opened, recipient, sealed, tampered, to_rsa


@pytest.mark.parametrize("size", [0, 1, 7, 8, 15, 16, 17, 32, 1000])
@pytest.mark.parametrize("uri", CBC, ids=short)
def test_cbc_opens_by_hand_with_the_last_byte_as_padding_length(uri: str, size: int) -> None:
    cipher = DATA_CIPHERS[uri]
    dice = Dice()
    key, plain = dice(cipher.key_bytes), dice(size)
    block = iv_bytes(cipher)
    iv = dice(block)
    blob = read_all(Sealed(cipher, key, iv, BytesContent(plain)), MIB)
    algorithm = TripleDES(key) if block == 8 else AES(key)
    decryptor = Cipher(algorithm, modes.CBC(blob[:block])).decryptor()
    padded = decryptor.update(blob[block:]) + decryptor.finalize()
    assert blob[:block] == iv
    assert 1 <= padded[-1] <= block
    assert padded[: -padded[-1]] == plain
    result = decrypt_content(cipher, key, BytesContent(blob), BytesSink)
    assert read_all(result.content, MIB) == plain


class Pieces:
    """Content that comes in pieces of one's own cut."""

    def __init__(self, data: bytes, cut: int) -> None:
        self._pieces = [data[at : at + cut] for at in range(0, len(data), cut)]
        self.size = len(data)

    def chunks(self) -> Iterator[bytes]:
        for piece in self._pieces:
            yield piece
            yield b""


@pytest.mark.parametrize("cut", [1, 5, 12, 13, 16, 27, 28, 29, 100])
@pytest.mark.parametrize("uri", DATA_CIPHERS, ids=short)
def test_how_the_content_is_cut_does_not_matter(uri: str, cut: int) -> None:
    cipher = DATA_CIPHERS[uri]
    dice = Dice()
    key, iv = dice(cipher.key_bytes), dice(iv_bytes(cipher))
    for plain in (b"", b"x", bytes(range(200))):
        whole = read_all(Sealed(cipher, key, iv, BytesContent(plain)), MIB)
        cut_in = read_all(Sealed(cipher, key, iv, Pieces(plain, cut)), MIB)
        assert cut_in == whole
        result = decrypt_content(cipher, key, Pieces(whole, cut), BytesSink)
        assert read_all(result.content, MIB) == plain
        assert result.sha256 == hashlib.sha256(plain).digest()


@pytest.mark.parametrize("size", range(28))
def test_content_too_short_for_iv_and_tag_does_not_open(size: int) -> None:
    with pytest.raises(NotDecrypted):
        decrypt_content(
            DATA_CIPHERS[alg.AES128_GCM], bytes(16), BytesContent(bytes(size)), BytesSink
        )


@pytest.mark.parametrize("size", [0, 8, 16, 31, 33, 47])
def test_cbc_content_of_a_wrong_size_does_not_open(size: int) -> None:
    with pytest.raises(NotDecrypted):
        decrypt_content(
            DATA_CIPHERS[XENC + "aes128-cbc"], bytes(16), BytesContent(bytes(size)), BytesSink
        )


class Recording:
    """A sink that tells what became of it."""

    def __init__(self) -> None:
        self.written = 0
        self.finished = self.discarded = False

    def write(self, data: bytes | memoryview) -> None:
        self.written += len(data)

    def finish(self) -> Content:
        self.finished = True
        return BytesContent(b"")

    def discard(self) -> None:
        self.discarded = True


class Large:
    """32 MiB that nobody holds."""

    size = 32 * MIB

    def __init__(self, piece: bytes = bytes(CHUNK)) -> None:
        self._piece = piece

    def chunks(self) -> Iterator[bytes]:
        for _ in range(self.size // CHUNK):
            yield self._piece


@pytest.mark.parametrize("uri", [alg.AES128_GCM, XENC + "aes256-cbc"], ids=short)
def test_large_content_passes_through_in_small_memory(uri: str) -> None:
    cipher = DATA_CIPHERS[uri]
    key, iv = bytes(cipher.key_bytes), bytes(iv_bytes(cipher))
    tracemalloc.start()
    try:
        blob = Sealed(cipher, key, iv, Large())
        plain = decrypt_content(cipher, key, blob, SpoolSink)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert plain.content.size == Large.size
    assert plain.sha256 == hashlib.sha256(bytes(Large.size)).digest()
    assert peak < 6 * MIB


def test_plaintext_is_thrown_away_when_the_tag_is_wrong() -> None:
    cipher = DATA_CIPHERS[alg.AES256_GCM]
    blob = bytearray(
        read_all(
            Sealed(cipher, bytes(32), bytes(12), BytesContent(bytes(MIB))),
            2 * MIB,
        )
    )
    blob[-1] ^= 1
    sink = Recording()
    with pytest.raises(NotDecrypted):
        decrypt_content(cipher, bytes(32), BytesContent(bytes(blob)), lambda: sink)
    assert sink.written == MIB
    assert sink.discarded
    assert not sink.finished


def test_plaintext_is_thrown_away_when_reading_fails() -> None:
    class Failing(Large):
        def chunks(self) -> Iterator[bytes]:
            yield bytes(CHUNK)
            raise OSError("disk gone")

    sink = Recording()
    with pytest.raises(OSError, match="disk gone"):
        decrypt_content(DATA_CIPHERS[alg.AES256_GCM], bytes(32), Failing(), lambda: sink)
    assert sink.discarded
    assert not sink.finished


@pytest.mark.parametrize("uri", DATA_CIPHERS, ids=short)
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000])
def test_sealed_content_knows_its_size_and_reads_the_same_again(uri: str, size: int) -> None:
    cipher = DATA_CIPHERS[uri]
    content = BytesContent(bytes(size))
    sealed_content = Sealed(cipher, bytes(cipher.key_bytes), bytes(iv_bytes(cipher)), content)
    once = b"".join(sealed_content.chunks())
    assert len(once) == sealed_content.size
    assert b"".join(sealed_content.chunks()) == once


def test_a_tampered_attachment_never_reaches_its_sink_as_finished() -> None:
    sent = sealed(to_rsa())
    sinks: list[Recording] = []

    def new_sink() -> Recording:
        sinks.append(Recording())
        return sinks[-1]

    touched = [tampered(one, -1) for one in sent.attachments]
    result = opened(sent, [recipient()], attachments=touched, new_sink=new_sink)
    assert result.details == [CLOSED, CLOSED, CLOSED]
    assert [(sink.finished, sink.discarded) for sink in sinks] == [(False, True)] * 3
