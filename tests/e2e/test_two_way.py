"""Requests and replies between real nodes, over real sockets, in every binding of Two-Way."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e.nodes import Pair, postroad, until

BINDINGS: Final = ("sync", "pushAndPush", "pushAndPull", "pullAndPush", "pullAndPull")
LATE: Final = "late"
OFFERED: Final = "http://buyer.example/late"
ASKED: Final = "late@seller.example"
USER: Final = {"username": "one of us", "password": "a secret of ours"}


def _leg(pair: Pair, sender: str, action: str, pulled: bool, response: bool) -> dict[str, Any]:
    other = "seller" if sender == "buyer" else "buyer"
    at = getattr(pair, sender if pulled else other)
    door = next(one for one in at.serving.doors if "msh" in one.serve)
    receipt = {
        "reply_pattern": "callback" if pulled or response else "response",
        "non_repudiation": True,
        "certificate": f"../keys/{other}.pem",
    }
    leg: dict[str, Any] = {
        "protocol": {"address": door.url + door.path},
        "business_info": {"service": "urn:example:prices", "action": action},
        "security": {
            "x509": {"sign": True, "signature": {"certificate": f"../keys/{sender}.pem"}},
            "send_receipt": receipt,
        },
    }
    if pulled:
        leg["pulling"] = {"interval": "PT1S", "longest": "PT1S"}
    if response and not pulled:
        del leg["protocol"]["address"]
    return leg


def _pmode(
    pair: Pair,
    name: str,
    binding: str,
    alternate: str | None = None,
    between: tuple[str, str] = ("buyer", "seller"),
) -> dict[str, Any]:
    """The first of the two asks, the other one answers."""
    asks, answers = between
    with pair.buyer.client() as client:
        [known] = [one for one in client.pmodes() if one.id == "buyer-to-seller-order"]
    pulled = binding.startswith("pull"), (alternate or binding).endswith("Pull")
    legs = [
        _leg(pair, asks, f"Ask-{name}", pulled[0], False),
        _leg(pair, answers, f"Say-{name}", pulled[1], binding == "sync"),
    ]
    if alternate is not None:
        legs[1]["protocol"]["address"] = legs[0]["protocol"]["address"]
        legs[1]["business_info"]["mpc_alternate"] = OFFERED
    parties = {"buyer": known.initiator, "seller": known.responder}
    sides: list[dict[str, Any]] = [{"party": parties[one]} for one in between]
    if binding.startswith("pull"):
        sides.reverse()
    if any(pulled):
        sides[0]["authorization"] = USER
    if all(pulled):
        sides[1]["authorization"] = USER
    bound = {"value": binding} | ({"alternate": alternate} if alternate else {})
    initiator, responder = sides
    return {
        "id": name,
        "mep": "twoWay",
        "mep_binding": bound,
        "initiator": initiator,
        "responder": responder,
        "legs": legs,
    }


@pytest.fixture(scope="module")
def asking(lasting_pair: Pair) -> Iterator[Pair]:
    pair, both = lasting_pair, (lasting_pair.buyer, lasting_pair.seller)
    for one in both:
        if one.process is None:
            one.start()
    agreed = [_pmode(pair, one, one) for one in BINDINGS]
    agreed.append(_pmode(pair, LATE, "sync", "pushAndPull", ("seller", "buyer")))
    for one in both:
        (one.folder / "pmodes" / "two-way.yaml").write_text(yaml.safe_dump({"pmodes": agreed}))
        with one.client() as client:
            client.reload()
    yield pair
    for one in both:
        (one.folder / "pmodes" / "two-way.yaml").unlink()
        with one.client() as client:
            client.reload()


def _answer(pair: Pair, request: str) -> None:
    """The seller's application answers once the request is there."""
    with pair.seller.client() as client:
        until(lambda: any(one.message_id == request for one in client.inbox()), "it was asked")
        client.reply(request, payloads=[b"12 a piece"], reply_id=f"r-{request}")


@pytest.mark.req("P2-2.4.8.1-01")
@pytest.mark.parametrize("binding", BINDINGS)
def test_a_price_is_asked_for_and_answered(asking: Pair, binding: str, tmp_path: Path) -> None:
    pair, name = asking, f"{binding}@buyer.example"
    question = tmp_path / "question.txt"
    question.write_bytes(b"how much?")
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(_answer, pair, name)
        asked = pair.buyer.run(
            *("send", "--pmode", binding, "--payload", question, "--message-id", name),
            *("--wait-reply", "60", "-o", tmp_path / "price.txt"),
        )
        answering.result()
    assert asked.exit_code == 0, asked.output
    assert asked.stdout.split() == [name, f"r-{name}", str(tmp_path / "price.txt")]
    assert (tmp_path / "price.txt").read_bytes() == b"12 a piece"
    with pair.buyer.client() as buyer, pair.seller.client() as seller:
        assert buyer.wait(name, 30).state == "acknowledged"
        assert seller.wait(f"r-{name}", 30).state == "acknowledged"
        assert seller.received(name).reply_message_id == f"r-{name}"
        for client, one in ((buyer, name), (seller, f"r-{name}")):
            proof = tmp_path / f"{one}.zip"
            client.evidence_to(one, proof)
            shown = postroad("inspect", proof)
            assert shown.exit_code == 0, shown.output


def test_a_large_reply_is_the_response_in_pieces(asking: Pair) -> None:
    large = bytes(range(256)) * 40_000
    with asking.buyer.client() as buyer, asking.seller.client() as seller:
        name = buyer.send(pmode="sync", payloads=[b"how much?"]).message_id
        until(lambda: any(one.message_id == name for one in seller.inbox()), "it was asked")
        given = seller.reply(name, payloads=[large])
        reply = buyer.wait_reply(name, 60)
        assert reply is not None
        assert reply.message_id == given.message_id
        assert reply.parts[0].sha256 == hashlib.sha256(large).hexdigest()
        assert buyer.wait(name, 30).state == "acknowledged"


@pytest.mark.req("P2-5.2-05", "P2-5.2-06", "P2-5.2-08", "P2-7.3-03")
def test_a_late_reply_is_fetched_by_itself(asking: Pair) -> None:
    pair = asking
    with pair.seller.client() as client:
        client.send(pmode=LATE, payloads=[b"how much?"], message_id=ASKED)
        until(
            lambda: any(one.error_code == "EBMS:0060" for one in client.events(ASKED)),
            "the buyer says that it is late",
        )
        assert client.wait(ASKED, 30).state == "acknowledged"
        answered = pair.buyer.run("inbox", "reply", ASKED, "--payload", "-", stdin=b"12 a piece")
        assert answered.exit_code == 0, answered.output
        reply = client.wait_reply(ASKED, 60)
        assert reply is not None
        assert (reply.message_id, reply.mpc) == (answered.stdout.strip(), OFFERED)
    with pair.buyer.client() as client:
        assert client.wait(reply.message_id, 30).state == "acknowledged"
