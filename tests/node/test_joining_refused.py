"""What rejects a fragment, and its whole group with it; each with its own error."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from postroad.msh.fragment_group import Standing, sender_of
from postroad.msh.outbound import WirePart
from postroad.node.steps.fragment_groups import group_there
from postroad.store.interface import StoreFull
from postroad.store.records import Side, State
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import PartInfo, Property, UserMessage
from postroad.wire.fragments import MessageHeader
from tests.node.collecting import errors as answered
from tests.node.joining import (
    GROUP,
    SOURCE,
    Change,
    Large,
    agree_on_splitting,
    bring,
    errors,
    holding,
    large,
    payloads,
    receipts,
    saying,
    silent,
    told,
)
from tests.node.reliable import CARRIER, SELLER, STORES, Station, World, failing, played

HEADER = MessageHeader("another", "text/xml", "root@x")
NOWHERE = (PartInfo("cid:nowhere"),)
ONE, TWO, THREE = (f"{number}.{GROUP}@buyer.example" for number in (1, 2, 3))


async def standing(seller: Station, given: Large, group_id: str = GROUP) -> Standing | None:
    store, key = seller.node.context.store, key_of(given, group_id)
    kept = await store.look(lambda reader: group_there(reader, key))
    return None if kept is None else kept.group.standing


def key_of(given: Large, group_id: str) -> tuple[str, str]:
    message = given.splitting.messaging.user_messages[0]
    return sender_of(message), f"{given.pmode}/1\n{group_id}"


async def stored(seller: Station, given: Large, group_id: str = GROUP) -> list[int]:
    """The numbers whose data is there."""
    store, key = seller.node.context.store, key_of(given, group_id)
    found = await store.look(lambda reader: reader.fragments(*key))
    return [one.number for one in found]


async def ends(world: World, seller: Station, given: Large, code: Sequence[str], ref: str) -> None:
    """The group is rejected with these errors, its data is gone, and so it stays."""
    await world.wait(2)
    assert errors(world, ref) == list(code)
    assert await standing(seller, given) is Standing.REJECTED
    assert await stored(seller, given) == []
    assert await seller.work() == {}
    assert await seller.inbox() == []
    kept = await seller.message(ref, Side.RECEIVING)
    assert (kept.state, kept.kind) == (State.REJECTED, "fragment")
    raised = [one.error_code for one in await seller.events(ref) if one.event == "error_raised"]
    assert sorted(raised) == sorted(code)
    later = given.fragment(3, "later@buyer.example")
    assert silent(await seller.receive(*later))
    await world.wait(2)
    assert errors(world, "later@buyer.example") == ["EBMS:0040"]


@pytest.mark.req("P2-4.6-01", "P2-4.3.2-16", "P2-4.3.2-17", "P2-4.3.2-02", "P2-4.6-02")
@pytest.mark.parametrize(
    ("before", "number", "change", "code"),
    [
        pytest.param(1, 2, saying(message_size=5), "EBMS:0041", marks=pytest.mark.req("P2-4.6-03")),
        pytest.param(
            1, 2, saying(fragment_count=3), "EBMS:0042", marks=pytest.mark.req("P2-4.6-04")
        ),
        pytest.param(
            1, 2, saying(message_header=HEADER), "EBMS:0043", marks=pytest.mark.req("P2-4.6-05")
        ),
        pytest.param(
            1, 2, saying(fragment_num=4), "EBMS:0048",
            marks=pytest.mark.req("P2-4.6-10", "P2-4.3.2-04"),
        ),
        pytest.param(
            3, 1, saying(fragment_count=2), "EBMS:0049",
            marks=pytest.mark.req("P2-4.6-11", "P2-4.3.2-06"),
        ),
        pytest.param(2, 2, saying(), "EBMS:0046", marks=pytest.mark.req("P2-4.6-08")),
        pytest.param(
            1, 3, saying(compression_algorithm="gzip", compressed_message_size=9), "EBMS:0003"
        ),
    ],
)  # fmt: skip
@played
async def test_what_a_header_may_not_say_rejects_the_group(
    world: World, before: int, number: int, change: Change, code: str
) -> None:
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, before)
    name = f"{number}x@buyer.example"
    assert silent(await seller.receive(*given.fragment(number, name, change=change)))
    await ends(world, seller, given, [code], name)


@pytest.mark.req("P2-4.6-06")
@played
async def test_an_action_that_is_given_twice_rejects_the_group(world: World) -> None:
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    first = given.fragment(1, ONE, change=saying(action="leasing"))
    assert silent(await seller.receive(*first))
    again = given.fragment(2, TWO, change=saying(action="leasing"))
    assert silent(await seller.receive(*again))
    await ends(world, seller, given, ["EBMS:0044"], TWO)


@pytest.mark.req("P2-4.6-07", "P2-4.3.2-08")
@played
async def test_a_compression_that_is_given_twice_rejects_the_group(world: World) -> None:
    agree_on_splitting(world, compression={"algorithm": "gzip"})
    buyer, seller = await world.both()
    given = large(buyer, random_bytes(10_000), algorithm="gzip")
    assert given.count == 3
    await bring(seller, given, 1)
    coded = saying(compression_algorithm="gzip", compressed_message_size=given.whole.size)
    assert silent(await seller.receive(*given.fragment(2, TWO, change=coded)))
    await ends(world, seller, given, ["EBMS:0045"], TWO)


@pytest.mark.req("P2-4.6-12", "P2-4.3.2-07", "P2-4.5-02")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_fragment_larger_than_agreed_is_warned_of_and_rejected(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, signed=True)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, 1)
    assert silent(await seller.receive(*given.fragment(2, TWO, data=bytes(4097))))
    await ends(world, seller, given, ["EBMS:0040", "EBMS:0050"], TWO)
    assert [one.severity for one in told(world, TWO)] == ["failure", "warning"]


PART = WirePart("more@buyer.example", "text/plain", BytesContent(b"more"))


@pytest.mark.req("P2-4.6-09")
@pytest.mark.parametrize(
    "how",
    [
        {"change": saying(href="cid:nothing@buyer.example")},
        {"parts": [PART]},
        {"body": "<x/>"},
        {"body": "<x/>", "parts": [PART]},
    ],
)
@played
async def test_a_fragment_of_another_structure_rejects_the_group(
    world: World, how: dict[str, Any]
) -> None:
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, 1)
    assert silent(await seller.receive(*given.fragment(2, TWO, **how)))
    await world.wait(2)
    assert errors(world, TWO) == ["EBMS:0047"]
    assert await standing(seller, given) is Standing.REJECTED
    assert await stored(seller, given) == []


@pytest.mark.req("P2-4.6-10")
@played
async def test_a_header_that_cannot_be_read_rejects_the_group_that_it_names(world: World) -> None:
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, 1)
    content_type, body = given.fragment(2, TWO)
    broken = body.replace(b"<mf:FragmentNum>2<", b"<mf:FragmentNum>two<")
    assert silent(await seller.receive(content_type, broken))
    await world.wait(2)
    assert errors(world, TWO)[0] == "EBMS:0009"
    assert await standing(seller, given) is Standing.REJECTED


@pytest.mark.req("P2-4.6-13", "P2-4.5-02")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_group_that_is_never_whole_is_given_up(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, join_interval="PT10M")
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, 2, 1)
    await world.until(599)
    assert await standing(seller, given) is Standing.GATHERING
    await world.until(605)
    [error] = told(world)
    assert (error.error_code, error.ref_to_message_in_error) == ("EBMS:0051", TWO)
    assert "2 of 3 fragments" in (error.error_detail or "")
    assert await seller.state(TWO) is State.REJECTED
    assert (await seller.story(TWO))[-2:] == ["error_raised", "rejected"]
    assert await standing(seller, given) is Standing.REJECTED
    assert await stored(seller, given) == []
    assert await seller.work() == {}
    assert silent(await seller.receive(*given.fragment(3)))
    await world.wait(2)
    assert errors(world, THREE) == ["EBMS:0040"]


@pytest.mark.req("P2-4.6-14")
@played
async def test_properties_that_nobody_agreed_on_are_warned_of_once_and_taken(world: World) -> None:
    agree_on_splitting(world, routing_properties=["region"])
    buyer, seller = await world.both()
    named = (("region", "north", None), ("secret", "x", None))
    given = large(buyer, properties=named, routing_properties=frozenset(("region", "secret")))
    await bring(seller, given)
    await world.wait(2)
    [error] = told(world)
    assert (error.error_code, error.severity) == ("EBMS:0052", "warning")
    assert error.ref_to_message_in_error == ONE
    assert await seller.inbox() == [SOURCE]


@pytest.mark.req("P2-4.6-15", "P2-4.3.2-14")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_message_that_contradicts_its_fragments_is_not_delivered(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, routing_properties=["region"])
    buyer, seller = await world.both()
    given = large(buyer, routing_properties=frozenset(("region",)))

    def other(message: UserMessage) -> UserMessage:
        return replace(message, properties=(Property("region", "south"),))

    for number in (1, 2, 3):
        assert silent(await seller.receive(*given.fragment(number, header=other)))
    await world.wait(2)
    [error] = told(world)
    assert (error.error_code, error.ref_to_message_in_error) == ("EBMS:0053", ONE)
    assert await seller.inbox() == []
    assert await stored(seller, given) == []
    assert await standing(seller, given) is Standing.REJECTED


@pytest.mark.req("P2-4.6-17", "P2-4.3.2-13")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_what_cannot_be_decompressed_is_not_delivered(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, compression={"algorithm": "gzip"})
    buyer, seller = await world.both()
    given = large(buyer, random_bytes(10_000), algorithm="gzip")
    await bring(seller, given, 1, 2)
    rest = given.whole.size - 2 * 4096
    assert silent(await seller.receive(*given.fragment(3, data=bytes(rest))))
    await world.wait(2)
    [error] = told(world)
    assert (error.error_code, error.ref_to_message_in_error) == ("EBMS:0055", ONE)
    assert await seller.inbox() == []
    assert await stored(seller, given) == []


@pytest.mark.req("P2-4.6-17")
@played
async def test_a_bomb_is_not_opened(world: World) -> None:
    agree_on_splitting(world, compression={"algorithm": "gzip"})
    world.configure(SELLER, limits={"decompression_ratio": 20, "decompression_floor": "64 KiB"})
    buyer, seller = await world.both()
    await bring(seller, large(buyer, bytes(3_000_000), algorithm="gzip"))
    await world.wait(2)
    assert errors(world) == ["EBMS:0055"]
    assert await seller.inbox() == []


@pytest.mark.req("P2-4.6-16", "P2-4.3.2-09", "P2-4.3.2-10")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_message_beyond_the_quota_is_rejected_with_its_first_fragment(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    world.configure(SELLER, joining={"quota": "15 KiB"})
    buyer, seller = await world.both()
    await bring(seller, large(buyer), 1)
    other = large(buyer, message_id="other@buyer", group_id="group-2")
    assert silent(await seller.receive(*other.fragment(1)))
    await world.wait(2)
    assert errors(world) == ["EBMS:0054"]
    assert await standing(seller, other, "group-2") is Standing.REJECTED
    assert await stored(seller, other) == [1]


@pytest.mark.req("P2-4.3.2-10")
@played
async def test_a_sender_has_so_many_groups_at_a_time(world: World) -> None:
    agree_on_splitting(world)
    world.configure(SELLER, joining={"groups": 2})
    buyer, seller = await world.both()
    for name in ("a", "b", "c"):
        given = large(buyer, message_id=f"{name}@buyer", group_id=name)
        assert silent(await seller.receive(*given.fragment(1)))
    await world.wait(2)
    [error] = told(world)
    assert error.error_code == "EBMS:0054"
    assert error.ref_to_message_in_error == "1.c@buyer.example"


@pytest.mark.req("P2-4.6-16")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_disk_without_room_for_the_whole_rejects_the_group_at_once(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    world.configure(SELLER, joining={"reserve": "1000 TiB"})
    buyer, seller = await world.both()
    given = large(buyer)
    assert silent(await seller.receive(*given.fragment(1)))
    await world.wait(2)
    assert errors(world) == (["EBMS:0054"] if kept_in == "sqlite" else [])


@pytest.mark.req("P2-4.6-16")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_disk_that_fills_in_the_middle_rejects_the_group_and_the_node_goes_on(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, 1)
    full = StoreFull("no room")
    with failing(seller.node.context.store, full, about="Gathering.step"):
        assert silent(await seller.receive(*given.fragment(2)))
    await ends(world, seller, given, ["EBMS:0054"], TWO)
    other = large(buyer, message_id="other@buyer", group_id="group-2")
    await bring(seller, other)
    await world.wait(2)
    assert await seller.inbox() == ["other@buyer"]


@pytest.mark.req("P2-4.7-04", "P2-4.3.2-18")
@played
async def test_two_senders_may_use_one_group_id(world: World) -> None:
    agree_on_splitting(world)
    world.agree("theirs", receipt="callback")
    for at in (SELLER, "buyer"):
        pmode = world._pmodes[at][-1]
        pmode["initiator"]["party"] = "urn:example:carrier"
        pmode["legs"][0]["splitting"] = True
        if at != SELLER:
            world._pmodes[CARRIER].append(world._pmodes[at].pop())
    buyer, seller = await world.both()
    carrier = await world.start(CARRIER)
    ours = large(buyer)
    theirs = large(carrier, b"theirs" * 1500, message_id="theirs@carrier", pmode="theirs")
    for number in (1, 2, 3):
        for one, name in ((ours, "ours"), (theirs, "theirs")):
            fragment = one.fragment(number, f"{number}.{name}")
            assert silent(await seller.receive(*fragment))
    await world.wait(2)
    assert sorted(await seller.inbox()) == [SOURCE, "theirs@carrier"]
    assert await payloads(seller, "theirs@carrier") == [b"theirs" * 1500]


@pytest.mark.req("P2-4.4.2-05")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_fragment_that_comes_again_is_answered_again(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, signed=True)
    buyer, seller = await world.both()
    given = large(buyer)
    first = given.fragment(1)
    assert silent(await seller.receive(*first))
    await world.wait(2)
    assert silent(await seller.receive(*first))
    await bring(seller, given, 2, 3)
    await world.wait(2)
    assert silent(await seller.receive(*first))
    await world.wait(2)
    one, two, three = receipts(world, ONE)
    assert one == two == three
    assert (await seller.story(ONE)).count("duplicate") == 2
    assert await seller.inbox() == [SOURCE]
    assert errors(world) == []


@pytest.mark.req("P2-4.6-08", "P2-4.3.2-03")
@played
async def test_after_joining_a_second_fragment_is_refused_and_the_message_stays(
    world: World,
) -> None:
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given)
    await world.wait(2)
    assert silent(await seller.receive(*given.fragment(2, "twice@buyer.example")))
    await world.wait(2)
    assert errors(world, "twice@buyer.example") == ["EBMS:0046"]
    assert await standing(seller, given) is Standing.JOINED
    assert await seller.inbox() == [SOURCE]


@pytest.mark.req("P2-4.7-04")
@played
async def test_who_proves_nothing_touches_no_group(world: World) -> None:
    agree_on_splitting(world, signed=True)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, 1)
    forged = given.fragment(2, "forged@buyer.example", signed=False)
    assert answered(await seller.receive(*forged)) == ["EBMS:0103"]
    bad = given.fragment(2, "bad@buyer.example", change=saying(fragment_count=9), signed=False)
    assert "EBMS:0103" in answered(await seller.receive(*bad))
    assert await standing(seller, given) is Standing.GATHERING
    await bring(seller, given, 2, 3)
    await world.wait(2)
    assert await seller.inbox() == [SOURCE]


@pytest.mark.req("P2-4.3.2-18")
@pytest.mark.parametrize(("parts", "told"), [((), []), (NOWHERE, ["EBMS:0007"])])
@pytest.mark.parametrize("before", [0, 1])
@played
async def test_who_needs_no_signature_by_another_pmode_harms_no_group(
    world: World, parts: tuple[PartInfo, ...], told: list[str], before: int
) -> None:
    """Neither when its fragments come after those that are signed, nor when they come first."""
    agree_on_splitting(world, signed=True)
    agree_on_splitting(world, "open")
    buyer, seller = await world.both()
    given, forged = large(buyer), large(buyer, pmode="open", message_id="x@buyer.example")
    await bring(seller, given, *range(1, before + 1))
    name = "forged@buyer.example"
    sent = forged.fragment(2, name, header=lambda message: replace(message, part_infos=parts))
    assert silent(await seller.receive(*sent))
    await world.wait(2)
    assert errors(world, name) == told
    await bring(seller, given, *range(before + 1, 4))
    await world.wait(2)
    assert await seller.inbox() == [SOURCE]


@pytest.mark.req("P2-4.3.2-10", "P2-4.3.2-18")
@pytest.mark.parametrize("limit", [{"groups": 2}, {"quota": "25 kB"}])
@played
async def test_who_needs_no_signature_by_another_pmode_uses_up_no_room(
    world: World, limit: dict[str, Any]
) -> None:
    agree_on_splitting(world, signed=True)
    agree_on_splitting(world, "open")
    world.configure(SELLER, joining=limit)
    buyer, seller = await world.both()
    for name in ("a", "b"):
        forged = large(buyer, pmode="open", message_id=f"{name}@buyer", group_id=name)
        assert silent(await seller.receive(*forged.fragment(1)))
    await bring(seller, large(buyer))
    await world.wait(2)
    assert await seller.inbox() == [SOURCE]


@pytest.mark.req("P2-4.3.2-18")
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_two_pmodes_of_one_sender_may_use_one_group_id(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    agree_on_splitting(world, "others")
    buyer, seller = await world.both()
    ours = large(buyer)
    others = large(buyer, b"others" * 1500, message_id="others@buyer", pmode="others")
    for number in (1, 2, 3):
        for one, name in ((ours, "ours"), (others, "others")):
            assert silent(await seller.receive(*one.fragment(number, f"{number}.{name}")))
    await world.wait(2)
    assert sorted(await seller.inbox()) == ["others@buyer", SOURCE]
    assert await payloads(seller, "others@buyer") == [b"others" * 1500]
    assert await seller.work() == {}


@played
async def test_fragments_are_taken_only_where_splitting_is_agreed(world: World) -> None:
    world.agree()
    buyer, seller = await world.both()
    given = large(buyer)
    assert answered(await seller.receive(*given.fragment(1))) == ["EBMS:0010"]
    assert await standing(seller, given) is None


@played
async def test_another_message_under_the_id_of_a_fragment_is_refused_alone(world: World) -> None:
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer)
    await bring(seller, given, 1)
    assert silent(await seller.receive(*given.fragment(2, ONE)))
    await world.wait(2)
    assert errors(world, ONE) == ["EBMS:0003"]
    assert await standing(seller, given) is Standing.GATHERING


@pytest.mark.parametrize("fields", [{"group_id": "group-2"}, {"fragment_num": 2}])
@played
async def test_another_fragment_with_the_same_data_under_a_known_id_is_no_copy(
    world: World, fields: dict[str, Any]
) -> None:
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = large(buyer, bytes(10_000))
    await bring(seller, given, 1)
    await world.wait(2)
    assert silent(await seller.receive(*given.fragment(1, change=saying(**fields))))
    await world.wait(2)
    assert errors(world, ONE) == ["EBMS:0003"]
    await bring(seller, given, 2, 3)
    await world.wait(2)
    assert await seller.inbox() == [SOURCE]


@pytest.mark.parametrize("name", ["", "x" * 1001])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_joined_message_without_a_proper_id_is_given_up(
    world: World, kept_in: str, name: str
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world)
    buyer, seller = await world.both()
    given = holding(large(buyer), (f">{SOURCE}<", f">{name}<"))
    await bring(seller, given)
    await world.wait(2)
    [error] = told(world)
    assert (error.error_code, error.ref_to_message_in_error) == ("EBMS:0009", ONE)
    assert await seller.work() == {}
    assert await stored(seller, given) == []
    assert await standing(seller, given) is Standing.REJECTED


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_of_a_refused_message_of_unsigned_fragments_the_beginning_is_kept(
    world: World, kept_in: str, signed: bool
) -> None:
    world.kept_in = kept_in
    agree_on_splitting(world, signed=signed)
    buyer, seller = await world.both()
    given = holding(large(buyer), ('href="cid:', 'href="cid:nowhere-'))
    await bring(seller, given)
    await world.wait(2)
    assert {one.error_code for one in told(world)} == {"EBMS:0007"}
    [kept] = await seller.node.received(SOURCE)
    assert kept.state is State.REJECTED
    assert (kept.unproven, kept.envelope is None) == (not signed, not signed)
    assert await seller.work() == {}
    assert await stored(seller, given) == []


def random_bytes(size: int) -> bytes:
    """Nothing that could be compressed; always the same."""
    return random.Random(7).randbytes(size)
