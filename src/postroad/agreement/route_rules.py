"""What rules for routing must keep to: one function a rule, all of them in `ROUTE_RULES`."""

from collections.abc import Callable, Hashable, Iterator
from typing import Final

from lxml import etree

from postroad.agreement.breach import Breach, warning
from postroad.agreement.parameters import Path
from postroad.agreement.routes import Destination, RoutesFile
from postroad.agreement.routing import (
    PREFIXES,
    Compiled,
    RoutingTable,
    compiled_xpath,
    covers,
    example,
    kind_name,
)
from postroad.wire.names import S12

_LOOKED_AT: Final = 100
"""How many earlier rules one is compared with: more than the index leaves of any sound file."""
_MOST_TRIED: Final = 100
"""Rules that only XPath tells apart are tried one after the other; so many are no matter."""
_SAMPLE: Final = etree.fromstring(
    f'<S12:Envelope xmlns:S12="{S12}"><S12:Header/><S12:Body/></S12:Envelope>'
)

RouteRule = Callable[[RoutesFile], Iterator[Breach]]


def _destinations(file: RoutesFile) -> Iterator[tuple[Path, Destination]]:
    for index, route in enumerate(file.routes):
        yield ("routes", index, "to"), route.to


def what_waits_is_stored(file: RoutesFile) -> Iterator[Breach]:
    """There is nobody to stream to who comes later."""
    for path, to in _destinations(file):
        if to.forward != "store" and to.channel is not None:
            said = f"messages in a channel wait, and {to.forward} keeps none"
            yield Breach((*path, "forward"), said, "remove it")


def each_rule_leads_somewhere(file: RoutesFile) -> Iterator[Breach]:
    """A rule says how its messages go on: by push or into a channel. [P2-2.5.3-01]"""
    for path, to in _destinations(file):
        if to.relay is not None:
            yield from _relaying(path, to)
            continue
        if to.push is not None and to.channel is not None:
            said = "messages cannot both be pushed and wait to be pulled"
            yield Breach((*path, "channel"), said, "keep push or channel")
        for key in ("retry", "tls"):
            if to.channel is not None and getattr(to, key) is not None:
                said = "it says how messages are pushed, and these are pulled"
                yield Breach((*path, key), said, "remove it")
        if not to.push and to.channel is None:
            yield Breach(path, "it leads nowhere", "add push: with the URL of the next MSH")


def only_sub_channels_have_a_parent(file: RoutesFile) -> Iterator[Breach]:
    for path, to in _destinations(file):
        if to.channel is not None and to.channel.parent is not None and not to.channel.extension:
            said = "messages wait in their own channel, which has no parent here"
            yield Breach((*path, "channel", "parent"), said, "remove it, or add extension")


def _relaying(path: Path, to: Destination) -> Iterator[Breach]:
    """PullRequests are passed on while who pulls waits, and once."""
    said = "relay is for PullRequests, which are answered at once"
    for key in ("push", "channel", "retry"):
        if getattr(to, key) is not None:
            yield Breach((*path, key), said, f"remove it, or give {key} a rule of its own")
    if to.forward != "store":
        yield Breach((*path, "forward"), said, "remove it")
    if not to.relay:
        yield Breach((*path, "relay"), "it leads nowhere", "write the URL of the next MSH")


def tls_is_for_https(file: RoutesFile) -> Iterator[Breach]:
    used = [(path, to.tls, to.push or to.relay or ()) for path, to in _destinations(file)]
    used += [(("pull", n), one.tls, (one.address,)) for n, one in enumerate(file.pull)]
    for path, tls, addresses in used:
        plain = [one for one in addresses if one.lower().startswith("http://")]
        if tls is not None and plain:
            said = f"{plain[0]} is no https:// address, so that TLS is not used"
            yield Breach((*path, "tls"), said, "write https://, or remove tls")


def each_channel_is_pulled_once(file: RoutesFile) -> Iterator[Breach]:
    seen: set[tuple[str, str]] = set()
    for index, one in enumerate(file.pull):
        if (one.address, one.mpc) in seen:
            yield Breach(("pull", index), "this channel is pulled already", "remove one of them")
        seen.add((one.address, one.mpc))


def parties_have_an_id_or_a_type(file: RoutesFile) -> Iterator[Breach]:
    for index, route in enumerate(file.routes):
        for name in ("from_party", "to_party"):
            for number, party in enumerate(getattr(route.match, name) or ()):
                if party.id is None and party.type is None:
                    path = ("routes", index, "match", name, number)
                    yield Breach(path, "it names no party", "write an id, or the type of ids")


def nothing_is_matched_with_no_value(file: RoutesFile) -> Iterator[Breach]:
    """An empty list matches nothing at all."""
    for index, route in enumerate(file.routes):
        for name in type(route.match).model_fields:
            value, path = getattr(route.match, name), ("routes", index, "match", name)
            empty: list[Path] = []
            if value == () and name in route.match.model_fields_set:
                empty.append(path)
            if isinstance(value, dict):
                empty += [(*path, key) for key, values in value.items() if not values]
            for place in empty:
                yield Breach(place, "the list is empty", "write a value, or remove the key")


def expressions_are_xpath(file: RoutesFile) -> Iterator[Breach]:
    prefixes = {**PREFIXES, **file.namespaces}
    for index, route in enumerate(file.routes):
        for number, expression in enumerate(route.match.xpath):
            try:
                compiled_xpath(expression, prefixes)(_SAMPLE)
            except etree.XPathError as wrong:
                known = ", ".join(sorted(prefixes))
                yield Breach(
                    ("routes", index, "match", "xpath", number),
                    f"{expression[:200]!r} is not XPath 1.0: {wrong}",
                    f"prefixes: {known}; others go to namespaces:",
                )


def rules_have_names_of_their_own(file: RoutesFile) -> Iterator[Breach]:
    seen: set[str] = set()
    for index, route in enumerate(file.routes):
        if route.id in seen:
            said = f"another rule is called {route.id!r} too"
            yield Breach(("routes", index, "id"), said, "give each its own id")
        seen.add(route.id)


def no_rule_is_in_vain(file: RoutesFile) -> Iterator[Breach]:
    """Two equal rules contradict each other; one that is covered by an earlier never matches."""
    try:
        table = RoutingTable(file.routes, file.namespaces)
    except etree.XPathError:
        return
    equal: dict[Hashable, Compiled] = {}
    for rule in table.rules:
        path = ("routes", rule.order, "match")
        if not all(rule.wanted.values()):
            continue
        key = (frozenset(rule.wanted.items()), frozenset(rule.xpaths))
        first = equal.setdefault(key, rule)
        if first is not rule:
            said = f"it matches the same messages as the rule {first.route.id!r}"
            yield Breach(path, said, "remove one of them, or say what tells them apart")
            continue
        earlier = [one for one in table.candidates(example(rule)) if one.order < rule.order]
        wider = next((one for one in earlier[:_LOOKED_AT] if covers(one, rule)), None)
        if wider is not None:
            said = f"it never matches: the earlier rule {wider.route.id!r} takes all its messages"
            yield warning(path, said, "move it before that one, or remove it")


def a_channel_alone_decides_for_one_destination(file: RoutesFile) -> Iterator[Breach]:
    """An MPC that alone decides is not shared by destinations. [P2-2.5.5-18]"""
    by_channel: dict[Hashable, list[int]] = {}
    alone: list[tuple[int, Hashable]] = []
    for index, route in enumerate(file.routes):
        for mpc in route.match.mpc or ():
            by_channel.setdefault(mpc.value, []).append(index)
            if route.match.model_fields_set == {"mpc"}:
                alone.append((index, mpc.value))
    for index, channel in alone:
        to = file.routes[index].to
        other = next((one for one in by_channel[channel] if file.routes[one].to != to), None)
        if other is not None:
            name = file.routes[other].id
            yield warning(
                ("routes", index, "match", "mpc"),
                f"{channel} alone decides here, and the rule {name!r} leads it elsewhere",
                "a PullRequest has nothing but its channel: give each destination its own",
            )


def few_rules_are_told_apart_by_xpath_alone(file: RoutesFile) -> Iterator[Breach]:
    bare = [
        index
        for index, route in enumerate(file.routes)
        if route.match.model_fields_set == {"xpath"} and route.match.xpath
    ]
    if len(bare) > _MOST_TRIED:
        said = f"{len(bare)} rules have nothing but xpath, and are tried one after the other"
        names = ", ".join(map(kind_name, ("to_party", "service", "action")))
        yield warning(("routes", bare[0], "match"), said, f"add what an index can use: {names}")


ROUTE_RULES: Final[tuple[RouteRule, ...]] = (
    what_waits_is_stored,
    each_rule_leads_somewhere,
    only_sub_channels_have_a_parent,
    tls_is_for_https,
    each_channel_is_pulled_once,
    parties_have_an_id_or_a_type,
    nothing_is_matched_with_no_value,
    expressions_are_xpath,
    rules_have_names_of_their_own,
    no_rule_is_in_vain,
    a_channel_alone_decides_for_one_destination,
    few_rules_are_told_apart_by_xpath_alone,
)
