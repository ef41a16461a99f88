"""The listeners of a node itself, which the egress policy keeps it from contacting."""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from postroad.node.settings.config import Config
from postroad.node.settings.config_groups import split_address
from postroad.security.egress import Listener, host_of

Bound = tuple[str, int]
"""The host and port that a socket is bound to."""


def configured_listeners(config: Config) -> tuple[Listener, ...]:
    """List the listeners as far as the configuration tells, before they are open."""
    doors = [(door.host, door.port) for door in config.listen]
    return own_listeners(config, doors, configured_mail(config))


def configured_mail(config: Config) -> Bound | None:
    """The address where mail is taken, as far as the configuration tells."""
    listen = config.mail.listen if config.mail is not None else None
    return None if listen is None else split_address(listen)


def own_listeners(
    config: Config, doors: Sequence[Bound], mail: Bound | None = None
) -> tuple[Listener, ...]:
    """List the listeners at the addresses that they are bound to, and by their public names."""
    return tuple(_listeners(config, doors, mail))


def _listeners(config: Config, doors: Sequence[Bound], mail: Bound | None) -> Iterator[Listener]:
    for door, (host, port) in zip(config.listen, doors, strict=True):
        endpoints = (door.path,) if "msh" in door.serve else ()
        yield Listener(host, port, endpoints, "api" in door.serve)
    if mail is not None:
        yield Listener(*mail)
    for url in (config.public_url, *(one.public_url for one in config.listen)):
        if url is not None:
            yield Listener(host_of(url), urlsplit(url).port or _default_port(url))


def _default_port(url: str) -> int:
    return 443 if url.lower().startswith("https:") else 80
