"""What `postroad inspect` shows to people: the tree, its colours, and nothing that harms them."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import AT, Run, command
from tests.fuzz import seeds


def lines(text: str) -> list[str]:
    """The values of a tree, without its branches."""
    return [line.lstrip("│├└─ ") for line in text.splitlines()]


def test_the_tree_tells_the_whole_message(run: Run, good: Path, ca: Path, key: Path) -> None:
    shown = lines(run("inspect", good, "--trust", ca, "--key", key, "--at", AT).stdout)
    for line in (
        "user message  order-4711-20260601120000@buyer.example",
        "service: urn:example:purchasing",
        "action: NewOrder",
        "originalSender: urn:example:buyer",
        f"payload cid:order@buyer.example  application/xml  {len(seeds.ORDER)} bytes, "
        "was compressed",
        "MIME parts (1)",
        "signature valid  eddsa-ed25519  trusted",
        "signer: CN=buyer,O=Postroad Tests,C=NL",
        "chain: CN=buyer,O=Postroad Tests,C=NL  →  CN=Fuzz CA,O=Postroad Tests,C=NL",
        "✔ #_messaging  sha256",
        "✔ cid:order@buyer.example  sha256",
        "encryption opened",
        "for: CN=seller,O=Postroad Tests,C=NL",
    ):
        assert line in shown
    assert not any(line.startswith("what is wrong") for line in shown)


def test_the_tree_tells_what_is_wrong_and_where(run: Run, tampered: Path) -> None:
    shown = lines(run("inspect", tampered, "--at", AT).stdout)
    assert "✘ #_messaging  sha256  its content was changed" in shown
    wrong = shown.index(
        "EBMS:0101 FailedAuthentication (failure)  "
        "the signed part #_messaging does not hold: its content was changed"
    )
    assert shown[wrong + 1] == "at: #_messaging"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("receipt", "non-repudiation of receipt"),
        ("awareness", "receipt for: order-4711-20260601120000@buyer.example"),
        ("error", "EBMS:0101 FailedAuthentication (failure)  detail"),
        ("pull", "selects"),
        ("pull", "username: seller"),
        ("hop", "routing"),
        ("hop", "action: urn:example:action"),
        ("fragment", "group id: group-1"),
        ("fault-1.2", "reason: not understood: {urn:example}Strange"),
    ],
)
def test_the_tree_knows_every_kind(
    run: Run, message: Callable[[str], Path], name: str, expected: str
) -> None:
    assert expected in lines(run("inspect", message(name), "--at", AT).stdout)


def test_a_password_in_a_message_is_not_shown(run: Run, message: Callable[[str], Path]) -> None:
    path = message("pull")
    digest = path.read_bytes().split(b"PasswordDigest")[1].split(b">")[1].split(b"<")[0].decode()
    assert digest
    for option in ((), ("--json",)):
        assert digest not in run("inspect", path, "--at", AT, *option).stdout


def test_a_value_stays_on_one_line_where_there_is_no_screen(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.xml"
    name = "n" * 500
    path.write_bytes(seeds.messages()["awareness"].replace(b"conversation-4711", name.encode()))
    assert "receipt" in run("inspect", path, "--at", AT).stdout
    path.write_bytes(seeds.messages()["plain"].replace(b"conversation-4711", name.encode()))
    assert f"conversation id: {name}" in lines(run("inspect", path, "--at", AT).stdout)


# Colours


def test_there_are_no_colours_in_a_file(good: Path) -> None:
    assert b"\x1b" not in command("inspect", good, "--at", AT, TERM="xterm-256color").stdout


@pytest.mark.skipif(sys.platform != "linux", reason="a terminal of its own")
def test_there_are_colours_on_a_terminal(good: Path) -> None:
    shown = _on_a_terminal("inspect", str(good), "--at", AT)
    assert b"\x1b[32mholds\x1b[0m" in shown


@pytest.mark.skipif(sys.platform != "linux", reason="a terminal of its own")
def test_somebody_who_wants_no_colours_gets_none(good: Path) -> None:
    assert b"\x1b[32m" not in _on_a_terminal("inspect", str(good), "--at", AT, NO_COLOR="1")


def _on_a_terminal(*arguments: str, **more: str) -> bytes:
    """What the command writes to a terminal."""
    unset = ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as terminal:
        child = subprocess.Popen(
            [str(Path(sys.executable).with_name("postroad")), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=subprocess.DEVNULL,
            env={**environment, "TERM": "xterm-256color", **more},
        )
        os.close(slave)
        shown = b""
        try:
            while data := terminal.read(65536):
                shown += data
        except OSError:
            pass  # Linux says so when the other end is closed
        child.wait()
    return shown


# Hostile values

HOSTILE = "\x9b31m \u202e \x7f \x85 \u2028 \u200b \U000e0041"
"""What XML allows: a colour in one character, text backwards, line ends, invisible letters."""


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("plain", "NewOrder"),
        ("plain", "urn:example:buyer"),
        ("plain", "originalSender"),
        ("plain", "MimeType"),
        ("plain", "conversation-4711"),
        ("push", "xml-exc-c14n#"),
        ("push", "#eddsa-ed25519"),
        ("push", "aes128-gcm"),
        ("push", "#_body"),
        ("receipt", "#_body"),
        ("receipt", "xmlenc#sha256"),
        ("error", "the signature does not hold"),
        ("error", "FailedAuthentication"),
        ("hop", "urn:example:action"),
        ("fault-1.2", "not understood"),
    ],
)
def test_no_control_character_of_a_message_reaches_the_screen(
    run: Run, tmp_path: Path, name: str, place: str
) -> None:
    path = tmp_path / "hostile.http"
    message = seeds.messages()[name]
    assert place.encode() in message
    path.write_bytes(message.replace(place.encode(), (place + HOSTILE).encode()))
    for option in ((), ("--json",)):
        shown = run("inspect", path, "--at", AT, *option).output
        assert not [c for c in shown if not c.isprintable() and c != "\n"]


def test_no_escape_sequence_of_a_mime_header_reaches_the_screen(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "hostile.http"
    message = seeds.messages()["plain"]
    for place in (b"<order@buyer.example>", b"Content-Type: application/gzip", b"/msh"):
        path.write_bytes(message.replace(place, place + b"\x1b[2J\x1b]0;owned\x07"))
        for option in ((), ("--json",)):
            assert "\x1b" not in run("inspect", path, "--at", AT, *option).output


def test_square_brackets_in_a_value_are_no_markup(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "[bold]file[1][red].http"
    message = seeds.messages()["plain"].replace(b"NewOrder", b"[red]New[/red][/]Order")
    path.write_bytes(message)
    result = run("inspect", path, "--at", AT)
    assert result.exit_code == 0
    assert "action: [red]New[/red][/]Order" in lines(result.stdout)
    assert result.stdout.startswith(str(path))
