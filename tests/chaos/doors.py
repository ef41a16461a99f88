"""The REST interface of a node, as docs/rest.md describes it, over plain HTTP."""

import http.client
import json
import secrets
import select
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

NO_ANSWER: Final = 0
"""In place of a status: the request may or may not have arrived."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def retry(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (NO_ANSWER, 429, 500, 502, 503, 504)

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Door:
    """One node's REST interface. Each thread has a connection of its own."""

    host: str
    port: int
    token: str
    timeout: float = 30.0
    _local: threading.local = field(default_factory=threading.local, repr=False)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "application/json",
        **query: Any,
    ) -> Answer:
        """Make one call; a broken connection is an answer of status 0."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            headers["Content-Type"] = content_type
        target = path + ("?" + urlencode(query) if query else "")
        connection = getattr(self._local, "connection", None)
        fresh = connection is None or connection.sock is None
        if connection is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
            self._local.connection = connection
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            return Answer(response.status, response.read())
        except (OSError, http.client.HTTPException):
            connection.close()
        if method == "GET" and not fresh:
            # The node had closed a connection that was kept for long.
            return self.call(method, path, body, content_type, **query)
        return Answer(NO_ANSWER)

    def get(self, path: str, **query: Any) -> Answer:
        return self.call("GET", path, **query)

    def post(self, path: str, values: Any = None, **query: Any) -> Answer:
        body = None if values is None else json.dumps(values).encode()
        return self.call("POST", path, body, **query)

    def submit(
        self, path: str, metadata: Any, payloads: Sequence[tuple[str, bytes]], **query: Any
    ) -> Answer:
        """Submit metadata and payloads as multipart/form-data."""
        boundary, body = form(metadata, payloads)
        content_type = f"multipart/form-data; boundary={boundary}"
        return self.call("POST", path, body, content_type, **query)

    def break_off(
        self,
        path: str,
        metadata: Any,
        payloads: Sequence[tuple[str, bytes]],
        share: float,
        wait: float,
    ) -> None:
        """Send a share of a submission and vanish, as a client does that is killed.

        Before that it waits some seconds, or until the answer is there, which it does not read.
        """
        boundary, body = form(metadata, payloads)
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        try:
            connection.putrequest("POST", path)
            connection.putheader("Authorization", f"Bearer {self.token}")
            connection.putheader("Content-Type", f"multipart/form-data; boundary={boundary}")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            connection.send(body[: int(len(body) * share)])
            select.select([connection.sock], [], [], wait)
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def pages(self, path: str, key: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Give all entries of a list, page by page; raise ConnectionError when one is not given."""
        while True:
            answer = self.get(path, **query)
            if not answer.ok:
                raise ConnectionError(f"{path} is answered with {answer.status}")
            page = answer.json()
            yield from page[key]
            if not page.get("next"):
                return
            query["cursor"] = page["next"]


def form(metadata: Any, payloads: Sequence[tuple[str, bytes]]) -> tuple[str, bytes]:
    """Return boundary and body of a submission."""
    boundary = secrets.token_hex(16)
    pieces = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="metadata"\r\n'
        "Content-Type: application/json\r\n\r\n".encode()
        + json.dumps(metadata).encode()
    ]
    pieces += [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}.txt"\r\n'
        "Content-Type: text/plain\r\n\r\n".encode()
        + content
        for name, content in payloads
    ]
    return boundary, b"\r\n".join([*pieces, f"--{boundary}--\r\n".encode()])


def encoded(message_id: str) -> str:
    """Return an id as it stands in a path."""
    return quote(message_id, safe="@")
