"""The REST interface of a node, as an ASGI application."""

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute

from postroad import __version__
from postroad.api import (
    admin,
    asking,
    bundles,
    inbox,
    messages,
    notices,
    operations,
    partners,
    pulling,
    reference,
    routing,
)
from postroad.api.access import ALWAYS_OPEN, Guard
from postroad.api.guesses import Guesses
from postroad.api.limits import ApiLimits
from postroad.api.paths import WholeSegments
from postroad.api.problems import LastResort, tell_problems
from postroad.node.service import Service


def create_app(
    service: Service,
    *,
    token: str,
    limits: ApiLimits | None = None,
    open_metrics: bool = False,
    guesses: Guesses | None = None,
) -> FastAPI:
    """The interface to a running node.

    Everything needs the token but health, readiness and the documentation; `open_metrics` opens
    `/metrics` too.
    """
    app = FastAPI(
        title="Postroad",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.state.service = service
    app.state.limits = limits or ApiLimits()
    # Notices before the inbox: the first that fits a path gets it.
    for room in (
        *(messages, bundles, routing, notices, inbox),
        *(partners, admin, asking, pulling, operations),
    ):
        app.include_router(room.router)
    app.include_router(_documentation(app))
    tell_problems(app)
    opened = ALWAYS_OPEN | {"/metrics"} if open_metrics else ALWAYS_OPEN
    app.add_middleware(Guard, token=token, opened=opened, guesses=guesses)
    app.add_middleware(WholeSegments)
    app.add_middleware(LastResort)
    return app


def _documentation(app: FastAPI) -> APIRouter:
    """The description as JSON and as a page; made when it is first asked for."""
    router = APIRouter(include_in_schema=False)
    made: dict[str, Any] = {}

    def description() -> dict[str, Any]:
        if not made:
            made.update(reference.openapi(app, __version__))
        return made

    @router.get("/openapi.json")
    async def openapi_json() -> JSONResponse:
        return JSONResponse(description())

    @router.get("/docs")
    async def docs() -> HTMLResponse:
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(
            reference.page(description()), headers={"Content-Security-Policy": policy}
        )

    return router


def _operation_id(route: APIRoute) -> str:
    return route.name
