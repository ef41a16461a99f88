"""An ebXML message that is signed here verifies here, on every hop, and breaks where touched."""

import base64
import hashlib
import re
from typing import Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from lxml import etree

from postroad.security import algorithms as alg
from postroad.security.algorithms import Algorithms
from postroad.security.attachments import Attachment
from postroad.security.ebxml_signature import covered, sign_ebxml
from postroad.security.sign import Signing
from postroad.security.tokens import TokenReference
from postroad.security.verify import references_of
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import Party, PartyId, Service
from postroad.wire.ebxml import (
    MS098,
    MS10,
    MS20,
    Dialect,
    EbxmlMessage,
    Manifest,
    ManifestReference,
    MessageHeader,
    TraceHeader,
    Via,
)
from postroad.wire.ebxml_hops import add_trace, insert_signature, renew_via
from postroad.wire.ebxml_writer import write_ebxml
from postroad.wire.limits import Limits
from postroad.wire.names import DS, EB2_NEXT_MSH, S11, S11_NEXT, XML
from postroad.wire.soap import read_envelope
from postroad.wire.xml import parse
from tests import pki
from tests.changing import replace
from tests.unit.ebxml_signing import (
    ALICE,
    ATTACHMENTS,
    CA,
    DRAWING,
    HREFS,
    MALLORY,
    ORDER,
    Message,
    check,
    dialects,
    hop,
    signed,
    trace,
    without_key_info,
)
from tests.unit.signing import certified

SHA1: Final = Algorithms(named=frozenset((alg.SHA1, "http://www.w3.org/2000/09/xmldsig#rsa-sha1")))


# It holds


@dialects()
@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("rsa", alg.RSA_SHA256),
        ("rsa", alg.RSA_PSS_SHA256),
        ("p256", alg.ECDSA_SHA256),
        ("p384", alg.ECDSA_SHA256),
        ("ed25519", alg.ED25519),
    ],
)
@pytest.mark.req("MS098-8.8-02", "MS098-8.8-04")
def test_what_is_signed_here_verifies_here(dialect: Dialect, kind: str, algorithm: str) -> None:
    signer = pki.issue(CA, f"older {kind}", key=kind)
    checked = check(signed(dialect, signer, algorithm))
    assert checked.verification.problems == ()
    assert checked.verification.valid is True
    assert checked.verification.algorithm == algorithm
    assert checked.verification.certificate == signer.certificate


@dialects()
def test_the_references_are_the_document_first_and_then_each_payload(dialect: Dialect) -> None:
    message = signed(dialect)
    checked = check(message)
    assert [one.uri for one in message.references] == ["", *HREFS]
    assert checked.verification.signed_references == message.references
    assert references_of(checked.envelope.header) == message.references
    assert checked.verification.covers_attachment("order@a.example")


def test_the_digest_of_a_payload_is_that_of_its_octets() -> None:
    digests = [one.digest_value for one in signed().references[1:]]
    assert digests == [hashlib.sha256(ORDER).digest(), hashlib.sha256(DRAWING).digest()]


@dialects()
def test_the_signature_holds_after_every_hop(dialect: Dialect) -> None:
    message = signed(dialect)
    for number in range(3):
        message = message.added(hop(dialect, number), before="<ds:Signature")
        message = message.added(hop(dialect, number), before="<eb:MessageHeader")
        message = message.added(hop(dialect, number))
        checked = check(message)
        assert checked.verification.problems == ()
        assert checked.verification.valid is True
        assert checked.covers("MessageHeader")


def written(dialect: Dialect) -> bytes:
    """A message as the writer makes it."""
    header = MessageHeader(
        from_party=Party((PartyId("urn:a"),), ""),
        to_party=Party((PartyId("urn:b"),), ""),
        cpa_id="urn:cpa:1",
        conversation_id="1",
        service=Service("urn:orders"),
        action="NewOrder",
        message_id="1@a.example",
        timestamp=pki.NOW,
        delivery_semantics="BestEffort" if dialect.has_trace else None,
    )
    manifest = Manifest(tuple(ManifestReference(href=href) for href in HREFS))
    return write_ebxml(EbxmlMessage(dialect=dialect, header=header, manifest=manifest))


@dialects(MS098, MS10)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_the_signature_holds_when_relays_cut_and_splice(dialect: Dialect, encoding: str) -> None:
    text = written(dialect).decode().replace("UTF-8", encoding)
    signing = Signing(ALICE, alg.ECDSA_SHA256)
    signature, _ = sign_ebxml(text.encode(encoding), dialect, ATTACHMENTS, signing)
    sent = insert_signature(text.encode(encoding), signature)
    for number in range(3):
        hop_uris = f"https://{number}.example/", f"https://{number + 1}.example/"
        sent = add_trace(sent, dialect, TraceHeader(*hop_uris, pki.NOW))
        sent = renew_via(sent, dialect, Via(ack_requested=("Signed", "UnSigned", "None")[number]))
        checked = check(Message(dialect, sent, ()))
        assert checked.holds
        assert checked.covers("MessageHeader")
        assert not checked.covers("Via")
    assert check(Message(dialect, renew_via(sent, dialect, None), ())).holds


@dialects(MS20)
def test_what_is_for_the_next_hop_may_be_there_when_it_is_signed(dialect: Dialect) -> None:
    sync = f'<eb:SyncReply SOAP-ENV:actor="{S11_NEXT}" eb:version="2.0"/>'
    message = signed(dialect, blocks=f"{sync}<!-- near --> ")
    assert check(message).holds
    assert check(message.replaced(sync, "")).holds


def test_verifying_leaves_the_tree_as_it_was() -> None:
    message = signed(MS098).added(trace(1)).added(" <!-- c -->\n")
    checked = check(message)
    assert etree.tostring(checked.envelope.root) == etree.tostring(parse(message.envelope))


def test_a_payload_can_be_named_by_an_escaped_cid() -> None:
    message = replace(signed(), hrefs=("cid:order%40a.example", "CID:drawing@a.example"))
    assert check(message).holds


@pytest.mark.parametrize("form", [f for f in TokenReference if f is not TokenReference.THUMBPRINT])
def test_the_certificate_can_be_named_in_every_way(form: TokenReference) -> None:
    message = signed(form=form)
    data = next(parse(message.envelope).iter(f"{{{DS}}}X509Data"))
    assert all(one.text is None or not len(one) for one in data.iter())
    assert all(one.tail is None for one in data.iterdescendants())
    checked = check(message, known=(MALLORY.certificate, ALICE.certificate))
    assert checked.holds
    assert checked.verification.certificate == ALICE.certificate
    chain = ALICE.chain if form is TokenReference.PKI_PATH else ()
    assert checked.verification.companions == chain


def test_a_certificate_cannot_be_named_by_thumbprint() -> None:
    with pytest.raises(ValueError, match=r"an ebXML signature .* by thumbprint; use issuer_serial"):
        signed(form=TokenReference.THUMBPRINT)


def test_a_certificate_without_a_key_identifier_cannot_be_named_by_it() -> None:
    bare = pki.issue(CA, "older bare", key_identifier=False)
    with pytest.raises(ValueError, match="no subject key identifier"):
        signed(signer=bare, form=TokenReference.SUBJECT_KEY_IDENTIFIER)


def test_a_key_that_does_not_fit_the_algorithm_is_said() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        signed(algorithm=alg.RSA_SHA256)


def test_an_envelope_without_a_header_cannot_be_signed() -> None:
    bare = f'<S:Envelope xmlns:S="{S11}"><S:Body/></S:Envelope>'.encode()
    with pytest.raises(ValueError, match="no Header"):
        sign_ebxml(bare, MS20, (), Signing(ALICE, alg.ECDSA_SHA256))


# KeyInfo

NAMES_ONLY: Final = (
    "",
    "<ds:KeyInfo/>",
    "<ds:KeyInfo><ds:KeyName>alice</ds:KeyName></ds:KeyInfo>",
    "<ds:KeyInfo><ds:KeyName>alice</ds:KeyName><ds:X509Data><ds:X509SubjectName>CN=x"
    "</ds:X509SubjectName></ds:X509Data><ds:KeyValue/></ds:KeyInfo>",
)


@pytest.mark.parametrize("key_info", NAMES_ONLY)
def test_a_signer_who_is_not_named_is_the_known_one_whose_key_fits(key_info: str) -> None:
    rsa = pki.issue(CA, "older rsa", key="rsa")
    known = (rsa.certificate, MALLORY.certificate, ALICE.certificate)
    checked = check(without_key_info(signed(), key_info), known=known)
    assert checked.holds
    assert checked.verification.certificate == ALICE.certificate


def test_a_signer_who_is_not_named_and_not_known_is_not_known() -> None:
    checked = check(without_key_info(signed()))
    assert checked.verification.valid is None
    assert checked.verification.certificate is None
    assert "give it as a trusted certificate" in checked.failures[0]


def test_a_signature_that_fits_no_known_key_does_not_hold() -> None:
    checked = check(without_key_info(signed()), known=[MALLORY.certificate])
    assert checked.verification.valid is False
    assert checked.verification.certificate is None


def test_the_signer_need_not_be_the_first_certificate() -> None:
    message = signed(form=TokenReference.PKI_PATH)
    begin, end = "<ds:X509Certificate>", "</ds:X509Certificate>"
    text = message.envelope.decode()
    start, stop = text.index(begin), text.index(end) + len(end)
    second = text.index(end, stop) + len(end)
    own, authority = text[start:stop], text[stop:second]
    split = f"{authority}</ds:X509Data><ds:X509Data>{own}"
    checked = check(message.replaced(own + authority, split))
    assert checked.holds
    assert checked.verification.certificate == ALICE.certificate
    assert checked.verification.companions == ALICE.chain


# The XPath in other words

NEXT: Final = f'ancestor-or-self::node()[@SOAP:actor="{S11_NEXT}"]'
NEXT_MSH: Final = f'ancestor-or-self::node()[@SOAP:actor="{EB2_NEXT_MSH}"]'
TRACE_AND_VIA: Final = (
    "not(ancestor-or-self::eb:Via or ancestor-or-self::eb:TraceHeaderList)",
    " not (\n\tancestor-or-self::eb:TraceHeaderList | ancestor-or-self :: eb:Via ) ",
    "not(ancestor-or-self::eb:TraceHeaderList) and not(ancestor-or-self::eb:Via)",
)
ACTORS: Final = (
    f"not({NEXT} | {NEXT_MSH})",
    f"\n  not({NEXT_MSH}|\n      {NEXT})\n",
    f"not({NEXT_MSH} or {NEXT})".replace('"', "'"),
    f"not({NEXT}) and not({NEXT_MSH})",
    f"not({NEXT} | {NEXT_MSH})".replace("node()", "*"),
)


def with_xpath(dialect: Dialect, xpath: str, *, prefix: str = "") -> Message:
    """Signed by a product that writes the XPath in its own way, and perhaps with its own prefix."""
    namespaces = dialect.hop_namespaces
    if prefix:
        xpath = xpath.replace(f"{namespaces[0][0]}:", f"{prefix}:")
        namespaces = ((prefix, namespaces[0][1]),)
    other = replace(dialect, hop_xpath=xpath, hop_namespaces=namespaces)
    return replace(signed(other), dialect=dialect)


@pytest.mark.parametrize("prefix", ["", "soap-env"])
@pytest.mark.parametrize(
    ("dialect", "xpath"),
    [
        *((MS098, xpath) for xpath in TRACE_AND_VIA),
        (MS10, TRACE_AND_VIA[0]),
        *((MS20, xpath) for xpath in ACTORS),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_xpath_may_be_written_in_other_words(dialect: Dialect, xpath: str, prefix: str) -> None:
    message = with_xpath(dialect, xpath, prefix=prefix).added(hop(dialect, 0))
    assert check(message.added(hop(dialect, 1))).holds


def test_an_xpath_that_takes_out_less_covers_more() -> None:
    message = with_xpath(MS098, "not(ancestor-or-self::eb:Via)")
    assert check(message.added("<eb:Via/>")).holds
    assert check(message.added(trace(1))).failures[0].endswith("its content was changed")


def test_a_very_long_xpath_is_not_read() -> None:
    [said] = check(with_xpath(MS098, f"{MS098.hop_xpath}{' ' * 4096}")).failures
    assert "is not the one of ebXML 0.98b" in said


# What is covered


@dialects()
def test_what_was_digested_is_covered_and_nothing_else(dialect: Dialect) -> None:
    checked = check(signed(dialect).added(hop(dialect, 1)))
    for name in ("Envelope", "Header", "MessageHeader", "Action", "Body", "Manifest"):
        assert checked.covers(name)
    for name in ("Signature", "SignedInfo", "X509Certificate"):
        assert not checked.covers(name)
    hops = ("TraceHeaderList", "SenderURI", "Via") if dialect.has_trace else ("AckRequested", "n")
    for name in hops:
        assert not checked.covers(name)


def test_an_element_of_another_tree_is_not_covered() -> None:
    message = signed()
    other = read_envelope(parse(message.envelope))
    assert not covered(check(message).verification, other.body)


def test_nothing_is_covered_where_the_digest_does_not_hold() -> None:
    checked = check(signed().replaced("NewOrder", "OldOrder"))
    assert not checked.covers("MessageHeader")
    [problem] = checked.verification.problems
    assert problem.location == "S11:Envelope/S11:Header/ds:Signature"


def test_nothing_is_covered_where_the_digest_is_open() -> None:
    checked = check(without_key_info(signed()))
    assert checked.covers("MessageHeader")
    found = checked.verification
    first = found.references[0]._replace(valid=None)
    opened = found._replace(references=(first, *found.references[1:]))
    assert not covered(opened, checked.element("MessageHeader"))


def test_what_is_left_out_is_told() -> None:
    checked = check(signed(MS098).added("<eb:Via/>"))
    left_out = checked.verification.references[0].left_out
    assert set(left_out) == {checked.element("Via"), checked.element("Signature")}


def test_a_block_for_another_actor_is_covered() -> None:
    actor = "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"
    block = f'<eb:AckRequested SOAP-ENV:actor="{actor}" eb:signed="true"/>'
    assert check(signed(blocks=block)).covers("AckRequested")
    assert not check(signed().added(block)).holds


# It breaks


@dialects()
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("NewOrder", "OldOrder"),
        ("urn:cpa:1", "urn:cpa:2"),
        ('xml:lang="en"', 'xml:lang="nl"'),
        ('xmlns:unused="urn:unused"', 'xmlns:unused="urn:used"'),
        ('xmlns="urn:default"', 'xmlns="urn:another"'),
        ("</eb:MessageHeader>\n ", "</eb:MessageHeader>"),
        ('eb:id="m"', 'eb:id="n"'),
        ("</SOAP-ENV:Body>\n", "</SOAP-ENV:Body><x:x xmlns:x='urn:x'/>\n"),
        ("<SOAP-ENV:Header ", '<SOAP-ENV:Header a="1" '),
        ("</SOAP-ENV:Header>", "\n</SOAP-ENV:Header>"),
    ],
)
def test_any_change_of_the_document_is_seen(dialect: Dialect, old: str, new: str) -> None:
    checked = check(signed(dialect).replaced(old, new))
    assert checked.verification.valid is False
    assert "the signed part the whole document does not hold: its content was changed" in (
        checked.failures
    )


def test_comments_do_not_count() -> None:
    assert check(signed().replaced("<!-- within -->", "").replaced("<!-- after -->", "")).holds


def test_a_changed_payload_is_seen() -> None:
    message = signed()
    other = replace(ATTACHMENTS[0], content=BytesContent(ORDER + b" "))
    checked = check(replace(message, attachments=(other, ATTACHMENTS[1])))
    assert checked.verification.valid is False
    [problem] = checked.verification.problems
    assert problem.location == "cid:order@a.example"
    assert problem.code == "EBMS:0101"


def test_a_missing_payload_is_seen() -> None:
    checked = check(replace(signed(), attachments=ATTACHMENTS[:1]))
    assert checked.verification.valid is False
    assert "the message has no such part" in checked.failures[0]


def test_a_payload_of_the_manifest_that_is_not_signed_is_seen() -> None:
    extra = Attachment("extra@a.example", BytesContent(b"x"), "text/plain")
    message = signed()
    checked = check(
        replace(message, attachments=(*ATTACHMENTS, extra), hrefs=(*HREFS, "cid:extra@a.example"))
    )
    [problem] = checked.verification.problems
    assert problem.code == "EBMS:0103"
    assert problem.location == "cid:extra@a.example"


def test_a_payload_that_was_not_captured_stays_open() -> None:
    message = replace(signed(), attachments=())
    checked = check(message, unseen=lambda content_id: "only the envelope was captured")
    assert checked.verification.valid is True
    assert checked.failures == []
    assert checked.verification.unseen == list(HREFS)


# Weak algorithms


def test_sha1_is_taken_only_where_it_is_named() -> None:
    rsa = pki.issue(CA, "older rsa", key="rsa")
    message = signed(MS098, rsa, "http://www.w3.org/2000/09/xmldsig#rsa-sha1", digest=alg.SHA1)
    assert check(message, algorithms=SHA1).holds
    refused = check(message)
    assert {p.code for p in refused.verification.problems} == {"EBMS:0103"}
    assert len(refused.failures) == 2


def test_dsa_is_taken_only_where_it_is_named() -> None:
    """The default of 2001: dsa-sha1 with a key of 1024 bits. It is not written here."""
    method = "http://www.w3.org/2000/09/xmldsig#dsa-sha1"
    key = dsa.generate_private_key(1024)
    message = signed(MS098)
    text = message.envelope.decode().replace(alg.ECDSA_SHA256, method)
    info = next(parse(text.encode()).iter(f"{{{DS}}}SignedInfo"))
    info.set(f"{{{XML}}}lang", "en")
    octets = key.sign(etree.tostring(info, method="c14n", with_tail=False), hashes.SHA1())
    r, s = decode_dss_signature(octets)
    value = base64.b64encode(r.to_bytes(20) + s.to_bytes(20)).decode()
    text = re.sub("(?<=<ds:SignatureValue>)[^<]+", value, text)
    sent = without_key_info(replace(message, envelope=text.encode()))
    certificate = certified(key, "older dsa").certificate
    named = Algorithms(named=frozenset((method,)))
    assert check(sent, known=[certificate], algorithms=named).holds
    refused = check(sent, known=[certificate])
    assert "dsa-sha1 is too weak" in refused.failures[0]


def test_the_number_of_references_is_limited() -> None:
    checked = check(signed(), limits=Limits(references=2))
    assert checked.failures == ["more than 2 references"]
