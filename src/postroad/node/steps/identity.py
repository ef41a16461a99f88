"""Whether the sender of a message proved who it is."""

from collections.abc import Collection
from typing import Final

from postroad.msh.securing import signs
from postroad.node.base.context import Context
from postroad.node.base.refusals import SECURITY_CODES
from postroad.node.steps.arrival import Arrival
from postroad.wire.errors import Severity

_UNSIGNED: Final = frozenset(("EBMS:0007", "EBMS:0008", "EBMS:0009", "EBMS:0102", "MimeProblem"))
"""Errors about packaging, other header blocks and encryption, which no signature need cover."""


def is_signed_by_partner(arrival: Arrival) -> bool:
    """Whether the partner signed all that a message is refused for.

    Whoever has a copy of a signed message can add to it what no signature covers, or break its
    encryption. Such a copy is nobody's: what we sign about it could be shown to the partner.
    """
    fetched = arrival.pulled is not None
    codes = SECURITY_CODES if fetched else {*SECURITY_CODES, *_UNSIGNED}
    return arrival.found.trusted is True and not _fails(arrival, codes)


def _fails(arrival: Arrival, codes: Collection[str]) -> bool:
    return any(
        one.code in codes and one.severity is Severity.FAILURE for one in arrival.found.problems
    )


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
    if match is None or _fails(arrival, SECURITY_CODES):
        return False
    if signs(match.leg):
        return is_signed_by_partner(arrival)
    expectation = context.in_force.expectation
    agreed = expectation.material(match)
    if agreed.tls_clients or agreed.tls_anchors:
        shown, revocation = arrival.client_certificate, context.in_force.revocation
        return not expectation.check_client(match, shown, arrival.now, revocation)
    security = match.leg.security
    token = security.username_token if security is not None else None
    return token is not None and bool(found.username_tokens)
