"""Health, readiness, metrics, and what those who run the node can do."""

import re
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from postroad import __version__
from postroad.api.metrics import metrics_text
from postroad.node.service import Certificate, Health, NotInForce, Reloaded, Service
from postroad.store.interface import StoreFull
from postroad.store.records import Figures
from tests.api.conftest import Serve
from tests.api.site import Site
from tests.api.uploads import PATH, body, metadata, post
from tests.api.world import Faulty, Given, World
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
    health = Health(False, ("so",), figures)
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
    assert 'postroad_work{kind="a\\"\\\\\\n"} 1' in lines
    assert "postroad_oldest_work_timestamp_seconds 1767225600" in lines


def _certificate(use: str, name: str, year: int, partner: str | None = None) -> Certificate:
    begins, ends = datetime(2020, 1, 1, tzinfo=UTC), datetime(year, 1, 1, tzinfo=UTC)
    return Certificate(use, name, "CN=x", begins, ends, f"{use}{name}{year}", partner)


def test_metrics_tell_when_certificates_expire() -> None:
    certificates = (
        _certificate("signing", "keys.signing", 2027),
        _certificate("partner", "orders", 2028, 'sell"er'),
        _certificate("partner", "orders", 2029, 'sell"er'),
    )
    health = Health(True, (), Figures(), certificates=certificates)
    shown = [one for one in metrics_text({}, health, "1").splitlines() if "certificate_exp" in one]
    name = "postroad_certificate_expires_timestamp_seconds"
    assert set(shown[2:]) == {
        f'{name}{{use="signing",name="keys.signing",partner=""}} 1798761600',
        f'{name}{{use="partner",name="orders",partner="sell\\"er"}} 1830297600',
    }


def test_metrics_count_messages_by_pmode_and_partner_up_to_a_bound() -> None:
    many = {("sending", "ready", f"p{number:04}"): 2 for number in range(1100)}
    partners = {f"p{number:04}": f"them-{number}" for number in range(1100)}
    health = Health(True, (), Figures(agreements=many), partner_of=partners)
    family = "postroad_stored_messages{"
    samples = [x for x in metrics_text({}, health, "1").splitlines() if x.startswith(family)]
    assert f'{family}side="sending",state="ready",pmode="p0007",partner="them-7"}} 2' in samples
    assert f'{family}side="sending",state="ready",pmode="other",partner="other"}} 200' in samples
    assert len(samples) == 1001


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
    [failures] = [one for one in told if one.startswith('postroad_partner_failures{partner="a",')]
    assert failures.startswith('postroad_partner_failures{partner="a",gate="paused"} ')
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


def test_the_status_tells_of_partners_and_what_waits_longest(
    http: httpx.Client, site: Site, world: World
) -> None:
    assert http.get(f"{ADMIN}/status").json()["oldest_waiting"] is None
    for name in ("m-1@x", "m-2@x", "m-3@x"):
        post(http, body(metadata(message_id=name)))
    site.run(world.acknowledge("m-1@x"))
    site.run(world.deliver([Given(b"1")]))
    site.run(world.pause("seller"))
    status = http.get(f"{ADMIN}/status").json()
    oldest = status["oldest_waiting"]
    assert (oldest["message_id"], oldest["partner"]) == ("m-2@x", "seller")
    assert oldest["seconds"] >= 0
    [seller] = [one for one in status["partners"] if one["name"] == "seller"]
    assert (seller["gate"], seller["queue"]) == ("paused", 2)
    assert seller["failures"] > 0
    assert seller["messages"]["sending.acknowledged"] == 1
    assert seller["messages"]["receiving.delivered"] == 1
    assert world.pmode in seller["pmodes"]


def test_the_status_tells_of_certificates_disk_and_settings(
    http: httpx.Client, serve: Serve, service: Service
) -> None:
    at = datetime(2026, 12, 15, tzinfo=UTC)
    given = {
        "at": at,
        "certificates": (
            _certificate("signing", "keys.signing", 2026),
            _certificate("partner", "orders", 2027, "seller"),
            _certificate("tls", "listen[0].tls", 2028),
        ),
        "free": 1000,
        "reserve": 10,
        "not_in_force": (NotInForce("postroad.yaml", "workers was changed", "restart the node"),),
    }
    serve(_with_health(service, given))
    status = http.get(f"{ADMIN}/status").json()
    assert [(one["use"], one["warning"]) for one in status["certificates"]] == [
        ("signing", "expired"),
        ("partner", "expires soon"),
        ("tls", None),
    ]
    assert (status["disk"]["free"], status["disk"]["reserve"]) == (1000, 10)
    assert status["not_in_force"] == [
        {"what": "postroad.yaml", "detail": "workers was changed", "to_do": "restart the node"}
    ]


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
