"""Fetch revocation lists and ask OCSP responders at the addresses that certificates name.

Whatever a server does, the outcome is its bytes or a `FetchFailure` with one sentence. Redirects
are not followed: the egress policy decides about the address that the certificate names.
"""

from typing import Final

from postroad.security.egress import Purpose
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Timeouts, TransportFailure

_ANSWER_BYTES: Final = 64 * 1024
_OCSP_REQUEST: Final = "application/ocsp-request"


class FetchFailure(Exception):
    """Why nothing was fetched."""


async def fetch_list(client: Client, url: str, *, seconds: float, most: int) -> bytes:
    """The bytes of a revocation list, at most `most`; else `FetchFailure`."""
    request = Outgoing(
        url,
        "",
        b"",
        method="GET",
        timeouts=_timeouts(seconds),
        reply_bytes=most,
        purpose=Purpose.REVOCATION,
    )
    return await _fetch(client, request)


async def ask_responder(client: Client, url: str, question: bytes, *, seconds: float) -> bytes:
    """The bytes of an OCSP response; else `FetchFailure`."""
    request = Outgoing(
        url,
        _OCSP_REQUEST,
        question,
        timeouts=_timeouts(seconds),
        reply_bytes=_ANSWER_BYTES,
        purpose=Purpose.REVOCATION,
    )
    return await _fetch(client, request)


def _timeouts(seconds: float) -> Timeouts:
    return Timeouts(connect=seconds, answer=seconds, stall=seconds, total=seconds)


async def _fetch(client: Client, request: Outgoing) -> bytes:
    try:
        reply = await client.post(request)
    except TransportFailure as failure:
        raise FetchFailure(failure.reason) from None
    except ValueError as error:
        raise FetchFailure(f"the address cannot be used: {error}") from None
    if reply.status != 200:
        moved = " (redirects are not followed)" if 300 <= reply.status < 400 else ""
        raise FetchFailure(f"the server answers with HTTP status {reply.status}{moved}")
    return reply.body
