"""The REST interface without its token, by guessing it, and with hostile parameters.

The routes are those that the node itself names in /openapi.json. Each request without the token
comes from an address of its own, since addresses that guess are made to wait.
"""

import base64
import contextlib
import json
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.attack.campaign import probes
from tests.attack.campaign.model import AttackClass, Case
from tests.attack.campaign.probes import expect
from tests.attack.campaign.target import Answer, Target

_OPEN: Final = ("/healthz", "/readyz", "/docs", "/openapi.json")
"""What docs/security.md says needs no token."""
_NAMES: Final = {"message_id": "none@x", "signal_id": "none@y", "notice": "1", "number": "1"}
_HINTS: Final = (b"postroad.yaml", b"Traceback", b'File "', b"sqlite")
"""What no answer to a stranger says."""


def _routes(target: Target) -> list[tuple[str, str, dict[str, Any]]]:
    """Return method, path and description of each route that needs the token."""
    told = target.exchange(probes.head("GET", "/openapi.json", "Connection: close"))
    expect(told and told.status == 200, f"/openapi.json was answered {told}")
    assert told
    paths: dict[str, dict[str, dict[str, Any]]] = json.loads(told.body)["paths"]
    found = [
        (method.upper(), path, described)
        for path, methods in paths.items()
        for method, described in methods.items()
        if path not in _OPEN
    ]
    expect(len(found) > 30, f"only {len(found)} routes are described")
    return found


def _filled(path: str) -> str:
    for name in ("message_id", "signal_id", "notice", "number", "partner", "pmode"):
        path = path.replace("{" + name + "}", _NAMES.get(name, "x"))
    return path


def _credentials(right: str) -> dict[str, tuple[str, ...]]:
    """Return header lines by name; none of them may open the door."""
    basic = base64.b64encode(f"postroad:{right}".encode()).decode()
    other = "0" * len(right)
    return {
        "nothing": (),
        "an empty header": ("Authorization:",),
        "a scheme alone": ("Authorization: Bearer",),
        "a blank token": ("Authorization: Bearer  ",),
        "another token": (f"Authorization: Bearer {other}",),
        "all but the last character": (f"Authorization: Bearer {right[:-1]}",),
        "one character more": (f"Authorization: Bearer {right}x",),
        "the token in capitals": (f"Authorization: Bearer {right.upper()}x",),
        "the token in quotes": (f'Authorization: Bearer "{right}"',),
        "no scheme": (f"Authorization: {right}",),
        "Basic": (f"Authorization: Basic {basic}",),
        "another scheme": (f"Authorization: Token {right}",),
        "Proxy-Authorization": (f"Proxy-Authorization: Bearer {right}",),
        "X-Api-Key": (f"X-Api-Key: {right}", f"X-Auth-Token: {right}"),
        "a cookie": (f"Cookie: token={right}; Authorization=Bearer {right}",),
        "a wrong token first": (f"Authorization: Bearer {other}", f"Authorization: Bearer {right}"),
        "a wrong token last": (f"Authorization: Bearer {right}", f"Authorization: Bearer {other}"),
        "a list": (f"Authorization: Bearer {other}, Bearer {right}",),
        "8 bits": ("Authorization: Bearer \xff\xfe",),
        "60 KB": (f"Authorization: Bearer {'x' * 60_000}",),
        "override": (
            "X-HTTP-Method-Override: GET",
            "X-Original-URL: /healthz",
            "X-Forwarded-For: ::1",
        ),
    }


def _refused(answer: Answer | None, statuses: tuple[int, ...] = (401,)) -> None:
    expect(answer is not None, "closed without an answer")
    assert answer
    expect(answer.status in statuses, f"answered {answer.status}: {answer.body[:200]!r}")
    if answer.status == 401:
        challenge = probes.header(answer, "WWW-Authenticate")
        expect(challenge.startswith("Bearer"), f"401 with the challenge {challenge!r}")
        kind = probes.header(answer, "Content-Type")
        expect(kind == "application/problem+json", f"401 as {kind}")
    for hint in _HINTS:
        expect(hint not in answer.body, f"the answer tells of {hint!r}")


def _uncovered(
    target: Target, method: str, path: str, lines: tuple[str, ...], query: str = ""
) -> None:
    data = probes.head(
        method, _filled(path) + query, *lines, "Content-Length: 0", "Connection: close"
    )
    if method == "HEAD":
        target.requests += 1
        with target.connect(source=probes.new_address()) as connection:
            connection.sendall(data)
            [told] = probes.read_answers(probes.until_closed(connection), "HEAD")
        expect(told.status == 401, f"answered {told}")
        return
    answer = target.exchange(data, source=probes.new_address())
    _refused(answer, (401, 431) if any(len(one) > 50_000 for one in lines) else (401,))


def _without_token(target: Target) -> Iterator[Case]:
    right = probes.token(target)
    routes = [(method, path) for method, path, _ in _routes(target)] + [("GET", "/metrics")]
    for method, path in dict.fromkeys(routes):
        for name, lines in _credentials(right).items():
            attack = partial(_uncovered, method=method, path=path, lines=lines)
            yield Case(f"{method} {path} with {name}", attack)
        for name in ("token", "access_token", "authorization", "api_key"):
            attack = partial(
                _uncovered, method=method, path=path, lines=(), query=f"?{name}={right}"
            )
            yield Case(f"{method} {path} with ?{name}=", attack)
    for _, path in dict.fromkeys(routes):
        for method in ("HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
            attack = partial(_uncovered, method=method, path=path, lines=())
            yield Case(f"{method} {path} without a token", attack)


# Paths


_PATHS: Final = (
    "/metrics/",
    "//metrics",
    "/./metrics",
    "/metrics%20",
    "/metrics%00",
    "/metrics;a=b",
    "/metrics?x",
    "/%6detrics",
    "/METRICS",
    "/healthz/../metrics",
    "/healthz/%2e%2e/metrics",
    "/healthz/..%2fmetrics",
    "/healthz%2f..%2fmetrics",
    "/healthz;/../metrics",
    "/healthz/..;/metrics",
    "/healthz\\..\\metrics",
    "/healthz/metrics",
    "/healthz//metrics",
    "/healthz%0d%0a/metrics",
    "/docs/../metrics",
    "/docs/metrics",
    "/openapi.json/../api/v1/inbox",
    "/readyz/../api/v1/inbox",
    "/msh/../api/v1/inbox",
    "/msh/..%2fapi/v1/inbox",
    "/api/v1/inbox/",
    "/api//v1/inbox",
    "//api/v1/inbox",
    "/api/v1/./inbox",
    "/api/v1/../v1/inbox",
    "/API/V1/INBOX",
    "/api/v1/inbox%2f",
    "/api/v1%2finbox",
    "/api/v1/inbox?token",
    "/api/v1/inbox#/healthz",
    "/api/v1/inbox?/healthz",
    "/api/v1/inbox/../../../healthz",
    "/api/v1/%69nbox",
    "/api/v1/inbox.json",
    "/api/v1/inbox;/healthz",
    "/api/v1/inbox/..%2f..%2f..%2fhealthz",
    "/api/v2/inbox",
    "/api",
    "/api/",
    "/",
    "/admin",
    "/console",
    "/debug",
    "/.git/config",
    "/static/../../postroad.yaml",
    "/..%2f..%2fkeys/api.token",
    "/%2e%2e/%2e%2e/keys/api.token",
    "/docs/..%2f..%2f..%2fetc/passwd",
    "/redoc",
    "/docs/oauth2-redirect",
    "/server-status",
    "/metrics/../healthz",
)


def _path(target: Target, path: str, tls: bool) -> None:
    """A path that is not one of the open ones, letter by letter, gets nothing without a token."""
    lines = ("Connection: close",)
    if tls:  # That listener serves no REST, whoever asks.
        lines += (f"Authorization: Bearer {probes.token(target)}",)
    answer = target.exchange(probes.head("GET", path, *lines), tls=tls, source=probes.new_address())
    expect(answer is not None, "closed without an answer")
    assert answer
    open_anyway = not tls and answer.status == 200 and answer.body == b'{"status":"alive"}'
    statuses = (400, 404, 405) if tls else (400, 401, 404, 405, 307)
    expect(
        answer.status in statuses or open_anyway, f"answered {answer.status}: {answer.body[:200]!r}"
    )
    expect(b"postroad_" not in answer.body and b"root:" not in answer.body, "secrets in the answer")


def _paths(target: Target) -> Iterator[Case]:
    for path in _PATHS:
        yield Case(f"GET {path} without a token", partial(_path, path=path, tls=False))
    routes = _routes(target)
    for path in (*_PATHS, *_OPEN, *dict.fromkeys(_filled(path) for _, path, _ in routes)):
        yield Case(
            f"GET {path} on the listener of the protocol", partial(_path, path=path, tls=True)
        )
    for method, path, _ in routes:
        if method != "GET":
            attack = partial(_closed, method=method, path=_filled(path))
            yield Case(f"{method} {path} on the listener of the protocol", attack)


def _closed(target: Target, method: str, path: str) -> None:
    lines = (
        f"Authorization: Bearer {probes.token(target)}",
        "Content-Length: 0",
        "Connection: close",
    )
    answer = target.exchange(probes.head(method, path, *lines), tls=True)
    expect(answer and answer.status == 404, f"answered {answer}")


# Guessing


def _guess(target: Target, source: str, text: str) -> float:
    """Try a token; return how long the answer took."""
    begun = time.monotonic()
    lines = (f"Authorization: Bearer {text}", "Connection: close")
    _refused(target.exchange(probes.head("GET", "/api/v1/inbox", *lines), source=source))
    return time.monotonic() - begun


def _one_by_one(target: Target) -> None:
    """The eleventh guess waits, the next ones longer; the right token waits never."""
    source, before = probes.new_address(), probes.metrics(target)
    took = [_guess(target, source, f"guess-{number}") for number in range(13)]
    told = probes.total(probes.metrics(target), "postroad_wrong_tokens_total")
    expect(
        told - probes.total(before, "postroad_wrong_tokens_total") == 13,
        "13 guesses, not so counted",
    )
    expect(max(took[:10]) < took[12], f"the thirteenth guess waited no longer: {took}")
    expect(took[12] > 1.5 * took[11] > 0, f"the waits do not grow: {took}")
    begun = time.monotonic()
    lines = (f"Authorization: Bearer {probes.token(target)}", "Connection: close")
    answer = target.exchange(probes.head("GET", "/api/v1/inbox", *lines), source=source)
    expect(answer and answer.status == 200, f"the right token was answered {answer}")
    expect(time.monotonic() - begun < max(1.0, took[12]), "the right token waited like a guess")
    lines_of_log = [one for one in target.pair.seller.log.splitlines() if source in one]
    expect(len(lines_of_log) <= 1, f"{len(lines_of_log)} lines of the log for one address")


def _side_by_side(target: Target) -> None:
    """Many connections do not guess faster than one."""
    source, begun = probes.new_address(), time.monotonic()
    with ThreadPoolExecutor(40) as pool:
        waits = [pool.submit(_timed, target, source, begun, number) for number in range(40)]
        took = sorted(one.result() for one in waits)
    soon = sum(1 for one in took if one < 1.0)
    expect(soon <= 16, f"{soon} of 40 guesses at once were answered within a second")


def _timed(target: Target, source: str, begun: float, number: int) -> float:
    _guess(target, source, f"guess-{number}")
    return time.monotonic() - begun


def _logged(target: Target) -> None:
    """Guesses are told in the log with their address, and never with what was tried."""
    log = target.pair.seller.log
    told = [one for one in log.splitlines() if "token" in one.lower() and "warning" in one]
    expect(told, "the log does not tell of wrong tokens")
    expect("guess-" not in log, "the log has a token that was tried")
    expect(probes.token(target) not in log, "the log has the token")


def _guesses(target: Target) -> Iterator[Case]:
    yield Case("tokens one by one", _one_by_one)
    yield Case("40 tokens at once", _side_by_side)
    yield Case("what the log says of guesses", _logged)


# Parameters


_VALUES: Final = (
    "",
    " ",
    "0",
    "-1",
    "1e9",
    "9" * 19,
    "9" * 400,
    "0x10",
    "NaN",
    "null",
    "true",
    "%00",
    "%0d%0aX:%20y",
    "%ff%fe",
    "%ed%a0%80",
    "%f0%9f%92%a9",
    "%E2%80%AE",
    "'%20OR%201=1--",
    "../../etc/passwd",
    "%2e%2e%2f",
    "${jndi:ldap://x}",
    "{{7*7}}",
    "<script>",
    "0001-01-01T00:00:00%2B23:59",
    "9999-12-31T23:59:59-23:59",
    "2026-02-30T00:00:00Z",
    "2026-01-01T00:00:00%2B99:99",
    "-0001-01-01T00:00:00Z",
    "2026-W01",
    "24:00",
    "x" * 10_000,
    "%2F",
    "a&a=b",
    "%",
    "1;DROP",
    "%F3%A0%80%81",
    "1%20",
    "%D9%A5",
    "*",
    "[]",
    "{}",
)
_JSON: Final = (
    b"",
    b"null",
    b"[]",
    b"{}",
    b'""',
    b"0",
    b"{",
    b'{"a":',
    b"\xff",
    b'{"days": -1}',
    b'{"days": 1e999}',
    b'{"days": "x"}',
    b'{"days": 99999999999999999999}',
    b'{"answer": "x", "who": "\\u0000"}',
    b'{"answer": "delivered", "who": "\\ud800"}',
    b'{"reason": {"a": []}}',
    b'{"__proto__": {}}',
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b'{"reason": "' + b"x" * 2**21 + b'"}',
    b'{"service": {"value": 1}}',
    b'{"x": NaN}',
    b'\xef\xbb\xbf{"days": "x"}',
    '{"days": "x"}'.encode("utf-16"),
)
_FINE: Final = (200, 202, 204, 400, 404, 405, 408, 409, 411, 413, 414, 415, 416, 422, 431)


def _named(answer: Answer | None, what: str) -> None:
    """Raise Breach unless a caller with the token is told properly."""
    expect(answer is not None, f"{what}: closed without an answer")
    assert answer
    expect(answer.status in _FINE, f"{what}: answered {answer.status}: {answer.body[:300]!r}")
    kind = probes.header(answer, "Content-Type")
    if answer.status >= 400 and answer.status not in (400, 414, 431):
        expect("problem+json" in kind, f"{what}: {answer.status} as {kind!r}")
        expect(json.loads(answer.body)["detail"], f"{what}: nothing is said")


def _parameter(target: Target, method: str, path: str, name: str) -> None:
    for value in _VALUES:
        with_value = _filled(path.replace("{" + name + "}", value or "%20"))
        if "{" + name + "}" not in path:
            with_value += f"?{name}={value}"
        _named(_with_token(target, method, with_value), f"{method} {with_value[:120]}")


def _with_token(
    target: Target, method: str, path: str, *lines: str, body: bytes = b""
) -> Answer | None:
    own = (f"Authorization: Bearer {probes.token(target, 'buyer')}", "Connection: close")
    data = probes.head(
        method, path.replace(" ", "%20"), *own, *lines, f"Content-Length: {len(body)}"
    )
    return target.exchange(data + body, "buyer", source="127.0.0.1")


def _bodies(target: Target, path: str, kind: str) -> None:
    for body in _JSON:
        answer = _with_token(target, "POST", path, f"Content-Type: {kind}", body=body)
        _named(answer, f"POST {path} with {body[:60]!r}")


def _hostile(target: Target) -> Iterator[Case]:
    """Only requests that change nothing when they are well understood."""
    for method, path, described in _routes(target):
        changes = method != "GET" and not path.endswith(
            ("/ack", "/resend", "/release", "/query", "/ping")
        )
        for one in described.get("parameters", ()):
            name = one["name"]
            if path == "/api/v1/inbox/ack" or (changes and one["in"] == "path"):
                continue
            if name in ("wait", "wait_reply"):
                continue
            yield Case(
                f"{method} {path}: {name}", partial(_parameter, method=method, path=path, name=name)
            )
        if "requestBody" in described and not path.endswith("/suspend"):
            for kind in (
                "application/json",
                "multipart/form-data; boundary=b",
                "multipart/form-data",
                "x",
            ):
                attack = partial(_bodies, path=_filled(path), kind=kind)
                yield Case(f"{method} {path}: bodies as {kind}", attack)
    yield Case("a filter that does not exist", _unknown_filter)
    yield Case("a zone that leads out of all times", _odd_zone)


def _unknown_filter(target: Target) -> None:
    for path in ("/api/v1/messages", "/api/v1/inbox"):
        for query in (
            "?sender=x",
            "?limit=1001",
            "?limit=0",
            "?limit=x",
            "?cursor=x",
            "?order=x",
            "?since=x",
        ):
            answer = _with_token(target, "GET", path + query)
            expect(answer and answer.status == 422, f"{path}{query} was answered {answer}")


def _odd_zone(target: Target) -> None:
    for value in ("0001-01-01T00:00:00%2B23:59", "9999-12-31T23:59:59.999999-23:59"):
        for name in ("since", "until"):
            answer = _with_token(target, "GET", f"/api/v1/messages?{name}={value}")
            expect(answer and answer.status in (200, 422), f"{name}={value} was answered {answer}")


# The data folder


def _modes(target: Target) -> None:
    """Nobody but the node's user reads what it keeps."""
    for node in target.nodes:
        for path in (node.data, *node.data.rglob("*")):
            _private(path)


def _private(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(path.lstat().st_mode)
        allowed = 0o700 if path.is_dir() else 0o600
        expect(mode & ~allowed == 0, f"{path.name} has the mode {mode:o}")


def _folder(_: Target) -> Iterator[Case]:
    yield Case("modes of the data folder", _modes)


CLASSES: Final = (
    AttackClass("REST without the token", _without_token),
    AttackClass("REST paths and listeners", _paths),
    AttackClass("guessing the token", _guesses),
    AttackClass("REST with hostile parameters", _hostile),
    AttackClass("modes of the data folder", _folder),
)
