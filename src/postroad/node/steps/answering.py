"""Signals about messages that came in, as they are written."""

from collections.abc import Sequence

from postroad.agreement.matching import Match
from postroad.msh.answers import Answer, write_answer
from postroad.msh.routing_headers import came_routed, error_routing, receipt_routing
from postroad.msh.securing import answer_signing
from postroad.msh.wsrm import ack_blocks
from postroad.node.base.context import Context
from postroad.node.steps.arrival import Arrival
from postroad.wire.ebms3 import SignalMessage
from postroad.wire.soap import SoapVersion
from postroad.wire.wsrm import SequenceAcknowledgement


def written(
    context: Context,
    arrival: Arrival,
    signal: SignalMessage,
    match: Match | None,
    acks: Sequence[SequenceAcknowledgement] = (),
) -> Answer:
    """A signal in its envelope; unsigned where nobody could say how to sign it."""
    found = arrival.found
    version = found.envelope.version if found.envelope else SoapVersion.SOAP_12
    how = routing = None
    if match is not None:
        taking, key = context.in_force.taking(match), context.in_force.keyring.signing
        if key is not None:
            how = taking.signing
        elif signal.receipt is not None:
            how = answer_signing(match.leg, None)
        messages = found.messaging.user_messages if found.messaging else ()
        if messages and signal.receipt is None:
            routing = error_routing(match, messages[0], found)
        elif messages and (taking.routed or found.addressing or came_routed(found)):
            routing = receipt_routing(match, messages[0], found)
    headers = ack_blocks(acks, version) if acks else ()
    return write_answer(signal, version, how, arrival.now, routing, headers=headers)
