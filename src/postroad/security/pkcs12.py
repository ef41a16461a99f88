"""PKCS#12 key stores: their keys and certificates, or the reason why they cannot be read.

`cryptography` does the decryption. It returns one key of a store and answers most failures with
the same sentence, so the bags are listed here, and a store that does not open is diagnosed here:
is the file damaged, is the password wrong, or is the encryption one that is not supported
(RFC 7292, RFC 8018, RFC 9579)?
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_der_private_key, pkcs12

from postroad.security.der import der_elements, oid_text
from postroad.security.jks import KeyStoreError

_MOST_REMEMBERED: Final = 8
_MOST_ITERATIONS: Final = 5_000_000
_MAC_KEY: Final = 3
_INDEFINITE: Final = 0x80

_DATA: Final = "1.2.840.113549.1.7.1"
_SIGNED_DATA: Final = "1.2.840.113549.1.7.2"
_ENVELOPED_DATA: Final = "1.2.840.113549.1.7.3"
_ENCRYPTED_DATA: Final = "1.2.840.113549.1.7.6"
_KEY_BAG: Final = "1.2.840.113549.1.12.10.1.1"
_SHROUDED_KEY_BAG: Final = "1.2.840.113549.1.12.10.1.2"
_FRIENDLY_NAME: Final = "1.2.840.113549.1.9.20"
_PBES2: Final = "1.2.840.113549.1.5.13"
_PBMAC1: Final = "1.2.840.113549.1.5.14"

_DIGESTS: Final = {
    "1.2.840.113549.2.5": "md5",
    "1.3.14.3.2.26": "sha1",
    "2.16.840.1.101.3.4.2.4": "sha224",
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}
_CIPHERS: Final = {
    "1.2.840.113549.1.5.3": "pbeWithMD5AndDES-CBC",
    "1.2.840.113549.1.5.10": "pbeWithSHA1AndDES-CBC",
    "1.2.840.113549.1.12.1.1": "pbeWithSHAAnd128BitRC4",
    "1.2.840.113549.1.12.1.3": "pbeWithSHAAnd3-KeyTripleDES-CBC",
    "1.2.840.113549.1.12.1.4": "pbeWithSHAAnd2-KeyTripleDES-CBC",
    "1.2.840.113549.1.12.1.5": "pbeWithSHAAnd128BitRC2-CBC",
    "1.2.840.113549.1.12.1.6": "pbeWithSHAAnd40BitRC2-CBC",
    "1.2.840.113549.3.7": "des-EDE3-CBC",
    "1.3.14.3.2.7": "desCBC",
    "2.16.840.1.101.3.4.1.2": "aes128-CBC",
    "2.16.840.1.101.3.4.1.22": "aes192-CBC",
    "2.16.840.1.101.3.4.1.42": "aes256-CBC",
}
_AGAIN: Final = "Export the store again with AES: openssl pkcs12 -export -keypbe AES-256-CBC"

Key = PrivateKeyTypes | KeyStoreError


@dataclass(frozen=True, slots=True, repr=False)
class Pkcs12Store:
    """The content of a store. A key that cannot be opened is its error."""

    keys: tuple[tuple[str, Key], ...]
    """Each with its alias, in the order of the file."""
    own: x509.Certificate | None
    """The certificate of the first key."""
    others: tuple[x509.Certificate, ...]
    names: tuple[tuple[x509.Certificate, str], ...]
    """The alias of each certificate that has one."""


@lru_cache(maxsize=_MOST_REMEMBERED)
def read_pkcs12(data: bytes, password: bytes | None) -> Pkcs12Store:
    """Return the content of a store; `KeyStoreError` says why it cannot be read.

    Remembered: a node opens the same store for itself, its P-Modes and its listeners, and the
    check of an RSA key takes longer than everything else at its start.
    """
    key, own, others, names = _open(data, password)
    return Pkcs12Store(_keys(data, password, key), own, others, names)


_Opened = tuple[
    PrivateKeyTypes | None,
    x509.Certificate | None,
    tuple[x509.Certificate, ...],
    tuple[tuple[x509.Certificate, str], ...],
]


def _open(data: bytes, password: bytes | None) -> _Opened:
    for attempt in (password,) if password else (None, b""):
        try:
            return _opened(data, attempt)
        except ValueError:
            continue
    raise _diagnosis(data, password)


def _opened(data: bytes, password: bytes | None) -> _Opened:
    try:
        store = pkcs12.load_pkcs12(data, password)
    except TypeError:
        # The class that it returns refuses X25519 and X448 keys; the function beside it does not.
        key, own, others = pkcs12.load_key_and_certificates(data, password)
        return key, own, tuple(others), ()
    held = [*([store.cert] if store.cert else []), *store.additional_certs]
    return (
        store.key,
        store.cert.certificate if store.cert else None,
        tuple(item.certificate for item in store.additional_certs),
        tuple((item.certificate, _text(item.friendly_name)) for item in held if item.friendly_name),
    )


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace").rstrip("\0")


def _keys(
    data: bytes, password: bytes | None, first: PrivateKeyTypes | None
) -> tuple[tuple[str, Key], ...]:
    """Return every key of a store: the library returns the first one only."""
    try:
        bags = list(_key_bags(data))
    except (ValueError, IndexError):
        bags = []
    if first is not None and len(bags) <= 1:
        return ((bags[0].name if bags else "", first),)
    return tuple((bag.name, _unwrapped(bag, password)) for bag in bags)


@dataclass(frozen=True, slots=True)
class _KeyBag:
    name: str
    value: bytes
    shrouded: bool


def _unwrapped(bag: _KeyBag, password: bytes | None) -> Key:
    try:
        return load_der_private_key(bag.value, (password or b"") if bag.shrouded else None)
    except UnsupportedAlgorithm as error:
        reason = " ".join(str(error).split())[:200]
        return KeyStoreError(
            f"the private key {bag.name!r} is of a kind that is not supported ({reason}). "
            "Use RSA, EC, Ed25519, Ed448, X25519 or X448"
        )
    except (ValueError, TypeError):
        return _other_password(f"the private key {bag.name!r}")


def _other_password(what: str) -> KeyStoreError:
    return KeyStoreError(
        f"the password opens the PKCS#12 store, but not {what}. "
        "Give the key the same password as the store: keytool -keypasswd, or export it again"
    )


def _key_bags(data: bytes) -> Iterator[_KeyBag]:
    """List the keys of a store that are not within encrypted content."""
    for kind, content in _contents(data):
        if kind != _DATA:
            continue
        for _, bag, _ in der_elements(_inner(_inner(content))):
            (_, bag_kind, _), (_, value, _), *attributes = der_elements(bag)
            name = oid_text(bag_kind)
            if name in (_KEY_BAG, _SHROUDED_KEY_BAG):
                yield _KeyBag(_friendly_name(attributes), value, name == _SHROUDED_KEY_BAG)


def _friendly_name(attributes: Sequence[tuple[int, bytes, bytes]]) -> str:
    for _, attribute, _ in der_elements(attributes[0][1]) if attributes else ():
        (_, kind, _), (_, values, _) = der_elements(attribute)
        if oid_text(kind) == _FRIENDLY_NAME:
            return der_elements(values)[0][1].decode("utf-16-be", "replace").rstrip("\0")
    return ""


def _inner(content: bytes) -> bytes:
    return der_elements(content)[0][1]


def _pfx(data: bytes) -> tuple[str, bytes, bytes | None]:
    """Return the kind and content of the authenticated safe, and the MacData if there is any."""
    [_, (_, safe, _), *mac] = der_elements(_inner(data))
    (_, kind, _), (_, content, _) = der_elements(safe)
    return oid_text(kind), content, mac[0][1] if mac else None


def _contents(data: bytes) -> list[tuple[str, bytes]]:
    """List the ContentInfos of a store: kind, and what is explicitly tagged in each."""
    _, safe, _ = _pfx(data)
    found = []
    for _, info, _ in der_elements(_inner(_inner(safe))):
        (_, kind, _), (_, content, _) = der_elements(info)
        found.append((oid_text(kind), content))
    return found


# a store that does not open


def _diagnosis(data: bytes, password: bytes | None) -> KeyStoreError:
    """Find out why a store does not open."""
    if len(data) > 1 and data[1] == _INDEFINITE:
        return _closed(password, certain=False)
    try:
        kind, safe, mac = _pfx(data)
        if kind != _DATA:
            return _unsupported(f"integrity by {_kind_name(kind)}")
        kinds = {found for found, _ in _contents(data)} - {_DATA, _ENCRYPTED_DATA}
        if kinds:
            return _unsupported(" and ".join(sorted(_kind_name(kind) for kind in kinds)))
        ciphers = list(dict.fromkeys(_ciphers(data)))
        verified = _mac_holds(mac, _inner(safe), password) if mac is not None else None
    except (ValueError, IndexError) as error:
        return KeyStoreError(
            f"the PKCS#12 file is damaged: its structure is broken ({error}). "
            "Copy it again, in binary mode, or export it again"
        )
    except UnsupportedAlgorithm as error:
        return _unsupported(str(error))
    if verified is False:
        return _closed(password)
    unknown = [cipher for cipher in ciphers if cipher not in _CIPHERS]
    if unknown:
        return _unsupported(f"encryption by {', '.join(unknown)}")
    if verified:
        return _other_password("what is inside")
    return _closed(password, certain=False)


def _closed(password: bytes | None, *, certain: bool = True) -> KeyStoreError:
    if not password:
        return KeyStoreError(
            "the PKCS#12 store does not open: it needs a password. Give it, or export without one"
        )
    reason = "the password is wrong" if certain else "the password is wrong or it is damaged"
    return KeyStoreError(
        f"the PKCS#12 store does not open: {reason}. Check the password with "
        "openssl pkcs12 -info -noout -in FILE (old ones with -legacy); if it is right, the file "
        "was changed: copy it again"
    )


def _unsupported(what: str) -> KeyStoreError:
    return KeyStoreError(f"the PKCS#12 store uses {what}, which is not supported. {_AGAIN}")


def _kind_name(kind: str) -> str:
    known = {_SIGNED_DATA: "a signature (SignedData)", _ENVELOPED_DATA: "a key (EnvelopedData)"}
    return known.get(kind, kind)


def _ciphers(data: bytes) -> Iterator[str]:
    """List the encryption algorithms of a store."""
    for kind, content in _contents(data):
        if kind == _ENCRYPTED_DATA:
            [_, (_, encrypted, _), *_] = der_elements(_inner(content))
            yield from _cipher(der_elements(encrypted)[1][1])
    for bag in _key_bags(data):
        if bag.shrouded:
            yield from _cipher(_inner(_inner(bag.value)))


def _cipher(identifier: bytes) -> Iterable[str]:
    """Return the cipher of an AlgorithmIdentifier; for PBES2 the one that it names."""
    (_, kind, _), *parameters = der_elements(identifier)
    name = oid_text(kind)
    if name != _PBES2:
        return (name,)
    _, (_, scheme, _) = der_elements(parameters[0][1])
    return (oid_text(_inner(scheme)),)


def _mac_holds(mac: bytes, content: bytes, password: bytes | None) -> bool | None:
    """Whether the MAC over the content fits the password; None if that cannot be found out."""
    (_, info, _), (_, salt, _), *count = der_elements(mac)
    (_, algorithm, _), (_, expected, _) = der_elements(info)
    name = oid_text(_inner(algorithm))
    iterations = int.from_bytes(count[0][1]) if count else 1
    if name == _PBMAC1 or iterations > _MOST_ITERATIONS:
        return None
    if name not in _DIGESTS:
        raise UnsupportedAlgorithm(f"integrity by {name}")
    passwords = (password,) if password else (None, b"")
    return any(
        hmac.compare_digest(
            expected,
            hmac.digest(_mac_key(_DIGESTS[name], one, salt, iterations), content, _DIGESTS[name]),
        )
        for one in passwords
    )


def _mac_key(digest: str, password: bytes | None, salt: bytes, iterations: int) -> bytes:
    """Derive the MAC's key, which is as long as the digest (RFC 7292 appendix B.2)."""
    block = hashlib.new(digest, usedforsecurity=False).block_size
    secret = b"" if password is None else password.decode().encode("utf-16-be") + b"\0\0"
    key = bytes([_MAC_KEY]) * block + _repeated(salt, block) + _repeated(secret, block)
    for _ in range(iterations):
        key = hashlib.new(digest, key, usedforsecurity=False).digest()
    return key


def _repeated(value: bytes, block: int) -> bytes:
    if not value:
        return b""
    size = -(-len(value) // block) * block
    return (value * (size // len(value) + 1))[:size]
