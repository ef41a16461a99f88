"""What each transmission of an ebXML message adds to it: the way it goes, and where we are."""

from datetime import datetime

from postroad.agreement.ebxml import is_mail
from postroad.msh.ebxml_outbound import hop, via_of
from postroad.msh.lens import Inspection
from postroad.node.base.context import Context
from postroad.node.base.own_address import own_address
from postroad.node.settings.in_force import Sending
from postroad.store.records import Message, Side
from postroad.wire.ebxml import kind_of


def transmitted(
    context: Context,
    sending: Sending,
    envelope: bytes,
    address: str,
    now: datetime,
    message: Message | None = None,
) -> bytes:
    """An envelope as it goes to an address: with a TraceHeader, and Via for the next MSH."""
    assert sending.dialect is not None
    leg = sending.match.leg
    number, passed_on = None, False
    if message is not None and leg.ebxml is not None and leg.ebxml.profile == "rm001":
        number, passed_on = message.sequence_number, message.side is Side.FORWARDING
    return hop(
        envelope,
        sending.dialect,
        sender_uri=own_address(context, leg, is_mail(address)),
        receiver_uri=address,
        now=now,
        via=via_of(leg),
        sequence_number=number,
        only=passed_on,
    )


def is_for_application(found: Inspection) -> bool:
    """Whether a message is one of an application's, whatever else it says."""
    return found.ebxml is not None and kind_of(found.ebxml) == "message"
