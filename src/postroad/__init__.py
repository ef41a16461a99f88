"""Postroad: business documents between companies, once and only once, with proof."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from postroad.api.client import AsyncClient, Client
    from postroad.node.evidence.inspecting import inspect
    from postroad.node.steps.webhook_signature import WebhookRefused, verify_webhook

__all__ = [
    "AsyncClient",
    "Client",
    "WebhookRefused",
    "__version__",
    "inspect",
    "verify_webhook",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for only when it is asked for, so that commands start quickly."""
    if name == "inspect":
        from postroad.node.evidence.inspecting import inspect

        return inspect
    if name in ("AsyncClient", "Client"):
        from postroad.api import client

        return getattr(client, name)
    if name in ("WebhookRefused", "verify_webhook"):
        from postroad.node.steps import webhook_signature

        return getattr(webhook_signature, name)
    raise AttributeError(f"module 'postroad' has no attribute {name!r}")
