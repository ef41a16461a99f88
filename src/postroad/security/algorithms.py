"""Algorithms by their URI, as data: what each is, and whether it is too weak to be taken unasked.

Weak ones (SHA-1, MD5, RSA 1.5, CBC, Triple DES) work, but only where an agreement names them.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from postroad.wire.names import (
    DS,
    DSIG_MORE_2001,
    DSIG_MORE_2007,
    DSIG_MORE_2021,
    XENC,
    XENC11,
)

if TYPE_CHECKING:
    from hashlib import _Hash

SHA1: Final = DS + "sha1"
SHA256: Final = XENC + "sha256"
SHA384: Final = DSIG_MORE_2001 + "sha384"
SHA512: Final = XENC + "sha512"

RSA_SHA256: Final = DSIG_MORE_2001 + "rsa-sha256"
RSA_PSS_SHA256: Final = DSIG_MORE_2007 + "sha256-rsa-MGF1"
ECDSA_SHA256: Final = DSIG_MORE_2001 + "ecdsa-sha256"
ED25519: Final = DSIG_MORE_2021 + "eddsa-ed25519"
ED448: Final = DSIG_MORE_2021 + "eddsa-ed448"

AES128_GCM: Final = XENC11 + "aes128-gcm"
AES256_GCM: Final = XENC11 + "aes256-gcm"

RSA_OAEP: Final = XENC11 + "rsa-oaep"
RSA_OAEP_MGF1P: Final = XENC + "rsa-oaep-mgf1p"
RSA_1_5: Final = XENC + "rsa-1_5"
ECDH_ES: Final = XENC11 + "ECDH-ES"
X25519: Final = DSIG_MORE_2021 + "x25519"
X448: Final = DSIG_MORE_2021 + "x448"
CONCAT_KDF: Final = XENC11 + "ConcatKDF"
HKDF: Final = DSIG_MORE_2021 + "hkdf"
MGF1_SHA1: Final = XENC11 + "mgf1sha1"
MGF1_SHA256: Final = XENC11 + "mgf1sha256"


@dataclass(frozen=True, slots=True)
class Digest:
    uri: str
    name: str
    new: "Callable[..., _Hash]"
    primitive: Callable[[], hashes.HashAlgorithm]
    weak: bool = False


def _digest(uri: str, name: str, primitive: type[hashes.HashAlgorithm], weak: bool) -> Digest:
    constructor = getattr(hashlib, name)
    return Digest(uri, name, constructor, primitive, weak)


DIGESTS: Final[Mapping[str, Digest]] = {
    digest.uri: digest
    for digest in (
        _digest(DSIG_MORE_2001 + "md5", "md5", hashes.MD5, weak=True),
        _digest(SHA1, "sha1", hashes.SHA1, weak=True),
        _digest(DSIG_MORE_2001 + "sha224", "sha224", hashes.SHA224, weak=False),
        _digest(SHA256, "sha256", hashes.SHA256, weak=False),
        _digest(SHA384, "sha384", hashes.SHA384, weak=False),
        _digest(SHA512, "sha512", hashes.SHA512, weak=False),
        _digest(DSIG_MORE_2007 + "sha3-256", "sha3_256", hashes.SHA3_256, weak=False),
        _digest(DSIG_MORE_2007 + "sha3-384", "sha3_384", hashes.SHA3_384, weak=False),
        _digest(DSIG_MORE_2007 + "sha3-512", "sha3_512", hashes.SHA3_512, weak=False),
    )
}


class Scheme(Enum):
    """How a signature value is made; also which kind of key it takes."""

    RSA = "RSA"
    RSA_PSS = "RSA-PSS"
    ECDSA = "ECDSA"
    ED25519 = "Ed25519"
    ED448 = "Ed448"
    DSA = "DSA"
    HMAC = "HMAC"


@dataclass(frozen=True, slots=True)
class SignatureAlgorithm:
    uri: str
    scheme: Scheme
    digest: Digest | None
    weak: bool = False


def _signatures() -> dict[str, SignatureAlgorithm]:
    by_name = {digest.name: digest for digest in DIGESTS.values()}
    rows: list[tuple[str, Scheme, str | None, bool]] = [
        (DSIG_MORE_2001 + "rsa-md5", Scheme.RSA, "md5", True),
        (DS + "rsa-sha1", Scheme.RSA, "sha1", True),
        (DS + "dsa-sha1", Scheme.DSA, "sha1", True),
        (DSIG_MORE_2001 + "ecdsa-sha1", Scheme.ECDSA, "sha1", True),
        (DSIG_MORE_2007 + "sha1-rsa-MGF1", Scheme.RSA_PSS, "sha1", True),
        (DS + "hmac-sha1", Scheme.HMAC, "sha1", True),
        (ED25519, Scheme.ED25519, None, False),
        (ED448, Scheme.ED448, None, False),
    ]
    for name in ("sha224", "sha256", "sha384", "sha512"):
        rows += [
            (DSIG_MORE_2001 + f"rsa-{name}", Scheme.RSA, name, False),
            (DSIG_MORE_2001 + f"ecdsa-{name}", Scheme.ECDSA, name, False),
            (DSIG_MORE_2001 + f"hmac-{name}", Scheme.HMAC, name, True),
            (DSIG_MORE_2007 + f"{name}-rsa-MGF1", Scheme.RSA_PSS, name, False),
        ]
    for name in ("sha3-256", "sha3-384", "sha3-512"):
        rows += [
            (DSIG_MORE_2007 + f"{name}-rsa-MGF1", Scheme.RSA_PSS, name.replace("-", "_"), False),
            (DSIG_MORE_2021 + f"ecdsa-{name}", Scheme.ECDSA, name.replace("-", "_"), False),
        ]
    return {
        uri: SignatureAlgorithm(uri, scheme, by_name[name] if name else None, weak)
        for uri, scheme, name, weak in rows
    }


SIGNATURES: Final[Mapping[str, SignatureAlgorithm]] = _signatures()


@dataclass(frozen=True, slots=True)
class DataCipher:
    uri: str
    key_bytes: int
    mode: str
    """`GCM`, `CBC` (AES) or `3DES-CBC`."""
    weak: bool = False


DATA_CIPHERS: Final[Mapping[str, DataCipher]] = {
    cipher.uri: cipher
    for cipher in (
        DataCipher(AES128_GCM, 16, "GCM"),
        DataCipher(XENC11 + "aes192-gcm", 24, "GCM"),
        DataCipher(AES256_GCM, 32, "GCM"),
        DataCipher(XENC + "aes128-cbc", 16, "CBC", weak=True),
        DataCipher(XENC + "aes192-cbc", 24, "CBC", weak=True),
        DataCipher(XENC + "aes256-cbc", 32, "CBC", weak=True),
        DataCipher(XENC + "tripledes-cbc", 24, "3DES-CBC", weak=True),
    )
}

KEY_TRANSPORTS: Final[Mapping[str, bool]] = {
    RSA_OAEP: False,
    RSA_OAEP_MGF1P: False,
    RSA_1_5: True,
}
"""Key transport by URI, and whether it is weak."""

KEY_WRAPS: Final[Mapping[str, int]] = {
    XENC + "kw-aes128": 16,
    XENC + "kw-aes192": 24,
    XENC + "kw-aes256": 32,
}
"""AES key wrap by URI, and the size of the wrapping key in bytes."""

MGFS: Final[Mapping[str, Digest]] = {
    XENC11 + f"mgf1{name}": next(d for d in DIGESTS.values() if d.name == name)
    for name in ("sha1", "sha224", "sha256", "sha384", "sha512")
}


PRFS: Final[Mapping[str, Digest]] = {
    DSIG_MORE_2001 + f"hmac-{name}": next(d for d in DIGESTS.values() if d.name == name)
    for name in ("sha224", "sha256", "sha384", "sha512")
}

CURVES: Final[Mapping[str, ec.EllipticCurve]] = {
    "1.2.840.10045.3.1.7": ec.SECP256R1(),
    "1.3.132.0.34": ec.SECP384R1(),
    "1.3.132.0.35": ec.SECP521R1(),
    "1.3.36.3.3.2.8.1.1.7": ec.BrainpoolP256R1(),
    "1.3.36.3.3.2.8.1.1.11": ec.BrainpoolP384R1(),
    "1.3.36.3.3.2.8.1.1.13": ec.BrainpoolP512R1(),
}


_WEAK: Final = frozenset(
    uri
    for table in (DIGESTS, SIGNATURES, DATA_CIPHERS)
    for uri, algorithm in table.items()
    if algorithm.weak
) | {uri for uri, weak in KEY_TRANSPORTS.items() if weak}


_SHARED: Final = frozenset(
    uri for uri, algorithm in SIGNATURES.items() if algorithm.scheme is Scheme.HMAC
)


def _short(uri: str) -> str:
    return uri.rpartition("#")[2] or uri


def is_weak(uri: str) -> bool:
    """Whether the algorithm is taken only where an agreement names it."""
    return uri in _WEAK


@dataclass(frozen=True, slots=True)
class Algorithms:
    """Which algorithms a receiver takes: all strong ones, and the weak ones that are named."""

    named: frozenset[str] = frozenset()
    only: bool = False
    """Take nothing but the named ones (an agreement that fixes its algorithms)."""
    legacy: bool = False
    """Take every weak one too."""

    def refuse(self, uri: str) -> str | None:
        """Why the algorithm is not taken, or None when it is."""
        if uri in _SHARED:
            return f"{_short(uri)} cannot prove who signed: its key is shared"
        weak = uri in _WEAK
        if uri in self.named or not (weak or self.only):
            return None
        if weak and not self.legacy:
            return f"{_short(uri)} is too weak; it is accepted only where the P-Mode names it"
        if self.only:
            return f"{_short(uri)} is not one of the agreed algorithms"
        return None


STRONG: Final = Algorithms()
