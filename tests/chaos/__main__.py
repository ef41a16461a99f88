"""`python -m tests.chaos --seconds 1200 --messages 20000`: the storm, and what came of it."""

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.chaos.storm import Outcome, Plan, Storm
from tests.chaos.tally import figures, record, tally

REPORT: Final = Path("build/chaos/report.json")
PAGE: Final = Path("docs/reliability.md")
_INSIDE: Final = "POSTROAD_CHAOS_INSIDE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm that the arguments ask for; 0 only if every promise held."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Send messages of all kinds between real nodes while links, processes, disks, "
        "consumers and clients fail; then compare what was sent with what arrived.",
    )
    parser.add_argument(
        "--seconds", type=float, default=1200, help="how long faults go on at least"
    )
    parser.add_argument("--messages", type=int, default=20_000, help="how many at least")
    parser.add_argument("--seed", type=int, help="of messages and faults (default: any)")
    parser.add_argument("--record", action="store_true", help=f"write the tally to {PAGE}")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the nodes")
    parser.add_argument("--no-pipeline", action="store_true", help="do not start Spark")
    parser.add_argument(
        "--patience", type=float, default=300, help="seconds without any progress that are borne"
    )
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    _have_mounts_of_our_own([*(arguments or sys.argv[1:]), "--seed", str(seed)])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    disk = 512 * 1024**2 + 200_000 * given.messages
    plan = Plan(given.seconds, given.messages, seed, not given.no_pipeline, disk, given.patience)
    folder = Path(tempfile.mkdtemp(prefix="postroad-chaos-"))
    print(f"seed {seed}, nodes in {folder}", flush=True)
    keep = True
    try:
        outcome = Storm(plan, folder, lambda line: print(line, flush=True)).run()
        keep = given.keep or bool(outcome.findings)
    finally:
        if not keep:
            shutil.rmtree(folder)
    return _report(outcome, given.record, folder if keep else None)


def _report(outcome: Outcome, recorded: bool, folder: Path | None) -> int:
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(figures(outcome), indent=2) + "\n")
    print(tally(outcome))
    if outcome.findings:
        for finding in outcome.findings[:50]:
            print(finding, file=sys.stderr)
        print(
            f"{len(outcome.findings)} findings; again: --seed {outcome.plan.seed} --seconds "
            f"{outcome.plan.seconds:g} --messages {outcome.plan.messages}; the nodes: {folder}",
            file=sys.stderr,
        )
        return 1
    if recorded:
        PAGE.write_text(record(PAGE.read_text(), outcome))
    return 0


def _have_mounts_of_our_own(arguments: list[str]) -> None:
    """Start again where small disks can be mounted that vanish with us, if the system allows it."""
    if os.environ.get(_INSIDE):
        return
    os.environ[_INSIDE] = "1"
    for options in (["-m"], ["-rm"]):
        command = ["unshare", *options]
        try:
            able = subprocess.run([*command, "true"], capture_output=True).returncode == 0
        except FileNotFoundError:
            return
        if able:
            os.execvp("unshare", [*command, sys.executable, "-m", "tests.chaos", *arguments])


if __name__ == "__main__":
    sys.exit(main())
