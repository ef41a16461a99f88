"""From a message with a fragment to its arrival, and from a whole group to its message.

A joined message is taken apart as if it had come whole. Where it is not compressed its large parts
are slices of the fragments' data, so that nothing is copied.
"""

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from postroad.msh.capture import Capture, Incoming
from postroad.msh.fragment_group import Arrival, Group, header_of
from postroad.msh.fragment_structure import has_fragment_header, structure_problems
from postroad.msh.lens import Inspection
from postroad.wire.codings import Damaged, decoded, decoded_at_most
from postroad.wire.content import Content, NewSink, Slice
from postroad.wire.ebms3 import Messaging, UserMessage
from postroad.wire.errors import EbmsError
from postroad.wire.fragments import MESSAGE_FRAGMENT, group_id_of
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime import Part
from postroad.wire.mime_headers import ContentType, content_id_of
from postroad.wire.soap import SoapVersion

Aside = Callable[[Iterator[bytes]], Iterator[bytes]]
"""Gives the same pieces, made where it likes."""
_JOINED: Final = "the joined message"


def is_fragment(found: Inspection) -> bool:
    """Whether it says that it is a fragment, however badly. [P2-4.3.2-01]"""
    return found.envelope is not None and has_fragment_header(found.envelope)


def group_ids(found: Inspection) -> list[str]:
    """The groups that a message names, whatever else may be wrong with it."""
    blocks = found.envelope.blocks if found.envelope is not None else ()
    named = (group_id_of(block) for block in blocks if block.element.tag == MESSAGE_FRAGMENT)
    return [one for one in named if one is not None]


def arrival_of(found: Inspection) -> Arrival | None:
    """The fragment of a message that was looked at; None when it holds none that can be read."""
    fragment, messaging, envelope = found.fragment, found.messaging, found.envelope
    if fragment is None or messaging is None or envelope is None or not messaging.user_messages:
        return None
    data = found.attachments.get(content_id_of(fragment.href) or "")
    parts = found.capture.attachments if found.capture is not None else ()
    return Arrival(
        messaging.user_messages[0],
        fragment,
        envelope.version.number,
        data.content.size if data is not None else 0,
        tuple(structure_problems(fragment.href, parts, envelope.body, messaging)),
    )


def joined_content_type(group: Group) -> str:
    """The Content-Type of the source message. [P2-4.2.3-01]"""
    header = group.message_header
    if header is None:
        raise ValueError("the group has no MessageHeader")
    params = [
        ("type", header.type),
        ("start", f"<{header.start}>"),
        ("boundary", header.boundary),
    ]
    if header.start_info is not None:
        params.append(("start-info", header.start_info))
    if group.action and group.soap == SoapVersion.SOAP_12.number:
        params.append(("action", group.action))
    return str(ContentType("multipart/related", tuple(params)))


def joined_pieces(group: Group, data: Content, limits: Limits = DEFAULT) -> Iterator[bytes]:
    """The source message in pieces; EBMS:0055 when it cannot be decompressed, or is a bomb.

    `data` is that of all fragments in their order. [P2-4.3.2-13, P2-4.6-17]
    """
    if not group.compressed or group.algorithm is None:
        yield from data.chunks()
        return
    size = 0
    try:
        for piece in decoded(group.algorithm, data.chunks()):
            size += len(piece)
            # The data may grow while it is read, and with it what may come of it.
            most = min(decoded_at_most(data.size, limits), limits.message_bytes)
            if size > most:
                raise Damaged(f"it grows to more than {most} bytes from {data.size}")
            yield piece
    except Damaged as damage:
        said = f"{_JOINED} cannot be decompressed: {damage}"
        raise EbmsError("EBMS:0055", said, location=_JOINED, ref=group.first_message_id) from None
    # The schema and the text disagree on whether MessageSize is taken before or after compression.
    if group.message_size not in (None, size, data.size):
        said = f"{_JOINED} decompresses to {size} bytes, MessageSize says {group.message_size}"
        raise EbmsError("EBMS:0055", said, location=_JOINED, ref=group.first_message_id)


def capture_joined(
    group: Group,
    data: Content,
    *,
    new_sink: NewSink,
    limits: Limits = DEFAULT,
    aside: Aside = iter,
) -> Capture:
    """The source message, cut into its parts; EbmsError when that cannot be done.

    `aside` may decompress elsewhere, while what came of it is cut here. [P2-4.3.2-15]
    """
    if group.compressed:
        return _captured(group, data, new_sink, limits, aside)
    capture = _captured(group, data, _Nowhere, limits)
    passed = [part for part in capture.attachments if isinstance(part.content, _Passed)]
    if any(part.begin is None for part in passed):
        # A large part in a transfer encoding: it has to be written down decoded.
        return _captured(group, data, new_sink, limits)
    return replace(capture, attachments=tuple(_in_place(one, data) for one in capture.attachments))


def _captured(
    group: Group, data: Content, new_sink: NewSink, limits: Limits, aside: Aside = iter
) -> Capture:
    incoming = Incoming(joined_content_type(group), new_sink=new_sink, limits=limits)
    try:
        for piece in aside(joined_pieces(group, data, limits)):
            incoming.feed(piece)
    except BaseException:
        incoming.abort()
        raise
    return incoming.close()


def lying_in(data: Content, capture: Capture) -> Capture:
    """A message that was captured from other data with the same bytes."""
    moved = (
        replace(part, content=Slice(data, part.content.begin, part.size))
        if isinstance(part.content, Slice)
        else part
        for part in capture.attachments
    )
    return replace(capture, attachments=tuple(moved))


def _in_place(part: Part, data: Content) -> Part:
    if not isinstance(part.content, _Passed) or part.begin is None:
        return part
    return replace(part, content=Slice(data, part.begin, part.size))


class _Passed(Struct, frozen=True):
    """Content that was measured, and is to be read where it stands."""

    size: int

    def chunks(self) -> Iterator[bytes]:
        raise NotImplementedError("this content is read where it stands in the fragments")


class _Nowhere:
    """A sink that keeps nothing."""

    def __init__(self) -> None:
        self._size = 0

    def write(self, data: bytes | memoryview, /) -> None:
        self._size += len(data)

    def finish(self) -> Content:
        return _Passed(self._size)

    def discard(self) -> None:
        pass


def header_mismatch(group: Group, messaging: Messaging | None, soap: str) -> EbmsError | None:
    """In what the joined message contradicts the header that its fragments copied.

    Every property that they copied is in it, unchanged. [P2-4.3.2-14, P2-4.6-15]
    """
    message = next(iter(messaging.user_messages), None) if messaging is not None else None
    copied = group.header
    if message is None or copied is None:
        said = "the joined message has no eb:UserMessage, its fragments have one"
    elif soap != group.soap:
        said = f"the joined message is in SOAP {soap}, its fragments are in {group.soap}"
    else:
        different = _differences(copied, header_of(message))
        if not different:
            return None
        said = f"the joined message differs from its fragments in {', '.join(different)}"
    return EbmsError("EBMS:0053", said, location=_JOINED, ref=group.first_message_id)


def _differences(copied: UserMessage, source: UserMessage) -> list[str]:
    compared = {
        "eb:MessageInfo": copied.message_info == source.message_info,
        "eb:From": copied.from_party == source.from_party,
        "eb:To": copied.to_party == source.to_party,
        "eb:CollaborationInfo": copied.collaboration_info == source.collaboration_info,
        "eb:MessageProperties": set(copied.properties) <= set(source.properties),
        "@mpc": copied.effective_mpc == source.effective_mpc,
    }
    return [name for name, same in compared.items() if not same]
