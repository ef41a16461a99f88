"""`postroad journal`: ship, verify, export, retire."""

import asyncio
import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from postroad.api.serving import only_one
from postroad.node.settings.config import load_config
from postroad.store.records import Event, Recorded, Side
from postroad.store.sqlite import open_sqlite
from tests.cli.conftest import Run, one_line
from tests.store import segments_read as read
from tests.store.samples import START

US, THEM, OTHER = "urn:example:us", "urn:example:them", "urn:example:other"


def about(name: str, message_id: str, to: str, seconds: float = 0, **more: str) -> Event:
    at = START + timedelta(seconds=seconds)
    return Event(
        at,
        US,
        name,
        Side.SENDING,
        message_id,
        from_party=US,
        to_party=to,
        detail="secret",
        evidence="s1:0:8",
        **more,
    )


def beat(at: datetime) -> Event:
    return Event(at, US, "heartbeat")


EVENTS = (
    beat(START),
    about("submitted", "for-them@us", THEM, 1),
    about("submitted", "for-other@us", OTHER, 2),
    about("sent", "for-them@us", THEM, 3),
    Event(START + timedelta(seconds=4), US, "suspended", to_party=THEM, detail="internal"),
    beat(START + timedelta(seconds=30)),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A node with a few events in its journal."""
    file = tmp_path / "node" / "postroad.yaml"
    file.parent.mkdir()
    file.write_text(f"node: station\nparty: {US}\njournal: {{ship_to: journal}}\n")
    record(file, EVENTS)
    return file


def record(file: Path, events: Iterable[Event]) -> None:
    async def step() -> None:
        store = await open_sqlite(file.parent / "data", "station")
        await store.run(lambda tx: tx.record(events))
        await store.close()

    asyncio.run(step())


def recorded(file: Path) -> list[Recorded]:
    async def step() -> list[Recorded]:
        store = await open_sqlite(file.parent / "data", "station")
        try:
            return await store.look(lambda reader: reader.journal(0, 1000))
        finally:
            await store.close()

    return asyncio.run(step())


# ship


def test_the_journal_is_shipped_to_where_the_file_says(run: Run, file: Path) -> None:
    place = file.parent / "journal"
    result = run("journal", "ship", "-c", file)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"6 events shipped to {place}: 1 segment, ")
    assert read.journal(place) == recorded(file)
    again = run("journal", "ship", "-c", file)
    assert again.stdout == f"nothing is new since it was shipped to {place}\n"


def test_the_journal_is_shipped_to_where_the_command_says(
    run: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = json.loads(run("journal", "ship", "-c", file, "--to", "here", "--json").stdout)
    [path] = read.files(tmp_path / "here")
    assert told["to"] == str(tmp_path / "here")
    assert told["events"] == 6
    [segment] = told["segments"]
    assert segment["path"] == str(path)
    assert segment["digest"] == read.digest(path)


def test_a_place_that_is_forgotten_is_shipped_to_from_the_beginning(
    run: Run, file: Path, tmp_path: Path
) -> None:
    run("journal", "ship", "-c", file, "--to", tmp_path / "a")
    told = run("journal", "forget", "-c", file, "--to", tmp_path / "b")
    assert told.exit_code == 1
    assert f"The places that are known: {tmp_path / 'a'}" in one_line(told)
    assert run("journal", "forget", "-c", file, "--to", tmp_path / "a").exit_code == 0
    (tmp_path / "a").rename(tmp_path / "old")
    run("journal", "ship", "-c", file, "--to", tmp_path / "a")
    assert read.journal(tmp_path / "a") == read.journal(tmp_path / "old")


def test_shipping_by_hand_and_by_the_node_is_one_chain(run: Run, file: Path) -> None:
    run("journal", "ship", "-c", file)
    record(file, [beat(START)])
    run("journal", "ship", "-c", file, "--to", file.parent / "journal")
    first, second = read.files(file.parent / "journal")
    assert read.said(second)["postroad.previous"] == read.digest(first)


def test_without_a_place_it_is_asked_for(run: Run, file: Path) -> None:
    file.write_text(f"node: station\nparty: {US}\n")
    assert "name one with --to" in one_line(run("journal", "ship", "-c", file))


def test_a_place_that_cannot_be_written_is_told_in_one_line(run: Run, file: Path) -> None:
    (file.parent / "journal").write_text("in the way")
    result = run("journal", "ship", "-c", file)
    assert result.exit_code == 1
    assert "stays in the database" in one_line(result)


@pytest.mark.parametrize(
    "command",
    [("ship",), ("export", "--partner", THEM, "--to", "x"), ("retire",)],
    ids=lambda command: command[0],
)
def test_a_node_that_never_ran_has_no_journal(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "postroad.yaml"
    file.write_text(f"node: station\nparty: {US}\njournal: {{ship_to: journal}}\n")
    assert "start the node first" in one_line(run("journal", *command, "-c", file))
    assert list(tmp_path.iterdir()) == [file]


# verify


def test_a_whole_journal_is_verified(run: Run, file: Path) -> None:
    run("journal", "ship", "-c", file)
    result = run("journal", "verify", file.parent / "journal", "-c", file)
    assert result.exit_code == 0
    assert result.stdout == "1 segment of 1 node, 6 events: the chain is whole\n"


def shipped_twice(run: Run, file: Path) -> tuple[Path, Path]:
    run("journal", "ship", "-c", file)
    record(file, [beat(START)])
    run("journal", "ship", "-c", file)
    first, second = read.files(file.parent / "journal")
    return first, second


def test_a_removed_segment_is_told_and_the_exit_code_is_one(run: Run, file: Path) -> None:
    first, second = shipped_twice(run, file)
    first.unlink()
    result = run("journal", "verify", file.parent / "journal")
    assert result.exit_code == 1
    chain, gap, total = result.stdout.splitlines()
    assert chain.startswith(f"chain: date=2026-03-01/{second.name}: ")
    assert gap.startswith("gap: station epoch 1 seq 1 to 6: ")
    assert total == "1 segment of 1 node, 1 events: 2 findings"


def test_findings_are_told_to_machines(run: Run, file: Path) -> None:
    first, second = shipped_twice(run, file)
    first.write_bytes(first.read_bytes()[:-1])
    result = run("journal", "verify", file.parent / "journal", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert [one["kind"] for one in told["findings"]] == ["foreign_file", "chain", "gap"]
    assert told["findings"][1]["subject"] == f"date=2026-03-01/{second.name}"
    assert (told["segments"], told["events"], told["nodes"]) == (1, 1, 1)


def test_the_last_segment_is_missed_by_who_asks_the_node(run: Run, file: Path) -> None:
    _, second = shipped_twice(run, file)
    second.unlink()
    place = file.parent / "journal"
    assert run("journal", "verify", place).exit_code == 0
    result = run("journal", "verify", place, "-c", file)
    assert result.exit_code == 1
    assert f"chain: date=2026-03-01/{second.name}: The node has shipped it" in result.stdout


@pytest.mark.parametrize("place", ["nowhere", "nothing://there"])
def test_what_is_no_journal_is_told_in_one_line(run: Run, tmp_path: Path, place: str) -> None:
    target = place if "://" in place else str(tmp_path / place)
    result = run("journal", "verify", target)
    assert result.exit_code == 2
    assert target in one_line(result)


# export


def exported(run: Run, file: Path, folder: Path, *more: str) -> list[Event]:
    result = run("journal", "export", "-c", file, "--partner", THEM, "--to", folder, *more)
    assert result.exit_code == 0, result.output
    return [one.event for one in read.journal(folder)]


def test_a_partner_sees_its_messages_and_nothing_of_others(
    run: Run, file: Path, tmp_path: Path
) -> None:
    told = exported(run, file, tmp_path / "for-them")
    assert [(one.event, one.message_id) for one in told] == [
        ("heartbeat", None),
        ("submitted", "for-them@us"),
        ("heartbeat", None),
        ("sent", "for-them@us"),
        ("heartbeat", None),
        ("heartbeat", None),
    ]
    for given, seen in zip(EVENTS, told, strict=True):
        assert (seen.at, seen.party) == (given.at, given.party)
        if seen.message_id is None:
            assert seen == Event(given.at, given.party, "heartbeat")
    assert told[1].to_party == THEM


def test_an_export_says_nothing_of_where_our_evidence_lies(
    run: Run, file: Path, tmp_path: Path
) -> None:
    assert {one.evidence for one in exported(run, file, tmp_path / "x")} == {None}


def test_who_names_a_partner_that_nobody_knows_is_told(
    run: Run, file: Path, tmp_path: Path
) -> None:
    result = run("journal", "export", "-c", file, "--partner", "who", "--to", tmp_path / "x")
    assert result.exit_code == 0
    assert result.stderr == "postroad: none of these events is about who\n"


def test_an_export_has_every_seq_and_is_a_chain(run: Run, file: Path, tmp_path: Path) -> None:
    exported(run, file, tmp_path / "x")
    assert [one.seq for one in read.journal(tmp_path / "x")] == [1, 2, 3, 4, 5, 6]
    assert run("journal", "verify", tmp_path / "x").exit_code == 0


def test_a_retired_node_is_retired_for_its_partners_too(
    run: Run, file: Path, tmp_path: Path
) -> None:
    run("journal", "retire", "-c", file)
    assert exported(run, file, tmp_path / "x")[-1].detail == "retired"


def test_an_export_goes_on_where_the_last_one_ended(run: Run, file: Path, tmp_path: Path) -> None:
    exported(run, file, tmp_path / "x")
    record(file, [about("resent", "for-them@us", THEM, 60)])
    told = exported(run, file, tmp_path / "x")
    assert [one.event for one in told][-1] == "resent"
    assert len(told) == 7
    first, second = read.files(tmp_path / "x")
    assert read.said(second)["postroad.previous"] == read.digest(first)


def test_an_export_of_a_time_leaves_out_what_was_before_and_after(
    run: Run, file: Path, tmp_path: Path
) -> None:
    since, until = (f"{START + timedelta(seconds=n):%Y-%m-%dT%H:%M:%SZ}" for n in (1, 4))
    exported(run, file, tmp_path / "x", "--since", since, "--until", until)
    assert [one.seq for one in read.journal(tmp_path / "x")] == [2, 3, 4]


def test_an_export_for_another_partner_needs_another_folder(
    run: Run, file: Path, tmp_path: Path
) -> None:
    exported(run, file, tmp_path / "x")
    before = read.journal(tmp_path / "x")
    result = run("journal", "export", "-c", file, "--partner", OTHER, "--to", tmp_path / "x")
    assert result.exit_code == 1
    assert "choose another folder" in one_line(result)
    assert read.journal(tmp_path / "x") == before


# retire


def test_the_last_event_of_a_retired_node_says_so_and_is_shipped(run: Run, file: Path) -> None:
    result = run("journal", "retire", "-c", file)
    assert result.stdout == "station is retired; the last event of its journal is 7\n"
    last = read.journal(file.parent / "journal")[-1].event
    assert (last.event, last.detail, last.side) == ("heartbeat", "retired", None)


def test_a_node_that_runs_is_not_retired(run: Run, file: Path) -> None:
    lock = only_one(load_config(file))
    try:
        assert "the node runs" in one_line(run("journal", "retire", "-c", file))
    finally:
        lock.close()
    assert len(recorded(file)) == 6


# Without the libraries


@pytest.mark.parametrize(
    "command",
    [("ship",), ("verify", "journal"), ("export", "--partner", THEM, "--to", "x"), ("retire",)],
    ids=lambda command: command[0],
)
def test_without_the_libraries_it_is_told_what_to_install(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    nothing: Callable[[], bool] = lambda: False  # noqa: E731
    monkeypatch.setattr("postroad.cli.journal.can_ship", nothing)
    assert "pip install 'postroad[lake]'" in one_line(run("journal", *command, "-c", file))
    assert len(recorded(file)) == 6
