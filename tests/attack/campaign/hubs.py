"""Attacks on hubs: circles, forged routing, messages for nowhere, full hubs, changed bytes."""

import contextlib
import functools
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from postroad.api.client import ApiError, Client
from postroad.wire.names import EB3, EBINT, NEXT_MSH, S12, WSA
from tests.attack.campaign import forgeries as forge
from tests.attack.campaign.gates import NOTHING, Gate, agree, client, kept_client, new_id, wait_for
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import (
    ATTACKER,
    HOST,
    PATIENCE,
    Answer,
    Target,
    head,
    judge,
    read_answer,
)
from tests.e2e.hub_road import _hub, write_routes
from tests.e2e.nodes import Served
from tests.e2e.taps import Tap
from tests.fuzz.stateful_nodes import Sent
from tests.ports import free_port

_CIRCLE, _FORGETFUL = "urn:example:circle", "urn:example:forgetful"
_NOBODY: Final = "http://127.0.0.1:1/msh"
_SOON: Final = {"max_retries": "unlimited", "timeout": "PT0.5S", "period": "PT0.5S"}
_QUOTA: Final = 25


class _Forgetful(Tap):
    """Passes messages on without the header that names the hubs on the way."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.passed = 0

    def _post(self, request: Any) -> None:
        del request.headers["Postroad-Stations"]
        super()._post(request)

    def note_request(self, headers: tuple[tuple[str, str], ...], body: bytes) -> None:
        self.passed += 1


@dataclass
class _Road:
    target: Target
    near: Served
    far: Served
    before_seller: Gate
    forgetful: _Forgetful
    ports: dict[str, int]
    sent: list[str] = field(default_factory=list)

    def post(self, body: bytes | Sent, to: str = "near", source: str = ATTACKER) -> Answer:
        """Bring a message to a hub, from any address."""
        request = body if isinstance(body, Sent) else forge.request(to, body)
        self.target.requests += 1
        port = self.ports[to]
        with socket.create_connection((HOST, port), PATIENCE, (source, 0)) as connection:
            connection.sendall(head(request) + request.body)
            answer = read_answer(connection)
        if answer is None:
            raise Breach("a hub closed the connection without an answer")
        judge(answer)
        return answer

    def events(self, hub: Served, message_id: str) -> list[str]:
        try:
            return [one.event for one in self.client(hub).events(message_id)]
        except ApiError:
            return []  # It is not there yet.

    def client(self, hub: Served) -> Client:
        """Return a client of a hub that is kept."""
        return kept_client(self.target.folder, hub.name, hub.serving.api_url or "")

    def check(self) -> None:
        """Raise Breach if a hub ended, or logged an error that has no name."""
        for hub in (self.near, self.far):
            if hub.process is None or hub.process.poll() is not None:
                raise Breach(f"{hub.name} ended: {hub.log[-1000:]}")
            for line in hub.log.splitlines():
                if '"traceback"' in line or "Traceback" in line:
                    raise Breach(f"{hub.name} logged: {line[:2000]}")


def user_message(
    message_id: str,
    to: str = forge.SELLER,
    *,
    action: str = "hub-signed",
    more: tuple[str, ...] = (),
    sender: str = forge.BUYER,
) -> bytes:
    """Write an unsigned message that is aimed at hubs."""
    header = forge.messaging(
        f"<eb:UserMessage><eb:MessageInfo><eb:Timestamp>{forge.now()}</eb:Timestamp><eb:MessageId>"
        f"{message_id}</eb:MessageId></eb:MessageInfo><eb:PartyInfo><eb:From><eb:PartyId>{sender}"
        f"</eb:PartyId><eb:Role>a</eb:Role></eb:From><eb:To><eb:PartyId>{to}</eb:PartyId><eb:Role>"
        "b</eb:Role></eb:To></eb:PartyInfo><eb:CollaborationInfo><eb:Service>urn:example:trade"
        f"</eb:Service><eb:Action>{action}</eb:Action><eb:ConversationId>c</eb:ConversationId>"
        "</eb:CollaborationInfo></eb:UserMessage>"
    ).replace('S12:mustUnderstand="true"', f'S12:mustUnderstand="true" S12:role="{NEXT_MSH}"')
    return forge.soap12([header, *more])


def routing(to: str) -> str:
    return (
        f'<ebint:RoutingInput xmlns:ebint="{EBINT}" xmlns:eb="{EB3}" xmlns:S12="{S12}"'
        f' xmlns:wsa="{WSA}" wsa:IsReferenceParameter="true" S12:mustUnderstand="true"'
        f' S12:role="{NEXT_MSH}"><ebint:UserMessage>'
        f"<eb:PartyInfo><eb:From><eb:PartyId>{forge.BUYER}</eb:PartyId><eb:Role>a</eb:Role>"
        f"</eb:From><eb:To><eb:PartyId>{to}</eb:PartyId><eb:Role>b</eb:Role></eb:To></eb:PartyInfo>"
        "<eb:CollaborationInfo><eb:Service>urn:example:trade</eb:Service><eb:Action>forged"
        "</eb:Action><eb:ConversationId>c</eb:ConversationId></eb:CollaborationInfo>"
        "</ebint:UserMessage></ebint:RoutingInput>"
    )


@contextlib.contextmanager
def _road(target: Target) -> Iterator[_Road]:
    ports = {"near": free_port(), "far": free_port()}
    urls = {name: f"http://{HOST}:{port}/msh" for name, port in ports.items()}
    near, far = (_hub(target.folder / name, name, ports[name]) for name in ports)
    for hub in (near, far):
        hub.config.write_text(hub.config.read_text() + "log: {format: json}\n")
    before_seller = Gate(f"http://{HOST}:{target.port('seller')}/msh", "seller")
    before_seller.start()
    forgetful = _Forgetful(urls["near"])
    forgetful.start()

    def rule(name: str, match: dict[str, Any], to: str) -> dict[str, Any]:
        return {"id": name, "match": match, "to": {"push": to, "retry": _SOON}}

    back = f"http://{HOST}:{target.port('buyer')}/msh"
    full = {"id": "full", "match": {"to_party": "urn:example:full"}, "to": {"push": _NOBODY}}
    routes = {
        "near": [
            rule("circle", {"to_party": [_CIRCLE, _FORGETFUL]}, urls["far"]),
            rule("seller", {"to_party": forge.SELLER}, before_seller.url),
            rule("buyer", {"to_party": forge.BUYER}, back),
            full,
        ],
        "far": [
            rule("forgetful", {"to_party": _FORGETFUL}, forgetful.url),
            rule("circle", {"to_party": _CIRCLE}, urls["near"]),
        ],
    }
    for hub in (near, far):
        write_routes(hub, routes[hub.name])
        with (hub.folder / "routes.yaml").open("a") as file:
            file.write("quotas: " + json.dumps({"address": {"messages": _QUOTA}}) + "\n")
    agree(target, "hub", [_pmode(urls["near"])])
    try:
        for hub in (near, far):
            hub.begin()
        for hub in (near, far):
            hub.ready()
        yield _Road(target, near, far, before_seller, forgetful, ports)
    finally:
        for hub in (near, far):
            if hub.process is not None:
                hub.process.kill()
                hub.ended()
        before_seller.stop()
        forgetful.stop()


def _pmode(near: str) -> dict[str, Any]:
    leg = {
        "protocol": {"address": near, "add_actor_or_role_attribute": True},
        "business_info": {"service": "urn:example:trade", "action": "hub-signed"},
        "security": {
            "x509": {"sign": True, "signature": {"certificate": "../keys/buyer.pem"}},
            "send_receipt": {
                "reply_pattern": "callback",
                "reply_to": near,
                "non_repudiation": True,
                "certificate": "../keys/seller.pem",
            },
        },
        "error_handling": {"report": {"as_response": False, "receiver_errors_to": near}},
        "reception_awareness": {"retry": {"parameters": _SOON}},
    }
    parties = {"initiator": {"party": forge.BUYER}, "responder": {"party": forge.SELLER}}
    return {"id": "hub-signed", "agreement": "urn:example:agreed:hub", **parties, "legs": [leg]}


def _cases(target: Target) -> Iterator[Case]:
    with _road(target) as road:
        for name, attack in (
            ("control: by way of the hub", _honest),
            ("a circle", _circle),
            ("a circle through a hub that drops the stations", _forgetful_circle),
            ("stations that a stranger names", _stations),
            ("messages for nowhere", _nowhere),
            ("forged RoutingInput to another party", _rerouted),
            ("RoutingInput added to a partner's message", _added),
            ("changed bytes on the way", _changed),
            ("forged signals through the hub", _signals),
            ("pulling from the hub", _pulled),
            ("addresses in a message for nowhere", _addresses),
            ("strangers fill the hub", _filled),
            ("control: by way of the hub in the end", _honest),
        ):
            yield Case(name, functools.partial(_checked, road, attack))


def _checked(road: _Road, attack: Any, _: Target) -> None:
    attack(road)
    road.check()


def _send(road: _Road) -> str:
    sent = client(road.target, "buyer").send(pmode="hub-signed", payloads=[b"through the hub"])
    road.target.sent[sent.message_id] = "hub-signed"
    return sent.message_id


def _arrived(road: _Road, message_id: str) -> None:
    road.before_seller.reply = lambda _: None
    found = client(road.target, "buyer").wait(message_id, PATIENCE)
    if found.state != "acknowledged":
        raise Breach(f"{message_id} is {found.state}: {found.detail}")
    events = [one.event for one in client(road.target, "seller").events(message_id)]
    if events.count("delivered") != 1:
        raise Breach(f"{message_id} was delivered {events.count('delivered')} times")


def _honest(road: _Road) -> None:
    _arrived(road, _send(road))


def _held(road: _Road) -> tuple[str, Sent]:
    """Send a message that the hub takes and cannot bring to the seller yet."""
    road.before_seller.reply = lambda _: NOTHING
    message_id = _send(road)
    wait_for(lambda: bool(road.before_seller.about(message_id)), "the hub passes it on")
    return message_id, road.before_seller.about(message_id)[0]


def _circle(road: _Road) -> None:
    message_id = new_id("circle")
    road.post(user_message(message_id, _CIRCLE))
    wait_for(
        lambda: (
            "error_raised" in road.events(road.near, message_id)
            or "send_failed" in road.events(road.far, message_id)
            or "delivery_failed" in road.events(road.far, message_id)
        ),
        "the circle is noticed",
    )
    for hub in (road.near, road.far):
        if (count := road.events(hub, message_id).count("forwarded")) > 2:
            raise Breach(f"{hub.name} passed a message on {count} times in a circle")


def _forgetful_circle(road: _Road) -> None:
    """It ends by itself: copies of what waits add nothing, and 64 rounds are the most."""
    message_id = new_id("circle")
    road.post(user_message(message_id, _FORGETFUL))
    seen = [-1]

    def is_quiet() -> bool:
        before, seen[0] = seen[0], road.forgetful.passed
        return 0 < before == seen[0] and all(
            road.client(hub).status(message_id).settled for hub in (road.near, road.far)
        )

    wait_for(is_quiet, "the circle ends")
    if road.forgetful.passed > 66:
        raise Breach(f"a message went round {road.forgetful.passed} times")


def _stations(road: _Road) -> None:
    """A stranger says that a message was here: refused; the partner's own is not."""
    message_id, own = _held(road)
    for stations in ("near", "far, near", "near " * 1000, "\xff", ""):
        headers = (*own.headers, ("Postroad-Stations", stations))
        road.post(Sent("near", headers, own.body))
    _arrived(road, message_id)


def _nowhere(road: _Road) -> None:
    for to in ("urn:example:nowhere", "", "urn:example:Seller"):
        message_id = new_id("nowhere")
        answer = road.post(user_message(message_id, to))
        if answer.codes[:1] not in (["EBMS:0020"], ["EBMS:0009"]):
            raise Breach(f"a message for {to!r} got {answer.status} {answer.codes}")
        if "forwarded" in road.events(road.near, message_id):
            raise Breach(f"a message for {to!r} was passed on")


def _rerouted(road: _Road) -> None:
    """UserMessage names the seller, RoutingInput the buyer: it goes there, and is refused."""
    extent = client(road.target, "buyer").inbox_extent().last
    message_id = new_id("rerouted")
    answer = road.post(user_message(message_id, more=(routing(forge.BUYER),)))
    if answer.status >= 300:
        raise Breach(f"a message with RoutingInput got {answer.status}: {answer.codes}")
    wait_for(
        lambda: (
            len(road.events(road.near, message_id)) > 2
            or "send_failed" in road.events(road.near, message_id)
        ),
        "the hub has an answer",
    )
    if client(road.target, "buyer").inbox_extent().last != extent:
        raise Breach("a message for the seller was delivered to the buyer")


def _added(road: _Road) -> None:
    """RoutingInput that the sender did not sign: the seller refuses it, and takes the own one."""
    message_id, own = _held(road)
    added = routing(forge.SELLER).encode()
    forged = own.body.replace(b"</S12:Header>", added + b"</S12:Header>", 1)
    answer = road.target.post(Sent("seller", own.headers, forged))
    if not answer.codes:
        raise Breach(f"a message with routing that nobody signed was taken: {answer.status}")
    _arrived(road, message_id)


def _changed(road: _Road) -> None:
    """The seller refuses what was changed; the hub's word about that does not fail the message."""
    for old, new in ((b"through the hub", b"through the sea"), (b"hub-signed<", b"hub-forged<")):
        message_id, own = _held(road)
        answer = road.target.post(Sent("seller", own.headers, own.body.replace(old, new)))
        if not answer.codes:
            raise Breach(f"a message that was changed got {answer.status}")
        _arrived(road, message_id)


def _signals(road: _Road) -> None:
    """Receipts and errors with routing input to the buyer, about its message and about none."""
    message_id, own = _held(road)
    units = [
        forge.signal(forge.proof(own.body), message_id),
        forge.signal(forge.error(ref=message_id), message_id),
        forge.signal(forge.error(ref="unknown@x"), "unknown@x"),
    ]
    for unit in units:
        for signer in (None, forge.stranger()):
            said = forge.soap12([forge.messaging(unit), routing(forge.BUYER)], "", signer)
            road.post(said)
    near = road.client(road.near)
    wait_for(
        lambda: (
            not any(
                one.state in ("ready", "waiting") and one.to_party == forge.BUYER
                for one in near.messages(side="forwarding", limit=50)
            )
        ),
        "the hub passed the signals on",
    )
    found = client(road.target, "buyer").status(message_id)
    if found.state not in ("waiting", "ready", "sent"):
        raise Breach(f"a forged signal made it {found.state}: {found.detail}")
    _arrived(road, message_id)


def _pulled(road: _Road) -> None:
    for mpc in ("urn:example:none", f"{EB3}defaultMPC"):
        asked = forge.signal(f'<eb:PullRequest mpc="{mpc}"></eb:PullRequest>')
        answer = road.post(forge.soap12([forge.messaging(asked)]))
        if answer.codes != ["EBMS:0101"]:
            raise Breach(f"a pull from the hub got {answer.codes}")


def _addresses(road: _Road) -> None:
    """Nobody is called because a message names an address for errors."""
    url = road.target.canary.url
    named = tuple(
        f'<wsa:{name} xmlns:wsa="{WSA}"><wsa:Address>{url}</wsa:Address></wsa:{name}>'
        for name in ("FaultTo", "ReplyTo")
    )
    for to in ("urn:example:nowhere", _CIRCLE):
        road.post(user_message(new_id("address"), to, more=named))


def _filled(road: _Road) -> None:
    """One address uses up its quota, under however many names; others pass."""
    codes = []
    for number in range(_QUOTA + 5):
        sender = f"urn:example:name-{number}"
        message = user_message(new_id("full"), "urn:example:full", sender=sender)
        answer = road.post(message)
        codes.append((answer.status, *answer.codes))
    if codes[-1] != (429, "EBMS:0202"):
        raise Breach(f"the message beyond the quota got {codes[-1]}")
    if sum(one[0] < 300 for one in codes) > _QUOTA:
        raise Breach(f"{codes} were taken, the quota is {_QUOTA}")
    other = user_message(new_id("full"), "urn:example:full")
    if (answer := road.post(other, source="127.0.0.67")).status >= 300:
        raise Breach(f"another address was refused as well: {answer.status} {answer.codes}")


CLASSES: Final = (AttackClass("hubs", _cases),)
