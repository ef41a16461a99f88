"""The bare signature operation of each scheme, on bytes."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from postroad.security.algorithms import Scheme, SignatureAlgorithm

_PKCS1 = padding.PKCS1v15()


def sign_bytes(key: PrivateKeyTypes, algorithm: SignatureAlgorithm, data: bytes) -> bytes:
    """Sign; ValueError when the key is not of the kind that the algorithm takes."""
    digest = algorithm.digest
    match algorithm.scheme, key:
        case Scheme.RSA, rsa.RSAPrivateKey() if digest:
            return key.sign(data, _PKCS1, digest.primitive())
        case Scheme.RSA_PSS, rsa.RSAPrivateKey() if digest:
            return key.sign(data, _pss(algorithm), digest.primitive())
        case Scheme.ECDSA, ec.EllipticCurvePrivateKey() if digest:
            r, s = decode_dss_signature(key.sign(data, ec.ECDSA(digest.primitive())))
            size = (key.key_size + 7) // 8
            return r.to_bytes(size, "big") + s.to_bytes(size, "big")
        case Scheme.ED25519, ed25519.Ed25519PrivateKey():
            return key.sign(data)
        case Scheme.ED448, ed448.Ed448PrivateKey():
            return key.sign(data)
    raise ValueError(_misfit(algorithm, key))


def verify_bytes(
    key: PublicKeyTypes, algorithm: SignatureAlgorithm, value: bytes, data: bytes
) -> bool:
    """Whether the value is the key's signature of the data.

    The algorithm must be of the key's own family (a key never verifies as something else), so
    HMAC, whose key would be public here, never holds. ValueError when they do not fit.
    """
    digest, scheme = algorithm.digest, algorithm.scheme
    try:
        if scheme is Scheme.RSA and digest and isinstance(key, rsa.RSAPublicKey):
            key.verify(value, data, _PKCS1, digest.primitive())
        elif scheme is Scheme.RSA_PSS and digest and isinstance(key, rsa.RSAPublicKey):
            key.verify(value, data, _pss(algorithm), digest.primitive())
        elif scheme is Scheme.ECDSA and digest and isinstance(key, ec.EllipticCurvePublicKey):
            size = (key.key_size + 7) // 8
            if len(value) != 2 * size:
                return False
            key.verify(_dss(value, size), data, ec.ECDSA(digest.primitive()))
        elif scheme is Scheme.DSA and digest and isinstance(key, dsa.DSAPublicKey):
            if len(value) != 40:
                return False
            key.verify(_dss(value, 20), data, digest.primitive())
        elif (scheme is Scheme.ED25519 and isinstance(key, ed25519.Ed25519PublicKey)) or (
            scheme is Scheme.ED448 and isinstance(key, ed448.Ed448PublicKey)
        ):
            key.verify(value, data)
        else:
            raise ValueError(_misfit(algorithm, key))
    except InvalidSignature:
        return False
    return True


def _pss(algorithm: SignatureAlgorithm) -> padding.PSS:
    assert algorithm.digest is not None
    return padding.PSS(padding.MGF1(algorithm.digest.primitive()), padding.PSS.DIGEST_LENGTH)


def _dss(value: bytes, size: int) -> bytes:
    return encode_dss_signature(
        int.from_bytes(value[:size], "big"), int.from_bytes(value[size:], "big")
    )


def _misfit(algorithm: SignatureAlgorithm, key: object) -> str:
    kind = type(key).__name__.removesuffix("PublicKey").removesuffix("PrivateKey").lstrip("_")
    return f"{algorithm.uri} does not fit the certificate's {kind} key"
