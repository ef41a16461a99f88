"""The routing function: which rule a message matches, found by index and not rule by rule.

Each rule is compiled once into criteria: a kind (such as `to_party`) and the values that are taken
for it. Rules with the same kinds of criteria make a shape. A shape is a tree of dicts, one level a
kind, so that a message finds its rules by looking up its own values: what that costs depends on how
many shapes there are, not on how many rules. XPath is tried last, on those that are left.

File order decides: the first rule that matches. [P2-2.5.5-01]
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, product
from typing import Any, Final

from lxml import etree
from msgspec import Struct

from postroad.agreement.routes import Criteria, MatchedMpc, MatchedParty, Route
from postroad.wire import names
from postroad.wire.ebms3 import Party, Property, PullRequest
from postroad.wire.multihop import RoutingUserMessage

PREFIXES: Final = {
    "S11": names.S11,
    "S12": names.S12,
    "eb": names.EB3,
    "eb3": names.EB3,
    "ebint": names.EBINT,
    "wsa": names.WSA,
    "wsse": names.WSSE,
    "wsu": names.WSU,
    "ds": names.DS,
    "wsrm": names.WSRM,
    "wsmc": names.WSMC,
    "wst": names.WST,
}
"""What an expression may name without declaring it."""
_MOST_COMBINATIONS: Final = 256
"""How often one rule stands in its tree; criteria beyond that are compared instead."""
_MOST_SEGMENTS: Final = 64
_NEAREST: Final = 5

Kind = str | tuple[str, str]
"""A criterion's name; for properties with the property's own name."""
Given = Mapping[Kind, frozenset[Hashable]]


class RoutingSource(Struct, frozen=True):
    """What a message is routed by: its routing input, and the envelope for XPath."""

    input: RoutingUserMessage | PullRequest
    envelope: etree._Element | None = None


class Difference(Struct, frozen=True):
    """A criterion that a message does not meet."""

    criterion: str
    wanted: str
    given: str | None

    def __str__(self) -> str:
        return f"{self.criterion} is {self.given or 'absent'}, not {self.wanted}"


class Near(Struct, frozen=True):
    """A rule that did not decide: what differs, or nothing where an earlier rule was taken."""

    route: Route
    differences: tuple[Difference, ...] = ()


class Explanation(Struct, frozen=True):
    """Which rule a message matches, why, and which others nearly do."""

    route: Route | None
    because: tuple[tuple[str, str], ...] = ()
    """Criterion and value, of all that the rule asks for."""
    also: tuple[Route, ...] = ()
    """Rules that match too and stand later."""
    nearest: tuple[Near, ...] = ()


class _Below(Struct, frozen=True):
    """As a value: this channel, and all that are below it."""

    channel: str

    def __str__(self) -> str:
        return f"{self.channel} or below it"


class _OfType(Struct, frozen=True):
    """As a value: any party whose id is of this type."""

    type: str | None

    def __str__(self) -> str:
        return f"any {self.type or 'untyped'} id"


class _Typed(Struct, frozen=True):
    """As a value: a name, and the type that says how to read it."""

    value: str
    type: str | None

    def __str__(self) -> str:
        return f"{self.type}::{self.value}" if self.type else self.value


class Compiled(Struct, frozen=True):
    """A rule ready for matching."""

    order: int
    route: Route
    wanted: Mapping[Kind, frozenset[Hashable]]
    xpaths: tuple[str, ...] = ()
    compared: tuple[Kind, ...] = ()
    """The kinds that the index leaves to be looked at."""


def wanted(match: Criteria) -> dict[Kind, frozenset[Hashable]]:
    """The criteria of a rule but XPath: for each kind the values of which one is needed."""
    found: dict[Kind, Iterable[Hashable] | None] = {
        "mpc": None if match.mpc is None else map(_wanted_mpc, match.mpc),
        "from_party": None if match.from_party is None else map(_wanted_party, match.from_party),
        "from_role": match.from_role,
        "to_party": None if match.to_party is None else map(_wanted_party, match.to_party),
        "to_role": match.to_role,
        "service": match.service and (_Typed(one.value, one.type) for one in match.service),
        "action": match.action,
        "agreement": match.agreement and (_Typed(one.value, one.type) for one in match.agreement),
        "pmode": match.pmode,
        "conversation_id": match.conversation_id,
        "body": match.body,
    }
    for group in ("properties", "part_properties"):
        for name, values in getattr(match, group).items():
            found[(group, name)] = values
    return {kind: frozenset(values) for kind, values in found.items() if values is not None}


def _wanted_mpc(mpc: MatchedMpc) -> Hashable:
    return _Below(mpc.value.rstrip("/")) if mpc.below else mpc.value


def _wanted_party(party: MatchedParty) -> Hashable:
    return _OfType(party.type) if party.id is None else _Typed(party.id, party.type)


def given(source: RoutingSource) -> Given:
    """All that a message has, by kind. Of a PullRequest that is its channel. [P2-2.5.5-14]"""
    found: dict[Kind, frozenset[Hashable]] = {
        "mpc": frozenset(_given_mpc(source.input.effective_mpc))
    }
    if source.envelope is not None:
        found["body"] = frozenset(_body(source.envelope))
    message = source.input
    if isinstance(message, PullRequest):
        return found
    info = message.collaboration_info
    found["from_party"] = frozenset(_given_party(message.from_party))
    found["from_role"] = frozenset((message.from_party.role,))
    found["to_party"] = frozenset(_given_party(message.to_party))
    found["to_role"] = frozenset((message.to_party.role,))
    found["service"] = frozenset((_Typed(info.service.value, info.service.type),))
    found["action"] = frozenset((info.action,))
    found["conversation_id"] = frozenset((info.conversation_id,))
    if info.agreement_ref is not None:
        found["agreement"] = frozenset((_Typed(info.agreement_ref.value, info.agreement_ref.type),))
        found["pmode"] = frozenset(filter(None, (info.agreement_ref.pmode,)))
    found.update(_given_properties("properties", message.properties))
    parts = (one for part in message.part_infos for one in part.properties)
    found.update(_given_properties("part_properties", parts))
    return found


def _given_mpc(mpc: str) -> Iterator[Hashable]:
    """A channel, and all of which it is part. [P2-2.5.4-05] [P2-2.5.4-06]"""
    yield mpc
    yield _Below(mpc.rstrip("/"))
    if "?" in mpc or "#" in mpc:
        return
    start = mpc.find("://")
    path = mpc.find("/", start + 3 if start >= 0 else 0)
    ends = (end for end in range(max(path, 0), len(mpc)) if mpc[end] == "/")
    for end in islice(ends, _MOST_SEGMENTS):
        yield _Below(mpc[:end])


def _given_party(party: Party) -> Iterator[Hashable]:
    for one in party.party_ids:
        yield _Typed(one.value, one.type)
        yield _OfType(one.type)


def _given_properties(
    group: str, properties: Iterable[Property]
) -> dict[Kind, frozenset[Hashable]]:
    found: dict[Kind, frozenset[Hashable]] = {}
    for one in properties:
        kind = (group, one.name)
        found[kind] = found.get(kind, frozenset()) | {one.value}
    return found


def _body(envelope: etree._Element) -> Iterator[str]:
    """Names of the elements in the Body, with and without their namespace."""
    for version in (names.S12, names.S11):
        body = envelope.find(f"{{{version}}}Body")
        for child in () if body is None else islice(body.iterchildren("*"), _MOST_SEGMENTS):
            yield str(child.tag)
            yield etree.QName(child).localname


class _Shape:
    """Rules that ask for the same kinds of things: a tree of dicts, a level for each kind."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.kinds = kinds
        self._every: list[Compiled] = []
        """The rules, where they ask for nothing."""
        self._root: dict[Hashable, Any] = {}

    def add(self, rule: Compiled) -> None:
        if not self.kinds:
            self._every.append(rule)
            return
        for *values, last in product(*(rule.wanted[kind] for kind in self.kinds)):
            place = self._root
            for value in values:
                place = place.setdefault(value, {})
            place.setdefault(last, []).append(rule)

    def find(self, given: Given) -> Iterable[Compiled]:
        if not self.kinds:
            return self._every
        places: list[Any] = [self._root]
        for kind in self.kinds:
            values = given.get(kind, ())
            places = [place[value] for place in places for value in values if value in place]
            if not places:
                return ()
        # The last level holds lists of rules.
        return places[0] if len(places) == 1 else chain.from_iterable(places)


class RoutingTable:
    """Rules compiled for matching."""

    def __init__(
        self, routes: Sequence[Route] = (), namespaces: Mapping[str, str] | None = None
    ) -> None:
        self.rules: tuple[Compiled, ...] = tuple(
            _compiled(order, route) for order, route in enumerate(routes)
        )
        self._by_id = {rule.route.id: rule.route for rule in self.rules}
        prefixes = {**PREFIXES, **(namespaces or {})}
        said = dict.fromkeys(one for rule in self.rules for one in rule.xpaths)
        self._xpaths: dict[str, etree.XPath] = {one: compiled_xpath(one, prefixes) for one in said}
        self._shapes: dict[tuple[Kind, ...], _Shape] = {}
        self._by_property: dict[Kind, list[_Shape]] = {}
        """Shapes that need a property are looked at only for messages that have it."""
        self._always: list[_Shape] = []
        for rule in self.rules:
            self._shape_of(rule).add(rule)

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, route_id: str) -> Route:
        """A rule by its name."""
        return self._by_id[route_id]

    def __contains__(self, route_id: str) -> bool:
        return route_id in self._by_id

    def _shape_of(self, rule: Compiled) -> _Shape:
        kinds = tuple(kind for kind in sorted(rule.wanted, key=str) if kind not in rule.compared)
        shape = self._shapes.get(kinds)
        if shape is None:
            shape = self._shapes[kinds] = _Shape(kinds)
            needs = next((kind for kind in kinds if isinstance(kind, tuple)), None)
            if needs is None:
                self._always.append(shape)
            else:
                self._by_property.setdefault(needs, []).append(shape)
        return shape

    def candidates(self, given: Given) -> list[Compiled]:
        """The rules that the index leaves, in order: few, however many there are."""
        found: dict[int, Compiled] = {}
        for shape in self._always:
            for rule in shape.find(given):
                found[rule.order] = rule
        if self._by_property:
            for kind in given:
                for shape in self._by_property.get(kind, ()):
                    for rule in shape.find(given):
                        found[rule.order] = rule
        return [found[order] for order in sorted(found)] if len(found) > 1 else [*found.values()]

    def route(self, source: RoutingSource) -> Route | None:
        """The first rule that a message matches; None: EBMS:0020."""
        has = given(source)
        for rule in self.candidates(has):
            if _meets(rule, has) and self._holds(rule, source):
                return rule.route
        return None

    def _holds(self, rule: Compiled, source: RoutingSource) -> bool:
        """Whether its expressions are true of the envelope."""
        if not rule.xpaths:
            return True
        return all(self._is_true(one, source) for one in rule.xpaths)

    def _is_true(self, expression: str, source: RoutingSource) -> bool:
        if source.envelope is None:
            return False
        try:
            return bool(self._xpaths[expression](source.envelope))
        except etree.XPathError:
            # It was tried when the file was read, but not on every kind of envelope.
            return False

    def explain(self, source: RoutingSource) -> Explanation:
        """Which rule decides and why; every rule is looked at, so this is for people."""
        has = given(source)
        near = [
            Near(rule.route, tuple(self._differences(rule, has, source))) for rule in self.rules
        ]
        matching = [one.route for one in near if not one.differences]
        others = sorted(
            (one for one in near if one.differences), key=lambda one: len(one.differences)
        )
        if not matching:
            return Explanation(None, nearest=tuple(others[:_NEAREST]))
        decides = matching[0]
        because = [
            (kind_name(kind), _told(values & has[kind]))
            for kind, values in wanted(decides.match).items()
        ]
        because += [("xpath", expression) for expression in decides.match.xpath]
        return Explanation(decides, tuple(because), tuple(matching[1:]), tuple(others[:_NEAREST]))

    def _differences(
        self, rule: Compiled, has: Given, source: RoutingSource
    ) -> Iterator[Difference]:
        for kind, values in rule.wanted.items():
            found = has.get(kind, frozenset())
            if values.isdisjoint(found):
                yield Difference(kind_name(kind), _told(values), _told(_plain(found)) or None)
        for one in rule.xpaths:
            if not self._is_true(one, source):
                yield Difference("xpath", f"true: {one}", "false")


def compiled_xpath(expression: str, prefixes: Mapping[str, str]) -> etree.XPath:
    """An expression that gives true or false; `etree.XPathError` when it cannot be one."""
    etree.XPath(expression, namespaces=dict(prefixes), regexp=False)
    return etree.XPath(
        f"boolean({expression})", namespaces=dict(prefixes), regexp=False, smart_strings=False
    )


def kind_name(kind: Kind) -> str:
    """A criterion as the file spells it."""
    return kind if isinstance(kind, str) else f"{kind[0]}.{kind[1]}"


def covers(first: Compiled, second: Compiled) -> bool:
    """Whether all that matches the second rule matches the first one too."""
    if not set(first.xpaths) <= set(second.xpaths):
        return False
    return all(
        kind in second.wanted and all(_includes(values, one) for one in second.wanted[kind])
        for kind, values in first.wanted.items()
    )


def _includes(values: frozenset[Hashable], value: Hashable) -> bool:
    return not values.isdisjoint(wider(value))


def wider(value: Hashable) -> frozenset[Hashable]:
    """All values of a criterion that take whatever this one takes."""
    if isinstance(value, _Typed):
        return frozenset((value, _OfType(value.type)))
    if isinstance(value, _Below):
        return frozenset(one for one in _given_mpc(value.channel) if isinstance(one, _Below))
    if not isinstance(value, str):
        return frozenset((value,))
    # An element with its namespace is also one of that name; of channels one lies in another.
    return frozenset((*_given_mpc(value), value.rpartition("}")[2]))


def example(rule: Compiled) -> Given:
    """What a message has that the rule's criteria take, XPath aside."""
    return {kind: wider(min(values, key=str)) for kind, values in rule.wanted.items()}


def _compiled(order: int, route: Route) -> Compiled:
    """A rule, found by so many kinds that it does not stand in too many places."""
    asked = wanted(route.match)
    compared: list[Kind] = []
    places = 1
    for kind in sorted(asked, key=lambda kind: (len(asked[kind]), str(kind))):
        places *= len(asked[kind])
        if places > _MOST_COMBINATIONS:
            compared.append(kind)
    return Compiled(order, route, asked, route.match.xpath, tuple(compared))


def _meets(rule: Compiled, has: Given) -> bool:
    return all(not rule.wanted[kind].isdisjoint(has.get(kind, ())) for kind in rule.compared)


def _plain(values: Iterable[Hashable]) -> list[Hashable]:
    """What a message itself says, without what follows from it."""
    return [one for one in values if not isinstance(one, _Below | _OfType)]


def _told(values: Iterable[Hashable]) -> str:
    said = sorted(map(str, values))
    more = f" and {len(said) - 5} more" if len(said) > 5 else ""
    return " or ".join(said[:5]) + more
