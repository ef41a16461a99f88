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


def encrypt_content(
    cipher: DataCipher, key: bytes, iv: bytes, content: Content, new_sink: NewSink
) -> Content:
    """IV, ciphertext and (for GCM) tag, as XML Encryption lays them out."""
    sink = new_sink()
    try:
        sink.write(iv)
        if cipher.mode == "GCM":
            _encrypt_gcm(key, iv, content, sink)
        else:
            _encrypt_cbc(cipher, key, iv, content, sink)
    except BaseException:
        sink.discard()
        raise
    return sink.finish()


def iv_bytes(cipher: DataCipher) -> int:
    return {"GCM": _IV, "CBC": 16, "3DES-CBC": 8}[cipher.mode]


def _encrypt_gcm(key: bytes, iv: bytes, content: Content, sink: Sink) -> None:
    encryptor = Cipher(algorithms.AES(key), modes.GCM(iv)).encryptor()
    for chunk in content.chunks():
        sink.write(encryptor.update(chunk))
    sink.write(encryptor.finalize())
    sink.write(encryptor.tag)


def _block_cipher(cipher: DataCipher, key: bytes) -> algorithms.AES | TripleDES:
    return TripleDES(key) if cipher.mode == "3DES-CBC" else algorithms.AES(key)


def _encrypt_cbc(cipher: DataCipher, key: bytes, iv: bytes, content: Content, sink: Sink) -> None:
    block = iv_bytes(cipher)
    encryptor = Cipher(_block_cipher(cipher, key), modes.CBC(iv)).encryptor()
    for chunk in content.chunks():
        sink.write(encryptor.update(chunk))
    pad = block - content.size % block
    sink.write(encryptor.update(bytes(pad - 1) + bytes((pad,))) + encryptor.finalize())


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
