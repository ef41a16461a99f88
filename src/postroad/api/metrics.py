"""The figures of a node in the text format of Prometheus."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from postroad.node.service import Health
from postroad.reliability.breaker import Gate
from postroad.store.records import Partner

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HELP: Final = {
    "postroad_build_info": "The version that runs.",
    "postroad_ready": "Whether the node is ready: 1 or 0.",
    "postroad_problems": "What an operator should see to; /readyz says what.",
    "postroad_certificate_expires_timestamp_seconds": "When the node's certificate expires.",
    "postroad_stored_messages": "Messages that are kept, by side and state.",
    "postroad_work": "What is still to be done, by kind.",
    "postroad_oldest_work_timestamp_seconds": "When the oldest open work is or was due.",
    "postroad_oldest_message_timestamp_seconds": "When the oldest message on its way was made.",
    "postroad_stopped_partners": "Partners to whom nothing is sent now, by gate.",
    "postroad_journal_last_seq": "Sequence number of the last event in the journal.",
    "postroad_journal_shipped_seq": "Sequence number of the last event that was shipped.",
    "postroad_journal_segments_total": "Segments of the journal that were shipped.",
    "postroad_journal_shipping_failures_total": "How often the journal could not be shipped.",
    "postroad_client_incidents_total": "Limits applied to clients, by listener and reason.",
    "postroad_store_bytes": "Database and contents on disk.",
    "postroad_store_free_bytes": "Bytes that are free on the disk of the data folder.",
    "postroad_webhook_paused": "Whether the application takes no calls of the webhook: 1 or 0.",
}
_OF_HISTOGRAM: Final = ("_bucket", "_sum", "_count")
_STOPPED: Final = (Gate.PAUSED, Gate.PROBING, Gate.SUSPENDED)


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
        f'postroad_build_info{{version="{_escaped(version)}"}}': 1,
        "postroad_ready": health.ready,
        "postroad_problems": len(health.problems),
        "postroad_journal_last_seq": figures.last_seq,
        "postroad_store_bytes": figures.bytes,
    }
    for which, count in figures.messages.items():
        side, _, state = map(_escaped, which.partition("."))
        samples[f'postroad_stored_messages{{side="{side}",state="{state}"}}'] = count
    for kind, count in figures.work.items():
        samples[f'postroad_work{{kind="{_escaped(kind)}"}}'] = count
    if health.expires:
        name = "postroad_certificate_expires_timestamp_seconds"
        samples[name] = health.expires.timestamp()
    if health.free is not None:
        samples["postroad_store_free_bytes"] = health.free
    if health.webhook_paused is not None:
        samples["postroad_webhook_paused"] = health.webhook_paused
    if figures.oldest_work:
        samples["postroad_oldest_work_timestamp_seconds"] = figures.oldest_work.timestamp()
    return samples


def _sending(partners: Iterable[Partner], oldest: datetime | None) -> dict[str, float]:
    gates = Counter(one.gate for one in partners)
    samples: dict[str, float] = {
        f'postroad_stopped_partners{{gate="{gate}"}}': gates[gate] for gate in _STOPPED
    }
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


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
