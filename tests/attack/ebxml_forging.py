"""A signer of ebXML messages that signs anything in any way."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree

from postroad.security import algorithms as alg
from postroad.security.algorithms import SIGNATURES
from postroad.security.ebxml_signature import ENVELOPED
from postroad.security.keys import KeyPair
from postroad.security.rawsign import sign_bytes
from postroad.wire.ebxml import MS20, Dialect
from postroad.wire.names import C14N, DS, EB2_NEXT_MSH, EXC_C14N, S11_NEXT, XPATH


@dataclass(frozen=True)
class Ref:
    """A ds:Reference as it is written; a transform is a URI, or XML where it begins with `<`."""

    uri: str
    content: bytes
    transforms: tuple[str, ...] = ()
    digest_method: str = alg.SHA256

    def write(self) -> str:
        steps = "".join(
            one if one.startswith("<") else f'<ds:Transform Algorithm="{one}"/>'
            for one in self.transforms
        )
        inside = f"<ds:Transforms>{steps}</ds:Transforms>" if steps else ""
        digest = alg.DIGESTS[self.digest_method].new(self.content).digest()
        return (
            f'<ds:Reference URI="{self.uri}">{inside}<ds:DigestMethod Algorithm="'
            f'{self.digest_method}"/><ds:DigestValue>{base64.b64encode(digest).decode()}'
            "</ds:DigestValue></ds:Reference>"
        )


def xpath_step(dialect: Dialect, expression: str | None = None, namespaces: str = "") -> str:
    declared = namespaces or "".join(f' xmlns:{p}="{uri}"' for p, uri in dialect.hop_namespaces)
    text = dialect.hop_xpath if expression is None else expression
    return f'<ds:Transform Algorithm="{XPATH}"><ds:XPath{declared}>{text}</ds:XPath></ds:Transform>'


def whole(envelope: bytes, transforms: Sequence[str] = (ENVELOPED, C14N)) -> Ref:
    """The document as it is when nothing is to be left out of it."""
    root = etree.fromstring(envelope)
    form = etree.tostring(root, method="c14n", with_comments=False)
    return Ref("", form, tuple(transforms))


def write_signature(
    references: Sequence[Ref],
    *,
    signer: KeyPair,
    method: str = alg.ECDSA_SHA256,
    value: bytes | None = None,
    key_info: str | None = None,
    within: str = "",
) -> str:
    """Return a ds:Signature over these references."""
    info = (
        f'<ds:SignedInfo xmlns:ds="{DS}"><ds:CanonicalizationMethod Algorithm="{EXC_C14N}"/>'
        f'<ds:SignatureMethod Algorithm="{method}"/>'
        f"{''.join(one.write() for one in references)}</ds:SignedInfo>"
    )
    to_sign = etree.tostring(etree.fromstring(info), method="c14n", exclusive=True)
    octets = value or sign_bytes(signer.private_key, SIGNATURES[method], to_sign)
    der = base64.b64encode(signer.certificate.public_bytes(Encoding.DER)).decode()
    named = f"<ds:X509Data><ds:X509Certificate>{der}</ds:X509Certificate></ds:X509Data>"
    return (
        f'<ds:Signature xmlns:ds="{DS}">{info}<ds:SignatureValue>'
        f"{base64.b64encode(octets).decode()}</ds:SignatureValue><ds:KeyInfo>"
        f"{named if key_info is None else key_info}</ds:KeyInfo>{within}</ds:Signature>"
    )


XSLT: Final = (
    '<ds:Transform Algorithm="http://www.w3.org/TR/1999/REC-xslt-19991116"><xsl:stylesheet '
    'xmlns:xsl="http://www.w3.org/1999/XSL/Transform" version="1.0"/></ds:Transform>'
)
FILTER_2: Final = (
    '<ds:Transform Algorithm="http://www.w3.org/2002/06/xmldsig-filter2"><f:XPath xmlns:f='
    '"http://www.w3.org/2002/06/xmldsig-filter2" Filter="subtract">//*</f:XPath></ds:Transform>'
)
INCLUSIVE_PREFIXES: Final = (
    f'<ds:Transform Algorithm="{C14N}"><x:InclusiveNamespaces xmlns:x="{EXC_C14N}" '
    'PrefixList="eb"/></ds:Transform>'
)
FOREIGN_TRANSFORMS: Final = (
    (),
    (C14N,),
    (EXC_C14N,),
    (ENVELOPED, EXC_C14N),
    (ENVELOPED, XSLT),
    (XSLT, ENVELOPED, C14N),
    (ENVELOPED, FILTER_2, C14N),
    (ENVELOPED, DS + "base64"),
    (ENVELOPED, ENVELOPED, C14N),
    (ENVELOPED, C14N, C14N),
    (C14N, ENVELOPED),
    (xpath_step(MS20), ENVELOPED, C14N),
    (xpath_step(MS20), C14N),
    (ENVELOPED, C14N, xpath_step(MS20)),
    (ENVELOPED, xpath_step(MS20), xpath_step(MS20), C14N),
    (ENVELOPED, INCLUSIVE_PREFIXES),
    (f'<ds:Transform Algorithm="{ENVELOPED}"><ds:XPath>1</ds:XPath></ds:Transform>', C14N),
    (ENVELOPED, "urn:example:unknown"),
)
"""Transforms of the whole document other than the one list that is specified."""
ACTOR_IS: Final = f'ancestor-or-self::node()[@SOAP:actor="{S11_NEXT}"]'
FOREIGN_XPATHS: Final = (
    "",
    "true()",
    "1",
    "self::SOAP:Envelope",
    "not(ancestor-or-self::node())",
    "not(self::text())",
    "not(ancestor-or-self::SOAP:Body)",
    "not(ancestor-or-self::eb:Via or ancestor-or-self::eb:TraceHeaderList)",
    ACTOR_IS,
    f"not(not({ACTOR_IS}))",
    f"not({ACTOR_IS} | ancestor-or-self::SOAP:Body)",
    f"not({ACTOR_IS}) or not({ACTOR_IS})",
    f"not({ACTOR_IS}) and true()",
    f"not({ACTOR_IS}) and",
    f"not({ACTOR_IS} and {ACTOR_IS})",
    f"not({ACTOR_IS}) | {ACTOR_IS}",
    f"not({ACTOR_IS}",
    f"not({ACTOR_IS}))",
    f"not({ACTOR_IS})[1]",
    f"(not({ACTOR_IS}))",
    f"count({ACTOR_IS})",
    f"not({ACTOR_IS.replace('ancestor-or-self', 'descendant')})",
    f"not({ACTOR_IS.replace('ancestor-or-self', 'ancestor')})",
    f"not({ACTOR_IS.replace('SOAP:actor', 'actor')})",
    f"not({ACTOR_IS.replace('SOAP:actor', 'none:actor')})",
    f"not({ACTOR_IS.replace('@', '')})",
    f"not({ACTOR_IS.replace('=', '!=')})",
    f"not({ACTOR_IS.replace(S11_NEXT, 'urn:any')})",
    f"not({ACTOR_IS.replace(S11_NEXT, f' {S11_NEXT} ')})",
    "not(ancestor-or-self::node()[@SOAP:actor])",
    f"not({ACTOR_IS}) $",
    f"not({ACTOR_IS}<!-- comment -->)",
    f"not({ACTOR_IS})<ds:x/>",
    f"not({ACTOR_IS})" + " " * 5000,
    "not(" * 1000 + ")" * 1000,
    'not(document("http://attacker.example/"))',
    f"not(ancestor-or-self::node()[@SOAP:actor='{S11_NEXT}\"] | "
    f"ancestor-or-self::node()[@SOAP:actor=\"{EB2_NEXT_MSH}'])",
)
"""Expressions that are not the specified one."""
