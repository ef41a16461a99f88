"""The rules about two-way exchanges that a P-Mode keeps by itself."""

from collections.abc import Iterator
from typing import Final

from postroad.agreement.breach import Breach, warning
from postroad.agreement.parameters import Path
from postroad.agreement.places import (
    ONE_WAY_BINDINGS,
    Rule,
    alternate_of,
    is_pulled,
    short_uri,
)
from postroad.agreement.pmode import INIT, RESP, Leg, PMode
from postroad.wire.names import PULL_AND_PULL, PUSH, PUSH_AND_PUSH, SYNC, TWO_WAY


def _is_two_way(pmode: PMode) -> bool:
    """Whether pattern, binding and legs fit; if not, another rule says so."""
    return (
        pmode.mep == TWO_WAY
        and len(pmode.legs) == 2
        and pmode.binding is not None
        and pmode.binding not in ONE_WAY_BINDINGS
    )


def replies_have_an_address(pmode: PMode) -> Iterator[Breach]:
    """What is pushed needs one; a response needs none, and what is pulled is so at its request's.

    With pullAndPull it is who asked that is asked in turn.
    """
    if not _is_two_way(pmode):
        return
    place: Path = ("legs", 1)
    protocol = pmode.legs[1].protocol
    named = protocol is not None and bool(protocol.address)
    alternate = alternate_of(pmode)
    if pmode.binding == SYNC:
        needed = alternate == PUSH_AND_PUSH
    else:
        needed = not is_pulled(pmode, 1) or pmode.binding == PULL_AND_PULL
    if needed and not named:
        yield warning(place, "the replies have no address to go to", "add protocol.address")
    if named and pmode.binding == SYNC and alternate is None:
        yield warning(
            (*place, "protocol", "address"),
            "it has no effect: with sync the reply is the response",
            "remove it",
        )


def responders_authorize_for_their_own_pulls(pmode: PMode) -> Iterator[Breach]:
    """Only with pullAndPull does the Responder pull anything, or from its hub.

    What is pushed may have to be pulled from a hub: units are made of such a P-Mode.
    """
    responder = pmode.responder
    if pmode.id.endswith((INIT, RESP)):
        return
    if responder is None or not responder.authorization:
        return
    if pmode.binding in (PULL_AND_PULL, None):
        return
    place = ("responder", "authorization")
    said = f"with {short_uri(pmode.binding)} the Responder pulls nothing"
    if pmode.binding in (PUSH, PUSH_AND_PUSH):
        hint = "remove it, or make units with: pmode multihop --responder-pulls"
        yield warning(place, f"{said}, unless it is from a hub", hint)
    else:
        yield Breach(place, said, "remove it, or move it to the initiator")


def alternates_are_for_sync(pmode: PMode) -> Iterator[Breach]:
    """EBMS:0060 stands in the place of a response: there must be one (Part 2, 5.2)."""
    if alternate_of(pmode) is not None and _is_two_way(pmode) and pmode.binding != SYNC:
        yield warning(
            ("mep_binding", "alternate"),
            f"it has no effect with {short_uri(pmode.binding)}: no response is waited for",
            "use sync, or remove it",
        )


def only_replies_have_an_alternate_channel(pmode: PMode) -> Iterator[Breach]:
    """An alternate binding leaves requests as they are. [P2-5.2-01]"""
    info = pmode.legs[0].business_info if pmode.legs else None
    if info is not None and info.mpc_alternate is not None and alternate_of(pmode) is not None:
        yield Breach(
            ("legs", 0, "business_info", "mpc_alternate"),
            "requests do not go by the alternate binding",
            "move it to the second leg",
        )


def receipts_in_replies_are_signed(pmode: PMode) -> Iterator[Breach]:
    """The receipt for a request rides in its reply, under the same signature."""
    if pmode.binding != SYNC or not _is_two_way(pmode):
        return
    request, reply = pmode.legs
    receipt = request.security.send_receipt if request.security else None
    rides = receipt is not None and receipt.enabled and receipt.reply_pattern != "callback"
    if rides and _is_signed(request) and not _is_signed(reply):
        yield Breach(
            ("legs", 0, "security", "send_receipt"),
            "the receipt for a signed request would ride in a reply that is not signed",
            "sign the second leg too, or use reply_pattern: callback",
        )


def requests_are_delivered_before_they_are_answered(pmode: PMode) -> Iterator[Breach]:
    """The receipt for a request goes with its reply, which the application gives."""
    if pmode.binding != SYNC or not _is_two_way(pmode):
        return
    aware = pmode.legs[0].reception_awareness
    if aware is not None and aware.strict_ack:
        yield Breach(
            ("legs", 0, "reception_awareness", "strict_ack"),
            "the application could not answer what it gets only after the response was sent",
            "remove it, or use another binding",
        )


def responses_have_no_order(pmode: PMode) -> Iterator[Breach]:
    """A reply that is the response goes when its request waits, and not when its turn comes."""
    if pmode.binding != SYNC or not _is_two_way(pmode):
        return
    aware = pmode.legs[1].reception_awareness
    if aware is not None and aware.in_order:
        yield Breach(
            ("legs", 1, "reception_awareness", "in_order"),
            "each reply is the response to its own request",
            "remove it, or add it to the first leg",
        )


def _is_signed(leg: Leg) -> bool:
    terms = leg.security.x509 if leg.security else None
    return bool(terms and terms.sign and terms.sign.enabled)


TWO_WAY_RULES: Final[tuple[Rule, ...]] = (
    replies_have_an_address,
    responders_authorize_for_their_own_pulls,
    alternates_are_for_sync,
    only_replies_have_an_alternate_channel,
    receipts_in_replies_are_signed,
    requests_are_delivered_before_they_are_answered,
    responses_have_no_order,
)
