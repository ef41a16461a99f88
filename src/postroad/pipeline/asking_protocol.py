"""Asking partners by their own protocol what became of messages, through the own node."""

from datetime import datetime, timedelta

from postroad.api.client import ApiError, Client, QueryAnswer
from postroad.pipeline.settling import NOT_RECEIVED, ON_ITS_WAY, Question, Said


def ask_by_protocol(own: Client, who: str, question: Question, now: datetime) -> Said | None:
    """What a partner answers to a status request; whatever goes wrong is an answer too.

    None: its protocol has no such question.
    """
    try:
        told = own.query(question.message_id)
    except ApiError as error:
        if error.status == 422:
            return None
        return Said(who, None, f"it could not be asked by its protocol: {error.detail}")
    return protocol_says(who, told, now - question.last_sent_at)


def protocol_says(who: str, told: QueryAnswer, since_sent: timedelta) -> Said:
    """What a partner's answer says of a message that was sent so long ago.

    That it does not know the message proves something only when nothing is still on its way.
    """
    if told.answer is None:
        return Said(who, None, f"it did not answer: {told.detail}")
    if told.means is None:
        why = told.detail or "that says nothing of the message"
        return Said(who, None, f"it answers {told.answer}: {why}")
    if told.means == NOT_RECEIVED and since_sent < ON_ITS_WAY:
        return Said(who, None, "it does not know the message yet, which was sent just now")
    return Said(who, told.means, f"it answers {told.answer}")
