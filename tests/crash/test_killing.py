"""kill -9 of real nodes under traffic: nothing accepted is lost, nothing is delivered twice."""

import hashlib
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pytest

from postroad.api.client_values import ApiError
from postroad.store.records import Side, State
from tests.crash.books import holes, left_over, read_book
from tests.crash.letters import LARGE
from tests.crash.patience import STANDSTILL, Patience
from tests.e2e.nodes import PATIENCE, Pair, Served, make_pair, started, until

MESSAGES: Final = 60
SEED: Final = 20260601
"""Of who is killed, and when."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = make_pair(tmp_path_factory.mktemp("pair"))
    for one in (made.buyer, made.seller):
        # What is waited for is not what is shown.
        for file in (one.folder / "pmodes").glob("*.yaml"):
            file.write_text(file.read_text().replace("period: PT30S", "period: PT1S"))
        quick = "send: {breaker: {pause: PT0.5S, longest_pause: PT2S}}"
        one.config.write_text(f"{one.config.read_text()}\n{quick}\n")
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def pair(folders: Pair) -> Pair:
    """Both running; a test ends with both stopped."""
    return started(folders)


def content(name: str) -> bytes:
    """The payload of a message, which its name tells; every tenth is large."""
    number = int(name.partition("@")[0].rpartition("-")[2])
    size = LARGE if number % 10 == 9 else 500 + number
    return random.Random(number).randbytes(size)


class Traffic:
    """Submits messages whatever happens to the node, and notes which were accepted."""

    def __init__(self, pair: Pair, names: list[str]) -> None:
        self._pair = pair
        self._names = names
        self.accepted: list[str] = []
        self.up = threading.Event()
        self.up.set()

    def run(self) -> None:
        with self._pair.buyer.client() as self._client, ThreadPoolExecutor(4) as pool:
            for _ in pool.map(self._submit, self._names):
                pass

    def _submit(self, name: str) -> None:
        """As often as it takes; the same id and content is the same message."""
        pmode = f"buyer-to-seller-{'signed' if len(content(name)) == LARGE else 'order'}"
        patience = Patience()
        while True:
            patience.look(len(self.accepted), f"submitting {name}")
            assert self.up.wait(STANDSTILL)
            try:
                self._client.send(pmode=pmode, payloads=[content(name)], message_id=name)
            except ApiError as error:
                if error.status not in (0, 503):
                    raise
            else:
                self.accepted.append(name)
                return

    def has(self, wanted: int) -> bool:
        """Whether so many are accepted."""
        return len(self.accepted) >= wanted

    def kill(self, victim: Served) -> None:
        """Kill a node and bring it back."""
        if victim is self._pair.buyer:
            self.up.clear()
        assert victim.end(signal.SIGKILL) == -signal.SIGKILL
        victim.begin()
        victim.ready(STANDSTILL)
        self.up.set()


def settle(pair: Pair, names: list[str]) -> None:
    """Until all are acknowledged; what failed or is in doubt is sent again by the operator."""
    with pair.buyer.client() as client:
        left = names
        for _ in range(10):
            states = {name: client.wait(name, PATIENCE).state for name in left}
            left = [name for name, state in states.items() if state != "acknowledged"]
            for name in left:
                assert states[name] in ("failed", "in_doubt"), states[name]
                client.resend(name)
            if not left:
                return
    raise AssertionError(f"never acknowledged: {left}")


def check(pair: Pair, names: list[str]) -> None:
    """All that must hold between the two once everything is settled."""
    for node in (pair.buyer, pair.seller):
        assert node.end() == 0, node.log
    sent = read_book(pair.buyer.data, "buyer", Side.SENDING)
    received = read_book(pair.seller.data, "seller", Side.RECEIVING)
    assert sent.messages.keys() == received.messages.keys() >= set(names)
    for name in names:
        assert sent.messages[name].state is State.ACKNOWLEDGED, name
        assert received.messages[name].state is State.DELIVERED, name
        digest = f"sha256:{hashlib.sha256(content(name)).hexdigest()}"
        for book in (sent, received):
            assert book.messages[name].payload_digests == book.payloads[name] == (digest,), name
    once = Counter(received.messages.keys())
    assert received.count("delivered") == received.count("received") == once
    assert sent.count("submitted") == once
    assert sent.count("receipt_received").keys() == once.keys()
    wrong = [*holes("sender", sent.journal), *holes("receiver", received.journal)]
    for node in (pair.buyer, pair.seller):
        wrong += left_over(node.data)
    assert wrong == []


def test_nodes_that_are_killed_under_traffic_lose_and_double_nothing(pair: Pair) -> None:
    dice = random.Random(SEED)
    victims = [pair.buyer, pair.seller, dice.choice((pair.buyer, pair.seller))]
    dice.shuffle(victims)
    names = [f"killed-{number}@buyer" for number in range(MESSAGES)]
    moments = sorted(dice.sample(range(2, MESSAGES - 5), len(victims)))
    traffic = Traffic(pair, names)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(traffic.run)
        for moment, victim in zip(moments, victims, strict=True):
            until(partial(traffic.has, moment), f"{moment} messages are accepted")
            traffic.kill(victim)
        running.result(PATIENCE)
    assert sorted(traffic.accepted) == sorted(names)
    settle(pair, names)
    check(pair, names)


def test_what_was_accepted_while_nobody_answered_is_sent_after_a_kill(pair: Pair) -> None:
    """The receiver is frozen in the midst of it, and the sender dies with everything under way."""
    names = [f"frozen-{number}@buyer" for number in range(12)]
    traffic = Traffic(pair, names)
    pair.seller.tell(signal.SIGSTOP)
    traffic.run()
    assert pair.buyer.end(signal.SIGKILL) == -signal.SIGKILL
    pair.seller.tell(signal.SIGCONT)
    pair.buyer.start()
    with pair.buyer.client() as client:
        for name in names:
            found = client.wait(name, PATIENCE)
            assert found.state == "acknowledged", "no operator is needed for this"
    check(pair, names)
