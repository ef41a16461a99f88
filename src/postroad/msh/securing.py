"""How the messages of a P-Mode leg are signed and encrypted, and with whose keys."""

from datetime import datetime
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, x448, x25519

from postroad.agreement.coverage import signed_coverage
from postroad.agreement.pmode import Leg
from postroad.agreement.pmode_security import Encryption as AgreedEncryption
from postroad.msh.expectation import Material
from postroad.security import algorithms as alg
from postroad.security.coverage import USERNAME_TOKEN
from postroad.security.keyestablishment import Encryption, Entropy
from postroad.security.keys import KeyPair
from postroad.security.sign import Block, Signing
from postroad.security.tokens import TokenReference
from postroad.security.username import write_username_token

_NONCE_BYTES: Final = 16
USERNAME_ID: Final = "_username"
_BY_KEY: Final = (
    (ec.EllipticCurvePrivateKey, alg.ECDSA_SHA256),
    (ed25519.Ed25519PrivateKey, alg.ED25519),
    (ed448.Ed448PrivateKey, alg.ED448),
)
_BY_RECIPIENT: Final = (
    (ec.EllipticCurvePublicKey, alg.ECDH_ES),
    (x25519.X25519PublicKey, alg.X25519),
    (x448.X448PublicKey, alg.X448),
)


class Unsecurable(ValueError):
    """The P-Mode asks for what there is no key or certificate for."""


def signs(leg: Leg) -> bool:
    terms = leg.security.x509 if leg.security else None
    return bool(terms and terms.sign and terms.sign.enabled)


def signing(leg: Leg, key: KeyPair | None) -> Signing | None:
    """How messages of a leg, and the answers to them, are signed; None when they are not.

    `Unsecurable` when there is no key. What the P-Mode leaves open follows from the key.
    """
    if not signs(leg):
        return None
    if key is None:
        raise Unsecurable(
            "the P-Mode asks for a signature, and there is no key to sign with: set Signature.Key "
            "in the P-Mode, or keys.signing in postroad.yaml"
        )
    return key_signing(leg, key)


def key_signing(leg: Leg, key: KeyPair) -> Signing:
    """How something of a leg is signed with a key, whether its messages are or not."""
    terms = leg.security.x509 if leg.security else None
    agreed = terms.signature if terms else None
    return Signing(
        key,
        (agreed.algorithm if agreed else None) or _usual(type(key.private_key)) or alg.RSA_SHA256,
        (agreed.hash_function if agreed else None) or alg.SHA256,
        TokenReference(agreed.key_reference)
        if agreed and agreed.key_reference
        else TokenReference.BINARY_SECURITY_TOKEN,
        bool(agreed and agreed.raw),
    )


@lru_cache(maxsize=16)
def _usual(key: type) -> str | None:
    """The algorithm that fits a kind of key; None: those of RSA."""
    return next((uri for kind, uri in _BY_KEY if issubclass(key, kind)), None)


def answer_signing(leg: Leg, key: KeyPair | None) -> Signing | None:
    """How a receipt or an error about a message of a leg is signed.

    With another kind of key than the sender's, the sender's algorithm does not apply.
    """
    own = signing(leg, key)
    return None if own is None else own_signing(own)


def own_signing(own: Signing) -> Signing:
    """With an algorithm that fits the key, where the agreed one is for another kind."""
    usual = _usual(type(own.key.private_key))
    agreed = alg.SIGNATURES[own.algorithm].scheme
    if usual is not None and alg.SIGNATURES[usual].scheme is not agreed:
        return Signing(own.key, usual, own.digest, own.reference)
    if usual is None and agreed not in (alg.Scheme.RSA, alg.Scheme.RSA_PSS):
        return Signing(own.key, alg.RSA_SHA256, own.digest, own.reference)
    return own


def encryption(leg: Leg, material: Material) -> Encryption | None:
    """How messages of a leg are encrypted; None when they are not."""
    terms = leg.security.x509 if leg.security else None
    agreed = terms.encryption if terms else None
    if agreed is None or not (agreed.encrypt and agreed.encrypt.enabled):
        return None
    if not material.recipients:
        raise Unsecurable(
            "the P-Mode asks for encryption, and names no certificate of the receiver: set "
            "Encryption.Certificate"
        )
    return _agreed(agreed, material)


def _agreed(agreed: AgreedEncryption, material: Material) -> Encryption:
    certificate = material.recipients[0]
    public = certificate.public_key()
    usual = next((uri for kind, uri in _BY_RECIPIENT if isinstance(public, kind)), None)
    key = agreed.key_agreement if usual else agreed.key_transport
    given = {
        "data": agreed.algorithm,
        "key": key or usual,
        "digest": agreed.digest,
        "mgf": agreed.mgf,
        "derivation": agreed.key_derivation,
        "wrap": agreed.key_wrap,
    }
    named = {name: value for name, value in given.items() if value is not None}
    form = TokenReference(agreed.key_reference or TokenReference.BINARY_SECURITY_TOKEN)
    return Encryption(certificate, **named, reference=form)


def username_tokens(leg: Leg, now: datetime, entropy: Entropy) -> list[Block]:
    """The user name token of a leg's messages; with an id where the leg lists it to be signed."""
    agreed = leg.security.username_token if leg.security else None
    if agreed is None:
        return []
    id = USERNAME_ID if signed_coverage(leg).names(USERNAME_TOKEN) else ""
    written = write_username_token(
        agreed.username,
        agreed.password.get_secret_value(),
        digest=agreed.digest,
        nonce=entropy(_NONCE_BYTES),
        created=now,
        id=id or None,
    )
    return [Block(id, written)]
