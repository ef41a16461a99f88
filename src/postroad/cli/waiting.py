"""Waiting on the command line for a message to arrive, with a bar for one in fragments."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from postroad.api.client import ApiError, Client, Message, Transfer
from postroad.cli.node_options import is_away

T = TypeVar("T")

_PAUSE: Final = 0.5
"""Seconds between two looks for a node that is away."""
_LOOK: Final = 1.0
"""Seconds between two looks at a message that goes in fragments."""
_SMOOTHED: Final = 30.0
"""Seconds over which the rate is taken."""


def settled(client: Client, message_id: str, wait: float) -> Message:
    """The message once it is no longer on its way, or as it is after so many seconds."""
    end = time.monotonic() + wait
    with _bar() as show:
        while True:
            left = max(0.0, end - time.monotonic())
            short = left if show is None else min(left, _LOOK)
            message = patiently(lambda now=short: client.wait(message_id, now), left)  # type: ignore[misc]
            if show is not None and message.transfer is not None:
                show(message.transfer)
            if message.settled or time.monotonic() >= end:
                return message


def patiently(waiting: Callable[[float], T], wait: float) -> T:
    """What is waited for; a node that restarts meanwhile is waited for too."""
    end = time.monotonic() + wait
    while True:
        try:
            return waiting(max(0.0, end - time.monotonic()))
        except ApiError as error:
            if not is_away(error) or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)


class _Fragments(ProgressColumn):
    """How many fragments arrived of how many."""

    def render(self, task: Task) -> Text:
        return Text(str(task.fields.get("fragments", "")))


@contextmanager
def _bar() -> Iterator[Callable[[Transfer], None] | None]:
    """A bar with rate and time left, where somebody looks; it appears with the first fragments."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("arrived"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        _Fragments(),
    )
    with Progress(
        *columns, console=console, transient=True, speed_estimate_period=_SMOOTHED
    ) as bar:
        task = bar.add_task("", visible=False, fragments="")

        def show(transfer: Transfer) -> None:
            bar.update(
                task,
                visible=True,
                completed=transfer.arrived_bytes,
                total=transfer.bytes,
                fragments=f"{transfer.arrived} of {transfer.fragments or '?'} fragments",
            )

        yield show
