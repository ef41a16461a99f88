"""The figures of a node in the text format of Prometheus."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from postroad.node.base.context import escaped_label
from postroad.node.service import Health
from postroad.reliability.breaker import Gate
from postroad.store.records import Partner

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HELP: Final = {
    "postroad_build_info": "The version that runs.",
    "postroad_ready": "Whether the node is ready: 1 or 0.",
    "postroad_problems": "What an operator should see to; /readyz says what.",
    "postroad_certificate_expires_timestamp_seconds": "When a certificate expires, by its use.",
    "postroad_stored_messages": "Messages that are kept, by side, state, P-Mode and partner.",
    "postroad_work": "What is still to be done, by kind.",
    "postroad_oldest_work_timestamp_seconds": "When the oldest open work is or was due.",
    "postroad_oldest_message_timestamp_seconds": "When the oldest message on its way was made.",
    "postroad_stopped_partners": "Partners to whom nothing is sent now, by gate.",
    "postroad_partner_failures": "Attempts in a row that did not reach a partner, by gate.",
    "postroad_send_limit": "Messages sent at once to a partner that answers late, by partner.",
    "postroad_journal_last_seq": "Sequence number of the last event in the journal.",
    "postroad_journal_shipped_seq": "Sequence number of the last event that was shipped.",
    "postroad_journal_segments_total": "Segments of the journal that were shipped.",
    "postroad_journal_shipping_failures_total": "How often the journal could not be shipped.",
    "postroad_client_incidents_total": "Limits applied to clients, by listener and reason.",
    "postroad_store_bytes": "Database and contents on disk.",
    "postroad_store_free_bytes": "Bytes that are free on the disk of the data folder.",
    "postroad_settings_not_in_force": "Settings and files that the node does not work by.",
    "postroad_webhook_paused": "Whether the application takes no calls of the webhook: 1 or 0.",
}
_OF_HISTOGRAM: Final = ("_bucket", "_sum", "_count")
_STOPPED: Final = (Gate.PAUSED, Gate.PROBING, Gate.SUSPENDED)
_MOST: Final = 1000
"""P-Modes, partners and certificates that have samples of their own. Messages of other P-Modes are
counted together; of certificates those count that expire first."""
_OTHER: Final = "other"


def metrics_text(
    counters: Mapping[str, float],
    health: Health,
    version: str,
    *,
    partners: Iterable[Partner] = (),
    oldest: datetime | None = None,
) -> str:
    """What a scrape gets: each family once, with its type.

    `oldest` is when the oldest message was submitted that is still on its way.
    """
    families: defaultdict[str, list[str]] = defaultdict(list)
    histograms = {
        name.partition("{")[0].removesuffix("_bucket") for name in counters if "_bucket{" in name
    }
    figures = _figures(health, version) | _sending(partners, oldest)
    for sample, value in (figures | dict(counters)).items():
        families[_family(sample, histograms)].append(f"{sample} {_number(value)}")
    lines = []
    for family, samples in families.items():
        if family in _HELP:
            lines.append(f"# HELP {family} {_HELP[family]}")
        lines.append(f"# TYPE {family} {_type(family, histograms)}")
        lines += samples
    return "\n".join(lines) + "\n"


def _figures(health: Health, version: str) -> dict[str, float]:
    figures = health.figures
    samples: dict[str, float] = {
        f'postroad_build_info{{version="{escaped_label(version)}"}}': 1,
        "postroad_ready": health.ready,
        "postroad_problems": len(health.problems),
        "postroad_journal_last_seq": figures.last_seq,
        "postroad_store_bytes": figures.bytes,
    }
    samples |= _messages(health)
    for kind, count in figures.work.items():
        samples[f'postroad_work{{kind="{escaped_label(kind)}"}}'] = count
    for one in reversed(health.certificates[:_MOST]):
        # Of several with the same labels that counts which expires first.
        labels = _labels(use=one.use, name=one.name, partner=one.partner or "")
        samples[f"postroad_certificate_expires_timestamp_seconds{labels}"] = one.expires.timestamp()
    samples["postroad_settings_not_in_force"] = len(health.not_in_force)
    if health.free is not None:
        samples["postroad_store_free_bytes"] = health.free
    if health.webhook_paused is not None:
        samples["postroad_webhook_paused"] = health.webhook_paused
    if figures.oldest_work:
        samples["postroad_oldest_work_timestamp_seconds"] = figures.oldest_work.timestamp()
    return samples


def _messages(health: Health) -> dict[str, float]:
    """What is kept, by P-Mode or rule and its partner: both are of the node's own files."""
    names = sorted({name for _, _, name in health.figures.agreements})
    known = set(names[:_MOST])
    samples: Counter[str] = Counter()
    for (side, state, name), count in health.figures.agreements.items():
        pmode = name if name in known else _OTHER
        partner = health.partner_of.get(name, "") if name in known else _OTHER
        labels = _labels(side=side, state=state, pmode=pmode, partner=partner)
        samples[f"postroad_stored_messages{labels}"] += count
    return dict(samples)


def _sending(partners: Iterable[Partner], oldest: datetime | None) -> dict[str, float]:
    partners = list(partners)
    gates = Counter(one.gate for one in partners)
    samples: dict[str, float] = {
        f'postroad_stopped_partners{{gate="{gate}"}}': gates[gate] for gate in _STOPPED
    }
    for one in partners[:_MOST]:
        labels = _labels(partner=one.name, gate=one.gate)
        samples[f"postroad_partner_failures{labels}"] = one.failures
    if oldest:
        samples["postroad_oldest_message_timestamp_seconds"] = oldest.timestamp()
    return samples


def _family(sample: str, histograms: set[str]) -> str:
    name = sample.partition("{")[0]
    for suffix in _OF_HISTOGRAM:
        if name.endswith(suffix) and name.removesuffix(suffix) in histograms:
            return name.removesuffix(suffix)
    return name


def _type(family: str, histograms: set[str]) -> str:
    if family in histograms:
        return "histogram"
    return "counter" if family.endswith("_total") else "gauge"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _labels(**labels: str) -> str:
    return (
        "{" + ",".join(f'{name}="{escaped_label(value)}"' for name, value in labels.items()) + "}"
    )
