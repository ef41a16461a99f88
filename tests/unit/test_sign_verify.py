"""What is signed here verifies here, covers what it says, and breaks where it is touched."""

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from lxml import etree

from postroad.security.algorithms import (
    DIGESTS,
    ECDSA_SHA256,
    ED448,
    ED25519,
    RSA_SHA256,
    SHA1,
    SHA256,
    SHA512,
    SIGNATURES,
    Algorithms,
    Scheme,
)
from postroad.security.attachments import Attachment
from postroad.security.secure import secure
from postroad.security.sign import Signing, sign
from postroad.security.tokens import TokenReference
from postroad.security.verify import missing_coverage, security_headers, signatures
from postroad.wire.content import BytesContent
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import Limits
from postroad.wire.names import DS, DSIG_MORE_2001, S12, WSSE
from postroad.wire.soap import SoapVersion, read_envelope
from postroad.wire.xml import parse
from tests import pki
from tests.changing import replace
from tests.naming import short
from tests.unit.signing import (
    ALICE,
    ATTACHMENTS,
    BRAINPOOL,
    CA,
    DRAWING,
    LIFETIME,
    NOTE,
    ORDER_XML,
    certified,
    check,
    details,
    exclusive,
    key_pair,
    only,
    replace_token,
    signed,
)


def _fitting() -> list[tuple[str, str]]:
    kinds = {
        Scheme.RSA: ["rsa"],
        Scheme.RSA_PSS: ["rsa"],
        Scheme.ECDSA: ["p256", "p384", "p521", *BRAINPOOL],
        Scheme.ED25519: ["ed25519"],
        Scheme.ED448: ["ed448"],
    }
    return [
        (uri, kind)
        for uri, algorithm in SIGNATURES.items()
        if not algorithm.weak
        for kind in kinds[algorithm.scheme]
    ]


@pytest.mark.parametrize("version", SoapVersion, ids=lambda version: version.name)
@pytest.mark.parametrize("form", TokenReference)
@pytest.mark.parametrize(("algorithm", "kind"), _fitting(), ids=short)
def test_a_signature_holds_and_covers_the_very_elements(
    algorithm: str, kind: str, form: TokenReference, version: SoapVersion
) -> None:
    signer = key_pair(kind)
    sent = signed(signer, algorithm, version=version, form=form)
    checked = check(sent, known=[CA.certificate, signer.certificate])
    verification = checked.verification
    assert verification.valid is True
    assert verification.problems == ()
    assert verification.algorithm == algorithm
    assert verification.form is form
    assert verification.certificate == signer.certificate
    assert verification.signed_references == sent.references
    assert verification.covers(checked.messaging)
    assert verification.covers(checked.envelope.body)
    assert all(verification.covers_attachment(one.content_id) for one in ATTACHMENTS)


@pytest.mark.parametrize(
    "digest", [uri for uri, digest in DIGESTS.items() if not digest.weak], ids=short
)
def test_every_strong_digest_serves_references(digest: str) -> None:
    checked = check(signed(digest=digest))
    assert checked.verification.valid is True
    assert checked.verification.problems == ()
    assert {r.digest_method for r in checked.verification.signed_references} == {digest}


def test_a_pki_path_brings_the_issuers_along() -> None:
    middle = pki.authority("Middle", issuer=CA)
    leaf = pki.issue(middle, "leaf below middle")
    checked = check(signed(leaf, form=TokenReference.PKI_PATH))
    assert checked.verification.companions == (middle.certificate, CA.certificate)


def test_the_same_ids_in_a_copy_of_the_message_are_not_covered() -> None:
    sent = signed()
    checked, other = check(sent), check(sent)
    assert not checked.verification.covers(other.messaging)
    assert not checked.verification.covers(other.envelope.body)


def test_ecdsa_values_are_r_and_s_of_the_curve_size() -> None:
    for kind, size in {"p256": 64, "p384": 96, "p521": 132, "brainpool512": 128}.items():
        envelope = parse(signed(key_pair(kind)).envelope)
        [value] = envelope.iter(f"{{{DS}}}SignatureValue")
        assert len(base64.b64decode(value.text or "")) == size


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        (DS + "rsa-sha1", "rsa"),
        (DSIG_MORE_2001 + "rsa-md5", "rsa"),
        ("http://www.w3.org/2007/05/xmldsig-more#sha1-rsa-MGF1", "rsa"),
        (DSIG_MORE_2001 + "ecdsa-sha1", "p256"),
    ],
    ids=short,
)
def test_a_weak_algorithm_is_taken_only_where_it_is_allowed(algorithm: str, kind: str) -> None:
    sent = signed(key_pair(kind), algorithm)
    refused = check(sent).verification
    assert [problem.code for problem in refused.problems] == ["EBMS:0103"]
    assert refused.problems[0].severity is Severity.FAILURE
    assert "too weak" in details(refused)
    for allowed in (Algorithms(legacy=True), Algorithms(named=frozenset([algorithm]))):
        verification = check(sent, algorithms=allowed).verification
        assert verification.valid is True
        assert verification.problems == ()


def test_a_weak_digest_is_taken_only_where_it_is_allowed() -> None:
    sent = signed(digest=SHA1)
    assert [problem.code for problem in check(sent).verification.problems] == ["EBMS:0103"]
    assert check(sent, algorithms=Algorithms(legacy=True)).verification.problems == ()


def test_dsa_is_verified_but_never_made() -> None:
    uri = DS + "dsa-sha1"
    pair = certified(dsa.generate_private_key(1024), "old dsa")
    with pytest.raises(ValueError, match="does not fit"):
        signed(pair, uri)
    root = parse(signed(attachments=(), body="").envelope)
    [method], [value] = root.iter(f"{{{DS}}}SignatureMethod"), root.iter(f"{{{DS}}}SignatureValue")
    method.set("Algorithm", uri)
    replace_token(root, pair.certificate)
    der = pair.private_key.sign(exclusive(only(root, "SignedInfo")), hashes.SHA1())
    r, s = decode_dss_signature(der)
    value.text = base64.b64encode(r.to_bytes(20) + s.to_bytes(20)).decode()
    sent = etree.tostring(root)
    assert check(sent, algorithms=Algorithms(legacy=True)).verification.valid is True
    assert "too weak" in details(check(sent).verification)
    value.text = base64.b64encode(r.to_bytes(32) + s.to_bytes(32)).decode()
    wrong = check(etree.tostring(root), algorithms=Algorithms(legacy=True))
    assert wrong.verification.valid is False


def test_only_agreed_algorithms_are_taken_where_an_agreement_fixes_them() -> None:
    agreed = Algorithms(named=frozenset((ECDSA_SHA256, SHA256)), only=True)
    assert check(signed(), algorithms=agreed).verification.problems == ()
    other = check(signed(digest=SHA512), algorithms=agreed).verification
    assert "not one of the agreed" in details(other)


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        (RSA_SHA256, "p256"),
        (ECDSA_SHA256, "rsa"),
        (ED25519, "ed448"),
        (ED448, "ed25519"),
        (ED25519, "p256"),
        (ECDSA_SHA256, "ed25519"),
        (DSIG_MORE_2001 + "hmac-sha256", "rsa"),
        (ECDSA_SHA256, "x25519"),
    ],
    ids=short,
)
def test_a_key_that_does_not_fit_the_algorithm_is_a_value_error(algorithm: str, kind: str) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        signed(key_pair(kind), algorithm)


def test_a_signature_method_of_another_family_than_the_key_does_not_hold() -> None:
    sent = signed(key_pair("rsa"), RSA_SHA256)
    other = sent.envelope.replace(RSA_SHA256.encode(), ECDSA_SHA256.encode())
    verification = check(other, sent.attachments).verification
    assert verification.valid is False
    assert "does not fit the certificate's RSA key" in details(verification)


def test_an_hmac_never_holds() -> None:
    hmac = DSIG_MORE_2001 + "hmac-sha256"
    other = signed(attachments=()).envelope.replace(ECDSA_SHA256.encode(), hmac.encode())
    verification = check(other, algorithms=Algorithms(legacy=True)).verification
    assert verification.valid is False
    assert "HMAC cannot prove" in details(verification)


def test_an_unknown_signature_algorithm_does_not_hold() -> None:
    other = signed(attachments=()).envelope.replace(ECDSA_SHA256.encode(), b"urn:x:none")
    verification = check(other).verification
    assert verification.valid is False
    assert "unknown signature algorithm" in details(verification)


def test_an_unknown_digest_method_breaks_its_reference() -> None:
    other = signed(attachments=()).envelope.replace(SHA256.encode(), b"urn:x:none", 1)
    checked = check(other)
    assert checked.broken == {"#_messaging"}
    assert "unknown digest method" in details(checked.verification)


def test_the_signature_of_somebody_else_does_not_hold() -> None:
    root = parse(signed(attachments=()).envelope)
    replace_token(root, pki.issue(CA, "mallory").certificate)
    verification = check(etree.tostring(root)).verification
    assert verification.valid is False
    assert "does not fit its content and certificate" in details(verification)
    assert all(one.valid for one in verification.references)


def test_without_the_certificate_validity_stays_open() -> None:
    verification = check(signed(form=TokenReference.THUMBPRINT)).verification
    assert verification.valid is None
    assert verification.certificate is None
    assert "not known here" in details(verification)


@pytest.mark.parametrize(
    ("before", "after", "reference"),
    [
        (b"NewOrder", b"NewOrdes", "#_messaging"),
        (b"<eb:UserMessage>", b"<eb:UserMessage> ", "#_messaging"),
        (b"copper", b"cotter", "#_body"),
        (b'n="1"', b'n="2"', "#_body"),
        (b"<wsu:Created>2026", b"<wsu:Created>2025", "#_timestamp"),
    ],
)
def test_a_changed_byte_of_an_element_breaks_its_reference_alone(
    before: bytes, after: bytes, reference: str
) -> None:
    sent = signed(lifetime=LIFETIME)
    assert sent.envelope.count(before) == 1
    checked = check(sent.envelope.replace(before, after), sent.attachments)
    assert checked.broken == {reference}
    assert checked.verification.valid is False
    assert [problem.location for problem in checked.verification.problems] == [reference]


@pytest.mark.parametrize("place", range(3))
def test_a_changed_byte_of_an_attachment_breaks_its_reference_alone(place: int) -> None:
    sent = signed()
    touched = list(sent.attachments)
    data = bytearray(touched[place].content.data)
    data[-5 if place else 100] ^= 1
    touched[place] = replace(touched[place], content=BytesContent(bytes(data)))
    checked = check(sent, touched)
    assert checked.broken == {f"cid:{touched[place].content_id}"}
    assert checked.verification.valid is False
    assert not checked.verification.covers_attachment(touched[place].content_id)


def test_a_changed_digest_value_breaks_signature_and_reference() -> None:
    sent = signed(attachments=())
    digest = base64.b64encode(sent.references[0].digest_value)
    other = sent.envelope.replace(digest, base64.b64encode(bytes(32)))
    checked = check(other)
    assert checked.broken == {"#_messaging"}
    assert "does not fit its content" in details(checked.verification)


def test_every_changed_bit_of_the_signature_value_breaks_it() -> None:
    sent = signed(key_pair("ed25519"), ED25519, attachments=())
    root = parse(sent.envelope)
    [value] = root.iter(f"{{{DS}}}SignatureValue")
    original = base64.b64decode(value.text or "")
    for bit in range(0, 512, 5):
        number = int.from_bytes(original) ^ 1 << bit
        value.text = base64.b64encode(number.to_bytes(64)).decode()
        assert check(etree.tostring(root)).verification.valid is False


def test_an_attachment_that_is_gone_breaks_its_reference() -> None:
    sent = signed()
    checked = check(sent, sent.attachments[1:])
    assert checked.broken == {"cid:drawing@a"}
    assert "no such attachment" in details(checked.verification)


def test_attachments_under_each_others_names_break_both() -> None:
    one, two, three = signed().attachments
    swapped = [
        replace(one, content=two.content),
        replace(two, content=one.content),
        three,
    ]
    assert check(signed(), swapped).broken == {"cid:drawing@a", "cid:order@a"}


def test_an_attachment_that_cannot_be_looked_at_leaves_its_digest_open() -> None:
    sent = signed()
    checked = check(sent, (), unseen=lambda content_id: "it is elsewhere")
    assert checked.verification.valid is True
    assert [one.valid for one in checked.verification.references] == [True, True, None, None, None]
    assert all(p.severity is Severity.WARNING for p in checked.verification.problems)
    assert not checked.verification.covers_attachment("drawing@a")


def test_what_the_signature_does_not_cover_is_missing() -> None:
    sent = signed(attachments=ATTACHMENTS[:1])
    checked = check(sent, ATTACHMENTS)
    envelope = checked.envelope
    assert envelope.header is not None
    assert missing_coverage(checked.verification, [checked.messaging], ["drawing@a"]) == []
    missing = missing_coverage(
        checked.verification, [envelope.header, envelope.body], ["drawing@a", "note@a"]
    )
    assert [problem.code for problem in missing] == ["EBMS:0103", "EBMS:0103"]
    assert [problem.location for problem in missing] == ["S12:Envelope/S12:Header", "cid:note@a"]


def test_what_is_covered_but_broken_is_missing_too() -> None:
    sent = signed(attachments=())
    checked = check(sent.envelope.replace(b"copper", b"silver"))
    missing = missing_coverage(checked.verification, [checked.envelope.body], [])
    assert "does not cover Body" in missing[0].detail


def test_an_attachment_digested_as_it_is_holds_with_a_warning() -> None:
    sent = signed(raw=True)
    verification = check(sent).verification
    assert verification.valid is True
    warned = {problem.location: problem for problem in verification.problems}
    assert set(warned) == {"cid:order@a", "cid:note@a"}
    assert all(p.severity is Severity.WARNING for p in warned.values())
    assert check(sent, raw=True).verification.problems == ()
    strict = check(sent, raw=False)
    assert strict.broken == {"cid:order@a", "cid:note@a"}


def test_a_canonical_digest_is_not_taken_where_raw_is_agreed() -> None:
    assert check(signed(), raw=True).broken == {"cid:order@a", "cid:note@a"}


@pytest.mark.parametrize(
    "rewritten",
    [
        b"<a:order b='2' c='3' xmlns:a='urn:a'>\n5</a:order>",
        b'<?xml version="1.0" encoding="UTF-8"?>\n<a:order   c="3"\n b="&#50;"'
        b' xmlns:a="urn:a">&#10;<!-- y -->5</a:order >\n',
        '<a:order b="2" c="3" xmlns:a="urn:a">\n5</a:order>'.encode("utf-16"),
        b'<a:order xmlns:a="urn:a" b="2" c="3">\r\n<![CDATA[5]]></a:order>',
    ],
)
def test_an_xml_attachment_written_in_another_way_still_holds(rewritten: bytes) -> None:
    sent = signed()
    written = replace(sent.attachments[1], content=BytesContent(rewritten))
    checked = check(sent, (sent.attachments[0], written, sent.attachments[2]))
    assert checked.verification.valid is True
    assert checked.verification.problems == ()


def test_a_text_attachment_holds_with_other_line_ends() -> None:
    sent = signed()
    for end in (b"\n", b"\r\n", b"\r"):
        written = replace(
            sent.attachments[2], content=BytesContent(NOTE.replace(b"\n", end)), sha256=None
        )
        assert check(sent, (*sent.attachments[:2], written)).verification.problems == ()


def test_an_octet_stream_does_not_hold_with_other_line_ends() -> None:
    note = Attachment("note@a", BytesContent(NOTE), "application/octet-stream")
    sent = signed(attachments=[note])
    other = replace(note, content=BytesContent(NOTE.replace(b"\n", b"\r\n")))
    assert check(sent, [other]).broken == {"cid:note@a"}


def test_an_xml_attachment_that_is_not_well_formed_cannot_be_signed() -> None:
    bad = Attachment("bad@a", BytesContent(b"<a>"), "application/xml")
    with pytest.raises(EbmsError) as caught:
        signed(attachments=[bad])
    assert caught.value.location == "cid:bad@a"


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(canonical_xml_bytes=len(ORDER_XML) - 1), "too large to canonicalise"),
        (Limits(canonical_xml_elements=1), "more than 1 elements and comments"),
    ],
    ids=["bytes", "elements"],
)
def test_an_xml_attachment_beyond_the_limits_is_not_signed(limits: Limits, said: str) -> None:
    [order] = (one for one in ATTACHMENTS if one.content_id == "order@a")
    how = Signing(ALICE, ECDSA_SHA256)
    with pytest.raises(EbmsError, match=said) as caught:
        sign([], [order], how, limits=limits)
    assert caught.value.location == "cid:order@a"
    with pytest.raises(EbmsError, match=said):
        secure(SoapVersion.SOAP_12, [], [order], signing=how, limits=limits)
    enough = Limits(canonical_xml_bytes=len(ORDER_XML), canonical_xml_elements=2)
    assert sign([], [order], how, limits=enough).references == sign([], [order], how).references


def test_an_xml_attachment_that_is_not_well_formed_holds_as_it_is_with_a_warning() -> None:
    bad = Attachment("bad@a", BytesContent(b"<a>"), "application/xml")
    sent = signed(attachments=[bad], raw=True)
    assert [p.severity for p in check(sent).verification.problems] == [Severity.WARNING]
    assert check(sent, raw=False).broken == {"cid:bad@a"}


def test_two_security_headers_for_the_same_role_are_an_error() -> None:
    root = parse(signed(attachments=()).envelope)
    header = read_envelope(root).header
    assert header is not None
    header.append(parse(f'<w:Security xmlns:w="{WSSE}"/>'.encode()))
    with pytest.raises(EbmsError, match="two wsse:Security headers") as caught:
        security_headers(header)
    assert caught.value.code == "EBMS:0101"


def test_security_headers_for_different_roles_stand_side_by_side() -> None:
    root = parse(signed(attachments=()).envelope)
    header = read_envelope(root).header
    assert header is not None
    header.append(parse(f'<w:Security xmlns:w="{WSSE}" xmlns:s="{S12}" s:role="ebms"/>'.encode()))
    found = security_headers(header)
    assert set(found) == {None, "ebms"}
    assert len(signatures(found["ebms"])) == 0


def test_digests_that_are_known_already_are_not_taken_again() -> None:
    class Unreadable(BytesContent):
        __slots__ = ()

        def chunks(self) -> None:  # type: ignore[override]
            raise AssertionError("read although the digest is known")

    known = Attachment(
        "drawing@a",
        Unreadable(DRAWING),
        "application/octet-stream",
        hashlib.sha256(DRAWING).digest(),
    )
    sent = signed(attachments=[known])
    assert check(sent, ATTACHMENTS[:1]).verification.valid is True
