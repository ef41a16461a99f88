"""A small world: a sender, a receiver, and a network that does what it wants, a few times.

Both ends decide with the transition tables and functions of `reliability`; what is done with a
decision follows `outcome`, `keeping` and `handing` in `steps`. Time is not counted: a timer may
fire at any moment, and TimeToLive may be over at any moment. What goes wrong is bounded by a
budget, so that the world has an end.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import count
from typing import Any, Final, NamedTuple

from msgspec import Struct

from postroad.agreement.waiting import Policy
from postroad.reliability import awareness, delivery
from postroad.reliability.awareness import ANSWERS, Answer, Arrival, Known, Reception
from postroad.reliability.delivery import AT_WORK, Decision, Input, Life, Stage

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_WAIT: Final = timedelta(minutes=1)
_TIME_TO_LIVE: Final = timedelta(days=1)
_COPY: Final = ""
_NOBODY: Final = 0
"""The connection of what nobody waits for."""
_RECEIPT: Final = 0
"""The id of a receipt: there is only one, which is sent again and again."""
_HOLDS_LANE: Final = frozenset((Stage.IN_DOUBT, Stage.SUSPENDED))


class Receipts(StrEnum):
    RESPONSE = "response"
    CALLBACK = "callback"
    NONE = "none"


class Agreement(Struct, frozen=True):
    """What the P-Mode says."""

    receipts: Receipts = Receipts.RESPONSE
    retries: int = 1
    strict_ack: bool = False
    ack_after_delivery: bool = False
    time_to_live: bool = False
    suspend: bool = False
    fail_fast: bool = False
    in_order: bool = False


class Budget(NamedTuple):
    """What may still go wrong, and what people may still do."""

    losses: int = 0
    """Something in the network is lost, or so slow that nobody waits for it any more."""
    duplicates: int = 0
    """The network makes two copies of one."""
    unreachable: int = 0
    """The sender gets no connection."""
    crashes: int = 0
    """Of the sender or the receiver, before or after a commit."""
    takeovers: int = 0
    """A sender is slow to write down what came of an attempt, and another takes its work."""
    rejections: int = 0
    """The receiver rejects what it would take at another time."""
    delays: int = 0
    """The receiver says: not now."""
    resends: int = 0
    settlements: int = 0
    resumptions: int = 0


class Post(NamedTuple):
    """What the sender has of a message; durable, but for the connections."""

    life: Life
    timer: bool = True
    """There is work that falls due."""
    claimed: bool = False
    """Somebody does it."""
    connections: tuple[int, ...] = ()
    """On which an answer is waited for."""
    signals: frozenset[int] = frozenset()
    """The ids of those that called, were written down and may call again."""
    believed: bool = False
    """A valid receipt came."""


class Kept(NamedTuple):
    """What the receiver has of a message; durable."""

    known: Known = Known.NOTHING
    calls: tuple[tuple[int, Answer], ...] = ()
    """Signals that are to be called back: their ids and what they say."""
    handing: bool = False
    """Its receipt is being handed over; then it is delivered."""


class Item(NamedTuple):
    """A copy of a message in the network, or the answer to one."""

    message: int
    connection: int
    said: str = _COPY


class State(NamedTuple):
    posts: tuple[Post, ...]
    kept: tuple[Kept, ...]
    left: Budget
    network: tuple[Item, ...] = ()
    delivered: tuple[int, ...] = ()
    """What the application got, in this order."""
    late: bool = False
    """TimeToLive is over."""


class Move(NamedTuple):
    said: str
    state: State
    is_free: bool = True
    """It happens by itself; else it is a fault, or what somebody decides."""


class World(Struct, frozen=True):
    """What can happen."""

    agreement: Agreement = Agreement()
    budget: Budget = Budget()
    messages: int = 1
    is_bad: bool = False
    """The receiver rejects every copy."""
    answers_first: bool = False
    """A mistake, to see it found: the receiver answers before it commits."""
    forgets_signals: bool = False
    """A mistake, to see it found: a signal that calls twice counts twice."""

    @property
    def policy(self) -> Policy:
        agreed = self.agreement
        return Policy(
            _WAIT,
            _WAIT,
            agreed.retries,
            time_to_live=_TIME_TO_LIVE if agreed.time_to_live else None,
            fail_fast=agreed.fail_fast,
            suspend=agreed.suspend,
        )

    def start(self) -> State:
        post = Post(Life(Stage.READY, START))
        return State((post,) * self.messages, (Kept(),) * self.messages, self.budget)

    def moves(self, state: State) -> Iterator[Move]:
        """All that can happen next."""
        for number in range(self.messages):
            yield from self._sending(state, number)
            yield from self._calling(state, number)
            yield from self._delivering(state, number)
            yield from self._deciding(state, number)
        for item in dict.fromkeys(state.network):
            yield from self._travelling(state, item)
        if spent := _spend(state, "crashes"):
            yield Move("the sender crashes and starts again", self._restarted(spent), False)
        if self.agreement.time_to_live and not state.late:
            yield Move("TimeToLive is over", state._replace(late=True), False)

    # The sender

    def _sending(self, state: State, number: int) -> Iterator[Move]:
        """Work that falls due, and attempts of which nothing more is heard."""
        post = state.posts[number]
        if post.timer and not post.claimed and self.is_first(state, number):
            yield from self._woken(state, number)
        if post.claimed and (spent := _spend(state, "takeovers")):
            taken = self._left_behind(post)
            yield Move(f"another sender takes over {number}", _posted(spent, number, taken), False)
        for connection in post.connections:
            if any(one[:2] == (number, connection) for one in state.network):
                said, after, free = "waits no longer", _spend(state, "losses"), False
            else:
                said, after, free = "gets no answer", state, True
            if after is not None:
                done = self._recorded(_closed(after, number, connection), number, Input.UNANSWERED)
                yield Move(f"the sender {said} for {number}", done, free)

    def is_first(self, state: State, number: int) -> bool:
        """Whether nothing is before it in its lane."""
        return not self.agreement.in_order or not any(
            post.timer or post.claimed or post.life.stage in _HOLDS_LANE
            for post in state.posts[:number]
        )

    def _woken(self, state: State, number: int) -> Iterator[Move]:
        post = state.posts[number]
        decision = delivery.woken(post.life, self.policy, self._now(state))
        if decision is not None:
            given_up = post._replace(life=decision.life, timer=decision.due is not None)
            yield Move(f"the sender looks at {number}", _posted(state, number, given_up))
            return
        connection = next(one for one in (1, 2, 3) if one not in post.connections)
        sent = post._replace(claimed=True, connections=(*post.connections, connection))
        left = _posted(state, number, sent)
        yield Move(f"the sender sends {number}", _with(left, Item(number, connection)))
        if spent := _spend(state, "unreachable"):
            told = self._recorded(spent, number, Input.NOT_SENT)
            yield Move(f"the sender gets no connection for {number}", told, False)

    def _recorded(self, state: State, number: int, result: Input) -> State:
        """What came of an attempt is written down (`attempts.attempt`)."""
        post = state.posts[number]
        if post.life.stage in AT_WORK:
            decision: Decision | None = delivery.attempted(
                post.life,
                result,
                self.policy,
                began=START,
                now=self._now(state),
                hope=self._may_be_answered(post.life, result),
            )
        else:
            decision = delivery.heard(post.life, result)
        after = post._replace(claimed=False, timer=False)
        if result is Input.ACKNOWLEDGED:
            after = after._replace(believed=True)
        if decision is not None:
            after = after._replace(life=decision.life, timer=decision.due is not None)
        return _posted(state, number, after)

    def _may_be_answered(self, life: Life, result: Input) -> bool:
        out = result is Input.UNANSWERED or life.unanswered > 0
        return out and self.agreement.receipts is Receipts.CALLBACK

    def _left_behind(self, post: Post) -> Post:
        """Nobody knows what came of an attempt (`attempts.left_behind`)."""
        if post.life.stage not in AT_WORK:
            return post._replace(claimed=False, timer=False)
        life = delivery.interrupted(post.life, START)
        return post._replace(life=life, claimed=False, timer=True)

    def _restarted(self, state: State) -> State:
        for number, post in enumerate(state.posts):
            for connection in post.connections:
                state = _closed(state, number, connection)
            if post.claimed:
                after = self._left_behind(state.posts[number])
                state = _posted(state, number, after)
        return state

    def _calling(self, state: State, number: int) -> Iterator[Move]:
        """The receiver calls with a signal, until it hears that it was taken."""
        kept = state.kept[number]
        for call in kept.calls:
            signal, answer = call
            post = self._heard(state.posts[number], signal, answer)
            said = f"{answer.value}, about {number}, is called back"
            if spent := _spend(state, "losses"):
                again = _posted(spent, number, post)
                yield Move(f"{said}, and the receiver doesn't hear that it was taken", again, False)
            over = _posted(state, number, post._replace(signals=post.signals - {signal}))
            done = kept._replace(calls=tuple(one for one in kept.calls if one != call))
            yield Move(said, _keep(over, number, done))

    def _heard(self, post: Post, signal: int, said: Answer) -> Post:
        """What a signal says is written down (`outcome.answered`)."""
        known = signal in post.signals and not self.forgets_signals
        under_way = post.claimed or post.life.stage is Stage.READY
        decision = None
        if said is Answer.RECEIPT or (said is Answer.ERROR and not known):
            decision = delivery.heard(post.life, ANSWERS[said], under_way=under_way)
        after = post._replace(
            signals=post.signals | {signal}, believed=post.believed or said is Answer.RECEIPT
        )
        if decision is None:
            return after
        timer = post.timer if under_way else decision.due is not None
        return after._replace(life=decision.life, timer=timer)

    def _now(self, state: State) -> datetime:
        return START + _TIME_TO_LIVE if state.late else START

    # The network

    def _travelling(self, state: State, item: Item) -> Iterator[Move]:
        """A copy or an answer arrives, or does not."""
        number, connection, said = item
        gone = _without(state, item)
        name = f"the answer to {number}" if said else f"a copy of {number}"
        if spent := _spend(gone, "losses"):
            yield Move(f"{name} is lost", spent, False)
        if said:
            result = ANSWERS[Answer(said)]
            if said == Answer.NOTHING and self.agreement.receipts is Receipts.NONE:
                result = Input.LEFT
            told = self._recorded(_closed(gone, number, connection), number, result)
            yield Move(f"the sender hears about {number}: {said}", told)
            return
        if spent := _spend(state, "duplicates"):
            doubled = _with(spent, Item(number, _NOBODY))
            yield Move(f"the network doubles {name}", doubled, False)
        yield from self._arriving(gone, number, connection)

    # The receiver

    def _arriving(self, state: State, number: int, connection: int) -> Iterator[Move]:
        name = f"a copy of {number}"
        crashed = _spend(state, "crashes")
        if crashed:
            before = crashed
            if self.answers_first:
                before = _answered(crashed, number, connection, Answer.RECEIPT)
            yield Move(f"{name} arrives, and the receiver crashes before its commit", before, False)
        if spent := _spend(state, "delays"):
            yield from self._told(spent, number, connection, Answer.NOT_NOW, "not now", False)
        if self.is_bad:
            yield from self._told(state, number, connection, Answer.ERROR, "rejected", True)
            return
        if spent := _spend(state, "rejections"):
            yield from self._told(spent, number, connection, Answer.ERROR, "rejected", False)
        said = f"{name} is taken or known"
        answer = self._answer(state, number)
        yield Move(said, _answered(self._taken(state, number), number, connection, answer))
        if crashed:
            lost = self._taken(crashed, number)
            yield Move(f"{said}, and the receiver crashes after its commit", lost, False)
        if self.agreement.strict_ack and connection == _NOBODY:
            unheard = self._taken(state, number, handed=False)
            yield Move(f"{said}, and its receipt cannot be handed over", unheard, False)

    def _told(
        self, state: State, number: int, connection: int, answer: Answer, why: str, free: bool
    ) -> Iterator[Move]:
        """A copy is not taken: the sender is told, in the response or by a call."""
        kept = state.kept[number]
        if answer is Answer.ERROR and kept.known is Known.NOTHING:
            kept = kept._replace(known=Known.REJECTED)
        said = f"a copy of {number} is turned away: {why}"
        if self.agreement.receipts is not Receipts.CALLBACK:
            told = _answered(_keep(state, number, kept), number, connection, answer)
            yield Move(said, told, free)
            return
        used = [signal for signal, _ in kept.calls]
        signal = next(one for one in count(1) if one not in used)
        kept = kept._replace(calls=tuple(sorted((*kept.calls, (signal, answer)))))
        told = _answered(_keep(state, number, kept), number, connection, Answer.NOTHING)
        yield Move(said, told, free)

    def _answer(self, state: State, number: int) -> Answer:
        """What the response says to a copy that was not turned away."""
        done = awareness.received(state.kept[number].known, Arrival.SAME)
        if self.agreement.receipts is not Receipts.RESPONSE or done is Reception.FILTER:
            return Answer.NOTHING
        return Answer.RECEIPT

    def _taken(self, state: State, number: int, *, handed: bool = True) -> State:
        """The step that takes a message, or knows it already (`keeping.keep`)."""
        agreed, kept = self.agreement, state.kept[number]
        done = awareness.received(kept.known, Arrival.SAME)
        if done in (Reception.TAKE, Reception.TAKE_INSTEAD):
            if agreed.strict_ack:
                held = kept._replace(known=Known.HELD, handing=kept.handing or handed)
                return _keep(state, number, held)
            known = Known.UNANSWERED if agreed.ack_after_delivery else Known.TAKEN
            state = state._replace(delivered=(*state.delivered, number))
            kept = kept._replace(known=known)
        if kept.known is Known.HELD:
            kept = kept._replace(handing=kept.handing or handed)
        elif agreed.receipts is Receipts.CALLBACK and kept.known is Known.TAKEN:
            kept = _called(kept)
        return _keep(state, number, kept)

    def _delivering(self, state: State, number: int) -> Iterator[Move]:
        """What was held is delivered, and what was delivered is acknowledged by the application."""
        kept = state.kept[number]
        if kept.handing:
            given = kept._replace(known=Known.TAKEN, handing=False)
            done = _keep(state, number, given)
            if kept.known is Known.HELD:
                done = done._replace(delivered=(*state.delivered, number))
            yield Move(f"the receipt of {number} was handed over", done)
        if kept.known is Known.UNANSWERED:
            consumed = _called(kept._replace(known=Known.TAKEN))
            yield Move(f"the application acknowledges {number}", _keep(state, number, consumed))

    # People

    def _deciding(self, state: State, number: int) -> Iterator[Move]:
        """An operator resends or settles, an administrator resumes."""
        post, now = state.posts[number], self._now(state)
        if not post.claimed:
            for what, given in (("resends", Input.RESENT), ("resumptions", Input.RESUMED)):
                begun = delivery.begun_anew(post.life, given, now)
                spent = _spend(state, what)
                if spent is not None and begun is not None:
                    after = post._replace(life=begun.life, timer=True)
                    yield Move(f"{given.value}: {number}", _posted(spent, number, after), False)
        answer, spent = delivery.settled(post.life), _spend(state, "settlements")
        if answer is not None and spent is not None:
            after = post._replace(life=answer.life, timer=answer.due is not None)
            yield Move(f"an operator settles {number}", _posted(spent, number, after), False)


def _spend(state: State, what: str) -> State | None:
    """The state with one less of something; None when there is none left."""
    left: int = getattr(state.left, what)
    changed: dict[str, Any] = {what: left - 1}
    return state._replace(left=state.left._replace(**changed)) if left else None


def _posted(state: State, number: int, post: Post) -> State:
    return state._replace(posts=(*state.posts[:number], post, *state.posts[number + 1 :]))


def _keep(state: State, number: int, kept: Kept) -> State:
    return state._replace(kept=(*state.kept[:number], kept, *state.kept[number + 1 :]))


def _called(kept: Kept) -> Kept:
    """The receipt is to be called back; once is enough."""
    receipt = (_RECEIPT, Answer.RECEIPT)
    return kept if receipt in kept.calls else kept._replace(calls=(receipt, *kept.calls))


def _with(state: State, item: Item) -> State:
    return state._replace(network=tuple(sorted((*state.network, item))))


def _without(state: State, item: Item) -> State:
    place = state.network.index(item)
    return state._replace(network=state.network[:place] + state.network[place + 1 :])


def _answered(state: State, number: int, connection: int, answer: Answer) -> State:
    """The response leaves, where somebody waits for it."""
    if connection == _NOBODY:
        return state
    return _with(state, Item(number, connection, answer.value))


def _closed(state: State, number: int, connection: int) -> State:
    """Nobody waits on a connection any more; a copy on it still travels."""
    post = state.posts[number]
    left = tuple(one for one in post.connections if one != connection)
    network = []
    for one in state.network:
        if one[:2] != (number, connection):
            network.append(one)
        elif one.said == _COPY:
            network.append(Item(number, _NOBODY))
    after = _posted(state, number, post._replace(connections=left))
    return after._replace(network=tuple(sorted(network)))
