"""The push benchmark: two nodes over loopback HTTP against the work that nobody can avoid.

The floor signs, verifies, signs the receipt, verifies that, and commits both sides, on as many
cores and without any protocol. The product is a sending and a receiving node, a process each,
durable on both sides. Both run in the same folder, one after the other: floor, product, floor.
"""

import asyncio
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from postroad.api.endpoint import msh_app
from postroad.api.running import run_in_loop
from postroad.cli.bench.floor import PAYLOAD
from postroad.cli.bench.line import long_line
from postroad.cli.bench.processes import (
    answer_of,
    begin,
    in_process,
    make_parties,
    peak_rss,
    receiving,
    tell,
    told_by_both,
    until_begun,
)
from postroad.cli.bench.wire import Measure
from postroad.node.node import Node
from postroad.node.service import Submission, SubmittedPayload
from postroad.node.settings.config import load_config
from postroad.store.interface import Transaction
from postroad.store.records import Message, Side, State
from postroad.store.sqlite import open_sqlite
from postroad.transport.http_client import HttpClient
from postroad.transport.http_server import HttpServer
from postroad.wire.content import CHUNK, BytesContent
from postroad.wire.limits import MIB

GOALS: Final = {"signed": 0.45, "unsigned": 0.30}
_MODULE: Final = "postroad.cli.bench.push"
_FLOOR: Final = "postroad.cli.bench.floor"
_IN_FLIGHT: Final = 512
_WARM_UP: Final = 1.0
_PMODES: Final = {
    "signed": "buyer-to-seller-signed",
    "unsigned": "buyer-to-seller-plain",
    "waiting": "buyer-to-seller-plain",
    "pipelined": "buyer-to-seller-plain",
}
_OVER_ONE: Final = ("waiting", "pipelined")
"""These have one connection for all messages, over a long line."""
_DELAY: Final = 0.02
"""Seconds that it takes each way."""
_LARGE: Final = "buyer-to-seller-order"


@dataclass(frozen=True, slots=True)
class Run:
    """What one exchange between two nodes came to."""

    per_second: float
    peak_rss_mib: float


def push_measures(*, seconds: float, folder: Path | None = None) -> dict[str, Measure]:
    """Signed and unsigned messages, each beside its floor."""
    measures = {}
    for kind, goal in GOALS.items():
        with work_folder(folder) as work:
            first = _floor(work, kind, seconds / 2)
            run = _product(work, kind, seconds)
            second = _floor(work, kind, seconds / 2)
        measures[kind] = Measure(
            run.per_second, (first + second) / 2, "messages/s", goal, run.peak_rss_mib
        )
    return measures


def large_measure(*, mib: int, folder: Path | None = None) -> Measure:
    """One large payload, signed, encrypted and compressed; what memory the larger node took."""
    with work_folder(folder) as work:
        floor = _copy_rate(work, mib)
        run = _product(work, "large", 0, mib=mib)
    return Measure(run.per_second * mib, floor, "MiB/s", None, run.peak_rss_mib)


def stored_measure(*, stored: int, seconds: float, folder: Path | None = None) -> Measure:
    """What a message costs with so many in the store, against a store of a thousand."""
    with work_folder(folder) as work:
        few = _product(work, "unsigned", seconds, stored=1000)
    with work_folder(folder) as work:
        many = _product(work, "unsigned", seconds, stored=stored)
    return Measure(many.per_second, few.per_second, "messages/s", 0.85, many.peak_rss_mib)


def pipelined_measure(*, seconds: float, folder: Path | None = None) -> Measure:
    """Unsigned messages over one connection and a long line: pipelined, or one by one."""
    with work_folder(folder) as work:
        waiting = _product(work, "waiting", seconds)
    with work_folder(folder) as work:
        pipelined = _product(work, "pipelined", seconds)
    rates = pipelined.per_second, waiting.per_second
    return Measure(*rates, "messages/s", None, pipelined.peak_rss_mib)


@contextmanager
def work_folder(folder: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="postroad-bench-", dir=folder) as name:
        yield Path(name)


def _floor(work: Path, kind: str, seconds: float) -> float:
    """Messages per second of the bare work, over all cores."""
    cores = min(os.cpu_count() or 1, 2)
    processes = [
        in_process(_FLOOR, str(work / f"floor-{number}.db"), kind, str(seconds))
        for number in range(cores)
    ]
    for process in processes:
        answer_of(process)
    for process in processes:
        begin(process)
    rates = [float(answer_of(process)["per_second"]) for process in processes]
    for process in processes:
        process.wait()
    return sum(rates)


def _product(work: Path, kind: str, seconds: float, *, mib: int = 0, stored: int = 0) -> Run:
    make_parties(work)
    with _way(work, kind), receiving(work, stored) as receiver:
        answer_of(receiver)
        arguments = (kind, str(seconds), str(mib), str(stored))
        sender = in_process(_MODULE, "sender", str(work / "buyer"), *arguments)
        sent, received = told_by_both(sender, receiver)
    return Run(sent["per_second"], max(sent["peak_rss_mib"], received["peak_rss_mib"]))


@contextmanager
def _way(work: Path, kind: str) -> Iterator[None]:
    """The line between the nodes, and what they agreed on about it."""
    if kind not in _OVER_ONE:
        yield
        return
    file = work / f"buyer/pmodes/{_PMODES[kind]}.yaml"
    pipelining = str(kind == "pipelined").lower()
    port = load_config(work / "seller/postroad.yaml").listen[0].port
    with long_line(port, _DELAY) as far:
        text = file.read_text().replace(f":{port}/", f":{far}/")
        binding = f"mep_binding: {{value: push, pipelining: {pipelining}}}"
        file.write_text(text.replace("mep_binding: push", binding))
        yield


def _copy_rate(work: Path, mib: int) -> float:
    """SHA-256 and a durable write of the same bytes, in MiB per second."""
    piece = os.urandom(CHUNK)
    digest = hashlib.sha256()
    began = perf_counter()
    with (work / "copy").open("wb") as file:
        for _ in range(mib * MIB // CHUNK):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    rate = mib / (perf_counter() - began)
    (work / "copy").unlink()
    return rate


async def _run_receiver(folder: Path, stored: int) -> None:
    config = load_config(folder / "postroad.yaml")
    store = await open_sqlite(config.data, config.node)
    await _fill(store, stored, Side.RECEIVING, State.CONSUMED)
    node = Node(config, store)
    await node.start()
    door = config.listen[0]
    server = HttpServer(msh_app(node), host=door.host, port=door.port)
    await server.start()
    tell({})
    await until_begun()
    figures = await store.look(lambda reader: reader.figures())
    delivered = figures.messages.get("receiving.delivered", 0)
    tell({"delivered": delivered, "peak_rss_mib": peak_rss()})
    await server.close()
    await node.stop()


async def _run_sender(folder: Path, kind: str, seconds: float, mib: int, stored: int) -> None:
    config = load_config(folder / "postroad.yaml")
    store = await open_sqlite(config.data, config.node)
    await _fill(store, stored, Side.SENDING, State.ACKNOWLEDGED)
    node = Node(config, store, client=HttpClient(per_host=1) if kind in _OVER_ONE else None)
    await node.start()
    if kind == "large":
        rate = await _send_large(node, mib)
    else:
        rate = await _send_small(node, _PMODES[kind], seconds)
    figures = await store.look(lambda reader: reader.figures())
    acknowledged = figures.messages.get("sending.acknowledged", 0) - stored
    tell({"per_second": rate, "acknowledged": acknowledged, "peak_rss_mib": peak_rss()})
    await node.stop()


async def _send_small(node: Node, pmode: str, seconds: float) -> float:
    """So many at once for so long; how many came to rest in a second once it is warm."""
    payload = os.urandom(PAYLOAD)
    part = SubmittedPayload(BytesContent(payload), hashlib.sha256(payload).digest(), compress=False)
    submission = Submission(pmode, (part,))
    waiting = node.context.settled
    began = perf_counter()
    done: list[float] = []

    async def send() -> None:
        while perf_counter() - began < _WARM_UP + seconds:
            submitted = await node.submit(submission)
            message_id = submitted.message.message_id
            event = waiting.enter(message_id)
            await event.wait()
            waiting.leave(message_id, event)
            done.append(perf_counter() - began)

    await asyncio.gather(*(send() for _ in range(_IN_FLIGHT)))
    counted = sum(_WARM_UP < at <= _WARM_UP + seconds for at in done)
    # A machine that is busy with other things may finish none in time: then all of them count.
    return counted / seconds if counted else len(done) / max(done)


async def _send_large(node: Node, mib: int) -> float:
    """One large message; the inverse of how long it took until its receipt was there."""
    sink, digest = node.new_sink(), hashlib.sha256()
    began = perf_counter()
    half = os.urandom(CHUNK // 2)
    for number in range(mib * MIB // CHUNK):
        piece = half + number.to_bytes(8) * (CHUNK // 16)
        digest.update(piece)
        sink.write(piece)
    part = SubmittedPayload(sink.finish(), digest.digest())
    submitted = await node.submit(Submission(_LARGE, (part,)))
    message = await node.settled(submitted.message.message_id, 3600)
    if message is None or message.state is not State.ACKNOWLEDGED:
        raise RuntimeError(f"the large message is {message and message.state}: {message}")
    return 1 / (perf_counter() - began)


async def _fill(store: Any, count: int, side: Side, state: State) -> None:
    """So many messages of the past, as a store that has seen some years has them."""
    now = datetime.now(UTC)

    def message(number: int) -> Message:
        return Message(
            side,
            f"00000000-0000-7000-8000-{number:012x}@bench",
            state,
            now,
            now,
            pmode="buyer-to-seller-plain",
            party="bench",
            from_party="urn:example:buyer",
            to_party="urn:example:seller",
            service="urn:example:purchasing",
            action="PriceList",
        )

    def some(numbers: range) -> Any:
        def step(tx: Transaction) -> None:
            for number in numbers:
                tx.add_message(message(number))

        return step

    for first in range(0, count, 1000):
        await store.run(some(range(first, min(first + 1000, count))))


def _main(role: str, *arguments: str) -> None:
    if role == "receiver":
        run_in_loop(_run_receiver(Path(arguments[0]), int(arguments[1])))
        return
    kind, seconds, mib, stored = arguments[1:]
    run_in_loop(_run_sender(Path(arguments[0]), kind, float(seconds), int(mib), int(stored)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
