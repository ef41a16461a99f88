"""The demo's large file: it goes in fragments, over a line that is cut while they are under way."""

import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Final

import yaml
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from postroad.api.client import Client

DRAWINGS: Final = "buyer-to-seller-drawings"
SIZE: Final = 200_000_000
CUTS: Final = (50_000_000, 70_000_000)
"""So many bytes pass before the line is cut, and so many more before it is cut again."""
_SIGNED: Final = "buyer-to-seller-signed"
_RETRY: Final = {"max_retries": 30, "period": "PT0.5S"}
_LOOK: Final = 0.3


def agree(folders: Mapping[str, Path], address: str, back: str, fragment: str = "8 MiB") -> None:
    """Derive the P-Mode of both from the one for signed orders; receipts go back to an address."""
    for folder in folders.values():
        pmode = yaml.safe_load((folder / f"pmodes/{_SIGNED}.yaml").read_text())
        [leg] = pmode["legs"]
        pmode["id"] = DRAWINGS
        leg["protocol"]["address"] = address
        leg["business_info"]["action"] = "Drawings"
        leg["splitting"] = {"fragment_size": fragment, "join_interval": "PT1H"}
        leg["reception_awareness"]["retry"]["parameters"] = _RETRY
        leg.pop("payload_service")
        # With fragments nothing can be said on the response.
        leg["error_handling"]["report"] = {}
        leg["security"]["send_receipt"].pop("reply_pattern")
        leg["security"]["send_receipt"]["reply_to"] = back
        (folder / f"pmodes/{DRAWINGS}.yaml").write_text(yaml.safe_dump(pmode))


def draw(file: Path) -> None:
    """A file of the size, which nobody can compress."""
    block = os.urandom(1_000_000)
    with file.open("wb") as out:
        for _ in range(SIZE // len(block)):
            out.write(block)


def follow(client: Client, message_id: str, console: Console, patience: float) -> None:
    """Show how far it is, until it is at rest."""
    until = monotonic() + patience
    columns = TextColumn("  arrived"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=SIZE)
        while monotonic() < until:
            message = client.wait(message_id, _LOOK)
            if message.transfer is not None:
                there, size = message.transfer.arrived_bytes, message.transfer.bytes
                bar.update(task, completed=there, total=size)
            if message.settled:
                break
