"""What the listeners of a node have in common: how clients are told apart, and what they cause."""

import logging
from typing import Literal

from postroad.node.node import Node
from postroad.node.settings.config import Config
from postroad.transport.admission import AddressRules
from postroad.transport.incidents import Incidents


def address_rules(config: Config) -> AddressRules:
    """How the connections of one address are counted."""
    return AddressRules(config.security.exempt_networks, config.security.ipv6_prefix)


def listener_incidents(node: Node, listener: Literal["http", "mail"]) -> Incidents:
    """The incidents of a kind of listener, counted in a metric of the node."""

    def count(reason: str) -> None:
        node.context.count("client_incidents", listener=listener, reason=reason)

    return Incidents(logging.getLogger(f"postroad.{listener}"), count)
