"""The demo as a newcomer runs it: once for people, once for programs, in the same folder."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

# Spark starts at the end of it. In one process, because it is told once for all tests.
pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("demo")]


def demo(*options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "postroad", "demo", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "demo"


@pytest.fixture(scope="module")
def told(folder: Path) -> str:
    """What the demo says to people."""
    done = demo("--dir", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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


def test_in_ebxml_the_order_goes_by_http_and_its_confirmation_by_mail(
    told: str, folder: Path
) -> None:
    scene = told[told.index("The older tongue") : told.index("A stranger")]
    events = [line.split()[1:3] for line in scene.splitlines()[1:] if line.strip()]
    there = ["received", "delivered", "acked"]
    assert sorted(event for who, event in events if who == "buyer") == sorted(
        ["submitted", "sent", "ack_received", *there]
    )
    assert sorted(event for who, event in events if who == "seller") == sorted(
        ["submitted", "sent", "ack_received", *there]
    )
    assert "mailto:msh@buyer.example" in (folder / "seller/node.log").read_text()


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


def test_the_commands_that_the_demo_shows_work(run: Run, told: str) -> None:
    shown = [line.strip() for line in told.splitlines() if line.startswith("  postroad inspect")]
    assert len(shown) == 2
    for line in shown:
        assert run(*shlex.split(line)[1:]).exit_code == 0, line


def test_the_demo_for_programs_is_one_object_and_writes_over_the_first(
    told: str, folder: Path
) -> None:
    done = demo("--dir", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "sent": 9,
        "delivered": 7,
        "receipts_verified": 7,
        "refused": 2,
        "lost": 0,
        "twice": 0,
        "reconciled_refused": 1,
        "reconciled_pending": 1,
        "reconciled_confirmed": 7,
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
