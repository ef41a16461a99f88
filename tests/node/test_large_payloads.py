"""A large payload is compressed, sent and opened in small memory, at both ends."""

import hashlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad.node.service import Submission, SubmittedPayload
from postroad.store.records import Side, State
from postroad.transport import http_restart
from postroad.wire.content import CHUNK
from postroad.wire.limits import MIB
from tests.node.uploads import PMODE, M, make, parties
from tests.transport.lines import Cut
from tests.transport.wires import in_loop

SIZE = 64 * MIB
MOST = 24 * MIB
"""What both nodes together may take for it: much less than the payload."""
NOISE = hashlib.shake_256(b"noise").digest(CHUNK // 8)


def pieces() -> Iterator[bytes]:
    """An eighth of it cannot be compressed."""
    for number in range(SIZE // CHUNK):
        shifted = NOISE[number:] + NOISE[:number]
        yield shifted + number.to_bytes(8) * (7 * CHUNK // 64)


@pytest.mark.parametrize("gzip", [True, False])
@in_loop
async def test_a_large_payload_goes_through_both_nodes_in_small_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gzip: bool
) -> None:
    monkeypatch.setattr(http_restart, "_FIRST_PAUSE", 0.001)
    made = make(tmp_path / "made")
    cuts = [Cut(up=5 * MIB)]
    async with parties(made, tmp_path / "both", cuts, store="sqlite", gzip=gzip) as both:
        sink, digest = both.buyer.new_sink(), hashlib.sha256()
        for piece in pieces():
            sink.write(piece)
            digest.update(piece)
        given = SubmittedPayload(sink.finish(), digest.digest())
        tracemalloc.start()
        try:
            await both.buyer.submit(Submission(PMODE, (given,), M))
            sent = await both.buyer.settled(M, 60)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert sent is not None
        assert (sent.state, sent.attempts) == (State.ACKNOWLEDGED, 1)
        assert peak < MOST
        message = await both.seller.message(M, Side.RECEIVING)
        assert message is not None
        [part] = message.parts
        assert part.compressed is gzip
        assert (part.stored.size < SIZE // 4) is gzip
        found = hashlib.sha256()
        for chunk in both.seller.part(message, part).chunks():
            found.update(chunk)
        assert found.digest() == digest.digest()
