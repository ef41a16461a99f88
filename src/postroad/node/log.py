"""The log: one line an event, JSON for machines or text for people.

    _log.info("delivered", extra={"message_id": "…", "peer": "…"})

becomes `{"at": …, "level": "info", "logger": "postroad.receive", "event": "delivered", …}`. What an
event is about is in `extra`; names that sound like a secret are never written.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import IO, Final

from postroad.node.settings.config_groups import Log

ROOT: Final = "postroad"
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest came as `extra`."""
_SECRET: Final = ("password", "secret", "token", "authorization", "private", "passphrase")
_LEADING: Final = ("message_id", "peer", "detail")
"""What people look for first."""


def set_up_logging(settings: Log, *, verbose: bool = False, stream: IO[str] | None = None) -> None:
    """Write what the node tells to standard error; `verbose` tells people everything."""
    as_text = verbose or settings.format == "text"
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(TextLines() if as_text else JsonLines())
    level = logging.DEBUG if verbose else logging.getLevelNamesMapping()[settings.level.upper()]
    logger = logging.getLogger(ROOT)
    for old in tuple(logger.handlers):
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    # Other libraries are heard when something is wrong with them.
    others = logging.getLogger()
    for old in tuple(others.handlers):
        others.removeHandler(old)
    others.addHandler(handler)
    others.setLevel(max(level, logging.WARNING))
    logging.captureWarnings(True)


class JsonLines(logging.Formatter):
    """A JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "at": _at(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info and record.exc_info[1] is not None:
            told["error"] = in_one_line(record.exc_info[1])
            told["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
        line = json.dumps(told, ensure_ascii=False, default=str)
        return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


class TextLines(logging.Formatter):
    """A line for people: time, level, event, message id and detail; then the rest."""

    def format(self, record: logging.LogRecord) -> str:
        extra = _extra(record)
        words = [record.getMessage()]
        words += [str(extra.pop(name)) for name in _LEADING if name in extra]
        words += [f"{name}={value}" for name, value in extra.items()]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            words.append(in_one_line(error))
        begin = f"{_at(record).astimezone():%H:%M:%S} {record.levelname:<7} "
        line = begin + _printable(" ".join(" ".join(words).split()))
        if error is None:
            return line
        return line + "\n" + "".join(traceback.format_exception(error)).rstrip()


def in_one_line(error: BaseException) -> str:
    """What went wrong, without a line break."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _printable(text: str) -> str:
    """What a terminal would obey is written out instead: much of a log is said by strangers."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _at(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _extra(record: logging.LogRecord) -> dict[str, object]:
    """What the event was given along; nothing that is empty, nothing that is secret."""
    return {
        name: value
        for name, value in vars(record).items()
        if name not in _OWN
        and value is not None
        and not any(word in name.lower() for word in _SECRET)
    }
