"""Whether the sender of a message proved who it is."""

from postroad.msh.securing import signs
from postroad.node.base.context import Context
from postroad.node.base.refusals import SECURITY_CODES
from postroad.node.steps.arrival import Arrival
from postroad.wire.errors import Severity


def is_identified(context: Context, arrival: Arrival) -> bool:
    """Whether the sender proved itself as a partner.

    By the signature, the TLS client certificate or the user name token that the P-Mode asks for,
    or because this node asked it. A message without a P-Mode, and one of a P-Mode that asks for
    none of these, can be anybody's.
    """
    found, match = arrival.found, arrival.found.match
    if arrival.pulled is not None or arrival.is_response:
        return True
    if arrival.joined is not None:
        # Each fragment was held to its P-Mode.
        kept = arrival.joined.kept
        by = context.in_force.match(kept.pmode, kept.leg)
        return by is not None and context.in_force.taking(by).proves
    failed = any(
        one.code in SECURITY_CODES and one.severity is Severity.FAILURE for one in found.problems
    )
    if match is None or failed:
        return False
    if signs(match.leg):
        return found.trusted is True
    expectation = context.in_force.expectation
    agreed = expectation.material(match)
    if agreed.tls_clients or agreed.tls_anchors:
        shown, revocation = arrival.client_certificate, context.in_force.revocation
        return not expectation.check_client(match, shown, arrival.now, revocation)
    security = match.leg.security
    token = security.username_token if security is not None else None
    return token is not None and bool(found.username_tokens)
