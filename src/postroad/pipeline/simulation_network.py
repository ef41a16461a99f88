"""The simulated network: parties, their nodes, relays, and who sends what to whom."""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
NEVER: Final = 1 << 62
SKEW: Final = 6 * MINUTE
"""No clock is farther off."""

_TREES: Final = (
    "alder", "birch", "cedar", "elm", "fir", "hazel", "juniper", "larch", "maple", "oak", "pine",
    "rowan",
)  # fmt: skip
_TRADES: Final = ("foods", "freight", "paper", "steel", "energy")
_MOST: Final = len(_TREES) * len(_TRADES)
_TYPE: Final = "urn:oasis:names:tc:ebcore:partyid-type:unregistered"
_SERVICES: Final = (
    ("urn:services:ordering", "order", "confirm"),
    ("urn:services:shipping", "announce", "accept"),
    ("urn:services:invoicing", "invoice", "settle"),
    ("urn:services:customs", "declare", "release"),
)
_DEFAULT_MPC: Final = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/defaultMPC"
SHARES: Final = {
    "direct": 0.60, "hub": 0.12, "ordered": 0.07, "bundled": 0.07, "pulled": 0.06, "large": 0.04,
    "hubs": 0.04,
}  # fmt: skip
"""How the messages of an agreement travel, and how many do so."""
MANNERS: Final = tuple(SHARES)
_TURNS: Final = (
    "direct", "hub", "direct", "ordered", "direct", "bundled", "hubs", "direct", "pulled", "direct",
    "large", "direct",
)  # fmt: skip
_PROTOCOLS: Final = ("as4", "as4", "as4", "ebxml-2.0", "as4", "ebms3", "wsrm", "as4", "ebxml-0.98b")
_ACKNOWLEDGING: Final = ("ebxml-2.0", "ebxml-0.98b", "wsrm", "wsreliability")


@dataclass(frozen=True, slots=True)
class Route:
    """One direction of an agreement between two parties."""

    sender: int
    receiver: int
    service: str
    action: str
    mpc: str
    pmode: str
    protocol: str
    manner: str
    hubs: tuple[int, ...]
    reply: int
    """The route of answers, -1 for none."""
    weight: float


@dataclass(frozen=True, slots=True)
class Network:
    """Who takes part. Times are microseconds of UTC; a node's own are by its clock."""

    names: tuple[str, ...]
    """Parties, then relays, then the operator."""
    parties: int
    node_names: tuple[str, ...]
    serves: tuple[tuple[int, ...], ...]
    """For each node the parties for whom it acts."""
    nodes: Ints
    """Two for each name; twice the same where there is one, -1 without a journal."""
    offset: Ints
    """How far each clock is off. The last entry of all of these is for who has no journal."""
    begins: Ints
    ends: Ints
    retired: Ints
    away_from: Ints
    away_until: Ints
    """When the node's database was restored: epoch 1 ends, and epoch 2 begins."""
    routes: tuple[Route, ...]
    opens: Ints
    closes: Ints
    """When the routes are in use."""

    @property
    def operator(self) -> int:
        return len(self.names) - 1

    def has_journal(self, party: Ints) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self.nodes[party, 0] >= 0
        return found

    def placed(self, party: Ints, choice: Ints, at: Ints) -> tuple[Ints, Ints]:
        """Which node of a party acts at a true time, and its clock then.

        Where the chosen one has left or is away its sibling acts; a party's only node that is
        away acts as soon as it is back.
        """
        node = self.nodes[party, choice]
        sibling = self.nodes[party, 1 - choice]
        clock = at + self.offset[node]
        absent = (clock >= self.retired[node]) | self._away(node, clock)
        node = np.where(absent, sibling, node)
        clock = at + self.offset[node]
        late = self._away(node, clock)
        if late.any():
            back = self.away_until[node] + 1 + ((clock - self.away_from[node]) >> 10)
            clock = np.where(late, back, clock)
        return node, clock

    def _away(self, node: Ints, clock: Ints) -> npt.NDArray[np.bool_]:
        away: npt.NDArray[np.bool_] = (clock >= self.away_from[node]) & (
            clock < self.away_until[node]
        )
        return away


def network(rng: np.random.Generator, parties: int, start: int, end: int) -> Network:
    """A network with a few large parties and many small ones; `end` is the last moment.

    By its rank: 0 and 1 have two nodes, of which one is restored and one retires; 2 is restored;
    3, 9, 15 … have no journal; 4 and 5 share a node; 6 retires; 7 comes later.
    """
    span = end - start
    names = [_name(i) for i in range(parties)] + ["hub-north", "hub-south", "operator"]
    node_names: list[str] = []
    serves: list[tuple[int, ...]] = []
    nodes = np.full((len(names), 2), -1, np.int64)
    for party in range(parties + 2):
        if party < parties and party % 6 == 3:
            continue
        if party == 5:
            nodes[5] = nodes[4]
            serves[nodes[4, 0]] = (4, 5)
            continue
        count = 2 if party < 2 else 1
        for one in range(count):
            nodes[party, one:] = len(node_names)
            plain = names[party].rpartition("::")[2]
            node_names.append(f"{plain}-{one + 1}" if count > 1 else plain)
            serves.append((party,))
    count = len(node_names)
    offset = np.append(_offsets(rng, count), 0)
    begins, ends, retired = (np.full(count + 1, value, np.int64) for value in (start, end, NEVER))
    away_from, away_until = (np.full(count + 1, NEVER, np.int64) for _ in range(2))
    for node, share, minutes in ((nodes[0, 1], 0.3, 95), (nodes[2, 0], 0.45, 20)):
        away_from[node] = start + int(span * share) + rng.integers(HOUR)
        away_until[node] = away_from[node] + minutes * MINUTE
    leaving = [(nodes[1, 1], 0.55)] + ([(nodes[6, 0], 0.7)] if parties > 6 else [])
    for node, share in leaving:
        retired[node] = ends[node] = start + int(span * share) + rng.integers(HOUR)
    if parties > 7:
        begins[nodes[7]] = start + int(span * 0.2)
    routes = _routes(rng, names, parties)
    opens = np.full(len(routes), start, np.int64)
    closes = np.full(len(routes), NEVER, np.int64)
    for index, route in enumerate(routes):
        for party in (route.sender, route.receiver):
            if party == 6:
                closes[index] = retired[nodes[6, 0]] - HOUR
            if party == 7:
                opens[index] = begins[nodes[7, 0]] + 3 * SKEW
    return Network(
        tuple(names), parties, tuple(node_names), tuple(serves), nodes, offset, begins, ends,
        retired, away_from, away_until, tuple(routes), opens, closes,
    )  # fmt: skip


def most_parties() -> int:
    return _MOST


def _name(rank: int) -> str:
    plain = f"{_TREES[rank % len(_TREES)]}-{_TRADES[rank % len(_TRADES)]}"
    return f"{_TYPE}::{plain}" if rank % 4 == 2 else plain


def _offsets(rng: np.random.Generator, count: int) -> Ints:
    """Most clocks are right within a second, every fourth is off by minutes."""
    offset = rng.integers(-SECOND, SECOND, count)
    wrong = np.arange(count) % 4 == 3
    minutes = rng.integers(MINUTE, SKEW, count) * rng.choice((-1, 1), count)
    return np.where(wrong, minutes, offset)


def _routes(rng: np.random.Generator, names: list[str], parties: int) -> list[Route]:
    size = 1.0 / np.arange(1, parties + 1) ** 0.9
    pairs = {(int(rng.integers(max(1, one))), one) for one in range(1, parties)}
    pairs |= {(0, one) for one in range(1, min(parties, 8))}
    for _ in range(parties * 2):
        first, second = (int(x) for x in rng.choice(parties, 2, replace=False, p=size / size.sum()))
        pairs.add((min(first, second), max(first, second)))
    routes: list[Route] = []
    for index, (large, small) in enumerate(sorted(pairs)):
        service, request, answer = _SERVICES[index % len(_SERVICES)]
        manner = _TURNS[index % len(_TURNS)]
        protocol = _PROTOCOLS[index % len(_PROTOCOLS)]
        north, south = parties, parties + 1
        hubs: dict[str, tuple[int, ...]] = {
            "hub": (north, south)[index % 2 :][:1], "large": (north,), "hubs": (north, south)
        }  # fmt: skip
        ends = (large, small) if rng.random() < 0.5 else (small, large)
        weight = float(size[large] * size[small] * rng.lognormal(0, 0.5))
        given: dict[str, Any] = {"service": service, "protocol": protocol}
        given["mpc"] = (
            f"urn:mpc:{service.rpartition(':')[2]}" if manner == "pulled" else _DEFAULT_MPC
        )
        agreed = f"{_plain(names[ends[0]])}.{_plain(names[ends[1]])}"
        routes.append(
            Route(*ends, action=request, pmode=f"{agreed}.{request}", manner=manner,
                  hubs=hubs.get(manner, ()), reply=len(routes) + 1, weight=weight, **given)
        )  # fmt: skip
        routes.append(
            Route(*ends[::-1], action=answer, pmode=f"{agreed}.{answer}",
                  manner="direct", hubs=hubs.get(manner, ())[::-1],
                  reply=-1, weight=0.0, **given)
        )  # fmt: skip
    return _shared(routes)


def _shared(routes: list[Route]) -> list[Route]:
    """So that each manner has its share, whoever the parties are."""
    total = {
        manner: sum(route.weight for route in routes if route.manner == manner) or 1.0
        for manner in MANNERS
    }
    return [
        replace(route, weight=route.weight * SHARES[route.manner] / total[route.manner])
        for route in routes
    ]


def _plain(name: str) -> str:
    return name.rpartition("::")[2]


def acknowledges(route: Route) -> bool:
    """Whether its messages are answered by an acknowledgment, not a receipt."""
    return route.protocol in _ACKNOWLEDGING
