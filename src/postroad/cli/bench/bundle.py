"""The bundling benchmark: messages in bundles of a hundred against one by one, in the same run.

Two nodes over loopback HTTP, a process each, durable on both sides; every message is signed. For
`bundle` messages are submitted one by one, as those of the floor are, and the node bundles them;
for `explicit` the application submits a hundred at once. Then units that come one after the other
tell how much longer than maxdelay they waited.
"""

import asyncio
import hashlib
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import yaml

from postroad.api.running import run_in_loop
from postroad.cli.bench.processes import (
    answer_of,
    in_process,
    make_parties,
    receiving,
    tell,
    told_by_both,
)
from postroad.cli.bench.push import work_folder
from postroad.cli.bench.wire import Measure
from postroad.node.node import Node
from postroad.node.service import Submission, Submitted, SubmittedPayload
from postroad.node.settings.config import load_config
from postroad.store.sqlite import open_sqlite
from postroad.wire.content import BytesContent

GOAL: Final = 8.0
LATE: Final = 20.0
"""Milliseconds beyond maxdelay that a unit may wait, at the 99th percentile."""
PAYLOAD: Final = 1024
UNITS: Final = 100
_MODULE: Final = "postroad.cli.bench.bundle"
_PMODE: Final = "buyer-to-seller-signed"
_IN_FLIGHT: Final = {False: 512, True: 40 * UNITS}
"""One by one, and bundled: each with as many at once as it is quickest with."""
_WARM_UP: Final = 1.0
_DELAY: Final = 0.5


def bundle_measures(*, seconds: float, folder: Path | None = None) -> dict[str, Measure]:
    """How many messages in a second, and how much later than maxdelay units left."""
    with work_folder(folder) as work:
        single = _run(work, seconds, bundled=False)
    with work_folder(folder) as work:
        bundled = _run(work, seconds, bundled=True)
    with work_folder(folder) as work:
        explicit = _run(work, seconds, bundled=True, role="explicit")
    with work_folder(folder) as work:
        late = _run(work, seconds, bundled=True, role="late")
    return {
        "bundle": Measure(bundled, single, "messages/s", GOAL),
        "explicit": Measure(explicit, single, "messages/s", GOAL),
        "late": Measure(late, LATE, "ms"),
    }


def _run(work: Path, seconds: float, *, bundled: bool, role: str = "sender") -> float:
    make_parties(work)
    if bundled:
        _agree(work)
    with receiving(work, 0) as receiver:
        answer_of(receiver)
        sender = in_process(_MODULE, role, str(work / "buyer"), str(seconds))
        sent, _ = told_by_both(sender, receiver)
    return float(sent["result"])


def _agree(work: Path) -> None:
    """Both parties bundle what is signed."""
    for party in ("buyer", "seller"):
        file = work / f"{party}/pmodes/{_PMODE}.yaml"
        pmode = yaml.safe_load(file.read_text())
        pmode["legs"][0]["bundling"] = {
            "policy": "optional",
            "compatibility": {"pmode_list": [_PMODE]},
            "max_delay": f"PT{_DELAY}S",
            "max_size": "360 KiB",
        }
        file.write_text(yaml.safe_dump(pmode))


async def _run_sender(folder: Path, measure: Callable[[Node], Coroutine[Any, Any, float]]) -> None:
    config = load_config(folder / "postroad.yaml")
    store = await open_sqlite(config.data, config.node)
    node = Node(config, store)
    await node.start()
    result = await measure(node)
    figures = await store.look(lambda reader: reader.figures())
    tell({"result": result, "acknowledged": figures.messages.get("sending.acknowledged", 0)})
    await node.stop()


def _submission() -> Submission:
    payload = os.urandom(PAYLOAD)
    digest = hashlib.sha256(payload).digest()
    return Submission(_PMODE, (SubmittedPayload(BytesContent(payload), digest, compress=False),))


async def _rate(node: Node, seconds: float, explicit: bool = False) -> float:
    """So many at once for so long; how many came to rest in a second once it is warm."""
    waiting, submission, done = node.context.settled, _submission(), list[float]()
    began = perf_counter()

    async def submitted() -> list[Submitted]:
        if explicit:
            return await node.submit_bundle([submission] * UNITS)
        return [await node.submit(submission)]

    async def send() -> None:
        while perf_counter() - began < _WARM_UP + seconds:
            names = [one.message.message_id for one in await submitted()]
            for name, event in [(one, waiting.enter(one)) for one in names]:
                await event.wait()
                waiting.leave(name, event)
                done.append(perf_counter() - began)

    bundled = node.context.in_force.sending(_PMODE).bundling is not None
    senders = _IN_FLIGHT[bundled] // (UNITS if explicit else 1)
    await asyncio.gather(*(send() for _ in range(senders)))
    counted = sum(_WARM_UP < at <= _WARM_UP + seconds for at in done)
    return counted / seconds if counted else len(done) / max(done)


async def _late(node: Node, seconds: float) -> float:
    """Milliseconds beyond maxdelay that units waited, at the 99th percentile."""
    ids = []
    began = perf_counter()
    while perf_counter() - began < seconds:
        ids.append((await node.submit(_submission())).message.message_id)
        await asyncio.sleep(seconds / 500)
    for name in ids:
        await node.settled(name, 60)
    waited = []
    for name in ids:
        times = {one.event.event: one.event.at for one in await node.events(name)}
        left = times.get("bundled", times["sent"])
        waited.append((left - times["submitted"]).total_seconds() - _DELAY)
    waited.sort()
    return max(waited[len(waited) * 99 // 100] * 1000, 0.0)


def main() -> None:
    role, folder, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])

    async def measure(node: Node) -> float:
        if role == "late":
            return await _late(node, seconds)
        return await _rate(node, seconds, role == "explicit")

    run_in_loop(_run_sender(folder, measure))


if __name__ == "__main__":
    main()
