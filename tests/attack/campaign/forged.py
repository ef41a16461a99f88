"""Messages that an attacker sends to the target, and what must become of them.

`order` makes a message as the buyer's node would: it stands for one that was caught on its way
before it arrived, so that nothing but what an attacker changed can be the reason for a refusal.
`received` takes a recorded request apart, so that it can be changed and put together again.
"""

import itertools
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.message import Message
from functools import cache
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from lxml import etree

from postroad.api.client import Client
from postroad.security.algorithms import ECDSA_SHA256, RSA_SHA256
from postroad.security.attachments import Attachment
from postroad.security.keyestablishment import Encryption
from postroad.security.keys import KeyPair, load_key_pair
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.wire.content import read_all
from postroad.wire.ebms3 import (
    MIME_TYPE,
    AgreementRef,
    CollaborationInfo,
    MessageInfo,
    Messaging,
    PartInfo,
    Party,
    PartyId,
    Property,
    Service,
    UserMessage,
)
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.names import INITIATOR_ROLE, RESPONDER_ROLE
from tests.attack.campaign.model import Breach
from tests.attack.campaign.target import Answer, Target
from tests.attack.messages import BODY, VERSION, Package, Part, part_info, payload
from tests.fuzz.stateful_nodes import Sent

BUYER: Final = "urn:example:buyer"
SELLER: Final = "urn:example:seller"
TWO: Final = (payload("one", b"pay 100 to Alice"), payload("two", b"pay 200 to Bob  "))
ALL_IS_WELL: Final = (b":Receipt", b":Acknowledgment", b":SequenceAcknowledgement")
"""What an answer has only where a message was taken."""
_CODE: Final = re.compile(r'errorCode="([^"]+)"|<faultcode>[^:<]+:([^<]+)|>(wsrm:[^<]+)<')
_NUMBERS: Final = itertools.count(1)


def key_pair(target: Target, name: str = "buyer", owner: str = "buyer") -> KeyPair:
    """Return the private key of a node, or of the authority that issued all certificates."""
    return load_key_pair((target.node(owner).folder / "keys" / f"{name}.p12").read_bytes())


def seller_certificate(target: Target) -> x509.Certificate:
    """Return the public certificate that messages to the seller are encrypted for."""
    path = target.pair.buyer.folder / "keys" / "seller.pem"
    return x509.load_pem_x509_certificate(path.read_bytes())


def signing(pair: KeyPair, **terms: Any) -> Signing:
    """Sign with a key, by the method that fits it."""
    is_rsa = isinstance(pair.private_key, RSAPrivateKey)
    return Signing(pair, terms.pop("algorithm", RSA_SHA256 if is_rsa else ECDSA_SHA256), **terms)


def order(
    how: Signing | None,
    pmode: str = "signed",
    attachments: Sequence[Attachment] = TWO,
    *,
    body: str = BODY,
    encryption: Encryption | None = None,
    sender: str = BUYER,
    listed: Sequence[PartInfo] | None = None,
    properties: tuple[Property, ...] = (),
) -> Package:
    """Make a message that the seller takes, unless it is told otherwise."""
    now = datetime.now(UTC)
    infos = [part_info(one) for one in attachments] if listed is None else list(listed)
    if listed is None and body:
        infos.append(PartInfo(None, (Property(MIME_TYPE, "application/xml"),)))
    message = UserMessage(
        MessageInfo(now, f"caught-{next(_NUMBERS)}@buyer.example"),
        Party((PartyId(sender),), INITIATOR_ROLE),
        Party((PartyId(SELLER),), RESPONDER_ROLE),
        CollaborationInfo(
            Service("urn:example:trade"), pmode, "c-1", AgreementRef("urn:example:agreed")
        ),
        properties,
        tuple(infos),
    )
    made = secure(
        VERSION,
        [Block("_messaging", write_messaging(Messaging((message,), id="_messaging"), VERSION))],
        attachments,
        signing=how,
        encryption=encryption,
        entropy=os.urandom,
        lifetime=Lifetime(now, timedelta(hours=1)) if how else None,
        body_content=body,
    )
    parts = tuple(
        Part(one.content_id, one.media_type, read_all(one.content, 1 << 30))
        for one in made.attachments
    )
    return Package(made.envelope, parts, made.references, message)


def from_buyer(target: Target, pmode: str = "signed", *args: Any, **more: Any) -> Package:
    """Make a message that the buyer signed: one that was caught on its way."""
    return order(signing(key_pair(target)), pmode, *args, **more)


def for_seller(target: Target, **terms: Any) -> Encryption:
    return Encryption(seller_certificate(target), **terms)


def request(message: Package | bytes, to: str = "seller", **headers: str) -> Sent:
    """Return a message, or a whole HTTP request, as one that can be posted."""
    data = message.wire() if isinstance(message, Package) else message
    head, _, body = data.partition(b"\r\n\r\n")
    own = [line.partition(": ")[::2] for line in head.decode("latin-1").split("\r\n")[1:]]
    added = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Sent(to, (*own, *added), body)


def soap(envelope: bytes, media_type: str = VERSION.media_type, to: str = "seller") -> Sent:
    """Return an envelope without attachments as a request."""
    return Sent(to, (("Content-Type", media_type),), envelope)


def received(sent: Sent) -> Package:
    """Take a recorded multipart request apart."""
    boundary = _boundary(sent)
    pieces = sent.body.split(b"--" + boundary.encode())[1:-1]
    parts = []
    for piece in pieces:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        content_id = fields.pop("Content-ID", "").strip("<>") or None
        content_type = fields.pop("Content-Type")
        parts.append(
            Part(content_id, content_type, content.removesuffix(b"\r\n"), tuple(fields.items()))
        )
    return Package(parts[0].content, tuple(parts[1:]))


def _boundary(sent: Sent) -> str:
    header = Message()
    header["Content-Type"] = next(v for k, v in sent.headers if k.lower() == "content-type")
    return str(header.get_param("boundary"))


def rewritten(sent: Sent, package: Package) -> Sent:
    """Return a recorded request with another envelope and other attachments."""
    own = received(sent)
    begun = sent.body.index(own.envelope)
    head, boundary = sent.body[:begun], b"--" + _boundary(sent).encode()
    body = head + package.envelope + b"\r\n"
    for part in package.parts:
        body += boundary + b"\r\n" + part.write() + b"\r\n"
    return Sent(sent.to, sent.headers, body + boundary + b"--\r\n")


def changed(message: Package, change: Callable[[etree._Element], None]) -> Package:
    """Return a message with the tree of its envelope changed."""
    root = etree.fromstring(message.envelope)
    change(root)
    return Package(etree.tostring(root), message.parts, message.references, message.user_message)


# What must become of it


def codes(answer: Answer) -> set[str]:
    """Return the codes in an answer: errors of ebMS and ebXML, faults of SOAP 1.1 and WS-RM."""
    return {"".join(one) for one in _CODE.findall(answer.body.decode(errors="replace"))}


def post(target: Target, message: Package | bytes | Sent, *, tls: bool = False) -> Answer:
    sent = message if isinstance(message, Sent) else request(message)
    return target.post(sent, tls=tls)


def refused(
    target: Target,
    message: Package | bytes | Sent,
    *expected: str,
    tls: bool = False,
    by_partner: bool = False,
) -> Answer:
    """Send what must be refused with one of the codes; no receipt may come."""
    return check_refused(post(target, message, tls=tls), *expected, by_partner=by_partner)


def check_refused(answer: Answer, *expected: str, by_partner: bool = False) -> Answer:
    """Raise Breach unless it is a refusal with one of the codes.

    It is not signed unless the partner itself signed what is refused: it could be shown to the
    partner as the answer to what that one really sent.
    """
    if any(mark in answer.body for mark in ALL_IS_WELL):
        raise Breach(f"it was acknowledged: {answer.body[:300]!r}")
    if b"<ds:SignatureValue" in answer.body and not by_partner:
        raise Breach(f"the refusal of a forged message is signed: {sorted(codes(answer))}")
    found = codes(answer)
    if expected and not found & set(expected):
        raise Breach(f"answered {answer.status} {sorted(found)}, expected {expected}")
    if not found and answer.status < 400:
        raise Breach(f"answered {answer.status} without an error: {answer.body[:300]!r}")
    return answer


def accepted(
    target: Target, message: Package | bytes | Sent, pmode: str = "signed", *, tls: bool = False
) -> Answer:
    """Send what must be taken: the control of a class, without which its refusals prove nothing."""
    answer = post(target, message, tls=tls)
    if isinstance(message, Package) and message.user_message is not None:
        target.sent[message.user_message.message_info.message_id] = pmode
    if not any(mark in answer.body for mark in ALL_IS_WELL) or codes(answer):
        raise Breach(f"the message was to be taken; answered {answer.status} {answer.body!r}")
    return answer


def inbox_end(target: Target) -> int:
    """Return how far the seller's inbox is."""
    folder = target.pair.seller.folder
    return _client(folder, target.pair.seller.serving.api_url).inbox_extent().last


@cache
def _client(folder: Path, url: str | None) -> Client:
    """Return a client that is kept: opening one takes longer than most attacks."""
    return Client(url or "", token=(folder / "keys" / "api.token").read_text().strip())


def delivered(target: Target, message: Package) -> bytes:
    """Return the first payload of a message as the seller's application gets it."""
    assert message.user_message is not None
    folder = target.pair.seller.folder
    client = _client(folder, target.pair.seller.serving.api_url)
    return client.part(message.user_message.message_info.message_id)


def undelivered(target: Target, before: int) -> None:
    """Raise Breach if the seller delivered anything since then."""
    if inbox_end(target) != before:
        raise Breach("something was delivered that nobody sent")
