"""A signer that signs anything in any way: what an insider, or a careless product, could send."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from lxml import etree

from postroad.security.algorithms import ECDSA_SHA256, SHA256, SIGNATURES
from postroad.security.attachments import CONTENT_TRANSFORM
from postroad.security.keys import KeyPair
from postroad.security.rawsign import sign_bytes
from postroad.wire.names import DS, DSIG11, EXC_C14N, SMS10, WSSE, WSU, X509_PROFILE
from tests.attack.messages import Package, buyer
from tests.changing import replace

TOKEN_ID: Final = "_signature-token"
ENVELOPED: Final = DS + "enveloped-signature"
XPATH: Final = "http://www.w3.org/TR/1999/REC-xpath-19991116"
FILTER2: Final = "http://www.w3.org/2002/06/xmldsig-filter2"
XSLT: Final = "http://www.w3.org/TR/1999/REC-xslt-19991116"
STR_TRANSFORM: Final = SMS10 + "#STR-Transform"
STRANGE_URIS: Final = (
    "",
    "#",
    "#nobody",
    "# _messaging",
    "#_MESSAGING",
    "#xpointer(/)",
    "#xpointer(id('_messaging'))",
    "#element(/1/1)",
    "http://127.0.0.1:9/messaging.xml",
    "https://attacker.example/m#_messaging",
    "file:///etc/passwd",
    "ftp://attacker.example/x",
    "//attacker.example/x",
    "messaging.xml",
    "jar:file:///tmp/x!/y",
    "data:,x",
    "cid:",
    "cid:nobody@buyer.example",
    "cid:ONE@buyer.example",
    "mid:one@buyer.example",
)
"""References to what is not in the message, or not an element of it by its id."""
STRANGE_TRANSFORMS: Final[dict[str, tuple[str, ...]]] = {
    "enveloped": (ENVELOPED,),
    "enveloped, then canonical": (ENVELOPED, EXC_C14N),
    "canonical, then enveloped": (EXC_C14N, ENVELOPED),
    "canonical twice": (EXC_C14N, EXC_C14N),
    "xpath": (f'<ds:Transform Algorithm="{XPATH}"><ds:XPath>self::*</ds:XPath></ds:Transform>',),
    "xpath that selects nothing": (
        f'<ds:Transform Algorithm="{XPATH}"><ds:XPath>false()</ds:XPath></ds:Transform>',
    ),
    "xpath filter 2": (
        f'<ds:Transform Algorithm="{FILTER2}"><f:XPath xmlns:f="{FILTER2}" Filter="subtract">/'
        "</f:XPath></ds:Transform>",
    ),
    "xslt": (
        f'<ds:Transform Algorithm="{XSLT}"><xsl:stylesheet version="1.0" '
        'xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/">'
        "<xsl:copy-of select=\"document('file:///etc/passwd')\"/></xsl:template>"
        "</xsl:stylesheet></ds:Transform>",
    ),
    "base64": (DS + "base64",),
    "str-transform on something else": (STR_TRANSFORM,),
    "of attachments": (CONTENT_TRANSFORM,),
    "unknown": ("urn:example:transform",),
    "with no name": ("",),
    "c14n 1.1": ("http://www.w3.org/2006/12/xml-c14n11",),
    "decrypt": ("http://www.w3.org/2002/07/decrypt#XML",),
}
"""Transforms that nobody may use."""
_KEY_INFOS: Final = (
    '<ds:RetrievalMethod URI="http://attacker.example/key"/>',
    f'<ds:RetrievalMethod URI="#_signature-token" Type="{DS}rawX509Certificate"/>',
    '<ds:RetrievalMethod URI="file:///etc/passwd"/>',
    f'<dsig11:KeyInfoReference xmlns:dsig11="{DSIG11}" URI="#_signature-token"/>',
    "<ds:KeyName>CN=buyer,O=Postroad Tests,C=NL</ds:KeyName>",
    "<ds:MgmtData>x</ds:MgmtData>",
    "<ds:PGPData/>",
    "<ds:SPKIData><ds:SPKISexp>AA==</ds:SPKISexp></ds:SPKIData>",
    "",
    "<ds:X509Data/>",
    "<ds:X509Data><ds:X509SubjectName>CN=buyer</ds:X509SubjectName></ds:X509Data>",
    "<ds:X509Data><ds:X509CRL>AA==</ds:X509CRL></ds:X509Data>",
    "<ds:X509Data><ds:X509Certificate>AA==</ds:X509Certificate></ds:X509Data>",
    "<ds:X509Data><ds:X509IssuerSerial><ds:X509IssuerName>CN=a</ds:X509IssuerName>"
    "<ds:X509SerialNumber>--5</ds:X509SerialNumber></ds:X509IssuerSerial></ds:X509Data>",
    "<wsse:SecurityTokenReference/>",
    '<wsse:SecurityTokenReference><wsse:Reference URI="http://attacker.example/t"/>'
    "</wsse:SecurityTokenReference>",
    '<wsse:SecurityTokenReference><wsse:Reference URI="#_messaging"/>'
    "</wsse:SecurityTokenReference>",
    '<wsse:SecurityTokenReference><wsse:Reference URI="#nobody"/></wsse:SecurityTokenReference>',
    "<wsse:SecurityTokenReference><wsse:Embedded/></wsse:SecurityTokenReference>",
    '<wsse:SecurityTokenReference><wsse:KeyIdentifier ValueType="urn:x">AA=='
    "</wsse:KeyIdentifier></wsse:SecurityTokenReference>",
    f'<wsse:SecurityTokenReference><wsse:KeyIdentifier ValueType="{X509_PROFILE}'
    '#X509SubjectKeyIdentifier"></wsse:KeyIdentifier></wsse:SecurityTokenReference>',
    '<wsse:SecurityTokenReference><wsse:Reference URI="#_signature-token"/>'
    '<wsse:Reference URI="#other"/></wsse:SecurityTokenReference>',
)
STRANGE_KEY_INFOS: Final = tuple(
    one.replace("<wsse:SecurityTokenReference", f'<wsse:SecurityTokenReference xmlns:wsse="{WSSE}"')
    for one in _KEY_INFOS
)
"""What ds:KeyInfo may not hold: keys by reference, by name, from elsewhere, or none."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A ds:Reference as it is written; a transform is a URI, or XML where it begins with `<`."""

    uri: str
    digest: bytes
    transforms: tuple[str, ...] = (EXC_C14N,)
    digest_method: str = SHA256

    def write(self) -> str:
        steps = "".join(
            one if one.startswith("<") else f'<ds:Transform Algorithm="{one}"/>'
            for one in self.transforms
        )
        inside = f"<ds:Transforms>{steps}</ds:Transforms>" if self.transforms else ""
        value = base64.b64encode(self.digest).decode()
        return (
            f'<ds:Reference URI="{self.uri}">{inside}<ds:DigestMethod Algorithm='
            f'"{self.digest_method}"/><ds:DigestValue>{value}</ds:DigestValue></ds:Reference>'
        )


def refs(message: Package) -> list[Ref]:
    """The references of the message's own signature."""
    return [
        Ref(
            one.uri,
            one.digest_value,
            tuple(transform.algorithm for transform in one.transforms),
            one.digest_method,
        )
        for one in message.references
    ]


def with_ref(message: Package, uri: str, new: Ref | None) -> list[Ref]:
    """The references with another one in the place of one, or without it."""
    kept = refs(message)
    assert any(one.uri == uri for one in kept)
    return [new if one.uri == uri else one for one in kept if one.uri != uri or new is not None]


def element(message: Package, id: str) -> etree._Element:
    """The element with that id."""
    root = etree.fromstring(message.envelope)
    [found] = root.xpath("//*[@*[local-name()='Id' or local-name()='id'] = $id]", id=id)
    return found


def exclusive(node: etree._Element, prefixes: Sequence[str] = ()) -> bytes:
    return etree.tostring(
        node,
        method="c14n",
        exclusive=True,
        with_tail=False,
        inclusive_ns_prefixes=list(prefixes) or None,
    )


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def resigned(
    message: Package,
    references: Sequence[Ref] | None = None,
    *,
    signer: KeyPair | None = None,
    method: str = ECDSA_SHA256,
    canonicalization: str = EXC_C14N,
    make_value: Callable[[bytes], bytes] | None = None,
    key_info: str | None = None,
    token: bytes | None = None,
    method_content: str = "",
) -> Package:
    """The message with another signature in the place of its own."""
    pair = signer or buyer()
    listed = "".join(one.write() for one in (refs(message) if references is None else references))
    written = (
        f'<ds:SignedInfo xmlns:ds="{DS}"><ds:CanonicalizationMethod Algorithm='
        f'"{canonicalization}"/>'
        f'<ds:SignatureMethod Algorithm="{method}">{method_content}</ds:SignatureMethod>'
        f"{listed}</ds:SignedInfo>"
    )
    signed = exclusive(etree.fromstring(written))
    if make_value is not None:
        value = make_value(signed)
    else:
        value = sign_bytes(pair.private_key, SIGNATURES[method], signed)
    named = key_info if key_info is not None else _direct_reference()
    signature = (
        f'<ds:Signature xmlns:ds="{DS}" Id="_signature">{signed.decode()}<ds:SignatureValue>'
        f"{base64.b64encode(value).decode()}</ds:SignatureValue><ds:KeyInfo>{named}</ds:KeyInfo>"
        "</ds:Signature>"
    )
    certificate = pair.certificate.public_bytes(Encoding.DER) if token is None else token
    envelope = _between(message.envelope, "<ds:Signature ", "</ds:Signature>", signature)
    envelope = _between(
        envelope, "<wsse:BinarySecurityToken ", "</wsse:BinarySecurityToken>", _token(certificate)
    )
    return replace(message, envelope=envelope)


def _direct_reference() -> str:
    return (
        f'<wsse:SecurityTokenReference xmlns:wsse="{WSSE}"><wsse:Reference URI="#{TOKEN_ID}"'
        f' ValueType="{X509_PROFILE}#X509v3"/></wsse:SecurityTokenReference>'
    )


def _token(der: bytes) -> str:
    return (
        f'<wsse:BinarySecurityToken xmlns:wsse="{WSSE}" xmlns:wsu="{WSU}" ValueType='
        f'"{X509_PROFILE}#X509v3" wsu:Id="{TOKEN_ID}">{base64.b64encode(der).decode()}'
        "</wsse:BinarySecurityToken>"
    )


def _between(data: bytes, begin: str, end: str, new: str) -> bytes:
    """With something else in the place of the first piece from `begin` to `end`."""
    start = data.index(begin.encode())
    stop = data.index(end.encode(), start) + len(end)
    return data[:start] + new.encode() + data[stop:]


def cut(message: Package, begin: str, end: str) -> Package:
    """Without that piece of the envelope."""
    return replace(message, envelope=_between(message.envelope, begin, end, ""))


def attachment_ref(uri: str, content: bytes) -> Ref:
    return Ref(uri, sha256(content), (CONTENT_TRANSFORM,))


def public_forms(certificate: x509.Certificate) -> list[bytes]:
    """Return what anybody knows of a key, in each form: an HMAC made with it proves nothing."""
    key = certificate.public_key()
    is_curve = isinstance(key, ec.EllipticCurvePublicKey)
    bare = (Encoding.X962, PublicFormat.UncompressedPoint)
    pkcs1 = (Encoding.DER, PublicFormat.PKCS1)
    return [
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        key.public_bytes(*(bare if is_curve else pkcs1)),
        certificate.public_bytes(Encoding.DER),
        certificate.public_bytes(Encoding.PEM),
        b"",
    ]
