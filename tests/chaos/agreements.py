"""The P-Modes of the storm: as many kinds of exchange as the documentation describes, all at once.

Three nodes take part: a buyer, a seller and a hub between them. Every address in a P-Mode is that
of a link, a proxy of the harness which spoils connections.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Tree = dict[str, Any]

BUYER: Final = "buyer"
SELLER: Final = "seller"
HUB: Final = "hub"
NODES: Final = (BUYER, SELLER, HUB)
SERVICE: Final = "urn:example:chaos"
PATIENT: Final = {
    "max_retries": 2000,
    "timeout": "PT3S",
    "period": "PT3S",
    "backoff": 1.5,
    "max_period": "PT8S",
    "jitter": 0.2,
    "persist_duration": "PT12H",
}
SMALL: Final = (40, 6_000)
MEDIUM: Final = (40, 300_000)
LARGE: Final = (700_000, 3_000_000)
SECRET: Final = "a secret of both"


def party(name: str) -> str:
    """Return the id of a party."""
    return f"urn:example:{name}"


@dataclass(frozen=True)
class Kind:
    """One kind of exchange: its P-Mode, who sends by it, and what is promised about it."""

    name: str
    pmode: Tree
    sender: str = BUYER
    sizes: tuple[int, int] = SMALL
    weight: float = 1.0
    """How often it is chosen, beside the others."""
    window: int = 60
    """How many messages of it may be on their way at once."""
    lane: str | None = None
    """Where order is promised: `conversation`, or `pmode` for all messages of the kind."""
    hook_order: bool = False
    """Whether calls of the webhook keep that order, too."""
    best_effort: bool = False
    """Whether it is sent once, and `sent` says no more than that it left."""
    acknowledged: bool = True
    """Whether the receiver tells that it has a message; without that the end is `sent`."""
    proven: bool = False
    """Whether evidence has a signed answer of the receiver."""
    answered: bool = False
    """Whether the receiver's application replies."""
    doubtful: bool = False
    """Whether it gives up soon, so that `failed`, `expired` and `in_doubt` are ordinary ends."""
    bundle: bool = False
    """Whether several messages are submitted as one bundle."""
    selected: bool = False
    """Whether the receiver asks for messages by their conversation."""
    units: Mapping[str, Tree] | None = None
    """The P-Modes of nodes, where they differ from each other."""
    suffix: str = ""
    """What the sender's P-Mode has behind the name."""

    @property
    def receiver(self) -> str:
        return SELLER if self.sender == BUYER else BUYER


class Agreements:
    """All kinds, with the addresses of the links."""

    def __init__(self, links: Mapping[str, str], mail: Mapping[str, str]) -> None:
        self._links = links
        self._mail = mail
        self.kinds: list[Kind] = []
        self._push()
        self._pull()
        self._two_way()
        self._large()
        self._through_hub()
        self._sequences()
        self._ebxml()

    # Parts of P-Modes

    def _add(self, name: str, legs: list[Tree] | Tree, **rest: Any) -> None:
        more: Tree = rest.pop("more", {})
        sender = rest.get("sender", BUYER)
        receiver = SELLER if sender == BUYER else BUYER
        sides = {"initiator": {"party": party(sender)}, "responder": {"party": party(receiver)}}
        pmode: Tree = {"id": name, **sides, **more}
        pmode["legs"] = legs if isinstance(legs, list) else [legs]
        self.kinds.append(Kind(name, pmode, **rest))

    def _leg(self, action: str, to: str | None = None, **more: Any) -> Tree:
        leg: Tree = {"business_info": {"service": SERVICE, "action": action}}
        if to is not None:
            leg["protocol"] = {"address": self._links[to]}
        return leg | more

    def _secured(
        self, sender: str, receiver: str, *, encrypt: bool = False, callback: bool = False
    ) -> Tree:
        x509: Tree = {"sign": True, "signature": {"certificate": f"../keys/{sender}.pem"}}
        if encrypt:
            x509["encryption"] = {"encrypt": True, "certificate": f"../keys/{receiver}.pem"}
        receipt: Tree = {"reply_pattern": "response", "certificate": f"../keys/{receiver}.pem"}
        if callback:
            receipt |= {"reply_pattern": "callback", "reply_to": self._links[sender]}
        return {"x509": x509, "send_receipt": receipt}

    def _push(self) -> None:
        retry = {"retry": {"parameters": PATIENT}}
        plain = {"send_receipt": {"reply_pattern": "response"}}
        for sender, receiver in ((BUYER, SELLER), (SELLER, BUYER)):
            signed = self._secured(sender, receiver)
            for name, security, more, traits in (
                ("plain", plain, {}, {"sizes": MEDIUM, "weight": 3}),
                ("signed", signed, {}, {"proven": True, "weight": 2}),
                (
                    "encrypted",
                    self._secured(sender, receiver, encrypt=True),
                    {"payload_service": {"compression_type": "gzip"}},
                    {"proven": True, "sizes": MEDIUM, "weight": 2},
                ),
            ):
                action = f"push-{name}-{sender}"
                leg = self._leg(
                    action, receiver, security=security, reception_awareness=retry, **more
                )
                self._add(action, leg, sender=sender, **traits)
        signed = self._secured(BUYER, SELLER)
        called = self._secured(BUYER, SELLER, callback=True)
        self._add(
            "push-callback",
            self._leg("push-callback", SELLER, security=called, reception_awareness=retry),
            proven=True,
        )
        self._add(
            "push-pipelined",
            self._leg("push-pipelined", SELLER, security=plain, reception_awareness=retry),
            more={"mep_binding": {"value": "push", "pipelining": True}},
        )
        self._add(
            "push-without-receipt",
            self._leg("push-without-receipt", SELLER, security={"send_receipt": False}),
            acknowledged=False,
            doubtful=True,
        )
        for lane in ("conversation", "pmode"):
            aware = retry | {"in_order": lane}
            name = f"push-in-order-{lane}"
            leg = self._leg(name, SELLER, security=plain, reception_awareness=aware)
            self._add(name, leg, lane=lane, hook_order=True, window=30)
        self._add(
            "push-strict-ack",
            self._leg(
                "push-strict-ack",
                SELLER,
                security=signed,
                reception_awareness=retry | {"strict_ack": True},
            ),
            proven=True,
        )
        self._add(
            "push-ack-after-delivery",
            self._leg(
                "push-ack-after-delivery",
                SELLER,
                security=called,
                reception_awareness=retry | {"ack_after_delivery": True},
            ),
            proven=True,
        )
        ends: Tree = {
            "few-retries": {"max_retries": 1, "timeout": "PT1S", "period": "PT1S"},
            "fail-fast": {"max_retries": 3, "period": "PT2S", "fail_fast": True},
            "time-to-live": {"max_retries": 100, "period": "PT2S", "time_to_live": "PT6S"},
        }
        for name, parameters in ends.items():
            aware = {"retry": {"parameters": parameters}}
            action = f"push-{name}"
            leg = self._leg(action, SELLER, security=signed, reception_awareness=aware)
            self._add(action, leg, doubtful=True, proven=True)
        for name, bundle in (("push-bundled", False), ("push-bundle-of-application", True)):
            bundling = {
                "policy": "optional",
                "compatibility": {"pmode_list": [name]},
                "max_size": "1 MiB",
                "max_delay": "PT0.3S",
            }
            leg = self._leg(
                name, SELLER, security=signed, reception_awareness=retry, bundling=bundling
            )
            self._add(name, leg, bundle=bundle, proven=True, weight=2)

    def _pull(self) -> None:
        retry = {"retry": {"parameters": PATIENT}}
        for name, pulling, traits in (
            ("pull", {"interval": "PT0.5S", "longest": "PT2S"}, {}),
            ("pull-piggyback", {"interval": "PT0.5S", "longest": "PT2S", "piggyback": True}, {}),
            ("pull-selective", {"scheduled": False}, {"selected": True, "window": 20}),
        ):
            more = {
                "mep_binding": "pull",
                "initiator": {
                    "party": party(SELLER),
                    "authorization": {"username": SELLER, "password": SECRET},
                },
                "responder": {"party": party(BUYER)},
            }
            security = self._secured(BUYER, SELLER)
            security["send_receipt"]["reply_pattern"] = "callback"
            leg = self._leg(
                name, BUYER, security=security, reception_awareness=retry, pulling=pulling
            )
            leg["business_info"]["mpc"] = f"http://buyer.example/channels/{name}"
            self._add(name, leg, more=more, proven=True, **traits)
        more = {
            "initiator": {
                "party": party(BUYER),
                "authorization": {"username": BUYER, "password": SECRET},
            }
        }
        security = self._secured(BUYER, SELLER)
        channel = {"routing_input": {"business_info": {"mpc": "http://seller.example/receipts"}}}
        security["send_receipt"] |= {"reply_pattern": "pull", "addressing": {"epr": channel}}
        leg = self._leg(
            "push-receipt-pulled",
            SELLER,
            security=security,
            reception_awareness=retry,
            pulling={"interval": "PT1S", "longest": "PT3S"},
        )
        self._add("push-receipt-pulled", leg, more=more, proven=True)

    def _two_way(self) -> None:
        retry = {"retry": {"parameters": PATIENT}}
        response = {"send_receipt": {"reply_pattern": "response"}}
        callback = {"send_receipt": {"reply_pattern": "callback"}}
        bindings: Tree = {
            "sync": {"value": "sync", "alternate": "pushAndPull"},
            "pushAndPush": "pushAndPush",
            "pushAndPull": "pushAndPull",
            "pullAndPush": "pullAndPush",
            "pullAndPull": "pullAndPull",
        }
        for name, binding in bindings.items():
            kind = f"two-way-{name}"
            pulled = (name.startswith("pull"), name.endswith("Pull") or name == "sync")
            first = self._leg(f"{kind}-ask", SELLER, reception_awareness=retry)
            second = self._leg(f"{kind}-tell", None, reception_awareness=retry)
            if pulled[0]:
                first["protocol"]["address"] = self._links[BUYER]
            if name in ("pushAndPush", "pullAndPush"):
                second["protocol"] = {"address": self._links[BUYER]}
            if name == "pullAndPull":
                second["protocol"] = {"address": self._links[SELLER]}
            for number, leg in enumerate((first, second)):
                called = pulled[number]
                leg["security"] = callback if called else response
                if called:
                    leg["pulling"] = {"interval": "PT0.5S", "longest": "PT2S"}
                    leg["business_info"]["mpc"] = f"http://chaos.example/{kind}/{number}"
            pulls = {
                "sync": (BUYER,),
                "pushAndPush": (),
                "pushAndPull": (BUYER,),
                "pullAndPush": (SELLER,),
                "pullAndPull": (BUYER, SELLER),
            }[name]
            roles = (SELLER, BUYER) if pulled[0] else (BUYER, SELLER)
            who: Tree = {
                role: {"party": party(one)}
                for role, one in zip(("initiator", "responder"), roles, strict=True)
            }
            for side, one in zip(who.values(), roles, strict=True):
                if one in pulls:
                    side["authorization"] = {"username": one, "password": SECRET}
            more = {"mep": "twoWay", "mep_binding": binding, **who}
            self._add(kind, [first, second], more=more, answered=True, window=20)

    def _large(self) -> None:
        retry = {"retry": {"parameters": PATIENT}}
        for name, splitting in (
            ("split", {"fragment_size": "300 kB"}),
            ("split-compressed", {"fragment_size": "300 kB", "compression": {"algorithm": "gzip"}}),
        ):
            security = self._secured(BUYER, SELLER, callback=True)
            leg = self._leg(
                name, SELLER, security=security, reception_awareness=retry, splitting=splitting
            )
            self._add(name, leg, sizes=LARGE, weight=0.15, window=4, proven=True)
        leg = self._leg(
            "restarted", SELLER, security=self._secured(BUYER, SELLER), reception_awareness=retry
        )
        leg["protocol"]["restart"] = {"enabled": True, "protocol": "as2-restart"}
        self._add("restarted", leg, sizes=LARGE, weight=0.15, window=4, proven=True)

    def _through_hub(self) -> None:
        """P-Modes of the two ends; `postroad pmode multihop` makes units of those in `multihop`."""
        retry = {"retry": {"parameters": PATIENT}}
        self.multihop = ["hub-store", "hub-channel"]
        for name in self.multihop:
            security = self._secured(BUYER, SELLER)
            leg = self._leg(name, SELLER, security=security, reception_awareness=retry)
            more: Tree = {"agreement": f"urn:example:agreement:{name}"}
            if name == "hub-channel":
                leg["business_info"]["mpc"] = "http://hub.example/channels/seller"
                more["responder"] = {
                    "party": party(SELLER),
                    "authorization": {"username": SELLER, "password": SECRET},
                }
            self._add(name, leg, more=more, proven=True, suffix=".init")
        leg = self._leg(
            "hub-streamed", HUB, security=self._secured(BUYER, SELLER), reception_awareness=retry
        )
        leg["protocol"]["add_actor_or_role_attribute"] = True
        self._add("hub-streamed", leg, proven=True)

    def _sequences(self) -> None:
        retry = {"timeout": "PT3S", "period": "PT3S", "max_retries": 2000}
        signed = self._secured(BUYER, SELLER)
        signed["send_receipt"] = {"enabled": False, "certificate": f"../keys/{SELLER}.pem"}
        for name, protocol, pattern, in_order, security in (
            ("wsrm-in-order", "wsrm", "Response", True, None),
            ("wsrm-signed", "wsrm", "Response", False, signed),
            ("wsrm-callback-in-order", "wsrm", "Callback", True, None),
            ("ws-reliability", "ws-reliability", "Response", None, None),
            ("ws-reliability-signed", "ws-reliability", "Callback", None, signed),
            ("ws-reliability-poll", "ws-reliability", "Poll", None, None),
        ):
            contract: Tree = {"enabled": True}
            if pattern == "Callback":
                contract["acks_to"] = self._links[BUYER]
            reliability: Tree = {
                "protocol": protocol,
                "at_least_once": {"contract": contract, "reply_pattern": pattern},
                "at_most_once": True,
                "retry": retry,
            }
            if in_order:
                reliability["in_order"] = True
            leg = self._leg(name, SELLER, reliability=reliability)
            leg["security"] = security or {"send_receipt": False}
            self._add(
                name,
                leg,
                lane="pmode" if in_order else None,
                hook_order=bool(in_order),
                proven=security is not None,
                window=40,
            )
        reliability = {
            "protocol": "wsrm",
            "at_least_once": {"contract": {"enabled": True}, "reply_pattern": "Response"},
            "at_most_once": True,
            "retry": retry,
        }
        leg = self._leg(
            "wsrm-pull",
            BUYER,
            reliability=reliability,
            security={"send_receipt": False},
            pulling={"interval": "PT0.5S", "longest": "PT2S"},
        )
        leg["business_info"]["mpc"] = "http://buyer.example/channels/wsrm"
        more = {
            "mep_binding": "pull",
            "initiator": {
                "party": party(SELLER),
                "authorization": {"username": SELLER, "password": SECRET},
            },
            "responder": {"party": party(BUYER)},
        }
        self._add("wsrm-pull", leg, more=more, window=20)

    def _ebxml(self) -> None:
        retry = {"retry": {"parameters": PATIENT}}
        back = {"send_receipt": {"reply_to": self._links[BUYER]}}
        reliable = {"delivery_semantics": "OnceAndOnlyOnce", "ack_requested": "UnSigned"}
        receipt = {"delivery_receipt": "UnSigned"}
        for name, ebxml, traits in (
            ("ebxml-0.98b", {"version": "0.98b", **receipt}, {}),
            ("ebxml-1.0", {"version": "1.0", **receipt}, {}),
            ("ebxml-rm000", {"version": "0.98b", "profile": "rm000", **receipt}, {}),
            ("ebxml-rm001", {"version": "0.98b", "profile": "rm001", **receipt}, {"window": 15}),
            ("ebxml-2.0", {"version": "2.0"}, {}),
            (
                "ebxml-2.0-sync",
                {"version": "2.0", "sync_reply": "mshSignalsOnly", "ack_requested": "Signed"},
                {"proven": True},
            ),
            (
                "ebxml-in-order",
                {"version": "2.0", "message_order": "Guaranteed"},
                {"lane": "conversation", "hook_order": True, "window": 30},
            ),
            (
                "ebxml-best-effort",
                {"version": "2.0", "delivery_semantics": "BestEffort", "ack_requested": "None"},
                {"acknowledged": False, "doubtful": True, "best_effort": True},
            ),
        ):
            security = back
            if "sync_reply" in ebxml:
                security = self._secured(BUYER, SELLER)
                del security["send_receipt"]["reply_pattern"]
            leg = self._leg(name, SELLER, security=security, ebxml=reliable | ebxml)
            if ebxml.get("delivery_semantics") != "BestEffort":
                leg["reception_awareness"] = retry
            self._add(name, leg, more={"agreement": f"urn:example:cpa:{name}"}, **traits)
        leg = self._leg("ebxml-mail", None, ebxml=reliable | {"version": "2.0"})
        leg["protocol"] = {"address": f"mailto:{self._mail[SELLER]}"}
        leg["security"] = {"send_receipt": {"reply_to": f"mailto:{self._mail[BUYER]}"}}
        leg["reception_awareness"] = retry
        self._add("ebxml-mail", leg, more={"agreement": "urn:example:cpa:mail"}, window=20)
        leg = self._leg(
            "ebxml-relay",
            HUB,
            reception_awareness=retry,
            ebxml=reliable | {"version": "0.98b", "hops": 1, **receipt},
        )
        at_seller = self._leg(
            "ebxml-relay",
            SELLER,
            security={"send_receipt": {"reply_to": self._links[HUB]}},
            ebxml=reliable | {"version": "0.98b", **receipt},
        )
        agreement = {"agreement": "urn:example:cpa:relay"}
        sides = {"initiator": {"party": party(BUYER)}, "responder": {"party": party(SELLER)}}
        units = {SELLER: {"id": "ebxml-relay", **agreement, **sides, "legs": [at_seller]}}
        self._add("ebxml-relay", leg, more=agreement, units=units, window=20)

    # Files

    def routes(self) -> Tree:
        """Return routes.yaml of the hub."""
        retry = {k: v for k, v in PATIENT.items() if k not in ("timeout", "persist_duration")}
        to = {one: {"push": self._links[one], "retry": retry} for one in (BUYER, SELLER)}
        channel = {"authorization": {"username": SELLER, "password": SECRET}}
        return {
            "routes": [
                {
                    "id": "streamed",
                    "match": {"to_party": party(SELLER), "action": "hub-streamed"},
                    "to": {"push": self._links[SELLER], "forward": "sync"},
                },
                {
                    "id": "channel",
                    "match": {
                        "to_party": party(SELLER),
                        "mpc": "http://hub.example/channels/seller",
                    },
                    "to": {"channel": channel},
                },
                *(
                    {"id": one, "match": {"to_party": party(one)}, "to": to[one]}
                    for one in (BUYER, SELLER)
                ),
            ],
            "quotas": {"address": {}, "strangers": {}},
        }

    def relay(self) -> Tree:
        """Return the P-Modes of the hub: it relays ebXML messages."""
        pmodes = []
        for name, sender, receiver, more in (
            ("there", BUYER, SELLER, {"ack_requested": "UnSigned"}),
            ("back", SELLER, BUYER, {}),
        ):
            ebxml: Tree = {"version": "0.98b", "relay": True, **more}
            leg: Tree = {"protocol": {"address": self._links[receiver]}, "ebxml": ebxml}
            if more:
                ebxml["delivery_semantics"] = "OnceAndOnlyOnce"
                leg["reception_awareness"] = {"retry": {"parameters": PATIENT}}
            sides = {"initiator": {"party": party(sender)}, "responder": {"party": party(receiver)}}
            pmodes.append({"id": name, **sides, "legs": [leg]})
        return {"pmodes": pmodes}
