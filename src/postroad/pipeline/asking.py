"""Asking partners what became of messages, and telling the own node, over REST."""

from datetime import datetime

from postroad.api.client import ApiError, Client
from postroad.pipeline.settling import Question, Said, Settlement, partner_says


def ask(client: Client, who: str, question: Question, now: datetime) -> Said:
    """What a partner's node says of a message; whatever goes wrong is an answer too."""
    try:
        state = _state(client, question.message_id)
        events = _events(client, question.message_id)
        # Asked last: what is lost before is lost for all answers.
        epoch = client.inbox_extent().epoch
    except ApiError as error:
        return Said(who, None, f"it could not be asked: {error.detail}")
    return partner_says(who, state, events, epoch, now - question.last_sent_at)


def _state(client: Client, message_id: str) -> str | None:
    try:
        return client.status(message_id, side="receiving").state
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _events(client: Client, message_id: str) -> list[str]:
    try:
        return [one.event for one in client.events(message_id) if one.side == "receiving"]
    except ApiError as error:
        if error.status == 404:
            return []
        raise


def tell(client: Client, settlement: Settlement) -> str | None:
    """Write a settlement down at the sender's node; why not, if it does not want it."""
    try:
        client.settle(settlement.message_id, settlement.answer, settlement.who)
    except ApiError as error:
        if error.status in (404, 409):
            return error.detail
        raise
    return None
