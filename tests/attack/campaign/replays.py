"""Captured messages that are sent again: as they were, under other ids, on other listeners."""

from collections.abc import Iterator
from typing import Final

from tests.attack.campaign.model import AttackClass, Case
from tests.attack.campaign.target import Target


def _again(target: Target) -> Iterator[Case]:
    for number, request in enumerate(target.captured.all()):
        yield Case(
            f"request {number} to {request.to} again", lambda one, it=request: _post(one, it)
        )


def _post(target: Target, request: object) -> None:
    target.post(request)


CLASSES: Final = (AttackClass("replays", _again),)
