"""Two ends of ebXML reliable messaging over a channel that loses, duplicates and reorders.

One clock, one seed, one history. Every state goes through JSON at each step, as if each step were
the last before a restart. When the faults are over an operator gives up what holes are left.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Final, TypeVar

import msgspec
import pytest

from postroad.reliability import order
from postroad.reliability.delivery import AT_WORK, Decision, Input, Life, Stage
from postroad.reliability.ebxml import (
    EVENTS,
    SERVICE,
    Case,
    Known,
    Message,
    Receiver,
    Response,
    Signal,
    Step,
    receive,
)
from postroad.reliability.ebxml_sending import (
    Course,
    Word,
    attempted,
    begun_anew,
    hear,
    number,
    said,
    woken,
)
from postroad.reliability.ebxml_terms import (
    Terms,
    agree,
)
from postroad.reliability.order import Limits, Numbering, Sequence, Stream, Unacknowledged

T = TypeVar("T")

START: Final = datetime(2001, 3, 9, 12, tzinfo=UTC)
FAULTS_END: Final = START + timedelta(seconds=120)
LIMITS: Final = Limits(held=3, patience=timedelta(seconds=60))
CPA: Final = {
    "deliverySemantics": "OnceAndOnlyOnce",
    "messageOrderSemantics": "Guaranteed",
    "timeout": "6",
    "retries": "3",
    "retryInterval": "8",
    "protocols": "http smtp",
}
BEST_EFFORT: Final = agree({}, {}, timestamp=START)
HAS_IT: Final = (Stage.ACKNOWLEDGED, Stage.SETTLED)
HAS_IT_NOT: Final = (Stage.FAILED, Stage.EXPIRED)


def restarted(state: T) -> T:
    return msgspec.json.decode(msgspec.json.encode(state), type=type(state))


class Sent:
    """A message at its sender."""

    def __init__(self, message: Message, terms: Terms) -> None:
        self.message = message
        self.terms = terms
        self.course = Course(Life(Stage.READY, message.timestamp))
        self.timer = 0
        self.withdrawn = False

    @property
    def stage(self) -> Stage:
        return self.course.life.stage

    @property
    def left(self) -> bool:
        return self.course.life.first_sent_at is not None

    @property
    def is_at_work(self) -> bool:
        return self.stage in AT_WORK


class Story:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.now = START
        self.agenda: list[tuple[datetime, int, Callable[[], None]]] = []
        self.serial = count()
        self.noted: Counter[str] = Counter()
        self.sent: dict[str, Sent] = {}
        self.numberings: dict[str, Numbering] = defaultdict(Numbering)
        self.bodies: dict[str, Message] = {}
        self.known: dict[str, Known] = {}
        self.responses: dict[str, list[Response]] = defaultdict(list)
        self.sequences: dict[Stream, Sequence] = {}
        self.runs: Counter[str] = Counter()
        self.order: list[str] = []
        """In which the messages got their numbers."""
        self.inbox: list[str] = []
        self.receiver = Receiver("seller", limits=LIMITS)
        self.loss = self.dice.uniform(0, 0.5)

    # The world

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self.at(self.now + timedelta(seconds=seconds), act)

    def at(self, when: datetime, act: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (max(when, self.now), next(self.serial), act))

    def happens(self, chance: float) -> bool:
        return self.now < FAULTS_END and self.dice.random() < chance

    def carry(self, arrive: Callable[[], None]) -> None:
        """A copy, two, or none; each takes its own time."""
        if self.happens(self.loss):
            self.noted["lost"] += 1
            return
        for _ in range(2 if self.happens(0.2) else 1):
            self.later(self.dice.uniform(0.1, 20 if self.happens(0.3) else 2), arrive)

    def run(self) -> None:
        for index in range(24):
            self.later(self.dice.uniform(0, 80), partial(self.submit, index))
        steps = 0
        while self.agenda:
            self.now, _, act = heapq.heappop(self.agenda)
            act()
            self.check()
            steps += 1
            assert steps < 20_000, "it never comes to rest"

    # The sender

    def submit(self, index: int) -> None:
        conversation = f"c{index % 2}"
        numbering = self.numberings[conversation]
        others = [
            sent
            for sent in self.sent.values()
            if sent.message.conversation_id == conversation and sent.stage not in HAS_IT
        ]
        if numbering.position > 3 and not any(sent.left or sent.is_at_work for sent in others):
            numbering = order.reset(numbering, 0)
            self.noted["reset"] += 1
            self.runs[conversation] += 1
        expires = {"timeToLive": "PT12S"} if self.dice.random() < 0.1 else {}
        terms = agree(CPA, expires, timestamp=self.now)
        try:
            given, numbering = number(terms, numbering, sum(not sent.withdrawn for sent in others))
        except Unacknowledged:
            self.wait(index)
            return
        self.numberings[conversation] = restarted(numbering)
        message = Message(
            message_id=f"{conversation}-{self.runs[conversation]}-{index}",
            from_party="buyer",
            to_party="seller",
            conversation_id=conversation,
            service="urn:orders",
            action="NewOrder",
            timestamp=self.now,
            digest=f"digest of {index}",
            sequence_number=given,
        )
        self.order.append(message.message_id)
        self.sent[message.message_id] = Sent(message, terms)
        self.attempt(self.sent[message.message_id])

    def wait(self, index: int) -> None:
        """The message with the Reset is not acknowledged; an operator sends it again."""
        self.noted["waited"] += 1
        if self.now > FAULTS_END + timedelta(minutes=5):
            self.noted["blocked"] += 1
            return
        self.later(5, partial(self.submit, index))
        for sent in self.sent.values():
            end = sent.terms.time_to_live
            if sent.stage is Stage.IN_DOUBT and self.now > FAULTS_END and end is None:
                sent.course, decision = begun_anew(sent.course, Input.RESENT, self.now)
                assert decision is not None
                self.noted["resent"] += 1
                self.follow(sent, decision)

    def wake(self, sent: Sent, timer: int) -> None:
        if timer != sent.timer:
            return
        course, decision = woken(restarted(sent.course), sent.terms, self.now)
        sent.course = course
        if decision is None:
            self.attempt(sent)
        else:
            self.follow(sent, decision)

    def attempt(self, sent: Sent) -> None:
        left = not self.happens(0.2)
        if left:
            self.carry(partial(self.arrive, sent.message, sent.terms))
        result = Input.UNANSWERED if left else Input.NOT_SENT
        sent.course, decision = attempted(
            restarted(sent.course), result, sent.terms, began=self.now, now=self.now
        )
        self.follow(sent, decision)

    def follow(self, sent: Sent, decision: Decision) -> None:
        sent.timer += 1
        self.noted[decision.closing or sent.stage] += 1
        if sent.stage in HAS_IT_NOT and sent.message.sequence_number is not None:
            conversation = sent.message.conversation_id
            before = self.numberings[conversation]
            self.numberings[conversation] = order.withdraw(before, sent.message.sequence_number)
            sent.withdrawn = self.numberings[conversation] != before
            self.noted["withdrawn"] += sent.withdrawn
        if decision.due is not None:
            self.at(decision.due, partial(self.wake, sent, sent.timer))

    def answered(self, answer: Message) -> None:
        found = receive(answer, BEST_EFFORT, Receiver("buyer"), self.now)
        assert found.tells is not None
        sent = self.sent[found.tells]
        word = said(sent.message, sent.terms, answer)
        assert word is not Word.FOREIGN
        sent.course, decision = hear(restarted(sent.course), word)
        if decision is not None:
            self.follow(sent, decision)

    # The receiver

    def arrive(self, message: Message, terms: Terms) -> None:
        found = receive(
            message,
            terms,
            self.receiver,
            self.now,
            known=self.known.get(message.message_id),
            responses=self.responses[message.message_id],
            sequence=self.sequences.get(message.stream),
        )
        self.noted.update(EVENTS[found.case])
        self.noted[found.case] += 1
        if Step.STORE in found.steps:
            self.known[message.message_id] = Known(message.digest, self.now)
            assert found.sequence is not None
            self.keep(message.stream, found.sequence)
        self.inbox += found.passed
        if found.acknowledgment is not None:
            response = self.written(found.acknowledgment)
            self.responses[message.message_id].append(Response(response.message_id, self.now))
            self.carry(partial(self.answered, response))
        if found.report is not None:
            report = self.written(found.report)
            self.carry(partial(self.answered, report))
        if found.resend is not None:
            again = self.bodies[found.resend]
            self.carry(partial(self.answered, again))

    def written(self, signal: Signal) -> Message:
        """The message of a signal."""
        message = Message(
            message_id=f"signal-{len(self.bodies)}",
            from_party=signal.from_party,
            to_party=signal.to_party,
            conversation_id=signal.conversation_id,
            service=signal.service or SERVICE,
            action=signal.action or "",
            timestamp=self.now,
            ref_to_message_id=signal.ref_to_message_id,
            acknowledgment=signal.acknowledgment,
            error=signal.error,
        )
        self.bodies[message.message_id] = message
        return message

    def keep(self, stream: Stream, sequence: Sequence) -> None:
        self.sequences[stream] = restarted(sequence)
        due = order.report_due(sequence, LIMITS)
        if due is not None:
            self.at(due, partial(self.mind_the_gap, stream))

    def mind_the_gap(self, stream: Stream) -> None:
        """An operator gives a hole up as soon as it is reported."""
        found = order.report(self.sequences[stream], LIMITS, self.now)
        if found is None:
            return
        skipped = order.skip(found[1])
        assert skipped is not None
        self.noted["skipped"] += 1
        self.inbox += skipped.passed
        self.keep(stream, skipped.sequence)

    # What must hold

    def check(self) -> None:
        assert len(self.inbox) == len(set(self.inbox)), "delivered twice"
        assert set(self.inbox) <= self.known.keys(), "delivered and not stored"
        assert all(len(sequence.held) <= LIMITS.held for sequence in self.sequences.values())
        for conversation in ("c0", "c1"):
            got = [message_id for message_id in self.inbox if message_id.startswith(conversation)]
            assert got == sorted(got, key=self.order.index), "out of order"
        for message_id, sent in self.sent.items():
            if sent.stage in HAS_IT:
                assert message_id in self.known, "acknowledged and not stored"
            if sent.stage in HAS_IT_NOT:
                assert message_id not in self.known, "failed for certain, and yet it is there"


SEEDS: Final = 150


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    found = []
    for seed in range(SEEDS):
        story = Story(seed)
        try:
            story.run()
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
        found.append(story)
    return found


@pytest.mark.req("OV004-1-04", "OV004-1-10", "RM000-1.3.2-05", "MS098-10.3.1.5-06")
def test_nothing_is_delivered_twice(stories: list[Story]) -> None:
    for story in stories:
        assert len(story.inbox) == len(set(story.inbox))


@pytest.mark.req("MS098-8.4.8-01")
def test_the_order_is_kept(stories: list[Story]) -> None:
    """Story.check sees it after every step."""
    for story in stories:
        assert story.inbox
        story.check()


@pytest.mark.req("OV004-1-01", "OV004-1-05", "RM000-1.3.1-02")
def test_what_is_acknowledged_is_delivered(stories: list[Story]) -> None:
    for story in stories:
        has_it = {key for key, sent in story.sent.items() if sent.stage in HAS_IT}
        assert has_it <= set(story.inbox)


@pytest.mark.req("RM000-1-01", "OV004-1-12")
def test_the_sender_is_told_the_truth_or_is_in_doubt(stories: list[Story]) -> None:
    for story in stories:
        for message_id, sent in story.sent.items():
            assert sent.stage in (*HAS_IT, *HAS_IT_NOT, Stage.IN_DOUBT)
            if sent.stage in HAS_IT_NOT:
                assert message_id not in story.inbox


def test_everything_that_is_stored_is_delivered_in_the_end(stories: list[Story]) -> None:
    for story in stories:
        assert set(story.inbox) == story.known.keys()


def test_all_that_can_happen_happened(stories: list[Story]) -> None:
    noted: Counter[str] = Counter()
    for story in stories:
        noted.update(story.noted)
    wanted = {
        *(
            "lost",
            "duplicate",
            "held",
            "rejected",
            "reset",
            "waited",
            "skipped",
            "withdrawn",
            "resent",
        ),
        *("acknowledged", "in_doubt", "expired", "settled"),
        *(Case.NEW, Case.HELD, Case.ANSWERED, Case.EXPIRED, Case.NO_ROOM, Case.DISORDER),
    }
    assert {word for word in wanted if not noted[word]} == set()


def test_one_seed_is_one_history() -> None:
    first, second = Story(7), Story(7)
    first.run()
    second.run()
    assert (first.inbox, first.noted, first.now) == (second.inbox, second.noted, second.now)
