"""What a kind of P-Mode is: how it is answered, and how hard the sender tries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PARTIES: Final = ("buyer", "seller", "carrier")
RELAY: Final = "carrier"
SIGNERS: Final = frozenset(("buyer", "seller"))
SERVICE: Final = "urn:example:simulation"

FEW: Final = {"max_retries": 3, "period": "PT4S"}
MANY: Final = {"max_retries": 12, "period": "PT3S", "backoff": 1.5, "max_period": "PT20S"}
FOR_EVER: Final = {
    "max_retries": "unlimited",
    "timeout": "PT2S",
    "period": "PT3S",
    "backoff": 2,
    "max_period": "PT30S",
    "jitter": 0.5,
}


@dataclass(frozen=True)
class Kind:
    """A kind of P-Mode."""

    name: str
    receipt: str | None = "response"
    """response, callback, or None where no receipt is agreed on."""
    retry: Mapping[str, Any] | None = None
    awareness: Mapping[str, Any] = field(default_factory=dict)
    """What else stands below reception_awareness."""
    signed: bool = False
    errors_call_back: bool = False
    ebxml: Mapping[str, Any] | None = None
    """Its ebXML parameters; None: it speaks ebMS 3.0."""
    ways: tuple[str, ...] = ("http",)
    """The transports, in the order in which they are tried."""
    relay: Mapping[str, Any] | None = None
    """What the carrier, through whom it goes, does; None: it goes straight."""
    pulling: Mapping[str, Any] | None = None
    """How its receiver pulls; None: it is pushed."""
    bundling: Mapping[str, Any] | None = None
    """How its messages are bundled with each other; None: each goes alone."""
    reliability: Mapping[str, Any] | None = None
    """Its parameters of WS-ReliableMessaging; None: it has reception awareness."""
    binding: str | None = None
    """Of a two-way exchange; None: nobody replies."""
    alternate: str | None = None
    """The binding of replies that are late."""
    reply: "Kind | None" = None
    """How the replies are sent."""

    @property
    def order(self) -> str | None:
        if self.ebxml is not None:
            ordered = self.ebxml.get("message_order") == "Guaranteed"
            return "conversation" if ordered else "pmode" if self.is_linked else None
        if self.reliability is not None and self.reliability.get("in_order"):
            return "pmode"
        found = self.awareness.get("in_order")
        return str(found) if found else None

    @property
    def endless(self) -> bool:
        """Whether the sender goes on until there is an answer."""
        return self.retry is not None and self.retry.get("max_retries") == "unlimited"

    @property
    def capacity(self) -> int | None:
        """How many messages its channel holds; None: any number, or there is no channel."""
        return None if self.pulling is None else self.pulling.get("capacity")

    @property
    def only_two(self) -> bool:
        """Whether only buyer and seller agreed on it."""
        return self.signed or self.relay is not None

    @property
    def is_linked(self) -> bool:
        """Whether it has the link discipline of draft 001."""
        return self.ebxml is not None and self.ebxml.get("profile") == "rm001"

    @property
    def is_reliable(self) -> bool:
        return self.ebxml is None or self.ebxml.get("delivery_semantics") == "OnceAndOnlyOnce"
