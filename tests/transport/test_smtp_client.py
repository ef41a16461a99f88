"""The client for mail against real sockets: what leaves, what comes back, what is known of it."""

import asyncio
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroad.msh.capture import Incoming
from postroad.msh.outbound import WirePart, wire_form
from postroad.transport import tls
from postroad.transport.http_outgoing import Pieces, Timeouts, TransportFailure
from postroad.transport.smtp_client import MailClient, MailRefused, OutgoingMail, Relay, StartTls
from postroad.transport.smtp_server import STORED, IncomingMail, MailDoor, MailLimits, Taken
from postroad.transport.tls import ServerTls, TlsProfile
from postroad.wire.content import CHUNK, BytesContent, BytesSink
from postroad.wire.limits import MIB
from postroad.wire.mail import Mail
from postroad.wire.soap import SoapVersion
from tests import pki
from tests.ports import free_port
from tests.transport.handshakes import Files
from tests.transport.mail_office import HERE, Office, door_of, server_tls
from tests.transport.wires import in_loop, run, talking

US = "msh@buyer.example"
SHORT = b"Subject: x\r\n\r\nhello\r\n"
STEPS = ("greeting", "EHLO", "MAIL", "RCPT", "DATA", ".")


def outgoing(content: bytes = SHORT, **options: object) -> OutgoingMail:
    pieces = Pieces(len(content), lambda: iter((content,)))
    return OutgoingMail(US, HERE, pieces, **options)  # type: ignore[arg-type]


def plain(port: int) -> Relay:
    return Relay("127.0.0.1", port, "never", name="buyer.example")


@dataclass
class Script:
    """A mail server that says what it is told to; at a step that says nothing it hangs up."""

    says: dict[str, bytes | None] = field(default_factory=dict)
    silent_at: str | None = None
    heard: list[str] = field(default_factory=list)
    content: bytes = b""
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        usual = {"greeting": b"220 hi", "EHLO": b"250-hi\r\n250 8BITMIME", "DATA": b"354 go"}
        step = "greeting"
        while True:
            reply = self.says.get(step, usual.get(step, b"250 fine"))
            if reply is None:
                return
            if step == self.silent_at:
                await self.left.wait()
            writer.write(reply + b"\r\n")
            if step == "DATA" and reply.startswith(b"354"):
                self.content = await reader.readuntil(b"\r\n.\r\n")
                step = "."
                continue
            line = (await reader.readuntil(b"\r\n")).decode()
            self.heard.append(line.strip())
            step = line.split()[0].upper()


@asynccontextmanager
async def scripted(script: Script, **options: object) -> AsyncIterator[int]:
    async with talking(script.talk, **options) as url:
        yield int(url.rpartition(":")[2])
        script.left.set()


async def failure_of(client: MailClient, mail: OutgoingMail) -> TransportFailure:
    with pytest.raises(TransportFailure) as failed:
        await client.send(mail)
    return failed.value


# What leaves


@pytest.mark.req("RM001-3.2-01")
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_message_travels_byte_for_byte(loop: str) -> None:
    async def scenario() -> None:
        office = Office()
        parts = [bytes(range(256)) * 2000, b"", b".\r\n..\r\n\r\n.\r\n"]
        attached = [
            WirePart(f"{number}@buyer", "application/octet-stream", BytesContent(part))
            for number, part in enumerate(parts)
        ]
        form = wire_form(SoapVersion.SOAP_11, b"<a/>", attached, "b")
        mail = Mail(form, US, HERE, "ebXML", datetime(2026, 6, 1, tzinfo=UTC), "1@buyer.example")
        async with door_of(office) as door:
            content = Pieces(mail.length, mail.pieces)
            said = await MailClient(plain(door.port)).send(OutgoingMail(US, HERE, content))
        assert said == "2.0.0 stored"
        (came,) = office.mails
        assert (came.kind, came.sender, came.recipients) == ("message", US, (HERE,))
        incoming = Incoming(came.content_type, new_sink=BytesSink)
        incoming.feed(office.bodies[0])
        found = incoming.close()
        assert found.envelope == b"<a/>"
        assert [b"".join(one.content.chunks()) for one in found.attachments] == parts

    run(scenario(), loop)


@in_loop
async def test_lines_that_begin_with_a_dot_arrive_as_they_are() -> None:
    office = Office()
    content = b"Subject: x\r\n\r\n.\r\n..\r\n.a\r\n"
    async with door_of(office) as door:
        await MailClient(plain(door.port)).send(outgoing(content))
    assert office.bodies == [b".\r\n..\r\n.a\r\n"]


@in_loop
async def test_the_server_is_told_the_size_and_the_sender_of_the_envelope() -> None:
    script = Script({"EHLO": b"250-hi\r\n250 SIZE 1000"})
    async with scripted(script) as port:
        await MailClient(plain(port)).send(outgoing())
    assert script.heard == [
        "EHLO buyer.example",
        f"MAIL FROM:<{US}> SIZE={len(SHORT)}",
        f"RCPT TO:<{HERE}>",
        "DATA",
        "QUIT",
    ]
    assert script.content == SHORT + b".\r\n"


class Made:
    """Content that is made while it is read."""

    size = 12 * MIB

    def chunks(self) -> Iterator[bytes]:
        for _ in range(self.size // CHUNK):
            yield bytes(CHUNK)


@in_loop
async def test_a_large_mail_costs_no_more_memory_than_a_piece() -> None:
    received = 0

    async def take(mail: IncomingMail) -> Taken:
        nonlocal received
        async for piece in mail.body:
            received += len(piece)
        return STORED

    parts = [WirePart("1@buyer", "application/octet-stream", Made())]
    form = wire_form(SoapVersion.SOAP_11, b"<a/>", parts, "b")
    mail = Mail(form, US, HERE, "ebXML", datetime(2026, 6, 1, tzinfo=UTC), "1@buyer.example")
    door = MailDoor(take, recipients=[HERE])
    await door.start()
    tracemalloc.start()
    try:
        content = Pieces(mail.length, mail.pieces)
        await MailClient(plain(door.port)).send(OutgoingMail(US, HERE, content))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        await door.stop()
    assert received > 16 * MIB
    assert peak < 6 * MIB


# What comes back


@pytest.mark.parametrize("code", [450, 550])
@pytest.mark.parametrize("step", STEPS)
def test_a_no_is_told_with_its_words_and_nothing_was_transmitted(step: str, code: int) -> None:
    async def scenario() -> None:
        script = Script({step: b"%d-not\r\n%d today" % (code, code)})
        async with scripted(script) as port:
            failure = await failure_of(MailClient(plain(port)), outgoing())
        assert isinstance(failure, MailRefused)
        assert failure.transmitted is False
        assert failure.code == code
        assert f"{code} not today" in failure.reason
        assert f"127.0.0.1:{port}" in failure.reason

    run(scenario())


@pytest.mark.parametrize("step", STEPS)
def test_only_a_connection_cut_after_the_last_dot_leaves_a_doubt(step: str) -> None:
    async def scenario() -> None:
        async with scripted(Script({step: None})) as port:
            failure = await failure_of(MailClient(plain(port)), outgoing())
        assert failure.kind == "closed"
        assert failure.transmitted is (step == ".")

    run(scenario())


@pytest.mark.parametrize("step", STEPS)
def test_only_silence_after_the_last_dot_leaves_a_doubt(step: str) -> None:
    async def scenario() -> None:
        # A step before the last dot may be the one that is too late; the last has to be reached.
        seconds = 1 if step == "." else 0.05
        mail = outgoing(timeouts=Timeouts(connect=seconds, answer=seconds))
        async with scripted(Script(silent_at=step)) as port:
            failure = await failure_of(MailClient(plain(port)), mail)
        assert failure.kind == "timeout"
        assert failure.transmitted is (step == ".")

    run(scenario())


@pytest.mark.parametrize("answer", [b"what?", b"354 go on", b"199 hm"])
def test_an_answer_to_the_mail_that_makes_no_sense_leaves_a_doubt(answer: bytes) -> None:
    async def scenario() -> None:
        async with scripted(Script({".": answer})) as port:
            failure = await failure_of(MailClient(plain(port)), outgoing())
        assert (failure.kind, failure.transmitted) == ("protocol", True)

    run(scenario())


@in_loop
async def test_a_mail_that_was_taken_stays_taken_whatever_comes_after() -> None:
    async with scripted(Script({".": b"250 queued as 7", "QUIT": None})) as port:
        assert await MailClient(plain(port)).send(outgoing()) == "queued as 7"


@in_loop
async def test_all_of_it_may_take_only_so_long() -> None:
    mail = outgoing(timeouts=Timeouts(total=1))
    async with scripted(Script(silent_at=".")) as port:
        failure = await failure_of(MailClient(plain(port)), mail)
    assert (failure.kind, failure.transmitted) == ("timeout", True)


@in_loop
async def test_a_server_that_has_enough_within_a_mail_is_heard_at_once() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hi\r\n")
        for reply in (b"250 hi", b"250 ok", b"250 ok", b"354 go", b"552 too much"):
            await reader.readline()
            writer.write(reply + b"\r\n")
        await gone.wait()

    gone = asyncio.Event()
    async with talking(talk) as url:
        port = int(url.rpartition(":")[2])
        failure = await failure_of(MailClient(plain(port)), outgoing(SHORT + b"a\r\n" * 4_000_000))
        gone.set()
    assert isinstance(failure, MailRefused)
    assert failure.code == 552


@in_loop
async def test_a_server_that_takes_no_more_is_left() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hi\r\n")
        for reply in (b"250 hi", b"250 ok", b"250 ok", b"354 go"):
            await reader.readline()
            writer.write(reply + b"\r\n")
        await gone.wait()

    gone = asyncio.Event()
    mail = outgoing(SHORT + b"a\r\n" * 4_000_000, timeouts=Timeouts(stall=0.05))
    async with talking(talk) as url:
        failure = await failure_of(MailClient(plain(int(url.rpartition(":")[2]))), mail)
        gone.set()
    assert (failure.kind, failure.transmitted) == ("timeout", False)


@in_loop
async def test_a_mail_that_cannot_be_read_to_its_end_is_not_sent() -> None:
    def broken() -> Iterator[bytes]:
        yield SHORT
        raise OSError("the file is gone")

    office = Office()
    async with door_of(office) as door:
        mail = OutgoingMail(US, HERE, Pieces(1000, broken))
        failure = await failure_of(MailClient(plain(door.port)), mail)
    assert (failure.kind, failure.transmitted) == ("body", False)
    assert "the file is gone" in failure.reason
    assert office.bodies == []


# What is not even begun


@in_loop
async def test_a_mail_larger_than_the_server_takes_is_not_even_read() -> None:
    def never() -> Iterator[bytes]:
        raise AssertionError("read")

    office = Office()
    async with door_of(office, limits=MailLimits(message_bytes=MIB)) as door:
        mail = OutgoingMail(US, HERE, Pieces(50 * MIB, never))
        failure = await failure_of(MailClient(plain(door.port)), mail)
    assert isinstance(failure, MailRefused)
    assert failure.code == 552
    assert f"up to {MIB} bytes, and this one has {50 * MIB}" in failure.reason
    assert office.mails == []


@in_loop
async def test_a_recipient_that_the_server_does_not_know_is_refused_for_good() -> None:
    async with door_of(Office()) as door:
        content = Pieces(len(SHORT), lambda: iter((SHORT,)))
        mail = OutgoingMail(US, "other@seller.example", content)
        failure = await failure_of(MailClient(plain(door.port)), mail)
    assert isinstance(failure, MailRefused)
    assert (failure.code, failure.transmitted) == (550, False)


@in_loop
async def test_without_a_relay_no_mail_is_sent_and_it_is_said_why() -> None:
    failure = await failure_of(MailClient(), outgoing())
    assert failure.kind == "address"
    assert "mail.relay" in failure.reason
    assert failure.transmitted is False


@in_loop
async def test_a_mail_goes_to_another_server_where_one_is_named() -> None:
    script = Script()
    async with scripted(script) as port:
        await MailClient().send(outgoing(), plain(port))
    assert script.content


@in_loop
async def test_what_is_no_address_is_not_sent_to() -> None:
    mail = OutgoingMail(US, "a@b\r\nRCPT TO:<c@d>", Pieces(0, lambda: iter(())))
    failure = await failure_of(MailClient(plain(1)), mail)
    assert (failure.kind, failure.transmitted) == ("address", False)


@in_loop
async def test_a_server_that_is_not_there_is_told() -> None:
    failure = await failure_of(MailClient(plain(free_port())), outgoing())
    assert (failure.kind, failure.transmitted) == ("refused", False)


@in_loop
async def test_only_so_many_mails_are_on_their_way_at_once() -> None:
    office = Office(go_on=asyncio.Event())
    async with door_of(office) as door:
        client = MailClient(plain(door.port), parallel=1)
        first = asyncio.ensure_future(client.send(outgoing()))
        await office.reached.wait()
        second = asyncio.ensure_future(client.send(outgoing()))
        await asyncio.sleep(0)
        assert door.connections == 1
        assert office.go_on is not None
        office.go_on.set()
        await asyncio.gather(first, second)
    assert len(office.bodies) == 2


# TLS and login


def secured(files: Files, port: int, starttls: StartTls = "required", **login: str) -> Relay:
    profile = TlsProfile(authorities=(files.authority,))
    return Relay("127.0.0.1", port, starttls, tls=profile, **login)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("starttls", ["required", "opportunistic"])
def test_a_mail_goes_over_tls_with_a_login(files: Files, starttls: StartTls, loop: str) -> None:
    async def scenario() -> None:
        office = Office()
        options = {"tls": server_tls(files), "require_tls": True, "users": {"buyer": "right"}}
        async with door_of(office, **options) as door:
            relay = secured(files, door.port, starttls, username="buyer", password="right")
            await MailClient(relay).send(outgoing())
        assert [mail.user for mail in office.mails] == ["buyer"]

    run(scenario(), loop)


def test_a_wrong_password_is_told_as_the_server_says_it(files: Files) -> None:
    async def scenario() -> None:
        options = {"tls": server_tls(files), "users": {"buyer": "right"}}
        async with door_of(Office(), **options) as door:
            relay = secured(files, door.port, username="buyer", password="wrong")
            failure = await failure_of(MailClient(relay), outgoing())
        assert isinstance(failure, MailRefused)
        assert failure.code == 535
        assert "wrong" not in failure.reason + repr(relay)

    run(scenario())


def test_a_server_without_starttls_gets_no_mail_where_that_is_required(files: Files) -> None:
    async def scenario() -> None:
        script = Script()
        async with scripted(script) as port:
            failure = await failure_of(MailClient(secured(files, port)), outgoing())
        assert (failure.kind, failure.transmitted) == ("tls", False)
        assert "offers no STARTTLS" in failure.reason
        assert [line.split()[0] for line in script.heard] == ["EHLO"]

    run(scenario())


def test_a_password_is_not_sent_in_the_clear(files: Files) -> None:
    async def scenario() -> None:
        script = Script({"EHLO": b"250-hi\r\n250 AUTH PLAIN LOGIN"})
        async with scripted(script) as port:
            relay = secured(files, port, "opportunistic", username="buyer", password="right")
            failure = await failure_of(MailClient(relay), outgoing())
        assert failure.kind == "tls"
        assert [line.split()[0] for line in script.heard] == ["EHLO"]

    run(scenario())


def test_where_starttls_is_not_required_a_mail_goes_without(files: Files) -> None:
    async def scenario() -> None:
        script = Script()
        async with scripted(script) as port:
            await MailClient(secured(files, port, "opportunistic")).send(outgoing())
        assert script.content

    run(scenario())


def test_a_server_with_another_certificate_gets_no_mail(files: Files) -> None:
    async def scenario() -> None:
        office = Office()
        async with door_of(office, tls=server_tls(files)) as door:
            stranger = TlsProfile(authorities=(files.certificate("stranger", files.stranger),))
            relay = Relay("127.0.0.1", door.port, tls=stranger)
            failure = await failure_of(MailClient(relay), outgoing())
        assert (failure.kind, failure.transmitted) == ("tls", False)
        assert office.mails == []

    run(scenario())


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_tls_may_be_spoken_from_the_first_byte(files: Files, loop: str) -> None:
    async def scenario() -> None:
        script = Script()
        path = files.folder / "door.pem"
        path.write_bytes(pki.pem(files.server))
        context: ssl.SSLContext = tls.server_context(ServerTls(path))
        async with scripted(script, ssl=context) as port:
            await MailClient(secured(files, port, "implicit")).send(outgoing())
        assert script.content

    run(scenario(), loop)


def test_a_certificate_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        profile = TlsProfile(authorities=(tmp_path / "none.pem",))
        failure = await failure_of(MailClient(Relay("127.0.0.1", 1, tls=profile)), outgoing())
        assert failure.kind == "tls"
        assert "none.pem" in failure.reason

    run(scenario())
