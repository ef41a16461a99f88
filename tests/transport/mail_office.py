"""A door for mail, and the office behind it that takes what comes."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from postroad.transport import tls
from postroad.transport.smtp_server import STORED, IncomingMail, MailDoor, Taken
from postroad.transport.tls import ServerTls
from tests import pki
from tests.transport.handshakes import Files

HERE = "msh@seller.example"


@dataclass
class Office:
    """Takes mail, and notes what came of each."""

    answer: Taken | Exception = STORED
    mails: list[IncomingMail] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event | None = None

    async def take(self, mail: IncomingMail) -> Taken:
        self.mails.append(mail)
        try:
            body = b"".join([piece async for piece in mail.body])
        except Exception as error:
            self.errors.append(error)
            raise
        self.reached.set()
        if self.go_on is not None:
            await self.go_on.wait()
        self.bodies.append(body)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@asynccontextmanager
async def door_of(office: Office, **options: Any) -> AsyncIterator[MailDoor]:
    """A door that lets mail into an office."""
    door = MailDoor(office.take, **{"recipients": [HERE], "name": "seller.example", **options})
    await door.start()
    try:
        yield door
    finally:
        await door.stop()


def server_tls(files: Files, **options: Any) -> ssl.SSLContext:
    """TLS of the door."""
    path = files.folder / "door.pem"
    path.write_bytes(pki.pem(files.server))
    return tls.server_context(ServerTls(path, **options))
