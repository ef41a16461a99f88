"""Acknowledgments and errors that come as messages of their own, and what they are about."""

from datetime import datetime

from msgspec.structs import replace

from postroad.agreement.matching import Match
from postroad.msh.ebxml_answers import sent_ebxml, write_signal
from postroad.msh.ebxml_terms import profile_of, reliable
from postroad.node.base.context import Context
from postroad.node.base.own_address import own_addresses
from postroad.node.ebxml.answering import answer_route, call
from postroad.node.ebxml.hearing import heard_ebxml
from postroad.node.ebxml.relaying import notice_name
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.hearing import Hearing
from postroad.reliability import ebxml
from postroad.reliability.ebxml_terms import DeliverySemantics, Terms
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Message, Side, Work
from postroad.wire.content import read_all
from postroad.wire.ebxml import EbxmlMessage, kind_of


class Signals:
    """What a signal is about, what it says, and whether it is acknowledged itself."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def sent(self, message_id: str) -> Message | None:
        def ask(reader: Reader) -> Message | None:
            return reader.message(Side.SENDING, message_id) or reader.message(
                Side.FORWARDING, message_id
            )

        found = await self._context.store.look(ask)
        about_ebxml = found is not None and found.envelope is not None and found.is_ebxml
        return found if about_ebxml else None

    def heard(self, arrival: Arrival, sent: Message) -> Hearing:
        """What an envelope says about a message that we sent, or passed on."""
        context = self._context
        match = context.in_force.match(sent.pmode, sent.leg)
        assert sent.envelope is not None
        kept = read_all(context.store.content(sent.envelope), sent.envelope.size)
        addresses: tuple[str, ...] = (sent.peer or "",)
        if match is not None:
            addresses = context.in_force.forwarding(match.pmode.id, match.number).addresses
        return heard_ebxml(
            arrival.found,
            arrival.capture,
            match,
            sent_ebxml(kept, context.limits),
            sent.side,
            addresses,
            own_addresses(context, match),
            on_response=arrival.is_response,
        )

    async def is_about_notice(self, ref: str | None) -> bool:
        """Whether it acknowledges a notice of ours, which then is sent no more."""
        name = notice_name(ref or "")

        def step(tx: Transaction) -> bool:
            known = tx.state(name)
            if known:
                tx.finish_work(int(known))
            return known is not None

        return await self._context.store.run(step)

    def acknowledgment(
        self, arrival: Arrival, message: EbxmlMessage, match: Match | None
    ) -> Work | None:
        """The acknowledgment of an error that was sent reliably. [MS098-10.3.1.3-01]"""
        if match is None or kind_of(message) != "error" or not message.header.is_reliable:
            return None
        context, now = self._context, arrival.now
        terms = Terms(delivery_semantics=DeliverySemantics.ONCE_AND_ONLY_ONCE)
        by_machine = reliable(message)
        party = ebxml.Receiver(by_machine.to_party, profile=profile_of(match))
        answer = write_signal(
            ebxml.acknowledge(by_machine, terms, party, now),
            message.dialect,
            message_id=context.new_id(now),
            now=now,
            to=message,
        )
        route = answer_route(
            context, message, match, "acknowledgment", synchronous=False, proven=True
        )
        if answer is None or route.url is None:
            return None
        return call(context, route, answer, message, match, message.message_id)


def first_said(tx: Transaction, message_id: str, work: Work, now: datetime) -> Work:
    """The work of saying what was said the first time, where something was."""
    name = f"~answered:{message_id}"
    known = tx.state(name)
    if known is not None:
        return replace(work, data=known)
    tx.set_state(name, work.data, now)
    return work
