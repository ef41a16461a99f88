"""Postroad: business documents between companies, once and only once, with proof."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from postroad.api.client import AsyncClient, Client
    from postroad.node.inspecting import inspect

__all__ = ["AsyncClient", "Client", "__version__", "inspect"]


def __getattr__(name: str) -> Any:
    """Load what is asked for only when it is asked for, so that commands start quickly."""
    if name == "inspect":
        from postroad.node.inspecting import inspect

        return inspect
    if name in ("AsyncClient", "Client"):
        from postroad.api import client

        return getattr(client, name)
    raise AttributeError(f"module 'postroad' has no attribute {name!r}")
