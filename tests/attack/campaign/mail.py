"""Mail: what hides behind the end of a mail or a STARTTLS, floods, and mail that is no message.

The message in each mail is one that the seller takes by itself. If it hides in another mail, it
must stay unknown.
"""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.attack.campaign import probes
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.probes import expect
from tests.attack.campaign.target import ATTACKER, HOST, MIB, PATIENCE, Target
from tests.fuzz.stateful_nodes import Sent

RECIPIENT: Final = "msh@seller.example"


class Talk:
    """One connection to the mail listener."""

    def __init__(self, target: Target, *, tls: bool = False, source: str = ATTACKER) -> None:
        target.requests += 1
        self.socket: socket.socket = socket.create_connection(
            (HOST, target.smtp_port), PATIENCE, (source, 0)
        )
        self.rest = b""
        self.greeting = self.hear()
        if tls:
            self.say("EHLO attacker.example")
            self.expect(self.say("STARTTLS"), 220)
            self.secure()

    def __enter__(self) -> "Talk":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def secure(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self.socket = context.wrap_socket(self.socket)
        self.rest = b""

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def hear(self) -> int:
        """Return the code of the next reply; 0 if the connection was closed."""
        while True:
            line, found, rest = self.rest.partition(b"\r\n")
            if found:
                self.rest = rest
                if line[3:4] != b"-":
                    self.last = line
                    return int(line[:3])
                continue
            try:
                piece = self.socket.recv(65536)
            except TimeoutError:
                raise Breach(f"no reply within {PATIENCE:g} s") from None
            except OSError:
                return 0
            if not piece:
                return 0
            self.rest += piece

    def say(self, line: str) -> int:
        self.write(line.encode() + b"\r\n")
        return self.hear()

    def expect(self, code: int, *codes: int) -> None:
        expect(code in codes, f"replied {code}, not {codes}: {getattr(self, 'last', b'')!r}")

    def begin(self, sender: str = "a@attacker.example") -> None:
        """Come to where a mail's content is expected."""
        self.expect(self.say("EHLO attacker.example"), 250)
        self.expect(self.say(f"MAIL FROM:<{sender}>"), 250)
        self.expect(self.say(f"RCPT TO:<{RECIPIENT}>"), 250)
        self.expect(self.say("DATA"), 354)


def as_mail(request: Sent, *more: str) -> bytes:
    """Return a request as a mail: the same content, in base64."""
    kinds = [value for name, value in request.headers if name.lower() == "content-type"]
    parts = request.body.replace(
        b"Content-Transfer-Encoding: binary", b"Content-Transfer-Encoding: 8bit"
    )
    lines = [
        "From: a@attacker.example",
        f"To: {RECIPIENT}",
        "Subject: x",
        "MIME-Version: 1.0",
        'SOAPAction: "ebXML"',
        *more,
    ]
    head = "\r\n".join([*lines, f"Content-Type: {kinds[0]}", "", ""]).encode()
    return head + parts


def _message(target: Target) -> tuple[str, bytes]:
    """Return a mail with a message under a new id."""
    name = probes.new_id("mail")
    [request, *_] = target.recorded("ebxml-2.0", b"<eb:Manifest")
    return name, as_mail(probes.renamed(request, name))


def _control(target: Target, tls: bool) -> None:
    """The mail that is smuggled below is taken when it comes by itself."""
    name, mail = _message(target)
    with Talk(target, tls=tls) as talk:
        talk.begin()
        talk.write(mail + b"\r\n.\r\n")
        talk.expect(talk.hear(), 250)
    found = probes.message(target, name)
    expect(found and found["state"] == "delivered", f"the message is {found}")


_ENDS: Final = {
    "LF . LF": b"\n.\n",
    "LF . CRLF": b"\n.\r\n",
    "CRLF . LF": b"\r\n.\n",
    "CR . CR": b"\r.\r",
    "CR . CRLF": b"\r.\r\n",
    "CRLF . CR": b"\r\n.\r",
    "LF . CR": b"\n.\r",
    "CR . LF": b"\r.\n",
    "CRLF NUL . CRLF": b"\r\n\0.\r\n",
    "CRLF . NUL CRLF": b"\r\n.\0\r\n",
    "CRLF CR . CRLF": b"\r\n\r.\r\n",
    "CRLF . CR CR LF": b"\r\n.\r\r\n",
    "CRLF . blank CRLF": b"\r\n. \r\n",
    "CRLF .. CRLF": b"\r\n..\r\n",
    "CRLF . at once CRLF": b"\r\n.x\r\n",
    "LF LF . CRLF": b"\n\n.\r\n",
    "next line . next line": b"\x85.\x85",
    "a full stop of another script": "\r\n\uff0e\r\n".encode(),
}


def _end(target: Target, tls: bool, end: bytes) -> None:
    """What is no end of a mail for us must not be one for anybody: the rest is no command."""
    name, hidden = _message(target)
    commands = f"MAIL FROM:<a@buyer.example>\r\nRCPT TO:<{RECIPIENT}>\r\nDATA\r\n".encode()
    with Talk(target, tls=tls) as talk:
        talk.begin()
        talk.write(b"Subject: outer\r\n\r\nx" + end + commands + hidden + b"\r\n.\r\nQUIT\r\n")
        codes = [talk.hear()]
        while codes[-1] not in (0, 221):
            codes.append(talk.hear())
    expect(probes.message(target, name) is None, "the hidden mail was taken")
    told = [one for one in codes if one]
    expect(
        len([one for one in told if one == 354]) == 0, f"the hidden commands were obeyed: {told}"
    )
    expect(told and told[0] >= 500, f"a mail that is no message was replied {told}")


_INJECTED: Final = {
    "NOOP": (b"NOOP\r\n", 0),
    "MAIL": (b"MAIL FROM:<a@attacker.example>\r\n", 503),
    "a whole mail": (
        b"MAIL FROM:<a@attacker.example>\r\nRCPT TO:<msh@seller.example>\r\nDATA\r\n",
        503,
    ),
    "EHLO": (b"EHLO x\r\n", 0),
    "RSET": (b"RSET\r\n", 0),
}


def _inject(target: Target, injected: bytes) -> None:
    """What came in the clear behind STARTTLS is not obeyed inside of TLS."""
    with Talk(target) as talk:
        talk.expect(talk.say("EHLO attacker.example"), 250)
        talk.write(b"STARTTLS\r\n" + injected)
        code = talk.hear()
        if code != 220:  # Refusing it is as good.
            expect(code >= 400 or code == 0, f"replied {code}")
            return
        try:
            talk.secure()
        except (ssl.SSLError, OSError):
            return  # What came in the clear is no handshake.
        talk.expect(talk.say(f"RCPT TO:<{RECIPIENT}>"), 503)
        talk.expect(talk.say("NOOP"), 250)


def _forgotten(target: Target) -> None:
    """STARTTLS makes the server forget what was said before it (RFC 3207, 4.2)."""
    with Talk(target) as talk:
        talk.say("EHLO attacker.example")
        talk.expect(talk.say("MAIL FROM:<a@attacker.example>"), 250)
        code = talk.say("STARTTLS")
        if code == 220:
            talk.secure()
            talk.expect(talk.say(f"RCPT TO:<{RECIPIENT}>"), 503)
        else:
            talk.expect(code, 503)


def _order(target: Target, tls: bool, commands: tuple[str, ...], codes: tuple[int, ...]) -> None:
    with Talk(target, tls=tls) as talk:
        for line in commands[:-1]:
            talk.say(line)
        code = talk.say(commands[-1])
        talk.expect(code, *codes)


_ORDERS: Final = {
    "DATA first": (("EHLO x", "DATA"), (503,)),
    "RCPT first": (("EHLO x", f"RCPT TO:<{RECIPIENT}>"), (503,)),
    "MAIL without EHLO": (("MAIL FROM:<a@x>",), (503, 250)),
    "MAIL twice": (("EHLO x", "MAIL FROM:<a@x>", "MAIL FROM:<b@x>"), (503,)),
    "somebody else": (("EHLO x", "MAIL FROM:<a@x>", "RCPT TO:<root@seller.example>"), (550,)),
    "a relay": (("EHLO x", "MAIL FROM:<a@x>", "RCPT TO:<victim@example.com>"), (550,)),
    "a source route": (
        ("EHLO x", "MAIL FROM:<a@x>", "RCPT TO:<@seller.example:victim@example.com>"),
        (501, 550, 553),
    ),
    "a percent hack": (
        ("EHLO x", "MAIL FROM:<a@x>", "RCPT TO:<victim%example.com@seller.example>"),
        (501, 550),
    ),
    "a bang path": (
        ("EHLO x", "MAIL FROM:<a@x>", "RCPT TO:<example.com!victim@seller.example>"),
        (501, 550),
    ),
    "no recipient": (("EHLO x", "MAIL FROM:<a@x>", "DATA"), (503,)),
    "no recipient that is taken": (
        ("EHLO x", "MAIL FROM:<a@x>", "RCPT TO:<b@x>", "DATA"),
        (503, 554),
    ),
    "a size above the limit": (("EHLO x", f"MAIL FROM:<a@x> SIZE={5 * MIB}"), (552,)),
    "a size that is none": (("EHLO x", "MAIL FROM:<a@x> SIZE=x"), (501, 555)),
    "a size below zero": (("EHLO x", "MAIL FROM:<a@x> SIZE=-1"), (501, 555)),
    "a size of many digits": (("EHLO x", f"MAIL FROM:<a@x> SIZE={'9' * 300}"), (501, 552, 555)),
    "an unknown parameter": (("EHLO x", "MAIL FROM:<a@x> X=Y"), (501, 504, 555)),
    "VRFY": (("EHLO x", "VRFY root"), (252, 500, 502)),
    "EXPN": (("EHLO x", "EXPN staff"), (500, 502, 550)),
    "TURN": (("EHLO x", "TURN"), (500, 502)),
    "AUTH without users": (
        ("EHLO x", "AUTH PLAIN AGEAYQ=="),
        (500, 502, 503, 504, 530, 534, 535, 538),
    ),
    "HTTP": (("POST /msh HTTP/1.1",), (0, 500, 502, 503)),
    "BDAT": (("EHLO x", "MAIL FROM:<a@x>", f"RCPT TO:<{RECIPIENT}>", "BDAT 5"), (500, 502, 503)),
    "a NUL": (("EHLO x", "MAIL FROM:<a@\0x>"), (500, 501, 553)),
    "no brackets": (("EHLO x", "RCPT TO: x y z"), (501, 503)),
    "an unknown command": (("EHLO x", "XYZZY"), (500, 502)),
    "an empty line": (("EHLO x", ""), (500, 501)),
}


def _line(target: Target, tls: bool, where: str) -> None:
    """A line without end is refused, and not kept."""
    with Talk(target, tls=tls) as talk:
        if where == "command":
            talk.write(b"EHLO " + b"x" * MIB + b"\r\n")
            talk.expect(talk.hear(), 0, 500, 501)
        elif where == "recipient":
            talk.say("EHLO x")
            talk.say("MAIL FROM:<a@x>")
            talk.write(b"RCPT TO:<" + b"x" * 100_000 + b"@seller.example>\r\n")
            talk.expect(talk.hear(), 0, 500, 501, 550)
        elif where == "content":
            talk.begin()
            talk.write(b"Subject: x\r\n\r\n" + b"y" * 3 * MIB + b"\r\n.\r\n")
            talk.expect(talk.hear(), 500, 554)
        else:
            talk.begin()
            talk.write(b"X: " + b"y" * 3 * MIB + b"\r\n\r\nz\r\n.\r\n")
            talk.expect(talk.hear(), 500, 552, 554)


def _recipients(target: Target, tls: bool) -> None:
    """Who names 2,000 recipients gets somewhere between nothing and an end."""
    with Talk(target, tls=tls) as talk:
        talk.say("EHLO x")
        talk.say("MAIL FROM:<a@x>")
        talk.write(
            b"".join(b"RCPT TO:<r%d@elsewhere.example>\r\n" % number for number in range(2000))
        )
        codes = [talk.hear() for _ in range(2000)]
    taken = [one for one in codes if one == 250]
    expect(not taken, f"{len(taken)} recipients of elsewhere were taken")


def _contents() -> dict[str, tuple[bytes, tuple[int, ...]]]:
    """Return mails that are no messages, with the replies that are right."""
    nested = b"".join(
        b'Content-Type: multipart/related; type="text/xml"; boundary=b%d\r\n\r\n--b%d\r\n'
        % (at, at)
        for at in range(1000)
    )
    mime = b"MIME-Version: 1.0\r\n"
    related = mime + b'Content-Type: multipart/related; type="text/xml"; boundary=b\r\n\r\n'
    part = b"--b\r\nContent-Type: text/xml\r\nContent-ID: <%d@x>\r\n\r\n<x/>\r\n"
    refused = (500, 552, 554)
    return {
        "nothing": (b"", refused),
        "no MIME": (b"Subject: x\r\n\r\nhello", refused),
        "text": (mime + b"Content-Type: text/plain\r\n\r\nhello", refused),
        "1,000 levels of MIME": (mime + nested, refused),
        "5,000 parts": (related + b"".join(part % at for at in range(5000)) + b"--b--", refused),
        "100,000 header fields": (b"X: y\r\n" * 100_000 + b"\r\nz", refused),
        "a header folded 50,000 times": (b"X: y\r\n" + b" z\r\n" * 50_000 + b"\r\nz", refused),
        "an entity bomb": (
            mime + b'Content-Type: text/xml\r\n\r\n<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>',
            refused,
        ),
        "base64 that is none": (
            mime + b"Content-Type: text/xml\r\nContent-Transfer-Encoding: base64\r\n\r\n!!!!",
            refused,
        ),
        "an unknown encoding": (
            mime + b"Content-Type: text/xml\r\nContent-Transfer-Encoding: x-uuencode\r\n\r\nx",
            refused,
        ),
        "a bounce": (
            mime
            + b"Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n"
            + b"--b--",
            (250, 554),
        ),
        "a NUL in the header": (
            b"MIME-Version: 1.0\0\r\nContent-Type: text/xml\r\n\r\n<x/>",
            refused,
        ),
        "8 bits in the header": (
            b"MIME-Version: 1.0\r\nContent-Type: text/\xff\xfe\r\n\r\n<x/>",
            refused,
        ),
        "a boundary of 100 KB": (
            mime + b"Content-Type: multipart/related; boundary=" + b"b" * 100_000 + b"\r\n\r\n",
            refused,
        ),
        "more than the limit": (
            mime + b"Content-Type: text/xml\r\n\r\n" + (b"y" * 98 + b"\r\n") * 50_000,
            (552,),
        ),
    }


def _content(target: Target, tls: bool, content: bytes, codes: tuple[int, ...]) -> None:
    with Talk(target, tls=tls) as talk:
        talk.begin()
        talk.write(content + b"\r\n.\r\n")
        talk.expect(talk.hear(), *codes)


def _stranger(target: Target, tls: bool, change: tuple[bytes, bytes], code: int) -> None:
    """A message of a stranger is not delivered, and nobody is told by mail."""
    name = probes.new_id("mail")
    [request, *_] = target.recorded("ebxml-signed", b"<eb:Manifest")
    changed = probes.renamed(request, name, change)
    with Talk(target, tls=tls) as talk:
        talk.begin()
        talk.write(as_mail(changed, f"Reply-To: x@127.0.0.1:{target.canary.port}") + b"\r\n.\r\n")
        talk.expect(talk.hear(), code)
    found = probes.message(target, name)
    expect(found is None or found["state"] == "rejected", f"the message is {found}")


def _flood(target: Target, addresses: int, each: int, tls: bool) -> None:
    """Connections that say nothing are closed for those who say something."""
    before = probes.metrics(target)
    sources = [ATTACKER] if addresses == 1 else [probes.new_address() for _ in range(addresses)]
    opened: list[socket.socket] = []
    with probes.opened(opened):
        for source in sources:
            for _ in range(each):
                target.requests += 1
                with contextlib.suppress(OSError):
                    where = (HOST, target.smtp_port)
                    opened.append(socket.create_connection(where, PATIENCE, (source, 0)))
                    if tls:
                        opened[-1].sendall(b"EHLO x\r\nSTARTTLS\r\n")
        name, mail = _message(target)
        with Talk(target, source=HOST) as talk:
            talk.begin()
            talk.write(mail + b"\r\n.\r\n")
            talk.expect(talk.hear(), 250)
        expect(probes.message(target, name), "the honest mail is not there")
    figure = "postroad_client_incidents_total"
    more = probes.total(probes.metrics(target), figure) - probes.total(before, figure)
    least = addresses * max(0, each - 20) if addresses == 1 else addresses * each - 100
    expect(more >= least, f"{more:g} incidents are counted, at least {least} happened")


def _slow(target: Target, place: str) -> None:
    """Who says nothing for mail.timeout loses the connection."""
    with Talk(target) as talk:
        if place == "content":
            talk.begin()
            talk.write(b"Subject: x\r\n\r\nbegun")
        elif place == "command":
            talk.write(b"EHL")
        code = talk.hear()
        expect(code in (0, 421, 451), f"replied {code}")


def _slow_together(target: Target) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(3) as pool:
        for one in [pool.submit(_slow, target, place) for place in ("content", "command", "start")]:
            one.result()


def _smuggling(_: Target) -> Iterator[Case]:
    for tls in (False, True):
        where = "over TLS" if tls else "in the clear"
        yield Case(f"the mail by itself {where}", partial(_control, tls=tls))
        for name, end in _ENDS.items():
            yield Case(f"an end of {name} {where}", partial(_end, tls=tls, end=end))
    for name, (injected, _code) in _INJECTED.items():
        yield Case(f"{name} behind STARTTLS", partial(_inject, injected=injected))
    yield Case("MAIL before STARTTLS", _forgotten)


def _commands(_: Target) -> Iterator[Case]:
    for tls in (False, True):
        where = "over TLS" if tls else "in the clear"
        for name, (commands, codes) in _ORDERS.items():
            attack = partial(_order, tls=tls, commands=commands, codes=codes)
            yield Case(f"{name} {where}", attack)
        for place in ("command", "recipient", "header", "content"):
            yield Case(f"a {place} without end {where}", partial(_line, tls=tls, where=place))
        yield Case(f"2,000 recipients {where}", partial(_recipients, tls=tls))
        for name, (content, codes) in _contents().items():
            attack = partial(_content, tls=tls, content=content, codes=codes)
            yield Case(f"a mail with {name} {where}", attack)
        for name, change in {
            "another action": (b">ebxml-signed<", b">nothing<"),
            "another party": (b">urn:example:buyer<", b">urn:example:nobody<"),
            "a broken signature": (b"SignatureValue>", b"SignatureValue>AAAA"),
        }.items():
            attack = partial(_stranger, tls=tls, change=change, code=250)
            yield Case(f"a message with {name} {where}", attack)


def _floods(_: Target) -> Iterator[Case]:
    yield Case("300 connections of one address", partial(_flood, addresses=1, each=300, tls=False))
    yield Case("300 handshakes of one address", partial(_flood, addresses=1, each=300, tls=True))
    yield Case("20 connections of 20 addresses", partial(_flood, addresses=20, each=20, tls=False))
    yield Case("one connection of 300 addresses", partial(_flood, addresses=300, each=1, tls=False))
    yield Case("slow clients of mail", _slow_together)


CLASSES: Final = (
    AttackClass("mail that hides another", _smuggling),
    AttackClass("mail commands and contents", _commands),
    AttackClass("mail connections", _floods),
)
