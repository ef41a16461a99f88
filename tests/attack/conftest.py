"""Nothing that an attacker sends may make us call anybody; what attacks begin with."""

import socket
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from tests.attack.messages import BODY, TWO, Package, make
from tests.attack.network import Town, town

EACH_IS_JOURNALED = "limits: {refused: {events: 1000000}}"
"""So that each attack is found in the journal, however many there were before it."""


@pytest.fixture(autouse=True)
def _no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a message made us open a connection")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)


@pytest.fixture(scope="module")
def message() -> Package:
    """A good message, signed: two attachments and a body."""
    return make(TWO, body=BODY)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A node that is attacked over the network."""
    with town(tmp_path_factory.mktemp("town") / "folder", EACH_IS_JOURNALED) as made:
        yield made
