"""Numbers that keep messages in order: given to what is sent, and looked at in what comes.

In a conversation (0.98b, 8.4.8), and over a link (draft 001). They are kept by the store, in the
step that uses them.
"""

import contextlib
from datetime import datetime

import msgspec
from msgspec.structs import replace as changed

from postroad.agreement.ebxml import is_mail
from postroad.node.base.context import Context
from postroad.node.base.own_address import own_address
from postroad.node.service import Refused
from postroad.node.settings.in_force import Sending
from postroad.reliability import order
from postroad.reliability.delivery import Stage
from postroad.reliability.link import next_number
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, State, Work

_WITHDRAWN = (Stage.FAILED, Stage.EXPIRED)
"""Ends of a message that certainly did not arrive."""


def link_of(context: Context, sending: Sending) -> str:
    """What draft 001 numbers: from our address to the partner's, so by transport too."""
    own = own_address(context, sending.match.leg, is_mail(sending.address))
    return f"link:{own}\0{sending.address}"


def link_lane(context: Context, sending: Sending) -> str:
    """The lane of all that is sent or passed on over a link, one after the other. [RM001-2.3-04]"""
    return f"send:{link_of(context, sending)}"


def conversation_of(message: Message) -> str:
    """What has numbers of its own: a conversation of two parties."""
    return f"{message.from_party}\0{message.to_party}\0{message.conversation_id}"


def _conversation(message: Message) -> str:
    return f"numbers:{conversation_of(message)}"


def numbered(
    context: Context, tx: Transaction, message: Message, sending: Sending, now: datetime
) -> order.SequenceNumber | None:
    """The number of a message whose turn has come: the one it has, or the next.

    Only one of a lane has its turn, so everything before it is acknowledged or given up.
    """
    if sending.linked:
        _over_link(context, tx, message, sending, now)
        return None
    name = _conversation(message)
    known = tx.state(name)
    numbering = msgspec.json.decode(known, type=order.Numbering) if known else order.Numbering()
    if message.sequence_number is not None:
        first = message.sequence_number == 0 and numbering.position == 1
        status = order.Status.RESET if first else order.Status.CONTINUE
        return order.SequenceNumber(message.sequence_number, status)
    number, numbering = order.number_next(numbering, 0)
    tx.set_state(name, msgspec.json.encode(numbering), now)
    _note(tx, message, number.value)
    return number


def _over_link(
    context: Context, tx: Transaction, message: Message, sending: Sending, now: datetime
) -> None:
    """[RM001-2.2.3-06] [RM001-2.3-04]"""
    if message.sequence_number is None:
        _note(tx, message, _next_over_link(context, tx, sending, now))


def unacknowledged_name(message_id: str) -> str:
    """Under which a message is remembered that is passed on once its acknowledgement has gone."""
    return f"~unacknowledged:{message_id}"


def forward_over_link(context: Context, kept: Message, sending: Sending, now: datetime) -> Work:
    """The work of passing a message on over a link."""
    lane, partner = link_lane(context, sending), sending.destination(kept)
    return Work("forward", kept.message_id, now, partner=partner, lane=lane)


def acknowledgement_gone(context: Context, tx: Transaction, message_id: str, now: datetime) -> None:
    """The transfer from the previous hop is complete, or given up: now the next one begins.

    [RM001-4.1-01]
    """
    if tx.state(unacknowledged_name(message_id)) is None:
        return
    tx.set_state(unacknowledged_name(message_id), None, now)
    kept = tx.message(Side.FORWARDING, message_id)
    if kept is None:
        return
    work = Work("forward", message_id, now, partner=kept.partner)
    with contextlib.suppress(Refused):
        sending = context.in_force.forwarding(kept.pmode or "", kept.leg)
        work = forward_over_link(context, kept, sending, now)
    tx.add_work(work)


def numbered_on(
    context: Context, tx: Transaction, message: Message, sending: Sending, now: datetime
) -> Message:
    """A message that is passed on over a link, with its number there, when its turn has come.

    Messages of our own may go over the same link: all of them wait in its lane.
    """
    found = tx.message(message.side, message.message_id) or message
    if found.sequence_number is not None or found.best_effort:
        return found
    number = _next_over_link(context, tx, sending, now)
    tx.change_message(found.side, found.message_id, (found.state,), sequence_number=number)
    return changed(found, sequence_number=number)


def _next_over_link(context: Context, tx: Transaction, sending: Sending, now: datetime) -> int:
    name = link_of(context, sending)
    known = tx.state(name)
    number = next_number(int(known) if known else None)
    tx.set_state(name, str(number).encode(), now)
    return number


def _note(tx: Transaction, message: Message, number: int) -> None:
    tx.change_message(Side.SENDING, message.message_id, (State.SUBMITTED,), sequence_number=number)


def given_up(
    context: Context,
    tx: Transaction,
    message: Message,
    stage: Stage,
    not_received: bool,
    never_left: bool,
    now: datetime,
) -> None:
    """A message that certainly did not arrive gives its number back, and leaves no hole."""
    if message.sequence_number is None:
        return
    doubtful = stage is Stage.IN_DOUBT and message.side is Side.FORWARDING
    over = stage in _WITHDRAWN or (stage is Stage.SETTLED and not_received)
    if not over and not doubtful:
        return
    with contextlib.suppress(Refused):
        sending = context.in_force.forwarding(message.pmode or "", message.leg)
        if sending.linked:
            # Whether the Receiver counted a refused number nobody knows: it always takes 1.
            tx.set_state(link_of(context, sending), None, now)
            return
    if not over or message.side is Side.FORWARDING:
        return
    name = _conversation(message)
    known = tx.state(name)
    if known is None:
        return
    given = msgspec.json.decode(known, type=order.Numbering)
    if never_left:
        numbering = order.withdraw(given, order.SequenceNumber(message.sequence_number))
    else:
        # Of what left nobody is quite sure: the next one begins with a Reset, which is always
        # taken. All that was sent before it is acknowledged, as one at a time has its turn.
        numbering = order.reset(given, 0)
    tx.set_state(name, msgspec.json.encode(numbering), now)
