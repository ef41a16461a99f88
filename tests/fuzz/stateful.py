"""Drive two real nodes with sequences of valid and mutated messages.

    python -m tests.fuzz.stateful [--steps 2000] [--seed 1]

The buyer sends messages on P-Modes of every kind (tests.fuzz.stateful_nodes); all requests between
the nodes are recorded. In between, recorded requests are sent again: as they were, under new ids,
mutated, cut short, or as restartable uploads. After each step the answer has one of the named forms
and no log tells of an unexpected exception; memory, open files and data folders stay bounded. In
the end every message of a signed P-Mode was delivered exactly once, nothing was delivered on one
that the buyer did not send, and both nodes stop cleanly.

A failure prints the seed and the last steps, and saves the last request in build/fuzz/found. The
same seed makes the same choices; what the nodes do meanwhile depends on their timing.
"""

import argparse
import http.client
import re
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from postroad.api.client import Client
from postroad.api.client_values import Unit
from tests.fuzz.corpora import BUILD
from tests.fuzz.mutations import mutate
from tests.fuzz.stateful_nodes import (
    Nodes,
    Resources,
    Sent,
    is_signed,
    resources,
    running,
    trouble_in,
)

MIB: Final = 2**20
_PATIENCE: Final = 60.0
_MOST_MEMORY: Final = 150 * MIB
"""How much a node may grow after its first hundred steps."""
_MOST_FILES: Final = 100
_MOST_DISK: Final = 32 * MIB
_DISK_PER_STEP: Final = 64 * 1024
_MEASURED_EVERY: Final = 50
_REPORTED_EVERY: Final = 500
_INTERNAL: Final = b"the receiver could not process the message"
_NAMED: Final = re.compile(rb"EBMS:\d{4}|:Fault[ >]|ErrorList|wsr:Response|wsrm:")
_OF_HTTP: Final = (501, 505)
"""About the head of a request; a sentence says what is wrong."""
_ID: Final = re.compile(rb"MessageId>\s*([^<\s]{1,200})\s*</")
_OWN_HEADERS: Final = ("content-length", "host", "connection", "transfer-encoding", "expect")


class Finding(Exception):
    """Something that must not happen."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


@dataclass
class Fuzzer:
    """One run against a pair of nodes."""

    nodes: Nodes
    buyer: Client
    seller: Client
    random: Random
    sent: dict[str, str] = field(default_factory=dict)
    """The P-Mode of each message that the buyer was given, by its id."""
    statuses: Counter[str] = field(default_factory=Counter)
    steps: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    last: bytes = b""
    number: int = 0
    _first: dict[str, Resources] = field(default_factory=dict)
    _read: dict[str, int] = field(default_factory=dict)

    def run(self, steps: int) -> None:
        """Take so many steps, then see what became of all messages."""
        for name in self.nodes.pmodes:
            self._submit(name)
        self._until_recorded()
        actions: Sequence[tuple[Callable[[], str], int]] = (
            (self._deliver, 4),
            (self._replay, 10),
            (self._renamed, 6),
            (self._mutated, 50),
            (self._renamed_and_mutated, 25),
            (self._mutated_head, 5),
            (self._cut_short, 3),
            (self._upload, 4),
            (self._ask, 1),
        )
        choices, weights = zip(*actions, strict=True)
        for self.number in range(1, steps + 1):
            [action] = self.random.choices(choices, weights)
            self.steps.append(f"{self.number}: {action()}")
            self._check_logs()
            if self.number % _MEASURED_EVERY == 0:
                self._check_resources()
            if self.number % _REPORTED_EVERY == 0:
                print(f"{self.number} steps: {self._used()}", flush=True)
        self._check_deliveries()
        self._check_resources()
        used = self._used()
        for node in (self.nodes.pair.buyer, self.nodes.pair.seller):
            if (code := node.end()) != 0:
                raise Finding(f"{node.name} ended with exit code {code}")
        self._check_logs()
        print(f"{steps} steps, {len(self.sent)} messages: {used}\n{self._tally()}")

    # Steps

    def _submit(self, pmode: str) -> str:
        payload = self.random.randbytes(self.random.choice((0, 100, 5000)))
        if pmode == "bundled":
            units = [Unit(pmode, [payload]) for _ in range(self.random.randint(1, 3))]
            ids = [one.message_id for one in self.buyer.send_bundle(units)]
        else:
            ids = [self.buyer.send(pmode=pmode, payloads=[payload]).message_id]
        self.sent |= dict.fromkeys(ids, pmode)
        if pmode == "pulled":
            self.seller.pull(pmode)
        return f"send on {pmode}: {', '.join(ids)}"

    def _deliver(self) -> str:
        return self._submit(self.random.choice(list(self.nodes.pmodes)))

    def _ask(self) -> str:
        pmode = self.random.choice(["ebxml-1.0", "ebxml-2.0", "signed"])
        self.buyer.ping(pmode, wait=5)
        return f"ping on {pmode}"

    def _replay(self) -> str:
        request = self._recorded()
        self._expect_answer(request)
        return f"send again to {request.to}"

    def _renamed(self) -> str:
        request = self._under_new_id(self._recorded())
        self._expect_answer(request)
        return f"send under a new id to {request.to}"

    def _mutated(self) -> str:
        return self._send_mutated(self._recorded(), "send mutated")

    def _renamed_and_mutated(self) -> str:
        return self._send_mutated(
            self._under_new_id(self._recorded()), "send mutated with a new id"
        )

    def _send_mutated(self, request: Sent, what: str) -> str:
        body = mutate(self.random, request.body, [self._recorded().body])
        self._expect_answer(Sent(request.to, request.headers, body))
        return f"{what} to {request.to}"

    def _mutated_head(self) -> str:
        request = self._recorded()
        head = mutate(self.random, _head(request))
        # What follows a broken head is no longer a body: the answer may come at any byte.
        self._exchange(request.to, head + request.body, complete=False)
        return f"send with a mutated head to {request.to}"

    def _cut_short(self) -> str:
        request = self._recorded()
        data = _head(request) + request.body
        self._exchange(request.to, data[: self.random.randint(1, len(data) - 1)], complete=False)
        return f"cut short to {request.to}"

    def _upload(self) -> str:
        request = self._under_new_id(self._recorded())
        size = len(request.body)
        middle = self.random.randint(1, size)
        tag = f'"upload-{self.random.randint(1, 20)}"'
        pieces = [(0, middle), (self.random.choice((middle, middle, 0, middle // 2)), size)]
        for start, end in pieces:
            if start < end:
                span = f"bytes {start}-{end - 1}/{self.random.choice((size, size, '*', size + 1))}"
                headers = (*request.headers, ("ETag", tag), ("Content-Range", span))
                self._expect_answer(Sent(request.to, headers, request.body[start:end]))
        return f"upload {tag} to {request.to}"

    # Requests

    def _recorded(self) -> Sent:
        """Choose a request; unsigned ones more often, since their mutations are read further."""
        request = self.nodes.requests.choose(self.random)
        if b"SignatureValue" in request.body:
            request = self.nodes.requests.choose(self.random)
        return request

    def _until_recorded(self) -> None:
        """Wait until something of every kind went over the line."""
        for message_id, pmode in self.sent.items():
            if self.buyer.wait(message_id, _PATIENCE).state != "acknowledged":
                raise Finding(f"{message_id} on {pmode} is not acknowledged")

    def _under_new_id(self, request: Sent) -> Sent:
        body = request.body
        for old in dict.fromkeys(_ID.findall(body)):
            body = body.replace(old, b"%d@fuzz.example" % self.random.getrandbits(64))
        return Sent(request.to, request.headers, body)

    def _expect_answer(self, request: Sent) -> None:
        answer = self._exchange(request.to, _head(request) + request.body)
        if answer is None:
            raise Finding(f"{request.to} closed the connection without an answer")

    def _exchange(self, to: str, data: bytes, *, complete: bool = True) -> Answer | None:
        """Send bytes on a connection of their own; None when it was closed without an answer."""
        self.last = data
        with socket.create_connection(self.nodes.address(to), timeout=_PATIENCE) as connection:
            try:
                connection.sendall(data)
                if not complete:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # It may be answered before all of it was sent.
            response = http.client.HTTPResponse(connection)
            try:
                response.begin()
                answer = Answer(response.status, response.read())
            except TimeoutError:
                raise Finding(f"{to} gave no answer within {_PATIENCE:g} s") from None
            except (OSError, http.client.HTTPException):
                return None
        self._judge(to, answer)
        return answer

    def _judge(self, to: str, answer: Answer) -> None:
        status, body = answer.status, answer.body
        self.statuses[f"{to} {status}"] += 1
        if _INTERNAL in body:
            raise Finding(f"{to} answered {status}, an internal error: {body[:500]!r}")
        if status >= 500 and status not in _OF_HTTP and not _NAMED.search(body):
            raise Finding(f"{to} answered {status} without a name for it: {body[:500]!r}")
        if status >= 400 and not body:
            raise Finding(f"{to} answered {status} without a word")

    # What must hold

    def _check_logs(self) -> None:
        for node in (self.nodes.pair.buyer, self.nodes.pair.seller):
            with (node.folder / "log").open("rb") as log:
                log.seek(self._read.get(node.name, 0))
                data = log.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[node.name] = self._read.get(node.name, 0) + len(whole)
            for line in whole.splitlines():
                if trouble := trouble_in(line):
                    raise Finding(f"{node.name} logged: {trouble}")

    def _check_resources(self) -> None:
        for node in (self.nodes.pair.buyer, self.nodes.pair.seller):
            now = resources(node)
            first = self._first.get(node.name)
            if first is None or self.number <= 2 * _MEASURED_EVERY:
                self._first[node.name] = now
                continue
            if now.memory > first.memory + _MOST_MEMORY:
                raise Finding(f"{node.name} grew from {first.memory} to {now.memory} bytes")
            if now.files > first.files + _MOST_FILES:
                raise Finding(f"{node.name} has {now.files} open files, it had {first.files}")
            if now.disk > _MOST_DISK + self.number * _DISK_PER_STEP:
                raise Finding(f"the data folder of {node.name} has {now.disk} bytes")

    def _check_deliveries(self) -> None:
        """Compare what was delivered with what was sent."""
        signed = {name for name, pmode in self.nodes.pmodes.items() if is_signed(pmode)}
        end = time.monotonic() + _PATIENCE
        for message_id, pmode in self.sent.items():
            if pmode == "pulled":
                self.seller.pull(pmode, most=100)
            if pmode in signed:
                message = self.buyer.wait(message_id, max(1.0, end - time.monotonic()))
                if message.state != "acknowledged":
                    raise Finding(f"{message_id} on {pmode} is {message.state}: {message.detail}")
        delivered = Counter(one.message_id for one in self.seller.inbox())
        pmodes = {one.message_id: one.pmode for one in self.seller.inbox()}
        for message_id, count in delivered.items():
            if count > 1:
                raise Finding(f"{message_id} was delivered {count} times")
            if pmodes[message_id] in signed and message_id not in self.sent:
                raise Finding(f"{message_id} was delivered on {pmodes[message_id]}, nobody sent it")
        for message_id, pmode in self.sent.items():
            if pmode in signed and message_id not in delivered:
                raise Finding(f"{message_id} on {pmode} was acknowledged and not delivered")

    def _used(self) -> str:
        pair = self.nodes.pair
        return "; ".join(f"{one.name} {resources(one)}" for one in (pair.buyer, pair.seller))

    def _tally(self) -> str:
        return ", ".join(f"{count} x {what}" for what, count in sorted(self.statuses.items()))


def _head(request: Sent) -> bytes:
    headers = [one for one in request.headers if one[0].lower() not in _OWN_HEADERS]
    lines = ["POST /msh HTTP/1.1", "Host: node.example", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    lines += [f"Content-Length: {len(request.body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1")


def fuzz(folder: Path, seed: int, steps: int) -> None:
    """Run once; a finding is raised with the steps that led to it."""
    with ExitStack() as stack:
        nodes = stack.enter_context(running(folder))
        buyer = stack.enter_context(nodes.pair.buyer.client())
        seller = stack.enter_context(nodes.pair.seller.client())
        fuzzer = Fuzzer(nodes, buyer, seller, Random(seed))
        try:
            fuzzer.run(steps)
        except Finding as finding:
            kept = BUILD / "found" / f"stateful-{seed}-{fuzzer.number}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(fuzzer.last)
            led = "\n".join(fuzzer.steps)
            raise Finding(
                f"{finding}\nStep {fuzzer.number} of --seed {seed}; the steps before:\n{led}\n"
                f"The last request is in {kept}."
            ) from None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.stateful", description="Fuzz nodes."
    )
    parser.add_argument("--steps", type=int, default=2000, help="(default: 2000)")
    parser.add_argument("--seed", type=int, default=1, help="(default: 1)")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            fuzz(Path(folder), given.seed, given.steps)
        except Finding as finding:
            print(f"FINDING: {finding}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
