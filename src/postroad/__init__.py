"""Postroad: business documents between companies, once and only once, with proof."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from postroad.node.inspecting import inspect

__all__ = ["__version__", "inspect"]


def __getattr__(name: str) -> Any:
    """Load what is asked for only when it is asked for, so that commands start quickly."""
    if name == "inspect":
        from postroad.node.inspecting import inspect

        return inspect
    raise AttributeError(f"module 'postroad' has no attribute {name!r}")
