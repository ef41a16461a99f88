"""Who may pull: user names, signatures, certificates; and what a stranger learns: nothing."""

import re
from typing import Any
from unittest.mock import Mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from postroad.msh import pulling
from postroad.node.base.requests import Request
from postroad.node.service import Refused
from postroad.store.records import State
from postroad.wire.ebms3 import Selection
from postroad.wire.errors import EbmsError
from postroad.wire.names import DEFAULT_MPC
from tests.node.collecting import MPC, USER, collect, errors, given, request, said
from tests.node.reliable import BUYER, CARRIER, SELLER, SOAP, STORES, Station, World, played
from tests.node.reliable import _pieces as pieces

M = "m@buyer"
WRONG: dict[str, str] = {"username": "seller", "password": "a guess"}


async def refusal(buyer: Station, body: bytes) -> bytes:
    """What is answered to who may not, but for ids and times."""
    answer = await buyer.receive(SOAP, body)
    assert (answer.status, errors(answer)) == (200, ["EBMS:0101"])
    assert (await buyer.message(M)).state is State.READY
    return re.sub(rb">[^<]*(@|Z<)[^<]*|refToMessageInError=\S+", b"", answer.body)


async def why(buyer: Station) -> str:
    [event] = await buyer.journal("error_raised")
    assert event.error_code == "EBMS:0101"
    return event.detail or ""


@pytest.mark.parametrize(
    ("agreed", "shown", "said_why"),
    [
        (USER, WRONG, "user name or password are wrong"),
        (USER, USER | {"username": "carrier"}, "user name or password are wrong"),
        (USER, None, "0 user name tokens"),
    ],
)
@played
async def test_wrong_or_missing_credentials_get_nothing(
    world: World, agreed: dict[str, str], shown: dict[str, str] | None, said_why: str
) -> None:
    collect(world, user=agreed, at=(BUYER,))
    collect(world, user=shown, at=(SELLER,))
    buyer, seller = await world.both()
    await buyer.send(M)
    await refusal(buyer, request(seller))
    assert said_why in await why(buyer)


@played
async def test_a_stranger_does_not_learn_which_channels_there_are(world: World) -> None:
    collect(world, mpc=MPC, at=(BUYER,))
    collect(world, mpc=MPC, user=WRONG, at=(SELLER,))
    collect(world, "other", mpc="http://buyer.example/unheard", user=WRONG, at=(SELLER,))
    buyer, seller = await world.both()
    await buyer.send(M)
    there = await refusal(buyer, request(seller))
    nowhere = await refusal(buyer, request(seller, "other"))
    assert there == nowhere


@played
async def test_every_refusal_is_the_same_work(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(world, mpc=MPC)
    collect(world, "shared", mpc=MPC)
    collect(world, "lonely", mpc="http://buyer.example/lonely")
    collect(world, "other", mpc="http://buyer.example/unheard", at=(SELLER,))
    check = Mock(side_effect=EbmsError("EBMS:0101", "no"))
    monkeypatch.setattr(pulling, "check_username_token", check)
    buyer, seller = await world.both()
    for times, name in enumerate(("shared", "lonely", "other"), 1):
        assert errors(await buyer.receive(SOAP, request(seller, name))) == ["EBMS:0101"]
        assert check.call_count == 2 * times


@played
async def test_a_request_does_not_look_at_the_channels_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(world, mpc=MPC, sub="north")
    collect(world, "others", by=CARRIER, mpc=MPC, sub="south", at=(BUYER,))
    buyer, seller = await world.both()
    first, second = request(seller), request(seller)
    assert errors(await buyer.receive(SOAP, first)) == ["EBMS:0006"]
    # However many there are, they were arranged before.
    for name in ("_puller_terms", "is_below", "message_channel", "channel_of"):
        monkeypatch.setattr(pulling, name, Mock(side_effect=AssertionError))
    assert errors(await buyer.receive(SOAP, second)) == ["EBMS:0006"]


@pytest.mark.parametrize("kept_in", STORES)
@played
async def test_a_token_that_came_before_gets_nothing(world: World, kept_in: str) -> None:
    world.kept_in = kept_in
    collect(world)
    buyer, seller = await world.both()
    body = request(seller)
    assert errors(await buyer.receive(SOAP, body)) == ["EBMS:0006"]
    await buyer.send(M)
    await refusal(buyer, body)
    buyer = await world.start_again(BUYER)
    await refusal(buyer, body)
    assert given(await buyer.receive(SOAP, request(seller))) == M


@played
async def test_a_token_that_is_too_old_gets_nothing(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    body = request(seller)
    await world.wait(601)
    await refusal(buyer, body)
    assert "too long ago" in await why(buyer)


@played
async def test_the_journal_says_why_also_where_others_share_the_channel(world: World) -> None:
    collect(world)
    collect(world, "others", by=CARRIER, user={"username": "carrier", "password": "another"})
    buyer, seller = await world.both()
    await buyer.send(M)
    body = request(seller)
    await world.wait(601)
    await refusal(buyer, body)
    assert "too long ago" in await why(buyer)


@pytest.mark.parametrize("digest", [True, False])
@played
async def test_a_password_in_the_clear_is_taken_only_where_that_is_agreed(
    world: World, digest: bool
) -> None:
    collect(world, at=(BUYER,), digest=digest)
    collect(world, at=(SELLER,), digest=False)
    buyer, seller = await world.both()
    await buyer.send(M)
    body = request(seller)
    assert USER["password"].encode() in body
    if digest:
        await refusal(buyer, body)
        assert "in the clear" in await why(buyer)
    else:
        assert given(await buyer.receive(SOAP, body)) == M


@played
async def test_a_digest_keeps_the_password_from_the_wire(world: World) -> None:
    collect(world)
    _, seller = await world.both()
    body = request(seller)
    assert USER["password"].encode() not in body
    assert b'S12:role="ebms"' in body


@played
async def test_a_signed_request_is_answered_by_a_signed_message(world: World) -> None:
    collect(world, user=None, signed=True)
    buyer, seller = await world.both()
    await buyer.send(M)
    collected = await seller.process.ask(seller.node.pull("orders"))
    assert collected.messages == (M,)
    await world.wait(2)
    assert await seller.state(M) is State.DELIVERED
    assert await buyer.state(M) is State.ACKNOWLEDGED
    empty = await buyer.receive(SOAP, request(seller))
    assert errors(empty) == ["EBMS:0006"]
    assert b"SignatureValue" in empty.body


@played
async def test_who_signs_with_a_key_of_somebody_else_gets_nothing(world: World) -> None:
    collect(world, user=None, signed=True)
    world.sign_as(SELLER, BUYER)
    buyer, seller = await world.both()
    await buyer.send(M)
    await refusal(buyer, request(seller))


@played
async def test_who_does_not_sign_gets_nothing_where_signatures_are_agreed(world: World) -> None:
    collect(world, user=None, signed=True, at=(BUYER,))
    collect(world, at=(SELLER,))
    buyer, seller = await world.both()
    await buyer.send(M)
    await refusal(buyer, request(seller))
    assert "not signed" in await why(buyer)


@played
async def test_a_signed_request_that_came_before_gets_nothing(world: World) -> None:
    collect(world, user=None, signed=True)
    buyer, seller = await world.both()
    body = request(seller)
    assert errors(await buyer.receive(SOAP, body)) == ["EBMS:0006"]
    await buyer.send(M)
    await refusal(buyer, body)
    await world.wait(601)
    await refusal(buyer, body)


@played
async def test_who_needs_both_shows_both(world: World) -> None:
    collect(world, signed=True, sign=True)
    buyer, seller = await world.both()
    await buyer.send(M)
    body = request(seller)
    assert b"SignatureValue" in body
    assert b"UsernameToken" in body
    without = body.replace(b"UsernameToken", b"UsernameTokem")
    await refusal(buyer, without)
    assert given(await buyer.receive(SOAP, body)) == M


@played
async def test_two_partners_of_one_channel_get_their_own_messages_only(world: World) -> None:
    other = {"username": "carrier", "password": "quite another"}
    collect(world, "north", mpc=MPC)
    collect(world, "south", by=CARRIER, user=other, mpc=MPC)
    buyer, seller = await world.both()
    carrier = await world.start(CARRIER)
    await buyer.send(M, pmode="south")
    assert errors(await buyer.receive(SOAP, request(seller, "north"))) == ["EBMS:0006"]
    assert given(await buyer.receive(SOAP, request(carrier, "south"))) == M


@played
async def test_what_nobody_may_pull_is_not_taken_over(world: World) -> None:
    collect(world, user=None)
    buyer = await world.start(BUYER)
    with pytest.raises(Refused, match="says of nobody that it may pull"):
        await buyer.send(M)


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (b"</eb:PullRequest>", b"<eb:Colour>red</eb:Colour></eb:PullRequest>", "EBMS:0009"),
        (
            b"</eb:PullRequest>",
            b"<eb:Action>a</eb:Action><eb:Action>b</eb:Action></eb:PullRequest>",
            "EBMS:0009",
        ),
        (b"</eb:MessageId>", b"</eb:MessageId><eb:MessageId/>", "EBMS:0009"),
        (b"</eb:Messaging>", b"<eb:UserMessage/></eb:Messaging>", None),
    ],
)
@played
async def test_a_broken_request_gets_an_error_and_no_message(
    world: World, before: bytes, after: bytes, code: str | None
) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    answer = await buyer.receive(SOAP, request(seller).replace(before, after))
    found: list[Any] = errors(answer)
    assert found
    assert code is None or set(found) == {code}
    assert await buyer.state(M) is State.READY
    assert said(answer).user_messages == ()


@played
async def test_a_request_without_a_channel_is_for_the_default_one(world: World) -> None:
    collect(world)
    buyer, seller = await world.both()
    await buyer.send(M)
    body = request(seller).replace(f' mpc="{DEFAULT_MPC}"'.encode(), b"")
    assert b"mpc" not in body
    assert given(await buyer.receive(SOAP, body)) == M


@played
async def test_who_shows_the_agreed_tls_certificate_may_pull(world: World) -> None:
    collect(world, user=None, client=True)
    buyer, seller = await world.both()
    await buyer.send(M)
    body = request(seller)
    assert b"Security" not in body
    for shown in (None, "buyer", "seller"):
        der = None
        if shown is not None:
            pem = (world.folder / f"buyer/keys/{shown}.pem").read_bytes()
            der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
        asked = Request(SOAP, "192.0.2.1", pieces(body), client_certificate=der)
        answer = await buyer.process.ask(buyer.node.receive(asked))
        if shown == "seller":
            assert given(answer) == M
        else:
            assert errors(answer) == ["EBMS:0101"]


@pytest.mark.req("P2-7.3-02")
@played
async def test_a_selection_by_request_and_conversation_at_once_is_not_asked_for(
    world: World,
) -> None:
    collect(world)
    seller = await world.start(SELLER)
    both = Selection(ref_to_message_id="a@b", conversation_id="c")
    with pytest.raises(Refused, match="not used together"):
        await seller.node.pull("orders", both)
    assert world.wire.posted == []
