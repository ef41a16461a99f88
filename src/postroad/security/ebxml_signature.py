"""The signature of an ebXML message (0.98b 8.8, 2.0 section 4): over the whole document.

One ds:Signature stands in the SOAP Header. Its first reference, `URI=""`, is to the document
without the Signature itself and without what changes from hop to hop; one more is to each payload,
as its octets are.

Against signature wrapping: the transforms are those of the specification and no others; what they
leave out is found by `ebxml_document` in the very tree that was read, and handed on as the very
elements (`CheckedReference.left_out`); `covered` says of an element whether it is vouched for.
"""

import base64
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree

from postroad.security.algorithms import DIGESTS, SIGNATURES, STRONG, Algorithms
from postroad.security.attachments import Attachment, content_digest
from postroad.security.certificates import subject_key_identifier
from postroad.security.distinguished import rfc2253_name
from postroad.security.ebxml_document import (
    NOTHING,
    Hops,
    document,
    hop_elements,
    hops_of,
    read_xpath,
)
from postroad.security.keys import KeyPair
from postroad.security.rawsign import sign_bytes
from postroad.security.sign import Signing, write_reference
from postroad.security.tokens import Named, TokenReference, resolve_x509_data
from postroad.security.verify import (
    INCLUSIVE,
    CheckedReference,
    Verification,
    broken,
    failed,
    inclusive,
    read_signed_info,
    refused_algorithms,
    signatures,
    structure,
    unheld,
    value_holds,
)
from postroad.wire.ebms3 import Reference, Transform
from postroad.wire.ebxml import Dialect
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime_headers import cid_url, content_id_of
from postroad.wire.names import C14N, DS, XML, XPATH
from postroad.wire.soap import Envelope, read_envelope
from postroad.wire.xml import elements, escape, escape_attribute, local, parse, path

ENVELOPED: Final = DS + "enveloped-signature"
_TRANSFORMS: Final = (Transform(ENVELOPED), Transform(XPATH), Transform(C14N))
_MOST_CERTIFICATES: Final = 16

_XPATH_ELEMENT: Final = f"{{{DS}}}XPath"
_TRANSFORMS_ELEMENT: Final = f"{{{DS}}}Transforms"
_X509_DATA: Final = f"{{{DS}}}X509Data"
_NAMES_ONLY: Final = frozenset((f"{{{DS}}}KeyName", f"{{{DS}}}KeyValue"))
_NAMING: Final = frozenset(f"{{{DS}}}X509{name}" for name in ("Certificate", "IssuerSerial", "SKI"))


# Signing


def sign_ebxml(
    envelope: bytes,
    dialect: Dialect,
    attachments: Sequence[Attachment],
    signing: Signing,
    *,
    limits: Limits = DEFAULT,
) -> tuple[str, tuple[Reference, ...]]:
    """The ds:Signature to put into the Header, anywhere and without white space around it.

    Then nothing else of the envelope may change but what is for hops. ValueError when key and
    algorithm do not fit, or when the envelope cannot be signed.
    """
    try:
        read = read_envelope(parse(envelope, limits))
        whole = document(read, hop_elements(read, hops_of(dialect), dialect))
    except EbmsError as error:
        raise ValueError(f"this envelope cannot be signed: {error.detail}") from None
    if read.header is None:
        raise ValueError("this envelope cannot be signed: it has no Header")
    digest, algorithm = DIGESTS[signing.digest], SIGNATURES[signing.algorithm]
    references = (
        Reference("", _TRANSFORMS, digest.uri, digest.new(whole).digest()),
        *(
            Reference(
                cid_url(attachment.content_id),
                (),
                digest.uri,
                content_digest(attachment, digest, raw=True),
            )
            for attachment in attachments
        ),
    )
    parameters = {XPATH: _write_xpath(dialect)}
    signed_info = (
        f'<ds:SignedInfo><ds:CanonicalizationMethod Algorithm="{C14N}"/>'
        f'<ds:SignatureMethod Algorithm="{algorithm.uri}"/>'
        f"{''.join(write_reference(one, parameters) for one in references)}</ds:SignedInfo>"
    )
    start = f'<ds:Signature xmlns:ds="{DS}">{signed_info}'
    key_info = write_key_info(signing.reference, signing.key)
    value = sign_bytes(
        signing.key.private_key, algorithm, _in_place(read.header, f"{start}</ds:Signature>")
    )
    signature = (
        f"{start}<ds:SignatureValue>{base64.b64encode(value).decode()}</ds:SignatureValue>"
        f"<ds:KeyInfo><ds:X509Data>{key_info}</ds:X509Data></ds:KeyInfo></ds:Signature>"
    )
    return signature, references


def _write_xpath(dialect: Dialect) -> str:
    declared = "".join(f' xmlns:{prefix}="{uri}"' for prefix, uri in dialect.hop_namespaces)
    return f"<ds:XPath{declared}>{escape(dialect.hop_xpath)}</ds:XPath>"


def _in_place(header: etree._Element, signature: str) -> bytes:
    """The SignedInfo in canonical form below that Header, whose namespaces it takes over."""
    attributes = {
        f"xmlns:{prefix}" if prefix else "xmlns": uri or "" for prefix, uri in header.nsmap.items()
    }
    for element in (header, *header.iterancestors()):
        for name, value in element.attrib.items():
            if str(name).startswith(f"{{{XML}}}"):
                attributes.setdefault(f"xml:{str(name).rpartition('}')[2]}", str(value))
    written = "".join(f' {name}="{escape_attribute(uri)}"' for name, uri in attributes.items())
    return inclusive(parse(f"<Header{written}>{signature}</Header>".encode())[0][0])


def write_key_info(form: TokenReference, pair: KeyPair) -> str:
    """How ds:X509Data names the certificate."""
    certificate = pair.certificate
    match form:
        case TokenReference.ISSUER_SERIAL:
            return (
                f"<ds:X509IssuerSerial><ds:X509IssuerName>"
                f"{escape(rfc2253_name(certificate.issuer))}</ds:X509IssuerName>"
                f"<ds:X509SerialNumber>{certificate.serial_number}</ds:X509SerialNumber>"
                "</ds:X509IssuerSerial>"
            )
        case TokenReference.SUBJECT_KEY_IDENTIFIER:
            identifier = subject_key_identifier(certificate)
            if identifier is None:
                raise ValueError(
                    "the certificate has no subject key identifier; "
                    "name it by issuer_serial or binary_security_token instead"
                )
            return f"<ds:X509SKI>{base64.b64encode(identifier).decode()}</ds:X509SKI>"
        case TokenReference.THUMBPRINT:
            raise ValueError(
                "an ebXML signature cannot name its certificate by thumbprint; "
                "use issuer_serial or binary_security_token instead"
            )
    chain = pair.chain if form is TokenReference.PKI_PATH else ()
    return "".join(
        f"<ds:X509Certificate>{base64.b64encode(one.public_bytes(Encoding.DER)).decode()}"
        "</ds:X509Certificate>"
        for one in (certificate, *chain)
    )


# Verifying


def verify_ebxml(
    signature: etree._Element,
    envelope: Envelope,
    dialect: Dialect,
    attachments: Mapping[str, Attachment],
    hrefs: Collection[str],
    *,
    known: Iterable[x509.Certificate] = (),
    algorithms: Algorithms = STRONG,
    unseen: Callable[[str], str | None] = lambda content_id: None,
    limits: Limits = DEFAULT,
) -> Verification:
    """Check the signature of the From Party; whatever is wrong is in the result, nothing is raised.

    `hrefs` are those of the Manifest: every payload among them must be covered. Where KeyInfo
    holds no certificate and names none, the signer is the one of `known` whose key fits. `unseen`
    says why an attachment cannot be looked at, if so: its digest stays open.
    """
    try:
        _refuse_misplaced(signature, envelope)
        signed_info, value, key_info = structure(signature)
        method, signed, references = read_signed_info(signed_info, limits)
        if references[0].uri != "":
            raise failed(signed_info, 'the first reference must be to the whole document, URI=""')
    except EbmsError as error:
        return Verification("", False, None, (), (), (error,))
    problems = refused_algorithms(
        signed_info, algorithms, {method, *(one.digest_method for one in references)}
    )
    checker = _Checker(signature, envelope, dialect, attachments, hrefs, unseen)
    checked = tuple(map(checker.check, list(signed_info)[2:], references))
    problems += [_unheld(result, signature) for result in checked if not result.valid]
    problems += _uncovered(hrefs, checked)
    signers: tuple[Named, ...] = ()
    signer: Named | None = None
    holds: bool | None = None
    try:
        signers = _signers(signature, key_info, tuple(known))
        signer = _signer(signature, signers, method, value, signed)
        holds = True
    except EbmsError as error:
        problems.append(error)
        if signers:
            holds, signer = False, signers[0] if signers[0].form else None
    return Verification(
        method,
        False if any(result.valid is False for result in checked) else holds,
        signer.certificate if signer else None,
        signer.companions if signer else (),
        checked,
        tuple(problems),
        signer.form if signer else None,
    )


def covered(verification: Verification, element: etree._Element) -> bool:
    """Whether this very element was digested with the document and nothing of it is broken."""
    if verification.valid is False:
        return False
    for checked in verification.references:
        if checked.valid and checked.element is not None:
            line = [element, *element.iterancestors()]
            if line[-1] is checked.element:
                return not any(one is out for one in line for out in checked.left_out)
    return False


def _refuse_misplaced(signature: etree._Element, envelope: Envelope) -> None:
    """Only the first Signature that is a child of the Header is the From Party's (8.8)."""
    present = signatures(envelope.header) if envelope.header is not None else []
    if not present or present[0] is not signature:
        raise failed(
            signature,
            "only the first Signature that is a child of the SOAP Header is the sender's; "
            "this one proves nothing",
        )


def _unheld(result: CheckedReference, signature: etree._Element) -> EbmsError:
    problem = unheld(result)
    if result.reference.uri == "":
        problem.location = path(signature)
    return problem


def _uncovered(hrefs: Iterable[str], checked: Iterable[CheckedReference]) -> list[EbmsError]:
    covered_ids = {result.content_id for result in checked}
    wanted = dict.fromkeys(id for href in hrefs if (id := content_id_of(href)))
    return [
        EbmsError("EBMS:0103", "the signature does not cover this payload", location=f"cid:{id}")
        for id in wanted
        if id not in covered_ids
    ]


@dataclass(slots=True)
class _Checker:
    """Digests what references point at."""

    signature: etree._Element
    envelope: Envelope
    dialect: Dialect
    attachments: Mapping[str, Attachment]
    hrefs: Collection[str]
    unseen: Callable[[str], str | None]
    digested: set[str] = field(default_factory=set)
    """What was digested: nothing is twice, or a small message could ask for endless work."""

    def check(self, element: etree._Element, reference: Reference) -> CheckedReference:
        uri = reference.uri
        content_id = content_id_of(uri)
        target = uri if content_id is None else f"cid:{content_id}"
        if reference.digest_method not in DIGESTS:
            return broken(reference, f"unknown digest method {reference.digest_method!r}")
        if target in self.digested:
            return broken(reference, "it is referred to more than once", content_id)
        self.digested.add(target)
        if uri == "":
            return self._document(element, reference)
        if content_id is not None:
            return self._attachment(reference, content_id)
        if uri in self.hrefs and not uri.startswith("#"):
            reason = "it is not a part of this message, and nothing is fetched"
            return CheckedReference(reference, None, reason=reason)
        return broken(reference, "it is neither the whole document nor a payload of the Manifest")

    def _document(self, element: etree._Element, reference: Reference) -> CheckedReference:
        try:
            hops = _transformed(element, reference, self.dialect)
            left_out = hop_elements(self.envelope, hops, self.dialect)
            if self.signature not in left_out:
                left_out.append(self.signature)
            whole = document(self.envelope, left_out)
        except EbmsError as error:
            return broken(reference, error.detail)
        held = DIGESTS[reference.digest_method].new(whole).digest() == reference.digest_value
        return CheckedReference(
            reference,
            held,
            self.envelope.root,
            reason=None if held else "its content was changed",
            left_out=tuple(left_out),
        )

    def _attachment(self, reference: Reference, content_id: str) -> CheckedReference:
        hidden = self.unseen(content_id)
        if hidden is not None:
            return CheckedReference(reference, None, None, content_id, hidden)
        attachment = self.attachments.get(content_id)
        if attachment is None:
            return broken(reference, "the message has no such part", content_id)
        if reference.transforms:
            return broken(reference, "a payload is signed without transforms", content_id)
        digest = content_digest(attachment, DIGESTS[reference.digest_method], raw=True)
        if digest != reference.digest_value:
            return broken(reference, "its content was changed", content_id)
        return CheckedReference(reference, True, None, content_id)


def _transformed(element: etree._Element, reference: Reference, dialect: Dialect) -> Hops:
    """What the transforms of the document take out beside the Signature.

    They are the enveloped signature, then the XPath (or none: more is covered), then Canonical
    XML (or none: it is the default).
    """
    names = [transform.algorithm for transform in reference.transforms]
    steps = [one for child in element if child.tag == _TRANSFORMS_ELEMENT for one in child]
    if len(names) > 1 and names[-1] in INCLUSIVE and not len(steps[-1]):
        names.pop()
    if names[:1] == [ENVELOPED] and not len(steps[0]):
        if names[1:] == []:
            return NOTHING
        if names[1:] == [XPATH]:
            inner = list(steps[1])
            if len(inner) == 1 and inner[0].tag == _XPATH_ELEMENT:
                return read_xpath(inner[0], dialect)
            raise failed(steps[1], "the XPath transform holds no single ds:XPath")
    listed = ", ".join(transform.algorithm for transform in reference.transforms) or "none"
    raise failed(
        element,
        "the document is signed by the transforms enveloped-signature, XPath and Canonical XML, "
        f"in this order, not by these: {listed}",
    )


def _signers(
    signature: etree._Element,
    key_info: etree._Element | None,
    known: tuple[x509.Certificate, ...],
) -> tuple[Named, ...]:
    """Whose signature it may be: by X509Data, or anybody known where that names no certificate."""
    found: list[Named] = []
    for child in elements(key_info) if key_info is not None else ():
        if child.tag == _X509_DATA:
            if any(one.tag in _NAMING for one in child):
                found.append(resolve_x509_data(child, known))
        elif child.tag not in _NAMES_ONLY:
            raise failed(child, f"a key named by <{local(child)}> is not accepted")
    if not found:
        if not known:
            raise failed(
                signature,
                "it does not hold the signer's certificate, and none is known here; "
                "give it as a trusted certificate",
            )
        return tuple(Named(certificate) for certificate in known)
    certificates = [one for named in found for one in (named.certificate, *named.companions)]
    if len(certificates) > _MOST_CERTIFICATES:
        raise failed(signature, f"more than {_MOST_CERTIFICATES} certificates")
    return tuple(
        Named(one, tuple(other for other in certificates if other is not one), found[0].form)
        for one in certificates
    )


def _signer(
    signature: etree._Element,
    signers: Iterable[Named],
    method: str,
    value: bytes,
    signed: bytes,
) -> Named:
    """The one whose key made the value; XMLDSIG says nothing of the order of certificates."""
    problem = failed(signature, "the signature value does not fit its content and certificate")
    for named in signers:
        try:
            if value_holds(signature, method, value, named.certificate, signed):
                return named
        except EbmsError as error:
            problem = error
    raise problem
