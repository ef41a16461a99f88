"""How messages of a leg are pulled: parameters of Postroad's own, for both ends."""

from datetime import timedelta

from postroad.agreement.groups import Group, parameter
from postroad.agreement.values import Factor, Span, Wait


class Pulling(Group):
    """How the receiver pulls, and how long the sender keeps what is pulled."""

    scheduled: bool = parameter(
        "Scheduled", "Whether the receiver pulls by itself, or only when asked to.", True
    )
    interval: Wait = parameter(
        "Interval", "How long after an empty channel it is asked again.", timedelta(minutes=1)
    )
    growth: Factor = parameter(
        "Growth", "How many times longer each further interval of an empty channel is.", 2.0
    )
    longest: Wait = parameter(
        "Longest", "How long an interval gets at most.", timedelta(minutes=10)
    )
    parallel: int = parameter(
        "Parallel", "How many messages are pulled at once from a full channel.", 1, ge=1, le=64
    )
    piggyback: bool = parameter(
        "Piggyback",
        "Whether the receipt of a message rides on the next PullRequest, where one follows soon.",
        False,
    )
    digest: bool = parameter(
        "Digest",
        "Whether the user name goes with a digest of the password; if not, a password in the "
        "clear is taken too.",
        True,
    )
    sign: bool | None = parameter(
        "Sign",
        "Whether PullRequests are signed; unset: if messages are, and no user name is agreed on.",
    )
    capacity: int | None = parameter(
        "Capacity", "How many messages a channel holds; unset: any number.", ge=1
    )
    keep: Span | None = parameter(
        "Keep", "How long a message waits in its channel; unset: without end."
    )
