"""What a peer may cost a server in time, bytes and connections."""

from dataclasses import dataclass

from postroad.transport.admission import DEFAULT_RULES, AddressRules
from postroad.wire.limits import KIB


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds on what clients do; beyond one of them that client's connection is closed."""

    header_seconds: float = 20
    """For the whole head of a request, from its first byte or from the connection's beginning."""
    body_seconds: float = 60
    """Without a byte of the body, while one is asked for."""
    min_rate: int = KIB
    """Bytes a second at which a body comes, on average over any `body_seconds`, and at which a
    response is read, on average over any `write_seconds`; 0 means one byte in that time."""
    write_seconds: float = 60
    """Without reading what `min_rate` gives in this time."""
    idle_seconds: float = 75
    """Between two requests of a connection."""
    linger_seconds: float = 5
    """How long what still comes is thrown away after an early answer, so that it can be read."""
    header_bytes: int = 64 * KIB
    connections: int = 2000
    """In all. A newcomer beyond it takes the place of who has waited longest for its client."""
    connections_per_address: int = 256
    """From one address; the same rule."""
    health_connections: int = 32
    """Beyond `connections`, for health checks alone; an eighth of them beyond those of an address,
    for health checks from there."""
    address_rules: AddressRules = DEFAULT_RULES
    requests_per_connection: int | None = None
