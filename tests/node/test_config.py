"""The node's file: what it means, what is wrong with it by line, and the keys that it names."""

import json
import os
import re
from contextlib import chdir
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from postroad.cli.config import app
from postroad.node.settings.config import Config, ConfigError, load_config
from postroad.node.settings.config_groups import LimitSettings
from postroad.node.settings.config_schema import config_schema, settings_table
from postroad.node.settings.keyring import Keyring, keyring_files, load_keyring, load_tls, tls_files
from postroad.security.keys import BareKey, KeyPair
from postroad.wire.limits import DEFAULT, MIB, Limits
from tests import pki
from tests.conftest import PROJECT

PAGE = (PROJECT / "docs" / "configuration.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"<!-- example: (\S+) -->\n```yaml\n(.*?)```", PAGE, re.DOTALL))
MINIMAL = "node: buyer\nparty: urn:example:buyer\n"
CA = pki.authority("Config CA")
BUYER = pki.issue(CA, "buyer")
SECRET = "a-password-that-nobody-sees"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "postroad.yaml"


def loaded(file: Path, text: str) -> Config:
    file.write_text(text, encoding="utf-8")
    return load_config(file)


def told(file: Path, text: str | bytes) -> list[str]:
    """What is wrong, without the folder."""
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    return str(refused.value).replace(f"{file.parent}/", "").splitlines()


def private(path: Path, content: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)
    return path


# What the file means


def test_a_minimal_file_gets_sensible_defaults(file: Path) -> None:
    config = loaded(file, MINIMAL)
    assert config.party_name == "urn:example:buyer"
    assert (config.data, config.pmodes) == (file.parent / "data", file.parent / "pmodes")
    assert [(door.host, door.port, door.path) for door in config.listen] == [
        ("127.0.0.1", 8080, "/msh")
    ]
    assert config.listen[0].serve == ("msh", "api")
    assert config.http.header_timeout == timedelta(seconds=20)
    assert config.retention.messages == timedelta(days=90)
    assert config.clock_skew == timedelta(minutes=5)
    assert config.limits.wire == DEFAULT
    assert config.send.parallel == 128
    assert config.webhook is None


def test_the_example_of_the_page_means_what_it_says(file: Path) -> None:
    config = loaded(file, EXAMPLES["full"])
    assert config.party_name == (
        "urn:oasis:names:tc:ebcore:partyid-type:iso6523::0088:5060012349998"
    )
    assert config.data == Path("/var/lib/postroad")
    assert config.keys.signing == file.parent / "keys" / "buyer.p12"
    assert config.listen[0].tls is not None
    assert config.listen[0].tls.client_authorities == (file.parent / "keys" / "partners.pem",)
    assert config.limits.wire.message_bytes == 2048 * MIB
    assert config.http.answer_timeout == timedelta(minutes=2)
    assert config.retention.messages == timedelta(days=30)
    assert config.api_url == "http://127.0.0.1:8080"


def test_a_config_cannot_be_changed(file: Path) -> None:
    config = loaded(file, MINIMAL)
    with pytest.raises(ValidationError):
        config.node = "other"  # type: ignore[misc]


def test_two_files_that_say_the_same_are_equal_whatever_their_lines(file: Path) -> None:
    first = loaded(file, MINIMAL)
    assert loaded(file, "# a comment\n" + MINIMAL) == first
    assert loaded(file, MINIMAL + "workers: 2\n") != first


def test_one_item_stands_for_a_list(file: Path) -> None:
    config = loaded(file, MINIMAL + "trust: ca.pem\nlisten: {address: '[::1]:0', serve: msh}\n")
    assert config.trust == (file.parent / "ca.pem",)
    assert config.listen[0].serve == ("msh",)


def test_null_keeps_for_ever(file: Path) -> None:
    retention = loaded(file, MINIMAL + "retention: {messages: null}\n").retention
    assert retention.messages is None


def test_anchors_stand_in_keys_of_ones_own(file: Path) -> None:
    text = MINIMAL + "x-note:\nx-ca: &ca keys/ca.pem\ntrust: [*ca]\n"
    assert loaded(file, text).trust == (file.parent / "keys" / "ca.pem",)


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("address: 127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("address: '[::1]:9000'", "http://[::1]:9000"),
        ("address: localhost:9000, tls: {certificate: a.p12}", "https://localhost:9000"),
        ("address: 127.0.0.1:0", None),
        ("address: 127.0.0.1:9000, serve: [msh]", None),
    ],
)
def test_commands_find_the_api_at_the_first_door_that_serves_it(
    file: Path, listen: str, url: str | None
) -> None:
    assert loaded(file, MINIMAL + f"listen: [{{{listen}}}]\n").api_url == url


def test_an_api_on_all_addresses_is_found_on_this_machine(file: Path) -> None:
    text = MINIMAL + "api: {token_file: t}\nlisten: [{address: '0.0.0.0:80'}]\n"
    assert loaded(file, text).api_url == "http://127.0.0.1:80"
    assert loaded(file, text + "public_url: https://b.example/\n").api_url == "https://b.example"


def test_every_limit_of_the_readers_can_be_set(file: Path) -> None:
    own = ["out_of_order", "refused", "disk_reserve", "disk_warning"]
    assert list(LimitSettings.model_fields) == [*(one.name for one in fields(Limits)), *own]
    names = [field.name for field in fields(Limits)]
    sizes = [n for n in names if n.endswith("_bytes") or n == "decompression_floor"]
    text = (
        MINIMAL
        + "limits:\n"
        + "".join(f"  {name}: {'7 KiB' if name in sizes else '7'}\n" for name in names)
    )
    expected = {name: 7 * 1024 if name in sizes else 7 for name in names}
    assert loaded(file, text).limits.wire == Limits(**expected)


# What is wrong with it


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml:1: .*cannot be read.*postroad init DIR"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "postroad.yaml:1: there are no settings (write `node:` and `party:`"),
        ("- node\n", "postroad.yaml:1: there are no settings"),
        (MINIMAL + "---\nnode: b\n", "postroad.yaml:4: there is more than one document"),
        ("node: [\n", "postroad.yaml:2: not YAML: "),
        (b"node: a\nparty: \xff\n", "postroad.yaml:2: this is no UTF-8 text"),
        ("node: a\n", "postroad.yaml:1: party: `party` is missing (Who the node acts for"),
        (MINIMAL + "node: b\n", "postroad.yaml:3: key `node` is given twice, first in line 1"),
        (MINIMAL + "trsut: a\n", "3: trsut: unknown key `trsut` (did you mean `trust`?)"),
        (MINIMAL + "http: {BodyTimeOut: PT1S}\n", "(did you mean `body_timeout`?)"),
        (MINIMAL + "log: {zzz: 1}\n", "3: log.zzz: unknown key `zzz` (keys here: format, level)"),
        (
            MINIMAL + "listen:\n  - serve: [msh]\n    tls: {certificate: a, kye: b}\n",
            "5: listen[0].tls.kye: unknown key `kye` (keys here: certificate, key, ",
        ),
        (MINIMAL + "webhook:\n", "3: webhook: it has no value (give it one, or remove the key)"),
        (MINIMAL + "http: {idle_timeout: ~}\n", "3: http.idle_timeout: it has no value"),
        (MINIMAL + "log: loud\n", "3: log: a group of keys is needed, not a text (keys: format"),
        (MINIMAL + "log: {level: loud}\n", "3: log.level: 'loud' is not one of 'debug', "),
        (MINIMAL + "clock_skew: 5\n", "3: clock_skew: '5' is not an ISO 8601 duration"),
        (MINIMAL + "http: {body_timeout: PT0S}\n", "body_timeout: it must be more than nothing"),
        (MINIMAL + "http: {body_timeout: P2D}\n", "body_timeout: it must be more than nothing"),
        (MINIMAL + "limits: {parts: many}\n", "3: limits.parts: 'many' is not a whole number"),
        (MINIMAL + "limits: {part_bytes: 5}\n", "'5' is not a size; write a number and a unit"),
        (MINIMAL + "workers: 0\n", "3: workers: '0': input should be greater than or equal to 1"),
        (MINIMAL + "data: ''\n", "3: data: the name of the file is empty"),
        (MINIMAL + "listen: []\n", "3: listen: fewer than 1 items"),
        (MINIMAL + "listen: {serve: []}\n", "listen[0].serve: fewer than 1 items"),
        (MINIMAL + "listen: {serve: [web]}\n", "'web' is not one of 'msh' or 'api'"),
        (MINIMAL + "listen: {path: msh}\n", "'msh' is no path; begin it with /"),
        (MINIMAL + "public_url: b.example\n", "'b.example' is no URL; write it with http://"),
        (MINIMAL + "webhook: {url: 'ftp://x'}\n", "webhook.url: 'ftp://x' is no URL"),
        (MINIMAL + "webhook: {events: failed}\n", "webhook.url: `url` is missing (Where events"),
        ("node: a/b\nparty: urn:a:b\n", "1: node: 'a/b' is no name; use up to 64 letters"),
    ],
)
def test_one_mistake_is_told_by_line(file: Path, text: str | bytes, said: str) -> None:
    problems = told(file, text)
    assert len(problems) == 1, problems
    assert problems[0].startswith("postroad.yaml:")
    assert said in problems[0]


@pytest.mark.parametrize(
    "address",
    ["8080", ":8080", "a:", "a:x", "a:70000", "::1:80", "a:80:80", "a:-1", "[a]:80", "[]:80"],
)
def test_an_address_is_host_and_port(file: Path, address: str) -> None:
    [problem] = told(file, MINIMAL + f"listen:\n  - address: '{address}'\n")
    assert problem.startswith("postroad.yaml:4: listen[0].address: ")
    assert "write host:port, such as 127.0.0.1:8080" in problem


def test_everything_is_told_at_once_and_in_order(file: Path) -> None:
    problems = told(file, "workers: x\nnode: a b\nlog: {format: xml, level: ~}\ntrsut: a\n")
    assert [problem.split(":")[1] for problem in problems] == ["1", "1", "2", "3", "3", "4"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "node: b\nparty: [{id: a, type: t}, {id: b, type: t}]\n",
            "2: party[1]: 'b' has the same type as another id",
        ),
        (
            MINIMAL + "keys:\n  password_file: p\n  password_env: P\n",
            "5: keys.password_env: there is a password_file too",
        ),
        (MINIMAL + "keys: {signing_alias: a}\n", "3: keys.signing_alias: there is no store"),
        (
            MINIMAL + "listen:\n  - address: 127.0.0.1:80\n  - address: 127.0.0.1:80\n",
            "5: listen[1].address: another door listens on 127.0.0.1:80 too",
        ),
        (MINIMAL + "listen: {path: /api/v1}\n", "/api/v1 belongs to the REST interface"),
        (
            MINIMAL + "listen: {tls: {certificate: a, client_certificates: optional}}\n",
            "nothing says who issues the certificates of clients (add client_authorities)",
        ),
        (
            MINIMAL + "listen: {tls: {certificate: a, client_authorities: b}}\n",
            "clients are asked for no certificate",
        ),
        (MINIMAL + "limits: {message_bytes: 1 GiB}\n", "limits.part_bytes: a part may not be"),
    ],
)
def test_settings_that_contradict_each_other_are_told(file: Path, text: str, said: str) -> None:
    [problem] = told(file, text)
    assert said in problem


@pytest.mark.parametrize(
    "text",
    [
        "listen: [{address: 127.0.0.1:0}, {address: 127.0.0.1:0}]\n",
        "listen: {path: /api, serve: msh}\n",
        "listen: {path: /apiary}\n",
        "listen: {address: '0.0.0.0:80', serve: msh}\n",
        "listen: {address: '0.0.0.0:80'}\napi: {token_file: t}\n",
    ],
)
def test_what_only_looks_like_a_contradiction_is_taken(file: Path, text: str) -> None:
    assert loaded(file, MINIMAL + text)


def test_a_party_that_has_no_type_and_is_not_a_uri_is_a_warning(file: Path) -> None:
    config = loaded(file, "node: b\nparty: buyer\n")
    [warning] = config.warnings
    assert warning.startswith("party[0]: 'buyer' has no type and is not a URI (give it a type, ")
    assert loaded(file, MINIMAL).warnings == ()


def test_a_bomb_of_aliases_is_refused(file: Path) -> None:
    lines = ["x-0: &a0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    [problem] = told(file, MINIMAL + "\n".join(lines))
    assert "its aliases expand to more than" in problem


# The keys that it names


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    private(folder / "buyer.p12", pki.p12(BUYER, SECRET.encode(), "buyer"))
    private(folder / "password", f"{SECRET}\nsecond line\n".encode())
    private(folder / "api.token", b"0123456789abcdef0123456789abcdef\n")
    private(folder / "webhook.secret", b"a secret\n")
    private(folder / "old.key", pki.pem_key(pki.issue(CA, "old")))
    (folder / "ca.pem").write_bytes(pki.pem_certificates(CA.certificate))
    private(folder / "tls.key", pki.pem_key(BUYER))
    (folder / "tls.pem").write_bytes(pki.pem_certificates(BUYER.certificate, CA.certificate))
    return folder


KEYS = """\
keys:
  signing: keys/buyer.p12
  password_file: keys/password
"""


def test_the_keyring_has_all_that_is_named(file: Path, keys: Path) -> None:
    text = MINIMAL + KEYS + "  decryption: [keys/buyer.p12, keys/old.key]\ntrust: keys/ca.pem\n"
    text += "api: {token_file: keys/api.token}\n"
    text += "webhook: {url: 'http://a.example', secret_file: keys/webhook.secret}\n"
    config = loaded(file, text)
    ring = load_keyring(config)
    assert ring.signing is not None
    assert ring.signing.certificate == BUYER.certificate
    assert [type(key) for key in ring.opening] == [KeyPair, BareKey]
    assert ring.trust == (CA.certificate,)
    assert ring.api_token == "0123456789abcdef0123456789abcdef"
    assert ring.webhook_secret == b"a secret"
    assert ring.password == SECRET.encode()
    assert ring.warnings == ()
    assert {path.name for path in keyring_files(config)} == {
        "buyer.p12",
        "old.key",
        "password",
        "ca.pem",
        "api.token",
        "webhook.secret",
    }


def test_without_keys_the_keyring_is_empty(file: Path) -> None:
    assert load_keyring(loaded(file, MINIMAL + "listen: {serve: msh}\n")) == Keyring()


@pytest.mark.parametrize(
    "more", ["", "listen: {address: '0.0.0.0:80'}\n", "api: {token_file: t}\n"]
)
def test_the_rest_interface_is_served_with_a_token_or_not_at_all(file: Path, more: str) -> None:
    """On this machine neither: whoever makes any server there post somewhere could use it."""
    config = loaded(file, MINIMAL + more)
    with pytest.raises(ConfigError) as refused:
        load_keyring(config)
    said = str(refused.value)
    assert "api.token_file: the REST interface needs a token, and " in said
    assert f"openssl rand -hex 32 > {config.token_file}; or write serve: [msh] in listen" in said
    token = file.parent / ("t" if "token_file" in more else "keys/api.token")
    private(token, b"0123456789abcdef0123456789abcdef\n")
    assert load_keyring(config).api_token == "0123456789abcdef0123456789abcdef"
    private(token, b" \n")
    with pytest.raises(ConfigError, match="is empty"):
        load_keyring(config)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "deny: 10.0.0.1/8",
            "deny[0]: '10.0.0.1/8' is not a network. Write it such as 10.1.0.0/16",
        ),
        ("callback_networks: [everywhere]", "callback_networks[0]: 'everywhere' is not a network."),
        ("callback_hosts: '*'", "callback_hosts[0]: '*' is no wildcard"),
        ("allow: 127.0.0.1", "allow: unknown key `allow`"),
    ],
)
def test_an_egress_policy_that_means_nothing_is_refused(file: Path, given: str, said: str) -> None:
    [problem] = told(file, MINIMAL + f"security: {{egress: {{{given}}}}}\n")
    assert problem.startswith("postroad.yaml:3: security.egress.")
    assert said in problem


def test_the_signing_key_opens_where_no_other_is_named(file: Path, keys: Path) -> None:
    ring = load_keyring(loaded(file, MINIMAL + KEYS))
    assert ring.opening == (ring.signing,)
    assert load_keyring(loaded(file, MINIMAL + KEYS + "  decryption: []\n")).opening == ()


def test_the_password_may_come_from_the_environment(
    file: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = loaded(file, MINIMAL + "keys: {signing: keys/buyer.p12, password_env: POST_PW}\n")
    monkeypatch.setenv("POST_PW", SECRET)
    assert load_keyring(config).signing is not None
    monkeypatch.delenv("POST_PW")
    with pytest.raises(ConfigError, match="the environment has no variable POST_PW"):
        load_keyring(config)


def test_one_of_several_keys_is_named_by_its_alias(file: Path, keys: Path) -> None:
    both = pki.pem(BUYER) + pki.pem(pki.issue(CA, "old"))
    private(keys / "both.pem", both)
    text = MINIMAL + "keys:\n  signing: keys/both.pem\n"
    with pytest.raises(ConfigError, match=r":4: keys\.signing: .*name one by its alias"):
        load_keyring(loaded(file, text))
    ring = load_keyring(loaded(file, text + "  signing_alias: old\n"))
    assert ring.signing is not None
    assert ring.signing.certificate == pki.issue(CA, "old").certificate


def test_every_file_that_cannot_be_used_is_told_by_its_setting(file: Path, keys: Path) -> None:
    private(keys / "password", b"wrong\n")
    private(keys / "api.token", b"\n")
    text = MINIMAL + KEYS + "trust:\n  - keys/ca.pem\n  - keys/none.pem\n"
    text += "api: {token_file: keys/api.token}\n"
    with pytest.raises(ConfigError) as refused:
        load_keyring(loaded(file, text))
    said = str(refused.value).replace(f"{file.parent}/", "").splitlines()
    assert said[0].startswith("postroad.yaml:4: keys.signing: keys/buyer.p12 cannot be used (")
    assert "the password is wrong" in said[0]
    assert said[1].startswith("postroad.yaml:8: trust[1]: keys/none.pem cannot be read: No such")
    assert said[2].startswith("postroad.yaml:9: api.token_file: keys/api.token is empty")
    assert len(said) == 3


def test_a_token_that_http_cannot_carry_is_refused(file: Path, keys: Path) -> None:
    private(keys / "api.token", "schlüssel mit leerzeichen\n".encode())
    with pytest.raises(ConfigError, match="characters that HTTP cannot carry"):
        load_keyring(loaded(file, MINIMAL + "api: {token_file: keys/api.token}\n"))


def test_a_short_token_is_warned_of(file: Path, keys: Path) -> None:
    private(keys / "api.token", b"secret\n")
    ring = load_keyring(loaded(file, MINIMAL + "api: {token_file: keys/api.token}\n"))
    assert [("short" in warning, "secret" in warning) for warning in ring.warnings] == [
        (True, False)
    ]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_secret_that_others_can_read_is_warned_of(file: Path, keys: Path, mode: int) -> None:
    (keys / "api.token").chmod(mode)
    (keys / "buyer.p12").chmod(mode)
    text = MINIMAL + KEYS + "trust: keys/ca.pem\napi: {token_file: keys/api.token}\n"
    warnings = load_keyring(loaded(file, text)).warnings
    assert len(warnings) == 2
    assert "buyer.p12 (keys.signing) can be read by others" in warnings[0]
    assert warnings[1].endswith(f"chmod 600 {keys / 'api.token'}")


def test_no_secret_is_shown(file: Path, keys: Path) -> None:
    text = MINIMAL + KEYS + "api: {token_file: keys/api.token}\n"
    text += "webhook: {url: 'http://a.example', secret_file: keys/webhook.secret}\n"
    config = loaded(file, text)
    shown = f"{config!r} {load_keyring(config)!r}"
    assert SECRET not in shown
    assert "0123456789abcdef" not in shown
    assert "a secret" not in shown


TLS = """\
listen:
  - address: 127.0.0.1:0
    tls: {certificate: keys/tls.pem, key: keys/tls.key, client_certificates: required,
          client_authorities: keys/ca.pem}
  - address: 127.0.0.1:0
"""


def test_a_door_gets_its_tls_identity(file: Path, keys: Path) -> None:
    config = loaded(file, MINIMAL + TLS)
    first, second = load_tls(config)
    assert first is not None
    assert first.pair.certificate == BUYER.certificate
    assert first.pair.chain == (CA.certificate,)
    assert first.client_authorities == (CA.certificate,)
    assert second is None
    assert {path.name for path in tls_files(config)} == {"tls.pem", "tls.key", "ca.pem"}


def test_a_store_has_key_and_certificate_of_a_door(file: Path, keys: Path) -> None:
    text = MINIMAL + KEYS + "listen: {tls: {certificate: keys/buyer.p12}}\n"
    [found] = load_tls(loaded(file, text))
    assert found is not None
    assert found.pair.certificate == BUYER.certificate


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("key: keys/tls.key", "key: keys/old.key", "key: .*does not fit the certificate"),
        ("key: keys/tls.key, ", "", "certificate: .*there is no private key inside"),
        ("tls.pem", "none.pem", "certificate: .*none.pem cannot be read"),
        ("keys/ca.pem", "keys/tls.key", r"client_authorities\[0\]: .*there is no certificate"),
    ],
)
def test_a_tls_identity_that_cannot_be_used_is_told(
    file: Path, keys: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=rf":[56]: listen\[0\]\.tls\.{said}"):
        load_tls(loaded(file, MINIMAL + TLS.replace(old, new)))


# Schema, page and commands


def test_the_schema_takes_what_the_loader_takes_and_refuses_what_it_refuses() -> None:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name in ("minimal", "full"):
        validator.validate(yaml.safe_load(EXAMPLES[name]))
    assert not validator.is_valid(yaml.safe_load(EXAMPLES["broken"]))
    assert not validator.is_valid(yaml.safe_load(MINIMAL + "webhook: null\n"))
    assert validator.is_valid(yaml.safe_load(MINIMAL + "retention: {messages: null}\nx-a: 1\n"))


def test_the_schema_tells_meanings_and_defaults_as_they_are_written() -> None:
    definitions = config_schema()["$defs"]
    assert definitions["LimitSettings"]["properties"]["parts"]["description"]
    assert definitions["LimitSettings"]["properties"]["part_bytes"]["default"] == "16 GiB"
    assert definitions["Http"]["properties"]["idle_timeout"]["default"] == "PT75S"
    assert "default" not in definitions["Keys"]["properties"]["signing"]


def test_the_page_lists_exactly_the_settings_of_the_model() -> None:
    table = PAGE.partition("<!-- settings -->\n")[2].partition("<!-- end of settings -->")[0]
    assert table == settings_table()


def test_every_default_of_the_table_is_what_a_file_without_it_gets(file: Path) -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| [^|]+ \| `([^`|]+)` \|", settings_table(), re.MULTILINE)
    assert len(rows) > 30
    nested: dict[str, Any] = {}
    for path, default in rows:
        *groups, name = path.split(".")
        if groups[:1] in (["webhook"], ["mail"]):
            continue
        within = nested
        for group in groups:
            within = within.setdefault(group, {})
        within[name] = default
    text = yaml.safe_dump(nested).replace("'null'", "null")
    assert loaded(file, MINIMAL + text) == loaded(file, MINIMAL)


def test_check_tells_what_is_wrong_and_says_no(file: Path) -> None:
    file.write_text(EXAMPLES["broken"])
    expected = re.search(r"<!-- output: broken -->\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert expected is not None
    with chdir(file.parent):
        result = CliRunner().invoke(app, ["check", "postroad.yaml"])
    assert result.exit_code == 1
    assert result.output == expected[1]


def test_check_looks_at_keys_tls_and_pmodes_too(file: Path, keys: Path) -> None:
    (file.parent / "pmodes").mkdir()
    (file.parent / "pmodes" / "a.yaml").write_text("id: a\nlegs: [{}, {}]\n")
    private(keys / "password", b"wrong\n")
    tls = TLS.replace("tls.pem", "none.pem")
    file.write_text(MINIMAL + KEYS + tls)
    result = CliRunner().invoke(app, ["check", str(file), "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert not report["ok"]
    places = [problem.removeprefix(f"{file.parent}{os.sep}") for problem in report["problems"]]
    assert [place.split(" ")[0] for place in places] == [
        "postroad.yaml:4:",
        "postroad.yaml:8:",
        "pmodes/a.yaml:2:1:",
    ]


def test_check_sums_up_a_config_that_holds(file: Path, keys: Path) -> None:
    (keys / "buyer.p12").chmod(0o644)
    file.write_text(MINIMAL + KEYS)
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 0
    assert result.stdout == (
        f"{file} holds: node buyer of urn:example:buyer, "
        "http://127.0.0.1:8080 (msh, api), 0 P-Modes\n"
    )
    assert result.stderr.startswith(f"warning: {keys / 'buyer.p12'} (keys.signing) can be read")


def test_the_schema_is_printed() -> None:
    result = CliRunner().invoke(app, ["schema"])
    assert json.loads(result.stdout) == json.loads(json.dumps(config_schema()))
