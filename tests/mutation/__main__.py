"""Change the code in small ways and see whether a test fails: `make mutation COUNT=600 SEED=1`.

mutmut makes the mutants of the rooms `wire`, `security` and `reliability`, far too many to try
all of them. So a sample is tried: as many of each room, spread evenly over its files. Each test
runs once as it is, with its first parameters, which tells what it calls. Then each mutant runs in a
process of its own against the tests that call its function, those first that call least else,
until one fails or its time is over.

    python -m tests.mutation --count 600 --seed 1
    python -m tests.mutation --requirements --count 60 --seed 2
    python -m tests.mutation --mutant NAME ... --tests tests/unit/test_mime.py     once more
    python -m tests.mutation --mutant NAME --show

With `--requirements` the sample is drawn from the functions that name requirements, in all of the
code, one mutant of each, in turn for each document; and only tests that carry the id of a
requirement are run.

What came of each mutant is in build/mutation/results.json, with the test that noticed it, and the
score of each room or document.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.utils.format_utils import mangled_name_from_mutant_name

from tests.mutation.annotated import Annotated, annotated_functions, sample
from tests.mutation.mutants import Mutants, spread
from tests.mutation.running import Outcome, Trial

PROJECT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = PROJECT / "build" / "mutation"
ROOMS: Final = ("wire", "security", "reliability")
TESTS: Final = ("tests/unit", "tests/property", "tests/attack", "tests/interop", "tests/model")
"""Tests that call these rooms without real processes."""
MARKED_TESTS: Final = ("tests/unit", "tests/property", "tests/model", "tests/node", "tests/spec")
"""Tests that carry ids of requirements and run without real processes."""
_SECONDS: Final = {False: 20, True: 8}
"""Processor time for a mutant; of one of a requirement, against fewer tests."""


def main() -> int:
    arguments = argparse.ArgumentParser(description="Try a sample of mutants.")
    arguments.add_argument("--count", type=int, default=300, help="how many, in all rooms together")
    arguments.add_argument("--seed", type=int, default=1, help="which of them")
    arguments.add_argument(
        "--requirements",
        action="store_true",
        help="of functions that name requirements; only tests with the id of one notice them",
    )
    arguments.add_argument(
        "--seconds", type=int, help="processor time for a mutant (default: 20; requirements: 8)"
    )
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--room", nargs="+", choices=ROOMS, default=ROOMS)
    arguments.add_argument("--mutant", nargs="+", help="these, no sample")
    arguments.add_argument("--show", action="store_true", help="only show what is changed")
    arguments.add_argument("--build", type=Path, default=BUILD, help="where all of it is written")
    arguments.add_argument("--tests", nargs="+", help="folders and files")
    given = arguments.parse_args()

    mutants = Mutants(PROJECT / "src", given.build / "src")
    ids = _named(mutants, given) if given.requirements else {}
    chosen = list(ids) if given.requirements else _of_rooms(mutants, given)
    if unknown := [name for name in chosen if name not in mutants]:
        arguments.error(f"there is no mutant {unknown[0]}; it may have another number by now")
    if given.show:
        for name in chosen:
            print(f"{name}\n{mutants.difference(name)}")
        return 0
    sys.path.insert(0, str(mutants.folder))
    set_mutant_under_test("stats")
    seconds = given.seconds or _SECONDS[given.requirements]
    trial = Trial(chosen, seconds=seconds, jobs=given.jobs, ids=ids)
    tests = given.tests or (MARKED_TESTS if given.requirements else TESTS)
    code = pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[trial])
    if not trial.outcomes:
        return int(code) or 1
    for outcome in trial.outcomes:
        if outcome.noticed is False:
            print(f"{outcome}\n{mutants.difference(outcome.mutant)}")
    scores = _scores(trial.outcomes)
    for name, score in scores.items():
        print(_line(name, score))
    results = {"seed": given.seed, "scores": scores, "mutants": trial.told()}
    (given.build / "results.json").write_text(json.dumps(results, indent=1))
    return 0


def _of_rooms(mutants: Mutants, given: argparse.Namespace) -> list[str]:
    """Return the mutants that are named, or a sample of those of the rooms."""
    if given.mutant:
        for module in dict.fromkeys(name.rpartition(".")[0] for name in given.mutant):
            mutants.make(module)
        return list(given.mutant)
    made = {
        room: [
            name for module in mutants.modules(f"postroad.{room}") for name in mutants.make(module)
        ]
        for room in given.room
    }
    return spread(made, given.count, given.seed)


def _named(mutants: Mutants, given: argparse.Namespace) -> dict[str, frozenset[str]]:
    """Return mutants of functions that name requirements, with the ids that they name."""
    functions = annotated_functions(PROJECT / "src")
    made: dict[str, list[str]] = {}

    def mutants_of(function: Annotated) -> list[str]:
        module = function.module
        if module not in made:
            of_module = [one for one in functions if one.module == module]
            made[module] = mutants.make(module, {line for one in of_module for line in one.lines})
        return [
            name for name in made[module] if mangled_name_from_mutant_name(name) == function.name
        ]

    if not given.mutant:
        return sample(functions, mutants_of, given.count, given.seed)
    by_name = {one.name: one for one in functions}
    found = {}
    for name in given.mutant:
        function = by_name.get(mangled_name_from_mutant_name(name))
        if function is not None:
            mutants_of(function)
        found[name] = function.ids if function is not None else frozenset()
    return found


def _scores(outcomes: list[Outcome]) -> Mapping[str, dict[str, int]]:
    """Count what was tried and noticed, by room, or by document where requirements are named."""
    scores: dict[str, dict[str, int]] = {}
    for one in outcomes:
        if one.noticed is None:
            continue
        documents = sorted({name.partition("-")[0] for name in one.ids})
        for name in documents or [one.mutant.split(".")[1]]:
            score = scores.setdefault(name, {"tried": 0, "noticed": 0})
            score["tried"] += 1
            score["noticed"] += one.noticed
            if documents:
                score["by_own_id"] = score.get("by_own_id", 0) + one.by_own_id
    return scores


def _line(name: str, score: Mapping[str, int]) -> str:
    tried, noticed = score["tried"], score["noticed"]
    line = f"{name}: {noticed} of {tried} noticed, {noticed / tried:.1%}"
    own = score.get("by_own_id")
    return line if own is None else f"{line}; {own} by a test with an id that the function names"


if __name__ == "__main__":
    sys.exit(main())
