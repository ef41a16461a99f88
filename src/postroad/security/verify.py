"""Verifying: what a signature covers, whether it holds, and by whose certificate.

Against signature wrapping: an id must name one element of the whole message; only whitelisted
transforms are applied; and what was verified is handed on as the very elements whose bytes were
digested (`Verification.covers` compares identity), so nobody looks anything up a second time.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cryptography import x509
from lxml import etree

from postroad.security.algorithms import DIGESTS, SIGNATURES, STRONG, Algorithms, Scheme
from postroad.security.attachments import (
    COMPLETE_TRANSFORM,
    CONTENT_TRANSFORM,
    Attachment,
    content_digest,
)
from postroad.security.ids import Ids
from postroad.security.plain_references import plain_references
from postroad.security.rawsign import verify_bytes
from postroad.security.tokens import Named, TokenReference, resolve_token
from postroad.wire.ebms3 import Reference, Transform
from postroad.wire.ebms3_signals import read_reference, read_transform
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime_headers import content_id_of
from postroad.wire.names import (
    C14N,
    DS,
    EXC_C14N,
    S11,
    S12,
    S12_ULTIMATE_RECEIVER,
    SMS10,
    WSSE,
    XML,
)
from postroad.wire.xml import canonical, elements, local, octets, path

STR_TRANSFORM: Final = SMS10 + "#STR-Transform"
_EXCLUSIVE: Final = frozenset((EXC_C14N, EXC_C14N + "WithComments"))
INCLUSIVE: Final = frozenset((C14N, C14N + "#WithComments"))
_CANONICAL: Final = _EXCLUSIVE | INCLUSIVE
_TARGETS: Final = frozenset((f"{{{S12}}}role", f"{{{S11}}}actor", "role", "actor"))
_MOST_PREFIXES: Final = 128
_CLOSED: Final = "it is encrypted and was not opened"

_SIGNATURE: Final = f"{{{DS}}}Signature"
_SIGNED_INFO: Final = f"{{{DS}}}SignedInfo"
_SIGNATURE_VALUE: Final = f"{{{DS}}}SignatureValue"
_KEY_INFO: Final = f"{{{DS}}}KeyInfo"
_CANONICALIZATION_METHOD: Final = f"{{{DS}}}CanonicalizationMethod"
_SIGNATURE_METHOD: Final = f"{{{DS}}}SignatureMethod"
_SECURITY: Final = f"{{{WSSE}}}Security"
_XML: Final = f"{{{XML}}}"
_STR: Final = f"{{{WSSE}}}SecurityTokenReference"


class CheckedReference(NamedTuple):
    """One ds:Reference and what became of it."""

    reference: Reference
    valid: bool | None
    """None when what it covers cannot be looked at."""
    element: etree._Element | None = None
    content_id: str | None = None
    reason: str | None = None
    """Why it does not hold."""
    left_out: tuple[etree._Element, ...] = ()
    """What stands in the element and was not digested: it says nothing."""


class Verification(NamedTuple):
    """What is known about one signature after it was checked."""

    algorithm: str
    valid: bool | None
    """The value holds and no reference is broken; None when the signer's key is not known."""
    certificate: x509.Certificate | None
    companions: tuple[x509.Certificate, ...]
    references: tuple[CheckedReference, ...]
    problems: tuple[EbmsError, ...]
    form: TokenReference | None = None
    """How the message names the signer's certificate."""

    def covers(self, element: etree._Element) -> bool:
        """Whether this very element was digested and the digest held."""
        return any(checked.element is element and checked.valid for checked in self.references)

    def covers_attachment(self, content_id: str) -> bool:
        return any(c.content_id == content_id and c.valid for c in self.references)

    @property
    def unseen(self) -> list[str]:
        """What it covers and nobody could look at."""
        return [one.reference.uri for one in self.references if one.valid is None]

    @property
    def signed_references(self) -> tuple[Reference, ...]:
        return tuple([checked.reference for checked in self.references])


def security_headers(header: etree._Element | None) -> Mapping[str | None, etree._Element]:
    """The wsse:Security blocks of a SOAP Header by the actor or role they are for.

    Two for the same target are an error (WSS 1.1, 5).
    """
    found: dict[str | None, etree._Element] = {}
    if header is None:
        return found
    for block in header:
        if block.tag != _SECURITY:
            continue
        target = _target(block)
        if target in found:
            raise failed(block, "two wsse:Security headers for the same role")
        found[target] = block
    return found


def _target(block: etree._Element) -> str | None:
    """Who the block is for; None is the ultimate receiver, named or not."""
    for name in block.keys():  # noqa: SIM118
        if name in _TARGETS and (value := block.get(name, "").strip()):
            return None if value == S12_ULTIMATE_RECEIVER else value
    return None


def signatures(security: etree._Element) -> list[etree._Element]:
    """The signatures that stand where a signature may stand: directly in the Security header.

    In ebXML messages that is: directly in the SOAP Header.
    """
    return [child for child in security if child.tag == _SIGNATURE]


def verify(
    signature: etree._Element,
    ids: Ids,
    attachments: Mapping[str, Attachment],
    *,
    known: Iterable[x509.Certificate] = (),
    algorithms: Algorithms = STRONG,
    raw_attachments: bool | None = None,
    unseen: Callable[[str], str | None] | None = None,
    sealed: Collection[etree._Element] = (),
    hidden: int = 0,
    limits: Limits = DEFAULT,
) -> Verification:
    """Check one signature; whatever is wrong is in the result, nothing is raised.

    With `raw_attachments` None, attachments digested without canonicalisation are taken too, with
    a warning. `unseen` says why an attachment cannot be looked at, if so: its digest stays open.
    So does that of `sealed` elements, whose content is still encrypted, and that of as many
    elements that are not there as pieces of the Security header are still encrypted (`hidden`).
    """
    problems: list[EbmsError] = []
    try:
        signed_info, value, key_info = structure(signature)
        if key_info is None:
            raise failed(signature, "it has no KeyInfo, so nobody is named as its signer")
        method, canonical_info, references = read_signed_info(signed_info, limits)
    except EbmsError as error:
        return Verification("", False, None, (), (), (error,))
    problems += refused_algorithms(
        signed_info, algorithms, {method, *[r.digest_method for r in references]}
    )
    checker = _Checker(ids, attachments, raw_attachments, unseen, sealed, hidden, limits, problems)
    checked = tuple([checker.check(reference) for reference in references])
    problems += [unheld(result) for result in checked if not result.valid]
    named: Named | None = None
    holds: bool | None = None
    try:
        named = resolve_token(key_info, ids.one, known)
        holds = value_holds(signature, method, value, named.certificate, canonical_info)
        if not holds:
            problems.append(
                failed(signature, "the signature value does not fit its content and certificate")
            )
    except EbmsError as error:
        problems.append(error)
        if named is not None:
            holds = False
    all_hold = False not in [result.valid for result in checked]
    return Verification(
        method,
        holds if all_hold else False,
        named.certificate if named else None,
        named.companions if named else (),
        checked,
        tuple(problems),
        named.form if named else None,
    )


def references_of(block: etree._Element | None, limits: Limits = DEFAULT) -> tuple[Reference, ...]:
    """What the first signature in a Security header covers, without checking it.

    In ebXML messages the SOAP Header itself takes the place of the Security header.
    """
    present = signatures(block) if block is not None else []
    return read_signed_info(structure(present[0])[0], limits)[2] if present else ()


def unheld(result: CheckedReference) -> EbmsError:
    uri = result.reference.uri or "the whole document"
    if result.valid is None:
        detail, severity = (
            f"the signed part {uri} is not checked: {result.reason}",
            Severity.WARNING,
        )
    else:
        detail, severity = f"the signed part {uri} does not hold: {result.reason}", Severity.FAILURE
    return EbmsError("EBMS:0101", detail, location=uri, severity=severity)


def structure(
    signature: etree._Element,
) -> tuple[etree._Element, bytes, etree._Element | None]:
    """SignedInfo, the value and KeyInfo, which may be missing: one of each, and nothing else."""
    children = list(signature)
    tags = [child.tag for child in children]
    if len(tags) < 2 or tags != [_SIGNED_INFO, _SIGNATURE_VALUE, _KEY_INFO][: len(tags)]:
        found = ", ".join(local(child) for child in children) or "nothing"
        raise failed(
            signature, f"SignedInfo, SignatureValue and KeyInfo are expected, found {found}"
        )
    key_info = children[2] if len(children) == 3 else None
    return children[0], octets(children[1], "EBMS:0101"), key_info


def read_signed_info(
    signed_info: etree._Element, limits: Limits
) -> tuple[str, bytes, tuple[Reference, ...]]:
    """Signature method, the canonical bytes that were signed, and the references."""
    children = list(signed_info)
    if (
        len(children) < 3
        or children[0].tag != _CANONICALIZATION_METHOD
        or children[1].tag != _SIGNATURE_METHOD
    ):
        raise failed(
            signed_info,
            "one CanonicalizationMethod, one SignatureMethod and at least one Reference are "
            "expected, in this order",
        )
    if len(children) - 2 > limits.references:
        raise failed(signed_info, f"more than {limits.references} references")
    if len(children[1]):
        raise failed(children[1], "parameters of the signature method are not accepted")
    how = read_transform(children[0], "EBMS:0101")
    if how.algorithm not in _CANONICAL:
        raise failed(children[0], f"canonicalisation by {how.algorithm!r} is not accepted")
    signed = _canonicalised(signed_info, how)
    references = None
    if next(signed_info.iter(etree.Comment), None) is None:
        references = plain_references(signed, signed_info.prefix)
    if references is None or len(references) != len(children) - 2:
        references = tuple([read_reference(child, "EBMS:0101") for child in children[2:]])
    return children[1].get("Algorithm", ""), signed, references


def _canonicalised(element: etree._Element, how: Transform) -> bytes:
    if how.algorithm not in _EXCLUSIVE:
        return inclusive(element)
    if len(how.prefixes) > _MOST_PREFIXES:
        raise failed(element, f"more than {_MOST_PREFIXES} inclusive namespace prefixes")
    return canonical(element, prefixes=how.prefixes)


def inclusive(element: etree._Element) -> bytes:
    """Inclusive canonical form, which takes over the xml: attributes of what is above it."""
    taken: dict[str, str] = {}
    for above in element.iterancestors():
        for name, value in above.attrib.items():
            if str(name).startswith(_XML) and name not in element.attrib:
                taken.setdefault(str(name), str(value))
    for name, value in taken.items():
        element.set(name, value)
    try:
        return canonical(element, exclusive=False)
    finally:
        for name in taken:
            del element.attrib[name]


def refused_algorithms(
    signed_info: etree._Element, algorithms: Algorithms, used: set[str]
) -> list[EbmsError]:
    refused = [reason for uri in used if (reason := algorithms.refuse(uri))]
    return [
        EbmsError("EBMS:0103", reason, location=path(signed_info)) for reason in sorted(refused)
    ]


@dataclass(slots=True)
class _Checker:
    """Digests what references point at."""

    ids: Ids
    attachments: Mapping[str, Attachment]
    raw: bool | None
    unseen: Callable[[str], str | None] | None
    sealed: Collection[etree._Element]
    hidden: int
    limits: Limits
    problems: list[EbmsError]
    digested: set[str] = field(default_factory=set)
    """What was digested: nothing is twice, or a small message could ask for endless work."""

    def check(self, reference: Reference) -> CheckedReference:
        if reference.digest_method not in DIGESTS:
            return broken(reference, f"unknown digest method {reference.digest_method!r}")
        uri = reference.uri
        try:
            if uri.startswith("#"):
                self._once(uri)
                if self.hidden and not self.ids.count(uri[1:]):
                    self.hidden -= 1
                    return CheckedReference(reference, None, reason=_CLOSED)
                return self._element(reference, self.ids.one(uri[1:]))
            content_id = content_id_of(uri)
            if content_id is not None:
                self._once(f"cid:{content_id}")
                return self._attachment(reference, content_id)
        except EbmsError as error:
            return broken(reference, error.detail)
        if uri == "":
            return broken(reference, "a signature over the whole document is not accepted")
        return broken(reference, "it is not a part of this message, and nothing is fetched")

    def _once(self, target: str) -> None:
        if target in self.digested:
            raise EbmsError("EBMS:0101", "it is referred to more than once")
        self.digested.add(target)

    def _element(self, reference: Reference, element: etree._Element) -> CheckedReference:
        if _misplaced(element):
            return broken(reference, f"{path(element)} is no place for a signed element")
        digest = DIGESTS[reference.digest_method]
        for form in self._forms(reference, element):
            if not form:
                return broken(reference, "its canonical form is empty")
            if digest.new(form).digest() == reference.digest_value:
                return CheckedReference(reference, True, element)
        if element in self.sealed:
            return CheckedReference(reference, None, element, reason=_CLOSED)
        return CheckedReference(reference, False, element, reason="its content was changed")

    def _forms(self, reference: Reference, element: etree._Element) -> list[bytes]:
        """What may have been digested: one form, or two where products differ."""
        transforms = reference.transforms
        if len(transforms) > 1:
            raise EbmsError("EBMS:0101", _too_many(transforms))
        if not transforms:
            return [inclusive(element)]
        how = transforms[0]
        if how.algorithm in _CANONICAL:
            return [_canonicalised(element, how)]
        if how.algorithm == STR_TRANSFORM and element.tag == _STR:
            return self._dereferenced(element)
        raise EbmsError("EBMS:0101", f"the transform {how.algorithm!r} is not accepted")

    def _dereferenced(self, reference: etree._Element) -> list[bytes]:
        """The token behind a SecurityTokenReference (STR-Transform), as WSS 1.1 8.3 writes it."""
        inner = elements(reference)
        uri = inner[0].get("URI", "") if len(inner) == 1 else ""
        if not uri.startswith("#"):
            raise EbmsError("EBMS:0101", "the signed token is not in the message")
        self._once(f"token {uri}")
        plain = canonical(self.ids.one(uri[1:]))
        name_end = min(i for i in (plain.find(b" "), plain.find(b">")) if i > 0)
        return [plain, plain[:name_end] + b' xmlns=""' + plain[name_end:]]

    def _attachment(self, reference: Reference, content_id: str) -> CheckedReference:
        hidden = self.unseen(content_id) if self.unseen is not None else None
        if hidden is not None:
            return CheckedReference(reference, None, None, content_id, hidden)
        attachment = self.attachments.get(content_id)
        if attachment is None:
            return broken(reference, "the message has no such attachment", content_id)
        names = [transform.algorithm for transform in reference.transforms]
        if names == [COMPLETE_TRANSFORM]:
            return broken(
                reference, "signing MIME headers with the attachment is not supported", content_id
            )
        if names != [CONTENT_TRANSFORM]:
            return broken(reference, _too_many(reference.transforms), content_id)
        digest = DIGESTS[reference.digest_method]
        for raw in (False, True) if self.raw is None else (self.raw,):
            try:
                value = content_digest(attachment, digest, raw=raw, limits=self.limits)
            except EbmsError as error:
                if self.raw is None and not raw:
                    continue
                return broken(reference, error.detail, content_id)
            if value == reference.digest_value:
                if raw and self.raw is None:
                    self._note_raw(attachment)
                return CheckedReference(reference, True, None, content_id)
        return broken(reference, "its content was changed", content_id)

    def _note_raw(self, attachment: Attachment) -> None:
        self.problems.append(
            EbmsError(
                "EBMS:0103",
                f"the sender digested this {attachment.media_type} attachment as it is; "
                "SwA 5.4.2 asks for its canonical form",
                location=f"cid:{attachment.content_id}",
                severity=Severity.WARNING,
            )
        )


def _too_many(transforms: Sequence[Transform]) -> str:
    names = ", ".join(transform.algorithm for transform in transforms) or "none"
    return f"these transforms are not accepted: {names}"


def broken(reference: Reference, reason: str, content_id: str | None = None) -> CheckedReference:
    return CheckedReference(reference, False, None, content_id, reason)


def _misplaced(element: etree._Element) -> bool:
    """Signed is: the Body or something in it, a header block, or a piece of the Security header.

    A SecurityTokenReference stands for its token, and stands in the KeyInfo of such a piece.
    """
    above = element.getparent()
    if above is None:
        return True
    higher = above.getparent()
    if higher is None:
        return local(element) != "Body"
    if element.tag == _STR and above.tag == _KEY_INFO:
        return _misplaced(higher)
    if higher.getparent() is None:
        return False
    in_security = above.tag == _SECURITY and _depth(above) == 2
    return not in_security and local(_below_root(element)) != "Body"


def _depth(element: etree._Element) -> int:
    return sum(1 for _ in element.iterancestors())


def _below_root(element: etree._Element) -> etree._Element:
    """The child of the root in which the element stands."""
    while (above := element.getparent()) is not None and above.getparent() is not None:
        element = above
    return element


def value_holds(
    signature: etree._Element,
    method: str,
    value: bytes,
    certificate: x509.Certificate,
    signed: bytes,
) -> bool:
    algorithm = SIGNATURES.get(method)
    if algorithm is None:
        raise failed(signature, f"unknown signature algorithm {method!r}")
    if algorithm.scheme is Scheme.HMAC:
        raise failed(signature, "an HMAC cannot prove who signed; a certificate's key must sign")
    try:
        return verify_bytes(certificate.public_key(), algorithm, value, signed)
    except ValueError as error:
        raise failed(signature, str(error)) from None


def missing_coverage(
    verification: Verification,
    required: Sequence[etree._Element],
    content_ids: Sequence[str],
) -> list[EbmsError]:
    """What the signature should cover and does not: EBMS:0103 for each."""
    held = [checked for checked in verification.references if checked.valid]
    elements_held = [checked.element for checked in held]
    attachments_held = [checked.content_id for checked in held]
    missing = [
        EbmsError(
            "EBMS:0103", f"the signature does not cover {local(element)}", location=path(element)
        )
        for element in required
        if element not in elements_held
    ]
    missing += [
        EbmsError(
            "EBMS:0103",
            "the signature does not cover this attachment",
            location=f"cid:{content_id}",
        )
        for content_id in content_ids
        if content_id not in attachments_held
    ]
    return missing


def failed(element: etree._Element, detail: str) -> EbmsError:
    return EbmsError("EBMS:0101", detail, location=path(element))
