"""A large message becomes fragments, each a message of its own (Part 2, 4.3.1 and 4.4).

The source is cut as one stream of bytes, without a look at what is in it. Nothing is copied: a
fragment's data is a slice of the source, or of its compressed form, which somebody spooled once.
So a fragment can be made again at any time, byte for byte, from the `Splitting` and its number.

What a group must say once (its count, its sizes, the MIME header of the source) is said by the
first fragment; where the end is not known when that leaves, the last one tells what it could not.
"""

import dataclasses
from collections.abc import Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from postroad.security.attachments import Attachment
from postroad.security.keyestablishment import Entropy
from postroad.security.sign import Block
from postroad.wire.content import Content, Slice
from postroad.wire.ebms3 import Messaging, UserMessage
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import EbmsError
from postroad.wire.fragments import (
    MAX_COUNT,
    TYPES,
    MessageFragment,
    MessageHeader,
    write_message_fragment,
)
from postroad.wire.mime_headers import cid_url, parse_content_type
from postroad.wire.mime_writer import XOP
from postroad.wire.multihop import RoutingInput, write_routing_input
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import Addressing, write_addressing

DATA_TYPE: Final = "application/octet-stream"
MESSAGING_ID: Final = "_messaging"
FRAGMENT_ID: Final = "_fragment"
_GROUP_BYTES: Final = 16
_ROUTING_ID: Final = "_routing"
_ADDRESSING_ID: Final = "_addressing"


class Unsplittable(ValueError):
    """The message cannot be split; the sentence says why."""


class MimeHead(Struct, frozen=True):
    """What the MIME header of a message says, and has to be said again when it is joined."""

    header: MessageHeader
    action: str | None = None
    """SOAPAction, or the action parameter."""


def mime_head(headers: Mapping[str, str]) -> MimeHead:
    """The head of a message from its header fields, named in lower case. [P2-4.2.3-01]"""
    try:
        kind = parse_content_type(headers.get("content-type", ""))
    except EbmsError as error:
        raise Unsplittable(error.detail) from None
    if kind.media_type != "multipart/related":
        raise Unsplittable(f"a message in {kind.media_type} is not split, only multipart/related")
    boundary, start = kind.get("boundary"), kind.get("start")
    root_type = (kind.get("type") or "").partition(";")[0].strip().lower()
    if not boundary or not start or root_type not in TYPES:
        raise Unsplittable("the Content-Type does not give boundary, start and a type of SOAP")
    description = headers.get("content-description")
    header = MessageHeader(
        boundary, root_type, start.strip().strip("<>"), kind.get("start-info"), description
    )
    action = kind.get("action") or headers.get("soapaction", "").strip().strip('"')
    return MimeHead(header, action or None)


class Splitting(Struct, frozen=True):
    """All that is the same for every fragment of a message."""

    group_id: str
    fragment_size: int
    head: MimeHead
    version: SoapVersion
    messaging: Messaging
    """Of the source, as far as it is copied; the MessageId is still that of the source."""
    algorithm: str | None = None
    """The coding of what is cut."""
    addressing: Addressing | None = None
    routing: RoutingInput | None = None
    streamed: bool = False
    """The first fragments leave before the end is known: the last one tells count and sizes."""
    message_size: int | None = None
    """Before compression, where that is known sooner: then the first one tells it."""

    @property
    def mtom(self) -> bool:
        """Fragments of a message of MTOM are such messages too. [P2-4.3.1-03]"""
        return self.head.header.type == XOP


class Whole(Struct, frozen=True):
    """How large everything is, once that is known."""

    size: int
    """Of what is cut: compressed, if it is."""
    message_size: int
    """Before compression."""


class Fragment(Struct, frozen=True):
    """A fragment as a message that is still to be secured."""

    number: int
    user_message: UserMessage
    message_fragment: MessageFragment
    blocks: tuple[Block, ...]
    data: Content
    data_id: str
    root_id: str

    @property
    def attachment(self) -> Attachment:
        """The one other part of the message. [P2-4.3.1-07, P2-4.3.1-08]"""
        return Attachment(self.data_id, self.data, DATA_TYPE)


def split(
    messaging: Messaging,
    head: MimeHead,
    version: SoapVersion,
    *,
    group_id: str,
    fragment_size: int,
    routing_properties: frozenset[str] = frozenset(),
    algorithm: str | None = None,
    addressing: Addressing | None = None,
    routing: RoutingInput | None = None,
    streamed: bool = False,
    message_size: int | None = None,
) -> Splitting:
    """How a message is split; `Unsplittable` when it holds a PullRequest, or no user message.

    Of eb:Messaging the first user message is copied, without PayloadInfo and with routing
    properties alone. [P2-4.4.2-06, P2-4.4.2-07, P2-4.4.2-09, P2-4.4.2-10, P2-4.4.2-11]
    """
    if any(signal.pull_request is not None for signal in messaging.signals):
        raise Unsplittable("a message with a PullRequest is never split")  # [P2-4.4.2-12]
    if not messaging.user_messages:
        raise Unsplittable("only a message with a user message is split")
    if fragment_size < 1:
        raise Unsplittable("a fragment holds at least one byte")
    copied = replace(
        messaging,
        units=(copied_header(messaging.user_messages[0], routing_properties),),
        id=MESSAGING_ID,
    )
    return Splitting(
        group_id,
        fragment_size,
        head,
        version,
        copied,
        algorithm,
        addressing,
        routing,
        streamed,
        message_size,
    )


def group_id(message_id: str, entropy: Entropy, *, made_here: bool) -> str:
    """The GroupId of a message: its id, where that was made here and nobody can guess it.

    An id that an application chose may be known to others, who could send fragments of the group.
    [P2-4.2.2-02, P2-4.4.2-13, P2-4.7-02]
    """
    return message_id if made_here else entropy(_GROUP_BYTES).hex()


def copied_header(message: UserMessage, routing_properties: frozenset[str]) -> UserMessage:
    """What of a user message its fragments say too; they only have other MessageIds."""
    kept = tuple(one for one in message.properties if one.name in routing_properties)
    return replace(message, properties=kept, part_infos=())


def fragment_count(size: int, fragment_size: int) -> int:
    """How many fragments so many bytes make."""
    if size < 1:
        raise Unsplittable("there is nothing to split")
    count = -(-size // fragment_size)
    if count > MAX_COUNT:
        raise Unsplittable(f"{size} bytes in fragments of {fragment_size} are more than can be")
    return count


def ready(written: int, fragment_size: int) -> int:
    """How many fragments can leave while more is still being written.

    The last of those that are full waits: it may be the one that tells the count.
    """
    return max(written - 1, 0) // fragment_size


def stretch(size: int, fragment_size: int, number: int) -> tuple[int, int]:
    """Where the data of a fragment begins, and its size. [P2-4.3.1-02]"""
    begin = (number - 1) * fragment_size
    return begin, min(fragment_size, size - begin)


def fragment(
    splitting: Splitting, number: int, message_id: str, source: Content, whole: Whole | None
) -> Fragment:
    """The fragment of that number, under a fresh message id; always the same for the same id.

    `source` is what is cut. `whole` is None as long as more of it comes, and must be given for the
    fragment that tells it. [P2-4.4.2-08]
    """
    size = source.size if whole is None else whole.size
    begin, length = stretch(size, splitting.fragment_size, number)
    name = sha256(message_id.encode()).hexdigest()[:32]
    said = message_fragment(splitting, number, f"{name}.data@fragment", whole)
    message = splitting.messaging.user_messages[0]
    message = replace(message, message_info=replace(message.message_info, message_id=message_id))
    messaging = replace(splitting.messaging, units=(message,))
    blocks = (
        Block(MESSAGING_ID, write_messaging(messaging, splitting.version)),
        Block(FRAGMENT_ID, write_message_fragment(said, splitting.version)),
        *_routing(splitting, message_id),
    )
    return Fragment(
        number,
        message,
        said,
        blocks,
        Slice(source, begin, length),
        f"{name}.data@fragment",
        f"{name}.envelope@fragment",
    )


def message_fragment(
    splitting: Splitting, number: int, data_id: str, whole: Whole | None
) -> MessageFragment:
    """The MessageFragment header of one fragment. [P2-4.2.2-01, P2-4.2.2-03, P2-4.3.1-12]"""
    said = MessageFragment(
        href=cid_url(data_id),
        group_id=splitting.group_id,
        fragment_num=number,
        message_size=splitting.message_size if number == 1 else None,
        message_header=splitting.head.header if number == 1 else None,
        action=splitting.head.action if number == 1 else None,
        id=FRAGMENT_ID,
    )
    count = fragment_count(whole.size, splitting.fragment_size) if whole is not None else None
    teller = (count or 0) if splitting.streamed else 1
    if number != teller:
        return said
    if whole is None or count is None:
        raise ValueError("the first fragment tells how large the whole is; it must be known")
    return dataclasses.replace(
        said,
        fragment_count=count,
        message_size=whole.message_size if splitting.message_size is None else said.message_size,
        compression_algorithm=splitting.algorithm,
        compressed_message_size=whole.size if splitting.algorithm is not None else None,
    )


def _routing(splitting: Splitting, message_id: str) -> tuple[Block, ...]:
    """Headers by which a fragment finds its way. [P2-4.4.1-01, P2-4.4.1-02, P2-4.4.1-03]"""
    blocks: list[Block] = []
    if splitting.routing is not None:
        routing = dataclasses.replace(splitting.routing, id=_ROUTING_ID)
        blocks.append(Block(_ROUTING_ID, write_routing_input(routing, splitting.version)))
    addressing = splitting.addressing
    if addressing is not None:
        if addressing.message_id is not None:
            fresh = f"mid:{quote(message_id, safe='@')}"
            addressing = dataclasses.replace(addressing, message_id=fresh)
        written = write_addressing(addressing, splitting.version, id_prefix=_ADDRESSING_ID)
        blocks += (Block(f"{_ADDRESSING_ID}-{n}", xml) for n, xml in enumerate(written, 1))
    return tuple(blocks)
