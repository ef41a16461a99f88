"""`postroad demo`: the whole story in one go, on this machine."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from rich.console import Console
from rich.table import Table

from postroad.cli.inspection_tree import inspection_tree
from postroad.cli.problems import fail
from postroad.msh.report import report
from postroad.node.example import Company, Example, examples, found_companies
from postroad.node.inspecting import Tools, inspect_source


def demo(
    folder: Annotated[
        Path, typer.Option("--dir", help="Where the messages, keys and certificates go.")
    ] = Path("demo-messages"),
) -> None:
    """Make AS4 messages, a good one and damaged ones, and tell them apart."""
    now = datetime.now(UTC)
    console = Console(highlight=False)
    companies = found_companies(now)
    made = examples(companies, now)
    try:
        _save(folder, companies, made)
    except OSError as error:
        fail(f"{folder}: {error.strerror or error}")
    tools = Tools(trust=(companies.authority.certificate,), keys=(companies.seller,))
    console.print("A purchase order travels from buyer to seller. This is the message:\n")
    good = report(inspect_source(made[0].message, tools))
    console.print(inspection_tree({"file": f"{folder}/{made[0].name}.http", **good}))
    console.print("\nAnd this is what becomes of it on the way, in bad company:\n")
    table = Table("message", "what happened", "verdict", "because")
    surprises = 0
    for example in made:
        facts = report(inspect_source(example.message, tools))
        surprises += facts["holds"] != example.holds
        worst = next((e for e in facts["errors"] if e["severity"] == "failure"), None)
        because = f"{worst['code']} {worst['detail']}" if worst else ""
        if not worst and not facts["signature"]["present"]:
            because = "it holds, but nobody signed it: a P-Mode that asks for it refuses it"
        verdict = "[green]holds[/]" if facts["holds"] else "[red]does not hold[/]"
        table.add_row(example.name, example.story, verdict, because)
    console.print(table)
    command = f"postroad inspect {folder}/good.http --trust {folder}/authority.pem"
    typer.echo(f"\nLook for yourself:\n  {command} --key {folder}/seller.pem")
    if surprises:
        fail(f"{surprises} messages were not judged as they should be", code=1)


def _save(folder: Path, companies: Company, made: list[Example]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for example in made:
        (folder / f"{example.name}.http").write_bytes(example.message)
    authority = companies.authority.certificate.public_bytes(Encoding.PEM)
    (folder / "authority.pem").write_bytes(authority)
    key = companies.seller.private_key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    secret = folder / "seller.pem"
    secret.touch(mode=0o600)
    secret.write_bytes(key + companies.seller.certificate.public_bytes(Encoding.PEM))
