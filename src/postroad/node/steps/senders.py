"""Find the first copy of a received message, among all messages that have its MessageId.

A MessageId is no secret, and anybody may use it. So a message is identified by its id and its
sender, as far as the sender is proven: by a signature, a user name, a TLS client certificate, or
because the message was fetched from the partner's address. A proven sender is the party in From,
whichever P-Mode it uses; by a P-Mode that lets its partner write anybody into From it is that party
in this P-Mode alone. A message that proves nothing is compared with whatever is stored under
its id, and is never stored beside another.
"""

from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.node.base.context import Context
from postroad.node.steps.arrival import Arrival
from postroad.store.interface import Reader
from postroad.store.qualified import qualified_id
from postroad.store.records import Message, Offer, Side, State, Work
from postroad.wire.ebms3 import UserMessage


def is_proven(context: Context, arrival: Arrival, match: Match) -> bool:
    """Whether it is proven who sent a message that meets all demands of its P-Mode."""
    fetched = arrival.pulled is not None or arrival.is_response
    return fetched or context.in_force.taking(match).proves


def stored_as(
    context: Context, reader: Reader, arrival: Arrival, message: UserMessage, match: Match
) -> tuple[str, Message | None]:
    """Return the id under which a message is or will be stored, and what is stored under it.

    What is stored is the first copy, a message that was rejected and may be replaced, or, where
    nothing proves who sent the new message, somebody else's message, which it contradicts.
    """
    message_id = message.message_info.message_id
    known = {one.message_id: one for one in reader.messages_of_id(Side.RECEIVING, message_id)}
    if not known:
        return message_id, None
    sender, proven = str(message.from_party), is_proven(context, arrival, match)
    taken = [one for one in known.values() if one.state is not State.REJECTED]
    named = context.in_force.taking(match).names_sender
    for one in taken:
        if _is_from(context, one, sender, match, proven=proven and named):
            return one.message_id, one
    if taken and not proven:
        return taken[0].message_id, taken[0]
    first = known.get(message_id)
    if not taken or (first is not None and first.state is State.REJECTED):
        return message_id, first
    stored_id = qualified_id(message_id, sender if named else f"{sender}\n{match.pmode.id}")
    return stored_id, known.get(stored_id)


def _is_from(context: Context, known: Message, sender: str, match: Match, *, proven: bool) -> bool:
    """Whether a stored message is of the sender of a new one.

    By the same P-Mode it is, also if the P-Mode asked for no proof when the first one came.
    """
    if known.from_party != sender:
        return False
    if (known.pmode, known.leg) == (match.pmode.id, match.number):
        return True
    before = context.in_force.match(known.pmode, known.leg)
    named = before is None or context.in_force.taking(before).names_sender
    return proven and not known.unproven and named


def stored_message(message: UserMessage, stored_id: str) -> UserMessage:
    """Return a message under the id under which it is stored."""
    info = message.message_info
    if info.message_id == stored_id:
        return message
    return changed(message, message_info=changed(info, message_id=stored_id))


def about_stored(back: Work | Offer | None, stored_id: str) -> Work | Offer | None:
    """Return the work or the offer of an answer, about the message that is stored under an id."""
    if isinstance(back, Work):
        return changed(back, message_id=stored_id)
    if isinstance(back, Offer):
        return changed(back, about=stored_id)
    return back
