"""The certificates of a rule: the next MSH is believed, and believes the hub, by these."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from postroad.transport.tls import server_context
from tests.node.streams import Next, letter, streaming
from tests.transport.handshakes import Files
from tests.transport.wires import in_loop, serving


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("forward", ["store", "stream", "sync"])
@in_loop
async def test_a_hub_shows_the_certificate_that_its_rule_names(
    tmp_path: Path, forward: str, shown: bool
) -> None:
    files, seller = Files(tmp_path), Next()
    door = server_context(
        files.of_server(authorities=(files.authority,), client_certificates="required")
    )
    security: dict[str, Any] = {
        "protocol": "TLS",
        "server": {"anchor_certificates": [str(files.authority)]},
    }
    if shown:
        security["client"] = {"certificate": str(files.key("client", files.client))}
    kind, body = letter(b"order")
    async with serving(seller, ssl=door) as server:
        to = {"push": server.url, "tls": security, "forward": forward}
        async with streaming(tmp_path, to, errors="log") as hub:
            reply = await hub.post(kind, body)
            assert reply.status in (200, 202)
            if shown or forward == "store":
                # In TLS 1.3 a client hears only after its message that it is not believed.
                await hub.until("forwarded")
            else:
                assert b"EBMS:000" in reply.body
    assert seller.digests == ([hashlib.sha256(body).hexdigest()] if shown else [])
