"""`postroad serve`: one process, or several that share the doors and the work of a node.

The parent of several processes opens the sockets, starts the processes and watches over them; it
has no loop, no threads and no store of its own, so that it can fork at any time. Each process has
sockets of its own at the same addresses (SO_REUSEPORT), and the parent keeps them: what a process
that died had not accepted yet, its successor does. The first process leads, and the others start
when it has taken up what was left behind.
"""

import contextlib
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from postroad.agreement.loading import Problem
from postroad.api.process import Place, forget_counters
from postroad.api.running import STOP_SIGNALS, RunningNode, listen, live, run_in_loop
from postroad.api.serving import (
    ServeError,
    Serving,
    only_one,
    remove_serving,
    serving,
    write_serving,
)
from postroad.node.log import set_up_logging
from postroad.node.settings.agreements import AgreementError
from postroad.node.settings.can_ship import check_shipping
from postroad.node.settings.config import Config, ConfigError, load_config
from postroad.node.settings.in_force import InForce
from postroad.node.settings.keyring import check_files, load_keyring, load_tls, tls_warnings
from postroad.node.settings.reloading import Unloadable
from postroad.store.interface import StoreError
from postroad.transport.http_server import listening_socket
from postroad.transport.tls import TlsError

FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 30.0
"""Seconds before a process that died is started again; they double while it keeps dying."""
STEADY: Final = 60.0
"""A process that lived so long is started again at once."""
START_ATTEMPTS: Final = 5
"""How often a process may die while the node starts, before the node gives up."""
CANNOT_START: Final = 3
"""The exit code of a process that logged why it cannot start: no other could either."""
PATIENCE: Final = 40.0
"""Seconds for the processes to end by themselves; then they are killed."""
SHORT: Final = 1.0
"""For so long the connections of a process that died wait for the next; then others get them."""
_log = logging.getLogger("postroad.serve")


def serve(path: Path, *, workers: int | None = None, verbose: bool = False) -> int:
    """Run a node until a signal ends it; the exit code.

    `ServeError` and `ConfigError` tell why it cannot be run.
    """
    config = load_config(path)
    set_up_logging(config.log, verbose=verbose)
    count = workers or config.workers
    _check(config)
    lock = only_one(config)
    try:
        if count == 1:
            return _alone(config)
        with _told_as_one():
            InForce(config, config.limits.wire)
        return Workers(config, count).run()
    finally:
        lock.close()


def _check(config: Config) -> None:
    """Find out what is wrong with the files before anything is opened."""
    problems: list[Problem] = []
    for load in (load_keyring, load_tls, check_files, check_shipping):
        try:
            load(config)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(dict.fromkeys(problems))
    for warning in (*config.warnings, *load_keyring(config).warnings, *tls_warnings(config)):
        _log.warning(warning)


def _alone(config: Config) -> int:
    sockets = listen(config)

    def ready() -> None:
        write_serving(config.data, running.serving)
        tell(running.serving)

    def at_once() -> NoReturn:
        remove_serving(config.data)
        _log.warning("stopped at once")
        os._exit(1)

    with _told_as_one():
        running = RunningNode(config, sockets)
        try:
            run_in_loop(live(running, ready, at_once=at_once))
        finally:
            remove_serving(config.data)
    _log.info("stopped")
    return 0


def tell(told: Serving) -> None:
    _log.info("ready", extra={"node": told.node, "urls": " ".join(told.urls), "pid": told.pid})


@contextlib.contextmanager
def _told_as_one() -> Iterator[None]:
    """What stops a node from starting, as one family of errors."""
    try:
        yield
    except (Unloadable, AgreementError, StoreError, TlsError) as error:
        raise ServeError(str(error)) from None


@dataclass(slots=True)
class _Worker:
    """A place for a process: its sockets, and who is in it."""

    number: int
    sockets: list[socket.socket]
    pid: int = 0
    """0: nobody."""
    ready: bool = False
    begun: float = 0.0
    wait: float = FIRST_WAIT
    deaths: int = 0
    """How many processes died in this place before one was ready."""
    due: float | None = None
    """When it is to be started."""
    predecessors: tuple[int, ...] = ()
    """Who died in this place, and whose work nobody has taken up yet."""

    def close(self) -> None:
        for one in self.sockets:
            one.close()
        self.sockets = []


class Workers:
    """The parent of the processes of a node."""

    def __init__(self, config: Config, count: int) -> None:
        self._config = config
        for one in listen(config):
            one.close()  # Nobody else has the addresses: so it is us who share them.
        first = listen(config, reuse_port=True)
        self._addresses = [one.getsockname()[:2] for one in first]
        others = (_Worker(number, self._beside()) for number in range(1, count))
        self._workers = [_Worker(0, first), *others]
        self._told = serving(config, self._addresses)
        self._served = False
        """Whether all were ready once."""
        self._ready: dict[int, _Worker] = {}
        """By the pipe on which a process tells that it is ready."""
        self._exit_code = 0
        self._stop_by: float | None = None
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Until a signal comes and all processes have ended; the exit code."""
        self._life, self._parent = os.pipe()
        self._woken, waker = socket.socketpair()
        self._woken.setblocking(False)
        waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        forget_counters(self._config.data)
        self._workers[0].due = 0.0
        try:
            self._watch()
        finally:
            self._kill(signal.SIGKILL)
            remove_serving(self._config.data)
        _log.info("stopped")
        return self._exit_code

    def _beside(self) -> list[socket.socket]:
        return [listening_socket(host, port, reuse_port=True) for host, port in self._addresses]

    def _watch(self) -> None:
        while self._stop_by is None or any(worker.pid for worker in self._workers):
            self._start_due()
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._woken:
                    self._signalled(self._woken.recv(1024))
                else:
                    self._heard(key.fd)
            if self._stop_by is not None and time.monotonic() > self._stop_by:
                _log.error("processes did not end in time and are killed")
                self._exit_code = 1
                self._kill(signal.SIGKILL)

    def _patience(self) -> float | None:
        moments = [worker.due for worker in self._workers if worker.due is not None]
        if self._stop_by is not None:
            moments = [self._stop_by]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _signalled(self, numbers: bytes) -> None:
        for number in numbers:
            if number in STOP_SIGNALS:
                self._stop()
        self._bury()

    def _stop(self) -> None:
        """The first time in good order, the second time at once."""
        if self._stop_by is not None:
            self._exit_code = 1
            self._kill(signal.SIGKILL)
            return
        self._stop_by = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.due = None
            worker.close()
        self._kill(signal.SIGTERM)

    def _kill(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, number)

    def _bury(self) -> None:
        for worker in self._workers:
            if worker.pid:
                pid, status = os.waitpid(worker.pid, os.WNOHANG)
                if pid:
                    self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, code: int) -> None:
        pid, worker.pid = worker.pid, 0
        if self._stop_by is not None:
            self._exit_code = self._exit_code or int(code != 0)
            return
        worker.deaths = 0 if worker.ready else worker.deaths + 1
        if not self._served and (code == CANNOT_START or worker.deaths == START_ATTEMPTS):
            if code != CANNOT_START:
                _log.error(
                    "the node cannot start: its processes die before they are ready",
                    extra={"detail": f"{_death(code)}, {START_ATTEMPTS} times in a row"},
                )
            self._exit_code = 1
            self._stop()
            return
        lived = time.monotonic() - worker.begun
        worker.wait = FIRST_WAIT if lived > STEADY else min(worker.wait * 2, LONGEST_WAIT)
        worker.due = time.monotonic() + worker.wait
        worker.predecessors = (pid,) if worker.ready else (*worker.predecessors, pid)
        worker.ready = False
        if worker.wait > SHORT:
            worker.close()
        _log.error(
            "a process died, another takes its place",
            extra={"detail": f"process {pid}: {_death(code)}", "seconds": worker.wait},
        )

    def _heard(self, pipe: int) -> None:
        """A process tells that it is ready, or its pipe ends with it."""
        worker = self._ready.pop(pipe)
        worker.ready = bool(os.read(pipe, 1))
        self._selector.unregister(pipe)
        os.close(pipe)
        if not worker.ready or self._stop_by is not None or self._served:
            return
        for other in self._workers:
            if not other.pid:
                other.due = 0.0
        if all(one.ready for one in self._workers):
            self._served = True
            write_serving(self._config.data, self._told)
            tell(self._told)

    def _start_due(self) -> None:
        for worker in self._workers:
            if worker.due is not None and worker.due <= time.monotonic():
                worker.due, worker.begun = None, time.monotonic()
                worker.sockets = worker.sockets or self._beside()
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        hears, tells = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        pid = os.fork()
        if pid == 0:
            self._become(worker, tells)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        worker.pid = pid
        os.close(tells)
        self._ready[hears] = worker
        self._selector.register(hears, selectors.EVENT_READ)

    def _become(self, worker: _Worker, tells: int) -> NoReturn:
        """The child: it never comes back to what its parent was doing."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            os.close(self._parent)
            for other in self._workers:
                if other is not worker:
                    other.close()

            def ready() -> None:
                os.write(tells, b"r")

            code = _child(self._config, worker, ready, parent=self._life)
        except BaseException:
            _log.exception("a process failed")
        finally:
            os._exit(code)


def _child(config: Config, worker: _Worker, ready: Callable[[], None], *, parent: int) -> int:
    try:
        with _told_as_one():
            place = Place(worker.number, worker.predecessors)
            running = RunningNode(config, worker.sockets, place)
            run_in_loop(live(running, ready, parent=parent))
    except ServeError as error:
        for line in str(error).splitlines():
            _log.error(line)
        return CANNOT_START
    return 0


def _death(code: int) -> str:
    """Describe how a process ended."""
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
