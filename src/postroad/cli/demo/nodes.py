"""What the demo needs around its story: the companies' nodes, and a road for what happens."""

import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Self
from urllib.parse import urlsplit

from postroad.api.client import Client

_PATIENCE = 60.0
_LOOK_AGAIN = 0.05
_PIECE = 256 * 1024


class NotStarted(Exception):
    """A node of the demo does not come up; the sentence says what it said."""


class RunningNode:
    """A node in a process of its own, started by `postroad serve`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "node.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.client: Client
        self.serves: set[str] = set()
        """What its doors are for: msh, api, console."""

    def __enter__(self) -> Self:
        self._begin()
        return self

    def _begin(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "postroad",
                    "serve",
                    "-c",
                    str(self.folder / "postroad.yaml"),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def ready(self) -> None:
        """Wait until it is served."""
        token = (self.folder / "keys/api.token").read_text().strip()
        self.client = Client(self._serving(), token=token)

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def killed_and_started_again(self) -> None:
        """Sudden death (SIGKILL), and a new start over what is on the disk."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._begin()
        self.ready()

    def _serving(self) -> str:
        """Where the node is served, once it is."""
        file = self.folder / "data/serving.json"
        until = monotonic() + _PATIENCE
        while monotonic() < until:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            with suppress(OSError, ValueError):
                facts = json.loads(file.read_text())
                if facts["pid"] == self._process.pid:
                    self.serves = {one for door in facts["doors"] for one in door["serve"]}
                    return next(str(one["url"]) for one in facts["doors"] if "api" in one["serve"])
            threading.Event().wait(_LOOK_AGAIN)
        said = self.log.read_text(errors="replace").strip().splitlines()
        reason = said[-1].removeprefix("postroad: ") if said else f"see {self.log}"
        raise NotStarted(f"the node in {self.folder} did not start: {reason}")


Carry = Callable[["Road", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Road:
    """A relay on loopback between two nodes; `carry` is what happens to one request on it."""

    def __init__(self, target: str, carry: Carry) -> None:
        parts = urlsplit(target)
        self.target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._handle = carry
        self._path = parts.path
        self._loop = asyncio.new_event_loop()
        self._stack = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}{self._path}"
        thread = threading.Thread(target=self._serve, args=(listening,), daemon=True)
        thread.start()
        self._stack.callback(thread.join, 5)
        self._stack.callback(self._loop.call_soon_threadsafe, self._loop.stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _serve(self, listening: socket.socket) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._carry, sock=listening))
        try:
            self._loop.run_forever()
        finally:
            server.close()
            self._loop.run_until_complete(_ended(asyncio.all_tasks(self._loop)))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # At the end of the demo: the stream's own callback cannot bear a cancelled task.
        with suppress(asyncio.CancelledError):
            try:
                await self._handle(self, reader, writer)
            finally:
                writer.close()


async def _ended(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Those who still carry something leave it."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One request: its head, which closes the connection behind it, and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    )
    body = await reader.readexactly(length)
    return head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), body


def tampering(change: Callable[[bytes], bytes]) -> Carry:
    """A road on which the body of each request is changed."""

    async def carry(road: Road, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, body = await _request(reader)
        there, onward = await asyncio.open_connection(*road.target)
        onward.write(head + change(body))
        writer.write(await there.read())
        await writer.drain()
        onward.close()

    return carry


def stormy(strike: Callable[[], None], lost: int) -> Carry:
    """A road on which lightning strikes the first request, and then so many replies are lost."""
    replies = itertools.count()
    struck: list[asyncio.Task[None]] = []

    async def carry(road: Road, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, body = await _request(reader)
        if struck:
            await struck[0]
            if reader.at_eof():
                return
        there, onward = await asyncio.open_connection(*road.target)
        if not struck:
            onward.write(head + body[: len(body) // 2])
            await onward.drain()
            struck.append(asyncio.create_task(asyncio.to_thread(strike)))
            await struck[0]
        else:
            onward.write(head + body)
            reply = await there.read()
            if next(replies) >= lost:
                writer.write(reply)
                await writer.drain()
        onward.close()

    return carry


class Line:
    """A road on which all connections are cut at once, each time after so many bytes more."""

    def __init__(self, *cuts: int) -> None:
        self.cuts = list(cuts)
        """Those that are still to come."""
        self._open: set[asyncio.StreamWriter] = set()
        self._since = 0
        self.bytes = 0
        """That were sent over it, whether they arrived or not."""
        self.lost = 0
        """Connections that were cut."""

    async def carry(
        self, road: Road, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, onward = await asyncio.open_connection(*road.target)
        ends = {writer, onward}
        self._open |= ends
        back = asyncio.create_task(_passed(there, writer))
        try:
            while data := await reader.read(_PIECE):
                self.bytes += len(data)
                self._since += len(data)
                onward.write(data)
                if self.cuts and self._since >= self.cuts[0]:
                    self._cut()
                await onward.drain()
        except OSError:
            pass
        finally:
            back.cancel()
            self._open -= ends
            onward.close()

    def _cut(self) -> None:
        del self.cuts[0]
        self._since = 0
        self.lost += len(self._open) // 2
        for one in self._open:
            one.transport.abort()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What comes is passed on, until it ends at either side."""
    with suppress(OSError):
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
        writer.close()


def flip_one_bit(body: bytes) -> bytes:
    """Change one bit in the last part of a MIME message, some way before its end."""
    at = body.rindex(b"\r\n--") - 20
    return body[:at] + bytes((body[at] ^ 1,)) + body[at + 1 :]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def disk_bytes(size: int) -> bytes:
    """A file that compression makes smaller, though not small."""
    line = os.urandom(48).hex().encode() + b";4711;copper wire;2500;m\n"
    return (line * (size // len(line) + 1))[:size]
