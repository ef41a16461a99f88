"""Asynchronous streaming over real sockets, with a next MSH that does not do what it should.

The sender hears 202 as soon as all of it left. What the next MSH makes of it is told later.
"""

import asyncio
import functools
import hashlib
from pathlib import Path
from typing import Any

import pytest

from postroad.transport.http_outgoing import Timeouts, TransportFailure
from tests.node.streams import Hub, Next, flowing, letter, streaming
from tests.transport.wires import Talk, in_loop, serving, talking

MIB = 1024 * 1024
END = b"--=_stream--"
REPORTED = ["received", "forwarded", "send_failed", "error_raised"]
REST: dict[str, Any] = {"forward": "stream"}
PATIENT: dict[str, Any] = {"http": {"answer_timeout": "PT1S"}}


def saying(said: bytes) -> Talk:
    """Reads the message, says something, and closes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(END)
        writer.write(said)
        await writer.drain()

    return talk


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _said(hub: Hub, message_id: str) -> tuple[str | None, str]:
    events = [one.event for one in await hub.node.events(message_id)]
    return events[-1].error_code, events[-1].detail or ""


BAD = [
    pytest.param(saying(b""), "EBMS:0004", "not known", id="closes"),
    pytest.param(saying(b"nonsense\r\n\r\n"), "EBMS:0004", "not known", id="talks nonsense"),
    pytest.param(
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
        "EBMS:0004",
        "not known",
        id="breaks off",
    ),
    pytest.param(silent, "EBMS:0004", "not known", id="hangs"),
    pytest.param(
        saying(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), "EBMS:0005", "500", id="500"
    ),
    pytest.param(
        saying(b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n"), "EBMS:0005", "503", id="503"
    ),
    pytest.param(
        saying(b"HTTP/1.1 302 Away\r\nContent-Length: 0\r\n\r\n"), "EBMS:0005", "302", id="302"
    ),
    pytest.param(
        saying(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"), "EBMS:0005", "404", id="404"
    ),
]


@pytest.mark.req("P2-2.5.6-01")
@pytest.mark.parametrize(("talk", "code", "words"), BAD)
@in_loop
async def test_a_bad_next_msh_is_told_later_and_takes_no_place_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, talk: Talk, code: str, words: str
) -> None:
    monkeypatch.setattr("postroad.node.hub.streaming._AT_ONCE", 1)
    async with (
        talking(talk) as url,
        streaming(tmp_path, {"push": url, **REST}, errors="log", **PATIENT) as hub,
    ):
        for name in ("first@buyer", "second@buyer"):
            reply = await hub.post(*letter(b"order", name))
            assert (reply.status, reply.body) == (202, b"")
            await hub.until("error_raised", name)
            assert await hub.story(name) == REPORTED
            told, detail = await _said(hub, name)
            assert told == code
            assert words in detail


@pytest.mark.parametrize(
    "answer", [b"<html>nonsense</html>", b"<S12:Envelope", b"\x00\xff"], ids=repr
)
@in_loop
async def test_a_body_that_nobody_can_read_says_nothing_against_a_good_status(
    tmp_path: Path, answer: bytes
) -> None:
    seller = Next(answer=answer)
    async with serving(seller) as server, streaming(tmp_path, _to(server.url)) as hub:
        reply = await hub.post(*letter(b"order"))
        assert reply.status == 202
        await hub.until("hop_acked")


@in_loop
async def test_an_answer_larger_than_a_message_may_be_leaves_a_doubt(tmp_path: Path) -> None:
    seller = Next(answer=b"x" * 400_000)
    limits = {"limits": {"message_bytes": "300 KiB", "part_bytes": "300 KiB"}}
    async with (
        serving(seller) as server,
        streaming(tmp_path, _to(server.url), errors="log", **limits) as hub,
    ):
        reply = await hub.post(*letter(b"order"))
        assert reply.status == 202
        await hub.until("error_raised")
        assert await hub.story() == REPORTED


@in_loop
async def test_a_next_msh_that_closes_in_the_middle_is_told_at_once(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"yyy")

    kind, body = letter(b"y" * 8 * MIB)
    async with talking(talk) as url, streaming(tmp_path, _to(url)) as hub:
        try:
            reply = await hub.post(kind, body)
            assert (reply.status, b"EBMS:0004" in reply.body) == (502, True)
        except TransportFailure:
            # Who still sends may miss the answer.
            pass
        await hub.until("error_raised")
        assert await hub.story() == ["received", "forwarded", "error_raised"]


@in_loop
async def test_a_next_msh_that_reads_no_further_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = functools.partial(Timeouts, stall=0.5)
    monkeypatch.setattr("postroad.node.hub.streaming.Timeouts", soon)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    kind, body = letter(b"y" * 64 * MIB)
    async with talking(talk) as url, streaming(tmp_path, _to(url), **PATIENT) as hub:
        try:
            reply = await hub.post(kind, body)
            assert (reply.status, b"EBMS:0004" in reply.body) == (502, True)
        except TransportFailure:
            pass
        await hub.until("error_raised")


@in_loop
async def test_the_next_msh_never_has_the_whole_of_what_a_sender_stops_to_send(
    tmp_path: Path,
) -> None:
    seller = Next()
    kind, body = letter(b"y" * MIB)
    async with serving(seller) as server, streaming(tmp_path, _to(server.url)) as hub:
        with pytest.raises(TransportFailure):
            await hub.post(kind, flowing(body[: MIB // 2], broken=True))
        await seller.broken.wait()
        assert await hub.story() == []
    assert seller.digests == []


@in_loop
async def test_the_bytes_are_the_same_and_come_before_the_answer_does(tmp_path: Path) -> None:
    answering = asyncio.Event()
    digests: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        digests.append(hashlib.sha256(await reader.readexactly(length)).hexdigest())
        await answering.wait()
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    kind, body = letter(b"y" * MIB)
    async with talking(talk) as url, streaming(tmp_path, _to(url)) as hub:
        assert (await hub.post(kind, body)).status == 202
        assert await hub.story() == ["received", "forwarded"]
        answering.set()
        await hub.until("hop_acked")
    assert digests == [hashlib.sha256(body).hexdigest()]


def _to(url: str) -> dict[str, Any]:
    return {"push": url, **REST}
