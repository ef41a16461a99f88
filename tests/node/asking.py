"""P-Modes by which the buyer asks the seller for a price, in every binding of Two-Way."""

import hashlib
from typing import Any, Final

from postroad.node.service import Submission, SubmittedPayload
from postroad.store.records import Message
from postroad.wire.content import BytesContent
from tests.node.reliable import BUYER, SELLER, Station, World, _signature, address, party

PRICES: Final = "prices"
REPLIES: Final = "http://seller.example/replies"
LATE: Final = "http://seller.example/late"
USERS: Final = {
    BUYER: {"username": "buyer", "password": "a secret of ours"},
    SELLER: {"username": "seller", "password": "another secret"},
}
AGAIN: Final[dict[str, Any]] = {"max_retries": 3, "timeout": "PT10S", "period": "PT20S"}
ASYNCHRONOUS: Final = ("pushAndPush", "pushAndPull", "pullAndPush", "pullAndPull")
Q, R = "q@buyer", "r@seller"


def ask(
    world: World,
    binding: str,
    name: str = PRICES,
    *,
    alternate: str | None = None,
    late: str | None = LATE,
    mpc: str | None = REPLIES,
    at: tuple[str, ...] = (BUYER, SELLER),
    receipts: tuple[str | None, str | None] = ("response", "response"),
    retry: dict[str, Any] | None = AGAIN,
    signed: bool = False,
    user: bool = True,
    **pulling: Any,
) -> None:
    """The buyer asks, the seller answers; who is the initiator follows from the binding."""
    pulled_first = binding.startswith("pull")
    pulled_second = binding.endswith("Pull") or (alternate or "").endswith("Pull")
    for station in at:
        legs = [
            _leg(
                world,
                station,
                BUYER,
                "Ask",
                pulled_first,
                receipts[0],
                retry,
                signed,
                pulling,
                False,
            ),
            _leg(
                world,
                station,
                SELLER,
                "Say",
                pulled_second,
                receipts[1],
                retry,
                signed,
                pulling,
                binding == "sync",
            ),
        ]
        if mpc is not None:
            legs[1]["business_info"]["mpc"] = mpc
        if alternate is not None and late is not None:
            legs[1]["business_info"]["mpc_alternate"] = late
        if binding == "sync" and alternate != "pushAndPush":
            del legs[1]["protocol"]["address"]
        sides: list[dict[str, Any]] = [
            {"party": party(BUYER), "role": "urn:example:asks"},
            {"party": party(SELLER), "role": "urn:example:answers"},
        ]
        if user and (pulled_second or pulled_first):
            sides[1 if pulled_first else 0]["authorization"] = USERS[
                SELLER if pulled_first else BUYER
            ]
            if binding == "pullAndPull":
                sides[0]["authorization"] = USERS[BUYER]
        initiator, responder = sides[::-1] if pulled_first else sides
        bound: dict[str, Any] = {"value": binding}
        if alternate is not None:
            bound["alternate"] = alternate
        world._pmodes[station].append(
            {
                "id": name,
                "mep": "twoWay",
                "mep_binding": bound,
                "initiator": initiator,
                "responder": responder,
                "legs": legs,
            }
        )


def _leg(
    world: World,
    station: str,
    sender: str,
    action: str,
    pulled: bool,
    receipt: str | None,
    retry: dict[str, Any] | None,
    signed: bool,
    pulling: dict[str, Any],
    response: bool,
) -> dict[str, Any]:
    other = SELLER if sender == BUYER else BUYER
    security: dict[str, Any] = {}
    if receipt is not None:
        security["send_receipt"] = {"reply_pattern": "callback" if pulled or response else receipt}
    if signed:
        world._with_keys = True
        security |= _signed_by(station, sender)
        if receipt is not None:
            proof = {"non_repudiation": True, "certificate": f"../keys/{other}.pem"}
            security["send_receipt"] |= proof
    leg: dict[str, Any] = {
        "protocol": {"address": address(sender if pulled else other), "soap_version": "1.2"},
        "business_info": {"service": "urn:example:prices", "action": action},
        "security": security,
    }
    if pulled:
        leg["pulling"] = {"scheduled": False} | pulling
    if retry is not None:
        leg["reception_awareness"] = {"retry": {"parameters": retry}}
    return leg


def _signed_by(station: str, sender: str) -> dict[str, Any]:
    security: dict[str, Any] = _signature(station)
    signature = security["x509"]["signature"]
    signature.pop("key", None)
    signature["certificate"] = f"../keys/{sender}.pem"
    if station == sender:
        signature["key"] = f"../keys/{sender}.p12"
    return security


async def reply(
    station: Station,
    message_id: str | None = R,
    *,
    to: str = Q,
    pmode: str = PRICES,
    payload: bytes = b"12 a piece",
    **more: Any,
) -> Message:
    """The application answers a request."""
    given = SubmittedPayload(BytesContent(payload), hashlib.sha256(payload).digest())
    submission = Submission(pmode, (given,), message_id, ref_to_message_id=to, **more)
    return (await station.process.ask(station.node.submit(submission))).message
