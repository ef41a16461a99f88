"""Bodies of submissions, right and wrong ones."""

import json
from typing import Any, Final

import httpx

BOUNDARY: Final = "the-boundary"
PATH: Final = "/api/v1/messages"


def part(name: str, data: bytes, *headers: str, disposition: str = "form-data") -> bytes:
    lines = [f'Content-Disposition: {disposition}; name="{name}"', *headers, "", ""]
    return f"--{BOUNDARY}\r\n".encode() + "\r\n".join(lines).encode() + data + b"\r\n"


def metadata(**fields: Any) -> bytes:
    return part("metadata", json.dumps({"pmode": "buyer-to-seller-order"} | fields).encode())


def body(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def post(http: httpx.Client, content: Any, **headers: str) -> httpx.Response:
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return http.post(PATH, content=content, headers=kind | headers)
