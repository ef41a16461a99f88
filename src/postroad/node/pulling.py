"""Who pulls: asks partners for messages by a schedule, or when somebody says so.

A message that was pulled takes the same walk in as one that was pushed (`Receiver.take_pulled`);
its receipt calls back. While a message is stored the next one is asked for already.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import count, islice
from typing import Final

from msgspec import Struct

from postroad.agreement.channels import channel_of, collected_at, pulling_of
from postroad.agreement.matching import Match
from postroad.agreement.pmode_pulling import Pulling
from postroad.msh.lens import Inspection
from postroad.msh.pulling import pull_request
from postroad.msh.securing import Unsecurable
from postroad.node.catching import Catch
from postroad.node.context import Context
from postroad.node.hearing import told_by
from postroad.node.receiving import Receiver
from postroad.node.service import Collected, Refused
from postroad.store.interface import StoreError
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Timeouts, TransportFailure
from postroad.wire.ebms3 import Selection, SignalMessage
from postroad.wire.errors import EbmsError
from postroad.wire.soap import SoapVersion

_EMPTY: Final = "EBMS:0006"
_LOOK: Final = 1.0
"""Seconds until P-Modes that changed are noticed."""
_UNSTORED: Final = 32
"""Messages that are taken in while further ones are asked for."""
_log = logging.getLogger("postroad.pull")


class Got(Struct, frozen=True):
    """What one PullRequest brought."""

    taking: "asyncio.Task[str] | None" = None
    """A message, which is being stored; its result is the id."""
    trouble: str | None = None


@dataclass(slots=True)
class _Turn:
    """When a channel is asked again."""

    due: float
    wait: timedelta
    """For how long, when nothing is there."""
    task: "asyncio.Task[None] | None" = None


class Puller:
    """Pulls the channels of a node's P-Modes."""

    def __init__(self, context: Context, client: Client, receiver: Receiver) -> None:
        self._context = context
        self._client = client
        self._receiver = receiver
        http = context.config.http
        self._timeouts = Timeouts(
            connect=http.connect_timeout.total_seconds(),
            answer=http.answer_timeout.total_seconds(),
        )
        self._turns: dict[tuple[str, int], _Turn] = {}
        self._taking: set[asyncio.Task[str]] = set()
        self._room = asyncio.Semaphore(_UNSTORED)

    async def run(self) -> None:
        """Until cancelled: ask each channel when its time has come."""
        try:
            while True:
                await asyncio.sleep(self._round())
        finally:
            tasks = [one.task for one in self._turns.values() if one.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """What came is still stored."""
        if self._taking:
            await asyncio.wait(self._taking)

    def _round(self) -> float:
        """Begin what is due; seconds until the next look."""
        now = asyncio.get_running_loop().time()
        scheduled = {
            (match.pmode.id, match.number): match
            for match in self._context.in_force.pulled
            if pulling_of(match.leg).scheduled
        }
        for gone in self._turns.keys() - scheduled:
            turn = self._turns[gone]
            if turn.task is None:
                del self._turns[gone]
        for name, match in scheduled.items():
            turn = self._turns.setdefault(name, _Turn(now, pulling_of(match.leg).interval))
            if turn.task is None and turn.due <= now:
                turn.task = asyncio.create_task(self._take_turn(turn, match))
        waits = [one.due - now for one in self._turns.values() if one.task is None]
        return max(min([_LOOK, *waits]), 0.001)

    async def _take_turn(self, turn: _Turn, match: Match) -> None:
        """Empty a channel; how soon it is asked again depends on what was there."""
        agreed = pulling_of(match.leg)
        found = False
        try:
            messages, trouble = await self._drain(match, None)
            found = bool(messages)
            if trouble is not None:
                _log.warning("not pulled", extra={"pmode": match.pmode.id, "detail": trouble})
        except Exception:
            _log.exception("pulling failed", extra={"pmode": match.pmode.id})
        finally:
            wait = agreed.interval if found else turn.wait
            turn.due = asyncio.get_running_loop().time() + wait.total_seconds()
            turn.wait = _longer(wait, agreed)
            turn.task = None

    async def pull(
        self, pmode: str, selection: Selection | None = None, *, most: int = 1
    ) -> Collected:
        """Pull so many messages, or as many as there are; `Refused` says why it cannot be."""
        if selection is not None and selection.ref_to_message_id and selection.conversation_id:
            # [P2-7.3-02]
            said = "RefToMessageId and ConversationId are not used together in one PullRequest"
            raise Refused(400, f"{said}: name one of them")
        in_force = self._context.in_force
        pulled = (*in_force.pulled, *in_force.alternates.values())
        match = next((one for one in pulled if one.pmode.id == pmode), None)
        if match is None:
            raise Refused(422, f"messages of {pmode} are not pulled by {self._context.party}")
        names, trouble = await self._drain(match, selection, most)
        return Collected(tuple(names), channel_of(match.leg), _address(match), trouble)

    async def _drain(
        self, match: Match, selection: Selection | None, most: int | None = None
    ) -> tuple[list[str], str | None]:
        """Ask until nothing is left, or so many came; their ids, and what went wrong."""
        asked = iter(range(most)) if most is not None else count()
        several = min(pulling_of(match.leg).parallel, most or _UNSTORED)
        first = await self._ask_on(match, selection, islice(asked, 1))
        runs = [first]
        if first[0]:
            others = [self._ask_on(match, selection, asked) for _ in range(several)]
            runs += await asyncio.gather(*others)
        taken = await asyncio.gather(
            *(one for run, _ in runs for one in run), return_exceptions=True
        )
        troubles = [trouble for _, trouble in runs if trouble is not None]
        troubles += [f"it could not be stored: {one}" for one in taken if not isinstance(one, str)]
        return [one for one in taken if isinstance(one, str)], next(iter(troubles), None)

    async def _ask_on(
        self, match: Match, selection: Selection | None, asked: Iterator[int]
    ) -> tuple[list["asyncio.Task[str]"], str | None]:
        """One request after the other, as long as messages come."""
        taken: list[asyncio.Task[str]] = []
        for _ in asked:
            got = await self._ask(match, selection)
            if got.taking is None:
                return taken, got.trouble
            taken.append(got.taking)
        return taken, None

    async def _ask(self, match: Match, selection: Selection | None) -> Got:
        """One PullRequest, and what came back."""
        context, now = self._context, self._context.clock()
        url = _address(match)
        try:
            asking = pull_request(
                match,
                selection,
                signal_id=context.new_id(now),
                now=now,
                entropy=context.entropy,
                key=context.in_force.keyring.signing,
            )
        except (Unsecurable, ValueError) as wrong:
            return Got(trouble=str(wrong))
        catch = Catch(context)
        soap_11 = asking.version is SoapVersion.SOAP_11
        request = Outgoing(
            url,
            asking.content_type,
            asking.envelope,
            (("SOAPAction", '""'),) if soap_11 else (),
            context.in_force.tls(match.pmode.id, match.number),
            self._timeouts,
            reply_bytes=context.limits.message_bytes,
            reader=catch.reader,
        )
        try:
            reply = await self._client.post(request)
            if not catch.size:
                said = f"{url} answered HTTP {reply.status} and nothing else"
                return await self._trouble("EBMS:0005", said, url)
            capture = catch.close()
        except TransportFailure as failure:
            return await self._trouble("EBMS:0005", failure.reason, url)
        except EbmsError as wrong:
            said = f"{url} answered HTTP {reply.status}: {wrong.detail}"
            return await self._trouble(wrong.code, said, url)
        except (StoreError, OSError) as full:
            return Got(trouble=f"what {url} answered cannot be kept: {full}")
        finally:
            catch.drop()
        look = await self._receiver.read_pulled(capture, catch.size)
        messaging = look.found.messaging
        if messaging is None or not messaging.user_messages:
            return await self._signal(look.found, url)
        await self._room.acquire()
        task = asyncio.create_task(
            self._receiver.keep_pulled(look, capture, catch.size, match, url)
        )
        self._taking.add(task)
        task.add_done_callback(self._taken)
        return Got(task)

    def _taken(self, task: "asyncio.Task[str]") -> None:
        self._taking.discard(task)
        self._room.release()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreError):
            # Nothing was acknowledged: the partner offers it again.
            _log.error("a pulled message was not stored", extra={"detail": str(error)})
        elif error is not None:
            _log.error("a pulled message was not taken in", exc_info=error)

    async def _signal(self, found: Inspection, url: str) -> Got:
        """What the partner says instead: that the channel is empty, or what is wrong."""
        errors = [one for signal in _signals(found) for one in signal.errors]
        if errors and all(one.error_code == _EMPTY for one in errors):
            return Got()
        for one in errors:
            said = f"{url} answered {one.error_code}: {told_by(one)}"
            return await self._trouble(one.error_code, said, url)
        fault = found.fault.reason if found.fault is not None else None
        wrong = fault or next((one.detail for one in found.problems), "no message and no error")
        return await self._trouble("EBMS:0004", f"{url} answered: {wrong}", url)

    async def _trouble(self, code: str, said: str, url: str) -> Got:
        """The journal is told too; the partner keeps what it has."""
        await self._receiver.note(code, f"nothing could be pulled: {said}", url)
        return Got(trouble=said)


def _signals(found: Inspection) -> tuple[SignalMessage, ...]:
    return found.messaging.signals if found.messaging is not None else ()


def _address(match: Match) -> str:
    return collected_at(match.pmode, match.leg) or ""


def _longer(wait: timedelta, agreed: Pulling) -> timedelta:
    """How long to wait after the next time that nothing is there."""
    return min(wait * agreed.growth, max(agreed.longest, agreed.interval))
