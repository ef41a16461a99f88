"""What each transmission of an ebXML message adds to it: the way it goes, and where we are."""

from datetime import datetime

from postroad.agreement.ebxml import is_mail
from postroad.agreement.matching import Match
from postroad.agreement.pmode import Leg
from postroad.msh.ebxml_outbound import hop, via_of
from postroad.msh.lens import Inspection
from postroad.node.context import Context
from postroad.node.in_force import Sending
from postroad.store.records import Message
from postroad.wire.ebxml import kind_of


def own_address(context: Context, leg: Leg | None, by_mail: bool) -> str:
    """Where answers reach this node: as the P-Mode says, else by the way that a message goes."""
    agreed = leg.ebxml.reply_to if leg is not None and leg.ebxml is not None else None
    if agreed is not None:
        return agreed
    mail = context.config.mail
    if by_mail and mail is not None:
        return f"mailto:{mail.address}"
    return context.msh_url or context.config.msh_url or f"urn:postroad:{context.config.node}"


def own_addresses(context: Context, match: Match | None) -> frozenset[str]:
    """All by which this node may be addressed in an answer."""
    leg = match.leg if match is not None else None
    return frozenset(own_address(context, leg, by_mail) for by_mail in (False, True))


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
    number = None
    if message is not None and leg.ebxml is not None and leg.ebxml.profile == "rm001":
        number = message.sequence_number
    return hop(
        envelope,
        sending.dialect,
        sender_uri=own_address(context, leg, is_mail(address)),
        receiver_uri=address,
        now=now,
        via=via_of(leg),
        sequence_number=number,
    )


def is_for_application(found: Inspection) -> bool:
    """Whether a message is one of an application's, whatever else it says."""
    return found.ebxml is not None and kind_of(found.ebxml) == "message"
