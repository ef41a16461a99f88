"""The truth about simulated messages: what a reconciliation must say of each."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from postroad.pipeline.simulation_drawing import Stretch
from postroad.pipeline.simulation_network import MINUTE, Ints, Network
from postroad.pipeline.simulation_stories import OPERATOR, OTHER, STORIES, Known, Story
from postroad.pipeline.simulation_telling import (
    ACKNOWLEDGED,
    CUT,
    EXPIRED,
    FAILED,
    IN_DOUBT,
    RECEIVED,
    RECEIVER_SEEN,
    REFUSED,
    REJECTED,
    SENDER_SEEN,
    TRANSMITTED,
    Bools,
    Seen,
)

CLASSES: Final = (
    "twice", "lost", "confirmed", "ghost", "refused", "failed", "in_doubt", "pending"
)  # fmt: skip
SCHEMA: Final = pa.schema(
    [
        ("message_id", pa.string()),
        ("class", pa.string()),
        ("sender_outcome", pa.string()),
        ("receiver_outcome", pa.string()),
        ("deliveries", pa.int64()),
        ("settled_by", pa.string()),
        ("first_at", pa.timestamp("us", tz="UTC")),
        ("last_at", pa.timestamp("us", tz="UTC")),
        ("first_sent_at", pa.timestamp("us", tz="UTC")),
        ("last_sent_at", pa.timestamp("us", tz="UTC")),
        ("from_party", pa.string()),
        ("to_party", pa.string()),
        ("story", pa.string()),
        ("finished", pa.bool_()),
        ("touched", pa.bool_()),
        ("late", pa.bool_()),
    ]
)
"""finished: the whole story is in the journals, and grace has passed. touched: a fault of the
journal hides something of it. late: so does a segment that comes late, until it is there."""

_SENDERS: Final = ("acknowledged", "failed", "expired", "in_doubt", "pending", None)
_RECEIVERS: Final = ("delivered", "rejected", "received", "pending", None)
_AROUND: Final = 5 * MINUTE
_CLASS: Final = {name: index for index, name in enumerate(CLASSES)}
_JOURNAL: Final = -2
"""Who settled it: the number of a name, from the end the journal and nobody, which is -1."""


def truth(network: Network, stretch: Stretch, ids: pa.Array, grace: int) -> pa.Table:
    """What must be found out about each message that a sender's or receiver's journal names."""
    messages, seen = stretch.messages, stretch.seen
    kept = np.flatnonzero((messages.group < 0) & ((seen.marks & (SENDER_SEEN | RECEIVER_SEEN)) > 0))
    route = messages.route[kept]
    seen = Seen(*(getattr(seen, name)[kept] for name in Seen.__slots__))
    sender = np.array([one.sender for one in network.routes])[route]
    receiver = np.array([one.receiver for one in network.routes])[route]
    here, there = network.has_journal(sender), network.has_journal(receiver)
    covers, passed = (
        there & _covers(network, receiver, seen),
        _grace(network, receiver, seen, grace),
    )
    finished = ((seen.marks & CUT) == 0) & (covers & passed | ~there | ~here)
    named, by = _as_it_stands(seen, covers, passed)
    told, told_by = _as_told(messages.story[kept], here, there, receiver, network.operator)
    named, by = np.where(finished, told, named), np.where(finished, told_by, by)
    names = pa.array(network.names)
    sent = seen.last_sent > 0
    columns = {
        "message_id": ids.take(pa.array(kept)),
        "class": _taken(CLASSES, named),
        "sender_outcome": _taken(_SENDERS, _sender(seen)),
        "receiver_outcome": _taken(_RECEIVERS, _receiver(seen)),
        "deliveries": pa.array(seen.deliveries),
        "settled_by": _taken([*network.names, "journal", None], by),
        "first_at": _times(seen.first_at),
        "last_at": _times(seen.last_at),
        "first_sent_at": _times(seen.first_sent, ~sent),
        "last_sent_at": _times(seen.last_sent, ~sent),
        "from_party": names.take(pa.array(sender)),
        "to_party": names.take(pa.array(receiver)),
        "story": _taken([story.name for story in STORIES], messages.story[kept]),
        "finished": pa.array(finished),
        "touched": pa.array(np.zeros(len(kept), bool)),
        "late": pa.array(np.zeros(len(kept), bool)),
    }
    return pa.table(columns, schema=SCHEMA)


def _covers(network: Network, party: Ints, seen: Seen) -> Bools:
    """Whether every node of the party covers the time in which the message was on its way."""
    sent = seen.last_sent > 0
    begin = np.where(sent, seen.first_sent, seen.submitted) - _AROUND
    end = np.where(sent, seen.last_sent, seen.submitted) + _AROUND
    covered = np.ones(len(party), bool)
    for which in range(2):
        node = network.nodes[party, which]
        retired = network.retired[node] <= network.ends[node]
        covered &= retired | (end <= network.ends[node])
        covered &= (end <= network.away_from[node]) | (begin >= network.away_until[node])
    return covered


def _grace(network: Network, party: Ints, seen: Seen, grace: int) -> Bools:
    passed = np.ones(len(party), bool)
    for which in range(2):
        node = network.nodes[party, which]
        retired = network.retired[node] <= network.ends[node]
        passed &= retired | (network.ends[node] >= seen.last_at + grace)
    return passed


def _sender(seen: Seen) -> Ints:
    """The sender's outcome, as a place in _SENDERS."""
    marks, settled = seen.marks, seen.settled
    return np.select(
        [
            (marks & SENDER_SEEN) == 0,
            ((marks & ACKNOWLEDGED) > 0) | (settled == 1),
            ((marks & FAILED) > 0) | (settled == 3),
            (marks & EXPIRED) > 0,
            ((marks & IN_DOUBT) > 0) | (settled == 2),
        ],
        [5, 0, 1, 2, 3],
        4,
    )


def _receiver(seen: Seen) -> Ints:
    marks = seen.marks
    return np.select(
        [
            (marks & RECEIVER_SEEN) == 0,
            seen.deliveries > 0,
            (marks & REJECTED) > 0,
            (marks & RECEIVED) > 0,
        ],
        [4, 0, 1, 2],
        3,
    )


def _as_it_stands(seen: Seen, covers: Bools, passed: Bools) -> tuple[Ints, Ints]:
    """The class of a story that the journals' end cuts, or whose journal has a hole."""
    marks = seen.marks
    outcome = _sender(seen)
    acknowledged, given_up = outcome == 0, (outcome == 1) | (outcome == 2)
    open_ended = given_up | (outcome == 3)
    delivered, rejected = seen.deliveries > 0, (marks & REJECTED) > 0
    journal = covers | ((marks & RECEIVER_SEEN) > 0)
    absent = covers & passed & ~delivered
    transmitted = (marks & TRANSMITTED) > 0
    cases: list[tuple[Bools, str, bool]] = [
        (seen.deliveries > 1, "twice", False),
        (acknowledged & absent, "lost", False),
        (acknowledged, "confirmed", False),
        (given_up & delivered, "ghost", False),
        (delivered, "confirmed", True),
        (((marks & REFUSED) > 0) & (rejected | ~journal), "refused", False),
        (open_ended & rejected, "refused", False),
        (given_up & ~transmitted, "failed", False),
        (open_ended & absent, "failed", True),
        ((seen.settled == 3) & ~journal, "failed", False),
        (open_ended & transmitted & ~journal, "in_doubt", False),
        (((marks & REFUSED) > 0) & (outcome == 1), "refused", False),
    ]
    conditions = [case for case, _, _ in cases]
    named = np.select(conditions, [_CLASS[name] for _, name, _ in cases], _CLASS["pending"])
    by_journal = np.select(conditions, [said for _, _, said in cases], False)
    by = np.where(seen.settled > 0, seen.settled_by, np.where(by_journal, _JOURNAL, -1))
    return named, by


def _as_told(
    story: Ints, here: Bools, there: Bools, receiver: Ints, operator: int
) -> tuple[Ints, Ints]:
    """The class that the story itself names."""
    whose = np.where(here & there, 0, np.where(here, 1, 2))
    named = np.array([[_CLASS[known.named] for known in _known(one)] for one in STORIES])
    by = np.array([[_BY[known.by] for known in _known(one)] for one in STORIES])
    found = by[story, whose]
    found = np.where(found == _BY[OTHER], receiver, found)
    return named[story, whose], np.where(found == _BY[OPERATOR], operator, found)


_BY: Final = {None: -1, "journal": _JOURNAL, OTHER: -3, OPERATOR: -4}


def _known(story: Story) -> tuple[Known, Known, Known]:
    return story.both, story.alone, story.heard or Known("pending")


def _taken(names: Sequence[str | None], index: Ints) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(index % len(names)))


def _times(at: Ints, null: Bools | None = None) -> pa.Array:
    return pa.array(at, pa.timestamp("us", tz="UTC"), mask=null)
