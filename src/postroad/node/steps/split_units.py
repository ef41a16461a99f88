"""Messages that go in the same fragments: one by itself, or all units of a bundle.

The primary unit is the source: the fragments are its own, and the row that writes them is the timer
of all. The others know it by `Message.bundle`, and come to rest each by itself.
"""

from collections.abc import Iterable
from typing import Final

from postroad.store.interface import Reader
from postroad.store.records import Message, Side, State

AT_WORK: Final = (State.READY, State.WAITING, State.SUSPENDED)
"""States in which fragments of a message are sent."""


def source_id(message: Message) -> str:
    """The message whose fragments it goes in."""
    return message.bundle or message.message_id


def split_units(reader: Reader, source: str) -> tuple[Message, ...]:
    """Those that go in the fragments of a source, itself first; nothing when it is not there.

    Retention may have removed others.
    """
    first = reader.message(Side.SENDING, source)
    return () if first is None or first.split is None else with_others(reader, first)


def with_others(reader: Reader, source: Message) -> tuple[Message, ...]:
    """A source with the other units of its bundle."""
    names = source.split.units if source.split is not None else ()
    if not names:
        return (source,)
    others = reader.messages_by_id(Side.SENDING, names)
    return (source, *(others[one] for one in names if one in others))


def are_all(units: tuple[Message, ...]) -> bool:
    """Whether none of them was removed."""
    cut = units[0].split if units else None
    return cut is not None and len(units) == 1 + len(cut.units)


def at_work(units: Iterable[Message]) -> bool:
    """Whether fragments are still sent for one of them."""
    return any(one.state in AT_WORK for one in units)
