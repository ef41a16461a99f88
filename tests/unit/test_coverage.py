"""What a signature and an encryption cover, where an agreement lists it: writing and reading."""

from typing import Final

import pytest
from lxml import etree

from postroad.security import algorithms as alg
from postroad.security.coverage import BINARY_SECURITY_TOKEN, USERNAME_TOKEN, Coverage, matches
from postroad.security.decrypt import sealed_pieces
from postroad.security.ids import Ids
from postroad.security.secure import Secured, secure
from postroad.security.sign import Block, Signing
from postroad.security.verify import security_headers, signatures, verify
from postroad.wire.names import S12, WSSE, WSU, XENC
from postroad.wire.soap import SoapVersion, read_envelope
from postroad.wire.xml import parse
from tests.unit.encrypting import ATTACHMENTS, CLOSED, Dice, opened, recipient, to_rsa

TOKEN: Final = Block(
    "_username",
    f'<wsse:UsernameToken xmlns:wsse="{WSSE}" xmlns:wsu="{WSU}" wsu:Id="_username">'
    "<wsse:Username>buyer</wsse:Username></wsse:UsernameToken>",
)
HIDING: Final = Coverage((USERNAME_TOKEN,))


def made(token: Block = TOKEN, **given: object) -> Secured:
    """A message with a token, signed and encrypted."""
    key = recipient()
    return secure(
        SoapVersion.SOAP_12,
        [],
        ATTACHMENTS,
        signing=Signing(key, alg.RSA_SHA256),
        encryption=to_rsa(),
        entropy=Dice(),
        tokens=[token],
        **given,  # type: ignore[arg-type]
    )


def uris(message: Secured) -> list[str]:
    return [one.uri for one in message.references]


@pytest.mark.parametrize(
    ("name", "tag", "same"),
    [
        ("Body", f"{{{S12}}}Body", True),
        ("Body", "Body", True),
        (f"{{{S12}}}Body", f"{{{S12}}}Body", True),
        ("{urn:other}Body", f"{{{S12}}}Body", False),
        ("ody", f"{{{S12}}}Body", False),
    ],
)
def test_a_name_stands_for_a_tag(name: str, tag: str, same: bool) -> None:
    assert matches(name, tag) is same


def test_both_binary_tokens_are_signed_where_they_are_listed() -> None:
    listed = made(signed=Coverage((BINARY_SECURITY_TOKEN,)))
    assert {"#_signature-token", "#_key-token"} <= set(uris(listed))
    assert "#_signature-token" not in uris(made())


def test_an_element_that_is_not_there_cannot_be_signed() -> None:
    with pytest.raises(ValueError, match="lists Trace to be signed, and the message has none"):
        made(signed=Coverage(("{urn:example}Trace",)))


def test_only_listed_attachments_are_covered() -> None:
    one = Coverage(attachments=("one@a",), only=True)
    message = made(signed=one, encrypted=one)
    assert [uri for uri in uris(message) if uri.startswith("cid:")] == ["cid:one@a"]
    assert message.seal is not None
    assert [bool(iv) for iv in message.seal.ivs] == [True, False, False]
    assert message.seal.media_types(["a/a", "b/b", "c/c"]) == (
        "application/octet-stream",
        "b/b",
        "c/c",
    )
    assert message.attachments[1:] == ATTACHMENTS[1:]


def test_an_encrypted_token_is_opened_in_its_place_and_verifies() -> None:
    message = made(encrypted=HIDING)
    assert b"buyer" not in message.envelope
    found = opened(message, [recipient()])
    assert found.details == []
    assert found.decryption.tokens == 1
    assert not found.decryption.body
    security = security_headers(found.envelope.header)[None]
    assert security.findtext(f"{USERNAME_TOKEN}/{{{WSSE}}}Username") == "buyer"
    [signature] = signatures(security)
    checked = verify(signature, Ids(found.envelope.root), found.decryption.attachments)
    assert checked.valid is True


def test_of_the_security_header_nothing_but_a_user_name_token_is_opened() -> None:
    """Whatever else came out of it was not looked at when the header was read."""
    stamp = Block("", f'<wsu:Timestamp xmlns:wsu="{WSU}"></wsu:Timestamp>')
    found = opened(made(stamp, encrypted=HIDING), [recipient()])
    assert found.details == [CLOSED], "the same as for a broken one: no oracle"
    assert not found.decryption.decrypted
    security = security_headers(found.envelope.header)[None]
    assert security.find(f"{{{WSU}}}Timestamp") is None


def test_two_tokens_in_one_encrypted_piece_are_not_opened() -> None:
    found = opened(made(Block("", TOKEN.xml * 2), encrypted=HIDING), [recipient()])
    assert found.codes == {"EBMS:0102"}


def test_a_signed_token_that_stays_closed_is_open_to_doubt_and_nothing_else_is() -> None:
    """As many references may lead nowhere as pieces of the Security header are closed."""
    envelope = read_envelope(parse(made(encrypted=HIDING).envelope))
    security = security_headers(envelope.header)[None]
    closed = len(sealed_pieces(security))
    assert closed == 1
    [signature] = signatures(security)
    attachments = {one.content_id: one for one in ATTACHMENTS}
    checked = verify(signature, Ids(envelope.root), attachments, hidden=closed)
    assert (checked.valid, checked.unseen) == (True, ["#_username"])
    assert verify(signature, Ids(envelope.root), attachments).valid is False
    body = envelope.body
    etree.SubElement(body, "more")
    del body.attrib[f"{{{WSU}}}Id"]
    assert verify(signature, Ids(envelope.root), attachments, hidden=closed).valid is False


def test_nothing_is_encrypted_where_nothing_is_listed_that_there_is() -> None:
    message = made(encrypted=Coverage(attachments=("none@a",), only=True))
    assert f"{{{XENC}}}EncryptedKey" not in {one.tag for one in parse(message.envelope).iter()}
    assert message.seal is None
