"""Forged ebXML messages: what a signature does not cover never passes for signed."""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree

from postroad.security import algorithms as alg
from postroad.security import ebxml_document
from postroad.security.algorithms import Algorithms
from postroad.security.attachments import CONTENT_TRANSFORM
from postroad.security.ebxml_signature import ENVELOPED, covered, verify_ebxml
from postroad.security.keys import KeyPair
from postroad.security.verify import signatures
from postroad.wire.ebxml import MS098, MS20, Dialect
from postroad.wire.errors import EbmsError
from postroad.wire.names import C14N, DS, EB2_NEXT_MSH, EXC_C14N, S11_NEXT, WSSE, XPATH
from postroad.wire.soap import read_envelope
from postroad.wire.xml import canonical, parse
from tests.attack.ebxml_forging import (
    FOREIGN_TRANSFORMS,
    FOREIGN_XPATHS,
    Ref,
    whole,
    write_signature,
    xpath_step,
)
from tests.changing import replace
from tests.unit.ebxml_signing import (
    ALICE,
    ATTACHMENTS,
    HREFS,
    MALLORY,
    Checked,
    Message,
    check,
    dialects,
    envelope_of,
    hop,
    put,
    signed,
    trace,
    without_key_info,
)


def payload_refs() -> list[Ref]:
    return [Ref(f"cid:{one.content_id}", one.content.data) for one in ATTACHMENTS]


def forged(
    references: Sequence[Ref] | None = None,
    *,
    dialect: Dialect = MS20,
    envelope: bytes | None = None,
    signer: KeyPair = ALICE,
    method: str = alg.ECDSA_SHA256,
    value: bytes | None = None,
    key_info: str | None = None,
    within: str = "",
) -> Message:
    """A message with a signature that was made in any way one likes."""
    document = envelope_of(dialect) if envelope is None else envelope
    listed = [whole(document), *payload_refs()] if references is None else references
    signature = write_signature(
        listed, signer=signer, method=method, value=value, key_info=key_info, within=within
    )
    return Message(dialect, put(document, signature), ())


def assert_refused(checked: Checked, reason: str) -> None:
    assert checked.verification.valid is False
    assert any(reason in failure for failure in checked.failures), checked.failures
    assert not any(covered(checked.verification, one) for one in checked.envelope.root.iter("*"))


def test_the_forger_can_sign_rightly() -> None:
    assert check(forged()).holds
    assert check(forged(dialect=MS098)).holds
    step = xpath_step(MS098)
    document = envelope_of(MS098)
    right = [whole(document, (ENVELOPED, step, C14N)), *payload_refs()]
    assert check(forged(right, dialect=MS098).added(hop(MS098, 1))).holds


# Where the signature stands


def cut(envelope: bytes) -> tuple[bytes, str]:
    """The envelope without its last signature, and that signature."""
    start = envelope.rindex(b"<ds:Signature ")
    stop = envelope.rindex(b"</ds:Signature>") + len(b"</ds:Signature>")
    return envelope[:start] + envelope[stop:], envelope[start:stop].decode()


@pytest.mark.parametrize(
    "before", ["</SOAP-ENV:Body>", "</eb:Manifest>", "</eb:MessageHeader>", "</SOAP-ENV:Envelope>"]
)
@pytest.mark.req("MS098-8.8-04")
def test_a_signature_elsewhere_proves_nothing(before: str) -> None:
    message = signed()
    bare, signature = cut(message.envelope)
    envelope = read_envelope(parse(put(bare, signature, before=before)))
    [stray] = envelope.root.iter(f"{{{DS}}}Signature")
    found = verify_ebxml(stray, envelope, MS20, {}, ())
    assert found.valid is False
    assert (found.certificate, found.companions, found.references) == (None, (), ())
    assert "this one proves nothing" in found.problems[0].detail


@pytest.mark.req("MS098-8.8-04")
def test_only_the_first_signature_counts() -> None:
    message = signed()
    twice = forged(
        [whole(message.envelope), *payload_refs()], envelope=message.envelope, signer=MALLORY
    )
    envelope = read_envelope(parse(twice.envelope))
    first, second = envelope.root.iter(f"{{{DS}}}Signature")
    attachments = {one.content_id: one for one in ATTACHMENTS}
    assert verify_ebxml(second, envelope, MS20, attachments, HREFS).valid is False
    # The first one does not cover what was added after it.
    assert verify_ebxml(first, envelope, MS20, attachments, HREFS).valid is False


def test_a_second_signature_that_was_there_is_content_like_any_other() -> None:
    other = f'<ds:Signature xmlns:ds="{DS}"><ds:any/></ds:Signature>'
    message = signed()
    bare, signature = cut(signed(blocks=other).envelope)
    first = replace(message, envelope=put(bare, signature, before="<ds:Signature"))
    checked = check(first)
    assert checked.holds
    assert checked.covers("any")


# What is hidden in what is left out


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("</eb:MessageHeader>", "<eb:Via><eb:Action>Cancel</eb:Action></eb:Via>"),
        ("</eb:MessageHeader>", trace(1)),
        ("<eb:Manifest", "<eb:Via><eb:Manifest/></eb:Via>"),
        ("</SOAP-ENV:Body>", "<eb:TraceHeaderList/>"),
        ("</SOAP-ENV:Envelope>", "<eb:Via/>"),
        ("</SOAP-ENV:Header>", "<eb:Via><eb:TraceHeaderList/></eb:Via>"),
        ("</SOAP-ENV:Header>", '<x:x xmlns:x="urn:x"><eb:Via/></x:x>'),
    ],
)
def test_a_hop_element_in_any_other_place_is_refused(before: str, text: str) -> None:
    assert_refused(check(signed(MS098).added(text, before=before)), "must be a child of the SOAP")


@pytest.mark.parametrize("actor", [S11_NEXT, EB2_NEXT_MSH])
@pytest.mark.parametrize(
    "place",
    ["<SOAP-ENV:Envelope", "<SOAP-ENV:Header", "<SOAP-ENV:Body", "<eb:Manifest", "<eb:CPAId"],
)
def test_an_actor_in_any_other_place_is_refused(actor: str, place: str) -> None:
    """The XPath of 2.0 would leave out all that stands in such an element, even everything."""
    message = signed()
    at = message.envelope.index(place.encode()) + len(place)
    attribute = f' SOAP-ENV:actor="{actor}"'.encode()
    hidden = replace(message, envelope=message.envelope[:at] + attribute + message.envelope[at:])
    assert_refused(check(hidden), "must be a child of the SOAP Header")


@pytest.mark.parametrize("name", ["MessageHeader", "ErrorList", "MessageOrder", "Via", "Manifest"])
@pytest.mark.parametrize("actor", [S11_NEXT, EB2_NEXT_MSH])
def test_an_element_that_is_never_for_hops_cannot_be_left_out(name: str, actor: str) -> None:
    """Else a second MessageHeader could be added to a message without breaking its signature."""
    block = f'<eb:{name} SOAP-ENV:actor="{actor}"><eb:Action>Cancel</eb:Action></eb:{name}>'
    assert_refused(check(signed().added(block)), "must not be for the next MSH")


@pytest.mark.parametrize(
    "block",
    [
        f'<eb:Acknowledgment SOAP-ENV:actor="{EB2_NEXT_MSH}"><eb:x/></eb:Acknowledgment>',
        f'<eb:SyncReply SOAP-ENV:actor="{S11_NEXT}"><eb:x/></eb:SyncReply>',
        f'<eb:AckRequested SOAP-ENV:actor="{S11_NEXT}"><eb:x/></eb:AckRequested>',
        f'<z:x xmlns:z="urn:z" SOAP-ENV:actor="{S11_NEXT}"/>',
    ],
)
def test_what_is_added_for_the_next_hop_is_told_to_be_unsigned(block: str) -> None:
    checked = check(signed().added(block))
    assert checked.holds
    assert not checked.covers("x")
    assert len(checked.verification.references[0].left_out) == 2


@pytest.mark.parametrize("actor", [f" {S11_NEXT}", S11_NEXT.upper(), "urn:next", ""])
def test_a_block_for_whoever_else_cannot_be_added(actor: str) -> None:
    message = signed().added(f'<eb:SyncReply SOAP-ENV:actor="{actor}"/>')
    assert_refused(check(message), "its content was changed")


@pytest.mark.parametrize("attribute", ["actor", "x:actor"])
def test_another_attribute_of_that_name_is_no_actor(attribute: str) -> None:
    block = f'<eb:SyncReply xmlns:x="urn:x" {attribute}="{S11_NEXT}"/>'
    assert_refused(check(signed().added(block)), "its content was changed")


@pytest.mark.parametrize("name", ["Via", "TraceHeaderList"])
def test_hop_elements_of_another_namespace_are_content(name: str) -> None:
    message = signed(MS098).added(f'<x:{name} xmlns:x="{MS20.namespace}"/>')
    assert_refused(check(message), "its content was changed")
    assert_refused(check(signed(MS20).added(f"<eb:{name}/>")), "its content was changed")


@dialects()
def test_the_signed_header_cannot_be_moved_aside(dialect: Dialect) -> None:
    """The signed MessageHeader goes into a hop element, a forged one takes its place."""
    text = signed(dialect).envelope.decode()
    start = text.index("<eb:MessageHeader")
    stop = text.index("</eb:MessageHeader>") + len("</eb:MessageHeader>")
    original = text[start:stop]
    cover = f'SOAP-ENV:actor="{S11_NEXT}"'
    name = "Via" if dialect.has_trace else "SyncReply"
    moved = (
        text[:start]
        + original.replace("NewOrder", "Cancel")
        + f"<eb:{name} {cover}>{original}</eb:{name}>"
        + text[stop:]
    )
    checked = check(Message(dialect, moved.encode(), ()))
    assert checked.verification.valid is False
    assert not covered(checked.verification, checked.envelope.blocks[0].element)


def test_hop_elements_may_hold_anything_and_change_nothing() -> None:
    odd = (
        ' \n<!-- a --><eb:Via xmlns="urn:n" xmlns:eb2="urn:e"><![CDATA[</eb:Via>]]>&#13;'
        '<y xmlns=""/><!-- b -->text</eb:Via>'
    )
    message = signed(MS098)
    spaced = odd.removeprefix(" \n")
    assert check(message.added(spaced).added(spaced, before="<ds:Signature")).holds
    assert_refused(check(message.added(odd)), "its content was changed")


def test_a_hop_element_without_canonical_form_is_refused() -> None:
    message = signed(MS098).added('<eb:Via xmlns:r="not/absolute"/>')
    assert_refused(check(message), "no canonical form")


def test_a_processing_instruction_after_the_envelope_is_refused() -> None:
    message = signed()
    more = replace(message, envelope=message.envelope + b"<?say more?>")
    assert_refused(check(more), "a processing instruction")


# References


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda e: payload_refs(), "the first reference must be to the whole document"),
        (lambda e: [*payload_refs(), whole(e)], "the first reference must be to the whole"),
        (lambda e: [whole(e), whole(e), *payload_refs()], "more than once"),
        (lambda e: [whole(e), *payload_refs(), payload_refs()[0]], "more than once"),
        (lambda e: [Ref("#m", b""), *payload_refs()], "the first reference must be to the whole"),
        (lambda e: [whole(e), Ref("#m", b""), *payload_refs()], "neither the whole document"),
        (lambda e: [whole(e), Ref("#xpointer(/)", b"")], "neither the whole document"),
        (lambda e: [whole(e), *payload_refs(), Ref("cid:no@a.example", b"")], "no such part"),
        (lambda e: [whole(e), Ref("http://a.example/", b"")], "neither the whole document"),
        (lambda e: [whole(e), Ref("file:///etc/passwd", b"")], "neither the whole document"),
    ],
)
def test_references_that_are_not_as_they_must_be_are_refused(
    make: Callable[[bytes], list[Ref]], reason: str
) -> None:
    assert_refused(check(forged(make(envelope_of(MS20)))), reason)


@pytest.mark.parametrize("signed_ones", [0, 1])
def test_a_payload_that_is_not_signed_is_refused(signed_ones: int) -> None:
    refs = [whole(envelope_of(MS20)), *payload_refs()[:signed_ones]]
    checked = check(forged(refs))
    missing = [f"cid:{one.content_id}" for one in ATTACHMENTS[signed_ones:]]
    assert [one.location for one in checked.verification.problems] == missing
    assert set(checked.failures) == {"the signature does not cover this payload"}


def test_a_payload_under_two_spellings_of_its_cid_is_referred_to_twice() -> None:
    again = Ref("cid:order%40a.example", ATTACHMENTS[0].content.data)
    refs = [whole(envelope_of(MS20)), *payload_refs(), again]
    assert_refused(check(forged(refs)), "more than once")


def test_what_is_somewhere_else_is_not_fetched_and_stays_open() -> None:
    remote = Ref("https://a.example/catalogue", b"?")
    message = forged([whole(envelope_of(MS20)), *payload_refs(), remote])
    checked = check(replace(message, hrefs=(*HREFS, remote.uri)))
    assert checked.failures == []
    assert checked.verification.unseen == [remote.uri]


@pytest.mark.parametrize(
    "transforms",
    [(C14N,), (CONTENT_TRANSFORM,), (EXC_C14N,), (DS + "base64",), (xpath_step(MS20),)],
)
def test_a_payload_with_transforms_is_refused(transforms: tuple[str, ...]) -> None:
    refs = [replace(one, transforms=transforms) for one in payload_refs()]
    checked = check(forged([whole(envelope_of(MS20)), *refs]))
    assert_refused(checked, "a payload is signed without transforms")


# Transforms


@pytest.mark.parametrize("transforms", FOREIGN_TRANSFORMS)
def test_other_transforms_of_the_document_are_refused(transforms: tuple[str, ...]) -> None:
    reference = whole(envelope_of(MS20), transforms)
    assert_refused(check(forged([reference, *payload_refs()])), "the document is signed by the")


@pytest.mark.parametrize(
    "step",
    [
        f'<ds:Transform Algorithm="{XPATH}"/>',
        f'<ds:Transform Algorithm="{XPATH}"><XPath>1</XPath></ds:Transform>',
        f'<ds:Transform Algorithm="{XPATH}"><ds:XPath>1</ds:XPath><ds:XPath>1</ds:XPath>'
        "</ds:Transform>",
    ],
)
def test_a_transform_without_its_one_xpath_is_refused(step: str) -> None:
    reference = whole(envelope_of(MS20), (ENVELOPED, step, C14N))
    assert_refused(check(forged([reference, *payload_refs()])), "no single ds:XPath")


@pytest.mark.parametrize("expression", FOREIGN_XPATHS, ids=range(len(FOREIGN_XPATHS)))
def test_an_xpath_that_is_not_the_specified_one_is_refused(expression: str) -> None:
    step = xpath_step(MS20, expression)
    reference = whole(envelope_of(MS20), (ENVELOPED, step, C14N))
    checked = check(forged([reference, *payload_refs()]))
    assert_refused(checked, "is not the one of ebXML 2.0, which is not(ancestor-or-self")
    assert max(map(len, checked.failures)) < 2000


@pytest.mark.parametrize(
    ("dialect", "namespaces"),
    [
        (MS20, ' xmlns:SOAP="urn:other"'),
        (MS098, f' xmlns:eb="{MS20.namespace}"'),
        (MS20, ' xmlns:a="urn:a"'),
    ],
)
def test_the_xpath_with_prefixes_of_something_else_is_refused(
    dialect: Dialect, namespaces: str
) -> None:
    step = xpath_step(dialect, namespaces=namespaces)
    reference = whole(envelope_of(dialect), (ENVELOPED, step, C14N))
    checked = check(forged([reference, *payload_refs()], dialect=dialect))
    assert_refused(checked, "is not the one of ebXML")


# Algorithms and keys


@pytest.mark.parametrize("method", [DS + "hmac-sha1", alg.RSA_SHA256, "urn:unknown", ""])
def test_a_value_by_another_method_is_refused(method: str) -> None:
    checked = check(forged(method=method, value=b"x" * 64), algorithms=Algorithms(legacy=True))
    assert checked.verification.valid is False


def test_an_hmac_with_the_public_key_is_refused() -> None:
    der = ALICE.certificate.public_bytes(Encoding.DER)
    method = "http://www.w3.org/2001/04/xmldsig-more#hmac-sha256"
    checked = check(forged(method=method, value=hashlib.sha256(der).digest()))
    assert checked.verification.valid is False
    assert any("HMAC" in failure or "shared" in failure for failure in checked.failures)


@pytest.mark.parametrize("digest", [alg.SHA1, "http://www.w3.org/2001/04/xmldsig-more#md5"])
def test_a_weak_digest_is_refused(digest: str) -> None:
    reference = replace(whole(envelope_of(MS20)), digest_method=digest)
    checked = check(forged([reference, *payload_refs()]))
    assert [p.code for p in checked.verification.problems] == ["EBMS:0103"]
    assert "too weak" in checked.failures[0]


def test_an_unknown_digest_is_refused() -> None:
    message = forged()
    text = message.envelope.replace(alg.SHA256.encode(), b"urn:no-digest")
    assert check(replace(message, envelope=text)).verification.valid is False


def test_a_value_by_another_key_is_refused() -> None:
    der = base64.b64encode(ALICE.certificate.public_bytes(Encoding.DER)).decode()
    named = f"<ds:X509Data><ds:X509Certificate>{der}</ds:X509Certificate></ds:X509Data>"
    checked = check(forged(signer=MALLORY, key_info=named))
    assert checked.verification.valid is False
    assert checked.verification.certificate == ALICE.certificate


@pytest.mark.parametrize(
    ("key_info", "reason"),
    [
        ('<ds:RetrievalMethod URI="http://attacker.example/"/>', "not accepted"),
        ("<ds:PGPData/>", "not accepted"),
        (f'<wsse:SecurityTokenReference xmlns:wsse="{WSSE}"/>', "not accepted"),
        ("<ds:X509Data><ds:X509Certificate>AAAA</ds:X509Certificate></ds:X509Data>", "no X.509"),
        ("<ds:X509Data><ds:X509SKI>AAAA</ds:X509SKI></ds:X509Data>", "not known here"),
        ("<ds:X509Data/>", "none is known here"),
        ("<ds:KeyValue><ds:RSAKeyValue/></ds:KeyValue>", "none is known here"),
    ],
)
def test_a_key_that_is_not_that_of_a_certificate_is_refused(key_info: str, reason: str) -> None:
    checked = check(forged(key_info=key_info))
    assert checked.verification.valid is None
    assert any(reason in failure for failure in checked.failures)


def test_certificates_without_end_are_not_tried() -> None:
    der = base64.b64encode(ALICE.certificate.public_bytes(Encoding.DER)).decode()
    many = f"<ds:X509Certificate>{der}</ds:X509Certificate>" * 17
    checked = check(forged(key_info=f"<ds:X509Data>{many}</ds:X509Data>"))
    assert checked.verification.valid is None
    assert "more than 16 certificates" in checked.failures


def test_a_name_is_no_proof_where_the_key_is_anothers() -> None:
    message = without_key_info(
        signed(signer=MALLORY), "<ds:KeyInfo><ds:KeyName>alice</ds:KeyName></ds:KeyInfo>"
    )
    assert check(message, known=[ALICE.certificate]).verification.valid is False


# The signature itself


@pytest.mark.parametrize(
    "within", ["<ds:Object><eb:Action>Cancel</eb:Action></ds:Object>", "<ds:KeyInfo/>"]
)
def test_nothing_else_may_stand_in_the_signature(within: str) -> None:
    """It is left out of the digest, so it would be a good place to hide something."""
    checked = check(forged(within=within))
    assert checked.verification.valid is False
    assert "are expected, found" in checked.failures[0]


@dialects()
def test_every_bit_of_the_message_counts(dialect: Dialect) -> None:
    message = signed(dialect).added(hop(dialect, 1), before="<ds:Signature")
    content = _covered_content(check(message))
    start = message.envelope.index(b"<SOAP-ENV:Envelope")
    for at in range(start, len(message.envelope) - 20, 3):
        changed = bytearray(message.envelope)
        changed[at] ^= 1
        checked = _tried(replace(message, envelope=bytes(changed)))
        if checked is not None and checked.holds:
            assert _covered_content(checked) == content


def _tried(message: Message) -> Checked | None:
    """None where there is no SOAP envelope, or no signature that could be believed."""
    try:
        header = read_envelope(parse(message.envelope)).header
    except EbmsError:
        return None
    return check(message) if header is not None and signatures(header) else None


def _covered_content(checked: Checked) -> list[tuple[str, str | None, dict[str, str]]]:
    """All elements that are said to be covered, with what they say."""
    return [
        (str(one.tag), one.text, {str(k): str(v) for k, v in one.attrib.items()})
        for one in checked.envelope.root.iter("*")
        if covered(checked.verification, one)
    ]


def test_what_marks_a_place_in_one_message_is_text_in_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is left out is cut out between marks, which an attacker may not foresee."""
    forms = []

    def recorded(root: etree._Element, *, exclusive: bool) -> bytes:
        forms.append(canonical(root, exclusive=exclusive))
        return forms[-1]

    monkeypatch.setattr(ebxml_document, "canonical", recorded)
    message = signed(MS098)
    assert check(message).holds
    [mark] = set(re.findall("[0-9a-f]{64}", forms[-1].decode())) - set(
        re.findall("[0-9a-f]{64}", forms[-2].decode())
    )
    text = f'<x:x xmlns:x="urn:x">{mark}hidden{mark}</x:x>'
    assert check(signed(MS098, blocks=text)).holds
    assert_refused(check(message.added(text)), "its content was changed")
    assert check(message.added(f"<eb:Via>{mark}</eb:Via>")).holds
