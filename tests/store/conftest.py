"""Stories that are told to a store, of each backend in turn."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from postroad.store.interface import OpenStore, Store
from postroad.store.memory import open_memory
from postroad.store.sqlite import open_sqlite

BACKENDS: dict[str, OpenStore] = {"sqlite": open_sqlite, "memory": open_memory}
"""A backend that is added here is held to the whole contract."""

Story = Callable[[Store], Awaitable[None]]


@pytest.fixture(params=sorted(BACKENDS))
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Story], None]:
    """Run a story against a new store."""
    open_store = BACKENDS[request.param]

    async def told(story: Story) -> None:
        store = await open_store(tmp_path / "store", "station")
        try:
            await story(store)
        finally:
            await store.close()

    return lambda story: asyncio.run(told(story))
