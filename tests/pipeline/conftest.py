"""What the tests of the pipeline share: one small Spark for all of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from fastapi import FastAPI
from pyspark.sql import SparkSession

from postroad.api.app import create_app
from postroad.pipeline.session import session
from tests.api.memory_service import MemoryService
from tests.api.site import Site
from tests.pipeline.inboxes import TOKEN, Inbox

_PATIENCE: Final = 600


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores and two shuffle partitions; what it leaves lies in a temp folder."""
    folder = tmp_path_factory.mktemp("spark")
    # Much code runs once here: half of the time would go into compiling it well.
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        spark = _started(folder)
    yield spark
    spark.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that share the session run in one process (`--dist loadgroup`), so there is one.

    They wait for Spark and for each other's first use of it: a limit that a busy machine keeps.
    """
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_PATIENCE))


def _started(folder: Path) -> SparkSession:
    return session(
        master="local[2]",
        app="tests",
        memory="1g",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture(scope="session")
def usual_app() -> FastAPI:
    return create_app(MemoryService(), token=TOKEN)


@pytest.fixture
def inbox(site: Site, usual_app: FastAPI) -> Inbox:
    """An empty inbox behind a real door."""

    async def made() -> MemoryService:
        return MemoryService()

    inbox = Inbox(site, usual_app, site.run(made()))
    inbox.serve(usual_app)
    inbox.instead(inbox.service)
    return inbox
