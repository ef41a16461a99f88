"""Where answers reach this node."""

from postroad.agreement.matching import Match
from postroad.agreement.pmode import Leg
from postroad.node.base.context import Context


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
