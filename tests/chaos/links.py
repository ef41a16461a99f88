"""The network between the nodes: one TCP proxy in front of each door, which spoils connections.

A proxy knows nothing of HTTP or SMTP. It counts bytes, and at a byte that was drawn it closes,
resets, stalls or slows the connection. An outage is a state of the whole link for a time.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FAULTS: Final = {
    "refuse": 0.02,
    "reset": 0.04,
    "cut the request": 0.05,
    "cut the response": 0.07,
    "delay": 0.05,
    "slow": 0.04,
    "swallow": 0.02,
}
"""How often each fault meets a connection."""
OUTAGES: Final = ("refuse", "reset", "swallow", "delay")
_PIECE: Final = 16_384
_STALL: Final = 12.0
"""Seconds after which a connection that leads nowhere is closed."""


@dataclass
class _Connection:
    """What is going to happen to one connection."""

    fault: str | None
    at: int
    """The byte of its direction at which it happens."""
    wait: float


class Link:
    """A proxy in front of one door."""

    def __init__(self, name: str, port: int, target: int, seed: str) -> None:
        self.name = name
        self.port = port
        self.target = target
        self.met: Counter[str] = Counter()
        self.connections = 0
        self.outage: str | None = None
        self.healthy = False
        self._dice = random.Random(f"{seed} link {name}")
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def begin(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def cut_all(self) -> None:
        """Reset the connections that are open."""
        for writer in list(self._open):
            _reset(writer)

    def _draw(self) -> _Connection:
        self.connections += 1
        fault = None
        if self.outage is not None:
            fault = self.outage
        elif not self.healthy:
            number = self._dice.random()
            for name, share in FAULTS.items():
                number -= share
                if number < 0:
                    fault = name
                    break
        if fault is not None:
            self.met[fault] += 1
        at = int(self._dice.expovariate(1 / 8_000)) if self.outage is None else 0
        return _Connection(fault, at, self._dice.uniform(0.2, 3.0))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._pass_on(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plan = self._draw()
        if plan.fault == "refuse":
            _reset(writer)
            return
        if plan.fault == "delay":
            await asyncio.sleep(plan.wait)
        if plan.fault == "swallow" and plan.at < 2_000:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(), _STALL)
            return
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        self._open.add(back)
        ways = [
            asyncio.ensure_future(self._copy(reader, back, plan, requests=True)),
            asyncio.ensure_future(self._copy(there, writer, plan, requests=False)),
        ]
        try:
            # What is left of an answer still goes its way after the request has ended.
            await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._open.discard(back)
            back.close()

    async def _copy(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        plan: _Connection,
        *,
        requests: bool,
    ) -> None:
        mine = plan.fault in (("cut the request", "reset") if requests else ("cut the response",))
        swallows = plan.fault == "swallow"
        passed = 0
        while piece := await source.read(_PIECE):
            if mine and passed + len(piece) > plan.at:
                sink.write(piece[: plan.at - passed])
                await sink.drain()
                if plan.fault == "reset":
                    _reset(sink)
                raise ConnectionAbortedError
            if swallows and not requests and passed + len(piece) > plan.at:
                await asyncio.sleep(_STALL)
                raise ConnectionAbortedError
            if plan.fault == "slow":
                for begin in range(0, len(piece), 4_096):
                    sink.write(piece[begin : begin + 4_096])
                    await sink.drain()
                    await asyncio.sleep(plan.wait / 60)
            else:
                sink.write(piece)
                await sink.drain()
            passed += len(piece)
        with contextlib.suppress(OSError):
            sink.write_eof()


class Network:
    """All links, served by one thread."""

    def __init__(self, links: Mapping[str, Link]) -> None:
        self.links = links
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        for link in self.links.values():
            asyncio.run_coroutine_threadsafe(link.begin(), self._loop).result(30)

    def begin_outage(self, name: str, mode: str) -> None:
        """Let every connection of a link meet one fault, from now on."""
        link = self.links[name]
        link.outage = mode
        self._loop.call_soon_threadsafe(link.cut_all)

    def end_outage(self, name: str) -> None:
        self.links[name].outage = None

    def heal(self) -> None:
        """Spoil nothing any more."""
        for link in self.links.values():
            link.outage, link.healthy = None, True
            self._loop.call_soon_threadsafe(link.cut_all)

    @property
    def faults(self) -> Counter[str]:
        return sum((link.met for link in self.links.values()), Counter())


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
