"""The rules about signatures, encryption, keys and tokens."""

import pytest

from postroad.agreement.breach import Level
from tests.unit.pmode_breaches import breach, broken, leg


def test_how_to_sign_or_encrypt_needs_whether() -> None:
    assert "Sign is not true" in breach(leg("security: {x509: {signature: {pins: a}}}"))[1]
    encryption = "security: {x509: {encryption: {algorithm: aes128-gcm}}}"
    assert "Encrypt is not true" in breach(leg(encryption))[1]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            "key_transport: rsa-oaep, key_agreement: x25519",
            "KeyAgreement: there is a key transport",
        ),
        ("key_wrap: kw-aes128", "KeyWrap: it belongs to a key agreement"),
        ("key_derivation: hkdf", "KeyDerivation: it belongs to a key agreement"),
        ("key_transport: rsa-oaep-mgf1p, mgf: mgf1sha256", "MGF: it belongs to"),
        ("algorithm: aes128-gcm, minimum_strength: 256", "aes128-gcm has 128 bits, below"),
    ],
)
def test_key_parameters_fit_together(parameters: str, said: str) -> None:
    text = f"security: {{x509: {{encryption: {{encrypt: true, {parameters}}}}}}}"
    assert said in breach(leg(text))[1]


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ("sign: true, signature: {pins: a, algorithm: rsa-sha1}", "rsa-sha1"),
        ("sign: true, signature: {pins: a, hash_function: md5}", "md5"),
        ("encryption: {encrypt: true, algorithm: aes256-cbc}", "aes256-cbc"),
        ("encryption: {encrypt: true, algorithm: tripledes-cbc}", "tripledes-cbc"),
        ("encryption: {encrypt: true, key_transport: rsa-1_5}", "rsa-1_5"),
    ],
)
def test_a_weak_algorithm_is_taken_by_name_with_a_warning(parameters: str, name: str) -> None:
    line, said = breach(leg(f"security: {{x509: {{{parameters}}}}}"), Level.WARNING)
    assert line == 5
    assert f": {name} is weak and taken only because it is named here" in said


def test_attachments_need_wss_1_1() -> None:
    text = "security: {wss_version: 1.0, x509: {sign: {attachment: a}, signature: {pins: a}}}"
    assert "needs WS-Security 1.1" in breach(leg(text))[1]


def test_a_signature_of_anyone_gets_a_warning() -> None:
    assert (
        "says whose signature holds"
        in breach(leg("security: {x509: {sign: true}}"), Level.WARNING)[1]
    )


def test_tokens_that_can_be_stolen_or_replayed_get_a_warning() -> None:
    token = "{username: u, password: p, %s}"
    text = "protocol: {address: http://x.example}\nsecurity: {username_token: " + token + "}"
    assert "can be replayed" in breach(leg(text % "nonce: false"), Level.WARNING)[1]
    assert "over http: in clear" in breach(leg(text % "digest: false"), Level.WARNING)[1]


def _listed(sign: str = "true", encrypt: str | None = None, more: str = "") -> str:
    """A leg that lists what it signs and encrypts."""
    encryption = f", encryption: {{encrypt: {encrypt}, certificate: b}}" if encrypt else ""
    return leg(
        f"security: {{x509: {{sign: {sign}, signature: {{pins: a}}{encryption}}}}}\n{more}".rstrip()
    )


@pytest.mark.parametrize(
    ("sign", "said"),
    [
        ("{element: wsse:Security}", "Security cannot be signed by itself"),
        ("{element: Header}", "Header cannot be signed by itself"),
        ("{element: eb:PartyInfo}", "PartyInfo is signed with eb:Messaging"),
        ("{element: S11:Body}", "the messages are SOAP 1.2"),
        ("{element: wsse:UsernameToken}", "the messages have no user name token"),
        ("{only: true}", "there is no list that it could be about"),
        ("{element: Body, only: true}", "eb:Messaging says who sends what to whom"),
        ("{element: 'a b'}", "'a b' is no element name"),
        ("{element: 'soap:Body'}", "the prefix 'soap' is not known; write {namespace}Body"),
    ],
)
def test_what_is_listed_to_be_signed_can_be(sign: str, said: str) -> None:
    line, message = breach(_listed(sign))
    assert line == 5
    assert said in message


@pytest.mark.parametrize("element", ["eb:Messaging", "wsu:Timestamp", "ds:Signature", "wsa:To"])
def test_only_body_and_user_name_token_are_encrypted_by_name(element: str) -> None:
    assert (
        "is not encrypted: AS4 forbids it" in breach(_listed(encrypt=f"{{element: {element}}}"))[1]
    )


def test_a_list_needs_something_that_is_signed() -> None:
    text = "security: {x509: {sign: {enabled: false, element: Body}}}"
    assert "Sign is false, and lists what to cover" in breach(leg(text))[1]


def test_a_listed_token_has_to_be_in_the_message() -> None:
    text = (
        "security: {x509: {sign: {element: wsse:BinarySecurityToken}, "
        "signature: {pins: a, key_reference: issuer_serial}}}"
    )
    assert "with key_reference issuer_serial a message has no such token" in breach(leg(text))[1]


@pytest.mark.parametrize(
    ("sign", "encrypt", "said"),
    [
        ("{element: eb:Messaging, only: true}", None, "the Body need not be signed"),
        ("{attachment: a, only: true}", None, "attachments other than a need not be signed"),
        ("{attachment: [], only: true}", None, ": attachments need not be signed"),
        ("true", "{attachment: [a, b], only: true}", "other than a, b need not be encrypted"),
    ],
)
def test_to_cover_less_than_as4_says_gets_a_warning(
    sign: str, encrypt: str | None, said: str
) -> None:
    line, message = breach(_listed(sign, encrypt), Level.WARNING)
    assert line == 5
    assert said in message


def test_the_lists_may_name_all_that_as4_covers() -> None:
    names = "{element: [eb:Messaging, Body], only: true}"
    assert broken(_listed(names, "{element: S12:Body, only: true}")) == []


@pytest.mark.parametrize(
    "more", ["bundling: {policy: optional}", "splitting: {fragment_size: 1 MB}"]
)
def test_attachments_are_not_listed_where_messages_are_split_or_bundled(more: str) -> None:
    messages = [one.message for one in broken(_listed("{attachment: a}", more=more))]
    assert any("are signed and encrypted as a whole" in one for one in messages)


def test_ebxml_messages_have_no_lists() -> None:
    messages = [
        one.message for one in broken(_listed("{element: Body}", more="ebxml: {version: 2.0}"))
    ]
    assert any("ebXML messages are signed as a whole" in one for one in messages)
