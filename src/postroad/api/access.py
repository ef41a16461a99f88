"""Who may come in: nobody without the token, unless a path was opened by name."""

import hmac
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from postroad.api.guesses import Guesses
from postroad.api.problems import problem

HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})
ALWAYS_OPEN: Final = HEALTH_PATHS | {"/docs", "/openapi.json"}


class Guard:
    """Refuses whoever does not bring the token; paths that do not exist are no exception.

    There is no REST interface without a token: a web page, or a server that can be made to post
    somewhere, could otherwise use it from this very machine.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        opened: Collection[str],
        guesses: Guesses | None = None,
    ) -> None:
        if not token.strip():
            raise ValueError("The token is empty. Give one of at least 16 characters.")
        self._app = app
        self._token = token.encode()
        self._opened = frozenset(opened)
        self._guesses = guesses or Guesses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_open(scope):
            await self._app(scope, receive, send)
            return
        refusal = self._checked(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            if b"authorization" in dict(scope["headers"]):
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
        known = hmac.compare_digest(token.strip().encode("latin-1"), self._token)
        if known and scheme.lower() == "bearer":
            return None
        if not given:
            said, challenge = "This needs the header Authorization: Bearer TOKEN.", ""
        else:
            said, challenge = "This is not the token of this node.", ', error="invalid_token"'
        realm = {"WWW-Authenticate": f'Bearer realm="postroad"{challenge}'}
        return problem(401, said, headers=realm)
