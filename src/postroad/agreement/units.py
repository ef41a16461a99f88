"""The two units of a multi-hop P-Mode, derived from a point-to-point one (Part 2, 2.7.2, 2.7.3).

Each end of the road knows nothing but its own hub. What the ends share stays as it is; what is
about the way becomes that to the hub, and what is said about a message comes later, not in the
response, since hubs store and forward.
"""

from copy import deepcopy
from typing import Any, Final

from postroad.agreement.places import alternate_of, initiator_sends, numbered, short_uri
from postroad.agreement.pmode import INIT, RESP, PMode
from postroad.agreement.reply_patterns import error_pattern, receipt_pattern
from postroad.agreement.writing import pmode_data
from postroad.wire.multihop import ERROR, RECEIPT
from postroad.wire.names import DEFAULT_MPC, PUSH, PUSH_AND_PUSH
from postroad.wire.wsa import is_iri

_BINDINGS: Final = (PUSH, PUSH_AND_PUSH)


def derive_units(
    pmode: PMode, *, initiator_hub: str, responder_hub: str, initiator_pulls: bool = False
) -> tuple[PMode, PMode]:
    """The `.init` and the `.resp` unit; ValueError where there is no way to have them.

    `initiator_pulls`: nobody can reach the Initiator, who pulls receipts and errors from its hub.

    [P2-2.7.2-01] [P2-2.7.2-02] [P2-2.7.2-13]
    """
    _refuse(pmode)
    for hub in (initiator_hub, responder_hub):
        if not is_iri(hub) or not hub.lower().startswith(("http://", "https://")):
            raise ValueError(f"{hub!r} cannot be the hub: write its URL, such as https://hub/msh")
    init = _unit(pmode, INIT, initiator_hub, initiates=True)
    resp = _unit(pmode, RESP, responder_hub, initiates=False)
    if initiator_pulls:
        _refuse_pulling(pmode)
        _wait_at_the_hub(init["legs"][0], pulls=True)
        _wait_at_the_hub(resp["legs"][0], pulls=False)
    return PMode.model_validate(init), PMode.model_validate(resp)


def _refuse(pmode: PMode) -> None:
    if pmode.id.endswith((INIT, RESP)):
        raise ValueError("it is a unit already; take the P-Mode that it was made of")
    if any(leg.ebxml for _, leg in numbered(pmode)):
        raise ValueError("ebXML has relays of its own; write ebxml.relay")
    if pmode.binding not in _BINDINGS or alternate_of(pmode):
        said = short_uri(alternate_of(pmode) or pmode.binding)
        raise ValueError(
            f"{said} does not pass hubs that store and forward; write push, or pushAndPush"
        )
    for _, leg in numbered(pmode):
        if "pull" in (receipt_pattern(leg), error_pattern(leg)):
            raise ValueError(
                "its receipts or errors are pulled, and who pulls would have to ask the hub; "
                "write callback, and give the hub a channel"
            )


def _refuse_pulling(pmode: PMode) -> None:
    if pmode.binding != PUSH:
        raise ValueError("replies are pushed to the Initiator, who then has to be reached")
    if pmode.initiator is None or pmode.initiator.authorization is None:
        raise ValueError("who pulls shows a user name; add initiator.authorization")


def _unit(pmode: PMode, suffix: str, hub: str, *, initiates: bool) -> dict[str, Any]:
    data = deepcopy(pmode_data(pmode))
    data["id"] = pmode.id + suffix
    for index, leg in enumerate(data["legs"]):
        protocol = leg.setdefault("protocol", {})
        protocol["add_actor_or_role_attribute"] = True
        if initiator_sends(pmode, index) == initiates:
            protocol["address"] = hub
        _answer_later(leg, hub)
    return data


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


def _wait_at_the_hub(leg: dict[str, Any], *, pulls: bool) -> None:
    """Receipts and errors wait in the message's channel with their suffix. [P2-2.6.2-10]"""
    mpc = leg.get("business_info", {}).get("mpc", DEFAULT_MPC)
    asked = leg.get("security", {}).get("send_receipt")
    if isinstance(asked, dict):
        asked["addressing"] = _channel(mpc + RECEIPT)
    report = leg["error_handling"]["report"]
    report["receiver_errors_to"]["addressing"] = _channel(mpc + ERROR)
    if not pulls:
        return
    if isinstance(asked, dict):
        del asked["reply_to"]
        asked["reply_pattern"] = "pull"
    del report["as_response"], report["receiver_errors_to"]["value"]
    report["receiver_errors"] = {"reply_pattern": "pull"}


def _channel(mpc: str) -> dict[str, Any]:
    return {"epr": {"routing_input": {"business_info": {"mpc": mpc}}}}
