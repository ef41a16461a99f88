"""The node at a glance, as the interface shows it."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from pydantic import BaseModel, Field

from postroad.api.views import PartnerView, partner_view
from postroad.node.service import ON_ITS_WAY, Certificate, Health
from postroad.node.settings.certificates import SOON
from postroad.reliability.breaker import Party
from postroad.store.records import WAITS, Message, Side

_QUEUED: Final = {
    *((Side.SENDING.value, one.value) for one in ON_ITS_WAY),
    *((Side.FORWARDING.value, one.value) for one in WAITS),
}
"""Sides and states of what waits for its partner."""


class WaitingView(BaseModel):
    """The message that has been on its way for longest."""

    message_id: str
    side: Side
    state: str
    partner: str
    created_at: datetime
    seconds: float = Field(description="How long ago it was made.")


class PartnerStatusView(PartnerView):
    """A partner: how it stands with it, and its messages."""

    queue: int = Field(description="Messages that are on their way to it.")
    pmodes: list[str] = Field(description="The P-Modes, or rules of a hub, of which it is the end.")
    messages: dict[str, int] = Field(
        description="Its messages, by `side.state`.", examples=[{"sending.waiting": 2}]
    )


class CertificateView(BaseModel):
    """A certificate that the node works with."""

    use: str = Field(
        description="signing, decryption and tls: the node's own; partner; trust: an authority.",
        examples=["partner"],
    )
    name: str = Field(
        description="The setting that names it, or the P-Mode.", examples=["keys.signing"]
    )
    partner: str | None = Field(description="Whose it is, where it is a partner's.")
    subject: str
    fingerprint: str = Field(description="SHA-256, in hex.")
    begins_at: datetime
    expires_at: datetime
    warning: str | None = Field(
        description="expired, expires soon (within 30 days), or not yet valid; null: all is well."
    )


class DiskView(BaseModel):
    """The disk of the data folder."""

    free: int | None = Field(description="Bytes; null: nobody counts.")
    reserve: int = Field(description="Bytes set aside for purging and acknowledging.")
    used: int = Field(description="Bytes of database and contents.")


class NotInForceView(BaseModel):
    """Something in the node's files by which it does not work."""

    what: str = Field(examples=["postroad.yaml"])
    detail: str = Field(examples=["send.parallel was changed"])
    to_do: str = Field(examples=["restart the node"])


class StatusView(BaseModel):
    """The node at a glance."""

    name: str
    party: str
    version: str
    ready: bool
    problems: list[str]
    messages: dict[str, int] = Field(
        description="How many there are, by `side.state`.", examples=[{"sending.waiting": 2}]
    )
    work: dict[str, int] = Field(description="What is still to be done.", examples=[{"send": 2}])
    oldest_work: datetime | None
    last_seq: int = Field(description="Of the last event in the journal.")
    bytes: int = Field(description="Of database and contents on disk.")
    oldest_waiting: WaitingView | None
    partners: list[PartnerStatusView] = Field(
        description="By name. Messages whose P-Mode names no partner, or is gone, are under the "
        "empty name."
    )
    certificates: list[CertificateView] = Field(description="That first which expires first.")
    disk: DiskView
    not_in_force: list[NotInForceView] = Field(
        description="What the files say and the node does not do, because it needs a restart or "
        "is wrong."
    )


def status_view(
    name: str,
    party: str,
    version: str,
    health: Health,
    partners: Iterable[Party],
    oldest: Message | None,
) -> StatusView:
    figures, now = health.figures, health.at
    return StatusView(
        name=name,
        party=party,
        version=version,
        ready=health.ready,
        problems=list(health.problems),
        messages=figures.messages,
        work=figures.work,
        oldest_work=figures.oldest_work,
        last_seq=figures.last_seq,
        bytes=figures.bytes,
        oldest_waiting=_waiting(oldest, now),
        partners=_partners(health, partners),
        certificates=[_certificate(one, now) for one in health.certificates],
        disk=DiskView(free=health.free, reserve=health.reserve, used=figures.bytes),
        not_in_force=[
            NotInForceView(what=one.what, detail=one.detail, to_do=one.to_do)
            for one in health.not_in_force
        ],
    )


def _waiting(message: Message | None, now: datetime) -> WaitingView | None:
    if message is None:
        return None
    return WaitingView(
        message_id=message.wire_id,
        side=message.side,
        state=message.state.value,
        partner=message.partner,
        created_at=message.created_at,
        seconds=max(0.0, (now - message.created_at).total_seconds()),
    )


def _partners(health: Health, known: Iterable[Party]) -> list[PartnerStatusView]:
    """All partners of P-Modes and rules, and those with whom not all is well."""
    unwell = {one.name: one for one in known}
    pmodes: defaultdict[str, list[str]] = defaultdict(list)
    for pmode, partner in sorted(health.partner_of.items()):
        pmodes[partner].append(pmode)
    messages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    queues: Counter[str] = Counter()
    for (side, state, pmode), count in health.figures.agreements.items():
        partner = health.partner_of.get(pmode, "")
        messages[partner][f"{side}.{state}"] += count
        queues[partner] += count if (side, state) in _QUEUED else 0
    return [
        PartnerStatusView(
            **partner_view(unwell.get(name) or Party(name)).model_dump(),
            queue=queues[name],
            pmodes=pmodes.get(name, []),
            messages=dict(messages.get(name, {})),
        )
        for name in sorted({*unwell, *pmodes, *messages})
        if name or messages.get(name)
    ]


def _certificate(one: Certificate, now: datetime) -> CertificateView:
    warning = None
    if one.expires < now:
        warning = "expired"
    elif one.expires - SOON <= now:
        warning = "expires soon"
    elif one.begins > now:
        warning = "not yet valid"
    return CertificateView(
        use=one.use,
        name=one.name,
        partner=one.partner,
        subject=one.subject,
        fingerprint=one.fingerprint,
        begins_at=one.begins,
        expires_at=one.expires,
        warning=warning,
    )
