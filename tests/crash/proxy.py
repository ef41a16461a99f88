"""A proxy between two nodes that does to their exchanges what a bad network does.

It knows just enough HTTP/1.1 to tell where a request and its reply end, and passes every byte on as
it came. For each exchange the dice say whether it goes well or meets a fault; for the first ones it
can be said beforehand. `heal` ends all faults. Only this machine is connected to, and everything
ends within the times it is given.

    proxy = Proxy(target=8081, dice=random.Random(seed), rates={Fault.DROP_REPLY: 0.05})
    with in_a_thread(proxy):
        ...  # talk to proxy.url
"""

import asyncio
import contextlib
import random
import re
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

HOST: Final = "127.0.0.1"
_PIECE: Final = 64 * 1024
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes closing a reset."""
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding:[^\r\n]*chunked[ \t]*\r\n", re.IGNORECASE)
_CLOSING: Final = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
_DROP: Final = 16
_PATIENCE: Final = 20.0
_MESSAGE_ID: Final = re.compile(rb"<eb:MessageId>([^<]+)<")
_BODILESS: Final = frozenset({204, 304})


class Fault(StrEnum):
    REFUSE = "refused"
    """Nobody listens for a moment: connections are refused, those that idle are gone."""
    CUT_REQUEST = "request cut"
    """The target gets the head and some of the body, then both connections are reset."""
    HALF_OPEN = "half-open"
    """The request is taken and nothing happens, until the connection is reset."""
    DROP_REPLY = "reply dropped"
    """The target answers and believes to have been heard; the client sees a reset."""
    CUT_REPLY = "reply cut"
    """The client gets some of the reply, then a reset."""
    DUPLICATE = "request duplicated"
    """The target gets the same request once more, at once or later; its second reply is lost."""
    DELAY = "delayed"
    """The request arrives late, even when the client has given it up."""
    SLOW = "slow"
    """Request and reply dribble."""


Rates = Mapping[Fault, float]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that faults take at most."""

    refused: float = 0.3
    half_open: float = 3.0
    late: float = 3.0
    """Until a delayed request, or the second copy of a duplicated one, is passed on."""
    drip: float = 0.005
    """Between two drops of a slow message."""
    drops: int = 60
    """So many drops a slow message is made of, at most."""


DEFAULT_TIMES: Final = Times()


class Cut(ConnectionError):
    """Both connections end here."""


_BROKEN: Final = (
    OSError,
    ValueError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,
)
"""What a connection that fails, or talks no HTTP, raises."""


@dataclass(slots=True)
class Message:
    """A request or a reply whose head is here and whose body is on its way."""

    head: bytes
    reader: asyncio.StreamReader
    status: int = 0
    """Of a reply."""

    @property
    def length(self) -> int | None:
        """Bytes of the body; None when only its chunks or its end tell."""
        if self.status and (self.status < 200 or self.status in _BODILESS):
            return 0
        if _CHUNKED.search(self.head):
            return None
        told = _LENGTH.search(self.head)
        if told is not None:
            return int(told[1])
        return None if self.status else 0

    @property
    def lasts(self) -> bool:
        """Whether the connection is good for another message after this one."""
        ended = self.length is not None or _CHUNKED.search(self.head) is not None
        return ended and _CLOSING.search(self.head) is None

    async def pieces(self) -> AsyncIterator[bytes]:
        """All of it as it comes, the head first."""
        yield self.head
        if self.length is not None:
            async for piece in _exactly(self.reader, self.length):
                yield piece
        elif _CHUNKED.search(self.head):
            async for piece in _chunks(self.reader):
                yield piece
        else:
            while piece := await self.reader.read(_PIECE):
                yield piece


async def read_request(reader: asyncio.StreamReader) -> Message | None:
    """The next request; None when the client has no more."""
    try:
        return Message(await reader.readuntil(b"\r\n\r\n"), reader)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None


async def read_reply(reader: asyncio.StreamReader) -> Message:
    head = await reader.readuntil(b"\r\n\r\n")
    return Message(head, reader, int(head.split(b" ", 2)[1]))


async def _exactly(reader: asyncio.StreamReader, count: int) -> AsyncIterator[bytes]:
    while count:
        piece = await reader.read(min(count, _PIECE))
        if not piece:
            raise asyncio.IncompleteReadError(b"", count)
        count -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """A chunked body with its sizes and trailers."""
    while True:
        line = await reader.readuntil(b"\r\n")
        yield line
        size = int(line.partition(b";")[0], 16)
        if not size:
            break
        async for piece in _exactly(reader, size + 2):
            yield piece
    while line != b"\r\n":
        line = await reader.readuntil(b"\r\n")
        yield line


@dataclass(slots=True, eq=False)
class Line:
    """One connection. What was said has been given to the network."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def __post_init__(self) -> None:
        self.writer.transport.set_write_buffer_limits(high=0)

    @property
    def is_over(self) -> bool:
        ended = self.reader.at_eof() or self.reader.exception() is not None
        return ended or self.writer.is_closing()

    async def say(self, piece: bytes) -> None:
        self.writer.write(piece)
        await self.writer.drain()

    def end(self) -> None:
        """The other end gets all that was said."""
        self.writer.transport.abort()

    def reset(self) -> None:
        """The other end gets an error."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None and not self.writer.is_closing():
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.writer.transport.abort()


class Proxy:
    """Stands before a port of this machine, and spoils what passes."""

    def __init__(
        self,
        target: int,
        dice: random.Random,
        rates: Rates,
        *,
        first: Iterable[Fault | None] = (),
        port: int = 0,
        times: Times = DEFAULT_TIMES,
    ) -> None:
        self.port = port
        self.owed = deque(first)
        """What the next exchanges meet, whatever the dice say."""
        self.exchanges = 0
        self.met: Counter[Fault] = Counter()
        """The faults there were."""
        self.doubled: Counter[str] = Counter()
        """How often a request was duplicated, by the message ids in it: a bundle has several."""
        self.copies = 0
        """Those that are still on their way."""
        self._target = target
        self._dice = dice
        self._rates = dict(rates)
        self._times = times
        self._server: asyncio.Server | None = None
        self._idle: set[Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def heal(self) -> None:
        """No more faults; those that began come to their end."""
        self.owed.clear()
        self._rates.clear()

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._talk, HOST, self.port, limit=_PIECE, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._stop_listening()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Connections

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, as long as it has requests."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        client = Line(reader, writer)
        target: Line | None = None
        try:
            while (request := await self._next(client)) is not None:
                fault = self._draw()
                await self._keep_out(fault)
                if target is None or target.is_over:
                    target = await self._connect()
                if not await self._exchange(fault, request, client, target):
                    break
        except _BROKEN:
            client.reset()
        except asyncio.CancelledError:
            # Only `close` does that; whoever runs the task would complain.
            client.reset()
        finally:
            self._tasks.discard(task)
            client.end()
            if target is not None:
                target.end()

    async def _next(self, client: Line) -> Message | None:
        self._idle.add(client)
        try:
            return await read_request(client.reader)
        finally:
            self._idle.discard(client)

    def _draw(self) -> Fault | None:
        self.exchanges += 1
        fault = self.owed.popleft() if self.owed else self._thrown()
        if fault is not None:
            self.met[fault] += 1
        return fault

    def _thrown(self) -> Fault | None:
        drawn = self._dice.random()
        for fault, rate in tuple(self._rates.items()):
            if drawn < rate:
                return fault
            drawn -= rate
        return None

    async def _connect(self) -> Line:
        return Line(*await asyncio.open_connection(HOST, self._target, limit=_PIECE))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop_listening(self) -> bool:
        self._server, server = None, self._server
        if server is not None:
            server.close()
        return server is not None

    async def _listen_again(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.start()

    # Faults

    async def _keep_out(self, fault: Fault | None) -> None:
        """The faults of which the target sees nothing."""
        if fault is Fault.REFUSE:
            if self._stop_listening():
                self._begin(self._listen_again(self._dice.uniform(0, self._times.refused)))
            for line in tuple(self._idle):
                line.reset()
            raise Cut
        if fault is Fault.HALF_OPEN:
            await asyncio.sleep(self._times.half_open)
            raise Cut

    async def _exchange(
        self, fault: Fault | None, request: Message, client: Line, target: Line
    ) -> bool:
        """One request and its reply; whether another may follow on these connections."""
        sending = asyncio.create_task(self._pass_request(fault, request, target))
        try:
            while (reply := await read_reply(target.reader)).status < 200:
                await client.say(reply.head)
            await self._pass_reply(fault, reply, client)
            return sending.done() and request.lasts and reply.lasts
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _pass_request(self, fault: Fault | None, request: Message, target: Line) -> None:
        try:
            if fault is Fault.CUT_REQUEST:
                await self._pass_some(request, target)
            elif fault is Fault.DELAY:
                whole = await _whole(request)
                await asyncio.sleep(self._dice.uniform(0, self._times.late))
                await target.say(whole)
            elif fault is Fault.DUPLICATE:
                whole = await _whole(request)
                await target.say(whole)
                self.copies += 1
                self._begin(self._say_again(whole))
                self.doubled.update({one.decode() for one in _MESSAGE_ID.findall(whole)})
            else:
                await self._pass(request, target, slowly=fault is Fault.SLOW)
        except BaseException:
            target.end()
            raise

    async def _pass_reply(self, fault: Fault | None, reply: Message, client: Line) -> None:
        if fault is Fault.DROP_REPLY:
            await _whole(reply)
            raise Cut
        if fault is Fault.CUT_REPLY:
            try:
                await self._pass_some(reply, client)
            finally:
                client.end()
        await self._pass(reply, client, slowly=fault is Fault.SLOW)

    async def _pass(self, message: Message, to: Line, *, slowly: bool) -> None:
        drop = max(_DROP, (message.length or 0) // self._times.drops) if slowly else _PIECE
        async for piece in message.pieces():
            for begin in range(0, len(piece), drop):
                await to.say(piece[begin : begin + drop])
                if slowly:
                    await asyncio.sleep(self._times.drip)

    async def _pass_some(self, message: Message, to: Line) -> None:
        """Not the whole message: of a body that has a length some, else some of the head."""
        head = len(message.head)
        left = (
            head + self._dice.randrange(message.length)
            if message.length
            else self._dice.randrange(1, head)
        )
        async for piece in message.pieces():
            await to.say(piece[:left])
            left -= len(piece)
            if left <= 0:
                raise Cut

    async def _say_again(self, request: bytes) -> None:
        """Half of the copies come while the first one is being looked at."""
        try:
            if self._dice.random() < 0.5:
                await asyncio.sleep(self._dice.uniform(0, self._times.late))
            with contextlib.suppress(*_BROKEN):
                target = await self._connect()
                try:
                    await target.say(request)
                    async with asyncio.timeout(self._times.half_open):
                        await _whole(await read_reply(target.reader))
                finally:
                    target.end()
        finally:
            self.copies -= 1


async def _whole(message: Message) -> bytes:
    return b"".join([piece async for piece in message.pieces()])


@contextlib.contextmanager
def in_a_thread(*proxies: Proxy) -> Iterator[None]:
    """They run beside whatever else is done here."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxies", daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(_PATIENCE)

    try:
        for proxy in proxies:
            run(proxy.start())
        yield
    finally:
        for proxy in proxies:
            run(proxy.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_PATIENCE)
        loop.close()
