"""The interface on a real socket, with a service behind it."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp

from postroad import AsyncClient, Client
from postroad.api.app import create_app
from postroad.api.guesses import Guesses
from postroad.node.service import Service
from tests.api.memory_service import MemoryService
from tests.api.site import Site
from tests.api.world import MemoryWorld, World

TOKEN: Final = "a-token-of-the-tests"

Serve = Callable[..., ASGIApp]
Connect = Callable[..., Any]


class InSync:
    """An asynchronous client whose calls are run at once."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def listed(found: Any) -> list[Any]:
            return [one async for one in found]

        def call(*given: Any, **named: Any) -> Any:
            found = method(*given, **named)
            return self._runner.run(found if inspect.iscoroutine(found) else listed(found))

        return call


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def world(site: Site) -> World:
    async def made() -> MemoryWorld:
        return MemoryWorld()

    return site.run(made())


@pytest.fixture
def service(world: World) -> Service:
    return world.service


@pytest.fixture(scope="session")
def usual_app() -> FastAPI:
    """Made once, since its first request is slow; each test puts its own service into it."""

    async def no_delay(_: float) -> None:
        """Tests give many wrong tokens."""

    return create_app(MemoryService(), token=TOKEN, guesses=Guesses(pause=no_delay))


@pytest.fixture
def serve(site: Site, service: Service, usual_app: FastAPI) -> Serve:
    """Put the interface into the server, with other settings or another service if need be."""

    def put(instead: Any = None, *, token: str = TOKEN, **options: Any) -> ASGIApp:
        usual = token == TOKEN and not options
        app = usual_app if usual else create_app(service, token=token, **options)
        app.state.service = instead or service
        site.app = app
        return app

    return put


@pytest.fixture
def http(site: Site, serve: Serve) -> Iterator[httpx.Client]:
    """Anything that speaks HTTP and has the token."""
    serve()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=site.url, headers=headers, timeout=20, verify=False) as client:
        yield client


@pytest.fixture
def client(site: Site, serve: Serve) -> Iterator[Client]:
    serve()
    with Client(site.url, token=TOKEN, backoff=0, verify=False) as client:
        yield client


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest, site: Site, serve: Serve) -> Iterator[Connect]:
    """Makes a client of either kind."""
    serve()
    settings: dict[str, Any] = {"token": TOKEN, "backoff": 0.0, "verify": False}
    made: list[Any] = []
    with asyncio.Runner() as runner:

        def connected(url: str = site.url, **other: Any) -> Any:
            if request.param == "sync":
                made.append(Client(url, **(settings | other)))
            else:
                made.append(InSync(AsyncClient(url, **(settings | other)), runner))
            return made[-1]

        yield connected
        for client in made:
            client.close()


@pytest.fixture
def either(connect: Connect) -> Any:
    return connect()
