"""Signatures as others build them, made with lxml and cryptography alone."""

import base64
import hashlib
from collections.abc import Callable
from typing import Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from lxml import etree

from postroad.security.algorithms import ECDSA_SHA256, SHA384
from postroad.security.attachments import COMPLETE_TRANSFORM, CONTENT_TRANSFORM
from postroad.security.verify import STR_TRANSFORM
from postroad.wire.limits import Limits
from postroad.wire.names import C14N, DS, EXC_C14N, S12, WSSE, WSU, X509_PROFILE
from tests.unit.signing import (
    ALICE,
    ATTACHMENTS,
    DRAWING,
    certified,
    check,
    details,
    exclusive,
    only,
    replace_token,
)


def _inclusive(element: etree._Element) -> bytes:
    """The xml:lang of the Envelope is taken over, which lxml leaves to its caller."""
    element.set(XML_LANG, "en")
    form = etree.tostring(element, method="c14n", with_comments=False, with_tail=False)
    del element.attrib[XML_LANG]
    return form


XML_LANG: Final = "{http://www.w3.org/XML/1998/namespace}lang"
ENVELOPE: Final = f"""\
<env:Envelope xmlns:env="{S12}" xmlns:unused="urn:unused" xmlns:q="urn:q" xml:lang="en"
 xmlns:wsse="{WSSE}" xmlns:wsu="{WSU}" xmlns:ds="{DS}"
 ><env:Header><wsse:Security><wsse:BinarySecurityToken ValueType="{X509_PROFILE}#X509v3"
 wsu:Id="token">TOKEN</wsse:BinarySecurityToken><ds:Signature><ds:SignedInfo
 ><ds:CanonicalizationMethod Algorithm="{EXC_C14N}"/><ds:SignatureMethod
 Algorithm="{ECDSA_SHA256}"/>REFERENCES</ds:SignedInfo><ds:SignatureValue/><ds:KeyInfo
 ><wsse:SecurityTokenReference wsu:Id="str"><wsse:Reference URI="#token"
 /></wsse:SecurityTokenReference></ds:KeyInfo></ds:Signature></wsse:Security
 ><h:block xmlns:h="urn:h" Id="block" kind="q:name"/></env:Header
 ><env:Body wsu:Id="body"> <d:doc xmlns:d="urn:d" Id="doc">&lt;<!-- no -->5</d:doc> </env:Body
 ></env:Envelope>"""


def _reference(uri: str, digest: bytes, transforms: str) -> str:
    return (
        f'<ds:Reference URI="{uri}"><ds:Transforms>{transforms}</ds:Transforms>'
        f'<ds:DigestMethod Algorithm="{SHA384}"/><ds:DigestValue>'
        f"{base64.b64encode(hashlib.sha384(digest).digest()).decode()}"
        "</ds:DigestValue></ds:Reference>"
    )


def by_hand(
    *references: str,
    canonicalise: Callable[[etree._Element], bytes] = exclusive,
    template: str = ENVELOPE,
) -> bytes:
    """A message signed with lxml and cryptography alone."""
    text = template.replace("REFERENCES", "".join(references))
    root = etree.fromstring(text.encode())
    replace_token(root, ALICE.certificate)
    key = ALICE.private_key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    der = key.sign(canonicalise(only(root, "SignedInfo")), ec.ECDSA(hashes.SHA256()))
    r, s = decode_dss_signature(der)
    value = base64.b64encode(r.to_bytes(32) + s.to_bytes(32)).decode()
    only(root, "SignatureValue").text = value
    return etree.tostring(root)


def _bare() -> etree._Element:
    root = etree.fromstring(ENVELOPE.replace("REFERENCES", "").encode())
    replace_token(root, ALICE.certificate)
    return root


def _transform(algorithm: str, inside: str = "") -> str:
    return f'<ds:Transform Algorithm="{algorithm}">{inside}</ds:Transform>'


def _prefix_list(prefixes: str) -> str:
    return f'<x:InclusiveNamespaces xmlns:x="{EXC_C14N}" PrefixList="{prefixes}"/>'


def test_an_inclusive_reference_holds() -> None:
    digested = _inclusive(only(_bare(), "Body"))
    assert b"xmlns:unused" in digested
    assert b'xml:lang="en"' in digested
    checked = check(by_hand(_reference("#body", digested, _transform(C14N))))
    assert checked.verification.valid is True
    assert checked.verification.covers(checked.envelope.body)


def test_a_reference_without_transforms_is_inclusive() -> None:
    digested = _inclusive(only(_bare(), "Body"))
    reference = _reference("#body", digested, "").replace("<ds:Transforms></ds:Transforms>", "")
    assert check(by_hand(reference)).verification.valid is True


def test_a_prefix_list_is_honoured() -> None:
    digested = exclusive(only(_bare(), "block"), ["q"])
    assert b'xmlns:q="urn:q"' in digested
    sent = by_hand(_reference("#block", digested, _transform(EXC_C14N, _prefix_list("q"))))
    assert check(sent).verification.valid is True
    without = by_hand(_reference("#block", digested, _transform(EXC_C14N)))
    assert check(without).broken == {"#block"}


def test_a_prefix_in_the_list_cannot_be_bound_to_something_else() -> None:
    digested = exclusive(only(_bare(), "block"), ["q"])
    sent = by_hand(_reference("#block", digested, _transform(EXC_C14N, _prefix_list("q"))))
    assert check(sent.replace(b"urn:q", b"urn:x")).broken == {"#block"}


def test_signed_info_may_be_canonicalised_inclusively() -> None:
    digested = exclusive(only(_bare(), "Body"))
    template = ENVELOPE.replace(f'Method Algorithm="{EXC_C14N}"', f'Method Algorithm="{C14N}"', 1)
    sent = by_hand(
        _reference("#body", digested, _transform(EXC_C14N)),
        canonicalise=_inclusive,
        template=template,
    )
    assert check(sent).verification.valid is True
    assert check(sent.replace(b"urn:unused", b"urn:other")).verification.valid is False


def test_signed_info_may_have_a_prefix_list() -> None:
    digested = exclusive(only(_bare(), "Body"))
    method = f'<ds:CanonicalizationMethod Algorithm="{EXC_C14N}"'
    template = ENVELOPE.replace(
        f"{method}/>", f"{method}>{_prefix_list('env q')}</ds:CanonicalizationMethod>"
    )
    sent = by_hand(
        _reference("#body", digested, _transform(EXC_C14N)),
        canonicalise=lambda element: exclusive(element, ["env", "q"]),
        template=template,
    )
    assert check(sent).verification.valid is True


def test_comments_are_not_part_of_what_is_signed() -> None:
    digested = exclusive(only(_bare(), "Body"))
    assert b"<!--" not in digested
    sent = by_hand(_reference("#body", digested, _transform(EXC_C14N + "WithComments")))
    assert check(sent).verification.valid is True


@pytest.mark.parametrize("with_default", [False, True], ids=["plain", "with xmlns=''"])
def test_a_token_signed_through_its_reference_holds(with_default: bool) -> None:
    digested = exclusive(only(_bare(), "BinarySecurityToken"))
    if with_default:
        digested = digested.replace(b"BinarySecurityToken ", b'BinarySecurityToken xmlns="" ', 1)
    inside = (
        "<wsse:TransformationParameters><ds:CanonicalizationMethod"
        f' Algorithm="{EXC_C14N}"/></wsse:TransformationParameters>'
    )
    sent = by_hand(
        _reference("#str", digested, _transform(STR_TRANSFORM, inside)),
        _reference("#body", exclusive(only(_bare(), "Body")), _transform(EXC_C14N)),
    )
    verification = check(sent).verification
    assert verification.problems == ()
    assert verification.valid is True


def test_another_token_behind_a_signed_reference_breaks_it() -> None:
    digested = exclusive(only(_bare(), "BinarySecurityToken"))
    root = etree.fromstring(by_hand(_reference("#str", digested, _transform(STR_TRANSFORM))))
    same_key = certified(ALICE.private_key, "alice again")
    replace_token(root, same_key.certificate)
    checked = check(etree.tostring(root))
    assert checked.broken == {"#str"}
    assert checked.verification.valid is False


def test_the_str_transform_applies_to_token_references_only() -> None:
    digested = exclusive(only(_bare(), "Body"))
    sent = by_hand(_reference("#body", digested, _transform(STR_TRANSFORM)))
    assert check(sent).broken == {"#body"}


@pytest.mark.parametrize(
    "transforms",
    [
        _transform("http://www.w3.org/TR/1999/REC-xslt-19991116"),
        _transform("http://www.w3.org/TR/1999/REC-xpath-19991116", "<ds:XPath>1</ds:XPath>"),
        _transform("http://www.w3.org/2002/06/xmldsig-filter2"),
        _transform(DS + "enveloped-signature") + _transform(EXC_C14N),
        _transform(EXC_C14N) + _transform(EXC_C14N),
        _transform(CONTENT_TRANSFORM),
    ],
)
def test_a_transform_that_could_hide_something_is_not_accepted(transforms: str) -> None:
    sent = by_hand(_reference("#body", exclusive(only(_bare(), "Body")), transforms))
    checked = check(sent)
    assert checked.broken == {"#body"}
    assert checked.verification.valid is False


@pytest.mark.parametrize("transform", [COMPLETE_TRANSFORM, EXC_C14N])
def test_an_attachment_takes_the_content_transform_only(transform: str) -> None:
    sent = by_hand(_reference("cid:drawing@a", DRAWING, _transform(transform)))
    refused = check(sent, ATTACHMENTS)
    assert refused.broken == {"cid:drawing@a"}
    assert [one.content_id for one in refused.verification.references] == ["drawing@a"]
    good = by_hand(_reference("cid:drawing@a", DRAWING, _transform(CONTENT_TRANSFORM)))
    assert check(good, ATTACHMENTS).verification.covers_attachment("drawing@a")


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("", "whole document"),
        ("http://example.com/order.xml", "nothing is fetched"),
        ("file:///etc/hostname", "nothing is fetched"),
        ("#nowhere", "no element has it"),
        ("#token-or-so", "no element has it"),
        ("cid:nothing@a", "no such attachment"),
    ],
)
def test_a_reference_to_what_is_not_there_is_broken(uri: str, said: str) -> None:
    checked = check(by_hand(_reference(uri, b"", _transform(EXC_C14N))))
    assert checked.broken == {uri}
    assert said in details(checked.verification)


def test_an_id_that_two_elements_have_is_no_id() -> None:
    digested = exclusive(only(_bare(), "Body"))
    sent = by_hand(_reference("#body", digested, _transform(EXC_C14N)))
    twice = sent.replace(b'Id="doc"', b'id="body"')
    checked = check(twice)
    assert checked.broken == {"#body"}
    assert "2 elements have it" in details(checked.verification)


def test_a_signed_element_moved_to_another_place_is_not_accepted() -> None:
    digested = exclusive(only(_bare(), "block"))
    root = etree.fromstring(by_hand(_reference("#block", digested, _transform(EXC_C14N))))
    block = only(root, "block")
    header = block.getparent()
    assert header is not None
    aside = etree.SubElement(header, "{urn:aside}aside")
    deeper = etree.SubElement(aside, "{urn:aside}deeper")
    deeper.append(block)
    checked = check(etree.tostring(root))
    assert checked.broken == {"#block"}
    assert "no place for a signed element" in details(checked.verification)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<ds:SignatureValue/>", "", "SignedInfo, SignatureValue and KeyInfo are expected"),
        ("</ds:Signature>", "<ds:Object/></ds:Signature>", "are expected, found"),
        (f'Method Algorithm="{EXC_C14N}"', 'Method Algorithm="urn:x"', "canonicalisation by"),
        (f'"{ECDSA_SHA256}"/>', f'"{ECDSA_SHA256}"><ds:x/></ds:SignatureMethod>', "parameters"),
        ("REFERENCES", "", "at least one Reference"),
        ("REFERENCES", _reference("#body", b"", _transform("")), "Algorithm"),
    ],
)
def test_a_signature_of_another_build_is_refused(old: str, new: str, said: str) -> None:
    text = ENVELOPE.replace(old, new, 1)
    if "REFERENCES" in text:
        text = text.replace("REFERENCES", _reference("#body", b"", _transform(EXC_C14N)))
    verification = check(text.encode()).verification
    assert verification.valid is False
    assert verification.references == ()
    assert said in details(verification)


def test_more_references_than_the_limit_are_refused() -> None:
    one = _reference("#body", b"", _transform(EXC_C14N))
    verification = check(by_hand(*([one] * 4)), limits=Limits(references=3)).verification
    assert "more than 3 references" in details(verification)
