"""The simulation: journals that keep the rules, and a truth that others find as well."""

import hashlib
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from postroad.cli.pipeline_simulate import simulate as command
from postroad.pipeline import simulation
from postroad.pipeline.simulation import CannotSimulate, Simulated, simulate
from postroad.pipeline.simulation_truth import CLASSES
from postroad.store.chain import verify
from postroad.store.journal_columns import EVENTS
from tests.pipeline import oracle

Row = dict[str, Any]
SELDOM = timedelta(minutes=30)
"""Between heartbeats, where they only cost time."""
DAY = timedelta(days=1)


def _rows(folder: Path) -> list[Row]:
    rows: list[Row] = ds.dataset(folder, format="parquet").to_table().to_pylist()
    return rows


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*.parquet")
    }


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """A small network with a lot of trouble, written in several stretches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "STRETCH", 500)
        folder = tmp_path_factory.mktemp("network")
        return simulate(folder, messages=2500, seed=5, days=5, trouble=0.5, heartbeat=SELDOM)


@pytest.fixture(scope="module")
def events(network: Simulated) -> list[Row]:
    return sorted(_rows(network.journal), key=lambda e: (e["node"], e["epoch"], e["seq"]))


@pytest.fixture(scope="module")
def truth(network: Simulated) -> list[Row]:
    return _rows(network.truth / "messages")


@pytest.fixture(scope="module")
def by_message(events: list[Row]) -> dict[str, list[Row]]:
    found = defaultdict(list)
    for event in events:
        found[event["message_id"]].append(event)
    del found[None]  # type: ignore[arg-type]
    return found


def test_the_same_seed_gives_the_same_files_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        simulate(tmp_path / name, messages=60, seed=seed, days=2, heartbeat=SELDOM)
    one, same, other = (_digests(tmp_path / name) for name in ("one", "same", "other"))
    assert one == same
    assert set(one.values()).isdisjoint(set(other.values()) - {one["truth/faults.parquet"]})


def test_the_chain_of_every_journal_holds(network: Simulated) -> None:
    verified = verify(network.journal)
    assert verified.findings == ()
    assert (verified.segments, verified.events) == (network.segments, network.events)


def test_a_segment_lies_below_its_day_and_does_not_cross_midnight(network: Simulated) -> None:
    for path in network.journal.rglob("*.parquet"):
        days = {at.date().isoformat() for at in pq.read_table(path)["at"].to_pylist()}
        assert {f"date={day}" for day in days} == {path.parent.name}


def test_events_of_a_node_are_in_the_order_of_its_clock(events: list[Row]) -> None:
    for before, after in pairwise(events):
        if before["node"] == after["node"]:
            assert before["at"] <= after["at"]


def test_every_event_may_be_written_on_its_side(events: list[Row]) -> None:
    assert all(event["side"] in EVENTS[event["event"]] for event in events)
    assert set(EVENTS) - {event["event"] for event in events} == set()


def test_each_attempt_is_one_of_sent_resent_and_send_failed(
    by_message: dict[str, list[Row]],
) -> None:
    for own in by_message.values():
        tries = [e for e in own if e["event"] in ("sent", "resent", "send_failed")]
        tries.sort(key=lambda e: e["at"])
        assert [e["attempt"] for e in tries] == list(range(1, len(tries) + 1))
        assert all((e["attempt"] == 1) == (e["event"] == "sent") for e in tries
                   if e["event"] != "send_failed")  # fmt: skip


def test_all_events_of_a_message_say_the_same_of_it(by_message: dict[str, list[Row]]) -> None:
    columns = ("kind", "from_party", "to_party", "conversation_id", "pmode", "bytes", "group_id")
    for own in by_message.values():
        assert len({tuple(event[column] for column in columns) for event in own}) == 1


def test_the_truth_is_what_the_second_opinion_finds(events: list[Row], truth: list[Row]) -> None:
    journal = oracle.Journal(sorted(events, key=oracle.order), DAY)
    found = {row["message_id"]: row for row in oracle.reconciliation(journal)}
    assert found == {row["message_id"]: {name: row[name] for name in _COLUMNS} for row in truth}


_COLUMNS = (
    "message_id", "class", "sender_outcome", "receiver_outcome", "deliveries", "settled_by",
    "first_at", "last_at",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_the_truth_of_any_seed_is_what_the_second_opinion_finds(tmp_path: Path, seed: int) -> None:
    simulate(tmp_path, messages=300, seed=seed, days=3 + seed, trouble=0.7, heartbeat=SELDOM)
    rows = sorted(_rows(tmp_path / "journal"), key=oracle.order)
    found = {row["message_id"]: row for row in oracle.reconciliation(oracle.Journal(rows, DAY))}
    truth = _rows(tmp_path / "truth" / "messages")
    assert found == {row["message_id"]: {name: row[name] for name in _COLUMNS} for row in truth}


def test_the_truth_has_every_class(truth: list[Row]) -> None:
    assert {row["class"] for row in truth} == set(CLASSES)
    assert {row["class"] for row in truth if row["finished"]} == set(CLASSES)
    assert not any(row["touched"] or row["late"] for row in truth)


def test_what_is_reported_is_what_is_there(
    network: Simulated, events: list[Row], truth: list[Row]
) -> None:
    assert (network.events, network.messages) == (len(events), len(truth))
    assert sum(network.per_day.values()) == len(events)
    assert network.per_day == Counter(event["at"].date().isoformat() for event in events)
    assert 2350 <= network.messages <= 2500


def test_bundled_messages_share_an_envelope_named_by_the_first(events: list[Row]) -> None:
    together = defaultdict(set)
    for event in events:
        if event["event"] == "sent":
            together[event["envelope"]].add((event["message_id"], event["node"]))
    bundles = {name: members for name, members in together.items() if name and len(members) > 1}
    assert bundles
    for name, members in bundles.items():
        assert name in {message for message, _ in members}
        assert len({node for _, node in members}) == 1


def test_fragments_are_all_there_and_the_whole_is_joined_after_the_last(
    by_message: dict[str, list[Row]],
) -> None:
    groups = defaultdict(list)
    for own in by_message.values():
        if own[0]["kind"] == "fragment":
            groups[own[0]["group_id"]].append(own)
    assert groups
    for whole, fragments in groups.items():
        assert {own[0]["fragment"] for own in fragments} == set(range(1, len(fragments) + 1))
        assert sum(own[0]["bytes"] for own in fragments) == by_message[whole][0]["bytes"]
        joined = [e["at"] for e in by_message[whole] if e["event"] == "joined"]
        came = [e["at"] for own in fragments for e in own
                if (e["event"], e["side"]) == ("received", "receiving")]  # fmt: skip
        assert not joined or max(came) < joined[0]


def test_numbered_messages_are_delivered_in_their_order(
    by_message: dict[str, list[Row]], truth: list[Row]
) -> None:
    numbered = defaultdict(list)
    for row in truth:
        own = by_message[row["message_id"]]
        delivered = [event for event in own if event["event"] == "delivered"]
        if row["story"] == "in_order" and delivered:
            place = (delivered[0]["sequence_number"], delivered[0]["at"])
            numbered[own[0]["conversation_id"], delivered[0]["node"]].append(place)
    assert any(len(places) > 2 for places in numbered.values())
    for places in numbered.values():
        assert [at for _, at in sorted(places)] == sorted(at for _, at in places)


def test_replies_refer_to_what_was_delivered_before(by_message: dict[str, list[Row]]) -> None:
    replies = {name: own for name, own in by_message.items() if own[0]["ref_to_message_id"]}
    assert replies
    for own in replies.values():
        asked = by_message[own[0]["ref_to_message_id"]]
        assert asked[0]["conversation_id"] == own[0]["conversation_id"]
        assert (asked[0]["from_party"], asked[0]["to_party"]) == (
            own[0]["to_party"], own[0]["from_party"]
        )  # fmt: skip


def test_a_node_in_service_gives_a_sign_of_life_every_minute(tmp_path: Path) -> None:
    simulate(tmp_path, messages=20, days=2)
    columns = ["node", "epoch", "seq", "at", "event", "detail"]
    beats = ds.dataset(tmp_path / "journal", format="parquet").to_table(columns=columns)
    rows = [row for row in beats.to_pylist() if row["event"] == "heartbeat"]
    rows.sort(key=lambda row: (row["node"], row["epoch"], row["seq"]))
    for before, after in pairwise(rows):
        if (before["node"], before["epoch"]) == (after["node"], after["epoch"]):
            assert after["at"] - before["at"] <= timedelta(minutes=1)


def test_nodes_retire_and_are_restored(events: list[Row]) -> None:
    last = {event["node"]: event for event in events}
    retired = [event for event in last.values() if event["detail"] == "retired"]
    assert len(retired) == 2
    first = {(event["node"], event["epoch"]): event["seq"] for event in reversed(events)}
    assert set(first.values()) == {1}
    assert sum(epoch == 2 for _, epoch in first) == 2


def test_some_parties_have_no_journal_and_some_share_one(events: list[Row]) -> None:
    writers = {event["party"] for event in events}
    named = {event[column] for event in events for column in ("from_party", "to_party")} - {None}
    assert named - writers
    serving = defaultdict(set)
    for event in events:
        serving[event["node"]].add(event["party"])
    assert max(len(parties) for parties in serving.values()) == 2
    assert any(sum(party in parties for parties in serving.values()) == 2 for party in writers)


def test_days_without_traffic_at_the_end_change_nothing_before(tmp_path: Path) -> None:
    found = simulate(tmp_path, messages=400, days=7, heartbeat=SELDOM)
    counts = list(found.per_day.values())
    assert len(counts) == 7
    assert min(counts[:5]) > max(counts[5:])


def test_about_as_many_events_as_asked_for(tmp_path: Path) -> None:
    found = simulate(tmp_path, events=40_000, days=2, heartbeat=SELDOM)
    assert found.events == pytest.approx(40_000, rel=0.1)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulate(tmp_path_factory.mktemp("broken"), messages=600, seed=3, days=5, trouble=0.6,
                    heartbeat=SELDOM, faults=simulation.FAULTS)  # fmt: skip


class TestFaults:
    def test_each_is_written_down_with_what_must_be_found(self, broken: Simulated) -> None:
        rows = pq.read_table(broken.truth / "faults.parquet").to_pylist()
        assert [row["fault"] for row in rows] == list(simulation.FAULTS)
        assert [row["findings"] for row in rows] == [
            ["chain", "gap"], [], [], ["identity"], ["foreign_file"], ["unknown_event"]
        ]  # fmt: skip

    def test_verifying_finds_them(self, broken: Simulated) -> None:
        verified = verify(broken.journal)
        kinds = Counter(finding.kind for finding in verified.findings)
        # Two segments are away; the altered copy is no link of the chain.
        assert kinds["gap"] == 2
        assert kinds["foreign_file"] == 1
        assert kinds["identity"] >= 1
        assert verified.copies == 1

    def test_a_late_segment_belongs_to_the_journal(self, broken: Simulated) -> None:
        late = next(fault for fault in broken.faults if fault.fault == "late")
        folder = broken.journal.parent
        assert (folder / late.path).is_file()
        assert not (broken.journal / Path(late.path).relative_to("late")).exists()

    def test_unknown_events_are_there(self, broken: Simulated) -> None:
        good = [
            path for path in broken.journal.rglob("*.parquet") if path.name != "foreign.parquet"
        ]
        names = {name for path in good for name in pq.read_table(path)["event"].to_pylist()}
        assert names - EVENTS.keys() == {"archived"}

    def test_only_what_a_fault_touches_can_be_found_to_be_otherwise(
        self, broken: Simulated
    ) -> None:
        altered = next(fault for fault in broken.faults if fault.fault == "identity")
        skipped = ("foreign.parquet", Path(altered.path).name)
        rows = [
            row
            for path in broken.journal.rglob("*.parquet")
            if path.name not in skipped and not path.stem.endswith("again")
            for row in pq.read_table(path).to_pylist()
            if (row["node"], row["epoch"], row["seq"])
            != (altered.node, altered.epoch, altered.first_seq)
        ]
        journal = oracle.Journal(sorted(rows, key=oracle.order), DAY)
        found = {row["message_id"]: row for row in oracle.reconciliation(journal)}
        truth = {row["message_id"]: row for row in _rows(broken.truth / "messages")}
        wrong = {
            name
            for name in truth
            if found.get(name) != {column: truth[name][column] for column in _COLUMNS}
        }
        touched = {name for name, row in truth.items() if row["touched"] or row["late"]}
        assert wrong
        assert wrong <= touched
        assert len(touched) < len(truth) / 2


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"faults": ["fire"]}, "no fault is called fire"),
        ({"messages": 0}, "at least one message"),
        ({"days": 1}, "at least two days"),
        ({"days": 0}, "at least two days"),
        ({"parties": 1}, "from 8 to"),
        ({"seed": -1}, "0 or more"),
        ({"heartbeat": timedelta(0)}, "a second apart or more"),
        ({"messages": None, "events": 5000}, "events are heartbeats"),
        ({"trouble": 2.0}, "a share from 0 to 1"),
    ],
)
def test_what_cannot_be_simulated_is_said(
    tmp_path: Path, wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CannotSimulate, match=sentence):
        simulate(tmp_path, **{"messages": 10, **wrong})
    assert not any(tmp_path.iterdir())


class TestCommand:
    @pytest.fixture
    def app(self) -> typer.Typer:
        app = typer.Typer()
        app.command()(command)
        return app

    def test_it_says_what_it_wrote(self, app: typer.Typer, tmp_path: Path) -> None:
        options = [
            "--messages",
            "40",
            "--days",
            "2",
            "--start",
            "2026-05-04",
            "--heartbeat",
            "1800",
        ]
        result = CliRunner().invoke(app, [*options, "--out", str(tmp_path)])
        assert result.exit_code == 0
        assert "messages," in result.stdout
        first = min(row["at"] for row in _rows(tmp_path / "journal"))
        assert first == datetime(2026, 5, 4, tzinfo=UTC)

    def test_a_folder_that_has_a_journal_is_left_alone(
        self, app: typer.Typer, tmp_path: Path
    ) -> None:
        (tmp_path / "journal").mkdir()
        result = CliRunner().invoke(app, ["--messages", "40", "--out", str(tmp_path)])
        assert result.exit_code == 2
        assert "has a journal already" in result.stderr

    def test_how_much_must_be_said_once(self, app: typer.Typer, tmp_path: Path) -> None:
        result = CliRunner().invoke(app, ["--out", str(tmp_path / "new")])
        assert result.exit_code == 2
        assert "either --messages N or --events N" in result.stderr
