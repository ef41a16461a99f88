"""Message partition channels: which one a leg uses, which lie below it, and who may pull."""

from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace as changed

from postroad.agreement.places import is_pulled, sides
from postroad.agreement.pmode import Authorization, BusinessInfo, Leg, PMode
from postroad.agreement.pmode_pulling import Pulling
from postroad.agreement.retrying import resent_within, retry_of
from postroad.agreement.waiting import Policy
from postroad.wire.names import DEFAULT_MPC, PULL_AND_PULL, SYNC

_USUAL: Final = Pulling()
_AGAIN: Final = Policy(timeout=timedelta(minutes=5), interval=timedelta(minutes=5), retries=None)
"""Where nothing is said about it, what was handed out and not acknowledged is offered again."""
_ONCE: Final = Policy(timeout=timedelta(days=1))
"""Where retries are switched off; the receipt has a day to come."""
_ANSWERED: Final = timedelta(minutes=5)


def pulling_of(leg: Leg) -> Pulling:
    """How a leg is pulled; the defaults where it says nothing."""
    return leg.pulling or _USUAL


def channel_of(leg: Leg) -> str:
    """The channel that messages of a leg are pulled from: its MPC, or a sub-channel of that.

    [P2-2.5.4-01]
    """
    info = leg.business_info
    parent = (info.mpc if info else None) or DEFAULT_MPC
    extension = info.sub_mpc_ext if info else None
    return f"{parent}/{extension}" if extension else parent


def alternate_leg(pmode: PMode) -> Leg:
    """The leg of a reply that goes by the alternate binding: the same but for its channel.

    [P2-5.2-02] [P2-6.12-01]
    """
    leg = pmode.legs[1]
    info = leg.business_info or BusinessInfo()
    if info.mpc_alternate is None:
        return leg
    moved = {"mpc": info.mpc_alternate, "mpc_alternate": None, "sub_mpc_ext": None}
    return leg.model_copy(update={"business_info": info.model_copy(update=moved)})


def collected_at(pmode: PMode, leg: Leg) -> str | None:
    """Where messages of a leg are pulled, and their receipts go: a reply where its request went.

    The address of replies that are responses, and pushed when they are late, is who asked.
    """
    legs = [leg] if pmode.binding == PULL_AND_PULL else [leg, pmode.legs[0]]
    if pmode.binding == SYNC and not is_pulled(pmode, 1, late=True):
        legs = [pmode.legs[0]]
    return next(
        (one.protocol.address for one in legs if one.protocol and one.protocol.address), None
    )


def is_below(channel: str, parent: str) -> bool:
    """Whether a channel is a sub-channel: the same scheme and authority, and a longer path.

    Path by path segment, so that `…/mpc12` is no sub-channel of `…/mpc1`. [P2-2.5.4-05]
    [P2-2.5.4-06]
    """
    try:
        one, other = urlsplit(channel), urlsplit(parent)
    except ValueError:
        return False
    if (one.scheme, one.netloc) != (other.scheme, other.netloc):
        return False
    plain = not (one.query or one.fragment or other.query or other.fragment)
    return plain and one.path.startswith(other.path.rstrip("/") + "/") and one.path != other.path


def token_asked(pmode: PMode, leg: Leg) -> Authorization | None:
    """The user name and password that a PullRequest must show, where they are agreed on."""
    if leg.security is not None and leg.security.pmode_authorize is False:
        return None
    index = 0 if leg is pmode.legs[0] else 1
    sender, receiver = sides(pmode, index)
    pulled = is_pulled(pmode, index) or is_pulled(pmode, index, late=True)
    # Of a leg that is pushed only what is said about it can be pulled, by who sent it.
    puller = receiver if pulled else sender
    return puller.authorization if puller else None


def signature_asked(pmode: PMode, leg: Leg) -> bool:
    """Whether a PullRequest must be signed by its sender."""
    said = pulling_of(leg).sign
    if said is not None:
        return said
    terms = leg.security.x509 if leg.security else None
    signed = bool(terms and terms.sign and terms.sign.enabled)
    return signed and token_asked(pmode, leg) is None


def client_asked(leg: Leg) -> bool:
    """Whether who pulls must show a certificate in the TLS handshake."""
    security = leg.protocol.security if leg.protocol else None
    client = security.client if security else None
    return client is not None and bool(client.certificate or client.anchor_certificates)


def somebody_may_pull(pmode: PMode, leg: Leg) -> bool:
    """Whether anything says who may pull."""
    asked = token_asked(pmode, leg) is not None or signature_asked(pmode, leg)
    return asked or client_asked(leg)


def answering_of(pmode: PMode) -> Policy:
    """How long a reply that is the response waits for a copy of its request, and for its receipt.

    It is given once, and again to copies only. When none comes any more its time is over.
    """
    request, reply = (retry_of(one) for one in pmode.legs)
    waited = (resent_within(reply) if reply is not None else None) or _ANSWERED
    asked = resent_within(request) if request is not None else _ANSWERED
    ends = [] if asked is None else [max(asked, waited)]
    if reply is not None and reply.time_to_live is not None:
        ends.append(reply.time_to_live)
    return Policy(timeout=waited, time_to_live=min(ends, default=None))


def offering_of(leg: Leg) -> Policy | None:
    """How often and how long messages of a leg are offered; None: once. [P2-2.5.6-17]"""
    aware = leg.reception_awareness
    said = aware.retry if aware is not None and aware.enabled else None
    policy = retry_of(leg) or (_AGAIN if said is None else None)
    keep = pulling_of(leg).keep
    if keep is None:
        return policy
    policy = policy or _ONCE
    ends = [one for one in (policy.time_to_live, keep) if one is not None]
    return changed(policy, time_to_live=min(ends))
