"""What this node remembers of sequences of PullRequests, kept by the store like others."""

from datetime import datetime

from msgspec import Struct

from postroad.node.steps.wsrm_states import created, read_state, write_state
from postroad.reliability import wsrm
from postroad.reliability.wsrm import Destination, Source
from postroad.store.interface import Reader, Transaction


class Asking(Struct, frozen=True):
    """The sequence in which this node sends PullRequests for a channel."""

    source: Source
    offered: str
    """The sequence in which messages come."""
    acks_to: str
    """Where these are acknowledged."""


class Asked(Struct, frozen=True):
    """A sequence of PullRequests that this node answers."""

    destination: Destination
    offered: str
    """The sequence in which messages are handed out."""
    creator: str
    """The fingerprint of who asked for it; empty where nobody signed."""
    in_order: bool | None = None
    """What was asked for, if anything."""
    pmode: str | None = None
    """Whose messages it brings: known from its first request, which shows who may have them."""
    answers: tuple[tuple[int, str], ...] = ()
    """Which message was the answer to which request, as far as that is remembered."""


def _asking_name(place: tuple[str, str]) -> str:
    return "~wsrm:asking:" + "\0".join(place)


def _asked_name(identifier: str) -> str:
    return f"~wsrm:asked:{identifier}"


def asking_of(reader: Reader, place: tuple[str, str]) -> Asking | None:
    return read_state(reader, _asking_name(place), Asking)


def keep_asking(
    tx: Transaction, place: tuple[str, str], record: Asking | None, now: datetime
) -> None:
    write_state(tx, _asking_name(place), record, now)


def asked_of(reader: Reader, identifier: str, now: datetime) -> Asked | None:
    """A sequence of PullRequests that is known and not past its time."""
    found = read_state(reader, _asked_name(identifier), Asked)
    return None if found is None or wsrm.has_expired(found.destination, now) else found


def keep_asked(tx: Transaction, record: Asked, now: datetime) -> None:
    write_state(tx, _asked_name(record.destination.identifier), record, now)


def keep_new_asked(tx: Transaction, record: Asked, now: datetime) -> None:
    """Store a sequence that was just created; delete the oldest unused ones beyond the limit."""
    keep_asked(tx, record, now)
    for identifier in created(tx, f"pull\0{record.creator}", record.destination.identifier, now):
        found = asked_of(tx, identifier, now)
        if found is None or not found.destination.received:
            forget_asked(tx, identifier, now)


def forget_asked(tx: Transaction, identifier: str, now: datetime) -> None:
    write_state(tx, _asked_name(identifier), None, now)
