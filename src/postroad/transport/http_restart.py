"""Uploads that go on where they broke off: AS2 restart, the sender's side.

    reply = await post(client, request, Upload(name, content))

The request is named by an ETag. When it breaks off the server is asked how much it has, and the
rest is sent, again and again while that brings it further. All of it is one attempt. A server that
knows nothing of this, or has nothing, ends the attempt as if there were no restart.
"""

import asyncio
import contextlib
from typing import Final

from msgspec import Struct
from msgspec.structs import replace as changed

from postroad.reliability.restart import going_on
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Pieces, Reply, TransportFailure
from postroad.wire.content import Content, span
from postroad.wire.restart import write_transfer_id

_IN_VAIN: Final = 8
"""So often in a row it is gone on with, though that brings it no further."""
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
_NOT_SO: Final = (409, 416)
"""Another request is still at it, or something else is there than was said."""


class Upload(Struct, frozen=True):
    """A body that is the same whenever it is sent, and can be read from its middle."""

    name: str
    content: Content

    @property
    def size(self) -> int:
        return self.content.size


async def post(
    client: Client, request: Outgoing, upload: Upload, *, began_before: bool = False
) -> Reply:
    """Send a request whose body is an upload; `TransportFailure` when it never comes to its end.

    With `began_before` an earlier attempt may have brought some of it, so that is asked first.
    """
    there = await _there(client, request, upload) if began_before else 0
    in_vain = 0
    while True:
        try:
            reply = await client.post(_rest(request, upload, there))
            if reply.status not in _NOT_SO:
                return reply
            said = f"the partner answered HTTP {reply.status} to the rest of the message"
            broken = TransportFailure("closed", said, transmitted=True)
        except TransportFailure as failure:
            if not failure.transmitted and not there:
                raise
            broken = TransportFailure(failure.kind, failure.reason, transmitted=True)
        now, in_vain = await _asked(client, request, upload, in_vain)
        if not now:
            raise broken
        if now > there:
            in_vain = 0
        there = now


async def _asked(
    client: Client, request: Outgoing, upload: Upload, in_vain: int
) -> tuple[int, int]:
    """How much is there after a break, and how often it was gone on with in vain; 0: no use."""
    while in_vain < _IN_VAIN:
        await asyncio.sleep(min(_FIRST_PAUSE * 2**in_vain, _LONGEST_PAUSE))
        in_vain += 1
        with contextlib.suppress(TransportFailure):
            return await _there(client, request, upload), in_vain
    return 0, in_vain


async def _there(client: Client, request: Outgoing, upload: Upload) -> int:
    """How much the server says it has; nothing, where it does not know what is asked."""
    etag = ("ETag", write_transfer_id(upload.name))
    probe = changed(request, method="HEAD", body=b"", headers=(etag,), reader=None, pipelined=False)
    reply = await client.post(probe)
    told = [value for name, value in reply.headers if name == "content-length"]
    return int(told[0]) if reply.status == 200 and told and told[0].isdecimal() else 0


def _rest(request: Outgoing, upload: Upload, there: int) -> Outgoing:
    """What is sent to a server that has so much; all of it where it has all, or nothing."""
    headers = (*request.headers, ("ETag", write_transfer_id(upload.name)))
    given = going_on(there, upload.size)
    if given is None:
        # Who has all of it answers before a byte of it is sent again.
        return changed(request, headers=headers, expects=there == upload.size)
    rest = Pieces(given.size, lambda: span(upload.content, given.start, given.size))
    headers = (*headers, ("Content-Range", str(given)))
    return changed(request, body=rest, headers=headers, pipelined=False)
