"""Segments read back without the code that wrote them."""

import hashlib
from pathlib import Path

import pyarrow.parquet as pq

from postroad.store.records import Event, Recorded, Side


def files(folder: Path) -> list[Path]:
    """All segments, by node, epoch and seq."""
    return sorted(folder.glob("date=*/[!.]*.parquet"), key=lambda path: path.name)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def said(path: Path) -> dict[str, str]:
    """The key-value metadata."""
    found = pq.read_metadata(path).metadata
    return {key.decode(): value.decode() for key, value in found.items()}


def events(path: Path) -> list[Recorded]:
    rows = pq.ParquetFile(path).read().to_pylist()
    return [_recorded(row) for row in rows]


def journal(folder: Path) -> list[Recorded]:
    """All events of all segments, one after the other."""
    return [one for path in files(folder) for one in events(path)]


def _recorded(row: dict[str, object]) -> Recorded:
    columns = {name: row[name] for name in Event.__struct_fields__}
    side, digests = columns["side"], columns["payload_digests"]
    columns["side"] = None if side is None else Side(str(side))
    columns["payload_digests"] = tuple(digests) if isinstance(digests, list) else None
    event = Event(**columns)  # type: ignore[arg-type]
    return Recorded(str(row["node"]), int(str(row["epoch"])), int(str(row["seq"])), event)
