"""Where the egress policy meets the network: resolve once, check every address, pin the result."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from postroad.security.egress import EgressPolicy, Purpose, Target
from postroad.transport.http_outgoing import TransportFailure

Policy = Callable[[], EgressPolicy]
"""The policy in force; it learns the listeners of the node when they are open."""
_ANY_PORT: Final = 9


class Destination(Struct, frozen=True):
    """What a connection is wanted for."""

    host: str
    port: int
    purpose: Purpose = Purpose.PARTNER
    path: str = "/"


async def resolve(destination: Destination, policy: Policy | None = None) -> list[str]:
    """Return the addresses of a host that may be contacted, which the caller connects to as is.

    Raise `TransportFailure` where the host is unknown, and where the policy allows none of them.
    """
    loop = asyncio.get_running_loop()
    host, port = destination.host, destination.port
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or error
        raise TransportFailure(
            "dns", f"the host {host} is not known: {said}", transmitted=False
        ) from None
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    if policy is None:
        return addresses
    in_force = policy()
    allowed: list[str] = []
    refused: list[str] = []
    for one in addresses:
        target = Target(host, one, port, destination.path, is_local(one))
        why = in_force.refusal(destination.purpose, target)
        if why is None:
            allowed.append(one)
        else:
            refused.append(why)
    if not allowed:
        said = f"{destination.purpose.value} refused by the egress policy: {refused[0]}"
        raise TransportFailure("egress", said, transmitted=False)
    return allowed


def is_local(address: str) -> bool:
    """Whether an IP address is one of this machine: packets to it would come from itself.

    Connecting a datagram socket sends nothing; it only selects the source address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _ANY_PORT))
            return str(probe.getsockname()[0]) == address.partition("%")[0]
    except OSError:
        return False
