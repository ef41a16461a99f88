"""Signatures that are missing, faked, confused, weak, or that point where they should not."""

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from lxml import etree

import postroad
from postroad.security.algorithms import (
    ECDSA_SHA256,
    ED25519,
    RSA_PSS_SHA256,
    RSA_SHA256,
    SHA1,
    SHA256,
    SIGNATURES,
)
from postroad.security.attachments import COMPLETE_TRANSFORM, CONTENT_TRANSFORM
from postroad.security.rawsign import sign_bytes
from postroad.security.sign import Signing
from postroad.security.tokens import TokenReference
from postroad.wire.names import (
    C14N,
    DS,
    DSIG11,
    DSIG_MORE_2001,
    EXC_C14N,
    SMS10,
    WSSE,
    X509_PROFILE,
    XENC,
)
from tests import pki
from tests.attack.forging import Ref, cut, element, exclusive, refs, resigned, sha256, with_ref
from tests.attack.messages import (
    ACTION,
    BODY,
    FORGED_ACTION,
    NOW,
    TWO,
    Package,
    assert_holds,
    assert_refused,
    buyer,
    ca,
    failures,
    look,
    make,
    rsa_signing,
    write_pmode,
)
from tests.changing import replace

ENVELOPED = DS + "enveloped-signature"
XPATH = "http://www.w3.org/TR/1999/REC-xpath-19991116"
FILTER2 = "http://www.w3.org/2002/06/xmldsig-filter2"
XSLT = "http://www.w3.org/TR/1999/REC-xslt-19991116"
STR_TRANSFORM = SMS10 + "#STR-Transform"
MD5 = DSIG_MORE_2001 + "md5"


@pytest.fixture(scope="module")
def message() -> Package:
    return make(TWO, body=BODY)


# The signature is gone


def test_a_message_whose_signature_was_cut_out_breaks_a_pmode_that_asks_for_one(
    message: Package, tmp_path: Path
) -> None:
    bare = cut(message, "<ds:Signature ", "</ds:Signature>")
    trust = [ca().certificate]
    found = postroad.inspect(bare.wire(), trust=trust, at=NOW, pmode=write_pmode(tmp_path))
    assert_refused(found, "EBMS:0103")
    assert found["signature"]["present"] is False
    kept = postroad.inspect(message.wire(), trust=trust, at=NOW, pmode=write_pmode(tmp_path))
    assert_holds(kept)


@pytest.mark.parametrize("where", ["no Security header", "another role", "foreign namespace"])
def test_a_signature_that_is_not_found_breaks_a_pmode_that_asks_for_one(
    message: Package, tmp_path: Path, where: str
) -> None:
    if where == "no Security header":
        bare = cut(message, "<wsse:Security ", "</wsse:Security>")
    elif where == "another role":
        bare = message.replaced(
            'S12:mustUnderstand="true"><wsu:', 'S12:role="urn:example:nobody"><wsu:'
        )
    else:
        bare = message.replaced(
            f'<ds:Signature xmlns:ds="{DS}"', '<ds:Signature xmlns:ds="urn:example:ds"'
        )
    found = postroad.inspect(
        bare.wire(), trust=[ca().certificate], at=NOW, pmode=write_pmode(tmp_path)
    )
    assert_refused(found, "EBMS:0103")
    assert found["signature"]["present"] is False


def test_a_message_of_another_party_matches_no_pmode(message: Package, tmp_path: Path) -> None:
    other = message.replaced("<eb:PartyId>urn:example:buyer", "<eb:PartyId>urn:example:mouse")
    found = postroad.inspect(
        other.wire(), trust=[ca().certificate], at=NOW, pmode=write_pmode(tmp_path)
    )
    assert_refused(found, "EBMS:0010")
    assert_refused(found, "EBMS:0101")


@pytest.mark.parametrize(
    "role",
    [
        "http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver",
        "http://www.w3.org/2003/05/soap-envelope/role/next",
        " ",
    ],
)
def test_a_security_header_that_is_for_us_by_name_is_looked_at(message: Package, role: str) -> None:
    named = message.replaced(
        'S12:mustUnderstand="true"><wsu:', f'S12:mustUnderstand="true" S12:role="{role}"><wsu:'
    )
    assert_holds(look(named))
    assert_refused(look(named.replaced(ACTION, FORGED_ACTION)), "EBMS:0101")


def test_a_foreign_role_attribute_does_not_hide_the_security_header(message: Package) -> None:
    hidden = message.replaced(
        'S12:mustUnderstand="true"><wsu:',
        'S12:mustUnderstand="true" xmlns:x="urn:example:x" x:role="urn:nobody" x:actor="n"><wsu:',
    )
    assert look(hidden)["signature"]["present"] is True
    assert_refused(look(hidden.replaced(ACTION, FORGED_ACTION)), "EBMS:0101")


@pytest.mark.parametrize(
    "role", ["", " ", "http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver"]
)
def test_two_security_headers_for_us_are_refused_however_the_second_is_named(
    message: Package, role: str
) -> None:
    second = f'<wsse:Security xmlns:wsse="{WSSE}" S12:role="{role}"/></S12:Header>'
    assert_refused(look(message.replaced("</S12:Header>", second)), "EBMS:0101")


# The signature is somebody else's


def _impostor(**changes: object) -> pki.KeyPair:
    """A certificate that copies all that names the buyer's, with a key of its own."""
    real = buyer().certificate
    identifier = real.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    given = {
        "key": "ec",
        "label": "impostor",
        "subject": real.subject,
        "issuer_name": real.issuer,
        "serial": real.serial_number,
        "key_identifier": False,
        "extensions": ((identifier, False),),
    }
    return pki.issue(None, "buyer", **{**given, **changes})  # type: ignore[arg-type]


def test_a_certificate_with_the_same_names_serial_and_key_identifier_is_not_trusted() -> None:
    found = look(make(TWO, signer=_impostor()))
    assert found["signature"]["valid"] is True
    assert found["signature"]["trusted"] is False
    assert_refused(found, "EBMS:0101")


@pytest.mark.parametrize(
    "form",
    [
        TokenReference.ISSUER_SERIAL,
        TokenReference.SUBJECT_KEY_IDENTIFIER,
    ],
)
def test_a_reference_that_fits_the_rightful_certificate_is_verified_with_its_key(
    form: TokenReference,
) -> None:
    forged = make(TWO, signing=Signing(_impostor(), ECDSA_SHA256, reference=form))
    found = look(forged, trust=(ca(), buyer()))
    assert found["signature"]["valid"] is False
    assert_refused(found, "EBMS:0101")
    rightful = make(TWO, signing=Signing(buyer(), ECDSA_SHA256, reference=form))
    assert_holds(look(rightful, trust=(ca(), buyer())))


def test_an_authority_of_the_same_name_that_comes_with_the_message_is_not_trusted() -> None:
    other = pki.authority("Attack CA", label="another key")
    stranger = pki.issue(other, "buyer", label="stranger")
    for form in (TokenReference.PKI_PATH, TokenReference.BINARY_SECURITY_TOKEN):
        found = look(make(TWO, signing=Signing(stranger, ECDSA_SHA256, reference=form)))
        assert found["signature"]["trusted"] is False
        assert_refused(found, "EBMS:0101")


def test_the_rightful_certificate_is_of_no_use_without_its_key(message: Package) -> None:
    stolen = resigned(
        message.replaced(ACTION, FORGED_ACTION),
        signer=_impostor(),
        token=buyer().certificate.public_bytes(Encoding.DER),
    )
    assert_refused(look(stolen), "EBMS:0101")
    assert look(stolen)["signature"]["valid"] is False


@pytest.mark.parametrize(
    "changes",
    [
        {"not_before": NOW - 3 * pki.YEAR, "not_after": NOW - pki.YEAR},
        {"not_before": NOW + pki.YEAR, "not_after": NOW + 2 * pki.YEAR},
        {"usage": ("key_encipherment",)},
        {"usage": ("key_cert_sign", "crl_sign"), "is_ca": True},
        {"key": "p192", "label": "small"},
    ],
    ids=["expired", "not yet valid", "for encryption", "of an authority", "too small a key"],
)
def test_a_certificate_that_may_not_sign_now_is_refused(changes: dict[str, object]) -> None:
    signer = pki.issue(ca(), "buyer", **changes)  # type: ignore[arg-type]
    found = look(make(TWO, signing=Signing(signer, ECDSA_SHA256)))
    assert found["signature"]["trusted"] is False
    assert_refused(found, "EBMS:0101")


def test_a_certificate_that_is_no_authority_cannot_issue() -> None:
    issued = pki.issue(buyer(), "child of a leaf", label="child of a leaf")
    for form in (TokenReference.PKI_PATH, TokenReference.BINARY_SECURITY_TOKEN):
        found = look(
            make(TWO, signing=Signing(issued, ECDSA_SHA256, reference=form)), trust=(ca(), buyer())
        )
        assert found["signature"]["trusted"] is False
        assert_refused(found, "EBMS:0101")


def test_rsa_keys_of_1024_bits_are_refused_unless_legacy_is_allowed() -> None:
    small = pki.issue(ca(), "buyer", key="rsa1024", label="small rsa")
    message = make(TWO, signing=Signing(small, RSA_SHA256))
    assert_refused(look(message), "EBMS:0101")
    assert_holds(look(message, allow_legacy=True))


@pytest.mark.parametrize("fill", [b"", b"0", b"\x30\x82\xff\xff", b"\xff" * 64, b"\x30\x80" * 30])
def test_a_token_that_is_no_certificate_is_refused(message: Package, fill: bytes) -> None:
    assert_refused(look(resigned(message, token=fill)), "EBMS:0101")


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_certificate_with_any_byte_changed_never_signs_for_the_rightful_one(
    message: Package,
) -> None:
    der = buyer().certificate.public_bytes(Encoding.DER)
    for at in range(0, len(der), 5):
        for flip in (0x01, 0x80):
            other = bytearray(der)
            other[at] ^= flip
            found = look(resigned(message, token=bytes(other)))
            assert not found["holds"], f"byte {at} changed by {flip}"


def _pinned(id: str, party: str) -> str:
    return f"""
  - id: {id}
    mep: oneWay
    mep_binding: push
    initiator: {{party: "urn:example:{party}"}}
    responder: {{party: "urn:example:seller"}}
    legs:
      - security: {{x509: {{sign: true, signature: {{pins: [{party}.pem]}}}}}}
"""


def test_a_partner_cannot_sign_for_another_whose_pmode_pins_its_own_certificate(
    tmp_path: Path,
) -> None:
    """Both are partners, and each P-Mode pins the certificate of its own."""
    mallory = pki.issue(ca(), "mallory", label="attack mallory")
    for name, pair in (("buyer", buyer()), ("mallory", mallory)):
        (tmp_path / f"{name}.pem").write_bytes(pki.pem_certificates(pair.certificate))
    pmodes = tmp_path / "pmodes.yaml"
    pmodes.write_text("pmodes:" + _pinned("first", "buyer") + _pinned("second", "mallory"))
    assert_holds(postroad.inspect(make(TWO).wire(), at=NOW, pmode=pmodes))
    forged = make(TWO, signer=mallory)
    assert_refused(postroad.inspect(forged.wire(), at=NOW, pmode=pmodes), "EBMS:0101", "EBMS:0103")


# The key is used as something that it is not


def _public_keys() -> list[bytes]:
    certificate = buyer().certificate
    key = certificate.public_key()
    return [
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint),
        certificate.public_bytes(Encoding.DER),
        certificate.public_bytes(Encoding.PEM),
        b"",
    ]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize("method", [DSIG_MORE_2001 + "hmac-sha256", DS + "hmac-sha1"])
def test_an_hmac_made_with_public_bytes_never_holds(
    message: Package, which: int, legacy: bool, method: str
) -> None:
    secret = _public_keys()[which]
    name = method.rpartition("-")[2]
    forged = resigned(
        message.replaced(ACTION, FORGED_ACTION),
        method=method,
        make_value=lambda signed: hmac.new(secret, signed, name).digest(),
    )
    found = look(forged, allow_legacy=legacy)
    assert found["signature"]["valid"] is False
    assert_refused(found, "EBMS:0101")


@pytest.mark.parametrize(
    "key_info",
    [
        f'<wsse:SecurityTokenReference xmlns:wsse="{WSSE}"/>',
        "<ds:KeyName>secret</ds:KeyName>",
        "",
    ],
)
def test_an_hmac_without_a_certificate_never_holds(message: Package, key_info: str) -> None:
    forged = resigned(
        message,
        method=DSIG_MORE_2001 + "hmac-sha256",
        make_value=lambda signed: hmac.new(b"", signed, hashlib.sha256).digest(),
        key_info=key_info,
    )
    assert_refused(look(forged, allow_legacy=True), "EBMS:0101")


@pytest.mark.parametrize(
    ("kind", "method", "claimed"),
    [
        ("rsa", RSA_SHA256, ECDSA_SHA256),
        ("rsa", RSA_SHA256, RSA_PSS_SHA256),
        ("rsa", RSA_PSS_SHA256, RSA_SHA256),
        ("rsa", RSA_SHA256, ED25519),
        ("rsa", RSA_SHA256, DS + "dsa-sha1"),
        ("rsa", RSA_SHA256, DSIG_MORE_2001 + "rsa-sha512"),
        ("ec", ECDSA_SHA256, RSA_SHA256),
        ("ec", ECDSA_SHA256, DSIG_MORE_2001 + "ecdsa-sha512"),
        ("ec", ECDSA_SHA256, ED25519),
        ("ed25519", ED25519, ECDSA_SHA256),
    ],
)
def test_a_value_made_by_one_algorithm_does_not_hold_as_another(
    message: Package, kind: str, method: str, claimed: str
) -> None:
    pair = buyer(kind)
    forged = resigned(
        message,
        signer=pair,
        method=claimed,
        make_value=lambda signed: _sign(pair, method, signed),
    )
    assert_refused(look(forged, allow_legacy=True), "EBMS:0101")
    assert look(forged, allow_legacy=True)["signature"]["valid"] is False


def _sign(pair: pki.KeyPair, method: str, data: bytes) -> bytes:
    return sign_bytes(pair.private_key, SIGNATURES[method], data)


@pytest.mark.parametrize(
    "method", ["", "none", "http://example.org/none", DS + "none", "urn:x" * 1000, SHA256]
)
def test_an_unknown_signature_algorithm_is_refused(message: Package, method: str) -> None:
    forged = resigned(message, method=method, make_value=lambda _: b"")
    assert_refused(look(forged, allow_legacy=True), "EBMS:0101")


@pytest.mark.parametrize("value", [b"", b"\0" * 64, b"\0" * 63 + b"\1", b"\xff" * 64, b"\0" * 4096])
def test_a_signature_value_of_nothing_is_refused(message: Package, value: bytes) -> None:
    """Among them r = s = 0, which careless ECDSA takes for any message."""
    assert_refused(look(resigned(message, make_value=lambda _: value)), "EBMS:0101")


def test_an_hmac_output_length_is_no_way_to_shorten_a_signature(message: Package) -> None:
    forged = resigned(message, method_content="<ds:HMACOutputLength>8</ds:HMACOutputLength>")
    assert_refused(look(forged), "EBMS:0101")


# Weak algorithms


def _weak_messages() -> dict[str, Package]:
    def by_rsa(message: Package, **terms: object) -> Package:
        return resigned(message, signer=buyer("rsa"), **terms)  # type: ignore[arg-type]

    plain = make(TWO, body=BODY)
    header = exclusive(element(plain, "_messaging"))
    return {
        "rsa-sha1": by_rsa(plain, method=DS + "rsa-sha1"),
        "sha1 digests": make(TWO, body=BODY, signing=rsa_signing(digest=SHA1)),
        "one sha1 digest": by_rsa(
            plain,
            references=with_ref(
                plain,
                "#_messaging",
                Ref("#_messaging", hashlib.sha1(header).digest(), (EXC_C14N,), SHA1),
            ),
            method=RSA_SHA256,
        ),
        "ecdsa-sha1": resigned(plain, method=DSIG_MORE_2001 + "ecdsa-sha1"),
    }


@pytest.mark.parametrize("name", ["rsa-sha1", "sha1 digests", "one sha1 digest", "ecdsa-sha1"])
def test_sha1_is_refused_unless_legacy_is_allowed(name: str) -> None:
    message = _weak_messages()[name]
    assert_refused(look(message), "EBMS:0103")
    assert_holds(look(message, allow_legacy=True))


def test_md5_is_refused() -> None:
    plain = make(TWO, body=BODY)
    digest = hashlib.md5(exclusive(element(plain, "_messaging"))).digest()
    weak = with_ref(plain, "#_messaging", Ref("#_messaging", digest, (EXC_C14N,), MD5))
    assert_refused(look(resigned(plain, weak)), "EBMS:0103")
    rsa_md5 = resigned(
        plain,
        signer=buyer("rsa"),
        method=DSIG_MORE_2001 + "rsa-md5",
        make_value=lambda _: b"0" * 256,
    )
    assert_refused(look(rsa_md5), "EBMS:0103")


@pytest.mark.parametrize("method", ["", "urn:example:digest", XENC + "sha1024", "identity"])
def test_an_unknown_digest_is_refused(message: Package, method: str) -> None:
    digest = exclusive(element(message, "_messaging"))[:32]
    other = with_ref(message, "#_messaging", Ref("#_messaging", digest, (EXC_C14N,), method))
    assert_refused(look(resigned(message, other)), "EBMS:0101")


def test_all_algorithms_of_the_table_that_are_weak_are_refused_by_name(message: Package) -> None:
    """Whatever the value: the name alone is enough."""
    weak = [uri for uri, algorithm in SIGNATURES.items() if algorithm.weak]
    assert len(weak) >= 9
    for uri in weak:
        found = look(resigned(message, method=uri, make_value=lambda _: b"0" * 64))
        assert_refused(found, "EBMS:0103")


# References


@pytest.mark.parametrize(
    "uri",
    [
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
    ],
)
@pytest.mark.parametrize("extra", [False, True], ids=["instead", "in addition"])
def test_a_reference_to_what_is_not_here_is_refused_and_nothing_is_fetched(
    message: Package, uri: str, extra: bool
) -> None:
    for digest in (sha256(b""), sha256(exclusive(element(message, "_messaging")))):
        strange = Ref(uri, digest)
        references = (
            [*refs(message), strange] if extra else with_ref(message, "#_messaging", strange)
        )
        found = look(resigned(message, references))
        assert_refused(found, "EBMS:0101")
        assert found["signature"]["valid"] is False


def test_a_reference_without_uri_is_refused(message: Package) -> None:
    written = resigned(message).envelope.replace(b' URI="#_messaging"', b"")
    assert_refused(look(replace(message, envelope=written)), "EBMS:0101")


def _steps() -> dict[str, tuple[str, ...]]:
    return {
        "enveloped": (ENVELOPED,),
        "enveloped, then canonical": (ENVELOPED, EXC_C14N),
        "canonical, then enveloped": (EXC_C14N, ENVELOPED),
        "canonical twice": (EXC_C14N, EXC_C14N),
        "xpath": (
            f'<ds:Transform Algorithm="{XPATH}"><ds:XPath>self::*</ds:XPath></ds:Transform>',
        ),
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


@pytest.mark.parametrize("name", _steps())
def test_a_transform_that_is_not_listed_is_refused(message: Package, name: str) -> None:
    steps = _steps()[name]
    for digest in (sha256(exclusive(element(message, "_messaging"))), sha256(b"")):
        other = with_ref(message, "#_messaging", Ref("#_messaging", digest, steps))
        found = look(resigned(message, other))
        assert_refused(found, "EBMS:0101")
        assert found["signature"]["valid"] is False


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (EXC_C14N,),
        (COMPLETE_TRANSFORM,),
        (CONTENT_TRANSFORM, CONTENT_TRANSFORM),
        (CONTENT_TRANSFORM, EXC_C14N),
        (DS + "base64",),
        (STR_TRANSFORM,),
    ],
)
def test_a_transform_of_attachments_other_than_their_content_is_refused(
    message: Package, steps: tuple[str, ...]
) -> None:
    uri = "cid:one@buyer.example"
    other = with_ref(message, uri, Ref(uri, sha256(message.parts[0].content), steps))
    assert_refused(look(resigned(message, other)), "EBMS:0101")


@pytest.mark.parametrize("algorithm", ["", "urn:x", XPATH, XSLT, ENVELOPED, DS + "base64"])
def test_a_signed_info_that_is_canonicalised_in_another_way_is_refused(
    message: Package, algorithm: str
) -> None:
    assert_refused(look(resigned(message, canonicalization=algorithm)), "EBMS:0101")


@pytest.mark.parametrize(
    "digest", [b"", sha256(b""), b"\0" * 32, sha256(b"")[:16], sha256(b"<?xml version='1.0'?>")]
)
@pytest.mark.parametrize("uri", ["#_messaging", "#_body", "#_timestamp", "cid:one@buyer.example"])
def test_the_digest_of_nothing_stands_for_nothing(
    message: Package, uri: str, digest: bytes
) -> None:
    [own] = [one for one in refs(message) if one.uri == uri]
    other = with_ref(message, uri, replace(own, digest=digest))
    assert_refused(look(resigned(message, other)), "EBMS:0101")


def test_a_namespace_that_cannot_be_canonicalised_digests_to_no_empty_string() -> None:
    """Void canonicalisation: where canonical form fails, nothing must count as signed."""
    message = make((), body='<o:Order xmlns:o="urn:example:order"><o:Pay>100</o:Pay></o:Order>')
    for broken in ('xmlns:v="1"', 'xmlns:v="relative/name"', 'xmlns:v="http://[bad"'):
        void = message.replaced("<o:Order ", f"<o:Order {broken} v:a='1' ")
        references = with_ref(message, "#_body", Ref("#_body", sha256(b"")))
        assert_refused(look(resigned(void, references)))


@pytest.mark.parametrize(
    "missing", ["#_messaging", "#_body", "#_timestamp", "cid:two@buyer.example"]
)
def test_a_signature_that_leaves_something_out_is_refused(message: Package, missing: str) -> None:
    found = look(resigned(message, with_ref(message, missing, None)))
    assert found["signature"]["valid"] is True
    assert_refused(found, "EBMS:0103")


def test_a_signature_over_nothing_is_refused(message: Package) -> None:
    assert_refused(look(resigned(message, [])), "EBMS:0101")


def test_the_parts_of_the_header_do_not_stand_for_the_whole(message: Package) -> None:
    """A signature over eb:UserMessage is none over eb:Messaging."""
    inner = message.replaced("<eb:UserMessage>", '<eb:UserMessage xml:id="_inner">')
    digest = sha256(exclusive(element(inner, "_inner")))
    other = with_ref(message, "#_messaging", Ref("#_inner", digest))
    assert_refused(look(resigned(inner, other)), "EBMS:0101", "EBMS:0103")


def test_two_references_to_one_thing_are_refused(message: Package) -> None:
    for one in refs(message):
        assert_refused(look(resigned(message, [*refs(message), one])), "EBMS:0101")


# Namespaces, prefixes, comments, CDATA


def test_a_comment_in_a_signed_value_hides_no_half_of_it(message: Package) -> None:
    """Canonical form leaves comments out, so they can be put anywhere: the value stays whole."""
    split = message.replaced(
        f"<eb:Action>{ACTION}", f"<eb:Action>{ACTION[:3]}<!-- x -->{ACTION[3:]}"
    )
    split = split.replaced(
        "urn:example:buyer</eb:PartyId>", "urn:<!---->example:buyer</eb:PartyId>"
    )
    split = split.replaced("order-1@buyer", "<!--a-->order-1<!--b-->@buyer")
    found = look(split)
    assert_holds(found)
    [unit] = found["units"]
    assert unit["action"] == ACTION
    assert unit["message_id"] == "order-1@buyer.example"
    assert unit["from"] == look(message)["units"][0]["from"]


def test_a_comment_in_a_digest_or_certificate_hides_no_half_of_it(message: Package) -> None:
    for name in (b"DigestValue", b"SignatureValue"):
        tag = b"<ds:" + name + b">"
        at = message.envelope.index(tag) + len(tag) + 10
        split = replace(
            message, envelope=message.envelope[:at] + b"<!-- -->" + message.envelope[at:]
        )
        assert_holds(look(split))
        short = message.envelope[: at - 10] + b"<!--" + message.envelope[at - 10 : at] + b"-->"
        assert_refused(look(replace(message, envelope=short + message.envelope[at:])), "EBMS:0101")


def test_cdata_is_read_as_the_text_that_it_is(message: Package) -> None:
    written = message.replaced(f"<eb:Action>{ACTION}", f"<eb:Action><![CDATA[{ACTION}]]>")
    found = look(written)
    assert_holds(found)
    assert found["units"][0]["action"] == ACTION
    hidden = message.replaced(f"<eb:Action>{ACTION}", f"<eb:Action><![CDATA[{FORGED_ACTION}]]>")
    assert_refused(look(hidden), "EBMS:0101")


def test_character_references_are_read_as_the_characters_that_they_are(message: Package) -> None:
    written = message.replaced(f"<eb:Action>{ACTION}", f"<eb:Action>&#x4E;{ACTION[1:]}")
    found = look(written)
    assert_holds(found)
    assert found["units"][0]["action"] == ACTION


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("eb:", "evil:"),
        ("xmlns:eb=", "xmlns:unused='urn:x' xmlns:eb="),
        ("<eb:Action>", "<eb:Action extra='1'>"),
        ("<eb:Action>", "<eb:Action xmlns:eb='urn:example:other'>"),
        ('name="originalSender"', 'name="originalsender"'),
    ],
)
def test_a_header_that_is_written_differently_is_judged_by_its_canonical_form(
    message: Package, old: str, new: str
) -> None:
    found = look(message.replaced(old, new))
    if "unused" in new:
        assert_holds(found)
    else:
        assert_refused(found)


def test_a_default_namespace_above_the_signed_body_changes_what_it_means(message: Package) -> None:
    plain = make((), body="<Order><Pay>100</Pay></Order>")
    assert_holds(look(plain))
    moved = plain.replaced("<S12:Envelope ", '<S12:Envelope xmlns="urn:example:other" ')
    assert_refused(look(moved), "EBMS:0101")


def test_a_prefix_on_the_inclusive_list_cannot_be_bound_anew() -> None:
    message = make((), body=BODY)
    step = (
        f'<ds:Transform Algorithm="{EXC_C14N}"><ec:InclusiveNamespaces xmlns:ec="{EXC_C14N}" '
        'PrefixList="q S12"/></ds:Transform>'
    )
    bound = message.replaced("<S12:Envelope ", '<S12:Envelope xmlns:q="urn:example:good" ')
    digest = sha256(exclusive(element(bound, "_body"), ("q", "S12")))
    signed = resigned(bound, with_ref(message, "#_body", Ref("#_body", digest, (step,))))
    assert_holds(look(signed))
    for other in ("urn:example:evil", ""):
        wrong = signed.replaced(
            'xmlns:q="urn:example:good" ', f'xmlns:q="{other}" ' if other else ""
        )
        assert_refused(look(wrong), "EBMS:0101")


@pytest.mark.parametrize(
    "attributes",
    [
        'id="_messaging" id="_forged"',
        'xmlns:a="urn:x" xmlns:b="urn:x" a:i="1" b:i="2" id="_messaging"',
        'xmlns:eb2="{eb}" xmlns:eb2="urn:x" id="_messaging"',
        'und:id="_messaging"',
    ],
)
@pytest.mark.parametrize("noise", [0, 300], ids=["alone", "behind 300 odd namespaces"])
def test_an_attribute_given_twice_or_without_namespace_is_not_xml(
    message: Package, attributes: str, noise: int
) -> None:
    """Attribute pollution; the noise is to make a parser stop telling of errors."""
    odd = "".join(f'<x:x xmlns:x="no uri {n}"/>' for n in range(noise))
    written = message.replaced('id="_messaging"', attributes)
    written = written.replaced("<S12:Header>", f'<S12:Header><w:w xmlns:w="urn:w">{odd}</w:w>')
    assert_refused(look(written), "EBMS:0009")


# Who signed: ds:KeyInfo


@pytest.mark.parametrize(
    "key_info",
    [
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
        '<wsse:SecurityTokenReference><wsse:Reference URI="#nobody"/>'
        "</wsse:SecurityTokenReference>",
        "<wsse:SecurityTokenReference><wsse:Embedded/></wsse:SecurityTokenReference>",
        '<wsse:SecurityTokenReference><wsse:KeyIdentifier ValueType="urn:x">AA=='
        "</wsse:KeyIdentifier></wsse:SecurityTokenReference>",
        f'<wsse:SecurityTokenReference><wsse:KeyIdentifier ValueType="{X509_PROFILE}'
        '#X509SubjectKeyIdentifier"></wsse:KeyIdentifier></wsse:SecurityTokenReference>',
        '<wsse:SecurityTokenReference><wsse:Reference URI="#_signature-token"/>'
        '<wsse:Reference URI="#other"/></wsse:SecurityTokenReference>',
    ],
)
def test_a_key_that_is_not_named_by_a_certificate_here_is_refused(
    message: Package, key_info: str
) -> None:
    named = key_info.replace(
        "<wsse:SecurityTokenReference", f'<wsse:SecurityTokenReference xmlns:wsse="{WSSE}"'
    )
    found = look(resigned(message, key_info=named))
    assert_refused(found, "EBMS:0101")
    assert not found["signature"]["valid"]


def test_a_bare_public_key_proves_nothing_although_the_value_fits_it(message: Package) -> None:
    point = (
        buyer().certificate.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    )
    value = (
        f'<ds:KeyValue><dsig11:ECKeyValue xmlns:dsig11="{DSIG11}"><dsig11:NamedCurve URI='
        f'"urn:oid:1.2.840.10045.3.1.7"/><dsig11:PublicKey>{base64.b64encode(point).decode()}'
        "</dsig11:PublicKey></dsig11:ECKeyValue></ds:KeyValue>"
    )
    assert_refused(look(resigned(message, key_info=value)), "EBMS:0101")


def test_two_tokens_with_one_id_are_refused(message: Package) -> None:
    start = message.envelope.index(b"<wsse:BinarySecurityToken ")
    stop = message.envelope.index(b"</wsse:BinarySecurityToken>") + len(
        "</wsse:BinarySecurityToken>"
    )
    token = message.envelope[start:stop]
    twice = replace(message, envelope=message.envelope[:stop] + token + message.envelope[stop:])
    assert_refused(look(twice), "EBMS:0101")


# Time


@pytest.mark.parametrize("late", [timedelta(hours=2), timedelta(days=400)])
def test_an_expired_message_is_refused(message: Package, late: timedelta) -> None:
    assert_refused(look(message, at=NOW + late), "EBMS:0103")


def test_a_message_from_the_future_is_refused(message: Package) -> None:
    assert_refused(look(message, at=NOW - timedelta(hours=1)), "EBMS:0103")


def test_a_timestamp_that_was_refreshed_is_refused(message: Package) -> None:
    fresh = message.replaced("2026-06-01T13:00:00.000Z", "2026-06-03T13:00:00.000Z")
    assert_refused(look(fresh, at=NOW + timedelta(days=1)), "EBMS:0101")


def test_an_unsigned_timestamp_added_to_a_signed_message_is_refused() -> None:
    without = make(TWO, body=BODY, lifetime=None)
    assert_holds(look(without))
    stamp = (
        '<wsu:Timestamp xmlns:wsu="http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-'
        'wssecurity-utility-1.0.xsd"><wsu:Created>2026-06-01T12:00:00Z</wsu:Created></wsu:Timestamp>'
    )
    added = without.replaced("<ds:Signature ", stamp + "<ds:Signature ")
    assert_refused(look(added), "EBMS:0103")


@pytest.mark.parametrize(
    "time",
    [
        "9999-12-31T23:59:59.999Z",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T24:00:00Z",
        "99999-01-01T00:00:00Z",
        "-0001-01-01T00:00:00Z",
        "",
        "soon",
        "2026-06-01",
        "1780315200",
    ],
)
@pytest.mark.parametrize("which", ["Created", "Expires"])
def test_an_odd_time_is_refused_or_read_and_never_more(
    message: Package, time: str, which: str
) -> None:
    own = {"Created": "2026-06-01T12:00:00.000Z", "Expires": "2026-06-01T13:00:00.000Z"}[which]
    odd = message.replaced(f"<wsu:{which}>{own}", f"<wsu:{which}>{time}")
    stamp = sha256(exclusive(element(odd, "_timestamp")))
    signed = resigned(odd, with_ref(message, "#_timestamp", Ref("#_timestamp", stamp)))
    found = look(signed)
    right = (which == "Expires" and time.startswith("9999-12-31T23")) or (
        which == "Created" and time == "0001-01-01T00:00:00Z"
    )
    if right:
        assert_holds(found)
    else:
        assert_refused(found, "EBMS:0103")


# The signature itself


def _doubled(name: str) -> Callable[[etree._Element], None]:
    def change(root: etree._Element) -> None:
        node = next(root.iter(f"{{{DS}}}{name}"))
        node.addnext(etree.fromstring(etree.tostring(node, with_tail=False)))

    return change


@pytest.mark.parametrize(
    "name",
    [
        "Signature",
        "SignedInfo",
        "SignatureValue",
        "KeyInfo",
        "CanonicalizationMethod",
        "SignatureMethod",
        "Transforms",
        "Transform",
        "DigestMethod",
        "DigestValue",
    ],
)
def test_a_signature_with_something_twice_is_refused(message: Package, name: str) -> None:
    root = etree.fromstring(message.envelope)
    _doubled(name)(root)
    found = look(replace(message, envelope=etree.tostring(root)))
    assert_refused(found, "EBMS:0101", "EBMS:0103")


@pytest.mark.parametrize(
    "name", ["SignedInfo", "SignatureValue", "KeyInfo", "SignatureMethod", "DigestValue"]
)
def test_a_signature_with_something_missing_is_refused(message: Package, name: str) -> None:
    root = etree.fromstring(message.envelope)
    node = next(root.iter(f"{{{DS}}}{name}"))
    node.getparent().remove(node)
    assert_refused(look(replace(message, envelope=etree.tostring(root))), "EBMS:0101")


@pytest.mark.parametrize("place", ["S12:Body", "eb:Messaging", "wsse:Security"])
def test_a_stray_signature_never_vouches(message: Package, place: str) -> None:
    """A second, valid signature somewhere else, as an oracle or as a decoy."""
    start = message.envelope.index(b"<ds:Signature ")
    stop = message.envelope.index(b"</ds:Signature>") + len(b"</ds:Signature>")
    copy = message.envelope[start:stop].replace(b'Id="_signature"', b'Id="_copy"')
    bare = cut(message, "<ds:Signature ", "</ds:Signature>")
    moved = bare.replaced(f"</{place}>", f"{copy.decode()}</{place}>")
    found = look(moved)
    if place == "wsse:Security":
        assert_holds(found)
    else:
        assert found["signature"]["present"] is False
        assert "S12:Body" in place or not found["holds"]


def _flipped(message: Package, begin: bytes, end: bytes, step: int) -> Iterator[Package]:
    start, stop = message.envelope.index(begin), message.envelope.index(end)
    for at in range(start, stop, step):
        changed = bytearray(message.envelope)
        changed[at] ^= 1
        yield replace(message, envelope=bytes(changed))


def test_every_bit_of_the_signature_counts(message: Package) -> None:
    """Only a name of a namespace that nothing uses can change, and then nothing else does."""
    units, signature = look(message)["units"], look(message)["signature"]
    for changed in _flipped(message, b"<ds:SignedInfo", b"</ds:SignatureValue>", 7):
        found = look(changed)
        if found["holds"]:
            assert found["units"] == units
            assert found["signature"] == signature


def test_every_bit_of_header_and_body_counts(message: Package) -> None:
    units = look(message)["units"]
    body = exclusive(element(message, "_body"))
    for changed in _flipped(message, b"<eb:Messaging", b"</S12:Body>", 5):
        found = look(changed)
        if found["holds"]:
            assert found["units"] == units
            assert exclusive(element(changed, "_body")) == body


def test_canonical_xml_without_transform_is_taken_for_what_it_is(message: Package) -> None:
    """No transform means inclusive canonical form, in which what stands above counts."""
    node = element(message, "_body")
    inclusive = etree.tostring(node, method="c14n", with_tail=False)
    for steps in ((), (C14N,)):
        signed = resigned(
            message, with_ref(message, "#_body", Ref("#_body", sha256(inclusive), steps))
        )
        assert_holds(look(signed))
        above = signed.replaced("<S12:Envelope ", '<S12:Envelope xmlns:up="urn:example:up" ')
        assert_refused(look(above), "EBMS:0101")


def test_problems_of_a_forged_message_do_not_say_that_it_is_fine(message: Package) -> None:
    found = look(message.replaced(ACTION, FORGED_ACTION))
    assert_refused(found, "EBMS:0101")
    assert [e["location"] for e in failures(found)] == ["#_messaging"]
    assert [one["valid"] for one in found["signature"]["references"]].count(False) == 1
