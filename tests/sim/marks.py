"""Rare things that the seeds of a long run must reach; one that is never reached tests nothing."""

from collections.abc import Mapping
from typing import Final

from tests.sim.faults import RATES

ENOUGH: Final = 200
"""Runs of fewer seeds need not reach everything."""

_STATES: Final = (
    "sending submitted",
    "sending ready",
    "sending waiting",
    "sending sent",
    "sending acknowledged",
    "sending failed",
    "sending in_doubt",
    "sending expired",
    "sending suspended",
    "sending settled",
    "receiving held",
    "receiving delivered",
    "receiving consumed",
    "receiving rejected",
    "partner flowing",
    "partner paused",
    "partner probing",
    "partner suspended",
    "partner well",
)
_EVENTS: Final = ("duplicate", "error_received", "suspended", "resumed", "resent", "send_failed")
_STORIES: Final = (
    "crash",
    "taken up after a crash",
    "a lease ran out",
    "an outcome could not be stored",
    "receiver died over a request",
    "a receipt could not be handed over",
    "reply lost",
    "first response again",
    "clock set back an hour",
    "submitted again",
    "contradiction refused",
    "resent by an operator",
    "resumed by an operator",
    "settled by an operator",
    "settled late",
)
_EBXML: Final = (
    "ebxml-0.98b: delivered",
    "ebxml-1.0: delivered",
    "ebxml-2.0: delivered",
    "ebxml-0.98b: duplicate",
    "ebxml-2.0: duplicate",
    "ebxml-0.98b: rejected",
    "sent by mail",
    "another transport",
    "hop acknowledged",
    "forwarding waiting",
    "forwarding acknowledged",
    "forwarding failed",
    "forwarding in_doubt",
    "forwarding: duplicate",
    "forwarding: send_failed",
    "forwarding: delivery_failed",
    "notice acknowledged",
)
_PULLED: Final = (
    "queued",
    "pulled",
    "handed out",
    "handed out again",
    "a pulled answer broke off",
    "a channel was full",
    "pulled by an operator",
    "selected by an operator",
)
_BUNDLED: Final = ("bundled", "handed out in a bundle", "lonely", "sent in a bundle again")
_ASKED: Final = (
    "a reply by pushAndPush",
    "a reply by pushAndPull",
    "a reply by pullAndPush",
    "a reply by pullAndPull",
    "a reply by sync",
    "a late reply",
    "a reply too late",
    "a reply as response",
    "the same response again",
    "a second reply refused",
)
_FAULTS: Final = tuple(name for name in RATES if name != "drift")
REQUIRED: Final = (*_STATES, *_EVENTS, *_STORIES, *_EBXML, *_PULLED, *_ASKED, *_BUNDLED, *_FAULTS)


def missing(reached: Mapping[str, int]) -> list[str]:
    """Those of the required marks that were never reached."""
    return [name for name in REQUIRED if not reached.get(name)]
