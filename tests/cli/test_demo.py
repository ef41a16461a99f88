"""The demo as a newcomer runs it, and for programs."""

import json
import re
import shlex
from concurrent.futures import Future
from pathlib import Path

import pytest

from postroad.cli import java_peer
from postroad.cli.demo import scenes as demo_scenes
from postroad.cli.demo.nodes import NotStarted, RunningNode
from postroad.cli.demo.pipeline import NotReconciled
from postroad.cli.java_peer import tools
from tests.cli.conftest import Run
from tests.conftest import Demo

# Spark starts at the end of it. In one process, because it is told once for all tests.
pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("docs")]


@pytest.fixture
def told(demo: Demo) -> str:
    """What the demo says to people."""
    return demo.told


@pytest.fixture
def folder(demo: Demo) -> Path:
    return demo.folder


def test_the_demo_shows_each_message_on_both_sides(told: str) -> None:
    order = told[told.index("A purchase order") : told.index("An order with drawings")]
    events = [line.split()[1:3] for line in order.splitlines()[1:] if line.strip()]
    assert [event for who, event in events if who == "buyer"] == [
        "submitted",
        "sent",
        "receipt_received",
    ]
    assert [event for who, event in events if who == "seller"] == [
        "received",
        "delivered",
        "receipt_sent",
    ]


def test_drawings_arrive_once_over_a_line_that_is_cut_twice(told: str) -> None:
    scene = told[told.index("Drawings:") : told.index("The same again")]
    events = [line.split()[1:3] for line in scene.splitlines() if line.strip()]
    assert events.count(["seller", "delivered"]) == 1
    assert events.count(["buyer", "receipt_received"]) == 1
    assert ["buyer", "split"] in events
    assert "arrived ━━━" in scene
    [passed] = re.findall(r"(\d+) MB passed for 200 MB", scene)
    # Two cuts, each of which costs four fragments of 8 MiB at most.
    assert 200 <= int(passed) <= 200 + 2 * 4 * 8.4


def test_in_ebxml_the_order_goes_by_http_and_its_confirmation_by_mail(
    told: str, folder: Path
) -> None:
    scene = told[told.index("The older tongue") : told.index("Behind a firewall")]
    events = [line.split()[1:3] for line in scene.splitlines()[1:] if line.strip()]
    there = ["received", "delivered", "acked"]
    assert sorted(event for who, event in events if who == "buyer") == sorted(
        ["submitted", "sent", "ack_received", *there]
    )
    assert sorted(event for who, event in events if who == "seller") == sorted(
        ["submitted", "sent", "ack_received", *there]
    )
    assert "mailto:msh@buyer.example" in (folder / "seller/node.log").read_text()


def test_a_supplier_that_nobody_can_reach_collects_its_order(told: str, folder: Path) -> None:
    scene = told[told.index("Behind a firewall") : told.index("A price")]
    events = [line.split()[1:3] for line in scene.splitlines()[1:] if line.strip()]
    assert [event for who, event in events if who == "supplier"] == [
        "pulled",
        "received",
        "delivered",
        "receipt_sent",
    ]
    assert ["buyer", "receipt_received"] in events
    assert not any(who == "seller" for who, _ in events)
    assert "serve: [api]" in (folder / "supplier/postroad.yaml").read_text()


def test_the_answer_to_a_price_request_is_late_and_fetched(told: str) -> None:
    scene = told[told.index("A price") : told.index("A catalogue")]
    events = [line.split()[1:3] for line in scene.splitlines()[1:] if line.strip()]
    assert ["buyer", "error_received"] in events
    assert "EBMS:0060" in scene
    fetched = events[events.index(["seller", "submitted"]) :]
    assert [event for who, event in fetched if who == "buyer"] == [
        "pulled",
        "received",
        "delivered",
        "receipt_sent",
    ]
    assert ["seller", "receipt_received"] in fetched


def test_a_thousand_updates_go_in_three_envelopes_and_each_gets_its_receipt(
    told: str,
) -> None:
    scene = told[told.index("A catalogue") : told.index("By two hubs")]
    assert re.findall(r"one envelope with (\d+) updates", scene) == ["334", "333", "333"]
    assert "1000 updates delivered, 1000 receipts, one for each" in scene
    assert scene.count("receipt_received") == 3
    assert "a catalogue update, 1000 times" in told
    assert re.search(r"✔ evidence-\d+.zip: a catalogue update", told) is not None


def test_an_order_and_its_receipt_pass_two_hubs_of_which_one_is_killed(
    told: str, folder: Path
) -> None:
    scene = told[told.index("By two hubs") : told.index("Another product")]
    events = [line.split()[1:3] for line in scene.splitlines()[1:] if line.strip()]
    for hub in ("near", "far"):
        assert events.count([hub, "received"]) == 2
        assert events.count([hub, "forwarded"]) >= 1
    assert ["seller", "delivered"] in events
    assert ["buyer", "receipt_received"] in events
    log = (folder / "hubs/near/node.log").read_text()
    assert log.count('"logger": "postroad.serve", "event": "ready"') == 2
    assert not (folder / "hubs/near/pmodes").exists()


def test_an_order_and_its_confirmation_are_exchanged_with_phase4_where_java_is(told: str) -> None:
    scene = told[told.index("Another product") : told.index("A stranger")]
    if tools() is None:
        assert "left out: Java and Maven were not found" in scene
    else:
        assert scene.count("✔ phase4") == 4
        assert "exchanged with phase4" in told


def test_the_demo_refuses_the_stranger_and_the_tampered_order(told: str) -> None:
    stranger = told[told.index("A stranger") : told.index("A bad road")]
    assert "EBMS:0101" in stranger
    assert "delivered" not in stranger
    tampered = told[told.index("A bad road") : told.index("A storm")]
    assert "EBMS:0102" in tampered
    assert "delivery_failed" in tampered


def test_in_the_storm_there_is_one_delivery_and_one_receipt(told: str) -> None:
    storm = told[told.index("A storm") : told.index("The proof")]
    events = [line.split()[1:3] for line in storm.splitlines()[1:] if line.strip()]
    assert events.count(["seller", "delivered"]) == 1
    assert events.count(["buyer", "receipt_received"]) == 1
    assert events.count(["seller", "duplicate"]) == 2
    assert events.count(["buyer", "resent"]) >= 3


def test_the_demo_tells_good_messages_from_bad(told: str, folder: Path) -> None:
    table = told[told.index("In bad company") :]
    assert table.count("does not hold") == 6
    assert {path.stem for path in (folder / "messages").glob("*.http")} == {
        "good",
        "other-party",
        "other-order",
        "wrapped",
        "no-signature",
        "expired",
        "stranger",
        "missing-part",
    }
    assert (folder / "messages/seller.pem").stat().st_mode & 0o077 == 0


def test_the_journals_of_the_hubs_tell_the_road_of_an_order(told: str) -> None:
    road = r"an order by two hubs went over near \(\d+ ms\), far \(\d+ ms\)"
    assert re.search(road, told) is not None


def test_the_demo_ends_with_its_totals(told: str) -> None:
    totals = dict(re.findall(r"│ (\w[\w ]+?) +│ (\d+) +│", told))
    assert totals | {"bundles": "3", "lost": "0", "twice": "0", "large cuts": "2"} == totals
    assert int(totals["sent"]) - int(totals["delivered"]) == int(totals["refused"]) == 2
    assert int(totals["receipts verified"]) > 10


def test_the_demo_reconciles_the_journals_of_all_companies(told: str) -> None:
    exchanged = 0 if tools() is None else 2
    assert f"{1035 + exchanged} receipts hold, 0 do not" in told
    totals = dict(re.findall("│ (reconciled .+?|as expected) +│ (.+?) +│", told))
    assert totals == {
        "reconciled refused": "1",
        "reconciled pending": "1",
        "reconciled confirmed": str(1012 + exchanged),
        "as expected": "True",
    }


def test_the_commands_that_the_demo_shows_work(
    run: Run, told: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    shown = [line.strip() for line in told.splitlines() if line.startswith("  postroad inspect")]
    assert len(shown) == 2
    for line in shown:
        assert run(*shlex.split(line)[1:]).exit_code == 0, line


def test_the_demo_for_programs_is_one_object(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: Future[None] = Future()
    missing.set_exception(NotReconciled("there is no Spark"))
    monkeypatch.setattr(demo_scenes, "begin_spark", lambda: missing)
    monkeypatch.setattr(java_peer, "tools", lambda: None)
    told = ("_small_order", "_stranger", "_proofs")
    scenes = [name for name in demo_scenes.Story.tell.__code__.co_names if name.startswith("_")]
    for other in {*scenes} - {"_open", "_spark", "_reconciliation", *told}:
        monkeypatch.setattr(demo_scenes.Story, other, lambda _: None)
    done = run("demo", "--dir", tmp_path, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {
        "sent": 2,
        "delivered": 1,
        "bundles": 0,
        "receipts_verified": 1,
        "refused": 1,
        "lost": 0,
        "twice": 0,
        "as_expected": True,
    }


def test_a_demo_does_not_write_over_what_it_did_not_make(run: Run, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    result = run("demo", "--dir", tmp_path)
    assert result.exit_code == 2
    assert "holds something else" in result.stderr
    assert (tmp_path / "thesis.tex").exists()


def test_a_demo_that_cannot_write_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("demo", "--dir", tmp_path / "file")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"postroad: {tmp_path / 'file'}: File exists\n"


def test_a_node_of_the_demo_that_does_not_start_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/api.token").write_text("a token of the tests")
    (tmp_path / "postroad.yaml").write_text("node: near\n")
    with RunningNode(tmp_path) as node, pytest.raises(NotStarted) as told:
        node.ready()
    assert re.fullmatch(
        rf"the node in {re.escape(str(tmp_path))} did not start: "
        rf"{re.escape(str(tmp_path))}/postroad.yaml:1: party: [^\[\]\n]+",
        str(told.value),
    )
