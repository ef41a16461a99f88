"""What is signed here verifies here, covers what it says, and breaks where it is touched."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from lxml import etree

from postroad.node.example import order_message
from postroad.security.algorithms import (
    DIGESTS,
    ECDSA_SHA256,
    ED448,
    ED25519,
    RSA_SHA256,
    SHA1,
    SHA256,
    SHA384,
    SHA512,
    SIGNATURES,
    STRONG,
    Algorithms,
    Scheme,
)
from postroad.security.attachments import COMPLETE_TRANSFORM, CONTENT_TRANSFORM, Attachment
from postroad.security.ids import Ids
from postroad.security.keys import KeyPair
from postroad.security.secure import Lifetime, Secured, secure
from postroad.security.sign import Block, Signing
from postroad.security.timestamps import Timestamp, check_timestamp, read_security_timestamp
from postroad.security.tokens import TokenReference
from postroad.security.verify import (
    STR_TRANSFORM,
    Verification,
    missing_coverage,
    security_headers,
    signatures,
    verify,
)
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import Messaging
from postroad.wire.ebms3_reader import MESSAGING
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import Limits
from postroad.wire.names import (
    C14N,
    DS,
    DSIG_MORE_2001,
    EXC_C14N,
    S12,
    WSSE,
    WSU,
    X509_PROFILE,
)
from postroad.wire.soap import Envelope, SoapVersion, read_envelope
from postroad.wire.xml import parse
from tests import pki
from tests.changing import replace

CA: Final = pki.authority("Signers")
ALICE: Final = pki.issue(CA, "alice")
DRAWING: Final = bytes(range(256)) * 3
ORDER_XML: Final = (
    b'<?xml version="1.0"?><a:order xmlns:a="urn:a" c="3" b="2">\n<!-- x -->5</a:order>'
)
NOTE: Final = b"first\nsecond\nthird"
ATTACHMENTS: Final = (
    Attachment("drawing@a", BytesContent(DRAWING), "application/octet-stream"),
    Attachment("order@a", BytesContent(ORDER_XML), "application/xml"),
    Attachment("note@a", BytesContent(NOTE), "text/plain"),
)
BODY: Final = '<d:doc xmlns:d="urn:d"><d:item n="1">copper</d:item></d:doc>'
BRAINPOOL: Final = {
    "brainpool256": ec.BrainpoolP256R1(),
    "brainpool384": ec.BrainpoolP384R1(),
    "brainpool512": ec.BrainpoolP512R1(),
}


@cache
def key_pair(kind: str) -> KeyPair:
    """A pair of any kind that `pki` makes, and on the larger Brainpool curves too."""
    if kind in BRAINPOOL:
        seed = int.from_bytes(hashlib.sha256(kind.encode()).digest()[:30])
        return certified(ec.derive_private_key(seed, BRAINPOOL[kind]), kind)
    return pki.issue(CA, f"signer {kind}", key=kind)


def certified(key: ec.EllipticCurvePrivateKey | dsa.DSAPrivateKey, name: str) -> KeyPair:
    subject = pki.distinguished_name(name)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(CA.certificate.subject)
        .public_key(key.public_key())
        .serial_number(int.from_bytes(name.encode()) + 1)
        .not_valid_before(pki.NOW - pki.YEAR)
        .not_valid_after(pki.NOW + pki.YEAR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(CA.private_key, hashes.SHA256())
    )
    return KeyPair(key, certificate, (CA.certificate,))


@dataclass(frozen=True)
class Checked:
    """A message after its signature was looked at."""

    envelope: Envelope
    verification: Verification

    @property
    def messaging(self) -> etree._Element:
        assert self.envelope.header is not None
        [found] = self.envelope.header.iterchildren(MESSAGING)
        return found

    @property
    def broken(self) -> set[str]:
        return {one.reference.uri for one in self.verification.references if not one.valid}


def signed(
    signer: KeyPair = ALICE,
    algorithm: str = ECDSA_SHA256,
    *,
    version: SoapVersion = SoapVersion.SOAP_12,
    form: TokenReference = TokenReference.BINARY_SECURITY_TOKEN,
    digest: str = SHA256,
    attachments: Sequence[Attachment] = ATTACHMENTS,
    raw: bool = False,
    lifetime: Lifetime | None = None,
    body: str = BODY,
) -> Secured:
    header = write_messaging(Messaging((order_message(pki.NOW),), id="_messaging"), version)
    return secure(
        version,
        [Block("_messaging", header)],
        attachments,
        signing=Signing(signer, algorithm, digest, form, raw),
        lifetime=lifetime,
        body_content=body,
    )


def check(
    message: Secured | bytes,
    attachments: Sequence[Attachment] | None = None,
    *,
    known: Sequence[x509.Certificate] = (),
    algorithms: Algorithms = STRONG,
    raw: bool | None = None,
    unseen: Callable[[str], str | None] = lambda content_id: None,
    limits: Limits | None = None,
) -> Checked:
    sent = message.envelope if isinstance(message, Secured) else message
    if attachments is None:
        attachments = message.attachments if isinstance(message, Secured) else ()
    envelope = read_envelope(parse(sent))
    [signature] = signatures(security_headers(envelope.header)[None])
    verification = verify(
        signature,
        Ids(envelope.root),
        {one.content_id: one for one in attachments},
        known=known,
        algorithms=algorithms,
        raw_attachments=raw,
        unseen=unseen,
        limits=limits or Limits(),
    )
    return Checked(envelope, verification)


def details(verification: Verification) -> str:
    return "; ".join(problem.detail for problem in verification.problems)


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


def _named(value: object) -> str:
    return str(value).rpartition("#")[2] if "#" in str(value) else str(value)


@pytest.mark.parametrize("version", SoapVersion, ids=lambda version: version.name)
@pytest.mark.parametrize("form", TokenReference)
@pytest.mark.parametrize(("algorithm", "kind"), _fitting(), ids=_named)
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
    "digest", [uri for uri, digest in DIGESTS.items() if not digest.weak], ids=_named
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
    ids=_named,
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
    _replace_token(root, pair.certificate)
    der = pair.private_key.sign(_exclusive(_only(root, "SignedInfo")), hashes.SHA1())
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
    ids=_named,
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
    _replace_token(root, pki.issue(CA, "mallory").certificate)
    verification = check(etree.tostring(root)).verification
    assert verification.valid is False
    assert "does not fit its content and certificate" in details(verification)
    assert all(one.valid for one in verification.references)


def test_without_the_certificate_validity_stays_open() -> None:
    verification = check(signed(form=TokenReference.THUMBPRINT)).verification
    assert verification.valid is None
    assert verification.certificate is None
    assert "not known here" in details(verification)


LIFETIME: Final = Lifetime(pki.NOW, timedelta(minutes=10))


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


def _timestamp(content: str) -> tuple[Timestamp | None, list[EbmsError]]:
    text = f'<w:Security xmlns:w="{WSSE}" xmlns:wsu="{WSU}">{content}</w:Security>'
    return read_security_timestamp(parse(text.encode()))


def test_a_timestamp_is_written_signed_and_read() -> None:
    checked = check(signed(lifetime=LIFETIME))
    security = security_headers(checked.envelope.header)[None]
    timestamp, problems = read_security_timestamp(security)
    assert problems == []
    assert timestamp is not None
    assert timestamp.created == pki.NOW
    assert timestamp.expires == pki.NOW + timedelta(minutes=10)
    assert checked.verification.covers(timestamp.element)


def test_a_timestamp_may_have_no_end() -> None:
    checked = check(signed(lifetime=Lifetime(pki.NOW)))
    timestamp, _ = read_security_timestamp(security_headers(checked.envelope.header)[None])
    assert timestamp is not None
    assert timestamp.expires is None
    assert check_timestamp(timestamp, pki.NOW + 5 * pki.YEAR) == []


@pytest.mark.parametrize(
    ("minutes", "said"),
    [(-6, "in the future"), (-5, None), (0, None), (15, None), (16, "expired")],
)
def test_a_timestamp_is_judged_with_five_minutes_of_grace(minutes: int, said: str | None) -> None:
    security = security_headers(check(signed(lifetime=LIFETIME)).envelope.header)[None]
    timestamp, _ = read_security_timestamp(security)
    assert timestamp is not None
    problems = check_timestamp(timestamp, pki.NOW + timedelta(minutes=minutes))
    assert [problem.code for problem in problems] == (["EBMS:0103"] if said else [])
    assert all(said in problem.detail for problem in problems if said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("<wsu:Timestamp/><wsu:Timestamp/>", "more than one wsu:Timestamp"),
        (
            "<wsu:Timestamp><wsu:Created>2026-01-01T00:00:00Z</wsu:Created>"
            "<wsu:Created>2026-01-01T00:00:00Z</wsu:Created></wsu:Timestamp>",
            "more than one wsu:Created",
        ),
        (
            "<wsu:Timestamp><wsu:Created>2026-01-01T00:00:00Z</wsu:Created>"
            "<wsu:Expires>2026-01-01T00:00:00Z</wsu:Expires></wsu:Timestamp>",
            "expires before it was created",
        ),
        ("<wsu:Timestamp><wsu:Created>soon</wsu:Created></wsu:Timestamp>", "soon"),
    ],
)
def test_a_timestamp_that_makes_no_sense_is_told(content: str, said: str) -> None:
    _, problems = _timestamp(content)
    assert [problem.code for problem in problems] == ["EBMS:0103"]
    assert said in problems[0].detail


def test_no_timestamp_is_no_problem() -> None:
    assert _timestamp("") == (None, [])


def _exclusive(element: etree._Element, prefixes: Sequence[str] = ()) -> bytes:
    return etree.tostring(
        element,
        method="c14n",
        exclusive=True,
        with_comments=False,
        inclusive_ns_prefixes=list(prefixes) or None,
        with_tail=False,
    )


def _inclusive(element: etree._Element) -> bytes:
    """The xml:lang of the Envelope is taken over, which lxml leaves to its caller."""
    element.set(XML_LANG, "en")
    form = etree.tostring(element, method="c14n", with_comments=False, with_tail=False)
    del element.attrib[XML_LANG]
    return form


def _only(root: etree._Element, name: str) -> etree._Element:
    [found] = (one for one in root.iter("*") if etree.QName(one).localname == name)
    return found


def _replace_token(root: etree._Element, certificate: x509.Certificate) -> None:
    token = _only(root, "BinarySecurityToken")
    token.text = base64.b64encode(certificate.public_bytes(pki.Encoding.DER)).decode()


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
    canonicalise: Callable[[etree._Element], bytes] = _exclusive,
    template: str = ENVELOPE,
) -> bytes:
    """A message signed with lxml and cryptography alone."""
    text = template.replace("REFERENCES", "".join(references))
    root = etree.fromstring(text.encode())
    _replace_token(root, ALICE.certificate)
    key = ALICE.private_key
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    der = key.sign(canonicalise(_only(root, "SignedInfo")), ec.ECDSA(hashes.SHA256()))
    r, s = decode_dss_signature(der)
    value = base64.b64encode(r.to_bytes(32) + s.to_bytes(32)).decode()
    _only(root, "SignatureValue").text = value
    return etree.tostring(root)


def _bare() -> etree._Element:
    root = etree.fromstring(ENVELOPE.replace("REFERENCES", "").encode())
    _replace_token(root, ALICE.certificate)
    return root


def _transform(algorithm: str, inside: str = "") -> str:
    return f'<ds:Transform Algorithm="{algorithm}">{inside}</ds:Transform>'


def _prefix_list(prefixes: str) -> str:
    return f'<x:InclusiveNamespaces xmlns:x="{EXC_C14N}" PrefixList="{prefixes}"/>'


def test_an_inclusive_reference_holds() -> None:
    digested = _inclusive(_only(_bare(), "Body"))
    assert b"xmlns:unused" in digested
    assert b'xml:lang="en"' in digested
    checked = check(by_hand(_reference("#body", digested, _transform(C14N))))
    assert checked.verification.valid is True
    assert checked.verification.covers(checked.envelope.body)


def test_a_reference_without_transforms_is_inclusive() -> None:
    digested = _inclusive(_only(_bare(), "Body"))
    reference = _reference("#body", digested, "").replace("<ds:Transforms></ds:Transforms>", "")
    assert check(by_hand(reference)).verification.valid is True


def test_a_prefix_list_is_honoured() -> None:
    digested = _exclusive(_only(_bare(), "block"), ["q"])
    assert b'xmlns:q="urn:q"' in digested
    sent = by_hand(_reference("#block", digested, _transform(EXC_C14N, _prefix_list("q"))))
    assert check(sent).verification.valid is True
    without = by_hand(_reference("#block", digested, _transform(EXC_C14N)))
    assert check(without).broken == {"#block"}


def test_a_prefix_in_the_list_cannot_be_bound_to_something_else() -> None:
    digested = _exclusive(_only(_bare(), "block"), ["q"])
    sent = by_hand(_reference("#block", digested, _transform(EXC_C14N, _prefix_list("q"))))
    assert check(sent.replace(b"urn:q", b"urn:x")).broken == {"#block"}


def test_signed_info_may_be_canonicalised_inclusively() -> None:
    digested = _exclusive(_only(_bare(), "Body"))
    template = ENVELOPE.replace(f'Method Algorithm="{EXC_C14N}"', f'Method Algorithm="{C14N}"', 1)
    sent = by_hand(
        _reference("#body", digested, _transform(EXC_C14N)),
        canonicalise=_inclusive,
        template=template,
    )
    assert check(sent).verification.valid is True
    assert check(sent.replace(b"urn:unused", b"urn:other")).verification.valid is False


def test_signed_info_may_have_a_prefix_list() -> None:
    digested = _exclusive(_only(_bare(), "Body"))
    method = f'<ds:CanonicalizationMethod Algorithm="{EXC_C14N}"'
    template = ENVELOPE.replace(
        f"{method}/>", f"{method}>{_prefix_list('env q')}</ds:CanonicalizationMethod>"
    )
    sent = by_hand(
        _reference("#body", digested, _transform(EXC_C14N)),
        canonicalise=lambda element: _exclusive(element, ["env", "q"]),
        template=template,
    )
    assert check(sent).verification.valid is True


def test_comments_are_not_part_of_what_is_signed() -> None:
    digested = _exclusive(_only(_bare(), "Body"))
    assert b"<!--" not in digested
    sent = by_hand(_reference("#body", digested, _transform(EXC_C14N + "WithComments")))
    assert check(sent).verification.valid is True


@pytest.mark.parametrize("with_default", [False, True], ids=["plain", "with xmlns=''"])
def test_a_token_signed_through_its_reference_holds(with_default: bool) -> None:
    digested = _exclusive(_only(_bare(), "BinarySecurityToken"))
    if with_default:
        digested = digested.replace(b"BinarySecurityToken ", b'BinarySecurityToken xmlns="" ', 1)
    inside = (
        "<wsse:TransformationParameters><ds:CanonicalizationMethod"
        f' Algorithm="{EXC_C14N}"/></wsse:TransformationParameters>'
    )
    sent = by_hand(
        _reference("#str", digested, _transform(STR_TRANSFORM, inside)),
        _reference("#body", _exclusive(_only(_bare(), "Body")), _transform(EXC_C14N)),
    )
    verification = check(sent).verification
    assert verification.problems == ()
    assert verification.valid is True


def test_another_token_behind_a_signed_reference_breaks_it() -> None:
    digested = _exclusive(_only(_bare(), "BinarySecurityToken"))
    root = etree.fromstring(by_hand(_reference("#str", digested, _transform(STR_TRANSFORM))))
    same_key = certified(ALICE.private_key, "alice again")
    _replace_token(root, same_key.certificate)
    checked = check(etree.tostring(root))
    assert checked.broken == {"#str"}
    assert checked.verification.valid is False


def test_the_str_transform_applies_to_token_references_only() -> None:
    digested = _exclusive(_only(_bare(), "Body"))
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
    sent = by_hand(_reference("#body", _exclusive(_only(_bare(), "Body")), transforms))
    checked = check(sent)
    assert checked.broken == {"#body"}
    assert checked.verification.valid is False


@pytest.mark.parametrize("transform", [COMPLETE_TRANSFORM, EXC_C14N])
def test_an_attachment_takes_the_content_transform_only(transform: str) -> None:
    sent = by_hand(_reference("cid:drawing@a", DRAWING, _transform(transform)))
    assert check(sent, ATTACHMENTS).broken == {"cid:drawing@a"}
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
    digested = _exclusive(_only(_bare(), "Body"))
    sent = by_hand(_reference("#body", digested, _transform(EXC_C14N)))
    twice = sent.replace(b'Id="doc"', b'id="body"')
    checked = check(twice)
    assert checked.broken == {"#body"}
    assert "2 elements have it" in details(checked.verification)


def test_a_signed_element_moved_to_another_place_is_not_accepted() -> None:
    digested = _exclusive(_only(_bare(), "block"))
    root = etree.fromstring(by_hand(_reference("#block", digested, _transform(EXC_C14N))))
    block = _only(root, "block")
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
