"""The log: one line an event, for machines and for people."""

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from postroad.node.log import set_up_logging
from postroad.node.settings.config_groups import Log

Written = Callable[..., io.StringIO]


@pytest.fixture
def written() -> Iterator[Written]:
    """Set the log up as the settings say; afterwards everything is as it was."""
    loggers = [logging.getLogger(), logging.getLogger("postroad")]
    before = [(one.level, one.propagate, list(one.handlers)) for one in loggers]

    def set_up(*, verbose: bool = False, **settings: str) -> io.StringIO:
        stream = io.StringIO()
        set_up_logging(Log.model_validate(settings), verbose=verbose, stream=stream)
        return stream

    yield set_up
    logging.captureWarnings(False)
    for one, (level, propagate, handlers) in zip(loggers, before, strict=True):
        one.setLevel(level)
        one.propagate = propagate
        one.handlers[:] = handlers


def test_an_event_is_one_json_object(written: Written) -> None:
    stream = written()
    extra = {"message_id": "m@b", "peer": None, "detail": "zwei\nZeilen ü"}
    logging.getLogger("postroad.send").warning("not %s", "sent", extra=extra)
    [line] = stream.getvalue().splitlines()
    told = json.loads(line)
    assert told.pop("at").endswith("Z")
    assert told == {
        "level": "warning",
        "logger": "postroad.send",
        "event": "not sent",
        "message_id": "m@b",
        "detail": "zwei\nZeilen ü",
    }


def test_an_error_is_told_with_its_traceback_in_the_same_line(written: Written) -> None:
    stream = written()
    try:
        raise ValueError("what\nhappened")
    except ValueError:
        logging.getLogger("postroad.node").exception("it failed")
    [line] = stream.getvalue().splitlines()
    told = json.loads(line)
    assert told["error"] == "ValueError: what happened"
    assert "Traceback" in told["traceback"]


def test_text_has_time_level_event_id_and_detail_in_this_order(written: Written) -> None:
    stream = written(format="text")
    extra = {"what": "x", "detail": "two\nlines", "message_id": "m@b"}
    logging.getLogger("postroad.send").info("sent", extra=extra)
    [line] = stream.getvalue().splitlines()
    assert line[8:] == " INFO    sent m@b two lines what=x"


def test_what_a_terminal_would_obey_is_written_out(written: Written) -> None:
    stream = written(format="text")
    logging.getLogger("postroad.send").info("sent", extra={"detail": "\x1b[2Jcleared"})
    assert "\x1b" not in stream.getvalue()
    assert r"\x1b[2Jcleared" in stream.getvalue()


def test_json_lines_escape_what_a_terminal_would_obey(written: Written) -> None:
    stream = written()
    hostile = "\x1b[2J \x9b2J \u202e \u2028 \U000e0001 ü"
    logging.getLogger("postroad.send").info("sent", extra={"detail": hostile})
    assert stream.getvalue().rstrip("\n").isprintable()
    assert json.loads(stream.getvalue())["detail"] == hostile
    assert "ü" in stream.getvalue()


@pytest.mark.parametrize("name", ["password", "api_token", "Authorization", "webhook_secret"])
@pytest.mark.parametrize("form", ["json", "text"])
def test_what_sounds_like_a_secret_is_not_written(written: Written, name: str, form: str) -> None:
    stream = written(format=form)
    logging.getLogger("postroad").error("told", extra={name: "hunter2"})
    assert "told" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_the_level_is_the_least_that_is_told(written: Written) -> None:
    stream = written(level="error")
    logger = logging.getLogger("postroad.node")
    logger.warning("quiet")
    logger.error("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_verbose_tells_people_everything(written: Written) -> None:
    stream = written(verbose=True, level="error")
    logging.getLogger("postroad.node").debug("a detail")
    assert stream.getvalue()[8:] == " DEBUG   a detail\n"


def test_other_libraries_are_heard_only_when_something_is_wrong(written: Written) -> None:
    stream = written(level="debug")
    logging.getLogger("asyncio").info("chatter")
    logging.getLogger("asyncio").warning("slow")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["slow"]


def test_it_can_be_set_up_again(written: Written) -> None:
    first, second = written(), written()
    logging.getLogger("postroad").info("once")
    assert (first.getvalue(), second.getvalue().count("once")) == ("", 1)
