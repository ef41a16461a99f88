"""File names from names that strangers chose."""

import re
from typing import Final

_LONGEST: Final = 150
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def safe_name(wanted: str | None, otherwise: str) -> str:
    """A name for a file in a folder of ours: never a path, hidden, or strange to a shell."""
    last = re.split(r"[/\\]", wanted or "")[-1]
    name = re.sub(r"[^\w.,+=@ ()-]", "_", last).strip(" .")
    if not name or name.startswith("-") or _RESERVED.fullmatch(name):
        return otherwise
    if len(name.encode()) <= _LONGEST:
        return name
    stem, dot, suffix = name.rpartition(".")
    ending = f"{dot}{suffix}" if dot and len(suffix) <= 10 else ""
    kept = (stem if ending else name).encode()[: _LONGEST - len(ending)]
    return kept.decode(errors="ignore").rstrip(" .") + ending
