"""A large message in fragments, and kill -9 of both nodes while they are on their way.

The long one: `python -m tests.crash.large --mib 1024 --kills 12`.
"""

import argparse
import hashlib
import random
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from postroad.api.client_values import ApiError, Transfer
from postroad.cli.demo.large import DRAWINGS, agree
from postroad.node.settings.config import load_config
from postroad.store.records import Side
from tests.crash.books import holes, left_over, read_book
from tests.crash.patience import STANDSTILL, Patience
from tests.e2e.nodes import Pair, Served, make_pair, started

NAME: Final = "drawings@buyer.example"
_MIB: Final = 1 << 20
_SETTINGS: Final = "send: {lease: PT4S, breaker: {failures: 0}}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; `findings` is empty when all is well."""

    kills: list[str]
    deliveries: int
    findings: list[str]
    seconds: float


def large_pair(folder: Path, fragment: str, algorithm: str | None = None) -> Pair:
    """A buyer and a seller who agreed on fragments; nothing runs yet."""
    pair = make_pair(folder)
    there, back = (_port(one) for one in (pair.seller, pair.buyer))
    folders = {one.name: one.folder for one in (pair.buyer, pair.seller)}
    agree(folders, f"http://{there}/msh", f"http://{back}/msh", fragment)
    for one in (pair.buyer, pair.seller):
        one.config.write_text(f"{one.config.read_text()}\n{_SETTINGS}\n")
        _never_give_up(one.folder / f"pmodes/{DRAWINGS}.yaml", algorithm)
    return pair


def _never_give_up(file: Path, algorithm: str | None) -> None:
    """However long a node takes to start again: retries used up meanwhile would be in doubt."""
    pmode = yaml.safe_load(file.read_text())
    [leg] = pmode["legs"]
    leg["reception_awareness"]["retry"]["parameters"]["max_retries"] = "unlimited"
    if algorithm is not None:
        leg["splitting"]["compression"] = {"algorithm": algorithm}
    file.write_text(yaml.safe_dump(pmode))


def _port(node: Served) -> str:
    return load_config(node.config).listen[0].address


def write_file(file: Path, mib: int, dice: random.Random) -> str:
    """A file of noise; its digest."""
    digest = hashlib.sha256()
    with file.open("wb") as out:
        for _ in range(mib):
            piece = dice.randbytes(_MIB)
            digest.update(piece)
            out.write(piece)
    return f"sha256:{digest.hexdigest()}"


def transfer(node: Served) -> Transfer | None:
    """How far the message is; None also while its node is away."""
    try:
        with node.client() as client:
            return client.status(NAME).transfer
    except ApiError:
        return None


def kill_through(
    folder: Path, mib: int, kills: int, fragment: str, seed: int, algorithm: str | None = None
) -> Outcome:
    """Send a large message, and kill a node whenever some more of it arrived."""
    began, dice = time.monotonic(), random.Random(seed)
    pair = large_pair(folder, fragment, algorithm)
    file = folder / "drawings"
    digest = write_file(file, mib, dice)
    killed: list[str] = []
    try:
        started(pair)
        with pair.buyer.client() as client:
            client.send(pmode=DRAWINGS, payloads=[file], message_id=NAME)
        for number in range(kills):
            _until_arrived(pair, (number + dice.random()) / (kills + 1))
            victims = (pair.buyer, pair.seller)[number % 2 :][:1]
            if number == kills - 1:
                victims = (pair.buyer, pair.seller)
            for one in victims:
                one.end(signal.SIGKILL)
                killed.append(one.name)
            for one in victims:
                one.begin()
                one.ready(STANDSTILL)
        _until_arrived(pair, 1)
        with pair.buyer.client() as client:
            state = client.wait(NAME, STANDSTILL).state
        codes = [one.end() for one in (pair.buyer, pair.seller)]
    finally:
        pair.end()
    sent = read_book(pair.buyer.data, "buyer", Side.SENDING)
    received = read_book(pair.seller.data, "seller", Side.RECEIVING)
    deliveries = received.count("delivered")[NAME]
    findings = [str(one) for one in (*left_over(pair.buyer.data), *left_over(pair.seller.data))]
    findings += [str(one) for one in holes("sender", sent.journal)]
    findings += [str(one) for one in holes("receiver", received.journal)]
    if state != "acknowledged":
        findings.append(f"the message is {state}")
    if received.payloads.get(NAME) != (digest,):
        findings.append("what was delivered is not what was sent")
    if deliveries != 1 or codes != [0, 0]:
        findings.append(f"delivered {deliveries} times; the nodes ended with {codes}")
    return Outcome(killed, deliveries, findings, time.monotonic() - began)


def _until_arrived(pair: Pair, share: float) -> None:
    """Until so much of it arrived, or all, however long that takes as long as more of it comes."""
    patience, doing = Patience(), f"{share:.0%} of it arrives"
    while True:
        there = transfer(pair.buyer)
        if there is not None and there.arrived_bytes >= share * there.bytes:
            return
        for node in (pair.buyer, pair.seller):
            assert node.lives, f"{doing}: the {node.name} is gone: {node.log[-2000:]}"
        patience.look(there and there.arrived_bytes, doing)
        threading.Event().wait(0.05)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.large", description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--fragment", default="16 MiB")
    parser.add_argument("--compressed", choices=("gzip", "deflate", "compress", "identity"))
    parser.add_argument("--seed", type=int)
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="postroad-large-"))
    outcome = kill_through(folder, given.mib, given.kills, given.fragment, seed, given.compressed)
    print(
        f"{given.mib} MiB, killed: {', '.join(outcome.kills)}; delivered {outcome.deliveries} "
        f"time(s), {outcome.seconds:.0f} s, seed {seed}"
    )
    for one in outcome.findings:
        print(one, file=sys.stderr)
    if not outcome.findings:
        shutil.rmtree(folder)
    return int(bool(outcome.findings))


if __name__ == "__main__":
    sys.exit(main())
