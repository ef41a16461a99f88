"""The P-Modes of the simulation that speak ebXML: dialects, answers, order, ways, relays."""

from collections.abc import Mapping
from typing import Any, Final

from tests.sim.kinds import FEW, FOR_EVER, MANY, RELAY, SERVICE, Kind

_ONCE: Final = {"delivery_semantics": "OnceAndOnlyOnce", "ack_requested": "UnSigned"}
_SYNC: Final = {**_ONCE, "sync_reply": "mshSignalsOnly"}
_ORDERED: Final = {**_ONCE, "message_order": "Guaranteed"}
_LINKED: Final = {"delivery_semantics": "OnceAndOnlyOnce", "profile": "rm001"}
_RECEIPT: Final = {**_ONCE, "delivery_receipt": "UnSigned"}
_SLOW: Final = {**FEW, "timeout": "PT15S"}
_STUBBORN: Final = {**FOR_EVER, "timeout": "PT15S"}


def _kind(
    name: str,
    version: str,
    terms: Mapping[str, Any],
    retry: Mapping[str, Any] | None = None,
    **more: Any,
) -> Kind:
    return Kind(name, None, retry, ebxml={"version": version, **terms}, **more)


EBXML_KINDS: Final = (
    _kind("old", "0.98b", _ONCE, _SLOW),
    _kind("old-bare", "0.98b", {"delivery_semantics": "OnceAndOnlyOnce"}, _STUBBORN),
    _kind("old-sync", "0.98b", _SYNC, MANY),
    _kind("old-draft", "0.98b", {**_ONCE, "profile": "rm000"}, _SLOW),
    _kind("old-best", "0.98b", {}),
    _kind("old-ordered", "0.98b", _ORDERED, _STUBBORN),
    _kind("old-ordered-few", "0.98b", {**_ORDERED, "sync_reply": "mshSignalsOnly"}, FEW),
    _kind("old-mortal", "0.98b", _ONCE, {**MANY, "time_to_live": "PT30S"}),
    _kind("old-two-ways", "0.98b", _ONCE, FEW, ways=("http", "other")),
    _kind("old-mail", "0.98b", _ONCE, _STUBBORN, ways=("mail",)),
    _kind("old-http-mail", "0.98b", _ORDERED, _SLOW, ways=("http", "mail")),
    _kind("old-linked", "0.98b", _LINKED, _SLOW),
    _kind("old-linked-on", "0.98b", _LINKED, {**_SLOW, "then": "give_up"}),
    _kind("old-signed", "0.98b", {**_ONCE, "ack_requested": "Signed"}, _SLOW, signed=True),
    _kind("one", "1.0", _ONCE, _STUBBORN),
    _kind("one-sync", "1.0", _SYNC, FEW),
    _kind("one-ordered", "1.0", _ORDERED, _SLOW),
    _kind("two", "2.0", _ONCE, _STUBBORN),
    _kind("two-few", "2.0", _ONCE, _SLOW),
    _kind("two-sync", "2.0", _SYNC, MANY),
    _kind("two-best", "2.0", {}),
    _kind("two-ordered", "2.0", _ORDERED, _STUBBORN),
    _kind("two-halting", "2.0", _SYNC, {**FEW, "then": "suspend"}),
    _kind("two-mail", "2.0", _ONCE, _SLOW, ways=("mail",)),
    _kind("two-signed", "2.0", {**_SYNC, "ack_requested": "Signed"}, MANY, signed=True),
    _kind("by-relay", "0.98b", _RECEIPT, _STUBBORN, relay={"retry": FOR_EVER}),
    _kind("by-relay-few", "0.98b", _RECEIPT, _SLOW, relay={"retry": FEW}),
    _kind("by-relay-one", "1.0", _ONCE, _STUBBORN, relay={"retry": _SLOW}),
    _kind(
        "by-relay-late",
        "0.98b",
        _RECEIPT,
        _STUBBORN,
        relay={"retry": _SLOW, "ack_after_forward": True},
    ),
    _kind(
        "by-relay-ordered",
        "0.98b",
        {**_RECEIPT, "message_order": "Guaranteed"},
        _STUBBORN,
        relay={"retry": FOR_EVER},
    ),
    _kind("by-relay-best", "0.98b", {}, relay={"retry": FEW}),
    _kind("by-relay-linked", "0.98b", _LINKED, _STUBBORN, relay={"retry": _SLOW, **_LINKED}),
    _kind("by-relay-mail", "0.98b", _RECEIPT, _STUBBORN, relay={"retry": _SLOW}, ways=("mail",)),
)


def address(party: str) -> str:
    return f"http://{party}.example/msh"


def mailbox(party: str) -> str:
    return f"mailto:msh@{party}.example"


def _url(way: str, party: str) -> str:
    """Where somebody is reached by a transport; `other` is a second door of the same node."""
    if way == "mail":
        return mailbox(party)
    return address(f"other.{party}" if way == "other" else party)


def ebxml_pmode(name: str, sender: str, receiver: str, kind: Kind) -> dict[str, Any]:
    """The P-Mode of both ends."""
    assert kind.ebxml is not None
    spoken: dict[str, Any] = dict(kind.ebxml)
    first, *further = (_url(way, RELAY if kind.relay else receiver) for way in kind.ways)
    own = _url("mail" if kind.ways == ("mail",) else "http", sender)
    spoken["reply_to"] = own
    if further:
        spoken["transports"] = further
    if kind.relay is not None:
        spoken["hops"] = 1
    leg: dict[str, Any] = {
        "protocol": {"address": first},
        "business_info": {"service": SERVICE, "action": kind.name},
        "ebxml": spoken,
    }
    security: dict[str, Any] = {}
    if spoken["version"] == "2.0" and "sync_reply" not in spoken:
        security["send_receipt"] = {"reply_to": own}
    if kind.signed:
        signature = {"certificate": f"../keys/{sender}.pem", "algorithm": "rsa-sha256"}
        security["x509"] = {"sign": True, "signature": signature}
        receipt = security.setdefault("send_receipt", {})
        receipt["certificate"] = f"../keys/{receiver}.pem"
    if security:
        leg["security"] = security
    if kind.retry is not None:
        leg["reception_awareness"] = {"retry": {"parameters": dict(kind.retry)}}
    return _between(name, sender, receiver, kind, leg)


def relay_pmode(name: str, sender: str, receiver: str, kind: Kind) -> dict[str, Any]:
    """The P-Mode of the carrier, who passes on the messages and the signals of a CPA."""
    assert kind.ebxml is not None
    assert kind.relay is not None
    terms = dict(kind.relay)
    retry = terms.pop("retry")
    way = "http" if kind.ways == ("mail",) else kind.ways[0]
    leg = {
        "protocol": {"address": _url(way, receiver)},
        "ebxml": {"version": kind.ebxml["version"], "relay": True, **terms},
        "reception_awareness": {"retry": {"parameters": dict(retry)}},
    }
    return _between(name, sender, receiver, kind, leg)


def _between(
    name: str, sender: str, receiver: str, kind: Kind, leg: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": name,
        "agreement": f"urn:example:cpa:{kind.name}",
        "initiator": {"party": f"urn:example:{sender}"},
        "responder": {"party": f"urn:example:{receiver}"},
        "legs": [leg],
    }
