"""The file that tells where a node is served while it runs, and the lock that only one serves.

`serving.json` lies in the data folder: commands find the port there, also one that was chosen by
the system.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from postroad.node.settings.config import Config
from postroad.store.interface import StoreError
from postroad.store.locks import FileLock
from postroad.store.private import make_private

FILE: Final = "serving.json"
LOCK: Final = "serve.lock"
_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class ServeError(Exception):
    """The node cannot be served; the sentence says why and what to do."""


class Door(msgspec.Struct, frozen=True):
    """An address that is listened on."""

    url: str
    """Without a path."""
    serve: tuple[str, ...]
    path: str


class Serving(msgspec.Struct, frozen=True):
    """Who serves a node, and where."""

    pid: int
    node: str
    doors: tuple[Door, ...]

    @property
    def api_url(self) -> str | None:
        """Where the REST interface is."""
        return next((door.url for door in self.doors if "api" in door.serve), None)

    @property
    def msh_url(self) -> str | None:
        """Where partners send to."""
        return next((d.url + d.path for d in self.doors if "msh" in d.serve), None)

    @property
    def urls(self) -> tuple[str, ...]:
        """What is served, for people."""
        return tuple(
            door.url + (door.path if part == "msh" else "/api")
            for door in self.doors
            for part in door.serve
        )


def serving(config: Config, addresses: Sequence[tuple[str, int]]) -> Serving:
    """What this process serves: the doors of a configuration at the addresses that they got."""
    doors = tuple(
        Door(_url(host, port, tls=door.tls is not None), door.serve, door.path)
        for door, (host, port) in zip(config.listen, addresses, strict=True)
    )
    return Serving(os.getpid(), config.node, doors)


def _url(host: str, port: int, *, tls: bool) -> str:
    """Where this machine reaches an address."""
    name = _HERE.get(host, host)
    shown = f"[{name}]" if ":" in name else name
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def write_serving(data: Path, told: Serving) -> None:
    """Tell where the node is served; the file is there only as a whole."""
    with tempfile.NamedTemporaryFile(dir=data, prefix=f".{FILE}.", delete=False) as file:
        file.write(msgspec.json.encode(told))
    Path(file.name).replace(data / FILE)


def remove_serving(data: Path) -> None:
    """This process serves no more."""
    told = read_serving(data)
    if told is not None and told.pid == os.getpid():
        (data / FILE).unlink(missing_ok=True)


def read_serving(data: Path) -> Serving | None:
    """Who serves the node of this data folder, as far as the file tells."""
    try:
        return msgspec.json.decode((data / FILE).read_bytes(), type=Serving)
    except (OSError, msgspec.MsgspecError):
        return None


def only_one(config: Config) -> FileLock:
    """The lock that the one who serves a data folder holds, with all its processes."""
    data = config.data
    try:
        make_private(data)
        lock = FileLock(data / LOCK)
    except StoreError as error:
        raise ServeError(str(error)) from None
    except OSError as error:
        advice = "make it writable, or set `data`"
        if isinstance(error, FileExistsError | NotADirectoryError):
            advice = "there is a file where the folder should be: move it away, or set `data`"
        said = f"{data} cannot be written: {error.strerror or error}; {advice}"
        raise ServeError(said) from None
    if lock.try_take():
        return lock
    lock.close()
    other = read_serving(data)
    who = f" (process {other.pid}, {', '.join(other.urls)})" if other else ""
    raise ServeError(
        f"{data} is served already{who}; stop that one first, or give this node a data folder of "
        "its own"
    )
