"""Whether the journal can be shipped here: it needs libraries that not every node has."""

import importlib.util
from typing import Final

from postroad.node.settings.config import Config, ConfigError

_NEEDED: Final = ("pyarrow", "fsspec")


def can_ship() -> bool:
    """Whether the libraries that shipping needs are installed."""
    return all(importlib.util.find_spec(name) is not None for name in _NEEDED)


def check_shipping(config: Config) -> None:
    """`ConfigError` where shipping is wanted, and cannot be done here."""
    if config.journal.ship_to is not None and not can_ship():
        problem = config.problem(
            ("journal", "ship_to"),
            f"the journal cannot be shipped without {' and '.join(_NEEDED)}",
            "install them with: pip install 'postroad[lake]', or remove the setting",
        )
        raise ConfigError([problem])
