"""The long storm: `python -m tests.crash --messages 5000 --kills 50 --seed 1`."""

import argparse
import json
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from tests.crash.storm import Outcome, Plan, Progress, run_storm
from tests.crash.tally import explain, figures, print_tally


def main(arguments: Sequence[str] | None = None) -> int:
    """The storm that the arguments ask for; 0 only if the books balance."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash",
        description="Kill two nodes under traffic over a bad network, and compare their books.",
    )
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, help="of messages, faults and deaths; else any")
    parser.add_argument("--workers", type=int, default=1, help="processes of each node")
    parser.add_argument("--json", action="store_true", help="print the tally as one object")
    given = parser.parse_args(arguments)
    if not 0 <= given.kills < given.messages <= 1_000_000:
        parser.error("there must be more messages than kills, and a million at most")
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    plan = Plan(given.messages, given.kills, seed, given.workers)
    folder = Path(tempfile.mkdtemp(prefix="postroad-storm-"))
    again = (
        f"again: --messages {plan.messages} --kills {plan.kills} --seed {plan.seed} "
        f"--workers {plan.workers}; the nodes: {folder}"
    )
    try:
        outcome = _run(plan, folder)
    except BaseException:
        print(again, file=sys.stderr)
        raise
    if given.json:
        print(json.dumps(figures(outcome), indent=2))
    else:
        print_tally(outcome, Console())
    if not outcome.findings:
        shutil.rmtree(folder)
        return 0
    for line in explain(outcome):
        print(line, file=sys.stderr)
    print(f"the books do not balance; {again}", file=sys.stderr)
    return 1


def _run(plan: Plan, folder: Path) -> Outcome:
    """The storm under its bars."""
    columns = (TextColumn("{task.description:<13}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bars:
        accepted = bars.add_task("accepted", total=plan.messages)
        at_rest = bars.add_task("at rest", total=plan.messages)
        kills = bars.add_task("kills", total=plan.kills)

        def show(progress: Progress) -> None:
            bars.update(accepted, completed=progress.accepted)
            bars.update(at_rest, completed=progress.at_rest)
            bars.update(kills, completed=progress.kills, description=f"kills ({progress.doing})")

        return run_storm(plan, folder, show)


if __name__ == "__main__":
    sys.exit(main())
