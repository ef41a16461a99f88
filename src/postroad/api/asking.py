"""Asking partners by their protocol: whether they are there, and what became of a message."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from postroad.api.limits import ASK, WAIT
from postroad.api.paths import API, Door, MessageId, PModeId
from postroad.api.problems import ApiProblem, problem_responses
from postroad.node.service import ANSWERS, ON_ITS_WAY, Refused, Service
from postroad.store.records import Side, State
from postroad.wire.ebxml import FORWARDED, NOT_RECOGNIZED, PROCESSED, RECEIVED

router = APIRouter(prefix=API)

_DELIVERED, _RECEIVED, _NOT_RECEIVED = ANSWERS
_MEANINGS: Final = {
    PROCESSED: _DELIVERED,
    RECEIVED: _RECEIVED,
    FORWARDED: _RECEIVED,
    NOT_RECOGNIZED: _NOT_RECEIVED,
}
"""What a partner's status says, in the words of `settle`; UnAuthorized says nothing."""

Wait = Annotated[
    float,
    Query(gt=0, le=WAIT, description="For how many seconds the partner's answer is waited for."),
]


class PingView(BaseModel):
    """Whether a partner is there."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "pmode": "buyer-to-seller-order",
                    "answer": "Pong",
                    "address": "https://seller.example/msh",
                    "seconds": 0.042,
                    "detail": None,
                }
            ]
        }
    )

    pmode: str
    answer: str | None = Field(description="`Pong`; null when no answer came in time.")
    address: str = Field(description="Where it was asked.")
    seconds: float = Field(description="How long it took.")
    detail: str | None = Field(description="Why there is no answer.")


class QueryView(BaseModel):
    """What a partner says of a message."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "message_id": "order-4711@buyer.example",
                    "answer": "Received",
                    "means": "received",
                    "timestamp": "2026-11-15T08:57:02Z",
                    "address": "https://seller.example/msh",
                    "seconds": 0.042,
                    "settled": None,
                    "detail": None,
                }
            ]
        }
    )

    message_id: str
    answer: str | None = Field(
        description="The status in the partner's word: `Received`, `Processed`, `Forwarded`, "
        "`NotRecognized` or `UnAuthorized`; null when no answer came in time."
    )
    means: str | None = Field(
        description="The same as `settle` takes it: delivered, received or not_received; null "
        "where it says nothing of the message."
    )
    timestamp: datetime | None = Field(description="When the partner received it, if it says so.")
    address: str = Field(description="Where it was asked.")
    seconds: float = Field(description="How long it took.")
    settled: str | None = Field(description="What was written down now; null for nothing.")
    detail: str | None = Field(
        description="Why there is no answer, why it proves nothing, or why nothing could be "
        "written down."
    )


@router.post("/admin/pmodes/{pmode}/ping", tags=["admin"], responses=problem_responses(404, 422))
async def ping_partner(service: Door, pmode: PModeId, wait: Wait = ASK) -> PingView:
    """Ask the partner of a P-Mode whether it is there.

    In ebXML by its ping, in ebMS 3.0 by a test message, which is acknowledged and not delivered.
    No answer in time is 200 too: `answer` is null then, and `detail` says why.
    """
    if all(one.id != pmode for one in service.pmodes()):
        raise ApiProblem(404, f"There is no P-Mode {pmode} here; {API}/admin/pmodes lists them.")
    asking = await service.ping(pmode, wait)
    return PingView(
        pmode=pmode,
        answer=asking.answer,
        address=asking.address,
        seconds=asking.seconds,
        detail=asking.detail,
    )


@router.post(
    "/messages/{message_id}/query", tags=["messages"], responses=problem_responses(404, 422)
)
async def query_message(
    service: Door,
    message_id: MessageId,
    wait: Wait = ASK,
    settle: Annotated[
        bool,
        Query(
            description="Write a definite answer down, as `settle` does, in the partner's name; "
            "where that cannot be, `settled` is null and `detail` says why."
        ),
    ] = False,
) -> QueryView:
    """Ask the partner what became of a message that was sent to it, by ebXML's status request.

    No answer in time is 200 too: `answer` is null then, and `detail` says why. ebMS 3.0 has no
    such question: 422.
    """
    asking = await service.query(message_id, wait)
    # An answer with a reservation is none that ends a doubt.
    meaning = _MEANINGS.get(asking.answer or "") if asking.detail is None else None
    settled, why = None, asking.detail
    if settle and meaning is not None:
        settled, why = await _settled(service, message_id, meaning)
    elif settle and why is None:
        why = f"{asking.answer} says nothing of the message, so there is nothing to write down"
    return QueryView(
        message_id=message_id,
        answer=asking.answer,
        means=meaning,
        timestamp=asking.timestamp,
        address=asking.address,
        seconds=asking.seconds,
        settled=settled,
        detail=why,
    )


async def _settled(
    service: Service, message_id: str, meaning: str
) -> tuple[str | None, str | None]:
    """What was written down, or why nothing was.

    That the partner does not have it counts only once nothing is sent any more; and it does not
    undo what is known already, since partners forget messages.
    """
    message = await service.message(message_id, Side.SENDING)
    if message is None:
        return None, f"{message_id} was removed meanwhile"
    if meaning == _NOT_RECEIVED and message.state in ON_ITS_WAY:
        return None, f"{message_id} is {message.state.value}: it may still arrive"
    known = message.detail if message.state is State.SETTLED else None
    if known in ANSWERS and ANSWERS.index(known) < ANSWERS.index(meaning):
        return None, f"{message_id} was settled as {known} before, which says more"
    try:
        await service.settle(message_id, meaning, message.to_party or "partner")
    except Refused as refusal:
        return None, refusal.detail
    return meaning, None
