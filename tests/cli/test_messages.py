"""Commands that talk to a node: what they ask, what they print, how they end."""

import contextlib
import hashlib
import json
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from postroad.api.door_tls import DoorTls
from postroad.api.serving import Door, Serving, write_serving
from postroad.cli.file_names import safe_name
from postroad.cli.main import app
from postroad.cli.node_options import _trust
from postroad.cli.showing import size
from postroad.node.first_steps.initializing import Plan, Station, initialize
from postroad.node.service import Arriving
from postroad.node.settings.config import load_config
from postroad.node.settings.keyring import load_tls
from tests.api.site import Site
from tests.api.world import Given, MemoryWorld
from tests.changing import replace
from tests.cli.conftest import NOBODY, TOKEN, Run, one_line

ORDERS = "buyer-to-seller-order"


@pytest.fixture
def run(ask: Run) -> Run:
    """A command that talks to the node of this test."""
    return ask


# send


def test_a_bundle_has_a_message_for_each_payload(
    run: Run, site: Site, world: MemoryWorld, order: Path
) -> None:
    other = order.with_name("other.xml")
    other.write_bytes(b"<other>1</other>")
    files = ("--payload", str(order), "--payload", str(other))
    sent = run("send", "--pmode", ORDERS, "--bundle", *files, "--conversation", "c-1")
    assert sent.exit_code == 0
    for name, many in zip(sent.stdout.split(), (8, 16), strict=True):
        message = site.run(world.service.message(name))
        assert message is not None
        assert (message.conversation_id, message.parts[0].size) == ("c-1", many)


def test_a_bundle_has_payloads_and_no_option_that_is_of_one_message(run: Run, order: Path) -> None:
    assert "--payload FILE" in one_line(run("send", "--pmode", ORDERS, "--bundle"))
    given = ("--bundle", "--payload", order, "--message-id", "m@b")
    assert "no --bundle" in one_line(run("send", "--pmode", ORDERS, *given))


def test_sending_prints_the_id(run: Run, site: Site, world: MemoryWorld, order: Path) -> None:
    sent = run(
        "send",
        "--pmode",
        ORDERS,
        "--payload",
        f"{order};type=text/plain;name=note.txt",
        "--property",
        "a=1",
        "--property",
        "b=x=y",
        "--message-id",
        "m-1@b",
        "--conversation",
        "c-1",
        "--ref-to",
        "m-0@b",
    )
    assert (sent.exit_code, sent.stdout, sent.stderr) == (0, "m-1@b\n", "")
    message = site.run(world.service.message("m-1@b"))
    assert message is not None
    assert (message.conversation_id, message.ref_to_message_id) == ("c-1", "m-0@b")
    assert message.properties == (("a", "1", None), ("b", "x=y", None))
    assert message.parts[0].sha256 == hashlib.sha256(b"<order/>").hexdigest()


@pytest.mark.parametrize(
    ("given", "kind", "name"),
    [
        ("", "application/xml", "order.xml"),
        (";type=text/csv", "text/csv", "order.xml"),
        (";name=a.pdf", "application/pdf", "a.pdf"),
        (";name=a.pdf;type=text/csv", "text/csv", "a.pdf"),
    ],
)
def test_a_payload_has_the_type_and_name_that_are_given(
    run: Run, site: Site, world: MemoryWorld, order: Path, given: str, kind: str, name: str
) -> None:
    sent = run("send", "--pmode", ORDERS, "--payload", f"{order}{given}")
    message = site.run(world.service.message(sent.stdout.strip()))
    assert message is not None
    assert (message.parts[0].media_type, message.parts[0].file_name) == (kind, name)


def test_a_semicolon_may_be_in_the_name_of_a_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a;b.xml"
    path.write_bytes(b"<a/>")
    assert run("send", "--pmode", ORDERS, "--payload", path).exit_code == 0


def test_standard_input_can_be_sent(run: Run, site: Site, world: MemoryWorld) -> None:
    sent = run("send", "--pmode", ORDERS, "--payload", "-", stdin=b"from a pipe")
    message = site.run(world.service.message(sent.stdout.strip()))
    assert message is not None
    assert message.parts[0].size == len(b"from a pipe")


def test_waiting_ends_well_only_when_it_is_acknowledged(
    run: Run, site: Site, world: MemoryWorld, order: Path
) -> None:
    asked = ("send", "--pmode", ORDERS, "--payload", order, "--message-id", "w@b")
    late = run(*asked, "--wait", "0")
    assert (late.exit_code, late.stdout) == (1, "w@b\n")
    assert one_line(late) == (
        "postroad: w@b is submitted after 0 s; look again with: postroad status w@b"
    )
    site.run(world.acknowledge("w@b"))
    done = run(*asked, "--wait")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "w@b\n", "")


def test_waiting_for_what_failed_tells_why(
    run: Run, site: Site, world: MemoryWorld, order: Path
) -> None:
    asked = ("send", "--pmode", ORDERS, "--payload", order, "--message-id", "f@b")
    assert run(*asked).exit_code == 0
    site.run(world.fail("f@b"))
    failed = run(*asked, "--wait", "--json")
    assert json.loads(failed.stdout)["state"] == "failed"
    assert one_line(failed) == (
        "postroad: f@b is failed (Error): EBMS:0004 the partner refused it; "
        "send it again with: postroad resend f@b"
    )


def test_waiting_goes_on_while_the_node_is_away(
    run: Run, site: Site, world: MemoryWorld, order: Path
) -> None:
    usual, left = site.app, [4]

    async def often_away(scope: Any, receive: Any, send: Any) -> None:
        assert usual is not None
        if scope["method"] == "GET" and left[0]:
            left[0] -= 1
            if left[0] == 0:
                await world.acknowledge("away@b")
            headers = [(b"content-length", b"1000")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            return
        await usual(scope, receive, send)

    site.app = often_away
    asked = ("send", "--pmode", ORDERS, "--payload", order, "--message-id", "away@b")
    done = run(*asked, "--wait")
    assert (done.exit_code, left) == (0, [0]), done.output


def test_without_wait_the_state_does_not_matter(
    run: Run, site: Site, world: MemoryWorld, order: Path
) -> None:
    asked = ("send", "--pmode", ORDERS, "--payload", order, "--message-id", "f@b", "--json")
    assert json.loads(run(*asked).stdout)["repeated"] is False
    site.run(world.fail("f@b"))
    again = run(*asked)
    assert again.exit_code == 0
    assert json.loads(again.stdout)["repeated"] is True


def test_what_the_node_refuses_is_a_line(run: Run, order: Path) -> None:
    refused = run("send", "--pmode", "nobody", "--payload", order)
    assert one_line(refused) == "postroad: EBMS:0010 There is no P-Mode nobody."


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--payload", "nothing.xml"), "postroad: nothing.xml: there is no such file"),
        (("--property", "half"), "postroad: 'half' is no property; write NAME=VALUE"),
        (("--property", "=x"), "postroad: '=x' is no property; write NAME=VALUE"),
    ],
)
def test_what_cannot_be_sent_is_a_line(run: Run, wrong: tuple[str, str], said: str) -> None:
    assert one_line(run("send", "--pmode", ORDERS, *wrong)) == said


# status, trace, lists


def test_the_status_is_for_people_and_machines(run: Run, order: Path) -> None:
    run("send", "--pmode", ORDERS, "--payload", order, "--message-id", "s@b")
    told = run("status", "s@b")
    assert told.exit_code == 0
    facts = dict(line.split("  ", 1) for line in told.stdout.splitlines())
    assert {name: value.strip() for name, value in facts.items()}["state"] == (
        "submitted: to be packaged"
    )
    assert json.loads(run("status", "s@b", "--json").stdout)["message_id"] == "s@b"


def test_a_message_that_is_not_there_is_a_line(run: Run) -> None:
    for command in ("status", "trace", "resend"):
        assert "nothing@b" in one_line(run(command, "nothing@b"))


def test_a_trace_is_a_timeline(run: Run, site: Site, world: MemoryWorld, order: Path) -> None:
    run("send", "--pmode", ORDERS, "--payload", order, "--message-id", "t@b")
    site.run(world.acknowledge("t@b"))
    told = json.loads(run("trace", "t@b", "--json").stdout)
    names = [one["event"] for one in told["events"]]
    assert names[0] == "submitted"
    title, heads, *rows = run("trace", "t@b").stdout.splitlines()
    assert (title, heads.split()) == ("t@b", ["time", "after", "side", "event", "what"])
    assert len(rows) == len(names)
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        assert name in row.split()
        assert (" s " in row and "+" in row) == (number > 0)


def test_what_a_partner_says_cannot_move_the_cursor(
    run: Run, site: Site, world: MemoryWorld
) -> None:
    site.run(world.deliver([Given(b"x", file_name="\x1b[2J.xml")], "evil\x1b[31m@b"))
    for shown in (run("inbox", "list"), run("messages")):
        assert shown.exit_code == 0
        assert "\x1b" not in shown.stdout
        assert r"evil\x1b[31m@b" in shown.stdout


def test_messages_are_listed_and_filtered(run: Run, order: Path) -> None:
    for name in ("1@b", "2@b", "3@b"):
        run("send", "--pmode", ORDERS, "--payload", order, "--message-id", name)
    found = json.loads(run("messages", "--json", "--side", "sending", "--limit", "2").stdout)
    assert [one["message_id"] for one in found] == ["3@b", "2@b"]
    assert json.loads(run("messages", "--json", "--state", "failed").stdout) == []
    assert run("messages", "--state", "unheard").exit_code == 1


def test_messages_are_listed_with_side_reason_and_total(
    run: Run, site: Site, world: MemoryWorld, order: Path
) -> None:
    for name in ("1@b", "2@b", "3@b"):
        run("send", "--pmode", ORDERS, "--payload", order, "--message-id", name)
    site.run(world.fail("1@b"))
    site.run(world.deliver([Given(b"x")], "4@b"))
    site.run(world.pause("seller"))
    heads, *rows, total = run("messages").stdout.splitlines()
    assert heads.split() == [
        *("time", "side", "state", "from", "to", "action", "payloads", "id", "why")
    ]
    assert total == "4 messages"
    assert [("sending" in row, "receiving" in row) for row in rows] == [(False, True)] + [
        (True, False)
    ] * 3
    assert "the partner is paused" in rows[1]
    assert "EBMS:0004" in rows[3]
    assert "paused" not in rows[3]
    *_, some = run("messages", "--limit", "2").stdout.splitlines()
    assert some == "2 of 4 messages"
    failed = json.loads(run("messages", "--error", "EBMS:0004", "--json").stdout)
    assert [one["message_id"] for one in failed] == ["1@b"]
    mine = json.loads(run("messages", "--partner", "seller", "--json").stdout)
    assert len(mine) == 4
    assert run("messages", "--partner", "nobody").stdout.splitlines()[-1] == "0 messages"


def test_resending_and_purging(run: Run, site: Site, world: MemoryWorld, order: Path) -> None:
    run("send", "--pmode", ORDERS, "--payload", order, "--message-id", "r@b")
    site.run(world.fail("r@b"))
    again = run("resend", "r@b")
    assert again.exit_code == 0, again.output
    assert again.stdout.startswith("r@b ")
    purged = run("purge", "--days", "0")
    assert purged.exit_code == 0
    assert purged.stdout.endswith("removed\n")
    assert run("purge", "--days", "-1").exit_code == 2


def test_the_proof_is_saved_under_a_name_of_ours(
    run: Run, site: Site, world: MemoryWorld, order: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(order.parent)
    run("send", "--pmode", ORDERS, "--payload", order, "--message-id", "../e@b")
    site.run(world.acknowledge("../e@b"))
    saved = run("evidence", "../e@b")
    assert saved.exit_code == 0, saved.output
    path = Path(saved.stdout.strip())
    assert path.parent == Path()
    assert (order.parent / path).read_bytes().startswith(b"PK")
    nowhere = run("evidence", "../e@b", "-o", order.parent / "no" / "folder.zip")
    assert "folder.zip cannot be written" in one_line(nowhere)


# inbox


def test_what_comes_in_fragments_is_listed(run: Run, world: MemoryWorld) -> None:
    began = datetime(2026, 5, 19, 10, tzinfo=UTC)
    known = Arriving("g-1", "seller", "orders", "c", 9, 3, 9000, 3000, began, began, None)
    world.service.coming = [known, replace(known, group_id="g-2", fragments=None, bytes=None)]
    _, one, other = run("inbox", "fragments").stdout.splitlines()
    assert one.split()[:8] == ["g-1", "seller", "3", "of", "9", "3", "kB", "9"]
    assert other.split()[:8] == ["g-2", "seller", "3", "of", "?", "3", "kB", "?"]
    shown = json.loads(run("inbox", "fragments", "--json").stdout)
    assert [one["arrived"] for one in shown] == [3, 3]


@pytest.fixture
def received(site: Site, world: MemoryWorld) -> str:
    parts = [
        Given(b"<a/>", "application/xml", "../../etc/pass wd"),
        Given(b"two", "text/plain", None),
        Given(b"three", "text/plain", "same.txt"),
        Given(b"four", "text/plain", "dir\\same.txt"),
    ]
    return site.run(world.deliver(parts, "in@s"))


def test_payloads_are_saved_inside_of_the_folder(run: Run, received: str, tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    got = run("inbox", "get", received, "-o", f"{target}/", "--json")
    assert got.exit_code == 0, got.output
    files = {Path(one["file"]) for one in json.loads(got.stdout)["files"]}
    assert files == set(target.iterdir())
    assert {path.name: path.read_bytes() for path in files} == {
        "pass wd": b"<a/>",
        "part-2.txt": b"two",
        "3-same.txt": b"three",
        "4-same.txt": b"four",
    }
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {
        path.name for path in files
    }


def test_one_payload_goes_to_the_file_that_is_named(
    run: Run, received: str, tmp_path: Path
) -> None:
    file = tmp_path / "two.txt"
    asked = ("inbox", "get", received, "--part", "2", "-o", file)
    assert run(*asked).stdout == f"{file}\n"
    assert file.read_bytes() == b"two"
    file.write_bytes(b"mine")
    assert "is there already" in one_line(run(*asked))
    assert file.read_bytes() == b"mine"
    assert run(*asked, "--force").exit_code == 0
    assert file.read_bytes() == b"two"


def test_one_payload_goes_to_standard_output(run: Run, received: str) -> None:
    assert run("inbox", "get", received, "--part", "3", "-o", "-").stdout_bytes == b"three"
    assert "choose one with --part" in one_line(run("inbox", "get", received, "-o", "-"))


def test_a_payload_that_is_not_there_is_a_line(run: Run, received: str) -> None:
    assert one_line(run("inbox", "get", received, "--part", "5")) == (
        "postroad: in@s has 4 payloads, no 5"
    )


def test_what_is_acknowledged_leaves_the_inbox(run: Run, received: str, tmp_path: Path) -> None:
    assert "in@s" in run("inbox", "list").stdout
    refused = run("inbox", "get", received, "--part", "9", "--ack")
    assert refused.exit_code == 1
    assert "in@s" in run("inbox", "list").stdout
    assert run("inbox", "get", received, "-o", f"{tmp_path}/", "--ack").exit_code == 0
    assert json.loads(run("inbox", "list", "--json").stdout) == []
    assert "in@s" in run("inbox", "list", "--all").stdout
    assert run("inbox", "ack", received).stdout == "in@s consumed\n"


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("order.xml", "order.xml"),
        ("/etc/passwd", "passwd"),
        ("..", "other"),
        ("", "other"),
        (None, "other"),
        (".bashrc", "bashrc"),
        ("-rf", "other"),
        ("a\nb\x1b.txt", "a_b_.txt"),
        ("C:\\Windows\\x.ini", "x.ini"),
        ("CON.txt", "other"),
        ("Bestellung ä.pdf", "Bestellung ä.pdf"),
        ("x" * 500 + ".tar", "x" * 146 + ".tar"),
    ],
)
def test_a_stranger_chooses_no_path(wanted: str | None, name: str) -> None:
    assert safe_name(wanted, "other") == name


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (5 * 10**12, "5 TB")],
)
def test_sizes_are_for_people(count: int, said: str) -> None:
    assert size(count) == said


# Which node


def plainly(*arguments: str | Path, **environment: str | None) -> Result:
    return CliRunner(env=NOBODY | environment).invoke(app, [str(one) for one in arguments])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    file = tmp_path / "postroad.yaml"
    file.write_text(
        "node: a\nparty: urn:a\nlisten: {address: '127.0.0.1:1'}\napi: {token_file: token}\n"
    )
    return file


def serve_here(config: Path, url: str) -> None:
    (config.parent / "data").mkdir()
    write_serving(config.parent / "data", Serving(1, "a", (Door(url, ("api",), "/msh"),)))


def test_the_running_node_is_found_by_its_file(
    site: Site, world: MemoryWorld, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_here(config, site.url)
    assert plainly("messages", "-c", config).exit_code == 0
    assert plainly("messages", POSTROAD_CONFIG=str(config)).exit_code == 0
    monkeypatch.chdir(config.parent)
    assert plainly("messages").exit_code == 0


def test_a_file_on_the_command_line_counts_more_than_the_environment(
    site: Site, world: MemoryWorld, config: Path
) -> None:
    serve_here(config, site.url)
    told: dict[str, Any] = {"POSTROAD_URL": "http://127.0.0.1:1"}
    assert plainly("messages", "-c", config, **told).exit_code == 0


def test_the_environment_tells_address_and_token(site: Site, world: MemoryWorld) -> None:
    told: dict[str, Any] = {"POSTROAD_URL": site.url, "POSTROAD_TOKEN": TOKEN}
    assert plainly("messages", **told).exit_code == 0
    told["POSTROAD_TOKEN"] = "another"
    assert "$POSTROAD_TOKEN" in one_line(plainly("messages", **told))


def test_when_no_node_answers_it_is_told_how_to_start_it(config: Path) -> None:
    result = plainly("status", "x@b", "-c", config)
    assert one_line(result) == (
        "postroad: no node answers at http://127.0.0.1:1; "
        f"start it with: postroad serve -c {config}"
    )
    config.write_text(config.read_text().replace("127.0.0.1:1", "127.0.0.1:0"))
    result = plainly("status", "x@b", "-c", config)
    assert (
        one_line(result) == f"postroad: no node answers; start it with: postroad serve -c {config}"
    )


def test_without_a_file_or_address_it_is_told_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert one_line(plainly("messages")) == (
        "postroad: there is no postroad.yaml; name the node's file with -c FILE, or its address "
        "with --url"
    )


def test_a_broken_file_is_told_by_line(config: Path) -> None:
    config.write_text("party: urn:a\nnode: a b\n")
    result = plainly("messages", "-c", config)
    assert result.exit_code == 2
    assert f"{config}:2: " in one_line(result)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Both ends in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname="127.0.0.1"),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()


def test_a_node_behind_tls_is_believed_by_its_own_certificate(tmp_path: Path) -> None:
    parties = [Station(name, tmp_path / name, 8080 + i) for i, name in enumerate("ab")]
    initialize(Plan(*parties, tls=True), now=datetime.now(UTC))
    for name in "ab":
        file = tmp_path / name / "postroad.yaml"
        mail = "\nmail: {address: msh@a.example, listen: 127.0.0.1:2525}\n"
        file.write_text(file.read_text().replace("serve: [msh]", "serve: [msh, api]") + mail)
    own, other = (load_config(tmp_path / name / "postroad.yaml") for name in "ab")
    context = _trust(own, "https://127.0.0.1:8080")
    assert isinstance(context, ssl.SSLContext)
    servers = []
    for config in (own, other):
        tls, identity = config.listen[0].tls, load_tls(config)[0]
        assert tls is not None
        assert identity is not None
        servers.append(DoorTls(tls, identity).context)
    shake_hands(context, servers[0])
    # Another certificate of the same authority is somebody else.
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context, servers[1])
    assert _trust(own, "http://127.0.0.1:8080") is True
