"""What came of a storm, in figures: as a table for people, as one object for machines."""

from typing import Any, Final

from rich.console import Console
from rich.table import Table

from postroad.store.records import State
from tests.crash.books import Finding, history
from tests.crash.storm import Outcome

_SHOWN: Final = 20
"""Of what is wrong, so much is shown with its history."""


def figures(outcome: Outcome) -> dict[str, Any]:
    """The tally: what happened to the messages, and what was done to the nodes."""
    plan, states = outcome.plan, outcome.states
    sent, received = outcome.sent, outcome.received
    return {
        "seed": plan.seed,
        "workers": plan.workers,
        "submitted": plan.messages,
        "accepted": len(sent.messages),
        "delivered": received.count("delivered").total(),
        "acknowledged": states[State.ACKNOWLEDGED],
        "settled": states[State.SETTLED],
        "failed": states[State.FAILED],
        "expired": states[State.EXPIRED],
        "in_doubt": states[State.IN_DOUBT],
        "bundled": sent.count("bundled").total(),
        "resent": sent.count("resent").total(),
        "not_sent": sent.count("send_failed").total(),
        "duplicates_filtered": received.count("duplicate").total(),
        "submissions_repeated": outcome.repeated,
        "kills": {"sender": outcome.kills["buyer"], "receiver": outcome.kills["seller"]},
        "frozen": outcome.frozen,
        "exchanges": outcome.exchanges,
        "faults": {fault.value: count for fault, count in sorted(outcome.faults.items())},
        "seconds": round(outcome.seconds, 1),
        "findings": len(outcome.findings),
    }


def print_tally(outcome: Outcome, console: Console) -> None:
    table = Table("", "", box=None, show_header=False, pad_edge=False)
    table.columns[1].justify = "right"
    for name, value in figures(outcome).items():
        label = name.replace("_", " ")
        if isinstance(value, dict):
            table.add_row(label, str(sum(value.values())))
            for key, count in value.items():
                table.add_row(f"  {key}", str(count))
        else:
            table.add_row(label, str(value))
    console.print(table)


def explain(outcome: Outcome) -> list[str]:
    """What is wrong, and the histories of the messages concerned."""
    told: list[str] = []
    shown: set[str] = set()
    for number, finding in enumerate(outcome.findings):
        told.append(_line(finding))
        name = finding.message_id
        if name is not None and name not in shown and number < _SHOWN:
            shown.add(name)
            told += [f"    {line}" for line in history(name, outcome.sent, outcome.received)]
    return told


def _line(finding: Finding) -> str:
    return f"{finding.message_id}: {finding.what}" if finding.message_id else finding.what
