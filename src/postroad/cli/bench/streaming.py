"""The streaming benchmark: what a hub adds to the way of a message that it never has.

`streaming`: the milliseconds that synchronous streaming adds at the median to a message of 10 KiB
that is posted to the next MSH, beside posting it there; by turns, over connections that are kept.
`streaming_memory`: the peak of the hub's memory after a large message, beside that before.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from postroad.agreement.matching import header
from postroad.api.endpoint import msh_app, say
from postroad.api.running import run_in_loop
from postroad.cli.bench.hub import PMODE, found_hub, letter
from postroad.cli.bench.processes import (
    answer_of,
    begin,
    in_process,
    make_parties,
    peak_rss,
    tell,
    until_begun,
)
from postroad.node.node import Node
from postroad.node.settings.config import load_config
from postroad.store.sqlite import open_sqlite
from postroad.transport.http_body import Receive, Scope, Send, body_chunks
from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Flow, Outgoing
from postroad.transport.http_server import HttpServer
from postroad.wire.limits import GIB, MIB

LARGE: Final = 256 * MIB
_MODULE: Final = "postroad.cli.bench.streaming"
_WARM: Final = 50


def streamed(work: Path, messages: int) -> tuple[float, float, float, float]:
    """Milliseconds that a hub adds, and without it; the hub's memory after a large one, before."""
    make_parties(work)
    sink = in_process(_MODULE, "sink")
    processes = [sink]
    try:
        port = answer_of(sink)["port"]
        found_hub(work, port, "sync")
        hub = in_process(_MODULE, "node", str(work / "hub"))
        processes.append(hub)
        urls = [f"http://127.0.0.1:{one}/msh" for one in (answer_of(hub)["port"], port)]
        load = in_process(_MODULE, "load", str(work / "seller"), *urls, str(messages))
        processes.append(load)
        told = answer_of(load)
        begin(hub)
        before = answer_of(hub)["peak_rss_mib"]
        begin(load)
        answer_of(load)
        begin(hub)
        after = answer_of(hub)["peak_rss_mib"]
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    return told["hub"] - told["direct"], told["direct"], after, before


async def _run_node(folder: Path) -> None:
    config = load_config(folder / "postroad.yaml")
    node = Node(config, await open_sqlite(config.data, config.node))
    await node.start()
    server = HttpServer(msh_app(node))
    await server.start()
    tell({"port": server.port})
    while True:
        await until_begun()
        tell({"peak_rss_mib": peak_rss()})


async def _run_sink() -> None:
    """The next MSH, which takes everything at once."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async for _ in body_chunks(receive, limit=GIB):
            pass
        await say(send, 202, "")

    server = HttpServer(app)
    await server.start()
    tell({"port": server.port})
    await asyncio.Event().wait()


async def _run_load(folder: Path, hub: str, direct: str, messages: int) -> None:
    """Posts one message after the other, here and there; then a large one to the hub."""
    node = Node(
        config := load_config(folder / "postroad.yaml"),
        await open_sqlite(folder.parent / f"load-{os.getpid()}", config.node),
    )
    match = node.context.in_force.match(PMODE, 1)
    assert match is not None
    said, now = header(match.pmode, 1), datetime.now(UTC)
    took: dict[str, list[float]] = {hub: [], direct: []}
    async with HttpClient() as client:
        for number in range(-_WARM, messages):
            for url, times in took.items():
                form = letter(said, f"{number}@{os.getpid()}", now)
                body = b"".join(form.pieces())
                began = perf_counter()
                reply = await client.post(Outgoing(url, form.content_type, body))
                if reply.status != 202:
                    raise RuntimeError(f"{url} answered {reply.status}: {reply.body[:500]!r}")
                if number >= 0:
                    times.append(perf_counter() - began)
        tell({"hub": 1000 * median(took[hub]), "direct": 1000 * median(took[direct])})
        await until_begun()
        whole = b"".join(letter(said, f"large@{os.getpid()}", now).pieces())
        end = whole.rindex(b"\r\n--")

        async def read() -> AsyncGenerator[bytes, None]:
            yield whole[:end]
            for _ in range(LARGE // MIB):
                yield bytes(MIB)
            yield whole[end:]

        flow = Flow(len(whole) + LARGE, read)
        reply = await client.post(Outgoing(hub, form.content_type, flow))
        if reply.status != 202:
            raise RuntimeError(f"the hub answered {reply.status} to a large message")
        tell({})


if __name__ == "__main__":
    if sys.argv[1] == "node":
        run_in_loop(_run_node(Path(sys.argv[2])))
    elif sys.argv[1] == "sink":
        run_in_loop(_run_sink())
    else:
        run_in_loop(_run_load(Path(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])))
