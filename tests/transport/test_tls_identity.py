"""Who the server is and who the client is: certificates that are believed, and that are not."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from postroad.security.keys import KeyPair
from postroad.security.revocation import Revocation, read_list
from postroad.transport import tls
from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Outgoing, TransportFailure
from postroad.transport.tls import TlsProfile
from tests import pki
from tests.changing import replace
from tests.transport.handshakes import (
    AES128,
    FAR_AWAY,
    LONG_AGO,
    Files,
    authority,
    demanding,
    issued,
    refused,
    reply,
    secured,
)
from tests.transport.wires import Seen, in_loop, run, serving

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
        (
            lambda f: issued(f.ca, "server", "127.0.0.1", purpose=ExtendedKeyUsageOID.CLIENT_AUTH),
            "unsuitable certificate purpose",
        ),
    ],
    ids=["stranger", "self-signed", "other-host", "expired", "purpose"],
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
        lambda f: issued(f.ca, "client", purpose=ExtendedKeyUsageOID.SERVER_AUTH),
    ],
    ids=["none", "stranger", "self-signed", "expired", "purpose"],
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


def revoked_by(ca: KeyPair, *pairs: KeyPair) -> Revocation:
    """A list that is current today, whenever that is."""
    listed = [pair.certificate for pair in pairs]
    crl = pki.revocation_list(ca, listed, this_update=LONG_AGO, next_update=FAR_AWAY, on=LONG_AGO)
    return Revocation((read_list(crl),))


@in_loop
async def test_a_client_whose_certificate_was_revoked_is_refused(files: Files) -> None:
    app = Seen()
    bad, good = files.client, issued(files.ca, "another client")
    context = tls.server_context(demanding(files, "required"))
    context.revocation = lambda: revoked_by(files.ca, bad)
    async with serving(app, ssl=context) as server:
        with pytest.raises(TransportFailure):
            await reply(server, files.of_client(key_file=files.key("bad", bad)))
        assert app.scopes == []
        assert (
            await reply(server, files.of_client(key_file=files.key("good", good)))
        ).status == 200


@in_loop
async def test_a_server_whose_certificate_was_revoked_gets_nothing(files: Files) -> None:
    app = Seen()
    async with secured(files.of_server(), app) as server:
        for revocation, good in (
            (revoked_by(files.ca, files.server), False),
            (revoked_by(files.ca), True),
            (revoked_by(authority("TLS CA"), files.client), True),
        ):
            request = Outgoing(server.url, "a/b", b"hello", tls=files.of_client())
            async with HttpClient(revocation=lambda known=revocation: known) as client:
                if good:
                    assert (await client.post(request)).status == 200
                    continue
                with pytest.raises(TransportFailure, match="was revoked by its issuer") as caught:
                    await client.post(request)
                assert (caught.value.kind, caught.value.transmitted) == ("tls", False)
                assert app.scopes == []


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
