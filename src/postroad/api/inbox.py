"""The inbox: what was received for the application, until it says that it has it."""

from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from postroad.api.limits import ApiLimits
from postroad.api.lists import Acknowledged, InboxFilters, page
from postroad.api.metadata import ReplyMetadata
from postroad.api.paths import API, Cursor, Door, MessageId
from postroad.api.problems import ApiProblem, problem_responses
from postroad.api.streaming import streamed
from postroad.api.submission_body import submission_body
from postroad.api.upload import read_submission
from postroad.api.views import (
    AcknowledgedView,
    ArrivingsView,
    ArrivingView,
    ExtentView,
    MessagesView,
    MessageView,
    SubmittedView,
    extent_view,
    message_view,
    submitted_view,
)
from postroad.node.service import Service
from postroad.store.records import INBOX, Message, Side

router = APIRouter(prefix=f"{API}/inbox", tags=["inbox"])

_PAYLOAD: Final[dict[str, Any]] = {
    "description": "The payload, with the media type that the sender gave it",
    "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
    "headers": {
        "ETag": {"schema": {"type": "string"}, "description": "The SHA-256 digest, in hex"},
        "Repr-Digest": {"schema": {"type": "string"}, "description": "The same (RFC 9530)"},
    },
}


@router.get("", responses=problem_responses(422))
async def list_inbox(service: Door, filters: Annotated[InboxFilters, Query()]) -> MessagesView:
    """What waits for the application, oldest first.

    The order is that of delivery: what is delivered later has a greater cursor.
    """
    return await page(service, filters.inbox())


@router.get("/extent", responses=problem_responses())
async def get_extent(service: Door) -> ExtentView:
    """How far the inbox is, for those who read it by cursor and want to miss nothing."""
    return extent_view(service.name, await service.inbox())


@router.get("/fragments", responses=problem_responses(422))
async def list_arriving(
    service: Door, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> ArrivingsView:
    """The messages of which fragments came and more are to come: how far each is."""
    found = await service.arriving(limit)
    return ArrivingsView(arriving=[ArrivingView(**asdict(one)) for one in found])


@router.post("/ack", responses=problem_responses(422))
async def acknowledge_all(
    service: Door, which: Annotated[Acknowledged, Query()]
) -> AcknowledgedView:
    """The application has all that fit, up to a cursor. Doing so again is no error."""
    return AcknowledgedView(acknowledged=await service.acknowledge_all(which.inbox()))


@router.get("/{message_id}", responses=problem_responses(404, 409, 422))
async def get_from_inbox(
    service: Door, message_id: MessageId, cursor: Cursor = None
) -> MessageView:
    """A received message, with what its payloads are."""
    return message_view(await _in_inbox(service, message_id, cursor))


@router.get(
    "/{message_id}/parts/{number}",
    response_class=StreamingResponse,
    responses={200: _PAYLOAD, **problem_responses(404, 409, 422)},
)
async def get_part(
    service: Door,
    message_id: MessageId,
    number: Annotated[int, Path(ge=1, le=100_000, description="Counted from 1.")],
    cursor: Cursor = None,
) -> StreamingResponse:
    """A payload, as the sender's application gave it."""
    message = await _in_inbox(service, message_id, cursor)
    if number > len(message.parts):
        raise ApiProblem(404, f"{message_id} has {len(message.parts)} payloads, no {number}.")
    part = message.parts[number - 1]
    return await streamed(
        service.part(message, part).chunks(),
        media_type=part.media_type,
        file_name=part.file_name or f"part-{number}",
        size=part.size,
        sha256=part.sha256,
    )


@router.post("/{message_id}/ack", responses=problem_responses(404, 409, 422))
async def acknowledge(service: Door, message_id: MessageId, cursor: Cursor = None) -> MessageView:
    """The application has it: it leaves the inbox. Doing so again is no error."""
    return message_view(await service.acknowledge(message_id, cursor))


@router.post("/{message_id}/release", responses=problem_responses(404, 409, 422))
async def release(service: Door, message_id: MessageId, cursor: Cursor = None) -> MessageView:
    """Deliver a message that is held until those before it in its conversation come.

    They are waited for no longer; what is held up by nothing else follows.
    """
    return message_view(await service.release(message_id, cursor))


@router.post(
    "/{message_id}/reply",
    status_code=202,
    response_model=SubmittedView,
    responses={
        200: {"model": SubmittedView, "description": "The same was submitted before"},
        **problem_responses(400, 404, 408, 409, 413, 415, 422),
    },
    openapi_extra=submission_body("ReplyMetadata", {"message_id": "price-17@seller.example"}),
)
async def reply(
    request: Request,
    response: Response,
    service: Door,
    message_id: MessageId,
    cursor: Cursor = None,
) -> SubmittedView:
    """Answer a message: the reply refers to it, goes to its sender and is of its conversation.

    In a two-way exchange a message has one reply. Where the exchange is one-way, name the P-Mode.
    """
    limits: ApiLimits = request.app.state.limits
    submission = await read_submission(request, service.new_sink, limits, ReplyMetadata)
    submitted = await service.reply(message_id, submission, cursor)
    if submitted.repeated:
        response.status_code = 200
    return submitted_view(submitted.message, submitted.repeated)


async def _in_inbox(service: Service, message_id: str, cursor: int | None) -> Message:
    message = await service.message(message_id, Side.RECEIVING, cursor)
    if message is None or message.state not in INBOX:
        raise ApiProblem(404, f"There is no message {message_id} in the inbox.")
    return message
