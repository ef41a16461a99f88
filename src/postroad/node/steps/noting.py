"""Events about no message: what came could not be one, or is about none that is known."""

import logging
from datetime import datetime

from postroad.node.base.context import Context
from postroad.store.interface import StoreError
from postroad.store.records import Event

_log = logging.getLogger("postroad.receive")


async def note(context: Context, code: str, detail: str, now: datetime, peer: str | None) -> None:
    """Write down what went wrong; where that cannot be, the log says it."""
    context.count("ebms_errors", code=code, direction="raised")
    event = Event(
        now,
        context.party,
        "error_raised",
        error_code=code,
        severity="failure",
        detail=detail[:2000],
        peer=peer,
    )
    try:
        await context.store.run(lambda tx: tx.record((event,)))
    except StoreError as full:
        _log.error("not recorded", extra={"detail": f"{detail} ({full})"})
