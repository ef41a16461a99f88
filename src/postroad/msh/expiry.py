"""When a message on its way expires, by headers that are for others (Part 2, 2.5.6)."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from postroad.wire import xml
from postroad.wire.ebms3_user_messages import parse_timestamp
from postroad.wire.names import WSR, WSSE, WSU
from postroad.wire.soap import Envelope

_PLACES: Final = {
    f"{{{WSSE}}}Security": f"{{{WSU}}}Timestamp/{{{WSU}}}Expires",
    f"{{{WSR}}}Request": f"{{{WSR}}}ExpiryTime",
}


def expires_at(envelope: Envelope) -> datetime | None:
    """The earliest that a wsu:Timestamp or wsr:Request says. [P2-2.5.6-21] [P2-2.5.6-22]"""
    return min(_times(envelope), default=None)


def _times(envelope: Envelope) -> Iterator[datetime]:
    for block in envelope.blocks:
        place = _PLACES.get(str(block.element.tag))
        for element in block.element.iterfind(place) if place is not None else ():
            try:
                yield parse_timestamp(xml.text(element))[0]
            except ValueError:
                # Whoever the header is for will say so.
                continue
