"""Nothing that an attacker sends may make us call anybody; the message that attacks begin with."""

import socket
from typing import Any, NoReturn

import pytest

from tests.attack.messages import BODY, TWO, Package, make


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
