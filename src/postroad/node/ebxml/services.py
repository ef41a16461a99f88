"""The services of an ebXML MSH: ping and message status, asked of us (0.98b, section 9).

Who may ask is the P-Mode's to say. A stranger who asks for a status is UnAuthorized, and learns
nothing of what there is.
"""

from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from postroad.agreement.matching import Match
from postroad.msh.answers import Answer
from postroad.msh.ebxml_answers import asked_by_partner
from postroad.msh.ebxml_services import pong, status_response
from postroad.msh.inspection import Look
from postroad.msh.securing import Unsecurable, answer_signing, signs
from postroad.node.base.context import Context
from postroad.node.steps.arrival import Arrival
from postroad.security.sign import Signing
from postroad.store.interface import Reader, Transaction
from postroad.store.records import Message, Side, State
from postroad.wire.ebxml import (
    FORWARDED,
    NOT_RECOGNIZED,
    PROCESSED,
    RECEIVED,
    UNAUTHORIZED,
    EbxmlMessage,
    kind_of,
)
from postroad.wire.errors import Severity

_TAKEN: Final = (State.RECEIVED, State.HELD, State.DELIVERED, State.CONSUMED)


class Asked(Struct, frozen=True, omit_defaults=True):
    """A question to a partner, as it is remembered until it is answered."""

    pmode: str
    about: str | None = None
    """The message whose status was asked for."""
    answer: str | None = None
    """Pong, or the status."""
    timestamp: datetime | None = None
    """When the partner received the message."""


def asked_name(message_id: str) -> str:
    return f"~asked:{message_id}"


class Services:
    """Answers what MSHs ask each other, and hears the answers."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def offers(self, message: EbxmlMessage, match: Match | None) -> bool:
        """Whether anybody gets an answer to such a question. [MS098-9-01]"""
        agreed = match.leg.ebxml if match is not None else None
        if agreed is None:
            return True
        if kind_of(message) == "ping":
            return agreed.ping != "nobody"
        return agreed.status_requests != "nobody"

    async def answer(
        self, arrival: Arrival, message: EbxmlMessage, match: Match | None
    ) -> Answer | None:
        """The answer; None: there is none for this one."""
        partner = asked_by_partner(arrival.found)
        if kind_of(message) != "ping":
            return await self._status(arrival, message, match, partner)
        if not partner and not self._anybody(message, match):
            return None
        return pong(
            message,
            message_id=self._context.new_id(arrival.now),
            now=arrival.now,
            signing=self._signing(match) if partner else None,
        )

    def _anybody(self, message: EbxmlMessage, match: Match | None) -> bool:
        """Whether also a stranger gets a pong."""
        if match is not None:
            return match.leg.ebxml is not None and match.leg.ebxml.ping == "anybody"
        legs = (one.leg.ebxml for one in self._context.in_force.expectation.pmodes.legs)
        spoken = [one for one in legs if one is not None and one.version == message.dialect.name]
        return any(one.ping == "anybody" for one in spoken)

    async def _status(
        self, arrival: Arrival, message: EbxmlMessage, match: Match | None, authorized: bool
    ) -> Answer | None:
        """[MS098-9.1.2-01] [MS098-8.11.2-01]"""
        if not message.asked_about:
            return None
        status, received_at = UNAUTHORIZED, None
        if authorized:
            status, received_at = await self._known(message)
        try:
            return status_response(
                message,
                status=status,
                message_id=self._context.new_id(arrival.now),
                now=arrival.now,
                received_at=received_at,
                signing=self._signing(match) if authorized else None,
            )
        except ValueError:
            # Who asks cannot be written down, so nobody can be answered.
            return None

    async def _known(self, message: EbxmlMessage) -> tuple[str, datetime | None]:
        """What is known of the message that is asked about; only its sender may know."""
        wanted, asker = message.asked_about or "", str(message.header.from_party)

        def ask(reader: Reader) -> Message | None:
            known = [
                one
                for side in (Side.RECEIVING, Side.FORWARDING)
                for one in reader.messages_of_id(side, wanted)
                if one.from_party == asker
            ]
            known.sort(key=lambda one: (one.state is State.REJECTED, one.unproven))
            return known[0] if known else None

        found = await self._context.store.look(ask)
        if found is None:
            return NOT_RECOGNIZED, None
        statuses = message.dialect.message_statuses
        if found.side is Side.FORWARDING:
            return (FORWARDED if FORWARDED in statuses else RECEIVED), found.created_at
        if found.state not in _TAKEN:
            return NOT_RECOGNIZED, None
        done = found.state is State.CONSUMED and PROCESSED in statuses
        return (PROCESSED if done else RECEIVED), found.created_at

    def _signing(self, match: Match | None) -> Signing | None:
        if match is None:
            return None
        try:
            return answer_signing(match.leg, self._context.in_force.keyring.signing)
        except Unsecurable:
            return None

    async def heard(self, look: Look, arrival: Arrival, message: EbxmlMessage) -> bool:
        """A pong or a status: remembered for who asked, if it is believed; False: nobody did."""
        context, ref = self._context, message.header.ref_to_message_id or ""
        data = message.status_data
        known = await context.store.look(lambda reader: reader.state(asked_name(ref)))
        if known is None:
            return False
        asked = msgspec.json.decode(known, type=Asked)
        match = self._match(asked)
        await context.judge((look, context.in_force.answer_terms(match)))
        if any(one.severity is Severity.FAILURE for one in look.found.problems):
            return True
        if match is None or (signs(match.leg) and not look.found.trusted):
            return True
        if asked.about != (None if data is None else data.ref_to_message_id):
            return True
        answered = msgspec.structs.replace(
            asked,
            answer="Pong" if data is None else data.message_status,
            timestamp=None if data is None else data.timestamp,
        )

        def step(tx: Transaction) -> None:
            if tx.state(asked_name(ref)) is not None:
                tx.set_state(asked_name(ref), msgspec.json.encode(answered), arrival.now)

        await context.store.run(step)
        context.settled.tell(asked_name(ref))
        return True

    def _match(self, asked: Asked) -> Match | None:
        return self._context.in_force.match(asked.pmode, 1)
