"""TLS in real handshakes: versions and suites as they are asked for, and bad manners."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from postroad.transport import http_server, tls
from postroad.transport.http_client import HttpClient
from postroad.transport.http_limits import ServerLimits
from postroad.transport.http_outgoing import Outgoing, Pieces
from postroad.transport.http_server import HttpServer
from postroad.transport.tls import TlsError, client_context, server_context
from tests import pki
from tests.transport.handshakes import AES128, FAR_AWAY, Files, refused, reply, secured
from tests.transport.wires import (
    LOOPS,
    PATIENCE,
    Clock,
    Seen,
    in_loop,
    line_to,
    post,
    read_request,
    run,
    talking,
    until,
)

AES256 = "ECDHE-ECDSA-AES256-GCM-SHA384"


async def shaken(server: HttpServer, context: ssl.SSLContext) -> bool:
    """Whether a plain client with this context gets an answer."""
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with line_to(server, ssl=context) as line:
            line.say(post(b"hello"))
            return (await line.hear())[0] == 200
    except (OSError, asyncio.IncompleteReadError):
        return False


def old_context(side: int, version: ssl.TLSVersion, key: Path | None = None) -> ssl.SSLContext:
    """A peer that speaks one version only, however old."""
    context = ssl.SSLContext(side)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    if key is not None:
        context.load_cert_chain(key)
    return context


@asynccontextmanager
async def peer(context: ssl.SSLContext) -> AsyncIterator[str]:
    """A server that is not ours."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.read()

    async with talking(talk, ssl=context) as url:
        yield url


# Versions and suites


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_requests_over_tls_share_a_connection_and_tell_what_protects_them(
    files: Files, loop: str
) -> None:
    async def scenario() -> None:
        app = Seen()
        async with secured(files.of_server(), app) as server, HttpClient() as client:
            for size in (0, 5, 3_000_000):
                body = Pieces(size, lambda size=size: iter([b"x" * size]))
                request = Outgoing(server.url, "a/b", body, tls=files.of_client())
                assert (await client.post(request)).body == b"%d" % size
            assert len({scope["client"] for scope in app.scopes}) == 1
        assert app.scopes[0]["scheme"] == "https"
        assert app.scopes[0]["extensions"]["tls"] == {
            "version": "TLSv1.3",
            "cipher": "TLS_AES_256_GCM_SHA384",
            "bits": 256,
            "client_certificate": None,
        }

    run(scenario(), loop)


@pytest.mark.req("P2-6.4.1-01", "P2-6.4.1-03")
@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize(
    ("values", "version", "suite"),
    [
        ({"version": "1.2", "suites": (AES128,)}, "TLSv1.2", AES128),
        ({"suites": ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)}, "TLSv1.2", AES128),
        ({"suites": (AES128, "TLS_AES_128_GCM_SHA256")}, "TLSv1.2", AES128),
        ({"version": "1.3"}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        ({"suites": tls.TLS13_SUITES}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        ({"suites": (AES128, *tls.TLS13_SUITES)}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        ({"minimum_key_size": 256}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        ({"suites": (AES128, AES256), "minimum_key_size": 256}, "TLSv1.2", AES256),
    ],
    ids=["1.2", "iana", "some-of-1.3", "1.3", "only-1.3", "all-of-1.3", "256", "strong"],
)
def test_as4_cp_ta39_version_and_suites_are_as_configured(
    files: Files, side: str, values: dict[str, Any], version: str, suite: str
) -> None:
    async def scenario() -> None:
        app = Seen()
        settings = files.of_server(**values if side == "server" else {})
        profile = files.of_client(**values if side == "client" else {})
        async with secured(settings, app) as server:
            assert (await reply(server, profile)).status == 200
        facts = app.scopes[0]["extensions"]["tls"]
        assert (facts["version"], facts["cipher"]) == (version, suite)

    run(scenario())


OLD = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", OLD, ids=["1.0", "1.1"])
def test_as4_cp_ta40_old_versions_of_tls_are_refused_by_the_server(
    files: Files, version: ssl.TLSVersion
) -> None:
    async def scenario() -> None:
        app = Seen()
        async with secured(files.of_server(), app) as server:
            assert not await shaken(server, old_context(ssl.PROTOCOL_TLS_CLIENT, version))
            assert app.scopes == []
            good = ssl.TLSVersion.TLSv1_2
            assert await shaken(server, old_context(ssl.PROTOCOL_TLS_CLIENT, good))

    run(scenario())


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", OLD, ids=["1.0", "1.1"])
def test_as4_cp_ta40_old_versions_of_tls_are_refused_by_the_client(
    files: Files, version: ssl.TLSVersion
) -> None:
    key = files.key("server", files.server)

    async def scenario() -> None:
        async with peer(old_context(ssl.PROTOCOL_TLS_SERVER, version, key)) as url:
            found = await refused(url, files.of_client())
            assert not found.transmitted
            assert "TLS handshake" in found.reason
        good = old_context(ssl.PROTOCOL_TLS_SERVER, ssl.TLSVersion.TLSv1_2, key)
        async with peer(good) as url:
            assert (await reply(url, files.of_client())).body == b"ok"

    run(scenario())


SSL2_HELLO = bytes.fromhex(
    "802e0100020015000000100100800200800300800400800500800600400700c0"
) + bytes(16)
SSL3_HELLO = bytes.fromhex("160300002d010000290300") + bytes(32) + bytes.fromhex("000002000a0100")


@pytest.mark.parametrize("hello", [SSL2_HELLO, SSL3_HELLO], ids=["ssl2", "ssl3"])
def test_as4_cp_ta41_ssl_is_refused(files: Files, hello: bytes) -> None:
    async def scenario() -> None:
        app = Seen()
        async with secured(files.of_server(), app) as server:
            async with line_to(server) as line:
                line.say(hello)
                said = await line.closed()
            alert = b"\x15"
            assert said == b"" or said.startswith(alert)
            assert (await reply(server, files.of_client())).status == 200

    run(scenario())


def _only(suite: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(suite)
    return context


@in_loop
async def test_as4_cp_ta42_a_suite_that_is_not_in_the_list_is_refused(files: Files) -> None:
    app = Seen()
    async with secured(files.of_server(suites=(AES128,)), app) as server:
        assert not await shaken(server, _only(AES256))
        found = await refused(server, files.of_client(suites=(AES256,)))
        assert not found.transmitted
        assert not await shaken(server, old_context(ssl.PROTOCOL_TLS_CLIENT, tls._VERSIONS["1.3"]))
        assert app.scopes == []


@in_loop
async def test_as4_cp_ta43_a_suite_in_the_list_is_accepted(files: Files) -> None:
    app = Seen()
    async with secured(files.of_server(suites=(AES128, AES256)), app) as server:
        for suite in (AES128, AES256):
            assert await shaken(server, _only(suite))
            assert (await reply(server, files.of_client(suites=(suite,)))).status == 200
    assert [scope["extensions"]["tls"]["cipher"] for scope in app.scopes] == [
        AES128,
        AES128,
        AES256,
        AES256,
    ]


@in_loop
async def test_suites_without_forward_secrecy_need_to_be_asked_for(files: Files) -> None:
    files.server = pki.issue(files.ca, "rsa", key="rsa", not_after=FAR_AWAY, usage=None)
    mandatory = "TLS_RSA_WITH_AES_128_CBC_SHA"
    app = Seen()
    async with secured(files.of_server(), app) as server:
        assert not await shaken(server, _only("AES128-SHA:@SECLEVEL=0"))
    async with secured(files.of_server(suites=(mandatory,)), app) as server:
        assert await shaken(server, _only("AES128-SHA:@SECLEVEL=0"))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"suites": ("TLS_AES_128_GCM_SHA256",)}, "TLS_AES_256_GCM_SHA384 is not one of those"),
        ({"suites": (AES128,)}, None),
    ],
)
def test_what_the_server_chose_against_the_list_is_refused_by_the_client(
    files: Files, values: dict[str, Any], reason: str | None
) -> None:
    async def scenario() -> None:
        app = Seen()
        async with secured(files.of_server(version="1.3"), app) as server:
            found = await refused(server, files.of_client(**values))
            assert not found.transmitted
            assert reason is None or reason in found.reason
            assert app.scopes == []

    run(scenario())


@in_loop
async def test_what_a_client_chose_against_the_list_is_refused_by_the_server(files: Files) -> None:
    """A list of some suites of TLS 1.3 cannot be told to OpenSSL, and is kept all the same."""
    app = Seen()
    async with secured(files.of_server(suites=("TLS_AES_128_GCM_SHA256",)), app) as server:
        assert not await shaken(server, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        assert app.scopes == []
        await until(lambda: server.connections == 0)


@pytest.mark.parametrize(("bits", "good"), [(128, True), (129, False)])
def test_the_size_of_the_key_is_looked_at_after_the_handshake(bits: int, good: bool) -> None:
    class Shaken:
        context = tls.TlsContext(ssl.PROTOCOL_TLS_CLIENT)

        def cipher(self) -> tuple[str, str, int]:
            return "TLS_AES_128_GCM_SHA256", "TLSv1.3", 128

    Shaken.context.minimum_bits = bits
    assert (tls.refusal(Shaken()) is None) is good  # type: ignore[arg-type]


@in_loop
async def test_a_key_that_is_too_small_is_refused_on_both_sides(files: Files) -> None:
    app = Seen()
    async with secured(files.of_server(suites=(AES128,)), app) as server:
        assert not (await refused(server, files.of_client(minimum_key_size=256))).transmitted
    async with secured(files.of_server(minimum_key_size=256), app) as server:
        assert not (await refused(server, files.of_client(suites=(AES128,)))).transmitted
    assert app.scopes == []


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"suites": ("TLS_FOO",)}, "the cipher suite 'TLS_FOO' is not known here"),
        ({"suites": ("ALL",)}, "the cipher suite 'ALL' is not known here"),
        ({"suites": ("TLS_RSA_WITH_NULL_SHA",)}, "TLS_RSA_WITH_NULL_SHA"),
        ({"suites": ("ADH-AES128-SHA",)}, "protects nothing"),
        ({"suites": (AES128,), "version": "1.3"}, f"{AES128} is of TLS 1.2, and 1.3 is the least"),
        ({"suites": (AES128,), "minimum_key_size": 256}, "has keys of 256 bits"),
        ({"minimum_key_size": 512}, "has keys of 512 bits"),
    ],
    ids=["unknown", "no-suite", "null", "anonymous", "too-old", "too-weak", "too-much"],
)
def test_suites_that_cannot_be_are_told_by_name(
    files: Files, values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(TlsError) as caught:
        server_context(files.of_server(**values))
    assert reason in str(caught.value)
    with pytest.raises(TlsError):
        client_context(files.of_client(**values))


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ECDHE-ECDSA-AES128-CCM8"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    ],
)
def test_a_suite_has_two_names(iana: str, openssl: str) -> None:
    assert tls._openssl_name(iana) == tls._openssl_name(openssl) == openssl


# Bad manners


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_handshakes_that_never_end_count_and_are_ended(files: Files, loop: str) -> None:
    async def scenario() -> None:
        clock = Clock()
        limits = ServerLimits(connections=3)
        settings = files.of_server()
        async with secured(settings, Seen(), limits=limits, clock=clock) as server:
            async with line_to(server) as silent, line_to(server) as rubbish:
                await until(lambda: server.connections == 2)
                assert (await reply(server, files.of_client())).status == 200
                await until(lambda: server.connections == 2)
                rubbish.say(post(b"this is no TLS"))
                await rubbish.closed()
                clock.now += limits.header_seconds + 1
                server.sweep()
                assert await silent.closed() == b""
            await until(lambda: server.connections == 0)
            assert (await reply(server, files.of_client())).status == 200

    run(scenario(), loop)


@in_loop
async def test_a_request_over_tls_is_finished_while_draining(files: Files) -> None:
    app = Seen()
    async with secured(files.of_server(), app) as server:
        context = client_context(files.of_client())
        async with line_to(server, ssl=context) as line, line_to(server):
            line.say(post(b"hello")[:-1])
            await app.until(lambda seen: len(seen.scopes) == 1)
            draining = asyncio.create_task(server.drain(timeout=60))
            await asyncio.sleep(0)
            line.say(b"o")
            status, head, _ = await line.hear()
            assert status == 200
            assert b"connection: close\r\n" in head
            await draining


@pytest.mark.parametrize("loop", LOOPS)
def test_who_waits_to_shake_hands_is_served_before_the_server_is_gone(
    files: Files, loop: str
) -> None:
    async def scenario() -> None:
        context = client_context(files.of_client())
        async with secured(files.of_server(), Seen()) as server:
            address = (server.host, server.port)
            clients = [socket.create_connection(address, PATIENCE) for _ in range(5)]
            draining = asyncio.create_task(server.drain(timeout=60))
            asked = (asyncio.to_thread(_asked, context, one, server.host) for one in clients)
            for answer in await asyncio.gather(*asked):
                assert answer.startswith(b"HTTP/1.1 200 ")
            await draining
            assert server.connections == 0

    run(scenario(), loop)


@in_loop
async def test_handshakes_that_stand_still_are_not_waited_for(files: Files) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "LAST_CALL", 3600.0)
        limits = ServerLimits(header_seconds=7200)
        async with (
            secured(files.of_server(), Seen(), limits=limits, clock=clock) as server,
            line_to(server) as silent,
        ):
            await until(lambda: server.connections == 1)
            clock.now += 3600
            await server.drain(timeout=3600)
            assert await silent.closed() == b""


@in_loop
async def test_who_took_long_to_shake_hands_may_still_begin_a_request(files: Files) -> None:
    clock = Clock()
    limits = ServerLimits(header_seconds=7200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "LAST_CALL", 3600.0)
        async with secured(files.of_server(), Seen(), limits=limits, clock=clock) as server:
            client = socket.create_connection((server.host, server.port), PATIENCE)
            await until(lambda: server.connections == 1)
            clock.now += 3600
            context = client_context(files.of_client())
            secret = await asyncio.to_thread(
                context.wrap_socket, client, server_hostname=server.host
            )
            await until(lambda: len(server._state.open) == 1)
            draining = asyncio.create_task(server.drain(timeout=60))
            await until(lambda: server._state.draining)
            with secret:
                await asyncio.to_thread(secret.sendall, post(b"hello"))
                assert await asyncio.to_thread(secret.recv, 12) == b"HTTP/1.1 200"
            await draining


def _asked(context: ssl.SSLContext, client: socket.socket, host: str) -> bytes:
    with context.wrap_socket(client, server_hostname=host) as secret:
        secret.sendall(post(b"hello"))
        return b"".join(iter(lambda: secret.recv(65536), b""))
