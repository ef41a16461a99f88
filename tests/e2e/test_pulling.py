"""Pulling between real nodes, over real sockets, with the commands that users have."""

import hashlib
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.e2e.nodes import Pair, make_pair, started, until

SIGNED = "seller-collects-signed"
PLAIN = "seller-collects"
AGAIN = "seller-collects-again"
ANSWERED = "seller-pulls-receipts"


def _pmode(
    pair: Pair, name: str, *, signed: bool = False, again: bool = False
) -> dict[str, object]:
    """The seller pulls from the buyer."""
    with pair.buyer.client() as client:
        [known] = [one for one in client.pmodes() if one.id == "buyer-to-seller-order"]
    door = next(one for one in pair.buyer.serving.doors if "msh" in one.serve)
    security: dict[str, object] = {"send_receipt": {"reply_pattern": "callback"}}
    puller: dict[str, object] = {"party": known.responder}
    if signed:
        signature = {"certificate": "../keys/buyer.pem"}
        security["x509"] = {"sign": True, "signature": signature}
        security["send_receipt"] = {
            "reply_pattern": "callback",
            "non_repudiation": True,
            "certificate": "../keys/seller.pem",
        }
    else:
        puller["authorization"] = {"username": "seller", "password": "a secret of ours"}
    leg = {
        "protocol": {"address": door.url + door.path},
        "business_info": {"service": "urn:example:collected", "action": name},
        "security": security,
        "pulling": {"scheduled": False, "piggyback": signed},
    }
    if again:
        often = {"max_retries": "unlimited", "timeout": "PT1S", "period": "PT1S"}
        leg["reception_awareness"] = {"retry": {"parameters": often}}
    return {
        "id": name,
        "agreement": {"value": "urn:example:agreed", "include_pmode": True},
        "mep_binding": "pull",
        "initiator": puller,
        "responder": {"party": known.initiator},
        "legs": [leg],
    }


def _answered(pair: Pair) -> dict[str, object]:
    """The seller pushes to the buyer, and pulls the receipts from there."""
    pmode = _pmode(pair, ANSWERED) | {"mep_binding": "push"}
    routing = {"business_info": {"mpc": "http://buyer.example/receipts"}}
    addressing = {"address": "icloud", "epr": {"routing_input": routing}}
    [leg] = pmode["legs"]  # type: ignore[misc, has-type]
    leg["security"]["send_receipt"] = {"reply_pattern": "pull", "addressing": addressing}
    leg["pulling"] = {"scheduled": False}
    return pmode


@pytest.fixture(scope="module")
def collecting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = make_pair(tmp_path_factory.mktemp("collecting"))
    try:
        started(pair)
        for one in (pair.buyer, pair.seller):
            agreed = [
                _pmode(pair, PLAIN),
                _pmode(pair, SIGNED, signed=True),
                _pmode(pair, AGAIN, again=True),
                _answered(pair),
            ]
            text = yaml.safe_dump({"pmodes": agreed})
            (one.folder / "pmodes" / "collected.yaml").write_text(text)
            with one.client() as client:
                client.reload()
        yield pair
    finally:
        pair.end()


@pytest.mark.parametrize("pmode", [PLAIN, SIGNED])
def test_a_supplier_collects_its_orders(collecting: Pair, pmode: str) -> None:
    pair = collecting
    order = pair.buyer.folder / "order.xml"
    nothing = pair.seller.run("pull", pmode)
    assert (nothing.exit_code, nothing.stdout) == (0, ""), nothing.output
    assert "nothing is there" in nothing.stderr
    names = []
    for _ in range(3):
        sent = pair.buyer.run("send", "--pmode", pmode, "--payload", order)
        assert sent.exit_code == 0, sent.output
        names.append(sent.stdout.strip())
    once = pair.seller.run("pull", pmode, "--once")
    assert (once.exit_code, once.stdout) == (0, f"{names[0]} delivered\n"), once.output
    rest = pair.seller.run("pull", pmode, "--json")
    [told] = json.loads(rest.stdout)
    assert [one["message_id"] for one in told["messages"]] == names[1:]
    with pair.buyer.client() as client:
        for name in names:
            assert client.wait(name, 30).state == "acknowledged"
            story = [one.event for one in client.events(name)]
            assert story == ["submitted", "queued", "sent", "receipt_received"]
    with pair.seller.client() as client:
        story = [one.event for one in client.events(names[0])]
        assert story[:3] == ["pulled", "received", "delivered"]


def test_a_sender_pulls_the_receipt_of_what_it_pushed(collecting: Pair) -> None:
    pair = collecting
    sent = pair.seller.run(
        "send", "--pmode", ANSWERED, "--payload", pair.seller.folder / "order.xml"
    )
    assert sent.exit_code == 0, sent.output
    name = sent.stdout.strip()
    with pair.buyer.client() as client:
        until(lambda: bool(list(client.inbox(pmode=ANSWERED))), "it is delivered")
    with pair.seller.client() as client:
        assert client.status(name).state in ("sending", "waiting")
    pulled = pair.seller.run("pull", ANSWERED)
    assert (pulled.exit_code, pulled.stdout) == (0, f"{name} acknowledged\n"), pulled.output


def test_a_selection_brings_the_message_that_is_wanted(collecting: Pair) -> None:
    pair = collecting
    order = pair.buyer.folder / "order.xml"
    for number in (1, 2):
        sent = pair.buyer.run(
            *("send", "--pmode", PLAIN, "--payload", order),
            *("--message-id", f"sel-{number}@buyer", "--conversation", f"talk-{number}"),
        )
        assert sent.exit_code == 0, sent.output
    both = pair.seller.run("pull", PLAIN, "--conversation", "talk-2", "--ref-to", "x@y")
    assert both.exit_code == 2
    assert "not used together" in both.stderr
    agreed = ("--agreement", "urn:example:agreed", "--agreement-pmode", PLAIN)
    chosen = pair.seller.run("pull", PLAIN, "--conversation", "talk-2", *agreed)
    assert (chosen.exit_code, chosen.stdout) == (0, "sel-2@buyer delivered\n"), chosen.output
    every = pair.seller.run("pull")
    assert (every.exit_code, every.stdout) == (0, "sel-1@buyer delivered\n"), every.output


def test_a_large_message_is_pulled_in_pieces(collecting: Pair, tmp_path: Path) -> None:
    pair = collecting
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(range(256)) * 40_000)
    sent = pair.buyer.run("send", "--pmode", PLAIN, "--payload", large)
    name = sent.stdout.strip()
    with pair.buyer.client() as client:
        until(
            lambda: any(one.event == "queued" for one in client.events(name)),
            "it is in its channel",
        )
    pulled = pair.seller.run("pull", PLAIN)
    assert (pulled.exit_code, pulled.stdout) == (0, f"{name} delivered\n"), pulled.output
    with pair.seller.client() as client:
        [part] = client.status(name, side="receiving").parts
        assert part.size == large.stat().st_size
        assert part.sha256 == hashlib.sha256(large.read_bytes()).hexdigest()
    with pair.buyer.client() as client:
        assert client.wait(name, 30).state == "acknowledged"


def test_who_is_killed_while_it_is_pulled_from_loses_nothing(collecting: Pair) -> None:
    pair = collecting
    payload = (pair.buyer.folder / "order.xml").read_bytes()
    names = {f"killed-{number}@buyer" for number in range(40)}
    with pair.buyer.client() as client:
        for name in sorted(names):
            client.send(pmode=AGAIN, payloads=[payload], message_id=name)

    def die_and_rise() -> None:
        with pair.seller.client() as client:
            until(lambda: any(one.message_id in names for one in client.inbox()), "traffic")
        assert pair.buyer.end(signal.SIGKILL) == -signal.SIGKILL
        pair.buyer.start()

    def all_are_there() -> bool:
        with pair.seller.client() as client:
            client.pull(AGAIN, most=5)
            return names <= {one.message_id for one in client.inbox()}

    with ThreadPoolExecutor(1) as pool:
        up = pool.submit(die_and_rise)
        until(all_are_there, "all messages are in the inbox")
        up.result()
    with pair.buyer.client() as client:
        for name in names:
            assert client.wait(name, 30).state == "acknowledged"
    with pair.seller.client() as client:
        for name in names:
            assert [one.event for one in client.events(name)].count("delivered") == 1


def test_a_partner_that_is_not_there_is_told_in_one_line(collecting: Pair) -> None:
    pair = collecting
    assert pair.buyer.end() == 0
    try:
        gone = pair.seller.run("pull", PLAIN)
    finally:
        pair.buyer.start()
    assert gone.exit_code == 1
    assert len(gone.stderr.strip().splitlines()) == 1
    wrong = pair.buyer.run("pull", PLAIN)
    assert wrong.exit_code != 0
    assert "nothing of seller-collects is pulled by" in wrong.stderr
