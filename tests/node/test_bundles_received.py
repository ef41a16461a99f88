"""Bundles that come in: units, one step, one answer."""

import re
from pathlib import Path
from typing import Final

import pytest
from lxml import etree

import postroad
from postroad.msh.answers import error
from postroad.store.records import Side, State
from postroad.wire.errors import EbmsError
from postroad.wire.names import EB3
from tests.node.bundling import (
    BUNDLING,
    PLAIN,
    SIGNED,
    agree,
    opened,
    parties,
    said,
    signal_ids,
)
from tests.node.exchange import BUYER, SELLER, make_parties, run

CONVERSATIONS: Final = {
    "policy": "documentorder",
    "scope": ["eb3:CollaborationInfo/eb3:ConversationId"],
}
COMPARED: Final = {"duplicate_detection": {"compare": "contents"}}
"""Other contents under a known id are refused."""
DELIVERED, REJECTED = State.DELIVERED, State.REJECTED


@pytest.mark.req("P2-3.1.3-01", "P2-3.1.3-02", "P2-3.8-03", "P2-3.8-04")
def test_units_are_received_as_if_each_had_come_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        bundles = await parties(tmp_path)
        response = await bundles.bundle(*(bundles.unit(name) for name in "abc"))
        assert said(response) == {"a": "receipt", "b": "receipt", "c": "receipt"}
        assert await bundles.inbox() == ["a", "b", "c"]
        for name in "abc":
            assert await bundles.events(name) == ["received", "delivered", "receipt_sent"]
            message = await bundles.kept(name)
            assert message is not None
            [part] = message.parts
            assert part.content_id == f"part-{name}"
            rows = await bundles.exchange.stores[SELLER].look(
                lambda reader, name=name: reader.events(name)  # type: ignore[misc]
            )
            assert rows[0].event.envelope == "a"

    run(scenario())


@pytest.mark.req("P2-3.2.2-04")
def test_a_unit_gets_a_receipt_where_its_own_pmode_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        make_parties(tmp_path)
        silent = {"security": {"send_receipt": {"enabled": False}}, "reception_awareness": False}
        agree(tmp_path, PLAIN, **silent)
        agree(tmp_path, SIGNED)
        bundles = await opened(tmp_path)
        units = [bundles.unit("a"), bundles.unit("b", pmode=PLAIN), bundles.unit("c")]
        assert said(await bundles.bundle(*units)) == {"a": "receipt", "c": "receipt"}
        assert await bundles.inbox() == ["a", "b", "c"]
        assert await bundles.events("b") == ["received", "delivered"]

    run(scenario())


@pytest.mark.req("P2-3.1.3-05", "P2-3.10.3-01", "P2-3.10.3-02", "P2-3.10.3-03", "P2-3.10.3-04")
@pytest.mark.req("P2-3.5-01", "P2-7.2-05")
def test_the_example_of_the_specification_to_the_letter(tmp_path: Path) -> None:
    async def scenario() -> None:
        bundles = await parties(tmp_path, CONVERSATIONS, reception_awareness=COMPARED)
        await bundles.bundle(bundles.unit("3", "C1", b"another one"))
        units = [
            bundles.unit(name, conversation)
            for name, conversation in zip("12345", ("C1", "C2", "C1", "C1", "C2"), strict=True)
        ]
        response = await bundles.bundle(*units)
        assert said(response) == {
            "1": "receipt",
            "2": "receipt",
            "3": "EBMS:0003",
            "4": "EBMS:0031",
            "5": "receipt",
        }
        errors = etree.fromstring(response.body).iter(f"{{{EB3}}}Error")
        [related] = (one for one in errors if one.get("errorCode") == "EBMS:0031")
        assert related.get("severity") == "failure"
        assert related.get("category") == "Processing"
        assert related.get("shortDescription") == "RelatedMessageFailed"
        assert await bundles.states("1", "2", "4", "5") == [
            DELIVERED,
            DELIVERED,
            REJECTED,
            DELIVERED,
        ]

    run(scenario())


@pytest.mark.req("P2-3.5-02", "P2-7.2-03")
def test_a_bundle_that_breaks_its_pmodes_is_refused_whole_and_its_units_may_come_again(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        bundles = await parties(tmp_path)
        old = bundles.unit("a")
        bundles.exchange.clock.wait(11)
        new = bundles.unit("b")
        assert said(await bundles.bundle(new, old)) == {"b": "EBMS:0030"}
        assert await bundles.states("a", "b") == [REJECTED, REJECTED]
        assert said(await bundles.bundle(old)) == {"a": "receipt"}
        assert await bundles.states("a", "b") == [DELIVERED, REJECTED]

    run(scenario())


def test_units_are_delivered_in_their_order_also_where_one_was_refused_before(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        bundles = await parties(tmp_path)
        old = bundles.unit("x")
        bundles.exchange.clock.wait(11)
        refused = bundles.unit("b")
        assert said(await bundles.bundle(refused, old)) == {"b": "EBMS:0030"}
        await bundles.bundle(bundles.unit("a"), refused, bundles.unit("c"))
        assert await bundles.inbox() == ["a", "b", "c"]
        assert await bundles.events("c") == ["received", "delivered", "receipt_sent"]

    run(scenario())


def test_a_copy_of_a_bundle_gets_the_first_answer_byte_for_byte(tmp_path: Path) -> None:
    async def scenario() -> None:
        bundles = await parties(tmp_path)
        body = bundles.body(*(bundles.unit(name) for name in "abc"))
        first = await bundles.receive(body)
        bundles.exchange.clock.wait(5)
        again = await bundles.receive(body)
        assert (again.body, again.content_type) == (first.body, first.content_type)
        assert await bundles.inbox() == ["a", "b", "c"]
        assert (await bundles.events("b"))[-1] == "duplicate"

    run(scenario())


def test_a_unit_that_came_before_gets_its_first_receipt_and_its_neighbours_are_new(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        bundles = await parties(tmp_path)
        twice = bundles.unit("b")
        first = await bundles.bundle(twice)
        response = await bundles.bundle(bundles.unit("a"), twice, bundles.unit("c"))
        assert said(response) == {"a": "receipt", "b": "receipt", "c": "receipt"}
        assert signal_ids(response)["b"] == signal_ids(first)["b"]
        assert await bundles.inbox() == ["b", "a", "c"]

    run(scenario())


def test_a_unit_that_was_built_anew_gets_its_first_receipt(tmp_path: Path) -> None:
    async def scenario() -> None:
        bundles = await parties(tmp_path)
        first = await bundles.bundle(bundles.unit("b", content=b"the first"))
        response = await bundles.bundle(*(bundles.unit(name) for name in "abc"))
        assert said(response) == {"a": "receipt", "b": "receipt", "c": "receipt"}
        assert signal_ids(response)["b"] == signal_ids(first)["b"]
        events = await bundles.events("b")
        assert (events.count("delivered"), events[-1]) == (1, "duplicate")

    run(scenario())


def test_another_message_under_a_known_id_fails_alone_where_contents_are_compared(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        bundles = await parties(tmp_path, reception_awareness=COMPARED)
        await bundles.bundle(bundles.unit("b", content=b"the first"))
        response = await bundles.bundle(*(bundles.unit(name) for name in "abc"))
        assert said(response) == {"a": "receipt", "b": "EBMS:0003", "c": "receipt"}

    run(scenario())


@pytest.mark.req("P2-3.8-02", "P2-3.8-05", "P2-7.2-05")
def test_receipts_that_are_not_the_response_call_back_where_the_primary_says(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        make_parties(tmp_path)
        agree(
            tmp_path,
            PLAIN,
            security={
                "send_receipt": {
                    "reply_pattern": "callback",
                    "reply_to": "http://buyer.example/msh",
                }
            },
        )
        both = {"compatibility": {"pmode_list": [SIGNED, PLAIN]}}
        agree(tmp_path, SIGNED, bundling=BUNDLING | both)
        bundles = await opened(tmp_path)
        units = [bundles.unit("a", pmode=PLAIN), bundles.unit("b", pmode=SIGNED)]
        response = await bundles.bundle(*units, pmode=PLAIN)
        assert (response.status, response.body) == (202, b"")
        assert await bundles.states("a", "b") == [DELIVERED, DELIVERED]
        figures = await bundles.exchange.stores[SELLER].look(lambda reader: reader.figures())
        assert figures.work["signal"] == 2

    run(scenario())


def test_signals_beside_a_user_message_are_heard(tmp_path: Path) -> None:
    async def scenario() -> None:
        bundles = await parties(tmp_path)
        exchange = bundles.exchange
        sent = await exchange.send("m@buyer.example", ("text/plain", b"hello"), kind="plain")
        now = exchange.clock()
        told = EbmsError("EBMS:0010", "not agreed")
        signal = error([told], signal_id="e@seller", ref=sent.message_id, now=now)
        body = bundles.body(bundles.unit("a"), signals=[signal])
        await bundles.receive(body, at=BUYER)
        found = await exchange.stores[BUYER].look(
            lambda reader: reader.signals(Side.SENDING, sent.message_id)
        )
        assert [one.signal_id for one in found] == ["e@seller"]
        response = await bundles.receive(body)
        assert said(response) == {"a": "receipt"}
        assert await bundles.inbox() == ["a"]

    run(scenario())


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "between", "last"])
def test_signals_are_heard_wherever_they_stand_among_user_messages(
    tmp_path: Path, place: int
) -> None:
    async def scenario() -> None:
        make_parties(tmp_path)
        agree(tmp_path, PLAIN, bundling=BUNDLING | {"compatibility": {"pmode_list": [PLAIN]}})
        bundles = await opened(tmp_path)
        exchange = bundles.exchange
        sent = await exchange.send("m@buyer.example", ("text/plain", b"hello"), kind="plain")
        told = EbmsError("EBMS:0010", "not agreed")
        signal = error([told], signal_id="e@seller", ref=sent.message_id, now=exchange.clock())
        units = [bundles.unit(name, pmode=PLAIN) for name in ("a", "b")]
        content_type, body = bundles.body(*units, pmode=PLAIN, signals=[signal])
        mixed = content_type, _with_the_signal_at(place, body)
        await bundles.receive(mixed, at=BUYER)
        found = await exchange.stores[BUYER].look(
            lambda reader: reader.signals(Side.SENDING, sent.message_id)
        )
        assert [one.signal_id for one in found] == ["e@seller"]
        assert said(await bundles.receive(mixed)) == {"a": "receipt", "b": "receipt"}
        assert await bundles.inbox() == ["a", "b"]

    run(scenario())


def _with_the_signal_at(place: int, body: bytes) -> bytes:
    """A message with one signal, which follows so many of its user messages."""
    signal, *units = re.findall(
        rb"<eb:SignalMessage.*?</eb:SignalMessage>|<eb:UserMessage.*?</eb:UserMessage>", body, re.S
    )
    mixed = [*units[:place], signal, *units[place:]]
    return body.replace(b"".join([signal, *units]), b"".join(mixed))


@pytest.mark.req("P2-3.2.2-05", "P2-3.2.2-07")
def test_evidence_of_a_unit_holds_without_its_neighbours(tmp_path: Path) -> None:
    async def scenario() -> None:
        bundles = await parties(tmp_path)
        await bundles.bundle(*(bundles.unit(name) for name in "abc"))
        exchange = bundles.exchange
        made = b"".join(await exchange.evidence(SELLER, "b"))
        facts = postroad.inspect(made, trust=exchange.authority)
        assert [one for one in facts["errors"] if one["severity"] == "failure"] == []
        assert (facts["holds"], facts["signed"], facts["trusted"]) == (True, True, True)

    run(scenario())
