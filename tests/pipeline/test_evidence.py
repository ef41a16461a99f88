"""Receipts verified in bulk: with Spark, from the bytes that nodes kept."""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from postroad.pipeline import evidence
from postroad.pipeline.evidence import prove, prove_some, proven, receipts
from postroad.pipeline.evidence_bytes import GONE, Gone, Kept
from postroad.pipeline.evidence_run import Counts, counted, verify
from postroad.pipeline.lake import Lake
from postroad.pipeline.schema import EVIDENCE
from tests.node.exchange import BUYER, SELLER
from tests.pipeline.kept import Books, event_frame, exchanged, signature_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
"""Long after the certificates ran out."""
GOOD, SEALED, PLAIN = "good@buyer.example", "sealed@buyer.example", "plain@buyer.example"
FORGED, LATE, LOST = "forged@buyer.example", "late@buyer.example", "lost@buyer.example"
CUT, STRANGE, NOWHERE = "cut@buyer.example", "strange@buyer.example", "nowhere@buyer.example"
KINDS = {SEALED: "order", PLAIN: "plain"}
ALL = (GOOD, SEALED, PLAIN, FORGED, LATE, LOST, CUT, STRANGE, NOWHERE)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    folder = tmp_path_factory.mktemp("books")
    return exchanged(folder, [(one, KINDS.get(one, "signed")) for one in ALL])


def rows(books: Books, *nodes: str) -> list[dict[str, Any]]:
    return [one for one in books.events if one["node"] in (nodes or (BUYER, SELLER))]


def changed_rows(books: Books) -> list[dict[str, Any]]:
    """The buyer's journal, with places that are no longer what they were."""
    told = []
    for row in rows(books, BUYER):
        message_id, event = row["message_id"], row["event"]
        if event == "receipt_received":
            if message_id == LATE:
                row = {**row, "at": row["at"] + timedelta(days=500)}
            elif message_id == LOST:
                row = {**row, "evidence": "sfffffffffff0-77:0:100"}
            elif message_id == STRANGE:
                row = {**row, "evidence": "../../keys/buyer.p12:0:100"}
        elif event == "sent" and message_id == CUT:
            row = {**row, "evidence": row["evidence"].rpartition(":")[0].rpartition(":")[0]}
            row["evidence"] += ":99999999:4000"
        elif event == "sent" and message_id == NOWHERE:
            row = {**row, "evidence": None}
        told.append(row)
    return told


@dataclass
class World:
    """A lake, and nodes whose bytes may be changed."""

    books: Books
    lake: Lake
    folders: dict[str, str]

    def journal(self, told: list[dict[str, Any]], batch: int = 1) -> None:
        change = self.lake.begin(batch)
        assert change is not None
        change.add("events", event_frame(self.lake.spark, told))
        change.commit()

    def table(self) -> dict[str, Row]:
        found = self.lake.read("evidence").collect()
        assert len(found) == len({row.message_id for row in found})
        return {row.message_id: row for row in found}


@pytest.fixture
def world(books: Books, spark: SparkSession, tmp_path: Path) -> World:
    folders = {}
    for name, folder in books.folders.items():
        shutil.copytree(Path(folder) / "segments", tmp_path / name / "segments")
        folders[name] = str(tmp_path / name)
    return World(books, Lake(spark, str(tmp_path / "lake")), folders)


def forge(world: World, message_id: str) -> None:
    """Change one character in the signature of a receipt that the buyer kept."""
    value = signature_of(world.books.receipts[message_id].receipt)
    for file in (Path(world.folders[BUYER]) / "segments").iterdir():
        data = file.read_bytes()
        other = (b"A" if value[:1] != b"A" else b"B") + value[1:]
        file.write_bytes(data.replace(value, other))


def test_each_receipt_gets_a_row_that_says_what_it_is_worth(world: World) -> None:
    forge(world, FORGED)
    world.journal(changed_rows(world.books))
    buyer = {BUYER: world.folders[BUYER]}
    outcome = verify(world.lake, buyer, world.books.believing(), NOW)
    table = world.table()
    verdicts = {
        one: (row.valid, row.signature, row.chain, row.digests) for one, row in table.items()
    }
    assert verdicts == {
        GOOD: (True, True, True, True),
        SEALED: (True, True, True, True),
        PLAIN: (None, None, None, True),
        FORGED: (False, False, True, True),
        LATE: (False, True, False, True),
        LOST: (False, None, None, None),
        CUT: (False, True, True, None),
        STRANGE: (False, None, None, None),
        NOWHERE: (False, True, True, None),
    }
    assert outcome.run == counted(world.lake.read("evidence")) == Counts(9, 2, 2, 4, 1)
    assert all(table[one].detail.startswith(GONE) for one in (LOST, CUT, STRANGE, NOWHERE))
    assert {row.checked_at.replace(tzinfo=UTC) for row in table.values()} == {NOW}
    assert {row.date for row in table.values()} == {"2026-05-01"}
    assert table[GOOD].receipt_id == world.books.receipts[GOOD].receipt_id
    assert table[GOOD].signer == "CN=seller,O=Postroad development"
    assert {one.message_id for one in outcome.failing} == {
        FORGED, LATE, LOST, CUT, STRANGE, NOWHERE
    }  # fmt: skip


def test_an_acknowledgment_of_ebxml_is_a_receipt_and_one_of_others_is_not(world: World) -> None:
    tongues = {GOOD: "ebxml-2.0", SEALED: "wsrm"}
    acknowledged = {"receipt_received": "ack_received", "receipt_sent": "acked"}
    told = [
        {
            **row,
            "protocol": tongues[row["message_id"]],
            "event": acknowledged.get(row["event"], row["event"]),
        }
        for row in rows(world.books)
        if row["message_id"] in tongues
    ]
    world.journal(told)
    verify(world.lake, world.folders, world.books.believing(), NOW)
    assert {one: row.valid for one, row in world.table().items()} == {GOOD: True}


def test_only_what_has_no_row_is_looked_at_unless_it_is_to_be_done_again(world: World) -> None:
    told = rows(world.books, BUYER)
    world.journal([row for row in told if row["message_id"] == GOOD])
    buyer, believing = {BUYER: world.folders[BUYER]}, world.books.believing()
    assert verify(world.lake, buyer, believing, NOW).run == Counts(1, 1)
    world.journal([row for row in told if row["message_id"] == FORGED], 2)
    later = NOW + timedelta(days=1)
    assert verify(world.lake, buyer, believing, later).run == Counts(1, 1)
    forge(world, FORGED)
    outcome = verify(world.lake, buyer, believing, later, again=True)
    assert outcome.run == Counts(2, 1, 1)
    assert world.table()[FORGED].signature is False
    assert world.lake.days("evidence") == ["2026-05-02"]


def test_what_was_proven_stays_proven_when_the_bytes_have_gone(world: World) -> None:
    world.journal([row for row in rows(world.books, BUYER) if row["message_id"] == GOOD])
    buyer, believing = {BUYER: world.folders[BUYER]}, world.books.believing()
    verify(world.lake, buyer, believing, NOW)
    shutil.rmtree(Path(world.folders[BUYER]) / "segments")
    outcome = verify(world.lake, buyer, believing, NOW + timedelta(days=9), again=True)
    assert outcome.run == Counts(1, gone=1)
    assert world.table()[GOOD].valid


def test_a_receipt_of_both_sides_is_taken_where_its_bytes_are(world: World) -> None:
    told = [row for row in rows(world.books) if row["message_id"] == GOOD]
    world.journal(told)
    events = world.lake.read("events")
    both = receipts(events, world.folders).collect()
    assert [(row.node, row.at_hand) for row in both] == [(BUYER, True)]
    seller = {SELLER: world.folders[SELLER]}
    one = receipts(events, seller)
    assert [(row.node, row.at_hand) for row in one.collect()] == [(SELLER, True)]
    made = proven(one, seller, world.books.believing(), NOW)
    assert made.columns == [*EVIDENCE.names, "date"]
    assert [row.valid for row in made.collect()] == [True]


def test_a_message_that_was_signed_again_is_looked_for_where_it_lies_now(world: World) -> None:
    """The bytes that left first are not kept."""
    told = []
    for row in rows(world.books, BUYER):
        if row["message_id"] == GOOD and row["event"] in ("submitted", "sent"):
            told.append({**row, "evidence": "sfffffffffff0-77:0:100"})
        elif row["message_id"] == GOOD:
            told.append(row)
    [sent] = [
        one
        for one in rows(world.books, BUYER)
        if (one["message_id"], one["event"]) == (GOOD, "sent")
    ]
    later = {"seq": 99_999, "at": sent["at"] + timedelta(milliseconds=1), "attempt": None}
    told.append({**sent, **later, "event": "signed_again"})
    world.journal(told)
    buyer = {BUYER: world.folders[BUYER]}
    outcome = verify(world.lake, buyer, world.books.believing(), NOW)
    assert outcome.run == Counts(1, valid=1)
    assert world.table()[GOOD].digests is True


def test_receipts_of_nodes_that_nobody_named_are_counted_and_left(world: World) -> None:
    world.journal([row for row in rows(world.books) if row["message_id"] in (GOOD, SEALED)])
    outcome = verify(world.lake, {"another": "/nowhere"}, world.books.believing(), NOW)
    assert outcome.run == Counts()
    assert outcome.elsewhere == {BUYER: 2}
    assert outcome.first_at is not None
    assert outcome.last_at is not None


def test_who_comes_after_a_process_that_died_completes_what_it_had_begun(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.journal([row for row in rows(world.books, BUYER) if row["message_id"] == GOOD])
    buyer, believing = {BUYER: world.folders[BUYER]}, world.books.believing()

    class Died(Exception):
        pass

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as broken:
        broken.setattr(type(world.lake.format), "land", die)
        with pytest.raises(Died):
            verify(world.lake, buyer, believing, NOW)
    assert world.table() == {}
    assert verify(world.lake, buyer, believing, NOW).run == Counts()
    assert world.table()[GOOD].valid
    left = {path.name for path in Path(world.lake.url).iterdir()}
    assert left.isdisjoint({"_evidence", "_evidence.json"})


class Shelf(Kept):
    """What lies at places that are named by what lies there."""

    def __init__(self, books: Books, forged: str) -> None:
        super().__init__({})
        self._books, self._forged = books, forged

    def read(self, node: str, place: str | None) -> bytes:
        name, _, message_id = str(place).partition(" ")
        if message_id not in self._books.receipts:
            raise Gone(f"{place} is not there")
        found = self._books.receipts[message_id]
        data = found.receipt if name == "receipt" else found.sent
        if place == f"receipt {self._forged}":
            return data.replace(signature_of(data), signature_of(found.sent))
        return data


@pytest.mark.parametrize("gone", [(), (LOST,)])
def test_many_at_once_are_proven_as_one_by_one(
    books: Books, gone: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is not usual is looked at by itself; all are when one of them cannot be read."""
    shelf, prover = Shelf(books, FORGED), books.believing().prover()
    some = []
    for message_id in (GOOD, PLAIN, FORGED, SEALED, LATE, *gone):
        one = books.receipts[message_id]
        late = timedelta(days=500) if message_id == LATE else timedelta()
        at = one.micros + late // timedelta(microseconds=1)
        receipt = "nowhere" if message_id in gone else f"receipt {message_id}"
        some.append((message_id, one.receipt_id, at, BUYER, receipt, f"sent {message_id}"))
    expected = [prove(prover, shelf, *row) for row in some]
    assert [one.valid for one in expected] == [
        True,
        None,
        False,
        True,
        False,
        *(False for _ in gone),
    ]
    alone: list[str] = []
    monkeypatch.setattr(evidence, "prove", lambda *given: alone.append(given[2]) or prove(*given))
    assert prove_some(prover, shelf, some) == expected
    assert alone == ([row[0] for row in some] if gone else [PLAIN, FORGED, LATE])
