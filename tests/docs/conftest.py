"""Two nodes, made once; and a folder for the reader of each page."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from postroad.node.steps.webhook_signature import HEADER, sign_webhook
from tests.conftest import PROJECT, Demo
from tests.docs.pages import uses_spark
from tests.docs.terminal import Output, Terminal
from tests.e2e.nodes import Pair, make_pair

Sit = Callable[[str], Terminal]


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """What `postroad init buyer --partner seller` makes, both served, with some messages."""
    pair = make_pair(tmp_path_factory.mktemp("nodes"))
    try:
        yield _busy(pair)
    finally:
        pair.end()


def _busy(pair: Pair) -> Pair:
    """The messages that pages speak of as being there already."""
    order, order_id = pair.buyer.folder / "order.xml", "--message-id"
    pair.seller.begin()
    pair.buyer.start()
    pair.seller.ready()
    sent = pair.send(order, order_id, "order-3@buyer.example", "--wait")
    assert sent.exit_code == 0, sent.output
    invoice = (
        "send", "--pmode", "seller-to-buyer-order", "--payload", order,
        order_id, "invoice-1@seller.example", "--wait",
    )  # fmt: skip
    assert pair.seller.run(*invoice).exit_code == 0
    agreed = pair.seller.folder / "pmodes/buyer-to-seller-order.yaml"
    text = agreed.read_text()
    with pair.seller.client() as seller:
        agreed.write_text(text.replace("action: NewOrder", "action: OldOrder"))
        seller.reload()
        assert pair.send(order, order_id, "order-4@buyer.example", "--wait").exit_code == 1
        agreed.write_text(text)
        seller.reload()
    return pair


@pytest.fixture
def sit(nodes: Pair, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sit]:
    """A terminal for the reader of a page."""

    seats: list[Terminal] = []

    def down(page: str) -> Terminal:
        terminal = Terminal(tmp_path, nodes)
        seats.append(terminal)
        for node in (nodes.buyer, nodes.seller):
            (tmp_path / node.name).symlink_to(node.folder)
        text = (PROJECT / page).read_text(encoding="utf-8")
        if uses_spark(page):
            # The reader's session is the one that runs already.
            request.getfixturevalue("spark")
        if "demo" in text:
            demo: Demo = request.getfixturevalue("demo")
            terminal.demo = Output(0, demo.told)
            (tmp_path / "demo").symlink_to(demo.folder)
        if page == "docs/webhook.md":
            terminal.names = _webhook_call()
        return terminal

    yield down
    for terminal in seats:
        terminal.leave()


def _webhook_call() -> dict[str, object]:
    """What an application has in hand when it is called."""
    body, secret = b'{"event": "received"}', "a secret of both"
    signature = sign_webhook(body, secret.encode(), datetime.now(UTC))
    return {"body": body, "secret": secret, "request": SimpleNamespace(headers={HEADER: signature})}
