"""Qualified ids: how received messages of several senders are told apart that have one MessageId.

The first of them is stored under its MessageId, as are all messages whose MessageId nobody else
used. Each further one is stored under a qualified id: the MessageId and a digest of its sender.
Work, signals, offers and states refer to a message by the id under which it is stored. Messages,
the journal, REST and the commands have the MessageId alone.
"""

import hashlib
from typing import Final

_SEPARATOR: Final = "\x1f"
"""No XML document can hold this character, so no MessageId has it."""


def qualified_id(message_id: str, sender: str) -> str:
    """Return the id of a sender's message whose MessageId another sender's message has."""
    return f"{message_id}{_SEPARATOR}{hashlib.sha256(sender.encode()).hexdigest()[:32]}"


def is_qualified(message_id: str) -> bool:
    return _SEPARATOR in message_id


def wire_id(message_id: str) -> str:
    """Return the MessageId of a message that is stored under an id."""
    return message_id.partition(_SEPARATOR)[0]


def columns(message_id: str) -> tuple[str, str]:
    """Return the MessageId and the sender's digest, which is empty for an id that has none."""
    wire, _, sender = message_id.partition(_SEPARATOR)
    return wire, sender
