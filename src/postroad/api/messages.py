"""Messages: submit them, see where they are, what happened to them, and the proof of it."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from postroad.api.limits import WAIT, ApiLimits
from postroad.api.lists import MessageFilters, Pages, page, page_of, total
from postroad.api.metadata import Word
from postroad.api.paths import API, Cursor, Door, MessageId, SignalId
from postroad.api.problems import ApiProblem, problem_responses
from postroad.api.segments import segment_of
from postroad.api.streaming import streamed
from postroad.api.submission_body import submission_body
from postroad.api.upload import read_submission
from postroad.api.views import (
    EventsView,
    MessagesView,
    MessageView,
    SignalsView,
    SubmittedView,
    event_view,
    message_view,
    signal_view,
    submitted_view,
)
from postroad.node.service import Service
from postroad.store.records import Message, Side

router = APIRouter(prefix=f"{API}/messages", tags=["messages"])

WhichSide = Annotated[
    Side | None, Query(description="Of both sides the sending one unless said otherwise.")
]
_ZIP: Final[dict[str, Any]] = {
    "description": "A zip with message, receipt, certificates and verdict",
    "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
}
_BEGINNING: Final[dict[str, Any]] = {
    "content": {"application/octet-stream": {}},
    "description": "The first bytes of the SOAP envelope, as they came.",
}
_RAW: Final[dict[str, Any]] = {
    "description": "The bytes as they came or went",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


class Settlement(BaseModel):
    """What became of a message that was given up."""

    model_config = ConfigDict(extra="forbid")

    answer: Literal["delivered", "received", "not_received"] = Field(
        description="The partner's application has it; the partner has it and says no more; the "
        "partner does not have it."
    )
    who: Word = Field(
        default="operator",
        description="Who says so; it stands in the journal.",
        examples=["urn:example:seller"],
    )


@router.post(
    "",
    status_code=202,
    response_model=SubmittedView,
    responses={
        200: {"model": SubmittedView, "description": "The same was submitted before"},
        **problem_responses(400, 408, 409, 413, 415, 422),
    },
    openapi_extra=submission_body(
        "Metadata", {"pmode": "orders", "message_id": "order-4711@buyer.example"}
    ),
)
async def submit_message(request: Request, response: Response, service: Door) -> SubmittedView:
    """Submit a message: durable and on its way when this answers.

    Give a `message_id` of your own and a repetition does no harm: the same message submitted again
    is answered with what became of the first one, and `repeated` is true.
    """
    limits: ApiLimits = request.app.state.limits
    submission = await read_submission(request, service.new_sink, limits)
    submitted = await service.submit(submission)
    if submitted.repeated:
        response.status_code = 200
    root = request.scope.get("root_path", "")
    response.headers["Location"] = (
        f"{root}{API}/messages/{segment_of(submitted.message.message_id)}"
    )
    return submitted_view(submitted.message, submitted.repeated)


@router.get("", responses=problem_responses(422))
async def list_messages(service: Door, filters: Annotated[MessageFilters, Query()]) -> MessagesView:
    """List messages, newest first unless asked otherwise."""
    wanted = filters.messages()
    shown = await page(service, wanted)
    if filters.total:
        shown.total = await total(service, wanted, shown)
    return shown


@router.get("/{message_id}", responses=problem_responses(404, 409, 422))
async def get_message(
    service: Door,
    message_id: MessageId,
    side: WhichSide = None,
    wait: Annotated[
        float,
        Query(
            ge=0,
            le=WAIT,
            description="Answer once an outgoing message is no longer on its way, or after so "
            "many seconds.",
        ),
    ] = 0,
    wait_reply: Annotated[
        float,
        Query(
            ge=0,
            le=WAIT,
            description="Answer once the reply to a request is there or cannot come, or after so "
            "many seconds.",
        ),
    ] = 0,
    cursor: Cursor = None,
) -> MessageView:
    """Where a message is."""
    if wait and side in (None, Side.SENDING):
        await service.settled(message_id, wait)
    if wait_reply and side in (None, Side.SENDING):
        await service.replied(message_id, wait_reply)
    message = await _found(service, message_id, side, cursor)
    return message_view(message, await service.transfer(message), service.no_reply(message))


@router.get("/{message_id}/fragments", responses=problem_responses(404, 422))
async def list_fragments(
    service: Door, message_id: MessageId, pages: Annotated[Pages, Query()]
) -> MessagesView:
    """The fragments in which a message was sent, by number; none where it goes whole."""
    message = await _found(service, message_id, Side.SENDING)
    found = await service.fragments(message, int(pages.cursor or 0), pages.limit + 1)
    return page_of(found, pages.limit)


@router.get("/{message_id}/events", responses=problem_responses(404, 422))
async def list_events(service: Door, message_id: MessageId) -> EventsView:
    """All that the journal says about a message, in order; also after the message was removed."""
    events = await service.events(message_id)
    if not events:
        await _found(service, message_id, None)
    return EventsView(events=[event_view(recorded) for recorded in events])


@router.get(
    "/{message_id}/evidence",
    response_class=StreamingResponse,
    responses={200: _ZIP, **problem_responses(404, 409, 422)},
)
async def get_evidence(
    service: Door, message_id: MessageId, side: WhichSide = None, cursor: Cursor = None
) -> StreamingResponse:
    """The proof: message, receipt, certificates and verdict as a zip."""
    chunks = await service.evidence(message_id, side, cursor)
    name = f"evidence-{segment_of(message_id)}.zip"
    return await streamed(iter(chunks), media_type="application/zip", file_name=name)


@router.get(
    "/{message_id}/beginning",
    response_class=Response,
    responses={200: _BEGINNING, **problem_responses(404, 422)},
)
async def get_beginning(service: Door, message_id: MessageId) -> Response:
    """What was kept of a rejected message whose sender proved nothing: its envelope's beginning."""
    beginning = await service.beginning(message_id)
    if beginning is None:
        raise ApiProblem(
            404,
            f"There is no beginning of {message_id} here. It is kept only of rejected messages "
            "whose senders proved nothing, and for a short time.",
        )
    return Response(beginning, media_type="application/octet-stream")


@router.get("/{message_id}/signals", responses=problem_responses(404, 409, 422))
async def list_signals(
    service: Door, message_id: MessageId, side: WhichSide = None, cursor: Cursor = None
) -> SignalsView:
    """The receipts and errors about a message."""
    signals = await service.signals(await _found(service, message_id, side, cursor))
    return SignalsView(signals=[signal_view(signal) for signal in signals])


@router.get(
    "/{message_id}/signals/{signal_id}",
    response_class=StreamingResponse,
    responses={200: _RAW, **problem_responses(404, 409, 422)},
)
async def get_signal(
    service: Door,
    message_id: MessageId,
    signal_id: SignalId,
    side: WhichSide = None,
    cursor: Cursor = None,
) -> StreamingResponse:
    """A receipt or an error, byte for byte."""
    for signal in await service.signals(await _found(service, message_id, side, cursor)):
        if signal.signal_id == signal_id:
            content = service.signal(signal)
            return await streamed(
                content.chunks(),
                media_type=signal.content_type,
                file_name=f"{signal.kind}-{segment_of(signal_id)}.xml",
                size=content.size,
            )
    raise ApiProblem(404, f"There is no signal {signal_id} about {message_id}.")


@router.post("/{message_id}/resend", status_code=202, responses=problem_responses(404, 409, 422))
async def resend_message(service: Door, message_id: MessageId) -> MessageView:
    """Send an outgoing message again that failed, is in doubt or waits, under the same id.

    All its retries count from the start. A partner that recognises duplicates takes it once.
    """
    return message_view(await service.resend(message_id))


@router.post("/{message_id}/settle", responses=problem_responses(404, 409, 422))
async def settle_message(
    service: Door, message_id: MessageId, settlement: Settlement
) -> MessageView:
    """Note what became of an outgoing message that was given up, so that the doubt ends.

    Whoever was told of the doubt is told of the answer. Saying the same again is no error.
    """
    return message_view(await service.settle(message_id, settlement.answer, settlement.who))


async def _found(
    service: Service, message_id: str, side: Side | None, cursor: int | None = None
) -> Message:
    message = await service.message(message_id, side, cursor)
    if message is None:
        raise ApiProblem(404, f"There is no message {message_id}{f' {side}' if side else ''} here.")
    return message
