"""Somebody else's MSH, as a sender: messages made with lxml and cryptography, good and bad ones."""

import base64
import gzip
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree

from tests.as4 import reading
from tests.as4.reading import EB3, NS
from tests.changing import replace

INITIATOR: Final = f"{EB3}initiator"
RESPONDER: Final = f"{EB3}responder"
BOUNDARY: Final = "the-boundary-of-a-stranger"

Named = tuple[str, str, str | None]
"""Name, value and type of a property."""


@dataclass(frozen=True)
class Identity:
    """A key that signs, and its certificate."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate


@dataclass(frozen=True)
class Part:
    """A payload: what is signed of it, and what is done to it after signing and encryption."""

    content_id: str
    content: bytes
    media_type: str = "application/xml"
    properties: tuple[Named, ...] = ()
    after: Callable[[bytes], bytes] | None = None
    href: str | None = None
    """What PartInfo says instead of `cid:` and the id; the part is then not in the package."""


def compressed(content_id: str, content: bytes, mime_type: str = "application/xml") -> Part:
    """A payload compressed as AS4 says, before it is signed."""
    told: tuple[Named, ...] = (
        ("MimeType", mime_type, None),
        ("CompressionType", "application/gzip", None),
    )
    return Part(content_id, gzip.compress(content, mtime=0), "application/gzip", told)


@dataclass(frozen=True)
class Letter:
    """A user message to be."""

    message_id: str
    action: str
    parts: tuple[Part, ...] = ()
    service: str = "urn:example:as4"
    sender: str = "urn:example:c2"
    sender_type: str | None = None
    receiver: str = "urn:example:c3"
    conversation_id: str = "1"
    properties: tuple[Named, ...] = ()
    signed_by: Identity | None = None
    sealed_for: x509.Certificate | None = None

    def wire(self) -> tuple[str, bytes]:
        """Content-Type and body of the HTTP request."""
        sent = [one for one in self.parts if one.href is None]
        security = []
        contents = {one.content_id: one.content for one in sent}
        if self.sealed_for is not None:
            pieces, contents = _sealed(sent, self.sealed_for)
            security += pieces
        envelope = _envelope(self, security)
        if self.signed_by is not None:
            envelope = sign(envelope, sent, self.signed_by)
        for one in sent:
            if one.after is not None:
                contents[one.content_id] = one.after(contents[one.content_id])
        sealed = self.sealed_for is not None
        return _package(etree.tostring(envelope), sent, contents, sealed=sealed)

    def but(self, **changes: object) -> "Letter":
        return replace(self, **changes)  # type: ignore[arg-type]


def _properties(tag: str, named: Sequence[Named]) -> str:
    if not named:
        return ""
    inside = "".join(
        f"<eb:Property name={quoteattr(name)}{f' type={quoteattr(kind)}' if kind else ''}>"
        f"{escape(value)}</eb:Property>"
        for name, value, kind in named
    )
    return f"<eb:{tag}>{inside}</eb:{tag}>"


def _part_info(part: Part) -> str:
    href = part.href if part.href is not None else f"cid:{part.content_id}"
    told = _properties("PartProperties", part.properties)
    return f"<eb:PartInfo href={quoteattr(href)}>{told}</eb:PartInfo>"


def _envelope(letter: Letter, security: Sequence[str]) -> etree._Element:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    infos = "".join(map(_part_info, letter.parts))
    header = "".join(security)
    secured = letter.signed_by is not None or security
    kind = f" type={quoteattr(letter.sender_type)}" if letter.sender_type else ""
    sender = f"<eb:PartyId{kind}>{escape(letter.sender)}</eb:PartyId>"
    text = f"""<s:Envelope xmlns:s="{NS["s"]}" xmlns:eb="{NS["eb"]}" xmlns:wsu="{NS["wsu"]}">
  <s:Header>
    {
        f'<wsse:Security xmlns:wsse="{NS["wsse"]}" s:mustUnderstand="true">{header}</wsse:Security>'
        if secured
        else ""
    }
    <eb:Messaging s:mustUnderstand="true" wsu:Id="header-1">
      <eb:UserMessage>
        <eb:MessageInfo>
          <eb:Timestamp>{now}</eb:Timestamp>
          <eb:MessageId>{escape(letter.message_id)}</eb:MessageId>
        </eb:MessageInfo>
        <eb:PartyInfo>
          <eb:From>{sender}<eb:Role>{INITIATOR}</eb:Role></eb:From>
          <eb:To><eb:PartyId>{letter.receiver}</eb:PartyId><eb:Role>{RESPONDER}</eb:Role></eb:To>
        </eb:PartyInfo>
        <eb:CollaborationInfo>
          <eb:Service>{letter.service}</eb:Service>
          <eb:Action>{letter.action}</eb:Action>
          <eb:ConversationId>{letter.conversation_id}</eb:ConversationId>
        </eb:CollaborationInfo>
        {_properties("MessageProperties", letter.properties)}
        {f"<eb:PayloadInfo>{infos}</eb:PayloadInfo>" if infos else ""}
      </eb:UserMessage>
    </eb:Messaging>
  </s:Header>
  <s:Body wsu:Id="body-1"/>
</s:Envelope>"""
    return etree.fromstring(text)


def sign(envelope: etree._Element, parts: Sequence[Part], by: Identity) -> etree._Element:
    """With a detached signature over header, Body and attachments."""
    targets = [("#header-1", "//eb:Messaging"), ("#body-1", "//s:Body")]
    wanted = []
    for uri, path in targets:
        [element] = reading.find(envelope, path)
        wanted.append((uri, reading.EXCLUSIVE, reading.canonical(element)))
    wanted += [(f"cid:{one.content_id}", reading.CONTENT_SIGNED, one.content) for one in parts]
    listed = "".join(
        f'<ds:Reference URI={quoteattr(uri)}><ds:Transforms><ds:Transform Algorithm="{how}"/>'
        f'</ds:Transforms><ds:DigestMethod Algorithm="{reading.SHA256}"/><ds:DigestValue>'
        f"{base64.b64encode(hashlib.sha256(octets).digest()).decode()}</ds:DigestValue>"
        "</ds:Reference>"
        for uri, how, octets in wanted
    )
    info = etree.fromstring(
        f'<ds:SignedInfo xmlns:ds="{NS["ds"]}">'
        f'<ds:CanonicalizationMethod Algorithm="{reading.EXCLUSIVE}"/>'
        f'<ds:SignatureMethod Algorithm="{reading.RSA_SHA256}"/>{listed}</ds:SignedInfo>'
    )
    octets = reading.canonical(info)
    value = by.key.sign(octets, padding.PKCS1v15(), hashes.SHA256())
    der = base64.b64encode(by.certificate.public_bytes(Encoding.DER)).decode()
    [security] = reading.find(envelope, "//wsse:Security")
    token = etree.fromstring(
        f'<wsse:BinarySecurityToken xmlns:wsse="{NS["wsse"]}" xmlns:wsu="{NS["wsu"]}"'
        f' wsu:Id="token-1" EncodingType="{reading.BASE64}" ValueType="{reading.X509_TOKEN}">'
        f"{der}</wsse:BinarySecurityToken>"
    )
    signature = etree.fromstring(
        f'<ds:Signature xmlns:ds="{NS["ds"]}" xmlns:wsse="{NS["wsse"]}">{octets.decode()}'
        f"<ds:SignatureValue>{base64.b64encode(value).decode()}</ds:SignatureValue><ds:KeyInfo>"
        f'<wsse:SecurityTokenReference><wsse:Reference URI="#token-1"'
        f' ValueType="{reading.X509_TOKEN}"/></wsse:SecurityTokenReference></ds:KeyInfo>'
        "</ds:Signature>"
    )
    security.insert(0, token)
    security.append(signature)
    return envelope


def _sealed(
    parts: Sequence[Part], certificate: x509.Certificate
) -> tuple[list[str], dict[str, bytes]]:
    """EncryptedKey and EncryptedData for the Security header, and the attachments encrypted."""
    public = certificate.public_key()
    assert isinstance(public, rsa.RSAPublicKey)
    key = AESGCM.generate_key(128)
    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
    wrapped = base64.b64encode(public.encrypt(key, oaep)).decode()
    issuer = escape(certificate.issuer.rfc4514_string())
    data, contents = [], {}
    for number, part in enumerate(parts, 1):
        iv = os.urandom(12)
        contents[part.content_id] = iv + AESGCM(key).encrypt(iv, part.content, None)
        data.append(
            f'<xenc:EncryptedData xmlns:xenc="{NS["xenc"]}" Id="data-{number}"'
            f' MimeType="{part.media_type}" Type="{reading.CONTENT_ONLY}">'
            f'<xenc:EncryptionMethod Algorithm="{reading.AES128_GCM}"/>'
            f'<ds:KeyInfo xmlns:ds="{NS["ds"]}"><wsse:SecurityTokenReference'
            f' xmlns:wsse="{NS["wsse"]}"><wsse:Reference URI="#key-1"/>'
            "</wsse:SecurityTokenReference></ds:KeyInfo><xenc:CipherData>"
            f"<xenc:CipherReference URI={quoteattr('cid:' + part.content_id)}><xenc:Transforms>"
            f'<ds:Transform xmlns:ds="{NS["ds"]}" Algorithm="{reading.CIPHERTEXT}"/>'
            "</xenc:Transforms></xenc:CipherReference></xenc:CipherData></xenc:EncryptedData>"
        )
    listed = "".join(
        f'<xenc:DataReference URI="#data-{number}"/>' for number in range(1, len(parts) + 1)
    )
    encrypted_key = (
        f'<xenc:EncryptedKey xmlns:xenc="{NS["xenc"]}" xmlns:ds="{NS["ds"]}" Id="key-1">'
        f'<xenc:EncryptionMethod Algorithm="{reading.RSA_OAEP}">'
        f'<ds:DigestMethod Algorithm="{reading.SHA256}"/>'
        f'<xenc11:MGF xmlns:xenc11="{NS["xenc11"]}" Algorithm="{reading.MGF1_SHA256}"/>'
        f"</xenc:EncryptionMethod><ds:KeyInfo><wsse:SecurityTokenReference"
        f' xmlns:wsse="{NS["wsse"]}"><ds:X509Data><ds:X509IssuerSerial>'
        f"<ds:X509IssuerName>{issuer}</ds:X509IssuerName>"
        f"<ds:X509SerialNumber>{certificate.serial_number}</ds:X509SerialNumber>"
        "</ds:X509IssuerSerial></ds:X509Data></wsse:SecurityTokenReference></ds:KeyInfo>"
        f"<xenc:CipherData><xenc:CipherValue>{wrapped}</xenc:CipherValue></xenc:CipherData>"
        f"<xenc:ReferenceList>{listed}</xenc:ReferenceList></xenc:EncryptedKey>"
    )
    return [encrypted_key, *data], contents


def _package(
    envelope: bytes, parts: Sequence[Part], contents: dict[str, bytes], *, sealed: bool
) -> tuple[str, bytes]:
    soap = "application/soap+xml"
    if not parts:
        return f"{soap}; charset=UTF-8", envelope
    pieces = [("envelope@stranger.example", f"{soap}; charset=UTF-8", envelope)]
    for one in parts:
        kind = "application/octet-stream" if sealed else one.media_type
        pieces.append((one.content_id, kind, contents[one.content_id]))
    body = b"".join(
        f"--{BOUNDARY}\r\nContent-Type: {kind}\r\nContent-Transfer-Encoding: binary\r\n"
        f"Content-ID: <{name}>\r\n\r\n".encode()
        + content
        + b"\r\n"
        for name, kind, content in pieces
    )
    content_type = (
        f'multipart/related; type="{soap}"; start="<{pieces[0][0]}>"; boundary="{BOUNDARY}"'
    )
    return content_type, body + f"--{BOUNDARY}--\r\n".encode()
