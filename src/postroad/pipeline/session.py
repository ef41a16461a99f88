"""A Spark session anywhere: on this machine, on a cluster, or over Spark Connect."""

import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from postroad.pipeline.java import NoJava, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLAIN: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.maxConcurrentOutputFileWriters": "40",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "65536",
}
"""What can be set on any session. With that many writers a task writes a month of daily partitions
side by side; without, Spark sorts every row by day first."""

BRIEF: Final = {
    "spark.driver.defaultJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
    ),
    "spark.sql.shuffle.partitions": "2",
}
"""Where much code runs once, and compiling it well would take longer."""

TINY: Final = BRIEF | {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For a handful of events: Spark neither writes code for them nor thinks twice about its plans."""

_CLIENT_PORT: Final = 15002
_PATIENCE: Final = 5.0
_MEMORY: Final = re.compile(r"[1-9][0-9]{0,6}[mMgG]")


class NoSpark(Exception):
    """There is no Spark to be had; the message is a sentence that says what to do."""


def session(
    *,
    master: str | None = None,
    remote: str | None = None,
    app: str = "postroad",
    memory: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Start a session, or take the one that runs in this process already.

    Without `master` it is local, with all cores. `memory` is the driver's (`4g`), a quarter of the
    machine's where nothing is said. `settings` are Spark's own and win over those made here.
    """
    if master and remote:
        raise NoSpark("give either a master or a remote, not both")
    if memory is not None and not _MEMORY.fullmatch(memory):
        raise NoSpark(
            f"{memory[:40]!r} is not an amount of memory. Write a number with m or g, like 4g."
        )
    _require_pyspark()
    if remote:
        return _connected(remote, app, settings or {})
    return _started(master, app, memory, settings or {})


def _require_pyspark() -> None:
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as missing:
        raise NoSpark(
            f"the pipeline needs PySpark ({missing}); run pip install 'postroad[spark]'"
        ) from None


def _started(
    master: str | None, app: str, memory: str | None, settings: Mapping[str, str]
) -> "SparkSession":
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if running is None and not submitted:
        _prepare_environment()
    builder = SparkSession.builder
    if running is None:
        builder = builder.appName(app)
        chosen = master or (None if submitted else "local[*]")
        if chosen:
            builder = builder.master(chosen)
            settings = {**_of_driver(chosen, memory), **settings}
    for name, value in {**_PLAIN, **settings}.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except PySparkException as failure:
        raise NoSpark(
            f"Spark didn't start ({_first_line(failure)}); what Java said stands above"
        ) from failure
    except Exception as failure:
        if "py4j" not in type(failure).__module__:
            raise
        raise NoSpark(f"Spark didn't start: {_first_line(failure)}") from failure
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _prepare_environment() -> None:
    """What the JVM and its Python workers inherit: the Java, and this very Python."""
    try:
        os.environ["JAVA_HOME"] = str(java_home())
    except NoJava as missing:
        raise NoSpark(str(missing)) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _of_driver(master: str, memory: str | None) -> dict[str, str]:
    """What only a new driver takes."""
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {
        "spark.driver.memory": memory or _quarter_of_memory(),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A run has more queries than Spark keeps compiled; the next one has the same.
        "spark.sql.codegen.cache.maxEntries": "2000",
    }
    if cores := _local_cores(master):
        settings["spark.sql.shuffle.partitions"] = str(4 * cores)
        # Files of this machine are listed at once: a job for that takes longer.
        settings["spark.sql.sources.parallelPartitionDiscovery.threshold"] = "100000"
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    return settings


def _local_cores(master: str) -> int | None:
    """How many cores a master on this machine has; None for a cluster."""
    if local := re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master):
        said = local[1] or "1"
        return (os.cpu_count() or 1) if said == "*" else int(said)
    if cluster := re.fullmatch(r"local-cluster\[(\d+),(\d+),\d+\]", master):
        return int(cluster[1]) * int(cluster[2])
    return None


def _quarter_of_memory() -> str:
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{max(1024, whole // 4 // 2**20)}m"


def _connected(remote: str, app: str, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    _reach(remote)
    try:
        builder = SparkSession.builder.remote(remote).appName(app)
        spark = builder.getOrCreate()
        for name, value in {**_PLAIN, **settings}.items():
            spark.conf.set(name, value)
    except ImportError as missing:
        raise NoSpark(
            f"Spark Connect needs more packages ({_first_line(missing)}); "
            "run pip install 'pyspark[connect]'"
        ) from None
    except PySparkException as failure:
        raise NoSpark(f"Spark Connect at {remote}: {_first_line(failure)}") from failure
    return spark


def _reach(remote: str) -> None:
    """Knock first: the client itself would try for ten minutes before it says a word."""
    place = urlsplit(remote)
    if place.scheme != "sc" or not place.hostname:
        raise NoSpark(f"a remote looks like sc://host:15002, not {remote}")
    try:
        socket.create_connection((place.hostname, place.port or _CLIENT_PORT), _PATIENCE).close()
    except OSError as failure:
        raise NoSpark(
            f"no Spark Connect server answers at {place.hostname}:{place.port or _CLIENT_PORT} "
            f"({failure.strerror or failure}); start one or check the address"
        ) from None


def _first_line(failure: BaseException) -> str:
    java = getattr(failure, "java_exception", None)
    said = str(java.getMessage() or java.getClass().getName()) if java else str(failure)
    return said.strip().splitlines()[0] if said.strip() else type(failure).__name__
