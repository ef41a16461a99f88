"""Naming an X.509 certificate in a message: tokens and wsse:SecurityTokenReference, both ways."""

import base64
import binascii
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree

from postroad.security.certificates import subject_key_identifier, thumbprint_sha1
from postroad.security.der import der_elements
from postroad.security.distinguished import LARGEST_CERTIFICATE, issuer_matches, rfc2253_name
from postroad.security.keys import KeyPair
from postroad.wire.errors import EbmsError
from postroad.wire.names import (
    BASE64_BINARY,
    DS,
    SMS11,
    WSSE,
    WSSE11,
    WSU,
    X509_PROFILE,
)
from postroad.wire.xml import elements, escape, local, octets, path, text

X509_V3: Final = X509_PROFILE + "#X509v3"
PKI_PATH: Final = X509_PROFILE + "#X509PKIPathv1"
SUBJECT_KEY_IDENTIFIER: Final = X509_PROFILE + "#X509SubjectKeyIdentifier"
THUMBPRINT: Final = SMS11 + "#ThumbprintSHA1"

_STR: Final = f"{{{WSSE}}}SecurityTokenReference"
_REFERENCE: Final = f"{{{WSSE}}}Reference"
_SECURITY: Final = f"{{{WSSE}}}Security"
_EMBEDDED: Final = f"{{{WSSE}}}Embedded"
_KEY_IDENTIFIER: Final = f"{{{WSSE}}}KeyIdentifier"
_X509_DATA: Final = f"{{{DS}}}X509Data"
_TOKEN: Final = f"{{{WSSE}}}BinarySecurityToken"


class TokenReference(StrEnum):
    """How a message names the certificate of its signer or of its recipient."""

    BINARY_SECURITY_TOKEN = "binary_security_token"
    PKI_PATH = "pki_path"
    ISSUER_SERIAL = "issuer_serial"
    SUBJECT_KEY_IDENTIFIER = "subject_key_identifier"
    THUMBPRINT = "thumbprint"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class Named:
    """The certificate that a reference names, with those that came along with it."""

    certificate: x509.Certificate
    companions: tuple[x509.Certificate, ...] = ()
    form: TokenReference | None = None


@lru_cache(maxsize=4096)
def certificate_of(der: bytes) -> x509.Certificate:
    """Parse a certificate once, however often its bytes come by; ValueError where it is none.

    The library reads key, names and extensions only when asked, so it is asked here.
    """
    try:
        certificate = x509.load_der_x509_certificate(der)
        certificate.public_key()
        certificate.subject.rfc4514_string()
        certificate.issuer.rfc4514_string()
        with suppress(ValueError):
            certificate.extensions  # noqa: B018
    except (
        TypeError,
        UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise ValueError(str(error)) from None
    return certificate


@lru_cache(maxsize=4096)
def _familiar(text: str) -> Named | None:
    """A certificate as most messages carry it, decoded once; None when it is not that simple."""
    if len(text) > 2 * LARGEST_CERTIFICATE:
        return None
    try:
        der = binascii.a2b_base64(text, strict_mode=True)
        if len(der) > LARGEST_CERTIFICATE:
            return None
        return Named(certificate_of(der), form=TokenReference.BINARY_SECURITY_TOKEN)
    except ValueError:
        return None


def familiar_certificate(text: str) -> x509.Certificate | None:
    """The certificate in a BinarySecurityToken, as most messages carry it."""
    found = _familiar(text)
    return None if found is None else found.certificate


def carried_certificates(elements: Iterable[etree._Element]) -> tuple[x509.Certificate, ...]:
    """All certificates in these tokens and X509Certificate elements, as far as they are any."""
    found: dict[x509.Certificate, None] = {}
    for element in elements:
        text = "".join((element.text or "").split())
        certificate = familiar_certificate(text)
        if certificate is not None:
            found[certificate] = None
            continue
        try:
            path = decode_pki_path(binascii.a2b_base64(text, strict_mode=True))
            found.update(dict.fromkeys(map(certificate_of, path)))
        except (ValueError, UnsupportedAlgorithm):
            continue
    return tuple(found)


@lru_cache(maxsize=256)
def write_token_reference(
    form: TokenReference,
    certificate: x509.Certificate,
    chain: tuple[x509.Certificate, ...],
    id: str,
) -> tuple[str, str]:
    """The token to put in the Security header (or nothing), and the reference to it."""
    match form:
        case TokenReference.BINARY_SECURITY_TOKEN:
            token = _binary_token(X509_V3, certificate.public_bytes(Encoding.DER), id)
            return token, _str(f'<wsse:Reference URI="#{id}" ValueType="{X509_V3}"/>', None)
        case TokenReference.PKI_PATH:
            token = _binary_token(PKI_PATH, encode_pki_path((certificate, *chain)), id)
            return token, _str(f'<wsse:Reference URI="#{id}" ValueType="{PKI_PATH}"/>', PKI_PATH)
        case TokenReference.EMBEDDED:
            token = _binary_token(X509_V3, certificate.public_bytes(Encoding.DER), id)
            return "", _str(
                f'<wsse:Embedded ValueType="{X509_V3}">{token}</wsse:Embedded>', X509_V3
            )
        case TokenReference.ISSUER_SERIAL:
            return "", _str(
                f'<ds:X509Data xmlns:ds="{DS}"><ds:X509IssuerSerial><ds:X509IssuerName>'
                f"{escape(rfc2253_name(certificate.issuer))}</ds:X509IssuerName>"
                f"<ds:X509SerialNumber>{certificate.serial_number}</ds:X509SerialNumber>"
                "</ds:X509IssuerSerial></ds:X509Data>",
                None,
            )
        case TokenReference.SUBJECT_KEY_IDENTIFIER:
            key_id = subject_key_identifier(certificate)
            if key_id is None:
                raise ValueError(
                    "the certificate has no subject key identifier; "
                    "name it by issuer_serial or binary_security_token instead"
                )
            return "", _key_identifier(SUBJECT_KEY_IDENTIFIER, key_id)
        case TokenReference.THUMBPRINT:
            return "", _key_identifier(THUMBPRINT, thumbprint_sha1(certificate))


def write_signer_reference(form: TokenReference, pair: KeyPair, id: str) -> tuple[str, str]:
    return write_token_reference(form, pair.certificate, pair.chain, id)


def _binary_token(value_type: str, der: bytes, id: str) -> str:
    return (
        f'<wsse:BinarySecurityToken xmlns:wsse="{WSSE}" xmlns:wsu="{WSU}"'
        f' EncodingType="{BASE64_BINARY}" ValueType="{value_type}" wsu:Id="{id}">'
        f"{base64.b64encode(der).decode()}</wsse:BinarySecurityToken>"
    )


def _str(content: str, token_type: str | None) -> str:
    kind = f' xmlns:wsse11="{WSSE11}" wsse11:TokenType="{token_type}"' if token_type else ""
    return (
        f'<wsse:SecurityTokenReference xmlns:wsse="{WSSE}"{kind}>{content}'
        "</wsse:SecurityTokenReference>"
    )


def _key_identifier(value_type: str, value: bytes) -> str:
    return _str(
        f'<wsse:KeyIdentifier EncodingType="{BASE64_BINARY}" ValueType="{value_type}">'
        f"{base64.b64encode(value).decode()}</wsse:KeyIdentifier>",
        None,
    )


def encode_pki_path(leaf_first: Iterable[x509.Certificate]) -> bytes:
    """A PkiPath: an ASN.1 sequence of certificates, the one nearest the anchor first."""
    ders = [certificate.public_bytes(Encoding.DER) for certificate in leaf_first]
    return _der(0x30, b"".join(reversed(ders)))


def _der(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 0x80:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def decode_pki_path(data: bytes) -> tuple[bytes, ...]:
    """The certificates of a PkiPath in DER, the leaf first. ValueError when it is none."""
    outer = der_elements(data)
    if len(outer) != 1 or outer[0][0] != 0x30:
        raise ValueError("no single DER sequence")
    found = [whole for _, _, whole in der_elements(outer[0][1])]
    if not 1 <= len(found) <= 16:
        raise ValueError(f"{len(found)} certificates, 1 to 16 are expected")
    return tuple(reversed(found))


def resolve_token(
    key_info: etree._Element,
    by_id: Callable[[str], etree._Element],
    known: Iterable[x509.Certificate],
) -> Named:
    """The certificate that a ds:KeyInfo names.

    `by_id` finds the one element with an Id; `known` are the certificates that can be named
    without being in the message. What would have to be fetched is refused.
    """
    children = list(key_info)
    if len(children) != 1:
        raise _refused(
            key_info, f"ds:KeyInfo has {len(children)} children, exactly one is expected"
        )
    child = children[0]
    if child.tag == _STR:
        inner = list(child)
        if len(inner) != 1:
            raise _refused(child, f"{len(inner)} references in one SecurityTokenReference")
        return _resolve_reference(inner[0], by_id, known)
    if child.tag == _X509_DATA:
        return resolve_x509_data(child, known)
    raise _refused(child, f"a key named by <{local(child)}> is not accepted")


def _resolve_reference(
    reference: etree._Element,
    by_id: Callable[[str], etree._Element],
    known: Iterable[x509.Certificate],
) -> Named:
    tag = reference.tag
    if tag == _REFERENCE:
        uri = reference.get("URI", "")
        if not uri.startswith("#"):
            raise _refused(reference, f"the token {uri!r} is not in this message")
        token = by_id(uri[1:])
        parent = token.getparent()
        if token.tag != _TOKEN or parent is None or parent.tag != _SECURITY:
            raise _refused(reference, f"{uri} is no BinarySecurityToken of the Security header")
        return _read_token(token)
    if tag == _EMBEDDED:
        inner = elements(reference)
        if len(inner) != 1 or inner[0].tag != _TOKEN:
            raise _refused(reference, "wsse:Embedded holds no BinarySecurityToken")
        named = _read_token(inner[0])
        return Named(named.certificate, named.companions, TokenReference.EMBEDDED)
    if tag == _X509_DATA:
        return resolve_x509_data(reference, known)
    if tag == _KEY_IDENTIFIER:
        return _resolve_key_identifier(reference, known)
    raise _refused(reference, f"a token named by <{local(reference)}> is not accepted")


def resolve_x509_data(data: etree._Element, known: Iterable[x509.Certificate]) -> Named:
    """The first certificate in a ds:X509Data with the others, or the known one that it names."""
    certificates = [e for e in elements(data) if e.tag == f"{{{DS}}}X509Certificate"]
    if certificates:
        found = [_certificate(octets(e, "EBMS:0101"), e) for e in certificates]
        return Named(found[0], tuple(found[1:]), TokenReference.EMBEDDED)
    serials = [e for e in elements(data) if e.tag == f"{{{DS}}}X509IssuerSerial"]
    if len(serials) == 1:
        name = text(_child(serials[0], "X509IssuerName"))
        number = text(_child(serials[0], "X509SerialNumber"))
        if not number.removeprefix("-").isdecimal() or len(number) > 60:
            raise _refused(serials[0], "the serial number is not a number")
        for certificate in known:
            if issuer_matches(certificate, name, int(number)):
                return Named(certificate, form=TokenReference.ISSUER_SERIAL)
        raise _unknown(serials[0], f"issuer {name}, serial {number}")
    identifiers = [e for e in elements(data) if e.tag == f"{{{DS}}}X509SKI"]
    if len(identifiers) == 1:
        return _by_key_identifier(identifiers[0], octets(identifiers[0], "EBMS:0101"), known)
    raise _refused(data, "ds:X509Data names no certificate")


def _child(parent: etree._Element, name: str) -> etree._Element:
    found = [e for e in elements(parent) if e.tag == f"{{{DS}}}{name}"]
    if len(found) != 1:
        raise _refused(parent, f"exactly one ds:{name} is expected")
    return found[0]


def _resolve_key_identifier(element: etree._Element, known: Iterable[x509.Certificate]) -> Named:
    value_type, value = element.get("ValueType", ""), octets(element, "EBMS:0101")
    if value_type == SUBJECT_KEY_IDENTIFIER:
        return _by_key_identifier(element, value, known)
    if value_type == THUMBPRINT:
        for certificate in known:
            if thumbprint_sha1(certificate) == value:
                return Named(certificate, form=TokenReference.THUMBPRINT)
        raise _unknown(element, f"thumbprint {value.hex()}")
    if value_type == X509_V3:
        return Named(_certificate(value, element), form=TokenReference.EMBEDDED)
    raise _refused(element, f"a key identifier of type {value_type!r} is not accepted")


def _by_key_identifier(
    element: etree._Element, value: bytes, known: Iterable[x509.Certificate]
) -> Named:
    for certificate in known:
        if subject_key_identifier(certificate) == value:
            return Named(certificate, form=TokenReference.SUBJECT_KEY_IDENTIFIER)
    raise _unknown(element, f"subject key identifier {value.hex()}")


def _read_token(token: etree._Element) -> Named:
    encoding = token.get("EncodingType", BASE64_BINARY)
    if encoding != BASE64_BINARY:
        raise _refused(token, f"the token's encoding {encoding!r} is not base64")
    value_type = token.get("ValueType", X509_V3)
    if value_type == X509_V3:
        return _familiar(token.text or "") or Named(
            _certificate(octets(token, "EBMS:0101"), token),
            form=TokenReference.BINARY_SECURITY_TOKEN,
        )
    if value_type == PKI_PATH:
        try:
            path_ders = decode_pki_path(octets(token, "EBMS:0101"))
        except ValueError as error:
            raise _refused(token, f"not a PkiPath: {error}") from None
        leaf, *others = (_certificate(der, token) for der in path_ders)
        return Named(leaf, tuple(others), TokenReference.PKI_PATH)
    raise _refused(token, f"a token of type {value_type!r} is not accepted")


def _certificate(der: bytes, where: etree._Element) -> x509.Certificate:
    try:
        if len(der) > LARGEST_CERTIFICATE:
            raise ValueError
        return certificate_of(der)
    except ValueError:
        raise _refused(where, "the token holds no X.509 certificate") from None


def _refused(element: etree._Element, detail: str) -> EbmsError:
    return EbmsError("EBMS:0101", detail, location=path(element))


def _unknown(element: etree._Element, which: str) -> EbmsError:
    return EbmsError(
        "EBMS:0101",
        f"the certificate is not in the message and not known here ({which}); "
        "give it as a trusted certificate",
        location=path(element),
    )
