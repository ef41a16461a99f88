"""The certificates that a node works with, and what is to be said before they expire.

Its own and those of its doors are named by their settings, those of partners by the P-Mode.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from postroad.msh.expectation import Material
from postroad.node.service import Certificate
from postroad.node.settings.config import Config, setting_name
from postroad.node.settings.keyring import Keyring, TlsIdentity, door_tls
from postroad.security.keys import KeyPair

SOON: Final = timedelta(days=30)
"""How long before a certificate expires that is a problem."""
SIGNING: Final = "signing"
DECRYPTION: Final = "decryption"
TRUST: Final = "trust"
TLS: Final = "tls"
PARTNER: Final = "partner"


def own_certificates(keyring: Keyring) -> Iterator[Certificate]:
    """Those of the node's keys, and those that it trusts."""
    if keyring.signing is not None:
        yield _used(keyring.signing.certificate, SIGNING, "keys.signing")
    for one in keyring.opening:
        if isinstance(one, KeyPair) and one != keyring.signing:
            yield _used(one.certificate, DECRYPTION, "keys.decryption")
    for certificate in keyring.trust:
        yield _used(certificate, TRUST, "trust")


def pmode_certificates(
    pmode: str,
    partner: str,
    material: Material,
    tls_servers: Iterable[x509.Certificate],
    *,
    sends: bool,
) -> Iterator[Certificate]:
    """Those that a leg of a P-Mode names: the node's own, the partner's, and authorities.

    `tls_servers` are those of the server to which the leg's messages go.
    """

    def of(certificates: Iterable[x509.Certificate], use: str, own: bool) -> Iterator[Certificate]:
        for one in certificates:
            yield _used(one, use if own else PARTNER, pmode, None if own else partner)

    own_keys = [*material.keys, *([material.signing] if material.signing else ())]
    yield from of(material.pins, SIGNING, sends)
    yield from of(material.answering, SIGNING, not sends)
    yield from of(material.recipients, DECRYPTION, not sends)
    yield from of(material.tls_clients, TLS, sends)
    yield from of(tls_servers, TLS, not sends)
    yield from of([one.certificate for one in own_keys], SIGNING if sends else DECRYPTION, True)
    yield from of((*material.anchors, *material.tls_anchors), TRUST, True)


def door_certificates(
    config: Config, identities: Sequence[TlsIdentity | None]
) -> Iterator[Certificate]:
    """Those that the doors show, and their authorities for clients."""
    for (place, _), identity in zip(door_tls(config), identities, strict=True):
        if identity is not None:
            name = setting_name(place)
            yield _used(identity.pair.certificate, TLS, name)
            for one in identity.client_authorities:
                yield _used(one, TRUST, f"{name}.client_authorities")


def in_order(certificates: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """Each once, that first which expires first."""
    once: dict[tuple[str, str | None, str], Certificate] = {}
    for one in certificates:
        once.setdefault((one.use, one.partner, one.fingerprint), one)
    return tuple(sorted(once.values(), key=lambda one: (one.expires, one.use, one.name)))


def _used(
    certificate: x509.Certificate, use: str, name: str, partner: str | None = None
) -> Certificate:
    return Certificate(
        use,
        name,
        certificate.subject.rfc4514_string() or "without a name",
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        certificate.fingerprint(SHA256()).hex(),
        partner,
    )


def certificate_problems(certificates: Sequence[Certificate], now: datetime) -> Iterator[str]:
    """What an operator should see to: a sentence for each of the node's own, one for all others.

    Whoever asks for the node's health reads it, so no partner is named. An expired signing key has
    a sentence of its own (`keyring.stale`). Of several keys to decrypt with the last one counts:
    the others are kept for old messages.
    """
    ending = [one for one in certificates if one.expires - SOON <= now]
    openers = [one for one in certificates if one.use == DECRYPTION]
    last = max(openers, key=lambda one: one.expires, default=None)
    for one in ending:
        over = one.expires < now
        if one.use not in (SIGNING, DECRYPTION, TLS) or (over and one.name == "keys.signing"):
            continue
        if one.use == DECRYPTION and one != last:
            continue
        word = "expired" if over else "expires"
        yield (
            f"the certificate {one.subject} of {one.name} {word} on {one.expires:%Y-%m-%d}; "
            "get a new one, and put it in its place"
        )
    for use, whose in ((PARTNER, "of partners"), (TRUST, "of trusted authorities")):
        found = [one for one in ending if one.use == use]
        if found:
            many = f"{len(found)} certificate{'' if len(found) == 1 else 's'}"
            first = f"the first on {found[0].expires:%Y-%m-%d}"
            yield (
                f"{many} {whose} expired or will expire within {SOON.days} days, {first}; "
                "see which with: postroad status"
            )
