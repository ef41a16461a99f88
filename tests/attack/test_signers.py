"""Signatures of somebody else, and keys that are used as something that they are not."""

import base64
import hashlib
import hmac
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import postroad
from postroad.security.algorithms import (
    ECDSA_SHA256,
    ED25519,
    RSA_PSS_SHA256,
    RSA_SHA256,
    SHA256,
    SIGNATURES,
)
from postroad.security.rawsign import sign_bytes
from postroad.security.sign import Signing
from postroad.security.tokens import TokenReference
from postroad.wire.names import DS, DSIG11, DSIG_MORE_2001, WSSE
from tests import pki
from tests.attack.forging import STRANGE_KEY_INFOS, public_forms, resigned
from tests.attack.messages import (
    ACTION,
    FORGED_ACTION,
    NOW,
    TWO,
    Package,
    assert_holds,
    assert_refused,
    buyer,
    ca,
    look,
    make,
)
from tests.changing import replace

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


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize("method", [DSIG_MORE_2001 + "hmac-sha256", DS + "hmac-sha1"])
def test_an_hmac_made_with_public_bytes_never_holds(
    message: Package, which: int, legacy: bool, method: str
) -> None:
    secret = public_forms(buyer().certificate)[which]
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


# Who signed: ds:KeyInfo


@pytest.mark.parametrize("key_info", STRANGE_KEY_INFOS)
def test_a_key_that_is_not_named_by_a_certificate_here_is_refused(
    message: Package, key_info: str
) -> None:
    found = look(resigned(message, key_info=key_info))
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
