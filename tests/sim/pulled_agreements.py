"""P-Modes of the simulation whose messages wait in a channel until their receiver pulls them."""

from collections.abc import Mapping
from typing import Any, Final

from tests.sim.kinds import FEW, FOR_EVER, MANY, Kind

_OFTEN: Final = {"interval": "PT3S", "longest": "PT15S"}
_SLOW: Final = {**FEW, "timeout": "PT10S"}
_STUBBORN: Final = {**FOR_EVER, "timeout": "PT15S"}


def _kind(
    name: str,
    retry: Mapping[str, Any] | None = None,
    receipt: str | None = "callback",
    *,
    awareness: Mapping[str, Any] | None = None,
    signed: bool = False,
    **pulling: Any,
) -> Kind:
    return Kind(name, receipt, retry, awareness or {}, signed, pulling={**_OFTEN, **pulling})


PULLED_KINDS: Final = (
    _kind("pulled", _STUBBORN),
    _kind("pulled-few", _SLOW),
    _kind("pulled-usual"),
    _kind("pulled-several", {**MANY, "timeout": "PT10S"}, parallel=3),
    _kind("pulled-mortal", {**MANY, "time_to_live": "PT25S"}, keep="PT20S"),
    _kind("pulled-silent", receipt=None),
    _kind("pulled-scarce", _STUBBORN, capacity=2),
    _kind("pulled-halting", {**_SLOW, "then": "suspend"}),
    _kind("pulled-below", _STUBBORN, mpc="orders", sub="north"),
    _kind("pulled-after", _STUBBORN, awareness={"ack_after_delivery": True}),
    _kind("pulled-asked", _STUBBORN, scheduled=False, mpc="asked"),
    _kind("pulled-signed", _STUBBORN, signed=True),
)


def pulled_info(sender: str, kind: Kind) -> dict[str, Any]:
    """Where its messages wait: most of them in the default channel."""
    assert kind.pulling is not None
    found: dict[str, Any] = {}
    if "mpc" in kind.pulling:
        found["mpc"] = f"http://{sender}.example/channels/{kind.pulling['mpc']}"
    if "sub" in kind.pulling:
        found["sub_mpc_ext"] = kind.pulling["sub"]
    return found


def pulled_terms(kind: Kind) -> dict[str, Any]:
    """What stands below `pulling`."""
    assert kind.pulling is not None
    return {name: value for name, value in kind.pulling.items() if name not in ("mpc", "sub")}


def credentials(sender: str, receiver: str) -> dict[str, str]:
    """What shows who pulls: one of its own for each partner."""
    return {"username": receiver, "password": f"{receiver} pulls from {sender}"}
