"""A line between a client and a server of this machine that is cut where a test says so."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

_PIECE: Final = 64 * 1024


@dataclass(frozen=True)
class Cut:
    """Where a connection is cut: after so many bytes to the server, or of its answer."""

    up: int | None = None
    down: int | None = None
    silent: bool = False
    """The server is not told: its end of the line stays open."""


@dataclass
class Passed:
    size: int = 0
    head: bytes = b""
    """The first piece."""


@dataclass
class CutLine:
    """Each connection is passed on as it comes, up to the next of the cuts."""

    target: int
    cuts: list[Cut | None]
    port: int = 0
    passed: list["Passed"] = field(default_factory=list)
    """What each connection brought to the server."""
    open: list[asyncio.StreamWriter] = field(default_factory=list)
    """Ends at the server that nobody told of the cut."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sent(self) -> list[int]:
        return [one.size for one in self.passed]

    @property
    def heads(self) -> list[bytes]:
        return [one.head for one in self.passed]

    @property
    def methods(self) -> list[str]:
        return [head.split(b" ", 1)[0].decode() for head in self.heads]

    def again(self, cuts: Iterable[Cut | None] = ()) -> None:
        """Begin anew, with other cuts."""
        self.cuts = list(cuts)
        self.passed = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        cut = (self.cuts.pop(0) if self.cuts else None) or Cut()
        passed = Passed()
        self.passed.append(passed)
        try:
            back, to = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        up = asyncio.create_task(_up(reader, to, passed, cut.up))
        down = asyncio.create_task(_pass(back, writer, cut.down))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            down.cancel()
            writer.transport.abort()
            if cut.silent:
                self.open.append(to)
            else:
                to.close()


async def _up(
    reader: asyncio.StreamReader, to: asyncio.StreamWriter, passed: Passed, left: int | None
) -> None:
    while piece := await reader.read(_PIECE if left is None else min(left, _PIECE)):
        passed.head = passed.head or piece
        to.write(piece)
        await to.drain()
        passed.size += len(piece)
        if left is not None:
            left -= len(piece)
            if not left:
                return


async def _pass(reader: asyncio.StreamReader, to: asyncio.StreamWriter, left: int | None) -> None:
    if left == 0:
        await reader.read(1)
    while left != 0 and (piece := await reader.read(_PIECE if left is None else min(left, _PIECE))):
        to.write(piece)
        await to.drain()
        left = None if left is None else left - len(piece)
    if left is None:
        # What was said is read before the end is seen.
        to.close()
        await to.wait_closed()


@asynccontextmanager
async def line(target: int, cuts: Iterable[Cut | None] = ()) -> AsyncIterator[CutLine]:
    """A line to a port of this machine."""
    cutting = CutLine(target, list(cuts))
    server = await asyncio.start_server(cutting.talk, "127.0.0.1", 0)
    cutting.port = server.sockets[0].getsockname()[1]
    try:
        yield cutting
    finally:
        server.close()
        for task in tuple(cutting.tasks):
            task.cancel()
        await asyncio.gather(*cutting.tasks, return_exceptions=True)
        for writer in cutting.open:
            writer.transport.abort()
