"""A run of the pipeline as a process, which ends itself with SIGKILL where it is told to.

python -m tests.pipeline.running JOURNAL LAKE --files 2 --kill-at 17
"""

import argparse
import os
import signal
import sys

from postroad.pipeline import lake as lakes
from postroad.pipeline.runner import Plan, run
from postroad.pipeline.session import TINY, session
from tests.pipeline.intakes import events_only


def main(journal: str, lake: str, files: int, kill_at: int, tables: bool) -> None:
    passed = 0

    def reached(point: str) -> None:
        nonlocal passed
        passed += 1
        print(passed, point, flush=True)
        if passed == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    lakes.reached = reached
    spark = session(master="local[2]", memory="1g", settings=TINY)
    print("started", flush=True)
    plan = Plan((journal,), lake, max_files=files)
    totals = run(spark, plan, update=None if tables else events_only)
    print(totals, flush=True)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("journal")
    parser.add_argument("lake")
    parser.add_argument("--files", type=int, default=2)
    parser.add_argument("--kill-at", type=int, default=0)
    parser.add_argument("--tables", action="store_true", help="all tables, not only the events")
    said = parser.parse_args(sys.argv[1:])
    main(said.journal, said.lake, said.files, said.kill_at, said.tables)
