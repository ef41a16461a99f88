"""A short storm: faults on the network, nodes killed under traffic, and books that balance."""

import json
import random
import re
import threading
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from postroad.api.client import Client
from postroad.api.client_values import ApiError
from postroad.store.records import Event, Recorded
from tests.crash import __main__ as command
from tests.crash.books import Book, Finding
from tests.crash.letters import LARGE, TERMS, write_letters
from tests.crash.patience import Patience
from tests.crash.proxy import Fault
from tests.crash.storm import CLIENTS, EACH_WITHIN, Outcome, Plan, submit

SEED = 4


def test_a_short_storm_loses_and_doubles_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main(["--messages", "150", "--kills", "4", "--seed", str(SEED), "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    tally = json.loads(printed.out)
    assert tally["submitted"] == tally["accepted"] == 150
    assert tally["delivered"] >= tally["acknowledged"] + tally["settled"] > 100
    assert tally["kills"]["sender"] > 0
    assert tally["kills"]["receiver"] > 0
    assert set(tally["faults"]) == {fault.value for fault in Fault}
    assert tally["bundled"] > 10
    assert tally["resent"] > 0
    assert tally["duplicates_filtered"] > 0


def test_books_that_do_not_balance_are_an_error_that_tells_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unlucky(plan: Plan, folder: Path, show: object) -> Outcome:
        folder.rmdir()
        event = Event(datetime(2026, 6, 1, tzinfo=UTC), "seller", "delivered", message_id="m")
        received = Book({}, [Recorded("seller", 1, 1, event)], {}, {})
        findings = [Finding("m", "delivered 2 times"), Finding(None, "a hole")]
        nothing = Book({}, [], {}, {})
        return Outcome(plan, nothing, received, findings, 0, Counter(), 0, Counter(), 0, 1.0)

    monkeypatch.setattr(command, "run_storm", unlucky)
    assert command.main(["--messages", "9", "--kills", "1", "--seed", "7"]) == 1
    printed = capsys.readouterr()
    assert re.search(r"^delivered +1$", printed.out, re.MULTILINE)
    told = printed.err.splitlines()
    assert "m: delivered 2 times" in told
    assert "    00:00:00.000000 seller  delivered" in told
    assert "a hole" in told
    assert "--messages 9 --kills 1 --seed 7 --workers 1" in told[-1]


def test_every_fault_comes_for_sure_where_there_are_enough_exchanges() -> None:
    sure = Plan(150, 4, SEED).sure_faults()
    assert Counter(sure) == Counter(Fault) + Counter({None: EACH_WITHIN - len(Fault)})
    assert sure == Plan(150, 4, SEED).sure_faults() != Plan(150, 4, SEED + 1).sure_faults()
    assert Plan(9, 1, SEED).sure_faults() == []


def test_a_seed_gives_the_same_letters_of_all_kinds() -> None:
    letters = write_letters(1000, CLIENTS, random.Random("1"))
    assert letters == write_letters(1000, CLIENTS, random.Random("1"))
    assert letters != write_letters(1000, CLIENTS, random.Random("2"))
    assert {letter.terms for letter in letters} == set(TERMS)
    assert sum(len(letter.content) == LARGE for letter in letters) == 20
    assert len({letter.digest for letter in letters}) == len(letters)


def test_a_conversation_belongs_to_one_client() -> None:
    owners = defaultdict(set)
    for letter in write_letters(1000, CLIENTS, random.Random("1")):
        owners[letter.conversation].add(letter.number % CLIENTS)
    assert all(len(clients) == 1 for clients in owners.values())


def test_a_storm_is_given_up_when_nothing_moves_and_not_because_it_takes_long() -> None:
    now = 0.0
    patience = Patience(300, clock=lambda: now)
    for accepted in range(100):
        patience.look(accepted, "submitting")
        now += 299
        patience.look(accepted, "submitting")
    now += 2
    with pytest.raises(AssertionError, match="submitting: nothing moved for 300 s, at 99"):
        patience.look(99, "submitting")


class Given(threading.Event):
    """Whether the storm was given up, asked without waiting."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def test_a_client_submits_until_its_message_is_accepted_or_the_storm_is_given_up() -> None:
    """It gave up after two hundred tries, which is too soon for a node on a busy machine."""
    letters, given_up = write_letters(2, CLIENTS, random.Random("1")), Given()
    tries: Counter[str] = Counter()

    class Busy:
        def send(self, *, message_id: str, **rest: object) -> SimpleNamespace:
            tries[message_id] += 1
            if tries[letters[0].message_id] == 400 and message_id == letters[0].message_id:
                return SimpleNamespace(repeated=True)
            if tries[letters[1].message_id] == 400:
                given_up.set()
            raise ApiError(503, "not now")

    client = cast(Client, Busy())
    assert submit(client, letters[0], given_up) is True
    assert submit(client, letters[1], given_up) is None
    assert set(tries.values()) == {400}
