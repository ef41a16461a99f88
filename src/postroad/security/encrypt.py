"""Encrypting attachments and Body for one recipient (XML Encryption 1.1, SwA profile)."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from postroad.security.algorithms import DATA_CIPHERS
from postroad.security.attachments import CIPHERTEXT_TRANSFORM, CONTENT_ONLY, Attachment
from postroad.security.ciphers import Sealed, iv_bytes
from postroad.security.coverage import AS4_COVERAGE, Coverage
from postroad.security.keyestablishment import Encryption, Entropy, write_key
from postroad.security.tokens import write_token_reference
from postroad.wire.content import BytesContent, Content, read_all
from postroad.wire.mime_headers import cid_url
from postroad.wire.names import DS, SMS11, WSSE, WSSE11, XENC
from postroad.wire.xml import escape_attribute

KEY_ID = "_key"
_OCTETS = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Seal:
    """With what attachments are encrypted: kept by who may have to send them again."""

    algorithm: str
    key: bytes
    ivs: tuple[bytes, ...]
    """One for each attachment; empty for an attachment that is not encrypted."""

    def __repr__(self) -> str:
        return f"Seal({self.algorithm!r})"

    def on(self, contents: Sequence[Content]) -> tuple[Content, ...]:
        """The contents encrypted once more, to the same bytes."""
        cipher = DATA_CIPHERS[self.algorithm]
        pairs = zip(contents, self.ivs, strict=True)
        return tuple(
            Sealed(cipher, self.key, iv, content) if iv else content for content, iv in pairs
        )

    def media_types(self, media_types: Sequence[str]) -> tuple[str, ...]:
        """The media types under which the attachments are sent."""
        pairs = zip(media_types, self.ivs, strict=True)
        return tuple(_OCTETS if iv else media_type for media_type, iv in pairs)


@dataclass(frozen=True, slots=True)
class Encrypted:
    pieces: tuple[str, ...]
    """Token, EncryptedKey and the EncryptedData of attachments, for the Security header."""
    attachments: tuple[Attachment, ...]
    body_content: str | None
    tokens: tuple[str, ...]
    """The EncryptedData of the tokens, for the Security header."""
    seal: Seal


def encrypt(
    attachments: Sequence[Attachment],
    encryption: Encryption,
    *,
    entropy: Entropy,
    body_content: str | None = None,
    tokens: Sequence[str] = (),
    coverage: Coverage = AS4_COVERAGE,
    id: str = KEY_ID,
) -> Encrypted:
    """Encrypt attachments, and tokens and the Body's content if given, under one content key.

    Attachments are encrypted while they are read, each time to the same bytes; all, or those that
    `coverage` names.
    ValueError when algorithm and certificate do not fit.
    """
    cipher = DATA_CIPHERS[encryption.data]
    key = entropy(cipher.key_bytes)
    token, reference = write_token_reference(
        encryption.reference, encryption.certificate, (), f"{id}-token"
    )
    ivs = [
        entropy(iv_bytes(cipher)) if coverage.covers_attachment(one.content_id) else b""
        for one in attachments
    ]
    seal = Seal(encryption.data, key, tuple(ivs))
    data, outgoing, ids = [], [], []
    sealed = seal.on([attachment.content for attachment in attachments])
    for number, (attachment, content) in enumerate(zip(attachments, sealed, strict=True), 1):
        if content is attachment.content:
            outgoing.append(attachment)
            continue
        outgoing.append(replace(attachment, content=content, media_type=_OCTETS, sha256=None))
        ids.append(f"{id}-data-{number}")
        data.append(_attachment_data(ids[-1], id, encryption.data, attachment))

    def in_place(name: str, text: str, kind: str) -> str:
        hidden = Sealed(cipher, key, entropy(iv_bytes(cipher)), BytesContent(text.encode()))
        ids.append(f"{id}-{name}")
        value = base64.b64encode(read_all(hidden, hidden.size)).decode()
        return _encrypted_data(
            ids[-1], id, encryption.data, f'Type="{XENC}{kind}"',
            f"<xenc:CipherValue>{value}</xenc:CipherValue>",
        )  # fmt: skip

    encrypted_body = in_place("body", body_content, "Content") if body_content is not None else None
    hidden_tokens = [
        in_place(f"token-data-{number}", token, "Element") for number, token in enumerate(tokens, 1)
    ]
    listed = "".join(f'<xenc:DataReference URI="#{one}"/>' for one in ids)
    encrypted_key = (
        f'<xenc:EncryptedKey xmlns:xenc="{XENC}" Id="{id}">'
        f"{write_key(encryption, reference, key, entropy)}"
        f"<xenc:ReferenceList>{listed}</xenc:ReferenceList></xenc:EncryptedKey>"
    )
    pieces = (*((token,) if token else ()), encrypted_key, *data)
    return Encrypted(pieces, tuple(outgoing), encrypted_body, tuple(hidden_tokens), seal)


def _attachment_data(id: str, key_id: str, algorithm: str, attachment: Attachment) -> str:
    return _encrypted_data(
        id,
        key_id,
        algorithm,
        f'MimeType="{escape_attribute(attachment.media_type)}" Type="{CONTENT_ONLY}"',
        f'<xenc:CipherReference URI="{escape_attribute(cid_url(attachment.content_id))}">'
        f'<xenc:Transforms><ds:Transform xmlns:ds="{DS}" Algorithm="{CIPHERTEXT_TRANSFORM}"/>'
        "</xenc:Transforms></xenc:CipherReference>",
    )


def _encrypted_data(id: str, key_id: str, algorithm: str, attributes: str, cipher: str) -> str:
    return (
        f'<xenc:EncryptedData xmlns:xenc="{XENC}" Id="{id}" {attributes}>'
        f'<xenc:EncryptionMethod Algorithm="{algorithm}"/><ds:KeyInfo xmlns:ds="{DS}">'
        f'<wsse:SecurityTokenReference xmlns:wsse="{WSSE}" xmlns:wsse11="{WSSE11}"'
        f' wsse11:TokenType="{SMS11}#EncryptedKey"><wsse:Reference URI="#{key_id}"/>'
        f"</wsse:SecurityTokenReference></ds:KeyInfo><xenc:CipherData>{cipher}</xenc:CipherData>"
        "</xenc:EncryptedData>"
    )
