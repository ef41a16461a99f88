"""P-Modes of the simulation whose messages are requests: each has a reply, in every binding."""

from typing import Any, Final

from tests.sim.kinds import FEW, FOR_EVER, MANY, Kind

_OFTEN: Final = {"interval": "PT3S", "longest": "PT15S"}
_LATE: Final = {**_OFTEN, "keep": "PT200S"}
"""Who was never told where a late reply waits does not pull it."""
_SLOW: Final = {**FEW, "timeout": "PT10S"}
_STUBBORN: Final = {**FOR_EVER, "timeout": "PT15S"}
_PUSHED: Final = {"retry": FOR_EVER}
_PULLED: Final = {"receipt": "callback", "retry": _STUBBORN, "pulling": _OFTEN}
_WAITED: Final = {"retry": MANY}
_ANSWER: Final = {"receipt": "callback", "retry": {**MANY, "timeout": "PT10S"}}


def _kind(
    name: str,
    binding: str,
    request: dict[str, Any],
    reply: dict[str, Any],
    *,
    alternate: str | None = None,
    signed: bool = False,
) -> Kind:
    answer = Kind(name, **reply, signed=signed)
    return Kind(name, **request, signed=signed, binding=binding, alternate=alternate, reply=answer)


ASKED_KINDS: Final = (
    _kind("asked-push", "pushAndPush", _PUSHED, _PUSHED),
    _kind("asked-push-few", "pushAndPush", {"retry": FEW}, {"receipt": "callback", "retry": _SLOW}),
    _kind("asked-push-silent", "pushAndPush", {"receipt": None}, {"receipt": None}),
    _kind("asked-pull", "pushAndPull", _PUSHED, _PULLED),
    _kind("asked-pulled", "pullAndPush", _PULLED, _PUSHED),
    _kind("asked-pulled-pull", "pullAndPull", _PULLED, _PULLED),
    _kind("asked-sync", "sync", _WAITED, _ANSWER),
    _kind("asked-sync-few", "sync", {"retry": FEW}, {"receipt": None}),
    _kind("asked-sync-once", "sync", {}, _ANSWER),
    _kind(
        "asked-late-pull",
        "sync",
        _WAITED,
        {**_ANSWER, "pulling": _LATE},
        alternate="pushAndPull",
    ),
    _kind(
        "asked-late-few",
        "sync",
        {"receipt": "callback", "retry": _SLOW},
        {**_ANSWER, "pulling": _LATE},
        alternate="pushAndPull",
    ),
    _kind("asked-late-push", "sync", _WAITED, _ANSWER, alternate="pushAndPush"),
    _kind(
        "asked-signed",
        "sync",
        _WAITED,
        {**_ANSWER, "pulling": _LATE},
        alternate="pushAndPull",
        signed=True,
    ),
)


def asked_pmode(
    name: str, kind: Kind, sides: list[dict[str, Any]], legs: list[dict[str, Any]]
) -> dict[str, Any]:
    """The P-Mode of requests and replies; `sides` are who asks and who answers."""
    assert kind.binding is not None
    binding = {"value": kind.binding}
    if kind.alternate is not None:
        binding["alternate"] = kind.alternate
        legs[1]["business_info"]["mpc_alternate"] = "http://replies.example/late"
    # Who pulls the first message is the initiator.
    initiator, responder = sides if kind.pulling is None else sides[::-1]
    return {
        "id": name,
        "mep": "twoWay",
        "mep_binding": binding,
        "initiator": initiator,
        "responder": responder,
        "legs": legs,
    }
