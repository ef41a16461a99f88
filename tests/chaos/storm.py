"""The storm: nodes under traffic of all kinds, faults from a seed, then rest and comparison."""

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.chaos.agreements import BUYER, HUB, NODES, SELLER, Agreements
from tests.chaos.applications import Hook, Operator, Reader, Submitter, Traffic
from tests.chaos.faults import Weather
from tests.chaos.ledger import Ledger, read_ledger
from tests.chaos.links import Link, Network
from tests.chaos.nodes import MAIL, Disk, Node, free_ports, make_folders, write_agreements
from tests.chaos.proofs import classes_of, journals_hold, proofs_of, receipts_hold
from tests.chaos.verdict import Books, Comparison, Finding, Stored

SUBMITTERS: Final = 6
BACKLOG: Final = 400
"""Messages on their way at once, of all kinds."""


@dataclass(frozen=True)
class Plan:
    """How long, how many, and which dice."""

    seconds: float
    messages: int
    seed: int
    pipeline: bool = True
    spare_disk: int = 2 * 1024**3
    patience: float = 300.0
    """Seconds in which something must move, or the storm is given up."""


@dataclass
class Outcome:
    """What came of it."""

    plan: Plan
    findings: list[Finding]
    kinds: Counter[str]
    ends: Counter[str]
    faults: dict[str, dict[str, int]]
    figures: dict[str, Any] = field(default_factory=dict)


class Watch:
    """Whether anything still moves: the patience begins anew with each change."""

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._last: object = None
        self._since = clock()

    def moves(self, sign: object) -> bool:
        """Tell whether the sign changed within the patience."""
        now = self._clock()
        if sign != self._last:
            self._last, self._since = sign, now
        return now - self._since <= self._patience


class Storm:
    """A storm in a folder of its own."""

    def __init__(self, plan: Plan, folder: Path, show: Callable[[str], None]) -> None:
        self.plan = plan
        self.folder = folder
        self.show = show
        seed = str(plan.seed)
        names = [*NODES, "mail-buyer", "mail-seller"]
        ports = free_ports(3 * len(NODES) + len(names) + 1)
        self.nodes = {
            name: Node(
                name,
                folder / name,
                ports[3 * index : 3 * index + 3],
                workers=2 if name == SELLER else 1,
            )
            for index, name in enumerate(NODES)
        }
        rest = ports[3 * len(NODES) :]
        targets = {name: node.msh for name, node in self.nodes.items()}
        targets |= {f"mail-{one}": self.nodes[one].mail for one in (BUYER, SELLER)}
        links = {
            name: Link(name, port, targets[name], seed)
            for name, port in zip(names, rest, strict=False)
        }
        self.network = Network(links)
        urls = {name: f"http://127.0.0.1:{links[name].port}/msh" for name in NODES}
        self.agreements = Agreements(urls, MAIL)
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.traffic = Traffic(self.agreements.kinds, self.ledger, seed)
        self.hook = Hook(rest[-1], self.ledger, seed)
        self.disks = {
            name: Disk(folder / name / "data", plan.spare_disk) for name in (BUYER, SELLER)
        }
        self.mounted = False
        self._clean = False
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._quiet = threading.Event()
        """No more faults."""
        self._urls = urls

    def run(self) -> Outcome:
        """Make nodes, let the storm rage, wait for rest, and compare."""
        try:
            self._set_up()
            with ThreadPoolExecutor(SUBMITTERS + 6) as pool:
                try:
                    findings = self._rage(pool)
                finally:
                    self._quiet.set()
                    self._stop.set()
            outcome = self._compare(findings)
            self._clean = not outcome.findings
            return outcome
        finally:
            for node in self.nodes.values():
                node.kill()
            self.hook.server_close()
            self.ledger.close()
            if self.mounted:
                for disk in self.disks.values():
                    disk.unmount(keep=not self._clean)

    # Begin

    def _set_up(self) -> None:
        make_folders(self.folder)
        self.mounted = all(disk.mount() for disk in self.disks.values())
        links = self.network.links
        for name, node in self.nodes.items():
            other = {BUYER: SELLER, SELLER: BUYER}.get(name)
            mail = links[f"mail-{other}"] if other else None
            hook = f"http://127.0.0.1:{self.hook.server_port}/" if other else None
            node.configure(links[name], mail, hook)
        write_agreements(self.folder, self.agreements, self._urls[HUB])
        self.network.begin()
        threading.Thread(target=self.hook.serve_forever, name="webhook", daemon=True).start()
        for node in self.nodes.values():
            node.begin()
        self.doors = {name: node.door for name, node in self.nodes.items()}
        watch = Watch(self.plan.patience)
        while not all(door.get("/healthz").ok for door in self.doors.values()):
            if not watch.moves(None):
                raise RuntimeError("the nodes do not start; see their logs")
            self._stop.wait(0.2)
        self.readers = [
            Reader(one, self.doors[one], self.traffic, str(self.plan.seed))
            for one in (BUYER, SELLER)
        ]
        self.operator = Operator(self.doors, self.traffic)
        disks = self.disks if self.mounted else {}
        self.weather = Weather(self.nodes, self.network, self.hook, disks, self.plan.seed)

    # Storm

    def _rage(self, pool: ThreadPoolExecutor) -> list[Finding]:
        ended = threading.Event()
        self._began = time.monotonic()
        works: list[Future[None]] = [pool.submit(self._submit, ended) for _ in range(SUBMITTERS)]
        works += [pool.submit(self._repeat, reader.empty_inbox, 0.2) for reader in self.readers]
        works += [
            pool.submit(self._repeat, self.operator.look, 1.0),
            pool.submit(self._repeat, self.operator.pull_selected, 1.0),
            pool.submit(self.weather.rage, self._quiet),
        ]
        watch, told = Watch(self.plan.patience), 0.0
        while not self._is_over():
            told = self._tell(told, "storm")
            self._check(works)
            if not watch.moves((self.traffic.total, self._read())):
                return [Finding("node", "-", f"nothing moved for {self.plan.patience:g} s")]
            self._stop.wait(0.5)
        ended.set()
        self._quiet.set()
        self.show("the faults end")
        works[-1].result()
        self.network.heal()
        self.hook.healthy, self.hook.down = True, False
        for work in works[:SUBMITTERS]:
            work.result()
        return self._rest(works)

    def _is_over(self) -> bool:
        late = time.monotonic() - self._began >= self.plan.seconds
        return late and self.traffic.total >= self.plan.messages

    def _submit(self, ended: threading.Event) -> None:
        """One client, at a pace that ends when the time does."""
        client = Submitter(self.traffic, self.nodes, self.folder)
        while not ended.is_set() and not self._stop.is_set():
            passed = time.monotonic() - self._began
            share = min(1.0, passed / max(self.plan.seconds, 1.0))
            ahead = self.traffic.total > self.plan.messages * share and share < 1.0
            enough = share >= 1.0 and self.traffic.total >= self.plan.messages
            waits = ahead or enough or self.traffic.on_the_way >= BACKLOG
            if waits or not client.submit_next(self._stop):
                self._stop.wait(0.1)

    def _repeat(self, work: Callable[[], None], pause: float) -> None:
        while not self._stop.wait(pause):
            work()

    @staticmethod
    def _check(works: list[Future[None]]) -> None:
        for work in works:
            if work.done():
                work.result()

    def _tell(self, told: float, what: str) -> float:
        now = time.monotonic()
        if now - told < 15:
            return told
        pending = "?" if self.operator.pending < 0 else self.operator.pending
        self.show(
            f"{now - self._began:6.0f} s  {what}: {self.traffic.total} accepted, {self._read()} "
            f"read, {pending} on their way, {self.hook.calls} calls of the webhook, "
            f"{sum(self.network.faults.values())} faults of links, {self.weather.summary()}"
        )
        return now

    def _read(self) -> int:
        return sum(reader.read for reader in self.readers)

    # Rest

    def _rest(self, works: list[Future[None]]) -> list[Finding]:
        watch, told, doubted = Watch(self.plan.patience), 0.0, 0.0
        fewest = sys.maxsize
        while True:
            told = self._tell(told, "coming to rest")
            self._check(works[SUBMITTERS:-1])
            for node in self.nodes.values():
                node.look()
            if self._at_rest():
                return []
            if self.operator.pending >= 0 and time.monotonic() - doubted > 10:
                doubted = time.monotonic()
                self.operator.end_doubt()
            if self.operator.pending >= 0:
                # Doubts come and go with each attempt: only fewer than ever is progress.
                fewest = min(fewest, self.operator.pending + sum(map(len, self._doubts())))
            told_of = len(self.hook.received) + len(self.hook.ended)
            if not watch.moves((fewest, self._read(), told_of)):
                detail = f"nothing moved for {self.plan.patience:g} s: "
                return [Finding("undecided", "-", detail + "; ".join(self.operator.waiting[:20]))]
            self._stop.wait(1.0)

    def _doubts(self) -> list[list[str]]:
        return list(self.operator.doubts.values())

    def _at_rest(self) -> bool:
        """Nothing is on its way, nothing is in an inbox, and the webhook was told of everything."""
        if self.operator.pending or any(self._doubts()) or any(one.left for one in self.readers):
            return False
        read = set().union(*(one.ids for one in self.readers))
        if not (read <= self.hook.received and self.traffic.owed <= self.hook.ended):
            return False
        # Ask once more, now that all else is at rest.
        self.operator.look()
        return self.operator.pending == 0 and not any(self._doubts())

    # Comparison

    def _compare(self, findings: list[Finding]) -> Outcome:
        self.show("comparing the ledger with the nodes")
        began = time.monotonic()
        states = {name: self._states(name) for name in (BUYER, SELLER)}
        inboxes = {name: self._inbox(name) for name in (BUYER, SELLER)}
        proofs = proofs_of(
            self.agreements.kinds, states, self.doors, self.folder, random.Random(self.plan.seed)
        )
        for name, node in self.nodes.items():
            findings += [Finding("node", name, one) for one in node.ended_by_itself]
            if (code := node.stop()) != 0:
                findings.append(Finding("node", name, f"it ended with {code} when asked to end"))
        classes: Mapping[str, str] = {}
        if self.plan.pipeline:
            self.show("running the pipeline over the journals")
            findings += journals_hold(self.folder)
            classes = classes_of(self.folder)
            findings += receipts_hold(self.folder)
        comparison = Comparison(self.agreements.kinds, read_ledger(self.folder / "ledger.jsonl"))
        books = Books(states, inboxes, classes, proofs)
        findings += comparison.compare(books)
        figures = {
            "seconds": round(began - self._began),
            "messages": self.traffic.total,
            "read": self._read(),
            "kinds": len(self.traffic.accepted),
            "submissions repeated": self.traffic.repeated,
            "evidence verified": len(proofs),
            "classified by the pipeline": sum(one in classes for one in comparison.sent),
            "partners resumed": self.operator.resumed,
            "messages sent again by the operator": self.operator.resent,
            "messages settled by the operator": self.operator.settled,
            "disk": "tmpfs made full" if self.mounted else "not possible here: no mount",
        }
        ends = Counter(state for one in states.values() for state, _ in one.values())
        crashes = dict(self.traffic.crashes)
        crashes["reader before acknowledging"] = sum(one.crashes for one in self.readers)
        faults = {
            "links": dict(self.network.faults),
            "processes, disks and outages": dict(self.weather.met),
            "webhook": dict(self.hook.met),
            "clients": crashes,
        }
        return Outcome(self.plan, sorted(findings), self.traffic.accepted, ends, faults, figures)

    def _states(self, name: str) -> dict[str, tuple[str, str]]:
        listed = self.doors[name].pages("/api/v1/messages", "messages", side="sending", limit=1000)
        return {one["message_id"]: (one["state"], str(one.get("detail") or "")) for one in listed}

    def _inbox(self, name: str) -> list[Stored]:
        listed = self.doors[name].pages("/api/v1/inbox", "messages", consumed="true", limit=1000)
        return [Stored(one["message_id"], int(one["cursor"])) for one in listed]
