"""Our own signing key: not used once its certificate expired, and replaced under way."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from postroad.node.steps.bundle_rows import share_envelope
from postroad.security.keys import KeyPair
from postroad.store.records import State
from tests import pki
from tests.node import test_wsreliability as wsreliability
from tests.node.bundled import NAMES, UPDATES, bundling, units
from tests.node.collecting import collect, pull, request
from tests.node.founding import found
from tests.node.reliable import (
    BEGIN,
    BUYER,
    SELLER,
    SOAP,
    Held,
    Station,
    World,
    played,
    refused,
    reply_lost,
)
from tests.node.sequences import agree as agree_on_sequences
from tests.node.sequences import kind_of, unless
from tests.node.splitting import PAYLOAD, splitting
from tests.node.test_splitting_exchange import verdict_of

M = "m@buyer"
CA = pki.authority("Own CA", not_before=BEGIN - timedelta(days=1))
HOUR = timedelta(hours=1)
RETRY: dict[str, Any] = {"max_retries": 1, "timeout": "PT5S", "period": "PT10S"}
SAID = "keys or P-Mode changed since it was signed"
SPEAKING = ("as4", "encrypted", "wsrm", "ws-reliability", "ebxml")


def key(label: str, begin: datetime, end: datetime, of: str = BUYER) -> KeyPair:
    return pki.issue(CA, of, key="rsa", label=label, not_before=begin, not_after=end)


OLD = key("old", BEGIN - HOUR, BEGIN + HOUR)
NEW = key("new", BEGIN - HOUR, BEGIN + 1000 * HOUR)
LATE = key("late", BEGIN + HOUR, BEGIN + 1000 * HOUR)
"""Issued when the old certificate expired, after messages were made."""


def replace_key(world: World, pair: KeyPair, *, of: str = BUYER) -> None:
    """Somebody signs with this key, and both know its certificate."""
    if not (world.folder / BUYER / "keys").exists():
        found(world.folder, BEGIN)
    for name in (BUYER, SELLER):
        folder = world.folder / name / "keys"
        (folder / f"{of}.pem").write_bytes(pki.pem_certificates(pair.certificate))
    file = world.folder / of / "keys" / f"{of}.p12"
    file.write_bytes(pki.p12(pair))
    file.chmod(0o600)


async def reload(*stations: Station) -> None:
    for one in stations:
        assert (await one.node.reload()).ok


def agree(world: World, speaking: str) -> None:
    if speaking == "wsrm":
        agree_on_sequences(world, signed=True, retry=RETRY)
    elif speaking == "ws-reliability":
        # Its messages say until when they are sent, and are refused after that.
        wsreliability.agree(world, signed=True, retry=RETRY | {"timeout": "PT2M", "period": "PT2M"})
    elif speaking == "ebxml":
        reliable = {"delivery_semantics": "OnceAndOnlyOnce", "ack_requested": "Signed"}
        world.speak(signed=True, retry=RETRY, version="1.0", **reliable)
    else:
        world.agree(signed=True, retry=RETRY)
    if speaking == "encrypted":
        for station in (BUYER, SELLER):
            security = world._pmodes[station][-1]["legs"][0]["security"]
            encryption = {"encrypt": True, "certificate": "../keys/seller.pem"}
            if station == SELLER:
                encryption["key"] = "../keys/seller.p12"
            security["x509"]["encryption"] = encryption


@pytest.mark.parametrize("speaking", SPEAKING)
@played
async def test_nothing_is_sent_with_an_expired_certificate_until_it_is_replaced(
    world: World, speaking: str
) -> None:
    agree(world, speaking)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    await world.wait(HOUR.total_seconds() + 60)
    await buyer.send(M)
    await world.wait(1)
    message = await buyer.message(M)
    assert message.state in (State.SUBMITTED, State.READY)
    assert "our certificate" in (message.detail or "")
    assert "expired at" in (message.detail or "")
    assert world.wire.to(SELLER) == []
    replace_key(world, NEW)
    await reload(buyer, seller)
    await world.wait(70)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]
    assert (await buyer.message(M)).detail is None


@pytest.mark.parametrize("speaking", SPEAKING)
@played
async def test_a_failed_message_is_resent_with_the_new_signature(
    world: World, speaking: str
) -> None:
    agree(world, speaking)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    in_sequence = unless(lambda one: kind_of(one) == "message", refused)
    world.wire.usual[SELLER] = in_sequence if speaking == "wsrm" else refused
    await buyer.send(M)
    await world.wait(150)
    assert await buyer.state(M) is State.FAILED
    world.wire.usual.clear()
    replace_key(world, NEW)
    await reload(buyer, seller)
    await buyer.process.ask(buyer.node.resend(M))
    # A sequence belongs to who signed its creation: the message goes into another one.
    await world.wait(30)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_the_journal_says_that_a_message_was_signed_again(world: World) -> None:
    agree(world, "as4")
    replace_key(world, OLD)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = refused
    await buyer.send(M)
    await world.wait(120)
    world.wire.usual.clear()
    replace_key(world, NEW)
    await reload(buyer, seller)
    await buyer.process.ask(buyer.node.resend(M))
    await world.wait(5)
    *_, again, left, _ = await buyer.events(M)
    assert (again.event, again.detail) == ("signed_again", SAID)
    assert left.event == "resent"
    assert again.evidence == left.evidence


@pytest.mark.parametrize("kind", ["message", "bundle", "fragment"])
@played
async def test_the_journal_says_it_when_a_node_dies_while_it_sends_the_new_signature(
    world: World, kind: str
) -> None:
    """The step that keeps the new bytes writes the event."""
    more: dict[str, Any] = {}
    if kind != "message":
        more = {"splitting": splitting(), "receipt": "callback"}
        if kind == "bundle":
            more = {"bundling": bundling()}
    world.agree(UPDATES, signed=True, retry=RETRY | {"max_retries": 9}, **more)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = refused
    for name in NAMES if kind == "bundle" else (M,):
        await buyer.send(name, UPDATES, payload=PAYLOAD if kind == "fragment" else b"it")
    await world.until(8)
    assert world.wire.to(SELLER)
    replace_key(world, NEW)
    await reload(buyer, seller)
    world.wire.usual[SELLER] = Held()
    await world.until(100)
    buyer.kill()
    buyer = await world.start(BUYER)
    before = {one.message_id for one in await buyer.journal("signed_again")}
    assert before
    world.wire.usual.clear()
    await world.wait(200)
    assert await seller.inbox() == (list(NAMES) if kind == "bundle" else [M])
    again = [one.message_id for one in await buyer.journal("signed_again")]
    assert (
        len(again) == len(set(again)) == {"message": 1, "bundle": len(NAMES), "fragment": 4}[kind]
    )
    assert before <= set(again)


@played
async def test_the_evidence_of_a_message_that_was_signed_with_a_later_certificate_holds(
    world: World,
) -> None:
    agree(world, "as4")
    replace_key(world, OLD)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = reply_lost
    await buyer.send(M)
    await world.wait(HOUR.total_seconds() + 60)
    world.wire.usual.clear()
    replace_key(world, LATE)
    await reload(buyer, seller)
    await buyer.process.ask(buyer.node.resend(M))
    await world.wait(5)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    verdict = verdict_of(await buyer.node.evidence(M))
    assert verdict["holds"] is True, verdict["errors"]


@pytest.mark.parametrize("speaking", ["as4", "encrypted", "ebxml"])
@played
async def test_the_receipt_for_an_earlier_copy_fits_the_new_signature(
    world: World, speaking: str
) -> None:
    agree(world, speaking)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = reply_lost
    await buyer.send(M)
    await world.wait(120)
    assert await buyer.state(M) is State.IN_DOUBT
    world.wire.usual.clear()
    replace_key(world, NEW)
    await reload(buyer, seller)
    await buyer.process.ask(buyer.node.resend(M))
    await world.wait(5)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


@played
async def test_a_message_is_sent_again_as_it_was_while_nothing_changed(world: World) -> None:
    agree(world, "encrypted")
    replace_key(world, OLD)
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = reply_lost
    await buyer.send(M)
    await world.wait(30)
    first, second = (one.body for one in world.wire.to(SELLER))
    assert first == second


@played
async def test_a_message_that_is_pulled_is_not_handed_out_with_an_expired_certificate(
    world: World,
) -> None:
    collect(world, signed=True)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    await buyer.send(M)
    await world.wait(HOUR.total_seconds() + 60)
    assert await pull(seller) == ()
    assert await buyer.story(M) == ["submitted", "queued"]
    replace_key(world, NEW)
    await reload(buyer, seller)
    assert await pull(seller) == (M,)
    await world.wait(2)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]
    [again, left] = await buyer.journal("signed_again", "sent")
    assert (again.event, again.detail, again.evidence) == ("signed_again", SAID, left.evidence)


@played
async def test_a_message_is_pulled_again_as_it_was_while_its_receipt_may_come(
    world: World,
) -> None:
    """Other digests would not fit the receipt of the copy that may have arrived."""
    collect(world, signed=True)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    await buyer.send(M)
    first = await buyer.receive(SOAP, request(seller))
    pmode = world.folder / BUYER / "pmodes" / "all.yaml"
    changed = pmode.read_text().replace('"hash_function": "sha256"', '"hash_function": "sha512"')
    assert changed != pmode.read_text()
    pmode.write_text(changed)
    await reload(buyer)
    await world.until(11)
    again = await buyer.receive(SOAP, request(seller))
    assert again.body == first.body


@played
async def test_a_bundle_is_signed_again_with_the_new_key(world: World) -> None:
    world.agree(UPDATES, bundling=bundling(), signed=True, retry=RETRY | {"max_retries": 5})
    replace_key(world, OLD)
    buyer, seller = await world.both()
    world.wire.usual[SELLER] = refused
    for name in NAMES:
        await buyer.send(name, UPDATES)
    await world.until(8)
    assert world.wire.to(SELLER)
    replace_key(world, NEW)
    await reload(buyer, seller)
    world.wire.usual.clear()
    await world.wait(60)
    assert sorted(await seller.inbox()) == list(NAMES)
    assert {await buyer.state(one) for one in NAMES} == {State.ACKNOWLEDGED}
    again = await buyer.journal("signed_again")
    assert [(one.message_id, one.detail) for one in again] == [(name, SAID) for name in NAMES]
    assert units(world.wire.to(SELLER)[-1]) == list(NAMES)


@played
async def test_a_bundle_is_pulled_again_with_the_new_signature(world: World) -> None:
    collect(world, UPDATES, bundling=bundling(), signed=True)
    replace_key(world, OLD)
    buyer, seller = await world.both()
    for name in NAMES:
        await buyer.send(name, UPDATES)
    first = await buyer.receive(SOAP, request(seller, UPDATES))
    assert NAMES[0].encode() in first.body
    replace_key(world, NEW)
    await reload(buyer, seller)
    await world.until(11)
    assert await pull(seller, UPDATES) == NAMES
    await world.wait(2)
    assert {await buyer.state(one) for one in NAMES} == {State.ACKNOWLEDGED}
    again = await buyer.journal("signed_again")
    assert [(one.message_id, one.detail) for one in again] == [(name, SAID) for name in NAMES]


@played
async def test_an_envelope_is_replaced_only_if_nobody_else_replaced_it_meanwhile(
    world: World,
) -> None:
    """Or the one that was there would be dropped twice, and with it what lies beside it."""
    world.agree(signed=True)
    world.wire.usual[SELLER] = refused
    buyer = await world.start(BUYER)
    await buyer.send(M)
    before = (await buyer.message(M),)
    store = buyer.node.context.store
    again = await store.run(lambda tx: share_envelope(tx, before, b"first", None))
    assert again is not None
    assert await store.run(lambda tx: share_envelope(tx, before, b"second", None)) is None
    assert (await buyer.message(M)).envelope == again[0].envelope
