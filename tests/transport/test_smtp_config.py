"""The group `mail` of the node's file: what it means, and what is wrong with it."""

import re
from pathlib import Path

import pytest

from postroad.node.settings.config import Config, ConfigError, load_config
from tests.conftest import PROJECT

MINIMAL = "node: buyer\nparty: urn:example:buyer\n"
TAKEN = """\
mail:
  address: msh@buyer.example
  listen: 0.0.0.0:25
  tls: {certificate: keys/tls.p12}
"""
SENT = """\
mail:
  address: msh@buyer.example
  relay:
    host: mail.buyer.example
    username: buyer
    password_file: keys/mail.password
"""


def loaded(folder: Path, text: str) -> Config:
    file = folder / "postroad.yaml"
    file.write_text(MINIMAL + text, encoding="utf-8")
    return load_config(file)


def told(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        loaded(folder, text)
    return str(refused.value).replace(f"{folder}/", "")


def test_a_node_has_nothing_to_do_with_mail_unless_it_says_so(tmp_path: Path) -> None:
    assert loaded(tmp_path, "").mail is None


def test_the_example_of_the_page_means_what_it_says(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "configuration.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- example: mail -->\n```yaml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    file = tmp_path / "postroad.yaml"
    file.write_text(found[1], encoding="utf-8")
    mail = load_config(file).mail
    assert mail is not None
    assert mail.taken_for == ("msh@buyer.example",)
    assert mail.max_size == 100 * 1024 * 1024
    assert mail.relay is not None


def test_a_node_that_takes_mail(tmp_path: Path) -> None:
    mail = loaded(tmp_path, TAKEN + "  recipients: orders@buyer.example\n").mail
    assert mail is not None
    assert mail.taken_for == ("msh@buyer.example", "orders@buyer.example")
    assert mail.hello == "buyer.example"
    assert mail.tls is not None
    assert mail.tls.certificate == tmp_path / "keys" / "tls.p12"
    assert (mail.max_size, mail.connections, mail.require_tls) == (64 * 1024 * 1024, 100, False)


def test_a_node_that_sends_mail(tmp_path: Path) -> None:
    mail = loaded(tmp_path, SENT + "  name: node7.buyer.example\n").mail
    assert mail is not None
    assert mail.hello == "node7.buyer.example"
    assert mail.relay is not None
    assert (mail.relay.host, mail.relay.port) == ("mail.buyer.example", 587)
    assert mail.relay.starttls == "required"
    assert mail.relay.password_file == tmp_path / "keys" / "mail.password"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mail: {listen: '127.0.0.1:25'}\n", "postroad.yaml:3: mail.address: `address` is missing"),
        (
            TAKEN.replace("msh@buyer.example", "mailto:msh@buyer.example"),
            "postroad.yaml:4: mail.address: 'mailto:msh@buyer.example' is no mail address",
        ),
        (TAKEN.replace(":25", ""), "postroad.yaml:5: mail.listen: '0.0.0.0' is no address"),
        ("mail: {address: a@b.example}\n", "mail: mail is neither taken nor sent (add listen"),
        (
            "listen: {address: '127.0.0.1:25'}\n"
            "mail: {address: a@b.example, listen: '127.0.0.1:25'}\n",
            "postroad.yaml:4: mail.listen: a door for HTTP listens on 127.0.0.1:25 too",
        ),
        (
            TAKEN.replace("tls: {certificate: keys/tls.p12}", "users_file: keys/users"),
            "mail.users_file: without TLS a password could be read on its way (add mail.tls",
        ),
        (
            TAKEN.replace("tls: {certificate: keys/tls.p12}", "require_tls: true"),
            "mail.require_tls: there is no TLS (add mail.tls",
        ),
        (
            SENT + "  users_file: keys/users\n  tls: {certificate: a}\n",
            "mail.users_file: no mail is taken that it could be for (add mail.listen)",
        ),
        (
            TAKEN.replace("tls.p12", "tls.p12, client_certificates: required"),
            "mail.tls.client_certificates: nothing says who issues the certificates",
        ),
        (
            SENT.replace("    username: buyer\n", ""),
            "mail.relay.password_file: nothing says whose it is (add username)",
        ),
        (
            SENT.replace("    password_file: keys/mail.password\n", ""),
            "mail.relay.username: there is no password for it (add password_file)",
        ),
        (
            SENT + "    starttls: never\n",
            "mail.relay.starttls: without TLS the password could be read on its way",
        ),
        (SENT.replace("mail.buyer", "smtp://mail.buyer"), "mail.relay.host: 'smtp://mail"),
        (SENT + "    starttls: always\n", "mail.relay.starttls: "),
        (SENT + "    hosts: a\n", "did you mean `host`?"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert said in told(tmp_path, text)


def test_a_password_may_go_without_tls_to_this_very_machine(tmp_path: Path) -> None:
    text = SENT.replace("mail.buyer.example\n    u", "127.0.0.1\n    starttls: never\n    u")
    assert loaded(tmp_path, text).mail is not None
