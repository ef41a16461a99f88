"""Requests of the HTTP client, and servers that answer them as a test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Outgoing, Pieces, Reply, TransportFailure
from tests.transport.wires import Seen, read_request, talking

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def outgoing(url: str, body: bytes | Pieces = b"hello", **values: object) -> Outgoing:
    """A request with a small body, unless a test gives another."""
    return Outgoing(url, "text/plain", body, **values)  # type: ignore[arg-type]


async def failure(client: HttpClient, request: Outgoing) -> TransportFailure:
    """How a request failed."""
    with pytest.raises(TransportFailure) as caught:
        await client.post(request)
    assert str(caught.value) == caught.value.reason
    return caught.value


@asynccontextmanager
async def answering(*answers: bytes, close: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives these answers, to whichever connection asks; what it was asked."""
    left = list(answers)
    asked: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left:
            head, body = await read_request(reader)
            asked.append(head + body)
            writer.write(left.pop(0))
            await writer.drain()
            if close:
                return
        await reader.read()

    async with talking(talk) as url:
        yield url, asked


async def reply_to(answer: bytes, *, close: bool = False) -> Reply:
    """What the client makes of an answer."""
    async with answering(answer, close=close) as (url, _), HttpClient() as client:
        return await client.post(outgoing(url))


async def failure_of(answer: bytes, *, close: bool = False, **values: object) -> TransportFailure:
    """Why the client does not take an answer."""
    async with answering(answer, close=close) as (url, _), HttpClient() as client:
        return await failure(client, outgoing(url, **values))


def ports(app: Seen) -> list[int]:
    """The client's end of each connection that a request came over."""
    return [scope["client"][1] for scope in app.scopes]
