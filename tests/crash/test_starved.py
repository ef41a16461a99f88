"""A real receiver that stands still for a while: its sender does not flood it, and all arrives."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from postroad.store.records import Side
from tests.crash.books import read_book
from tests.e2e.nodes import PATIENCE, Pair, Served, make_pair, started, until

MESSAGES: Final = 40
_SOONER: Final = {
    "period: PT30S": "period: PT1S",
    "max_retries: 8": "max_retries: unlimited",
    "backoff: 2 .*": "backoff: 1",
    "max_period: PT30M .*": "",
}
_SAMPLE: Final = re.compile(r"^postroad_(\w+?)(?:_total)?(?:\{(.*)\})? (\d+)$", re.MULTILINE)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Both running. An answer is waited for a second, and no breaker helps."""
    made = make_pair(tmp_path)
    for file in (made.buyer.folder / "pmodes").glob("*.yaml"):
        text = file.read_text()
        for before, after in _SOONER.items():
            text = re.sub(before, after, text)
        file.write_text(text)
    config = made.buyer.config
    config.write_text(f"{config.read_text()}\nsend: {{breaker: {{failures: 0}}}}\n")
    try:
        yield started(made)
    finally:
        made.end()


def figure(node: Served, name: str, label: str = "") -> int:
    """The sum of a metric of a node, over all that have a label."""
    token = (node.folder / "keys" / "api.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    text = httpx.get(f"{node.serving.api_url}/metrics", headers=headers, timeout=PATIENCE).text
    return sum(int(one[3]) for one in _SAMPLE.finditer(text) if one[1] == name and label in one[2])


def test_a_receiver_that_stands_still_is_not_flooded(pair: Pair) -> None:
    buyer, seller = pair.buyer, pair.seller
    names = [f"starved-{number}@buyer" for number in range(MESSAGES)]
    seller.tell(signal.SIGSTOP)
    with buyer.client() as client:
        for name in names:
            client.send(pmode="buyer-to-seller-order", payloads=[b"paper"], message_id=name)
        until(lambda: figure(buyer, "send_limit") == 1, "one message is sent at a time")
        tried = figure(buyer, "send_attempts")
        until(lambda: figure(buyer, "send_attempts") >= tried + 3, "three more attempts")
        seller.tell(signal.SIGCONT)
        for name in names:
            assert client.wait(name, PATIENCE).state == "acknowledged"
    assert figure(seller, "client_incidents", "client_gone") > 0
    assert "fewer messages are sent at once" in buyer.log
    pair.end()
    sent = read_book(buyer.data, "buyer", Side.SENDING)
    received = read_book(seller.data, "seller", Side.RECEIVING)
    assert received.count("delivered").keys() == set(names)
    assert set(received.count("delivered").values()) == {1}
    # Each message may have to be sent again once; a storm would send all of them again each second.
    assert sent.count("resent").total() < 1.5 * MESSAGES
    # What lay at the receiver when it stood still was dropped, not stored in vain.
    assert received.count("duplicate").total() < MESSAGES / 4
