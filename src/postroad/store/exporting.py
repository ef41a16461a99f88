"""The journal as a partner may see it.

All events keep their place, so that the partner knows that nothing is missing between them; but
those about others tell no more than that the node was at work then.
"""

from collections.abc import Callable

from msgspec.structs import replace as changed

from postroad.store.records import Event, Recorded


def seen_by(partner: str) -> Callable[[Recorded], Recorded]:
    """How events look to a partner; the same event looks the same in every export.

    Messages from it and for it are told, without where our evidence lies. Anything else becomes a
    heartbeat: seq has no holes, and covers the time just as the event did.
    """

    def view(one: Recorded) -> Recorded:
        event = one.event
        if event.event == "heartbeat":
            return one
        if event.message_id is not None and partner in (event.from_party, event.to_party):
            return changed(one, event=changed(event, evidence=None))
        return changed(one, event=Event(event.at, event.party, "heartbeat"))

    return view
