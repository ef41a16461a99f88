"""Every error has the one form, and tells nothing that it should not."""

import logging
from typing import Any

import httpx
import pytest

from postroad.node.service import Refused, Service
from postroad.store.interface import StoreBusy, StoreDamaged, StoreError, StoreFull
from tests.api.conftest import Serve
from tests.api.uploads import PATH, body, metadata, post
from tests.api.world import Faulty


def _raising(error: Exception) -> Any:
    async def call(*given: Any) -> None:
        raise error

    return call


def _problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Cache-Control"] == "no-store"
    problem: dict[str, Any] = answer.json()
    assert problem["type"] == "about:blank"
    assert problem["status"] == status
    assert problem.keys() >= {"title", "detail", "code"}
    return problem


def test_a_path_that_is_not_there_has_the_form(http: httpx.Client) -> None:
    assert "/docs" in _problem(http.get("/api/v1/nothing"), 404)["detail"]


def test_a_method_that_is_not_there_has_the_form(http: httpx.Client) -> None:
    answer = http.delete(f"{PATH}/m-1@x")
    _problem(answer, 405)
    assert answer.headers["Allow"] == "GET"


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422, 503])
def test_a_refusal_has_the_form(
    http: httpx.Client, serve: Serve, service: Service, status: int
) -> None:
    refused = Refused(status, "Not so; do it otherwise.", code="EBMS:0010")
    serve(Faulty(service, submit=_raising(refused)))
    answer = post(http, body(metadata()))
    problem = _problem(answer, status)
    assert problem["detail"] == "Not so; do it otherwise."
    assert problem["code"] == "EBMS:0010"
    assert ("Retry-After" in answer.headers) == (status == 503)


@pytest.mark.parametrize("error", [StoreFull, StoreBusy, StoreError])
def test_a_store_that_cannot_is_told_as_not_now(
    http: httpx.Client, serve: Serve, service: Service, error: type[StoreError]
) -> None:
    told = error("The store cannot do it now; try again later.")
    serve(Faulty(service, submit=_raising(told), messages=_raising(told)))
    for answer in (post(http, body(metadata())), http.get(PATH)):
        assert _problem(answer, 503)["detail"] == "The store cannot do it now; try again later."
        assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.parametrize("error", [RuntimeError, StoreDamaged])
def test_what_nobody_expected_is_in_the_log_under_the_id_that_is_told(
    http: httpx.Client,
    serve: Serve,
    service: Service,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
) -> None:
    serve(Faulty(service, messages=_raising(error("the password is 1234"))))
    with caplog.at_level(logging.ERROR, "postroad.api"):
        answer = http.get(PATH)
    problem = _problem(answer, 500)
    assert "1234" not in answer.text
    assert "Traceback" not in answer.text
    assert problem["instance"] in problem["detail"]
    [record] = [one for one in caplog.records if one.name == "postroad.api"]
    assert problem["instance"] in record.getMessage()
    assert record.exc_info
    assert "1234" in str(record.exc_info[1])


def test_the_server_goes_on_after_an_error(
    http: httpx.Client, serve: Serve, service: Service
) -> None:
    serve(Faulty(service, messages=_raising(RuntimeError())))
    assert http.get(PATH).status_code == 500
    serve()
    assert http.get(PATH).status_code == 200
