"""Two-way exchanges: which leg a message is, and that a reply answers one request, once.

A request refers to no other message; its reply refers to it (Core 2.2). The request remembers its
reply (`Message.reply_message_id`), at both ends.
"""

from datetime import datetime
from typing import Final

from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.agreement.places import alternate_of, is_response
from postroad.msh.answers import receipt_is_response, sent_message, wants_receipt
from postroad.node.base.context import Context
from postroad.node.service import Refused, Submission
from postroad.node.settings.in_force import Sending
from postroad.node.steps.hearing import Hearing
from postroad.store.interface import Reader, Transaction
from postroad.store.records import INBOX, Message, Side, State, Work
from postroad.wire.content import read_all
from postroad.wire.ebms3 import Party, UserMessage
from postroad.wire.errors import EbmsError
from postroad.wire.names import TWO_WAY

_NOT_SENT: Final = (State.FAILED, State.EXPIRED)
_ANSWERED: Final = (State.ACKNOWLEDGED, State.SENT)
_PLACE: Final = "eb:MessageInfo/eb:RefToMessageId"


class Overtaken(Exception):
    """The request was given up waiting for while its reply was made: it goes another way now."""


def reply_to(context: Context, request: Message, given: Submission) -> Submission:
    """What an application answers to a message, as a submission.

    It refers to the message and is of its conversation. Of a one-way exchange nobody knows what
    P-Mode the way back has.
    """
    name = request.wire_id
    if given.ref_to_message_id not in (None, name):
        raise Refused(400, f"a reply to {name} refers to it: leave ref_to_message_id out")
    pmode = given.pmode
    if not pmode:
        if context.in_force.match(request.pmode, 2) is None:
            said = "a reply goes with another one, which you have to name: pmode"
            raise Refused(
                422, f"{name} was received with {request.pmode}, which is one-way; {said}"
            )
        pmode = request.pmode or ""
    conversation = given.conversation_id
    if conversation is None:
        conversation = request.conversation_id
    return changed(
        given,
        pmode=pmode,
        ref_to_message_id=name,
        conversation_id=conversation,
        answers=request.message_id,
    )


async def leg_of(context: Context, submission: Submission) -> tuple[Sending, Message | None]:
    """How a submission is sent, and the request that it answers, if it is a reply.

    Where this party is both sides, the reference decides. `Refused` says what is to be done.
    """
    in_force, name, ref = context.in_force, submission.pmode, submission.ref_to_message_id
    first, second = in_force.match(name, 1), in_force.match(name, 2)
    if first is None or second is None:
        return in_force.sending(name), None
    if ref is None:
        if not in_force.sends(first) and in_force.sends(second):
            said = "name the request that this one answers: ref_to_message_id"
            raise Refused(422, f"with {name} only replies are sent from here; {said}")
        return in_force.sending(name), None
    if not in_force.sends(second):
        said = "which refer to no other message: leave ref_to_message_id out"
        raise Refused(422, f"with {name} only requests are sent from here, {said}")
    if submission.test:
        raise Refused(422, f"a test message reaches no application, and cannot answer {ref}")
    stored_id = submission.answers
    known = await context.store.look(
        lambda reader: [
            one
            for one in reader.messages_of_id(Side.RECEIVING, ref)
            if stored_id in (None, one.message_id)
        ]
    )
    if not known:
        raise Refused(404, f"there is no request {ref}: nothing was received under that id")
    known = [one for one in known if one.pmode == name] or known
    if len(known) > 1:
        said = "reply to one of them in the inbox, which you choose by its cursor"
        raise Refused(409, f"{len(known)} messages were received under the id {ref}; {said}")
    request = known[0]
    _check(request, second, submission.conversation_id)
    return in_force.sending(name, 2, late=request.late), request


def _check(request: Message, reply: Match, conversation: str | None) -> None:
    """`Refused` when a message cannot be answered with a P-Mode's second leg."""
    name, pmode = request.wire_id, reply.pmode
    if request.pmode != pmode.id:
        said = f"{name} was received with {request.pmode or 'no P-Mode'}, not with {pmode.id}"
        raise Refused(422, f"{said}; answer it with its own P-Mode")
    if request.leg != 1:
        raise Refused(422, f"{name} is a reply itself, and is not answered")
    if request.state not in INBOX:
        raise Refused(409, f"{name} is {request.state.value}: only what was delivered is answered")
    if conversation is not None and conversation != request.conversation_id:
        said = f"the conversation of {name} is {request.conversation_id}"
        raise Refused(422, f"{said}, and its reply belongs to it: leave conversation_id out")
    if request.late and alternate_of(pmode) is None:
        said = "its sender waited for the response no longer, and no alternate binding is agreed on"
        raise Refused(409, f"the reply to {name} comes too late: {said}")


def partner_of(context: Context, request: Message) -> Party:
    """Who sent a request: its reply goes there, also where the P-Mode names nobody."""
    assert request.envelope is not None
    kept = read_all(context.store.content(request.envelope), request.envelope.size)
    return sent_message(kept, context.limits).user_message.from_party


def request_of(reader: Reader, reply: Message) -> Message | None:
    """Return the received message that a reply answers; None: it answers none that is known.

    Where several senders used its MessageId, that one counts which the reply's P-Mode and receiver
    fit, and one whose sender is proven before others.
    """
    if reply.ref_to_message_id is None:
        return None

    def fits(one: Message) -> tuple[bool, bool, bool]:
        return one.pmode == reply.pmode, one.from_party == reply.to_party, not one.unproven

    known = reader.messages_of_id(Side.RECEIVING, reply.ref_to_message_id)
    return max(known, key=fits, default=None)


def answer(tx: Transaction, reply: Message) -> None:
    """Note at a request what answers it.

    `Refused` when something does already; `Overtaken` when it is no longer waited for.
    """
    ref = reply.ref_to_message_id or ""
    request = request_of(tx, reply)
    if request is None:
        raise Refused(404, f"there is no request {ref} any more")
    before = request.reply_message_id
    given = tx.message(Side.SENDING, before) if before is not None else None
    # Of a reply that was removed nobody knows any more how it ended.
    if before is not None and (given is None or given.state not in _NOT_SENT):
        raise Refused(409, f"{ref} was answered already, by {before}; it has one reply")
    if request.late is not reply.late:
        raise Overtaken
    tx.change_message(
        Side.RECEIVING, request.message_id, (request.state,), reply_message_id=reply.message_id
    )


def is_reply(match: Match) -> bool:
    """Whether a message answers a request; a test message, which no application gets, does not."""
    return match.number == 2 and match.pmode.mep == TWO_WAY and not match.test


def uncorrelated(tx: Transaction, message: UserMessage, match: Match) -> EbmsError | None:
    """Why a reply that came answers none of our requests; None: it does, or it is no reply."""
    if not is_reply(match):
        return None
    info = message.message_info
    ref = info.ref_to_message_id or ""
    request = tx.message(Side.SENDING, ref)
    said = None
    if request is None:
        said = f"it answers {ref}, which was not sent from here"
    elif (request.pmode, request.leg) != (match.pmode.id, 1):
        said = f"it answers {ref}, which is no request of this P-Mode"
    elif _ids(request.to_party or "") != _ids(str(message.from_party)):
        said = f"it answers {ref}, which went to somebody else"
    elif request.reply_message_id not in (None, info.message_id):
        said = f"{ref} was answered already"
    return None if said is None else EbmsError("EBMS:0003", said[:500], location=_PLACE)


def _ids(party: str) -> frozenset[str]:
    """The identifiers of a party, which have no order among them."""
    return frozenset(party.split(", "))


def no_reply(context: Context, request: Message) -> str | None:
    """Why no reply to a message that was sent will come; None: one may come, or is there.

    A receipt that calls back says nothing of the response, which may still be on its way.
    """
    match = context.in_force.match(request.pmode, 1)
    if match is None or request.leg != 1 or request.reply_message_id is not None:
        return None
    pmode = match.pmode
    if pmode.mep != TWO_WAY:
        return f"{pmode.id} is one-way: its messages have no replies"
    waits = not is_response(pmode, 1) or alternate_of(pmode) is not None
    elsewhere = wants_receipt(match.leg) and not receipt_is_response(match.leg)
    if waits or elsewhere or request.state not in _ANSWERED:
        return None
    return "the response was there and no reply in it, and no alternate binding is agreed on"


def has_alternate(context: Context, request: Message) -> bool:
    """Whether the reply to a request may come by an alternate binding."""
    match = context.in_force.match(request.pmode, request.leg)
    return match is not None and match.number == 1 and alternate_of(match.pmode) is not None


def moved(
    context: Context, tx: Transaction, message: Message, hearing: Hearing, now: datetime
) -> None:
    """A partner says that the reply to a request comes later: note it, and fetch it then.

    [P2-5.2-07] [P2-5.2-08]
    """
    if message.side is not Side.SENDING or not hearing.moves_reply:
        return
    request = tx.message(message.side, message.message_id)
    if request is None:
        return
    if request.late or request.reply_message_id is not None or not has_alternate(context, request):
        return
    tx.change_message(Side.SENDING, request.message_id, (request.state,), late=True)
    if request.pmode in context.in_force.alternates:
        tx.add_work(Work("collect", request.message_id, now))


def replied(tx: Transaction, message: UserMessage) -> None:
    """Note at a request that its reply is there."""
    info = message.message_info
    request = tx.message(Side.SENDING, info.ref_to_message_id or "")
    assert request is not None
    tx.change_message(
        Side.SENDING, request.message_id, (request.state,), reply_message_id=info.message_id
    )
