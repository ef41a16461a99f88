"""Journals made to be nasty: few names and few minutes, so that everything collides."""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.pipeline.journals import DAY, MESSAGE, Event, Journal

SENDING: Final = (
    ("submitted", "sent", "receipt_received"),
    ("submitted", "queued", "sent", "hop_acked", "resent", "ack_received"),
    ("submitted", "send_failed", "resent", "ack_received"),
    ("submitted", "send_failed", "delivery_failed"),
    ("submitted", "expired"),
    ("submitted", "sent", "delivery_failed"),
    ("submitted", "sent", "resent", "expired"),
    ("submitted", "sent", "in_doubt"),
    ("submitted", "bundled", "sent", "error_received", "delivery_failed"),
    ("submitted", "sent", "error_received"),
    ("submitted", "sent", "in_doubt", "receipt_received"),
    ("submitted", "sent"),
    ("submitted",),
    ("in_doubt", "settled"),
    (),
)
RECEIVING: Final = (
    ("received", "delivered", "receipt_sent"),
    ("pulled", "received", "delivered", "acked", "duplicate"),
    ("received", "out_of_order", "held", "delivered", "duplicate", "duplicate"),
    ("received", "delivered", "delivered"),
    ("received", "rejected", "error_raised"),
    ("received", "out_of_order"),
    ("error_raised",),
    (),
    (),
    (),
    (),
)
FORWARDING: Final = (
    ("received", "forwarded"),
    ("received", "queued", "forwarded", "forwarded", "hop_acked"),
    ("received", "duplicate", "delivery_failed", "error_raised"),
    ("queued", "error_raised"),
    ("forwarded",),
)
SETTLED: Final = ("delivered", "received", "not_received", None)
MINUTES: Final = (0, 0.5, 1, 2, 3, 5, 6, 7, 10, 11, 58, 61, 120, DAY - 5, DAY, DAY + 5, 3 * DAY)
CARRIED: Final = (*MESSAGE, "ref_to_message_id", "sequence_number", "group_id")


@dataclass
class Plan:
    """What one node is going to write."""

    name: str
    parties: list[str]
    steps: list[tuple[float, str, Event]] = field(default_factory=list)
    """Minute, event, columns."""


class Nasty:
    """One journal, by one random sequence."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nulls = random.choice((0.0, 0.0, 0.1, 0.5))
        self.strays = random.choice((0.0, 0.0, 0.1))
        self.plans = self._nodes()
        self.ids = [f"m{n}" for n in range(random.choice((1, 1, 2, 3, 4)))]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def events(self) -> list[Event]:
        for message_id in self.ids:
            self._message(message_id)
        journal = Journal()
        for plan in self.plans:
            self._beats(plan)
            if plan.steps:
                self._write(journal, plan)
        self.random.shuffle(journal.events)
        return journal.events

    def _nodes(self) -> list[Plan]:
        plans = [
            Plan(f"{party.lower()}{n}", [party])
            for party in "ABCH"
            for n in range(1, self.random.choice((1, 1, 2)) + 1)
        ]
        if self.chance(0.15):
            self.random.choice(plans).parties.append(self.random.choice("ABCH"))
        return plans

    def _plan(self, party: str) -> Plan:
        """A node of that party; now and then of another."""
        own = [plan for plan in self.plans if party in plan.parties]
        return self.random.choice(self.plans if self.chance(self.strays / 3) else own)

    # --- messages ---

    def _message(self, message_id: str) -> None:
        choice = self.random.choice
        sender, receiver = choice("AAC"), choice("BBBBBCCD")
        kind = choice(("message", "message", "message", "fragment"))
        about: Event = MESSAGE | {
            "message_id": message_id,
            "kind": kind,
            "group_id": choice(self.ids) if kind == "fragment" else None,
            "from_party": sender,
            "to_party": receiver,
            "conversation_id": choice(("talk", "talk", "chat")),
            "pmode": choice(("push", "push", "pull")),
            "ref_to_message_id": choice((None, None, *self.ids, "unknown")),
            "sequence_number": choice((None, 1, 2, 5, 6)),
            "bytes": choice((0, 10, 1000)),
        }
        about |= {column: None for column in CARRIED if self.chance(self.nulls / 5)}
        start = choice(MINUTES)
        self._told(sender, "sending", self._story(SENDING), start, about)
        self._told(receiver, "receiving", self._story(RECEIVING), start, about)
        for _ in range(self.random.choice((0, 0, 1, 2))):
            self._told("H", "forwarding", self._story(FORWARDING), start, about)
        if self.chance(0.25):
            signal = about | {"signal_id": f"receipt-of-{message_id}"}
            self._told("H", "forwarding", ["received", "forwarded"], start, signal)

    def _story(self, stories: tuple[tuple[str, ...], ...]) -> list[str]:
        """One of these, sometimes with more, fewer or shuffled steps."""
        story = list(self.random.choice(stories))
        if stories is SENDING:
            story += ["settled"] * self.random.choice((0, 0, 0, 1, 2))
        if story and self.chance(0.2):
            story.append(self.random.choice(("purged", "error_raised", "mused")))
        if self.chance(0.15):
            story += self.random.choice(stories)
        if story and self.chance(0.15):
            story.remove(self.random.choice(story))
        if self.chance(0.1):
            self.random.shuffle(story)
        return story

    def _told(self, party: str, side: str, story: list[str], start: float, about: Event) -> None:
        """Lets nodes of a party write a story down."""
        if party == "D":
            return  # It has no nodes.
        minute, plan = start, self._plan(party)
        skew = self.random.choice((0, 0, 0, 0, -1, -1.1, 2, -7))
        for event in story:
            if self.chance(0.2):
                plan = self._plan(party)
            columns = self._columns(event, side, about)
            known = party in plan.parties and not self.chance(self.strays)
            columns["party"] = party if known else self.random.choice(plan.parties)
            plan.steps.append((minute + skew, event, columns))
            minute += self.random.choice((0, 0.5, 1, 1, 2, 5, 61, DAY if self.chance(0.1) else 1))

    def _columns(self, event: str, side: str, about: Event) -> Event:
        choice = self.random.choice
        columns = about | {"side": side}
        if event in ("sent", "resent", "received", "forwarded"):
            columns["wire_bytes"] = choice((None, 100, 2000))
            columns["envelope"] = choice((None, about["message_id"], "bundle"))
            columns["peer"] = choice((None, "next-1", "next-2"))
        if event == "settled":
            columns |= {"detail": choice(SETTLED), "peer": choice((None, "B", "operator"))}
        if event == "error_received":
            columns |= {"severity": choice(("failure", "failure", "warning", None))}
        if event == "error_raised" and self.chance(0.1):
            columns["side"] = None
        for column in CARRIED:
            if self.chance(self.nulls):
                columns[column] = None
        if self.chance(self.strays):
            columns["pmode"], columns["to_party"] = choice(("push", "pull")), choice("BC")
        return columns

    # --- nodes ---

    def _beats(self, plan: Plan) -> None:
        """Heartbeats just where they decide about covering and grace."""
        choice = self.random.choice
        told = [step for other in self.plans for step in other.steps]
        sent = [minute for minute, event, _ in told if event in ("sent", "resent")] or [0]
        last = [max(minute for minute, _, _ in told)] if told else [0]
        around = [choice(sent) + choice((-5, -5.5, -4.99, 5, 5.5, 4.99, 0)) for _ in range(3)]
        beats = [*around, *choice(((), (-60,), (-60, 2), (20, 70)))]
        match choice(("none", "near", "near", "far", "far", "far")):
            case "near":
                beats.append(choice(last + sent) + DAY + choice((0, 0, -1, 1, 5)))
            case "far":
                beats.append(9 * DAY)
        plan.steps += [(minute, "heartbeat", self._own(plan)) for minute in beats]
        if self.chance(0.1):
            plan.steps.append((choice(MINUTES), "suspended", self._own(plan)))
        if self.chance(0.25):
            end = choice((*MINUTES, *around, max(minute for minute, _, _ in plan.steps)))
            if self.chance(0.8):
                plan.steps = [step for step in plan.steps if step[0] <= end]
            plan.steps.append((end, "heartbeat", self._own(plan) | {"detail": "retired"}))

    def _own(self, plan: Plan) -> Event:
        """What an event about no message says."""
        return {"party": self.random.choice(plan.parties), "message_id": None, "side": None}

    def _write(self, journal: Journal, plan: Plan) -> None:
        """Numbers what a node wrote: late starts, holes, epochs, a clock that was set back."""
        choice = self.random.choice
        steps = sorted(plan.steps, key=lambda step: step[0])
        if self.chance(0.12):
            place, back = self.random.randrange(len(steps)), choice((1, 4, 30, DAY))
            steps[place:] = [(minute - back, *rest) for minute, *rest in steps[place:]]
        epoch, seq = choice(((1, 1),) * 8 + ((1, 2), (1, 7), (2, 1), (3, 4)))
        holes, restores = choice((0, 0, 0, 0.1, 0.3)), choice((0, 0, 0, 0.15))
        writer = journal.node(plan.name, plan.parties[0], epoch=epoch, seq=seq)
        for minute, event, columns in steps:
            if self.chance(holes):
                writer.skip(choice((1, 3)))
            if self.chance(restores):
                before = writer.seq
                writer.restored().skip(choice((0, 0, 0, 2, before - 1)))
                writer.epoch += choice((0, 0, 0, 1))
            named = {c: v for c, v in columns.items() if c != "message_id"}
            writer.write(minute, event, columns["message_id"], **named)


def nasty(seed: int) -> list[Event]:
    """The same journal for the same seed."""
    return Nasty(Random(seed)).events()
