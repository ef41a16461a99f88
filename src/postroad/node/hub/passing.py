"""One message on its way through an intermediary that keeps none of it, and what comes back."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from msgspec import Struct

from postroad.agreement.routes import Route
from postroad.msh.forwarding import contradictions
from postroad.node.base.context import Context
from postroad.node.base.journaling import about
from postroad.node.hub.catching import WholeCatch
from postroad.node.hub.forwarding import Letter
from postroad.store.interface import StoreError
from postroad.store.records import Event, Message
from postroad.transport.http_outgoing import Reply
from postroad.transport.http_passage import Passage
from postroad.wire.content import Content

_log = logging.getLogger("postroad.forward")


class Source:
    """The body of a request: what came of it before it was known where to, then the rest."""

    def __init__(self, begin: Content, rest: AsyncIterator[bytes]) -> None:
        self._begin = begin
        self._rest = rest
        self.size = 0
        self.error: Exception | None = None
        """What kept the rest from coming."""
        self.ended = asyncio.Event()
        self.at_end: Callable[[], None] | None = None

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        self.size = 0
        try:
            for piece in self._begin.chunks():
                self.size += len(piece)
                yield piece
            async for piece in self._rest:
                self.size += len(piece)
                yield piece
        except Exception as error:
            self.error = error
            raise
        self.ended.set()
        if self.at_end is not None:
            self.at_end()


class Way(Struct, frozen=True):
    """A message that is to be streamed, and the rule that says so."""

    letter: Letter
    route: Route
    made: Message
    source: Source

    @property
    def synchronous(self) -> bool:
        """Whether the answer of the next MSH is that to the sender."""
        return self.route.to.forward != "stream"


class Journey:
    """One message on its way to one address, and what comes back."""

    def __init__(self, context: Context, way: Way, address: str, passage: Passage) -> None:
        self.context = context
        self.way = way
        self.address = address
        self.passage = passage
        self._leaving: asyncio.Task[None] | None = None
        self.said = ""
        self.taken = False
        way.source.at_end = self.leaves

    def leaves(self) -> None:
        """All of it was given to the network.

        Its events become durable while the next MSH works on it: nobody waits for the disk.
        """
        if self._leaving is None:
            self._leaving = asyncio.create_task(self.record(*self._events()))

    async def left(self) -> None:
        """It is durable that the message came and left."""
        self.leaves()
        assert self._leaving is not None
        await self._leaving

    async def passed_back(self, reply: Reply) -> AsyncGenerator[bytes, None]:
        """The body of the answer as it comes."""
        size = 0
        self.said = f"the next MSH answered HTTP {reply.status}, and its answer broke off"
        async for piece in self.passage.pieces():
            size += len(piece)
            yield piece
        self.taken = reply.status < 400
        self.said = f"the next MSH answered HTTP {reply.status}; {size} bytes were passed back"

    async def whole(self, catch: WholeCatch, head: Reply | None = None) -> Reply:
        """An answer that does not go back to the sender."""
        head = head or await self.passage.head()
        catch.reader(head.content_type)
        async for piece in self.passage.pieces():
            catch(piece)
        return head

    async def end(self, taken: bool, said: str) -> None:
        """The answer came, or nobody wants more of it."""
        await self.close()
        event = "hop_acked" if taken else "send_failed"
        told = about(
            self.way.made, event, self.context.clock(), peer=self.address, detail=said[:2000]
        )
        await self.record(told)

    async def close(self) -> None:
        """Nothing of it is under way any more."""
        await self.passage.close()
        if self._leaving is not None:
            await self._leaving

    async def record(self, *events: Event) -> None:
        """The message has left, whatever becomes of its events."""
        try:
            await self.context.store.run(lambda tx: tx.record(events))
        except StoreError as full:
            _log.error("not recorded", extra={"detail": str(full)})

    def _events(self) -> tuple[Event, Event]:
        """That it came, and that it left."""
        way, made, now = self.way, self.way.made, self.context.clock()
        letter = way.letter
        said = f"by the rule {way.route.id}, passed on as it came"
        common = {"envelope": made.message_id, "wire_bytes": way.source.size}
        received = about(
            made,
            "received",
            letter.now,
            peer=letter.peer,
            detail="; ".join((said, *contradictions(letter.found)))[:2000],
            **common,
        )
        forwarded = about(made, "forwarded", now, peer=self.address, attempt=1, **common)
        self.context.count("messages", side="forwarding", event="received")
        self.context.count("send_attempts", outcome="streamed")
        _log.info("streamed", extra={"message_id": made.message_id, "peer": self.address})
        return received, forwarded
