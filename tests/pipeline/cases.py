"""Small journals with one message, `m`, that A sends to B, and what must be said of it."""

from collections.abc import Callable
from typing import Any

from tests.pipeline.journals import DAY, EXAMPLES, Journal, Row, Writer

Build = Callable[[Journal], object]


class Cases(dict[str, Row]):
    """The row of `m` in the reconciliation, by the name of the case; empty where there is none."""

    def take(
        self,
        name: str | None,
        sender: str | None = None,
        receiver: str | None = None,
        *,
        deliveries: int | None = None,
        **columns: Any,
    ) -> Callable[[Build], Build]:
        """A journal with the class and outcomes of its message; no class: no row."""

        def add(build: Build) -> Build:
            count = int(receiver == "delivered") if deliveries is None else deliveries
            row = {"class": name, "sender_outcome": sender, "receiver_outcome": receiver}
            row |= {"deliveries": count, "settled_by": None} | columns
            self[EXAMPLES.add(build)] = row if name else {}
            return build

        return add

    def check(self, example: str, reconciliation: list[Row]) -> None:
        """Fails where the row is another one."""
        row = next((r for r in reconciliation if r["message_id"] == f"{example}/m"), {})
        expected = self[example]
        assert bool(row) == bool(expected), f"expected {expected}, came {row}"
        assert {column: row[column] for column in expected} == expected, f"came {row}"


def sent(j: Journal) -> Writer:
    """A's node after it sent `m` at minute 0."""
    return j.node("a1", "A").write(0, "submitted").write(0, "sent")


def covered(j: Journal) -> Writer:
    """B's node, which was there all the time and says nothing about `m`."""
    return j.node("b1", "B").beat(-60).beat(2 * DAY)


def received(j: Journal, *then: str) -> Writer:
    """B's node, which tells of `m` and was there all the time."""
    b = j.node("b1", "B").beat(-60).write(1, "received")
    for event in then:
        b.write(2, event)
    return b.beat(2 * DAY)


def acked(j: Journal) -> Writer:
    """A's node after it sent `m` at minute 0 and again at minute 30, and was answered."""
    return sent(j).write(30, "resent").write(31, "receipt_received")
