"""Messages that are encrypted for recipients of every kind, and opened again."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from lxml import etree

from postroad.security import algorithms as alg
from postroad.security.algorithms import DATA_CIPHERS, STRONG, Algorithms
from postroad.security.attachments import Attachment
from postroad.security.decrypt import Decryption, decrypt
from postroad.security.ids import Ids
from postroad.security.keyestablishment import Encryption
from postroad.security.keys import KeyPair
from postroad.security.secure import Secured, secure
from postroad.security.sign import Signing
from postroad.security.verify import security_headers
from postroad.wire.content import BytesContent, BytesSink, NewSink, read_all
from postroad.wire.limits import MIB, Limits
from postroad.wire.soap import Envelope, SoapVersion, read_envelope
from postroad.wire.xml import parse
from tests import pki
from tests.changing import replace

CA: Final = pki.authority("Recipients")
ATTACHMENTS: Final = (
    Attachment("one@a", BytesContent(b"<order/>"), "application/xml"),
    Attachment("two@a", BytesContent(bytes(range(256)) * 5), "image/png"),
    Attachment("empty@a", BytesContent(b""), "text/plain"),
)
BODY: Final = 'before <d:doc xmlns:d="urn:d" n="1">copper &amp; zinc<d:e></d:e></d:doc> after'
CBC: Final = [uri for uri, cipher in DATA_CIPHERS.items() if cipher.mode != "GCM"]
WRAPS: Final = list(alg.KEY_WRAPS)
BRAINPOOL: Final = {"brainpool384": ec.BrainpoolP384R1(), "brainpool512": ec.BrainpoolP512R1()}
SHAKY: Final = Algorithms(legacy=True)
CLOSED: Final = "the message could not be decrypted"


@cache
def recipient(kind: str = "rsa", name: str = "recipient") -> KeyPair:
    """A pair of any kind that `pki` makes, and on the larger Brainpool curves too."""
    if kind not in BRAINPOOL:
        return pki.issue(CA, f"{name} {kind}", key=kind)
    key = ec.derive_private_key(987654321, BRAINPOOL[kind])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(pki.distinguished_name(kind))
        .issuer_name(CA.certificate.subject)
        .public_key(key.public_key())
        .serial_number(len(kind) + BRAINPOOL[kind].key_size)
        .not_valid_before(pki.NOW - pki.YEAR)
        .not_valid_after(pki.NOW + pki.YEAR)
        .sign(CA.private_key, hashes.SHA256())
    )
    return KeyPair(key, certificate, (CA.certificate,))


class Dice:
    """Entropy that is the same every time, and remembers what it gave."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    def __call__(self, size: int) -> bytes:
        seed = f"dice {len(self.given)}".encode()
        self.given.append(hashlib.shake_256(seed).digest(size))
        return self.given[-1]


def sealed(
    encryption: Encryption,
    *,
    attachments: Sequence[Attachment] = ATTACHMENTS,
    body: str = BODY,
    signing: Signing | None = None,
    entropy: Callable[[int], bytes] | None = None,
    version: SoapVersion = SoapVersion.SOAP_12,
) -> Secured:
    """A message that is encrypted, and signed before where a test says so."""
    return secure(
        version,
        [],
        attachments,
        signing=signing,
        encryption=encryption,
        entropy=entropy or Dice(),
        body_content=body,
    )


def to_rsa(**options: str) -> Encryption:
    """Encryption for the recipient with an RSA key."""
    return Encryption(recipient().certificate, **options)  # type: ignore[arg-type]


def to_x25519(**options: str) -> Encryption:
    """Encryption for the recipient with a key for X25519."""
    options.setdefault("key", alg.X25519)
    return Encryption(recipient("x25519").certificate, **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Opened:
    """A message after its recipient tried to open it."""

    envelope: Envelope
    decryption: Decryption

    @property
    def plain(self) -> dict[str, tuple[str, bytes]]:
        return {
            name: (one.media_type, read_all(one.content, MIB))
            for name, one in self.decryption.attachments.items()
        }

    @property
    def details(self) -> list[str]:
        return [problem.detail for problem in self.decryption.problems]

    @property
    def codes(self) -> set[str]:
        return {problem.code for problem in self.decryption.problems}


def opened(
    message: Secured | bytes,
    keys: Sequence[KeyPair],
    *,
    attachments: Sequence[Attachment] | None = None,
    algorithms: Algorithms = STRONG,
    new_sink: NewSink = BytesSink,
    limits: Limits | None = None,
) -> Opened:
    """What somebody with these keys finds in a message."""
    sent = message.envelope if isinstance(message, Secured) else message
    if attachments is None:
        attachments = message.attachments if isinstance(message, Secured) else ()
    envelope = read_envelope(parse(sent))
    decryption = decrypt(
        security_headers(envelope.header)[None],
        envelope.body,
        {one.content_id: one for one in attachments},
        keys,
        ids=Ids(envelope.root),
        algorithms=algorithms,
        new_sink=new_sink,
        limits=limits or Limits(),
    )
    return Opened(envelope, decryption)


def assert_open(result: Opened, attachments: Sequence[Attachment] = ATTACHMENTS) -> None:
    """Everything was opened, and is what was put in."""
    assert result.details == []
    assert result.decryption.decrypted is True
    assert result.plain == {
        one.content_id: (one.media_type, one.content.data) for one in attachments
    }
    for one in result.decryption.attachments.values():
        assert one.sha256 == hashlib.sha256(read_all(one.content, MIB)).digest()
    inner = etree.tostring(result.envelope.body, method="c14n", exclusive=True).decode()
    assert f">{BODY}</" in inner


def find(root: etree._Element, *names: str) -> etree._Element:
    """The first element of the first name, in it the first of the second, and so on."""
    found = root
    for name in names:
        found = next(one for one in found.iter("*") if etree.QName(one).localname == name)
    return found


def tampered(attachment: Attachment, at: int) -> Attachment:
    """The attachment with one bit turned over."""
    data = bytearray(read_all(attachment.content, MIB))
    data[at] ^= 0x10
    return replace(attachment, content=BytesContent(bytes(data)))
