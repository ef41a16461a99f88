"""A full disk, a locked database, wrong files, wrong submissions: told, and on it goes."""

import contextlib
import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from postroad.msh.answers import sent_message
from postroad.store import contents
from postroad.store.records import Side, State
from postroad.wire.ebms3 import MessageInfo, Property
from postroad.wire.receipts import nonrepudiation_receipt
from tests import pki
from tests.api import uploads
from tests.attack.messages import NOW, seller, soap
from tests.attack.network import (
    PATIENCE,
    STATUS,
    TOKEN,
    House,
    Partner,
    Town,
    http_answer,
    order,
    signal_message,
    until,
)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    """Here connections are what it is about."""


# Kinds of trouble; each ends with its context


def _no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


@contextlib.contextmanager
def _full_database(place: Town, house: House) -> Iterator[None]:
    """No more pages; what is written here is larger than what may be free."""

    async def most(pages: int) -> None:
        house.store._writer._database.execute(f"PRAGMA max_page_count = {pages}")

    place.run(most(1))
    try:
        yield
    finally:
        place.run(most(1_000_000))


@contextlib.contextmanager
def _full_disk(place: Town, house: House) -> Iterator[None]:
    """Not a byte can be written to any content."""
    del place, house
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents.os, "pwrite", _no_room)
        yield


@contextlib.contextmanager
def _no_flush(place: Town, house: House) -> Iterator[None]:
    """What was written does not get to the disk."""
    del place, house
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents.os, "fdatasync", _no_room)
        patch.setattr(contents.os, "fsync", _no_room)
        yield


@contextlib.contextmanager
def _locked(place: Town, house: House) -> Iterator[None]:
    """Somebody else holds the database."""
    before, house.store._writer.patience = house.store._writer.patience, 0.05
    folder = place.folder / house.node.name / "data"
    database = sqlite3.connect(folder / "postroad.db", isolation_level=None, timeout=PATIENCE)
    try:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")
    finally:
        database.close()
        house.store._writer.patience = before


Trouble = Callable[[Town, House], contextlib.AbstractContextManager[None]]
TROUBLES: Final[dict[str, Trouble]] = {
    "full database": _full_database,
    "full disk": _full_disk,
    "flush fails": _no_flush,
    "locked": _locked,
}
NOTE: Final = (Property("note", "y" * 60_000),)


# What comes in


@pytest.mark.parametrize("kind", TROUBLES)
@pytest.mark.parametrize("size", [20, 700_000, 2_000_000], ids=["small", "spooled", "large"])
def test_what_cannot_be_stored_is_not_acknowledged_and_can_come_again(
    place: Town, kind: str, size: int
) -> None:
    name = place.new_id()
    message = order(name, os.urandom(size), properties=NOTE)
    mark = place.mark()
    with TROUBLES[kind](place, place.seller):
        answer = place.post(message)
        assert (answer.status, answer.codes) == (503, ["EBMS:0202"])
        assert "send it again later" in (answer.errors[0].error_detail or "")
        assert int(answer.headers["retry-after"]) > 0
        assert place.message(name) is None
    assert place.told(mark) == []
    again = place.post(message)
    assert again.is_receipt, again.errors
    assert place.events(name) == ["received", "delivered", "receipt_sent"]
    place.good()


def test_what_is_refused_without_room_is_not_written_down_but_told(place: Town) -> None:
    with _full_disk(place, place.seller):
        assert place.say(soap(b"<x/>")).codes == ["EBMS:0009"]
        answer = place.post(order(place.new_id(), at=NOW - timedelta(days=400)))
        assert (answer.status, answer.codes) == (503, ["EBMS:0202"])
    place.good()


def test_nothing_of_what_found_no_room_is_left_behind(place: Town) -> None:
    data = place.folder / "seller" / "data"
    before = _files(data)
    with _no_flush(place, place.seller):
        for _ in range(3):
            assert place.post(order(place.new_id(), os.urandom(2_000_000))).status == 503
    # The last one may still be on its way out.
    until(lambda: _files(data) <= before)


def _files(data: Path) -> set[Path]:
    """Contents with a file of their own, and what is on its way to become one."""
    found = {one for one in (data / "payloads").rglob("*") if one.is_file()}
    return found | {one for one in (data / "incoming").rglob("[ft]*-*") if one.is_file()}


def test_a_receipt_that_cannot_be_stored_can_come_again(place: Town) -> None:
    partner = Partner(place)
    partner.agree("captured", called_back=True)
    name = place.submit("captured")
    until(lambda: _sent_state(place, name) is State.WAITING)
    stored = place.message(name, Side.SENDING)
    assert stored is not None
    assert stored.envelope is not None
    sent = sent_message(b"".join(place.buyer.store.content(stored.envelope).chunks()))
    info = MessageInfo(NOW, "the-receipt@seller.example", name)
    receipt = soap(
        signal_message(nonrepudiation_receipt(sent.references, message_info=info), seller())
    )
    with _full_disk(place, place.buyer):
        assert place.say(receipt, "buyer").status == 503
        assert _sent_state(place, name) is State.WAITING
    assert place.say(receipt, "buyer").status == 202
    assert _sent_state(place, name) is State.ACKNOWLEDGED
    partner.close()


def _sent_state(place: Town, name: str) -> State:
    found = place.message(name, Side.SENDING)
    assert found is not None
    return found.state


def test_an_answer_that_could_not_be_stored_is_asked_for_again(place: Town) -> None:
    """The message was delivered, and its sender had no room to note the receipt."""
    partner = Partner(place)
    partner.agree("answered")
    trouble = contextlib.ExitStack()

    def answer(body: bytes) -> bytes:
        if len(partner.requests) == 1:
            trouble.enter_context(_full_disk(place, place.buyer))
        envelope = body[body.index(b"<?xml") : body.index(b"</S12:Envelope>") + 15]
        sent = sent_message(envelope)
        ref = sent.user_message.message_info.message_id
        info = MessageInfo(NOW, f"receipt-{len(partner.requests)}@seller.example", ref)
        receipt = nonrepudiation_receipt(sent.references, message_info=info)
        return http_answer(200, signal_message(receipt, seller()))

    partner.answer = answer
    with trouble:
        name = place.submit("answered")
        until(lambda: bool(place.buyer.node.context.let_go))
        assert _sent_state(place, name) is State.READY
    assert place.settled(name).state is State.ACKNOWLEDGED
    first, second = partner.requests
    assert first == second
    assert place.run(place.buyer.node.health()).figures.work == {}
    partner.close()


# What applications submit


def _submit(place: Town, *parts: bytes, **fields: Any) -> httpx.Response:
    given = uploads.metadata(**({"pmode": "order"} | fields))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=place.buyer.url, headers=headers, timeout=PATIENCE) as http:
        return uploads.post(http, uploads.body(given, *parts))


PAYLOAD: Final = uploads.part("payload", b"one hundred apples", "Content-Type: text/plain")


def _passes(place: Town) -> str:
    """A good submission goes all the way."""
    given = _submit(place, PAYLOAD)
    assert given.status_code == 202, given.text
    name = str(given.json()["message_id"])
    assert place.settled(name).state is State.ACKNOWLEDGED
    assert name in place.inbox()
    return name


@pytest.mark.parametrize("kind", TROUBLES)
@pytest.mark.parametrize("size", [20, 2_000_000], ids=["small", "large"])
def test_a_submission_that_cannot_be_stored_is_not_accepted_and_can_come_again(
    place: Town, kind: str, size: int
) -> None:
    name = place.new_id()
    payload = uploads.part("payload", os.urandom(size))
    note = [{"name": f"note-{number}", "value": "y" * 16_000} for number in range(30)]
    mark = place.mark("buyer")
    with TROUBLES[kind](place, place.buyer):
        given = _submit(place, payload, message_id=name, properties=note)
        assert given.status_code == 503, given.text
        assert int(given.headers["retry-after"]) > 0
        assert "again" in given.json()["detail"]
        assert place.message(name, Side.SENDING) is None
    assert place.told(mark, "buyer") == []
    given = _submit(place, payload, message_id=name, properties=note)
    assert given.status_code == 202, given.text
    assert place.settled(name).state is State.ACKNOWLEDGED


WRONG: Final[dict[str, tuple[dict[str, Any], tuple[bytes, ...], int, str]]] = {
    "an unknown P-Mode": ({"pmode": "nobody"}, (PAYLOAD,), 422, "nobody"),
    "a P-Mode of another sender": ({"pmode": "rival"}, (PAYLOAD,), 422, "rival"),
    "a payload that is missing": ({"payloads": [{"part": "other"}]}, (PAYLOAD,), 422, "other"),
    "a huge property": (
        {"properties": [{"name": "note", "value": "y" * 200_000}]},
        (PAYLOAD,),
        422,
        "properties",
    ),
    "a thousand properties": (
        {"properties": [{"name": f"n{n}", "value": "y"} for n in range(1000)]},
        (PAYLOAD,),
        422,
        "properties",
    ),
    "an id that is none": ({"message_id": "a b@c"}, (PAYLOAD,), 400, "id"),
    "a property that is no XML": (
        {"properties": [{"name": "note", "value": "\x00"}]},
        (PAYLOAD,),
        422,
        "U+0000",
    ),
    "an address of its own": ({"address": "http://127.0.0.1:9/"}, (PAYLOAD,), 422, "address"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_submission_is_refused_and_leaves_nothing(place: Town, name: str) -> None:
    fields, parts, status, word = WRONG[name]
    mark = place.mark("buyer")
    given = _submit(place, *parts, **fields)
    assert given.status_code == status, given.text
    told = given.json()
    assert word in json.dumps(told)
    assert told["detail"]
    assert place.told(mark, "buyer") == []
    _passes(place)


# Files that change


def _pmodes(place: Town, who: str = "seller") -> Path:
    return place.folder / who / "pmodes"


BROKEN: Final = {
    "no YAML": "id: [unclosed",
    "an unknown parameter": "id: new\nmep: oneWay\nlegs: [{teleport: true}]\n",
    "the id of another": None,
    "a certificate that is not there": "missing.pem",
    "a certificate that is none": "authority.txt",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_p_mode_file_with_an_error_leaves_the_old_ones_in_force(place: Town, how: str) -> None:
    folder = _pmodes(place)
    order_text = (folder / "order.yaml").read_text()
    said = BROKEN[how]
    if said is None:
        said = order_text
    elif said.endswith((".pem", ".txt")):
        (place.folder / "seller" / "keys" / "authority.txt").write_text("no certificate")
        said = order_text.replace("buyer.pem", said).replace("id: order", "id: new")
    (folder / "new.yaml").write_text(said)
    try:
        outcome = place.run(place.seller.node.reload())
        assert not outcome.ok
        assert outcome.problems
        assert str(place.folder) in outcome.problems[0], "it says which file"
        place.good()
        assert len(place.seller.node.pmodes()) == 6
    finally:
        (folder / "new.yaml").unlink()
    assert place.run(place.seller.node.reload()).ok
    place.good()


def test_a_p_mode_that_was_taken_away_is_no_longer_taken(place: Town) -> None:
    file = _pmodes(place) / "status.yaml"
    kept = file.with_suffix(".kept")
    name = place.new_id()
    assert place.post(order(name, action=STATUS)).is_receipt
    shutil.move(file, kept)
    try:
        assert place.run(place.seller.node.reload()).ok
        place.refuses(order(place.new_id(), action=STATUS), "EBMS:0010")
    finally:
        shutil.move(kept, file)
    assert place.run(place.seller.node.reload()).ok
    assert place.post(order(name, action=STATUS)).is_receipt
    assert place.events(name).count("delivered") == 1


def test_a_key_file_with_an_error_leaves_the_old_key_in_force(place: Town) -> None:
    file = place.folder / "seller" / "keys" / "seller.pem"
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 2])
    try:
        assert not place.run(place.seller.node.reload()).ok
        place.good()
    finally:
        file.write_bytes(good)
    assert place.run(place.seller.node.reload()).ok
    place.good()


# Certificates that came to their end


def test_a_partner_whose_certificate_expired_is_refused_until_it_has_another(place: Town) -> None:
    clock = place.seller.clock
    later = NOW + timedelta(days=3 * 365)
    clock.ahead = later - NOW
    try:
        name = place.new_id()
        answer = place.post(order(name, at=later))
        assert answer.codes == ["EBMS:0101"]
        assert "expired" in (answer.errors[0].error_detail or "")
        assert place.events(name) == ["error_raised", "rejected"]
    finally:
        clock.ahead = timedelta(0)
    place.good()


def test_a_receipt_of_an_expired_certificate_is_not_believed(place: Town) -> None:
    """The buyer's clock is right; the seller's key is past its time."""
    old = pki.issue(
        pki.authority("Attack CA"),
        "seller",
        key="rsa",
        label="attack seller",
        not_after=NOW - timedelta(days=1),
    )
    partner = Partner(place)
    partner.agree("answered")
    file = place.folder / "buyer" / "keys" / "seller.pem"
    good = file.read_bytes()
    file.write_bytes(pki.pem_certificates(old.certificate))
    assert place.run(place.buyer.node.reload()).ok

    def answer(body: bytes) -> bytes:
        envelope = body[body.index(b"<?xml") : body.index(b"</S12:Envelope>") + 15]
        sent = sent_message(envelope)
        info = MessageInfo(NOW, "late@seller.example", sent.user_message.message_info.message_id)
        receipt = nonrepudiation_receipt(sent.references, message_info=info)
        return http_answer(200, signal_message(receipt, old))

    partner.answer = answer
    try:
        name = place.submit("answered")
        found = place.settled(name)
        assert (found.state, found.error_code) == (State.IN_DOUBT, "EBMS:0101")
        assert "expired" in (found.detail or "")
    finally:
        file.write_bytes(good)
        assert place.run(place.buyer.node.reload()).ok
        partner.close()
    _passes(place)
