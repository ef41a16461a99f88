"""A long line between two nodes of a benchmark: what is said arrives some time later."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

_AT_ONCE = 64 * 1024


@contextmanager
def long_line(port: int, delay: float) -> Iterator[int]:
    """A port that leads to another one on this machine, `delay` seconds away each way."""
    loop = asyncio.new_event_loop()
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=_serve, args=(loop, listening, port, delay), daemon=True)
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _serve(
    loop: asyncio.AbstractEventLoop, listening: socket.socket, port: int, delay: float
) -> None:
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pass_on(reader, onward, delay), _pass_on(there, writer, delay))

    server = loop.run_until_complete(asyncio.start_server(carry, sock=listening))
    loop.run_forever()
    server.close()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float
) -> None:
    later = partial(asyncio.get_running_loop().call_later, delay)
    while data := await reader.read(_AT_ONCE):
        later(writer.write, data)
    later(writer.close)
