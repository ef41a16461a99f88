"""A node in service: its doors are open, its work is done, its files are watched.

    async with RunningNode(config) as running:
        ...  # running.serving.api_url, running.node

What `postroad serve` does around it, signals and worker processes, is in `workers`.
"""

import asyncio
import contextlib
import errno
import logging
import resource
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from msgspec.structs import replace as changed

from postroad.api.access import HEALTH_PATHS
from postroad.api.app import create_app
from postroad.api.door_tls import DoorTls
from postroad.api.endpoint import msh_app, say
from postroad.api.guesses import Guesses
from postroad.api.limits import ApiLimits
from postroad.api.listener_limits import address_rules, listener_incidents
from postroad.api.mail_door import mail_door
from postroad.api.process import Place, Process
from postroad.api.serving import ServeError, Serving, serving
from postroad.node.node import Node
from postroad.node.settings.config import Config
from postroad.node.settings.config_groups import Listen
from postroad.node.settings.keyring import TlsIdentity, door_tls
from postroad.node.settings.listeners import configured_mail, own_listeners
from postroad.node.settings.reloading import Change, Watched, watch_tls
from postroad.node.tuning import tune_process
from postroad.store.interface import Store
from postroad.store.sqlite import open_sqlite
from postroad.transport.http_body import ASGIApp, Receive, Scope, Send
from postroad.transport.http_limits import ServerLimits
from postroad.transport.http_server import HttpServer, listening_socket
from postroad.transport.smtp_server import MailDoor
from postroad.transport.tls import TlsError

DRAIN: Final = 20.0
"""Seconds for requests in progress to end, once the node is told to stop."""
WIND_UP: Final = 8.0
"""Seconds for what is being sent to end after that; the rest is taken up by the next start."""
RELOAD: Final = 1.0
_OTHER_FILES: Final = 256
"""File descriptors for all but connections that come in: the store, spool files, sending."""
_LISTENING: Final = {
    errno.EADDRINUSE: "stop what listens there, or choose another address",
    errno.EADDRNOTAVAIL: "write an address of this machine, or 0.0.0.0 for all of them",
    errno.EACCES: "choose a port above 1023, or give the node CAP_NET_BIND_SERVICE",
}
"""What to do where an address cannot be had."""
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger("postroad.serve")


def listen(config: Config, *, reuse_port: bool = False) -> list[socket.socket]:
    """Sockets for the doors of a configuration; `ServeError` when an address is taken."""
    sockets: list[socket.socket] = []
    for door in config.listen:
        try:
            sockets.append(listening_socket(door.host, door.port, reuse_port=reuse_port))
        except OSError as error:
            for one in sockets:
                one.close()
            advice = _LISTENING.get(error.errno or 0, "choose another address")
            reason = error.strerror or error
            said = f"cannot listen on {door.address}: {reason}; {advice}"
            raise ServeError(said) from None
    return sockets


class RunningNode:
    """One process of a node, with its doors."""

    def __init__(
        self,
        config: Config,
        sockets: Sequence[socket.socket] | None = None,
        place: Place | None = None,
    ) -> None:
        """`place` says which of several processes this is; None: it is the only one."""
        self.config = config
        self._sockets = list(sockets) if sockets is not None else listen(config)
        self._place = place
        self.serving: Serving = serving(config, [one.getsockname()[:2] for one in self._sockets])
        self._watched: Watched[tuple[TlsIdentity | None, ...]] = watch_tls(config)
        self._tls = [
            DoorTls(settings, identity) if settings and identity else None
            for (_, settings), identity in zip(door_tls(config), self._watched.current, strict=True)
        ]
        """Of the doors, and then of that for mail, if there is one."""
        self.mail: MailDoor | None = None
        self._servers: list[HttpServer] = []
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take up what was left behind, then open the doors."""
        config = self.config
        reserve = config.limits.disk_reserve
        store = await open_sqlite(config.data, config.node, reserve=reserve)
        try:
            self.node = self._process(store)
            named = [one.public_url for one in config.listen if "msh" in one.serve]
            self.node.context.msh_url = next(iter(named), None) or self.serving.msh_url
            self._keep_from_itself()
            self.node.show_doors(self._watched)
            for one in self._tls:
                if one is not None:
                    one.check_revocation(lambda: self.node.context.in_force.revocation)
            await self.node.start()
        except BaseException:
            await store.close()
            raise
        http = config.http
        incidents = listener_incidents(self.node, "http")
        msh = msh_app(
            self.node,
            at_once=http.requests,
            per_address=http.requests_per_address,
            incidents=incidents,
        )
        rest = _Rest(self.node) if self.serving.api_url else None
        for door, sock, tls in zip(config.listen, self._sockets, self._tls, strict=False):
            server = HttpServer(
                _behind(door, msh, rest),
                ssl=tls.context if tls else None,
                limits=server_limits(config),
                sock=sock,
                incidents=incidents,
                health_paths=HEALTH_PATHS if "api" in door.serve else (),
            )
            await server.start()
            self._servers.append(server)
        if self._place is None or self._place.leads:
            await self._open_mail()
        self._watching = asyncio.create_task(self._watch_tls())

    def _keep_from_itself(self) -> None:
        """Tell the egress policy the addresses of all listeners, as they were bound."""
        doors = [one.getsockname()[:2] for one in self._sockets]
        context = self.node.context
        # One process takes the mail of all: the others know its address from the file.
        mail = (self.mail.host, self.mail.port) if self.mail is not None else None
        listeners = own_listeners(self.config, doors, mail or configured_mail(self.config))
        context.egress = changed(context.egress, listeners=listeners)

    async def _open_mail(self) -> None:
        """One process takes the mail of all."""
        self.mail = mail_door(self.config, self.node, self._tls[-1])
        if self.mail is None:
            return
        try:
            await self.mail.start()
        except OSError as error:
            assert self.config.mail is not None
            raise ServeError(
                f"cannot take mail on {self.config.mail.listen}: {error.strerror or error}; "
                "stop what listens there, or choose another address"
            ) from None
        self._keep_from_itself()
        _log.info("takes mail", extra={"peer": f"{self.mail.host}:{self.mail.port}"})

    def _process(self, store: Store) -> Node:
        if self._place is None:
            return Node(self.config, store)
        return Process(self.config, store, self._place)

    async def stop(self, drain: float = DRAIN, wind_up: float = WIND_UP) -> None:
        """Accept nothing more, finish what is under way, close the store."""
        if self._watching is not None:
            self._watching.cancel()
        self.node.hurry()
        await asyncio.gather(
            *(server.drain(drain) for server in self._servers),
            *([self.mail.stop(drain)] if self.mail is not None else []),
        )
        try:
            async with asyncio.timeout(wind_up):
                await self.node.stop()
        except TimeoutError:
            _log.warning("stopped while messages were being sent; the next start sends them again")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _watch_tls(self) -> None:
        if not any(self._tls):
            return
        while True:
            await asyncio.sleep(RELOAD)
            await asyncio.to_thread(self.refresh_tls)

    def refresh_tls(self) -> None:
        """Look at the files of the doors' certificates; new connections see what is new."""
        outcome = self._watched.refresh()
        problems = list(outcome.problems)
        if outcome.change is Change.RELOADED:
            for tls, identity in zip(self._tls, self._watched.current, strict=True):
                try:
                    if tls and identity:
                        tls.change(identity)
                except TlsError as error:
                    problems.append(str(error))
            if not problems:
                _log.info("reloaded", extra={"what": "certificates of the doors"})
        for problem in problems:
            _log.error("not reloaded, the old stays in force", extra={"detail": problem})


def server_limits(config: Config) -> ServerLimits:
    """What clients may cost a listener for HTTP."""
    http = config.http
    return ServerLimits(
        header_seconds=http.header_timeout.total_seconds(),
        body_seconds=http.body_timeout.total_seconds(),
        write_seconds=http.write_timeout.total_seconds(),
        idle_seconds=http.idle_timeout.total_seconds(),
        min_rate=http.min_rate,
        connections=_connections(config),
        connections_per_address=http.connections_per_address,
        health_connections=http.health_connections,
        address_rules=address_rules(config),
    )


def _connections(config: Config) -> int:
    """The connections of a listener: no more than there are file descriptors for.

    A process that has none left can open no file of its store either.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wanted = config.http.connections
    if files == resource.RLIM_INFINITY:
        return wanted
    listeners = len(config.listen)
    possible = max(1, (files - _OTHER_FILES) // listeners - config.http.health_connections)
    if possible < wanted:
        _log.warning(
            "fewer connections than http.connections",
            extra={
                "detail": f"{possible} instead of {wanted}: the process may open {files} files. "
                "Raise that limit (ulimit -n, LimitNOFILE=), or lower http.connections."
            },
        )
    return min(possible, wanted)


class _Rest:
    """The REST interface with the token that is in force."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._guesses = Guesses(partial(node.context.count, "wrong_tokens"))
        self._make()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._node.context.in_force.keyring.api_token != self._token:
            self._make()
        await self._app(scope, receive, send)

    def _make(self) -> None:
        limits = self._node.config.limits
        self._token = self._node.context.in_force.keyring.api_token
        if self._token is None:
            raise ServeError("The REST interface has no token. Set api.token_file.")
        self._app = create_app(
            self._node,
            token=self._token,
            limits=ApiLimits(upload_bytes=limits.message_bytes, parts=limits.parts),
            open_metrics=self._node.config.api.open_metrics,
            guesses=self._guesses,
        )


def _behind(door: Listen, msh: ASGIApp, rest: ASGIApp | None) -> ASGIApp:
    """What is behind a door, by path."""
    path = door.path if "msh" in door.serve else None
    api = rest if "api" in door.serve else None

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == path:
            await msh(scope, receive, send)
        elif api is not None:
            await api(scope, receive, send)
        else:
            await say(send, 404, "There is nothing here.")

    return app


async def live(
    running: RunningNode,
    ready: Callable[[], None],
    *,
    at_once: Callable[[], None] | None = None,
    parent: int | None = None,
) -> None:
    """Serve until a signal comes, then come to an end in good order.

    A second signal calls `at_once`. `parent` is a pipe whose end says that the process that
    started this one is gone.
    """
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    def stop() -> None:
        if told.is_set() and at_once is not None:
            at_once()
        told.set()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    # Who starts processes lets no signal through before this one can hear it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    if parent is not None:
        loop.add_reader(parent, told.set)
    await running.start()
    if not told.is_set():
        ready()
    await told.wait()
    if parent is not None:
        loop.remove_reader(parent)
    _log.info("stopping")
    await running.stop()


def run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run it on the fastest loop there is."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):
        from uvloop import new_event_loop as factory
    tune_process()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)
