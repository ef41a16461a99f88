"""Groups of fragments as a node keeps them, and how much room they may take."""

from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from postroad.agreement.matching import Match
from postroad.agreement.splitting import splitting_terms
from postroad.msh.fragment_group import Arrival, Group, Standing, Terms, sender_of
from postroad.node.base.context import Context
from postroad.node.service import Arriving
from postroad.store.fragments import StoredGroup
from postroad.store.interface import Reader, Transaction
from postroad.wire.ebms3 import UserMessage

_ENDED: Final = (Standing.JOINED, Standing.REJECTED)
_MOST_GROUPS: Final = 100_000


class KeptGroup(Struct, frozen=True):
    """A group, and what the node needs beside it to join its message."""

    group: Group
    began: datetime
    """When the first fragment came."""
    pmode: str
    leg: int
    peer: str | None = None
    pulled: bool = False
    work: int = 0
    """What joins them, or gives them up."""


class _Taken(Struct, frozen=True):
    """What a group takes of the disk, read without the rest."""

    size: int = 0
    reserved: int = 0


class _Sizes(Struct, frozen=True):
    group: _Taken


_decode: Final = msgspec.json.Decoder(KeptGroup).decode
_sizes: Final = msgspec.json.Decoder(_Sizes).decode


def kept_group(stored: StoredGroup) -> KeptGroup:
    return _decode(stored.details)


def new_group(message: UserMessage, match: Match, group_id: str) -> Group:
    """A group of which nothing is known: each P-Mode has GroupIds of its own.

    Who needs no signature by one can thus neither end nor forestall what is signed by another.
    """
    return Group(sender_of(message), group_id, space=f"{match.pmode.id}/{match.number}")


def group_there(reader: Reader, key: tuple[str, str]) -> KeptGroup | None:
    stored = reader.fragment_group(*key)
    return None if stored is None else kept_group(stored)


def arriving(reader: Reader, limit: int) -> list[Arriving]:
    """The messages of which some fragments are there."""
    return [_arriving(kept_group(one)) for one in reader.fragment_groups(None, limit)]


def _arriving(kept: KeptGroup) -> Arriving:
    group, header = kept.group, kept.group.header
    return Arriving(
        group.group_id,
        str(header.from_party) if header is not None else "",
        kept.pmode,
        header.collaboration_info.conversation_id if header is not None else "",
        group.count,
        group.received,
        group.compressed_size or group.message_size,
        group.size,
        kept.began,
        group.until,
        kept.peer,
    )


def keep_group(tx: Transaction, kept: KeptGroup, now: datetime) -> None:
    """What is known of a group from now on."""
    group = kept.group
    ended = group.standing in _ENDED
    to_come = max(group.reserved - group.size, 0)
    details = msgspec.json.encode(kept)
    tx.set_fragment_group(StoredGroup(*group.key, now, ended, to_come, details))


def terms_of(context: Context, match: Match) -> Terms | None:
    """What was agreed about fragments, and what this node bears; None: none are taken."""
    agreed = splitting_terms(match.leg)
    if agreed is None:
        return None
    return Terms(
        agreed.join_interval,
        agreed.fragment_size,
        agreed.routing_properties,
        agreed.algorithm,
        context.config.joining.fragments,
        context.limits.message_bytes,
    )


def room_for(
    context: Context, reader: Reader, group: Group, came: Arrival, free: int | None
) -> int | None:
    """How many bytes a group may have in all; None: as many as a message. [P2-4.3.2-10]

    `free` is what is left of the disk, on which the data that came lies already. What other groups
    still wait for is theirs.
    """
    settings = context.config.joining
    room = []
    if free is not None:
        own = group.size + came.size
        others = reader.bytes_to_come() - max(group.reserved - group.size, 0)
        room.append(free + own - others - settings.reserve)
    if settings.quota is not None:
        groups = _beside(reader, group)
        sizes = [_sizes(one.details).group for one in groups if one.group_id != group.key[1]]
        room.append(settings.quota - sum(max(one.size, one.reserved) for one in sizes))
    return max(min(room), 0) if room else None


def is_crowded(context: Context, reader: Reader, group: Group) -> bool:
    """Whether a sender has as many groups of a P-Mode under way as it may."""
    return len(_beside(reader, group)) >= context.config.joining.groups


def _beside(reader: Reader, group: Group) -> list[StoredGroup]:
    """Return the groups under way of the same sender and P-Mode.

    Those of another P-Mode do not count: it may ask for no proof, so that anybody could use up the
    room of a sender who signs.
    """
    groups = reader.fragment_groups(group.sender, _MOST_GROUPS)
    return [one for one in groups if one.group_id.startswith(f"{group.space}\n")]
