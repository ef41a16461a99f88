"""A message that came in, on its way to being kept or refused."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, TypeVar

from msgspec.structs import replace as changed

from postroad.agreement.matching import Match
from postroad.msh.capture import Capture
from postroad.msh.lens import Inspection
from postroad.node.base.context import ON_LOOP, Context
from postroad.node.steps.calling import Riding
from postroad.node.steps.joined_group import JoinedGroup
from postroad.store.interface import Store, Transaction
from postroad.wire.mime import Part

T = TypeVar("T")
_LEAST_MEMORY: Final = timedelta(days=1)


def _always(_: object) -> bool:
    return True


@dataclass
class Arrival:
    """A message that came in, and what was found."""

    found: Inspection
    capture: Capture
    peer: str | None
    size: int
    now: datetime
    client_certificate: bytes | None = None
    by_mail: bool = False
    pulled: Match | None = None
    """The P-Mode by which it was pulled, or asked for; None: it was pushed."""
    is_response: bool = False
    """It came as the response to an ebXML message of ours."""
    responds: str | None = None
    """The request of ours whose response it is."""
    ride: Callable[[Riding], None] | None = None
    """Takes its receipt along with the next PullRequest."""
    bundle: str | None = None
    """The primary unit, where there are several."""
    joined: JoinedGroup | None = None
    """The fragments that it was joined of."""

    @property
    def on_connection(self) -> bool:
        """Whether who sent it waits for a response."""
        return self.pulled is None and self.joined is None

    @cached_property
    def attached(self) -> dict[str | None, Part]:
        """The attachments as they came, by Content-ID; the first where several have one."""
        return {one.content_id: one for one in reversed(self.capture.attachments)}

    async def run(
        self, store: Store, step: Callable[[Transaction], T], done: Callable[[T], bool] = _always
    ) -> T:
        """Run a step about it: with the end of its group, where it was joined and that is all."""
        return await store.run(step if self.joined is None else self.joined.around(step, done))

    async def persist(self, store: Store) -> None:
        """Large parts are flushed before the step, so that the step need not wait for the disk."""
        if self.size <= ON_LOOP:
            return
        joined = self.joined
        self.found.attachments = {
            name: one
            if joined is not None and joined.holds(one.content)
            else changed(one, content=await store.persist(one.content))
            for name, one in self.found.attachments.items()
        }


def is_too_old(context: Context, made: datetime, now: datetime) -> bool:
    """What is older than our memory may be a copy of a message that was removed since."""
    memory = context.config.retention.messages
    return memory is not None and now - made > max(memory, _LEAST_MEMORY)
