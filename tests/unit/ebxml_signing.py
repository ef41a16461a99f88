"""ebXML messages that are signed, carried over hops, and looked at."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from cryptography import x509
from lxml import etree

from postroad.security import algorithms as alg
from postroad.security.algorithms import STRONG, Algorithms
from postroad.security.attachments import Attachment
from postroad.security.ebxml_signature import covered, sign_ebxml, verify_ebxml
from postroad.security.keys import KeyPair
from postroad.security.sign import Signing
from postroad.security.tokens import TokenReference
from postroad.security.verify import Verification, signatures
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import Reference
from postroad.wire.ebxml import DIALECTS, MS20, Dialect
from postroad.wire.errors import Severity
from postroad.wire.limits import Limits
from postroad.wire.names import EB2_NEXT_MSH, S11, S11_NEXT, XLINK
from postroad.wire.soap import Envelope, read_envelope
from postroad.wire.xml import parse
from tests import pki
from tests.changing import replace

CA: Final = pki.authority("Older Signers")
ALICE: Final = pki.issue(CA, "older alice")
MALLORY: Final = pki.issue(CA, "older mallory")
ORDER: Final = b'<?xml version="1.0"?>\n<order xmlns="urn:o"  n="1">\r\n5 copper</order>\n'
DRAWING: Final = bytes(range(256)) * 3
ATTACHMENTS: Final = (
    Attachment("order@a.example", BytesContent(ORDER), "text/xml"),
    Attachment("drawing@a.example", BytesContent(DRAWING), "application/octet-stream"),
)
HREFS: Final = ("cid:order@a.example", "cid:drawing@a.example")


def dialects(*some: Dialect) -> pytest.MarkDecorator:
    """A test for each of these versions, else for all."""
    return pytest.mark.parametrize("dialect", some or DIALECTS.values(), ids=lambda d: d.name)


def envelope_of(dialect: Dialect, blocks: str = "", *, hrefs: Sequence[str] = HREFS) -> bytes:
    """A message with white space, comments and namespaces where they can do harm."""
    references = "".join(
        f'<eb:Reference xlink:type="simple" xlink:href="{href}"/>' for href in hrefs
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!-- before --><SOAP-ENV:Envelope '
        f'xmlns:SOAP-ENV="{S11}" xmlns:eb="{dialect.namespace}" xmlns:xlink="{XLINK}" '
        'xmlns:unused="urn:unused" xml:lang="en">\n'
        f'<SOAP-ENV:Header xmlns="urn:default">\n <eb:MessageHeader eb:version="{dialect.version}"'
        ' SOAP-ENV:mustUnderstand="1"><eb:CPAId>urn:cpa:1</eb:CPAId><!-- within -->'
        f"<eb:Action>NewOrder</eb:Action></eb:MessageHeader>\n {blocks}</SOAP-ENV:Header>\n"
        f'<SOAP-ENV:Body><eb:Manifest eb:id="m">{references}</eb:Manifest></SOAP-ENV:Body>\n'
        "</SOAP-ENV:Envelope>\n<!-- after -->"
    ).encode()


def put(envelope: bytes, text: str, *, before: str = "</SOAP-ENV:Header>") -> bytes:
    """The envelope with something more, before a tag."""
    at = envelope.index(before.encode())
    return envelope[:at] + text.encode() + envelope[at:]


def trace(number: int) -> str:
    """The TraceHeader that a hop leaves."""
    return (
        '<eb:TraceHeaderList eb:version="1.0"><eb:TraceHeader><eb:SenderURI>'
        f"https://hop{number}.example/</eb:SenderURI></eb:TraceHeader></eb:TraceHeaderList>"
    )


def hop(dialect: Dialect, number: int) -> str:
    """What one hop adds."""
    if dialect.has_trace:
        return f'{trace(number)}<eb:Via eb:ackRequested="UnSigned"/>'
    actor = (EB2_NEXT_MSH, S11_NEXT)[number % 2]
    return f'<eb:AckRequested SOAP-ENV:actor="{actor}" eb:signed="false"><eb:n/></eb:AckRequested>'


@dataclass(frozen=True)
class Message:
    """A message that was signed."""

    dialect: Dialect
    envelope: bytes
    references: tuple[Reference, ...]
    attachments: tuple[Attachment, ...] = ATTACHMENTS
    hrefs: tuple[str, ...] = HREFS

    def replaced(self, old: str, new: str) -> "Message":
        assert self.envelope.count(old.encode()) == 1, old
        return replace(self, envelope=self.envelope.replace(old.encode(), new.encode()))

    def added(self, text: str, *, before: str = "</SOAP-ENV:Header>") -> "Message":
        return replace(self, envelope=put(self.envelope, text, before=before))


def signed(
    dialect: Dialect = MS20,
    signer: KeyPair = ALICE,
    algorithm: str = alg.ECDSA_SHA256,
    *,
    digest: str = alg.SHA256,
    form: TokenReference = TokenReference.BINARY_SECURITY_TOKEN,
    blocks: str = "",
) -> Message:
    """A message of a version, signed as a test says."""
    envelope = envelope_of(dialect, blocks)
    signing = Signing(signer, algorithm, digest, form)
    signature, references = sign_ebxml(envelope, dialect, ATTACHMENTS, signing)
    return Message(dialect, put(envelope, signature), references)


@dataclass(frozen=True)
class Checked:
    """A message after its signature was looked at."""

    envelope: Envelope
    verification: Verification

    def element(self, name: str) -> etree._Element:
        [found] = self.envelope.root.iter(f"{{*}}{name}")
        return found

    def covers(self, name: str) -> bool:
        return covered(self.verification, self.element(name))

    @property
    def holds(self) -> bool:
        return self.verification.valid is True and not self.failures

    @property
    def failures(self) -> list[str]:
        return [p.detail for p in self.verification.problems if p.severity is Severity.FAILURE]


def check(
    message: Message,
    *,
    known: Collection[x509.Certificate] = (),
    algorithms: Algorithms = STRONG,
    unseen: Callable[[str], str | None] = lambda content_id: None,
    limits: Limits | None = None,
) -> Checked:
    """What the signature of a message proves."""
    envelope = read_envelope(parse(message.envelope))
    assert envelope.header is not None
    verification = verify_ebxml(
        signatures(envelope.header)[0],
        envelope,
        message.dialect,
        {one.content_id: one for one in message.attachments},
        message.hrefs,
        known=known,
        algorithms=algorithms,
        unseen=unseen,
        limits=limits or Limits(),
    )
    assert all(one.detail for one in verification.problems), "each says what is wrong"
    return Checked(envelope, verification)


def without_key_info(message: Message, new: str = "") -> Message:
    """The message with another KeyInfo, or with none."""
    start = message.envelope.index(b"<ds:KeyInfo>")
    stop = message.envelope.index(b"</ds:KeyInfo>") + len(b"</ds:KeyInfo>")
    envelope = message.envelope[:start] + new.encode() + message.envelope[stop:]
    return replace(message, envelope=envelope)
