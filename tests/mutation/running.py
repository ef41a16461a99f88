"""Try mutants against collected tests, each in a process of its own: a plugin of pytest."""

import json
import os
import resource
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.format_utils import mangled_name_from_mutant_name

_PATIENCE: Final = {False: 100, True: 20}
"""Times its processor time that a mutant may take by the clock: it may wait, or the machine.

Tests with ids of requirements wait for nothing.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a mutant: noticed by a test, or by taking too long; or not."""

    mutant: str
    noticed: bool | None
    """None: it could not be tried."""
    by: str
    """The test that failed, or what happened instead."""
    ids: tuple[str, ...] = ()
    """The requirements that its function names."""
    by_own_id: bool = False
    """Whether the test that failed carries one of these."""

    def __str__(self) -> str:
        word = {True: "noticed", False: "SURVIVED", None: "not tried"}[self.noticed]
        return f"{word} {self.mutant}: {self.by}"


class Trial:
    """Runs the tests as they are, one of each function, then the mutants.

    Where mutants have `ids` of requirements, only tests that carry one are run.
    """

    def __init__(
        self, mutants: list[str], *, seconds: int, jobs: int, ids: Mapping[str, frozenset[str]]
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._mutants = mutants
        self._ids = ids
        self._marks: dict[str, frozenset[str]] = {}
        """The ids that each test carries."""
        self._seconds = seconds
        self._patience = seconds * _PATIENCE[bool(ids)]
        self._jobs = jobs
        self._calling: dict[str, list[pytest.Item]] = defaultdict(list)
        self._beside: dict[str, list[pytest.Item]] = defaultdict(list)
        """By module: tests with other parameters than the first, which may call more of it."""
        self._imported: set[str] = set()
        """Functions that were called before there was a test."""
        self._failing: set[str] = set()
        self._told: int | None = None
        """In a process for a mutant: the pipe to who began it."""
        self._say = os.dup(2)

    def told(self) -> list[dict[str, object]]:
        return [asdict(one) for one in self.outcomes]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if not self._ids:
            return
        for item in items:
            marks = {str(one) for mark in item.iter_markers("req") for one in mark.args}
            self._marks[item.nodeid] = frozenset(marks)
        items[:] = [item for item in items if self._marks[item.nodeid]]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failing.add(report.nodeid)
            if self._told is not None:
                self._tell(report.nodeid)
                os._exit(1)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._learn(session.items)
        waiting = list(reversed(self._mutants))
        running: dict[int, tuple[int, str, float]] = {}
        while waiting or running:
            while waiting and len(running) < self._jobs:
                name = waiting.pop()
                items = self._noticing(name)
                if items:
                    child, told = _forked(partial(self._try, name, items))
                    running[told] = (child, name, time.monotonic() + self._patience)
                elif mangled_name_from_mutant_name(name) in self._imported:
                    self._note(Outcome(name, None, "it runs while modules are imported, not later"))
                else:
                    self._note(Outcome(name, False, "no test calls it"))
            ready = select.select(list(running), [], [], 1)[0]
            for told, (child, name, until) in list(running.items()):
                if told in ready:
                    words, code = _ended(child, told)
                    self._note(Outcome(name, code != 0, words or f"ended with {code}"))
                    del running[told]
                elif time.monotonic() > until:
                    os.kill(child, signal.SIGKILL)
        return True

    def _learn(self, items: list[pytest.Item]) -> None:
        """Which tests call which function.

        Of a test with parameters the first one speaks for the others. Tests that fail by
        themselves tell nothing.
        """
        self._imported = set(state()._stats)
        set_mutant_under_test("")
        tests: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            tests[_base(item)].append(item)
        firsts = [of_one[0] for of_one in tests.values()]
        share = -(-len(firsts) // self._jobs)
        parts = [firsts[at : at + share] for at in range(0, len(firsts), share)]
        learners = [_forked(partial(self._listen, part)) for part in parts]
        called: dict[str, list[str]] = {}
        for child, told in learners:
            called.update(json.loads(_ended(child, told)[0]))
        for name in tests.keys() - called.keys():
            os.write(self._say, f"not used, it fails without a mutant: {name}\n".encode())
        order = [
            (nth, len(called[name]), name, item)
            for name, of_one in tests.items()
            if name in called
            for nth, item in enumerate(of_one)
        ]
        for nth, _, name, item in sorted(order, key=lambda one: one[:3]):
            for function in called[name]:
                self._calling[function].append(item)
            if nth:
                for module in {function.rpartition(".")[0] for function in called[name]}:
                    self._beside[module].append(item)

    def _noticing(self, mutant: str) -> list[pytest.Item]:
        """The tests that may notice a mutant: those first that are known to call it."""
        calling = self._calling.get(mangled_name_from_mutant_name(mutant), [])
        if mutant in self._ids:
            # Those with an id that the function names come first, so that it is known whether one
            # of them fails.
            return sorted(calling, key=lambda one: not self._is_own(mutant, one.nodeid))
        return list(dict.fromkeys([*calling, *self._beside[mutant.rpartition(".")[0]]]))

    def _is_own(self, mutant: str, test: str) -> bool:
        """Whether a test carries the id of a requirement that the function of a mutant names."""
        return not self._marks.get(test, frozenset()).isdisjoint(self._ids[mutant])

    def _listen(self, items: list[pytest.Item], told: int) -> None:
        """Run tests, and tell what each of them calls."""
        set_mutant_under_test("stats")
        called = {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            state()._stats.clear()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.nodeid not in self._failing:
                called[_base(item)] = sorted(state()._stats)
        with os.fdopen(told, "w", closefd=False) as pipe:
            json.dump(called, pipe)

    def _try(self, name: str, items: list[pytest.Item], told: int) -> None:
        """Run tests until one fails, with which the process ends, or the time is over."""
        resource.setrlimit(resource.RLIMIT_CPU, (self._seconds * 2, self._seconds * 2 + 1))
        self._told = told
        set_mutant_under_test(name)
        begun = time.process_time()
        for at, item in enumerate(items, 1):
            following = items[at] if at < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if time.process_time() - begun > self._seconds:
                self._tell(f"{at} of {len(items)} tests pass, there was no time for more")
                return
        self._tell(f"all {len(items)} tests pass")

    def _tell(self, words: str) -> None:
        assert self._told is not None
        os.write(self._told, words.encode())

    def _note(self, outcome: Outcome) -> None:
        ids = self._ids.get(outcome.mutant)
        if ids is not None:
            own = outcome.noticed is True and self._is_own(outcome.mutant, outcome.by)
            outcome = replace(outcome, ids=tuple(sorted(ids)), by_own_id=own)
        self.outcomes.append(outcome)
        os.write(self._say, f"{len(self.outcomes)}/{len(self._mutants)} {outcome}\n".encode())


def _base(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _forked(does: Callable[[int], None]) -> tuple[int, int]:
    """A process that does something and says it through a pipe, which closes when it ends."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        does(writing)
        os._exit(0)
    except BaseException as error:
        os.write(writing, repr(error).encode())
    finally:
        os._exit(1)


def _ended(child: int, told: int) -> tuple[str, int]:
    """What a process said, and with what it ended."""
    with os.fdopen(told, "rb") as pipe:
        words = pipe.read().decode()
    return words, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
