"""Encrypting and decrypting content of any size, in constant memory.

Plaintext is released only after its tag was verified: it goes to a sink, and the sink is
finished or discarded.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from postroad.security.algorithms import DataCipher
from postroad.wire.content import Content, NewSink, Sink

_IV = 12
_TAG = 16


class NotDecrypted(Exception):
    """It did not decrypt. Says nothing more, on purpose."""


@dataclass(frozen=True, slots=True)
class Plain:
    content: Content
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Sealed:
    """Content encrypted as it is read: IV, ciphertext and (for GCM) tag (XML Encryption 5.2).

    Read again it gives the same bytes, so nothing encrypted need ever be kept.
    """

    cipher: DataCipher
    key: bytes
    iv: bytes
    content: Content

    @property
    def size(self) -> int:
        if self.cipher.mode == "GCM":
            return _IV + self.content.size + _TAG
        block = iv_bytes(self.cipher)
        return block + (self.content.size // block + 1) * block

    def chunks(self) -> Iterator[bytes]:
        yield from _joined(self.iv, _gcm(self) if self.cipher.mode == "GCM" else _cbc(self))

    def __repr__(self) -> str:
        return f"Sealed({self.size} bytes)"


def _joined(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The first few bytes travel with the piece after them."""
    for piece in pieces:
        yield first + piece if first else piece
        first = b""


def iv_bytes(cipher: DataCipher) -> int:
    return {"GCM": _IV, "CBC": 16, "3DES-CBC": 8}[cipher.mode]


def _gcm(sealed: Sealed) -> Iterator[bytes]:
    encryptor = Cipher(algorithms.AES(sealed.key), modes.GCM(sealed.iv)).encryptor()
    for chunk in sealed.content.chunks():
        yield encryptor.update(chunk)
    yield encryptor.finalize() + encryptor.tag


def _block_cipher(cipher: DataCipher, key: bytes) -> algorithms.AES | TripleDES:
    return TripleDES(key) if cipher.mode == "3DES-CBC" else algorithms.AES(key)


def _cbc(sealed: Sealed) -> Iterator[bytes]:
    block = iv_bytes(sealed.cipher)
    cipher = Cipher(_block_cipher(sealed.cipher, sealed.key), modes.CBC(sealed.iv))
    encryptor = cipher.encryptor()
    for chunk in sealed.content.chunks():
        yield encryptor.update(chunk)
    pad = block - sealed.content.size % block
    yield encryptor.update(bytes(pad - 1) + bytes((pad,))) + encryptor.finalize()


def decrypt_content(cipher: DataCipher, key: bytes, content: Content, new_sink: NewSink) -> Plain:
    """The plaintext with its digest; `NotDecrypted` for anything that is not right."""
    sink = new_sink()
    digest = hashlib.sha256()
    try:
        if cipher.mode == "GCM":
            _decrypt_gcm(key, content, sink, digest)
        else:
            _decrypt_cbc(cipher, key, content, sink, digest)
    except BaseException:
        sink.discard()
        raise
    return Plain(sink.finish(), digest.digest())


def _decrypt_gcm(key: bytes, content: Content, sink: Sink, digest: "hashlib._Hash") -> None:
    left = content.size - _IV - _TAG
    if left < 0:
        raise NotDecrypted
    decryptor, held = None, b""
    for chunk in content.chunks():
        data = held + chunk if held else chunk
        if decryptor is None:
            if len(data) < _IV:
                held = data
                continue
            decryptor = Cipher(algorithms.AES(key), modes.GCM(data[:_IV])).decryptor()
            data = data[_IV:]
        take, held = data[:left], data[left:]
        left -= len(take)
        if take:
            plain = decryptor.update(take)
            digest.update(plain)
            sink.write(plain)
    if decryptor is None or len(held) != _TAG:
        raise NotDecrypted
    try:
        decryptor.finalize_with_tag(held)
    except InvalidTag:
        raise NotDecrypted from None


def _decrypt_cbc(
    cipher: DataCipher, key: bytes, content: Content, sink: Sink, digest: "hashlib._Hash"
) -> None:
    block = iv_bytes(cipher)
    if content.size < 2 * block or content.size % block:
        raise NotDecrypted
    last = b""
    for plain in _cbc_plain(_block_cipher(cipher, key), block, content):
        whole = last + plain
        out, last = whole[:-block], whole[-block:]
        digest.update(out)
        sink.write(out)
    pad = last[-1] if last else 0
    if not 1 <= pad <= block:
        raise NotDecrypted
    digest.update(last[:-pad])
    sink.write(last[:-pad])


def _cbc_plain(
    block_cipher: algorithms.AES | TripleDES, block: int, content: Content
) -> Iterator[bytes]:
    decryptor, held = None, b""
    for chunk in content.chunks():
        data = held + chunk
        held = b""
        if decryptor is None:
            if len(data) < block:
                held = data
                continue
            decryptor = Cipher(block_cipher, modes.CBC(data[:block])).decryptor()
            data = data[block:]
        yield decryptor.update(data)
