"""The HTTP server: uvicorn's engine inside a loop that is there already, with limits on clients.

    server = HttpServer(app, host="127.0.0.1", port=8080)
    await server.start()
    …
    await server.drain(timeout=30)

One watchdog looks at all connections about once a second. Signals are the node's affair. Worker
processes share a port either by one `listening_socket` that they inherit, or each by its own with
`reuse_port`.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable, Collection
from email.utils import formatdate
from functools import partial
from typing import Final

from uvicorn.config import Config

from postroad.transport.admission import Scope, Slot
from postroad.transport.http_body import ASGIApp
from postroad.transport.http_connection import Connection, State, in_one_line
from postroad.transport.http_limits import ServerLimits
from postroad.transport.incidents import Incident, Incidents

logger = logging.getLogger("postroad.http")

BACKLOG: Final = 2048
_SWEEP_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.2
"""After an accept that failed, most likely for want of file descriptors."""
LAST_CALL: Final = 1.0
"""Seconds in which who is newly connected may still begin a request while the server drains."""


def listening_socket(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """A socket that listens at host and port, IPv4 or IPv6; OSError when it is taken."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    # Named as TCP, or asyncio would leave its connections waiting to fill their packets.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # The address :: takes IPv4 as well; any other is of one kind only.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _stop(accepting: asyncio.Task[None], sock: socket.socket) -> None:
    accepting.cancel()
    sock.close()


class HttpServer:
    """Serves an ASGI application over HTTP/1.1, with or without TLS."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl: ssl.SSLContext | None = None,
        limits: ServerLimits | None = None,
        sock: socket.socket | None = None,
        clock: Callable[[], float] = time.monotonic,
        incidents: Incidents | None = None,
        health_paths: Collection[str] = (),
    ) -> None:
        """`health_paths` are served also when all connections are taken."""
        self.host = host
        self.port = port
        self._tls = ssl
        self._sock = sock
        self._clock = clock
        self._state = State(
            limits or ServerLimits(),
            clock,
            incidents,
            frozenset(path.encode() for path in health_paths),
        )
        self._config = Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        self._stop_accepting: Callable[[], object] | None = None
        self._listening: socket.socket | None = None
        self._watchdog: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where the server is reached, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open, those included that are still shaking hands."""
        return len(self._state.open) + len(self._state.greeting)

    async def start(self) -> None:
        """Listen; OSError when the address is taken."""
        self._config.load()
        sock = self._sock or listening_socket(self.host, self.port)
        name = sock.getsockname()
        self.host, self.port = name[0], name[1]
        self._listening = sock
        self._state.date(formatdate(usegmt=True).encode())
        loop = asyncio.get_running_loop()
        if self._tls is None:
            server = await loop.create_server(self._connection, sock=sock, backlog=BACKLOG)
            self._stop_accepting = server.close
        else:
            self._stop_accepting = partial(_stop, loop.create_task(self._accept(sock)), sock)
        self._watchdog = loop.create_task(self._watch())

    def sweep(self) -> None:
        """Look at every connection once, and end those whose clients take too long."""
        now = self._clock()
        for connection in tuple(self._state.open):
            try:
                connection.check(now)
            except Exception as error:
                logger.error("a connection could not be checked: %s", in_one_line(error))
                connection.transport.abort()
        patience = self._state.limits.header_seconds
        for task, (since, peer) in tuple(self._state.greeting.items()):
            if now - since > patience:
                task.cancel()
                detail = f"not finished in {patience:g} s"
                self._state.incidents.note(Incident.HANDSHAKE, peer, detail)
        self._state.incidents.flush()

    async def drain(self, timeout: float) -> None:
        """Accept nothing more, finish what is under way, and close; after `timeout` the rest.

        Who waits to be accepted is connected already, and may have sent its request: it is served.
        """
        if self._stop_accepting is None:
            return
        with contextlib.ExitStack() as stack:
            waiting = None
            if timeout > 0 and self._listening is not None:
                # Without a file descriptor for it nobody is waited on, and the end is the same.
                with contextlib.suppress(OSError):
                    waiting = stack.enter_context(self._listening.dup())
            self._listening = None
            self._stop_accepting()
            if waiting is not None:
                self._take_waiting(waiting)
        self._state.draining = True
        # What already lies in the sockets is read before their connections count as idle.
        for _ in range(2):
            await asyncio.sleep(0)
        self._hang_up(LAST_CALL)
        last_call = asyncio.get_running_loop().call_later(LAST_CALL, self._hang_up)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._state.greeting:
                    await asyncio.wait(tuple(self._state.greeting))
                while self._state.open:
                    self._state.empty.clear()
                    await self._state.empty.wait()
                while self._state.tasks:
                    await asyncio.wait(self._state.tasks)
        last_call.cancel()
        await self._end()

    def _hang_up(self, patience: float = 0) -> None:
        """Close to all who ask for nothing, except those who came within `patience` seconds."""
        now = self._clock()
        for task, (since, _) in tuple(self._state.greeting.items()):
            if now - since >= patience:
                task.cancel()
        for connection in tuple(self._state.open):
            connection.shutdown(patience)

    async def close(self) -> None:
        """Stop at once, whatever is under way."""
        await self.drain(0)

    async def _end(self) -> None:
        busy = sum(connection.answering for connection in self._state.open)
        if busy:
            logger.warning("gave up %d requests that were under way", busy)
        for connection in tuple(self._state.open):
            connection.transport.abort()
        await asyncio.sleep(0)
        tasks = {*self._state.tasks, *self._state.greeting}
        if self._watchdog is not None:
            tasks.add(self._watchdog)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._stop_accepting = self._watchdog = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._state.date(formatdate(usegmt=True).encode())
            self.sweep()

    def _connection(self, slot: Slot | None = None) -> Connection:
        return Connection(self._config, self._state, {}, slot=slot)

    async def _accept(self, sock: socket.socket) -> None:
        """Take TLS connections ourselves, so that those still shaking hands count as well."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(sock)
            except OSError as error:
                logger.error("a connection could not be accepted: %s", in_one_line(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._welcome(accepted)

    def _take_waiting(self, sock: socket.socket) -> None:
        """Accept all who are connected, and nobody who comes after them."""
        for _ in range(BACKLOG):
            try:
                accepted, _ = sock.accept()
            except ConnectionAbortedError:
                continue
            except OSError:
                return
            accepted.setblocking(False)
            self._welcome(accepted)

    def _welcome(self, accepted: socket.socket) -> None:
        """Count a connection before its handshake, which the client may never finish."""
        try:
            peer = accepted.getpeername()[0]
        except OSError:
            # It went away while it waited.
            accepted.close()
            return
        task: asyncio.Task[None] | None = None

        def evict(scope: Scope) -> None:
            self._state.note_eviction(peer, scope)
            assert task is not None
            task.cancel()

        slot = self._state.admit(peer, evict)
        if slot is None:
            accepted.close()
            return
        task = asyncio.get_running_loop().create_task(self._greet(accepted, peer, slot))
        self._state.greeting[task] = (self._clock(), peer)
        task.add_done_callback(partial(self._greeted, accepted, slot))

    def _greeted(self, accepted: socket.socket, slot: Slot, task: asyncio.Task[None]) -> None:
        del self._state.greeting[task]
        if task.cancelled() or task.exception() is not None:
            # It may not even have begun.
            slot.leave()
            accepted.close()

    async def _greet(self, accepted: socket.socket, peer: str, slot: Slot) -> None:
        limits, secured = self._state.limits, self._tls is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                partial(self._connection, slot),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=limits.header_seconds if secured else None,
                ssl_shutdown_timeout=limits.linger_seconds if secured else None,
            )
        except OSError as error:
            slot.leave()
            self._state.incidents.note(Incident.HANDSHAKE, peer, in_one_line(error))
