"""The network between the nodes: it loses, copies, delays, reorders, cuts, partitions, and lies.

A client's `post` becomes a `Transmission` that travels by itself: it arrives even when its sender
is dead by then. What the sender learns of it is what an HTTP client would: an answer, or a failure
that says whether a byte of the body may have left.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from msgspec.structs import replace

from postroad.msh.outbound import WireForm
from postroad.node.base.requests import Handed, Request, Response
from postroad.store.interface import StoreError
from postroad.transport.http_body import Truncated
from postroad.transport.http_outgoing import (
    Kind,
    Outgoing,
    Pieces,
    Reply,
    Timeouts,
    TransportFailure,
)
from tests.sim.faults import Faults
from tests.sim.history import History
from tests.sim.kinds import PARTIES
from tests.sim.loop import Died, Process, refuse
from tests.sim.store import CAUSE

UNREACHABLE: Final = "the connection"
_TEXT: Final = "text/plain"
_MESSAGE_ID: Final = re.compile(rb"<eb:MessageId>([^<]*)<")
_GIVEN: Final = re.compile(rb"<eb:UserMessage[ >].*?<eb:MessageId>([^<]*)<", re.DOTALL)
"""A user message in an answer, which may have a signal before it."""
_RECEIPT: Final = re.compile(rb"<eb:Receipt[ >].*?</eb:Receipt>", re.DOTALL)
"""What repeats the message that it is for."""
_REF_TO: Final = re.compile(rb"<eb:RefToMessageId>([^<]*)<")
_SIGNALS: Final = (b"SignalMessage>", b"<rm:MessageType ")
"""What only signals have: those of ebMS 3.0, and answers of draft 001."""
_MSH: Final = re.compile(rb"<eb:Service[^>]*>[^<]*(messageService|ebxml-msg:service)")
"""The service of ebXML's own signals."""
_TOLD: Final = re.compile(rb'"message_id":"([^"]*)"')
Reader = Callable[[str], Callable[[bytes], None]]
"""Given a Content-Type, who takes the body of an answer."""
_USUAL_DELAY: Final = (0.001, 0.05)
_SLOW: Final = (0.5, 20.0)


class Endpoint(Protocol):
    """A process of a node, as the network sees it."""

    process: Process

    async def receive(self, request: Request) -> Response: ...


class Witness(Protocol):
    """Who sees what nodes send and answer."""

    def leaves(self, sent: "Transmission") -> None: ...

    def responded(self, sent: "Transmission", body: bytes) -> None: ...

    def handed_out(self, sent: "Transmission", times: Mapping[str, int], body: bytes) -> None:
        """Messages are the answer to a PullRequest or a request, each for so manieth time."""


class Place(Protocol):
    """Who can be reached under an address."""

    def endpoint(self, party: str) -> Endpoint | None: ...


@dataclass(frozen=True)
class Transmission:
    """A body on its way."""

    number: int
    sender: str
    receiver: str
    content_type: str
    body: bytes
    message_id: str | None
    """Of the user message that it is, or that it is about."""
    is_signal: bool
    extra: bool = False
    """A copy that the network made: its sender knows nothing of it."""
    url: str = ""
    soap_action: str | None = None
    by_mail: bool = False
    units: tuple[str, ...] = ()
    """Of a message: all units that it holds, the first of them `message_id`."""

    @property
    def pulls(self) -> bool:
        return b"PullRequest" in self.body

    def __str__(self) -> str:
        what = (
            "pull"
            if self.pulls
            else "signal"
            if self.is_signal
            else "message"
            if self.receiver in PARTIES
            else "call"
        )
        what = f"{'copy of ' if self.extra else ''}{what}{' by mail' if self.by_mail else ''}"
        return f"{what} -> {self.receiver} (#{self.number})"


@dataclass
class Connection:
    """What a sender has to the receiver; closed when it dies or waits no longer."""

    process: Process | None
    closed: bool = False

    @property
    def open(self) -> bool:
        return not self.closed and (self.process is None or self.process.alive)


NOBODY: Final = Connection(None)
"""Of copies: the network made them, and takes their answers."""


class Body(AsyncIterator[bytes]):
    """A body as it comes in, in two pieces; it may break off."""

    def __init__(self, body: bytes, cut: int | None) -> None:
        half = len(body) // 2
        self._pieces = [body[:half], body[half:]] if cut is None else [body[:cut]]
        self._cut = cut

    async def __anext__(self) -> bytes:
        await asyncio.sleep(0.001)
        if self._pieces:
            return self._pieces.pop(0)
        if self._cut is not None:
            raise Truncated(self._cut)
        raise StopAsyncIteration


class Network:
    """Carries transmissions; belongs to no node, so that nothing it does ends with one."""

    def __init__(self, place: Place, faults: Faults, history: History, witness: Witness) -> None:
        self._place = place
        self._witness = witness
        self._last: dict[tuple[str, str], tuple[str | None, Response]] = {}
        """The last answer to a party from another, and about which message."""
        self._faults = faults
        self._history = history
        self._process = Process("network")
        self._numbers = 0
        self._cut_off: Counter[frozenset[str]] = Counter()
        self.posts: Counter[tuple[str, str]] = Counter()
        """How often a sender gave a user message to the network so that it may have left."""
        self.on_the_way = 0

    def part(self, pair: frozenset[str], *, apart: bool) -> None:
        """Partition two parties, or join them again."""
        self._cut_off[pair] += 1 if apart else -1
        self._history.note(
            "network", f"{' and '.join(sorted(pair))} {'apart' if apart else 'joined'}"
        )

    def heal(self) -> None:
        self._cut_off.clear()

    def _apart(self, one: str, other: str) -> bool:
        return self._cut_off[frozenset((one, other))] > 0

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._process.spawn(coroutine)

    def transmission(self, sender: str, request: Outgoing) -> Transmission:
        body = request.body
        whole = b"".join(body.read()) if isinstance(body, Pieces) else body
        action = dict(request.headers).get("SOAPAction")
        return self._transmission(sender, request.url, request.content_type, whole, action)

    def letter(self, sender: str, form: WireForm, url: str) -> Transmission:
        """A mail on its way."""
        return self._transmission(sender, url, form.content_type, b"".join(form.pieces()), None)

    def _transmission(
        self, sender: str, url: str, content_type: str, body: bytes, action: str | None
    ) -> Transmission:
        ref = _REF_TO.search(body)
        own = _MESSAGE_ID.search(body) or _TOLD.search(body)
        is_signal = any(one in body for one in _SIGNALS) or _MSH.search(body) is not None
        found = ref if is_signal else own
        self._numbers += 1
        by_mail = url.startswith("mailto:")
        host = url.partition("@")[2] if by_mail else urlsplit(url).hostname or ""
        return Transmission(
            self._numbers,
            sender,
            host.removesuffix(".example").rpartition(".")[2],
            content_type,
            body,
            found[1].decode() if found else None,
            is_signal,
            url=url,
            soap_action=action,
            by_mail=by_mail,
            units=() if is_signal else _units(body),
        )

    async def carry(
        self, sent: Transmission, request: Outgoing, process: Process, answer: asyncio.Future[Reply]
    ) -> None:
        """One exchange, from the sender's connection to what it learns."""
        self.on_the_way += 1
        try:
            reply = await self._exchange(sent, request, process)
            said = _said(reply.body)
            if request.reader is not None and process.alive:
                reply = self._read(request.reader, reply)
        except TransportFailure as failure:
            told = f"{failure.kind}, {'may have left' if failure.transmitted else 'never left'}"
            self._note(sent, f"no answer: {told}")
            refuse(answer, failure)
        else:
            self._note(sent, f"answer: {reply.status} {said}")
            if not answer.done():
                answer.set_result(reply)
        finally:
            self.on_the_way -= 1

    async def _exchange(self, sent: Transmission, request: Outgoing, process: Process) -> Reply:
        await self._connect(sent, request.timeouts, process)
        if self._faults.hits("proxy says 503"):
            return Reply(503, _TEXT, (), b"a proxy: come again")
        response = await self._there(sent, request.timeouts, process)
        return await self._back(sent, request.timeouts, response)

    def _read(self, reader: Reader, reply: Reply) -> Reply:
        """Who asks takes the body of the answer as it comes; it may break off."""
        take = reader(reply.content_type)
        half = len(reply.body) // 2
        take(reply.body[:half])
        if self._faults.hits("cut"):
            self._history.mark("a pulled answer broke off")
            raise _failure("closed", transmitted=True)
        take(reply.body[half:])
        return Reply(reply.status, reply.content_type, reply.headers, b"")

    async def _connect(self, sent: Transmission, limits: Timeouts, process: Process) -> None:
        """Until the first byte of the body may have left."""
        await self._travel()
        if not process.alive:
            raise _failure("closed", transmitted=False)
        if self._apart(sent.sender, sent.receiver):
            await asyncio.sleep(limits.connect)
            raise _failure("timeout", transmitted=False)
        if self._faults.hits("refuse") or self._place.endpoint(sent.receiver) is None:
            raise _failure("refused", transmitted=False)
        self._leaves(sent)

    def _leaves(self, sent: Transmission) -> None:
        if sent.receiver in PARTIES:
            self.posts.update((sent.sender, name) for name in sent.units)
        self._note(sent, "leaves")
        if sent.receiver in PARTIES:
            self._witness.leaves(sent)

    async def post_letter(
        self, sent: Transmission, process: Process, answer: asyncio.Future[None]
    ) -> None:
        """A mail, up to where a mail server took it over; what becomes of it nobody is told."""
        self.on_the_way += 1
        try:
            await self._travel()
            if not process.alive:
                return
            if self._faults.hits("refuse"):
                self._note(sent, "the mail server does not take it")
                refuse(answer, _failure("refused", transmitted=False))
                return
            self._leaves(sent)
            if self._faults.hits("lose reply"):
                refuse(answer, _failure("timeout", transmitted=True))
            elif not answer.done():
                answer.set_result(None)
            self._copies(sent)
            if not self._faults.hits("lose request"):
                await self._bring(sent)
        finally:
            self.on_the_way -= 1

    async def _bring(self, sent: Transmission) -> None:
        """A mail server tries again until the node has taken the mail."""
        while True:
            await self._travel()
            apart = self._apart(sent.sender, sent.receiver)
            response = None if apart else await self._arrive(sent, None, NOBODY)
            if response is not None and response.status < 500 and not response.come_again:
                return
            await asyncio.sleep(2)

    async def _there(self, sent: Transmission, limits: Timeouts, process: Process) -> Response:
        """The body travels, and the receiver answers."""
        forged = self._forged(sent)
        if forged is not None:
            return forged
        if self._faults.hits("lose request"):
            await asyncio.sleep(limits.answer)
            raise _failure("timeout", transmitted=True)
        self._copies(sent)
        cut = None
        if self._faults.hits("cut"):
            cut = int(self._faults.between("cut", 0, 1) * len(sent.body))
        await self._travel()
        if self._apart(sent.sender, sent.receiver):
            await asyncio.sleep(limits.answer)
            raise _failure("timeout", transmitted=True)
        connection = Connection(process)
        arriving = self._process.spawn(self._arrive(sent, cut, connection))
        try:
            # The receiver goes on with it, however long that takes.
            response = await asyncio.wait_for(asyncio.shield(arriving), limits.answer)
        except TimeoutError:
            connection.closed = True
            raise _failure("timeout", transmitted=True) from None
        if response is None:
            raise _failure("closed", transmitted=True)
        return response

    async def _back(self, sent: Transmission, limits: Timeouts, response: Response) -> Reply:
        """The answer travels, if all goes well."""
        await self._travel()
        if self._faults.hits("lose reply") or self._apart(sent.sender, sent.receiver):
            self._note(sent, f"the answer is lost: {response.status} {_said(response.body)}")
            self._history.mark("reply lost")
            await asyncio.sleep(limits.answer)
            raise _failure("timeout", transmitted=True)
        response = self._mixed_up(sent, response)
        if self._faults.hits("proxy says 504"):
            self._note(sent, f"a proxy hides the answer: {response.status}")
            return Reply(504, _TEXT, (), b"a proxy: no answer in time")
        return Reply(response.status, response.content_type or "", (), response.body)

    def _forged(self, sent: Transmission) -> Response | None:
        """Somebody on the way keeps the message, and makes a receipt for it out of another one."""
        _, before = self._last.get((sent.sender, sent.receiver), (None, Response(202)))
        if sent.is_signal or b":Receipt" not in before.body or _given(before.body):
            return None
        if not self._faults.hits("forged receipt"):
            return None
        self._note(sent, "gets a forged receipt")
        named = b"<eb:RefToMessageId>%s<" % (sent.message_id or "").encode()
        return Response(200, before.content_type, _REF_TO.sub(named, before.body, count=1))

    def _mixed_up(self, sent: Transmission, response: Response) -> Response:
        """A proxy that gives somebody the answer to another message, or to another copy."""
        pair = sent.sender, sent.receiver
        _, before = self._last.get(pair, (None, None))
        self._last[pair] = sent.message_id, response
        if before is None or not self._faults.hits("answers mixed up"):
            return response
        self._note(sent, f"gets another's answer instead of its own: {response.status}")
        self._history.mark("answers mixed up")
        return before

    async def _travel(self) -> None:
        """Delays differ, so that what was sent later may come first."""
        name, (low, high) = "slow", _USUAL_DELAY
        if self._faults.hits(name):
            low, high = _SLOW
        await asyncio.sleep(self._faults.between(name, low, high))

    def _copies(self, sent: Transmission) -> None:
        faults = self._faults
        if faults.hits("copy"):
            self.begin(self._copy(sent, sent.receiver, faults.between("copy", 0, 2)))
        if faults.hits("late copy"):
            self.begin(self._copy(sent, sent.receiver, faults.between("late copy", 5, 200)))
        if sent.receiver in PARTIES and faults.hits("misdirected copy"):
            others = [one for one in PARTIES if one != sent.receiver]
            wrong = others[faults.chosen("misdirected copy", len(others))]
            self.begin(self._copy(sent, wrong, faults.between("misdirected copy", 0, 2)))

    async def _copy(self, sent: Transmission, receiver: str, delay: float) -> None:
        """A copy made on the way; nobody waits for the answer to it."""
        self._numbers += 1
        copy = Transmission(
            self._numbers,
            sent.sender,
            receiver,
            sent.content_type,
            sent.body,
            sent.message_id,
            sent.is_signal,
            extra=True,
            url=sent.url,
            soap_action=sent.soap_action,
            by_mail=sent.by_mail,
            units=sent.units,
        )
        self.on_the_way += 1
        try:
            await asyncio.sleep(delay)
            if not self._apart(sent.sender, receiver):
                response = await self._arrive(copy, None, NOBODY)
                self._note(copy, f"answer to nobody: {response.status if response else 'none'}")
        finally:
            self.on_the_way -= 1

    async def _arrive(
        self, sent: Transmission, cut: int | None, connection: Connection
    ) -> Response | None:
        """Hand it to the receiver; None when it broke off or the receiver died over it."""
        endpoint = self._place.endpoint(sent.receiver)
        if endpoint is None:
            return None
        self._note(sent, "arrives" if cut is None else f"arrives, cut after {cut} bytes")
        self.on_the_way += 1
        try:
            response = await endpoint.process.ask(_received(endpoint, sent, cut, connection))
        except Died:
            self._note(sent, "the receiver died over it")
            self._history.mark("receiver died over a request")
            return None
        except Truncated:
            return None
        except Exception as error:
            self._history.fail(f"{sent.receiver} stumbled over it: {error!r}", sent.message_id)
            return None
        finally:
            self.on_the_way -= 1
        response = _in_one(response)
        self._hands_out(sent, response)
        if connection.open:
            self._witness.responded(sent, response.body)
        elif response.handed is not None:
            self._note(sent, "nobody is there to take the answer")
            self._history.mark("a receipt could not be handed over")
        return response

    def _hands_out(self, sent: Transmission, response: Response) -> None:
        """Messages leave as the answer to a PullRequest, or to a request."""
        times = {}
        for message_id in _given(response.body):
            self.posts[sent.receiver, message_id] += 1
            self._history.note(sent.receiver, f"{sent} brings it", message_id)
            times[message_id] = self.posts[sent.receiver, message_id]
        if times:
            self._witness.handed_out(sent, times, response.body)

    def _note(self, sent: Transmission, what: str) -> None:
        self._history.note(sent.sender, f"{sent} {what}", sent.message_id)


async def _received(
    endpoint: Endpoint, sent: Transmission, cut: int | None, connection: Connection
) -> Response:
    """What the node's door does with a request, as `postroad.api.endpoint` does it."""
    CAUSE.set(sent)
    request = Request(
        sent.content_type,
        sent.sender,
        Body(sent.body, cut),
        soap_action=sent.soap_action,
        synchronous=not sent.by_mail,
        is_gone=lambda: not connection.open,
    )
    try:
        response = await endpoint.receive(request)
    except StoreError as error:
        return Response(500, _TEXT, f"not now: {error}".encode())
    if response.handed is not None:
        # The answer leaves first; what the door says of that afterwards keeps nobody waiting.
        endpoint.process.spawn(_told(response.handed, connection.open))
    return response


async def _told(handed: Handed, taken: bool) -> None:
    with suppress(StoreError):
        await handed(taken)


def _in_one(response: Response) -> Response:
    """An answer as bytes, whatever its size."""
    pieces = response.pieces
    if pieces is None:
        return response
    return replace(response, body=b"".join(pieces.read()), pieces=None)


def _failure(kind: Kind, *, transmitted: bool) -> TransportFailure:
    return TransportFailure(kind, f"{UNREACHABLE}: {kind}", transmitted=transmitted)


def _units(body: bytes) -> tuple[str, ...]:
    """The ids of the messages that a body holds."""
    return tuple(one.decode() for one in _MESSAGE_ID.findall(body))


def _given(body: bytes) -> tuple[str, ...]:
    """The messages that an answer is."""
    return tuple(one.decode() for one in _GIVEN.findall(_RECEIPT.sub(b"", body)))


def _said(body: bytes) -> str:
    """What an answer is, in a word."""
    code = re.search(rb'errorCode="([^"]*)"', body)
    if code:
        return code[1].decode()
    if b"<eb:Action>Acknowledgment<" in body or b">Acknowledgement</rm:MessageType>" in body:
        return "acknowledgment"
    if b"UserMessage>" in body:
        return "message"
    return "receipt" if b":Receipt" in body else ""
