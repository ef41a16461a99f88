"""Broken uploads go on where they ended: AS2 restart, the receiver's side (Part 2, 6.4.3).

`Restarting.receive` stands before the walk in. A request that goes on with an upload becomes one
that brings all of it: what is kept is read first, then what comes. So whoever walks on knows
nothing of it.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import replace as changed

from postroad.node.base.context import Context
from postroad.node.base.requests import Request, Response, Upload
from postroad.node.large.reception import LEASE, Details, Key, Reception, is_open
from postroad.reliability.restart import LEAST, Done, Transfer, decide
from postroad.store.interface import StoreDamaged, StoreError, Transaction
from postroad.store.records import Side, State
from postroad.store.transfers import StoredTransfer
from postroad.transport.http_body import TooLarge, Truncated
from postroad.wire.limits import MIB
from postroad.wire.restart import unsatisfied

Receive = Callable[[Request], Coroutine[Any, Any, Response]]
_LONG_NAME: Final = 32
"""Characters of a name that nobody guesses."""
_LARGEST_ANSWER: Final = MIB
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_TEXT: Final = "text/plain; charset=utf-8"


class Restarting:
    """The uploads of a node; `receive` takes a message in, as the walk in does."""

    def __init__(self, context: Context, receive: Receive) -> None:
        self._context = context
        self._receive = receive
        self._open: dict[Key, Reception] = {}
        self._numbers = itertools.count(1)

    def receive(self, request: Request) -> Coroutine[Any, Any, Response]:
        """Take one message in, or answer what is asked about an upload."""
        upload = request.upload
        return self._receive(request) if upload is None else self._received(request, upload)

    async def _received(self, request: Request, upload: Upload) -> Response:
        if not self._context.in_force.restarts:
            return await self._unknown(request, upload, 405)
        key = _key(request, upload)
        if key is None:
            return await self._unknown(request, upload, 200)
        done, known, owner = await self._decided(key, upload)
        if done is Done.END:
            return await self._end(key)
        if done in (Done.BEGIN, Done.GO_ON):
            return await self._take(key, request, upload, known, owner)
        return _said(done, known)

    async def _end(self, key: Key) -> Response:
        """Who asks has given up its line. What came is told, or all where only the answer lacks."""
        if (reception := self._open.get(key)) is not None:
            await reception.end()
            if not reception.over.is_set() and reception.there:
                return Response(200, length=reception.there)
        known = await self._look(key)
        if known is not None and is_open(known, self._context.clock()):
            details = msgspec.json.decode(known.details, type=Details)
            if details.whole and known.total is not None:
                return Response(200, length=known.total)
        return _said(Done.SAY, known)

    async def _unknown(self, request: Request, upload: Upload, probed: int) -> Response:
        """Who is not known, or all where nobody's uploads go on, has nothing here."""
        if upload.probe:
            return Response(probed, length=0)
        if upload.range is not None and upload.range.start:
            return _corrected(0)
        return await self._receive(request)

    async def _decided(self, key: Key, upload: Upload) -> tuple[Done, StoredTransfer | None, str]:
        """What is done with a request; what goes on is claimed for it in the same step."""
        context, now = self._context, self._context.clock()
        owner = f"{context.owner}#{next(self._numbers)}"
        busy = key in self._open

        def step(tx: Transaction) -> tuple[Done, StoredTransfer | None]:
            known = tx.transfer(*key)
            transfer = _transfer(key, known, busy or (known is not None and is_open(known, now)))
            done = decide(transfer, upload.range, now, probe=upload.probe)
            if done in (Done.BEGIN, Done.FORGET):
                if known is not None:
                    tx.remove_transfer(*key)
                return done, None
            if done is Done.GO_ON and known is not None:
                known = changed(known, owner=owner, open_until=now + LEASE)
                tx.set_transfer(known)
            return done, known if known is not None and now < known.expires_at else None

        return *await context.store.run(step), owner

    async def _look(self, key: Key) -> StoredTransfer | None:
        return await self._context.store.look(lambda reader: reader.transfer(*key))

    async def _take(
        self, key: Key, request: Request, upload: Upload, known: StoredTransfer | None, owner: str
    ) -> Response:
        """Take in what comes, behind what is kept."""
        given = upload.range
        total = given.total if given is not None else request.length
        if given is not None and not _fits(request, upload):
            said = "The body is to be as long as Content-Range says, and to reach the end."
            return await self._released(key, Response(400, _TEXT, f"{said}\n".encode()))
        if known is None and total is not None and total <= LEAST:
            return await self._receive(changed(request, upload=None))
        if total is not None and total > self._context.config.limits.message_bytes:
            large = str(TooLarge(self._context.config.limits.message_bytes))
            return await self._released(key, Response(413, _TEXT, f"{large}\n".encode()))
        if key in self._open:
            return _said(Done.WAIT, None)
        # What came is kept whoever is gone, and need not come again.
        request = changed(request, is_gone=None)
        reception = self._open[key] = Reception(self._context, key, request, known, owner)
        awaiting = asyncio.create_task(reception.await_decision())
        try:
            response = await self._receive(reception.request)
            reception.decided = True
            await self._finish(key, reception, response)
            return response
        except Truncated:
            await reception.keep()
            if reception.ended:
                return _said(Done.WAIT, None)
            raise
        except StoreDamaged:
            await self._context.store.run(lambda tx: tx.remove_transfer(*key))
            raise
        except Exception:
            reception.decided = True
            with contextlib.suppress(StoreError):
                await self._context.store.run(reception.undecided)
            raise
        finally:
            reception.decided = True
            awaiting.cancel()
            del self._open[key]
            reception.over.set()

    async def _released(self, key: Key, response: Response) -> Response:
        """Somebody else may go on."""

        def step(tx: Transaction) -> None:
            known = tx.transfer(*key)
            if known is not None:
                tx.set_transfer(changed(known, owner=None, open_until=None))

        await self._context.store.run(step)
        return response

    async def _finish(self, key: Key, reception: Reception, response: Response) -> None:
        """What came is needed no more; the answer is remembered where the message was taken."""
        details = reception.details
        if details is None:
            return
        now = self._context.clock()
        transfer = reception.finished(now)

        def step(tx: Transaction) -> None:
            if not reception.whole or not _is_final(tx, details, response):
                tx.remove_transfer(*key)
                return
            tx.set_transfer(changed(transfer, details=_answered(details, response)))
            tx.forget_done_transfers(self._context.config.restart.answers)

        await self._context.store.run(step)


def _key(request: Request, upload: Upload) -> Key | None:
    """Who goes on is known by its certificate; without one by its address and a name like a secret.

    The name travels with the message, to this node alone. None where nobody is known.
    """
    shown = request.client_certificate
    if shown is not None:
        return f"certificate {sha256(shown).hexdigest()}", upload.path, upload.name
    if request.peer is None or len(upload.name) < _LONG_NAME:
        return None
    return f"address {request.peer}", upload.path, upload.name


def _transfer(key: Key, known: StoredTransfer | None, open: bool) -> Transfer | None:
    if known is None or not (known.stored or open):
        return Transfer(*key, 0, None, _NEVER, open=True) if open else None
    there = (known.stored, known.total)
    return Transfer(*key, *there, known.expires_at, open=open, done=known.done)


def _fits(request: Request, upload: Upload) -> bool:
    """Whether the body is what its range says, and brings everything that is missing."""
    given = upload.range
    if given is None:
        return True
    as_long = request.length in (None, given.size)
    return as_long and given.total in (None, given.last + 1)


def _is_final(tx: Transaction, details: Details, response: Response) -> bool:
    """Whether the answer is the same whenever the message comes again: it was taken.

    What was refused may be taken another time.
    """
    plain = (response.handed, response.pieces, response.flow, response.awaits)
    if response.status >= 300 or any(one is not None for one in plain):
        return False
    known = [tx.messages_of_id(Side.RECEIVING, one) for one in details.message_ids]
    taken = all(any(one.state is not State.REJECTED for one in found) for found in known)
    return taken and len(response.body) <= _LARGEST_ANSWER


def _answered(details: Details, response: Response) -> bytes:
    return msgspec.json.encode(
        changed(
            details,
            status=response.status,
            answer_type=response.content_type,
            answer=response.body,
        )
    )


def _said(done: Done, known: StoredTransfer | None) -> Response:
    """What is answered to a request that is not taken in."""
    there = known.stored if known is not None else 0
    if done is Done.SAY:
        return Response(200, length=there)
    if done is Done.CORRECT:
        return _corrected(there)
    if done is Done.REPEAT:
        assert known is not None
        details = msgspec.json.decode(known.details, type=Details)
        return Response(details.status, details.answer_type, details.answer)
    said = {
        Done.WAIT: "The message is just coming over another connection.",
        Done.FORGET: "The message was begun with another size; send it again as a whole.",
        Done.REFUSE: "The message came already, and had another size.",
    }[done]
    return Response(409, _TEXT, f"{said}\n".encode())


def _corrected(there: int) -> Response:
    said = f"{there} bytes are here: go on behind them.\n"
    return Response(416, _TEXT, said.encode(), headers=(("content-range", unsatisfied(there)),))
