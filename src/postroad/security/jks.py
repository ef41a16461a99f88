"""Reading Sun's JKS key stores, as Java gateways have them, to raw entries.

The file is: magic, version (1 or 2), count, the entries, and a SHA-1 digest over the store's
password, the words "Mighty Aphrodite" and all before it. A private key is hidden by XOR with a
chain of SHA-1 digests that starts from the key's password and a salt. Neither is strong: the
format is read, never written.
"""

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"\xfe\xed\xfe\xed"

_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = 20
_PROTECTION: Final = bytes.fromhex("060a2b060104012a02110101")
_KEY_ENTRY: Final = 1
_CERTIFICATE_ENTRY: Final = 2
_MOST_ENTRIES: Final = 10_000
_MOST_CERTIFICATES: Final = 100


class KeyStoreError(ValueError):
    """A key or trust store cannot be used; the sentence tells what to do next."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key, still hidden, with its certificates, the key's own first (all DER)."""

    alias: str
    protected: bytes
    certificates: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"KeyEntry({self.alias!r})"


@dataclass(frozen=True, slots=True)
class CertificateEntry:
    """A certificate that the store's owner trusts (DER)."""

    alias: str
    certificate: bytes


Entry = KeyEntry | CertificateEntry


def read_jks(data: bytes, password: str | None) -> tuple[Entry, ...]:
    """The entries of a store; with a password its digest is checked, as Java does."""
    if not data.startswith(MAGIC):
        raise KeyStoreError("this is not a JKS key store: it starts with other bytes")
    if len(data) < len(MAGIC) + 8 + _DIGEST_BYTES:
        raise _damaged("it ends within its header")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(_characters(password) + _WHITENER + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise KeyStoreError(
                "the JKS key store does not open: the password is wrong or the file is damaged; "
                "check it with keytool -list -keystore FILE"
            )
    return tuple(_entries(_Bytes(body, len(MAGIC))))


def reveal(entry: KeyEntry, password: str) -> bytes:
    """The private key of an entry as PKCS#8 (DER)."""
    salt, hidden, check = _parts(entry)
    secret = _characters(password)
    link = salt
    stream = bytearray()
    while len(stream) < len(hidden):
        link = hashlib.sha1(secret + link).digest()
        stream += link
    size = len(hidden)
    plain = (int.from_bytes(hidden) ^ int.from_bytes(stream[:size])).to_bytes(size)
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), check):
        raise KeyStoreError(
            f"the private key {entry.alias!r} does not open: its password is wrong; a key may have "
            "another password than its store, give it as the key's password"
        )
    return plain


def _parts(entry: KeyEntry) -> tuple[bytes, bytes, bytes]:
    """Salt, hidden key and check of an EncryptedPrivateKeyInfo with Sun's own algorithm."""
    source = _Bytes(entry.protected, 0)
    outer = _Bytes(source.element(0x30), 0)
    algorithm = outer.element(0x30)
    content = outer.element(0x04)
    if not algorithm.startswith(_PROTECTION):
        raise KeyStoreError(
            f"the private key {entry.alias!r} is protected by an algorithm that JKS does not have; "
            "convert the store with keytool -importkeystore -deststoretype PKCS12"
        )
    if len(content) <= 2 * _DIGEST_BYTES:
        raise _damaged(f"the private key {entry.alias!r} is too short")
    return content[:_DIGEST_BYTES], content[_DIGEST_BYTES:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]


def _entries(source: "_Bytes") -> Iterator[Entry]:
    version = source.number(4)
    if version not in (1, 2):
        raise _damaged(f"its version is {version}, known are 1 and 2")
    count = source.number(4)
    if count > _MOST_ENTRIES:
        raise _damaged(f"it claims {count} entries, at most {_MOST_ENTRIES} are read")
    for _ in range(count):
        tag = source.number(4)
        alias = source.name()
        source.take(8)
        if tag == _KEY_ENTRY:
            protected = source.take(source.number(4))
            length = source.number(4)
            if length > _MOST_CERTIFICATES:
                raise _damaged(f"the key {alias!r} claims {length} certificates")
            chain = tuple(_certificate(source, version) for _ in range(length))
            yield KeyEntry(alias, protected, chain)
        elif tag == _CERTIFICATE_ENTRY:
            yield CertificateEntry(alias, _certificate(source, version))
        else:
            raise _damaged(f"it has an entry of the unknown kind {tag}")
    if source.left:
        raise _damaged(f"{source.left} bytes follow its last entry")


def _certificate(source: "_Bytes", version: int) -> bytes:
    if version == 2:
        kind = source.name()
        if kind not in ("X.509", "X509"):
            raise _damaged(f"it has a certificate of the unknown kind {kind[:40]!r}")
    return source.take(source.number(4))


def _characters(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _damaged(reason: str) -> KeyStoreError:
    return KeyStoreError(f"the JKS key store is damaged: {reason}; fetch the file again")


class _Bytes:
    """Bytes that are taken from the front; a claimed length beyond the end is an error."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise _damaged(f"a length of {size} bytes is claimed where {self.left} are left")
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def name(self) -> str:
        """Java's modified UTF-8: two bytes of length; NUL and surrogates written in their way."""
        raw = self.take(self.number(2)).replace(b"\xc0\x80", b"\0")
        try:
            text = raw.decode("utf-8", "surrogatepass")
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise _damaged("a name is not in Java's UTF-8") from None

    def element(self, tag: int) -> bytes:
        """The content of the DER element that comes next."""
        if self.number(1) != tag:
            raise _damaged("a private key is not wrapped as it must be")
        size = self.number(1)
        if size > 0x84 or size == 0x80:
            raise _damaged("a private key is not in DER")
        return self.take(self.number(size - 0x80) if size > 0x80 else size)
