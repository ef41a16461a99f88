"""The egress policy: which hosts and addresses this node may contact, and for what purpose.

The decision is pure. Names are resolved by `transport`, which asks `EgressPolicy.refusal` about
each resolved address and connects to exactly the address that was allowed, without resolving the
name again. So a name that resolves to something else a moment later (DNS rebinding) gains nothing.

An address that the operator wrote down (in a P-Mode, a routing rule or postroad.yaml) may be
anything but the node's own REST interface. An address that a message names is an attacker's choice
until shown otherwise: it is contacted only if it is public, or in a network that is configured.
"""

from collections.abc import Iterable
from enum import Enum
from fnmatch import fnmatchcase
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

IpAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Purpose(Enum):
    """Why an address is contacted, which says who chose it."""

    PARTNER = "partner"
    """Messages, signals and pulls to addresses of P-Modes and routing rules."""
    WEBHOOK = "webhook"
    CALLBACK = "callback"
    """Answers to an address that only a message names."""
    REVOCATION = "revocation"
    """Revocation lists and OCSP responders that a certificate names."""
    DISCOVERY = "discovery"
    """Services that look up partners."""


NAMED_BY_OTHERS: Final = frozenset((Purpose.CALLBACK, Purpose.REVOCATION, Purpose.DISCOVERY))
"""The purposes whose addresses the operator did not choose: public addresses only, by default."""

_SPECIAL_IPV4: Final = (
    ("unspecified", "0.0.0.0/8"),
    ("private", "10.0.0.0/8"),
    ("shared", "100.64.0.0/10"),
    ("loopback", "127.0.0.0/8"),
    ("link-local", "169.254.0.0/16"),
    ("private", "172.16.0.0/12"),
    ("reserved", "192.0.0.0/24"),
    ("documentation", "192.0.2.0/24"),
    ("reserved", "192.88.99.0/24"),
    ("private", "192.168.0.0/16"),
    ("benchmarking", "198.18.0.0/15"),
    ("documentation", "198.51.100.0/24"),
    ("documentation", "203.0.113.0/24"),
    ("multicast", "224.0.0.0/4"),
    ("reserved", "240.0.0.0/4"),
)
_SPECIAL_IPV6: Final = (
    ("unspecified", "::/128"),
    ("loopback", "::1/128"),
    ("reserved", "2001::/23"),
    ("documentation", "2001:db8::/32"),
    ("reserved", "2002::/16"),
    ("documentation", "3fff::/20"),
    ("private", "fc00::/7"),
    ("link-local", "fe80::/10"),
    ("private", "fec0::/10"),
    ("multicast", "ff00::/8"),
)
"""The registries of special-purpose addresses (RFC 6890 and later); 2001::/23 includes Teredo."""
_RANGES: Final[tuple[tuple[str, Network], ...]] = tuple(
    (name, ip_network(text)) for name, text in (*_SPECIAL_IPV4, *_SPECIAL_IPV6)
)
_GLOBAL_IPV6: Final = IPv6Network("2000::/3")
"""All that is assigned for use on the Internet."""
_WITH_IPV4: Final = (IPv6Network("::/96"), IPv6Network("64:ff9b::/96"))
"""IPv4-compatible addresses and those of NAT64: the last four octets are the IPv4 address."""
PUBLIC: Final = "public"


class Listener(Struct, frozen=True):
    """A listener of this node: an address that it is bound to, or a name by which it is reached."""

    host: str
    port: int
    endpoints: tuple[str, ...] = ()
    """The paths of the protocol endpoint there."""
    api: bool = False
    """Whether it serves the REST interface."""


class Target(Struct, frozen=True):
    """Where a connection is about to go: a resolved address, and what it was resolved from."""

    host: str
    address: str
    port: int
    path: str = "/"
    """The path of the request, without percent-encoding."""
    local: bool = False
    """Whether the address is one of this machine."""


class EgressPolicy(Struct, frozen=True):
    """What the configuration allows, and the listeners that must not be contacted."""

    denied: tuple[Network, ...] = ()
    """Never contacted, whatever the purpose."""
    callback_hosts: tuple[str, ...] = ()
    """Patterns of hosts that callbacks may go to, beside those that an agreement names."""
    callback_networks: tuple[Network, ...] = ()
    """Networks that are not public, to which callbacks may go all the same."""
    partner_networks: tuple[Network, ...] | None = None
    """The only networks in which partners are contacted; None: any."""
    webhook_networks: tuple[Network, ...] | None = None
    """The only networks in which the webhook is called; None: any."""
    revocation_networks: tuple[Network, ...] = ()
    """Networks that are not public, in which revocation lists and OCSP responders may be."""
    listeners: tuple[Listener, ...] = ()

    def refusal(self, purpose: Purpose, target: Target) -> str | None:
        """Say why a target must not be contacted; None if it may be."""
        address = unwrapped(target.address)
        given = f"{target.address}" + (f" ({target.host})" if target.host != target.address else "")
        if _is_in(address, self.denied):
            return f"{given} is in a network that security.egress.deny lists. Remove it there."
        own = self._own(target, address)
        if own is not None and purpose in NAMED_BY_OTHERS:
            return f"{given} port {target.port} is a listener of this node itself."
        if own is not None and own.api and target.path not in own.endpoints:
            return (
                f"{given} port {target.port} is the REST interface of this node itself. "
                "Write the address of the partner or application."
            )
        if purpose in NAMED_BY_OTHERS:
            return self._beyond(purpose, address, given)
        allowed = {
            Purpose.PARTNER: self.partner_networks,
            Purpose.WEBHOOK: self.webhook_networks,
        }.get(purpose)
        if allowed is not None and not _is_in(address, allowed):
            name = f"security.egress.{purpose.value}_networks"
            return f"{given} is outside of {name}. Add its network there to allow it."
        return None

    def _beyond(self, purpose: Purpose, address: IpAddress, given: str) -> str | None:
        """Why an address that others chose is not contacted: it is not public."""
        kind = range_of(address)
        if kind == PUBLIC:
            return None
        allowed = {
            Purpose.CALLBACK: self.callback_networks,
            Purpose.REVOCATION: self.revocation_networks,
        }.get(purpose)
        if allowed is not None and _is_in(address, allowed):
            return None
        advice = ""
        if allowed is not None:
            setting = f"security.egress.{purpose.value}_networks"
            advice = f" Add its network to {setting} to allow it."
        return f"{given} is a {kind} address, not a public one.{advice}"

    def _own(self, target: Target, address: IpAddress) -> Listener | None:
        """The listener of this node that a connection would reach, if any."""
        for one in self.listeners:
            if one.port == target.port and _reaches(one, target, address):
                return one
        return None

    def has_port(self, port: int) -> bool:
        """Whether a listener of this node has the port: then the path of a request matters."""
        return any(one.port == port for one in self.listeners)

    def may_call_back(self, url: str, agreed: Iterable[str]) -> bool:
        """Whether the host of an address in a message is named by the agreement, or configured."""
        host = host_of(url)
        if not host:
            return False
        if host in {host_of(one) for one in agreed}:
            return True
        return any(fnmatchcase(host, one.lower().rstrip(".")) for one in self.callback_hosts)


def _reaches(listener: Listener, target: Target, address: IpAddress) -> bool:
    if listener.host == _normal(target.host):
        return True
    try:
        bound = unwrapped(listener.host)
    except ValueError:
        return False
    if address == bound:
        return True
    here = target.local or address.is_loopback
    if bound.is_unspecified:
        return here or address.is_unspecified
    # Whoever connects to the unspecified address reaches this machine.
    return address.is_unspecified and bound.is_loopback


def unwrapped(text: str) -> IpAddress:
    """Parse an address; an IPv4 address that is mapped into IPv6 is the IPv4 address."""
    address = ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def range_of(address: IpAddress) -> str:
    """Name the special range that an address is in, or `public`."""
    for name, network in _RANGES:
        if address.version == network.version and address in network:
            return name
    if isinstance(address, IPv4Address):
        return PUBLIC
    if any(address in network for network in _WITH_IPV4):
        return range_of(IPv4Address(int(address) & 0xFFFFFFFF))
    return PUBLIC if address in _GLOBAL_IPV6 else "reserved"


def _is_in(address: IpAddress, networks: Iterable[Network]) -> bool:
    return any(address.version == one.version and address in one for one in networks)


def host_of(url: str) -> str:
    """The host of a URL or mail address, in the form in which hosts are compared; empty: none."""
    try:
        parts = urlsplit(url)
        named = parts.hostname
    except ValueError:
        return ""
    if parts.scheme == "mailto":
        named = parts.path.rpartition("@")[2]
    return _normal(named or "")


def same_address(one: str, other: str) -> bool:
    """Whether two URLs name the same address."""
    found = _parts(one)
    return one == other or (found is not None and found == _parts(other))


def _parts(url: str) -> tuple[object, ...] | None:
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    if parts.scheme == "mailto":
        mailbox, _, host = parts.path.rpartition("@")
        return parts.scheme, mailbox, _normal(host), parts.query
    if parts.username is not None or parts.hostname is None:
        return None
    path = unquote(parts.path) or "/"
    return parts.scheme, _normal(parts.hostname), port, path, parts.query


def _normal(host: str) -> str:
    """A host in lower case, without the dot at its end, and in ASCII."""
    try:
        host = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return ""
    return host.lower().rstrip(".")
