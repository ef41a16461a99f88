"""Hostile values in every parameter and every field of the REST interface, and in the commands.

The parameters are those of the OpenAPI description. A wrong value is answered with 4xx and a
problem that names it; the log of the node has no unexpected error.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_from_bytes

import httpx
import pytest
from typer.main import get_command

from postroad.cli.main import app, main
from tests.e2e.nodes import Served, postroad
from tests.hostile import TEXTS
from tests.ports import free_port

RAW: Final = (b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"a\r\nX-Injected: 1")
"""Bytes that are no text, or none that a header may hold."""
TIMES: Final = (
    "0001-01-01T00:00:00+23:59",
    "0001-01-01T00:00:00",
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:59.999999Z",
    "-62135596800",
    "-99999999999999999999",
    "253402300800",
    "1e308",
    "nan",
    "inf",
)
NUMBERS: Final = ("0", "999999999999999999", "9223372036854775808", "-9223372036854775809", "1_0")
VALUES: Final = (*TEXTS, *TIMES, *NUMBERS)
JSON: Final = (
    *VALUES,
    "\0",
    "\ud800",
    None,
    True,
    -1,
    10**400,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]] * 1000,
    {"a": {"\ud800": "\0"}},
)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    """Here connections are what it is about."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A node that has sent a message to itself."""
    folder = tmp_path_factory.mktemp("hostile") / "a"
    made = postroad("init", folder, "--port", str(free_port()))
    assert made.exit_code == 0, made.output
    served = Served("a", folder)
    served.start()
    try:
        sent = served.run(
            "send",
            *("--pmode", "a-to-a-order", "--payload", folder / "order.xml"),
            *("--message-id", "m@a", "--wait"),
        )
        assert sent.exit_code == 0, sent.output
        yield served
    finally:
        if served.process is not None:
            served.process.kill()
            served.process.wait()


@pytest.fixture(scope="module")
def rest(node: Served) -> Iterator[httpx.Client]:
    token = (node.folder / "keys" / "api.token").read_text().strip()
    with httpx.Client(
        base_url=node.serving.api_url or "",
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
        trust_env=False,
    ) as client:
        yield client


def operations(rest: httpx.Client) -> Iterator[tuple[str, str, dict[str, Any]]]:
    described = rest.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def filled(path: str, **values: str) -> str:
    """A path with known values for the parameters that are not tried."""
    known = {"message_id": "m@a", "signal_id": "s@a", "number": "0", "notice": "1"}
    known |= {"partner": "urn:example:a", "pmode": "a-to-a-order"}
    return path.format(**(known | values))


def said_wrong(response: httpx.Response) -> str | None:
    """What is wrong with an answer, if anything is."""
    if response.status_code >= 500:
        return f"{response.status_code} {response.text[:200]}"
    if response.status_code >= 400 and "detail" not in response.json():
        return f"{response.status_code} without a sentence: {response.text[:200]}"
    return None


def assert_quiet(node: Served, found: list[str]) -> None:
    """Nothing wrong was answered, and nothing unexpected logged."""
    assert not found, f"{len(found)} answers:\n" + "\n".join(found[:60])
    assert "Traceback" not in node.log
    assert "unexpected" not in node.log


def test_no_parameter_causes_an_unnamed_error(node: Served, rest: httpx.Client) -> None:
    found = []
    for method, path, operation in operations(rest):
        for parameter in operation.get("parameters", ()):
            name = parameter["name"]
            written = [(text[:40], quote(text[:4000], safe="")) for text in VALUES]
            written += [(str(raw), quote_from_bytes(raw, safe="")) for raw in RAW]
            for what, text in written:
                if parameter["in"] == "path":
                    url = filled(path, **{name: text})
                else:
                    url = f"{filled(path)}?{name}={text}"
                if problem := said_wrong(rest.request(method, url)):
                    found.append(f"{method} {path} {name} = {what!r}: {problem}")
    assert_quiet(node, found)


def test_no_field_of_a_body_causes_an_unnamed_error(node: Served, rest: httpx.Client) -> None:
    schemas = rest.get("/openapi.json").json()["components"]["schemas"]
    found = []
    for method, path, operation in operations(rest):
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" not in content:
            continue
        described = json.dumps(content["application/json"])
        for name in [one for one in schemas if f'"#/components/schemas/{one}"' in described]:
            for field in schemas[name].get("properties", {}):
                for value in JSON:
                    body = json.dumps({field: value})
                    response = rest.request(
                        method,
                        filled(path),
                        content=body,
                        headers={"Content-Type": "application/json"},
                    )
                    if problem := said_wrong(response):
                        found.append(f"{method} {path} {field} = {body[:60]}: {problem}")
    assert_quiet(node, found)


METADATA: Final[dict[str, Any]] = {
    "pmode": "a-to-a-order",
    "message_id": "n@a",
    "ref_to_message_id": "m@a",
    "conversation_id": "c",
    "properties": [{"name": "n", "value": "v", "type": "t"}],
    "payloads": [
        {
            "name": "order",
            "content_type": "text/xml",
            "properties": [{"name": "n", "value": "v", "type": "t"}],
        }
    ],
}


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values in a document."""
    yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value)
    if isinstance(value, dict | list):
        for key, inner in steps:
            yield from fields(inner, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = changed(document[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize("where", ["/api/v1/messages", "/api/v1/bundles"])
def test_no_field_of_a_submission_causes_an_unnamed_error(
    node: Served, rest: httpx.Client, where: str
) -> None:
    bundle = where.endswith("bundles")
    whole = {"messages": [METADATA]} if bundle else METADATA
    found = []
    for path in list(fields(METADATA)):
        for value in JSON:
            body = changed(METADATA, path, value)
            data = {"metadata": json.dumps({**whole, "messages": [body]} if bundle else body)}
            response = rest.post(where, files={"order": ("o.xml", b"<o/>")}, data=data)
            if problem := said_wrong(response):
                found.append(f"{path} = {str(value)[:60]!r}: {problem}")
    assert_quiet(node, found)


ELSEWHERE: Final = ("bench", "demo", "pipeline")
"""Commands that start Spark or many processes."""
ARGUMENTS: Final = (
    "",
    "\udcff",
    "a\r\nX: y",
    "9" * 5000,
    "0001-01-01T00:00:00+14:00",
    "http://[::1",
)


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, with the words that call them."""
    todo: list[tuple[tuple[str, ...], Any]] = [((), get_command(app))]
    while todo:
        path, one = todo.pop()
        if hasattr(one, "commands"):
            todo += [((*path, name), inner) for name, inner in one.commands.items()]
        else:
            yield path, one


def test_no_argument_of_a_command_causes_an_unnamed_error(
    node: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option is tried once, whatever commands have it; each argument of each command."""
    monkeypatch.chdir(tmp_path)
    found, seen = [], set()
    for path, command in commands():
        for tried in command.params:
            argument = tried.param_type_name == "argument"
            name = (*path, tried.name) if argument else tuple(tried.opts)
            if path[0] in ELSEWHERE or name in seen or getattr(tried, "is_flag", False):
                continue
            seen.add(name)
            for value in ARGUMENTS:
                words = ["postroad", *path]
                for one in command.params:
                    if one.param_type_name == "argument":
                        words.append(value if one is tried else "m@a")
                    elif one is tried:
                        words += [one.opts[0], value]
                    elif one.name == "config":
                        words += ["-c", str(node.config)]
                monkeypatch.setattr(sys, "argv", words)
                try:
                    main()
                except SystemExit:
                    continue
                except Exception as error:
                    found.append(f"{name} = {value[:30]!r}: {error!r}")
    assert_quiet(node, found)
