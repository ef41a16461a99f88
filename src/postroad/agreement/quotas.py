"""How much may wait at an intermediary, and in whose name.

Who shows a certificate in the TLS handshake is that sender, whatever parties it speaks for. All
others are strangers: From can say anything, so it counts together with the address that it came
from, the address with all that came from it, and strangers together have their own share. So nobody
uses up the room of somebody else, and strangers do not use up that of those who are known.
"""

import hashlib
from collections.abc import Collection
from ipaddress import IPv6Address, ip_address

from msgspec import Struct

from postroad.agreement.groups import Group, parameter
from postroad.agreement.values import Size
from postroad.wire.limits import GIB


class Allowance(Group):
    """How much may wait."""

    messages: int | None = parameter("messages", "Messages; unset: any number.", ge=0)
    bytes: Size | None = parameter("bytes", "Their size; unset: any.", ge=0)

    def holds(self, messages: int, size: int) -> bool:
        """Whether so much may wait."""
        many = self.messages is not None and messages > self.messages
        return not many and (self.bytes is None or size <= self.bytes)


class Quotas(Group):
    """How much may wait at this node to be passed on, by who brought it.

    Strangers have a share unless the file says otherwise: anybody can be one.
    """

    sender: Allowance | None = parameter(
        "sender", "Of each sender: who shows a certificate, else From at an address."
    )
    address: Allowance | None = parameter(
        "address",
        "Of each address, for all that come from it without a certificate.",
        Allowance(messages=10_000, bytes=4 * GIB),
    )
    strangers: Allowance | None = parameter(
        "strangers",
        "Of all together who show no certificate.",
        Allowance(messages=50_000, bytes=16 * GIB),
    )
    keep_passed: bool = parameter(
        "keep_passed",
        "Whether the contents of messages that came without a certificate stay after they were "
        "passed on or given up, until retention removes them.",
        False,
    )

    def drops(self, accounts: Collection[str]) -> bool:
        """Whether the contents of a message are dropped once it was passed on or given up."""
        return not self.keep_passed and STRANGERS.name in accounts


class Account(Struct, frozen=True):
    """Under what name a message counts as long as it waits."""

    kind: str
    """sender, address or strangers"""
    said: str
    """For people."""

    @property
    def name(self) -> str:
        """For the store: short, whatever a message says."""
        return hashlib.sha256(f"{self.kind} {self.said}".encode()).hexdigest()[:32]

    def allowance(self, quotas: Quotas) -> Allowance | None:
        found: Allowance | None = getattr(quotas, self.kind)
        return found


STRANGERS = Account("strangers", "all who show no certificate")


def accounts_of(party: str, peer: str | None, certificate: bytes | None) -> tuple[Account, ...]:
    """In whose names a message counts."""
    if certificate is not None:
        digest = hashlib.sha256(certificate).hexdigest()
        return (Account("sender", f"the certificate {digest}"),)
    place = network_of(peer or "")
    return Account("sender", f"{party} at {place}"), Account("address", place), STRANGERS


def network_of(peer: str) -> str:
    """Who has one address of IPv6 has the 2^64 beside it, too."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer or "an unknown address"
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
