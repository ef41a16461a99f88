"""Who may come in: nobody without the token, unless a path was opened by name."""

import hmac
import ipaddress
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from postroad.api.guesses import Guesses
from postroad.api.problems import problem

_FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
"""Headers of a proxy: whoever asks is not the one that is connected."""
ALWAYS_OPEN: Final = frozenset({"/healthz", "/readyz", "/docs", "/openapi.json"})


class Guard:
    """Refuses whoever does not bring the token; paths that do not exist are no exception.

    Without a token only this very machine may come in, and no web page that it happens to show:
    a page could otherwise submit messages through the browser of whoever looks at it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        opened: Collection[str],
        guesses: Guesses | None = None,
    ) -> None:
        if token is not None and not token.strip():
            raise ValueError("the token is empty; give one of at least 16 characters, or none")
        self._app = app
        self._token = None if token is None else token.encode()
        self._opened = frozenset(opened)
        self._guesses = guesses or Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_open(scope):
            await self._app(scope, receive, send)
            return
        refusal = self._local_only(scope) if self._token is None else self._checked(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            if self._token is not None and b"authorization" in dict(scope["headers"]):
                await self._guesses.wrong(str((scope.get("client") or ("?",))[0]))
            await refusal(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _is_open(self, scope: Scope) -> bool:
        root = scope.get("root_path", "")
        return scope["type"] == "http" and scope["path"].removeprefix(root) in self._opened

    def _checked(self, scope: Scope) -> Response | None:
        given = Headers(scope=scope).getlist("authorization")
        scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
        known = hmac.compare_digest(token.strip().encode("latin-1"), self._token or b"")
        if known and scheme.lower() == "bearer":
            return None
        if not given:
            said, challenge = "This needs the header Authorization: Bearer TOKEN.", ""
        else:
            said, challenge = "This is not the token of this node.", ', error="invalid_token"'
        realm = {"WWW-Authenticate": f'Bearer realm="postroad"{challenge}'}
        return problem(401, said, headers=realm)

    def _local_only(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not _is_local(scope, headers):
            return problem(403, "This node has no token and serves its own machine only; set one.")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return problem(403, "Pages of other sites may not call this node.")
        return None


def _is_local(scope: Scope, headers: Headers) -> bool:
    """Whether this machine asks, by a name of its own, and not for somebody else."""
    client = scope.get("client")
    if client and not _is_loopback(client[0]):
        return False
    if any(name in headers for name in _FORWARDED):
        return False
    names = [headers.get("host", "")]
    if "origin" in headers:
        names.append(headers["origin"].partition("://")[2])
    return all(_is_loopback(_host(name)) for name in names)


def _host(name: str) -> str:
    try:
        return urlsplit(f"//{name}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
