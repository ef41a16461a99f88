"""Payloads of received messages as files."""

import contextlib
import mimetypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroad.api.client import Client, Message, Part
from postroad.cli.file_names import safe_name
from postroad.cli.problems import fail


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A file that cannot be written is told in one line."""
    try:
        yield
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror or error}", code=1)


def save(
    client: Client, message: Message, output: str, *, part: int | None = None, force: bool = False
) -> list[tuple[Path, Part]]:
    """Save payloads of a received message in a folder or a file; - is standard output.

    Payloads are named as the sender named them, cleaned. No file is replaced without `force`.
    """
    parts = _wanted(message, part)
    if output == "-":
        _to_standard_output(client, message, parts)
        return []
    return [_save(client, message, *one, force) for one in _places(parts, output)]


def _wanted(message: Message, number: int | None) -> list[Part]:
    if number is None:
        return list(message.parts)
    if number > len(message.parts):
        fail(f"{message.message_id} has {len(message.parts)} payloads, no {number}", code=1)
    return [message.parts[number - 1]]


def _places(parts: list[Part], output: str) -> list[tuple[Part, Path]]:
    """Where each payload goes: the file that is named, or a file of its own in the folder."""
    place = Path(output)
    if len(parts) == 1 and not output.endswith("/") and not place.is_dir():
        return [(parts[0], place)]
    names = [_name(part) for part in parts]
    unique = [
        name if names.count(name) == 1 else f"{part.number}-{name}"
        for part, name in zip(parts, names, strict=True)
    ]
    return [(part, place / name) for part, name in zip(parts, unique, strict=True)]


def _name(part: Part) -> str:
    kind = part.media_type.partition(";")[0].strip()
    return safe_name(
        part.file_name, f"part-{part.number}{mimetypes.guess_extension(kind) or '.bin'}"
    )


def _save(
    client: Client, message: Message, part: Part, path: Path, force: bool
) -> tuple[Path, Part]:
    if path.exists() and not force:
        fail(f"{path} is there already; name another file with -o, or add --force", code=1)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        client.part_to(message.message_id, part.number, path, cursor=message.cursor)
    return path, part


def _to_standard_output(client: Client, message: Message, parts: list[Part]) -> None:
    if len(parts) != 1:
        fail(f"{message.message_id} has {len(parts)} payloads; choose one with --part")
    with contextlib.suppress(BrokenPipeError):
        content = client.part(message.message_id, parts[0].number, cursor=message.cursor)
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
