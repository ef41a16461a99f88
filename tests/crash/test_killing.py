"""kill -9 of real nodes under traffic: nothing accepted is lost, nothing is delivered twice."""

import asyncio
import hashlib
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from typing import Final

import pytest

from postroad.api.client_values import ApiError
from postroad.store.records import Message, Recorded, Side, State, Wanted
from postroad.store.sqlite import open_sqlite
from postroad.wire.content import read_all
from tests.e2e.nodes import PATIENCE, Pair, Served, make_pair, started, until
from tests.store.test_sqlite_processes import assert_nothing_is_left_over

MESSAGES: Final = 60
SEED: Final = 20260601
"""Of who is killed, and when."""
LARGE: Final = 1_500_000
"""Bytes of every tenth payload: such a message is packaged after it was accepted."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = make_pair(tmp_path_factory.mktemp("pair"))
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def pair(folders: Pair) -> Pair:
    """Both running; a test ends with both stopped."""
    return started(folders)


def content(name: str) -> bytes:
    """The payload of a message, which its name tells."""
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
        for _ in range(50):
            assert self.up.wait(PATIENCE)
            try:
                self._client.send(pmode=pmode, payloads=[content(name)], message_id=name)
            except ApiError as error:
                if error.status not in (0, 503):
                    raise
            else:
                self.accepted.append(name)
                return
        raise AssertionError(f"{name} was never accepted")

    def has(self, wanted: int) -> bool:
        """Whether so many are accepted."""
        return len(self.accepted) >= wanted

    def kill(self, victim: Served) -> None:
        """Kill a node and bring it back."""
        if victim is self._pair.buyer:
            self.up.clear()
        assert victim.end(signal.SIGKILL) == -signal.SIGKILL
        victim.start()
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


class Kept:
    """What the store of a node that was stopped holds."""

    def __init__(self, node: Served) -> None:
        self.messages: dict[str, Message] = {}
        self.journal: list[Recorded] = []
        self.contents: dict[str, list[bytes]] = {}
        asyncio.run(self._read(node))
        assert_nothing_is_left_over(node.data)

    async def _read(self, node: Served) -> None:
        store = await open_sqlite(node.data, node.name)
        found = await store.look(lambda reader: reader.messages(Wanted(limit=100_000)))
        self.messages = {one.message_id: one for one in found}
        self.journal = await store.look(lambda reader: reader.journal(0, 1_000_000))
        for one in found:
            assert one.envelope is not None
            assert read_all(store.content(one.envelope), one.envelope.size)
            stored = [store.content(part.stored) for part in one.parts]
            self.contents[one.message_id] = [read_all(each, each.size) for each in stored]
        await store.close()

    def count(self, event: str) -> Counter[str | None]:
        return Counter(one.event.message_id for one in self.journal if one.event.event == event)


def assert_no_holes(journal: list[Recorded]) -> None:
    """Every number of every epoch, from the first on."""
    epochs = groupby(journal, key=lambda one: one.epoch)
    for epoch, events in epochs:
        numbers = [one.seq for one in events]
        assert numbers == list(range(1, len(numbers) + 1)), f"epoch {epoch}"


def check(pair: Pair, names: list[str]) -> None:
    """All that must hold between the two once everything is settled."""
    for node in (pair.buyer, pair.seller):
        assert node.end() == 0, node.log
    sent, received = Kept(pair.buyer), Kept(pair.seller)
    assert sent.messages.keys() == received.messages.keys() >= set(names)
    for name in names:
        assert sent.messages[name].state is State.ACKNOWLEDGED, name
        assert sent.messages[name].side is Side.SENDING
        assert received.messages[name].state is State.DELIVERED, name
        digest = f"sha256:{hashlib.sha256(content(name)).hexdigest()}"
        for kept in (sent, received):
            assert kept.messages[name].payload_digests == (digest,), name
    once = Counter(received.messages.keys())
    assert received.count("delivered") == received.count("received") == once
    assert sent.count("submitted") == once
    assert sent.count("receipt_received").keys() == once.keys()
    assert_no_holes(sent.journal)
    assert_no_holes(received.journal)


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
