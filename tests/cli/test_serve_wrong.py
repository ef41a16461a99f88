"""A node started with a wrong configuration: each time one sentence is enough to mend it.

Every case is a good node with one thing broken. What the sentence has to name is beside it: where
the mistake is, and what to do.
"""

import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from postroad.api import workers
from postroad.api.running import RunningNode
from postroad.node.first_steps.initializing import Plan, Station, initialize
from tests import pki
from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("node_log")


@dataclass
class Broken:
    """A node that was good before somebody laid hands on it."""

    folder: Path
    held: ExitStack

    @property
    def file(self) -> Path:
        return self.folder / "postroad.yaml"

    def set(self, name: str, value: Any) -> None:
        """One setting, by its dotted name."""
        settings: Any = yaml.safe_load(self.file.read_text())
        place, *keys = settings, *name.split(".")
        for key in keys[:-1]:
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        place[keys[-1]] = value
        self.file.write_text(yaml.safe_dump(settings, sort_keys=False))

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def pmode(self, change: Callable[[Any], None]) -> None:
        """Change the first P-Mode."""
        path = sorted((self.folder / "pmodes").iterdir())[0]
        data = yaml.safe_load(path.read_text())
        change(data)
        path.write_text(yaml.safe_dump(data, sort_keys=False))


Break = Callable[[Broken], None]


def no_file(node: Broken) -> None:
    node.file.unlink()


def a_folder(node: Broken) -> None:
    node.file.unlink()
    node.file.mkdir()


def bad_yaml(node: Broken) -> None:
    node.file.write_text(node.file.read_text() + "\nlog: [unclosed\n")


def a_tab(node: Broken) -> None:
    node.file.write_text("node: a\nparty: urn:a\nlog:\n\tlevel: info\n")


def twice(node: Broken) -> None:
    node.file.write_text(node.file.read_text() + "\nnode: b\n")


def no_party(node: Broken) -> None:
    settings = yaml.safe_load(node.file.read_text())
    del settings["party"]
    node.file.write_text(yaml.safe_dump(settings))


def unknown_key(node: Broken) -> None:
    node.set("lissen", [])


def port_in_use(node: Broken) -> None:
    taken = node.held.enter_context(socket.create_server(("127.0.0.1", 0)))
    node.set("listen.0.address", f"127.0.0.1:{taken.getsockname()[1]}")


def foreign_address(node: Broken) -> None:
    node.set("listen.0.address", "192.0.2.77:8080")


def bad_address(node: Broken) -> None:
    node.set("listen.0.address", "127.0.0.1")


def bad_port(node: Broken) -> None:
    node.set("listen.0.address", "127.0.0.1:99999")


def negative_limit(node: Broken) -> None:
    node.set("limits.message_bytes", -5)


def bad_size(node: Broken) -> None:
    node.set("limits.message_bytes", "5 gigs")


def bad_duration(node: Broken) -> None:
    node.set("clock_skew", "5 minutes")


def no_key_file(node: Broken) -> None:
    (node.folder / "keys" / "a.p12").unlink()


def no_password(node: Broken) -> None:
    pair = pki.issue(None, "a")
    node.write("keys/a.p12", pki.p12(pair, b"a secret"))


def wrong_password(node: Broken) -> None:
    no_password(node)
    node.write("keys/password", "another secret\n")
    node.set("keys.password_file", "keys/password")


def no_password_in_the_environment(node: Broken) -> None:
    node.set("keys.password_env", "POSTROAD_NO_SUCH_PASSWORD")


def a_key_without_certificate(node: Broken) -> None:
    node.write("keys/a.p12", pki.pem(pki.issue(None, "a")).split(b"-----BEGIN CERTIFICATE")[0])


def a_certificate_without_key(node: Broken) -> None:
    node.write("keys/a.p12", pki.pem_certificates(pki.issue(None, "a").certificate))


def an_expired_certificate(node: Broken) -> None:
    now = datetime.now(UTC)
    pair = pki.issue(
        None, "a", not_before=now - timedelta(days=9), not_after=now - timedelta(days=2)
    )
    node.write("keys/a.p12", pki.pem(pair))


def an_empty_token(node: Broken) -> None:
    node.write("keys/api.token", "\n")


def data_is_a_file(node: Broken) -> None:
    node.write("data", "in the way")


def data_of_a_newer_version(node: Broken) -> None:
    path = node.write("data/postroad.db", b"")
    database = sqlite3.connect(path)
    table = "migrations (number INTEGER PRIMARY KEY, name TEXT, applied_at INTEGER)"
    database.execute(f"CREATE TABLE {table}")
    database.execute("INSERT INTO migrations VALUES (9999, 'later', 0)")
    database.commit()
    database.close()


def data_that_is_no_database(node: Broken) -> None:
    node.write("data/postroad.db", b"this is no database at all, but long enough" * 50)


def no_pmodes(node: Broken) -> None:
    shutil.rmtree(node.folder / "pmodes")


def an_empty_folder_of_pmodes(node: Broken) -> None:
    no_pmodes(node)
    (node.folder / "pmodes").mkdir()


def two_pmodes_of_one_id(node: Broken) -> None:
    first = sorted((node.folder / "pmodes").iterdir())[0]
    node.write("pmodes/zz-copy.yaml", first.read_bytes())


def a_bad_url(node: Broken) -> None:
    node.pmode(lambda data: data["legs"][0]["protocol"].update(address="seller.example"))


def an_unknown_parameter(node: Broken) -> None:
    node.pmode(lambda data: data["legs"][0]["protocol"].update(adress="https://x.example"))


def a_certificate_that_is_not_there(node: Broken) -> None:
    def change(data: Any) -> None:
        data["legs"][0]["security"]["x509"]["signature"]["certificate"] = "../keys/nobody.pem"

    node.pmode(change)


def a_trust_store_without_its_password(node: Broken) -> None:
    def change(data: Any) -> None:
        del data["legs"][0]["security"]["x509"]["signature"]["certificate"]
        data["legs"][0]["security"]["x509"]["signature"]["trust_anchors"] = ["../keys/roots.p12"]

    node.write("keys/roots.p12", pki.p12_trust([pki.authority("root").certificate], b"a secret"))
    node.pmode(change)


def with_keys_behind(node: Broken, password: str) -> None:
    node.write("keys/a.p12", pki.p12(pki.issue(None, "a"), password.encode()))
    node.write("keys/password", f"{password}\n").chmod(0o600)
    node.set("keys.password_file", "keys/password")


def a_trust_store_with_another_password(node: Broken) -> None:
    a_trust_store_without_its_password(node)
    with_keys_behind(node, "another secret")


def a_trust_store_of_the_node_without_its_password(node: Broken) -> None:
    node.write("keys/roots.p12", pki.p12_trust([pki.authority("root").certificate], b"a secret"))
    node.set("trust", ["keys/roots.p12"])


def bad_rules(node: Broken) -> None:
    node.write("routes.yaml", "routes:\n  - id: a\n    to: {pull: https://x.example}\n")


def equal_rules(node: Broken) -> None:
    text = "routes:\n  - {id: a, to: {push: 'https://x.example'}}\n"
    node.write("routes.yaml", text + "  - {id: b, to: {push: 'https://y.example'}}\n")


def named_rules_that_are_not_there(node: Broken) -> None:
    node.set("routes", "elsewhere.yaml")


def tls_without_certificate(node: Broken) -> None:
    node.set("listen.0.tls", {"certificate": "keys/door.p12"})


def a_webhook_without_scheme(node: Broken) -> None:
    node.set("webhook", {"url": "localhost:9000/hook"})


def a_journal_that_nobody_can_write(node: Broken) -> None:
    node.write("lake", "in the way")
    node.set("journal.ship_to", "lake")


def an_api_without_a_token(node: Broken) -> None:
    settings = yaml.safe_load(node.file.read_text())
    del settings["api"]
    node.file.write_text(yaml.safe_dump(settings))
    (node.file.parent / "keys" / "api.token").unlink()


CASES: list[tuple[Break, int, tuple[str, ...]]] = [
    (no_file, 2, ("postroad.yaml:1", "cannot be read", "postroad init DIR")),
    (a_folder, 2, ("Is a directory", "-c FILE")),
    (bad_yaml, 2, (":24", "not YAML", "a bracket or a quote that is not closed")),
    (a_tab, 2, (":4", "indent with blanks, not with tabs")),
    (twice, 2, (":23", "`node` is given twice, first in line 1", "remove one")),
    (no_party, 2, ("`party` is missing", "Who the node acts for")),
    (unknown_key, 2, ("unknown key `lissen`", "did you mean `listen`?")),
    (port_in_use, 1, ("Address already in use", "stop what listens there")),
    (foreign_address, 1, ("192.0.2.77:8080", "write an address of this machine")),
    (bad_address, 2, ("listen[0].address", "write host:port")),
    (bad_port, 2, ("listen[0].address", "99999", "write host:port")),
    (negative_limit, 2, ("limits.message_bytes", "'-5' is not a size", "such as 10 MiB")),
    (bad_size, 2, ("limits.message_bytes", "5 gigs", "such as 10 MiB")),
    (bad_duration, 2, ("clock_skew", "ISO 8601 duration", "such as PT30S")),
    (no_key_file, 2, ("keys.signing", "keys/a.p12 cannot be read", "correct the name")),
    (no_password, 2, ("keys.signing", "it needs a password", "keys.password_file")),
    (wrong_password, 2, ("keys.signing", "the password is wrong", "keys.password_file")),
    (no_password_in_the_environment, 2, ("POSTROAD_NO_SUCH_PASSWORD", "set it before")),
    (a_key_without_certificate, 2, ("no certificate", "add the certificate to the same file")),
    (a_certificate_without_key, 2, ("no private key", "export key and certificate together")),
    (an_empty_token, 2, ("api.token_file", "is empty", "write the secret into its first line")),
    (data_is_a_file, 1, ("data cannot be written", "move it away, or set `data`")),
    (data_of_a_newer_version, 1, ("made by a newer version", "install that version")),
    (data_that_is_no_database, 1, ("postroad.db is damaged", "restore a backup")),
    (no_pmodes, 2, ("pmodes is not there", "make the folder and put P-Modes there")),
    (an_empty_folder_of_pmodes, 1, ("no P-Mode file (*.yaml)", "put one there")),
    (two_pmodes_of_one_id, 1, ("zz-copy.yaml:4", "another P-Mode has the id", "rename one")),
    (a_bad_url, 1, (".yaml:12", "Protocol.Address", "write it with its scheme")),
    (an_unknown_parameter, 1, ("unknown key `adress`", "did you mean `address`?")),
    (
        a_certificate_that_is_not_there,
        1,
        ("the P-Mode a-to-a-order names", "keys/nobody.pem", "correct the name, or put it there"),
    ),
    (
        a_trust_store_without_its_password,
        1,
        ("P-Mode a-to-a-order names", "roots.p12", "it needs a password", "keys.password_file"),
    ),
    (
        a_trust_store_with_another_password,
        1,
        ("P-Mode a-to-a-order names", "roots.p12", "the password is wrong", "keys.password_file"),
    ),
    (
        a_trust_store_of_the_node_without_its_password,
        2,
        ("trust[0]", "roots.p12", "it needs a password", "keys.password_file"),
    ),
    (bad_rules, 1, ("routes.yaml:3:10", "unknown key `pull`", "keys here: push, channel")),
    (equal_rules, 1, ("the same messages as the rule 'a'", "remove one of them")),
    (named_rules_that_are_not_there, 2, ("elsewhere.yaml is not there", "remove the setting")),
    (tls_without_certificate, 2, ("listen[0].tls.certificate", "door.p12 cannot be read")),
    (a_webhook_without_scheme, 2, ("webhook.url", "write it with http:// or https://")),
    (an_api_without_a_token, 2, ("the REST interface needs a token", "openssl rand -hex 32")),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "a"
    initialize(Plan(Station("a", folder, 18080)), now=datetime.now(UTC))
    return folder


@pytest.fixture
def node(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    shutil.copytree(good, tmp_path / "a")

    async def starts_and_stops(running: RunningNode, *_: Any, **__: Any) -> None:
        await running.start()
        await running.stop()

    monkeypatch.setattr(workers, "live", starts_and_stops)
    with ExitStack() as held:
        node = Broken(tmp_path / "a", held)
        node.set("listen.0.address", "127.0.0.1:0")
        yield node


@pytest.mark.parametrize(("broken", "code", "words"), CASES, ids=lambda one: _name(one))
def test_one_sentence_is_enough_to_mend_it(
    run: Run, node: Broken, broken: Break, code: int, words: tuple[str, ...]
) -> None:
    broken(node)
    result = run("serve", "-c", node.file)
    told = result.stderr.splitlines()
    assert result.exit_code == code, result.stderr
    assert told
    assert all(line.startswith("postroad: ") for line in told), result.stderr
    assert [word for word in words if word not in told[0]] == []


def test_trust_stores_open_with_the_password_of_the_keys(run: Run, node: Broken) -> None:
    a_trust_store_without_its_password(node)
    a_trust_store_of_the_node_without_its_password(node)
    with_keys_behind(node, "a secret")
    node.set("listen.0.tls", {"certificate": "keys/a.p12", "client_certificates": "optional"})
    node.set("listen.0.tls.client_authorities", ["keys/roots.p12"])
    result = run("serve", "-c", node.file)
    assert result.exit_code == 0, result.stderr


def test_a_certificate_that_expired_is_warned_of_and_the_node_runs(run: Run, node: Broken) -> None:
    an_expired_certificate(node)
    result = run("serve", "-c", node.file)
    assert result.exit_code == 0
    [line] = [one for one in result.stderr.splitlines() if "WARNING" in one]
    assert "of keys.signing expired on" in line
    assert "get a new one" in line
    assert "get a new one" in run("config", "check", node.file).stderr


def test_a_journal_that_cannot_be_shipped_is_told_and_the_node_runs(run: Run, node: Broken) -> None:
    a_journal_that_nobody_can_write(node)
    result = run("serve", "-c", node.file)
    assert result.exit_code == 0
    [line] = [one for one in result.stderr.splitlines() if "ERROR" in one]
    assert "check that the place is there and may be written" in line


@pytest.mark.parametrize("broken", [named_rules_that_are_not_there, no_pmodes, bad_rules])
def test_what_serve_refuses_the_check_of_the_config_refuses(
    run: Run, node: Broken, broken: Break
) -> None:
    broken(node)
    assert run("config", "check", node.file).exit_code == 1


def _name(one: object) -> str:
    return one.__name__.replace("_", " ") if callable(one) else ""
