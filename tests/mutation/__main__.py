"""Change the code in small ways and see whether a test fails: `make mutation COUNT=600 SEED=1`.

mutmut makes the mutants of the rooms `wire`, `security` and `reliability`, far too many to try
all of them. So a sample is tried: as many of each room, spread evenly over its files. Each test
runs once as it is, with its first parameters, which tells what it calls. Then each mutant runs in a
process of its own against the tests that call its function, those first that call least else,
until one fails or its time is over.

    python -m tests.mutation --count 600 --seed 1
    python -m tests.mutation --mutant NAME ... --tests tests/unit/test_mime.py     once more
    python -m tests.mutation --mutant NAME --show

What came of each mutant is in build/mutation/results.json, with the test that noticed it.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test

from tests.mutation.mutants import Mutants
from tests.mutation.running import Outcome, Trial

PROJECT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = PROJECT / "build" / "mutation"
ROOMS: Final = ("wire", "security", "reliability")
TESTS: Final = ("tests/unit", "tests/property", "tests/attack", "tests/interop", "tests/model")
"""Tests that call these rooms without real processes."""


def main() -> int:
    arguments = argparse.ArgumentParser(description="Try a sample of mutants.")
    arguments.add_argument("--count", type=int, default=300, help="how many, in all rooms together")
    arguments.add_argument("--seed", type=int, default=1, help="which of them")
    arguments.add_argument("--seconds", type=int, default=20, help="processor time for a mutant")
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--room", nargs="+", choices=ROOMS, default=ROOMS)
    arguments.add_argument("--mutant", nargs="+", help="these, no sample")
    arguments.add_argument("--show", action="store_true", help="only show what is changed")
    arguments.add_argument("--build", type=Path, default=BUILD, help="where all of it is written")
    arguments.add_argument("--tests", nargs="+", default=TESTS, help="folders and files")
    given = arguments.parse_args()

    mutants = Mutants(PROJECT / "src", given.build / "src", tuple(given.room), given.mutant or ())
    chosen = given.mutant or mutants.sample(given.count, given.seed)
    if unknown := [name for name in chosen if name not in mutants]:
        arguments.error(f"there is no mutant {unknown[0]}; it may have another number by now")
    if given.show:
        for name in chosen:
            print(f"{name}\n{mutants.difference(name)}")
        return 0
    sys.path.insert(0, str(mutants.folder))
    set_mutant_under_test("stats")
    trial = Trial(chosen, seconds=given.seconds, jobs=given.jobs)
    code = pytest.main(["-q", "-p", "no:cacheprovider", *given.tests], plugins=[trial])
    if not trial.outcomes:
        return int(code) or 1
    (given.build / "results.json").write_text(json.dumps(trial.told(), indent=1))
    for outcome in trial.outcomes:
        if outcome.noticed is False:
            print(f"{outcome}\n{mutants.difference(outcome.mutant)}")
    for room in ROOMS:
        _score(room, [one for one in trial.outcomes if one.mutant.split(".")[1] == room])
    return 0


def _score(room: str, outcomes: list[Outcome]) -> None:
    tried = [one for one in outcomes if one.noticed is not None]
    if tried:
        noticed = sum(one.noticed is True for one in tried)
        print(f"{room}: {noticed} of {len(tried)} noticed, {noticed / len(tried):.1%}")


if __name__ == "__main__":
    sys.exit(main())
