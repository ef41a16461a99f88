"""The applications of both parties: they submit, read, acknowledge, reply, and crash doing so.

Each knows nothing but REST, the webhook and the command line, and writes down in the ledger what it
did before it tells anybody.
"""

import hashlib
import json
import random
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tests.chaos.agreements import BUYER, SELLER, Kind
from tests.chaos.doors import Door, encoded
from tests.chaos.ledger import Ledger
from tests.chaos.nodes import POSTROAD, Node
from tests.chaos.verdict import ON_THE_WAY

LANE: Final = 20
"""Messages of one conversation."""
BUNDLE: Final = 4
RESENDS: Final = 3
"""How often a message in doubt is sent again before the partner is asked."""
CRASHES: Final = {"answer lost": 0.03, "broken off": 0.02, "command killed": 0.004}
"""How often a client dies while it submits."""
UNACKNOWLEDGED: Final = 0.04
"""How often a reader crashes between reading and acknowledging."""
HOOK_FAULTS: Final = {"500": 0.04, "503": 0.03, "closed": 0.03, "hangs": 0.005}


def payload(message_id: str, size: int) -> bytes:
    """Return the payload of a message: it says whose it is, and is half compressible."""
    head = f"{message_id} {size}\n".encode()
    noise = hashlib.shake_256(message_id.encode()).digest(size // 2)
    return head + noise + b"postroad " * (size // 18)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Traffic:
    """What is submitted: which kind next, under which id, and how many are on their way."""

    def __init__(self, kinds: list[Kind], ledger: Ledger, seed: str) -> None:
        self.kinds = kinds
        self.by_name = {kind.name: kind for kind in kinds}
        self.ledger = ledger
        self.accepted: Counter[str] = Counter()
        self.crashes: Counter[str] = Counter()
        self.repeated = 0
        self.owed: set[str] = set()
        """Accepted messages of whose end the webhook must be told."""
        self.open: Mapping[str, set[str]] = {}
        """Conversations of each kind with messages on their way."""
        self.lock = threading.Lock()
        self._dice = random.Random(f"{seed} traffic")
        self._begun: Counter[str] = Counter()
        self._lanes = {kind.name: threading.Lock() for kind in kinds}
        self._on_the_way: Counter[str] = Counter()

    def set_on_the_way(self, counts: Mapping[str, int]) -> None:
        with self.lock:
            self._on_the_way = Counter(counts)

    @property
    def on_the_way(self) -> int:
        return sum(self._on_the_way.values())

    @property
    def total(self) -> int:
        return sum(self.accepted.values())

    def choose(self) -> Kind | None:
        """Return a kind that has room, or None."""
        with self.lock:
            fits = [kind for kind in self.kinds if self._on_the_way[kind.name] < kind.window]
            if not fits:
                return None
            (kind,) = self._dice.choices(fits, [one.weight for one in fits])
            self._on_the_way[kind.name] += BUNDLE if kind.bundle else 1
            return kind

    def draw(self) -> random.Random:
        """Return dice for one submission."""
        with self.lock:
            return random.Random(self._dice.random())

    def number(self, kind: Kind) -> int:
        with self.lock:
            self._begun[kind.name] += 1
            return self._begun[kind.name]

    def lane(self, kind: Kind) -> threading.Lock:
        return self._lanes[kind.name]


class Submitter:
    """A client that submits messages one after the other, and now and then dies."""

    def __init__(self, traffic: Traffic, nodes: Mapping[str, Node], folder: Path) -> None:
        self.traffic = traffic
        self.nodes = nodes
        self.doors = {name: node.door for name, node in nodes.items()}
        self.folder = folder

    def submit_next(self, stop: threading.Event) -> bool:
        """Submit one message or bundle, however long it takes; False if no kind has room."""
        kind = self.traffic.choose()
        if kind is None:
            return False
        dice = self.traffic.draw()
        if kind.lane is None:
            self._submit(kind, dice, stop)
        else:
            # Order counts from submission to submission: the next waits for this one.
            with self.traffic.lane(kind):
                self._submit(kind, dice, stop)
        return True

    def _submit(self, kind: Kind, dice: random.Random, stop: threading.Event) -> None:
        units: list[dict[str, Any]] = []
        payloads: list[tuple[str, bytes]] = []
        for index in range(BUNDLE if kind.bundle else 1):
            number = self.traffic.number(kind)
            message_id = f"{kind.name}-{number}@{kind.sender}.example"
            low, high = kind.sizes
            content = payload(message_id, int(low * (high / low) ** dice.random()))
            conversation = f"{kind.name}-{number // LANE}"
            lane = conversation if kind.lane == "conversation" else kind.name
            self.traffic.ledger.write(
                "submitting",
                id=message_id,
                kind=kind.name,
                sender=kind.sender,
                receiver=kind.receiver,
                lane=lane,
                number=number,
                digests=[digest(content)],
            )
            name = f"p{index}"
            payloads.append((name, content))
            units.append(
                {
                    "pmode": kind.name + kind.suffix,
                    "message_id": message_id,
                    "conversation_id": conversation,
                    "payloads": [{"part": name}],
                }
            )
        metadata: Any = {"messages": units} if kind.bundle else units[0]
        path = "/api/v1/bundles" if kind.bundle else "/api/v1/messages"
        crash = self._crash(dice, kind)
        if crash == "command killed":
            self._by_command(kind, units[0], payloads[0][1], dice, stop)
            return
        if crash is not None:
            share = 1.0 if crash == "answer lost" else dice.random()
            wait = dice.choice((0.0, 5.0)) if crash == "answer lost" else 0.0
            self.doors[kind.sender].break_off(path, metadata, payloads, share, wait)
        while True:
            answer = self.doors[kind.sender].submit(path, metadata, payloads)
            if answer.ok:
                self._accepted(kind, units, repeated=answer.status == 200)
                return
            if not answer.retry:
                for unit in units:
                    self._refused(unit["message_id"], answer.status, answer.body)
                return
            if stop.wait(0.3):
                return

    def _crash(self, dice: random.Random, kind: Kind) -> str | None:
        number = dice.random()
        for name, share in CRASHES.items():
            number -= share
            if number < 0 and not (kind.bundle and name == "command killed"):
                with self.traffic.lock:
                    self.traffic.crashes[name] += 1
                return name
        return None

    def _by_command(
        self,
        kind: Kind,
        unit: Mapping[str, Any],
        content: bytes,
        dice: random.Random,
        stop: threading.Event,
    ) -> None:
        """`postroad send`, killed, and then again until it has succeeded."""
        file = self.folder / f"{unit['message_id']}.txt"
        file.write_bytes(content)
        command = [
            *POSTROAD,
            "send",
            "-c",
            str(self.nodes[kind.sender].config),
            "--pmode",
            kind.name + kind.suffix,
            "--payload",
            str(file),
            "--message-id",
            unit["message_id"],
            "--conversation",
            unit["conversation_id"],
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(dice.uniform(0.2, 3.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        while True:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                self._accepted(kind, [unit], repeated=False)
                file.unlink()
                return
            if stop.wait(1.0):
                return

    def _accepted(self, kind: Kind, units: list[Any], *, repeated: bool) -> None:
        for unit in units:
            self.traffic.ledger.write("accepted", id=unit["message_id"], repeated=repeated)
        with self.traffic.lock:
            self.traffic.accepted[kind.name] += len(units)
            self.traffic.repeated += repeated
            if kind.acknowledged:
                self.traffic.owed.update(unit["message_id"] for unit in units)

    def _refused(self, message_id: str, status: int, body: bytes) -> None:
        detail = body[:300].decode(errors="replace")
        self.traffic.ledger.write("refused", id=message_id, status=status, detail=detail)


class Reader:
    """Reads the inbox of one node, replies where that is asked for, and acknowledges."""

    def __init__(self, name: str, door: Door, traffic: Traffic, seed: str) -> None:
        self.name = name
        self.door = door
        self.traffic = traffic
        self.read = 0
        self.crashes = 0
        self.left = -1
        """Messages that the inbox had when it was last listed; -1: it could not be listed."""
        self._dice = random.Random(f"{seed} reader {name}")
        self._known: dict[int, str] = {}
        self._acknowledged: set[int] = set()
        self._furthest = 0

    @property
    def ids(self) -> set[str]:
        """Return what it has read."""
        return set(self._known.values())

    def empty_inbox(self) -> None:
        """Read what is there; return when the inbox is empty or the node does not answer."""
        while True:
            answer = self.door.get("/api/v1/inbox", limit=50)
            if not answer.ok:
                self.left = -1
                return
            messages = answer.json()["messages"]
            self.left = len(messages)
            if not messages:
                return
            before = len(self._acknowledged)
            for message in messages:
                if not self._take(message):
                    return
            if len(self._acknowledged) == before:
                return

    def _take(self, message: Mapping[str, Any]) -> bool:
        """Read a message, note it, acknowledge it; False if the node does not answer."""
        message_id, cursor = message["message_id"], int(message["cursor"])
        if cursor in self._acknowledged:
            self.traffic.ledger.write("after_ack", id=message_id)
        path = f"/api/v1/inbox/{encoded(message_id)}"
        if cursor not in self._known:
            digests = []
            for number in range(1, len(message["parts"]) + 1):
                part = self.door.get(f"{path}/parts/{number}", cursor=cursor)
                if not part.ok:
                    return False
                digests.append(digest(part.body))
            if cursor < self._furthest:
                self.traffic.ledger.write(
                    "behind", id=message_id, cursor=cursor, seen=self._furthest
                )
            self._furthest = max(self._furthest, cursor)
            self.traffic.ledger.write(
                "read", id=message_id, node=self.name, cursor=cursor, digests=digests
            )
            self._known[cursor] = message_id
            self.read += 1
        if self._dice.random() < UNACKNOWLEDGED:
            self.crashes += 1
            return True
        if message["action"].endswith("-ask") and not self._reply(message, path, cursor):
            return False
        answer = self.door.post(f"{path}/ack", cursor=cursor)
        if answer.ok:
            self._acknowledged.add(cursor)
        return answer.ok

    def _reply(self, message: Mapping[str, Any], path: str, cursor: int) -> bool:
        message_id = message["message_id"]
        kind = self.traffic.by_name[message_id.rsplit("-", 1)[0]]
        reply_id = f"re-{message_id}"
        content = payload(reply_id, 200)
        self.traffic.ledger.write(
            "submitting",
            id=reply_id,
            kind=kind.name,
            sender=kind.receiver,
            receiver=kind.sender,
            lane=reply_id,
            number=0,
            digests=[digest(content)],
        )
        metadata = {"message_id": reply_id, "payloads": [{"part": "p0"}]}
        answer = self.door.submit(f"{path}/reply", metadata, [("p0", content)], cursor=cursor)
        if answer.ok:
            self.traffic.ledger.write("accepted", id=reply_id, repeated=answer.status == 200)
            with self.traffic.lock:
                self.traffic.accepted[f"{kind.name} reply"] += 1
                self.traffic.owed.add(reply_id)
            return True
        if answer.retry:
            return False
        detail = answer.body[:300].decode(errors="replace")
        self.traffic.ledger.write("refused", id=reply_id, status=answer.status, detail=detail)
        return True


class Hook(ThreadingHTTPServer):
    """The webhook of both nodes: it writes a call down before it says 200, if it feels like it."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, port: int, ledger: Ledger, seed: str) -> None:
        super().__init__(("127.0.0.1", port), _HookHandler)
        self.ledger = ledger
        self.met: Counter[str] = Counter()
        self.down = False
        self.healthy = False
        self.received: set[str] = set()
        """Messages that it was told have come."""
        self.ended: set[str] = set()
        """Messages of whose end it was told."""
        self.calls = 0
        self._dice = random.Random(f"{seed} webhook")
        self._lock = threading.Lock()

    def draw(self) -> str | None:
        with self._lock:
            if self.down:
                self.met["down"] += 1
                return "503"
            if self.healthy:
                return None
            number = self._dice.random()
            for name, share in HOOK_FAULTS.items():
                number -= share
                if number < 0:
                    self.met[name] += 1
                    return name
            return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nodes are killed while they call; that is no error of ours."""


class _HookHandler(BaseHTTPRequestHandler):
    server: Hook
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fault = self.server.draw()
        if fault == "hangs":
            threading.Event().wait(10)
        if fault in ("hangs", "closed"):
            self.close_connection = True
            return
        if fault is None:
            call = json.loads(body)
            self.server.ledger.write(
                "told",
                id=call["message_id"],
                node=call["node"],
                what=call["event"],
                state=call["state"],
                delivery=call["delivery_id"],
            )
            self.server.calls += 1
            if call["event"] == "received":
                self.server.received.add(call["message_id"])
            elif call["event"] in ("receipt", "failed", "settled"):
                self.server.ended.add(call["message_id"])
        self.send_response(int(fault or 200))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


class Operator:
    """Does what the documentation leaves to people: resume, send again, pull what is selected."""

    def __init__(self, doors: Mapping[str, Door], traffic: Traffic) -> None:
        self.doors = doors
        self.traffic = traffic
        self.resumed = 0
        self.resent = 0
        self.settled = 0
        self._tries: Counter[str] = Counter()
        self.pending = -1
        """Messages on their way at all nodes; -1: a node did not answer."""
        self.doubts: dict[str, list[str]] = {}
        self.waiting: list[str] = []
        """What is on its way, in words."""

    def look(self) -> None:
        """Count what is on its way, and resume partners who wait for an administrator."""
        counts: Counter[str] = Counter()
        waiting: defaultdict[str, set[str]] = defaultdict(set)
        words: list[str] = []
        try:
            for name, door in self.doors.items():
                states = ",".join((*ON_THE_WAY, "held"))
                for one in door.pages("/api/v1/messages", "messages", state=states, limit=1000):
                    about = (one[key] for key in ("side", "message_id", "state", "detail"))
                    words.append(" ".join(map(str, (name, *about))))
                    if one["side"] == "sending":
                        kind = one["pmode"].removesuffix(".init")
                        counts[kind] += 1
                        waiting[kind].add(one["conversation_id"])
                for partner in self._list(door, "/api/v1/partners", "partners"):
                    if partner["gate"] == "suspended":
                        path = f"/api/v1/partners/{encoded(partner['name'])}/resume"
                        self.resumed += door.post(path).ok
                self.doubts[name] = [
                    one["message_id"]
                    for one in door.pages(
                        "/api/v1/messages", "messages", side="sending", state="in_doubt", limit=1000
                    )
                ]
        except ConnectionError:
            self.pending = -1
            return
        self.pending, self.waiting = len(words), words
        self.traffic.set_on_the_way(counts)
        self.traffic.open = waiting

    @staticmethod
    def _list(door: Door, path: str, key: str) -> list[dict[str, Any]]:
        answer = door.get(path)
        if not answer.ok:
            raise ConnectionError(path)
        found: list[dict[str, Any]] = answer.json()[key]
        return found

    def pull_selected(self) -> None:
        """Ask the sender for the conversations that are under way, one by one."""
        for kind in self.traffic.kinds:
            if not kind.selected:
                continue
            for conversation in sorted(self.traffic.open.get(kind.name, ())):
                path = f"/api/v1/admin/pmodes/{kind.name}/pull"
                self.doors[SELLER].post(path, {"conversation_id": conversation}, most=LANE)

    def end_doubt(self) -> None:
        """Send again what is in doubt; after some attempts ask the partner, and note its answer."""
        for name, other in ((BUYER, SELLER), (SELLER, BUYER)):
            for message_id in self.doubts.get(name, ()):
                path = f"/api/v1/messages/{encoded(message_id)}"
                self._tries[message_id] += 1
                if self._tries[message_id] <= RESENDS:
                    self.resent += self.doors[name].post(f"{path}/resend").ok
                    continue
                there = self.doors[other].get(path, side="receiving")
                if there.ok or there.status == 404:
                    said = {"answer": "delivered" if there.ok else "not_received", "who": other}
                    self.settled += self.doors[name].post(f"{path}/settle", said).ok
