"""The hub benchmark: what an intermediary adds, beside what it cannot do without.

`store_and_forward`: messages of 10 KiB over HTTP through a hub, until all of them are at the next
MSH, against as many that an endpoint takes which verifies nothing; by turns. `rules`: the routing
function over ten thousand rules, against ten. `streaming` is in `cli.bench_streaming`.
"""

import asyncio
import os
import sys
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import yaml

from postroad.agreement.matching import header
from postroad.agreement.routes import Route
from postroad.agreement.routing import RoutingSource, RoutingTable
from postroad.api.endpoint import msh_app, say
from postroad.api.running import run_in_loop
from postroad.cli.bench.floor import PAYLOAD
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
from postroad.msh.outbound import WireForm, WirePart, wire_form
from postroad.node.node import Node
from postroad.node.settings.config import load_config
from postroad.store.sqlite import open_sqlite
from postroad.transport.http_body import ASGIApp, Receive, Scope, Send, body_chunks
from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Outgoing
from postroad.transport.http_server import HttpServer
from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import (
    CollaborationInfo,
    MessageInfo,
    Messaging,
    PartInfo,
    Party,
    PartyId,
    Service,
    UserMessage,
)
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.multihop import routing_user_message
from postroad.wire.names import NEXT_MSH
from postroad.wire.soap import SoapVersion, write_body, write_envelope

MEASURES: Final = ("store_and_forward", "streaming", "rules")
GOALS: Final = {"store_and_forward": 0.5, "rules": 0.8}
_MODULE: Final = "postroad.cli.bench.hub"
PMODE: Final = "buyer-to-seller-plain"
_CONNECTIONS: Final = 32
_ORDER: Final = ("seller", "hub", "hub", "seller")
_FEW: Final = 10
_TURNS: Final = 200
_AT_ONCE: Final = 200


def hub_measures(
    *, wanted: Collection[str], rules: int, messages: int, folder: Path | None
) -> dict[str, Measure]:
    """Each with its floor."""
    found: dict[str, Measure] = {}
    if "store_and_forward" in wanted:
        with work_folder(folder) as work:
            carried, received, memory = _carried(work, messages)
        goal = GOALS["store_and_forward"]
        found["store_and_forward"] = Measure(carried, received, "messages/s", goal, memory)
    if "streaming" in wanted:
        from postroad.cli.bench.streaming import streamed

        with work_folder(folder) as work:
            added, direct, after, before = streamed(work, messages // 4)
        found["streaming"] = Measure(added, direct, "ms")
        found["streaming_memory"] = Measure(after, before, "MiB", peak_rss_mib=after)
    if "rules" in wanted:
        many, few = _matched(rules)
        found["rules"] = Measure(many, few, "messages/s", GOALS["rules"], None)
    return found


def _matched(rules: int) -> tuple[float, float]:
    """Messages routed per second, by many rules and by few, in turns."""
    tables = [_table(rules), _table(_FEW)]
    took: list[list[float]] = [[], []]
    for turn in range(-5, _TURNS):
        for index in (turn % 2, 1 - turn % 2):
            size = len(tables[index])
            # Not always the same rule: one that was used a moment ago is in the cache.
            sources = [_source(number * 7919 % size) for number in range(_AT_ONCE)]
            began = perf_counter()
            for source in sources:
                tables[index].route(source)
            if turn >= 0:
                took[index].append(perf_counter() - began)
    # Of what else the machine does the quickest turn has least.
    many, few = (_AT_ONCE / min(one) for one in took)
    return many, few


def _table(size: int) -> RoutingTable:
    """Each rule for a recipient of its own, some for its invoices alone."""
    rules = [
        {
            "id": f"r{number}",
            "match": {"to_party": _name(number)}
            | ({"action": ["Invoice", "CreditNote"]} if number % 10 == 9 else {}),
            "to": {"push": f"https://hub{number % 16}.example/msh"},
        }
        for number in range(size)
    ]
    return RoutingTable([Route.model_validate(one) for one in rules])


def _name(number: int) -> str:
    return f"urn:example:recipient:{number}"


def _source(number: int) -> RoutingSource:
    sides = [Party((PartyId(one),), "urn:role") for one in ("urn:example:hub", _name(number))]
    talk = CollaborationInfo(Service("urn:example:trade"), "Invoice", "talk")
    info = MessageInfo(datetime(2026, 1, 1, tzinfo=UTC), f"{number}@bench")
    return RoutingSource(routing_user_message(UserMessage(info, sides[0], sides[1], talk)))


def _carried(work: Path, messages: int) -> tuple[float, float, float]:
    """Messages per second through a hub, and into an endpoint; and the hub's memory."""
    make_parties(work)
    some = messages // 2
    sink = in_process(_MODULE, "sink", str(some))
    processes = [sink]
    took = {"hub": 0.0, "seller": 0.0}
    try:
        found_hub(work, answer_of(sink)["port"])
        nodes = {name: in_process(_MODULE, "node", str(work / name)) for name in took}
        processes += nodes.values()
        ports = {name: answer_of(node)["port"] for name, node in nodes.items()}
        for turn in _ORDER:
            url = f"http://127.0.0.1:{ports[turn]}/msh"
            load = in_process(_MODULE, "load", str(work / "seller"), url, str(some))
            processes.append(load)
            answer_of(load)
            begin(load)
            began = perf_counter()
            told = answer_of(load)
            if told["taken"] != some:
                raise RuntimeError(f"{told['taken']} of {some} messages were taken by the {turn}")
            if turn == "hub":
                answer_of(sink)
            took[turn] += perf_counter() - began
        begin(nodes["hub"])
        memory = answer_of(nodes["hub"])["peak_rss_mib"]
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    return 2 * some / took["hub"], 2 * some / took["seller"], memory


def found_hub(work: Path, port: int, forward: str = "store") -> None:
    """A hub that knows where the seller's messages go, and nothing else."""
    (work / "hub").mkdir()
    settings = {"node": "hub", "party": "urn:example:hub", "listen": [{"address": "127.0.0.1:0"}]}
    there = {"push": f"http://127.0.0.1:{port}/msh", "forward": forward}
    rule = {"id": "seller", "match": {"to_party": "urn:example:seller"}, "to": there}
    (work / "hub" / "postroad.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    (work / "hub" / "routes.yaml").write_text(yaml.safe_dump({"routes": [rule]}), encoding="utf-8")


async def _run_node(folder: Path) -> None:
    config = load_config(folder / "postroad.yaml")
    node = Node(config, await open_sqlite(config.data, config.node))
    await node.start()
    server = HttpServer(msh_app(node))
    await server.start()
    tell({"port": server.port})
    await until_begun()
    tell({"peak_rss_mib": peak_rss()})


async def _run_sink(some: int) -> None:
    """The next MSH: takes what comes, and tells when so many came."""
    server = HttpServer(_counting(some))
    await server.start()
    tell({"port": server.port})
    await asyncio.Event().wait()


def _counting(some: int) -> ASGIApp:
    count = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal count
        async for _ in body_chunks(receive, limit=1 << 30):
            pass
        await say(send, 202, "")
        count += 1
        if count % some == 0:
            tell({"count": count})

    return app


async def _run_load(folder: Path, url: str, some: int) -> None:
    """Posts messages that were written before."""
    node = Node(
        config := load_config(folder / "postroad.yaml"),
        await open_sqlite(folder.parent / f"load-{os.getpid()}", config.node),
    )
    match = node.context.in_force.match(PMODE, 1)
    assert match is not None
    said, now = header(match.pmode, 1), datetime.now(UTC)
    waiting = [letter(said, f"{number}@{os.getpid()}", now) for number in range(some)]
    client = HttpClient()
    taken = 0

    async def post() -> None:
        nonlocal taken
        while waiting:
            form = waiting.pop()
            request = Outgoing(url, form.content_type, b"".join(form.pieces()))
            reply = await client.post(request)
            taken += reply.status in (200, 202)

    tell({})
    await until_begun()
    await asyncio.gather(*(post() for _ in range(_CONNECTIONS)))
    tell({"taken": taken})


def letter(said: Any, name: str, now: datetime) -> WireForm:
    info = CollaborationInfo(said.service, said.action, name, said.agreement_ref)
    message = UserMessage(
        MessageInfo(now, name),
        said.from_party,
        said.to_party,
        info,
        part_infos=(PartInfo("cid:order@bench"),),
    )
    version = SoapVersion.SOAP_12
    block = write_messaging(Messaging((message,), role=NEXT_MSH), version)
    envelope = write_envelope(version, [block], write_body(version))
    part = WirePart("order@bench", "application/xml", BytesContent(os.urandom(PAYLOAD)), None)
    return wire_form(version, envelope, [part], "=_bench")


if __name__ == "__main__":
    if sys.argv[1] == "node":
        run_in_loop(_run_node(Path(sys.argv[2])))
    elif sys.argv[1] == "sink":
        run_in_loop(_run_sink(int(sys.argv[2])))
    else:
        run_in_loop(_run_load(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
