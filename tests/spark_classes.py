"""Spark's classes in an archive that its JVMs map into memory: they are there in half the time.

    python -m tests.spark_classes build/spark.jsa

`make test` makes it once. Java sees by itself whether it fits: with other jars, or another Java
than the one that made it, it is passed over.
"""

import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Final

_QUIET: Final = "-Xlog:disable"
"""An archive that does not fit is no news."""


def options(archive: Path) -> str:
    """What a JVM is started with to use the archive; nothing where there is none."""
    there = archive.is_file() and archive.stat().st_size > 0
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET}' if there else ""


def make(archive: Path) -> None:
    """Archive what a run of the pipeline loads; where Java cannot, an empty file tells so."""
    from pyspark import SparkContext

    from postroad.pipeline.runner import Plan, run
    from postroad.pipeline.session import TINY, session
    from postroad.pipeline.simulation import simulate

    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(f".{os.getpid()}")
    os.environ["SPARK_SUBMIT_OPTS"] = f'"-XX:ArchiveClassesAtExit={part}" {_QUIET}'
    with tempfile.TemporaryDirectory() as name:
        simulate(name, messages=50, days=2, heartbeat=timedelta(hours=1))
        spark = session(master="local[2]", memory="1g", settings=TINY)
        run(spark, Plan((f"{name}/journal",), f"{name}/lake"))
        spark.stop()
        java = SparkContext._gateway
        assert java is not None
        # Java ends when nobody can tell it anything any more, and writes the archive then.
        java.shutdown()
        java.proc.stdin.close()
        if java.proc.wait() != 0:
            part.unlink(missing_ok=True)
    part.touch()
    part.replace(archive)


if __name__ == "__main__":
    from postroad.pipeline.session import NoSpark

    try:
        make(Path(sys.argv[1]).absolute())
    except NoSpark as missing:
        sys.exit(f"no archive of Spark's classes: {missing}")
