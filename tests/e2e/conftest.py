"""Pairs of nodes that run as long as the tests do."""

from collections.abc import Iterator

import pytest

from tests.e2e.nodes import Pair, make_pair, started


@pytest.fixture(scope="session")
def lasting_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both over plain HTTP. A test may leave one of them stopped.

    The buyer's application has a second to answer a request whose sender waits, so it is late.
    """
    pair = make_pair(tmp_path_factory.mktemp("plain"))
    config = pair.buyer.config
    config.write_text(config.read_text() + "\nhttp: {reply_timeout: PT1S}\n")
    try:
        yield started(pair)
    finally:
        pair.end()


@pytest.fixture(scope="session")
def tls_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both over TLS, with certificates of both ends."""
    pair = make_pair(tmp_path_factory.mktemp("tls"), "--with-tls", "--client-certificates")
    try:
        yield started(pair)
    finally:
        pair.end()


@pytest.fixture
def pair(lasting_pair: Pair) -> Pair:
    """Both over plain HTTP, and both running."""
    for one in (lasting_pair.buyer, lasting_pair.seller):
        if one.process is None:
            one.start()
    return lasting_pair
