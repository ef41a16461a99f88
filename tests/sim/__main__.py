"""Many seeds: `python -m tests.sim --seeds 2000`; one of them: `python -m tests.sim --seed 7`."""

import argparse
import multiprocessing
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.sim.agreements import Party, make_parties
from tests.sim.marks import ENOUGH, missing
from tests.sim.plan import asks, bundles, pulls, speaks_ebxml
from tests.sim.run import WHOLE, Result, Smaller, simulate
from tests.sim.shrinking import shrink

TWICE: Final = 25
"""Every so manieth seed is run twice, and both histories are compared."""
MOST_FAILURES: Final = 5
_AT_A_TIME: Final = 5
_parties: dict[str, Party] = {}


@dataclass(frozen=True)
class Summary:
    """What is told of a seed."""

    seed: int
    broken: str | None
    marks: Mapping[str, int]
    messages: int
    seconds: float


def main() -> int:
    options = _options()
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="sim-") as folder:
        _parties.update(make_parties(Path(folder)))
        if options.seed is not None:
            smaller = Smaller(
                options.messages, None if options.faults is None else tuple(options.faults)
            )
            return _one(console, options.seed, smaller, verbose=options.verbose)
        seeds = range(options.first, options.first + options.seeds)
        for asked, among in (
            (options.ebxml, speaks_ebxml),
            (options.pull, pulls),
            (options.bundle, bundles),
            (options.ask, asks),
        ):
            if asked:
                some = [one for one in seeds if among(one)]
                return _many(console, some, options.jobs, required=False)
        return _many(console, seeds, options.jobs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--ebxml", action="store_true", help="those in which ebXML is spoken")
    parser.add_argument("--pull", action="store_true", help="those in which messages are pulled")
    parser.add_argument("--bundle", action="store_true", help="those in which they are bundled")
    parser.add_argument("--ask", action="store_true", help="those in which requests have replies")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--messages", type=int, help="of --seed: only its first messages")
    parser.add_argument("--faults", nargs="*", help="of --seed: only these kinds of faults")
    parser.add_argument("--verbose", action="store_true", help="of --seed: all that happened")
    return parser.parse_args()


def _one(console: Console, seed: int, smaller: Smaller, *, verbose: bool) -> int:
    """One seed, as it is given."""
    result = simulate(seed, _parties, smaller)
    if verbose:
        for entry in result.history.entries:
            console.print(str(entry), markup=False, soft_wrap=True)
    elif result.broken is not None:
        _show(console, result)
    console.print(
        f"seed {seed}: {result.messages} messages, {result.seconds:.0f} s, "
        f"history {result.history.digest()[:16]}, "
        f"faults: {', '.join(sorted(result.faults)) or 'none'}"
    )
    return 0 if result.broken is None else 1


def _many(console: Console, seeds: Sequence[int], jobs: int, *, required: bool = True) -> int:
    """So many seeds; `required`: together they must reach all that is rare."""
    count = len(seeds)
    marks: Counter[str] = Counter()
    failed: list[Summary] = []
    messages, seconds = 0, 0.0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("simulating", total=count)
        for summary in _summaries(seeds, jobs):
            progress.advance(task)
            marks.update(summary.marks)
            messages += summary.messages
            seconds += summary.seconds
            if summary.broken is not None:
                failed.append(summary)
                progress.console.print(f"seed {summary.seed}: {summary.broken}", markup=False)
            if len(failed) >= MOST_FAILURES:
                break
    for summary in failed[:1]:
        _explain(console, summary.seed)
    console.print(f"{count} seeds, {messages} messages, {seconds / 3600:.0f} hours of made-up time")
    lacking = missing(marks) if required and count >= ENOUGH and not failed else []
    for name in lacking:
        console.print(f"never reached by any seed: {name}")
    console.print("FAILED" if failed or lacking else "all well")
    return 1 if failed or lacking else 0


def _summaries(seeds: Iterable[int], jobs: int) -> Iterator[Summary]:
    if jobs == 1:
        yield from map(_summary, seeds)
        return
    # Forked, so that keys and P-Modes are there already.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        try:
            yield from pool.map(_summary, seeds, chunksize=_AT_A_TIME)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _summary(seed: int) -> Summary:
    result = simulate(seed, _parties)
    broken = str(result.broken) if result.broken is not None else None
    if broken is None and seed % TWICE == 0:
        again = simulate(seed, _parties)
        if again.history.digest() != result.history.digest():
            broken = f"not the same twice: {first_difference(result, again)}"
    marks = result.history.marks
    return Summary(seed, broken, marks, result.messages, result.seconds)


def first_difference(one: Result, other: Result) -> str:
    """Where two histories part."""
    for left, right in zip(one.history.entries, other.history.entries, strict=False):
        if left != right:
            return f"{left} | {right}"
    return f"{len(one.history.entries)} entries | {len(other.history.entries)}"


def _explain(console: Console, seed: int) -> None:
    """The smallest history of a seed that still fails."""
    failed = simulate(seed, _parties)
    if failed.broken is None:
        return
    smaller, result = shrink(failed, partial(simulate, seed, _parties))
    _show(console, result)
    command = f"python -m tests.sim --seed {seed}"
    console.print(f"to see it again: {command} --verbose", markup=False)
    if smaller != WHOLE:
        command += f" --messages {smaller.messages}" if smaller.messages else ""
        if smaller.faults is not None:
            command += " ".join([" --faults", *(f"'{name}'" for name in smaller.faults)])
        console.print(f"made smaller:    {command}", markup=False, soft_wrap=True)


def _show(console: Console, result: Result) -> None:
    assert result.broken is not None
    console.print(f"seed {result.seed}: {result.broken}", markup=False)
    for entry in result.history.about(result.broken.message_id):
        console.print(str(entry), markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
