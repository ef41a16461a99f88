"""The pull benchmark: messages that are collected, against messages that are pushed.

`pull`: messages of 2 KiB that wait in a channel, pulled one after the other over one connection,
until all are delivered and their receipts are there, which ride on the requests; against as many
that wait to be pushed, between the same two nodes, over one connection and by turns. `selective`:
one message found by what it refers to, in a channel with many, against one with a thousand.
"""

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import typer
import yaml
from msgspec.structs import replace as changed

from postroad.api.endpoint import msh_app
from postroad.api.running import run_in_loop
from postroad.cli.bench.processes import (
    answer_of,
    begin,
    in_process,
    make_parties,
    peak_rss,
    tell,
    until_begun,
)
from postroad.cli.bench.push import work_folder
from postroad.cli.bench.wire import Measure
from postroad.msh.pulling import message_channel, pull_request
from postroad.msh.selecting import items_of
from postroad.node.base.requests import Request
from postroad.node.node import Node
from postroad.node.service import Submission, SubmittedPayload
from postroad.node.settings.config import load_config
from postroad.node.steps.partners import halt
from postroad.store.interface import Transaction
from postroad.store.records import Offer, State
from postroad.store.sqlite import open_sqlite
from postroad.transport.http_server import HttpServer
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import (
    CollaborationInfo,
    MessageInfo,
    Party,
    PartyId,
    Selection,
    Service,
    UserMessage,
)

GOALS: Final = {"pull": 0.8, "selective": 0.8}
_MODULE: Final = "postroad.cli.bench.pull"
_PARTNER: Final = "urn:example:seller"
_PUSHED, _PULLED = "pushed", "pulled"
_SIZE: Final = 2 * 1024
_AT_ONCE: Final = 64
_FILLED: Final = 20_000
"""Messages that one step puts into the channel to select from."""
_SELECTIONS: Final = 300
_ORDER: Final = (_PUSHED, _PULLED, _PULLED, _PUSHED)
_WARM_UP: Final = 20


def pull_measures(*, messages: int, waiting: int, folder: Path | None) -> dict[str, Measure]:
    """Both, each with its floor."""
    with work_folder(folder) as work:
        told = _exchanged(work, messages)
    with work_folder(folder) as work:
        few, many = asyncio.run(_selected(work, waiting))
    memory = told["peak_rss_mib"]
    return {
        "pull": Measure(told[_PULLED], told[_PUSHED], "messages/s", GOALS["pull"], memory),
        "selective": Measure(many, few, "messages/s", GOALS["selective"], None),
    }


def _exchanged(work: Path, messages: int) -> dict[str, float]:
    make_parties(work)
    _agree(work)
    some = messages // 2
    processes = [
        in_process(_MODULE, party, str(work / party), str(some)) for party in ("buyer", "seller")
    ]
    buyer, seller = processes
    took = {_PUSHED: 0.0, _PULLED: 0.0}
    try:
        for process in processes:
            answer_of(process)
        for turn in _ORDER:
            begin(buyer)
            told = answer_of(buyer)
            if turn == _PULLED:
                begin(seller)
                told = answer_of(seller)
            took[turn] += told["seconds"]
        for process in processes:
            begin(process)
        memory = max(answer_of(process)["peak_rss_mib"] for process in processes)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    return {name: 2 * some / seconds for name, seconds in took.items()} | {"peak_rss_mib": memory}


def _agree(work: Path) -> None:
    """Two P-Modes that differ in who opens the connection; one at a time to the partner."""
    for party in ("buyer", "seller"):
        folder = work / party / "pmodes"
        plain: dict[str, Any] = yaml.safe_load(
            (folder / "buyer-to-seller-plain.yaml").read_text(encoding="utf-8")
        )
        back: dict[str, Any] = yaml.safe_load(
            (folder / "seller-to-buyer-plain.yaml").read_text(encoding="utf-8")
        )
        leg = plain["legs"][0]
        leg["business_info"]["action"] = _PUSHED
        text = yaml.safe_dump({**plain, "id": _PUSHED})
        (folder / f"{_PUSHED}.yaml").write_text(text, encoding="utf-8")
        leg["business_info"]["action"] = _PULLED
        leg["protocol"]["address"] = back["legs"][0]["protocol"]["address"]
        leg["security"] = {"send_receipt": {"reply_pattern": "callback"}}
        leg["pulling"] = {"scheduled": False, "piggyback": True}
        puller = plain["responder"] | {
            "authorization": {"username": "seller", "password": "a secret of both"}
        }
        swapped = {"mep_binding": "pull", "initiator": puller, "responder": plain["initiator"]}
        text = yaml.safe_dump({**plain, **swapped, "id": _PULLED})
        (folder / f"{_PULLED}.yaml").write_text(text, encoding="utf-8")
        file = work / party / "postroad.yaml"
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
        settings["send"] = {"parallel": 1}
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")


async def _run(party: str, folder: Path, messages: int) -> None:
    config = load_config(folder / "postroad.yaml")
    store = await open_sqlite(config.data, config.node)
    node = Node(config, store)
    await node.start()
    door = config.listen[0]
    server = HttpServer(msh_app(node), host=door.host, port=door.port)
    await server.start()
    tell({})
    for turn in _ORDER:
        if party == "seller" and turn == _PUSHED:
            continue
        await until_begun()
        if party == "seller":
            seconds = await _pull(node, messages)
        elif turn == _PUSHED:
            seconds = await _push(node, messages)
        else:
            await _submit(node, _PULLED, messages)
            seconds = 0.0
        tell({"seconds": seconds})
    await until_begun()
    tell({"peak_rss_mib": peak_rss()})
    await server.close()
    await node.stop()


def _submission(pmode: str) -> Submission:
    payload = os.urandom(_SIZE)
    part = SubmittedPayload(BytesContent(payload), hashlib.sha256(payload).digest(), compress=False)
    return Submission(pmode, (part,))


async def _submit(node: Node, pmode: str, messages: int) -> list[str]:
    submission = _submission(pmode)
    names: list[str] = []
    for first in range(0, messages, _AT_ONCE):
        some = range(first, min(first + _AT_ONCE, messages))
        taken = await asyncio.gather(*(node.submit(submission) for _ in some))
        names += [one.message.message_id for one in taken]
    return names


async def _push(node: Node, messages: int) -> float:
    """Seconds until all that wait were pushed and acknowledged."""
    context = node.context
    await context.store.run(lambda tx: halt(context, tx, _PARTNER, context.clock(), "away"))
    await context.look_at_partners()
    names = await _submit(node, _PUSHED, messages)
    events = [context.settled.enter(name) for name in names]
    began = perf_counter()
    await node.resume(_PARTNER)
    await asyncio.gather(*(event.wait() for event in events))
    seconds = perf_counter() - began
    for name, event in zip(names, events, strict=True):
        context.settled.leave(name, event)
    return seconds


async def _pull(node: Node, messages: int) -> float:
    """Seconds until all that wait were pulled, and their receipts are where they belong."""
    began = perf_counter()
    collected = await node.pull(_PULLED, most=messages)
    while True:
        figures = await node.context.store.look(lambda reader: reader.figures())
        if not figures.work.get("signal"):
            break
        await asyncio.sleep(0.005)
    seconds = perf_counter() - began
    if len(collected.messages) < messages:
        raise RuntimeError(f"{len(collected.messages)} of {messages} came: {collected.detail}")
    delivered = figures.messages.get(f"receiving.{State.DELIVERED.value}", 0)
    if delivered < messages:
        raise RuntimeError(f"{delivered} messages were delivered, {messages} were pulled")
    return seconds


async def _selected(work: Path, waiting: int) -> tuple[float, float]:
    """Selective pulls per second that a node answers, out of a thousand messages and of many."""
    counts = (1000, waiting)
    nodes = [await _filled(work / str(count), count) for count in counts]
    took: list[list[float]] = [[], []]
    for number in range(-_WARM_UP, _SELECTIONS):
        for index in (number % 2, 1 - number % 2):
            seconds = await _select(nodes[index], number)
            if number >= 0:
                took[index].append(seconds)
    for node in nodes:
        await node.stop()
    # Of what the disk takes for a commit the median is steady, the sum is not.
    return 1 / median(took[0]), 1 / median(took[1])


async def _filled(work: Path, waiting: int) -> Node:
    """A node with so many messages in a channel, and some more that are going to be selected."""
    make_parties(work)
    _agree(work)
    config = load_config(work / "buyer" / "postroad.yaml")
    store = await open_sqlite(config.data, config.node)
    node = Node(config, store)
    await node.start()
    now = datetime.now(UTC)
    place = (node.context.in_force.sending(_PULLED).channel or "", _PULLED)

    def some(first: int, count: int) -> Any:
        def step(tx: Transaction) -> None:
            for number in range(first, first + count):
                items = items_of(_message(number, now))
                tx.add_offer(Offer(*place, f"{number}@bench", now, items))

        return step

    steps = range(0, waiting, _FILLED)
    shown = typer.progressbar(steps, label=f"{waiting:,} messages into a channel", file=sys.stderr)
    with shown as progress:
        for first in progress:
            await store.run(some(first, min(_FILLED, waiting - first)))
    for number in range(-_WARM_UP, _SELECTIONS):
        await node.submit(changed(_submission(_PULLED), ref_to_message_id=_wanted(number)))
    return node


def _message(number: int, now: datetime) -> UserMessage:
    sides = [Party((PartyId(f"urn:example:{name}"),), name) for name in ("buyer", "seller")]
    talk = CollaborationInfo(Service("urn:example:trade"), "Price", f"talk-{number // 10}")
    info = MessageInfo(now, f"{number}@bench", f"request-{number}@bench")
    return UserMessage(info, sides[0], sides[1], talk)


def _wanted(number: int) -> str:
    return f"wanted{number}@bench"


async def _select(node: Node, number: int) -> float:
    """Seconds in which a selective PullRequest is answered."""
    context, now = node.context, node.context.clock()
    asking = pull_request(
        message_channel(context.in_force.offered[0]),
        Selection(ref_to_message_id=_wanted(number)),
        signal_id=context.new_id(now),
        now=now,
        entropy=context.entropy,
        key=None,
    )
    request = Request(asking.content_type, "127.0.0.1", _body(asking.envelope))
    began = perf_counter()
    response = await node.receive(request)
    seconds = perf_counter() - began
    if _wanted(number).encode() not in response.body:
        raise RuntimeError(f"the message that answers {_wanted(number)} was not pulled")
    return seconds


async def _body(envelope: bytes) -> AsyncIterator[bytes]:
    yield envelope


if __name__ == "__main__":
    run_in_loop(_run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
