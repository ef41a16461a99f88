"""The cryptographic algorithms that a P-Mode may name: short names, URIs, and which are weak.

A P-Mode keeps URIs. No default is ever weak: a weak one is used only where a P-Mode names it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from postroad.security.algorithms import is_weak
from postroad.wire.names import (
    DS,
    DSIG_MORE_2001,
    DSIG_MORE_2007,
    DSIG_MORE_2021,
    XENC,
    XENC11,
)

_PREFIXES: Final = {
    "ds": DS,
    "more2001": DSIG_MORE_2001,
    "more2007": DSIG_MORE_2007,
    "more2021": DSIG_MORE_2021,
    "xenc": XENC,
    "xenc11": XENC11,
}

_TABLE = """
signature     rsa-sha256       more2001 rsa-sha256
signature     rsa-sha384       more2001 rsa-sha384
signature     rsa-sha512       more2001 rsa-sha512
signature     rsa-pss-sha256   more2007 sha256-rsa-MGF1
signature     rsa-pss-sha384   more2007 sha384-rsa-MGF1
signature     rsa-pss-sha512   more2007 sha512-rsa-MGF1
signature     ecdsa-sha256     more2001 ecdsa-sha256
signature     ecdsa-sha384     more2001 ecdsa-sha384
signature     ecdsa-sha512     more2001 ecdsa-sha512
signature     eddsa-ed25519    more2021 eddsa-ed25519
signature     eddsa-ed448      more2021 eddsa-ed448
signature     rsa-sha1         ds       rsa-sha1
signature     dsa-sha1         ds       dsa-sha1
signature     rsa-md5          more2001 rsa-md5
signature     ecdsa-sha1       more2001 ecdsa-sha1
digest        sha256           xenc     sha256
digest        sha384           more2001 sha384
digest        sha512           xenc     sha512
digest        sha1             ds       sha1
digest        md5              more2001 md5
encryption    aes128-gcm       xenc11   aes128-gcm
encryption    aes192-gcm       xenc11   aes192-gcm
encryption    aes256-gcm       xenc11   aes256-gcm
encryption    aes128-cbc       xenc     aes128-cbc
encryption    aes192-cbc       xenc     aes192-cbc
encryption    aes256-cbc       xenc     aes256-cbc
encryption    tripledes-cbc    xenc     tripledes-cbc
key_transport rsa-oaep         xenc11   rsa-oaep
key_transport rsa-oaep-mgf1p   xenc     rsa-oaep-mgf1p
key_transport rsa-1_5          xenc     rsa-1_5
key_agreement x25519           more2021 x25519
key_agreement x448             more2021 x448
key_agreement ecdh-es          xenc11   ECDH-ES
kdf           hkdf             more2021 hkdf
kdf           concat-kdf       xenc11   ConcatKDF
key_wrap      kw-aes128        xenc     kw-aes128
key_wrap      kw-aes192        xenc     kw-aes192
key_wrap      kw-aes256        xenc     kw-aes256
mgf           mgf1sha256       xenc11   mgf1sha256
mgf           mgf1sha384       xenc11   mgf1sha384
mgf           mgf1sha512       xenc11   mgf1sha512
mgf           mgf1sha224       xenc11   mgf1sha224
mgf           mgf1sha1         xenc11   mgf1sha1
"""


def _rows() -> dict[str, dict[str, str]]:
    names: dict[str, dict[str, str]] = {}
    for line in _TABLE.strip().splitlines():
        kind, short, prefix, fragment = line.split()
        names.setdefault(kind, {})[short] = _PREFIXES[prefix] + fragment
    return names


ALGORITHMS: Mapping[str, Mapping[str, str]] = MappingProxyType(_rows())
"""By kind (`signature`, `digest`, …) the short names and their URIs."""

WEAK: Final = frozenset(
    uri for names in ALGORITHMS.values() for uri in names.values() if is_weak(uri)
)

_STRENGTH: Final = {"aes128": 128, "aes192": 192, "aes256": 256, "tripledes": 112}


def algorithm_uri(kind: str, value: str) -> str:
    """The URI of an algorithm given by short name or by URI."""
    names = ALGORITHMS[kind]
    if value in names.values():
        return value
    uri = names.get(value.lower().replace("rsa-1.5", "rsa-1_5"))
    if uri is None:
        what = kind.replace("_", " ").replace("kdf", "key derivation")
        raise ValueError(f"{value!r} is no {what} algorithm known here; known: {', '.join(names)}")
    return uri


def short_name(uri: str) -> str:
    """The short name of an algorithm's URI, for people to read."""
    for names in ALGORITHMS.values():
        for short, known in names.items():
            if known == uri:
                return short
    return uri


def strength(encryption_uri: str) -> int:
    """The strength in bits of a data encryption algorithm."""
    return _STRENGTH[short_name(encryption_uri).split("-")[0]]
