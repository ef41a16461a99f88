"""The rules about signatures, encryption, keys and tokens."""

import pytest

from postroad.agreement.breach import Level
from tests.unit.pmode_breaches import breach, leg


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
