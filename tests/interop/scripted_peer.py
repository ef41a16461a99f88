"""A peer that answers with exactly the bytes that a test scripts, over loopback sockets."""

import contextlib
import re
import socket
import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from tests.as4.foreign import Identity, sign
from tests.as4.reading import NS, Seen, canonical, read

SOAP: Final = "application/soap+xml; charset=UTF-8"
_MESSAGE_ID: Final = re.compile(rb"<eb:MessageId>([^<]+)</eb:MessageId>")
_PATIENCE: Final = 30.0


@dataclass(frozen=True)
class Request:
    """A message as the node sent it."""

    content_type: str
    body: bytes

    @property
    def seen(self) -> Seen:
        return read(self.content_type, self.body)

    @property
    def message_id(self) -> str:
        found = _MESSAGE_ID.search(self.body)
        assert found is not None
        return found.group(1).decode()


Answer = Callable[[Request], bytes]
"""Makes the raw bytes of the HTTP response; no bytes close the connection unanswered."""


class ScriptedPeer:
    """Listens on a loopback port and plays the script of each message."""

    def __init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._scripts: dict[str, deque[Answer]] = {}
        self._requests: defaultdict[str, list[Request]] = defaultdict(list)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}/msh"

    def script(self, message_id: str, *answers: Answer) -> None:
        """Answer the attempts to send a message in turn; the last answer serves all that follow."""
        with self._lock:
            self._scripts[message_id] = deque(answers)

    def requests(self, message_id: str) -> list[Request]:
        """All copies of a message that arrived."""
        with self._lock:
            return list(self._requests[message_id])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._door.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(_PATIENCE)
            request = _receive(connection)
            if request is None:
                return
            with self._lock:
                self._requests[request.message_id].append(request)
                answers = self._scripts[request.message_id]
                answer = answers.popleft() if len(answers) > 1 else answers[0]
            connection.sendall(answer(request))
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)


def _receive(connection: socket.socket) -> Request | None:
    with connection.makefile("rb") as stream:
        if not stream.readline():
            return None
        fields = {}
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            fields[name.lower()] = value.strip()
        if "content-length" in fields:
            body = stream.read(int(fields["content-length"]))
        else:
            body = b"".join(_chunks(stream.readline, stream.read))
    return Request(fields["content-type"], body)


def _chunks(readline: Callable[[], bytes], read: Callable[[int], bytes]) -> Iterator[bytes]:
    while size := int(readline().split(b";")[0], 16):
        yield read(size)
        readline()
    readline()


def response(
    status: int,
    body: bytes = b"",
    content_type: str | None = SOAP,
    *,
    length: int | None = None,
    fields: str = "",
) -> bytes:
    """An HTTP response; `length` is what Content-Length claims, if not the truth."""
    claimed = len(body) if length is None else length
    kind = f"Content-Type: {content_type}\r\n" if content_type else ""
    head = f"HTTP/1.1 {status} Scripted\r\n{kind}Content-Length: {claimed}\r\n{fields}\r\n"
    return head.encode() + body


def signal(inside: str, *, ref: str | None) -> str:
    """An eb:SignalMessage about a message, or about none."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    about = "" if ref is None else f"<eb:RefToMessageId>{escape(ref)}</eb:RefToMessageId>"
    return (
        f"<eb:SignalMessage><eb:MessageInfo><eb:Timestamp>{now}</eb:Timestamp>"
        f"<eb:MessageId>{uuid.uuid4()}@seller.example</eb:MessageId>{about}</eb:MessageInfo>"
        f"{inside}</eb:SignalMessage>"
    )


def receipt(request: Request, *, ref: str | None = None, digests_of: Request | None = None) -> str:
    """A receipt with the digests of a message, by default those of the one that it refers to."""
    listed = "".join(
        f"<ebbp:MessagePartNRInformation>{canonical(one).decode()}</ebbp:MessagePartNRInformation>"
        for one in (digests_of or request).seen.all("//ds:SignedInfo/ds:Reference")
    )
    return signal(
        f'<eb:Receipt><ebbp:NonRepudiationInformation xmlns:ebbp="{NS["ebbp"]}">{listed}'
        "</ebbp:NonRepudiationInformation></eb:Receipt>",
        ref=ref or request.message_id,
    )


def error(code: str, severity: str = "failure", **attributes: str) -> str:
    """An eb:Error; further attributes by their names."""
    more = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
    return (
        f'<eb:Error errorCode={quoteattr(code)} severity="{severity}"{more}>'
        f"<eb:ErrorDetail>scripted</eb:ErrorDetail></eb:Error>"
    )


def envelope(*units: str, body: str = "", signer: Identity | None = None) -> bytes:
    """A SOAP 1.2 envelope with these units in eb:Messaging, signed where a signer is given."""
    security = "" if signer is None else f'<wsse:Security xmlns:wsse="{NS["wsse"]}"/>'
    messaging = (
        f'<eb:Messaging s:mustUnderstand="true" wsu:Id="header-1">{"".join(units)}</eb:Messaging>'
        if units
        else ""
    )
    root = etree.fromstring(
        f'<s:Envelope xmlns:s="{NS["s"]}" xmlns:eb="{NS["eb"]}" xmlns:wsu="{NS["wsu"]}">'
        f"<s:Header>{security}{messaging}</s:Header>"
        f'<s:Body wsu:Id="body-1">{body}</s:Body></s:Envelope>'
    )
    return etree.tostring(root if signer is None else sign(root, (), signer))


def fault(code: str) -> str:
    """A SOAP 1.2 Fault for the Body."""
    return (
        f"<s:Fault><s:Code><s:Value>s:{code}</s:Value></s:Code><s:Reason>"
        '<s:Text xml:lang="en">scripted</s:Text></s:Reason></s:Fault>'
    )
