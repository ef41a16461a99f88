"""The tables of a journal, each a dataset of a Spark Declarative Pipeline.

The functions are those of `postroad pipeline run`; here all is computed anew on each run.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from postroad.pipeline import declarative, schema, tables
from postroad.pipeline.covering import Covering, gaps, retirements, stretches
from postroad.pipeline.facts import COLUMNS, facts

spark = SparkSession.active()
journal = spark.conf.get("spark.postroad.journal") or "journal"
if "://" not in journal:
    journal = str(Path(journal).resolve())
grace = timedelta(seconds=float(spark.conf.get("spark.postroad.graceSeconds") or 86400))


def dataset(name: str, rows: DataFrame, comment: str) -> None:
    dp.materialized_view(name=name, comment=comment)(lambda: rows)


def table(name: str, rows: DataFrame) -> None:
    dataset(name, rows, f"one row per {schema.TABLES[name].row}")


# Spark takes a pipeline down before any of its datasets is there. What must be looked at for that,
# columns and the times that the journal covers, is looked at in the files themselves.
judged = declarative.judged(spark, journal)
kept = declarative.kept(judged)
parts = stretches(kept)
covering = Covering.of(parts, retirements(kept))
table("events", kept)
dataset("quarantine", declarative.quarantined(judged), "one row per bad event, with the reason")
made = facts(kept)
dataset("facts", made, "one row per message: all that its events say")

known: Any = declarative.Described(spark.read.table("facts"), COLUMNS)
table("messages", tables.messages(known))
table("hops", tables.hops(known))
# Spark asks for the columns of what is given to Python: of a dataset it could not be told yet.
table("conversations", tables.conversations(made))
table("partners", tables.partners(made))
table("packing", tables.packing(made))
table("reconciliation", tables.reconciliation(known, covering, grace))
missing = tables.gap_findings(spark, gaps(parts))
table("findings", tables.fact_findings(known).unionByName(missing))
