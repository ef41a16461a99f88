"""Hostile text in every field that a stranger can fill in.

Whatever stands in a field of a message, the answer is a receipt or an ebMS error, and the log has
no error of an unknown kind. The fields are found in the written messages: a new one is tested
without anybody adding it here.
"""

import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from postroad.security.algorithms import ECDSA_SHA256, RSA_SHA256
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.wire.ebms3 import (
    AgreementRef,
    CollaborationInfo,
    Description,
    Error,
    MessageInfo,
    Messaging,
    PartInfo,
    Party,
    PartyId,
    Property,
    PullRequest,
    Schema,
    Selection,
    Service,
    SignalMessage,
    UserMessage,
)
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.names import INITIATOR_ROLE, RESPONDER_ROLE
from postroad.wire.receipts import awareness_receipt
from tests.attack.messages import NOW, VERSION, buyer, seller, soap
from tests.attack.network import (
    BUYER,
    ORDER,
    PRICES,
    SELLER,
    SERVICE,
    Answer,
    Partner,
    Town,
    http_answer,
    order,
    renamed,
    until,
)
from tests.changing import replace
from tests.hostile import FEW, TEXTS, variants


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    """Here connections are what it is about."""


@pytest.fixture(scope="module")
def partner(place: Town) -> Iterator[Partner]:
    """Takes the buyer's messages and leaves them without a receipt."""
    made = Partner(place)
    made.agree("captured", called_back=True)
    yield made
    made.close()


PART: Final = PartInfo(
    "cid:one@example",
    (Property("MimeType", "text/plain"), Property("a", "b", "c")),
    (Schema("urn:schema", "1", "urn:namespace"),),
    Description("a part", "en"),
)


def agreed(name: str, action: str) -> UserMessage:
    """A message that a P-Mode of the town takes."""
    return UserMessage(
        MessageInfo(NOW, name),
        Party((PartyId(BUYER),), INITIATOR_ROLE),
        Party((PartyId(SELLER),), RESPONDER_ROLE),
        CollaborationInfo(Service(SERVICE), action, "conversation-1"),
        (Property("name", "value", "type"),),
    )


def complete(name: str, action: str) -> UserMessage:
    """A message with every field that there is."""
    message = agreed(name, action)
    info = message.collaboration_info
    return replace(
        message,
        message_info=MessageInfo(NOW, name, "before@seller.example"),
        from_party=Party((PartyId(BUYER), PartyId("4711", "urn:duns")), INITIATOR_ROLE),
        collaboration_info=replace(info, agreement_ref=AgreementRef("urn:agreed", "t", "p")),
        part_infos=(PART,),
        mpc="urn:example:mpc",
    )


def error_about(ref: str) -> SignalMessage:
    error = Error(
        "EBMS:0004", "failure", "Content", "ebMS", "Other", ref, Description("no", "en"), "detail"
    )
    return SignalMessage(MessageInfo(NOW, "error@seller.example", ref), errors=(error,))


def pull_request() -> SignalMessage:
    selection = Selection(
        "a@b",
        "conversation-1",
        AgreementRef("urn:agreed", "t", "p"),
        Service(SERVICE, "t"),
        ORDER,
        Party((PartyId(BUYER, "t"),), INITIATOR_ROLE),
        Party((PartyId(SELLER, "t"),), RESPONDER_ROLE),
        (Property("name", "value", "type"),),
    )
    request = PullRequest("urn:example:mpc", selection)
    return SignalMessage(MessageInfo(NOW, "pull@seller.example"), pull_request=request)


def enveloped(block: bytes, signing: Signing | None) -> bytes:
    """A header block in its envelope; one that is no text is put in the place of a good one."""
    readable = _is_text(block)
    made = secure(
        VERSION,
        [Block("_messaging", block.decode() if readable else "<a></a>")],
        (),
        signing=signing,
        lifetime=Lifetime(NOW) if signing else None,
    )
    return made.envelope if readable else made.envelope.replace(b"<a></a>", block)


def _is_text(block: bytes) -> bool:
    try:
        return bool(block.decode())
    except UnicodeDecodeError:
        return False


class Log(logging.Handler):
    """Keeps every record of an error, or with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            kind = record.exc_info[1] if record.exc_info else ""
            self.found.append(f"{record.getMessage()} {kind!r}"[:300])


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    logger = logging.getLogger()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def wrong(answer: Answer) -> str | None:
    """What is wrong with an answer, if anything is."""
    if answer.status >= 500:
        return f"{answer.status} {answer.body[-300:]!r}"
    if answer.body:
        signals = answer.messaging.signals
        if not signals:
            return f"no signal: {answer.body[:300]!r}"
    return None


def try_all(
    place: Town,
    log: Log,
    who: str,
    block: str,
    signing: Signing | None,
    texts: tuple[str, ...] = FEW,
) -> None:
    found = []
    for what, changed in variants(block.encode(), texts):
        problem = wrong(place.say(soap(enveloped(changed, signing)), who))
        if log.found:
            problem = f"{problem}; logged: {log.found}"
            log.found.clear()
        if problem:
            found.append(f"{what}: {problem}")
    assert not found, f"{len(found)} answers:\n" + "\n".join(found[:60])


@pytest.mark.parametrize("kind", ["agreed", "complete", "bundle"])
@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_no_field_of_a_user_message_causes_an_unnamed_error(
    place: Town, log: Log, signed: bool, kind: str
) -> None:
    action = ORDER if signed else PRICES
    write = complete if kind == "complete" else agreed
    units = tuple(write(place.new_id(), action) for _ in range(1 + (kind == "bundle")))
    block = write_messaging(Messaging(units, id="_messaging"), VERSION)
    how = Signing(buyer(), ECDSA_SHA256) if signed else None
    if kind == "agreed":
        assert place.say(soap(enveloped(block.encode(), how))).is_receipt
    try_all(place, log, "seller", block, how, TEXTS if kind == "agreed" else FEW)
    place.good()


SIGNALS: Final[dict[str, Callable[[str], SignalMessage]]] = {
    "error": lambda ref: error_about(ref),
    "error about nothing": lambda ref: renamed(error_about(ref), ref_to_message_id=None),
    "pull": lambda _: pull_request(),
    "receipt": lambda ref: awareness_receipt(
        complete(ref, ORDER), message_info=MessageInfo(NOW, "receipt@seller.example", ref)
    ),
}


@pytest.mark.parametrize("kind", SIGNALS)
@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_no_field_of_a_signal_causes_an_unnamed_error(
    place: Town, partner: Partner, log: Log, kind: str, signed: bool
) -> None:
    signal = SIGNALS[kind](place.submit("captured"))
    block = write_messaging(Messaging((signal,), id="_messaging"), VERSION)
    try_all(place, log, "buyer", block, Signing(seller(), RSA_SHA256) if signed else None)
    place.good()


def _was_answered(place: Town, name: str) -> bool:
    return len(place.events(name, "buyer")) > 2


def test_no_field_of_a_response_causes_an_unnamed_error(
    place: Town, partner: Partner, log: Log
) -> None:
    partner.agree("answered")
    block = write_messaging(Messaging((error_about("REF@x"),), id="_messaging"), VERSION)
    bodies: list[bytes] = []

    def answer(request: bytes) -> bytes:
        ref = re.search(rb"MessageId>([^<]+)<", request)
        assert ref is not None
        return http_answer(200, bodies[-1].replace(b"REF@x", ref[1]))

    partner.answer = answer
    found = []
    for what, changed in variants(block.encode(), FEW):
        bodies.append(enveloped(changed, None))
        name = place.submit("answered")
        until(partial(_was_answered, place, name))
        if log.found:
            found.append(f"{what}: {log.found}")
            log.found.clear()
    assert not found, f"{len(found)} answers:\n" + "\n".join(found[:60])


def test_no_header_of_a_part_or_a_request_causes_an_unnamed_error(place: Town, log: Log) -> None:
    """Content-ID, Content-Type and the headers of HTTP that the endpoint reads."""
    good = order(place.new_id(), signed=False, action=PRICES)
    [part] = good.parts
    values = [text.replace("\r", "").replace("\n", " ")[:8000] for text in TEXTS]
    values += ["\0", "\xff", "=?utf-8?q?=00?=", '"; a="', "text/xml; charset=x\\", "bytes 9-1/0"]
    found = []
    for value in values:
        raw = {
            "Content-ID": replace(good, parts=(replace(part, content_id=value),)).wire(),
            "Content-Type": replace(good, parts=(replace(part, content_type=value),)).wire(),
            "encoding": replace(
                good, parts=(replace(part, headers=(("Content-Transfer-Encoding", value),)),)
            ).wire(),
            "start": good.wire(start=value.replace('"', "")),
        }
        for name in (
            "SOAPAction",
            "ETag",
            "Content-Range",
            "Content-Encoding",
            "Postroad-Stations",
        ):
            raw[name] = good.wire(head=f"{name}: {value}\r\n")
        for what, data in raw.items():
            answer = place.say(data)
            if answer.status >= 500 or log.found:
                found.append(f"{what} = {value[:40]!r}: {answer.status} {log.found}")
                log.found.clear()
    assert not found, f"{len(found)} answers:\n" + "\n".join(found[:60])
    place.good()
