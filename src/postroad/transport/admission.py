"""Admission of connections: how many are open at once, in all and from one address.

The HTTP server and the SMTP server use it alike. A connection either waits for its client (for a
TLS handshake, the head of a request, the next request) or works on a request. When a limit is
reached, the connection that has waited longest is closed to make room for the newcomer: of the same
address where the limit of that address is reached, of all otherwise. Where none waits, the newcomer
is admitted to a small reserve in which only health checks are served, or else refused.

Limits count in one process and for one listener.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, Literal

Network = IPv4Network | IPv6Network
Scope = Literal["address", "total"]
"""Which limit was reached."""

_REMEMBERED: Final = 4096
"""Addresses whose network need not be looked up again."""
LOOPBACK: Final[tuple[Network, ...]] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@dataclass(frozen=True, slots=True)
class AddressRules:
    """How clients are told apart by their address."""

    exempt: tuple[Network, ...] = LOOPBACK
    """Networks in which one address may stand for many clients, such as that of a proxy."""
    ipv6_prefix: int = 64
    """IPv6 addresses with these leading bits in common count as one."""


DEFAULT_RULES: Final = AddressRules()


def counted_address(host: str, rules: AddressRules = DEFAULT_RULES) -> str | None:
    """Return the address, or the IPv6 network, that a client is counted by; None if exempt."""
    try:
        # A link-local address carries the name of its interface.
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in network for network in rules.exempt):
        return None
    if address.version == 4:
        return str(address)
    return str(ip_network((address, rules.ipv6_prefix), strict=False))


class _Group:
    """The connections that one limit applies to."""

    __slots__ = ("limit", "reserve", "reserve_size", "reserve_waiting", "scope", "size", "waiting")

    def __init__(self, scope: Scope, limit: int, reserve: int) -> None:
        self.scope: Scope = scope
        self.limit = limit
        self.reserve = reserve
        self.size = 0
        self.reserve_size = 0
        self.waiting: OrderedDict[Slot, None] = OrderedDict()
        """Connections that may be closed, the one that has waited longest first."""
        self.reserve_waiting: OrderedDict[Slot, None] = OrderedDict()


class Slot:
    """The place of one connection among those that are open."""

    __slots__ = ("_admission", "_groups", "_is_waiting", "address", "close", "restricted")

    def __init__(
        self,
        admission: "Admission",
        address: str | None,
        groups: tuple[_Group, ...],
        close: Callable[[Scope], None],
        *,
        restricted: bool,
    ) -> None:
        self._admission = admission
        self._groups = groups
        self._is_waiting = False
        self.address = address
        """What the client is counted by; None if it is exempt."""
        self.close = close
        """Called with the limit that was reached to end the connection; it has left by then."""
        self.restricted = restricted
        """Whether the connection is in the reserve, for health checks only."""

    @property
    def is_waiting(self) -> bool:
        return self._is_waiting

    def wait(self) -> None:
        """Note that the connection waits for its client from now on."""
        if not self._is_waiting:
            self._is_waiting = True
            for group in self._groups:
                (group.reserve_waiting if self.restricted else group.waiting)[self] = None

    def work(self) -> None:
        """Note that a request is in progress: the connection is not closed to make room."""
        if self._is_waiting:
            self._is_waiting = False
            for group in self._groups:
                del (group.reserve_waiting if self.restricted else group.waiting)[self]

    def leave(self) -> None:
        """Give the place back; a second time it does nothing."""
        self.work()
        groups, self._groups = self._groups, ()
        for group in groups:
            if self.restricted:
                group.reserve_size -= 1
            else:
                group.size -= 1
        if groups:
            self._admission.forget(self.address)


class Admission:
    """Who is connected to one listener, and who else may be."""

    def __init__(
        self,
        limit: int,
        per_address: int,
        *,
        reserve: int = 0,
        rules: AddressRules = DEFAULT_RULES,
    ) -> None:
        self._all = _Group("total", limit, reserve)
        self._per_address = per_address
        self._reserve_per_address = -(-reserve // 8)
        self._counted_address = lru_cache(_REMEMBERED)(partial(counted_address, rules=rules))
        self._by_address: dict[str, _Group] = {}

    def admit(
        self, host: str | None, close: Callable[[Scope], None], refused: Callable[[Scope], None]
    ) -> Slot | None:
        """Give a newcomer a place, in which it waits; None if there is none even in the reserve.

        `refused` is called with the limit that leaves no place outside of the reserve.
        """
        address = self._counted_address(host) if host is not None else None
        groups: tuple[_Group, ...] = (self._all,)
        if address is not None:
            group = self._by_address.get(address)
            if group is None:
                group = _Group("address", self._per_address, self._reserve_per_address)
                self._by_address[address] = group
            groups = (group, self._all)
        restricted = False
        for group in groups:
            if group.size < group.limit:
                continue
            if group.waiting:
                _evict(group.waiting, group.scope)
                continue
            restricted = True
            refused(group.scope)
            if group.reserve_size < group.reserve:
                continue
            if not group.reserve_waiting:
                self.forget(address)
                return None
            _evict(group.reserve_waiting, group.scope)
        slot = Slot(self, address, groups, close, restricted=restricted)
        for group in groups:
            if restricted:
                group.reserve_size += 1
            else:
                group.size += 1
        if address is not None:
            # The eviction of the last connection of this address has made it unknown.
            self._by_address[address] = groups[0]
        slot.wait()
        return slot

    def forget(self, address: str | None) -> None:
        """Drop what is known of an address from which nothing is open any more."""
        group = self._by_address.get(address) if address is not None else None
        if group is not None and not group.size and not group.reserve_size:
            del self._by_address[str(address)]


def _evict(waiting: OrderedDict[Slot, None], scope: Scope) -> None:
    slot = next(iter(waiting))
    slot.leave()
    slot.close(scope)
