"""Requests whose borders are unclear: what hides behind one must never be taken for another.

Each request is followed, or filled, by a message that the seller would take by itself
(`smuggled`). It must be answered once, the connection be closed, and the smuggled message stay
unknown.
"""

import contextlib
import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.attack.campaign import probes
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.probes import expect
from tests.attack.campaign.target import MIB, Answer, Target
from tests.attack.campaign.target import head as head_of

_SOAP: Final = "Content-Type: application/soap+xml; charset=UTF-8"
_FRAMING: Final = (400, 501)
_ANY: Final = tuple(range(400, 500))
"""The request is framed well, and refused for what it says."""
_JUNK: Final = b"x" * 64


@dataclass(frozen=True, slots=True)
class Door:
    """Where a request is sent to."""

    name: str
    path: str
    tls: bool
    lines: tuple[str, ...] = (_SOAP,)


@dataclass(frozen=True, slots=True)
class Trick:
    """One request that misleads; `make` gets a head without the end, and the smuggled request."""

    name: str
    make: Callable[[bytes, bytes], bytes]
    statuses: tuple[int, ...] = _FRAMING
    silent: bool = False
    """Whether the connection may be closed without an answer."""
    doors: tuple[str, ...] = ("msh", "msh over TLS", "REST")


def _doors(target: Target) -> tuple[Door, ...]:
    authorized = f"Authorization: Bearer {probes.token(target)}"
    form = "Content-Type: multipart/form-data; boundary=b"
    return (
        Door("msh", "/msh", tls=False),
        Door("msh over TLS", "/msh", tls=True),
        Door("REST", "/api/v1/messages", tls=False, lines=(authorized, form)),
    )


def _begin(door: Door, method: str = "POST", version: str = "HTTP/1.1") -> bytes:
    return "\r\n".join(
        [f"{method} {door.path} {version}", "Host: node.example", *door.lines, ""]
    ).encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _smuggled(target: Target) -> tuple[str, bytes]:
    message_id = probes.new_id("smuggled")
    [request, *_] = target.recorded("plain", b"<eb:UserMessage")
    changed = probes.renamed(request, message_id)
    return message_id, head_of(changed) + changed.body


def _attack(target: Target, door: Door, trick: Trick) -> None:
    message_id, smuggled = _smuggled(target)
    answers = _send(target, door.tls, trick.make(_begin(door), smuggled))
    _judge(trick, answers)
    expect(probes.message(target, message_id) is None, "the smuggled message was taken")


def _send(target: Target, tls: bool, data: bytes) -> list[Answer]:
    target.requests += 1
    with target.connect(tls=tls) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
        return probes.read_answers(
            probes.until_closed(connection), data[:4].decode("latin-1").strip()
        )


def _judge(trick: Trick, answers: list[Answer]) -> None:
    told = [one.status for one in answers]
    if not told and trick.silent:
        return
    expect(len(told) == 1, f"{len(told)} answers to one request: {told}")
    expect(told[0] in trick.statuses, f"answered {told[0]}: {answers[0].body[:200]!r}")
    if b"Traceback" in answers[0].body:
        raise Breach(f"a traceback in the answer: {answers[0].body[:300]!r}")


# Two lengths, odd lengths


def _then(rest: bytes, *changes: tuple[bytes, bytes]) -> Callable[[bytes, bytes], bytes]:
    """Return a request that goes on like this after its first lines, then the smuggled one."""

    def make(begin: bytes, smuggled: bytes) -> bytes:
        for old, new in changes:
            begin = begin.replace(old, new)
        return begin + rest + smuggled

    return make


def _with(*lines: bytes) -> Callable[[bytes, bytes], bytes]:
    """Return a request with these header lines, then the smuggled request."""
    return _then(b"".join(one + b"\r\n" for one in lines) + b"\r\n")


def _lengths() -> Iterator[Trick]:
    odd = [
        "-1",
        "+5",
        "0x5",
        "5.0",
        "5e0",
        "5 5",
        "5,6",
        "5;",
        '"5"',
        "5_0",
        "٥",
        "٥".encode().decode("latin-1"),
        "",
        " ",
        "9" * 30,
        "9" * 5000,
        "NaN",
        "Infinity",
        "5\x00",
        "5\x0b",
        "0b1",
        "five",
        "5\t6",
    ]
    for value in odd:
        line = b"Content-Length: " + value.encode("utf-8")
        yield Trick(f"Content-Length {value[:24]!r}", _with(line), (400, 413))
    yield Trick("two lengths", _with(b"Content-Length: 0", b"Content-Length: 5"))
    yield Trick("two lengths, the larger first", _with(b"Content-Length: 5", b"Content-Length: 0"))
    yield Trick("Content-Length 0, 5", _with(b"Content-Length: 0, 5"))
    yield Trick("Content-Length 5, 0", _with(b"Content-Length: 5, 0"))
    yield Trick("a length with a space before the colon", _with(b"Content-Length : 0"))
    yield Trick("a length with a tab before the colon", _with(b"Content-Length\t: 0"))
    yield Trick(
        "a length on a folded line", _with(b"X-Y: z", b" Content-Length: 0", b"Content-Length: 9")
    )
    yield Trick("a folded length", _with(b"Content-Length:", b" 0"))
    yield Trick("a length in a name with NUL", _with(b"Content-Length\x00: 0"))
    yield Trick("a bare CR before a length", _with(b"X-Y: z\rContent-Length: 0"))
    yield Trick("a length as a name with a line feed", _with(b"X-Y: z\n Content-Length: 0"))


# Content-Length beside Transfer-Encoding


def _clte(coding: bytes) -> Callable[[bytes, bytes], bytes]:
    """Return a request whose chunks end early: by its length the rest belongs to it."""

    def make(begin: bytes, smuggled: bytes) -> bytes:
        body = b"0\r\n\r\n" + smuggled
        return begin + b"Content-Length: %d\r\n%b\r\n\r\n" % (len(body), coding) + body

    return make


def _tecl(coding: bytes) -> Callable[[bytes, bytes], bytes]:
    """Return a request whose length ends early: by its chunks the rest belongs to it."""

    def make(begin: bytes, smuggled: bytes) -> bytes:
        body = _chunk(smuggled)
        size = body.index(b"\r\n") + 2
        return begin + b"%b\r\nContent-Length: %d\r\n\r\n" % (coding, size) + body + b"0\r\n\r\n"

    return make


_CODINGS: Final = (
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: Chunked",
    b"transfer-encoding:chunked",
    b"Transfer-Encoding:\tchunked",
    b"Transfer-Encoding: chunked ",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: identity, chunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: gzip",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunkedx",
    b"Transfer-Encoding: chunked;q=1",
    b'Transfer-Encoding: "chunked"',
    b"Transfer-Encoding: ,chunked",
    b"Transfer-Encoding: chunked,",
    b"Transfer-Encoding:",
    b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding: \x0cchunked",
    b"Transfer-Encoding: \x00chunked",
    b"Transfer-Encoding: chunked\x00",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding\t: chunked",
    b" Transfer-Encoding: chunked",
    b"Transfer-Encoding:\r\n chunked",
    b"X-Y: z\nTransfer-Encoding: chunked",
    b"X-Y: z\rTransfer-Encoding: chunked",
    b"X-Y: z\r\n Transfer-Encoding: chunked",
)


def _codings() -> Iterator[Trick]:
    for coding in _CODINGS:
        name = coding.decode("latin-1").replace("Transfer-Encoding", "TE")
        yield Trick(f"CL.TE {name!r}", _clte(coding))
        yield Trick(f"TE.CL {name!r}", _tecl(coding))
    for coding in (b"gzip", b"gzip, chunked", b"chunked, gzip", b"deflate", b"identity", b"x", b""):
        line = b"Transfer-Encoding: " + coding
        yield Trick(f"only TE {coding.decode()!r}", _then(line + b"\r\n\r\n0\r\n\r\n"))
    rest = b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    old = _then(rest, (b"HTTP/1.1", b"HTTP/1.0"))
    yield Trick("chunked in HTTP/1.0", old, (400, 411, 501))


# Chunks


def _chunks() -> Iterator[Trick]:
    def chunked(*parts: bytes) -> Callable[[bytes, bytes], bytes]:
        body = b"".join(parts)
        return _then(b"Transfer-Encoding: chunked\r\n\r\n" + body)

    end = b"0\r\n\r\n"
    sizes = (
        b"-1",
        b"+5",
        b"0x5",
        b"5 5",
        b"",
        b"G",
        b"5_0",
        b"5.0",
        b"5h",
        b"\xd9\xa5",
        b"5\x00",
        b"5\x0b",
        b" 5",
        b";x",
        b"\t5",
        b"F" * 17,
        b"1" + b"0" * 16 + b"5",
        b"-0",
        b"0x0",
        b"+0",
        b"5;" + b"x" * 4 * MIB,
    )
    for size in sizes:
        name = f"chunk size {size[:24]!r} of {len(size)} characters"
        yield Trick(name, chunked(size, b"\r\nxxxxx\r\n", end), (400, 413, 431))
    yield Trick("no end of line after a chunk", chunked(b"5\r\nxxxxx", end))
    yield Trick("other bytes after a chunk", chunked(b"5\r\nxxxxxyy", end))
    yield Trick("a chunk that is longer than its size", chunked(b"5\r\nxxxxxxxxxx\r\n", end))
    yield Trick("a chunk that ends in LF", chunked(b"5\r\nxxxxx\n", end))
    yield Trick("a chunk that ends in CR", chunked(b"5\r\nxxxxx\r", end))
    yield Trick("a size that ends in LF", chunked(b"5\nxxxxx\r\n", end))
    yield Trick("a size that ends in CR", chunked(b"5\rxxxxx\r\n", end))
    yield Trick("an extension with a line feed", chunked(b"5;a=\nxxxxx\r\n", end))
    yield Trick("an extension with a quoted end of line", chunked(b'5;a="\r\n"\r\nxxxxx\r\n', end))
    yield Trick("a last chunk that ends in LF", chunked(b"5\r\nxxxxx\r\n0\n\n"))
    yield Trick("a last chunk and other bytes", chunked(b"5\r\nxxxxx\r\n0\r\nX"))
    yield Trick("trailers without end", chunked(b"0\r\n", b"X-Y: z\r\n" * 100_000), (400, 413, 431))
    yield Trick(
        "a trailer of a mebibyte", chunked(b"0\r\nX: ", b"y" * MIB, b"\r\n\r\n"), (400, 413, 431)
    )
    yield Trick("a trailer with a space before the colon", chunked(b"0\r\nX : y\r\n\r\n"))
    yield Trick("a trailer without a colon", chunked(b"0\r\nXY\r\n\r\n"))
    yield Trick("a trailer with NUL", chunked(b"0\r\nX: \x00\r\n\r\n"))


# Heads


def _first_lines() -> Iterator[Trick]:
    lines = {
        "HTTP/0.9": b"GET /healthz\r\n",
        "no version": b"POST /msh\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "tabs": b"POST\t/msh\tHTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "a space in the target": b"POST /m sh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "a NUL in the target": b"POST /m\x00sh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "a CR in the target": b"POST /m\rsh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "8 bits in the target": b"POST /m\xffsh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "an empty target": b"POST  HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "a method with NUL": b"PO\x00ST /msh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "a method with a bracket": b"PO(ST /msh HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "no line end at all": b"x" * 200_000,
        "TLS on a plain door": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
        "SMTP": b"EHLO x\r\nMAIL FROM:<a@x>\r\n",
        "a header first": b" Host: x\r\nPOST /msh HTTP/1.1\r\n\r\n",
        "a target of 200 KB": b"POST /" + b"m" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        "100,000 empty lines": b"\r\n" * 100_000 + b"x\r\n\r\n",
    }
    for version in (
        b"HTTP/1.2x",
        b"HTTP/2.0",
        b"HTTP/3",
        b"HTTP/11",
        b"http/1.1",
        b"HTTP/1.1 x",
        b"HTTP/-1.1",
        b"HTTP/01.1",
        b"HTTP 1.1",
        b"ICY/1.1",
        b"HTTP/1.1\x00",
        b"HTTP/1.1\x0b",
    ):
        request = b"POST /msh %b\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % version
        lines[f"version {version.decode()!r}"] = request
    for name, line in lines.items():
        doors = ("msh", "msh over TLS")
        yield Trick(name, partial(_replaced, line), (400, 405, 414, 431, 505), True, doors)


def _replaced(line: bytes, _: bytes, smuggled: bytes) -> bytes:
    return line + smuggled


def _heads() -> Iterator[Trick]:
    empty = b"Content-Length: 0"
    no_host = _then(empty + b"\r\n\r\n", (b"Host: node.example\r\n", b""))
    yield Trick("no Host", no_host)
    for name, line in {
        "two hosts": b"Host: other.example",
        "the same host twice": b"Host: node.example",
        "no colon": b"X-Y",
        "an empty name": b": y",
        "a space before the colon": b"X-Y : z",
        "a name with a space": b"X Y: z",
        "a name with NUL": b"X\x00Y: z",
        "a name with 8 bits": b"X\xff: z",
        "a name with a slash": b"X/Y: z",
        "a value with NUL": b"X-Y: \x00",
        "a value with a bare CR": b"X-Y: a\rb",
        "a folded value": b"X-Y: a\r\n b",
        "a folded value with a tab": b"X-Y: a\r\n\tb",
        "a name of 200 KB": b"X" * 200_000 + b": y",
        "a value of 200 KB": b"X: " + b"y" * 200_000,
        "10,000 headers": b"\r\n".join(b"X-%d: y" % number for number in range(10_000)),
        "200,000 headers": b"\r\n".join([b"X: y"] * 200_000),
    }.items():
        yield Trick(name, _with(line, empty), (400, 431))
    for name, host in {
        "an empty label and a path": b"a/b",
        "user information": b"user@node.example",
        "a space": b"node example",
        "a list": b"a.example, b.example",
        "NUL": b"node\x00example",
        "a port that is none": b"node.example:port",
    }.items():
        made = _then(empty + b"\r\n\r\n", (b"node.example", host))
        yield Trick(f"Host with {name}", made)


# Requests that are clear, and refused: what they bring along must be taken with them


def _clear(method: bytes, path: bytes | None, *lines: bytes) -> Callable[[bytes, bytes], bytes]:
    """Return a request whose body is the smuggled one; the connection could stay open."""

    def make(begin: bytes, smuggled: bytes) -> bytes:
        first, _, rest = begin.partition(b"\r\n")
        _, old, version = first.split(b" ")
        first = b" ".join((method, path or old, version))
        own = b"".join(one + b"\r\n" for one in lines)
        length = b"Content-Length: %d\r\n" % len(smuggled)
        return first + b"\r\n" + rest + own + length + b"\r\n" + smuggled + _LAST

    return make


_LAST: Final = b"GET /the-end HTTP/1.1\r\nHost: node.example\r\nConnection: close\r\n\r\n"


def _clear_tricks() -> Iterator[Trick]:
    for method in (
        "GET",
        "HEAD",
        "PUT",
        "DELETE",
        "OPTIONS",
        "TRACE",
        "PATCH",
        "PROPFIND",
        "post",
        "X" * 200,
    ):
        only = ("msh", "msh over TLS")
        yield Trick(
            f"{method[:10]} with a body", _clear(method.encode(), None), (*_ANY, 501), doors=only
        )
    for path in (
        "/nowhere",
        "/msh/",
        "/msh/x",
        "//msh",
        "/MSH",
        "/%6dsh%00",
        "/msh%2f",
        "/x/../nowhere",
        "*",
    ):
        yield Trick(f"{path} with a body", _clear(b"POST", path.encode()), _ANY)
    for line in ("Upgrade: h2c", "Upgrade: websocket", "Upgrade: TLS/1.0"):
        lines = (
            line.encode(),
            b"Connection: Upgrade, HTTP2-Settings",
            b"HTTP2-Settings: AAMAAABkAAQAAP__",
        )
        yield Trick(line, _clear(b"POST", None, *lines), _ANY)
    for line in ("Expect: 200-ok", "Expect: 100-continue, x", "Expect: 100-continue"):
        yield Trick(line, _clear(b"POST", b"/nowhere", line.encode()), _ANY)
    for coding in ("gzip", "deflate", "br", "zstd", "gzip, gzip", "compress", "x"):
        yield Trick(
            f"Content-Encoding {coding}",
            _clear(b"POST", None, b"Content-Encoding: " + coding.encode()),
            _ANY,
        )
    for line in (
        "Transfer_Encoding: chunked",
        "Content_Length: 0",
        "Content-Length-X: 0",
        "X-Content-Length: 0",
        "TE: chunked",
        "Connection: Content-Length",
        "Connection: close, keep-alive, Host",
    ):
        yield Trick(f"harmless {line}", _clear(b"POST", None, line.encode()), _ANY)


def _attack_clear(target: Target, door: Door, trick: Trick) -> None:
    """The body of a refused request is no request; the one after it may be answered."""
    message_id, smuggled = _smuggled(target)
    answers = _send(target, door.tls, trick.make(_begin(door), smuggled))
    told = [one.status for one in answers]
    expect(told[1:] in ([], [401], [404]), f"the body was answered too: {told}")
    _judge(trick, answers[:1])
    expect(b"<eb:" not in answers[0].body or b"EBMS:" in answers[0].body, "the request was echoed")
    expect(probes.message(target, message_id) is None, "the smuggled message was taken")


def _attack_unauthorized(target: Target, door: Door, trick: Trick) -> None:
    """Who has no token is told so before the body is read, which is still not a request."""
    without = Door(door.name, door.path, door.tls, lines=())
    _attack_clear(target, without, trick)


# Cases


def _ambiguous(target: Target) -> Iterator[Case]:
    tricks = [*_lengths(), *_codings(), *_chunks(), *_first_lines(), *_heads()]
    for door in _doors(target):
        for trick in tricks:
            if door.name in trick.doors:
                attack = partial(_attack, door=door, trick=trick)
                yield Case(f"{trick.name} on {door.name}", attack)


def _refused(target: Target) -> Iterator[Case]:
    doors = _doors(target)
    for door in doors:
        for trick in _clear_tricks():
            if door.name in trick.doors:
                attack = partial(_attack_clear, door=door, trick=trick)
                yield Case(f"{trick.name} on {door.name}", attack)
    rest = doors[2]
    for method in ("GET", "POST", "DELETE"):
        trick = Trick("", _clear(method.encode(), None), (401, 405))
        attack = partial(_attack_unauthorized, door=rest, trick=trick)
        yield Case(f"{method} without a token, with a body", attack)


def _others(target: Target) -> Iterator[Case]:
    yield Case("the smuggled message is one that is taken by itself", _control)
    for tls in (False, True):
        where = "over TLS" if tls else "in the clear"
        for number in (2, 50, 400):
            attack = partial(_pipeline, tls=tls, number=number)
            yield Case(f"{number} requests at once {where}", attack)
        yield Case(f"a broken request among good ones {where}", partial(_broken, tls=tls))
        for coding in ("gzip", "deflate"):
            for name in ("msh",) if tls else ("msh", "REST"):
                bomb = partial(_bomb, tls=tls, coding=coding, name=name)
                yield Case(f"a {coding} bomb for {name} {where}", bomb)
        for form in ("absolute", "authority", "proxy"):
            yield Case(f"a target in {form} form {where}", partial(_proxy, tls=tls, form=form))
        yield Case(f"half a request, then the end {where}", partial(_cut, tls=tls))
        yield Case(f"Expect without a body that comes {where}", partial(_expect, tls=tls))


def _control(target: Target) -> None:
    message_id, smuggled = _smuggled(target)
    for tls in (False, True):
        [answer] = _send(target, tls, smuggled)
        expect(answer.status == 200, f"the control was answered {answer.status}")
    found = probes.message(target, message_id)
    expect(found and found["state"] == "delivered", f"the control is {found}")


def _pipeline(target: Target, tls: bool, number: int) -> None:
    one = b"GET /nothing/%d HTTP/1.1\r\nHost: x\r\n\r\n"
    data = b"".join(one % at for at in range(number)) + _LAST
    told = [answer.status for answer in _send(target, tls, data)]
    expect(told == [404 if tls else 401] * (number + 1), f"{len(told)} answers: {set(told)}")


def _broken(target: Target, tls: bool) -> None:
    message_id, smuggled = _smuggled(target)
    good = b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
    bad = b"POST /msh HTTP/1.1\r\nHost: x\r\nContent-Length : 0\r\n\r\n"
    told = [one.status for one in _send(target, tls, good * 3 + bad + smuggled + good)]
    status = 404 if tls else 401
    expect(told[:3] == [status] * 3 and told[3:] in ([], [400]), f"answered {told}")
    expect(
        probes.message(target, message_id) is None, "what stood behind a broken request was taken"
    )


def _bomb(target: Target, tls: bool, coding: str, name: str) -> None:
    zeros = bytes(64 * MIB)
    packed = gzip.compress(zeros, 1) if coding == "gzip" else zlib.compress(zeros, 1)
    [door] = [one for one in _doors(target) if one.name == name]
    lines = (
        f"Content-Encoding: {coding}\r\nContent-Length: {len(packed)}\r\nConnection: close\r\n\r\n"
    )
    told = target.exchange(_begin(door) + lines.encode() + packed, tls=tls)
    expect(told and told.status == 415, f"answered {told}")


def _proxy(target: Target, tls: bool, form: str) -> None:
    canary = f"{target.canary.url}/proxied"
    host = f"127.0.0.1:{target.canary.port}"
    if form == "absolute":
        data = probes.head("POST", canary, "Content-Length: 0", "Connection: close", host=host)
        statuses: tuple[int, ...] = (400, 401, 404, 405, 421)
    elif form == "authority":
        data = probes.head("CONNECT", host, "Connection: close", host=host)
        statuses = (400, 404, 405, 501)
    else:
        lines = ("X-Forwarded-For: 127.0.0.1", f"Forwarded: for=127.0.0.1;host={host}")
        override = (
            f"X-Original-URL: {canary}",
            f"X-Rewrite-URL: {canary}",
            f"X-Forwarded-Host: {host}",
        )
        data = probes.head(
            "GET", "/api/v1/inbox", *lines, *override, "Connection: close", host=host
        )
        statuses = (404,) if tls else (401,)
    told = _send(target, tls, data)
    expect([one.status for one in told] and told[0].status in statuses, f"answered {told}")


def _cut(target: Target, tls: bool) -> None:
    """A body that ends early is no message, though all that a message needs may have come."""
    message_id, smuggled = _smuggled(target)
    begin, _, body = smuggled.partition(b"\r\n\r\n")
    long = begin.replace(b"Content-Length: %d" % len(body), b"Content-Length: %d" % (len(body) + 1))
    target.requests += 1
    connection = target.connect(tls=tls)
    connection.sendall(long + b"\r\n\r\n" + body)
    connection.close()
    target.honest()
    expect(probes.message(target, message_id) is None, "a message that was cut short was taken")


def _expect(target: Target, tls: bool) -> None:
    """Who waits for 100-continue is told to go on, and nothing more."""
    target.requests += 1
    lines = (_SOAP, "Content-Length: 10", "Expect: 100-continue", "Connection: close")
    with target.connect(tls=tls) as connection:
        connection.sendall(probes.head("POST", "/msh", *lines))
        first = connection.recv(100)
        expect(first.startswith(b"HTTP/1.1 100 "), f"told {first!r}")
        connection.sendall(b"0123456789GET / HTTP/1.1\r\n\r\n")
        told = probes.read_answers(probes.until_closed(connection))
    expect([one.status for one in told] == [400], f"answered {told}")


CLASSES: Final = (
    AttackClass("HTTP requests with unclear borders", _ambiguous),
    AttackClass("HTTP requests that are refused with a body", _refused),
    AttackClass("HTTP pipelines, bombs and proxies", _others),
)
