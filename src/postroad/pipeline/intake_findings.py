"""What is wrong with the journal itself, found by its files: a function of the registry alone.

So a segment that comes late heals what it should, and whoever takes all files at once finds the
same as who took them one by one.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

import msgspec

from postroad.pipeline.covering import gaps
from postroad.pipeline.intake_files import Segment
from postroad.pipeline.intake_registry import Conflict, Registry
from postroad.pipeline.intake_rules import RULES
from postroad.pipeline.times import micros
from postroad.pipeline.watching import stretches


class Finding(msgspec.Struct, frozen=True, order=True):
    """A row of the table; the time in microseconds since 1970."""

    at: int
    kind: str
    subject: str
    detail: str


def findings(registry: Registry) -> list[Finding]:
    """All findings of the intake but the totals, sorted."""
    return sorted(
        {
            *_foreign(registry),
            *_chain(registry),
            *_gaps(registry),
            *_identities(registry.conflicts),
            *_quarantine(registry.distinct),
            *_unknown(registry.distinct),
        }
    )


def _foreign(registry: Registry) -> Iterator[Finding]:
    for segment in registry.segments:
        if segment.problem is not None:
            yield Finding(segment.at, "foreign_file", segment.path, _said(segment.problem))


def _said(problem: str) -> str:
    return f"nothing of this file was taken: {problem}"


def _chain(registry: Registry) -> Iterator[Finding]:
    """Each segment must name the file before it by its digest."""
    lines: dict[tuple[str, int], list[Segment]] = defaultdict(list)
    for segment in registry.distinct:
        if segment.first:
            lines[segment.node, segment.epoch].append(segment)
    for line in lines.values():
        line.sort(key=lambda one: (one.first, one.path))
        digests = {segment.sha256 for segment in line}
        for place, segment in enumerate(line):
            before = line[place - 1].path if place else None
            wrong = _link(segment, before, digests)
            if wrong:
                yield Finding(segment.at, "chain", segment.path, wrong)


def _link(segment: Segment, before: str | None, digests: set[str]) -> str | None:
    """What is wrong with the link of a segment to the one before it."""
    if segment.previous in digests or (not segment.previous and segment.first == 1):
        return None
    here = f"the file before it is {before}" if before else "there is no file before it"
    if not segment.previous:
        return f"it names no file before it, but begins with seq {segment.first}; {here}"
    return (
        f"it follows a file with the SHA-256 {segment.previous}, which is missing or was altered;"
        f" {here}"
    )


def _gaps(registry: Registry) -> Iterator[Finding]:
    """What is in conflict is missing too."""
    for gap in gaps(stretches(registry.runs, {})):
        yield Finding(micros(gap.at), "gap", gap.subject, gap.detail)


def _identities(conflicts: tuple[Conflict, ...]) -> Iterator[Finding]:
    for one in conflicts:
        yield Finding(
            one.at,
            "identity",
            f"{one.node} {one.epoch} {one.seq_from}-{one.seq_to}",
            "events with different content came under the same node, epoch and seq; all of them"
            " are in quarantine",
        )


def _quarantine(segments: list[Segment]) -> Iterator[Finding]:
    for segment in segments:
        for one in segment.broken:
            rows = "1 row is" if one.rows == 1 else f"{one.rows} rows are"
            yield Finding(
                segment.at,
                "quarantine",
                segment.path,
                f"{rows} in quarantine: {RULES[one.reason]}; the first: {one.first}",
            )


def _unknown(segments: list[Segment]) -> Iterator[Finding]:
    first = sorted(one for segment in segments for one in segment.unknown)
    for event, seen in groupby(first, key=lambda one: one.event):
        earliest = next(seen)
        yield Finding(
            earliest.at,
            "unknown_event",
            event,
            f"the journal's contract has no event of this name; first written by {earliest.node}",
        )
