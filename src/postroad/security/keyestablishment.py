"""How the content key travels: RSA key transport, or key agreement with derivation and wrapping."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, x448, x25519
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.kdf import hkdf
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)
from lxml import etree

from postroad.security import algorithms as alg
from postroad.security.tokens import TokenReference
from postroad.wire.errors import EbmsError
from postroad.wire.names import DS, DSIG11, DSIG_MORE_2001, DSIG_MORE_2021, XENC, XENC11
from postroad.wire.xml import elements, local, octets, path, text

Entropy = Callable[[int], bytes]
"""Gives that many unpredictable bytes."""

_MOST_KDF_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Encryption:
    """How to encrypt: for whom, and with which algorithms."""

    certificate: x509.Certificate
    data: str = alg.AES128_GCM
    key: str = alg.RSA_OAEP
    """Key transport (RSA) or key agreement (ECDH-ES, X25519, X448)."""
    digest: str = alg.SHA256
    """Of OAEP, or of the key derivation."""
    mgf: str = alg.MGF1_SHA256
    derivation: str = alg.HKDF
    wrap: str = XENC + "kw-aes128"
    reference: TokenReference = TokenReference.BINARY_SECURITY_TOKEN


class Unrecoverable(Exception):
    """The content key cannot be recovered. Says nothing more, on purpose."""


def write_key(encryption: Encryption, reference: str, key: bytes, entropy: Entropy) -> str:
    """EncryptionMethod, ds:KeyInfo and CipherData of an EncryptedKey for this content key."""
    public = encryption.certificate.public_key()
    if encryption.key in alg.KEY_TRANSPORTS:
        if not isinstance(public, rsa.RSAPublicKey):
            raise ValueError(f"{encryption.key} needs a certificate with an RSA key")
        cipher = public.encrypt(key, _transport_padding(encryption))
        method, info = _transport_method(encryption), reference
    else:
        shared, originator = _agree(encryption, entropy)
        salt = entropy(32)
        wrapping = _derive(encryption, shared, salt)
        cipher = aes_key_wrap(wrapping, key)
        method = f'<xenc:EncryptionMethod Algorithm="{encryption.wrap}"/>'
        info = (
            f'<xenc:AgreementMethod Algorithm="{encryption.key}">'
            f"{_derivation(encryption, salt)}"
            f"<xenc:OriginatorKeyInfo>{originator}</xenc:OriginatorKeyInfo>"
            f"<xenc:RecipientKeyInfo>{reference}</xenc:RecipientKeyInfo></xenc:AgreementMethod>"
        )
    return (
        f'{method}<ds:KeyInfo xmlns:ds="{DS}">{info}</ds:KeyInfo><xenc:CipherData>'
        f"<xenc:CipherValue>{base64.b64encode(cipher).decode()}</xenc:CipherValue>"
        "</xenc:CipherData>"
    )


def _transport_padding(encryption: Encryption) -> padding.AsymmetricPadding:
    if encryption.key == alg.RSA_1_5:
        return padding.PKCS1v15()
    mgf = alg.MGF1_SHA1 if encryption.key == alg.RSA_OAEP_MGF1P else encryption.mgf
    return _oaep(alg.MGFS[mgf], alg.DIGESTS[encryption.digest])


def _oaep(mgf: alg.Digest, digest: alg.Digest, label: bytes = b"") -> padding.OAEP:
    return padding.OAEP(padding.MGF1(mgf.primitive()), digest.primitive(), label or None)


def _transport_method(encryption: Encryption) -> str:
    if encryption.key == alg.RSA_1_5:
        return f'<xenc:EncryptionMethod Algorithm="{encryption.key}"/>'
    digest = f'<ds:DigestMethod xmlns:ds="{DS}" Algorithm="{encryption.digest}"/>'
    mgf = ""
    if encryption.key == alg.RSA_OAEP:
        mgf = f'<xenc11:MGF xmlns:xenc11="{XENC11}" Algorithm="{encryption.mgf}"/>'
    return (
        f'<xenc:EncryptionMethod Algorithm="{encryption.key}">{digest}{mgf}</xenc:EncryptionMethod>'
    )


def _agree(encryption: Encryption, entropy: Entropy) -> tuple[bytes, str]:
    """The shared secret with a key pair made for this message, and that key pair's public part."""
    public = encryption.certificate.public_key()
    if encryption.key == alg.X25519 and isinstance(public, x25519.X25519PublicKey):
        own = x25519.X25519PrivateKey.from_private_bytes(entropy(32))
        return own.exchange(public), _der_key_value(own.public_key())
    if encryption.key == alg.X448 and isinstance(public, x448.X448PublicKey):
        own448 = x448.X448PrivateKey.from_private_bytes(entropy(56))
        return own448.exchange(public), _der_key_value(own448.public_key())
    if encryption.key == alg.ECDH_ES and isinstance(public, ec.EllipticCurvePublicKey):
        oid = _curve_oid(public.curve)
        order = public.curve.group_order
        size = (order.bit_length() + 7) // 8 + 8
        own_ec = ec.derive_private_key(
            int.from_bytes(entropy(size), "big") % (order - 1) + 1, public.curve
        )
        return own_ec.exchange(ec.ECDH(), public), _ec_key_value(own_ec.public_key(), oid)
    raise ValueError(f"{encryption.key} does not fit the key of the recipient's certificate")


def _der_key_value(public: x25519.X25519PublicKey | x448.X448PublicKey) -> str:
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return (
        f'<dsig11:DEREncodedKeyValue xmlns:dsig11="{DSIG11}">{base64.b64encode(der).decode()}'
        "</dsig11:DEREncodedKeyValue>"
    )


def _curve_oid(curve: ec.EllipticCurve) -> str:
    for oid, known in alg.CURVES.items():
        if known.name == curve.name:
            return oid
    raise ValueError(f"key agreement on the curve {curve.name} is not supported")


def _ec_key_value(public: ec.EllipticCurvePublicKey, oid: str) -> str:
    point = public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return (
        f'<ds:KeyValue><dsig11:ECKeyValue xmlns:dsig11="{DSIG11}">'
        f'<dsig11:NamedCurve URI="urn:oid:{oid}"/><dsig11:PublicKey>'
        f"{base64.b64encode(point).decode()}</dsig11:PublicKey></dsig11:ECKeyValue></ds:KeyValue>"
    )


def _derive(encryption: Encryption, shared: bytes, salt: bytes) -> bytes:
    digest, size = alg.DIGESTS[encryption.digest], alg.KEY_WRAPS[encryption.wrap]
    if encryption.derivation == alg.CONCAT_KDF:
        return ConcatKDFHash(digest.primitive(), size, _OTHER_INFO).derive(shared)
    if digest not in alg.PRFS.values():
        raise ValueError(f"there is no HKDF with {digest.uri}")
    return hkdf.HKDF(digest.primitive(), size, salt, b"").derive(shared)


_OTHER_INFO: Final = b"\x00\x00\x00"
"""AlgorithmID, PartyUInfo and PartyVInfo of one zero octet each, as other products write them."""


def _derivation(encryption: Encryption, salt: bytes) -> str:
    digest = alg.DIGESTS[encryption.digest]
    if encryption.derivation == alg.CONCAT_KDF:
        parameters = (
            '<xenc11:ConcatKDFParams AlgorithmID="0000" PartyUInfo="0000" PartyVInfo="0000">'
            f'<ds:DigestMethod Algorithm="{digest.uri}"/></xenc11:ConcatKDFParams>'
        )
    else:
        parameters = (
            f'<dm:HKDFParams xmlns:dm="{DSIG_MORE_2021}">'
            f'<dm:PRF Algorithm="{DSIG_MORE_2001}hmac-{digest.name}"/>'
            f"<dm:Salt>{base64.b64encode(salt).decode()}</dm:Salt>"
            f"<dm:KeyLength>{alg.KEY_WRAPS[encryption.wrap]}</dm:KeyLength></dm:HKDFParams>"
        )
    return (
        f'<xenc11:KeyDerivationMethod xmlns:xenc11="{XENC11}"'
        f' Algorithm="{encryption.derivation}">{parameters}</xenc11:KeyDerivationMethod>'
    )


def recover_key(
    method: etree._Element,
    agreement: etree._Element | None,
    cipher: bytes,
    private: PrivateKeyTypes,
    size: int,
) -> bytes:
    """The content key of `size` bytes out of an EncryptedKey; `Unrecoverable` when it is not.

    `method` is its EncryptionMethod, `agreement` the AgreementMethod of its KeyInfo, if any.
    Structures that no key could open are an EbmsError.
    """
    uri = method.get("Algorithm", "")
    if uri in alg.KEY_TRANSPORTS:
        if not isinstance(private, rsa.RSAPrivateKey):
            raise Unrecoverable
        return _untransport(method, uri, cipher, private, size)
    if uri in alg.KEY_WRAPS and agreement is not None:
        shared = _shared_secret(agreement, private)
        wrapping = _derived(agreement, shared, alg.KEY_WRAPS[uri])
        try:
            key = aes_key_unwrap(wrapping, cipher)
        except (InvalidUnwrap, ValueError):
            raise Unrecoverable from None
        if len(key) != size:
            raise Unrecoverable
        return key
    raise _unsupported(method, f"key encryption by {uri!r} is not supported")


def _untransport(
    method: etree._Element, uri: str, cipher: bytes, private: rsa.RSAPrivateKey, size: int
) -> bytes:
    if uri == alg.RSA_1_5:
        return _decoy_on_failure(cipher, private, size)
    digest, mgf, label = alg.SHA1, alg.MGF1_SHA1, b""
    for child in elements(method):
        if child.tag == f"{{{DS}}}DigestMethod":
            digest = child.get("Algorithm", "")
        elif child.tag == f"{{{XENC11}}}MGF" and uri == alg.RSA_OAEP:
            mgf = child.get("Algorithm", "")
        elif child.tag == f"{{{XENC}}}OAEPparams":
            label = octets(child, "EBMS:0102")
    if digest not in alg.DIGESTS or mgf not in alg.MGFS:
        raise _unsupported(method, "unknown digest or mask generation function of OAEP")
    try:
        key = private.decrypt(cipher, _oaep(alg.MGFS[mgf], alg.DIGESTS[digest], label))
    except (ValueError, UnsupportedAlgorithm):
        raise Unrecoverable from None
    if len(key) != size:
        raise Unrecoverable
    return key


def _decoy_on_failure(cipher: bytes, private: rsa.RSAPrivateKey, size: int) -> bytes:
    """RSA 1.5: a bad padding yields a key that nobody knows, so that it cannot be told apart."""
    secret = private.private_numbers().d.to_bytes((private.key_size + 7) // 8, "big")
    decoy = hashlib.sha256(secret + cipher).digest()[:size]
    try:
        key = private.decrypt(cipher, padding.PKCS1v15())
    except ValueError:
        return decoy
    return key if len(key) == size else decoy


def _shared_secret(agreement: etree._Element, private: PrivateKeyTypes) -> bytes:
    originator = _one(agreement, "OriginatorKeyInfo")
    try:
        public = _originator_key(originator)
        if isinstance(private, x25519.X25519PrivateKey):
            if isinstance(public, x25519.X25519PublicKey):
                return private.exchange(public)
        elif isinstance(private, x448.X448PrivateKey):
            if isinstance(public, x448.X448PublicKey):
                return private.exchange(public)
        elif (
            isinstance(private, ec.EllipticCurvePrivateKey)
            and isinstance(public, ec.EllipticCurvePublicKey)
            and private.curve.name == public.curve.name
        ):
            return private.exchange(ec.ECDH(), public)
    except (ValueError, UnsupportedAlgorithm):
        raise Unrecoverable from None
    raise Unrecoverable


def _originator_key(originator: etree._Element) -> object:
    for element in originator.iter(f"{{{DSIG11}}}DEREncodedKeyValue"):
        return load_der_public_key(octets(element, "EBMS:0102"))
    for element in originator.iter(f"{{{DSIG11}}}ECKeyValue"):
        oid = _one(element, "NamedCurve").get("URI", "").removeprefix("urn:oid:")
        curve = alg.CURVES.get(oid)
        if curve is None:
            raise _unsupported(element, f"the curve {oid!r} is not supported")
        return ec.EllipticCurvePublicKey.from_encoded_point(
            curve, octets(_one(element, "PublicKey"), "EBMS:0102")
        )
    raise _unsupported(originator, "it holds no key value that is supported")


def _derived(agreement: etree._Element, shared: bytes, size: int) -> bytes:
    method = _one(agreement, "KeyDerivationMethod")
    uri = method.get("Algorithm", "")
    if uri == alg.CONCAT_KDF:
        parameters = _one(method, "ConcatKDFParams")
        digest = alg.DIGESTS.get(_one(parameters, "DigestMethod").get("Algorithm", ""))
        if digest is None:
            raise _unsupported(parameters, "unknown digest of the key derivation")
        other = b"".join(
            _bit_string(parameters, name)
            for name in ("AlgorithmID", "PartyUInfo", "PartyVInfo", "SuppPubInfo", "SuppPrivInfo")
        )
        return ConcatKDFHash(digest.primitive(), size, other).derive(shared)
    if uri == alg.HKDF:
        return _hkdf(_one(method, "HKDFParams"), shared, size)
    raise _unsupported(method, f"key derivation by {uri!r} is not supported")


def _bit_string(parameters: etree._Element, name: str) -> bytes:
    """A ConcatKDF attribute: in hexadecimal, the first octet counts padding bits."""
    value = parameters.get(name, "")
    try:
        octets = bytes.fromhex(value)
    except ValueError:
        raise _unsupported(parameters, f"{name} is not hexadecimal") from None
    if len(octets) > _MOST_KDF_BYTES or (octets and octets[0]):
        raise _unsupported(parameters, f"{name} is too long or not whole octets")
    return octets[1:]


def _hkdf(parameters: etree._Element, shared: bytes, size: int) -> bytes:
    values = {local(child): child for child in elements(parameters)}
    if len(values) != len(elements(parameters)) or "PRF" not in values:
        raise _unsupported(parameters, "PRF, Salt, Info and KeyLength are expected, once at most")
    digest = alg.PRFS.get(values["PRF"].get("Algorithm", ""))
    if digest is None:
        raise _unsupported(parameters, "unknown PRF of the key derivation")
    salt = octets(values["Salt"], "EBMS:0102") if "Salt" in values else b""
    info = octets(values["Info"], "EBMS:0102") if "Info" in values else b""
    length = text(values["KeyLength"]) if "KeyLength" in values else str(size)
    if length != str(size) or max(len(salt), len(info)) > _MOST_KDF_BYTES:
        raise _unsupported(parameters, "lengths that do not fit the key wrap")
    return hkdf.HKDF(digest.primitive(), size, salt or None, info).derive(shared)


def _one(parent: etree._Element, name: str) -> etree._Element:
    found = [child for child in elements(parent) if local(child) == name]
    if len(found) != 1:
        raise _unsupported(parent, f"exactly one {name} is expected")
    return found[0]


def _unsupported(element: etree._Element, detail: str) -> EbmsError:
    return EbmsError("EBMS:0102", detail, location=path(element))
