"""Messages that ask for much work: floods of everything that a message can hold."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from postroad.wire.names import DS, EXC_C14N, SMS11, WSSE, WSU, XENC
from tests.attack.forging import Ref, refs, sha256
from tests.attack.messages import ACTION, Package

MANY: Final = 30_000
HARMLESS: Final = (
    "comments",
    "Security headers of other roles",
    "blanks before the envelope",
    "comments before the envelope",
)
"""Floods that change nothing of what was signed: they need not be refused, only be cheap."""
_XENC: Final = f'xmlns:e="{XENC}"'
_NUMBERED_ID: Final = "<eb:PartyId>urn:example:party-@</eb:PartyId>"
_NAMED_KEY: Final = (
    f'<ds:KeyInfo xmlns:ds="{DS}"><wsse:SecurityTokenReference><wsse:Reference URI="#k"/>'
    "</wsse:SecurityTokenReference></ds:KeyInfo>"
)


def _numbered(count: int, xml: str) -> str:
    return "".join(xml.replace("@", str(number)) for number in range(count))


def _encrypted_data(count: int, key: str) -> str:
    return _numbered(
        count,
        f'<e:EncryptedData {_XENC} Id="d@"><e:EncryptionMethod Algorithm="http://www.w3.org/2009/'
        f'xmlenc11#aes128-gcm"/>{key}<e:CipherData><e:CipherValue>AAAA</e:CipherValue>'
        "</e:CipherData></e:EncryptedData>",
    )


def _one_broken_key() -> str:
    return (
        f'<e:EncryptedKey {_XENC} Id="k"><e:EncryptionMethod Algorithm="http://www.w3.org/2009/'
        f'xmlenc11#rsa-oaep"/><ds:KeyInfo xmlns:ds="{DS}"><wsse:SecurityTokenReference>'
        f'<wsse:KeyIdentifier ValueType="{SMS11}#ThumbprintSHA1">AAAA</wsse:KeyIdentifier>'
        "</wsse:SecurityTokenReference></ds:KeyInfo><e:CipherData><e:CipherValue>AAAA"
        f"</e:CipherValue></e:CipherData><e:ReferenceList>{'<e:DataReference/>' * 20_000}"
        "</e:ReferenceList></e:EncryptedKey>"
    )


@dataclass(frozen=True, slots=True)
class Floods:
    """Floods of one signed message."""

    message: Package
    make: Callable[..., Package]
    """Makes another message like it, with these attachments and this body."""
    resign: Callable[..., Package]
    """Signs a message anew, with these references."""
    action: str = ACTION
    """The action in its header."""

    def _in_header(self, xml: str) -> Package:
        return self.message.replaced("</S12:Header>", f"{xml}</S12:Header>")

    def _in_security(self, xml: str) -> Package:
        return self.message.replaced("</wsse:Security>", f"{xml}</wsse:Security>")

    def _in_body(self, xml: str) -> Package:
        return self.message.replaced("<o:Pay>", f"{xml}<o:Pay>")

    def _in_messaging(self, xml: str) -> Package:
        return self.message.replaced("</eb:Messaging>", f"{xml}</eb:Messaging>")

    def _in_wrapper(self, xml: str) -> Package:
        return self._in_header(f'<w:w xmlns:w="urn:example:w" xmlns:ds="{DS}">{xml}</w:w>')

    def _big_body_referred_to(self, count: int) -> Package:
        message = self.make((), body=f'<o:Order xmlns:o="urn:o">{"<o:a/>" * MANY}</o:Order>')
        [own] = [one for one in refs(message) if one.uri == "#_body"]
        return self.resign(message, [*refs(message), *[own] * count])

    def _prefix_list(self) -> Package:
        names = "".join(f"<o:p{n}/>" for n in range(MANY))
        message = self.make((), body=f'<o:Order xmlns:o="urn:o">{names}</o:Order>')
        listed = " ".join(f"p{n}" for n in range(MANY))
        step = (
            f'<ds:Transform Algorithm="{EXC_C14N}"><c:InclusiveNamespaces xmlns:c="{EXC_C14N}" '
            f'PrefixList="{listed}"/></ds:Transform>'
        )
        return self.resign(message, [Ref("#_body", sha256(b"x"), (step,))])

    def _token_references(self) -> Package:
        """Many references that each stand for one large token (STR-Transform)."""
        step = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0"
        strs = _numbered(
            1500,
            f'<wsse:SecurityTokenReference xmlns:wsse="{WSSE}" xmlns:wsu="{WSU}" wsu:Id="s@">'
            '<wsse:Reference URI="#big"/></wsse:SecurityTokenReference>',
        )
        big = f'<o:big xmlns:o="urn:o" xmlns:wsu="{WSU}" wsu:Id="big">{"<o:a/>" * 20_000}</o:big>'
        message = self.make((), body=f'<o:Order xmlns:o="urn:o">{big}{strs}</o:Order>')
        return self.resign(
            message,
            [Ref(f"#s{n}", sha256(b"x"), (f"{step}#STR-Transform",)) for n in range(1500)],
        )

    def all(self) -> dict[str, Callable[[], Package]]:
        """Return each flood by its name; it is made when it is called."""
        return {
            "header blocks to be understood": lambda: self._in_header(
                '<x:a xmlns:x="urn:x" S12:mustUnderstand="true"/>' * MANY
            ),
            "signatures": lambda: self._in_wrapper("<ds:Signature/>" * MANY),
            "signatures in the Security header": lambda: self._in_security(
                f'<ds:Signature xmlns:ds="{DS}"/>' * MANY
            ),
            "second Bodies": lambda: self._in_body("<S12:Body/>" * MANY),
            "second Envelopes": lambda: self._in_body("<S12:Envelope/>" * MANY),
            "second Messagings": lambda: self._in_body(
                '<eb:Messaging xmlns:eb="http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"/>'
                * 20_000
            ),
            "EncryptedData in the Body": lambda: self._in_body(
                f"<e:EncryptedData {_XENC}/>" * MANY
            ),
            "EncryptedData in the Security header": lambda: self._in_security(
                f"<e:EncryptedData {_XENC}/>" * MANY
            ),
            "EncryptedKeys": lambda: self._in_security(f"<e:EncryptedKey {_XENC}/>" * MANY),
            "EncryptedData that look for their key": lambda: self._in_security(
                f"<e:EncryptedKey {_XENC}>{'<e:DataReference/>' * 20_000}</e:EncryptedKey>"
                + _encrypted_data(1500, "")
            ),
            "EncryptedData that name one broken key": lambda: self._in_security(
                _one_broken_key() + _encrypted_data(1500, _NAMED_KEY)
            ),
            "user messages": lambda: self._in_messaging("<eb:UserMessage/>" * MANY),
            "signal messages": lambda: self._in_messaging("<eb:SignalMessage/>" * MANY),
            "unknown units": lambda: self._in_messaging("<eb:Unknown/>" * MANY),
            "parts of the payload": lambda: self.message.replaced(
                "<eb:PayloadInfo>",
                "<eb:PayloadInfo>" + _numbered(MANY, '<eb:PartInfo href="cid:@"/>'),
            ),
            "parts of the payload with one name": lambda: self.message.replaced(
                "<eb:PayloadInfo>",
                "<eb:PayloadInfo>" + '<eb:PartInfo href="cid:one@buyer.example"/>' * MANY,
            ),
            "payloads in the Body": lambda: self.message.replaced(
                "<eb:PayloadInfo>",
                "<eb:PayloadInfo>" + _numbered(MANY // 2, '<eb:PartInfo href="#p@"/>'),
            ).replaced("<o:Pay>", _numbered(MANY // 2, '<o:p id="p@"/>') + "<o:Pay>"),
            "properties": lambda: self.message.replaced(
                "<eb:MessageProperties>",
                "<eb:MessageProperties>"
                + _numbered(MANY, '<eb:Property name="p@">v</eb:Property>'),
            ),
            "party ids": lambda: self.message.replaced(
                "<eb:From>", "<eb:From>" + "<eb:PartyId>urn:example:buyer</eb:PartyId>" * MANY
            ),
            "party ids with types": lambda: self.message.replaced(
                "<eb:From>",
                "<eb:From>" + _numbered(MANY, '<eb:PartyId type="urn:t@">urn:x</eb:PartyId>'),
            ),
            "party ids on both sides": lambda: self.message.replaced(
                "<eb:From>", "<eb:From>" + _numbered(MANY // 2, _NUMBERED_ID)
            ).replaced("<eb:To>", "<eb:To>" + _numbered(MANY // 2, _NUMBERED_ID)),
            "username tokens": lambda: self._in_security("<wsse:UsernameToken/>" * MANY),
            "timestamps": lambda: self._in_security(f'<u:Timestamp xmlns:u="{WSU}"/>' * MANY),
            "times in a timestamp": lambda: self.message.replaced(
                "<wsu:Created>", "<wsu:Created>never</wsu:Created>" * MANY + "<wsu:Created>"
            ),
            "addresses": lambda: self._in_header(
                '<x:To xmlns:x="http://www.w3.org/2005/08/addressing"/>' * MANY
            ),
            "relations": lambda: self._in_header(
                '<x:RelatesTo xmlns:x="http://www.w3.org/2005/08/addressing"/>' * MANY
            ),
            "Security headers of other roles": lambda: self._in_header(
                _numbered(MANY, f'<w:Security xmlns:w="{WSSE}" S12:role="urn:r:@"/>')
            ),
            "ids": lambda: self._in_body(_numbered(MANY, '<o:a id="i@"/>')),
            "one id many times": lambda: self._in_body('<o:a id="_messaging"/>' * MANY),
            "comments": lambda: self._in_body("<!-- -->" * MANY),
            "comments in one value": lambda: self.message.replaced(
                f">{self.action}<",
                f">{self.action[:3]}{'<!---->O' * MANY}{self.action[3:]}<",
            ),
            "character references": lambda: self._in_body("&#x41;" * 300_000),
            "references": lambda: self.resign(
                self.message, [Ref(f"#nobody{n}", b"\0" * 32) for n in range(1990)]
            ),
            "more references than allowed": lambda: self.resign(
                self.message, [Ref(f"#nobody{n}", b"\0" * 32) for n in range(5000)]
            ),
            "references to one large Body": lambda: self._big_body_referred_to(1900),
            "references that stand for one large token": self._token_references,
            "prefixes of an inclusive list": self._prefix_list,
            "a long signature value": lambda: self.message.replaced(
                "<ds:SignatureValue>", "<ds:SignatureValue>" + "AAAA" * 500_000
            ),
            "a long token": lambda: self.message.replaced(">MII", ">" + "MIIC" * 500_000, 1),
            "a long issuer name": lambda: self.resign(
                self.message,
                key_info="<ds:X509Data><ds:X509IssuerSerial><ds:X509IssuerName>"
                f"{'CN=a,' * 200_000}</ds:X509IssuerName><ds:X509SerialNumber>1"
                "</ds:X509SerialNumber></ds:X509IssuerSerial></ds:X509Data>",
            ),
            "blanks before the envelope": lambda: Package(
                b" " * 3_000_000 + self.message.envelope.partition(b"?>\n")[2], self.message.parts
            ),
            "comments before the envelope": lambda: Package(
                b"<!---->" * MANY + self.message.envelope.partition(b"?>\n")[2], self.message.parts
            ),
        }
