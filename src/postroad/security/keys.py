"""Private keys and certificates out of the files that people have: PEM, DER, PKCS#7, #12, JKS.

What a file is, its content tells, never its name. Whatever is wrong with it is a
`KeyStoreError` with a sentence that says what to do next.
"""

import base64
import binascii
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn, SupportsIndex, TypeVar

from cryptography import x509
from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs7,
)
from cryptography.x509.oid import NameOID

from postroad.security import jks
from postroad.security.der import der_elements
from postroad.security.jks import KeyStoreError as KeyStoreError
from postroad.security.pkcs12 import read_pkcs12

_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_PARENTS: Final = 16
_CONVERT: Final = (
    "convert it with keytool -importkeystore -srcstoretype {} -deststoretype PKCS12 "
    "-srckeystore FILE -destkeystore FILE.p12"
)
_KEY_LABELS: Final = frozenset(
    ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY")
)
_CERTIFICATE_LABELS: Final = frozenset(("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"))
_PKCS7_LABELS: Final = frozenset(("PKCS7", "CMS", "PKCS #7 SIGNED DATA"))

_INTEGER: Final = 0x02
_OID: Final = 0x06

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, repr=False)
class KeyPair:
    """A private key with its certificate, and the certificates above that one, nearest first."""

    private_key: PrivateKeyTypes = field(compare=False)
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...] = ()

    def __post_init__(self) -> None:
        if _public_bytes(self.private_key) != _certified_bytes(self.certificate):
            raise KeyStoreError(
                f"the private key does not fit the certificate {_subject(self.certificate)}; "
                "put each key with the certificate that was issued for it"
            )

    def __repr__(self) -> str:
        return f"KeyPair({_subject(self.certificate)})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a key pair stays in its process: it cannot be pickled or copied")


@dataclass(frozen=True, slots=True)
class NamedKeyPair:
    """A key pair and the alias that it has in its store."""

    alias: str
    pair: KeyPair


@dataclass(frozen=True, slots=True, repr=False)
class BareKey:
    """A private key without its certificate: it opens what is encrypted, but names nobody."""

    private_key: PrivateKeyTypes = field(compare=False)

    def __repr__(self) -> str:
        return "BareKey()"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a key stays in its process: it cannot be pickled or copied")


_Slot = tuple[str, Callable[[], KeyPair]]


def load_key_pairs(
    data: bytes, password: bytes | None = None, *, key_password: bytes | None = None
) -> tuple[NamedKeyPair, ...]:
    """All key pairs of a PEM file, a PKCS#12 or a JKS key store, in the order of the file.

    `key_password` is for a JKS whose keys have another password than the store.
    """
    slots = _slots(data, password, key_password)
    return tuple(NamedKeyPair(alias, opened()) for alias, opened in slots)


def load_opening_keys(data: bytes, password: bytes | None = None) -> tuple[KeyPair | BareKey, ...]:
    """The keys of a file for opening what is encrypted: key pairs, or private keys alone."""
    bare = _guarded(partial(_bare_keys, data, password))
    if bare:
        return bare
    return tuple(named.pair for named in load_key_pairs(data, password))


def _bare_keys(data: bytes, password: bytes | None) -> tuple[BareKey, ...]:
    kind = _kind(data)
    if kind == "key":
        return (BareKey(load_der_private_key(data, password)),)
    if kind == "PEM":
        keys, certificates = _pem(data, password, with_keys=True)
        if not certificates:
            return tuple(BareKey(key) for _, key in keys)
    return ()


def load_key_pair(
    data: bytes,
    password: bytes | None = None,
    alias: str | None = None,
    *,
    key_password: bytes | None = None,
) -> KeyPair:
    """The key pair with this alias, or the only one that there is."""
    slots = _slots(data, password, key_password)
    names = ", ".join(repr(name) for name, _ in slots)
    if alias is None:
        if len(slots) > 1:
            raise KeyStoreError(
                f"there are {len(slots)} private keys inside; name one by its alias: {names}"
            )
        return slots[0][1]()
    found = [opened for name, opened in slots if name.casefold() == alias.casefold()]
    if len(found) != 1:
        how_many = "more than one private key has" if found else "no private key has"
        raise KeyStoreError(f"{how_many} the alias {alias!r}; there are: {names}")
    return found[0]()


def load_certificates(data: bytes, password: bytes | None = None) -> tuple[x509.Certificate, ...]:
    """The certificates of a PEM bundle, DER, PKCS#7, or a PKCS#12 or JKS trust store, each once.

    In a key store those that belong to a key come only where there are no others.
    """
    found = _guarded(partial(_certificates, data, password))
    if not found:
        raise KeyStoreError(
            "there is no certificate inside; export it as PEM (-----BEGIN CERTIFICATE-----)"
        )
    return tuple(dict.fromkeys(found))


def load_trusted(data: bytes, password: bytes | None = None) -> tuple[x509.Certificate, ...]:
    """The certificates of a file that has the password of the keys, or none of its own.

    Without a password a JKS trust store is read as it is: it hides nothing, and nothing tells
    whether somebody changed it.
    """
    try:
        return load_certificates(data, password)
    except KeyStoreError as wrong:
        if password is None:
            raise
        try:
            return load_certificates(data, b"")
        except KeyStoreError:
            raise wrong from None


def _guarded(read: Callable[[], _T]) -> _T:
    """Let only `KeyStoreError` out, and no warning about certificates as they are in the wild."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read()
        except KeyStoreError:
            raise
        except UnsupportedAlgorithm as error:
            raise KeyStoreError(
                f"it uses an algorithm that is not supported ({_one_line(error)}). Use a key of "
                "RSA, EC (NIST, or brainpool r1 with 256, 384 or 512 bits), Ed25519, Ed448, X25519 "
                "or X448"
            ) from None
        except InternalError:
            # What OpenSSL says to a key of its curves that has another length than theirs.
            raise KeyStoreError(
                "the content cannot be read (a key has the wrong length); "
                "check that the file is whole"
            ) from None
        except (ValueError, TypeError, IndexError, OverflowError, x509.InvalidVersion) as error:
            raise KeyStoreError(
                f"the content cannot be read ({_one_line(error)}); check that the file is whole"
            ) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _slots(data: bytes, password: bytes | None, key_password: bytes | None) -> list[_Slot]:
    slots = _guarded(partial(_key_slots, data, password, key_password))
    if not slots:
        raise KeyStoreError(
            "there is no private key inside; use the file that was made when the certificate was "
            "requested, or export key and certificate together as PKCS#12"
        )
    return slots


def _key_slots(data: bytes, password: bytes | None, key_password: bytes | None) -> list[_Slot]:
    kind = _kind(data)
    if kind == "JKS":
        return _jks_slots(data, password, key_password)
    if kind == "PKCS#12":
        return _paired(*_pkcs12(data, password))
    if kind == "PEM":
        return _paired(*_pem(data, password, with_keys=True))
    if kind == "key":
        raise KeyStoreError(
            "this is a private key without its certificate; put both in one PEM file"
        )
    return []


def _certificates(data: bytes, password: bytes | None) -> list[x509.Certificate]:
    kind = _kind(data)
    if kind == "PEM":
        return _pem(data, password, with_keys=False)[1]
    if kind == "PKCS#7":
        return pkcs7.load_der_pkcs7_certificates(data)
    if kind == "PKCS#12":
        store = read_pkcs12(data, password)
        return list(store.others) or ([store.own] if store.own else [])
    if kind == "JKS":
        return _jks_certificates(data, password)
    if kind == "key":
        return []
    return [_der_certificate(data)]


def _kind(data: bytes) -> str:
    """What the content is: PEM, PKCS#7, PKCS#12, JKS, a lone key or a certificate (DER)."""
    if len(data) > _MOST_BYTES:
        raise KeyStoreError(f"it is larger than {_MOST_BYTES} bytes; this is no key or trust store")
    if data.startswith(jks.MAGIC):
        return "JKS"
    if data.startswith(b"\xce\xce\xce\xce"):
        raise KeyStoreError(
            "this is a JCEKS key store, which is not read; " + _CONVERT.format("JCEKS")
        )
    if data[:8] in (b"\0\0\0\1\0\0\0\x14", b"\0\0\0\2\0\0\0\x14"):
        raise KeyStoreError("this is a BKS key store, which is not read; " + _CONVERT.format("BKS"))
    if b"-----BEGIN " in data:
        return "PEM"
    if data[:1] != b"\x30":
        raise KeyStoreError(
            "this is no key or trust store of a known kind; use PEM, DER, PKCS#7, PKCS#12 or JKS"
        )
    return _der_kind(data)


def _der_kind(data: bytes) -> str:
    first = 2 + (data[1] - 0x80 if 0x80 < data[1] <= 0x84 else 0) if len(data) > 1 else len(data)
    head = data[first : first + 3]
    if head == b"\x02\x01\x03":
        return "PKCS#12"
    if head[:1] == bytes([_INTEGER]):
        return "key"
    if head[:1] == bytes([_OID]):
        return "PKCS#7"
    [(_, content, _)] = der_elements(data)
    if der_elements(content)[1][0] == 0x04:
        return "key"
    return "certificate"


def _der_certificate(data: bytes) -> x509.Certificate:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x509.load_der_x509_certificate(data)


_PlainKey = tuple[str, PrivateKeyTypes]
_Key = tuple[str, PrivateKeyTypes | KeyStoreError]


def _pem(
    data: bytes, password: bytes | None, *, with_keys: bool
) -> tuple[list[_PlainKey], list[x509.Certificate]]:
    keys: list[_PlainKey] = []
    certificates: list[x509.Certificate] = []
    for label, block in _pem_blocks(data):
        if label in _CERTIFICATE_LABELS:
            certificates.append(_pem_certificate(block, len(certificates) + 1))
        elif label in _PKCS7_LABELS:
            certificates.extend(pkcs7.load_der_pkcs7_certificates(_armoured(block)))
        elif label in _KEY_LABELS and with_keys:
            keys.append(("", _pem_key(block, password)))
        elif label == "OPENSSH PRIVATE KEY" and with_keys:
            raise KeyStoreError(
                "this is an OpenSSH key; turn it into PKCS#8 with ssh-keygen -p -m PKCS8 -f FILE"
            )
    return keys, certificates


def _pem_blocks(data: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    while (start := data.find(b"-----BEGIN ", at)) >= 0:
        end_of_label = data.find(b"-----", start + 11)
        label = data[start + 11 : end_of_label]
        closing = b"-----END " + label + b"-----"
        end = data.find(closing, end_of_label)
        if end_of_label < 0 or end < 0 or len(label) > 40:
            raise KeyStoreError("a PEM block is begun and not ended; check that the file is whole")
        at = end + len(closing)
        yield label.decode("ascii", "replace"), data[start:at]


def _armoured(block: bytes) -> bytes:
    body = block[block.index(b"-----", 11) + 5 : block.rindex(b"-----END ")]
    try:
        return base64.b64decode(b"".join(body.split()), validate=True)
    except binascii.Error:
        raise KeyStoreError("a PEM block is not in base64; check that the file is whole") from None


def _pem_certificate(block: bytes, position: int) -> x509.Certificate:
    try:
        first = der_elements(_armoured(block))[0]
        return x509.load_der_x509_certificate(first[2])
    except (ValueError, IndexError, x509.InvalidVersion) as error:
        raise KeyStoreError(
            f"certificate {position} of the PEM file cannot be read ({_one_line(error)}); "
            "check that the file is whole"
        ) from None


def _pem_key(block: bytes, password: bytes | None) -> PrivateKeyTypes:
    encrypted = b"ENCRYPTED" in block
    if encrypted and not password:
        raise KeyStoreError("the private key is encrypted; give its password")
    try:
        return load_pem_private_key(block, password if encrypted else None)
    except ValueError as error:
        reason = "the password is wrong or the file is damaged" if encrypted else _one_line(error)
        raise KeyStoreError(
            f"the private key does not open: {reason}; check it with openssl pkey -in FILE"
        ) from None


def _pkcs12(data: bytes, password: bytes | None) -> tuple[list[_Key], tuple[x509.Certificate, ...]]:
    """Keys and certificates of a PKCS#12 store; a key without alias has its certificate's."""
    store = read_pkcs12(data, password)
    named = {_certified_bytes(certificate): name for certificate, name in store.names}
    keys = [(alias or _named(named, key), key) for alias, key in store.keys]
    return keys, (*((store.own,) if store.own else ()), *store.others)


def _named(names: Mapping[bytes, str], key: PrivateKeyTypes | KeyStoreError) -> str:
    return "" if isinstance(key, KeyStoreError) else names.get(_public_bytes(key), "")


def _paired(keys: Sequence[_Key], certificates: Sequence[x509.Certificate]) -> list[_Slot]:
    """Each key with the certificate of its public key and the certificates above that."""
    by_key = {_certified_bytes(item): item for item in reversed(certificates)}
    slots: list[_Slot] = []
    for position, (alias, key) in enumerate(keys, 1):
        if isinstance(key, KeyStoreError):
            slots.append((alias or str(position), partial(_refused, key)))
            continue
        own = by_key.get(_public_bytes(key))
        if own is None:
            raise _without_certificate(certificates)
        pair = KeyPair(key, own, _above(own, certificates))
        slots.append((alias or _common_name(own) or str(position), partial(_given, pair)))
    return slots


def _given(pair: KeyPair) -> KeyPair:
    return pair


def _refused(error: KeyStoreError) -> NoReturn:
    raise KeyStoreError(str(error))


def _without_certificate(certificates: Sequence[x509.Certificate]) -> KeyStoreError:
    if not certificates:
        return KeyStoreError(
            "there is a private key but no certificate; add the certificate to the same file"
        )
    others = "; ".join(_subject(item) for item in certificates[:5])
    return KeyStoreError(
        f"the private key does not fit the certificate inside ({others}); "
        "put each key with the certificate that was issued for it"
    )


def _above(
    own: x509.Certificate, certificates: Sequence[x509.Certificate]
) -> tuple[x509.Certificate, ...]:
    by_subject = {item.subject: item for item in reversed(certificates)}
    chain: list[x509.Certificate] = []
    current = own
    while len(chain) < _MOST_PARENTS and current.issuer != current.subject:
        parent = by_subject.get(current.issuer)
        if parent is None or parent in chain or parent == own:
            break
        chain.append(parent)
        current = parent
    return tuple(chain)


def _characters(password: bytes | None) -> str | None:
    if password is None:
        return None
    try:
        return password.decode()
    except UnicodeDecodeError:
        raise KeyStoreError("the password is not in UTF-8; give it in UTF-8") from None


def _jks_slots(data: bytes, password: bytes | None, key_password: bytes | None) -> list[_Slot]:
    store_password = _characters(password)
    secret = _characters(key_password) if key_password is not None else store_password
    return [
        (entry.alias, partial(_guarded, partial(_jks_pair, entry, secret)))
        for entry in jks.read_jks(data, store_password)
        if isinstance(entry, jks.KeyEntry)
    ]


def _jks_pair(entry: jks.KeyEntry, password: str | None) -> KeyPair:
    if password is None:
        raise KeyStoreError(f"the private key {entry.alias!r} is protected; give its password")
    certificates = [x509.load_der_x509_certificate(item) for item in entry.certificates]
    if not certificates:
        raise _without_certificate(certificates)
    key = load_der_private_key(jks.reveal(entry, password), None)
    return KeyPair(key, certificates[0], tuple(certificates[1:]))


def _jks_certificates(data: bytes, password: bytes | None) -> list[x509.Certificate]:
    entries = jks.read_jks(data, _characters(password))
    trusted = [item.certificate for item in entries if isinstance(item, jks.CertificateEntry)]
    own = [der for item in entries if isinstance(item, jks.KeyEntry) for der in item.certificates]
    return [x509.load_der_x509_certificate(der) for der in trusted or own]


def _public_bytes(key: PrivateKeyTypes) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _certified_bytes(certificate: x509.Certificate) -> bytes:
    """The public key of a certificate; nothing where it is of a kind that no key here has."""
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return b""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _subject(certificate: x509.Certificate) -> str:
    try:
        return certificate.subject.rfc4514_string()
    except ValueError:
        return f"with serial number {certificate.serial_number}"


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""
