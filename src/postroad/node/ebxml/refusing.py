"""What is answered to an ebXML message that is not taken: errors, Faults, or nothing (0.98b, 11).

Never about an error or an acknowledgment, and to a stranger only where it asks: on the response.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from postroad.agreement.matching import Match
from postroad.msh.ebxml_answers import refusal
from postroad.msh.ebxml_faults import client_fault, fault
from postroad.msh.ebxml_inbound import HEADER
from postroad.msh.lens import Inspection
from postroad.msh.securing import Unsecurable, answer_signing, signs
from postroad.node.base.context import Context
from postroad.node.base.requests import NO_CONTENT, Request, Response
from postroad.node.ebxml.answering import NOWHERE, answer_route, call
from postroad.node.steps.arrival import Arrival
from postroad.node.steps.identity import is_signed_by_partner
from postroad.node.steps.keeping import LONGEST_ID, about_nothing, reject, user_message_of
from postroad.node.steps.noting import is_journaled, note_refusal
from postroad.reliability import ebxml
from postroad.store.interface import Transaction
from postroad.store.records import Work
from postroad.wire.ebms3 import Party, PartyId
from postroad.wire.ebxml import EbxmlMessage, kind_of
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import S11
from postroad.wire.soap_faults import Fault

PLACES: Final = {
    ebxml.Case.EXPIRED: f"{HEADER}/eb:MessageData/eb:TimeToLive",
    ebxml.Case.CONTRADICTION: f"{HEADER}/eb:MessageData/eb:MessageId",
    ebxml.Case.DISORDER: f"{HEADER}/eb:SequenceNumber",
    ebxml.Case.UNORDERED: f"{HEADER}/eb:SequenceNumber",
    ebxml.Case.NO_ROOM: f"{HEADER}/eb:SequenceNumber",
}
"""Where a message has what the machine refuses. [MS098-8.7.5.4-01]"""
_log = logging.getLogger("postroad.receive")


class Refusing:
    """Tells the sender of a message why it is not taken, and the journal too."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def refuse(
        self,
        arrival: Arrival,
        request: Request,
        message: EbxmlMessage,
        problems: Sequence[EbmsError],
        *,
        remembered: bool = True,
    ) -> Response:
        """Nothing is delivered; the sender is told why, and the journal too. [MS098-11.3-01]

        What is for others, or has no id, is not remembered under it.
        """
        context, found, now = self._context, arrival.found, arrival.now
        match = found.match or self._nearest(found, message)
        proven = _proven(arrival, match)
        signing = None
        if match is not None and proven:
            try:
                signing = answer_signing(match.leg, context.in_force.keyring.signing)
            except Unsecurable:
                signing = None
        found.problems[:] = dict.fromkeys((*problems, *found.problems))
        if all(one.code == "EBMS:0202" for one in problems):
            # It may be taken later: an ErrorList would be the end of it.
            return await self.come_again(arrival, problems[0])
        own = found.match is None or not context.in_force.receives(found.match)
        said = refusal(
            found,
            message_id=context.new_id(now),
            now=now,
            party=self._own_party() if own else None,
            signing=signing,
            over_link=_speaks_link(match),
        )
        if isinstance(said, Fault):
            return await self.fault(arrival, request, said)
        answer = said
        context.count_error(problems[0].code)
        _log.warning(
            "rejected",
            extra={
                "message_id": message.message_id,
                "peer": arrival.peer,
                "detail": str(problems[0]),
            },
        )
        named = message.message_id and len(message.message_id) <= LONGEST_ID
        if answer is None or not named or kind_of(message) != "message":
            remembered = False
        back, route = None, NOWHERE
        if answer is not None:
            route = answer_route(
                context, message, match, "error", synchronous=request.synchronous, proven=proven
            )
            if route.url is not None:
                back = call(context, route, answer, message, match, message.message_id)
        if remembered and answer is not None:
            await context.store.run(
                reject(context, arrival, user_message_of(found), match, problems, answer, back)
            )
            context.count("messages", side="receiving", event="rejected")
            context.told()
        else:
            await context.store.run(_noted(context, arrival, problems, back))
        if route.refused is not None:
            await self.note("SecurityFailure", route.refused, arrival)
        if back is not None:
            context.work_came.set()
        if answer is None or not route.is_response:
            return NO_CONTENT
        return Response(200, answer.content_type, answer.envelope)

    def _nearest(self, found: Inspection, message: EbxmlMessage) -> Match | None:
        """A P-Mode of the same parties and CPAId: it says where errors go. [MS098-11.4-02]"""
        if found.messaging is None:
            return None
        try:
            match = self._context.in_force.expectation.pmodes.match(
                user_message_of(found), ebxml=message.dialect.name, signal=True
            )
        except EbmsError:
            return None
        return None if match.against else match

    def _own_party(self) -> Party:
        named = self._context.config.party[0]
        return Party((PartyId(named.id, named.type),), "")

    async def fault(
        self, arrival: Arrival, request: Request, said: Fault | None = None
    ) -> Response:
        """What SOAP itself answers: the package or the envelope is not as it must be."""
        found = arrival.found
        wrong = failures(found)
        first = next(iter(wrong), EbmsError("Unknown", "it cannot be read"))
        await self.note(first.code, first.detail, arrival)
        what = said or found.soap_fault or client_fault(wrong)
        return Response(500, "text/xml; charset=UTF-8", fault(what))

    async def come_again(self, arrival: Arrival, problem: EbmsError) -> Response:
        """Nothing was taken, and the sender tries again."""
        await self.note(problem.code, problem.detail, arrival)
        said = Fault(f"{{{S11}}}Server", problem.detail[:2000])
        return Response(503, "text/xml; charset=UTF-8", fault(said), come_again=True)

    async def note(self, code: str, detail: str, arrival: Arrival) -> None:
        await note_refusal(self._context, code, detail, arrival)


def failures(found: Inspection) -> list[EbmsError]:
    return [one for one in found.problems if one.severity is Severity.FAILURE]


def too_long(message: EbxmlMessage) -> list[EbmsError]:
    """Ids are kept, and compared: there is a limit to them."""
    header = message.header
    given = {
        "eb:MessageData/eb:MessageId": header.message_id,
        "eb:MessageData/eb:RefToMessageId": header.ref_to_message_id or "",
        "eb:ConversationId": header.conversation_id,
    }
    said = f"an id has at most {LONGEST_ID} characters here"
    return [
        EbmsError("ValueNotRecognized", said, location=f"{HEADER}/{place}")
        for place, value in given.items()
        if len(value) > LONGEST_ID
    ]


def unlinked(message: EbxmlMessage, match: Match) -> list[EbmsError]:
    """Where draft 001 is spoken a message must say which link it came over. [RM001-2.2.3-01]"""
    if not _speaks_link(match) or message.trace or kind_of(message) != "message":
        return []
    place = HEADER.replace("eb:MessageHeader", "eb:TraceHeaderList")
    return [EbmsError("Inconsistent", "it has no TraceHeader of its link", location=place)]


def _speaks_link(match: Match | None) -> bool:
    ebxml = match.leg.ebxml if match is not None else None
    return ebxml is not None and ebxml.profile == "rm001"


def _noted(
    context: Context, arrival: Arrival, problems: Sequence[EbmsError], back: Work | None
) -> Callable[[Transaction], None]:
    """The step that tells what is wrong with something that is not remembered."""

    journaled = is_journaled(context, problems[0], arrival)

    def step(tx: Transaction) -> None:
        if journaled:
            tx.record([about_nothing(context, one, arrival) for one in problems[:5]])
        if back is not None:
            tx.add_work(back)

    return step


def _proven(arrival: Arrival, match: Match | None) -> bool:
    """Whether the partner signed what is refused now, or nothing is signed in the first place."""
    if match is None:
        return False
    return not signs(match.leg) or is_signed_by_partner(arrival)
