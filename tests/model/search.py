"""Every state that a world can reach, breadth first, and what must hold in each of them.

Because the search is breadth first, the trace to what must not be is as short as any.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from postroad.reliability.awareness import Known
from postroad.reliability.delivery import AT_WORK, Stage
from tests.model.world import Agreement, State, World

_NOT_THERE: Final = frozenset((Stage.FAILED, Stage.EXPIRED))
_THERE: Final = frozenset((Stage.ACKNOWLEDGED, Stage.SETTLED))
_TAKEN: Final = frozenset((Known.TAKEN, Known.UNANSWERED))

Came = Mapping[State, tuple[State, str] | None]
Holds = Callable[[World, State, int], bool]


class Counterexample(Exception):
    """What must not be, and the shortest way to it."""

    def __init__(self, world: World, rule: str, trace: list[str]) -> None:
        steps = [f"{number:3}. {said}" for number, said in enumerate(trace, 1)]
        super().__init__("\n".join((f"Not so: {rule} ({told(world)})", *steps)))
        self.rule = rule
        self.trace = trace


class Found(Struct, frozen=True):
    """What was seen of a world in which everything holds."""

    states: int
    moves: int
    endings: frozenset[tuple[Stage, bool]]
    """In which stages messages came to rest, and whether they were delivered."""


def explore(world: World) -> Found:
    """Look at every state; `Counterexample` at the nearest that must not be."""
    start = world.start()
    came: dict[State, tuple[State, str] | None] = {start: None}
    ways = Ways({}, {})
    endings: set[tuple[Stage, bool]] = set()
    waiting = deque((start,))
    moves = 0
    while waiting:
        state = waiting.popleft()
        for rule in broken(world, state):
            raise Counterexample(world, rule, _trace(came, state))
        for move in world.moves(state):
            moves += 1
            if move.is_free:
                ways.note(state, move.state)
            if move.state not in came:
                came[move.state] = (state, move.said)
                waiting.append(move.state)
        if not ways.onward.get(state):
            if not is_at_rest(world, state):
                raise Counterexample(world, "something always goes on", _trace(came, state))
            endings.update(_endings(state))
    for state in ways.endless(came):
        raise Counterexample(world, "it comes to rest", _trace(came, state))
    return Found(len(came), moves, frozenset(endings))


class Ways(NamedTuple):
    """Where things go by themselves, without faults and decisions."""

    onward: dict[State, int]
    """To how many other states."""
    back: dict[State, list[State]]

    def note(self, before: State, after: State) -> None:
        if before != after:
            self.onward[before] = self.onward.get(before, 0) + 1
            self.back.setdefault(after, []).append(before)

    def endless(self, states: Iterable[State]) -> Iterator[State]:
        """States from which one can go on for ever, the nearest first."""
        left = dict(self.onward)
        ended = {state for state in states if not left.get(state)}
        waiting = list(ended)
        while waiting:
            for state in self.back.get(waiting.pop(), ()):
                left[state] -= 1
                if not left[state]:
                    ended.add(state)
                    waiting.append(state)
        return (state for state in states if state not in ended)


def broken(world: World, state: State) -> Iterator[str]:
    """The rules that do not hold."""
    for rule, holds in RULES.items():
        if not all(holds(world, state, number) for number in range(world.messages)):
            yield rule


def _once(_: World, state: State, number: int) -> bool:
    return state.delivered.count(number) <= 1


def _believed(_: World, state: State, number: int) -> bool:
    post, kept = state.posts[number], state.kept[number]
    durable = kept.known in _TAKEN or (kept.known is Known.HELD and kept.handing)
    return durable or not (post.believed or post.life.stage is Stage.ACKNOWLEDGED)


def _kept_word(_: World, state: State, number: int) -> bool:
    post = state.posts[number]
    return not post.believed or post.life.stage in _THERE


def _certain(world: World, state: State, number: int) -> bool:
    if state.posts[number].life.stage not in _NOT_THERE:
        return True
    copies = (item for item in state.network if item.message == number and not item.said)
    under_way = any(copies) and not world.is_bad
    has = state.kept[number].known not in (Known.NOTHING, Known.REJECTED)
    return not under_way and not has and number not in state.delivered


def _counted(_: World, state: State, number: int) -> bool:
    life = state.posts[number].life
    if life.stage in AT_WORK:
        return (life.stage is Stage.WAITING) == (life.unanswered > 0)
    if life.stage in _NOT_THERE:
        return not life.unanswered
    return life.stage is not Stage.IN_DOUBT or life.unanswered > 0


def _remembered(_: World, state: State, number: int) -> bool:
    post = state.posts[number]
    return post.life.stage not in AT_WORK or post.timer or post.claimed


def _bounded(world: World, state: State, number: int) -> bool:
    """Who takes over sends, and who was taken over may still have an outcome to write down."""
    taken_over = world.budget.takeovers - state.left.takeovers
    return state.posts[number].life.tries <= world.agreement.retries + 1 + taken_over


def _ordered(world: World, state: State, _: int) -> bool:
    return not world.agreement.in_order or list(state.delivered) == sorted(state.delivered)


RULES: Final[Mapping[str, Holds]] = {
    "a message is delivered at most once": _once,
    "what is acknowledged is durable at the receiver": _believed,
    "a receipt is not taken back": _kept_word,
    "what failed or expired is not there, and cannot come there any more": _certain,
    "waiting is what has unanswered copies, and what failed has none": _counted,
    "what is still to be sent has a timer, or somebody who sends it": _remembered,
    "there are no more attempts than were agreed on": _bounded,
    "order is kept": _ordered,
}


def is_at_rest(world: World, state: State) -> bool:
    """Nothing is under way, and nothing will happen by itself."""
    return (
        not state.network
        and all(_is_resting(world, state, number) for number in range(world.messages))
        and not any(one.calls or one.handing for one in state.kept)
        and not any(one.known is Known.UNANSWERED for one in state.kept)
    )


def _is_resting(world: World, state: State, number: int) -> bool:
    post = state.posts[number]
    if post.claimed or post.connections:
        return False
    return not post.timer or post.life.stage is Stage.SUSPENDED or not world.is_first(state, number)


def _trace(came: Came, state: State) -> list[str]:
    said = []
    while (step := came[state]) is not None:
        state = step[0]
        said.append(step[1])
    return said[::-1]


def _endings(state: State) -> Iterator[tuple[Stage, bool]]:
    for number, post in enumerate(state.posts):
        yield post.life.stage, number in state.delivered


def told(world: World) -> str:
    """A world in a line: what differs from the plainest."""
    plain = Agreement()
    agreed = [
        f"{name}={getattr(world.agreement, name)}"
        for name in Agreement.__struct_fields__
        if getattr(world.agreement, name) != getattr(plain, name)
    ]
    spent = [f"{name}={count}" for name, count in world.budget._asdict().items() if count]
    more = ["bad"] if world.is_bad else []
    messages = [f"messages={world.messages}"]
    return " ".join((*messages, *agreed, *more, *spent))
