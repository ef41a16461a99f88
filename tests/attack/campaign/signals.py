"""Forged signals about messages that still wait for their answer, on P-Modes of every kind.

A stranger knows everything that went over the line, but has no key of a partner. Pushed signals
come in requests to the buyer (or about sequences to the seller); a false server answers in the
seller's place. Nothing of that may settle a message; the partner's own answer does, in the end.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Final

from postroad.security.keys import KeyPair
from postroad.wire.names import DEFAULT_MPC, WSRM
from tests.attack.campaign import forgeries as forge
from tests.attack.campaign.gates import SOAP11, SOAP12, Gates, Reply, client, gated, new_id
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import Target
from tests.fuzz.stateful_nodes import Sent

AS4: Final = ("plain", "signed", "encrypted", "called", "split", "split-signed", "bundled")
EBXML: Final = tuple(f"ebxml-{one}" for one in ("0.98b", "1.0", "2.0", "signed"))
SYNC: Final = ("ebxml-1.0-sync", "ebxml-2.0-sync")
KINDS: Final = (
    *AS4,
    "pulled",
    "wsrm",
    "wsrm-signed",
    "wsreliability",
    "wsreliability-response",
    *EBXML,
    *SYNC,
)
OPEN: Final = ("split", "wsreliability", "ebxml-0.98b", "ebxml-1.0", "ebxml-2.0")
"""Unsigned, and answered by requests: whoever knows an id can answer, as docs/security.md says."""
_ENDING: Final = {
    "receipt_received",
    "ack_received",
    "hop_acked",
    "error_received",
    "delivery_failed",
    "in_doubt",
    "settled",
}
_SEQUENCE: Final = re.compile(rb"<wsrm:Identifier>([^<]+)</wsrm:Identifier>")
_CODES: Final = ("0001", "0004", "0101", "0202", "0301")
_WSRM: Final = f"{WSRM}/"

Forged = tuple[str, Sent]


def _as4(ref: str, sent: bytes, old: bytes | None, own: bool) -> Iterator[Forged]:
    """Receipts and errors; `own` where unsigned ones in requests were not agreed on."""

    def to_buyer(name: str, *units: str, signer: KeyPair | None = None) -> Forged:
        return name, forge.request("buyer", forge.soap12([forge.messaging(*units)], "", signer))

    receipts = {"without a proof": "<eb:Receipt></eb:Receipt>"}
    if b"<ds:SignedInfo" in sent:
        receipts["with all digests"] = forge.proof(sent)
        receipts["with other digests"] = forge.other_digests(forge.proof(sent))
    if b"<eb:UserMessage" in sent:
        receipts["with a copy"] = forge.copied(sent)
        receipts["with a copy as Postroad writes it"] = forge.copied(sent, "copy:UserMessage")
    for name, receipt in receipts.items():
        for who, signer in (("nobody", None), ("a stranger", forge.stranger())):
            if own or signer is not None or "copy" not in name:
                yield to_buyer(
                    f"receipt {name}, signed by {who}", forge.signal(receipt, ref), signer=signer
                )
    failed = forge.error(ref=ref)
    yield to_buyer("error of a stranger", forge.signal(failed, ref), signer=forge.stranger())
    if own:
        for code in _CODES:
            failure = forge.error(f"EBMS:{code}", ref=ref)
            yield to_buyer(f"unsigned error EBMS:{code}", forge.signal(failure, ref))
        yield to_buyer("unsigned error without RefToMessageId", forge.signal(failed))
        yield to_buyer(
            "unsigned error without refToMessageInError", forge.signal(forge.error(), ref)
        )
        other = forge.signal(failed, new_id("another"))
        yield to_buyer("unsigned error that refers to two messages", other)
        both = forge.signal("<eb:Receipt></eb:Receipt>", ref), forge.signal(failed, ref)
        yield to_buyer("unsigned receipt and error at once", *both)
    warning = forge.error(severity="warning", ref=ref)
    yield to_buyer("unsigned warning", forge.signal(warning, ref))
    if old is not None:
        yield "receipt of an earlier message", forge.request("buyer", old)
        before = re.search(rb"RefToMessageId>([^<]+)<", old)
        if before is not None and b"SignatureValue" in old:
            changed = old.replace(before.group(1), ref.encode())
            yield "receipt of an earlier message, for this one", forge.request("buyer", changed)
    header = forge.messaging(forge.signal(failed, ref))
    for code in ("Sender", "Receiver"):
        fault = forge.soap12([], forge.fault12(code, text=ref))
        yield f"SOAP 1.2 fault {code}", forge.request("buyer", fault)
    if own:
        fault = forge.soap12([header], forge.fault12("Sender"))
        yield "SOAP 1.2 fault with an error", forge.request("buyer", fault)
    yield "SOAP 1.1 fault", forge.request("buyer", forge.fault11(ref))


def _ebxml(ref: str, agreement: str, version: str, own: bool) -> Iterator[Forged]:
    """Acknowledgments, errors, delivery failures and statuses of an ebXML version."""
    acked, failed = forge.ebxml_acknowledgment, forge.ebxml_errors
    rival = "urn:example:rival"
    made = {}
    if own:
        made |= {
            "Acknowledgment": acked(version, agreement, ref),
            "ErrorList": failed(version, agreement, ref),
            "DeliveryFailure": failed(version, agreement, ref, "DeliveryFailure"),
            "DeliveryFailure, perhaps": failed(
                version, agreement, ref, "DeliveryFailure", "Warning"
            ),
            "Acknowledgment of another CPA": acked(version, "urn:example:other", ref),
            "Acknowledgment for another party": acked(version, agreement, ref, receiver=rival),
            "ErrorList of another CPA": failed(version, "urn:example:other", ref),
        }
    made |= {
        "Acknowledgment by another party": acked(version, agreement, ref, sender=rival),
        "ErrorList by another party": failed(version, agreement, ref, sender=rival),
        "DeliveryFailure by another party": failed(
            version, agreement, ref, "DeliveryFailure", sender=rival
        ),
        "pong": forge.ebxml(version, "Pong", agreement, ref),
        "fault": forge.fault11(ref),
    }
    for status in ("Received", "NotRecognized"):
        made[f"status {status}"] = forge.ebxml_status(version, agreement, ref, status)
    for name, body in made.items():
        yield f"ebXML {version} {name}", forge.request("buyer", body)


def _wsrm(identifier: str, signer: KeyPair | None) -> Iterator[Forged]:
    """Acknowledgements, faults and the life cycle of a sequence."""
    who = "unsigned" if signer is None else "of a stranger"

    def say(name: str, to: str, action: str, *headers: str, body: str = "") -> Forged:
        blocks = [*forge.addressing(_WSRM + action), *headers]
        return f"{who} {name}", forge.request(to, forge.soap12(blocks, body, signer))

    def acknowledged(content: str) -> str:
        return forge.sequence_acknowledgement(identifier, content)

    whole = '<wsrm:AcknowledgementRange Lower="1" Upper="1000"/>'
    action = "SequenceAcknowledgement"
    yield say("SequenceAcknowledgement", "buyer", action, acknowledged(whole))
    yield say(
        "final SequenceAcknowledgement", "buyer", action, acknowledged(whole + "<wsrm:Final/>")
    )
    yield say("Nack", "buyer", action, acknowledged("<wsrm:Nack>1</wsrm:Nack>"))
    yield say("acknowledgement of none", "buyer", action, acknowledged("<wsrm:None/>"))
    for subcode in ("UnknownSequence", "SequenceTerminated", "SequenceClosed"):
        detail = f'<wsrm:Identifier xmlns:wsrm="{WSRM}">{identifier}</wsrm:Identifier>'
        fault = forge.fault12("Sender", f"wsrm:{subcode}", detail)
        yield say(f"fault {subcode}", "buyer", "fault", body=fault)
    created = forge.about_sequence("CreateSequenceResponse", "urn:uuid:of-a-stranger")
    yield say("CreateSequenceResponse", "buyer", "CreateSequenceResponse", body=created)
    last = "<wsrm:LastMsgNumber>1</wsrm:LastMsgNumber>"
    for name in ("CloseSequence", "TerminateSequence"):
        body = forge.about_sequence(name, identifier, last)
        yield say(name, "seller", name, body=body)
        answer = forge.about_sequence(f"{name}Response", identifier)
        yield say(f"{name}Response", "buyer", f"{name}Response", body=answer)


def _wsr(ref: str, own: bool) -> Iterator[Forged]:
    """Replies of WS-Reliability; those for a range are about no message of the buyer's."""
    faults = ("InvalidMessageId", "PermanentProcessingFailure", "MessageProcessingFailure")
    group = f'<wsr:NonSequenceReply groupId="mid:{ref}"'
    made = {f"fault {one}": f'{group} fault="{one}"></wsr:NonSequenceReply>' for one in faults}
    made["Response"] = f"{group}></wsr:NonSequenceReply>"
    if not own:
        made = {}
    made["Response for a range"] = (
        f'<wsr:SequenceReplies groupId="mid:{ref}.1"><wsr:ReplyRange from="0" to="9"/>'
        "</wsr:SequenceReplies>"
    )
    for name, content in made.items():
        body = forge.soap12([forge.wsr_response(content)])
        yield f"WS-Reliability {name}", forge.request("buyer", body)


def _forgeries(kind: str, gates: Gates, ref: str, sent: list[bytes]) -> Iterator[Forged]:
    """All that is tried about a message that waits; `sent` is what went over the line of it."""
    agreement = gates.pmodes[kind]["agreement"]
    seen = sent[0] if sent else b""
    if kind.startswith("ebxml"):
        version = "2.0" if kind == "ebxml-signed" else kind.split("-")[1]
        yield from _ebxml(ref, agreement, version, kind not in OPEN)
        yield from itertools.islice(_as4(ref, seen, None, True), 8)
    else:
        yield from _as4(ref, seen, _old_receipt(gates, kind), kind != "split")
        yield from itertools.islice(_ebxml(ref, agreement, "2.0", True), 4)
    if kind.startswith("split") and sent:
        [found] = re.findall(rb"<eb:MessageId>([^<]+)</eb:MessageId>", seen)[:1]
        for name, request in _as4(found.decode(), seen, None, kind != "split"):
            yield f"fragment: {name}", request
    if kind.startswith("wsreliability"):
        yield from _wsr(ref, kind != "wsreliability")
    if sequence := _SEQUENCE.search(seen):
        identifier = sequence.group(1).decode()
        yield from _wsrm(identifier, None)
        yield from _wsrm(identifier, forge.stranger())


def _old_receipt(gates: Gates, kind: str) -> bytes | None:
    """Return the receipt of an earlier message of a P-Mode, as it went over the line."""
    before = [one for one, pmode in gates.target.sent.items() if pmode == gates.pmode(kind)]
    for one in before:
        about = f"RefToMessageId>{one}<".encode()
        said = [body for _, body in gates.seller.answers] + [r.body for r in gates.buyer.requests]
        for body in said:
            if about in body and b":Receipt>" in body:
                return body
    return None


def _pushed(target: Target) -> Iterator[Case]:
    with gated(target, "waiting", KINDS) as gates:
        for kind in KINDS:
            gates.open()
            first = gates.send(kind)
            yield Case(f"{kind}: control", lambda _, it=first: _end(gates, it))
            gates.shut()
            waiting = gates.send(kind)
            try:
                sent = _seen(gates, kind, waiting)
            except Breach as breach:
                yield Case(f"{kind}: a message is sent", functools.partial(_raise, breach))
                continue
            for name, request in _forgeries(kind, gates, waiting, sent):
                yield Case(f"{kind}: {name}", functools.partial(_push, gates, request, waiting))
            yield Case(f"{kind}: the answer in the end", lambda _, it=waiting: _end(gates, it))
        yield from _pulls(gates)
        for kind in _BELIEVED:
            yield Case(
                f"{kind}: control, the same with a right to it",
                lambda _, it=kind: _believed(gates, it),
            )


def _signed_receipt(gates: Gates, ref: str, sent: bytes) -> bytes:
    unit = forge.messaging(forge.signal(forge.proof(sent), ref))
    return forge.soap12([unit], "", forge.key_of(gates.target.folder, "seller"))


def _signed_acknowledgement(gates: Gates, _: str, sent: bytes) -> bytes:
    found = _SEQUENCE.search(sent)
    assert found is not None
    [number] = re.findall(rb"MessageNumber>(\d+)<", sent)
    content = f'<wsrm:AcknowledgementRange Lower="1" Upper="{number.decode()}"/>'
    acknowledged = forge.sequence_acknowledgement(found.group(1).decode(), content)
    blocks = [*forge.addressing(f"{_WSRM}SequenceAcknowledgement"), acknowledged]
    return forge.soap12(blocks, "", forge.key_of(gates.target.folder, "seller"))


_BELIEVED: Final[dict[str, Callable[[Gates, str, bytes], bytes]]] = {
    "called": _signed_receipt,
    "ebxml-2.0": lambda gates, ref, _: forge.ebxml_acknowledgment(
        "2.0", gates.pmodes["ebxml-2.0"]["agreement"], ref
    ),
    "wsreliability": lambda _, ref, sent: forge.soap12(
        [forge.wsr_response(f'<wsr:NonSequenceReply groupId="mid:{ref}"></wsr:NonSequenceReply>')]
    ),
    "wsrm-signed": _signed_acknowledgement,
}
"""Signed by the partner, or unsigned where that was agreed on: else the others prove nothing."""


def _believed(gates: Gates, kind: str) -> None:
    gates.shut()
    waiting = gates.send(kind)
    gates.target.sent.pop(waiting)
    [sent] = gates.attempted(waiting)[:1]
    gates.target.post(forge.request("buyer", _BELIEVED[kind](gates, waiting, sent.body)))
    found = client(gates.target, "buyer").wait(waiting, 30)
    if found.state != "acknowledged":
        raise Breach(f"the partner's answer is not believed: {found.state}, {found.detail}")


def _raise(breach: Breach, _: Target) -> None:
    raise breach


def _seen(gates: Gates, kind: str, waiting: str) -> list[bytes]:
    """Return what an eavesdropper has of a message that waits."""
    if kind == "pulled":
        return []
    sent = [one.body for one in gates.attempted(waiting)]
    return _fragments(gates, waiting) if kind.startswith("split") else sent


def _fragments(gates: Gates, waiting: str) -> list[bytes]:
    """Return the fragments of a message: those that name its conversation, which is its id."""
    found = {
        re.findall(rb"<mf:FragmentNum>(\d+)", one.body)[0]: one.body
        for one in gates.seller.about(waiting)
        if b"<mf:FragmentNum>" in one.body
    }
    return list(found.values())


def _push(gates: Gates, request: Sent, waiting: str, target: Target) -> None:
    target.post(request)
    gates.unsettled(waiting)


def _end(gates: Gates, message_id: str) -> None:
    """The message ends acknowledged, and nothing else settled it."""
    gates.acknowledged(message_id)
    events = client(gates.target, "buyer").events(message_id)
    ends = [one.event for one in events if one.event in _ENDING]
    if gates.target.sent[message_id] == gates.pmode("wsrm") and ends[0] == "error_received":
        ends = ends[1:]  # A stranger ended the unsigned sequence; the message went into another.
    if len(ends) != 1 and gates.target.sent[message_id] != gates.pmode("split"):
        raise Breach(f"{message_id} has {ends}")


def _pulls(gates: Gates) -> Iterator[Case]:
    """PullRequests of strangers: they get nothing, and learn nothing."""
    target = gates.target
    gates.open()
    waiting = gates.send("pulled")
    channel = gates.pmodes["pulled"]["legs"][0]["business_info"]["mpc"]
    for name, mpc in (("a channel", channel), ("the default", DEFAULT_MPC), ("none", "urn:none")):
        for who, signer in (("nobody", None), ("a stranger", forge.stranger())):
            yield Case(
                f"pull from {name}, signed by {who}",
                lambda it, mpc=mpc, signer=signer: _pull(it, gates, waiting, mpc, signer),
            )
    yield Case("pulled by the partner in the end", lambda _: _end(gates, waiting))
    assert target.sent


def _pull(target: Target, gates: Gates, waiting: str, mpc: str, signer: KeyPair | None) -> None:
    asked = forge.messaging(forge.signal(f'<eb:PullRequest mpc="{mpc}"></eb:PullRequest>'))
    answer = target.post(forge.request("buyer", forge.soap12([asked], "", signer)))
    if answer.codes != ["EBMS:0101"] or b"UserMessage" in answer.body:
        raise Breach(f"a stranger's pull from {mpc} got {answer.codes}: {answer.body[:500]!r}")
    nowhere = forge.messaging(forge.signal('<eb:PullRequest mpc="urn:x"></eb:PullRequest>'))
    other = target.post(forge.request("buyer", forge.soap12([nowhere], "", signer)))
    if _text(other.body) != _text(answer.body):
        raise Breach(f"{mpc} is answered other than a channel that does not exist")
    gates.unsettled(waiting)


def _text(body: bytes) -> bytes:
    """Return an answer without what is new each time."""
    return re.sub(rb"(MessageId|Timestamp|Created|InError=\")>?[^<\"]*", rb"\1", body)


# Answers of a false server

Answer = Callable[[Gates, str, bytes], Reply]
"""From a message's id and request: what is answered."""


def _answers(kind: str) -> dict[str, Answer]:
    """Return what settles nothing in a response."""

    def units(make: Callable[[Gates, str, bytes], str], signer: KeyPair | None = None) -> Answer:
        return lambda gates, ref, body: Reply(
            200, forge.soap12([forge.messaging(make(gates, ref, body))], "", signer)
        )

    def envelope(body: Callable[[str], bytes], status: int = 200) -> Answer:
        return lambda gates, ref, _: Reply(
            status, body(ref), SOAP12 if b"2003/05" in body(ref) else SOAP11
        )

    def receipt(ref: str, body: bytes) -> str:
        return forge.signal(forge.proof(body) if signed else forge.copied(body), ref)

    signed = kind in ("signed", "encrypted", "bundled")
    made: dict[str, Answer] = {
        "nothing": lambda *_: Reply(200),
        "a web page": lambda *_: Reply(200, b"<html><body>ok</body></html>", "text/html"),
        "202": lambda *_: Reply(202),
        "a redirect": lambda gates, *_: Reply(
            307, b"", headers=(("Location", gates.target.canary.url),)
        ),
        "the receipt of another message": units(
            lambda gates, ref, body: receipt(new_id("other"), body)
        ),
        "a warning": units(
            lambda gates, ref, body: forge.signal(forge.error(severity="warning", ref=ref), ref)
        ),
        "not now": units(
            lambda gates, ref, body: forge.signal(forge.error("EBMS:0202", ref=ref), ref)
        ),
        "a receiver's fault": envelope(lambda _: forge.soap12([], forge.fault12()), 500),
        "an acknowledgment of ebXML": envelope(
            lambda ref: forge.ebxml_acknowledgment("2.0", "urn:example:agreed:answered", ref)
        ),
        "a sequence's acknowledgement": envelope(
            lambda _: forge.soap12(
                [
                    forge.sequence_acknowledgement(
                        "urn:uuid:x", '<wsrm:AcknowledgementRange Lower="1" Upper="9"/>'
                    )
                ]
            )
        ),
        "a pull request": units(
            lambda *_: forge.signal(f'<eb:PullRequest mpc="{DEFAULT_MPC}"></eb:PullRequest>')
        ),
        "the message itself": lambda gates, ref, body: Reply(200, body, _content_type(gates, ref)),
    }
    if signed:
        made |= {
            "an unsigned receipt": units(lambda gates, ref, body: receipt(ref, body)),
            "a receipt of a stranger": units(
                lambda gates, ref, body: receipt(ref, body), forge.stranger()
            ),
            "an earlier receipt": lambda gates, *_: Reply(200, _old_receipt(gates, kind) or b""),
            "an earlier receipt for this": lambda gates, ref, _: Reply(
                200,
                re.sub(
                    rb"RefToMessageId>[^<]+<",
                    f"RefToMessageId>{ref}<".encode(),
                    _old_receipt(gates, kind) or b"",
                ),
            ),
            "the partner's receipt for other digests": lambda gates, ref, body: Reply(
                200,
                forge.soap12(
                    [forge.messaging(forge.signal(forge.other_digests(forge.proof(body)), ref))],
                    "",
                    forge.key_of(gates.target.folder, "seller"),
                ),
            ),
        }
    return made


def _content_type(gates: Gates, ref: str) -> str:
    return dict(gates.seller.about(ref)[0].headers)["Content-Type"]


_FATAL: Final[dict[str, Answer]] = {
    "an unsigned error": lambda gates, ref, _: Reply(
        400, forge.soap12([forge.messaging(forge.signal(forge.error(ref=ref), ref))])
    ),
    "a sender's fault": lambda *_: Reply(400, forge.soap12([], forge.fault12("Sender"))),
    "404": lambda *_: Reply(404, b"no such page", "text/plain"),
}
"""What a partner's server may say, unsigned: see "An error" in docs/security.md."""


def _responses(target: Target) -> Iterator[Case]:
    kinds = ("plain", "signed", "encrypted", "bundled")
    with gated(target, "answered", kinds) as gates:
        for kind in kinds:
            gates.open()
            first = gates.send(kind)
            yield Case(f"{kind}: control", lambda _, it=first: _end(gates, it))
            yield from _answered(gates, kind)
            yield Case(
                f"{kind}: the partner's receipt of our making",
                lambda _, kind=kind: _control(gates, kind),
            )
            for name, answer in _FATAL.items():
                yield Case(
                    f"{kind} fails by {name}, and is sent again",
                    functools.partial(_fail, gates, kind, answer),
                )


def _answered(gates: Gates, kind: str) -> Iterator[Case]:
    """Messages that are all on their way at once, each answered in another way."""
    answers = {(new_id("answered"), name): one for name, one in _answers(kind).items()}
    told = {message_id: answer for (message_id, _), answer in answers.items()}

    def reply(body: bytes) -> Reply | None:
        for message_id, answer in list(told.items()):
            if message_id.encode() in body:
                gates.target.requests += 1
                return answer(gates, message_id, body)
        return None

    gates.seller.reply = reply
    if kind != "bundled":
        for message_id, _ in answers:
            gates.send(kind, message_id)
    for message_id, name in answers:
        yield Case(
            f"{kind} is answered with {name}",
            functools.partial(_answer, gates, kind, message_id, told),
        )


def _answer(gates: Gates, kind: str, message_id: str, told: dict[str, Answer], _: Target) -> None:
    """After the answer the message is still on its way, and sent again."""
    if kind == "bundled":  # One by one, or they share an envelope.
        gates.send(kind, message_id)
    gates.attempted(message_id, 2)
    gates.unsettled(message_id)
    del told[message_id]
    buyer = client(gates.target, "buyer")
    if (found := buyer.wait(message_id, 30)).state != "acknowledged":
        raise Breach(f"{message_id} is {found.state} in the end: {found.detail}")
    receipts = [one.event for one in buyer.events(message_id)].count("receipt_received")
    if receipts != 1:
        raise Breach(f"{message_id} has {receipts} receipts")


def _control(gates: Gates, kind: str) -> None:
    """A receipt that is forged as above, but with the partner's key, is believed."""
    message_id = new_id("answered")
    key = forge.key_of(gates.target.folder, "seller") if kind != "plain" else None

    def reply(body: bytes) -> Reply | None:
        if message_id.encode() not in body:
            return None
        receipt = forge.proof(body) if key else forge.copied(body)
        unit = forge.messaging(forge.signal(receipt, message_id))
        return Reply(200, forge.soap12([unit], "", key))

    gates.seller.reply = reply
    gates.send(kind, message_id)
    gates.target.sent.pop(message_id)
    found = client(gates.target, "buyer").wait(message_id, 30)
    gates.open()
    if found.state != "acknowledged":
        raise Breach(f"the partner's receipt is not believed: {found.state}, {found.detail}")


def _fail(gates: Gates, kind: str, answer: Answer, _: Target) -> None:
    message_id = new_id("answered")
    gates.seller.reply = lambda body: (
        answer(gates, message_id, body) if message_id.encode() in body else None
    )
    gates.send(kind, message_id)
    buyer = client(gates.target, "buyer")
    if (found := buyer.wait(message_id, 30)).state != "failed":
        raise Breach(f"{message_id} is {found.state}: {found.detail}")
    gates.open()
    buyer.resend(message_id)
    gates.acknowledged(message_id)


# Answers to messages of other protocols


def _other_answers(kind: str) -> dict[str, Answer]:
    """Return what settles no ebXML, WS-ReliableMessaging or WS-Reliability message."""
    is_ebxml = kind.startswith("ebxml")
    version = "2.0" if kind == "ebxml-signed" else kind.split("-")[1] if is_ebxml else "2.0"
    agreement = "urn:example:agreed:others"

    def new(blocks: Callable[[str, bytes], list[str]], signer: KeyPair | None = None) -> Answer:
        return lambda _, ref, body: Reply(200, forge.soap12(blocks(ref, body), "", signer))

    def old(body: Callable[[str], bytes]) -> Answer:
        return lambda _, ref, __: Reply(200, body(ref), SOAP11)

    def acknowledged(body: bytes, content: str, identifier: str | None = None) -> list[str]:
        found = _SEQUENCE.search(body)
        own = found.group(1).decode() if found else "urn:uuid:x"
        return [
            *forge.addressing(f"{_WSRM}SequenceAcknowledgement"),
            forge.sequence_acknowledgement(identifier or own, content),
        ]

    acked, first = forge.ebxml_acknowledgment, '<wsrm:AcknowledgementRange Lower="1" Upper="9"/>'
    beyond = '<wsrm:AcknowledgementRange Lower="900" Upper="999"/>'
    made: dict[str, Answer] = {
        "nothing": lambda *_: Reply(200),
        "a web page": lambda *_: Reply(200, b"<html><body>ok</body></html>", "text/html"),
        "a redirect": lambda gates, *_: Reply(
            307, b"", headers=(("Location", gates.target.canary.url),)
        ),
        "an AS4 receipt": new(
            lambda ref, _: [forge.messaging(forge.signal("<eb:Receipt></eb:Receipt>", ref))]
        ),
        "the acknowledgment of another message": old(
            lambda _: acked(version, agreement, new_id("other"))
        ),
        "the acknowledgement of another sequence": new(
            lambda _, body: acknowledged(body, first, "urn:uuid:another")
        ),
        "a status": old(lambda ref: forge.ebxml_status(version, agreement, ref, "Received")),
    }
    if kind.startswith("wsrm"):
        made["an acknowledgement of later numbers"] = new(
            lambda _, body: acknowledged(body, beyond)
        )
    if kind == "wsrm-signed":
        made["an unsigned acknowledgement"] = new(lambda _, body: acknowledged(body, first))
        made["the acknowledgement of a stranger"] = new(
            lambda _, body: acknowledged(body, first), forge.stranger()
        )
    if kind == "ebxml-signed":
        made["an unsigned acknowledgment"] = old(lambda ref: acked(version, agreement, ref))
    if kind == "ebxml-signed" or not is_ebxml:  # Where acks are unsigned, any reference is one.
        made["a pong"] = old(lambda ref: forge.ebxml(version, "Pong", agreement, ref))
    if not kind.startswith("wsreliability"):
        made["a response of WS-Reliability"] = new(
            lambda ref, _: [
                forge.wsr_response(
                    f'<wsr:NonSequenceReply groupId="mid:{ref}"></wsr:NonSequenceReply>'
                )
            ]
        )
    return made


_OTHERS: Final = (*EBXML, *SYNC, "wsrm", "wsrm-signed", "wsreliability-response")


def _other_responses(target: Target) -> Iterator[Case]:
    with gated(target, "others", _OTHERS) as gates:
        for kind in _OTHERS:
            gates.open()
            first = gates.send(kind)
            yield Case(f"{kind}: control", lambda _, it=first: _end(gates, it))
            for name, answer in _other_answers(kind).items():
                yield Case(
                    f"{kind} is answered with {name}",
                    functools.partial(_answer_one, gates, kind, answer),
                )


def _answer_one(gates: Gates, kind: str, answer: Answer, _: Target) -> None:
    """A false server answers each attempt; then the partner's answer settles the message."""
    message_id = new_id("others")

    def reply(body: bytes) -> Reply | None:
        if message_id.encode() not in body:
            return None
        gates.target.requests += 1
        return answer(gates, message_id, body)

    gates.seller.reply = reply
    gates.send(kind, message_id)
    gates.attempted(message_id, 2)
    gates.unsettled(message_id)
    _end(gates, message_id)


CLASSES: Final = (
    AttackClass("forged signals", _pushed),
    AttackClass("forged answers", _responses),
    AttackClass("forged answers of other protocols", _other_responses),
)
