"""A node that is killed in the midst of an upload has what it kept of it, and no more."""

import asyncio
import signal
import socket
from datetime import UTC, datetime
from pathlib import Path

from postroad.store.memory import MemoryStore
from postroad.store.opening import LOCK
from tests.e2e.nodes import Served, make_pair, until
from tests.node.exchange import BUYER, SELLER, Clock, Exchange
from tests.node.uploads import PAYLOAD, M, agreed

PMODE = "buyer-to-seller-signed"
NAME = "a-name-that-nobody-would-ever-guess-0001"
HALF = len(PAYLOAD) // 2


class Wire:
    """One message, and those bytes of it that a test wants to go over the wire."""

    def __init__(self, seller: Served, kind: str, body: bytes) -> None:
        self.seller = seller
        self.kind = kind
        self.body = body

    def say(self, *lines: str, body: bytes = b"") -> socket.socket:
        line = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        head = "\r\n".join([*lines, "Host: x", f'ETag: "{NAME}"', "", ""])
        line.sendall(head.encode() + body)
        return line

    @property
    def port(self) -> int:
        return int((self.seller.serving.msh_url or "").rsplit(":", 1)[1].split("/")[0])

    def post(self, begin: int, end: int) -> socket.socket:
        """Some of the message, said to be all from there on."""
        total = len(self.body)
        lines = [
            "POST /msh HTTP/1.1",
            f"Content-Type: {self.kind}",
            f"Content-Length: {total - begin}",
            "Connection: close",
        ]
        if begin:
            lines.append(f"Content-Range: bytes {begin}-{total - 1}/{total}")
        return self.say(*lines, body=self.body[begin:end])

    def there(self) -> int:
        with self.say("HEAD /msh HTTP/1.1", "Connection: close") as line:
            said = line.makefile("rb").read().lower()
        return int(said.split(b"content-length: ")[1].split(b"\r\n")[0])


async def written(folder: Path) -> tuple[str, bytes]:
    """Content-Type and body of a message of the buyer."""
    stores = {name: MemoryStore(name) for name in (BUYER, SELLER)}
    exchange = Exchange(folder, dict(stores), Clock(datetime.now(UTC)))
    message = await exchange.send(M, ("application/octet-stream", PAYLOAD), kind="signed")
    return exchange.wire(message)


def test_what_was_kept_of_an_upload_outlives_a_kill_and_nothing_else_does(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    seller = pair.seller
    agreed(seller.folder, PMODE, True)
    wire = Wire(seller, *asyncio.run(written(tmp_path)))
    try:
        seller.start()
        wire.post(0, HALF).close()
        until(lambda: wire.there() == HALF, "the first half is kept")
        with wire.post(HALF, HALF + 300_000):
            until(lambda: in_hand(seller) > 0, "the rest is coming")
            seller.end(signal.SIGKILL)
        seller.start()
        assert in_hand(seller) == 0
        assert wire.there() == HALF
        with wire.post(HALF, len(wire.body)) as line:
            assert line.makefile("rb").read().startswith(b"HTTP/1.1 200")
        with seller.client() as client:
            assert [one.message_id for one in client.inbox()] == [M]
    finally:
        pair.end()


def in_hand(node: Served) -> int:
    """Files that a process has under its hands."""
    return sum(path.name != LOCK for path in (node.data / "incoming").glob("*/*"))
