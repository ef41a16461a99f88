"""Messages in their channels: put there, given room, and ended where nobody pulls them."""

from datetime import UTC, datetime
from typing import Final

from postroad.msh.selecting import items_of
from postroad.node.base.journaling import about
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.reliability.schedule import ends_at
from postroad.store.interface import Transaction
from postroad.store.records import Message, Offer, Work
from postroad.wire.ebms3 import UserMessage

_NOT_YET: Final = datetime(9000, 1, 1, tzinfo=UTC)


def offer(tx: Transaction, message: Message, sent: UserMessage, now: datetime) -> bool:
    """Put a message into its channel; False when it is there already."""
    assert message.channel is not None
    added = Offer(
        message.channel, message.pmode or "", message.message_id, now, items_of(sent), None
    )
    if not tx.add_offer(added):
        return False
    tx.record((about(message, "queued", now),))
    return True


def reserve(tx: Transaction, message: Message) -> None:
    """A message that is still packaged takes its room in the channel, and nobody gets it yet."""
    assert message.channel is not None
    room = (message.channel, message.pmode or "", message.message_id, message.created_at)
    tx.add_offer(Offer(*room, due_at=_NOT_YET))


def is_reserved(offer: Offer, message: Message) -> bool:
    """Whether only the room is taken: it is not offered, and never was."""
    return offer.due_at is not None and message.attempts == 0


def check_room(tx: Transaction, sending: Sending) -> None:
    """`Refused` when a channel holds as much as it may."""
    channel, most = sending.channel, sending.capacity
    if channel is None or most is None or tx.queue(channel).count < most:
        return
    said = f"{most} messages wait in the channel {channel}, and it holds no more"
    raise Refused(503, f"{said}; submit it again when some were pulled", code="EBMS:0021")


def offer_work(message: Message, sending: Sending) -> Work | None:
    """The work that ends a message which nobody pulls in time; None where there is no end."""
    end = ends_at(sending.policy, message.created_at, message.first_sent_at)
    first = min([one for one in (end, needs_company_until(message, sending)) if one], default=None)
    return None if first is None else Work("offer", message.message_id, first, expires_at=end)


def needs_company_until(message: Message, sending: Sending) -> datetime | None:
    """When it is seen whether anybody can go with a message that must be bundled."""
    terms = sending.bundling
    if terms is None or terms.policy != "always" or terms.max_delay is None:
        return None
    return message.created_at + terms.max_delay
