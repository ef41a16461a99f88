"""P-Modes by which the seller pulls from the buyer, and PullRequests as a test makes them."""

from typing import Any, Final

from postroad.msh.pulling import message_channel, pull_request
from postroad.node.base.requests import Response
from postroad.store.records import Queue
from postroad.wire.ebms3 import Messaging, Selection
from postroad.wire.ebms3_reader import find_messaging, read_messaging
from postroad.wire.names import DEFAULT_MPC
from postroad.wire.soap import read_envelope
from postroad.wire.xml import parse
from tests.node.reliable import BUYER, ORDERS, SELLER, Station, World, _signature, address, party

USER: Final = {"username": "seller", "password": "a secret of ours"}
AGAIN: Final[dict[str, Any]] = {"max_retries": 3, "timeout": "PT10S", "period": "PT20S"}
MPC: Final = "http://buyer.example/mpc"


def collect(
    world: World,
    name: str = ORDERS,
    *,
    by: str = SELLER,
    at: tuple[str, ...] | None = None,
    user: dict[str, str] | None = USER,
    signed: bool = False,
    mpc: str | None = None,
    sub: str | None = None,
    retry: dict[str, Any] | None = AGAIN,
    receipt: bool = True,
    soap: str = "1.2",
    client: bool = False,
    bundling: dict[str, Any] | None = None,
    **pulling: Any,
) -> None:
    """Somebody pulls from the buyer; `pulling` are the parameters of that."""
    for station in at or (BUYER, by):
        answer: dict[str, Any] = {"reply_pattern": "callback"}
        security: dict[str, Any] = {"send_receipt": answer} if receipt else {}
        if signed:
            world._with_keys = True
            security |= _signature(station)
            answer |= {"non_repudiation": True, "certificate": f"../keys/{by}.pem"}
        info = {"service": "urn:example:trade", "action": name, "mpc": mpc, "sub_mpc_ext": sub}
        leg: dict[str, Any] = {
            "protocol": {"address": address(BUYER), "soap_version": soap},
            "business_info": {key: value for key, value in info.items() if value is not None},
            "security": security,
            "pulling": {"scheduled": False} | pulling,
        }
        if client:
            # Shown in the TLS handshake by who pulls.
            world._with_keys = True
            shown = {"certificate": f"../keys/{by}.pem"}
            leg["protocol"]["address"] = address(BUYER).replace("http:", "https:")
            leg["protocol"]["security"] = {"protocol": "TLS", "client": shown}
        if bundling is not None:
            leg["bundling"] = bundling
        if retry is not None:
            leg["reception_awareness"] = {"retry": {"parameters": retry}}
        puller: dict[str, Any] = {"party": party(by), "role": "urn:example:receiver"}
        if user is not None:
            puller["authorization"] = user
        world._pmodes[station].append(
            {
                "id": name,
                "mep": "oneWay",
                "mep_binding": "pull",
                "initiator": puller,
                "responder": {"party": party(BUYER), "role": "urn:example:sender"},
                "legs": [leg],
            }
        )


def request(
    puller: Station,
    name: str = ORDERS,
    selection: Selection | None = None,
    signal_id: str | None = None,
) -> bytes:
    """A PullRequest as a station would send it."""
    context = puller.node.context
    known = (*map(message_channel, context.in_force.pulled), *context.in_force.pulled_signals)
    channel = next(one for one in known if one.match.pmode.id == name)
    now = context.clock()
    asking = pull_request(
        channel,
        selection,
        signal_id=signal_id or context.new_id(now),
        now=now,
        entropy=context.entropy,
        key=context.in_force.keyring.signing,
    )
    return asking.envelope


def said(response: Response) -> Messaging:
    """What an answer says."""
    body = response.body
    start = body.index(b"<", body.index(b"<S12:Envelope") if b"<S12:Envelope" in body else 0)
    end = body.index(b":Envelope>", start) + len(b":Envelope>")
    envelope = read_envelope(parse(body[start:end]))
    element = find_messaging(envelope)
    assert element is not None
    found = read_messaging(element, envelope.version).messaging
    assert found is not None
    return found


def given(response: Response) -> str | None:
    """The id of the message that was handed out."""
    messages = said(response).user_messages
    return messages[0].message_info.message_id if messages else None


def errors(response: Response) -> list[str]:
    return [one.error_code for signal in said(response).signals for one in signal.errors]


async def pull(puller: Station, name: str = ORDERS, **how: Any) -> tuple[str, ...]:
    """An operator lets a node pull; what came."""
    return (await puller.process.ask(puller.node.pull(name, **how))).messages


async def queued(station: Station, channel: str = DEFAULT_MPC) -> int:
    """How many messages wait in a channel."""
    found: Queue = await station.node.context.store.look(lambda reader: reader.queue(channel))
    return found.count
