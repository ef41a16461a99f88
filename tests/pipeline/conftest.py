"""What the tests of the pipeline share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from fastapi import FastAPI

from postroad.api.app import create_app
from tests.api.memory_service import MemoryService
from tests.api.site import Site
from tests.pipeline.inboxes import TOKEN, Inbox

_PATIENCE: Final = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They wait for Spark, the first of them longest: a limit that a busy machine keeps."""
    for item in items:
        ours = Path(__file__).parent in item.path.parents
        if ours and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_PATIENCE))


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
