"""A purchase order as an AS4 message, good and damaged in many ways: what the demo inspects."""

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from postroad.node.first_steps.devpki import issue, make_authority
from postroad.security.algorithms import RSA_SHA256
from postroad.security.attachments import Attachment
from postroad.security.keyestablishment import Encryption
from postroad.security.keys import KeyPair
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import (
    COMPRESSION_TYPE,
    GZIP,
    MIME_TYPE,
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
from postroad.wire.mime import (
    OutgoingPart,
    multipart_content_type,
    multipart_length,
    write_multipart,
)
from postroad.wire.mime_headers import cid_url
from postroad.wire.names import INITIATOR_ROLE, RESPONDER_ROLE
from postroad.wire.soap import SoapVersion

_VERSION = SoapVersion.SOAP_12
_ROOT_ID = "envelope@buyer.example"
_BOUNDARY = "postroad-3f2a9c71d04e"
_ORDER = b"""<?xml version="1.0" encoding="UTF-8"?>
<Order xmlns="urn:example:order">
  <ID>PO-4711</ID>
  <Line><Item>Copper wire, 2 mm</Item><Quantity unit="m">2500</Quantity></Line>
  <Line><Item>Terminal block, 4 way</Item><Quantity unit="pc">120</Quantity></Line>
</Order>
"""


@dataclass(frozen=True, slots=True)
class Company:
    """Buyer and seller with an authority that both trust."""

    authority: KeyPair
    buyer: KeyPair
    seller: KeyPair
    expired: KeyPair
    stranger: KeyPair


def found_companies(now: datetime) -> Company:
    day = timedelta(days=1)
    authority = make_authority("Demo authority", now=now - 400 * day)
    other = make_authority("Demo authority", now=now - 400 * day)
    begin, end = now - day, now + 365 * day
    return Company(
        authority,
        issue(authority, "buyer", begin=begin, end=end),
        issue(authority, "seller", begin=begin, end=end),
        issue(authority, "buyer", begin=now - 300 * day, end=now - day),
        issue(other, "buyer", begin=begin, end=end),
    )


def order_message(now: datetime) -> UserMessage:
    return UserMessage(
        MessageInfo(now, f"order-4711-{now:%Y%m%d%H%M%S}@buyer.example"),
        Party((PartyId("urn:example:buyer"),), INITIATOR_ROLE),
        Party((PartyId("urn:example:seller"),), RESPONDER_ROLE),
        CollaborationInfo(Service("urn:example:purchasing"), "NewOrder", "conversation-4711"),
        (Property("originalSender", "urn:example:buyer"),),
        (
            PartInfo(
                cid_url("order@buyer.example"),
                (Property(MIME_TYPE, "application/xml"), Property(COMPRESSION_TYPE, GZIP)),
            ),
        ),
    )


def order_attachment() -> Attachment:
    packed = gzip.compress(_ORDER, mtime=0)
    return Attachment("order@buyer.example", BytesContent(packed), GZIP)


def http_request(envelope: bytes, attachments: list[Attachment]) -> bytes:
    """The message as one HTTP request, as a capture on the wire shows it."""
    parts = [OutgoingPart(one.content_id, one.media_type, one.content) for one in attachments]
    kind = multipart_content_type(
        boundary=_BOUNDARY, root_id=_ROOT_ID, root_type=_VERSION.media_type
    )
    length = multipart_length(
        envelope, parts, boundary=_BOUNDARY, root_id=_ROOT_ID, root_type=_VERSION.media_type
    )
    head = (
        "POST /msh HTTP/1.1\r\nHost: seller.example\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    )
    body = write_multipart(
        envelope, parts, boundary=_BOUNDARY, root_id=_ROOT_ID, root_type=_VERSION.media_type
    )
    return head.encode() + b"".join(body)


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    story: str
    message: bytes
    holds: bool


def examples(companies: Company, now: datetime) -> list[Example]:
    """One good message, and what an attacker or an accident makes of it."""

    def send(
        signer: KeyPair = companies.buyer,
        signed: Callable[[UserMessage], UserMessage] = lambda message: message,
    ) -> bytes:
        message = signed(order_message(now))
        header = write_messaging(Messaging((message,), id="_messaging"), _VERSION)
        made = secure(
            _VERSION,
            [Block("_messaging", header)],
            [order_attachment()],
            signing=Signing(signer, RSA_SHA256),
            encryption=Encryption(companies.seller.certificate),
            entropy=os.urandom,
            lifetime=Lifetime(now, timedelta(hours=1)),
        )
        return http_request(made.envelope, list(made.attachments))

    good = send()
    return [
        Example("good", "signed by the buyer, encrypted for the seller, compressed", good, True),
        Example(
            "other-party",
            "somebody changed who the order is from",
            good.replace(b"<eb:PartyId>urn:example:buyer", b"<eb:PartyId>urn:example:mouse"),
            False,
        ),
        Example(
            "other-order",
            "somebody flipped one bit of the encrypted order",
            _flip_last_payload_bit(good),
            False,
        ),
        Example(
            "wrapped",
            "the signed header was moved aside and a forged one put in its place",
            _wrap(good),
            False,
        ),
        Example(
            "no-signature",
            "the signature was cut out",
            _without(good, b"<ds:Signature ", b"</ds:Signature>"),
            True,
        ),
        Example(
            "expired", "signed with a certificate that expired", send(companies.expired), False
        ),
        Example(
            "stranger",
            "signed with a certificate of the same name by another authority",
            send(companies.stranger),
            False,
        ),
        Example(
            "missing-part",
            "the header promises a second attachment that is not there",
            send(
                signed=lambda message: replace(
                    message, part_infos=(*message.part_infos, PartInfo("cid:drawing@buyer.example"))
                )
            ),
            False,
        ),
    ]


def _flip_last_payload_bit(message: bytes) -> bytes:
    at = message.rindex(b"\r\n--" + _BOUNDARY.encode()) - 20
    return message[:at] + bytes((message[at] ^ 1,)) + message[at + 1 :]


def _without(message: bytes, begin: bytes, end: bytes) -> bytes:
    start = message.index(begin)
    return message[:start] + message[message.index(end) + len(end) :]


def _wrap(message: bytes) -> bytes:
    start = message.index(b"<eb:Messaging")
    end = message.index(b"</eb:Messaging>") + len(b"</eb:Messaging>")
    original = message[start:end]
    forged = original.replace(b'Id="_messaging"', b'Id="_forged"').replace(b"NewOrder", b"Refund")
    return (
        message[:start]
        + b'<w:Aside xmlns:w="urn:example:aside">'
        + original
        + b"</w:Aside>"
        + forged
        + message[end:]
    )
