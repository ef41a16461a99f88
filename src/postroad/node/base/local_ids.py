"""The ids under which received messages are kept.

That is the MessageId, unless another sender's message has it already: then the sender is part of
the id, as a fingerprint in angle brackets. No MessageId on the wire holds any, so nobody can send
a message under such an id.
"""

import hashlib


def kept_aside(message_id: str, sender: str) -> str:
    """The id of a sender's message whose MessageId somebody else's message has here."""
    return f"{message_id}<{hashlib.sha256(sender.encode()).hexdigest()[:16]}>"


def is_aside(kept: str) -> bool:
    """Whether a message is kept under an id with its sender in it."""
    return kept.endswith(">")


def wire_id(kept: str) -> str:
    """The MessageId of a message by the id that it is kept under."""
    return kept.rpartition("<")[0] if is_aside(kept) else kept
