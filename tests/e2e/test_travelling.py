"""An order travels from one real node to another, and everybody can tell."""

import json
import zipfile
from pathlib import Path

import pytest

from tests.e2e.nodes import Pair


@pytest.fixture(params=["pair", "tls_pair"])
def both(request: pytest.FixtureRequest) -> Pair:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Pair)
    return found


def events(pair: Pair, who: str, message_id: str) -> list[str]:
    told = getattr(pair, who).run("trace", message_id, "--json")
    assert told.exit_code == 0, told.output
    return [one["event"] for one in json.loads(told.stdout)["events"]]


def test_an_order_travels_and_is_acknowledged(both: Pair, tmp_path: Path) -> None:
    order = both.buyer.folder / "order.xml"
    sent = both.send(order, "--property", "urgency=high", "--conversation", "c-1", "--wait", "30")
    assert sent.exit_code == 0, sent.output
    message_id = sent.stdout.strip()

    listed = json.loads(both.seller.run("inbox", "list", "--json").stdout)
    [found] = [one for one in listed if one["message_id"] == message_id]
    assert found["properties"] == [{"name": "urgency", "value": "high", "type": None}]
    assert found["conversation_id"] == "c-1"

    got = both.seller.run("inbox", "get", message_id, "-o", f"{tmp_path}/received/", "--ack")
    assert got.exit_code == 0, got.output
    assert Path(got.stdout.strip()) == tmp_path / "received" / "order.xml"
    assert (tmp_path / "received" / "order.xml").read_bytes() == order.read_bytes()
    assert message_id not in both.seller.run("inbox", "list").stdout
    assert message_id in both.seller.run("inbox", "list", "--all").stdout

    assert events(both, "buyer", message_id) == ["submitted", "sent", "receipt_received"]
    assert events(both, "seller", message_id) == ["received", "delivered", "receipt_sent"]


def test_the_proof_of_an_order_can_be_saved(pair: Pair, tmp_path: Path) -> None:
    sent = pair.send(pair.buyer.folder / "order.xml", "--wait")
    message_id = sent.stdout.strip()
    target = tmp_path / "proof.zip"
    saved = pair.buyer.run("evidence", message_id, "-o", target)
    assert saved.exit_code == 0, saved.output
    with zipfile.ZipFile(target) as proof:
        assert any("receipt" in name for name in proof.namelist())


def test_the_same_id_and_content_is_one_message(pair: Pair) -> None:
    order = pair.buyer.folder / "order.xml"
    options = ("--message-id", "once-and-only-once@buyer", "--wait", "--json")
    first, second = (json.loads(pair.send(order, *options).stdout) for _ in range(2))
    assert (first["repeated"], second["repeated"]) == (False, True)
    assert second["state"] == "acknowledged"
    assert events(pair, "seller", "once-and-only-once@buyer").count("delivered") == 1


def test_a_large_payload_from_standard_input_arrives_whole(pair: Pair) -> None:
    content = bytes(range(256)) * 20_000
    sent = pair.buyer.run(
        "send",
        "--pmode",
        "buyer-to-seller-signed",
        "--payload",
        "-;type=application/pdf;name=big.pdf",
        "--no-compress",
        "--wait",
        stdin=content,
    )
    assert sent.exit_code == 0, sent.output
    message_id = sent.stdout.strip()
    with pair.seller.client() as client:
        [part] = client.received(message_id).parts
        assert (part.media_type, part.file_name) == ("application/pdf", "big.pdf")
        assert not part.compressed
        assert client.part(message_id) == content


def test_a_test_message_is_acknowledged_and_not_delivered(pair: Pair) -> None:
    sent = pair.send(pair.buyer.folder / "order.xml", "--test", "--wait")
    assert sent.exit_code == 0, sent.output
    assert sent.stdout.strip() not in pair.seller.run("inbox", "list", "--all").stdout
