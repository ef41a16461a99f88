"""A node in service, in this process: its doors, and what changes while they are open."""

import asyncio
import hashlib
import os
import resource
import shutil
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from postroad.api.running import RunningNode, server_limits
from postroad.api.serving import ServeError, only_one, read_serving, write_serving
from postroad.node.first_steps.initializing import Plan, Station, initialize
from postroad.node.settings.config import Config, load_config

PATIENCE = 30


def run(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario, PATIENCE))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    first, second = (Station(name, folder / name, 8080 + i) for i, name in enumerate("ab"))
    initialize(Plan(first, second, tls=True), now=datetime.now(UTC))
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A party's folder; both doors take any free port, the partner's TLS key lies there too."""
    shutil.copytree(made / "a", tmp_path / "a")
    shutil.copy(made / "b" / "keys" / "tls.p12", tmp_path / "a" / "keys" / "other.p12")
    file = tmp_path / "a" / "postroad.yaml"
    file.write_text(file.read_text().replace(":8080 ", ":0 ").replace(":8090 ", ":0 "))
    return tmp_path / "a"


@pytest.fixture
def config(folder: Path) -> Config:
    return load_config(folder / "postroad.yaml")


@asynccontextmanager
async def http(**options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE, **options) as client:
        yield client


def test_each_door_has_what_it_serves(config: Config) -> None:
    async def scenario() -> None:
        async with RunningNode(config) as running, http(verify=False) as client:
            msh, api = (door.url for door in running.serving.doors)
            assert (msh.partition(":")[0], api.partition(":")[0]) == ("https", "http")
            assert (await client.get(f"{msh}/msh")).status_code == 405
            assert (await client.post(f"{msh}/msh", content=b"x")).status_code in (400, 415)
            assert (await client.get(f"{msh}/healthz")).status_code == 404
            assert (await client.get(f"{api}/healthz")).status_code == 200
            assert (await client.get(f"{api}/readyz")).json()["ready"] is True
            assert (await client.post(f"{api}/msh", content=b"x")).status_code in (401, 404)

    run(scenario())


@pytest.mark.parametrize(("setting", "status"), [("", 401), (", open_metrics: true", 200)])
def test_metrics_are_open_to_all_only_where_that_is_set(
    folder: Path, setting: str, status: int
) -> None:
    file = folder / "postroad.yaml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("api:")]
    given = f"api: {{token_file: keys/api.token{setting}}}"
    file.write_text("\n".join((*(x for x in lines if "token_file" not in x), given, "")))

    async def scenario() -> None:
        async with RunningNode(load_config(file)) as running, http() as client:
            assert running.serving.api_url is not None
            found = await client.get(f"{running.serving.api_url}/metrics")
            assert found.status_code == status

    run(scenario())


async def shown(url: str) -> str:
    """The digest of the certificate that a door shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, _, port = url.removeprefix("https://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return hashlib.sha256(certificate).hexdigest()


def replace(file: Path, content: bytes) -> None:
    """Put another file into its place; it is older than now, so that nobody is still writing."""
    fresh = file.with_suffix(".new")
    fresh.write_bytes(content)
    os.utime(fresh, (1_700_000_000, 1_700_000_000))
    fresh.replace(file)


def test_a_new_certificate_is_shown_to_new_connections(folder: Path, config: Config) -> None:
    async def scenario() -> None:
        async with RunningNode(config) as running, http(verify=False) as client:
            msh = running.serving.doors[0].url
            await client.get(f"{msh}/msh")
            before = await shown(msh)
            replace(folder / "keys" / "tls.p12", (folder / "keys" / "other.p12").read_bytes())
            await asyncio.to_thread(running.refresh_tls)
            after = await shown(msh)
            assert before != after
            listed = (await running.node.health()).certificates
            assert [one.fingerprint for one in listed if one.use == "tls"] == [after]
            # A connection from before lives on.
            assert (await client.get(f"{msh}/msh")).status_code == 405
            replace(folder / "keys" / "tls.p12", b"no key")
            await asyncio.to_thread(running.refresh_tls)
            assert await shown(msh) == after
            health = await running.node.health()
            assert health.ready
            assert [one.what for one in health.not_in_force] == ["TLS certificates"]

    run(scenario())


def test_a_new_token_is_taken_over(folder: Path, config: Config) -> None:
    file = folder / "keys" / "api.token"

    async def scenario() -> None:
        async with RunningNode(config) as running, http() as client:
            status = f"{running.serving.api_url}/api/v1/admin/status"
            old = {"Authorization": f"Bearer {file.read_text().strip()}"}
            new = {"Authorization": "Bearer another-token-of-32-characters"}
            assert (await client.get(status, headers=old)).status_code == 200
            assert (await client.get(status, headers=new)).status_code == 401
            replace(file, b"another-token-of-32-characters\n")
            await running.node.reload()
            assert (await client.get(status, headers=old)).status_code == 401
            assert (await client.get(status, headers=new)).status_code == 200

    run(scenario())


def test_a_data_folder_is_served_by_one_at_a_time(config: Config) -> None:
    lock = only_one(config)
    with pytest.raises(ServeError, match="is served already; stop that one first"):
        only_one(config)
    lock.close()
    only_one(config).close()


def test_the_file_tells_where_the_node_is_served(config: Config) -> None:
    assert read_serving(config.data) is None

    async def scenario() -> None:
        async with RunningNode(config) as running:
            write_serving(config.data, running.serving)
            found = read_serving(config.data)
            assert found == running.serving
            assert found.pid == os.getpid()
            assert found.msh_url == f"{found.doors[0].url}/msh"
            assert found.api_url == found.doors[1].url
            assert not found.api_url.endswith(":0")

    run(scenario())
    (config.data / "serving.json").write_text("half a fi")
    assert read_serving(config.data) is None


def test_no_more_connections_than_there_are_files_for(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        assert len(config.listen) == 2
        assert server_limits(config).connections == (1024 - 256) // 2 - 32
        assert "Raise that limit" in str(vars(caplog.records[-1])["detail"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    plenty = config.model_copy(update={"http": config.http.model_copy(update={"connections": 100})})
    assert server_limits(plenty).connections == 100
