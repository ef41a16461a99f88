"""The structure of a message fragment (Part 2, 4.3.1 and 4.6)."""

from collections.abc import Iterable, Iterator

from lxml import etree

from postroad.msh.fragment_group import PLACE
from postroad.security.attachments import signed_form
from postroad.wire.ebms3 import Messaging
from postroad.wire.errors import EbmsError
from postroad.wire.fragments import MESSAGE_FRAGMENT
from postroad.wire.mime import Part
from postroad.wire.mime_headers import content_id_of
from postroad.wire.soap import Envelope


def has_fragment_header(envelope: Envelope) -> bool:
    """Whether the message has an mf:MessageFragment header, well-formed or not. [P2-4.3.2-01]"""
    return any(block.element.tag == MESSAGE_FRAGMENT for block in envelope.blocks)


def structure_problems(
    href: str,
    parts: Iterable[Part],
    body: etree._Element,
    messaging: Messaging,
    *,
    envelope_only: bool = False,
) -> Iterator[EbmsError]:
    """Find what breaks the structure of a fragment: EBMS:0047 for each.

    A fragment is an envelope with one user message and an empty Body, and one part of octets that
    href names. With `envelope_only` the parts were not captured, and are not judged. [P2-4.6-09]
    """

    def bad(said: str) -> EbmsError:
        return EbmsError("EBMS:0047", said, location=PLACE)

    if not envelope_only:
        wanted = content_id_of(href)
        named = [part for part in parts if part.content_id == wanted]
        others = [part for part in parts if part.content_id != wanted]
        if not named:
            yield bad(f"href is {href[:200]}, and no part has this Content-ID")
        if others or len(named) > 1:
            yield bad("there are other parts beside the envelope and the data")
        for part in named[:1]:
            media_type = part.content_type.media_type
            if signed_form(media_type) != "octets":
                yield bad(f"the data is {media_type}, not application/octet-stream")
    if len(body) or (body.text or "").strip():
        yield bad("the Body of a fragment is not empty")
    if len(messaging.units) != 1:
        yield bad("a fragment holds one user message, and no other unit")
