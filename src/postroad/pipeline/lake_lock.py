"""One run at a time on a lake."""

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from postroad.pipeline.lake import LakeError
from postroad.store.locks import FileLock
from postroad.store.places import Place

_NAME: Final = "_lock"
_LEASE: Final = timedelta(minutes=3)
_RENEWED: Final = 45.0


class Holder(msgspec.Struct, frozen=True):
    """Who works on a lake; `until` counts where no lock of the operating system does."""

    id: str
    host: str
    pid: int
    since: datetime
    until: datetime


@contextmanager
def held(url: str) -> Iterator[None]:
    """Hold a lake alone; LakeError names who holds it instead."""
    place = Place.of(url.replace("s3a://", "s3://"))
    with _locked(place) if place.local else _leased(place):
        yield


@contextmanager
def _locked(place: Place) -> Iterator[None]:
    """The system's own lock: it ends with its process, however that ends."""
    path = Path(place.path(_NAME))
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        if not lock.try_take():
            raise _busy(place, _read(place))
        path.write_bytes(msgspec.json.encode(_me()))
        yield
    finally:
        lock.close()


@contextmanager
def _leased(place: Place) -> Iterator[None]:
    """A file that is renewed while its owner lives; one that ran out is nobody's."""
    other = _read(place)
    if other is not None and other.until > datetime.now(UTC):
        raise _busy(place, other)
    me = _me()
    _write(place, me)
    if (now := _read(place)) is None or now.id != me.id:
        raise _busy(place, now)
    done = threading.Event()

    def renew() -> None:
        while not done.wait(_RENEWED):
            with suppress(OSError):
                _write(place, msgspec.structs.replace(me, until=datetime.now(UTC) + _LEASE))

    threading.Thread(target=renew, name="postroad-lake-lock", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        place.remove(_NAME)


def _me() -> Holder:
    now = datetime.now(UTC)
    return Holder(uuid.uuid4().hex, socket.gethostname(), os.getpid(), now, now + _LEASE)


def _read(place: Place) -> Holder | None:
    try:
        with place.reading(_NAME) as file:
            return msgspec.json.decode(file.read(), type=Holder)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _write(place: Place, holder: Holder) -> None:
    with place.writing(_NAME) as file:
        file.write(msgspec.json.encode(holder))


def _busy(place: Place, holder: Holder | None) -> LakeError:
    who = (
        f"process {holder.pid} on {holder.host}, since {holder.since:%Y-%m-%d %H:%M:%S} UTC"
        if holder
        else "it just began"
    )
    return LakeError(
        f"another run works on the lake {place.root} ({who}): wait for it, or end it and try again"
    )
