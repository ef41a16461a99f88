"""A real HTTP server on loopback, in a thread, for whatever application a test puts into it."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")


class Site:
    """The server; `app` can be changed at any time, `run` runs something on its loop."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None
        # Only of a socket that says TCP does asyncio switch off the delay of small answers.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            self._call, interface="asgi3", log_level="critical", lifespan="off", ws="none"
        )
        self._server = uvicorn.Server(config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._server.serve(sockets=[self._socket]))

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.app is not None
        await self.app(scope, receive, send)


class LostReplies:
    """An application whose first answers to some requests are lost on the way, though it acted."""

    def __init__(self, app: ASGIApp, times: int, concerns: Callable[[Scope], bool]) -> None:
        self._app = app
        self._concerns = concerns
        self.left = times
        self.asked = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._concerns(scope):
            await self._app(scope, receive, send)
            return
        self.asked += 1
        if self.left == 0:
            await self._app(scope, receive, send)
            return
        self.left -= 1
        await self._app(scope, receive, _nowhere)
        headers = [(b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})


async def _nowhere(message: Message) -> None:
    """An answer that nobody gets."""
