"""The processes of a benchmark: a receiving node of its own, and how they talk to who measures."""

import asyncio
import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from postroad.node.first_steps.initializing import Plan, Station, initialize


def in_process(module: str, *arguments: str) -> "subprocess.Popen[str]":
    """Run a module; it tells what it has to say line by line."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The next line that a process tells."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process of the benchmark ended with {process.wait()}")
    answer: dict[str, Any] = json.loads(line)
    return answer


def begin(process: "subprocess.Popen[str]") -> None:
    """Let a process go on that waits."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


async def until_begun() -> None:
    await asyncio.to_thread(sys.stdin.readline)


def tell(facts: dict[str, Any]) -> None:
    print(json.dumps(facts), flush=True)


def make_parties(work: Path) -> None:
    """Folders of a buyer and a seller on free ports."""
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        buyer = Station("buyer", work / "buyer", first.getsockname()[1])
        seller = Station("seller", work / "seller", second.getsockname()[1])
    initialize(Plan(buyer, seller, ships=False, unsigned=True), now=datetime.now(UTC))


@contextmanager
def receiving(work: Path, stored: int = 0) -> "Iterator[subprocess.Popen[str]]":
    """The seller's node in a process; it tells when it is there."""
    receiver = in_process("postroad.cli.bench.push", "receiver", str(work / "seller"), str(stored))
    try:
        yield receiver
    finally:
        receiver.terminate()
        receiver.wait()


def told_by_both(
    sender: "subprocess.Popen[str]", receiver: "subprocess.Popen[str]"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What sender and receiver say once all is sent; the same number arrived, or it is an error."""
    try:
        sent = answer_of(sender)
        begin(receiver)
        received = answer_of(receiver)
    finally:
        sender.terminate()
        sender.wait()
    if sent["acknowledged"] != received["delivered"]:
        raise RuntimeError(
            f"{sent['acknowledged']} messages were acknowledged, {received['delivered']} delivered"
        )
    return sent, received


def peak_rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def peak_resident() -> float:
    """The same as the kernel tells it of this program, whatever was there before it was loaded."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) / 1024
    return peak_rss()
