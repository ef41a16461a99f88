"""Notices: what the application is told about messages that it sent, until it says that it knows.

They stand below the inbox, where applications look. A message whose id is `notices` is written
with an encoded letter there (`postroad.api.segments`).
"""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from postroad.api.lists import Pages
from postroad.api.paths import API, Door, NoticeId
from postroad.api.problems import problem_responses
from postroad.api.views import NoticesView, notice_view

router = APIRouter(prefix=f"{API}/inbox/notices", tags=["inbox"])


@router.get("", responses=problem_responses(422))
async def list_notices(service: Door, pages: Annotated[Pages, Query()]) -> NoticesView:
    """What became of messages that were given up, suspended or settled, oldest first."""
    found = await service.notices(int(pages.cursor or 0), pages.limit + 1)
    shown = found[: pages.limit]
    more = len(found) > len(shown)
    return NoticesView(
        notices=[notice_view(notice) for notice in shown],
        next=str(shown[-1].id) if more else None,
    )


@router.post(
    "/{notice}/ack",
    status_code=204,
    response_class=Response,
    responses=problem_responses(404, 422),
)
async def acknowledge_notice(service: Door, notice: NoticeId) -> None:
    """The application knows: the notice is gone. 404 when it is gone already."""
    await service.acknowledge_notice(notice)
