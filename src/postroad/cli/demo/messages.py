"""The scene about messages: a good one and damaged ones, told apart by inspection."""

from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from rich.console import Console
from rich.table import Table

from postroad.msh.report import report
from postroad.node.evidence.inspecting import Tools, inspect_source
from postroad.node.first_steps.example import Company, Example, examples, found_companies


def tell_messages_apart(folder: Path, console: Console, now: datetime) -> list[str]:
    """Write the messages to the folder and judge them; those that were judged wrongly."""
    companies = found_companies(now)
    made = examples(companies, now)
    _save(folder, companies, made)
    tools = Tools(trust=(companies.authority.certificate,), keys=(companies.seller,))
    table = Table("message", "what happened", "verdict", "because")
    surprises = []
    for example in made:
        facts = report(inspect_source(example.message, tools))
        if facts["holds"] != example.holds:
            surprises.append(f"{example.name}.http was not judged as it should be")
        worst = next((e for e in facts["errors"] if e["severity"] == "failure"), None)
        because = f"{worst['code']} {worst['detail']}" if worst else ""
        if not worst and not facts["signature"]["present"]:
            because = "it holds, but nobody signed it: a P-Mode that asks for it refuses it"
        verdict = "[green]holds[/]" if facts["holds"] else "[red]does not hold[/]"
        table.add_row(example.name, example.story, verdict, because)
    console.print(table)
    return surprises


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
