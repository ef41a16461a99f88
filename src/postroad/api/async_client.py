"""`AsyncClient`: a node's REST interface for asynchronous code, method for method as `Client`."""

import asyncio
import io
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar, Unpack

import httpx

from postroad.api import client_calls as calls
from postroad.api.client_calls import (
    Call,
    Fitting,
    InboxFilters,
    MessageFilters,
    Received,
    Selected,
)
from postroad.api.client_connection import PIECE, Asking, Target, whole_file
from postroad.api.client_status import Status
from postroad.api.client_upload import Upload, new_message_id
from postroad.api.client_values import (
    Arriving,
    Content,
    Event,
    Extent,
    Health,
    Message,
    Notice,
    Partner,
    Payload,
    PingAnswer,
    PMode,
    Progress,
    Properties,
    Pulled,
    QueryAnswer,
    Route,
    SentMessage,
    Signal,
    Total,
    Unit,
)
from postroad.api.limits import ASK

T = TypeVar("T")


class AsyncClient(Asking[httpx.AsyncClient]):
    """The same for asynchronous code. Use it in an `async with` block, or close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(
        self,
        *,
        pmode: str,
        payloads: Sequence[Content | Payload] = (),
        message_id: str | None = None,
        conversation_id: str | None = None,
        ref_to_message_id: str | None = None,
        service: str | None = None,
        action: str | None = None,
        properties: Properties = (),
        test: bool = False,
        wait: float | None = None,
        progress: Progress | None = None,
    ) -> SentMessage:
        """Submit a message; with `wait`, come back when it is settled or after so many seconds.

        A lost answer is no problem: the same message is submitted again under the same id, and
        the node takes it once.
        """
        metadata = calls.submission(
            pmode=pmode,
            message_id=message_id or new_message_id(),
            conversation_id=conversation_id,
            ref_to_message_id=ref_to_message_id,
            service=service,
            action=action,
            properties=properties,
            test=test,
        )
        with await asyncio.to_thread(Upload, metadata, payloads, progress) as upload:
            sent = await self._run(calls.send(), upload)
        if wait is None:
            return sent
        return SentMessage(await self.wait(sent.message_id, wait), sent.repeated)

    async def send_bundle(
        self, units: Sequence[Unit], *, progress: Progress | None = None
    ) -> tuple[SentMessage, ...]:
        """Submit messages that go in one envelope, the primary unit first: all of them, or none."""
        given = [calls.unit(one) for one in units]
        with await asyncio.to_thread(Upload, {}, (), progress, given) as upload:
            return await self._run(calls.send_bundle(), upload)

    async def reply(
        self,
        message_id: str,
        *,
        payloads: Sequence[Content | Payload] = (),
        pmode: str | None = None,
        reply_id: str | None = None,
        cursor: str | None = None,
        service: str | None = None,
        action: str | None = None,
        properties: Properties = (),
        wait: float | None = None,
        progress: Progress | None = None,
    ) -> SentMessage:
        """Answer a message of the inbox; with `wait` as `send` does.

        `pmode` is needed only where the exchange is one-way; `reply_id` is the reply's own id;
        `cursor` chooses among messages of several senders that have one id.
        """
        metadata = calls.submission(
            pmode=pmode,
            message_id=reply_id or new_message_id(),
            service=service,
            action=action,
            properties=properties,
        )
        with await asyncio.to_thread(Upload, metadata, payloads, progress) as upload:
            sent = await self._run(calls.reply(message_id, cursor), upload)
        if wait is None:
            return sent
        return SentMessage(await self.wait(sent.message_id, wait), sent.repeated)

    async def status(
        self, message_id: str, *, side: str | None = None, cursor: str | None = None
    ) -> Message:
        """Where a message is."""
        return await self._run(calls.status(message_id, side, cursor=cursor))

    async def wait(self, message_id: str, timeout: float = 300.0) -> Message:
        """The message once it is no longer on its way, or as it is after `timeout` seconds."""
        end = time.monotonic() + timeout
        while True:
            left = max(0.0, end - time.monotonic())
            seconds = min(left, calls.LONGEST_WAIT)
            message = await self._run(calls.status(message_id, wait=seconds))
            if message.settled or left <= seconds:
                return message

    async def wait_reply(self, message_id: str, timeout: float = 300.0) -> Message | None:
        """The reply to a request; None when it cannot come, or is not there in so many seconds."""
        end = time.monotonic() + timeout
        while True:
            left = max(0.0, end - time.monotonic())
            seconds = min(left, calls.LONGEST_WAIT)
            request = await self._run(calls.status(message_id, wait_reply=seconds))
            if request.reply_message_id is not None:
                return await self.received(request.reply_message_id)
            never = request.state in calls.NEVER_ARRIVED or request.no_reply is not None
            if never or left <= seconds:
                return None

    async def events(self, message_id: str) -> tuple[Event, ...]:
        """All that the journal says about a message, in order."""
        return await self._run(calls.events(message_id))

    async def route(self, message_id: str, *, side: str | None = None) -> Route:
        """Which rule for messages of others it would match now, and why."""
        return await self._run(calls.route(message_id, side))

    async def signals(
        self, message_id: str, *, side: str | None = None, cursor: str | None = None
    ) -> tuple[Signal, ...]:
        """The receipts and errors about a message."""
        return await self._run(calls.signals(message_id, side, cursor))

    async def signal(
        self,
        message_id: str,
        signal_id: str,
        *,
        side: str | None = None,
        cursor: str | None = None,
    ) -> bytes:
        """A receipt or an error, byte for byte."""
        return await self._fetch_bytes(calls.signal(message_id, signal_id, side, cursor))

    async def evidence(
        self, message_id: str, *, side: str | None = None, cursor: str | None = None
    ) -> bytes:
        """The proof as a zip: message, receipt, certificates and verdict."""
        return await self._fetch_bytes(calls.evidence(message_id, side, cursor))

    async def evidence_to(
        self,
        message_id: str,
        path: Target,
        *,
        side: str | None = None,
        cursor: str | None = None,
    ) -> Path:
        """The same into a file."""
        return await self._fetch_file(calls.evidence(message_id, side, cursor), Path(path))

    async def resend(self, message_id: str) -> Message:
        """Send an outgoing message again that failed, is in doubt or waits, under the same id."""
        return await self._run(calls.resend(message_id))

    async def settle(self, message_id: str, answer: str, who: str | None = None) -> Message:
        """Note what became of a message that was given up: delivered, received or not_received."""
        return await self._run(calls.settle(message_id, answer, who))

    async def query(
        self, message_id: str, *, wait: float = ASK, settle: bool = False
    ) -> QueryAnswer:
        """Ask the partner what became of a message, for at most so many seconds.

        With `settle` a definite answer is written down, as `settle` does.
        """
        return await self._run(calls.query(message_id, wait, settle))

    async def fragments(self, message_id: str) -> AsyncIterator[Message]:
        """The fragments in which a message was sent, by number, page after page."""
        cursor = None
        while True:
            page = await self._run(calls.fragments(message_id, cursor))
            for message in page.items:
                yield message
            if (cursor := page.next) is None:
                return

    async def messages(self, **filters: Unpack[MessageFilters]) -> AsyncIterator[Message]:
        """All messages that fit, newest first unless `order="oldest"`, page after page."""
        cursor = filters.get("cursor")
        while True:
            page = await self._run(calls.messages(filters, cursor))
            for message in page.items:
                yield message
            if (cursor := page.next) is None:
                return

    async def total(self, **filters: Unpack[MessageFilters]) -> Total:
        """How many messages fit, counted up to 10,000."""
        return await self._run(calls.total(filters))

    async def inbox(self, **filters: Unpack[InboxFilters]) -> AsyncIterator[Message]:
        """What waits for the application, oldest first, page after page."""
        cursor = filters.get("cursor")
        while True:
            page = await self._run(calls.inbox(filters, cursor))
            for message in page.items:
                yield message
            if (cursor := page.next) is None:
                return

    async def received(self, message_id: str, *, cursor: str | None = None) -> Message:
        """A message of the inbox; `cursor` chooses among those of several senders."""
        return await self._run(calls.received(message_id, cursor))

    async def part(self, message_id: str, number: int = 1, *, cursor: str | None = None) -> bytes:
        """A payload of a message in the inbox, checked against its digest."""
        return await self._fetch_bytes(calls.part(message_id, number, cursor))

    async def part_to(
        self, message_id: str, number: int, path: Target, *, cursor: str | None = None
    ) -> Path:
        """The same into a file, which is there only when it is whole."""
        return await self._fetch_file(calls.part(message_id, number, cursor), Path(path))

    async def ack(self, message_id: str, *, cursor: str | None = None) -> Message:
        """Say that the application has it; again is no error."""
        return await self._run(calls.ack(message_id, cursor))

    async def release(self, message_id: str, *, cursor: str | None = None) -> Message:
        """Deliver a message that is held until others come, which are waited for no longer."""
        return await self._run(calls.release(message_id, cursor))

    async def ack_all(self, through: str, **filters: Unpack[Fitting]) -> int:
        """Say that the application has all that fit, up to a cursor; how many are new."""
        return await self._run(calls.ack_all(through, filters))

    async def inbox_extent(self) -> Extent:
        """How far the inbox is, for those who read it by cursor."""
        return await self._run(calls.inbox_extent())

    async def arriving(self, limit: int = 100) -> list[Arriving]:
        """The messages of which fragments came and more are to come: how far each is."""
        return await self._run(calls.arriving(limit))

    async def notices(
        self, *, limit: int = 100, cursor: str | None = None
    ) -> AsyncIterator[Notice]:
        """What became of messages that were sent and is to be known, page after page."""
        while True:
            page = await self._run(calls.notices(limit, cursor))
            for notice in page.items:
                yield notice
            if (cursor := page.next) is None:
                return

    async def ack_notice(self, id: int) -> None:
        """Say that the application knows; an error when it said so before."""
        await self._run(calls.ack_notice(id))

    async def partners(self) -> tuple[Partner, ...]:
        """Those with whom not all is well: paused, suspended, or not reached."""
        return await self._run(calls.partners())

    async def suspend(self, partner: str, reason: str | None = None) -> Partner:
        """Send nothing to a partner until it is resumed; again is no error."""
        return await self._run(calls.suspend(partner, reason))

    async def resume(self, partner: str) -> int:
        """Serve a partner again; how many suspended messages go on."""
        return await self._run(calls.resume(partner))

    async def ping(self, pmode: str, *, wait: float = ASK) -> PingAnswer:
        """Ask the partner of a P-Mode whether it is there, for at most so many seconds."""
        return await self._run(calls.ping(pmode, wait))

    async def pull(self, pmode: str, *, most: int = 1, **selection: Unpack[Selected]) -> Pulled:
        """Pull so many messages of a P-Mode's channel now, or as many as there are."""
        return await self._run(calls.pull(pmode, most, selection))

    async def reload(self) -> int:
        """Have the node read its P-Modes again; how many are in force then."""
        return await self._run(calls.reload())

    async def purge(self, days: float | None = None) -> int:
        """Remove what is past its retention; how many messages that were."""
        return await self._run(calls.purge(days))

    async def pmodes(self) -> tuple[PMode, ...]:
        """The P-Modes that are in force."""
        return await self._run(calls.pmodes())

    async def node(self) -> Status:
        """The node at a glance: messages, partners, certificates, disk, what is not in force."""
        return await self._run(calls.node_status())

    async def health(self) -> Health:
        """Whether the node is ready, and why not."""
        return await self._run(calls.health())

    def _connect(self, headers: dict[str, str], verify: ssl.SSLContext | bool) -> httpx.AsyncClient:
        return httpx.AsyncClient(headers=headers, verify=verify)

    async def _run(self, call: Call[T], upload: Upload | None = None) -> T:
        attempt = 0
        while True:
            content = upload.async_pieces() if upload else None
            try:
                answer = await self._http.request(**self._request(call, upload), content=content)
            except httpx.TransportError as error:
                wait: float | None = self._after_error(call, attempt, error)
            else:
                wait = self._after_answer(call, attempt, answer)
            if wait is None:
                return calls.read_answer(call, answer)
            await asyncio.sleep(wait)
            attempt += 1

    async def _fetch(self, call: Call[None], file: IO[bytes]) -> None:
        attempt = 0
        while True:
            try:
                async with self._http.stream(**self._request(call)) as answer:
                    if answer.is_success:
                        received = Received(answer, file)
                        async for piece in answer.aiter_bytes(PIECE):
                            await asyncio.to_thread(received.take, piece)
                        return received.check()
                    await answer.aread()
            except httpx.TransportError as error:
                wait: float | None = self._after_error(call, attempt, error)
            else:
                wait = self._after_answer(call, attempt, answer)
            if wait is None:
                raise calls.error_of(answer)
            await asyncio.sleep(wait)
            attempt += 1

    async def _fetch_bytes(self, call: Call[None]) -> bytes:
        buffer = io.BytesIO()
        await self._fetch(call, buffer)
        return buffer.getvalue()

    async def _fetch_file(self, call: Call[None], path: Path) -> Path:
        with whole_file(path) as file:
            await self._fetch(call, file)
        return path
