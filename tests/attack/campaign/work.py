"""Work that nobody who is believed asked for: floods, hints in unsigned places, and load.

Whatever is sent, messages of partners pass at the same time.
"""

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from postroad.security.algorithms import RSA_SHA256
from postroad.wire.ebms3 import Property
from tests.attack.campaign.forged import (
    accepted,
    from_buyer,
    inbox_end,
    key_pair,
    order,
    received,
    refused,
    request,
    undelivered,
)
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import Target
from tests.attack.floods import HARMLESS, Floods
from tests.attack.forging import Ref, refs, resigned
from tests.attack.messages import BODY, Package, payload
from tests.changing import replace
from tests.fuzz.stateful_nodes import Sent

_NO_PROOF: Final = "EBMS:0101"
_MISUNDERSTOOD: Final = "EBMS:0008"
_ORIGINAL: Final = (Property("originalSender", "urn:example:buyer"),)
_MOST_REFERENCES: Final = 2000
_ATTACKERS: Final = 2
_PROBES: Final = 3
_SLOWEST: Final = 20.0
"""Seconds in which a partner's message is acknowledged whatever else the node is asked to do."""


# What HTTP says of a message


def _spoofed(target: Target) -> Iterator[Case]:
    """What a message is about is in its signed header alone, whatever HTTP says of it."""
    for action in (
        *('"plain"', '"urn:example:trade/plain"', "ebXML", '"ebXML"', '""', '"' + "x" * 4000 + '"'),
        '"http://docs.oasis-open.org/ws-rx/wsrm/200702/CreateSequence"',
        '"http://docs.oasis-open.org/ws-rx/wsrm/200702/TerminateSequence"',
    ):
        yield Case(f"SOAPAction {action[:60]}", partial(_is_signed_order, SOAPAction=action))
        yield Case(f"action {action[:60]}", partial(_is_signed_order_by_type, action=action))
    for name in ("X_PMode", "X_HTTP_Method_Override", "X_Forwarded_For", "Content_Location"):
        yield Case(f"header {name}", partial(_is_signed_order, **{name: target.canary.url}))
    sent = target.recorded("ebxml-signed", b"SignatureValue")[-1]
    for action in ('"plain"', '""', '"ebXML-2.0"'):
        others = [(name, value) for name, value in sent.headers if name.lower() != "soapaction"]
        spoofed = replace(sent, headers=(*others, ("SOAPAction", action)))
        yield Case(
            f"ebXML with SOAPAction {action}", partial(_same_answer, first=sent, sent=spoofed)
        )


def _is_signed_order(target: Target, **headers: str) -> None:
    message = from_buyer(target)
    _taken_as_signed(target, message, request(message, **headers))


def _is_signed_order_by_type(target: Target, action: str) -> None:
    message = from_buyer(target)
    sent = request(message)
    typed = [
        (name, f"{value}; action={action}" if name == "Content-Type" else value)
        for name, value in sent.headers
    ]
    _taken_as_signed(target, message, replace(sent, headers=tuple(typed)))


def _taken_as_signed(target: Target, message: Package, sent: Sent) -> None:
    assert message.user_message is not None
    message_id = message.user_message.message_info.message_id
    target.sent[message_id] = "signed"
    accepted(target, sent)
    with target.client("seller") as seller:
        pmode = seller.received(message_id).pmode
    if pmode != "signed":
        raise Breach(f"it was taken by the P-Mode {pmode}")


def _same_answer(target: Target, first: Sent, sent: Sent) -> None:
    """A copy is answered as the first one was, or refused by name."""
    before = inbox_end(target)
    answers = [target.post(one) for one in (first, sent)]
    if answers[0].body != answers[1].body and b":Fault" not in answers[1].body:
        raise Breach(f"another answer: {answers[1].body[:300]!r}")
    undelivered(target, before)


# Header blocks


_BLOCK: Final = '<x:a xmlns:x="urn:x" S12:mustUnderstand="{}"{}>{}</x:a></S12:Header>'
_NEXT: Final = ' S12:role="http://www.w3.org/2003/05/soap-envelope/role/next"'
_ULTIMATE: Final = ' S12:role="http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver"'


def _understood(target: Target) -> Iterator[Case]:
    for pmode, make in (("plain", partial(order, None, "plain", ())), ("signed", None)):
        for value in ("true", "1", " true "):
            for role in ("", _NEXT, _ULTIMATE, ' S12:role=""'):
                message = make() if make is not None else from_buyer(target)
                block = _BLOCK.format(value, role, "")
                forged = message.replaced("</S12:Header>", block)
                attack = partial(_refuse, message=forged, codes=(_MISUNDERSTOOD,))
                yield Case(f"{pmode}: must be understood, {value}{role}", attack)
        odd = (make() if make else from_buyer(target)).replaced(
            "</S12:Header>", _BLOCK.format("maybe", "", "")
        )
        yield Case(f"{pmode}: maybe", partial(_refuse, message=odd, codes=("EBMS:0009",)))
        for value, role in (("false", ""), ("0", ""), ("true", ' S12:role="urn:example:hub"')):
            message = make() if make is not None else from_buyer(target)
            other = message.replaced("</S12:Header>", _BLOCK.format(value, role, ""))
            attack = partial(_take, message=other, pmode=pmode)
            yield Case(f"control: {pmode}: {value}{role} need not be understood", attack)
    for name in ("ebxml-2.0", "ebxml-1.0"):
        sent = target.recorded(name)[-1]
        own = received(sent)
        block = b'<x:a xmlns:x="urn:x" SOAP-ENV:mustUnderstand="1"/></SOAP-ENV:Header>'
        envelope = own.envelope.replace(b"</SOAP-ENV:Header>", block)
        forged = replace(sent, body=sent.body.replace(own.envelope, envelope))
        yield Case(f"{name}: must be understood", partial(_is_misunderstood, sent=forged))


def _is_misunderstood(target: Target, sent: Sent) -> None:
    answer = target.post(sent)
    if b"MustUnderstand" not in answer.body and b"NotSupported" not in answer.body:
        raise Breach(f"answered {answer.status} {answer.body[:300]!r}")


def _refuse(target: Target, message: Package, codes: tuple[str, ...]) -> None:
    refused(target, message, *codes)


def _take(target: Target, message: Package, pmode: str) -> None:
    accepted(target, message, pmode)


# Floods


def _floods(target: Target) -> Floods:
    message = from_buyer(target, properties=_ORIGINAL)

    def make(attachments: tuple[()], body: str = BODY) -> Package:
        return from_buyer(target, "signed", attachments, body=body)

    sign = partial(resigned, signer=key_pair(target), method=RSA_SHA256)
    return Floods(message, make, sign, "signed")


def _work(target: Target) -> Iterator[Case]:
    before = inbox_end(target)
    floods = _floods(target)
    for name, make in floods.all().items():
        if name not in HARMLESS:
            yield Case(name, partial(_flood, make=make))
    message = from_buyer(target)
    many = [Ref(f"#nobody{number}", b"\0" * 32) for number in range(_MOST_REFERENCES + 1)]
    sign = partial(resigned, signer=key_pair(target), method=RSA_SHA256)
    yield Case(
        "2,001 references", partial(_refuse, message=sign(message, many), codes=(_NO_PROOF,))
    )
    [own] = [one for one in refs(message) if one.uri == "#_body"]
    again = sign(message, [*refs(message), *[own] * 1900])
    yield Case("1,900 references to one thing", partial(_refuse, message=again, codes=(_NO_PROOF,)))
    huge = order(None, "signed", [payload("one", bytes(48 << 20))], body="")
    attack = partial(_refuse, message=huge, codes=("EBMS:0103",))
    yield Case("a part of 48 MiB that nobody signed", attack)
    yield Case("nothing of it was delivered", lambda one: undelivered(one, before))
    for name in HARMLESS:
        flood = partial(_take_flood, floods=floods, name=name)
        yield Case(f"control: {name} change nothing", flood)


def _flood(target: Target, make: object) -> None:
    assert callable(make)
    refused(target, make(), by_partner=True)


def _take_flood(target: Target, floods: Floods, name: str) -> None:
    accepted(target, floods.all()[name]())


# Partners meanwhile


_HEAVY: Final = (
    "references that stand for one large token",
    "references to one large Body",
    "EncryptedData that name one broken key",
    "signatures in the Security header",
    "ids",
    "one id many times",
)


def _meanwhile(target: Target) -> Iterator[Case]:
    floods = _floods(target).all()
    for name in _HEAVY:
        sent = request(floods[name]())
        yield Case(name, partial(_partners_pass, sent=sent))
    deep = request(from_buyer(target).replaced("</S12:Header>", "<x:a>" * 50_000))
    yield Case("deep nesting", partial(_partners_pass, sent=deep))


def _partners_pass(target: Target, sent: Sent) -> None:
    """Partners' messages are acknowledged while attackers keep the node at work."""
    ended = threading.Event()
    trouble: list[Breach] = []

    def attack() -> None:
        while not ended.is_set():
            try:
                answer = target.post(sent)
                if b":Receipt" in answer.body:
                    raise Breach("the flood was acknowledged")
            except Breach as breach:
                trouble.append(breach)
                return

    attackers = [threading.Thread(target=attack) for _ in range(_ATTACKERS)]
    for one in attackers:
        one.start()
    try:
        for _ in range(_PROBES):
            begun = time.monotonic()
            target.honest("signed")
            if (took := time.monotonic() - begun) > _SLOWEST:
                raise Breach(f"a partner's message took {took:.1f} s")
    finally:
        ended.set()
        for one in attackers:
            one.join()
    if trouble:
        raise trouble[0]


CLASSES: Final = (
    AttackClass("work: hints outside of the message", _spoofed),
    AttackClass("work: header blocks to be understood", _understood),
    AttackClass("work: floods", _work),
    AttackClass("work: partners meanwhile", _meanwhile),
)
