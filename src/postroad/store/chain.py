"""Whether the segments below a folder are all there, and as they were written."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from postroad.store.places import Place
from postroad.store.records import Shipped
from postroad.store.segments import NotASegment, footer_of, open_segment, read_rows

_BATCH: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a journal; kinds are those of JOURNAL's findings."""

    kind: str
    """chain, gap, identity or foreign_file"""
    subject: str
    """The file; for a gap the node, its epoch and the missing range."""
    detail: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What a look at all segments has found."""

    segments: int
    copies: int
    """Files that are the same as another, byte for byte."""
    events: int
    nodes: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Link:
    """A segment, as far as the chain goes."""

    name: str
    digest: str
    previous: str
    node: str
    epoch: int
    rows: int
    runs: tuple[tuple[int, int], ...]
    """First and last seq of each stretch without holes."""
    strangers: bool = field(default=False)
    """It has rows of another node or epoch than it says."""

    @property
    def first(self) -> int:
        return self.runs[0][0]

    @property
    def last(self) -> int:
        return self.runs[-1][1]


def verify(
    folder: str | Path | Place,
    *,
    shipped: Shipped | None = None,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> Verified:
    """Read every segment below a folder or URL, and follow the chain of each node and epoch.

    With `shipped`, what a node knows of the last segment, also that one cannot be altered or
    removed unseen. `told` hears how many files are done, of how many.
    """
    place = folder if isinstance(folder, Place) else Place.of(folder)
    findings: list[Finding] = []
    chains: defaultdict[tuple[str, int], dict[str, _Link]] = defaultdict(dict)
    copies = 0
    names = place.names()
    told(0, len(names))
    for done, name in enumerate(names, 1):
        try:
            link = _link(place, name)
        except NotASegment as error:
            findings.append(Finding("foreign_file", name, f"{error}."))
        else:
            chain = chains[link.node, link.epoch]
            copies += link.digest in chain
            chain.setdefault(link.digest, link)
        told(done, len(names))
    for _, chain in sorted(chains.items()):
        findings += _followed(sorted(chain.values(), key=lambda one: (one.first, one.name)))
    if shipped is not None and shipped.digest:
        findings += _last(chains, shipped)
    links = [link for chain in chains.values() for link in chain.values()]
    return Verified(
        segments=len(links),
        copies=copies,
        events=sum(link.rows for link in links),
        nodes=len({node for node, _ in chains}),
        findings=tuple(findings),
    )


def _link(place: Place, name: str) -> _Link:
    """Read one file, all of it: each page has a checksum."""
    with place.reading(name) as file:
        segment = open_segment(file)
        footer = footer_of(segment)
        node, epoch = footer.node, footer.epoch
        runs: list[tuple[int, int]] = []
        strangers = False
        try:
            for batch in read_rows(segment, _BATCH):
                node = batch["node"][0].as_py() if node is None else node
                epoch = batch["epoch"][0].as_py() if epoch is None else epoch
                _extend(runs, batch["seq"])
                strangers |= pc.any(
                    pc.or_(
                        pc.not_equal(batch["node"], node),
                        pc.not_equal(batch["epoch"], epoch),
                    )
                ).as_py()
        except (pa.ArrowException, OSError, ValueError) as error:
            said = " ".join(str(error).split())
            raise NotASegment(f"its rows cannot be read ({said})") from error
    if not runs or node is None or epoch is None:
        raise NotASegment("it has no rows")
    return _Link(
        name,
        place.digest(name),
        footer.previous or "",
        node,
        epoch,
        footer.rows,
        tuple(runs),
        strangers,
    )


def _extend(runs: list[tuple[int, int]], seqs: pa.Array) -> None:
    """Add numbers to the stretches that are there."""
    steps = pc.pairwise_diff(seqs)
    cuts = [0, *pc.indices_nonzero(pc.fill_null(pc.not_equal(steps, 1), False)).to_pylist()]
    for start, end in zip(cuts, [*cuts[1:], len(seqs)], strict=True):
        first, last = seqs[start].as_py(), seqs[end - 1].as_py()
        if runs and runs[-1][1] + 1 == first:
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))


def _followed(links: list[_Link]) -> Iterator[Finding]:
    """What is wrong along one chain, which is in order."""
    by_digest = {link.digest: link for link in links}
    before: _Link | None = None
    for link in links:
        if link.strangers:
            yield Finding(
                "identity", link.name, "It has events of another node or epoch than it says."
            )
        if link.previous != (before.digest if before else ""):
            yield Finding("chain", link.name, _why(link, before, by_digest.get(link.previous)))
        end = before.last if before else 0
        for first, last in link.runs:
            if first > end + 1:
                missing = f"{end + 1} to {first - 1}" if first - end > 2 else f"{end + 1}"
                where = f"between {before.name} and it" if before else "before it"
                where = f"inside {link.name}" if first != link.first else f"{where}: {link.name}"
                yield Finding(
                    "gap",
                    f"{link.node} epoch {link.epoch} seq {missing}",
                    f"Events are missing {where}.",
                )
            elif first <= end:
                other = before.name if before and first == link.first else "itself"
                yield Finding(
                    "identity", link.name, f"It tells seq {first} again, as {other} does."
                )
            end = max(end, last)
        before = link


def _why(link: _Link, before: _Link | None, named: _Link | None) -> str:
    """Why the link of a segment to the one before it does not hold."""
    if before is None:
        return f"It begins with seq {link.first}, and the segment before it is not there."
    if not link.previous:
        return f"It names no segment before it; {before.name} comes before it."
    if named is not None:
        return f"It names {named.name} as the segment before it; {before.name} comes before it."
    if link.first > before.last + 1:
        return (
            f"The segment before it is not there; the last one before it is {before.name}, which"
            f" ends with seq {before.last}."
        )
    return (
        f"{before.name}, which comes before it, was altered or replaced: its digest is not the one"
        " that this segment names."
    )


def _last(
    chains: defaultdict[tuple[str, int], dict[str, _Link]], shipped: Shipped
) -> Iterator[Finding]:
    links = [link for chain in chains.values() for link in chain.values()]
    if any(link.digest == shipped.digest for link in links):
        return
    if any(link.name == shipped.name for link in links):
        why = "It was altered or replaced: its digest is not the one that the node has noted."
    else:
        why = f"The node has shipped it, up to seq {shipped.seq}, and it is not there."
    yield Finding("chain", shipped.name, why)
