"""JOURNAL sections 4 and 5 in plain Python: the second opinion about every table.

Events are dicts with the columns of a journal, rows are dicts with the columns of a table. All is
written for the reader, nothing for speed. What JOURNAL leaves to the lake (`date`, the wording of
`detail`, when a finding was) is left out here.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from postroad.wire.names import TEST_ACTION, TEST_SERVICE

Event = dict[str, Any]
Row = dict[str, Any]

AROUND = timedelta(minutes=5)
"""A journal must cover this much before the first and after the last time a message was sent."""
TOLERANCE = timedelta(minutes=1)
"""Clocks that disagree by more are a finding."""


def tables(events: Iterable[Event], grace: timedelta = timedelta(days=1)) -> dict[str, list[Row]]:
    """Every table that is made of events, as lists of rows in no particular order."""
    journal = Journal(sorted(events, key=order), grace)
    return {
        "messages": list(messages(journal)),
        "reconciliation": list(reconciliation(journal)),
        "partners": list(partners(journal)),
        "hops": list(hops(journal)),
        "conversations": list(conversations(journal)),
        "packing": list(packing(journal)),
        "findings": list(findings(journal)),
    }


def order(event: Event) -> tuple[datetime, str, int, int]:
    return event["at"], event["node"], event["epoch"], event["seq"]


def first(events: Iterable[Event], column: str) -> Any:
    """The first value that is not null."""
    return next((e[column] for e in events if e[column] is not None), None)


def named(events: Iterable[Event], *names: str) -> list[Event]:
    return [e for e in events if e["event"] in names]


def of_side(events: Iterable[Event], side: str) -> list[Event]:
    return [e for e in events if e["side"] == side]


def first_at(events: Iterable[Event], *names: str) -> datetime | None:
    return min((e["at"] for e in named(events, *names)), default=None)


def last_at(events: Iterable[Event], *names: str) -> datetime | None:
    return max((e["at"] for e in named(events, *names)), default=None)


def milliseconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start) / timedelta(milliseconds=1)


def hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


class Journal:
    """All events, in order, and the same by message and by node."""

    def __init__(self, events: list[Event], grace: timedelta) -> None:
        self.events = events
        self.grace = grace
        self.by_message: dict[str, list[Event]] = defaultdict(list)
        by_node: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            by_node[event["node"]].append(event)
            if event["message_id"] is not None:
                self.by_message[event["message_id"]].append(event)
        self.nodes = {name: Node(own) for name, own in by_node.items()}

    def of_kind(self, *kinds: str) -> Iterator[tuple[str, list[Event]]]:
        """Messages (or fragments), each with all its events."""
        for message_id, events in self.by_message.items():
            if self.kind(message_id) in kinds:
                yield message_id, events

    def kind(self, message_id: str) -> Any:
        """Of the message, whoever says so."""
        return first(self.by_message[message_id], "kind")

    def of_party(self, party: str | None) -> list["Node"]:
        return [node for node in self.nodes.values() if party in node.parties]

    def covers(self, party: str | None, sending: list[Event]) -> bool:
        """Whether the party's journal covers a message, by what its sender wrote (section 4)."""
        names = ("sent", "resent") if named(sending, "sent", "resent") else ("submitted",)
        start, end = first_at(sending, *names), last_at(sending, *names)
        if start is None or end is None:
            return False
        nodes = self.of_party(party)
        return bool(nodes) and all(n.covers(start - AROUND, end + AROUND) for n in nodes)

    def grace_passed(self, party: str | None, last: datetime) -> bool:
        return all(
            node.retired is not None or node.reaches >= last + self.grace
            for node in self.of_party(party)
        )


# --- section 4 ---


@dataclass(frozen=True)
class Stretch:
    """Time that a node covers; without a start it is all time before the end."""

    start: datetime | None
    end: datetime


class Node:
    """What one node's journal covers."""

    def __init__(self, events: list[Event]) -> None:
        self.events = sorted(events, key=lambda e: (e["epoch"], e["seq"]))
        self.parties = {e["party"] for e in events}
        self.reaches = max(e["at"] for e in events)
        self.retired = self._retired()
        self.stretches = [self._stretch(run) for run in self.runs()]

    def runs(self) -> list[list[Event]]:
        """Events of one epoch between which no `seq` is missing."""
        runs = [[self.events[0]]]
        for before, after in pairwise(self.events):
            if (after["epoch"], after["seq"]) == (before["epoch"], before["seq"] + 1):
                runs[-1].append(after)
            else:
                runs.append([after])
        return runs

    def _retired(self) -> datetime | None:
        """When its last heartbeat says so; one that beats on after that has not left."""
        beats = [e for e in self.events if e["event"] == "heartbeat"]
        return beats[-1]["at"] if beats and beats[-1]["detail"] == "retired" else None

    def _stretch(self, run: list[Event]) -> Stretch:
        times = [e["at"] for e in run]
        from_the_start = (run[0]["epoch"], run[0]["seq"]) == (1, 1)
        return Stretch(None if from_the_start else min(times), max(times))

    def covers(self, start: datetime, end: datetime) -> bool:
        """Whether all of that time in which the node was in service is covered."""
        if self.retired is not None:
            if self.retired < start:
                return True
            end = min(end, self.retired)
        reached = None
        for stretch in sorted(self.stretches, key=lambda s: (s.start is not None, s.start)):
            joins = stretch.start is None or stretch.start <= (reached or start)
            if joins and stretch.end >= start:
                reached = max(reached or stretch.end, stretch.end)
        return reached is not None and reached >= end


# --- section 5: messages ---


def messages(journal: Journal) -> Iterator[Row]:
    for message_id, events in journal.by_message.items():
        for side in ("sending", "receiving"):
            if own := of_side(events, side):
                yield message_row(message_id, side, own)


def message_row(message_id: str, side: str, events: list[Event]) -> Row:
    """The life of a message on one side, from the events of that side."""
    submitted, sent = first_at(events, "submitted"), first_at(events, "sent", "resent")
    received, delivered = first_at(events, "received"), first_at(events, "delivered")
    if side == "sending":
        acknowledged = first_at(events, "ack_received", "receipt_received")
        failed = first_at(events, "delivery_failed", "expired")
        latency = milliseconds(submitted, acknowledged)
        outcome = sender_outcome(events)
    else:
        acknowledged = first_at(events, "acked", "receipt_sent")
        failed = first_at(events, "rejected")
        latency = milliseconds(received, delivered)
        outcome = receiver_outcome(events)
    return {
        "message_id": message_id,
        "side": side,
        **{
            column: first(events, column)
            for column in (
                *("kind", "party", "from_party", "to_party", "service", "action"),
                *("conversation_id", "pmode", "protocol", "bytes"),
            )
        },
        "submitted_at": submitted,
        "first_sent_at": sent,
        "last_sent_at": last_at(events, "sent", "resent"),
        "received_at": received,
        "delivered_at": delivered,
        "acknowledged_at": acknowledged,
        "failed_at": failed,
        "attempts": len(named(events, "sent", "resent", "send_failed")),
        "duplicates": len(named(events, "duplicate")),
        "deliveries": len(named(events, "delivered")),
        "errors": len(named(events, "error_raised", "error_received")),
        "outcome": outcome,
        "latency_ms": latency,
    }


def last_settled(sending: list[Event]) -> Event | None:
    settled = named(sending, "settled")
    return settled[-1] if settled else None


def settled_as(sending: list[Event]) -> str | None:
    settled = last_settled(sending)
    return settled["detail"] if settled else None


def sender_outcome(sending: list[Event]) -> str | None:
    """Null where no sender's journal names the message."""
    if not sending:
        return None
    happened = {e["event"] for e in sending}
    settled = settled_as(sending)
    if happened & {"ack_received", "receipt_received"} or settled == "delivered":
        return "acknowledged"
    if "delivery_failed" in happened or settled == "not_received":
        return "failed"
    if "expired" in happened:
        return "expired"
    if "in_doubt" in happened or settled == "received":
        return "in_doubt"
    return "pending"


def receiver_outcome(receiving: list[Event]) -> str | None:
    """Null where no receiver's journal names the message."""
    if not receiving:
        return None
    happened = {e["event"] for e in receiving}
    return next((o for o in ("delivered", "rejected", "received") if o in happened), "pending")


# --- section 5: reconciliation ---


def reconciliation(journal: Journal) -> Iterator[Row]:
    for message_id, events in journal.of_kind("message"):
        sending, receiving = of_side(events, "sending"), of_side(events, "receiving")
        if not sending and not receiving:
            continue
        life = [e for e in events if e["event"] != "purged"]
        name, by_journal = classed(journal, events)
        settled = last_settled(sending)
        peer = settled["peer"] if settled else None
        yield {
            "message_id": message_id,
            "class": name,
            "sender_outcome": sender_outcome(sending),
            "receiver_outcome": receiver_outcome(receiving),
            "deliveries": len(named(receiving, "delivered")),
            "settled_by": peer or ("journal" if by_journal else None),
            "first_at": life[0]["at"] if life else None,
            "last_at": life[-1]["at"] if life else None,
        }


def classed(journal: Journal, events: list[Event]) -> tuple[str, bool]:
    """The class, and whether the receiver's journal settles it: the table, row by row."""
    sending, receiving = of_side(events, "sending"), of_side(events, "receiving")
    receiver = first(events, "to_party") or first(receiving, "party")
    covers = journal.covers(receiver, sending)
    no_journal = not covers and not receiving
    deliveries = len(named(receiving, "delivered"))
    delivered = deliveries > 0
    rejected = bool(named(receiving, "rejected"))
    last = max((e["at"] for e in events if e["event"] != "purged"), default=None)
    surely_not = (
        covers and not delivered and last is not None and journal.grace_passed(receiver, last)
    )
    sender = sender_outcome(sending)
    transmitted = bool(named(sending, "sent", "resent"))
    told = any(e["severity"] == "failure" for e in named(sending, "error_received"))
    given_up = sender in ("failed", "expired")
    doubtful = given_up or sender == "in_doubt"
    # Of which JOURNAL says nothing: what goes to the test service is never delivered.
    tested = (first(sending, "service"), first(sending, "action")) == (TEST_SERVICE, TEST_ACTION)
    rows: list[tuple[str, bool, bool]] = [
        ("twice", deliveries > 1, False),
        ("lost", sender == "acknowledged" and surely_not and not tested, False),
        ("confirmed", sender == "acknowledged", False),
        ("ghost", given_up and delivered, False),
        ("confirmed", sender in ("in_doubt", "pending", None) and delivered, True),
        ("refused", told and (rejected or no_journal), False),
        ("refused", doubtful and rejected, False),
        ("failed", given_up and not transmitted, False),
        ("failed", doubtful and surely_not, True),
        ("failed", settled_as(sending) == "not_received" and no_journal, False),
        ("in_doubt", doubtful and transmitted and no_journal, False),
        ("refused", told and sender == "failed", False),
        ("pending", True, False),
    ]
    return next((name, by_journal) for name, fits, by_journal in rows if fits)


# --- section 5: partners ---


def partners(journal: Journal) -> Iterator[Row]:
    """One row per partner and hour; `latencies` stands for the three percentiles."""
    sent: dict[tuple[str, datetime], list[Row]] = defaultdict(list)
    duplicates: Counter[tuple[str, datetime]] = Counter()
    errors: Counter[tuple[str, datetime]] = Counter()
    for row in messages(journal):
        if journal.kind(row["message_id"]) != "message":
            continue
        partner = row["to_party"] if row["side"] == "sending" else row["from_party"]
        if partner is None:
            continue
        if row["first_sent_at"] is not None:
            sent[partner, hour(row["first_sent_at"])].append(row)
        for event in of_side(journal.by_message[row["message_id"]], row["side"]):
            at = hour(event["at"])
            if event["event"] == "duplicate":
                duplicates[partner, at] += 1
            elif event["event"] in ("error_raised", "error_received"):
                errors[partner, at] += 1
    for key in sent.keys() | duplicates.keys() | errors.keys():
        outcomes = Counter(row["outcome"] for row in sent[key])
        yield {
            "partner": key[0],
            "hour": key[1],
            "sent": len(sent[key]),
            "acknowledged": outcomes["acknowledged"],
            "failed": outcomes["failed"] + outcomes["expired"],
            "in_doubt": outcomes["in_doubt"],
            "retries": sum(row["attempts"] - 1 for row in sent[key]),
            "duplicates": duplicates[key],
            "errors": errors[key],
            "latencies": sorted(
                row["latency_ms"] for row in sent[key] if row["latency_ms"] is not None
            ),
        }


def is_percentile(value: float | None, latencies: list[float], percent: int) -> bool:
    """Whether it is that percentile by any usual definition, within one per cent."""
    if not latencies:
        return value is None
    place = (len(latencies) - 1) * percent
    low, high = latencies[place // 100], latencies[-(-place // 100)]
    return value is not None and low - abs(low) / 100 <= value <= high + abs(high) / 100


# --- section 5: hops ---


def hops(journal: Journal) -> Iterator[Row]:
    for message_id, events in journal.of_kind("message", "fragment"):
        by_node: dict[str, list[Event]] = defaultdict(list)
        for event in named(of_side(events, "forwarding"), "received", "forwarded"):
            if event["signal_id"] is None:
                by_node[event["node"]].append(event)
        for node, steps in by_node.items():
            arrived, left = named(steps, "received"), named(steps, "forwarded")
            arrived_at = arrived[0]["at"] if arrived else None
            left_at = left[0]["at"] if left else None
            yield {
                "message_id": message_id,
                "node": node,
                "party": steps[0]["party"],
                "arrived_at": arrived_at,
                "left_at": left_at,
                "dwell_ms": milliseconds(arrived_at, left_at),
                "next": left[0]["peer"] if left else None,
            }


# --- section 5: conversations ---


def conversations(journal: Journal) -> Iterator[Row]:
    answered = {first(events, "ref_to_message_id") for events in journal.by_message.values()}
    members: dict[str, dict[str, list[Event]]] = defaultdict(dict)
    for message_id, events in journal.of_kind("message"):
        conversation = first(events, "conversation_id")
        if conversation is not None:
            members[conversation][message_id] = events
    for conversation, of_message in members.items():
        each = of_message.values()
        life = [e["at"] for events in each for e in events if e["event"] != "purged"]
        parties = {first(events, c) for events in each for c in ("from_party", "to_party")}
        requests = {i for i, ev in of_message.items() if first(ev, "ref_to_message_id") is None}
        yield {
            "conversation_id": conversation,
            "parties": sorted(parties - {None}),
            "messages": len(of_message),
            "started_at": min(life, default=None),
            "last_at": max(life, default=None),
            "requests": len(requests),
            "replies": len(of_message) - len(requests),
            "unanswered": len(requests - answered),
            "gaps": missing_numbers(each),
            "out_of_order": sum(len(named(events, "out_of_order")) for events in each),
        }


def missing_numbers(each: Iterable[list[Event]]) -> int:
    """Sequence numbers missing between the first and last seen, per sender."""
    seen: dict[str | None, set[int]] = defaultdict(set)
    for events in each:
        number = first(events, "sequence_number")
        if number is not None:
            seen[first(events, "from_party")].add(number)
    return sum(max(numbers) - min(numbers) + 1 - len(numbers) for numbers in seen.values())


# --- section 5: packing ---


def packing(journal: Journal) -> Iterator[Row]:
    groups: dict[tuple[str, datetime], list[Row]] = defaultdict(list)
    for row in messages(journal):
        at = row["first_sent_at"]
        if row["side"] == "sending" and row["pmode"] is not None and at is not None:
            groups[row["pmode"], hour(at)].append(row)
    for (pmode, at), rows in groups.items():
        whole = [row for row in rows if journal.kind(row["message_id"]) == "message"]
        cut = [row for row in rows if journal.kind(row["message_id"]) == "fragment"]
        attempts = [
            event
            for row in whole + cut
            for event in named(
                of_side(journal.by_message[row["message_id"]], "sending"), "sent", "resent"
            )
        ]
        if not attempts:
            continue
        yield {
            "pmode": pmode,
            "hour": at,
            "messages": len(whole),
            "envelopes": len({e["envelope"] for e in attempts} - {None}),
            "fragments": len(cut),
            "payload_bytes": sum(row["bytes"] or 0 for row in whole),
            "wire_bytes": sum(e["wire_bytes"] or 0 for e in attempts),
        }


# --- section 5: findings ---


def findings(journal: Journal) -> Iterator[Row]:
    """What of the journal is strange; clocks once for each pair of parties and day."""
    clocks = set()
    for message_id, events in journal.by_message.items():
        sending, receiving = of_side(events, "sending"), of_side(events, "receiving")
        sent, received = first_at(sending, "sent", "resent"), first_at(receiving, "received")
        if len({e["party"] for e in sending}) > 1:
            yield {"kind": "two_senders", "subject": message_id}
        if len({e["party"] for e in receiving}) > 1:
            yield {"kind": "two_receivers", "subject": message_id}
        if sent is not None and received is not None and sent - received > TOLERANCE:
            day = min(e["at"] for e in events if e["event"] != "purged").date()
            clocks.add((first(sending, "party"), first(receiving, "party"), day))
    for sender, receiver, _ in clocks:
        yield {"kind": "clock", "subject": f"{sender} {receiver}"}
    for name, node in journal.nodes.items():
        for epoch, low, high in missing_events(node):
            yield {"kind": "gap", "subject": f"{name} {epoch} {low}-{high}"}


def missing_events(node: Node) -> Iterator[tuple[int, int, int]]:
    """The stretches of `seq` that are not there, with their epoch."""
    seen: dict[int, list[int]] = defaultdict(lambda: [0])
    for event in node.events:
        seen[event["epoch"]].append(event["seq"])
    for epoch, numbers in seen.items():
        for before, after in pairwise(numbers):
            if after > before + 1:
                yield epoch, before + 1, after - 1
