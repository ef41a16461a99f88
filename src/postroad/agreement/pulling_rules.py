"""The rules about pulling that a P-Mode keeps by itself."""

import re
from collections.abc import Iterator
from typing import Final

from postroad.agreement.breach import Breach, warning
from postroad.agreement.channels import (
    channel_of,
    collected_at,
    is_below,
    pulling_of,
    somebody_may_pull,
    token_asked,
)
from postroad.agreement.places import (
    ONE_WAY_BINDINGS,
    PULLED_FIRST,
    Rule,
    initiator_sends,
    is_pulled,
    numbered,
    responder_pulls,
    short_uri,
)
from postroad.agreement.pmode import INIT, RESP, Leg, PMode
from postroad.agreement.reply_patterns import signal_channels
from postroad.wire.names import DEFAULT_MPC, ONE_WAY

_extension: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%-]+(/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*")


def _is_collected(pmode: PMode, index: int, leg: Leg) -> bool:
    """Whether the messages of a leg are pulled, or may be; ebXML cannot be."""
    fits = (pmode.binding in ONE_WAY_BINDINGS) == (pmode.mep == ONE_WAY)
    late = index == 1 and is_pulled(pmode, index, late=True)
    return fits and (is_pulled(pmode, index) or late) and leg.ebxml is None


def pulling_is_for_pulled_messages(pmode: PMode) -> Iterator[Breach]:
    """What is about pulling stands where something is pulled."""
    for index, (path, leg) in enumerate(numbered(pmode)):
        if is_pulled(pmode, index) or (index == 1 and is_pulled(pmode, index, late=True)):
            continue
        said, hint = "the messages of this leg are not pulled", "remove it, or use the binding pull"
        if leg.business_info is not None and leg.business_info.sub_mpc_ext is not None:
            yield Breach((*path, "business_info", "sub_mpc_ext"), said, hint)
        if signal_channels(leg):
            continue
        if leg.pulling is not None:
            yield Breach((*path, "pulling"), said, hint)
        if leg.security is not None and leg.security.pmode_authorize:
            yield Breach((*path, "security", "pmode_authorize"), said, hint)


def responders_pull_from_hubs(pmode: PMode) -> Iterator[Breach]:
    """Between two points it is the Initiator that pulls (Core 2.2)."""
    if not responder_pulls(pmode):
        return
    place = ("mep_binding", "pulled_by")
    if not pmode.id.endswith((INIT, RESP)):
        said = "between two points only the Initiator pulls"
        yield Breach(place, said, "remove it; pmode multihop makes units of a P-Mode")
    elif pmode.binding not in PULLED_FIRST:
        said = f"with {short_uri(pmode.binding)} the first message is not pulled"
        yield Breach(place, said, "remove it")


def who_may_pull_is_said(pmode: PMode) -> Iterator[Breach]:
    """A user name, a signature or a TLS client certificate shows who pulls (Core 7.10)."""
    for index, (path, leg) in enumerate(numbered(pmode)):
        signals = bool(signal_channels(leg))
        collected = _is_collected(pmode, index, leg) or signals
        if collected and not somebody_may_pull(pmode, leg):
            responder = initiator_sends(pmode, index) and not signals
            side = "responder" if responder else "initiator"
            yield warning(
                path,
                "nothing says who may pull, so nobody may",
                f"add {side}.authorization, security.x509.sign or protocol.security.client",
            )


def sub_channels_are_paths(pmode: PMode) -> Iterator[Breach]:
    """A sub-channel's URI is the parent's with a longer path. [P2-2.5.4-06]"""
    for path, leg in numbered(pmode):
        info = leg.business_info
        extension = info.sub_mpc_ext if info else None
        if info is None or extension is None:
            continue
        dots = any(one in (".", "..") for one in extension.split("/"))
        if dots or _extension.fullmatch(extension) is None:
            yield Breach(
                (*path, "business_info", "sub_mpc_ext"),
                f"{extension!r} is no path that could be added to the channel's URI",
                "write words with / between them",
            )
        elif not is_below(channel_of(leg), info.mpc or DEFAULT_MPC):
            yield Breach(
                (*path, "business_info", "sub_mpc_ext"),
                "a channel whose URI has a query or a fragment has no sub-channels",
                "name a channel without ? and #",
            )


def signals_are_pulled_as_they_come(pmode: PMode) -> Iterator[Breach]:
    """As many signals wait as there were messages: only these are limited in number."""
    for index, (path, leg) in enumerate(numbered(pmode)):
        if is_pulled(pmode, index) or not signal_channels(leg):
            continue
        if leg.pulling is not None and leg.pulling.capacity is not None:
            yield Breach(
                (*path, "pulling", "capacity"),
                "only signals are pulled here, and for each message there is one",
                "remove it; keep says how long they wait",
            )


def only_called_back_receipts_ride(pmode: PMode) -> Iterator[Breach]:
    """What rides on a PullRequest goes where that goes, instead of calling back there."""
    for index, (path, leg) in enumerate(numbered(pmode)):
        if leg.pulling is None or not leg.pulling.piggyback:
            continue
        receipt = leg.security.send_receipt if leg.security else None
        place = (*path, "pulling", "piggyback")
        if not is_pulled(pmode, index) or not (receipt and receipt.enabled):
            yield Breach(
                place, "no receipts of pulled messages are there to ride", "remove piggyback"
            )
        elif receipt.reply_to not in (None, collected_at(pmode, leg)):
            yield Breach(
                place,
                "receipts go to another address than PullRequests, so none can ride",
                "remove piggyback, or reply_to",
            )


def pulled_messages_have_no_order(pmode: PMode) -> Iterator[Breach]:
    """Several may be with the receiver at once, so that only the channel's own order holds."""
    for index, (path, leg) in enumerate(numbered(pmode)):
        aware = leg.reception_awareness
        if aware is not None and aware.in_order and is_pulled(pmode, index):
            yield Breach(
                (*path, "reception_awareness", "in_order"),
                "messages are pulled: the first in the channel comes first, and one that is "
                "offered again comes later",
                "remove it",
            )


def pulled_messages_have_receipts(pmode: PMode) -> Iterator[Breach]:
    """Only a receipt says that what was handed out arrived."""
    for index, (path, leg) in enumerate(numbered(pmode)):
        receipt = leg.security.send_receipt if leg.security else None
        if _is_collected(pmode, index, leg) and not (receipt and receipt.enabled):
            yield warning(
                path,
                "without receipts a message is gone once it was handed out, arrived or not",
                "add security.send_receipt: {reply_pattern: callback}",
            )


def pull_passwords_are_protected(pmode: PMode) -> Iterator[Breach]:
    """A password in the clear goes over TLS only."""
    for index, (path, leg) in enumerate(numbered(pmode)):
        address = (leg.protocol.address if leg.protocol else None) or ""
        clear = token_asked(pmode, leg) is not None and not pulling_of(leg).digest
        pulled = is_pulled(pmode, index) or signal_channels(leg)
        if pulled and clear and address.lower().startswith("http:"):
            yield warning(
                (*path, "pulling", "digest"),
                "the password goes over http: in clear",
                "use https:, or digest: true",
            )


PULLING_RULES: Final[tuple[Rule, ...]] = (
    pulling_is_for_pulled_messages,
    responders_pull_from_hubs,
    who_may_pull_is_said,
    sub_channels_are_paths,
    signals_are_pulled_as_they_come,
    only_called_back_receipts_ride,
    pulled_messages_have_no_order,
    pulled_messages_have_receipts,
    pull_passwords_are_protected,
)
