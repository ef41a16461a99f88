"""The two units of a multi-hop P-Mode, derived from a point-to-point one (Part 2, 2.7.2, 2.7.3).

Each end of the road knows nothing but its own hub. What the ends share stays as it is; what is
about the way becomes that to the hub. Where hubs store and forward, what is said about a message
comes later, not in the response; with sync they pass on the response itself.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from msgspec import Struct

from postroad.agreement.places import (
    PULLED_FIRST,
    PULLED_SECOND,
    alternate_of,
    initiator_sends,
    is_pulled,
    numbered,
    short_uri,
)
from postroad.agreement.pmode import INIT, RESP, Leg, PMode
from postroad.agreement.reliable import wsrm_of
from postroad.agreement.reply_patterns import error_pattern, receipt_pattern
from postroad.agreement.writing import pmode_data
from postroad.wire.multihop import ERROR, RECEIPT, RESPONSE
from postroad.wire.names import (
    DEFAULT_MPC,
    PULL,
    PULL_AND_PULL,
    PULL_AND_PUSH,
    PUSH,
    PUSH_AND_PULL,
    PUSH_AND_PUSH,
    SYNC,
)
from postroad.wire.wsa import is_iri

_EDGES: Final[Mapping[str, tuple[str, str]]] = {
    PUSH: (PUSH, PUSH),
    PULL: (PULL, PULL),
    SYNC: (SYNC, SYNC),
    PUSH_AND_PUSH: (PUSH_AND_PUSH, PUSH_AND_PUSH),
    PUSH_AND_PULL: (PUSH_AND_PULL, PUSH_AND_PUSH),
    PULL_AND_PUSH: (PULL_AND_PUSH, PULL_AND_PUSH),
    PULL_AND_PULL: (PULL_AND_PUSH, PULL_AND_PULL),
}
"""How each end is bound to its hub: who was pulled from for a reply pushes it to the hub."""
_INITIATOR_PULLS: Final[Mapping[str, str]] = {PUSH_AND_PUSH: PUSH_AND_PULL}
_RESPONDER_PULLS: Final[Mapping[str, str]] = {
    PUSH: PULL,
    PUSH_AND_PUSH: PULL_AND_PUSH,
}
"""The edge of who pulls what would be pushed to it. [P2-2.4.7.1-02] [P2-2.4.8.1-02]"""


class _Edge(Struct, frozen=True):
    """One end of the road."""

    suffix: str
    hub: str
    binding: str
    pulls: bool
    """Nobody can reach it: it pulls messages, receipts and errors from its hub."""

    @property
    def initiates(self) -> bool:
        return self.suffix == INIT


def derive_units(
    pmode: PMode,
    *,
    initiator_hub: str,
    responder_hub: str,
    initiator_pulls: bool = False,
    responder_pulls: bool = False,
) -> tuple[PMode, PMode]:
    """The `.init` and the `.resp` unit; ValueError where there is no way to have them.

    Of an end that `pulls` nobody can reach it: it pulls all that is for it from its hub.

    [P2-2.7.2-01] [P2-2.7.2-02] [P2-2.7.2-13]
    """
    _refuse(pmode)
    for hub in (initiator_hub, responder_hub):
        if not is_iri(hub) or not hub.lower().startswith(("http://", "https://")):
            raise ValueError(f"{hub!r} cannot be the hub: write its URL, such as https://hub/msh")
    assert pmode.binding is not None
    init, resp = _EDGES[pmode.binding]
    if initiator_pulls:
        _refuse_pulling(pmode, "initiator")
        init = _INITIATOR_PULLS.get(init, init)
    if responder_pulls:
        _refuse_pulling(pmode, "responder")
        if resp not in _RESPONDER_PULLS:
            bound = short_uri(pmode.binding)
            raise ValueError(f"with {bound} the hub pulls from the Responder, who is then reached")
        resp = _RESPONDER_PULLS[resp]
    first = _unit(pmode, _Edge(INIT, initiator_hub, init, initiator_pulls))
    last = _unit(pmode, _Edge(RESP, responder_hub, resp, responder_pulls))
    for index, (_, leg) in enumerate(numbered(pmode)):
        sends = initiator_sends(pmode, index)
        if (initiator_pulls if sends else responder_pulls) or _signals_are_pulled(leg):
            _wait_at_the_hub(first["legs"][index], pulls=sends)
            _wait_at_the_hub(last["legs"][index], pulls=not sends)
    return PMode.model_validate(first), PMode.model_validate(last)


def _signals_are_pulled(leg: Leg) -> bool:
    return "pull" in (receipt_pattern(leg), error_pattern(leg))


def _refuse(pmode: PMode) -> None:
    if pmode.id.endswith((INIT, RESP)):
        raise ValueError("it is a unit already; take the P-Mode that it was made of")
    if any(leg.ebxml for _, leg in numbered(pmode)):
        raise ValueError("ebXML has relays of its own; write ebxml.relay")
    for _, leg in numbered(pmode):
        info = leg.business_info
        if info is not None and info.sub_mpc_ext is not None:
            raise ValueError("sub-channels are the hub's to name; remove sub_mpc_ext")


def _refuse_pulling(pmode: PMode, side: str) -> None:
    partner = pmode.initiator if side == "initiator" else pmode.responder
    if pmode.binding == SYNC:
        raise ValueError("with sync all comes as the response, and nothing is pulled")
    if partner is None or partner.authorization is None:
        raise ValueError(f"who pulls shows a user name; add {side}.authorization")


def _unit(pmode: PMode, edge: _Edge) -> dict[str, Any]:
    data = deepcopy(pmode_data(pmode))
    data["id"] = pmode.id + edge.suffix
    bound: dict[str, Any] = data.setdefault("mep_binding", {})
    bound["value"] = edge.binding
    if edge.binding in PULLED_FIRST and initiator_sends(pmode, 0):
        bound["pulled_by"] = "responder"
    if not edge.initiates and alternate_of(pmode) is not None:
        bound["alternate"] = PUSH_AND_PUSH
    for index, leg in enumerate(data["legs"]):
        _lead_to_the_hub(pmode, index, leg, edge)
        _keep_own_keys(leg, sends=initiator_sends(pmode, index) == edge.initiates)
        if pmode.binding != SYNC or index == 1:
            _answer_later(leg, edge.hub)
        if _is_sequenced(pmode, index):
            to = "responder" if initiator_sends(pmode, index) else "initiator"
            data[to].setdefault("addressing", {"address": "icloud"})
            pulled = edge.binding in (PULLED_SECOND if index else PULLED_FIRST)
            _acknowledge_later(leg, edge.hub, pulled=pulled)
    return data


def _is_sequenced(pmode: PMode, index: int) -> bool:
    """Whether messages of a leg are pushed in sequences."""
    _, leg = list(numbered(pmode))[index]
    return wsrm_of(leg) is not None and not is_pulled(pmode, index)


def _lead_to_the_hub(pmode: PMode, index: int, leg: dict[str, Any], edge: _Edge) -> None:
    """What this end pushes goes to its hub, and what it pulls it pulls there."""
    protocol = leg.setdefault("protocol", {})
    protocol["add_actor_or_role_attribute"] = True
    sends = initiator_sends(pmode, index) == edge.initiates
    pulled = edge.binding in (PULLED_SECOND if index else PULLED_FIRST)
    if edge.binding == SYNC and index == 1:
        if sends and alternate_of(pmode) is not None:
            protocol["address"] = edge.hub
        return
    if sends != pulled:
        protocol["address"] = edge.hub
    if not pulled:
        leg.pop("pulling", None)


def _keep_own_keys(leg: dict[str, Any], *, sends: bool) -> None:
    """Who sends has the key that signs, who receives the one that decrypts; never both."""
    protected = leg.get("security", {}).get("x509", {})
    protected.get("encryption" if sends else "signature", {}).pop("key", None)


def _answer_later(leg: dict[str, Any], hub: str) -> None:
    """What is said about a message goes to the hub of who says it."""
    asked = leg.get("security", {}).get("send_receipt")
    if asked is not None and asked is not False:
        switched = asked if isinstance(asked, dict) else {"enabled": asked}
        leg["security"]["send_receipt"] = switched | {"reply_pattern": "callback", "reply_to": hub}
    report = leg.setdefault("error_handling", {}).setdefault("report", {})
    report.pop("receiver_errors", None)
    report["as_response"] = False
    to = report.get("receiver_errors_to")
    kept = to if isinstance(to, dict) else {}
    report["receiver_errors_to"] = kept | {"value": [hub]}


def _acknowledge_later(leg: dict[str, Any], hub: str, *, pulled: bool) -> None:
    """What is said about a sequence goes to the hub of who says it, with routing input.

    Who pulls from its hub has no sequence with that. [P2-2.6.2-06] [P2-2.8.3-02]
    """
    least = leg["reliability"]["at_least_once"]
    contract = least.get("contract")
    switched = contract if isinstance(contract, dict) else {"enabled": bool(contract)}
    least["reply_pattern"] = "Callback"
    to = {"value": hub, "addressing": {"address": "icloud"}}
    least["contract"] = switched | {"acks_to": to}
    if pulled:
        least["contract"]["reliable_pull"] = False


def _wait_at_the_hub(leg: dict[str, Any], *, pulls: bool) -> None:
    """Receipts and errors wait in the message's channel with their suffix, or where they did.

    [P2-2.6.2-10]
    """
    mpc = leg.get("business_info", {}).get("mpc", DEFAULT_MPC)
    asked = leg.get("security", {}).get("send_receipt")
    if isinstance(asked, dict):
        asked.setdefault("addressing", _channel(mpc + RECEIPT))
    report = leg["error_handling"]["report"]
    report["receiver_errors_to"].setdefault("addressing", _channel(mpc + ERROR))
    least = leg.get("reliability", {}).get("at_least_once", {})
    if least.get("reply_pattern") == "Callback":
        least["contract"]["acks_to"]["addressing"] |= _channel(mpc + RESPONSE)
    if not pulls:
        return
    if least.get("reply_pattern") == "Callback":
        least["reply_pattern"] = "Pull"
    if isinstance(asked, dict):
        del asked["reply_to"]
        asked["reply_pattern"] = "pull"
    del report["as_response"], report["receiver_errors_to"]["value"]
    report["receiver_errors"] = {"reply_pattern": "pull"}


def _channel(mpc: str) -> dict[str, Any]:
    return {"epr": {"routing_input": {"business_info": {"mpc": mpc}}}}
