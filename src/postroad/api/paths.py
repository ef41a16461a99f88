"""What the paths of the interface have in common: the service behind them, and ids in them."""

from typing import Annotated, Final, cast

from fastapi import Depends, Path, Query, Request
from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send

from postroad.api.segments import id_of, kept_apart
from postroad.node.service import Service

API: Final = "/api/v1"


class WholeSegments:
    """Keeps the segments of a path apart as the client wrote them, for the router to match.

    Servers decode the path before anyone sees it, which makes `a%2Fevents` and `a/events` the
    same. In `scope["path"]` slash and percent sign of a segment stay encoded, and an id that is a
    word of ours; `id_of` decodes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if scope["type"] == "http" and b"%" in raw:
            path = kept_apart(raw.partition(b"?")[0].decode("latin-1"))
            scope = {**scope, "path": path}
        await self._app(scope, receive, send)


async def _service(request: Request) -> Service:
    """Asynchronous, since for anything else a thread is asked."""
    return cast(Service, request.app.state.service)


Door = Annotated[Service, Depends(_service)]
"""The node that is asked."""

MessageId = Annotated[
    str,
    Path(
        description="The message id; a slash in it is written %2F.",
        examples=["order-4711@buyer.example"],
    ),
    AfterValidator(id_of),
]
Cursor = Annotated[
    int | None,
    Query(
        ge=0,
        le=2**63 - 1,
        description="The `cursor` of the message that is meant, where several senders sent one "
        "under this id.",
    ),
]
SignalId = Annotated[
    str,
    Path(description="The id of the receipt or error.", examples=["r-1@seller.example"]),
    AfterValidator(id_of),
]
PartnerName = Annotated[
    str,
    Path(
        description="The party, as `to_party` of messages has it; a slash in it is written %2F.",
        examples=["urn:example:seller"],
    ),
    AfterValidator(id_of),
]
PModeId = Annotated[
    str,
    Path(
        description="The id of the P-Mode; a slash in it is written %2F.",
        examples=["buyer-to-seller-order"],
    ),
    AfterValidator(id_of),
]
NoticeId = Annotated[int, Path(ge=1, le=2**63 - 1, description="The `id` of the notice.")]
