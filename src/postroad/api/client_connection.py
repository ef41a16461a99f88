"""What both clients have in common: the connection to a node, and when to try again."""

import os
import ssl
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Generic, TypeVar

import httpx

from postroad.api import client_calls as calls
from postroad.api.client_calls import Call
from postroad.api.client_upload import Upload
from postroad.api.client_values import ApiError

Http = TypeVar("Http", httpx.Client, httpx.AsyncClient)
Verify = bool | str | os.PathLike[str] | ssl.SSLContext
Target = str | os.PathLike[str]

_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Errors after which it is certain that the node got nothing."""
PIECE: Final = 256 * 1024


class Asking(ABC, Generic[Http]):
    """A client without its calls."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        verify: Verify = True,
        retries: int = 3,
        backoff: float = 0.2,
    ) -> None:
        """`url` is that of the node; `verify` is True, the file of an authority, or a context.

        `retries` is how often a call is repeated after a lost connection or a 503, where that
        does no harm; before it, `backoff` seconds pass, each time twice as long.
        """
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._retries = retries
        self._backoff = backoff
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http: Http = self._connect(headers, _tls(verify))

    @abstractmethod
    def _connect(self, headers: dict[str, str], verify: ssl.SSLContext | bool) -> Http: ...

    def _request(self, call: Call[Any], upload: Upload | None = None) -> dict[str, Any]:
        """The arguments of a request, without the content of an upload."""
        arguments: dict[str, Any] = {
            "method": call.method,
            "url": self._url + call.path,
            "timeout": httpx.Timeout(self._timeout, read=self._timeout + call.extra_time),
        }
        if upload is not None:
            arguments["headers"] = upload.headers
        if call.json is not None:
            arguments["json"] = call.json
        return arguments

    def _after_error(self, call: Call[Any], attempt: int, error: httpx.TransportError) -> float:
        """Seconds until the next attempt; raises when there is none."""
        harmless = call.repeatable or isinstance(error, _NOT_SENT)
        if attempt >= self._retries or not harmless:
            said = str(error) or type(error).__name__
            raise ApiError(0, f"No answer from {self._url}: {said}. Is it running?") from error
        return calls.pause(attempt, self._backoff, None)

    def _after_answer(self, call: Call[Any], attempt: int, answer: httpx.Response) -> float | None:
        """Seconds until the next attempt when the answer is 'not now'; None: it is the answer."""
        if attempt >= self._retries or not calls.is_to_be_repeated(call, answer):
            return None
        return calls.pause(attempt, self._backoff, answer)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when all of it was written."""
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name[:100]}.", delete=False
    ) as file:
        try:
            yield file
            file.flush()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _tls(verify: Verify) -> ssl.SSLContext | bool:
    if isinstance(verify, bool | ssl.SSLContext):
        return verify
    return ssl.create_default_context(cafile=os.fspath(verify))
