"""Posting a message so that it goes on where it broke off, where that is agreed (Part 2, 6.4.3)."""

from hashlib import sha256

from postroad.msh.outbound import WireForm
from postroad.reliability.restart import LEAST
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Reply
from postroad.transport.http_restart import Upload, post


async def posted(
    client: Client, request: Outgoing, form: WireForm, *, restarts: bool, began_before: bool
) -> Reply:
    """The answer to a message; all that it takes to bring it over is one attempt."""
    if not restarts or form.length <= LEAST:
        return await client.post(request)
    upload = Upload(upload_name(form), form.content())
    return await post(client, request, upload, began_before=began_before)


def upload_name(form: WireForm) -> str:
    """The same for the same bytes, whoever sends them when; nobody else can know it.

    The signature in the envelope binds what is attached.
    """
    said = f"{form.content_type}\n{form.length}\n".encode()
    return sha256(said + form.envelope).hexdigest()
