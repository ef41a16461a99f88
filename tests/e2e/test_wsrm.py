"""WS-ReliableMessaging between real nodes, over real sockets, through kill -9 of both."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.nodes import Pair, Served, make_pair, started, until

BACK, CALLED = "orders-in-order", "orders-called-back"
COUNT = 30


def _pmode(pair: Pair, name: str, pattern: str) -> dict[str, Any]:
    """Signed orders of the buyer's in a sequence, in their order."""
    with pair.buyer.client() as client:
        [known] = [one for one in client.pmodes() if one.id == "buyer-to-seller-order"]
    own = next(one for one in pair.buyer.serving.doors if "msh" in one.serve)
    contract: dict[str, Any] = {"enabled": True}
    if pattern == "Callback":
        contract["acks_to"] = own.url + own.path
    return {
        "id": name,
        "agreement": "urn:example:agreed",
        "initiator": {"party": known.initiator},
        "responder": {"party": known.responder},
        "legs": [
            {
                "protocol": {"address": known.address},
                "business_info": {"service": "urn:example:ordered", "action": name},
                "security": {
                    "x509": {"sign": True, "signature": {"certificate": "../keys/buyer.pem"}},
                    "send_receipt": {"enabled": False, "certificate": "../keys/seller.pem"},
                },
                "reliability": {
                    "protocol": "wsrm",
                    "at_least_once": {"contract": contract, "reply_pattern": pattern},
                    "at_most_once": True,
                    "in_order": True,
                    "retry": {"max_retries": "unlimited", "timeout": "PT1S", "period": "PT1S"},
                },
            }
        ],
    }


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = make_pair(tmp_path_factory.mktemp("ordered"))
    try:
        started(pair)
        agreed = [_pmode(pair, BACK, "Response"), _pmode(pair, CALLED, "Callback")]
        for one in (pair.buyer, pair.seller):
            text = yaml.safe_dump({"pmodes": agreed})
            (one.folder / "pmodes" / "reliable.yaml").write_text(text)
            with one.client() as client:
                client.reload()
        yield pair
    finally:
        pair.end()


def _killed(one: Served) -> None:
    one.end(signal.SIGKILL)
    one.start()


@pytest.mark.parametrize("name", [BACK, CALLED])
def test_killed_nodes_deliver_everything_once_and_in_order(
    ordered: Pair, name: str, tmp_path: Path
) -> None:
    wanted = [f"{number}.{name}@buyer.example" for number in range(COUNT)]
    payload = tmp_path / "order.xml"
    payload.write_bytes(b"<order/>")
    for number, message_id in enumerate(wanted):
        with ordered.buyer.client() as client:
            client.send(pmode=name, payloads=[payload], message_id=message_id)
        if number == COUNT // 3:
            _killed(ordered.seller)
        if number == COUNT // 2:
            _killed(ordered.buyer)

    def settled() -> bool:
        with ordered.buyer.client() as client:
            return all(client.status(one).state == "acknowledged" for one in wanted)

    until(settled, "all are acknowledged")
    with ordered.seller.client() as client:
        inbox = [one.message_id for one in client.inbox(pmode=name)]
    assert [one for one in inbox if name in one] == wanted
