"""Captured requests that are sent again: nothing is delivered twice, and answers stay the same."""

import concurrent.futures
import functools
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from tests.attack.campaign import forgeries as forge
from tests.attack.campaign.gates import client, ids_in, new_id
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import Answer, Target
from tests.fuzz.stateful_nodes import Sent

_COPIES: Final = 20
_SETTLING: Final = ("delivered", "receipt_received", "ack_received", "hop_acked", "consumed")
_OLD: Final = "2020-01-01T00:00:00Z"
_HEADERS: Final = (
    ("User-Agent", "another/1.0"),
    ("X-Forwarded-For", "10.0.0.1"),
    ("Forwarded", "for=10.0.0.1;host=seller.example"),
    ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ("Cookie", "a=b"),
)


def _cases(target: Target) -> Iterator[Case]:
    captured = target.captured.all()
    copied: set[str] = set()
    for number, request in enumerate(captured):
        what = f"{_kind(request)} to {request.to} ({number})"
        again = functools.partial(_replay, request)
        yield Case(f"{what} again", again)
        if request.to == "seller":
            yield Case(f"{what} over TLS", functools.partial(_replay, request, tls=True))
        yield Case(f"{what} with other headers", functools.partial(_replay, _other_head(request)))
        changed = _with_other_addresses(request)
        if changed.body != request.body:
            signed = b"SignatureValue" in request.body and b"TraceHeader" not in request.body
            same = not signed and b"AcksTo" not in request.body
            attack = functools.partial(_replay, changed, same=same)
            yield Case(f"{what} with other addresses", attack)
        if _kind(request) not in copied:
            copied.add(_kind(request))
            yield Case(f"{what} {_COPIES} times at once", functools.partial(_at_once, request))
    firsts = {(_kind(one), one.to): (number, one) for number, one in enumerate(captured)}
    for number, request in firsts.values():
        yield Case(
            f"the answer to {_kind(request)} ({number}) as a request",
            functools.partial(_answer_as_request, request),
        )
    yield Case("a pull request while a message waits", _pull_again)
    for pmode in ("plain", "signed", "ebxml-2.0", "wsreliability"):
        yield Case(f"an old message on {pmode}", functools.partial(_old, pmode))
    yield Case("all again after the seller was killed", functools.partial(_killed, captured))
    yield Case("each was delivered and acknowledged once", _once)


def _kind(request: Sent) -> str:
    names = (b"PullRequest", b"Receipt", b"CreateSequence", b"SequenceAcknowledgement", b"Response")
    for name in names:
        if b":" + name in request.body:
            return name.decode()
    found = re.findall(rb"Action[^>]*>([\w.-]+)<", request.body)
    return found[0].decode() if found else "message"


def _other_head(request: Sent) -> Sent:
    kept = tuple(one for one in request.headers if one[0].lower() != "user-agent")
    return Sent(request.to, (*kept, *_HEADERS), request.body)


def _with_other_addresses(request: Sent) -> Sent:
    """Let the addresses that no signature covers lead elsewhere."""
    body = request.body
    for name in (b"wsa:To", b"wsa:Address", b"eb:SenderURI", b"eb:Location"):
        pattern = rb"(<" + name + rb"[^>]*>)http://[^<]*"
        body = re.sub(pattern, rb"\g<1>http://elsewhere.example/msh", body)
    return Sent(request.to, request.headers, body)


def _told(target: Target, ids: list[str]) -> dict[str, Counter[str]]:
    """Count the events that deliver or settle messages, and what is in the inbox."""
    told: dict[str, Counter[str]] = {}
    for name in ("buyer", "seller"):
        for message_id in ids:
            events = Counter(one.event for one in client(target, name).events(message_id))
            told[f"{name} {message_id}"] = Counter({one: events[one] for one in _SETTLING})
        told[f"{name} inbox"] = Counter(last=client(target, name).inbox_extent().last)
    return told


def _unchanged(target: Target, request: Sent, attack: Callable[[], Answer]) -> Answer:
    """Attack; nothing may be delivered, and no message settled again."""
    ids = [one for one in ids_in(request.body) if one in target.sent]
    before = _told(target, ids)
    answer = attack()
    after = _told(target, ids)
    if after != before:
        changes = {key: (before[key], after[key]) for key in after if after[key] != before[key]}
        raise Breach(f"a replay changed {changes}"[:1000])
    return answer


def _replay(request: Sent, target: Target, *, tls: bool = False, same: bool = True) -> None:
    answer = _unchanged(target, request, lambda: target.post(request, tls=tls))
    if b":PullRequest" in request.body:
        if answer.codes != ["EBMS:0101"] or b"UserMessage" in answer.body:
            raise Breach(f"a pull request that was repeated got {answer.codes}")
    elif same:
        _compare(target, request, answer)
    elif b"UserMessage" in request.body and not answer.codes:
        raise Breach(f"a message was taken whose signed address was changed: {answer.status}")


def _compare(target: Target, request: Sent, answer: Answer) -> None:
    """A duplicate is answered with the first receipt, byte for byte."""
    ids = [one for one in ids_in(request.body) if one in target.sent]
    if answer.status >= 300:
        raise Breach(f"a duplicate got {answer.status}: {answer.body[-600:]!r}")
    if b":Receipt>" in answer.body and request.to == "seller":
        buyer = client(target, "buyer")
        [first] = [one for one in buyer.signals(ids[0]) if one.kind == "receipt"][:1]
        kept = buyer.signal(ids[0], first.signal_id)
        if kept.strip() != answer.body.strip():
            raise Breach("a duplicate got another receipt than the first copy")


def _at_once(request: Sent, target: Target) -> None:
    def attack() -> Answer:
        with concurrent.futures.ThreadPoolExecutor(_COPIES) as pool:
            answers = list(pool.map(target.post, [request] * _COPIES))
        if b":PullRequest" in request.body and any(b"UserMessage" in a.body for a in answers):
            raise Breach("a pull request that was repeated got a message")
        if b":Receipt>" in answers[0].body and len({one.body for one in answers}) != 1:
            raise Breach("copies that came at once got different receipts")
        return answers[0]

    _unchanged(target, request, attack)


def _answer_as_request(request: Sent, target: Target) -> None:
    answer = target.post(request)
    kind = {name.lower(): value for name, value in answer.headers}.get("content-type", "")
    for to in ("buyer", "seller"):
        back = Sent(to, (("Content-Type", kind or "text/xml"),), answer.body)
        _unchanged(target, request, lambda back=back: target.post(back))


def _pull_again(target: Target) -> None:
    """Whoever repeats a pull request from elsewhere gets nothing of what waits."""
    with target.client("buyer") as buyer:
        waiting = buyer.send(pmode="pulled", payloads=[b"waits"]).message_id
        target.sent[waiting] = "pulled"
        for request in target.captured.all():
            if b":PullRequest" in request.body:
                _replay(request, target)
        if (found := buyer.status(waiting)).attempts:
            raise Breach(f"{waiting} was handed out: {found.state}")
        with target.client("seller") as seller:
            seller.pull("pulled", most=10)
        if (found := buyer.wait(waiting, 30)).state != "acknowledged":
            raise Breach(f"{waiting} is {found.state} after the partner pulled it")


def _old(pmode: str, target: Target) -> None:
    """What is older than the memory of a node is refused: its first copy may be forgotten."""
    [request] = target.recorded(pmode)[:1]
    body = re.sub(rb"Timestamp>20[^<]*<", f"Timestamp>{_OLD}<".encode(), request.body)
    message_id = new_id("old")
    for old in dict.fromkeys(re.findall(rb"MessageId>\s*([^<\s]+)", body)):
        body = body.replace(old, message_id.encode())
    if b"SignatureValue" in body:
        header = re.search(rb"<eb:Messaging.*?</eb:Messaging>", body, re.DOTALL)
        assert header is not None
        header_text = re.sub(r"<eb:PayloadInfo>.*</eb:PayloadInfo>", "", header.group().decode())
        key = forge.key_of(target.folder, "buyer")
        answer = target.post(forge.request("seller", forge.soap12([header_text], "", key)))
    else:
        answer = target.post(Sent("seller", request.headers, body))
    if pmode != "ebxml-2.0" and answer.codes != ["EBMS:0003"]:
        raise Breach(f"a message of {_OLD} got {answer.status} {answer.codes}")
    with target.client("seller") as seller:
        if any(one.message_id == message_id for one in seller.inbox()):
            raise Breach(f"a message of {_OLD} was delivered")


def _killed(captured: list[Sent], target: Target) -> None:
    node = target.node("seller")
    node.end(signal.SIGKILL)
    node.start()
    for request in captured:
        if request.to == "seller":
            _replay(request, target)


def _once(target: Target) -> None:
    with target.client("buyer") as buyer, target.client("seller") as seller:
        for message_id, pmode in target.sent.items():
            told = Counter(one.event for one in buyer.events(message_id))
            if (ends := told["receipt_received"] + told["ack_received"]) != 1:
                raise Breach(f"{message_id} on {pmode} was acknowledged {ends} times")
            # A stranger may have used the id on another P-Mode.
            told = Counter(one.event for one in seller.events(message_id) if one.pmode == pmode)
            if told["delivered"] != 1:
                raise Breach(f"{message_id} on {pmode} was delivered {told['delivered']} times")


CLASSES: Final = (AttackClass("replays", _cases),)
