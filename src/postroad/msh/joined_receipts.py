"""The receipt for a joined message: digests of its parts, which no signature of its own has made.

Fragments are signed, the message that they make is not (Part 2, 4.4.2). So who received it takes
the digests itself: of eb:Messaging, of a Body with content, and of each attachment as it is, which
were taken anyway while the message was cut. Who sent it holds the receipt against the same.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from lxml import etree

from postroad.msh.lens import Inspection
from postroad.security.algorithms import SHA256
from postroad.security.attachments import Attachment
from postroad.wire.ebms3 import Reference, SignalMessage, Transform
from postroad.wire.ebms3_reader import find_messaging
from postroad.wire.mime_headers import cid_url
from postroad.wire.names import EXC_C14N, WSU
from postroad.wire.soap import Envelope
from postroad.wire.xml import canonical

_EXCLUSIVE: Final = (Transform(EXC_C14N),)


def part_references(envelope: Envelope, attachments: Iterable[Attachment]) -> tuple[Reference, ...]:
    """The digests of a message as a whole, at either end. [P2-4.4.2-20]"""
    messaging = find_messaging(envelope)
    elements = [] if messaging is None else [messaging]
    if len(envelope.body):
        elements.append(envelope.body)
    return (
        *(_element(one, id) for one in elements if (id := _id(one)) is not None),
        *(Reference(cid_url(one.content_id), (), SHA256, _digest(one)) for one in attachments),
    )


def received_references(found: Inspection, signal: SignalMessage) -> tuple[Reference, ...]:
    """What a receipt is held against: the digests of the signature, or those of the parts.

    The latter where nothing is signed and the receipt has digests: the message went in fragments.
    """
    if found.verification is not None:
        return found.verification.signed_references
    proof = signal.receipt.non_repudiation if signal.receipt is not None else None
    if proof is None or found.envelope is None:
        return ()
    return part_references(found.envelope, found.attachments.values())


def _id(element: etree._Element) -> str | None:
    return element.get(f"{{{WSU}}}Id") or element.get("id")


def _element(element: etree._Element, id: str) -> Reference:
    return Reference(f"#{id}", _EXCLUSIVE, SHA256, sha256(canonical(element)).digest())


def _digest(attachment: Attachment) -> bytes:
    if attachment.sha256 is not None:
        return attachment.sha256
    state = sha256()
    for chunk in attachment.content.chunks():
        state.update(chunk)
    return state.digest()
