"""One request of an upload, recorded while it is read, so that what came outlives it.

Nothing is recorded before the envelope is there and a partner whose uploads may go on has signed
it. What came is kept when the line breaks, and from time to time before, so that not even the end
of this process loses much.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace as changed

from postroad.agreement.restarting import restart_of
from postroad.msh.capture import Incoming
from postroad.msh.restarting import Begun, begun
from postroad.node.base.context import Context
from postroad.node.base.requests import Request
from postroad.reliability.restart import Room, has_room
from postroad.store.interface import StoreError, Transaction
from postroad.store.transfers import StoredTransfer
from postroad.transport.http_body import Truncated
from postroad.wire.content import Content, NoSink, Sink
from postroad.wire.errors import EbmsError
from postroad.wire.limits import MIB

LEASE: Final = timedelta(seconds=30)
"""So long an upload is somebody's without a sign of life."""
CHECKPOINT: Final = timedelta(seconds=10)
"""What came in that time is kept at the latest."""
_SILENCE: Final = 0.2
"""Seconds without a byte after which a line that was given up is at its end."""
ENDED_WITHIN: Final = 10.0
DECIDED_SOON: Final = 0.25
"""Seconds after which other processes are told of an upload that is here and not decided yet."""
_RENEWED: Final = LEASE.total_seconds() / 3
_BEGINNING: Final = MIB
"""The envelope is there before so many bytes."""

Key = tuple[str, str, str]
"""Who sends, where to, and the name of the upload."""


class Details(msgspec.Struct, frozen=True):
    """What is known of an upload beside how much came."""

    content_type: str | None
    message_ids: tuple[str, ...]
    interval: float
    """Seconds for which it is kept."""
    whole: bool = False
    """All of it came, more than what is kept, and what becomes of it is being decided."""
    status: int = 0
    """Of the answer, where it is done."""
    answer_type: str | None = None
    answer: bytes = b""


class Reception:
    """What a request brings of one upload; `over` is set when nothing more comes of it."""

    def __init__(
        self, context: Context, key: Key, request: Request, known: StoredTransfer | None, owner: str
    ) -> None:
        self._context = context
        self._key = key
        self._request = request
        self._known = known
        """The upload as the store has it, once something of it is kept."""
        self._owner = owner
        self.over = asyncio.Event()
        self._all_came = asyncio.Event()
        self.ended = False
        """Somebody else goes on with it."""
        self.decided = False
        """What becomes of it is known, and is being written down."""
        self._waiting: asyncio.Timeout | None = None
        self._sink: Sink | None = None
        self._beginning: bytearray | None = None
        self._incoming: Incoming | None = None
        self._received = known.stored if known is not None else 0
        self._kept_at = context.clock()
        range = request.upload.range if request.upload is not None else None
        self._total = range.total if range is not None else request.length
        self.details: Details | None = None
        self._partner = known.partner if known is not None else ""
        if known is not None:
            self._total = known.total if known.total is not None else self._total
            self.details = changed(msgspec.json.decode(known.details, type=Details), whole=False)
            self._sink = context.store.new_sink()
        else:
            self._begin()

    def _begin(self) -> None:
        try:
            kind, limits = self._request.content_type, self._context.limits
            self._incoming = Incoming(kind, new_sink=NoSink, limits=limits)
            self._beginning = bytearray()
        except EbmsError:
            # Who reads it says what is wrong.
            pass

    @property
    def request(self) -> Request:
        """The request as if all of the message came with it."""
        kind = self.details.content_type if self.details is not None else None
        return changed(
            self._request,
            content_type=kind or self._request.content_type,
            body=self._body(),
            length=self._total,
        )

    @property
    def whole(self) -> bool:
        """All of it came."""
        return self._all_came.is_set()

    @property
    def there(self) -> int:
        """How much came of an upload that may go on, as long as nothing is decided about it."""
        return self._received if self.whole and self.details is not None else 0

    async def end(self) -> None:
        """Nobody sends to it any more, though the line may seem to be open; wait for its end."""
        if not self.whole:
            self.ended = True
            if self._waiting is not None:
                self._waiting.reschedule(asyncio.get_running_loop().time() + _SILENCE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDED_WITHIN):
                await self.over.wait()

    async def _body(self) -> AsyncIterator[bytes]:
        """What was kept, then what comes."""
        store = self._context.store
        for piece in self._known.pieces if self._known is not None else ():
            chunks = await asyncio.to_thread(store.content(piece).chunks)
            while (chunk := await asyncio.to_thread(_next, chunks)) is not None:
                yield chunk
        coming = aiter(self._request.body)
        while (chunk := await self._next(coming)) is not None:
            self._received += len(chunk)
            if self._total is not None and self._received > self._total:
                raise Truncated(self._received)
            await self._record(chunk)
            yield chunk
        if self._total is not None and self._received < self._total:
            raise Truncated(self._received)
        self._all_came.set()

    async def _next(self, coming: AsyncIterator[bytes]) -> bytes | None:
        try:
            # What came before the line died is still to be read.
            async with asyncio.timeout(_SILENCE if self.ended else None) as self._waiting:
                return await anext(coming, None)
        except TimeoutError:
            raise Truncated(self._received) from None
        finally:
            self._waiting = None

    # What is recorded

    async def _record(self, chunk: bytes) -> None:
        if self._sink is not None:
            self._sink.write(chunk)
            late = self._context.clock() - self._kept_at >= CHECKPOINT
            if late and self._received != self._total:
                await self.keep(open=True)
        elif self._beginning is not None:
            await self._recognise(chunk)

    async def _recognise(self, chunk: bytes) -> None:
        """Look who sends it, as soon as the envelope is there."""
        assert self._incoming is not None
        assert self._beginning is not None
        self._beginning += chunk
        try:
            self._incoming.feed(chunk)
            envelope = self._incoming.root
        except EbmsError:
            self._give_up()
            return
        if envelope is None:
            if len(self._beginning) > _BEGINNING:
                self._give_up()
            return
        context = self._context
        lens = context.in_force.lens(context.clock(), context.store.new_sink)
        found = await asyncio.to_thread(begun, envelope, lens)
        if found is None or not self._agreed(found):
            self._give_up()
            return
        self._sink = context.store.new_sink()
        self._sink.write(bytes(self._beginning))
        self._beginning = None
        self._incoming.abort()

    def _agreed(self, found: Begun) -> bool:
        """Whether uploads by this P-Mode go on, and for how long they are kept. [P2-6.4.3-03]"""
        agreed = restart_of(found.match.leg)
        if agreed is None or not self._context.in_force.receives(found.match):
            return False
        longest = self._context.config.restart.longest_interval
        interval = min(agreed.interval or longest, longest).total_seconds()
        self.details = Details(self._request.content_type, found.message_ids, interval)
        self._partner = found.partner
        return True

    def _give_up(self) -> None:
        """It cannot go on if it breaks off, and goes its way like any other."""
        if self._incoming is not None:
            self._incoming.abort()
        self._incoming = self._beginning = self._sink = None

    # What is kept

    async def keep(self, *, open: bool = False) -> None:
        """Make durable what came; nothing, where there is no room or somebody else goes on."""
        sink, self._sink = self._sink, None
        if sink is None or self.details is None:
            return
        context = self._context
        try:
            content = await context.store.persist(sink.finish())
            now = context.clock()
            self._known = await context.store.run(lambda tx: self._keep(tx, content, now, open))
        except StoreError:
            # There may be no room: the sender begins again.
            self._known = None
        if self._known is not None and open:
            self._sink = context.store.new_sink()
            self._kept_at = context.clock()

    def _keep(
        self, tx: Transaction, content: Content, now: datetime, open: bool
    ) -> StoredTransfer | None:
        there = tx.transfer(*self._key)
        if self._known is None:
            if there is not None and is_open(there, now):
                return None
            if there is not None:
                tx.remove_transfer(*self._key)
            if not self._has_room(tx):
                return None
        elif there is None or there.owner != self._owner:
            return None
        before = self._known
        pieces = before.pieces if before is not None else ()
        if content.size:
            pieces = (*pieces, tx.keep(content))
        assert self.details is not None
        kept = StoredTransfer(
            *self._key,
            self._partner,
            sum(piece.size for piece in pieces),
            self._total,
            now,
            now + timedelta(seconds=self.details.interval),
            pieces,
            self._owner if open else None,
            now + LEASE if open else None,
            details=msgspec.json.encode(self.details),
        )
        tx.set_transfer(kept)
        return kept

    async def await_decision(self) -> None:
        """Until this is cancelled: other processes, too, are to know that all of it is here."""
        await self._all_came.wait()
        wait = DECIDED_SOON
        while self.details is not None:
            await asyncio.sleep(wait)
            wait = _RENEWED
            # Where it cannot be noted the sender is told less than there is.
            with contextlib.suppress(StoreError):
                await self._context.store.run(self._note_whole)

    def undecided(self, tx: Transaction) -> None:
        """Nothing was decided, and never will be: others may go on with what is kept."""
        there = tx.transfer(*self._key)
        if there is None or there.done or there.owner != self._owner:
            return
        if there.pieces:
            tx.set_transfer(changed(there, owner=None, open_until=None))
        else:
            tx.remove_transfer(*self._key)

    def _note_whole(self, tx: Transaction) -> None:
        there = tx.transfer(*self._key)
        if self.decided or self.details is None:
            return
        now = self._context.clock()
        if there is None:
            if not self._has_room(tx):
                return
            expires = now + timedelta(seconds=self.details.interval)
            there = StoredTransfer(*self._key, self._partner, 0, self._total, now, expires)
        elif there.done or (there.owner != self._owner and is_open(there, now)):
            return
        tx.set_transfer(
            changed(
                there,
                owner=self._owner,
                open_until=now + LEASE,
                total=self._received,
                details=msgspec.json.encode(changed(self.details, whole=True)),
            )
        )

    def finished(self, now: datetime) -> StoredTransfer:
        """The upload once all of it came and was taken: only its answer is remembered."""
        assert self.details is not None
        until = now + timedelta(seconds=self.details.interval)
        size = self._received
        return StoredTransfer(*self._key, self._partner, size, size, now, until, done=True)

    def _has_room(self, tx: Transaction) -> bool:
        allowed = self._context.config.restart
        more = max(self._received, self._total or 0)
        own, all = tx.held(self._partner), tx.held()
        of_one = Room(allowed.copies_per_partner, allowed.bytes_per_partner)
        return has_room(own.transfers, own.bytes, more, of_one) and has_room(
            all.transfers, all.bytes, more, Room(allowed.copies, allowed.bytes)
        )


def is_open(transfer: StoredTransfer, now: datetime) -> bool:
    """Whether somebody is just writing to it."""
    return transfer.open_until is not None and transfer.open_until > now


def _next(chunks: Iterator[bytes]) -> bytes | None:
    return next(chunks, None)
