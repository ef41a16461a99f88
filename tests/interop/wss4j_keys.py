"""The keys of both sides of the WSS4J tests: throw-away, long-lived, and of every kind."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from postroad.security.keys import KeyPair
from tests import pki

NOW: Final = pki.NOW + timedelta(microseconds=123_456)
"""Finer than the milliseconds that WSS4J takes in security headers."""
PASSWORD: Final = "secret"
ROOT: Final = pki.authority("Interop Root")
ISSUING: Final = pki.authority("Interop Issuing CA", issuer=ROOT)
SIGNERS: Final = ("rsa", "p256", "p384", "p521", "brainpool", "ed25519", "ed448")
RECIPIENTS: Final = ("rsa", "p256", "p384", "p521", "brainpool", "x25519", "x448")


def _issue(name: str, kind: str, usage: tuple[str, ...]) -> KeyPair:
    return pki.issue(ISSUING, name, key=kind, usage=usage, not_after=pki.NOW + 10 * pki.YEAR)


def signer(kind: str, *, known: bool = False) -> KeyPair:
    """A signer that the verifier has in its trust store (`known`), or knows only by its root."""
    name = f"{'known' if known else 'new'} signer {kind}"
    return _issue(name, kind, ("digital_signature",))


def recipient(kind: str) -> KeyPair:
    return _issue(f"recipient {kind}", kind, ("key_encipherment", "key_agreement"))


def known_signers() -> list[x509.Certificate]:
    return [signer(kind, known=True).certificate for kind in SIGNERS]


@dataclass(frozen=True)
class KeyFiles:
    """The files that a call of the peer names."""

    keys: tuple[str, ...]
    trusted: tuple[str, ...]

    def call(self) -> dict[str, Any]:
        """Return the arguments that every call of the peer has."""
        at = int((NOW + timedelta(minutes=1)).timestamp() * 1000)
        return {"keys": self.keys, "trusted": self.trusted, "at": at}


def write_key_files(folder: Path) -> KeyFiles:
    """Write all keys with their certificates, and the trusted certificates, as PEM.

    The peer plays both sides, so it has the keys of signers and of recipients. It trusts the root
    and the known signers; the issuing authority and new signers it sees in messages only.
    """
    pairs = {f"recipient-{kind}": recipient(kind) for kind in RECIPIENTS}
    pairs |= {f"new-{kind}": signer(kind) for kind in SIGNERS}
    pairs |= {f"known-{kind}": signer(kind, known=True) for kind in SIGNERS}
    files = []
    for alias, pair in pairs.items():
        file = folder / f"{alias}.pem"
        file.write_bytes(pki.pem(pair))
        files.append(str(file))
    trusted = folder / "trusted.pem"
    authorities = (ROOT.certificate, ISSUING.certificate)
    trusted.write_bytes(pki.pem_certificates(*authorities, *known_signers()))
    return KeyFiles(tuple(files), (str(trusted),))
