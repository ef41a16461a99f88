"""The books of two nodes, and whether they balance: nothing lost, nothing twice, no wrong word."""

import asyncio
import gzip
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from postroad.store.records import Message, Recorded, Side, State, Wanted
from postroad.store.sqlite import open_sqlite
from postroad.wire.content import read_all
from tests.crash.letters import Letter
from tests.store.leftovers import assert_nothing_is_left_over

ATTEMPTS: Final = ("sent", "resent", "send_failed")
ARRIVED: Final = (State.ACKNOWLEDGED, State.SETTLED)
"""The sender says: the receiver has it."""
NOT_ARRIVED: Final = (State.FAILED, State.EXPIRED)
"""The sender says: the receiver has not got it."""
TOLD: Final = (State.FAILED, State.EXPIRED, State.IN_DOUBT, State.SETTLED)
"""The application gets a notice."""
DELIVERED: Final = (State.DELIVERED, State.CONSUMED)
_MOST: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be; about no message in particular where there is no id."""

    message_id: str | None
    what: str


@dataclass(frozen=True)
class Book:
    """What the store of a node that was stopped holds."""

    messages: dict[str, Message]
    journal: list[Recorded]
    payloads: dict[str, tuple[str, ...]]
    """Digests of what lies on the disk, as the application gets it."""
    work: dict[str, int]
    """What is still to be done, by kind."""
    notices: dict[str, list[State]] = field(default_factory=dict)
    """What the application is told of messages, in order."""

    def count(self, *events: str) -> Counter[str | None]:
        """How often each message has one of these events."""
        return Counter(one.event.message_id for one in self.journal if one.event.event in events)

    def by_message(self) -> dict[str, list[Recorded]]:
        found: dict[str, list[Recorded]] = defaultdict(list)
        for one in self.journal:
            if one.event.message_id is not None:
                found[one.event.message_id].append(one)
        return found


def read_book(data: Path, node: str, side: Side) -> Book:
    """Read the store in a folder; every content in it is read too."""
    return asyncio.run(_read(data, node, side))


async def _read(data: Path, node: str, side: Side) -> Book:
    store = await open_sqlite(data, node)
    try:
        found = await store.look(lambda reader: reader.messages(Wanted(side=side, limit=_MOST)))
        journal = await store.look(lambda reader: reader.journal(0, _MOST))
        figures = await store.look(lambda reader: reader.figures())
        told = await store.look(lambda reader: reader.notices(0, _MOST))
        payloads = {}
        for one in found:
            digests = []
            for part in one.parts:
                content = read_all(store.content(part.stored), part.stored.size)
                plain = gzip.decompress(content) if part.compressed else content
                digests.append(f"sha256:{hashlib.sha256(plain).hexdigest()}")
            payloads[one.message_id] = tuple(digests)
            if one.envelope is not None:
                read_all(store.content(one.envelope), one.envelope.size)
    finally:
        await store.close()
    notices: dict[str, list[State]] = defaultdict(list)
    for notice in told:
        notices[notice.message_id].append(notice.state)
    return Book({one.message_id: one for one in found}, journal, payloads, figures.work, notices)


def left_over(data: Path) -> Iterator[Finding]:
    """Files that no row names, or that are not as long as it says."""
    try:
        assert_nothing_is_left_over(data)
    except AssertionError as error:
        said = " ".join(str(error).split()) or "the store is not clean"
        yield Finding(None, f"{data.parent.name}: {said[:500]}")


def compare(
    letters: Sequence[Letter], sent: Book, received: Book, doubled: Mapping[str, int]
) -> list[Finding]:
    """All that is wrong between the two; some messages were `doubled` on their way, so often."""
    return [
        *_strangers(letters, sent, received),
        *_fates(letters, sent, received),
        *_contents(letters, sent, received),
        *_attempts(letters, sent),
        *_notices(letters, sent),
        *_receipts(sent, received),
        *_copies(sent, received, doubled),
        *_order(letters, received),
        *holes("sender", sent.journal),
        *holes("receiver", received.journal),
        *_unfinished("sender", sent),
        *_unfinished("receiver", received),
    ]


def _strangers(letters: Sequence[Letter], sent: Book, received: Book) -> Iterator[Finding]:
    ours = {letter.message_id for letter in letters}
    for name in ours - sent.messages.keys():
        yield Finding(name, "it was accepted, and the sender does not know it")
    for name in sent.messages.keys() - ours:
        yield Finding(name, "the sender has it, and nobody submitted it")
    for name in received.messages.keys() - sent.messages.keys():
        yield Finding(name, "the receiver has it, and the sender does not")


def _fates(letters: Sequence[Letter], sent: Book, received: Book) -> Iterator[Finding]:
    """What the sender says of a message, against what the receiver did with it."""
    delivered, taken = received.count("delivered"), received.count("received")
    rejected = received.count("rejected")
    told = {name: sent.count(name) for name in ("submitted", "receipt_received", *_ENDS)}
    for letter in letters:
        name = letter.message_id
        message = sent.messages.get(name)
        if message is None:
            continue
        for what in _fate(letter, message.state, delivered[name]):
            yield Finding(name, what)
        there = received.messages.get(name)
        if delivered[name] != (there is not None and there.state in DELIVERED):
            state = there.state.value if there else "not known"
            yield Finding(name, f"delivered {delivered[name]} times, and at the receiver {state}")
        if taken[name] != delivered[name] or rejected[name]:
            yield Finding(name, f"received {taken[name]} times, rejected {rejected[name]} times")
        if told["submitted"][name] != 1:
            yield Finding(name, f"submitted {told['submitted'][name]} times")
        if message.state in ARRIVED and not told["receipt_received"][name]:
            yield Finding(name, f"{message.state.value} without a receipt")
        ends = [end for end in _ENDS if told[end][name]]
        if message.state is State.ACKNOWLEDGED and ends:
            yield Finding(name, f"acknowledged, and {', '.join(ends)} too")


_ENDS: Final = ("delivery_failed", "in_doubt", "expired")


def _fate(letter: Letter, state: State, delivered: int) -> Iterator[str]:
    if delivered > 1:
        yield f"delivered {delivered} times"
    if state in ARRIVED:
        if not delivered:
            yield f"{state.value}, and never delivered"
    elif state in NOT_ARRIVED:
        if delivered:
            yield f"{state.value}, and delivered all the same"
    elif state is not State.IN_DOUBT:
        yield f"not at rest: {state.value}"
    if not letter.terms.gives_up and state is not State.ACKNOWLEDGED:
        yield f"{state.value}, though it is sent until a receipt comes"


def _contents(letters: Sequence[Letter], sent: Book, received: Book) -> Iterator[Finding]:
    for letter in letters:
        for who, book in (("sender", sent), ("receiver", received)):
            message = book.messages.get(letter.message_id)
            if message is None:
                continue
            told, there = message.payload_digests, book.payloads[letter.message_id]
            if told != (letter.digest,) or there != (letter.digest,):
                yield Finding(letter.message_id, f"the {who} has another content than was sent")


def _attempts(letters: Iterable[Letter], sent: Book) -> Iterator[Finding]:
    """Attempts are numbered without gaps, each is told once, and the first is the only `sent`."""
    events = sent.by_message()
    for letter in letters:
        told = [one.event for one in events[letter.message_id] if one.event.event in ATTEMPTS]
        numbers = [one.attempt for one in told]
        if numbers != list(range(1, len(told) + 1)):
            yield Finding(letter.message_id, f"its attempts are numbered {numbers}")
        if any((one.event == "sent") != (one.attempt == 1) for one in told if _left(one.event)):
            yield Finding(
                letter.message_id, "a first attempt is called resent, or a later one sent"
            )
        message = sent.messages.get(letter.message_id)
        if message is not None and message.attempts != len(told):
            said = f"{message.attempts} attempts are counted, {len(told)} are told"
            yield Finding(letter.message_id, said)


def _notices(letters: Iterable[Letter], sent: Book) -> Iterator[Finding]:
    """What the application was told last is how it is; of what went well it need not be told."""
    for letter in letters:
        message = sent.messages.get(letter.message_id)
        if message is None:
            continue
        told = sent.notices.get(letter.message_id, [])
        if told[-1:] != [message.state] if message.state in TOLD else told:
            said = ", ".join(told) or "nothing"
            yield Finding(letter.message_id, f"{message.state}, and the application is told {said}")


def _receipts(sent: Book, received: Book) -> Iterator[Finding]:
    """A copy is answered with the first receipt, so that there is never a second one."""
    first: dict[str | None, str | None] = {}
    for one in (*received.journal, *sent.journal):
        if one.event.event in ("receipt_sent", "receipt_received"):
            name, receipt = one.event.message_id, one.event.signal_id
            if first.setdefault(name, receipt) != receipt:
                yield Finding(name, f"it has two receipts: {first[name]} and {receipt}")


def _left(event: str) -> bool:
    return event != "send_failed"


def _copies(sent: Book, received: Book, doubled: Mapping[str, int]) -> Iterator[Finding]:
    """A receiver cannot get more copies than left, nor a copy before the first."""
    left = sent.count("sent", "resent") + Counter(doubled)
    for name, came in received.count("received", "duplicate").items():
        if came > left[name]:
            yield Finding(name, f"it came {came} times, and left only {left[name]} times")
    known: set[str | None] = set()
    for one in received.journal:
        if one.event.event == "received":
            known.add(one.event.message_id)
        elif one.event.event == "duplicate" and one.event.message_id not in known:
            yield Finding(one.event.message_id, "a duplicate of what was never received")


def _order(letters: Iterable[Letter], received: Book) -> Iterator[Finding]:
    """What is sent in order is delivered in order."""
    place = {
        one.event.message_id: number
        for number, one in enumerate(received.journal)
        if one.event.event == "delivered"
    }
    last: dict[str, tuple[int, Letter]] = {}
    for letter in letters:
        at = place.get(letter.message_id)
        if letter.terms.in_order is None or at is None:
            continue
        before = last.get(letter.conversation)
        if before is not None and before[0] > at:
            said = f"delivered before {before[1].message_id}, which was submitted earlier"
            yield Finding(letter.message_id, said)
        last[letter.conversation] = max(
            (at, letter), before or (at, letter), key=lambda one: one[0]
        )


def holes(who: str, journal: Sequence[Recorded]) -> Iterator[Finding]:
    """Every number of the journal's one epoch is there, from the first on."""
    for epoch, events in groupby(journal, key=lambda one: one.epoch):
        numbers = [one.seq for one in events]
        if numbers != list(range(1, len(numbers) + 1)):
            yield Finding(None, f"the {who}'s journal has holes in epoch {epoch}")
        if epoch != 1:
            yield Finding(None, f"the {who} began epoch {epoch}, though no store was restored")


def _unfinished(who: str, book: Book) -> Iterator[Finding]:
    left = {kind: count for kind, count in book.work.items() if count}
    if left:
        yield Finding(None, f"the {who} has still something to do: {left}")


def history(name: str, *books: Book) -> list[str]:
    """All that both journals say about a message, in the order of their clocks."""
    events = [one for book in books for one in book.journal if one.event.message_id == name]
    lines = []
    for one in sorted(events, key=lambda one: one.event.at):
        event = one.event
        said = [f"attempt {event.attempt}" if event.attempt else "", event.detail or ""]
        told = ": ".join(filter(None, said))
        lines.append(f"{event.at:%H:%M:%S.%f} {one.node:<8}{event.event:<18}{told}".rstrip())
    return lines
