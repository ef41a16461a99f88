"""What a certificate says, where the node uses it, and when it has to be renewed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from postroad.agreement.places import sides
from postroad.agreement.pmode import Leg, Partner, PMode
from postroad.msh.expectation import Expectation, Material
from postroad.msh.securing import signs
from postroad.node.settings.config import Config
from postroad.node.settings.keyring import Keyring, TlsIdentity, door_tls
from postroad.security.certificates import read_certificate
from postroad.security.key_purposes import purpose_names
from postroad.security.keys import KeyPair

_ONLY_SIGN: Final = (ed25519.Ed25519PublicKey, ed448.Ed448PublicKey)
SOON: Final = timedelta(days=30)
"""A certificate that expires sooner is worth a warning."""


@dataclass(frozen=True, slots=True)
class DescribedCertificate:
    """A certificate, the settings that name its file, and the P-Modes that use it."""

    certificate: x509.Certificate
    settings: tuple[str, ...] = ()
    pmodes: tuple[str, ...] = ()

    def warning(self, now: datetime) -> str | None:
        """What is to be done about its validity; None if nothing."""
        facts = read_certificate(self.certificate)
        if now < facts.not_before:
            return f"not valid before {facts.not_before:%Y-%m-%d %H:%M:%S} UTC"
        left = facts.not_after - now
        if left > SOON:
            return None
        when = f"expires in {left.days} days" if left > timedelta(0) else "expired"
        return f"{when}: request a new one with postroad key csr" if self.settings else when

    def facts(self, now: datetime) -> dict[str, Any]:
        """All that is told of it, by name."""
        facts = read_certificate(self.certificate)
        return {
            "settings": list(self.settings),
            "subject": facts.subject_text,
            "issuer": "itself (self-signed)" if facts.self_issued else facts.issuer_text,
            "names": [str(one.value) for one in facts.names],
            "serial": f"{facts.serial:x}",
            "key": _key(self.certificate),
            "usage": sorted(facts.usage) if facts.usage is not None else ["any"],
            "purposes": purpose_names(facts.purposes) if facts.purposes is not None else "any",
            "valid_from": facts.not_before,
            "valid_until": facts.not_after,
            "sha1": fingerprint(self.certificate, hashes.SHA1()),
            "sha256": fingerprint(self.certificate),
            "pmodes": list(self.pmodes),
            "warning": self.warning(now),
        }


def fingerprint(certificate: x509.Certificate, digest: hashes.HashAlgorithm | None = None) -> str:
    """A digest of the certificate as people compare it: pairs of digits with colons; SHA-256."""
    return certificate.fingerprint(digest or hashes.SHA256()).hex(":").upper()


def _key(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA, {key.key_size} bits"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC, {key.curve.name}"
    return type(key).__name__.removeprefix("_").removesuffix("PublicKey")


def own_certificates(
    config: Config,
    keyring: Keyring,
    listeners: tuple[TlsIdentity | None, ...],
    expectation: Expectation,
) -> list[DescribedCertificate]:
    """Describe the certificates of the node's own keys."""
    found: dict[x509.Certificate, list[str]] = {}
    if keyring.signing is not None:
        found.setdefault(keyring.signing.certificate, []).append("keys.signing")
    for one in keyring.opening:
        if isinstance(one, KeyPair):
            found.setdefault(one.certificate, []).append("keys.decryption")
    for (place, _), identity in zip(door_tls(config), listeners, strict=True):
        if identity is not None:
            name = ".".join(map(str, place))
            found.setdefault(identity.pair.certificate, []).append(name)
    uses = _Uses(config, keyring, expectation)
    return [
        DescribedCertificate(one, tuple(settings), tuple(uses.of(one)))
        for one, settings in found.items()
    ]


def other_certificate(
    certificate: x509.Certificate, config: Config, keyring: Keyring, expectation: Expectation
) -> DescribedCertificate:
    """Describe a certificate from a file: a partner's, or one of our own."""
    uses = _Uses(config, keyring, expectation)
    return DescribedCertificate(certificate, (), tuple(uses.of(certificate)))


def partner_certificates(
    config: Config, keyring: Keyring, expectation: Expectation
) -> list[DescribedCertificate]:
    """Describe the certificates of partners that P-Modes name."""
    uses = _Uses(config, keyring, expectation)
    own = {one.certificate for one in keyring.opening if isinstance(one, KeyPair)}
    if keyring.signing is not None:
        own.add(keyring.signing.certificate)
    named = [
        one
        for material in expectation.materials.values()
        for one in (*material.pins, *material.recipients, *material.answering)
    ]
    others = [one for one in dict.fromkeys(named) if one not in own]
    return [DescribedCertificate(one, (), tuple(uses.of(one))) for one in others]


@dataclass(frozen=True, slots=True)
class _Uses:
    """Tells which P-Modes use a certificate, and what for."""

    config: Config
    keyring: Keyring
    expectation: Expectation

    def of(self, certificate: x509.Certificate) -> Iterator[str]:
        by_pmode: Mapping[str, dict[str, None]] = {
            wanted.pmode.id: {} for wanted in self.expectation.pmodes.legs
        }
        for wanted in self.expectation.pmodes.legs:
            material = self.expectation.materials[wanted.pmode.id, wanted.index + 1]
            roles = self._roles(certificate, wanted.pmode, wanted.index, wanted.leg, material)
            by_pmode[wanted.pmode.id].update(dict.fromkeys(roles))
        for name, found in sorted(by_pmode.items()):
            if found:
                yield f"{name} ({', '.join(found)})"

    def _roles(
        self, certificate: x509.Certificate, pmode: PMode, index: int, leg: Leg, material: Material
    ) -> Iterator[str]:
        sender, receiver = sides(pmode, index)
        signing = material.signing or self.keyring.signing
        if signing is not None and signing.certificate == certificate and signs(leg):
            if self._is_own(sender):
                yield "signs messages"
            if self._is_own(receiver):
                yield "signs receipts"
        terms = leg.security.x509 if leg.security else None
        encrypts = terms and terms.encryption and terms.encryption.encrypt
        opening = [one for one in self.keyring.opening if isinstance(one, KeyPair)]
        opens = any(one.certificate == certificate for one in (*opening, *material.keys))
        opens = opens and not isinstance(certificate.public_key(), _ONLY_SIGN)
        if encrypts and encrypts.enabled and opens and self._is_own(receiver):
            yield "decrypts messages"
        if not self._is_own(sender) and certificate in material.pins:
            yield "verifies messages"
        if not self._is_own(receiver):
            if certificate in material.recipients:
                yield "encrypts messages"
            if certificate in (material.answering or material.recipients):
                yield "verifies receipts"

    def _is_own(self, side: Partner | None) -> bool:
        own = {(one.id, one.type) for one in self.config.party}
        return any((one.id, one.type) in own for one in (side.party if side else None) or ())
