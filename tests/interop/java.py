"""Peers for live tests; a machine without Java or Maven skips them, loudly."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from postroad.cli import java_peer
from postroad.cli.java_peer import Peer as Peer
from postroad.cli.java_peer import PeerError as PeerError
from postroad.cli.java_peer import PeerUnavailable

REQUIRED: Final = "POSTROAD_INTEROP_REQUIRED"
"""Set by `make interop`: a peer that cannot be started is then a failure, not a skip."""


def build(peer: str) -> str:
    """Compile a peer and return its class path."""
    with _skipping():
        return java_peer.build(peer)
    raise AssertionError


def start(peer: str, main_class: str, *arguments: str | Path, **options: Any) -> Peer:
    """Start a peer and wait until its control port listens."""
    with _skipping():
        return java_peer.start(peer, main_class, *arguments, **options)
    raise AssertionError


@contextmanager
def _skipping() -> Iterator[None]:
    try:
        yield
    except PeerUnavailable as error:
        if os.environ.get(REQUIRED):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(f"live peers: {error}")
