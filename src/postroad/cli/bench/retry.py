"""The retry benchmark: what being able to send again costs those messages that arrive at once.

`good_case`: the same messages with retries agreed on and without, by turns between the same two
nodes. `backlog`: due work among a million waiting messages, against a thousand. `served`: what a
partner gets per second who comes back and finds messages waiting, against messages as they come.
"""

import asyncio
import hashlib
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import yaml

from postroad.api.running import run_in_loop
from postroad.cli.bench.floor import PAYLOAD
from postroad.cli.bench.processes import (
    answer_of,
    begin,
    in_process,
    make_parties,
    peak_rss,
    receiving,
    tell,
)
from postroad.cli.bench.push import work_folder
from postroad.cli.bench.wire import Measure
from postroad.node.node import Node
from postroad.node.service import Submission, SubmittedPayload
from postroad.node.settings.config import load_config
from postroad.node.steps.partners import halt
from postroad.store.interface import Transaction
from postroad.store.records import Work
from postroad.store.sqlite import open_sqlite
from postroad.wire.content import BytesContent

GOALS: Final = {"good_case": 0.95, "backlog": 0.85, "served": 1.0}
_MODULE: Final = "postroad.cli.bench.retry"
_PARTNER: Final = "urn:example:seller"
_ONCE, _AGAIN = "once", "again"
_IN_FLIGHT: Final = 256
_TURN: Final = 1.0
_WAITING: Final = 2_000
_DUE: Final = 2_000
_AT_ONCE: Final = 100
_RETRY: Final = {"max_retries": 10, "period": "PT1M", "backoff": 2, "time_to_live": "P1D"}


def retry_measures(*, seconds: float, waiting: int, folder: Path | None) -> dict[str, Measure]:
    """All three, each with its floor."""
    with work_folder(folder) as work:
        told = _exchanged(work, seconds)
    with work_folder(folder) as work:
        claims = asyncio.run(_claims(work, waiting))
    return {
        "good_case": _measure("good_case", told[_AGAIN], told[_ONCE], told["peak_rss_mib"]),
        "backlog": _measure("backlog", claims[1], claims[0], None),
        "served": _measure("served", told["served"], told[_AGAIN], told["peak_rss_mib"]),
    }


def _measure(name: str, product: float, floor: float, memory: float | None) -> Measure:
    return Measure(product, floor, "messages/s", GOALS[name], memory)


def _exchanged(work: Path, seconds: float) -> dict[str, float]:
    make_parties(work)
    _agree(work)
    with receiving(work) as receiver:
        answer_of(receiver)
        sender = in_process(_MODULE, "sender", str(work / "buyer"), str(seconds))
        try:
            told = answer_of(sender)
            begin(receiver)
            answer_of(receiver)
        finally:
            sender.terminate()
            sender.wait()
    return told


def _agree(work: Path) -> None:
    """Two P-Modes that differ in nothing but retries."""
    for party in ("buyer", "seller"):
        folder = work / party / "pmodes"
        plain: dict[str, Any] = yaml.safe_load(
            (folder / "buyer-to-seller-plain.yaml").read_text(encoding="utf-8")
        )
        for name in (_ONCE, _AGAIN):
            leg = plain["legs"][0]
            leg.pop("reception_awareness", None)
            if name == _AGAIN:
                leg["reception_awareness"] = {"retry": {"parameters": _RETRY}}
            leg["business_info"]["action"] = name
            text = yaml.safe_dump({**plain, "id": name})
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


async def _run_sender(folder: Path, seconds: float) -> None:
    config = load_config(folder / "postroad.yaml")
    store = await open_sqlite(config.data, config.node)
    node = Node(config, store)
    await node.start()
    rates = {_ONCE: 0.0, _AGAIN: 0.0}
    turns = max(2, round(seconds / _TURN))
    for number in range(-2, 2 * turns):
        name = (_ONCE, _AGAIN)[(number + number // 2) % 2]
        rate = await _send_for(node, name, _TURN)
        if number >= 0:
            rates[name] += rate / turns
    served = await _serve(node)
    tell({**rates, "served": served, "peak_rss_mib": peak_rss()})
    await node.stop()


def _submission(pmode: str) -> Submission:
    payload = os.urandom(PAYLOAD)
    part = SubmittedPayload(BytesContent(payload), hashlib.sha256(payload).digest(), compress=False)
    return Submission(pmode, (part,))


async def _send_for(node: Node, pmode: str, seconds: float) -> float:
    """Messages per second that came to rest."""
    submission = _submission(pmode)
    waiting = node.context.settled
    began = perf_counter()
    done = 0

    async def send() -> None:
        nonlocal done
        while perf_counter() - began < seconds:
            submitted = await node.submit(submission)
            event = waiting.enter(submitted.message.message_id)
            await event.wait()
            waiting.leave(submitted.message.message_id, event)
            done += 1

    await asyncio.gather(*(send() for _ in range(_IN_FLIGHT)))
    return done / (perf_counter() - began)


async def _serve(node: Node) -> float:
    """A partner is suspended while messages are submitted; how quickly they go once it is back."""
    context = node.context
    await context.store.run(lambda tx: halt(context, tx, _PARTNER, context.clock(), "away"))
    await context.look_at_partners()
    submission = _submission(_AGAIN)
    names = [(await node.submit(submission)).message.message_id for _ in range(_WAITING)]
    events = [context.settled.enter(name) for name in names]
    began = perf_counter()
    await node.resume(_PARTNER)
    await asyncio.gather(*(event.wait() for event in events))
    return len(names) / (perf_counter() - began)


async def _claims(work: Path, waiting: int) -> tuple[float, float]:
    """Due messages claimed per second, with a thousand waiting and with many."""
    few, many = [
        await _filled(work / name, count) for name, count in (("few", 1000), ("many", waiting))
    ]
    rates = [0.0, 0.0]
    rounds = _DUE // _AT_ONCE
    for number in range(rounds):
        for index, store in enumerate((few, many)):
            rates[index] += await _claim(store, number) / rounds
    await few.close()
    await many.close()
    return rates[0], rates[1]


async def _filled(folder: Path, waiting: int) -> Any:
    """A store in which so many messages wait for a later time."""
    store = await open_sqlite(folder, "bench")
    later = datetime.now(UTC) + timedelta(days=1)

    def some(first: int, count: int) -> Any:
        def step(tx: Transaction) -> None:
            for number in range(first, first + count):
                due = later + timedelta(milliseconds=number)
                tx.add_work(Work("send", f"{number}@bench", due, partner=_PARTNER))

        return step

    for first in range(0, waiting, 5000):
        await store.run(some(first, min(5000, waiting - first)))
    return store


async def _claim(store: Any, number: int) -> float:
    """Make some due, then see how quickly they are found, claimed and put off again."""
    now = datetime.now(UTC)

    def make_due(tx: Transaction) -> None:
        for one in range(_AT_ONCE):
            tx.add_work(Work("send", f"due-{number}-{one}@bench", now, partner=_PARTNER))

    def take(tx: Transaction) -> int:
        found = tx.claim_work(("send",), now, "bench/1", now + timedelta(minutes=1), _AT_ONCE)
        for work in found:
            tx.postpone_work(work.id, now + timedelta(days=2))
        return len(found)

    await store.run(make_due)
    began = perf_counter()
    count = await store.run(take)
    assert count == _AT_ONCE
    return float(count / (perf_counter() - began))


if __name__ == "__main__":
    run_in_loop(_run_sender(Path(sys.argv[2]), float(sys.argv[3])))
