"""The pipeline killed with SIGKILL and run again: the tables are those of a run without.

For many kills, at random points and at random times:

    python -m tests.pipeline.test_runner_kill --kills 50 --seed 1
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from postroad.pipeline.intake import QUARANTINE, quarantine_schema
from postroad.pipeline.lake import Lake
from postroad.pipeline.runner import Plan, run
from postroad.pipeline.schema import DATE, TABLES
from postroad.pipeline.session import BRIEF, session
from tests.pipeline.intakes import events_only, segment, told
from tests.pipeline.test_intake import story

_LANDING: Final = 8
"""The point at which the first commit has moved some of its files into place."""
Tables = dict[str, list[tuple[Any, ...]]]


def tables(spark: SparkSession, folder: Path) -> Tables:
    """All that a lake says, but when it was made."""
    lake = Lake(spark, str(folder))
    found = {name: lake.read(name) for name in TABLES}
    found["findings"] = found["findings"].where(F.col("kind") != "totals")
    found[QUARANTINE] = lake.read(QUARANTINE, schema=quarantine_schema())
    return {name: told(rows.drop(DATE)) for name, rows in found.items()}


def killed(
    journal: Path,
    lake: Path,
    *,
    at: int = 0,
    after: float | None = None,
    files: int = 2,
    tables: bool = False,
) -> bool:
    """Run in a process that is killed at its nth point, or after so long; whether it was."""
    command = [sys.executable, "-m", "tests.pipeline.running", str(journal), str(lake)]
    more = ["--files", str(files), "--kill-at", str(at), *(["--tables"] if tables else [])]
    with subprocess.Popen(
        [*command, *more],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            process.kill()
    assert process.returncode in (0, -signal.SIGKILL)
    return process.returncode != 0


def made(journal: Path) -> Path:
    """Two nodes, each with a bit of everything that can be wrong."""
    for name in ("a1", "b1"):
        rows = [row | {"node": name} for row in story(1, 9)]
        rows[4] |= {"bytes": -1}
        rows[6] |= {"event": "telepathy"}
        _, digest = segment(journal, rows[:3])
        segment(journal, rows[3:7], digest)
        segment(journal, [rows[1] | {"detail": "changed"}, rows[3], *rows[8:]])
    (journal / "foreign.parquet").write_bytes(b"once upon a time")
    return journal


@pytest.mark.timeout(600)
def test_killed_and_run_again_the_tables_are_those_of_one_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Killed with a commit half done and files left; `test_lake` breaks off at each point."""
    journal = made(tmp_path / "journal")
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    assert killed(journal, broken, at=_LANDING, files=4)
    assert (broken / "_intent.json").exists()
    run(spark, Plan((str(journal),), str(broken)), update=events_only)
    run(spark, Plan((str(journal),), str(whole)), update=events_only)
    assert tables(spark, broken) == tables(spark, whole)


def main(kills: int, seed: int, slowness: float) -> None:
    random = Random(seed)
    spark = session(master="local[2]", memory="1g", settings=BRIEF)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        journal = made(folder / "journal")
        run(spark, Plan((str(journal),), str(folder / "whole")))
        expected = tables(spark, folder / "whole")
        done = lakes = 0
        while done < kills:
            lakes += 1
            lake = folder / f"lake{lakes}"
            going = True
            while going:
                after = slowness * random.uniform(6, 40) if random.random() < 0.5 else None
                point = random.randint(1, 120)
                going = killed(journal, lake, at=point, after=after, tables=True)
                done += going
            assert tables(spark, lake) == expected, f"seed {seed}, lake {lakes}"
            print(f"{done} kills, {lakes} lakes: equal", flush=True)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slowness", type=float, default=1.0, help="of the machine")
    said = parser.parse_args()
    main(said.kills, said.seed, said.slowness)
