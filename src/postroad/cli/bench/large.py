"""The benchmark of large messages: a payload from one node to another, against keeping its bytes.

Two nodes over loopback HTTP, a process each, durable on both sides; the message is signed, and
goes in fragments unless it is to go whole. `plain` and `gzip`: MiB a second from the submission,
when the payload lies in the node, until its receipt is there; the floor is SHA-256, a write and an
fsync of the same bytes in the same run. `linear`: the rate of twice the size beside that of the
size.
"""

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any, Final

import yaml

from postroad.api.endpoint import msh_app
from postroad.api.running import run_in_loop
from postroad.cli.bench.processes import (
    answer_of,
    begin,
    in_process,
    make_parties,
    peak_resident,
    tell,
    until_begun,
)
from postroad.cli.bench.push import work_folder
from postroad.cli.bench.wire import Measure
from postroad.node.node import Node
from postroad.node.service import Submission, SubmittedPayload
from postroad.node.settings.config import load_config
from postroad.store.records import Side, State
from postroad.store.sqlite import open_sqlite
from postroad.transport.http_server import HttpServer
from postroad.wire.content import CHUNK
from postroad.wire.limits import MIB

MEASURES: Final = ("plain", "gzip", "linear")
GOALS: Final = {"plain": 0.5, "gzip": 0.5, "linear": 0.85}
_MODULE: Final = "postroad.cli.bench.large"
_PMODE: Final = "buyer-to-seller-signed"
_MESSAGE: Final = "large@bench.example"
_PATIENCE: Final = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class _Run:
    mib_per_second: float
    floor: float
    peak_rss_mib: float
    """Of the larger node."""


def large_measures(
    *, wanted: tuple[str, ...], mib: int, fragment: int, folder: Path | None = None
) -> dict[str, Measure]:
    """Each beside its floor; `fragment` is in MiB, and 0 where the message goes whole."""
    found: dict[str, Measure] = {}
    runs: dict[str, _Run] = {}
    for kind in ("plain", "gzip"):
        if kind in wanted or (kind == "plain" and "linear" in wanted):
            runs[kind] = _run(folder, mib, fragment, gzip=kind == "gzip")
        if kind in wanted:
            run = runs[kind]
            rates = run.mib_per_second, run.floor
            found[kind] = Measure(*rates, "MiB/s", GOALS[kind], run.peak_rss_mib)
    if "linear" in wanted:
        twice = _run(folder, 2 * mib, fragment, gzip=False)
        rates = twice.mib_per_second, runs["plain"].mib_per_second
        found["linear"] = Measure(*rates, "MiB/s", GOALS["linear"], twice.peak_rss_mib)
    return found


def _run(folder: Path | None, mib: int, fragment: int, *, gzip: bool) -> _Run:
    with work_folder(folder) as work:
        make_parties(work)
        _agree(work, fragment, gzip)
        before = _floor(work, mib)
        receiver = in_process(_MODULE, "receiver", str(work / "seller"))
        sender = in_process(_MODULE, "sender", str(work / "buyer"), str(mib))
        try:
            answer_of(receiver)
            answer_of(sender)
            begin(sender)
            sent = answer_of(sender)
            begin(receiver)
            received = answer_of(receiver)
        finally:
            for process in (sender, receiver):
                process.terminate()
                process.wait()
        floor = mean((before, _floor(work, mib)))
    if received["size"] != mib * MIB:
        raise RuntimeError(f"{mib} MiB were sent, {received['size']} bytes were delivered")
    peak = max(sent["peak_rss_mib"], received["peak_rss_mib"])
    return _Run(mib / sent["seconds"], floor, peak)


def _agree(work: Path, fragment: int, gzip: bool) -> None:
    """How the message goes, by the P-Mode of both parties."""
    back = load_config(work / "buyer/postroad.yaml").listen[0]
    for party in ("buyer", "seller"):
        file = work / f"{party}/pmodes/{_PMODE}.yaml"
        pmode = yaml.safe_load(file.read_text())
        [leg] = pmode["legs"]
        leg["reception_awareness"]["retry"]["parameters"] = {"max_retries": 3, "period": "PT10M"}
        if not gzip or fragment:
            leg.pop("payload_service")
        if fragment:
            leg["splitting"] = _splitting(fragment, gzip)
            # With fragments nothing can be said on the response.
            leg["error_handling"]["report"] = {}
            leg["security"]["send_receipt"].pop("reply_pattern")
            leg["security"]["send_receipt"]["reply_to"] = f"http://{back.address}/msh"
        file.write_text(yaml.safe_dump(pmode))


def _splitting(fragment: int, gzip: bool) -> dict[str, Any]:
    terms: dict[str, Any] = {"fragment_size": f"{fragment} MiB", "join_interval": "PT4H"}
    return terms | {"compression": {"algorithm": "gzip"} if gzip else False}


def _pieces(mib: int) -> Any:
    """Half of it can be compressed, as of much that businesses send."""
    half = os.urandom(CHUNK // 2)
    for number in range(mib * MIB // CHUNK):
        yield half + number.to_bytes(8) * (CHUNK // 16)


def _floor(work: Path, mib: int) -> float:
    """SHA-256 and a durable write of the same bytes, in MiB per second."""
    digest = hashlib.sha256()
    spent = 0.0
    with (work / "copy").open("wb") as file:
        for piece in _pieces(mib):
            began = perf_counter()
            digest.update(piece)
            file.write(piece)
            spent += perf_counter() - began
        began = perf_counter()
        file.flush()
        os.fsync(file.fileno())
        spent += perf_counter() - began
    (work / "copy").unlink()
    return mib / spent


async def _opened(folder: Path) -> tuple[Node, HttpServer]:
    config = load_config(folder / "postroad.yaml")
    node = Node(config, await open_sqlite(config.data, config.node))
    await node.start()
    door = config.listen[0]
    server = HttpServer(msh_app(node), host=door.host, port=door.port)
    await server.start()
    return node, server


async def _run_receiver(folder: Path) -> None:
    node, server = await _opened(folder)
    tell({})
    await until_begun()
    message = await node.message(_MESSAGE, Side.RECEIVING)
    there = message is not None and message.state is State.DELIVERED
    size = message.parts[0].size if message is not None and there else 0
    tell({"size": size, "peak_rss_mib": peak_resident()})
    await server.close()
    await node.stop()


async def _run_sender(folder: Path, mib: int) -> None:
    node, server = await _opened(folder)
    sink, digest = node.new_sink(), hashlib.sha256()
    for piece in _pieces(mib):
        digest.update(piece)
        sink.write(piece)
    part = SubmittedPayload(sink.finish(), digest.digest())
    tell({})
    await until_begun()
    began = perf_counter()
    await node.submit(Submission(_PMODE, (part,), _MESSAGE))
    message = await node.settled(_MESSAGE, _PATIENCE)
    seconds = perf_counter() - began
    if message is None or message.state is not State.ACKNOWLEDGED:
        raise RuntimeError(f"the large message is {message and message.state}: {message}")
    terms = node.context.in_force.sending(_PMODE).splitting
    if terms is not None and mib * MIB > terms.cut and message.split is None:
        raise RuntimeError("the large message went whole")
    tell({"seconds": seconds, "peak_rss_mib": peak_resident()})
    await server.close()
    await node.stop()


def main() -> None:
    role, folder = sys.argv[1], Path(sys.argv[2])
    if role == "receiver":
        run_in_loop(_run_receiver(folder))
    else:
        run_in_loop(_run_sender(folder, int(sys.argv[3])))


if __name__ == "__main__":
    main()
