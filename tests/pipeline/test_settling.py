"""How doubt ends: what journals and partners say, decided and written down."""

import json
import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer
from pyspark.sql import Row, SparkSession
from typer.testing import CliRunner

from postroad.cli.pipeline_reconcile import reconcile
from postroad.pipeline.evidence import Believing, prove
from postroad.pipeline.evidence_bytes import Kept
from postroad.pipeline.lake import Lake
from postroad.pipeline.schema import MESSAGES, RECONCILIATION, Table
from postroad.pipeline.settling import (
    Open,
    Question,
    Said,
    by_journal,
    partner_says,
    settle,
)
from tests.e2e.nodes import Pair, make_pair, started

AN_HOUR_AGO = datetime.now(UTC) - timedelta(hours=1)
SELLER = "urn:example:seller"
LONG = timedelta(hours=1)


def question(
    class_: str = "in_doubt",
    sender: str = "in_doubt",
    receiver: str | None = None,
    settled_by: str | None = None,
) -> Question:
    return Question(
        "m@b", class_, sender, receiver, settled_by, "urn:example:buyer", SELLER,
        AN_HOUR_AGO, AN_HOUR_AGO, None,
    )  # fmt: skip


# by the journal


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (question("confirmed", receiver="delivered", settled_by="journal"), "delivered"),
        (question("ghost", "failed", "delivered"), "delivered"),
        (question("twice", receiver="delivered"), "delivered"),
        (question("refused", receiver="rejected"), "not_received"),
        (question("failed", receiver="pending", settled_by="journal"), "not_received"),
        (question("failed", "expired", None, "journal"), "not_received"),
        (question("failed", receiver="received", settled_by="journal"), None),
        (question("failed", "failed"), None),
        (question("in_doubt"), None),
        (question("pending", receiver="received"), None),
    ],
)
def test_the_receivers_journal_settles_what_it_knows_for_certain(
    asked: Question, answer: str | None
) -> None:
    found = by_journal(asked)
    assert (found and found.answer) == answer
    assert (found and found.who) == (answer and "journal")


# by the partner


@pytest.mark.parametrize(
    ("state", "events", "epoch", "answer"),
    [
        ("delivered", ["received", "delivered"], 1, "delivered"),
        ("consumed", ["received", "delivered"], 1, "delivered"),
        ("held", ["received", "held"], 1, "received"),
        ("received", ["received"], 1, "received"),
        ("rejected", ["rejected"], 1, "not_received"),
        (None, [], 1, "not_received"),
        (None, [], 2, None),
        (None, ["received", "delivered", "purged"], 1, "delivered"),
        (None, ["received", "purged"], 1, "received"),
        (None, ["error_raised", "rejected", "purged"], 1, "not_received"),
    ],
)
def test_a_partner_is_believed_as_far_as_it_can_know(
    state: str | None, events: list[str], epoch: int, answer: str | None
) -> None:
    assert partner_says(SELLER, state, events, epoch, LONG).answer == answer


def test_a_message_may_still_be_on_its_way_to_a_partner_that_does_not_have_it() -> None:
    assert partner_says(SELLER, None, [], 1, timedelta(seconds=10)).answer is None


NO = Said(SELLER, "not_received", "never had it")
YES = Said(SELLER, "delivered", "has it")
UNSURE = Said(SELLER, None, "restored")


@pytest.mark.parametrize(
    ("said", "answer"),
    [([NO, YES], "delivered"), ([NO, NO], "not_received"), ([NO, UNSURE], None), ([], None)],
)
def test_all_nodes_of_a_partner_must_know_that_it_has_nothing(
    said: list[Said], answer: str | None
) -> None:
    plan = settle([question()], {"m@b": said})
    assert [one.answer for one in plan.settlements] == ([answer] if answer else [])
    assert len(plan.open) == (0 if answer else 1)


def test_the_journal_counts_more_than_what_a_partner_says() -> None:
    known = question("confirmed", receiver="delivered", settled_by="journal")
    [settlement] = settle([known], {"m@b": [NO]}).settlements
    assert (settlement.answer, settlement.who) == ("delivered", "journal")


def test_partners_that_cannot_be_asked_are_listed() -> None:
    plan = settle([question()], {})
    assert plan.settlements == ()
    assert plan.open == (
        Open("m@b", SELLER, f"nobody said where to ask {SELLER}: give --partner {SELLER}=URL"),
    )


# with real nodes


class Lossy(socketserver.BaseRequestHandler):
    """Hands on messages whose id says so, and loses every answer."""

    seller: ClassVar[tuple[str, int]]

    def handle(self) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.request.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.I)
        assert length is not None
        while len(body) < int(length[1]):
            body += self.request.recv(65536)
        if b"arrives@" in body:
            with socket.create_connection(self.seller) as onward:
                onward.sendall(head + b"\r\n\r\n" + body)
                onward.recv(65536)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A buyer and a seller between whom every answer is lost."""
    pair = make_pair(tmp_path_factory.mktemp("pair"), "--unsigned")
    file = pair.buyer.folder / "pmodes" / "buyer-to-seller-plain.yaml"
    text = file.read_text()
    address = re.search(r"http://127\.0\.0\.1:(\d+)/msh", text)
    assert address is not None
    Lossy.seller = ("127.0.0.1", int(address[1]))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Lossy) as lossy:
        threading.Thread(target=lossy.serve_forever, daemon=True).start()
        text = text.replace(f":{address[1]}/", f":{lossy.server_address[1]}/")
        text = re.sub(r"max_retries: 8", "max_retries: 1", text)
        text = re.sub(r"period: PT30S", "period: PT1S", text)
        file.write_text(text)
        try:
            yield started(pair)
        finally:
            pair.end()
            lossy.shutdown()


def written(lake: Lake, table: Table, rows: list[dict[str, Any]], batch: int) -> None:
    change = lake.begin(batch)
    assert change is not None
    full = [Row(**{name: row.get(name) for name in table.names}) for row in rows]
    frame = lake.spark.createDataFrame(full, table.schema)
    change.add(table.name, frame.selectExpr("*", "'2026-05-01' as date"))
    change.commit()


def in_doubt(lake: Lake, *ids: tuple[str, str]) -> None:
    """A lake in which messages to these partners are in doubt."""
    common = {"sender_outcome": "in_doubt", "deliveries": 0}
    times = {"first_at": AN_HOUR_AGO, "last_at": AN_HOUR_AGO}
    doubts = [{"message_id": one, "class": "in_doubt", **common, **times} for one, _ in ids]
    written(lake, RECONCILIATION, doubts, 1)
    sent = {"side": "sending", "party": "urn:example:buyer", "last_sent_at": AN_HOUR_AGO}
    written(lake, MESSAGES, [{"message_id": one, "to_party": to, **sent} for one, to in ids], 2)


def called(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(reconcile)
    return CliRunner().invoke(app, list(arguments))


def test_doubt_ends_by_asking_the_partner(pair: Pair, spark: SparkSession, tmp_path: Path) -> None:
    ids = ("arrives@buyer.example", "vanishes@buyer.example")
    buyer, seller = pair.buyer.client(), pair.seller.client()
    for one in ids:
        buyer.send(pmode="buyer-to-seller-plain", payloads=[b"<a/>"], message_id=one)
    assert [buyer.wait(one, 60).state for one in ids] == ["in_doubt", "in_doubt"]
    lake = Lake(spark, str(tmp_path))
    in_doubt(lake, *((one, SELLER) for one in ids), ("other@buyer.example", "urn:example:nobody"))
    tokens = [
        (one.folder / "keys" / "api.token").read_text().strip() for one in (pair.buyer, pair.seller)
    ]
    told = called(
        "--lake", str(tmp_path), "--json", "--settle",
        "--node", pair.buyer.serving.api_url or "", "--token", tokens[0],
        "--partner", f"{SELLER}={pair.seller.serving.api_url}", "--partner-token", tokens[1],
    )  # fmt: skip
    assert told.exit_code == 1, told.output
    facts = json.loads(told.stdout)
    assert facts["classes"]["in_doubt"] == 3
    assert {one["message_id"]: (one["answer"], one["who"]) for one in facts["settled"]} == {
        ids[0]: ("delivered", SELLER),
        ids[1]: ("not_received", SELLER),
    }
    assert [one["message_id"] for one in facts["open"]] == ["other@buyer.example"]
    assert [(buyer.status(one).state, buyer.status(one).detail) for one in ids] == [
        ("settled", "delivered"),
        ("settled", "not_received"),
    ]
    settled = [one for one in buyer.events(ids[0]) if one.event == "settled"]
    assert [(one.peer, one.detail) for one in settled] == [(SELLER, "delivered")]
    assert seller.status(ids[0], side="receiving").state == "delivered"


def test_a_receipt_is_found_where_the_journal_of_a_running_node_says(pair: Pair) -> None:
    buyer, message_id = pair.buyer.client(), "proven@buyer.example"
    buyer.send(pmode="buyer-to-seller-signed", payloads=[b"<a/>"], message_id=message_id)
    assert buyer.wait(message_id, 60).state == "acknowledged"
    told = {one.event: one for one in buyer.events(message_id)}
    receipt, sent = told["receipt_received"], told["sent"]
    believing = Believing((pair.buyer.folder / "keys" / "seller.pem").read_bytes())
    found = prove(
        believing.prover(),
        Kept({"buyer": str(pair.buyer.data)}),
        message_id,
        receipt.signal_id or "",
        round(receipt.at.timestamp() * 1e6),
        "buyer",
        receipt.evidence,
        sent.evidence,
    )
    assert (found.valid, found.detail) == (True, None)


def test_the_reconciliation_is_told_in_words(spark: SparkSession, tmp_path: Path) -> None:
    in_doubt(Lake(spark, str(tmp_path)), ("one@buyer.example", SELLER))
    told = called("--lake", str(tmp_path))
    assert told.exit_code == 0
    assert re.search(r"in_doubt\s+1", told.stdout)
    assert "one@buyer.example" in told.stdout
    assert "one@buyer.example" not in called("--lake", str(tmp_path), "--class", "lost").stdout


def test_what_cannot_be_done_is_told_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    for arguments, words in (
        ([], "say with --lake"),
        (["--lake", str(tmp_path), "--class", "odd"], "there is no class odd"),
        (["--lake", str(tmp_path), "--partner", "seller"], "not of the form PARTY=URL"),
        (["--lake", str(tmp_path)], "run postroad pipeline run first"),
    ):
        told = called(*arguments)
        assert told.exit_code == 2
        assert told.stderr.count("\n") == 1
        assert words in told.stderr
