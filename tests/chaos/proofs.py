"""Evidence, journals and the pipeline, each asked with the documented command."""

import json
import random
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pyarrow.dataset

from tests.chaos.agreements import BUYER, NODES, SELLER, Kind
from tests.chaos.doors import Door, encoded
from tests.chaos.nodes import POSTROAD, run
from tests.chaos.verdict import Finding

SAMPLE: Final = 4
"""Messages of a kind whose evidence is verified."""


def proofs_of(
    kinds: Iterable[Kind],
    states: Mapping[str, Mapping[str, tuple[str, str]]],
    doors: Mapping[str, Door],
    folder: Path,
    dice: random.Random,
) -> dict[str, bool]:
    """Return whether the evidence of a sample of acknowledged messages holds, by id."""
    zips: dict[Path, str] = {}
    (folder / "evidence").mkdir()
    for kind in kinds:
        if not kind.proven:
            continue
        begin = f"{kind.name}-"
        mine = sorted(
            message_id
            for message_id, (state, _) in states[kind.sender].items()
            if state == "acknowledged"
            and message_id.startswith(begin)
            and message_id[len(begin) :].split("@")[0].isdigit()
        )
        for message_id in dice.sample(mine, min(SAMPLE, len(mine))):
            path = f"/api/v1/messages/{encoded(message_id)}/evidence"
            answer = doors[kind.sender].get(path, side="sending")
            if not answer.ok:
                raise ConnectionError(f"no evidence of {message_id}: {answer.status}")
            file = folder / "evidence" / f"{message_id}.zip"
            file.write_bytes(answer.body)
            zips[file] = message_id
    if not zips:
        return {}
    authority = str(folder / BUYER / "keys" / "authority.pem")
    command = [*POSTROAD, "inspect", "--json", "--trust", authority, *map(str, zips)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 2:
        raise RuntimeError(f"the evidence cannot be read: {done.stderr}")
    facts = json.loads(done.stdout)
    facts = facts if isinstance(facts, list) else [facts]
    return {
        message_id: fact["holds"] for message_id, fact in zip(zips.values(), facts, strict=True)
    }


def journals_hold(folder: Path) -> list[Finding]:
    """Verify the chain of each journal."""
    findings = []
    for name in NODES:
        try:
            run("journal", "verify", str(folder / name / "journal"))
        except RuntimeError as error:
            findings.append(Finding("node", name, str(error)))
    return findings


def classes_of(folder: Path) -> dict[str, str]:
    """Run the pipeline over all journals, and return the class of each message."""
    journals = [part for name in NODES for part in ("--journal", str(folder / name / "journal"))]
    lake = folder / "lake"
    run("pipeline", "run", *journals, "--lake", str(lake), "--grace", "1s")
    table = pyarrow.dataset.dataset(lake / "reconciliation", format="parquet").to_table(
        columns=["message_id", "class"]
    )
    return dict(zip(*(table[name].to_pylist() for name in ("message_id", "class")), strict=True))


def receipts_hold(folder: Path) -> list[Finding]:
    """Let the pipeline verify every receipt."""
    evidence = [
        part
        for name in (BUYER, SELLER)
        for part in ("--evidence", f"{name}={folder / name / 'data'}")
    ]
    trust = str(folder / BUYER / "keys" / "authority.pem")
    try:
        run("pipeline", "verify", "--lake", str(folder / "lake"), *evidence, "--trust", trust)
    except RuntimeError as error:
        return [Finding("evidence", "-", str(error))]
    return []
