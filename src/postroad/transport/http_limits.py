"""What a peer may cost a server in time, bytes and connections."""

from dataclasses import dataclass

from postroad.wire.limits import KIB


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds on what clients do; beyond one of them that client's connection is closed."""

    header_seconds: float = 20
    """For the whole head of a request, from its first byte or from the connection's beginning."""
    body_seconds: float = 60
    """Without a byte of the body, while one is asked for."""
    least_rate: int = KIB
    """Bytes a second that a body comes in, and an answer is taken, on average."""
    rate_grace_seconds: float = 20
    """How long a body may take before its rate is looked at."""
    write_seconds: float = 60
    """Within this time a reader takes at least what `least_rate` gives."""
    idle_seconds: float = 75
    """Between two requests of a connection."""
    linger_seconds: float = 5
    """How long what still comes is thrown away after an early answer, so that it can be read."""
    header_bytes: int = 64 * KIB
    connections: int = 2000
    """More than these are turned away; those that are there live on."""
    requests_per_connection: int | None = None
