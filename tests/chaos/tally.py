"""The tally: for people, for build/chaos/report.json, and for docs/reliability.md."""

from collections import Counter
from typing import Any, Final

from tests.chaos.storm import Outcome

BEGIN: Final = "<!-- chaos: begin; written by python -m tests.chaos --record -->"
END: Final = "<!-- chaos: end -->"


def figures(outcome: Outcome) -> dict[str, Any]:
    """Return all figures as one object."""
    return {
        "seed": outcome.plan.seed,
        **outcome.figures,
        "messages by kind": dict(sorted(outcome.kinds.items())),
        "ends": dict(sorted(outcome.ends.items())),
        "faults": outcome.faults,
        "findings": [str(one) for one in outcome.findings],
    }


def tally(outcome: Outcome) -> str:
    """Return the tally as Markdown."""
    found = Counter(one.what for one in outcome.findings)
    faults = [f"| {name} | {_list(met)} |" for name, met in outcome.faults.items()]
    rows = [
        f"Seed {outcome.plan.seed}: {outcome.figures['messages']:,} messages of "
        f"{outcome.figures['kinds']} kinds in {outcome.figures['seconds'] // 60} minutes.",
        "",
        "| | |",
        "| --- | --- |",
        f"| lost | {found['lost']} |",
        f"| doubled | {found['doubled']} |",
        f"| wrongly reported | {found['wrongly reported']} |",
        f"| all other findings | {sum(found.values()) - _main(found)} |",
        f"| messages by kind | {_list(outcome.kinds)} |",
        f"| ends of messages | {_list(outcome.ends)} |",
        *faults,
    ]
    skipped = ("messages", "kinds", "seconds")
    rows += [
        f"| {name} | {value} |" for name, value in outcome.figures.items() if name not in skipped
    ]
    return "\n".join(rows)


def record(page: str, outcome: Outcome) -> str:
    """Return the page with the tally between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tally(outcome)}\n{END}{after}"


def _main(found: Counter[str]) -> int:
    return found["lost"] + found["doubled"] + found["wrongly reported"]


def _list(counts: Any) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "none"
