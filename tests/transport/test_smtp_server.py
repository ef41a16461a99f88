"""The door for mail, spoken to over real sockets: what it takes, what it refuses, what it keeps."""

import asyncio
import base64
import logging
import ssl
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from postroad.transport.admission import AddressRules
from postroad.transport.http_body import TooLarge, Truncated
from postroad.transport.incidents import Incidents
from postroad.transport.smtp_server import (
    COME_AGAIN,
    STORED,
    IncomingMail,
    MailDoor,
    MailLimits,
    Taken,
    read_users,
)
from postroad.wire.errors import EbmsError
from postroad.wire.limits import KIB, MIB
from tests import pki
from tests.transport.handshakes import Files
from tests.transport.mail_office import HERE, Office, door_of, server_tls
from tests.transport.wires import in_loop, run, until

HEAD = b"MIME-Version: 1.0\r\nContent-Type: text/xml\r\nSubject: x\r\n\r\n"


class Caller:
    """A client that says lines and hears codes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def hear(self) -> tuple[int, str]:
        """One answer: its code and all of its text."""
        text = ""
        while True:
            line = (await self.reader.readuntil(b"\r\n")).decode()
            text += line[4:]
            if line[3] != "-":
                return int(line[:3]), text

    async def ask(self, line: str) -> int:
        self.writer.write(line.encode() + b"\r\n")
        return (await self.hear())[0]

    async def envelope(self, to: str = HERE, sender: str = "msh@buyer.example") -> int:
        """Up to DATA."""
        for line in ("EHLO buyer.example", f"MAIL FROM:<{sender}>", f"RCPT TO:<{to}>"):
            assert await self.ask(line) == 250
        return await self.ask("DATA")

    async def send(self, content: bytes) -> tuple[int, str]:
        self.writer.write(content + b"\r\n.\r\n")
        return await self.hear()

    async def starttls(self, context: ssl.SSLContext) -> None:
        assert await self.ask("STARTTLS") == 220
        await self.writer.start_tls(context, server_hostname="localhost")

    def hang_up(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def calling(
    door: MailDoor, greeting: int = 220, address: str = "127.0.0.1"
) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_connection(door.host, door.port, local_addr=(address, 0))
    caller = Caller(reader, writer)
    try:
        assert (await caller.hear())[0] == greeting
        yield caller
    finally:
        caller.hang_up()


def client_tls(files: Files) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(cadata=pki.pem_certificates(files.ca.certificate).decode())
    return context


# What is taken


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_mail_is_handed_on_with_all_that_is_known_of_it(loop: str) -> None:
    async def scenario() -> None:
        office = Office()
        async with door_of(office) as door, calling(door) as caller:
            await caller.envelope()
            assert (await caller.send(HEAD + b"<a/>"))[0] == 250
        (mail,) = office.mails
        assert (mail.sender, mail.recipients) == ("msh@buyer.example", (HERE,))
        assert (mail.kind, mail.content_type, mail.peer) == ("message", "text/xml", "127.0.0.1")
        assert mail.head.get("subject") == "x"
        assert office.bodies == [b"<a/>\r\n"]

    run(scenario(), loop)


@in_loop
async def test_a_body_in_base64_is_decoded() -> None:
    office = Office()
    head = HEAD.replace(b"Subject: x", b"Content-Transfer-Encoding: base64")
    async with door_of(office) as door, calling(door) as caller:
        await caller.envelope()
        await caller.send(head + base64.encodebytes(bytes(range(256))).replace(b"\n", b"\r\n"))
    assert office.bodies == [bytes(range(256))]


@pytest.mark.req("RM001-3.2-01")
@in_loop
async def test_each_mail_of_a_connection_is_a_transaction_of_its_own() -> None:
    office = Office()
    async with door_of(office) as door, calling(door) as caller:
        await caller.envelope()
        await caller.send(HEAD + b"one")
        await caller.envelope(sender="other@buyer.example")
        await caller.send(HEAD + b"two")
    assert office.bodies == [b"one\r\n", b"two\r\n"]
    assert [mail.sender for mail in office.mails] == ["msh@buyer.example", "other@buyer.example"]


@in_loop
async def test_what_a_hasty_client_says_after_its_mail_is_heard() -> None:
    office = Office()
    async with door_of(office) as door, calling(door) as caller:
        await caller.envelope()
        caller.writer.write(HEAD + b"one\r\n.\r\nNOOP\r\nRSET\r\n")
        assert [(await caller.hear())[0] for _ in range(3)] == [250, 250, 250]
    assert office.bodies == [b"one\r\n"]


@in_loop
async def test_dots_at_the_beginning_of_lines_are_taken_off() -> None:
    office = Office()
    async with door_of(office) as door, calling(door) as caller:
        await caller.envelope()
        await caller.send(HEAD + b"..\r\n..a\r\n.b")
    assert office.bodies == [b".\r\n.a\r\nb\r\n"]


@pytest.mark.parametrize("end", [b"\n.\r\n", b"\r\n.\n", b"\n.\n", b"\r.\r", b"\r\n.\r"])
def test_only_a_dot_between_whole_line_ends_ends_a_mail(end: bytes) -> None:
    """Else a second mail could be smuggled in behind it."""

    async def scenario() -> None:
        office = Office()
        hidden = end + b"MAIL FROM:<evil@buyer.example>\r\n"
        async with door_of(office) as door, calling(door) as caller:
            await caller.envelope()
            await caller.send(HEAD + b"a" + hidden + b"b")
        assert len(office.mails) == 1
        assert b"evil@buyer.example" in office.bodies[0]

    run(scenario())


@in_loop
async def test_a_bounce_is_known_by_its_empty_sender() -> None:
    office = Office()
    async with door_of(office) as door, calling(door) as caller:
        await caller.envelope(sender="")
        assert (await caller.send(HEAD + b"<a/>"))[0] == 250
    assert [(mail.sender, mail.kind) for mail in office.mails] == [("", "bounce")]


@in_loop
async def test_a_mail_that_nobody_reads_is_answered_all_the_same() -> None:
    async def take(_mail: IncomingMail) -> Taken:
        return Taken(554, "no message of ours")

    async with door_of(Office()) as door, calling(door) as caller:
        door.take = take
        await caller.envelope()
        assert (await caller.send(HEAD + b"a\r\n" * 100_000))[0] == 554
        assert await caller.ask("NOOP") == 250


# What is answered, and when


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (STORED, 250, "stored"),
        (COME_AGAIN, 451, "come again"),
        (Taken(554, "not\r\nours: é"), 554, "not ours: ?"),
        (Taken(552, "too much"), 552, "too much"),
        (EbmsError("EBMS:0007", "no boundary"), 554, "no boundary"),
        (RuntimeError("the disk is full"), 451, "come again"),
    ],
)
def test_what_becomes_of_a_mail_is_its_answer(
    answer: Taken | Exception, code: int, said: str
) -> None:
    async def scenario() -> None:
        async with door_of(Office(answer)) as door, calling(door) as caller:
            await caller.envelope()
            heard = await caller.send(HEAD + b"<a/>")
            assert heard[0] == code
            assert said in heard[1]
            assert "disk" not in heard[1]

    run(scenario())


@in_loop
async def test_a_mail_is_answered_only_after_it_is_stored() -> None:
    office = Office(go_on=asyncio.Event())
    async with door_of(office) as door, calling(door) as caller:
        await caller.envelope()
        answer = asyncio.ensure_future(caller.send(HEAD + b"<a/>"))
        await office.reached.wait()
        assert office.go_on is not None
        assert not answer.done()
        assert office.bodies == []
        office.go_on.set()
        assert (await answer)[0] == 250
        assert office.bodies == [b"<a/>\r\n"]


@in_loop
async def test_a_client_that_goes_away_after_its_last_dot_has_handed_its_mail_over() -> None:
    office = Office(go_on=asyncio.Event())
    async with door_of(office) as door, calling(door) as caller:
        await caller.envelope()
        caller.writer.write(HEAD + b"<a/>\r\n.\r\n")
        await office.reached.wait()
        caller.hang_up()
        await until(lambda: door.connections == 0)
        assert office.go_on is not None
        office.go_on.set()
        await until(lambda: not door.taking)
    assert office.bodies == [b"<a/>\r\n"]


@pytest.mark.parametrize("content", [HEAD[:20], HEAD + b"<a", HEAD + b"<a/>\r\n.\r"])
def test_a_client_that_goes_away_before_leaves_nothing_behind(content: bytes) -> None:
    async def scenario() -> None:
        office = Office()
        async with door_of(office) as door, calling(door) as caller:
            await caller.envelope()
            caller.writer.write(content)
            await caller.writer.drain()
            caller.writer.close()
            await until(lambda: door.connections == 0 and not door.taking)
        assert office.bodies == []
        assert all(isinstance(error, Truncated) for error in office.errors)

    run(scenario())


# What is refused


@in_loop
async def test_mail_for_others_is_refused() -> None:
    async with door_of(Office()) as door, calling(door) as caller:
        await caller.ask("EHLO x")
        await caller.ask("MAIL FROM:<a@b.example>")
        assert await caller.ask("RCPT TO:<other@seller.example>") == 550
        assert await caller.ask("DATA") == 503
        assert await caller.ask("RCPT TO:<MSH@Seller.Example>") == 250


@in_loop
async def test_a_sender_with_control_characters_is_refused() -> None:
    async with door_of(Office()) as door, calling(door) as caller:
        await caller.ask("EHLO x")
        for sender in ("a@\0x", "a\x07@x", "a@x\x1b[2J"):
            assert await caller.ask(f"MAIL FROM:<{sender}>") == 501, sender
        assert await caller.ask("MAIL FROM:<a@x>") == 250


@in_loop
async def test_there_is_an_end_to_recipients() -> None:
    async with (
        door_of(Office(), limits=MailLimits(recipients=2)) as door,
        calling(door) as caller,
    ):
        await caller.ask("EHLO x")
        await caller.ask("MAIL FROM:<a@b.example>")
        codes = [await caller.ask(f"RCPT TO:<{HERE}>") for _ in range(3)]
        assert codes == [250, 250, 452]


@in_loop
async def test_a_mail_that_says_it_is_too_large_is_refused_before_it_comes() -> None:
    office = Office()
    async with (
        door_of(office, limits=MailLimits(message_bytes=MIB)) as door,
        calling(door) as caller,
    ):
        caller.writer.write(b"EHLO x\r\n")
        assert f"SIZE {MIB}\r\n" in (await caller.hear())[1]
        assert await caller.ask(f"MAIL FROM:<a@b.example> SIZE={50 * MIB}") == 552
        assert await caller.ask(f"MAIL FROM:<a@b.example> SIZE={MIB}") == 250
    assert office.mails == []


@in_loop
async def test_a_mail_that_turns_out_too_large_is_refused_and_not_kept() -> None:
    office = Office()
    limits = MailLimits(message_bytes=64 * KIB)
    async with door_of(office, limits=limits) as door, calling(door) as caller:
        await caller.envelope()
        heard = await caller.send(HEAD + b"a" * 70 + b"\r\n" + b"b" * 60_000 + b"\r\nc" * 9000)
        assert heard == (552, "5.3.4 " + str(TooLarge(64 * KIB)) + "\r\n")
        assert await caller.ask("NOOP") == 250
    assert office.bodies == []
    assert isinstance(office.errors[0], TooLarge)


@in_loop
async def test_a_mail_that_is_too_large_is_refused_for_that_whatever_else_is_said() -> None:
    async def take(mail: IncomingMail) -> Taken:
        with pytest.raises(TooLarge):
            [piece async for piece in mail.body]
        return COME_AGAIN

    async with door_of(Office(), limits=MailLimits(message_bytes=KIB)) as door:
        door.take = take
        async with calling(door) as caller:
            await caller.envelope()
            assert (await caller.send(HEAD + b"a\r\n" * KIB))[0] == 552


@in_loop
async def test_a_large_mail_costs_no_more_memory_than_a_piece() -> None:
    received = 0

    async def take(mail: IncomingMail) -> Taken:
        nonlocal received
        async for piece in mail.body:
            received += len(piece)
        return STORED

    line = b"x" * 76 + b"\r\n"
    block = line * 3000
    async with door_of(Office()) as door, calling(door) as caller:
        door.take = take
        await caller.envelope()
        caller.writer.write(HEAD)
        tracemalloc.start()
        try:
            for _ in range(90):
                caller.writer.write(block)
                await caller.writer.drain()
            assert (await caller.send(b""))[0] == 250
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert received > 20_000_000
    assert peak < 6 * MIB


@in_loop
async def test_a_line_without_end_is_refused() -> None:
    office = Office()
    async with (
        door_of(office, limits=MailLimits(line_bytes=2000)) as door,
        calling(door) as caller,
    ):
        await caller.envelope()
        assert (await caller.send(HEAD + b"a" * 1999))[0] == 250
        await caller.envelope()
        heard = await caller.send(HEAD + b"a" * 3000)
        assert heard == (554, "5.6.0 a line of the mail is longer than 2000 bytes\r\n")
    assert len(office.bodies) == 1


@in_loop
async def test_what_is_no_mail_is_refused() -> None:
    office = Office()
    async with door_of(office) as door, calling(door) as caller:
        await caller.envelope()
        assert (await caller.send(b"this is no header\r\n\r\n"))[0] == 554
    assert office.mails == []


@in_loop
async def test_a_connection_too_many_is_told_to_come_again_where_all_bring_mail() -> None:
    async with door_of(Office(), limits=MailLimits(connections=1)) as door:
        async with calling(door) as first:
            assert await first.envelope() == 354
            async with calling(door, greeting=421) as second:
                second.writer.write(b"EHLO x\r\n")
                assert await second.reader.read() == b""
            assert (await first.send(HEAD + b"<a/>"))[0] == 250
            async with calling(door) as third:
                assert await first.reader.read() == b""
                assert await third.ask("NOOP") == 250
        await until(lambda: door.connections == 0)


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_no_address_takes_all_connections(files: Files, secured: bool) -> None:
    async def scenario() -> None:
        limits = MailLimits(
            connections=6, connections_per_address=2, address_rules=AddressRules(exempt=())
        )
        counted = Counter[str]()
        incidents = Incidents(
            logging.getLogger("postroad.mail"), lambda reason: counted.update([reason])
        )
        tls = server_tls(files) if secured else None
        async with (
            door_of(Office(), limits=limits, tls=tls, incidents=incidents) as door,
            AsyncExitStack() as crowd,
        ):
            for number in range(40):
                address = "127.0.0.2" if number < 20 else f"127.0.1.{number}"
                caller = await crowd.enter_async_context(calling(door, address=address))
                if secured:
                    # The handshake is never begun.
                    assert await caller.ask("STARTTLS") == 220
            for address in ("127.0.0.1", "127.0.0.3"):
                async with calling(door, address=address) as good:
                    if secured:
                        await good.starttls(client_tls(files))
                    assert await good.envelope() == 354
                    assert (await good.send(HEAD + b"<a/>"))[0] == 250
            assert door.connections <= 6
            assert (counted["evicted_address"], counted["evicted_total"]) == (18, 18)

    run(scenario())


@in_loop
async def test_a_client_that_says_nothing_is_left() -> None:
    async with door_of(Office(), limits=MailLimits(seconds=0.05)) as door, calling(door) as caller:
        assert await caller.reader.read() == b""
        await until(lambda: door.connections == 0)


@in_loop
async def test_a_client_that_stops_within_its_mail_is_left() -> None:
    office = Office()
    async with door_of(office, limits=MailLimits(seconds=0.5)) as door, calling(door) as caller:
        await caller.envelope()
        caller.writer.write(HEAD + b"<a")
        assert await caller.reader.read() == b""
        await until(lambda: not door.taking)
    assert isinstance(office.errors[0], Truncated)


# TLS and login


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_mail_is_taken_over_tls_only_where_that_is_asked(files: Files, loop: str) -> None:
    async def scenario() -> None:
        office = Office()
        options = {"tls": server_tls(files), "require_tls": True}
        async with door_of(office, **options) as door, calling(door) as caller:
            assert await caller.ask("EHLO x") == 250
            assert await caller.ask("MAIL FROM:<a@b.example>") == 530
            await caller.starttls(client_tls(files))
            assert await caller.envelope() == 354
            assert (await caller.send(HEAD + b"<a/>"))[0] == 250
        assert office.bodies == [b"<a/>\r\n"]

    run(scenario(), loop)


def test_what_was_said_before_tls_is_forgotten(files: Files) -> None:
    """A stranger on the way could have said it."""

    async def scenario() -> None:
        async with door_of(Office(), tls=server_tls(files)) as door, calling(door) as caller:
            await caller.ask("EHLO x")
            await caller.ask("MAIL FROM:<a@b.example>")
            await caller.starttls(client_tls(files))
            assert await caller.ask(f"RCPT TO:<{HERE}>") == 503

    run(scenario())


@pytest.mark.parametrize("secured", [False, True])
def test_nothing_is_obeyed_after_too_many_commands(
    files: Files, caplog: pytest.LogCaptureFixture, secured: bool
) -> None:
    """The connection is closed then, whatever was sent at once with them."""
    office = Office()
    mail = (
        f"MAIL FROM:<a@b.example>\r\nRCPT TO:<{HERE}>\r\nDATA\r\n".encode()
        + HEAD
        + b"<a/>\r\n.\r\n"
    )

    async def scenario() -> None:
        async with door_of(office, tls=server_tls(files)) as door, calling(door) as caller:
            await caller.ask("EHLO x")
            if secured:
                await caller.starttls(client_tls(files))
                await caller.ask("EHLO x")
            caller.writer.write(b"NOOP\r\n" * 1005 + mail)
            replies = (await caller.reader.read()).splitlines()
            assert replies[999].startswith(b"250")
            assert [one[:3] for one in replies[1000:]] == [b"421"]
            await until(lambda: door.connections == 0)

    run(scenario())
    assert not office.mails
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@in_loop
async def test_without_a_certificate_there_is_no_tls() -> None:
    async with door_of(Office()) as door, calling(door) as caller:
        caller.writer.write(b"EHLO x\r\n")
        said = (await caller.hear())[1]
        assert "STARTTLS" not in said
        assert "AUTH" not in said
        assert await caller.ask("STARTTLS") == 454


def test_a_cipher_that_was_not_agreed_on_is_refused(files: Files) -> None:
    async def scenario() -> None:
        context = server_tls(files, suites=("TLS_AES_256_GCM_SHA384",))
        theirs = client_tls(files)
        async with door_of(Office(), tls=context) as door, calling(door) as caller:
            await caller.ask("EHLO x")
            context.allowed = frozenset(("TLS_CHACHA20_POLY1305_SHA256",))  # type: ignore[attr-defined]
            await caller.starttls(theirs)
            assert await caller.ask("EHLO x") == 554

    run(scenario())


def test_a_client_shows_its_certificate(files: Files) -> None:
    async def scenario() -> None:
        office = Office()
        context = server_tls(files, client_certificates="required", authorities=(files.authority,))
        theirs = client_tls(files)
        pair = files.folder / "client.pem"
        pair.write_bytes(pki.pem(files.client))
        theirs.load_cert_chain(pair)
        async with door_of(office, tls=context) as door, calling(door) as caller:
            await caller.ask("EHLO x")
            await caller.starttls(theirs)
            await caller.envelope()
            await caller.send(HEAD + b"<a/>")
        shown = office.mails[0].client_certificate
        assert shown == files.client.certificate.public_bytes(Encoding.DER)

    run(scenario())


def plain(name: str, password: str) -> str:
    return "AUTH PLAIN " + base64.b64encode(f"\0{name}\0{password}".encode()).decode()


def test_who_has_to_log_in_is_heard_only_then(files: Files) -> None:
    async def scenario() -> None:
        office = Office()
        options = {"tls": server_tls(files), "users": {"buyer": "right"}}
        async with door_of(office, **options) as door, calling(door) as caller:
            await caller.ask("EHLO x")
            assert await caller.ask(plain("buyer", "right")) == 538
            await caller.starttls(client_tls(files))
            caller.writer.write(b"EHLO x\r\n")
            assert "AUTH LOGIN PLAIN" in (await caller.hear())[1]
            assert await caller.ask("MAIL FROM:<a@b.example>") == 530
            assert await caller.ask(plain("buyer", "wrong")) == 535
            assert await caller.ask(plain("other", "right")) == 535
            assert await caller.ask(plain("buyer", "right")) == 235
            await caller.envelope()
            await caller.send(HEAD + b"<a/>")
        assert office.mails[0].user == "buyer"

    run(scenario())


def test_passwords_cannot_be_tried_for_ever(files: Files) -> None:
    async def scenario() -> None:
        options = {"tls": server_tls(files), "users": {"buyer": "right"}}
        async with door_of(Office(), **options) as door, calling(door) as caller:
            await caller.ask("EHLO x")
            await caller.starttls(client_tls(files))
            await caller.ask("EHLO x")
            codes = [await caller.ask(plain("buyer", "wrong")) for _ in range(6)]
            assert codes == [535] * 5 + [421]

    run(scenario())


def test_a_login_needs_tls() -> None:
    with pytest.raises(ValueError, match="needs TLS"):
        MailDoor(Office().take, recipients=[HERE], users={"a": "b"})


def test_users_are_lines_with_name_and_password() -> None:
    assert read_users("# who\n\na:b:c\n d :e\r\n") == {"a": "b:c", "d": "e"}


@pytest.mark.parametrize("text", ["", "# nobody\n", "a\n", "a:\n", ":b\n", "a:b\na:c\n"])
def test_a_list_of_users_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_users(text)


# Beginning and end


@in_loop
async def test_a_port_that_is_taken_is_told() -> None:
    async with door_of(Office()) as door:
        other = MailDoor(Office().take, recipients=[HERE], port=door.port)
        with pytest.raises(OSError):
            await other.start()


@in_loop
async def test_the_end_waits_for_a_mail_that_is_coming() -> None:
    office = Office(go_on=asyncio.Event())
    async with door_of(office) as door, calling(door) as caller, calling(door) as idle:
        await caller.envelope()
        answer = asyncio.ensure_future(caller.send(HEAD + b"<a/>"))
        await office.reached.wait()
        end = asyncio.ensure_future(door.stop(timeout=15))
        assert (await idle.hear())[0] == 421
        assert office.go_on is not None
        office.go_on.set()
        assert (await answer)[0] == 250
        assert (await caller.hear())[0] == 421
        await end
        with pytest.raises(OSError):
            await asyncio.open_connection(door.host, door.port)
    assert office.bodies == [b"<a/>\r\n"]


@in_loop
async def test_the_end_does_not_wait_for_ever() -> None:
    office = Office(go_on=asyncio.Event())
    async with door_of(office) as door, calling(door) as caller:
        await caller.envelope()
        caller.writer.write(HEAD + b"<a/>\r\n.\r\n")
        await office.reached.wait()
        await door.stop(timeout=0.01)
        assert not door.taking
    assert office.bodies == []
