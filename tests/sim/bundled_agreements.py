"""P-Modes of the simulation whose messages go in bundles, pushed or pulled."""

from typing import Any, Final

from tests.sim.kinds import FEW, FOR_EVER, MANY, Kind

_SOON: Final = {"policy": "optional", "max_delay": "PT3S", "max_size": "6 KiB"}
_ORDERED: Final = {
    **_SOON,
    "ordering": {
        "policy": "documentorder",
        "scope": ["eb3:CollaborationInfo/eb3:ConversationId"],
    },
}
_PULLED: Final = {"interval": "PT3S", "longest": "PT15S", "mpc": "bundles"}
_IN_ORDER: Final = {"in_order": "conversation"}
_LATER: Final = {"timeout": "PT15S"}

BUNDLED_KINDS: Final = (
    Kind("bundled", retry=MANY, bundling=_SOON),
    Kind("bundled-stubborn", retry=FOR_EVER, bundling={**_SOON, "max_delay": "PT10S"}),
    Kind("bundled-back", "callback", {**FEW, **_LATER}, bundling=_SOON),
    Kind("bundled-always", retry=MANY, bundling={**_SOON, "policy": "always"}),
    Kind("bundled-ordered", retry=FOR_EVER, awareness=_IN_ORDER, bundling=_ORDERED),
    Kind("bundled-signed", retry=MANY, signed=True, bundling=_SOON),
    Kind("bundled-pulled", "callback", {**FOR_EVER, **_LATER}, bundling=_SOON, pulling=_PULLED),
)

_NUMBERED: Final = {"protocol": "wsrm", "at_least_once": {"contract": True}}
SEQUENCED_KINDS: Final = (
    Kind(
        "bundled-numbered",
        None,
        MANY,
        errors_call_back=True,
        bundling=_SOON,
        reliability=_NUMBERED,
    ),
    Kind(
        "bundled-numbered-ordered",
        None,
        FOR_EVER,
        errors_call_back=True,
        bundling={**_SOON, "ordering": {"policy": "documentorder"}},
        reliability={**_NUMBERED, "in_order": True},
    ),
)
"""Each of their bundles is one message of a sequence."""


def reliable_terms(kind: Kind) -> dict[str, Any]:
    """What stands below `reliability`."""
    assert kind.reliability is not None
    return {**kind.reliability, "max_idle": "PT10S", "retry": dict(kind.retry or {})}


def bundling_terms(name: str, kind: Kind) -> dict[str, Any]:
    """What stands below `bundling`: messages of a P-Mode go with each other."""
    assert kind.bundling is not None
    return {**kind.bundling, "compatibility": {"pmode_list": [name]}}
