"""What the tests of the transport share: loops, a clock that is moved by hand, plain sockets."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop

from postroad.transport.http_body import ASGIApp, Receive, Scope, Send, body_chunks
from postroad.transport.http_limits import ServerLimits
from postroad.transport.http_server import HttpServer

PATIENCE: Final = 20
"""Seconds after which a test is taken to hang; nothing waits for it when all is well."""
LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run(scenario: Coroutine[Any, Any, None], loop: str = "uvloop") -> None:
    """Run a scenario to its end, on a loop of this kind."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(scenario, PATIENCE))


def in_loop(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(scenario)
    def test(*args: object, **values: object) -> None:
        run(scenario(*args, **values))

    return test


@dataclass
class Clock:
    """Time that passes when a test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Seen:
    """An application that notes what it was asked, and echoes the size of bodies."""

    scopes: list[Scope] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    limit: int = 1 << 30

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        self.changed.set()
        try:
            body = b"".join([piece async for piece in body_chunks(receive, limit=self.limit)])
        except Exception as error:
            self.errors.append(error)
            self.changed.set()
            await answer(send, 413, b"no")
            return
        self.bodies.append(body)
        self.changed.set()
        await answer(send, 200, b"%d" % len(body))

    async def until(self, condition: Callable[["Seen"], bool]) -> None:
        while not condition(self):
            self.changed.clear()
            await self.changed.wait()


async def answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(
    app: ASGIApp, limits: ServerLimits | None = None, **options: Any
) -> AsyncIterator[HttpServer]:
    server = HttpServer(app, limits=limits, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def talking(talk: Talk, **options: Any) -> AsyncIterator[str]:
    """A server that says to each connection what it is told to; gives its URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, **options)
    scheme = "https" if options.get("ssl") else "http"
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head of a request and its body, whose length is told."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().split(b"content-length:")[1].split(b"\r\n")[0]
    return head, await reader.readexactly(int(length))


class Line:
    """A client that writes and reads bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hear(self) -> tuple[int, bytes, bytes]:
        """Status, head and body of one answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        if b"content-length:" not in head:
            return status, head, b""
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        return status, head, await self.reader.readexactly(length)

    async def closed(self) -> bytes:
        """What still comes until the server closes."""
        try:
            return await self.reader.read(-1)
        except ConnectionError:
            return b""

    def hang_up(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def line_to(server: HttpServer, **options: Any) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection(server.host, server.port, **options)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


def post(body: bytes, *headers: str, path: str = "/msh") -> bytes:
    """The bytes of a POST."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until this is so."""
    while not condition():
        await asyncio.sleep(0.001)
