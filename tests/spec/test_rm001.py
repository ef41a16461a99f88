"""Draft 001 of ebXML Reliable Messaging on running nodes: messages, answers, Receivers, Routers."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from lxml import etree

from postroad.node.base.requests import Request
from postroad.store.interface import Transaction
from postroad.store.opening import DATABASE
from postroad.store.records import Side, State
from postroad.transport.http_outgoing import Reply
from postroad.wire.content import read_all
from tests.node.ebxml_letters import listening, packed, spoiled
from tests.node.ebxml_stations import EBXML, start
from tests.node.reliable import (
    BEGIN,
    BUYER,
    CARRIER,
    CPA,
    ORDER,
    ORDERS,
    SELLER,
    STORES,
    Answering,
    Posted,
    Station,
    World,
    address,
    lost,
    party,
    passed,
    played,
    refused,
    status,
)
from tests.spec.link_stations import (
    LINK,
    NUMBER,
    SEMANTICS,
    TIMEOUT,
    UNRELIABLE,
    M,
    agree,
    answer,
    message,
    numbers,
    receiver,
    said_in,
    sender,
    talking,
    tell,
)

# The messages on the wire: 2.1, 2.2


@pytest.mark.req(
    "RM001-2.1-01",
    "RM001-2.1-02",
    "RM001-2.1-04",
    "RM001-2.2.3-01",
    "RM001-2.2.3-04",
    "RM001-2.2.3-06",
    "RM001-2.3-01",
    "RM001-4.2-01",
)
@played
async def test_a_reliable_message_says_at_most_once_and_carries_its_number_and_both_ends(
    world: World,
) -> None:
    buyer = await sender(world)
    await buyer.send(M)
    await world.wait(1)
    [posted] = world.wire.to(SELLER)
    said = said_in(posted)
    assert said.data("MessageId") == M
    assert said.attribute(*SEMANTICS) == "AtMostOnce"
    assert said.parties == ("urn:example:buyer", "urn:example:seller")
    assert said.text(f"{LINK}/SenderURI") == address(BUYER)
    assert said.text(f"{LINK}/ReceiverURI") == address(SELLER)
    assert said.text(NUMBER) == "1"


@pytest.mark.req("RM001-2.2.3-02", "RM001-2.2.3-03")
@pytest.mark.parametrize("semantics", ["OnceAndOnlyOnce", "BestEffort"])
@pytest.mark.parametrize(
    ("version", "place"), [("0.98b", "{}URI"), ("1.0", "{}/PartyId")], ids=["0.98b", "1.0"]
)
@played
async def test_every_message_names_sender_and_receiver_in_its_routing_header(
    world: World, version: str, place: str, semantics: str
) -> None:
    """In 0.98b by URI, which is a PartyId without a type, and in 1.0 by PartyId."""
    world.speak(version=version, profile="rm001", delivery_semantics=semantics)
    buyer = await listening(world, BUYER)
    await buyer.send(M)
    await world.wait(1)
    said = said_in(world.wire.to(SELLER)[0])
    assert said.text(f"{LINK}/{place.format('Sender')}") == address(BUYER)
    assert said.text(f"{LINK}/{place.format('Receiver')}") == address(SELLER)


@pytest.mark.req("RM001-2.2.2-03")
@played
async def test_an_unreliable_message_has_no_number_and_is_neither_answered_nor_sent_again(
    world: World,
) -> None:
    world.speak(**UNRELIABLE)
    buyer, seller = await talking(world)
    await buyer.send("1@buyer.example")
    await world.wait(5)
    said = said_in(world.wire.to(SELLER)[0])
    assert said.attribute(*SEMANTICS) == "Unspecified"
    assert said.find(NUMBER) == []
    assert await seller.inbox() == ["1@buyer.example"]
    world.wire.will(lost)
    await buyer.send("2@buyer.example")
    await world.wait(600)
    assert len(world.wire.to(SELLER)) == 2
    assert world.wire.to(BUYER) == []


@pytest.mark.req("RM001-2.2.2-03")
@played
async def test_unreliable_messages_do_not_wait_for_reliable_ones(world: World) -> None:
    world.speak("notes", **UNRELIABLE)
    buyer = await sender(world)
    await buyer.send(M)
    await buyer.send("n@buyer.example", "notes")
    await world.wait(1)
    assert numbers(world) == ["1", None]


# The answers on the wire: 2.6.2, 2.6.7, 3.1


@pytest.mark.req(
    "RM001-2.6.2-01",
    "RM001-2.6.2-02",
    "RM001-2.6.2-03",
    "RM001-2.6.2-04",
    "RM001-2.6.2-05",
    "RM001-2.6.2-06",
    "RM001-2.6.7-01",
    "RM001-2.6.7-02",
    "RM001-3.1-01",
    "RM001-3.1-02",
)
@pytest.mark.parametrize(
    ("letter", "kind"),
    [
        (message(1), "Acknowledgement"),
        (message(7), "Error"),
        (message(None), "Error"),
        (message(1, live="2024-05-31T12:00:00Z"), "Error"),
        (spoiled(message(1), "cid:order@", "cid:missing@"), "Error"),
    ],
    ids=["new", "number 7", "no number", "expired", "no payload"],
)
@played
async def test_an_answer_goes_from_receiver_to_sender_and_is_of_the_draft_s_type(
    world: World, letter: str, kind: str
) -> None:
    seller = await receiver(world)
    response = await seller.receive(*packed(letter), EBXML)
    await world.wait(1)
    assert not response.body
    [posted] = world.wire.to(BUYER)
    said = said_in(posted)
    assert said.text("MessageHeader/MessageType") == kind
    assert said.service == (None, None)
    assert said.parties == (address(SELLER), address(BUYER))
    assert said.text("MessageHeader/CPAId") == CPA
    assert said.text("MessageHeader/ConversationId") == "c1"
    assert said.data("RefToMessageId") == M
    assert said.attribute(*SEMANTICS) == "Unspecified"
    assert said.find("Manifest") == []
    assert b"order@" not in posted.body
    assert bool(said.errors) is (kind == "Error")


@pytest.mark.req(
    "RM001-2.6.2-04", "RM001-2.6.2-06", "RM001-2.6.7-01", "RM001-2.6.2-01", "RM001-2.6.2-02"
)
@played
async def test_a_signed_answer_has_the_same_form_and_is_believed(world: World) -> None:
    agree(world, signed=True)
    buyer, seller = await talking(world)
    await buyer.send(M)
    await world.wait(2)
    said = said_in(world.wire.to(BUYER)[0])
    assert said.signed
    assert said.text("MessageHeader/MessageType") == "Acknowledgement"
    assert said.service == (None, None)
    assert await buyer.state(M) is State.ACKNOWLEDGED
    assert await seller.inbox() == [M]


# Numbers: 2.1, 2.2.3, Table 2-2


@pytest.mark.req("RM001-2.1-05", "RM001-2.1-06", "RM001-2.2.3-06", "RM001-2.2.2-02")
@played
async def test_each_link_has_numbers_of_its_own_from_one_and_each_is_the_next(
    world: World,
) -> None:
    agree(world)
    agree(world, name="changes")
    agree(world, name="transport", to=CARRIER)
    buyer, seller = await talking(world)
    carrier = await start(world, CARRIER)
    names = ["orders", "transport", "changes", "orders", "transport", "changes"]
    for number, name in enumerate(names):
        await buyer.send(f"{number}@buyer.example", name)
    await world.wait(10)
    assert numbers(world) == ["1", "2", "3", "4"]
    assert numbers(world, CARRIER) == ["1", "2"]
    assert await seller.inbox() == [f"{number}@buyer.example" for number in (0, 2, 3, 5)]
    assert await carrier.inbox() == [f"{number}@buyer.example" for number in (1, 4)]


@pytest.mark.req("RM001-2.1-05", "RM001-2.2.3-06")
@played
async def test_the_transport_is_part_of_a_link(world: World) -> None:
    mail = {"address": "msh@seller.example", "relay": {"host": "127.0.0.1", "port": 9}}
    world.configure(SELLER, mail=mail)
    seller = await receiver(world)
    for transport, name in ((True, "a"), (False, "b"), (True, "c")):
        letter = message(2 if name == "c" else 1, f"{name}@buyer.example")
        await come(seller, letter, by_http=transport)
    await world.wait(1)
    assert await seller.inbox() == [f"{name}@buyer.example" for name in "abc"]


@pytest.mark.req("RM001-2.2.3-05", "RM001-2.2.3-07", "RM001-2.5-04")
@played
async def test_after_the_greatest_number_follows_one_and_the_receiver_takes_it(
    world: World,
) -> None:
    agree(world)
    buyer, seller = await talking(world)
    await buyer.send("0@buyer.example")
    await world.wait(2)
    for station, prefix in ((buyer, "link:"), (seller, "linked:")):
        await counted(station, prefix, 1, 2**32 - 2)
    for number in (1, 2, 3):
        await buyer.send(f"{number}@buyer.example")
        await world.wait(2)
    assert numbers(world) == ["1", "4294967295", "1", "2"]
    assert await seller.inbox() == [f"{number}@buyer.example" for number in range(4)]


async def counted(station: Station, prefix: str, before: int, now: int) -> None:
    """Let a node have come to another number on its link to its only partner."""
    ends = [address(BUYER), address(SELLER)]
    name = prefix + "\0".join(ends if prefix == "link:" else [*ends, "HTTP"])

    def step(tx: Transaction) -> None:
        state = tx.state(name)
        assert state is not None
        assert str(before).encode() in state
        tx.set_state(name, state.replace(str(before).encode(), str(now).encode(), 1), BEGIN)

    await station.node.context.store.run(step)


@pytest.mark.req("RM001-2.2.3-08", "RM001-2.5-04")
@played
async def test_a_sender_whose_numbers_are_removed_begins_with_one_and_is_understood(
    world: World,
) -> None:
    """A messaging error removes them: nobody knows whether the refused number was counted."""
    agree(world)
    buyer, seller = await talking(world)
    for number in (0, 1):
        await buyer.send(f"{number}@buyer.example")
        await world.wait(2)
    world.wire.usual[SELLER] = status(204)
    await buyer.send("2@buyer.example")
    await world.wait(1)
    await tell(buyer, answer("2@buyer.example", "Error", code="Inconsistent"))
    del world.wire.usual[SELLER]
    for number in (3, 4):
        await buyer.send(f"{number}@buyer.example")
        await world.wait(2)
    assert numbers(world) == ["1", "2", "3", "1", "2"]
    assert await seller.inbox() == [f"{number}@buyer.example" for number in (0, 1, 3, 4)]


# The Receiver: 2.1, 2.3, 2.5


async def come(seller: Station, letter: str, *, by_http: bool = True) -> None:
    """Bring a message to the seller; the response has no body."""
    kind, body = packed(letter)

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    request = Request(kind, "192.0.2.1", pieces(), soap_action=EBXML, synchronous=by_http)
    response = await seller.process.ask(seller.node.receive(request))
    assert not response.body


async def answers_to(world: World, seller: Station, *steps: tuple[int, str]) -> list[str]:
    """The one answer to each of these numbers with these names."""
    found = []
    for number, name in steps:
        before = len(world.wire.to(BUYER))
        await come(seller, message(number, f"{name}@buyer.example"))
        await world.wait(2)
        [posted] = world.wire.to(BUYER)[before:]
        said = said_in(posted)
        assert said.data("RefToMessageId") == f"{name}@buyer.example"
        found.append(said.text("MessageHeader/MessageType") or "")
    return found


async def inbox(seller: Station) -> str:
    return " ".join(one.partition("@")[0] for one in await seller.inbox())


ACK: Final = "Acknowledgement"


@pytest.mark.req(
    "RM001-2.1-07",
    "RM001-2.1-11",
    "RM001-2.1-14",
    "RM001-2.2.2-02",
    "RM001-2.3-02",
    "RM001-2.3-03",
    "RM001-2.3-06",
    "RM001-2.3-07",
    "RM001-2.5-01",
)
@played
async def test_case_1_the_next_number_is_stored_passed_up_and_acknowledged_once(
    world: World,
) -> None:
    seller = await receiver(world)
    said = await answers_to(world, seller, (1, "a"), (2, "b"), (3, "c"))
    assert said == [ACK] * 3
    assert await inbox(seller) == "a b c"
    await world.wait(3600)
    assert len(world.wire.to(BUYER)) == 3


@pytest.mark.req(
    "RM001-2.1-09",
    "RM001-2.1-10",
    "RM001-2.1-14",
    "RM001-2.3-02",
    "RM001-2.3-06",
    "RM001-2.3-07",
    "RM001-2.4-02",
    "RM001-2.5-02",
)
@played
async def test_case_2_the_same_number_is_discarded_and_acknowledged_again(world: World) -> None:
    seller = await receiver(world)
    said = await answers_to(world, seller, (1, "a"), (2, "b"), (2, "b"), (2, "b"))
    assert said == [ACK] * 4
    assert await inbox(seller) == "a b"
    assert (await seller.story("b@buyer.example")).count("duplicate") == 2


@pytest.mark.req("RM001-2.5-03", "RM001-2.1-09")
@played
async def test_case_2_with_both_numbers_1_is_decided_by_the_message_id(world: World) -> None:
    seller = await receiver(world)
    said = await answers_to(world, seller, (1, "a"), (1, "a"), (1, "b"), (1, "b"))
    assert said == [ACK] * 4
    assert await inbox(seller) == "a b"


@pytest.mark.req("RM001-2.5-04")
@played
async def test_case_3_the_number_1_begins_anew(world: World) -> None:
    seller = await receiver(world)
    said = await answers_to(world, seller, (1, "a"), (2, "b"), (1, "c"), (2, "d"))
    assert said == [ACK] * 4
    assert await inbox(seller) == "a b c d"


@pytest.mark.req("RM001-2.1-08", "RM001-2.5-05", "RM001-2.2.2-02")
@played
async def test_case_4_any_other_number_is_discarded_and_answered_with_an_error(
    world: World,
) -> None:
    seller = await receiver(world)
    steps = ((2, "x"), (1, "a"), (3, "c"), (2, "b"), (3, "c"), (2, "y"), (5, "e"))
    said = await answers_to(world, seller, *steps)
    assert said == ["Error", ACK, "Error", ACK, ACK, "Error", "Error"]
    assert await inbox(seller) == "a b c"
    errors = [said_in(one).errors for one in world.wire.to(BUYER)]
    assert [one[0][:2] for one in errors if one] == [("Inconsistent", "Error")] * 4


# Storing: 2.2.2, 2.3


@pytest.mark.req("RM001-2.1-11", "RM001-2.2.2-01", "RM001-2.3-05", "RM001-2.3-06")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_both_ends_store_a_message_before_anything_is_sent(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, seller = await talking(world)
    kept = {}

    def watched(station: Station) -> Answering:
        async def look(world: World, posted: Posted) -> Reply:
            found = await station.node.message(M)
            assert found is not None
            parts = [station.node.context.store.content(one.stored) for one in found.parts]
            kept[station.name] = b"".join(read_all(one, 1000) for one in parts)
            return await passed(world, posted)

        return look

    world.wire.usual[SELLER], world.wire.usual[BUYER] = watched(buyer), watched(seller)
    await buyer.send(M)
    await world.wait(2)
    assert kept == dict.fromkeys((BUYER, SELLER), ORDER)


@pytest.mark.req("RM001-2.2.2-01", "RM001-2.3-05", "RM001-2.3-04", "RM001-2.2.2-02")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_after_a_crash_of_both_ends_the_link_goes_on_where_it_was(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, _ = await talking(world)
    world.wire.usual[BUYER] = lost
    ids = [f"{number}@buyer.example" for number in range(3)]
    for one in ids:
        await buyer.send(one)
    await world.wait(2)
    assert numbers(world) == ["1"], "received, and its acknowledgement is lost"
    for name in (BUYER, SELLER):
        world.stations[name].kill()
    del world.wire.usual[BUYER]
    buyer, seller = await talking(world)
    await world.wait(120)
    assert await seller.inbox() == ids
    assert sorted(set(numbers(world))) == ["1", "2", "3"]
    assert numbers(world) == sorted(numbers(world), key=str)
    assert {await buyer.state(one) for one in ids} == {State.ACKNOWLEDGED}


# One message under way: 2.3


@pytest.mark.req("RM001-2.3-04")
@played
async def test_the_next_message_leaves_when_the_last_is_acknowledged_and_not_before(
    world: World,
) -> None:
    agree(world, name="transport", to=CARRIER)
    world.wire.usual[CARRIER] = status(204)
    buyer = await sender(world)
    await buyer.send("1@buyer.example")
    await buyer.send("2@buyer.example")
    await buyer.send("t@buyer.example", "transport")
    await world.until(15)
    assert numbers(world) == ["1"]
    assert numbers(world, CARRIER) == ["1"], "another link goes its own way"
    await tell(buyer, answer("1@buyer.example"))
    await world.wait(1)
    assert numbers(world) == ["1", "2"]


# The transport (3.1)


@pytest.mark.req("RM001-3.1-01", "RM001-3.1-02", "RM001-2.3-02", "RM001-2.1-14")
@played
async def test_messages_acknowledgements_and_errors_are_posts_with_empty_responses(
    world: World,
) -> None:
    agree(world)
    buyer, seller = await talking(world)
    replies = []

    async def noted(world: World, posted: Posted) -> Reply:
        replies.append(await passed(world, posted))
        return replies[-1]

    world.wire.usual = {SELLER: noted, BUYER: noted}
    await buyer.send("1@buyer.example")
    await world.wait(2)
    await come(seller, message(9, "9@buyer.example"))
    await world.wait(2)
    kinds = [said_in(one).text("MessageHeader/MessageType") for one in world.wire.posted]
    assert kinds == [None, ACK, "Error"]
    assert [one.receiver for one in world.wire.posted] == [SELLER, BUYER, BUYER]
    assert [(one.status // 100, one.body) for one in replies] == [(2, b"")] * 3
    assert all(one.body.count(b"<eb:MessageHeader") == 1 for one in world.wire.posted)


# What Routers do (4)


async def routed(world: World, **terms: Any) -> tuple[Station, Station, Station]:
    """Buyer and seller with a carrier between them."""
    agree(world, at=(BUYER,), url=address(CARRIER), hops=1)
    agree(world, at=(SELLER,))
    agree(world, name="there", at=(CARRIER,), relay=True, **terms)
    buyer, seller = await talking(world)
    return buyer, await start(world, CARRIER), seller


def as_before_one_lane(folder: Path) -> None:
    """Write the queue of a Router as versions did that numbered messages when they came."""
    with contextlib.closing(sqlite3.connect(folder / "data" / DATABASE)) as database, database:
        rows = database.execute("SELECT id, lane, message_id FROM work WHERE kind = 'forward'")
        for number, (id, lane, name) in enumerate(sorted(rows.fetchall()), start=1):
            database.execute(
                "UPDATE work SET lane = ? WHERE id = ?",
                (f"forward:{lane.removeprefix('send:')}", id),
            )
            database.execute(
                "UPDATE messages SET details = CAST(json_set(CAST(details AS TEXT),"
                " '$.sequence_number', ?) AS BLOB) WHERE side = 'forwarding' AND message_id = ?",
                (number, name),
            )
            database.execute(
                "INSERT OR REPLACE INTO states (name, changed_at, details) VALUES (?, 0, ?)",
                (lane.removeprefix("send:"), str(number).encode()),
            )
        database.execute("DELETE FROM migrations WHERE number >= 17")


@pytest.mark.req("RM001-2.3-04")
@pytest.mark.parametrize("left", [True, False])
@played
async def test_the_queue_of_a_router_keeps_its_order_when_a_new_version_starts(
    world: World, left: bool
) -> None:
    world.kept_in = "sqlite"
    world.wire.usual[SELLER] = status(204) if left else refused
    buyer, carrier, seller = await routed(world)
    ids = [f"{number}@buyer.example" for number in range(5)]
    for one in ids[:3]:
        await buyer.send(one)
    await world.wait(3)
    assert len({one.body for one in world.wire.to(SELLER, "eb:Manifest")}) == 1
    await carrier.stop()
    as_before_one_lane(world.folder / CARRIER)
    await start(world, CARRIER)
    for one in ids[3:]:
        await buyer.send(one)
    await world.wait(1)
    assert len({one.body for one in world.wire.to(SELLER, "eb:Manifest")}) == 1
    before = len(world.wire.to(SELLER, "eb:Manifest"))
    del world.wire.usual[SELLER]
    await world.wait(60)
    assert await seller.inbox() == ids
    first = ["1", "1"] if left else ["1", "2"]
    assert numbers(world)[before:][:2] == first
    assert len(numbers(world)[before:]) == len(ids)


@pytest.mark.req("RM001-2.1-03", "RM001-4.2-01", "RM001-4.2-02")
@pytest.mark.parametrize("version", ["0.98b", "1.0"])
@played
async def test_a_router_puts_its_own_ids_and_number_in_place_and_changes_nothing_else(
    world: World, version: str
) -> None:
    for name, where in ((ORDERS, {"at": (BUYER,), "url": address(CARRIER), "hops": 1}),
                        ("there", {"at": (CARRIER,), "relay": True})):  # fmt: skip
        agree(world, name=name, version=version, **where)
    world.wire.usual[SELLER] = status(204)
    buyer = await start(world, BUYER)
    await start(world, CARRIER)
    agree(world)
    for number in (1, 2):
        await buyer.send(f"{number}@buyer.example")
        await world.wait(2)
    first, second = [said_in(world.wire.to(one, "1@buyer.example")[0]) for one in (CARRIER, SELLER)]
    ends = ("SenderURI", "ReceiverURI")
    if version == "1.0":
        ends = ("Sender/Location", "Receiver/Location")
    assert [first.text(f"{LINK}/{one}") for one in ends] == [address(BUYER), address(CARRIER)]
    assert [second.text(f"{LINK}/{one}") for one in ends] == [address(CARRIER), address(SELLER)]
    assert first.parties == second.parties == (party(BUYER), party(SELLER))
    headers = [
        etree.tostring(one.find("MessageHeader")[0], method="c14n") for one in (first, second)
    ]
    assert headers[0] == headers[1]
    assert numbers(world, CARRIER) == ["1", "2"]
    assert set(numbers(world)) == {"1"}, "the seller has not acknowledged it"


@pytest.mark.req("RM001-4.1-01")
@played
async def test_a_router_forwards_when_the_previous_sender_has_the_acknowledgement(
    world: World,
) -> None:
    buyer, carrier, seller = await routed(world)
    world.wire.usual[BUYER] = refused
    await buyer.send(M)
    await world.wait(TIMEOUT - 2)
    assert len(world.wire.to(CARRIER, M)) == 1
    assert world.wire.to(SELLER) == [], "the transfer to the carrier is not complete"
    del world.wire.usual[BUYER]
    await world.wait(60)
    assert await seller.inbox() == [M]
    order_ = [one.receiver for one in world.wire.posted]
    last = max(
        n
        for n, one in enumerate(world.wire.posted)
        if one.sender == CARRIER and one.receiver == BUYER
    )
    assert last < order_.index(SELLER)
    assert (await carrier.message(M, Side.FORWARDING)).state is State.ACKNOWLEDGED


@pytest.mark.req("RM001-4.1-01", "RM001-2.3-04", "RM001-2.1-05")
@played
async def test_what_a_router_sends_itself_shares_the_link_with_what_it_forwards(
    world: World,
) -> None:
    agree(world, name="own", frm=CARRIER)
    buyer, carrier, seller = await routed(world)
    world.wire.will(lost, at=SELLER)
    await carrier.send("c1@carrier.example", "own")
    await buyer.send("b1@buyer.example")
    await world.wait(1)
    await carrier.send("c2@carrier.example", "own")
    await world.wait(120)
    assert sorted(await seller.inbox()) == sorted(
        ["c1@carrier.example", "b1@buyer.example", "c2@carrier.example"]
    )
    assert numbers(world) == ["1", "1", "2", "3"]


@pytest.mark.req("RM001-4.3-01")
@played
async def test_a_router_whose_next_receiver_is_suspended_answers_with_a_transient_error(
    world: World,
) -> None:
    buyer, carrier, seller = await routed(world)
    await carrier.process.ask(carrier.node.suspend(party(SELLER), "maintenance"))
    await buyer.send(M)
    await world.wait(1)
    [posted] = world.wire.to(BUYER)
    said = said_in(posted)
    assert said.text("MessageHeader/MessageType") == "Error"
    assert said.service == (None, None)
    assert said.parties == (address(CARRIER), address(BUYER))
    assert said.attribute("ErrorList/Error", "errorCode") == "TransientError"
    assert said.attribute("ErrorList/Error", "MinRetrySecs") == "30"
    await carrier.process.ask(carrier.node.resume(party(SELLER)))
    await world.wait(28)
    assert len(world.wire.to(CARRIER, M)) == 1
    await world.wait(10)
    assert await seller.inbox() == [M]
    assert await buyer.state(M) in (State.SENT, State.ACKNOWLEDGED)


@pytest.mark.req("RM001-4.3-01")
@played
async def test_a_router_that_acknowledges_after_forwarding_says_when_forwarding_fails(
    world: World,
) -> None:
    buyer, carrier, seller = await routed(world, ack_after_forward=True)
    world.wire.usual[SELLER] = refused
    await buyer.send(M)
    await world.wait(2)
    assert transient_errors(world) == 1, "in place of an acknowledgement"
    assert len(world.wire.to(BUYER)) == 1
    await world.wait(29)
    assert len(world.wire.to(CARRIER, M)) == 2
    assert transient_errors(world) == 2, "and so does the copy"
    del world.wire.usual[SELLER]
    if (await carrier.message(M, Side.FORWARDING)).state is State.SUSPENDED:
        await carrier.process.ask(carrier.node.resume(party(SELLER)))
    await world.wait(3)
    assert await seller.inbox() == [M]
    assert said_in(world.wire.to(BUYER)[-1]).text("MessageHeader/MessageType") == ACK
    assert await buyer.state(M) in (State.SENT, State.ACKNOWLEDGED)


def transient_errors(world: World) -> int:
    return len(world.wire.to(BUYER, "TransientError"))


@pytest.mark.req("RM001-2.6.2-01", "RM001-2.6.2-04")
@played
async def test_who_is_told_that_a_router_gave_up_is_told_over_the_link(world: World) -> None:
    retry = {"max_retries": 1, "timeout": "PT5S", "period": "PT5S", "then": "give_up"}
    buyer, _, _ = await routed(world, retry=retry)
    world.wire.usual[SELLER] = refused
    await buyer.send(M)
    await world.wait(60)
    [posted] = world.wire.to(BUYER, "DeliveryFailure")
    said = said_in(posted)
    assert said.text("MessageHeader/MessageType") == "Error"
    assert said.parties == (address(CARRIER), address(BUYER))
    assert said.attribute(*SEMANTICS) == "Unspecified"
    assert await buyer.state(M) is State.FAILED
