"""A PullRequest that is passed on to who has the messages, and the message that comes back.

Case 3a of Part 2, 2.4.7.2: who may pull is for the last of the road to say. Of the request itself
nothing is told; the message that it brings is read only for the journal.
"""

from collections.abc import AsyncGenerator

from postroad.msh.capture import Incoming
from postroad.msh.forwarding import Routable, read_routable
from postroad.node.base.journaling import about
from postroad.node.hub.passing import Journey
from postroad.store.records import Event, Message, Side, State
from postroad.transport.http_outgoing import Reply
from postroad.wire.content import BytesSink
from postroad.wire.errors import EbmsError


class Relayed(Journey):
    """A PullRequest on its way to one address, and what comes back."""

    async def left(self) -> None:
        """Who polls asks often: only what comes back is worth an event."""

    def leaves(self) -> None:
        pass

    async def passed_back(self, reply: Reply) -> AsyncGenerator[bytes, None]:
        """The answer as it comes, and a look at its envelope."""
        context, size = self.context, 0
        incoming: Incoming | None = None
        found: Routable | None = None
        try:
            incoming = Incoming(reply.content_type, new_sink=BytesSink, limits=context.limits)
        except EbmsError:
            incoming = None
        async for piece in self.passage.pieces():
            size += len(piece)
            yield piece
            if incoming is not None:
                found, incoming = self._look(incoming, piece)
        if incoming is not None:
            found, _ = self._look(incoming, b"", ended=True)
        if found is not None and found.user_message is not None:
            await self.record(*self._brought(found, size))

    def _look(
        self, incoming: Incoming, piece: bytes, *, ended: bool = False
    ) -> tuple[Routable | None, Incoming | None]:
        """What the envelope says, once it is there; nobody looks any further then."""
        try:
            incoming.feed(piece)
            envelope = incoming.close().envelope if ended else incoming.root
            if envelope is None:
                return None, incoming
            incoming.abort()
            return read_routable(envelope, self.context.limits), None
        except EbmsError:
            return None, None

    def _brought(self, found: Routable, size: int) -> tuple[Event, Event]:
        """That a message came, and that it left."""
        way, now = self.way, self.context.clock()
        sent = found.user_message
        assert sent is not None
        info = sent.collaboration_info
        made = Message(
            Side.FORWARDING,
            sent.message_info.message_id,
            State.SENT,
            now,
            now,
            party=self.context.party,
            protocol="ebms3",
            ref_to_message_id=sent.message_info.ref_to_message_id,
            conversation_id=info.conversation_id,
            from_party=str(sent.from_party),
            to_party=str(sent.to_party),
            service=str(info.service),
            action=info.action,
            mpc=sent.effective_mpc,
            route=way.route.id,
        )
        common = {"envelope": made.message_id, "wire_bytes": size}
        said = f"pulled by way of the rule {way.route.id}"
        return (
            about(made, "received", now, peer=self.address, detail=said, **common),
            about(made, "forwarded", now, peer=way.letter.peer, attempt=1, **common),
        )

    async def end(self, taken: bool, said: str) -> None:
        await self.close()
