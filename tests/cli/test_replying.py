"""`inbox reply` and `send --wait-reply`."""

import json
from pathlib import Path

import pytest

from postroad.store.records import Side
from tests.api.site import Site
from tests.api.world import Given, MemoryWorld
from tests.cli.conftest import Run, one_line

ORDERS = "buyer-to-seller-order"


def answered(site: Site, world: MemoryWorld, request: str) -> str:
    """The reply to a request is in the inbox."""
    name = site.run(world.deliver([Given(b"12 a piece", "text/plain", "price.txt")]))
    message = site.run(world.service.message(request, Side.SENDING))
    assert message is not None
    site.run(world.service.change(message, reply_message_id=name))
    return name


def test_a_reply_is_submitted_for_a_message_of_the_inbox(
    ask: Run, site: Site, world: MemoryWorld, order: Path
) -> None:
    name = site.run(world.deliver([Given(b"<ask/>")]))
    done = ask("inbox", "reply", name, "--payload", order, "--reply-id", "r@b", "--property", "a=1")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "r@b\n", "")
    reply = site.run(world.service.message("r@b"))
    assert reply is not None
    assert (reply.ref_to_message_id, reply.properties) == (name, (("a", "1", None),))


def test_what_is_not_there_cannot_be_answered(ask: Run, order: Path) -> None:
    done = ask("inbox", "reply", "nothing@b", "--payload", order)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "nothing@b" in one_line(done)


@pytest.mark.parametrize("wait", [["--wait-reply"], ["--wait-reply", "5"]])
def test_the_reply_is_waited_for_and_saved(
    ask: Run, site: Site, world: MemoryWorld, order: Path, tmp_path: Path, wait: list[str]
) -> None:
    given = ("send", "--pmode", ORDERS, "--payload", order, "--message-id", "q@b")
    assert ask(*given).exit_code == 0
    name = answered(site, world, "q@b")
    done = ask(*given, *wait, "-o", f"{tmp_path}/got/")
    saved = tmp_path / "got" / "price.txt"
    assert (done.exit_code, done.stdout.split()) == (0, ["q@b", name, str(saved)])
    assert saved.read_bytes() == b"12 a piece"
    shown = ask("status", "q@b", "--json")
    assert json.loads(shown.stdout)["reply_message_id"] == name
    assert name in ask("trace", "q@b").stdout


def test_no_reply_in_time_is_told_in_one_line(ask: Run, order: Path) -> None:
    done = ask(
        "send", "--pmode", ORDERS, "--payload", order, "--message-id", "q@b", "--wait-reply", "0"
    )
    assert done.exit_code == 1
    assert one_line(done) == (
        "postroad: no reply to q@b came in 0 s; look again with: postroad status q@b"
    )


def test_a_reply_that_cannot_come_is_not_waited_for(
    ask: Run, world: MemoryWorld, order: Path
) -> None:
    world.service.unanswerable = "there was none in the response"
    done = ask(
        "send", "--pmode", ORDERS, "--payload", order, "--message-id", "q@b", "--wait-reply", "600"
    )
    assert done.exit_code == 1
    assert one_line(done) == ("postroad: no reply to q@b will come: there was none in the response")


def test_files_are_for_a_reply(ask: Run, order: Path) -> None:
    done = ask("send", "--pmode", ORDERS, "--payload", order, "-o", "x/")
    assert "add --wait-reply" in one_line(done)
