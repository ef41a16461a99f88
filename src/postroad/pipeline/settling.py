"""How doubt ends: what journals and partners say of messages that were given up.

Pure: rows and answers come in, settlements come out. Who asks partners is `pipeline.asking`; what a
partner says by another way than REST (a status request of its protocol) is a `Said` as well.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

DELIVERED: Final = "delivered"
RECEIVED: Final = "received"
NOT_RECEIVED: Final = "not_received"
JOURNAL: Final = "journal"
"""Who says it where the receiver's own journal does."""
GIVEN_UP: Final = ("in_doubt", "failed", "expired")
"""Outcomes of the sending side that leave a question, where something was transmitted."""
ON_ITS_WAY: Final = timedelta(minutes=5)
"""How long after it was last sent a message may still arrive."""


class Question(Struct, frozen=True):
    """A message that was transmitted and given up, and what the journals know of it."""

    message_id: str
    class_: str
    sender_outcome: str
    receiver_outcome: str | None
    settled_by: str | None
    party: str | None
    partner: str | None
    """For whom it is."""
    last_sent_at: datetime
    first_at: datetime
    detail: str | None


class Said(Struct, frozen=True):
    """What somebody says of a message; no answer when nobody can tell."""

    who: str
    answer: str | None
    why: str


class Settlement(Struct, frozen=True):
    """An answer that ends the doubt, or part of it."""

    message_id: str
    answer: str
    who: str
    why: str


class Open(Struct, frozen=True):
    """A question that stays one, and why."""

    message_id: str
    partner: str | None
    why: str


class Plan(Struct, frozen=True):
    settlements: tuple[Settlement, ...]
    open: tuple[Open, ...]


def by_journal(question: Question) -> Settlement | None:
    """What the receiver's journal says, where it settles the matter."""
    receiver = question.receiver_outcome
    if receiver == "delivered":
        answer, why = DELIVERED, "the receiver's journal has it delivered"
    elif receiver == "rejected" and question.class_ == "refused":
        answer, why = NOT_RECEIVED, "the receiver's journal has it refused"
    elif question.settled_by == JOURNAL and question.class_ == "failed" and receiver != "received":
        answer, why = NOT_RECEIVED, "the receiver's journal covers the time, and has it nowhere"
    else:
        return None
    return Settlement(question.message_id, answer, JOURNAL, why)


def partner_says(
    who: str,
    state: str | None,
    events: Sequence[str],
    epoch: int,
    since_sent: timedelta,
) -> Said:
    """What a partner's node says of a message on its receiving side.

    `state` is that of the message, None when the node has none of it; `events` are those of its
    journal about it, which outlive the message. That there is nothing at all proves something only
    where nothing can have been lost (`epoch` 1: the database was never restored or made anew) and
    nothing is still on its way.
    """
    if state in ("delivered", "consumed") or "delivered" in events:
        return Said(who, DELIVERED, "it has the message delivered")
    if state == "rejected" or (state is None and "rejected" in events):
        return Said(who, NOT_RECEIVED, "it refused the message")
    if state is not None or events:
        return Said(who, RECEIVED, "it has the message, and has not delivered it")
    if since_sent < ON_ITS_WAY:
        return Said(who, None, "it does not have the message yet, which was sent just now")
    if epoch > 1:
        said = "it knows nothing of the message, but its database was restored or made anew"
        return Said(who, None, said)
    return Said(who, NOT_RECEIVED, "it never had the message")


def settle(questions: Sequence[Question], said: Mapping[str, Sequence[Said]]) -> Plan:
    """What to write down for each question; `said` are the partners' answers by message id."""
    settlements, still_open = [], []
    for question in questions:
        settlement = by_journal(question) or _by_partner(question, said.get(question.message_id))
        if settlement is not None:
            settlements.append(settlement)
        else:
            heard = said.get(question.message_id) or ()
            why = "; ".join(f"{one.who}: {one.why}" for one in heard)
            partner = question.partner
            nobody = f"nobody said where to ask {partner}: give --partner {partner}=URL"
            still_open.append(Open(question.message_id, partner, why or nobody))
    return Plan(tuple(settlements), tuple(still_open))


def _by_partner(question: Question, said: Sequence[Said] | None) -> Settlement | None:
    """A partner may have several nodes: one that has the message is enough, to have it not all
    must know.
    """
    if not said:
        return None
    for answer in (DELIVERED, RECEIVED):
        for one in said:
            if one.answer == answer:
                return Settlement(question.message_id, answer, one.who, one.why)
    if all(one.answer == NOT_RECEIVED for one in said):
        return Settlement(question.message_id, NOT_RECEIVED, said[0].who, said[0].why)
    return None
