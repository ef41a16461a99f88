"""Two real nodes, a bad network between them, and kill -9 of both: then the books are compared.

Clients submit messages to the buyer, each under an id of its own and again after a lost answer. The
way to the seller and the way back lead through proxies that spoil a part of all exchanges. Between
two deaths of a node a share of the messages is submitted. When all were accepted, and the network
has failed in every way, it heals, and everything must come to rest: the storm is given up when
nothing moves any more.
"""

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import yaml

from postroad.api.client import Client
from postroad.api.client_values import ApiError
from postroad.store.records import Side, State
from tests.crash.books import Book, Finding, compare, left_over, read_book
from tests.crash.letters import TERMS, Letter, write_letters
from tests.crash.patience import STANDSTILL, Patience
from tests.crash.proxy import Fault, Proxy, in_a_thread
from tests.e2e.nodes import Pair, Served, make_pair, until
from tests.e2e.test_signals import children
from tests.ports import free_port

CLIENTS: Final = 4
RATES: Final = {
    Fault.REFUSE: 0.005,
    Fault.CUT_REQUEST: 0.03,
    Fault.HALF_OPEN: 0.01,
    Fault.DROP_REPLY: 0.05,
    Fault.CUT_REPLY: 0.03,
    Fault.DUPLICATE: 0.05,
    Fault.DELAY: 0.03,
    Fault.SLOW: 0.02,
}
EACH_WITHIN: Final = 32
"""The first exchanges, so many, meet every fault once, so that the dice cannot leave one out."""
FEW: Final = 100
"""Fewer messages may all have arrived, in bundles, before there were as many exchanges."""
LEASE: Final = 4
FROZEN: Final = LEASE + 2
"""Seconds that a process stands still."""
SETTINGS: Final = {
    "http": {"connect_timeout": "PT2S", "answer_timeout": "PT2S"},
    "send": {"lease": f"PT{LEASE}S", "breaker": {"pause": "PT0.5S", "longest_pause": "PT2S"}},
    "log": {"format": "text", "level": "warning"},
}
BOTH_AT_ONCE: Final = 0.1
"""How often the other node dies in the same moment."""
DIES_AGAIN: Final = 0.15
"""How often a node dies again while it starts, within so many seconds."""
STARTING: Final = 2.5
LONGEST_PAUSE: Final = 0.8
"""Seconds that traffic goes on at most between a moment that was drawn and the death."""
_UNREACHABLE: Final = (0, 503)
_ON_THE_WAY: Final = (State.SUBMITTED, State.READY, State.WAITING, State.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Plan:
    """A storm; the seed gives its messages, its faults, and who dies when."""

    messages: int
    kills: int
    seed: int
    workers: int = 1

    def dice(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed} {purpose}")

    def sure_faults(self) -> list[Fault | None]:
        """Each fault once among exchanges that go well; none where they are too few for that."""
        if self.messages < FEW:
            return []
        faults: list[Fault | None] = [*RATES, *([None] * (EACH_WITHIN - len(RATES)))]
        self.dice("sure").shuffle(faults)
        return faults


@dataclass
class Progress:
    """How far a storm is."""

    accepted: int = 0
    at_rest: int = 0
    kills: int = 0
    doing: str = "starting"


@dataclass(frozen=True)
class Outcome:
    """What came of a storm."""

    plan: Plan
    sent: Book
    received: Book
    findings: list[Finding]
    repeated: int
    """Submissions that were repeated after a lost answer."""
    kills: Counter[str]
    frozen: int
    faults: Counter[Fault]
    exchanges: int
    seconds: float

    @property
    def states(self) -> Counter[State]:
        return Counter(one.state for one in self.sent.messages.values())


def run_storm(
    plan: Plan, folder: Path, show: Callable[[Progress], None] = lambda progress: None
) -> Outcome:
    """Let the storm rage in a folder of its own, and look at what it left."""
    began = time.monotonic()
    buyer, seller, there, back = (free_port() for _ in range(4))
    # The ports that are given last count.
    pair = make_pair(folder, "--port", str(buyer), "--partner-port", str(seller))
    proxies = (
        Proxy(seller, plan.dice("there"), RATES, first=plan.sure_faults(), port=there),
        Proxy(buyer, plan.dice("back"), RATES, port=back),
    )
    for node in (pair.buyer, pair.seller):
        _agree(node, *(f"{proxy.url}/msh" for proxy in proxies))
    try:
        with in_a_thread(*proxies):
            storm = Storm(plan, pair, proxies, show)
            findings = storm.rage()
    finally:
        pair.end()
    storm.tell("comparing the books")
    sent = read_book(pair.buyer.data, "buyer", Side.SENDING)
    received = read_book(pair.seller.data, "seller", Side.RECEIVING)
    met = sum((proxy.met for proxy in proxies), Counter[Fault]())
    findings += compare(storm.letters, sent, received, proxies[0].doubled)
    for node in (pair.buyer, pair.seller):
        findings += left_over(node.data)
    return Outcome(
        plan,
        sent,
        received,
        findings,
        storm.repeated,
        storm.kills,
        storm.frozen,
        met,
        sum(proxy.exchanges for proxy in proxies),
        time.monotonic() - began,
    )


def _agree(node: Served, to: str, back: str) -> None:
    """Give a node the P-Modes of the storm, and little patience."""
    for terms in TERMS:
        pmode = terms.pmode(sends=node.name == "buyer", to=to, back=back)
        (node.folder / "pmodes" / f"{terms.pmode_id}.yaml").write_text(yaml.safe_dump(pmode))
    config = yaml.safe_load(node.config.read_text())
    node.config.write_text(yaml.safe_dump(config | SETTINGS))


def submit(client: Client, letter: Letter, given_up: threading.Event) -> bool | None:
    """Submit a message as often as it takes, and return whether an earlier attempt had arrived.

    None if the storm was given up meanwhile. Whoever watches the progress decides that.
    """
    while not given_up.is_set():
        try:
            sent = client.send(
                pmode=letter.terms.pmode_id,
                payloads=[letter.content],
                message_id=letter.message_id,
                conversation_id=letter.conversation,
            )
        except ApiError as error:
            if error.status not in _UNREACHABLE:
                raise
            given_up.wait(0.1)
        else:
            return sent.repeated
    return None


@dataclass
class Storm:
    """A storm while it rages."""

    plan: Plan
    pair: Pair
    proxies: Iterable[Proxy]
    show: Callable[[Progress], None]
    repeated: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    frozen: int = 0

    def __post_init__(self) -> None:
        self.letters = write_letters(self.plan.messages, CLIENTS, self.plan.dice("letters"))
        self._dice = self.plan.dice("kills")
        self._progress = Progress()
        self._threads: list[Future[None]] = []
        self._changed = threading.Condition()
        self._submittable = 0
        """Messages below this number may be submitted now."""
        self._over = threading.Event()
        self._options = ("--workers", str(self.plan.workers)) if self.plan.workers > 1 else ()

    def tell(self, doing: str) -> None:
        self._progress.doing = doing
        self.show(self._progress)

    def rage(self) -> list[Finding]:
        """All of it, until both nodes have stopped; what was wrong on the way."""
        for node in self._nodes:
            node.begin(*self._options)
        for node in self._nodes:
            node.ready(STANDSTILL)
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            for client in range(CLIENTS):
                mine = self.letters[client::CLIENTS]
                self._threads.append(pool.submit(self._submit_all, mine))
            self._threads.append(pool.submit(self._consume))
            try:
                self._kill_all()
                self._wait(partial(self._has_accepted, self.plan.messages), "submitting")
                self._wait(lambda: not any(self._owed()), "failing", self._owed)
                for proxy in self.proxies:
                    proxy.heal()
                findings = self._come_to_rest()
            finally:
                self._let(self.plan.messages, over=True)
        for node in self._nodes:
            if (code := node.end()) != 0:
                findings.append(Finding(None, f"the {node.name} ended with {code}"))
        return findings

    @property
    def _nodes(self) -> tuple[Served, Served]:
        return self.pair.buyer, self.pair.seller

    # Clients

    def _submit_all(self, letters: list[Letter]) -> None:
        """One client: a message after the other, each until it is accepted."""
        with _impatient_client(self.pair.buyer) as client:
            for letter in letters:
                if not self._may_submit(letter):
                    return
                repeated = submit(client, letter, self._over)
                if repeated is None:
                    return
                with self._changed:
                    self.repeated += repeated
                    self._progress.accepted += 1
                    self._changed.notify_all()

    def _may_submit(self, letter: Letter) -> bool:
        """Wait for its turn; False when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: letter.number < self._submittable)
        return not self._over.is_set()

    def _owed(self) -> list[int]:
        """How many faults each proxy has still to bring."""
        return [len(one.owed) for one in self.proxies]

    def _has_accepted(self, count: int) -> bool:
        return self._progress.accepted >= count

    def _consume(self) -> None:
        """The seller's application: it takes what is acknowledged only then."""
        wanted = [terms.pmode_id for terms in TERMS if terms.after_delivery]
        with _impatient_client(self.pair.seller) as client:
            while not self._over.wait(0.2):
                try:
                    for pmode in wanted:
                        for one in client.inbox(pmode=pmode):
                            client.ack(one.message_id)
                except ApiError as error:
                    if error.status not in _UNREACHABLE:
                        raise

    def _let(self, number: int, *, over: bool = False) -> None:
        """Let messages below a number be submitted."""
        if over:
            self._over.set()
        with self._changed:
            self._submittable = number
            self._changed.notify_all()

    def _wait(
        self, condition: Callable[[], bool], doing: str, sign: Callable[[], object] = lambda: None
    ) -> None:
        """Until it is so; a thread or a node in trouble ends the wait, and so does a standstill."""
        self.tell(doing)
        patience = Patience()
        while not condition():
            for one in self._threads:
                if one.done():
                    one.result()
            for node in self._nodes:
                assert node.lives, f"{doing}: the {node.name} is gone: {node.log[-2000:]}"
            patience.look((self._progress.accepted, sign()), doing)
            with self._changed:
                self._changed.wait(0.05)
            self.show(self._progress)

    # Deaths

    def _kill_all(self) -> None:
        """Stretch after stretch of traffic, and in each a death."""
        stretches = self.plan.kills + 1
        bounds = [number * self.plan.messages // stretches for number in range(stretches)]
        for begin, end in pairwise(bounds):
            self._let(end)
            moment = self._dice.randrange(begin, end)
            self._wait(partial(self._has_accepted, moment + 1), "traffic")
            if self._dice.random() < 0.5:
                threading.Event().wait(self._dice.uniform(0, LONGEST_PAUSE))
            victims = [self._dice.choice(self._nodes)]
            if self._dice.random() < BOTH_AT_ONCE:
                victims = list(self._nodes)
            self._kill(victims)
            self._progress.kills += 1
        self._let(self.plan.messages)

    def _kill(self, victims: list[Served]) -> None:
        self.tell("killing " + " and ".join(one.name for one in victims))
        if self.plan.workers > 1 and self._dice.random() < 0.6:
            self._strike_workers(victims)
            return
        self._kill_nodes(victims)
        if self._dice.random() < DIES_AGAIN:
            threading.Event().wait(self._dice.uniform(0, STARTING))
            self._kill_nodes(victims)
        for victim in victims:
            victim.ready(STANDSTILL)

    def _kill_nodes(self, victims: list[Served]) -> None:
        """They are dead, and start again."""
        orphans = [pid for one in victims for pid in children(one)] if self._options else []
        for victim in victims:
            victim.tell(signal.SIGKILL)
        for victim in victims:
            assert victim.ended() == -signal.SIGKILL, victim.log[-2000:]
        self.kills.update(one.name for one in victims)
        until(lambda: not any(map(_lives, orphans)), "the end of orphans", STANDSTILL)
        for victim in victims:
            victim.begin(*self._options)

    def _strike_workers(self, victims: list[Served]) -> None:
        """One of several processes dies, or stands still until its lease is over."""
        before = {one.name: children(one) for one in victims}
        chosen = [self._dice.choice(before[one.name]) for one in victims]
        if self._dice.random() < 0.4:
            for pid in chosen:
                os.kill(pid, signal.SIGSTOP)
            threading.Event().wait(FROZEN)
            for pid in chosen:
                os.kill(pid, signal.SIGCONT)
            self.frozen += len(chosen)
            return
        for pid in chosen:
            os.kill(pid, signal.SIGKILL)
        self.kills.update(one.name for one in victims)
        for one in victims:
            replaced = partial(_is_replaced, one, before[one.name])
            until(replaced, f"a new process of the {one.name}", STANDSTILL)

    # Rest

    def _come_to_rest(self) -> list[Finding]:
        clients = [node.client() for node in self._nodes]
        fewest = sys.maxsize

        def is_at_rest() -> bool:
            nonlocal fewest
            # What a copy brings about is there when it has been answered: so this comes first.
            copies = any(proxy.copies for proxy in self.proxies)
            buyer, seller = (client.node() for client in clients)
            on_the_way = sum(buyer.messages.get(f"sending.{state}", 0) for state in _ON_THE_WAY)
            self._progress.at_rest = self.plan.messages - on_the_way
            work = sum((*buyer.work.values(), *seller.work.values()))
            # Work comes and goes with each attempt: only less of it than ever is progress.
            fewest = min(fewest, on_the_way + work)
            return not (copies or on_the_way or work)

        try:
            self._wait(is_at_rest, "coming to rest", lambda: fewest)
        except AssertionError as error:
            work = [client.node().work for client in clients]
            return [Finding(None, f"{error}; still to do: buyer {work[0]}, seller {work[1]}")]
        finally:
            for client in clients:
                client.close()
        return []


def _impatient_client(node: Served) -> Client:
    """A client that leaves it to us to try again."""
    token = (node.folder / "keys" / "api.token").read_text().strip()
    return Client(node.serving.api_url or "", token=token, retries=0)


def _is_replaced(node: Served, before: list[int]) -> bool:
    return len(set(children(node)) - set(before)) == 1


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
