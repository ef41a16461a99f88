"""Streaming: an intermediary passes a message on while it still comes (Part 2, 2.5.2).

As soon as the envelope is there the rules say where to. From then on each piece goes to the next
MSH when it comes, as fast as that takes it. Nothing is kept but the events of the journal, so this
node never takes a message over. With synchronous streaming the sender hears what the next MSH says;
with asynchronous streaming he hears that all of it left, and what the next MSH says against it is
reported.
"""

import asyncio
from typing import Final

from msgspec.structs import replace as changed

from postroad.msh.capture import Capture, Incoming
from postroad.msh.forwarding import Routable, read_routable
from postroad.node.base.context import Context
from postroad.node.base.requests import NO_CONTENT, STATIONS, Flowing, Request, Response
from postroad.node.hub.carrying import Carrying
from postroad.node.hub.catching import WholeCatch
from postroad.node.hub.forwarding import Forwarding, body_of, station_of
from postroad.node.hub.passing import Journey, Source, Way
from postroad.node.hub.pull_relaying import Relayed
from postroad.node.hub.reporting import ForwardingReports
from postroad.node.steps.attempts import Outcome
from postroad.reliability.delivery import Input
from postroad.transport.http_client import Client, HttpClient
from postroad.transport.http_outgoing import Flow, Outgoing, Reply, Timeouts, TransportFailure
from postroad.transport.http_passage import Passage
from postroad.wire.content import NoSink
from postroad.wire.errors import EbmsError
from postroad.wire.mime_headers import parse_content_type
from postroad.wire.multihop import RoutingUserMessage

_AT_ONCE: Final = 256
"""Messages that are passed on at the same time; each has a connection of its own."""
_PASSED_BACK: Final = ("content-encoding", "retry-after")
"""What matters of an answer beside status, Content-Type and length."""


class Streaming:
    """The nextMSH role of a node, for rules that say `forward: sync` or `stream`."""

    def __init__(self, context: Context, client: Client | None = None) -> None:
        self._context = context
        self._forwarding = Forwarding(context)
        self._station = station_of(context)
        self._client = client or HttpClient(
            per_host=_AT_ONCE,
            total=_AT_ONCE,
            egress=lambda: context.egress,
            revocation=lambda: context.in_force.revocation,
        )
        self._under_way = 0
        http = context.config.http
        self._timeouts = Timeouts(
            connect=http.connect_timeout.total_seconds(),
            answer=http.answer_timeout.total_seconds(),
        )
        self._carrying = Carrying(context, self._client, self._timeouts, self._station)
        self._reports = ForwardingReports(context)
        self._listening: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        await self._client.close()

    @property
    def is_on(self) -> bool:
        """Whether some rule wants it."""
        return self._context.in_force.routing.streams

    async def take(self, request: Request) -> Request | Response:
        """Pass a message on while it comes; what is not to be streamed is given back as it came."""
        if not request.synchronous:
            return request
        envelope, source = await self._begin(request)
        found = self._found(envelope) if envelope is not None else None
        way = None
        if envelope is not None and found is not None:
            way = await self._way(found, envelope, source, request)
        if way is None:
            return changed(request, body=source.pieces(), found=found)
        if self._under_way >= _AT_ONCE:
            said = "as many messages as can be are passed on at the moment; come again"
            return await self._forwarding.refuse(way.letter, EbmsError("EBMS:0202", said))
        self._under_way += 1
        response = None
        try:
            response = await self._pass_on(way, request)
        finally:
            if response is None or (response.flow is None and response is not NO_CONTENT):
                self._under_way -= 1
        return response

    async def _begin(self, request: Request) -> tuple[bytes | None, Source]:
        """Read until the envelope is there; None where there is none that could be read."""
        context = self._context
        held = context.store.new_sink()
        envelope: bytes | None = None
        unfinished = context.unfinished.begin(request.peer, request.client_certificate)
        try:
            incoming = Incoming(request.content_type, new_sink=NoSink, limits=context.limits)
            try:
                async for piece in request.body:
                    unfinished.add(len(piece))
                    held.write(piece)
                    incoming.feed(piece)
                    envelope = incoming.root
                    if envelope is not None:
                        break
                else:
                    envelope = incoming.close().envelope
            finally:
                incoming.abort()
        except EbmsError:
            # Whoever reads the whole of it says what is wrong.
            envelope = None
        except BaseException:
            held.discard()
            raise
        finally:
            unfinished.end()
        return envelope, Source(held.finish(), request.body)

    def _found(self, envelope: bytes) -> Routable | None:
        try:
            return read_routable(envelope, self._context.limits)
        except EbmsError:
            return None

    async def _way(
        self, found: Routable, envelope: bytes, source: Source, request: Request
    ) -> Way | None:
        """The rule that has it streamed; None: it is not for others, or not to be streamed."""
        context, kind = self._context, parse_content_type(request.content_type or "")
        capture = Capture(None, kind, kind, envelope, (), False, ())
        if found.source is None or await self._is_for_us(found):
            return None
        letter = self._forwarding.letter(found, capture, body_of(b""), request)
        route = context.in_force.routing.table.route(found.source)
        if route is None or self._forwarding.wrong(letter) is not None:
            return None
        streams = route.to.relay is not None if found.pulls else route.to.forward != "store"
        if not streams:
            return None
        return Way(letter, route, self._forwarding.message_of(letter, route), source)

    async def _is_for_us(self, found: Routable) -> bool:
        """A PullRequest is, where its routing input says so: its channel may be anybody's."""
        if not found.pulls:
            return await self._forwarding.is_for_us(found)
        routed = found.input
        own = self._context.in_force.is_own
        return isinstance(routed, RoutingUserMessage) and own(routed.to_party)

    async def _pass_on(self, way: Way, request: Request) -> Response:
        """To the first address that takes a connection: what left cannot be sent to another."""
        silent: list[str] = []
        for address in self._context.in_force.road(way.route).addresses:
            passage = Passage(self._client, self._outgoing(way, request, address))
            kind = Relayed if way.letter.found.pulls else Journey
            journey = kind(self._context, way, address, passage)
            try:
                reply = await self._first(way, passage)
                if way.synchronous:
                    journey.leaves()
                else:
                    # The answer is this node's own.
                    await journey.left()
            except TransportFailure as failure:
                await journey.close()
                if way.source.error is not None:
                    raise way.source.error from None
                if failure.transmitted:
                    return await self._in_doubt(way, journey, failure.reason)
                silent.append(f"{address}: {failure.reason}")
            except BaseException:
                await journey.close()
                raise
            else:
                if reply is None:
                    self._listen(way, journey)
                    return NO_CONTENT
                if not way.synchronous:
                    return await self._early(way, journey, reply)
                return await self._answer(way, journey, reply)
        problem = EbmsError("EBMS:0005", "; ".join(silent) or "the rule names no address")
        return await self._forwarding.refuse(way.letter, problem)

    def _outgoing(self, way: Way, request: Request, address: str) -> Outgoing:
        stations = ", ".join((*way.letter.stations, self._station))
        headers: tuple[tuple[str, str], ...] = ((STATIONS, stations),)
        if request.soap_action is not None:
            headers += (("SOAPAction", request.soap_action),)
        return Outgoing(
            address,
            way.letter.content_type,
            Flow(request.length, way.source.pieces),
            headers,
            self._context.in_force.road(way.route).tls,
            self._timeouts,
            reply_bytes=self._context.limits.message_bytes,
        )

    async def _first(self, way: Way, passage: Passage) -> Reply | None:
        """The head of the answer; with asynchronous streaming None, if all left before."""
        if way.synchronous:
            return await passage.head()
        head = asyncio.create_task(passage.head())
        ended = asyncio.create_task(way.source.ended.wait())
        try:
            await asyncio.wait((head, ended), return_when=asyncio.FIRST_COMPLETED)
            return None if ended.done() else await head
        finally:
            for task in (head, ended):
                task.cancel()
            await asyncio.gather(head, ended, return_exceptions=True)

    async def _answer(self, way: Way, journey: Journey, reply: Reply) -> Response:
        """What the next MSH says is what the sender hears. [P2-2.5.2-03] [P2-2.5.6-27]"""
        if not 200 <= reply.status < 600 or 300 <= reply.status < 400:
            await journey.close()
            said = f"the next MSH answered HTTP {reply.status}, which nobody here can use"
            return await self._in_doubt(way, journey, said)

        async def end() -> None:
            self._under_way -= 1
            await journey.end(journey.taken, journey.said)

        length = dict(reply.headers).get("content-length", "")
        flow = Flowing(
            int(length) if length.isdecimal() else None,
            journey.passed_back(reply),
            end,
            tuple(one for one in reply.headers if one[0] in _PASSED_BACK),
        )
        return Response(reply.status, reply.content_type or None, flow=flow)

    async def _early(self, way: Way, journey: Journey, reply: Reply) -> Response:
        """The next MSH answered before it had all: that can only be a refusal, told at once."""
        catch = WholeCatch(self._context)
        try:
            said = await journey.whole(catch, reply)
            outcome, _ = self._carrying.heard(way.made, said, catch)
        except TransportFailure as failure:
            return await self._in_doubt(way, journey, failure.reason)
        finally:
            catch.drop()
            await journey.close()
        told = outcome.detail or f"the next MSH answered HTTP {reply.status} before it had all"
        problem = EbmsError(outcome.error_code or "EBMS:0004", told)
        return await self._forwarding.refuse(way.letter, problem)

    def _listen(self, way: Way, journey: Journey) -> None:
        """What the next MSH says is heard when the sender has gone."""
        task = asyncio.create_task(self._heard(way, journey))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)

    async def _heard(self, way: Way, journey: Journey) -> None:
        """Journal what came back; the sender is told what is against it. [P2-2.5.6-01]"""
        catch, caught = WholeCatch(self._context), None
        try:
            reply = await journey.whole(catch)
            outcome, caught = self._carrying.heard(way.made, reply, catch)
        except TransportFailure as failure:
            said = f"it is not known whether the next MSH has it: {failure.reason}"
            outcome = Outcome(Input.UNANSWERED, None, "EBMS:0004", said)
        finally:
            catch.drop()
            self._under_way -= 1
        taken = outcome.result is Input.LEFT
        await journey.end(taken, outcome.detail or "the next MSH has it")
        if caught is not None:
            await self._carrying.pass_back(caught, reply.content_type, journey.address)
        if not taken:
            problem = EbmsError(outcome.error_code or "EBMS:0004", outcome.detail or "")
            await self._reports.report(changed(way.letter, now=self._context.clock()), problem)

    async def _in_doubt(self, way: Way, journey: Journey, reason: str) -> Response:
        """Something left and nobody knows what became of it, so no error says that it is lost.

        EBMS:0005 is for connections that could not be made. [P2-2.5.6-08]
        """
        await journey.left()
        said = f"it is not known whether the next MSH has it: {reason}"
        response = await self._forwarding.refuse(way.letter, EbmsError("EBMS:0004", said))
        return changed(response, status=502)
