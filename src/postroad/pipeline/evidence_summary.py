"""The signed summary of an evidence check: plain JSON, a signature and a certificate beside it.

Anybody can verify it: the signature is over the bytes of the file, RSA (PKCS #1 v1.5) or ECDSA
with SHA-256, as `openssl dgst -sha256 -verify` takes it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from postroad import __version__
from postroad.msh.proof import trust_in
from postroad.pipeline.evidence import Believing
from postroad.pipeline.evidence_run import Counts, Outcome, counted
from postroad.pipeline.lake import Lake
from postroad.pipeline.schema import EVIDENCE
from postroad.security.keys import KeyPair, load_certificates
from postroad.store.places import Place
from postroad.wire.errors import EbmsError

SIGNATURE: Final = ".sig"
CERTIFICATE: Final = ".pem"
KIND: Final = "postroad evidence summary 1"


class WrongSummary(Exception):
    """The summary does not hold; the message says why."""


class TrustedOne(msgspec.Struct, frozen=True):
    """A certificate that was trusted."""

    subject: str
    sha256: str


class Summary(msgspec.Struct, frozen=True):
    """What was found, by whom, and on what ground."""

    kind: str
    tool: str
    made_at: datetime
    lake: str
    run: Counts
    table: Counts
    first_at: datetime | None
    last_at: datetime | None
    elsewhere: dict[str, int]
    trusted: tuple[TrustedOne, ...]
    files: dict[str, str]
    """Every file of the table with its SHA-256, in hex."""


def summary(lake: Lake, outcome: Outcome, believing: Believing, now: datetime) -> bytes:
    """The summary of the table as it is now, in JSON."""
    trusted = tuple(
        TrustedOne(one.subject.rfc4514_string(), one.fingerprint(hashes.SHA256()).hex())
        for one in load_certificates(believing.certificates)
    )
    made = Summary(
        KIND,
        f"postroad {__version__}",
        now,
        lake.url,
        outcome.run,
        counted(lake.read(EVIDENCE.name)),
        outcome.first_at,
        outcome.last_at,
        outcome.elsewhere,
        trusted,
        _files(lake.url),
    )
    return msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n"


def _files(lake: str) -> dict[str, str]:
    place = Place.of(f"{lake.rstrip('/')}/{EVIDENCE.name}")
    return {name: place.digest(name) for name in place.names()}


def sign(data: bytes, pair: KeyPair) -> tuple[bytes, bytes]:
    """The signature of a summary, and the certificate with its chain in PEM."""
    key = pair.private_key
    if isinstance(key, rsa.RSAPrivateKey):
        value = key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        value = key.sign(data, ec.ECDSA(hashes.SHA256()))
    else:
        raise WrongSummary("a summary is signed with an RSA or an elliptic curve key; take one")
    chain = (pair.certificate, *pair.chain)
    return value, b"".join(one.public_bytes(Encoding.PEM) for one in chain)


def check(
    data: bytes, value: bytes, certificates: bytes, trusted: tuple[x509.Certificate, ...]
) -> tuple[Summary, str]:
    """A summary and who signed it; `WrongSummary` when it does not hold."""
    signer, *chain = load_certificates(certificates)
    key = signer.public_key()
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(value, data, padding.PKCS1v15(), hashes.SHA256())
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(value, data, ec.ECDSA(hashes.SHA256()))
        else:
            raise WrongSummary("its certificate has neither an RSA nor an elliptic curve key")
    except InvalidSignature:
        raise WrongSummary(
            "its signature does not fit: summary or signature were changed"
        ) from None
    try:
        found = msgspec.json.decode(data, type=Summary)
    except msgspec.DecodeError as error:
        raise WrongSummary(f"it is no summary of an evidence check: {error}") from None
    if found.kind != KIND:
        raise WrongSummary(f"it is no summary of an evidence check, but {found.kind[:80]!r}")
    try:
        trust_in(trusted).verify(signer, tuple(chain), found.made_at)
    except EbmsError as refused:
        raise WrongSummary(refused.detail) from None
    return found, signer.subject.rfc4514_string()


def differences(found: Summary, lake: str) -> list[str]:
    """In what the files of a lake's table are not those that the summary lists."""
    there: Mapping[str, Any] = _files(lake)
    told = [f"{name} is not there" for name in found.files if name not in there]
    told += [
        f"{name} was changed"
        for name, digest in found.files.items()
        if there.get(name, digest) != digest
    ]
    return told + [f"{name} is new" for name in there if name not in found.files]
