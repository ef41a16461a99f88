"""How certificates are named: issuers in the spellings of the field, identifiers, thumbprints."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from postroad.security.certificates import subject_key_identifier, thumbprint_sha1
from postroad.security.distinguished import issuer_matches, rfc2253_name
from postroad.wire.xml import is_xml_text
from tests.pki import issue
from tests.unit.trusting import BOB, ROOT


def _issued_by(*attributes: tuple[ObjectIdentifier, str]) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    return issue(ROOT, "named", issuer_name=name, serial=1336114976).certificate


ORDINARY = _issued_by(
    (NameOID.COUNTRY_NAME, "NL"),
    (NameOID.STATE_OR_PROVINCE_NAME, "Groningen"),
    (NameOID.LOCALITY_NAME, "Groningen"),
    (NameOID.ORGANIZATION_NAME, "Ordina, B.V."),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, "Rules + Matter"),
    (NameOID.COMMON_NAME, "Café"),
    (NameOID.EMAIL_ADDRESS, "ca@example.nl"),
)
EMAIL = "1.2.840.113549.1.9.1=#160d6361406578616d706c652e6e6c"


@pytest.mark.parametrize(
    "spelling",
    [
        # RFC 2253 as Java writes it, and as RFC 4514 allows
        EMAIL + r",CN=Café,OU=Rules \+ Matter,O=Ordina\, B.V.,L=Groningen,ST=Groningen,C=NL",
        EMAIL + r",CN=Caf\C3\A9,OU=Rules \2B Matter,O=Ordina\2C B.V.,L=Groningen,ST=Groningen,C=NL",
        EMAIL.upper()
        + r",cn=café,ou=rules \+ matter,o=ordina\, b.v.,l=groningen,st=groningen,c=nl",
        # Java's toString, and RFC 1779
        'EMAILADDRESS=ca@example.nl, CN=Café, OU="Rules + Matter", O="Ordina, B.V.", '
        "L=Groningen, ST=Groningen, C=NL",
        'OID.1.2.840.113549.1.9.1=ca@example.nl, CN=Café, OU="Rules + Matter", '
        'O="Ordina, B.V.", L=Groningen, ST=Groningen, C=NL',
        'E=ca@example.nl;CN=Café;OU="Rules + Matter";O="Ordina, B.V.";'
        "L=Groningen;ST=Groningen;C=NL",
        # .NET, in either order
        'E=ca@example.nl, CN=Café, OU="Rules + Matter", O="Ordina, B.V.", L=Groningen, '
        "S=Groningen, C=NL",
        'C=NL, S=Groningen, L=Groningen, O="Ordina, B.V.", OU="Rules + Matter", CN=Café, '
        "E=ca@example.nl",
        # OpenSSL, new and old
        r"C = NL, ST = Groningen, L = Groningen, O = Ordina\, B.V., OU = Rules \+ Matter, "
        r"CN = Caf\C3\A9, emailAddress = ca@example.nl",
        "/C=NL/ST=Groningen/L=Groningen/O=Ordina, B.V./OU=Rules + Matter/CN=Café"
        "/emailAddress=ca@example.nl",
        # types by number, values in hex, white space of a pretty printer
        r"1.2.840.113549.1.9.1=ca@example.nl,2.5.4.3=#0c05436166c3a9,oid.2.5.4.11=Rules \+ Matter,"
        r"OID.2.5.4.10=Ordina\, B.V.,2.5.4.7=Groningen,2.5.4.8=#1309 47726f6e696e67656e,C=NL",
        "\n  EMAILADDRESS=ca@example.nl,\n  CN=Café , OU = Rules \\+  Matter ,\n"
        "  O=Ordina\\, B.V.,L=Groningen,ST=Groningen, C=NL  \n",
    ],
)
def test_an_issuer_is_known_in_the_spellings_of_the_field(spelling: str) -> None:
    assert issuer_matches(ORDINARY, spelling, 1336114976)
    assert not issuer_matches(ORDINARY, spelling, 1336114977)


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "Café",
        "CN=Café",
        "CN=Café,C=NL",
        EMAIL + r",CN=Cafe,OU=Rules \+ Matter,O=Ordina\, B.V.,L=Groningen,ST=Groningen,C=NL",
        EMAIL + r",CN=Café,OU=Rules + Matter,O=Ordina\, B.V.,L=Groningen,ST=Groningen,C=NL",
        EMAIL + r",OU=Café,CN=Rules \+ Matter,O=Ordina\, B.V.,L=Groningen,ST=Groningen,C=NL",
        "CN=#zz",
        "CN=#0c",
        "CN=\\",
        'CN="unclosed',
        'CN="a"b',
        "WHAT=x",
        "=",
        "/",
        "CN=\\ff",
        "CN=" + "x" * 10_000,
    ],
)
def test_another_issuer_is_not_known(spelling: str) -> None:
    assert not issuer_matches(ORDINARY, spelling, 1336114976)


def test_the_spelling_of_a_recorded_agreement_is_known() -> None:
    certificate = _issued_by(
        (NameOID.COUNTRY_NAME, "NL"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Groningen"),
        (NameOID.LOCALITY_NAME, "Groningen"),
        (NameOID.ORGANIZATION_NAME, "Ordina"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Rules Matter"),
        (NameOID.COMMON_NAME, "localhost"),
    )
    recorded = "CN=localhost, OU=Rules Matter, O=Ordina, L=Groningen, ST=Groningen, C=NL"
    assert issuer_matches(certificate, recorded, 1336114976)


def test_a_name_of_several_values_in_one_step_is_known_in_either_order() -> None:
    pair = [
        x509.NameAttribute(NameOID.COMMON_NAME, "x"),
        x509.NameAttribute(NameOID.USER_ID, "7"),
    ]
    name = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.COUNTRY_NAME, "NL")]),
            x509.RelativeDistinguishedName(pair),
        ]
    )
    certificate = issue(ROOT, "two in one", issuer_name=name, serial=7).certificate
    assert issuer_matches(certificate, "CN=x+UID=7,C=NL", 7)
    assert issuer_matches(certificate, "UID=7 + CN=x, C=NL", 7)
    assert not issuer_matches(certificate, "UID=7,CN=x,C=NL", 7)


def test_a_name_is_written_as_rfc_2253_says() -> None:
    assert rfc2253_name(ORDINARY.issuer) == (
        EMAIL + r",CN=Café,OU=Rules \+ Matter,O=Ordina\, B.V.,L=Groningen,ST=Groningen,C=NL"
    )
    spaces = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ' #a"b\\c;d<e>= ')])
    assert rfc2253_name(spaces) == 'CN=\\20#a\\"b\\\\c\\;d\\<e\\>=\\20'
    assert rfc2253_name(x509.Name([])) == ""


_types = st.sampled_from(
    [
        NameOID.COMMON_NAME,
        NameOID.ORGANIZATION_NAME,
        NameOID.ORGANIZATIONAL_UNIT_NAME,
        NameOID.LOCALITY_NAME,
        NameOID.STREET_ADDRESS,
        NameOID.TITLE,
        NameOID.POSTAL_CODE,
        NameOID.PSEUDONYM,
        NameOID.USER_ID,
        ObjectIdentifier("2.5.4.97"),
        ObjectIdentifier("2.999.1234567.1"),
    ]
)


def _names(values: st.SearchStrategy[str]) -> st.SearchStrategy[x509.Name]:
    def step(found: dict[ObjectIdentifier, str]) -> x509.RelativeDistinguishedName:
        return x509.RelativeDistinguishedName(
            [x509.NameAttribute(oid, value) for oid, value in found.items()]
        )

    steps = st.dictionaries(_types, values, min_size=1, max_size=3).map(step)
    return st.lists(steps, min_size=1, max_size=5).map(x509.Name)


@given(
    _names(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
        | st.text(' ,+"\\<>;#=/a\n\t', min_size=1, max_size=8)
    )
)
def test_every_name_that_is_written_is_known_again(name: x509.Name) -> None:
    certificate = issue(ROOT, "any name", issuer_name=name, serial=5).certificate
    written = rfc2253_name(name)
    assert is_xml_text(written)
    assert written == written.strip()
    assert issuer_matches(certificate, written, 5)


@given(_names(st.text(' ,+"\\<>;#=/aé', min_size=1, max_size=8)))
def test_names_as_another_library_writes_them_are_known(name: x509.Name) -> None:
    certificate = issue(ROOT, "any name", issuer_name=name, serial=5).certificate
    assert issuer_matches(certificate, name.rfc4514_string().strip(), 5)


@given(st.one_of(st.text(max_size=60), st.text('CNO=,+;"\\# 012.af/', max_size=40)))
def test_any_text_for_an_issuer_is_answered_with_yes_or_no(text: str) -> None:
    assert issuer_matches(ORDINARY, text, 1336114976) is False


def test_the_subject_key_identifier_is_what_the_extension_says() -> None:
    expected = x509.SubjectKeyIdentifier.from_public_key(BOB.private_key.public_key()).digest
    assert subject_key_identifier(BOB.certificate) == expected
    assert subject_key_identifier(issue(ROOT, "bare", key_identifier=False).certificate) is None


def test_the_thumbprint_is_the_sha1_digest_of_the_certificate() -> None:
    digest = hashes.Hash(hashes.SHA1())
    digest.update(BOB.certificate.public_bytes(Encoding.DER))
    assert thumbprint_sha1(BOB.certificate) == digest.finalize()
