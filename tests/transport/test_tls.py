"""TLS as P-Modes and the node's config ask for it, shown with real handshakes."""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from postroad.agreement.pmode import TransportIdentity, TransportSecurity
from postroad.security.keys import KeyPair
from postroad.transport import tls
from postroad.transport.http_client import HttpClient
from postroad.transport.http_limits import ServerLimits
from postroad.transport.http_outgoing import Outgoing, Pieces, Reply, TransportFailure
from postroad.transport.http_server import HttpServer
from postroad.transport.tls import (
    ServerTls,
    TlsError,
    TlsProfile,
    client_context,
    profile_from_pmode,
    server_context,
)
from tests import pki
from tests.changing import replace
from tests.transport.wires import (
    Clock,
    Seen,
    in_loop,
    line_to,
    post,
    read_request,
    run,
    serving,
    talking,
    until,
)

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
FAR_AWAY = datetime(2090, 1, 1, tzinfo=UTC)
AES128 = "ECDHE-ECDSA-AES128-GCM-SHA256"
AES256 = "ECDHE-ECDSA-AES256-GCM-SHA384"


def authority(name: str) -> KeyPair:
    return pki.authority(name, not_before=LONG_AGO, not_after=FAR_AWAY)


def issued(ca: KeyPair | None, name: str, *hosts: str, until: datetime = FAR_AWAY) -> KeyPair:
    names: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        for host in hosts
    ]
    extensions = ((x509.SubjectAlternativeName(names), False),) if names else ()
    return pki.issue(
        ca, name, not_before=LONG_AGO, not_after=until, extensions=extensions, usage=None
    )


class Files:
    """Certificates and keys in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = authority("TLS CA")
        self.stranger = authority("Another CA")
        self.server = issued(self.ca, "server", "127.0.0.1", "localhost")
        self.client = issued(self.ca, "client")
        self.authority = self.certificate("ca", self.ca)

    def write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def certificate(self, name: str, pair: KeyPair) -> Path:
        return self.write(f"{name}.crt", pki.pem_certificates(pair.certificate))

    def key(self, name: str, pair: KeyPair) -> Path:
        return self.write(f"{name}.pem", pki.pem(pair))

    def of_server(self, **values: Any) -> ServerTls:
        values = {"key_file": self.key("server", self.server)} | values
        return ServerTls(**values)

    def of_client(self, **values: Any) -> TlsProfile:
        values = {"authorities": (self.authority,)} | values
        return TlsProfile(**values)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@asynccontextmanager
async def secured(settings: ServerTls, app: Seen, **options: Any) -> AsyncIterator[HttpServer]:
    async with serving(app, ssl=server_context(settings), **options) as server:
        assert server.url.startswith("https://")
        yield server


async def reply(server: HttpServer | str, profile: TlsProfile, body: Any = b"hello") -> Reply:
    url = server if isinstance(server, str) else server.url
    async with HttpClient() as client:
        return await client.post(Outgoing(url, "a/b", body, tls=profile))


async def refused(server: HttpServer | str, profile: TlsProfile) -> TransportFailure:
    with pytest.raises(TransportFailure) as caught:
        await reply(server, profile)
    assert caught.value.kind == "tls"
    return caught.value


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


# Who the server is


@pytest.mark.req("P2-6.4.1-05")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda f: issued(f.stranger, "server", "127.0.0.1"),
            "self-signed certificate in certificate chain",
        ),
        (lambda f: issued(None, "server", "127.0.0.1"), "self-signed certificate"),
        (lambda f: issued(f.ca, "server", "example.org"), "IP address mismatch"),
        (lambda f: issued(f.ca, "server", "127.0.0.1", until=pki.NOW - 2 * pki.YEAR), "expired"),
    ],
    ids=["stranger", "self-signed", "other-host", "expired"],
)
def test_a_server_that_cannot_be_trusted_gets_nothing(
    files: Files, change: Callable[[Files], KeyPair], reason: str
) -> None:
    files.server = change(files)

    async def scenario() -> None:
        app = Seen()
        async with secured(files.of_server(), app) as server:
            found = await refused(server, files.of_client())
            assert found.reason.startswith(
                f"certificate of 127.0.0.1:{server.port} is not trusted: "
            )
            assert reason in found.reason
            assert not found.transmitted
            assert app.scopes == []

    run(scenario())


@in_loop
async def test_without_authorities_those_of_the_system_are_asked(files: Files) -> None:
    async with secured(files.of_server(), Seen()) as server:
        assert "is not trusted" in (await refused(server, TlsProfile())).reason
        assert "is not trusted" in (await refused(server, None)).reason  # type: ignore[arg-type]


@in_loop
async def test_the_name_of_the_host_is_checked_and_not_its_address(files: Files) -> None:
    files.server = issued(files.ca, "named", "localhost")
    async with secured(files.of_server(), Seen()) as server:
        assert (await reply(f"https://localhost:{server.port}", files.of_client())).status == 200
        await refused(server, files.of_client())


@in_loop
async def test_a_pinned_certificate_is_trusted_for_itself_and_no_other_is(files: Files) -> None:
    files.server = issued(None, "partner")
    pin = files.certificate("pin", files.server)
    other = files.certificate("other", issued(None, "other"))
    async with secured(files.of_server(), Seen()) as server:
        assert (await reply(server, TlsProfile(pins=(pin,)))).status == 200
        assert (await reply(server, TlsProfile(pins=(other, pin)))).status == 200
        assert not (await refused(server, TlsProfile(pins=(other,)))).transmitted


@in_loop
async def test_a_pin_needs_nobody_to_vouch_for_it(files: Files) -> None:
    pin = files.certificate("pin", files.server)
    async with secured(files.of_server(), Seen()) as server:
        assert (await reply(server, TlsProfile(pins=(pin,)))).status == 200


@in_loop
async def test_a_pin_counts_even_where_the_authority_is_trusted(files: Files) -> None:
    pin = files.certificate("pin", files.server)
    other = files.certificate("other", issued(files.ca, "other", "127.0.0.1"))
    async with secured(files.of_server(), Seen()) as server:
        assert (await reply(server, files.of_client(pins=(pin,)))).status == 200
        found = await refused(server, files.of_client(pins=(other,)))
        assert found.reason == (
            f"127.0.0.1:{server.port}: its certificate is not the one agreed on"
        )
        assert not found.transmitted


@in_loop
async def test_tls_that_is_agreed_on_is_not_left_out(files: Files) -> None:
    async with serving(Seen()) as server, HttpClient() as client:
        request = Outgoing(server.url, "a/b", b"", tls=files.of_client())
        with pytest.raises(TransportFailure, match="needs https") as caught:
            await client.post(request)
        assert (caught.value.kind, caught.value.transmitted) == ("address", False)


@in_loop
async def test_profiles_do_not_share_connections(files: Files) -> None:
    app = Seen()
    async with secured(files.of_server(), app) as server, HttpClient() as client:
        wrong = files.certificate("stranger", files.stranger)
        for profile in (files.of_client(), replace(files.of_client(), version="1.3")):
            await client.post(Outgoing(server.url, "a/b", b"", tls=profile))
        with pytest.raises(TransportFailure):
            await client.post(
                Outgoing(server.url, "a/b", b"", tls=TlsProfile(authorities=(wrong,)))
            )
        assert len({scope["client"] for scope in app.scopes}) == 2


# Who the client is


def demanding(files: Files, how: str, **values: Any) -> ServerTls:
    return files.of_server(client_certificates=how, authorities=(files.authority,), **values)


@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize("how", ["required", "optional"])
def test_the_application_sees_the_certificate_of_the_client(
    files: Files, version: str, how: str
) -> None:
    key = files.key("client", files.client)

    async def scenario() -> None:
        app = Seen()
        async with secured(demanding(files, how, suites=_suites(version)), app) as server:
            assert (await reply(server, files.of_client(key_file=key))).status == 200
        shown = app.scopes[0]["extensions"]["tls"]["client_certificate"]
        assert shown == files.client.certificate.public_bytes(Encoding.DER)

    run(scenario())


def _suites(version: str) -> tuple[str, ...]:
    return (AES128,) if version == "1.2" else tls.TLS13_SUITES


@pytest.mark.req("P2-6.4.1-05")
@pytest.mark.parametrize("version", ["1.2", "1.3"])
@pytest.mark.parametrize(
    "shown",
    [
        lambda f: None,
        lambda f: issued(f.stranger, "client"),
        lambda f: issued(None, "client"),
        lambda f: issued(f.ca, "client", until=pki.NOW - 2 * pki.YEAR),
    ],
    ids=["none", "stranger", "self-signed", "expired"],
)
def test_a_client_without_a_good_certificate_is_refused(
    files: Files, version: str, shown: Callable[[Files], KeyPair | None]
) -> None:
    pair = shown(files)
    key = files.key("client", pair) if pair else None

    async def scenario() -> None:
        app = Seen()
        settings = demanding(files, "required", suites=_suites(version))
        async with secured(settings, app) as server:
            with pytest.raises(TransportFailure) as caught:
                await reply(server, files.of_client(key_file=key))
            found = caught.value
            assert found.reason.startswith(f"127.0.0.1:{server.port} closed the connection")
            if version == "1.2":
                assert (found.kind, found.transmitted) == ("tls", False)
            else:
                # The client hears of it only after it sent its first bytes.
                assert (found.kind, found.transmitted) == ("closed", True)
                assert found.reason.endswith("; it may want another client certificate")
            assert app.scopes == []
            good = files.key("good", files.client)
            assert (await reply(server, files.of_client(key_file=good))).status == 200

    run(scenario())


@in_loop
async def test_an_optional_certificate_may_be_missing_but_not_wrong(files: Files) -> None:
    app = Seen()
    async with secured(demanding(files, "optional"), app) as server:
        assert (await reply(server, files.of_client())).status == 200
        assert app.scopes[0]["extensions"]["tls"]["client_certificate"] is None
        wrong = files.key("wrong", issued(files.stranger, "client"))
        with pytest.raises(TransportFailure):
            await reply(server, files.of_client(key_file=wrong))
        assert len(app.scopes) == 1


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_why_a_server_refuses_a_certificate_is_told_where_it_says_so(
    files: Files, loop: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.key("server", files.server))
    context.load_verify_locations(files.authority)
    context.verify_mode = ssl.CERT_REQUIRED

    def serve(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with accepted, contextlib.suppress(OSError):
            secured = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            with contextlib.suppress(ssl.SSLError):
                secured.do_handshake()
            plain = socket.socket(fileno=secured.detach())
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(4096):
                pass
            plain.close()

    async def scenario(listener: socket.socket) -> None:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        found = await refused(url, files.of_client())
        assert "ended the TLS connection: TLSV13_ALERT_CERTIFICATE_REQUIRED" in found.reason
        assert found.transmitted

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        run(scenario(listener), loop)
        serving.join()


# Files


@in_loop
async def test_keys_come_as_pem_or_pkcs12_with_or_without_password(files: Files) -> None:
    stores = [
        (files.write("a.p12", pki.p12(files.client, b"secret")), "secret"),
        (files.write("b.pem", pki.pem(files.client, b"secret")), "secret"),
        (files.write("c.pem", pki.pem(files.client)), None),
    ]
    for path, password in stores:
        settings = demanding(files, "required")
        async with secured(settings, Seen()) as server:
            profile = files.of_client(key_file=path, key_password=password)
            assert (await reply(server, profile)).status == 200
            assert "secret" not in repr(profile)


@pytest.mark.parametrize(
    ("name", "password", "reason"),
    [
        ("missing.pem", None, "No such file"),
        ("ca.crt", None, "there is no private key inside"),
        ("store.p12", "wrong", "the password is wrong"),
        ("rubbish", None, "this is no key or trust store"),
        ("x25519.pem", None, "cannot be used for TLS"),
    ],
)
def test_what_is_wrong_with_a_key_is_told_with_the_name_of_its_file(
    files: Files, name: str, password: str | None, reason: str
) -> None:
    files.write("store.p12", pki.p12(files.client, b"secret"))
    files.write("rubbish", b"rubbish")
    files.key("x25519", pki.issue(files.ca, "x", key="x25519", usage=None))
    path = files.folder / name
    for make in (
        lambda: server_context(ServerTls(path, password)),
        lambda: client_context(TlsProfile(key_file=path, key_password=password)),
    ):
        with pytest.raises(TlsError) as caught:
            make()
        assert str(caught.value).startswith(f"{path}: ")
        assert reason in str(caught.value)


@in_loop
async def test_a_server_may_have_its_key_read_already(files: Files) -> None:
    context = server_context(ServerTls(files.folder / "not-there"), files.server)
    async with serving(Seen(), ssl=context) as server:
        assert (await reply(server, files.of_client())).status == 200


def test_client_certificates_need_an_authority(files: Files) -> None:
    with pytest.raises(TlsError, match="no authority is given"):
        server_context(files.of_server(client_certificates="required"))


@in_loop
async def test_a_profile_that_cannot_be_used_fails_the_request(files: Files) -> None:
    profile = files.of_client(key_file=files.folder / "missing.pem")
    found = await refused("https://127.0.0.1:9/", profile)
    assert "missing.pem" in found.reason
    assert not found.transmitted


def test_a_context_is_made_once_until_a_file_changes(files: Files) -> None:
    profile = files.of_client()
    first = client_context(profile)
    assert client_context(files.of_client()) is first
    assert client_context(replace(profile, version="1.3")) is not first
    files.write("ca.crt", pki.pem_certificates(files.stranger.certificate, files.ca.certificate))
    assert client_context(profile) is not first


def test_no_key_is_left_behind(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []

    class Watching(tls.TlsContext):
        def load_cert_chain(self, certfile: Any, *args: Any, **values: Any) -> None:
            path = Path(certfile)
            assert path.stat().st_mode & 0o777 == 0o600
            written.append(path.read_bytes())
            super().load_cert_chain(certfile, *args, **values)

    passing = tmp_path / "passing"
    passing.mkdir()
    monkeypatch.setattr(tls, "TlsContext", Watching)
    monkeypatch.setattr("tempfile.tempdir", str(passing))
    server_context(files.of_server())
    assert list(passing.iterdir()) == []
    [data] = written
    assert b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in data


def test_a_pmode_says_how_its_address_is_spoken_to(tmp_path: Path) -> None:
    security = TransportSecurity(
        protocol="TLS",
        protocol_version="1.3",
        security_algorithm=("TLS_AES_128_GCM_SHA256",),
        server=TransportIdentity(certificate="s.crt", anchor_certificates=("a.crt", "b.crt")),
        client=TransportIdentity(certificate="c.p12"),
        minimum_key_size=128,
    )
    assert profile_from_pmode(security, tmp_path, key_password="secret") == TlsProfile(
        authorities=(tmp_path / "a.crt", tmp_path / "b.crt"),
        pins=(tmp_path / "s.crt",),
        key_file=tmp_path / "c.p12",
        key_password="secret",
        version="1.3",
        suites=("TLS_AES_128_GCM_SHA256",),
        minimum_key_size=128,
    )
    assert profile_from_pmode(None, tmp_path) is None
    assert profile_from_pmode(TransportSecurity(), tmp_path) is None
    assert profile_from_pmode(TransportSecurity(protocol="TLS"), tmp_path) == TlsProfile()


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
                async with line_to(server):
                    await until(lambda: server.connections == 3)
                    async with line_to(server) as turned_away:
                        assert await turned_away.closed() == b""
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
