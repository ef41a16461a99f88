"""Who pulls reliably: PullRequests go in a sequence, which offers the one that messages come in.

A request that was not answered is sent again under its number, made and signed anew. What came is
acknowledged by the next request, or alone when there is none.
"""

import asyncio
import logging
from collections import defaultdict
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.agreement.channels import collected_at
from postroad.agreement.matching import Match, header
from postroad.agreement.reliable import pulled_in_sequence, wsrm_of
from postroad.msh.inspection import Look
from postroad.msh.lens import Inspection
from postroad.msh.outbound import soap_version
from postroad.msh.pulling import Channel, pull_signing
from postroad.msh.routing_headers import pulling_reference
from postroad.msh.securing import Unsecurable
from postroad.msh.wsrm import Written, ack_blocks, sequence_blocks, signer_of, write_message
from postroad.node.base.context import Context
from postroad.node.steps import wsrm_pull_states as pulls
from postroad.node.steps import wsrm_states as states
from postroad.node.steps.wsrm_pull_states import Asking
from postroad.node.steps.wsrm_states import DestinationRecord
from postroad.node.wsrm.asking import NoSequence, answer_in, post, sent
from postroad.node.wsrm.destination import Destinations
from postroad.reliability import wsrm
from postroad.reliability.ranges import Ranges, numbers
from postroad.reliability.wsrm import Destination, Source, SourceStage
from postroad.security.egress import same_address
from postroad.security.sign import Block
from postroad.store.interface import Transaction
from postroad.transport.http_client import Client
from postroad.wire.wsa import ANONYMOUS, EndpointReference
from postroad.wire.wsrm import (
    Assurance,
    CreateSequence,
    CreateSequenceResponse,
    Lifecycle,
    Offer,
    Sequence,
    SequenceAcknowledgement,
)
from postroad.wire.wsrm_faults import ESCALATED, Code, read_rm_fault
from postroad.wire.wsrm_reader import read_rm_headers

_ENDS: Final = (Code.UNKNOWN_SEQUENCE, Code.SEQUENCE_TERMINATED, Code.SEQUENCE_CLOSED)
_NOT_AGREED: Final = (
    "no P-Mode names the address for acknowledgments that the partner names; they go to the "
    "address that messages are pulled from"
)
_log = logging.getLogger("postroad.pull")


class Turn(Struct, frozen=True):
    """The place of one PullRequest, and what it acknowledges."""

    sequence: Sequence
    offered: str
    came: Ranges

    def headers(self, channel: Channel) -> list[Block]:
        version = soap_version(channel.match.leg)
        acks = (SequenceAcknowledgement(self.offered, self.came),) if self.came else ()
        return sequence_blocks(self.sequence, version) + ack_blocks(acks, version)


def is_sequenced(channel: Channel) -> bool:
    """Whether PullRequests for a channel are sent reliably. [P2-2.8.3-01] [P2-2.8.3-02]"""
    match = channel.match
    return not channel.signals and pulled_in_sequence(match.pmode, match.leg, match.number - 1)


class PullSequences:
    """The sequences in which this node pulls."""

    def __init__(self, context: Context, client: Client, destinations: Destinations) -> None:
        self._context = context
        self._client = client
        self._destinations = destinations
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._on_the_way: set[tuple[str, int]] = set()
        self._told: dict[str, Ranges] = {}
        """What the partner was told of each sequence that it sends in."""

    async def turn(self, channel: Channel) -> Turn:
        """The number of a request: one that was not answered, or the next; `NoSequence`: none."""
        async with self._locks[channel.place]:
            for _ in range(2):
                found = await self._context.store.run(lambda tx: self._numbered(tx, channel))
                if found is not None:
                    self._on_the_way.add(_named(found.sequence))
                    return found
                await self._create(channel)
        raise NoSequence("its sequence ended as soon as it was made")

    def _numbered(self, tx: Transaction, channel: Channel) -> Turn | None:
        now = self._context.clock()
        record = pulls.asking_of(tx, channel.place)
        if record is None or record.source.stage is not SourceStage.OPEN:
            return None
        kept = states.destination_of(tx, record.offered, now)
        if wsrm.is_over(record.source, now) or kept is None:
            self._end(tx, channel)
            return None
        source = record.source
        left = (
            one
            for one in numbers(source.outstanding)
            if (source.identifier, one) not in self._on_the_way
        )
        number = next(left, None)
        if number is None:
            number, source = wsrm.numbered(source, now)
            pulls.keep_asking(tx, channel.place, changed(record, source=source), now)
        sequence = Sequence(source.identifier, number)
        return Turn(sequence, record.offered, kept.destination.received)

    def over(self, turn: Turn) -> None:
        """A request is on the way no longer; one that was not answered is sent again."""
        self._on_the_way.discard(_named(turn.sequence))

    async def heard(self, channel: Channel, turn: Turn, found: Inspection) -> str | None:
        """Take in what a response says of its request; what was wrong with the sequence."""
        if found.envelope is None:
            return None
        fault = read_rm_fault(found.envelope)
        if fault is not None:
            if fault.code in _ENDS:
                await self._context.store.run(lambda tx: self._end(tx, channel, turn))
                self._context.told()
            return f"{fault.code.value}: {fault.reason}"
        self._told[turn.offered] = turn.came
        headers, _ = read_rm_headers(found.envelope)
        acks = headers.acknowledgements if headers is not None else ()
        name = turn.sequence.identifier
        ranges = next((one.ranges for one in acks if one.identifier == name), ())
        if ranges:
            await self._context.store.run(lambda tx: self._acked(tx, channel, name, ranges))
        return None

    def _acked(self, tx: Transaction, channel: Channel, name: str, ranges: Ranges) -> None:
        record = pulls.asking_of(tx, channel.place)
        if record is None or record.source.identifier != name:
            return
        said = wsrm.acknowledged(record.source, ranges)
        now = self._context.clock()
        pulls.keep_asking(tx, channel.place, changed(record, source=said.source), now)

    def _end(self, tx: Transaction, channel: Channel, turn: Turn | None = None) -> None:
        """A sequence is gone: what waits in the one that it offered waits no longer."""
        now = self._context.clock()
        record = pulls.asking_of(tx, channel.place)
        if record is None or (turn and record.source.identifier != turn.sequence.identifier):
            return
        kept = states.destination_of(tx, record.offered, now)
        if kept is not None:
            end = wsrm.closed(kept.destination, None, in_order=kept.in_order)
            self._destinations.release(tx, record.offered, end.passed, now)
            states.forget_destination(tx, record.offered, now)
        self._told.pop(record.offered, None)
        pulls.keep_asking(tx, channel.place, None, now)

    async def _create(self, channel: Channel) -> None:
        """Ask for a sequence, and offer one for messages."""
        context, match = self._context, channel.match
        agreed, now = wsrm_of(match.leg), self._context.clock()
        assert agreed is not None
        offered = f"urn:uuid:{context.new_id(now).partition('@')[0]}"
        assurance = Assurance(True, agreed.at_most_once, agreed.in_order)
        back = EndpointReference(ANONYMOUS)
        asking = CreateSequence(back, offer=Offer(offered, back), assurance=assurance)
        url = collected_at(match.pmode, match.leg) or ""
        tls = context.in_force.tls(match.pmode.id, match.number)
        capture = await post(context, self._client, self._written(asking, match, url), url, tls)
        if capture is None:
            raise NoSequence(
                "no sequence could be made: the response is empty; let the hubs stream"
            )
        look = Look(capture, context.in_force.lens(now, context.store.new_sink))
        if await context.read(look):
            await context.judge((look, context.in_force.expectation.sender_terms(match)))
        found = look.found
        if found.rm_fault is not None:
            said = f"the partner made no sequence: {found.rm_fault.reason}"
            raise NoSequence(said, ESCALATED[found.rm_fault.code])
        answer = answer_in(found, match, CreateSequenceResponse)
        assert isinstance(answer, CreateSequenceResponse)
        if answer.accept is None:
            said = "the partner took no sequence for messages: nothing can be pulled reliably"
            raise NoSequence(said, "EBMS:0201")
        to = answer.accept.address
        now = context.clock()
        source = wsrm.created(wsrm.asked(Source(), "", now), answer.identifier, answer.expires, now)
        # Where intermediaries route, acknowledgements take their way too. An address that the
        # partner names is contacted only if the agreement names it too.
        routed = match.leg.addressing is not None
        agreed_to = any(same_address(to, one) for one in self._agreed_addresses(match))
        made = Asking(source, offered, to if agreed_to and not routed else url)
        if to != ANONYMOUS and not routed and not agreed_to:
            _log.warning("address not used", extra={"peer": to, "detail": _NOT_AGREED})
        comes = DestinationRecord(
            Destination(offered),
            signer_of(found),
            match.pmode.id,
            match.number,
            agreed.in_order,
        )

        def step(tx: Transaction) -> None:
            pulls.keep_asking(tx, channel.place, made, now)
            states.keep_destination(tx, comes, now)

        await context.store.run(step)

    def _agreed_addresses(self, match: Match) -> tuple[str, ...]:
        """The addresses that P-Modes name for the partner from whom messages are pulled."""
        sender = header(match.pmode, match.number).from_party
        return self._context.in_force.contacts.of(sender.party_ids)

    def _written(
        self,
        body: Lifecycle | None,
        match: Match,
        url: str,
        acks: tuple[SequenceAcknowledgement, ...] = (),
    ) -> Written:
        context, now = self._context, self._context.clock()
        name = context.new_id(now)
        try:
            return write_message(
                body,
                soap_version(match.leg),
                message_id=name,
                now=now,
                how=pull_signing(match, context.in_force.keyring.signing, more=True),
                to=pulling_reference(match, name, url),
                acks=acks,
            )
        except (Unsecurable, ValueError) as wrong:
            raise NoSequence(str(wrong), "EBMS:0103") from None

    async def acknowledge(self, channel: Channel) -> None:
        """Tell what came since the last request; if that is lost, the next one tells it."""
        context, now = self._context, self._context.clock()

        def look(tx: Transaction) -> tuple[Asking, Ranges] | None:
            record = pulls.asking_of(tx, channel.place)
            kept = states.destination_of(tx, record.offered, now) if record else None
            return None if record is None or kept is None else (record, kept.destination.received)

        found = await context.store.run(look)
        if found is None or found[1] == self._told.get(found[0].offered, ()):
            return
        record, came = found
        match = channel.match
        acks = (SequenceAcknowledgement(record.offered, came),)
        tls = context.in_force.tls(match.pmode.id, match.number)
        try:
            written = self._written(None, match, record.acks_to, acks)
            await sent(context, self._client, written, record.acks_to, tls)
            self._told[record.offered] = came
        except NoSequence as unheard:
            _log.info("not acknowledged yet", extra={"detail": unheard.detail})


def _named(sequence: Sequence) -> tuple[str, int]:
    return sequence.identifier, sequence.message_number
