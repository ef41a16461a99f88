"""What went over the wire, read without Postroad: `email`, lxml, xmlsec and cryptography only."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Final
from urllib.parse import unquote

import xmlsec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree

EB3: Final = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"
_WSS: Final = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-"
_SWA: Final = "http://docs.oasis-open.org/wss/oasis-wss-SwAProfile-1.1#"
NS: Final = {
    "s": "http://www.w3.org/2003/05/soap-envelope",
    "eb": EB3,
    "wsse": f"{_WSS}wssecurity-secext-1.0.xsd",
    "wsu": f"{_WSS}wssecurity-utility-1.0.xsd",
    "ds": "http://www.w3.org/2000/09/xmldsig#",
    "xenc": "http://www.w3.org/2001/04/xmlenc#",
    "xenc11": "http://www.w3.org/2009/xmlenc11#",
    "ebbp": "http://docs.oasis-open.org/ebxml-bp/ebbp-signals-2.0",
}
RSA_SHA256: Final = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
SHA256: Final = "http://www.w3.org/2001/04/xmlenc#sha256"
AES128_GCM: Final = "http://www.w3.org/2009/xmlenc11#aes128-gcm"
RSA_OAEP: Final = "http://www.w3.org/2009/xmlenc11#rsa-oaep"
MGF1_SHA256: Final = "http://www.w3.org/2009/xmlenc11#mgf1sha256"
EXCLUSIVE: Final = "http://www.w3.org/2001/10/xml-exc-c14n#"
CONTENT_SIGNED: Final = f"{_SWA}Attachment-Content-Signature-Transform"
CIPHERTEXT: Final = f"{_SWA}Attachment-Ciphertext-Transform"
CONTENT_ONLY: Final = f"{_SWA}Attachment-Content-Only"
X509_TOKEN: Final = (
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-x509-token-profile-1.0#X509v3"
)
BASE64: Final = (
    "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary"
)


def find(root: etree._Element, path: str) -> list[Any]:
    """What an XPath selects, with the usual prefixes."""
    found: Any = root.xpath(path, namespaces=NS)
    assert isinstance(found, list)
    return found


@dataclass(frozen=True)
class MimePart:
    content_id: str
    media_type: str
    content: bytes
    file_name: str | None = None


@dataclass(frozen=True)
class Seen:
    """A message as it stood on the wire."""

    envelope: bytes
    parts: tuple[MimePart, ...] = ()
    """The attachments, in the order of the MIME package."""
    root: etree._Element = field(init=False)

    def __post_init__(self) -> None:
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        object.__setattr__(self, "root", etree.fromstring(self.envelope, parser))

    def all(self, path: str) -> list[etree._Element]:
        return find(self.root, path)

    def one(self, path: str) -> etree._Element:
        found = self.all(path)
        assert len(found) == 1, f"{path}: {len(found)} of them"
        return found[0]

    def text(self, path: str) -> str:
        return self.one(path).text or ""

    def texts(self, path: str) -> list[str]:
        return [one.text or "" for one in self.all(path)]

    def attributes(self, path: str) -> list[str]:
        """The values of an XPath that ends in an attribute."""
        return [str(one) for one in self.all(path)]

    def part(self, content_id: str) -> MimePart:
        [found] = [one for one in self.parts if one.content_id == content_id]
        return found

    @property
    def hrefs(self) -> list[str]:
        """What the PartInfo elements name, in their order."""
        return self.attributes("//eb:UserMessage/eb:PayloadInfo/eb:PartInfo/@href")

    @property
    def content_ids(self) -> list[str]:
        return [one.content_id for one in self.parts]

    def part_properties(self, content_id: str) -> dict[str, str]:
        path = f"//eb:PartInfo[@href='cid:{content_id}']/eb:PartProperties/eb:Property"
        return {one.get("name", ""): one.text or "" for one in self.all(path)}

    @property
    def properties(self) -> list[tuple[str, str, str | None]]:
        """Name, value and type of the message properties."""
        found = self.all("//eb:UserMessage/eb:MessageProperties/eb:Property")
        return [(one.get("name", ""), one.text or "", one.get("type")) for one in found]

    @property
    def errors(self) -> list[dict[str, str]]:
        """The attributes of the errors, and what they say."""
        return [
            {str(name): str(value) for name, value in one.attrib.items()}
            | {"detail": one.findtext("eb:ErrorDetail", "", NS)}
            for one in self.all("/s:Envelope/s:Header/eb:Messaging/eb:SignalMessage/eb:Error")
        ]


def read(content_type: str, body: bytes) -> Seen:
    """Take a message apart, packaged or not."""
    head = f"MIME-Version: 1.0\r\nContent-Type: {content_type}\r\n\r\n".encode()
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if not message.is_multipart():
        assert message.get_content_type() == "application/soap+xml"
        return Seen(body)
    assert message.get_content_type() == "multipart/related"
    assert message.get_param("type") == "application/soap+xml"
    found = []
    for part in message.iter_parts():
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        name = str(part["Content-ID"]).strip().removeprefix("<").removesuffix(">")
        found.append(MimePart(name, part.get_content_type(), content, part.get_filename()))
    start = message.get_param("start")
    assert start in (None, f"<{found[0].content_id}>")
    assert found[0].media_type == "application/soap+xml"
    return Seen(found[0].content, tuple(found[1:]))


def canonical(element: etree._Element) -> bytes:
    return etree.tostring(element, method="c14n", exclusive=True, with_comments=False)


def signer(seen: Seen) -> x509.Certificate:
    """The certificate in the token that the signature names."""
    [uri] = seen.attributes(
        "//wsse:Security/ds:Signature/ds:KeyInfo/wsse:SecurityTokenReference/wsse:Reference/@URI"
    )
    token = seen.text(f"//wsse:BinarySecurityToken[@wsu:Id='{uri[1:]}']")
    return x509.load_der_x509_certificate(base64.b64decode(token))


def signed(seen: Seen, contents: Mapping[str, bytes] | None = None) -> dict[str, str]:
    """Check the one signature of a message; what it covers, as URI and transform.

    `contents` are attachments before encryption; XML among them must be in canonical form.
    """
    info = seen.one("/s:Envelope/s:Header/wsse:Security/ds:Signature/ds:SignedInfo")
    seen.one("//ds:Signature")
    public = signer(seen).public_key()
    assert isinstance(public, rsa.RSAPublicKey)
    [method] = seen.attributes("//ds:SignedInfo/ds:SignatureMethod/@Algorithm")
    assert method == RSA_SHA256
    value = base64.b64decode(seen.text("//ds:Signature/ds:SignatureValue"))
    public.verify(value, canonical(info), padding.PKCS1v15(), hashes.SHA256())
    given = {one.content_id: one.content for one in seen.parts} | dict(contents or {})
    covered = {}
    for reference in info.findall("ds:Reference", NS):
        uri = reference.get("URI", "")
        [transform] = reference.findall("ds:Transforms/ds:Transform", NS)
        how = transform.get("Algorithm", "")
        digest_method = reference.find("ds:DigestMethod", NS)
        assert digest_method is not None
        assert digest_method.get("Algorithm") == SHA256
        if uri.startswith("cid:"):
            octets = given[unquote(uri.removeprefix("cid:"))]
            assert how == CONTENT_SIGNED
        else:
            octets = canonical(seen.one(f"//*[@wsu:Id='{uri[1:]}' or @id='{uri[1:]}']"))
            assert how == EXCLUSIVE
        digest = base64.b64encode(hashlib.sha256(octets).digest()).decode()
        assert reference.findtext("ds:DigestValue", "", NS) == digest, f"{uri} does not hold"
        assert uri not in covered
        covered[uri] = how
    return covered


def must_be_signed(seen: Seen) -> set[str]:
    """What the signature of an AS4 message covers at least: header, Body and every attachment."""
    ids = seen.attributes("/s:Envelope/s:Header/eb:Messaging/@id | /s:Envelope/s:Body/@wsu:Id")
    header_id = seen.attributes("/s:Envelope/s:Header/eb:Messaging/@wsu:Id")
    assert len(ids + header_id) == 2
    return {f"#{one}" for one in ids + header_id} | {f"cid:{one}" for one in seen.content_ids}


def xmlsec_verifies(seen: Seen, certificate: x509.Certificate) -> bool:
    """Whether libxmlsec takes a signature over the envelope alone."""
    root = etree.fromstring(seen.envelope)
    xmlsec.tree.add_ids(root, ["Id", "id"])
    context = xmlsec.SignatureContext()
    context.key = xmlsec.Key.from_memory(
        certificate.public_bytes(Encoding.PEM), xmlsec.KeyFormat.CERT_PEM, None
    )
    try:
        context.verify(xmlsec.tree.find_node(root, xmlsec.Node.SIGNATURE))
    except xmlsec.VerificationError:
        return False
    return True


def references(seen: Seen, path: str) -> list[tuple[str, ...]]:
    """URI, transforms, digest method and value of the ds:Reference elements at a place."""
    return [
        (
            one.get("URI", ""),
            *(t.get("Algorithm", "") for t in one.findall("ds:Transforms/ds:Transform", NS)),
            *(m.get("Algorithm", "") for m in one.findall("ds:DigestMethod", NS)),
            "".join(one.findtext("ds:DigestValue", "", NS).split()),
        )
        for one in seen.all(path)
    ]


def check_nonrepudiation(
    receipt: Seen, message: Seen, message_id: str, certificate: x509.Certificate
) -> None:
    """The receipt is signed by its sender and names exactly the digests of the message."""
    signal = "/s:Envelope/s:Header/eb:Messaging/eb:SignalMessage"
    assert receipt.text(f"{signal}/eb:MessageInfo/eb:RefToMessageId") == message_id
    assert not receipt.errors
    nr = f"{signal}/eb:Receipt/ebbp:NonRepudiationInformation/ebbp:MessagePartNRInformation"
    told = references(receipt, f"{nr}/ds:Reference")
    assert told, "the receipt names no digest"
    assert sorted(told) == sorted(references(message, "//ds:SignedInfo/ds:Reference"))
    assert not receipt.all(f"{nr}/ebbp:MessagePartIdentifier")
    covered = signed(receipt)
    assert covered.keys() >= must_be_signed(receipt)
    assert signer(receipt) == certificate
    assert xmlsec_verifies(receipt, certificate)


def decrypted(seen: Seen, key: rsa.RSAPrivateKey) -> dict[str, bytes]:
    """The attachments opened, and that everything is encrypted as eDelivery says."""
    [transport] = seen.attributes("//xenc:EncryptedKey/xenc:EncryptionMethod/@Algorithm")
    [digest] = seen.attributes("//xenc:EncryptedKey//ds:DigestMethod/@Algorithm")
    [mgf] = seen.attributes("//xenc:EncryptedKey//xenc11:MGF/@Algorithm")
    assert (transport, digest, mgf) == (RSA_OAEP, SHA256, MGF1_SHA256)
    wrapped = base64.b64decode(seen.text("//xenc:EncryptedKey/xenc:CipherData/xenc:CipherValue"))
    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
    cipher = AESGCM(key.decrypt(wrapped, oaep))
    opened = {}
    for data in seen.all("//xenc:EncryptedData"):
        method = data.find("xenc:EncryptionMethod", NS)
        reference = data.find("xenc:CipherData/xenc:CipherReference", NS)
        assert method is not None
        assert reference is not None
        assert method.get("Algorithm") == AES128_GCM
        assert data.get("Type") == CONTENT_ONLY
        name = unquote(reference.get("URI", "").removeprefix("cid:"))
        octets = seen.part(name).content
        opened[name] = cipher.decrypt(octets[:12], octets[12:], None)
    return opened
