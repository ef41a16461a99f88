"""What goes wrong, as problem details (RFC 9457): one form for every error of the interface."""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroad.node.service import Refused
from postroad.store.interface import StoreBusy, StoreDamaged, StoreError, StoreFull

MEDIA_TYPE: Final = "application/problem+json"
_LOG: Final = logging.getLogger("postroad.api")
_TRY_AGAIN: Final = {StoreFull: 60, StoreBusy: 2}
_SHOWN: Final = 100
"""Characters of a refused value that are repeated in the answer."""


class FieldProblem(BaseModel):
    """What is wrong with one field."""

    path: str = Field(examples=["metadata.payloads[0].compress"])
    message: str = Field(examples=["Input should be a valid boolean"])


class Problem(BaseModel):
    """Why a request was not carried out (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "about:blank",
                    "title": "Conflict",
                    "status": 409,
                    "detail": "There is a message order-4711@buyer.example with other content; "
                    "give this one another id.",
                    "code": None,
                }
            ]
        }
    )

    type: str = "about:blank"
    title: str = Field(description="The HTTP status in words.")
    status: int
    detail: str = Field(description="One sentence: what was wrong, and what to do next.")
    code: str | None = Field(default=None, description="An ebMS error code where one fits.")
    instance: str | None = Field(
        default=None, description="Under which id the log tells of an unexpected error."
    )
    errors: list[FieldProblem] | None = Field(
        default=None, description="What is wrong with which field, where it is about fields."
    )


class ApiProblem(Exception):
    """A request that cannot be carried out as it stands."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.headers = headers


def problem(
    status: int,
    detail: str,
    *,
    code: str | None = None,
    instance: str | None = None,
    errors: Sequence[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer that tells a problem."""
    content: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if instance:
        content["instance"] = instance
    if errors:
        content["errors"] = [{"path": path, "message": message} for path, message in errors]
    return JSONResponse(content, status, headers, MEDIA_TYPE)


def field_problem(errors: Sequence[tuple[str, str]]) -> ApiProblem:
    """422 with the path of each field that is wrong; the first one makes the sentence."""
    path, message = errors[0]
    more = f" ({len(errors) - 1} more in errors)" if len(errors) > 1 else ""
    return ApiProblem(422, f"{path}: {message}{more}", errors=errors)


def field_errors(errors: Sequence[Any], root: str = "") -> list[tuple[str, str]]:
    """Pydantic's errors as paths and sentences, without the values that were given."""
    return [
        (_path([root, *error["loc"]] if root else error["loc"]), _sentence(error))
        for error in errors
    ]


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How a route documents the problems that it answers with."""
    return {status: _documented(status) for status in sorted({401, 500, 503, *statuses})}


def tell_problems(app: FastAPI) -> None:
    """Give every error of the application the one form."""
    told: dict[type[Exception], Callable[[Request, Any], Response]] = {
        ApiProblem: _tell_problem,
        Refused: _tell_refusal,
        StoreError: _tell_store,
        RequestValidationError: _tell_validation,
        HTTPException: _tell_http,
        ClientDisconnect: _tell_disconnect,
    }
    for kind, tell in told.items():
        app.add_exception_handler(kind, tell)


class LastResort:
    """Around everything: an unexpected error is logged, and told by the id that is in the log.

    It also gives every answer the headers that keep browsers from guessing and keeping.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers.setdefault("Cache-Control", "no-store")
                headers.setdefault("X-Content-Type-Options", "nosniff")
            await send(message)

        try:
            await self._app(scope, receive, send_safely)
        except Exception as error:
            if started:
                raise
            await _unexpected(error)(scope, receive, send_safely)


def _unexpected(error: Exception) -> Response:
    instance = f"urn:uuid:{uuid.uuid4()}"
    _LOG.error("unexpected error %s", instance, exc_info=error)
    return problem(
        500, f"Something unexpected happened; the log tells it as {instance}.", instance=instance
    )


def _tell_problem(_: Request, error: ApiProblem) -> Response:
    return problem(error.status, error.detail, errors=error.errors, headers=error.headers)


def _tell_refusal(_: Request, error: Refused) -> Response:
    headers = {"Retry-After": "5"} if error.status == 503 else None
    return problem(error.status, error.detail, code=error.code, headers=headers)


def _tell_store(_: Request, error: StoreError) -> Response:
    if isinstance(error, StoreDamaged):
        return _unexpected(error)
    seconds = next((s for kind, s in _TRY_AGAIN.items() if isinstance(error, kind)), 5)
    return problem(503, str(error), headers={"Retry-After": str(seconds)})


def _tell_validation(request: Request, error: RequestValidationError) -> Response:
    return _tell_problem(request, field_problem(field_errors(error.errors())))


def _tell_http(_: Request, error: HTTPException) -> Response:
    said = {
        404: "There is nothing at this path; /docs lists what there is.",
        405: "This path does not know that method; the Allow header tells those that it knows.",
    }
    return problem(
        error.status_code, said.get(error.status_code, error.detail), headers=error.headers
    )


def _tell_disconnect(_: Request, __: ClientDisconnect) -> Response:
    return problem(400, "The upload broke off; nothing of it was kept. Send it again.")


def _documented(status: int) -> dict[str, Any]:
    return {
        "description": HTTPStatus(status).phrase,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def _path(loc: Sequence[Any]) -> str:
    path = ""
    for step in loc:
        path += f"[{step}]" if isinstance(step, int) else f".{str(step)[:_SHOWN]}"
    return path.removeprefix(".")


def _sentence(error: Any) -> str:
    said = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        return "there is no such field"
    return said if len(said) <= 500 else said[:500] + "…"
