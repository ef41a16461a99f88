"""Write docs/interoperability.md from the results of `make interop`.

Usage: python -m tests.interop.page build/interop.json docs/interoperability.md
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tests.interop.matrix import DIRECTIONS

_HEAD: Final = """\
# Interoperability

Postroad is tried against other people's software: released artifacts, started as processes of
their own, that exchange messages with real Postroad nodes over loopback. This page is written from
the run. Repeat it with a JDK (17 or later) and Maven:

```text
make interop
```

"To peer": Postroad sends and the peer receives. "From peer": the peer sends and Postroad receives.
*passed*: both sides agree, with the receipt or error that the specification asks for. *differs*:
the peer deviates from the specification; Postroad reports what happened, and the note says which
rule it is. An empty cell was not tried, or has no meaning for that case.
"""
_TAIL: Final = """
## What was not tried

- **ebMS 2.0 with a running product.** No released artifact of ebms-core or Hermes could be
  resolved. Its signatures are tried with Santuario in both directions (above). Messages of Hermes
  and of other ebMS 2.0 products in public repositories were read with `postroad inspect`: unsigned
  ones hold, except two of Hermes whose times are not xsd:dateTime; of signed ones none was found
  whose signature is still whole.
- **Other profiles of phase4** than its plain one (CEF, eDelivery 2.0, ENTSOG, BDEW, EU CTP): their
  artifacts could not be resolved.

## Without Java

The messages of a green run, of both sides, are kept in `tests/interop/recorded` with throw-away
keys, and `make test` verifies them on every machine. It also compares the shape of what Postroad
writes with the shapes that WSS4J accepted: a change that nobody else has accepted yet is noticed.
After an intended change, run:

```text
make interop RECORD=1
```
"""


def render(rows: Iterable[dict[str, Any]]) -> str:
    """Return the page for the rows of a run."""
    peers: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        peers.setdefault(row["peer"], []).append(row)
    return _HEAD + "".join(_section(peer, peers[peer]) for peer in sorted(peers)) + _TAIL


def _section(peer: str, rows: list[dict[str, Any]]) -> str:
    notes: list[str] = []
    lines = [
        f"\n## {peer}\n",
        f"| case | {' | '.join(DIRECTIONS)} |",
        "| --- " * 3 + "|",
    ]
    for case in dict.fromkeys(row["case"] for row in rows):
        cells = []
        for direction in DIRECTIONS:
            found = [row for row in rows if (row["case"], row["direction"]) == (case, direction)]
            cells.append(_cell(found[0], notes) if found else "")
        lines.append(f"| {case} | {' | '.join(cells)} |")
    if notes:
        lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, Any], notes: list[str]) -> str:
    deviation = row["deviation"]
    if row["result"] != "passed" or deviation is None:
        return str(row["result"])
    if deviation not in notes:
        notes.append(deviation)
    return f"differs ({notes.index(deviation) + 1})"


def main(source: Path, target: Path) -> None:
    target.write_text(render(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
