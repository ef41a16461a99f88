"""The node at a glance, as the clients give it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from postroad.api.client_values import Partner, partner_addresses, value_of


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """The message that has been on its way for longest."""

    message_id: str
    side: str
    state: str
    partner: str
    created_at: datetime
    seconds: float
    """How long ago it was made."""


@dataclass(frozen=True, slots=True)
class PartnerStatus(Partner):
    """A partner: how it stands with it, and its messages."""

    queue: int
    """Messages that are on their way to it."""
    pmodes: tuple[str, ...]
    """The P-Modes, or rules of a hub, of which it is the end."""
    messages: dict[str, int]
    """By `side.state`."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that the node works with."""

    use: str
    """signing, decryption and tls are the node's own; partner, trust"""
    name: str
    """The setting that names it, or the P-Mode."""
    partner: str | None
    subject: str
    fingerprint: str
    begins_at: datetime
    expires_at: datetime
    warning: str | None
    """expired, expires soon, or not yet valid"""


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of the node's data folder, in bytes."""

    free: int | None
    reserve: int
    """Set aside for purging and acknowledging."""
    used: int
    """By database and contents."""


@dataclass(frozen=True, slots=True)
class NotInForce:
    """Something in the node's files by which it does not work."""

    what: str
    detail: str
    to_do: str


@dataclass(frozen=True, slots=True)
class Status:
    """The node at a glance."""

    name: str
    party: str
    version: str
    ready: bool
    problems: tuple[str, ...]
    messages: dict[str, int]
    """By `side.state`."""
    work: dict[str, int]
    oldest_work: datetime | None
    last_seq: int
    bytes: int
    oldest_waiting: WaitingMessage | None
    partners: tuple[PartnerStatus, ...]
    certificates: tuple[Certificate, ...]
    """That first which expires first."""
    disk: Disk
    not_in_force: tuple[NotInForce, ...]


def status(data: Mapping[str, Any]) -> Status:
    oldest = data["oldest_waiting"]
    partners = [
        {**one, "pmodes": tuple(one["pmodes"]), "addresses": partner_addresses(one)}
        for one in data["partners"]
    ]
    return value_of(
        Status,
        {
            **data,
            "problems": tuple(data["problems"]),
            "oldest_waiting": None if oldest is None else value_of(WaitingMessage, oldest),
            "partners": tuple(value_of(PartnerStatus, one) for one in partners),
            "certificates": tuple(value_of(Certificate, one) for one in data["certificates"]),
            "disk": value_of(Disk, data["disk"]),
            "not_in_force": tuple(value_of(NotInForce, one) for one in data["not_in_force"]),
        },
    )
