"""Attack real nodes over HTTP, TLS and SMTP, as strangers on the network would: `make attack`.

    python -m tests.attack.campaign [--seconds 900] [--only CLASS]... [--list] [--record]

Nodes are started on the loopback of this machine as processes of their own, and nothing else is
contacted. After each case the nodes must still be in service: an honest client gets its answer, no
log tells of an unexpected exception, nothing was delivered that no partner sent, nobody was called
because a message said so, and memory, open files and disk stay within their bounds.

The tally is printed and written to build/attack/report.json; `--record` writes it into
docs/security.md. The exit code is 1 on a breach, and 0 otherwise.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.attack.campaign.classes import CLASSES
from tests.attack.campaign.model import AttackClass, Breach, Result
from tests.attack.campaign.target import Target, target

PROJECT: Final = Path(__file__).resolve().parents[3]
REPORT: Final = PROJECT / "build" / "attack" / "report.json"
_PAGE: Final = PROJECT / "docs" / "security.md"
_TALLY: Final = re.compile(r"(?<=<!-- table: attack -->\n).*?(?=<!-- end of table -->)", re.DOTALL)


def run(attacks: AttackClass, place: Target, end: float) -> Result:
    """Run the cases of one class until the time is up."""
    result = Result(attacks.name)
    begun, sent = time.monotonic(), place.requests
    for case in attacks.cases(place):
        if time.monotonic() > end:
            result.skipped += 1
            continue
        result.cases += 1
        try:
            case.attack(place)
            place.check(case.expect_log)
        except Exception as breach:  # An attack that cannot be judged is no proof of anything.
            said = breach if isinstance(breach, Breach) else f"{type(breach).__name__}: {breach}"
            result.breaches.append(f"{case.name}: {said}")
            print(f"BREACH: {attacks.name}: {case.name}: {said}", file=sys.stderr, flush=True)
            place.recover()
    try:
        place.check_deliveries()
    except Breach as breach:
        result.breaches.append(f"after all cases: {breach}")
        print(f"BREACH: {attacks.name}: after all cases: {breach}", file=sys.stderr, flush=True)
    result.seconds = round(time.monotonic() - begun, 1)
    result.requests = place.requests - sent
    return result


def table(results: Sequence[Result]) -> str:
    """Return the tally as a table."""
    lines = ["| class of attacks | cases | requests | breaches |", "| --- " + "| ---: " * 3 + "|"]
    for one in results:
        lines.append(f"| {one.name} | {one.cases:,} | {one.requests:,} | {len(one.breaches):,} |")
    cases, requests = sum(one.cases for one in results), sum(one.requests for one in results)
    breaches = sum(len(one.breaches) for one in results)
    lines.append(f"| **all** | {cases:,} | {requests:,} | {breaches:,} |")
    return "\n".join(lines)


def record() -> None:
    """Write the tally of the last run into the docs."""
    results = [Result(**row) for row in json.loads(REPORT.read_text())]
    text = _PAGE.read_text(encoding="utf-8")
    _PAGE.write_text(_TALLY.sub(lambda _: f"{table(results)}\n", text), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attack.campaign", description="Attack nodes on this machine."
    )
    parser.add_argument("--seconds", type=int, default=900, help="time for all (default: 900)")
    names = [one.name for one in CLASSES]
    parser.add_argument("--only", action="append", choices=names, help="only this class")
    parser.add_argument("--list", action="store_true", help="list the classes, attack nothing")
    parser.add_argument("--record", action="store_true", help="write the last tally into the docs")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(names))
        return 0
    if given.record:
        record()
        return 0
    end = time.monotonic() + given.seconds
    results = []
    with tempfile.TemporaryDirectory() as folder, target(Path(folder)) as place:
        for one in CLASSES:
            if given.only is None or one.name in given.only:
                print(f"{one.name} …", flush=True)
                results.append(run(one, place, end))
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps([asdict(one) for one in results], indent=2) + "\n")
    print(table(results))
    for result in results:
        if result.skipped:
            print(
                f"NOT RUN: {result.name}: {result.skipped} cases, the time was up. "
                "Give it more --seconds.",
                file=sys.stderr,
            )
    return 1 if any(one.breaches for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
