"""Ids that strangers take first: the partner's own message must be delivered all the same."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding

from postroad.api.client_values import Unit
from postroad.security.keys import KeyPair
from postroad.wire.names import INITIATOR_ROLE, RESPONDER_ROLE
from tests import pki
from tests.attack.campaign import forgeries as forge
from tests.attack.campaign.gates import NOTHING, Gates, agree, client, gated, new_id, wait_for
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import Answer, Target
from tests.fuzz.stateful_nodes import Sent

_SIGNED: Final = (
    "signed",
    "encrypted",
    "called",
    "split-signed",
    "bundled",
    "wsrm-signed",
    "pulled",
    "ebxml-signed",
)
_UNSIGNED: Final = ("plain", "wsreliability", "ebxml-0.98b", "ebxml-1.0", "ebxml-2.0")
_RIVAL: Final = "urn:example:rival"
_PAYLOAD: Final = b"of the partner"


@functools.cache
def _rival() -> KeyPair:
    """Another partner of the seller, with a certificate that one P-Mode pins."""
    return pki.issue(pki.authority("Authority of the rival"), _RIVAL, label="campaign rival")


def _of_rival() -> dict[str, Any]:
    return {
        "id": "ids-rival",
        "agreement": "urn:example:agreed:rival",
        "initiator": {"party": _RIVAL},
        "responder": {"party": forge.SELLER},
        "legs": [
            {
                "protocol": {"address": "http://127.0.0.1:1/msh"},
                "business_info": {"service": "urn:example:trade", "action": "ids-rival"},
                "security": {
                    "x509": {"sign": True, "signature": {"certificate": "../keys/rival.pem"}},
                    "send_receipt": {"reply_pattern": "response"},
                },
            }
        ],
    }


def _message(
    message_id: str, action: str, agreement: str, sender: str, signer: KeyPair | None
) -> Sent:
    """Write a message of ebMS 3.0 without payloads."""
    header = forge.messaging(
        f"<eb:UserMessage><eb:MessageInfo><eb:Timestamp>{forge.now()}</eb:Timestamp><eb:MessageId>"
        f"{message_id}</eb:MessageId></eb:MessageInfo><eb:PartyInfo><eb:From><eb:PartyId>{sender}"
        f"</eb:PartyId><eb:Role>{INITIATOR_ROLE}</eb:Role></eb:From><eb:To><eb:PartyId>"
        f"{forge.SELLER}</eb:PartyId><eb:Role>{RESPONDER_ROLE}</eb:Role></eb:To></eb:PartyInfo>"
        f"<eb:CollaborationInfo><eb:AgreementRef>{agreement}</eb:AgreementRef><eb:Service>"
        f"urn:example:trade</eb:Service><eb:Action>{action}</eb:Action><eb:ConversationId>"
        f"{message_id}</eb:ConversationId></eb:CollaborationInfo></eb:UserMessage>"
    )
    return forge.request("seller", forge.soap12([header], "", signer))


def _taken(target: Target, pmode: str, message_id: str) -> Answer:
    """Send a captured unsigned message under another id, as a stranger would."""
    [request] = target.recorded(pmode)[:1]
    body = request.body
    for old in dict.fromkeys(re.findall(rb"MessageId>\s*([^<\s]+)", body)):
        body = body.replace(old, message_id.encode())
    return target.post(Sent("seller", request.headers, body))


def _cases(target: Target) -> Iterator[Case]:
    rival = _rival().certificate.public_bytes(Encoding.PEM)
    (target.node("seller").folder / "keys" / "rival.pem").write_bytes(rival)
    agree(target, "ids-rival", [_of_rival()], ["seller"])
    with gated(target, "ids", _SIGNED) as gates:
        for kind in _SIGNED:
            for first in _UNSIGNED:
                take = functools.partial(_taken, target, first)
                yield _case(gates, kind, f"taken on {first}", take)
            yield _case(
                gates, kind, "taken by another partner", functools.partial(_by_rival, target)
            )
            take = functools.partial(_unproven, gates, kind)
            yield _case(gates, kind, "taken by a message without a signature", take)
        yield Case("bundle with an id that was taken", functools.partial(_bundle, gates))
        yield Case("another partner in the name of the buyer", _in_anothers_name)
        yield Case("an id of the partner, used by a stranger", functools.partial(_used, gates))
        for signed in (False, True):
            yield Case(
                f"a fragment under another's group id, {'signed' if signed else 'unsigned'}",
                functools.partial(_fragment, gates, signed),
            )
        yield Case("a number in another's sequence", functools.partial(_number, gates))


def _case(gates: Gates, kind: str, how: str, take: Callable[[str], Answer]) -> Case:
    return Case(f"{kind}: {how}", functools.partial(_taken_first, gates, kind, take))


def _by_rival(target: Target, message_id: str) -> Answer:
    answer = target.post(
        _message(message_id, "ids-rival", "urn:example:agreed:rival", _RIVAL, _rival())
    )
    if b":Receipt>" not in answer.body:
        raise Breach(f"a partner's message was not taken: {answer.body[-500:]!r}")
    return answer


def _unproven(gates: Gates, kind: str, message_id: str) -> Answer:
    agreement = gates.pmodes[kind]["agreement"]
    return gates.target.post(
        _message(message_id, gates.pmode(kind), agreement, forge.BUYER, forge.stranger(forge.BUYER))
    )


def _taken_first(gates: Gates, kind: str, take: Callable[[str], Answer], target: Target) -> None:
    message_id = new_id("taken")
    take(message_id)
    gates.send(kind, message_id, _PAYLOAD)
    gates.acknowledged(message_id)
    _delivered_once(gates, message_id)


def _delivered_once(gates: Gates, message_id: str, payload: bytes = _PAYLOAD) -> None:
    """The partner's message is in the inbox once, with its payload; all others are taken out."""
    seller = client(gates.target, "seller")
    pmode = gates.target.sent[message_id]
    own = [one for one in seller.inbox(pmode=pmode) if one.message_id == message_id]
    if len(own) != 1:
        raise Breach(f"{message_id} was delivered {len(own)} times on {pmode}")
    if seller.part(message_id, cursor=own[0].cursor) != payload:
        raise Breach(f"{message_id} has another payload than the partner's")
    for one in [*seller.inbox()]:
        if one.message_id == message_id:
            seller.ack(message_id, cursor=one.cursor)


def _bundle(gates: Gates, target: Target) -> None:
    ids = [new_id("bundle") for _ in range(3)]
    _taken(target, "plain", ids[1])
    _by_rival(target, ids[2])
    pmode = gates.pmode("bundled")
    client(target, "buyer").send_bundle([Unit(pmode, [_PAYLOAD], one) for one in ids])
    target.sent.update(dict.fromkeys(ids, pmode))
    for one in ids:
        gates.acknowledged(one)
        _delivered_once(gates, one)


def _in_anothers_name(target: Target) -> None:
    """A trusted partner signs as the buyer: refused, and not in the buyer's place."""
    message_id = new_id("name")
    for sender, action, agreement in (
        (forge.BUYER, "signed", "urn:example:agreed"),
        (_RIVAL, "signed", "urn:example:agreed"),
        (forge.BUYER, "ids-rival", "urn:example:agreed:rival"),
    ):
        answer = target.post(_message(message_id, action, agreement, sender, _rival()))
        if not answer.codes or b":Receipt>" in answer.body:
            raise Breach(f"{sender} on {action} was taken: {answer.status}")
    control = _message(
        message_id,
        "signed",
        "urn:example:agreed",
        forge.BUYER,
        forge.key_of(target.folder, "buyer"),
    )
    target.sent[message_id] = "signed"
    if b":Receipt>" not in target.post(control).body:
        raise Breach("the buyer's own message was not taken")


def _used(gates: Gates, target: Target) -> None:
    """A stranger under the id of a message that was taken: refused, and without its receipt."""
    message_id = gates.send("signed", payload=_PAYLOAD)
    gates.acknowledged(message_id)
    for pmode in _UNSIGNED:
        answer = _taken(target, pmode, message_id)
        if b":Receipt>" in answer.body or b"Acknowledgment" in answer.body:
            raise Breach(f"a stranger on {pmode} got an acknowledgment for {message_id}")
    _delivered_once(gates, message_id)


def _fragment(gates: Gates, signed: bool, target: Target) -> None:
    """A false second fragment comes while the partner's own is under way."""
    second = b"<mf:FragmentNum>2</mf:FragmentNum>"
    gates.seller.reply = lambda body: NOTHING if second in body else None
    payload = b"whole " * 400
    message_id = gates.send("split-signed", payload=payload)
    about = functools.partial(gates.seller.about, message_id)
    wait_for(lambda: any(second in one.body for one in about()), "the second fragment is sent")
    own = next(one for one in about() if second in one.body)
    group = re.search(rb"<mf:GroupId>([^<]+)<", own.body)
    assert group is not None
    forged = own.body.replace(b"whole whole", b"false false")
    if not signed:
        forged = re.sub(rb"<wsse:Security.*?</wsse:Security>", b"", forged, flags=re.DOTALL)
    target.post(Sent("seller", own.headers, forged))
    [plain] = target.recorded("split", second)[:1]
    foreign = re.sub(rb"<mf:GroupId>[^<]+<", b"<mf:GroupId>" + group.group(1) + b"<", plain.body)
    for old in re.findall(rb"<eb:MessageId>([^<]+)</eb:MessageId>", foreign)[:1]:
        foreign = foreign.replace(old, new_id("fragment").encode())
    target.post(Sent("seller", plain.headers, foreign))
    gates.acknowledged(message_id)
    _delivered_once(gates, message_id, payload)


def _number(gates: Gates, target: Target) -> None:
    """A stranger's message takes the next number of the partner's sequence."""
    first = gates.send("wsrm-signed", payload=_PAYLOAD)
    gates.acknowledged(first)
    [request] = gates.seller.about(first)[:1]
    body = re.sub(
        rb"MessageNumber>(\d+)<",
        lambda found: b"MessageNumber>%d<" % (int(found.group(1)) + 1),
        request.body,
    )
    for signed in (True, False):
        forged = body.replace(first.encode(), new_id("number").encode())
        if not signed:
            forged = re.sub(rb"<wsse:Security.*?</wsse:Security>", b"", forged, flags=re.DOTALL)
        answer = target.post(Sent("seller", request.headers, forged))
        if not answer.codes and b":Fault" not in answer.body:
            raise Breach(f"a number of another's sequence was taken: {answer.body[-500:]!r}")
    following = gates.send("wsrm-signed", payload=_PAYLOAD)
    gates.acknowledged(following)
    _delivered_once(gates, following)


CLASSES: Final = (AttackClass("taken ids", _cases),)
