"""Health, readiness, metrics, and what those who run the node can do."""

import re
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from postroad import __version__
from postroad.api.metrics import metrics_text
from postroad.node.service import Health, Reloaded, Service
from postroad.store.interface import StoreFull
from postroad.store.records import Figures
from tests.api.conftest import Serve
from tests.api.site import Site
from tests.api.uploads import PATH, body, metadata, post
from tests.api.world import Faulty, World
from tests.changing import replace

ADMIN = "/api/v1/admin"
SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? [0-9.e+-]+')


def _with_health(service: Service, *results: Any) -> Any:
    async def health() -> Health:
        [result] = results
        if isinstance(result, Exception):
            raise result
        return replace(await service.health(), **result)

    return Faulty(service, health=health)


def test_a_node_that_lives_says_so(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "alive"}
    assert http.head("/healthz").status_code == 200
    assert http.head("/readyz").status_code == 200


def test_a_node_that_is_ready_says_so(http: httpx.Client) -> None:
    assert http.get("/readyz").json() == {"ready": True, "problems": []}


def test_a_node_that_is_not_ready_says_why(
    http: httpx.Client, serve: Serve, service: Service
) -> None:
    serve(_with_health(service, {"ready": False, "problems": ("the disk is almost full",)}))
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "problems": ["the disk is almost full"]}
    assert http.get("/healthz").status_code == 200


def test_a_node_whose_store_is_broken_is_not_ready(
    http: httpx.Client, serve: Serve, service: Service
) -> None:
    serve(_with_health(service, StoreFull("the disk is full")))
    answer = http.get("/readyz")
    assert (answer.status_code, answer.json()["problems"]) == (503, ["the disk is full"])


def test_metrics_are_in_the_format_of_prometheus(http: httpx.Client) -> None:
    post(http, body(metadata()))
    answer = http.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.text.endswith("\n")
    lines = answer.text.splitlines()
    for line in lines:
        assert line.startswith(("# TYPE ", "# HELP ")) or SAMPLE.fullmatch(line), line
    assert f'postroad_build_info{{version="{__version__}"}} 1' in lines
    assert "postroad_ready 1" in lines
    assert any(line.startswith('postroad_stored_messages{side="sending",') for line in lines)


def test_each_family_of_metrics_stands_together_with_its_type() -> None:
    counters = {
        'postroad_messages_total{side="sending"}': 2.0,
        'postroad_seconds_bucket{le="+Inf"}': 3.0,
        'postroad_messages_total{side="receiving"}': 1.0,
        "postroad_seconds_sum": 1.5,
        "postroad_seconds_count": 3.0,
    }
    figures = Figures(work={'a"\\\n': 1}, oldest_work=datetime(2026, 1, 1, tzinfo=UTC))
    health = Health(False, ("so",), figures, datetime(2027, 1, 1, tzinfo=UTC))
    lines = metrics_text(counters, health, "1.0").splitlines()
    at = lines.index("# TYPE postroad_messages_total counter")
    assert lines[at + 1 : at + 3] == [
        'postroad_messages_total{side="sending"} 2',
        'postroad_messages_total{side="receiving"} 1',
    ]
    at = lines.index("# TYPE postroad_seconds histogram")
    assert lines[at + 1 :] == [
        'postroad_seconds_bucket{le="+Inf"} 3',
        "postroad_seconds_sum 1.5",
        "postroad_seconds_count 3",
    ]
    assert "postroad_ready 0" in lines
    assert "postroad_problems 1" in lines
    assert "postroad_certificate_expires_timestamp_seconds 1798761600" in lines
    assert 'postroad_work{kind="a\\"\\\\\\n"} 1' in lines
    assert "postroad_oldest_work_timestamp_seconds 1767225600" in lines


def test_metrics_tell_who_is_not_served_and_what_waits_longest(
    http: httpx.Client, site: Site, world: World, service: Service
) -> None:
    def lines() -> list[str]:
        return http.get("/metrics").text.splitlines()

    oldest = "postroad_oldest_message_timestamp_seconds"
    assert not any(line.startswith(oldest) for line in lines())
    for gate in ("paused", "probing", "suspended"):
        assert f'postroad_stopped_partners{{gate="{gate}"}} 0' in lines()
    for name in ("m-1@x", "m-2@x", "m-3@x"):
        post(http, body(metadata(message_id=name)))
    site.run(world.acknowledge("m-1@x"))
    site.run(world.pause("a"))
    site.run(world.pause("b"))
    http.post("/api/v1/partners/seller/suspend")
    told = lines()
    assert 'postroad_stopped_partners{gate="paused"} 2' in told
    assert 'postroad_stopped_partners{gate="suspended"} 1' in told
    assert "# TYPE postroad_stopped_partners gauge" in told
    second = site.run(service.message("m-2@x"))
    assert second is not None
    [shown] = [line for line in told if line.startswith(oldest)]
    assert float(shown.split()[1]) == pytest.approx(second.created_at.timestamp(), abs=1e-5)


def test_the_status_tells_figures(http: httpx.Client, service: Service) -> None:
    post(http, body(metadata()))
    status = http.get(f"{ADMIN}/status").json()
    assert (status["name"], status["party"]) == (service.name, service.party)
    assert status["version"] == __version__
    assert status["ready"] is True
    assert sum(status["messages"].values()) == 1
    assert status["last_seq"] >= 1


def test_pmodes_are_listed(http: httpx.Client, world: World) -> None:
    pmodes = http.get(f"{ADMIN}/pmodes").json()["pmodes"]
    [sending] = [pmode for pmode in pmodes if pmode["id"] == world.pmode]
    assert sending["sends"] is True


def test_pmodes_are_read_again(http: httpx.Client) -> None:
    answer = http.post(f"{ADMIN}/reload")
    assert answer.status_code == 200
    assert answer.json()["pmodes"] >= 1


def test_pmodes_that_are_wrong_are_told_and_not_used(
    http: httpx.Client, serve: Serve, service: Service
) -> None:
    async def reload() -> Reloaded:
        return Reloaded(ok=False, pmodes=1, problems=("orders.yaml:3: no such MEP", "b"))

    serve(Faulty(service, reload=reload))
    answer = http.post(f"{ADMIN}/reload")
    assert answer.status_code == 422
    assert "orders.yaml:3: no such MEP" in answer.json()["detail"]
    assert [error["message"] for error in answer.json()["errors"]] == [
        "orders.yaml:3: no such MEP",
        "b",
    ]


def test_what_is_past_its_retention_is_removed(
    http: httpx.Client, site: Site, world: World
) -> None:
    post(http, body(metadata(message_id="m-1@x")))
    post(http, body(metadata(message_id="m-2@x")))
    site.run(world.acknowledge("m-1@x"))
    assert http.post(f"{ADMIN}/purge", json={"days": 0}).json() == {"purged": 1}
    assert http.get(f"{PATH}/m-1@x").status_code == 404
    assert http.get(f"{PATH}/m-1@x/events").status_code == 200
    assert http.get(f"{PATH}/m-2@x").status_code == 200


def test_without_a_number_of_days_the_configured_retention_holds(
    http: httpx.Client, serve: Serve, service: Service
) -> None:
    asked: list[float | None] = []

    async def purge(days: float | None = None) -> int:
        asked.append(days)
        return 0

    serve(Faulty(service, purge=purge))
    for given in ({}, {"json": {}}, {"json": {"days": 30}}):
        assert http.post(f"{ADMIN}/purge", **given).status_code == 200  # type: ignore[arg-type]
    assert asked == [None, None, 30]


@pytest.mark.parametrize("given", [{"days": -1}, {"days": "all"}, {"day": 1}, [], 30])
def test_a_wrong_number_of_days_removes_nothing(http: httpx.Client, given: Any) -> None:
    answer = http.post(f"{ADMIN}/purge", json=given)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"].startswith("body")
