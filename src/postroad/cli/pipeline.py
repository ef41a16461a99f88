"""`postroad pipeline`: the journal as tables, through Spark."""

import typer

from postroad.cli.extras import needs_extra
from postroad.cli.pipeline_reconcile import reconcile
from postroad.cli.pipeline_report import report
from postroad.cli.pipeline_run import run
from postroad.cli.pipeline_simulate import simulate
from postroad.cli.pipeline_verify import verify

app = typer.Typer(
    help="Turn the journal into tables with Spark, and find out what became of every message.",
    no_args_is_help=True,
)
for command in (run, reconcile, verify, report, simulate):
    app.command()(needs_extra("spark")(command))
