"""One message by its id, where several senders may have used that id."""

from postroad.node.service import Refused
from postroad.store.interface import Reader
from postroad.store.qualified import is_qualified
from postroad.store.records import Message, Side


def one_of(reader: Reader, side: Side, message_id: str, cursor: int | None) -> Message | None:
    """Return the message with an id, or None; with a cursor only the one that has it.

    `Refused` when there are several, and no cursor.
    """
    if is_qualified(message_id):
        return reader.message(side, message_id)
    known = reader.messages_of_id(side, message_id)
    if cursor is not None:
        known = [one for one in known if one.key == cursor]
    if len(known) < 2:
        return known[0] if known else None
    told = ", ".join(f"{one.key} (from {one.from_party}, P-Mode {one.pmode})" for one in known)
    said = f"{len(known)} messages were received under the id {message_id}"
    raise Refused(409, f"{said}. Choose one with cursor: {told}")
