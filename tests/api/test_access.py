"""Nothing without the token, but what was opened by name."""

import httpx
import pytest

from postroad.api.app import create_app
from postroad.api.guesses import LONGEST, Guesses
from postroad.node.service import Service
from tests.api.conftest import TOKEN, Serve
from tests.api.memory_service import MemoryService
from tests.api.routes import calls, filled
from tests.api.site import Site
from tests.api.world import Faulty

STRANGER = httpx.Client(verify=False)
OPEN = {"/healthz", "/readyz", "/docs", "/openapi.json"}
CALLS = calls(create_app(MemoryService(), token="x"))


def test_all_calls_were_found() -> None:
    assert len(CALLS) >= 20
    assert ("POST", "/api/v1/messages") in CALLS
    assert {path for _, path in CALLS} >= OPEN


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_call_needs_the_token_unless_it_is_open(
    site: Site, serve: Serve, method: str, path: str
) -> None:
    serve()
    answers = [
        STRANGER.request(method, site.url + filled(path), headers=headers)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"})
    ]
    if path in OPEN:
        assert {answer.status_code for answer in answers} == {200}
    else:
        assert {answer.status_code for answer in answers} == {401}
        assert all(answer.headers["WWW-Authenticate"].startswith("Bearer") for answer in answers)
        assert answers[0].headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_the_token_opens_every_call(http: httpx.Client, method: str, path: str) -> None:
    assert http.request(method, filled(path)).status_code != 401


@pytest.mark.parametrize("path", ["/", "/nowhere", "/api/v1/nowhere", "/healthz/", "//healthz"])
def test_what_does_not_exist_is_not_told_to_strangers(site: Site, serve: Serve, path: str) -> None:
    serve()
    assert STRANGER.get(site.url + path).status_code == 401


@pytest.mark.parametrize(
    "given",
    [f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", "Bearer", TOKEN, "Bearer \xff\xfe"],
)
def test_a_token_that_is_almost_right_is_wrong(site: Site, serve: Serve, given: str) -> None:
    serve()
    headers = {"Authorization": given.encode("latin-1")}
    assert STRANGER.get(f"{site.url}/api/v1/inbox", headers=headers).status_code == 401


def test_two_tokens_are_none(site: Site, serve: Serve) -> None:
    serve()
    headers = [("Authorization", "Bearer wrong"), ("Authorization", f"Bearer {TOKEN}")]
    for given in (headers, headers[::-1]):
        assert STRANGER.get(f"{site.url}/api/v1/inbox", headers=given).status_code == 401


def test_metrics_can_be_opened(site: Site, serve: Serve) -> None:
    serve(open_metrics=True)
    assert STRANGER.get(f"{site.url}/metrics").status_code == 200
    assert STRANGER.get(f"{site.url}/api/v1/admin/status").status_code == 401


def test_an_empty_token_is_refused_at_the_start(service: Service) -> None:
    with pytest.raises(ValueError, match="empty"):
        create_app(service, token=" ").build_middleware_stack()


def test_a_stranger_is_refused_without_reading_what_he_uploads(
    site: Site, serve: Serve, service: Service
) -> None:
    def new_sink() -> None:
        raise AssertionError("nothing of it may be kept")

    serve(Faulty(service, new_sink=new_sink))
    files = {
        "metadata": (None, b'{"pmode": "buyer-to-seller-order"}'),
        "order": ("o", bytes(8 * 1024 * 1024)),
    }
    assert STRANGER.post(f"{site.url}/api/v1/messages", files=files).status_code == 401


def test_wrong_tokens_are_counted_logged_and_answered_ever_more_slowly(
    site: Site, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    counted, delays = [], []

    async def pause(seconds: float) -> None:
        delays.append(seconds)

    serve(guesses=Guesses(lambda: counted.append(1), pause=pause))
    for number in range(20):
        headers = {"Authorization": f"Bearer {TOKEN[:-2]}{number:02}"}
        assert STRANGER.get(f"{site.url}/api/v1/inbox", headers=headers).status_code == 401
    assert len(counted) == 20
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, *[LONGEST] * 5]
    [record] = [one for one in caplog.records if "wrong token" in one.getMessage()]
    assert record.peer == "127.0.0.1"  # type: ignore[attr-defined]
    assert TOKEN[:-2] not in caplog.text
    good = {"Authorization": f"Bearer {TOKEN}"}
    assert STRANGER.get(f"{site.url}/api/v1/inbox", headers=good).status_code == 200
    assert STRANGER.get(f"{site.url}/api/v1/inbox").status_code == 401
    assert len(delays) == 10
