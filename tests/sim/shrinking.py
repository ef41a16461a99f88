"""A failing seed made smaller: fewer messages, fewer kinds of faults, the same seed."""

from collections.abc import Callable, Iterator

from tests.sim.run import Result, Smaller

MOST_RUNS = 60


def shrink(
    failed: Result, again: Callable[[Smaller], Result], most: int = MOST_RUNS
) -> tuple[Smaller, Result]:
    """The smallest history found that still fails, and how to get it, in so many runs."""
    best, smaller = failed, Smaller()
    runs = 0
    progress = True
    while progress and runs < most:
        progress = False
        for candidate in _candidates(best, smaller):
            runs += 1
            result = again(candidate)
            if result.broken is not None:
                best, smaller, progress = result, candidate, True
                break
            if runs >= most:
                break
    return smaller, best


def _candidates(best: Result, smaller: Smaller) -> Iterator[Smaller]:
    """What could be left out next, the most first."""
    for messages in (best.messages // 2, best.messages - 1):
        if 0 < messages < best.messages:
            yield Smaller(messages, smaller.faults)
    left = sorted(best.faults)
    for some in (left[: len(left) // 2], left[len(left) // 2 :], *([name] for name in left)):
        if some:
            yield Smaller(smaller.messages, tuple(name for name in left if name not in some))
