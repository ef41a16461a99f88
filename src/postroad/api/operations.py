"""What machines ask: is it alive, is it ready, what are its figures."""

from fastapi import APIRouter, Response

from postroad import __version__
from postroad.api.metrics import CONTENT_TYPE, metrics_text
from postroad.api.oldest import oldest_waiting
from postroad.api.paths import Door
from postroad.api.problems import problem_responses
from postroad.api.views import AliveView, ReadyView
from postroad.store.interface import StoreError

router = APIRouter(tags=["operations"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", openapi_extra={"security": []})
async def healthz() -> AliveView:
    """Whether the process answers."""
    return AliveView(status="alive")


@router.head("/readyz", include_in_schema=False)
@router.get(
    "/readyz",
    responses={503: {"model": ReadyView, "description": "Not ready, and why"}},
    openapi_extra={"security": []},
)
async def readyz(service: Door, response: Response) -> ReadyView:
    """Whether the node can take messages over; 503 with the reasons when not."""
    try:
        health = await service.health()
    except StoreError as error:
        ready = ReadyView(ready=False, problems=[str(error)])
    else:
        ready = ReadyView(ready=health.ready, problems=list(health.problems))
    response.status_code = 200 if ready.ready else 503
    return ready


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Figures in the text format of Prometheus",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **problem_responses(),
    },
)
async def metrics(service: Door) -> Response:
    """Counters and figures for Prometheus."""
    oldest = await oldest_waiting(service)
    text = metrics_text(
        service.metrics(),
        await service.health(),
        __version__,
        partners=await service.partners(),
        oldest=oldest.created_at if oldest is not None else None,
    )
    return Response(text, media_type=CONTENT_TYPE)
