"""Peers whose answers are half right: late, cut, about something else, with unknown codes.

A real node sends to a scripted peer. What it must say of each answer is taken from ebMS 3.0 Core,
from the AS4 profile and from the promises in docs/reliability.md.
"""

import base64
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.e2e.nodes import PATIENCE, until
from tests.interop.half_right import Scripted, World, journal, letter, running
from tests.interop.scripted_peer import (
    SOAP,
    Request,
    envelope,
    error,
    fault,
    receipt,
    response,
    signal,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("half_right")) as made:
        yield made


def signed_receipt(world: World, request: Request) -> bytes:
    return response(200, envelope(receipt(request), signer=world.seller))


def says(*units: str, status: int = 200) -> Scripted:
    """A signed signal; `ID` stands for the id of the message."""

    def answer(world: World, request: Request) -> bytes:
        written = [one.replace("ID", request.message_id) for one in units]
        return response(status, envelope(*written, signer=world.seller))

    return answer


def unsigned(unit: str) -> Scripted:
    """An unsigned error, as a partner sends it that cannot read the message."""
    return lambda _, request: response(200, envelope(signal(unit, ref=request.message_id)))


def raw(data: bytes) -> Scripted:
    return lambda _world, _request: data


def cut_receipt(world: World, request: Request) -> bytes:
    body = envelope(receipt(request), signer=world.seller)
    return response(200, body[: len(body) // 2], length=len(body))


def cut_receipt_that_claims_to_be_whole(world: World, request: Request) -> bytes:
    body = envelope(receipt(request), signer=world.seller)
    return response(200, body[: len(body) // 2])


def cut_chunked_receipt(world: World, request: Request) -> bytes:
    body = envelope(receipt(request), signer=world.seller)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {SOAP}\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"%x\r\n" % len(body) + body + b"\r\n"


def cut_multipart_receipt(world: World, request: Request) -> bytes:
    body = envelope(receipt(request), signer=world.seller)
    part = b"--b\r\nContent-Type: application/soap+xml\r\nContent-ID: <a@b>\r\n\r\n" + body
    kind = 'multipart/related; boundary=b; type="application/soap+xml"; start="<a@b>"'
    return response(200, part[:-100], kind)


def multipart_receipt(world: World, request: Request) -> bytes:
    body = envelope(receipt(request), signer=world.seller)
    part = b"--b\r\nContent-Type: application/soap+xml\r\nContent-ID: <a@b>\r\n\r\n" + body
    kind = 'multipart/related; boundary=b; type="application/soap+xml"; start="<a@b>"'
    return response(200, part + b"\r\n--b--\r\n", kind)


def receipt_with_status(status: int) -> Scripted:
    return lambda world, request: response(status, envelope(receipt(request), signer=world.seller))


def receipt_for_another_message(world: World, request: Request) -> bytes:
    return response(200, envelope(receipt(request, ref="other@buyer.example"), signer=world.seller))


def receipt_with_other_digests(world: World, request: Request) -> bytes:
    body = envelope(receipt(request)).decode()
    value = base64.b64encode(bytes(32)).decode()
    changed, count = re.subn(r"(<ds:DigestValue>)[^<]+", rf"\g<1>{value}", body)
    assert count
    unit = changed[changed.index("<eb:SignalMessage") : changed.index("</eb:Messaging>")]
    return response(200, envelope(unit, signer=world.seller))


def receipt_with_fewer_digests(world: World, request: Request) -> bytes:
    kept, count = re.subn(
        r"<ebbp:MessagePartNRInformation>.*?</ebbp:MessagePartNRInformation>",
        "",
        receipt(request),
        count=1,
    )
    assert count
    return response(200, envelope(kept, signer=world.seller))


def receipt_signed_by(who: str) -> Scripted:
    return lambda world, request: response(
        200, envelope(receipt(request), signer=getattr(world, who))
    )


def tampered_receipt(world: World, request: Request) -> bytes:
    body = envelope(receipt(request), signer=world.seller)
    return response(200, body.replace(b"@seller.example", b"@sellar.example"))


def unsigned_receipt(_world: World, request: Request) -> bytes:
    return response(200, envelope(receipt(request)))


def copy_receipt(world: World, request: Request) -> bytes:
    """A receipt of reception awareness, which copies eb:UserMessage instead of the digests."""
    [unit] = re.findall(rb"<eb:UserMessage.*</eb:UserMessage>", request.body, re.DOTALL)
    unit = unit.decode()
    made = signal(f"<eb:Receipt>{unit}</eb:Receipt>", ref=request.message_id)
    signed = b"<ds:Signature" in request.body
    return response(200, envelope(made, signer=world.seller if signed else None))


def two_receipts(world: World, request: Request) -> bytes:
    return response(200, envelope(receipt(request), receipt(request), signer=world.seller))


def receipt_and(*errors: str, ref: str | None = "ID") -> Scripted:
    def answer(world: World, request: Request) -> bytes:
        about = request.message_id if ref == "ID" else ref
        return response(
            200,
            envelope(signal("".join(errors), ref=about), receipt(request), signer=world.seller),
        )

    return answer


def user_message(world: World, _request: Request) -> bytes:
    kind, body = letter("plain").wire()
    return response(200, body, kind)


def wrong_case_receipt(world: World, request: Request) -> bytes:
    unit = receipt(request).replace("eb:Receipt>", "eb:receipt>")
    return response(200, envelope(unit, signer=world.seller))


HTML: Final = b"<html><head><title>Login</title></head><body>Please log in.</body></html>"

Case = tuple[Scripted, str, list[tuple[str, str | None]]]
NOT_ANSWERS: Final[dict[str, Case]] = {
    "closed unanswered": (raw(b""), "in_doubt", []),
    "no HTTP": (raw(b"ebMS 3.0 ready\r\n\r\n"), "in_doubt", []),
    "empty 200": (raw(response(200, content_type=None)), "in_doubt", []),
    "202": (raw(response(202, content_type=None)), "in_doubt", []),
    "204": (raw(b"HTTP/1.1 204 No Content\r\n\r\n"), "in_doubt", []),
    "half a receipt": (cut_receipt, "in_doubt", []),
    "half a receipt that claims to be whole": (
        cut_receipt_that_claims_to_be_whole,
        "in_doubt",
        [("error_raised", "EBMS:0009")],
    ),
    "chunked receipt without its end": (cut_chunked_receipt, "in_doubt", []),
    "multipart receipt without its end": (
        cut_multipart_receipt,
        "in_doubt",
        [("error_raised", "EBMS:0007")],
    ),
    "HTML page": (raw(response(200, HTML, "text/html")), "in_doubt", []),
    "HTML page with 404": (
        raw(response(404, HTML, "text/html")),
        "failed",
        [("error_received", None)],
    ),
    "HTML page with 503": (raw(response(503, HTML, "text/html")), "in_doubt", []),
    "redirect": (
        lambda w, _: response(307, content_type=None, fields=f"Location: {w.peer.url}/other\r\n"),
        "in_doubt",
        [],
    ),
    "SOAP fault of the receiver": (
        raw(response(200, envelope(body=fault("Receiver")))),
        "in_doubt",
        [],
    ),
    "SOAP fault of the receiver with 500": (
        raw(response(500, envelope(body=fault("Receiver")))),
        "in_doubt",
        [],
    ),
    "SOAP fault of the sender": (
        raw(response(200, envelope(body=fault("Sender")))),
        "failed",
        [("error_received", None)],
    ),
    "receipt for another message": (
        receipt_for_another_message,
        "in_doubt",
        [("error_raised", "EBMS:0302")],
    ),
    "receipt with other digests": (
        receipt_with_other_digests,
        "in_doubt",
        [("error_raised", "EBMS:0302")],
    ),
    "receipt with fewer digests": (
        receipt_with_fewer_digests,
        "in_doubt",
        [("error_raised", "EBMS:0302")],
    ),
    "receipt signed by another of the same authority": (
        receipt_signed_by("relative"),
        "in_doubt",
        [("error_raised", "EBMS:0101")],
    ),
    "receipt signed by a stranger": (
        receipt_signed_by("stranger"),
        "in_doubt",
        [("error_raised", "EBMS:0101")],
    ),
    "receipt changed after it was signed": (
        tampered_receipt,
        "in_doubt",
        [("error_raised", "EBMS:0101")],
    ),
    "unsigned receipt": (unsigned_receipt, "in_doubt", [("error_raised", "EBMS:0103")]),
    "receipt without digests": (copy_receipt, "in_doubt", [("error_raised", "EBMS:0302")]),
    "empty receipt": (
        says(signal("<eb:Receipt/>", ref="ID")),
        "in_doubt",
        [("error_raised", "EBMS:0302")],
    ),
    "receipt in the wrong case": (
        wrong_case_receipt,
        "in_doubt",
        [("error_raised", "EBMS:0009")],
    ),
    "user message": (user_message, "in_doubt", [("error_raised", "EBMS:0010")]),
    "unknown error code": (
        says(signal(error("EBMS:9999"), ref="ID")),
        "failed",
        [("error_received", "EBMS:9999")],
    ),
    "error code of another authority": (
        says(signal(error("PEPPOL:NOT_SERVICED"), ref="ID")),
        "failed",
        [("error_received", "PEPPOL:NOT_SERVICED")],
    ),
    "error with 500": (
        says(signal(error("EBMS:0103"), ref="ID"), status=500),
        "failed",
        [("error_received", "EBMS:0103")],
    ),
    "error about no message": (
        says(signal(error("EBMS:0009"), ref=None)),
        "failed",
        [("error_received", "EBMS:0009")],
    ),
    "error about another message": (
        says(signal(error("EBMS:0004"), ref="other@buyer.example")),
        "in_doubt",
        [("error_raised", "EBMS:0003")],
    ),
    "error of severity fatal": (
        says(signal(error("EBMS:0004", "fatal"), ref="ID")),
        "failed",
        [("error_received", "EBMS:0004")],
    ),
    "error of severity warning": (
        says(signal(error("EBMS:0002", "warning"), ref="ID")),
        "in_doubt",
        [("error_received", "EBMS:0002")],
    ),
    "empty error code": (
        says(signal(error(""), ref="ID")),
        "in_doubt",
        [("error_raised", "EBMS:0009")],
    ),
    "error that names two messages": (
        says(signal(error("EBMS:0004", refToMessageInError="other@buyer.example"), ref="ID")),
        "in_doubt",
        [("error_raised", "EBMS:0003")],
    ),
    "several errors": (
        says(signal(error("EBMS:0002", "warning") + error("EBMS:0001") + error("X:1"), ref="ID")),
        "failed",
        [
            ("error_received", "EBMS:0002"),
            ("error_received", "EBMS:0001"),
            ("error_received", "X:1"),
        ],
    ),
}


@pytest.mark.parametrize("name", NOT_ANSWERS)
def test_an_answer_that_is_half_right_is_told_as_what_it_is(world: World, name: str) -> None:
    """Without a valid receipt no message is acknowledged.

    EBMS:0301 MissingReceipt where none came, EBMS:0302 InvalidReceipt where it does not match what
    was sent (AS4 3.2); what the peer says is told with its own code.
    """
    answer, state, told = NOT_ANSWERS[name]
    message_id = world.send("proof", answer)
    status = world.client.status(message_id)
    assert (status.state, world.story(message_id)[2:-1]) == (state, told), status.detail
    assert status.detail
    story = world.story(message_id)
    assert [one for one, _ in story[:2]] == ["submitted", "sent"]
    if state == "in_doubt":
        raised = [code for event, code in told if event == "error_raised"]
        assert story[-1] == ("in_doubt", raised[0] if raised else "EBMS:0301")
    else:
        assert story[-1] == ("delivery_failed", status.error_code)
    assert world.notices(message_id) == [state]
    assert len(world.peer.requests(message_id)) == 1


ENOUGH: Final[dict[str, tuple[Scripted, list[tuple[str, str | None]]]]] = {
    "receipt": (signed_receipt, []),
    "receipt in a multipart of one part": (multipart_receipt, []),
    "receipt with 202": (receipt_with_status(202), []),
    "receipt with 500": (receipt_with_status(500), []),
    "two receipts": (two_receipts, [("receipt_received", None)]),
    "receipt and a warning": (
        receipt_and(error("EBMS:0002", "warning")),
        [("error_received", "EBMS:0002")],
    ),
    "receipt and a failure": (
        receipt_and(error("EBMS:0004")),
        [("error_received", "EBMS:0004")],
    ),
}


@pytest.mark.parametrize("name", ENOUGH)
def test_a_valid_receipt_acknowledges_whatever_stands_around_it(world: World, name: str) -> None:
    """The receipt proves that the message was received, and a proof is not taken back (AS4 3.3)."""
    answer, told = ENOUGH[name]
    message_id = world.send("proof", answer)
    status = world.client.status(message_id)
    assert status.state == "acknowledged", (status.detail, world.story(message_id))
    story = world.story(message_id)
    assert story[:2] == [("submitted", None), ("sent", None)]
    assert sorted(story[2:]) == sorted([*told, ("receipt_received", None)])
    assert world.notices(message_id) == []


def test_a_receipt_that_comes_after_the_timeout_is_not_heard_and_the_retry_is(
    world: World,
) -> None:
    late = threading.Event()

    def too_late(world: World, request: Request) -> bytes:
        late.wait(PATIENCE)
        return signed_receipt(world, request)

    message_id = world.submit("retried", too_late, signed_receipt)
    until(lambda: len(world.peer.requests(message_id)) == 2, "the retry")
    late.set()
    assert world.client.wait(message_id, PATIENCE).state == "acknowledged"
    assert [one for one, _ in world.story(message_id)] == [
        "submitted",
        "sent",
        "resent",
        "receipt_received",
    ]
    first, second = world.peer.requests(message_id)
    assert first == second
    assert world.notices(message_id) == []


def test_an_answer_that_was_no_use_stays_in_the_journal_when_the_retry_is_answered(
    world: World,
) -> None:
    message_id = world.send("retried", receipt_for_another_message, signed_receipt)
    assert world.client.status(message_id).state == "acknowledged"
    assert world.story(message_id)[1:] == [
        ("sent", None),
        ("error_raised", "EBMS:0302"),
        ("resent", None),
        ("receipt_received", None),
    ]
    [raised] = [one for one in world.client.events(message_id) if one.event == "error_raised"]
    assert "other@buyer.example" in (raised.detail or "")


def test_a_receipt_in_the_answer_to_another_message_moves_neither(world: World) -> None:
    """A receipt in the response is about the request (Core 2.2.4), so only that is asked for."""
    doubtful = world.send("proof", raw(response(202, content_type=None)))
    [first] = world.peer.requests(doubtful)

    def about_the_first(world: World, _request: Request) -> bytes:
        return signed_receipt(world, first)

    message_id = world.send("proof", about_the_first)
    assert world.client.status(message_id).state == "in_doubt"
    assert world.client.status(doubtful).state == "in_doubt"
    detail = world.client.status(message_id).detail or ""
    assert doubtful in detail


SILENT: Final[dict[str, tuple[Scripted, str]]] = {
    "nothing": (raw(response(202, content_type=None)), "sent"),
    "HTML page": (raw(response(200, HTML, "text/html")), "sent"),
    "SOAP without ebMS": (raw(response(200, envelope())), "sent"),
    "warning": (unsigned(error("EBMS:0002", "warning")), "sent"),
    "error": (unsigned(error("EBMS:9999")), "failed"),
    "receipt that was not asked for": (copy_receipt, "acknowledged"),
    "fault of the receiver": (raw(response(200, envelope(body=fault("Receiver")))), "in_doubt"),
    "status 500": (raw(response(500, content_type=None)), "in_doubt"),
}


@pytest.mark.parametrize("name", SILENT)
def test_where_no_receipt_is_agreed_on_none_is_missed(world: World, name: str) -> None:
    """EBMS:0301 is for a receipt that was agreed on and did not come (AS4 3.2)."""
    answer, state = SILENT[name]
    message_id = world.send("silent", answer)
    status = world.client.status(message_id)
    assert status.state == state, status.detail


def test_who_never_answers_in_time_leaves_the_message_in_doubt(world: World) -> None:
    late = threading.Event()

    def too_late(world: World, request: Request) -> bytes:
        late.wait(PATIENCE)
        return signed_receipt(world, request)

    message_id = world.send("impatient", too_late)
    late.set()
    told = [one for one, _ in world.story(message_id)]
    assert told == ["submitted", "sent", "resent", "in_doubt"]
    assert world.notices(message_id) == ["in_doubt"]
    trace = world.node.run("trace", message_id)
    assert trace.exit_code == 0
    assert "in_doubt" in trace.stdout
    shown = world.node.run("status", message_id)
    assert "in_doubt" in shown.stdout
    assert "EBMS:0301" in shown.stdout


def sent_for_callback(world: World, pmode: str) -> tuple[str, Request]:
    """A message whose receipt is to come later."""
    message_id = world.submit(pmode, raw(response(202, content_type=None)))
    until(lambda: bool(world.peer.requests(message_id)), "the message")
    [request] = world.peer.requests(message_id)
    return message_id, request


def test_a_receipt_after_the_message_was_given_up_settles_it_once(world: World) -> None:
    message_id, request = sent_for_callback(world, "later-soon-given-up")
    assert world.client.wait(message_id, PATIENCE).state == "in_doubt"
    written = envelope(receipt(request), signer=world.seller)
    for _ in range(2):
        told = world.post(SOAP, written)
        assert (told.status, told.codes) == (202, []), told.body
    assert world.client.status(message_id).state == "settled"
    assert [one for one, _ in world.story(message_id)] == [
        "submitted",
        "sent",
        "in_doubt",
        "receipt_received",
        "settled",
    ]
    assert world.notices(message_id) == ["in_doubt", "settled"]


def test_an_error_after_the_receipt_is_noted_and_takes_nothing_back(world: World) -> None:
    message_id, request = sent_for_callback(world, "later")
    for written in (
        envelope(receipt(request), signer=world.seller),
        envelope(receipt(request), signer=world.seller),
        envelope(signal(error("EBMS:0004"), ref=message_id), signer=world.seller),
    ):
        assert world.post(SOAP, written).codes == []
    assert world.client.status(message_id).state == "acknowledged"
    story = [one for one in world.story(message_id)[2:] if one[0] != "hop_acked"]
    assert story == [
        ("receipt_received", None),
        ("receipt_received", None),
        ("error_received", "EBMS:0004"),
    ]
    assert world.notices(message_id) == []


FALSE_SIGNALS: Final[dict[str, tuple[Callable[[World, Request], bytes], str]]] = {
    "receipt with other digests": (
        lambda w, r: receipt_with_other_digests(w, r).partition(b"\r\n\r\n")[2],
        "EBMS:0302",
    ),
    "receipt of a relative": (
        lambda w, r: envelope(receipt(r), signer=w.relative),
        "EBMS:0101",
    ),
    "unsigned receipt": (lambda _, r: envelope(receipt(r)), "EBMS:0103"),
    "unsigned error": (
        lambda _, r: envelope(signal(error("EBMS:0004"), ref=r.message_id)),
        "EBMS:0103",
    ),
    "error of a stranger": (
        lambda w, r: envelope(signal(error("EBMS:0004"), ref=r.message_id), signer=w.stranger),
        "EBMS:0101",
    ),
}


@pytest.mark.parametrize("name", FALSE_SIGNALS)
def test_a_signal_that_calls_back_and_is_not_believed_changes_nothing(
    world: World, name: str
) -> None:
    """It is told to the Producer, EBMS:0302 (AS4 3.2); no signal answers a signal."""
    made, code = FALSE_SIGNALS[name]
    message_id, request = sent_for_callback(world, "later-soon-given-up")
    told = world.post(SOAP, made(world, request))
    assert (told.status, told.body) == (202, b"")
    assert ("error_raised", code) in world.story(message_id)
    assert world.client.wait(message_id, PATIENCE).state == "in_doubt"
    assert world.notices(message_id) == ["in_doubt"]


def test_signals_about_no_message_of_ours_are_written_down(world: World) -> None:
    nobody = f"{uuid.uuid4()}@buyer.example"
    world.post(SOAP, envelope(signal(error("EBMS:9999"), ref=nobody), signer=world.seller))
    world.post(SOAP, envelope(signal("<eb:Receipt/>", ref=nobody), signer=world.seller))
    assert world.story(nobody) == []
    found = [one for one in journal(world) if nobody in (one["detail"] or "")]
    assert [(one["event"], one["error_code"]) for one in found] == [
        ("error_raised", "EBMS:0003"),
        ("error_raised", "EBMS:0003"),
    ]
    assert "EBMS:9999" in found[0]["detail"]
    assert "receipt" in found[1]["detail"]


def test_a_message_without_agreed_proof_takes_the_copy_as_its_receipt(world: World) -> None:
    """Reception awareness: the receipt has a copy of eb:UserMessage (AS4 5.1.8)."""
    assert world.client.status(world.send("unsigned", copy_receipt)).state == "acknowledged"


def test_a_copy_of_another_message_is_no_receipt(world: World) -> None:
    def other(world: World, request: Request) -> bytes:
        answer = copy_receipt(world, request).decode()
        head, _, inside = answer.partition("<eb:Receipt>")
        changed = head + "<eb:Receipt>" + inside.replace(request.message_id, "x@buyer.example")
        return response(200, changed.partition("\r\n\r\n")[2].encode())

    message_id = world.send("unsigned", other)
    assert world.story(message_id)[2:] == [("error_raised", "EBMS:0302"), ("in_doubt", "EBMS:0302")]
