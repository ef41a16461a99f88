"""How a message names a certificate, written and read; what would be fetched or guessed is not."""

import base64
from collections.abc import Sequence
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree

from postroad.security.distinguished import LARGEST_CERTIFICATE
from postroad.security.ids import Ids
from postroad.security.tokens import (
    PKI_PATH,
    SUBJECT_KEY_IDENTIFIER,
    THUMBPRINT,
    X509_V3,
    Named,
    TokenReference,
    decode_pki_path,
    encode_pki_path,
    resolve_token,
    write_token_reference,
)
from postroad.wire.errors import EbmsError
from postroad.wire.names import BASE64_BINARY, DS, WSSE, WSU
from postroad.wire.xml import parse
from tests import pki

ROOT: Final = pki.authority("Token root")
MIDDLE: Final = pki.authority("Token middle", issuer=ROOT)
ALICE: Final = pki.issue(MIDDLE, "alice, of 'tokens' <&>")
BOB: Final = pki.issue(MIDDLE, "bob of tokens")
EVERYBODY: Final = (ROOT.certificate, BOB.certificate, ALICE.certificate)


def header(token: str, key_info: str) -> etree._Element:
    return parse(
        f'<Header xmlns:wsse="{WSSE}" xmlns:wsu="{WSU}" xmlns:ds="{DS}"><wsse:Security>{token}'
        f"<ds:Signature><ds:KeyInfo>{key_info}</ds:KeyInfo></ds:Signature></wsse:Security>"
        "</Header>".encode()
    )


def resolve(token: str, key_info: str, known: Sequence[x509.Certificate] = EVERYBODY) -> Named:
    root = header(token, key_info)
    [element] = root.iter(f"{{{DS}}}KeyInfo")
    return resolve_token(element, Ids(root).one, known)


def reference(content: str) -> str:
    return f"<wsse:SecurityTokenReference>{content}</wsse:SecurityTokenReference>"


def binary(
    data: bytes, value_type: str = X509_V3, encoding: str = BASE64_BINARY, id: str = "t"
) -> str:
    return (
        f'<wsse:BinarySecurityToken ValueType="{value_type}" EncodingType="{encoding}"'
        f' wsu:Id="{id}">{base64.b64encode(data).decode()}</wsse:BinarySecurityToken>'
    )


def key_identifier(value: bytes, value_type: str) -> str:
    return reference(
        f'<wsse:KeyIdentifier ValueType="{value_type}" EncodingType="{BASE64_BINARY}">'
        f"{base64.b64encode(value).decode()}</wsse:KeyIdentifier>"
    )


def issuer_serial(name: str, serial: object) -> str:
    return (
        f"<ds:X509Data><ds:X509IssuerSerial><ds:X509IssuerName>{name}</ds:X509IssuerName>"
        f"<ds:X509SerialNumber>{serial}</ds:X509SerialNumber></ds:X509IssuerSerial></ds:X509Data>"
    )


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


DIRECT: Final = reference('<wsse:Reference URI="#t"/>')


@pytest.mark.parametrize("form", TokenReference)
def test_what_is_written_is_resolved_to_the_same_certificate(form: TokenReference) -> None:
    token, key_info = write_token_reference(form, ALICE.certificate, ALICE.chain, "t")
    named = resolve(token, key_info)
    assert named.certificate == ALICE.certificate
    assert named.form is form
    assert named.companions == (ALICE.chain if form is TokenReference.PKI_PATH else ())


@pytest.mark.parametrize(
    ("form", "in_message"),
    [
        (TokenReference.BINARY_SECURITY_TOKEN, True),
        (TokenReference.PKI_PATH, True),
        (TokenReference.EMBEDDED, True),
        (TokenReference.ISSUER_SERIAL, False),
        (TokenReference.SUBJECT_KEY_IDENTIFIER, False),
        (TokenReference.THUMBPRINT, False),
    ],
)
def test_a_certificate_outside_the_message_must_be_known(
    form: TokenReference, in_message: bool
) -> None:
    token, key_info = write_token_reference(form, ALICE.certificate, ALICE.chain, "t")
    assert bool(token) is (in_message and form is not TokenReference.EMBEDDED)
    if in_message:
        assert resolve(token, key_info, ()).certificate == ALICE.certificate
    else:
        with pytest.raises(EbmsError, match="not known here") as caught:
            resolve(token, key_info, [BOB.certificate, ROOT.certificate])
        assert caught.value.code == "EBMS:0101"


def test_the_values_are_those_of_the_token_profile() -> None:
    written = {
        form: parse(
            b"<x>" + "".join(write_token_reference(form, ALICE.certificate, (), "t")).encode()
            + b"</x>"
        )
        for form in TokenReference
    }  # fmt: skip
    thumbprint = written[TokenReference.THUMBPRINT].findtext(f".//{{{WSSE}}}KeyIdentifier")
    assert base64.b64decode(thumbprint or "") == ALICE.certificate.fingerprint(hashes.SHA1())
    extension = ALICE.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    identifier = written[TokenReference.SUBJECT_KEY_IDENTIFIER].findtext(
        f".//{{{WSSE}}}KeyIdentifier"
    )
    assert base64.b64decode(identifier or "") == extension.value.digest
    serial = written[TokenReference.ISSUER_SERIAL].findtext(f".//{{{DS}}}X509SerialNumber")
    assert serial == str(ALICE.certificate.serial_number)
    token = written[TokenReference.BINARY_SECURITY_TOKEN].find(f"{{{WSSE}}}BinarySecurityToken")
    assert token is not None
    assert base64.b64decode(token.text or "") == der(ALICE.certificate)


def test_a_certificate_without_key_identifier_cannot_be_named_by_it() -> None:
    bare = pki.issue(ROOT, "without identifier", key_identifier=False)
    form = TokenReference.SUBJECT_KEY_IDENTIFIER
    with pytest.raises(ValueError, match="no subject key identifier"):
        write_token_reference(form, bare.certificate, (), "t")


def test_a_path_holds_the_one_nearest_the_anchor_first() -> None:
    path = (ALICE.certificate, MIDDLE.certificate, ROOT.certificate)
    data = encode_pki_path(path)
    assert decode_pki_path(data) == tuple(map(der, path))
    assert data.index(der(ROOT.certificate)) < data.index(der(ALICE.certificate))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x30\x00",
        b"\x30",
        b"\x31\x02\x05\x00",
        b"\x30\x80\x00\x00",
        b"\x30\x05ab",
        b"\x30\x02\x05\x00\x30\x00",
        pki.der(0x30, pki.der(0x30, b"") * 17),
    ],
)
def test_what_is_no_path_is_refused(data: bytes) -> None:
    with pytest.raises(EbmsError) as caught:
        resolve(binary(data, PKI_PATH), DIRECT)
    assert caught.value.code == "EBMS:0101"


def test_issuer_names_are_compared_as_names() -> None:
    serial = ALICE.certificate.serial_number
    for name in (
        "CN=Token middle,O=Postroad Tests,C=NL",
        "CN=Token middle, O=Postroad Tests, C=NL",
        "cn=Token middle , o = Postroad Tests,c=NL",
        'CN="Token middle",O=Postroad Tests,C=NL',
        "2.5.4.3=Token middle,2.5.4.10=Postroad Tests,2.5.4.6=NL",
    ):
        assert resolve("", issuer_serial(name, serial)).certificate == ALICE.certificate


@pytest.mark.parametrize("serial", ["", "x", "--5", "1.5", "-", "5-", "9" * 61, "0x10"])
def test_a_serial_number_that_is_none_is_refused(serial: str) -> None:
    with pytest.raises(EbmsError, match="serial number"):
        resolve("", issuer_serial("CN=Token middle,O=Postroad Tests,C=NL", serial))


def test_key_info_may_hold_x509_data_without_a_reference() -> None:
    one, two = (base64.b64encode(der(pair.certificate)).decode() for pair in (ALICE, BOB))
    named = resolve(
        "",
        f"<ds:X509Data><ds:X509Certificate>{one}</ds:X509Certificate>"
        f"<ds:X509Certificate>{two}</ds:X509Certificate></ds:X509Data>",
        (),
    )
    assert named.certificate == ALICE.certificate
    assert named.companions == (BOB.certificate,)


def test_x509_data_may_name_the_key_identifier() -> None:
    extension = BOB.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    value = base64.b64encode(extension.value.digest).decode()
    data = f"<ds:X509Data><ds:X509SKI>{value}</ds:X509SKI></ds:X509Data>"
    assert resolve("", data).certificate == BOB.certificate
    assert resolve("", reference(data)).certificate == BOB.certificate


def test_a_key_identifier_may_hold_the_certificate_itself() -> None:
    named = resolve("", key_identifier(der(BOB.certificate), X509_V3), ())
    assert named.certificate == BOB.certificate


def test_white_space_in_base64_does_not_matter() -> None:
    lines = base64.encodebytes(der(BOB.certificate)).decode()
    token = binary(b"").replace("></", f">\n  {lines}  </")
    assert resolve(token, DIRECT).certificate == BOB.certificate


ALICE_TOKEN: Final = binary(der(ALICE.certificate))


@pytest.mark.parametrize(
    ("token", "key_info"),
    [
        ("", ""),
        (ALICE_TOKEN, DIRECT + DIRECT),
        (ALICE_TOKEN, reference("")),
        (ALICE_TOKEN, reference('<wsse:Reference URI="#t"/><wsse:Reference URI="#t"/>')),
        (ALICE_TOKEN, reference("<wsse:Reference/>")),
        (ALICE_TOKEN, reference('<wsse:Reference URI="#other"/>')),
        (ALICE_TOKEN, reference('<wsse:Reference URI="http://example.com/cert"/>')),
        (ALICE_TOKEN, reference('<wsse:Reference URI="file:///cert"/>')),
        (ALICE_TOKEN, '<ds:RetrievalMethod URI="#t"/>'),
        (ALICE_TOKEN, "<ds:KeyName>alice</ds:KeyName>"),
        (ALICE_TOKEN, "<ds:KeyValue/>"),
        (ALICE_TOKEN, reference("<wsse:Embedded/>")),
        (ALICE_TOKEN, reference("<wsse:Nonsense/>")),
        (f"<wsse:Other>{ALICE_TOKEN}</wsse:Other>", DIRECT),
        (ALICE_TOKEN + ALICE_TOKEN, DIRECT),
        (ALICE_TOKEN + '<x xmlns="urn:x" Id="t"/>', DIRECT),
        (f'<wsse:UsernameToken wsu:Id="t">{ALICE_TOKEN[:0]}</wsse:UsernameToken>', DIRECT),
        (binary(der(ALICE.certificate), "urn:x:unknown"), DIRECT),
        (binary(der(ALICE.certificate), encoding="urn:x:hex"), DIRECT),
        (binary(der(ALICE.certificate)[:-1]), DIRECT),
        (binary(b""), DIRECT),
        (binary(b"\0" * (LARGEST_CERTIFICATE + 1)), DIRECT),
        (ALICE_TOKEN.replace("MII", "M*I"), DIRECT),
        ("", key_identifier(b"\1" * 20, THUMBPRINT)),
        ("", key_identifier(b"\1" * 20, SUBJECT_KEY_IDENTIFIER)),
        ("", key_identifier(b"\1" * 20, "urn:x:unknown")),
        ("", "<ds:X509Data><ds:X509SKI>*</ds:X509SKI></ds:X509Data>"),
        ("", "<ds:X509Data/>"),
        ("", "<ds:X509Data><ds:X509SubjectName>CN=alice</ds:X509SubjectName></ds:X509Data>"),
        ("", issuer_serial("", 5)),
        ("", issuer_serial("CN=Token middle,O=Postroad Tests,C=NL", 5)),
        ("", issuer_serial("CN=nobody", ALICE.certificate.serial_number)),
    ],
    ids=[
        "an empty KeyInfo",
        "two references",
        "an empty reference",
        "a reference to two tokens",
        "a reference without URI",
        "a token that is not there",
        "a token to be fetched by HTTP",
        "a token to be read from a file",
        "a retrieval method",
        "a key name",
        "a key value",
        "an embedding of nothing",
        "a reference of an unknown kind",
        "a token outside the Security header",
        "two tokens of one id",
        "a token and something else of one id",
        "another kind of token",
        "a token of an unknown type",
        "a token in an unknown encoding",
        "half a certificate",
        "an empty token",
        "a token of absurd size",
        "a token that is not base64",
        "an unknown thumbprint",
        "an unknown key identifier",
        "a key identifier of an unknown type",
        "a key identifier that is not base64",
        "empty X509Data",
        "a subject name",
        "an empty issuer",
        "an unknown serial number",
        "an unknown issuer",
    ],
)
def test_what_does_not_name_one_certificate_is_refused(token: str, key_info: str) -> None:
    with pytest.raises(EbmsError) as caught:
        resolve(token, key_info)
    assert caught.value.code == "EBMS:0101"
    assert caught.value.detail
    assert caught.value.location


def test_a_certificate_that_is_not_known_is_told_with_what_to_do() -> None:
    with pytest.raises(EbmsError) as caught:
        resolve("", issuer_serial("CN=nobody", 5))
    assert caught.value.detail == (
        "the certificate is not in the message and not known here (issuer CN=nobody, serial 5); "
        "give it as a trusted certificate"
    )


def test_an_embedding_of_nothing_is_told_by_its_name() -> None:
    with pytest.raises(EbmsError, match="wsse:Embedded holds no BinarySecurityToken"):
        resolve(ALICE_TOKEN, reference("<wsse:Embedded/>"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("06072a8648ce3d0201", "06072a8648ce3d0209"),
        ("06082a8648ce3d030107", "06082a8648ce3d03017f"),
        ("626f62", "ffffff"),
        ("0603551d0f", "0603551d0e"),
        ("a003020102", "a003020107"),
        ("13024e4c", "03024e4c"),
    ],
    ids=[
        "kind of key",
        "curve",
        "name that is no UTF-8",
        "extension twice",
        "version",
        "kind of text",
    ],
)
def test_a_certificate_that_cannot_be_read_to_its_end_is_refused(before: str, after: str) -> None:
    good = der(BOB.certificate)
    bad = good.replace(bytes.fromhex(before), bytes.fromhex(after))
    assert bad != good
    with pytest.raises(EbmsError, match=r"no X\.509 certificate"):
        resolve(binary(bad), DIRECT)
    with pytest.raises(EbmsError, match=r"no X\.509 certificate"):
        resolve(binary(pki.der(0x30, bad), PKI_PATH), DIRECT)
