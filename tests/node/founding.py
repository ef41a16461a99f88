"""The folders of buyer and seller that `postroad init` makes: made once, copied for each test."""

import shutil
import tempfile
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final

from postroad.node.first_steps.initializing import Plan, Station, initialize

BUYER: Final = "buyer"
SELLER: Final = "seller"


def found(folder: Path, now: datetime) -> None:
    """Both parties below a folder, since a certain moment.

    RSA keys are slow to make, and slow to check wherever others are read.
    """
    shutil.copytree(_founded(now).name, folder, dirs_exist_ok=True)


@cache
def _founded(now: datetime) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="postroad-parties-")
    first = Station(BUYER, Path(folder.name) / BUYER, 18080)
    partner = Station(SELLER, Path(folder.name) / SELLER, 18081)
    initialize(Plan(first, partner, unsigned=True), now=now)
    return folder
