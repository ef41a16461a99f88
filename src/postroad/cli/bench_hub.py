"""The hub benchmark: what an intermediary adds, beside what it cannot do without.

`rules`: the routing function over ten thousand rules, against ten.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from time import perf_counter
from typing import Final

from postroad.agreement.routes import Route
from postroad.agreement.routing import RoutingSource, RoutingTable
from postroad.cli.bench_wire import Measure
from postroad.wire.ebms3 import (
    CollaborationInfo,
    MessageInfo,
    Party,
    PartyId,
    Service,
    UserMessage,
)
from postroad.wire.multihop import routing_user_message

MEASURES: Final = ("rules",)
GOALS: Final = {"rules": 0.8}
_FEW: Final = 10
_TURNS: Final = 200
_AT_ONCE: Final = 200


def hub_measures(*, wanted: Collection[str], rules: int) -> dict[str, Measure]:
    """Each with its floor."""
    found: dict[str, Measure] = {}
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
