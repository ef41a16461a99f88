"""Streaming over real sockets: memory, pace, and ends that come too early."""

import asyncio
import contextlib
import hashlib
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from postroad.transport.http_outgoing import TransportFailure
from tests.node.streams import HERE, M, Next, flowing, letter, streaming
from tests.transport.wires import in_loop, serving, talking

MIB = 1024 * 1024


def sync(url: str) -> dict[str, Any]:
    return {"push": url, "forward": "sync"}


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("chunked", [False, True])
@in_loop
async def test_head_and_bytes_pass_unchanged_in_both_directions(
    tmp_path: Path, chunked: bool
) -> None:
    seller = Next(answer=b"x" * 700_000, headers=[(b"retry-after", b"7")], status=503)
    kind, body = letter(b"y" * 700_000)
    async with serving(seller) as server, streaming(tmp_path, sync(server.url)) as hub:
        cut = (body[:100], body[100:70_000], body[70_000:])
        sent = flowing(*cut) if chunked else body
        reply = await hub.post(kind, sent, ("SOAPAction", '"urn:example:do"'))
        await hub.until("send_failed")
    assert seller.digests == [sha256(body)]
    head = seller.heads[0]
    assert (head[b"content-type"], head[b"soapaction"]) == (kind.encode(), b'"urn:example:do"')
    assert (b"content-length" in head) is not chunked
    assert (reply.status, reply.content_type) == (503, "application/soap+xml")
    assert reply.body == seller.answer
    assert dict(reply.headers)["retry-after"] == "7"


@in_loop
async def test_memory_does_not_grow_with_the_message(tmp_path: Path) -> None:
    seller = Next()

    async def peak(hub: Any, size: int) -> int:
        kind, body = letter(bytes(size))
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert (await hub.post(kind, flowing(*cut(body)))).status == 200
        return tracemalloc.get_traced_memory()[1] - before

    def cut(body: bytes) -> list[bytes]:
        return [body[at : at + 65536] for at in range(0, len(body), 65536)]

    tracemalloc.start()
    try:
        async with serving(seller) as server, streaming(tmp_path, sync(server.url)) as hub:
            for size in (MIB, 2 * MIB):
                await peak(hub, size)
            few, many = await peak(hub, 2 * MIB), await peak(hub, 40 * MIB)
    finally:
        tracemalloc.stop()
    # The test itself holds the pieces that it cuts.
    assert many - 40 * MIB < few - 2 * MIB + 2 * MIB


@in_loop
async def test_an_envelope_behind_an_attachment_is_found_and_the_bytes_are_the_same(
    tmp_path: Path,
) -> None:
    kind, body = letter(b"order")
    seller = Next()
    boundary, *parts, end = body.split(b"--=_stream")
    swapped = b"--=_stream".join([boundary, parts[1], parts[0], end])
    root = parts[0].lower().split(b"content-id: ")[1].split(b"\r\n")[0].decode()
    async with serving(seller) as server, streaming(tmp_path, sync(server.url)) as hub:
        said = kind if "start=" in kind else f'{kind}; start="{root}"'
        reply = await hub.post(said, swapped)
        await hub.until("hop_acked")
    assert reply.body == seller.answer
    assert seller.digests == [sha256(swapped)]


@in_loop
async def test_the_next_msh_never_has_the_whole_of_what_a_sender_stops_to_send(
    tmp_path: Path,
) -> None:
    seller = Next()
    kind, body = letter(b"y" * MIB)
    async with serving(seller) as server, streaming(tmp_path, sync(server.url)) as hub:
        with pytest.raises(TransportFailure):
            await hub.post(kind, flowing(body[: MIB // 2], broken=True))
        await seller.broken.wait()
        [raised] = [
            one
            for one in await _journal(hub)
            if one.event == "error_raised" and one.error_code == "EBMS:0007"
        ]
        assert "cut short" in (raised.detail or "")
        assert await hub.story() == []
    assert seller.digests == []


async def _journal(hub: Any) -> list[Any]:
    found: list[Any] = []
    while not any(one.event == "error_raised" for one in found):
        recorded = await hub.node.context.store.look(lambda reader: reader.journal(0, 100))
        found = [one.event for one in recorded]
        await asyncio.sleep(0)
    return found


@pytest.mark.parametrize("said", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 799 No\r\n\r\n"])
@in_loop
async def test_a_next_msh_that_closes_or_talks_nonsense_leaves_a_doubt(
    tmp_path: Path, said: bytes
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"--=_stream--")
        writer.write(said)
        await writer.drain()

    kind, body = letter(b"order")
    async with talking(talk) as url, streaming(tmp_path, sync(url)) as hub:
        reply = await hub.post(kind, body)
        assert await hub.story() == ["received", "forwarded", "error_raised"]
    assert reply.status == 502
    assert b"EBMS:0004" in reply.body


@in_loop
async def test_a_next_msh_that_hangs_is_not_waited_for_longer_than_is_set(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    kind, body = letter(b"order")
    patience = {"http": {"answer_timeout": "PT1S"}}
    async with talking(talk) as url, streaming(tmp_path, sync(url), **patience) as hub:
        reply = await hub.post(kind, body)
    assert (reply.status, b"EBMS:0004" in reply.body) == (502, True)


@in_loop
async def test_an_answer_that_breaks_off_breaks_off_at_the_sender(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"--=_stream--")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await writer.drain()

    kind, body = letter(b"order")
    async with talking(talk) as url, streaming(tmp_path, sync(url)) as hub:
        with pytest.raises(TransportFailure):
            await hub.post(kind, body)
        await hub.until("send_failed")


@in_loop
async def test_nobody_listens_at_any_address(tmp_path: Path) -> None:
    kind, body = letter(b"y" * MIB)
    nobody = {"push": [f"{HERE}:1/msh", f"{HERE}:2/msh"], "forward": "sync"}
    async with streaming(tmp_path, nobody) as hub:
        reply = await hub.post(kind, body)
        assert await hub.story() == ["error_raised"]
    assert b"EBMS:0005" in reply.body
    assert M.encode() in reply.body


@in_loop
async def test_what_is_larger_than_it_may_be_never_arrives_whole(tmp_path: Path) -> None:
    seller = Next()
    kind, body = letter(b"y" * MIB)
    limits = {"limits": {"message_bytes": "300 KiB", "part_bytes": "300 KiB"}}
    async with serving(seller) as server, streaming(tmp_path, sync(server.url), **limits) as hub:
        with contextlib.suppress(TransportFailure):
            reply = await hub.post(kind, flowing(body[:200_000], body[200_000:400_000], body))
            assert reply.status == 413
        await seller.broken.wait()
    assert seller.digests == []


@in_loop
async def test_an_answer_before_the_end_of_the_body_is_told_at_once(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"yyy")
        writer.write(b"HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    kind, body = letter(b"y" * MIB)
    async with talking(talk) as url, streaming(tmp_path, {**sync(url), "forward": "stream"}) as hub:
        with contextlib.suppress(TransportFailure):
            reply = await hub.post(kind, body)
            assert b"EBMS:0005" in reply.body
        await hub.until("error_raised")
        assert await hub.story() == ["received", "forwarded", "error_raised"]
