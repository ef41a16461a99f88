"""Messages that go out in fragments: cut, written, sent, answered."""

import hashlib
import re
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from postroad.msh import splitting as msh_splitting
from postroad.node.large import fragmenting
from postroad.node.large.fragmenting import SecuredFragment, secured
from postroad.node.service import Refused, Submission, SubmittedPayload
from postroad.node.steps.split_outcome import AT_ONCE
from postroad.store.records import State
from postroad.wire.content import BytesContent
from tests.node.reliable import (
    BUYER,
    ORDERS,
    SELLER,
    STORES,
    Held,
    World,
    party,
    played,
    refused,
    status,
)
from tests.node.splitting import BIG, PAYLOAD, RETRY, Partner, agree, fragments, splitting

in_every_store = pytest.mark.parametrize("kept_in", STORES)


@in_every_store
@played
async def test_a_large_message_goes_in_fragments_and_is_acknowledged_as_a_whole(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, partner = await world.start(BUYER), Partner(fragment_size=30_000)
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    assert partner.numbers == [1, 2, 3, 4]
    assert {one.state for one in await fragments(buyer)} == {State.WAITING}
    assert await buyer.state(BIG) is State.WAITING
    [part] = partner.joined().attachments
    assert b"".join(part.content.chunks()) == PAYLOAD
    await partner.acknowledge(world)
    assert {one.state for one in await fragments(buyer)} == {State.ACKNOWLEDGED}
    assert await buyer.state(BIG) is State.WAITING
    await partner.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert await buyer.work() == {}
    assert await buyer.story(BIG) == ["submitted", "split", "sent", "receipt_received"]


@played
async def test_what_fits_into_a_fragment_goes_whole(world: World) -> None:
    agree(world)
    buyer, seller = await world.both()
    await buyer.send("small@buyer", payload=PAYLOAD[:20_000])
    await world.until(2)
    assert len(world.wire.to(SELLER)) == 1
    assert await seller.inbox() == ["small@buyer"]
    assert await buyer.state("small@buyer") is State.ACKNOWLEDGED
    assert "split" not in await buyer.story("small@buyer")


@pytest.mark.req("P2-4.4.2-05", "P2-4.4.2-08")
@played
async def test_a_fragment_is_sent_again_alone_and_with_the_same_bytes(world: World) -> None:
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    await partner.acknowledge(world, 1, 3, 4)
    await world.until(12)
    assert partner.numbers == [1, 2, 3, 4, 2]
    first, again = (one for one, _, arrival in partner.came if arrival.fragment.fragment_num == 2)
    assert (again.content_type, again.body) == (first.content_type, first.body)
    names = {arrival.message_id for _, _, arrival in partner.came}
    assert len(names | {BIG}) == 5
    await partner.acknowledge(world, 2)
    await partner.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert [one.attempts for one in await fragments(buyer)] == [1, 2, 1, 1]
    assert (await buyer.message(BIG)).attempts == 1


@played
async def test_the_next_fragments_are_signed_while_others_are_on_their_way(world: World) -> None:
    agree(world, size="5000 B")
    world.configure(BUYER, send={"parallel": 1})
    buyer, partner = await world.start(BUYER), Partner()
    hold, signed = Held(partner), []
    world.wire.usual[SELLER] = partner
    world.wire.will(hold)

    def signing(*given: Any) -> SecuredFragment:
        signed.append(given[2].fragment)
        return secured(*given)

    with patch.object(fragmenting, "secured", signing):
        await buyer.send(BIG, payload=PAYLOAD)
        await world.until(2)
        assert (partner.numbers, signed) == ([], [1, 2, 3])
        kept = [one.fragment for one in await fragments(buyer) if one.envelope is not None]
        assert kept == [1], "what is not on its way yet never left"
        hold.release()
        await world.until(4)
    assert partner.numbers == signed == list(range(1, 22))
    await partner.acknowledge(world)
    await partner.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED


@in_every_store
@played
async def test_a_refused_fragment_ends_its_group_at_once(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    await partner.acknowledge(world, 1)
    await partner.refuse(world, 2)
    message = await buyer.message(BIG)
    assert (message.state, message.error_code) == (State.FAILED, "EBMS:0046")
    assert (message.detail or "").startswith("fragment 2 of 4: ")
    states = [one.state for one in await fragments(buyer)]
    assert states == [State.ACKNOWLEDGED, State.FAILED, State.IN_DOUBT, State.IN_DOUBT]
    assert await buyer.work() == {}
    [notice] = await buyer.node.notices()
    assert (notice.message_id, notice.error_code) == (BIG, "EBMS:0046")
    await world.until(60)
    assert partner.numbers == [1, 2, 3, 4]


@pytest.mark.req("P2-4.2.2-02")
@pytest.mark.parametrize("names", [("big@buyer", "bigger@buyer"), (None, None)])
@played
async def test_each_message_is_a_group_of_its_own(
    world: World, names: tuple[str | None, ...]
) -> None:
    agree(world)
    buyer = await world.start(BUYER)
    world.wire.usual[SELLER] = status(202)
    payload = SubmittedPayload(BytesContent(PAYLOAD), hashlib.sha256(PAYLOAD).digest())
    for name in names:
        await buyer.process.ask(buyer.node.submit(Submission(ORDERS, (payload,), name)))
    await world.until(2)
    posted = world.wire.to(SELLER)
    groups = Counter(re.findall(rb"GroupId>([^<]+)<", b"".join(one.body for one in posted)))
    assert list(groups.values()) == [4, 4]


@pytest.mark.req("P2-4.2.2-02")
@in_every_store
@played
async def test_resending_makes_a_new_group_with_new_fragments(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    await partner.refuse(world, 2)
    old = {one.message_id for one in await fragments(buyer)}
    world.wire.usual[SELLER] = second = Partner()
    await buyer.node.resend(BIG)
    await world.until(4)
    assert second.numbers == [1, 2, 3, 4]
    assert partner.group is not None
    assert second.group is not None
    assert second.group.group_id != partner.group.group_id
    assert old.isdisjoint(one.message_id for one in await fragments(buyer))
    await second.acknowledge(world)
    await second.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    told = await buyer.story(BIG)
    assert told == [
        *("submitted", "split", "sent", "error_received", "delivery_failed"),
        *("resent", "receipt_received"),
    ]
    assert await buyer.work() == {}


@played
async def test_a_message_may_be_resent_while_its_many_fragments_are_still_ended(
    world: World,
) -> None:
    agree(world, size="400 B")
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(3)
    await partner.refuse(world, 1)
    assert await buyer.work() == {"split": 1, "send": len(partner.data) - AT_ONCE}
    world.wire.usual[SELLER] = second = Partner()
    await buyer.node.resend(BIG)
    await world.until(6)
    message = await buyer.message(BIG)
    assert message.state is State.WAITING
    assert await buyer.work() == {"split": 1, "send": len(second.data)}
    await second.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    await world.until(7)
    assert await buyer.work() == {}


@played
async def test_a_message_under_way_and_a_fragment_are_not_resent(world: World) -> None:
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    with pytest.raises(Refused, match="nothing to resend"):
        await buyer.node.resend(BIG)
    [first, *_] = await fragments(buyer)
    with pytest.raises(Refused, match=f"is a fragment: resend {BIG}"):
        await buyer.node.resend(first.message_id)
    with pytest.raises(Refused, match=f"is a fragment: settle {BIG}"):
        await buyer.node.settle(first.message_id, "delivered")


@pytest.mark.req("P2-4.4.2-20")
@played
async def test_a_receipt_for_the_whole_is_held_against_its_parts(world: World) -> None:
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    number, (name, data) = 3, partner.data[3]
    partner.data[number] = (name, bytes(len(data)))
    await partner.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.WAITING
    assert "error_raised" in await buyer.story(BIG)
    partner.data[number] = (name, data)
    await partner.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED


@played
async def test_the_receipt_of_the_whole_settles_fragments_whose_own_is_missing(
    world: World,
) -> None:
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    await partner.acknowledge(world, 1, 2)
    await partner.acknowledge_whole(world)
    found = await fragments(buyer)
    assert {one.state for one in found} == {State.ACKNOWLEDGED}
    assert await buyer.work() == {}
    [*_, last] = await buyer.events(found[3].message_id)
    assert (last.event, last.detail, last.group_id, last.fragment) == (
        "settled",
        "delivered",
        BIG,
        4,
    )
    await world.until(60)
    assert len(partner.came) == 4


@in_every_store
@played
async def test_without_a_receipt_for_the_whole_it_is_in_doubt_until_one_comes(
    world: World, kept_in: str
) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    await partner.acknowledge(world)
    await world.until(600)
    assert await buyer.state(BIG) is State.WAITING
    await world.until(620)
    message = await buyer.message(BIG)
    assert (message.state, message.error_code) == (State.IN_DOUBT, "EBMS:0301")
    assert await buyer.work() == {}
    await partner.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.SETTLED


@played
async def test_where_no_receipts_are_agreed_on_it_was_sent_when_all_fragments_were(
    world: World,
) -> None:
    agree(world, receipts=False, retry=None)
    buyer, partner = await world.start(BUYER), Partner()
    hold = Held(partner)
    world.wire.usual[SELLER] = partner
    world.wire.will(partner, partner, partner, hold)
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    assert await buyer.state(BIG) is State.WAITING
    hold.release()
    await world.until(3)
    assert await buyer.state(BIG) is State.SENT
    assert {one.state for one in await fragments(buyer)} == {State.SENT}
    assert await buyer.work() == {}


@played
async def test_a_fragment_that_nobody_answers_leaves_the_message_in_doubt(world: World) -> None:
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    await partner.acknowledge(world, 1, 2, 3)
    await world.until(200)
    assert partner.numbers == [1, 2, 3, 4, 4, 4, 4]
    message = await buyer.message(BIG)
    assert (message.state, message.error_code) == (State.IN_DOUBT, "EBMS:0301")
    assert await buyer.work() == {}


@played
async def test_a_partner_out_of_reach_fails_the_message_once(world: World) -> None:
    agree(world, retry={"max_retries": 1, "timeout": "PT1S", "period": "PT1S"})
    buyer = await world.start(BUYER)
    world.wire.usual[SELLER] = refused
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(600)
    message = await buyer.message(BIG)
    assert (message.state, message.error_code) == (State.FAILED, "EBMS:0005")
    assert {one.state for one in await fragments(buyer)} == {State.FAILED}
    assert await buyer.story(BIG) == ["submitted", "split", "delivery_failed"]
    assert len(await buyer.node.notices()) == 1
    assert await buyer.work() == {}


@played
async def test_a_message_expires_with_its_fragments(world: World) -> None:
    agree(world, retry=RETRY | {"max_retries": 50, "time_to_live": "PT1M"})
    buyer = await world.start(BUYER)
    world.wire.usual[SELLER] = refused
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(90)
    assert await buyer.state(BIG) is State.EXPIRED
    assert await buyer.story(BIG) == ["submitted", "split", "expired"]
    assert await buyer.work() == {}


@played
async def test_nobody_looks_at_a_message_whose_time_is_over_while_its_receipt_is_waited_for(
    world: World,
) -> None:
    agree(world, retry=RETRY | {"time_to_live": "PT1M"})
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    await partner.acknowledge(world)
    await world.until(120)
    message = await buyer.message(BIG)
    assert message.state is State.WAITING
    assert message.timer is not None
    row = message.timer
    work = await buyer.node.context.store.look(lambda reader: reader.work(row))
    assert work is not None
    assert work.attempt < 5


@played
async def test_a_suspended_message_goes_on_with_what_is_missing(world: World) -> None:
    agree(world, retry=RETRY | {"then": "suspend"})
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    await partner.acknowledge(world, 1, 2, 3)
    await world.until(200)
    assert await buyer.state(BIG) is State.SUSPENDED
    sent = len(partner.came)
    await buyer.node.resume(party(SELLER))
    await world.until(202)
    assert partner.numbers[sent:] == [4]
    await partner.acknowledge(world, 4)
    await partner.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED
    assert await buyer.work() == {}


@in_every_store
@played
async def test_retention_removes_a_message_with_its_fragments(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    await partner.acknowledge(world)
    await world.until(3)
    await buyer.node.purge(0)
    assert len(await fragments(buyer)) == 4
    await partner.acknowledge_whole(world)
    await world.until(4)
    assert await buyer.node.purge(0) == 5
    assert await fragments(buyer) == []
    assert await buyer.node.message(BIG) is None


@pytest.mark.req("P2-4.2.4-01", "P2-4.5-02")
@in_every_store
@pytest.mark.parametrize("algorithm", ["gzip", "deflate", "compress", "identity"])
@played
async def test_a_message_is_compressed_before_it_is_cut(
    world: World, kept_in: str, algorithm: str
) -> None:
    world.kept_in = kept_in
    coding = {"enabled": True, "algorithm": algorithm}
    agree(world, splitting=splitting("2000 B", compression=coding))
    buyer, partner = await world.start(BUYER), Partner(algorithm=algorithm)
    world.wire.usual[SELLER] = partner
    payload = PAYLOAD[:10_240] + bytes(i * i % 251 for i in range(2_000))
    await buyer.send(BIG, payload=payload)
    await world.until(2)
    assert partner.group is not None
    assert (partner.group.algorithm, partner.group.complete) == (algorithm, True)
    if algorithm != "identity":
        assert sum(len(data) for _, data in partner.data.values()) < 10_000
    [part] = partner.joined().attachments
    assert b"".join(part.content.chunks()) == payload
    await partner.acknowledge(world)
    await partner.acknowledge_whole(world)
    assert await buyer.state(BIG) is State.ACKNOWLEDGED


@pytest.mark.req("P2-4.3.1-04", "P2-4.3.1-05", "P2-4.3.1-06", "P2-4.3.1-07", "P2-4.3.1-09")
@pytest.mark.parametrize("soap", ["1.1", "1.2"])
@played
async def test_fragments_are_messages_of_the_same_soap_version(world: World, soap: str) -> None:
    agree(world, soap=soap)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(2)
    assert partner.numbers == [1, 2, 3, 4]
    media_type = {"1.1": "text/xml", "1.2": "application/soap+xml"}[soap]
    joined, kinds = partner.joined(), set()
    for posted, found, arrival in partner.came:
        assert arrival.soap == soap
        assert found.capture is not None
        kind = found.capture.content_type
        assert kind is not None
        assert kind.get("type") == media_type
        assert len(found.capture.attachments) == 1
        kinds |= {kind.get("boundary"), kind.get("start")}
        assert posted.soap_action == ('""' if soap == "1.1" else None)
    assert joined.content_type is not None
    kinds |= {joined.content_type.get("boundary"), joined.content_type.get("start")}
    assert len(kinds) == 10


@played
async def test_only_routing_properties_are_copied_to_fragments(world: World) -> None:
    agree(world, splitting=splitting(routing_properties=["region"]))
    buyer, partner = await world.start(BUYER), Partner(routing_properties=frozenset({"region"}))
    world.wire.usual[SELLER] = partner
    given = SubmittedPayload(BytesContent(PAYLOAD), hashlib.sha256(PAYLOAD).digest())
    properties = (("region", "north", None), ("secret", "yes", None))
    submission = Submission("orders", (given,), BIG, properties=properties)
    await buyer.process.ask(buyer.node.submit(submission))
    await world.until(2)
    for _, _, arrival in partner.came:
        assert [(one.name, one.value) for one in arrival.message.properties] == [
            ("region", "north")
        ]
    assert b"secret" in partner.joined().envelope


@pytest.mark.req("P2-4.4.2-13", "P2-4.7-02")
@played
async def test_the_group_has_the_id_of_the_message_unless_others_may_know_it(world: World) -> None:
    agree(world)
    buyer, partner = await world.start(BUYER), Partner()
    world.wire.usual[SELLER] = partner
    given = SubmittedPayload(BytesContent(PAYLOAD), hashlib.sha256(PAYLOAD).digest())
    made = await buyer.process.ask(buyer.node.submit(Submission("orders", (given,))))
    await world.until(2)
    assert partner.group is not None
    assert partner.group.group_id == made.message.message_id
    world.wire.usual[SELLER] = second = Partner()
    await buyer.send(BIG, payload=PAYLOAD)
    await world.until(4)
    assert second.group is not None
    assert second.group.group_id != BIG
    assert len(second.group.group_id) == 32


@played
async def test_more_fragments_than_can_be_are_refused_with_advice(world: World) -> None:
    agree(world)
    buyer = await world.start(BUYER)
    with patch.object(msh_splitting, "MAX_COUNT", 3):
        await buyer.send(BIG, payload=PAYLOAD)
        await world.until(2)
    message = await buyer.message(BIG)
    assert message.state is State.FAILED
    assert "agree on larger fragments" in (message.detail or "")
