"""Keys and authorities of TLS come from files, and profiles from P-Modes."""

from pathlib import Path
from typing import Any

import pytest

from postroad.agreement.pmode import TransportIdentity, TransportSecurity
from postroad.transport import tls
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
from tests.transport.handshakes import Files, demanding, refused, reply, secured
from tests.transport.wires import Seen, in_loop, serving


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


@in_loop
async def test_authorities_and_pins_come_from_trust_stores_with_or_without_password(
    files: Files,
) -> None:
    for password in (b"secret", None):
        roots = files.write("roots.p12", pki.p12_trust([files.ca.certificate], password))
        pinned = files.write("pinned.p12", pki.p12_trust([files.server.certificate], password))
        settings = files.of_server(
            key_password="secret", client_certificates="required", authorities=(roots,)
        )
        client = files.write("client.p12", pki.p12(files.client, b"secret"))
        async with secured(settings, Seen()) as server:
            profile = TlsProfile((roots,), (pinned,), client, "secret")
            assert (await reply(server, profile)).status == 200


def test_a_trust_store_that_does_not_open_is_told_with_its_name(files: Files) -> None:
    roots = files.write("roots.p12", pki.p12_trust([files.ca.certificate], b"secret"))
    for password, said in ((None, "needs a password"), ("wrong", "the password is wrong")):
        with pytest.raises(TlsError, match=rf"roots\.p12: .*{said}"):
            client_context(TlsProfile((roots,), key_password=password))


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
