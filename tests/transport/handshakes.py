"""Keys and certificates in a folder, and ends that shake hands with them."""

import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from postroad.security.keys import KeyPair
from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Outgoing, Reply, TransportFailure
from postroad.transport.http_server import HttpServer
from postroad.transport.tls import ServerTls, TlsProfile, server_context
from tests import pki
from tests.transport.wires import Seen, serving

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
FAR_AWAY = datetime(2090, 1, 1, tzinfo=UTC)
AES128 = "ECDHE-ECDSA-AES128-GCM-SHA256"


def authority(name: str) -> KeyPair:
    """An authority that is valid today, whenever that is."""
    return pki.authority(name, not_before=LONG_AGO, not_after=FAR_AWAY)


def issued(
    ca: KeyPair | None,
    name: str,
    *hosts: str,
    until: datetime = FAR_AWAY,
    purpose: x509.ObjectIdentifier | None = None,
) -> KeyPair:
    """A certificate for hosts, valid today unless a test says otherwise."""
    names: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
        for host in hosts
    ]
    extensions: list[tuple[x509.ExtensionType, bool]] = []
    if names:
        extensions.append((x509.SubjectAlternativeName(names), False))
    if purpose is not None:
        extensions.append((x509.ExtendedKeyUsage([purpose]), False))
    return pki.issue(
        ca, name, not_before=LONG_AGO, not_after=until, extensions=tuple(extensions), usage=None
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


@asynccontextmanager
async def secured(settings: ServerTls, app: Seen, **options: Any) -> AsyncIterator[HttpServer]:
    """A server of ours with TLS."""
    async with serving(app, ssl=server_context(settings), **options) as server:
        assert server.url.startswith("https://")
        yield server


async def reply(server: HttpServer | str, profile: TlsProfile, body: Any = b"hello") -> Reply:
    """What a server answers to a client of ours."""
    url = server if isinstance(server, str) else server.url
    async with HttpClient() as client:
        return await client.post(Outgoing(url, "a/b", body, tls=profile))


async def refused(server: HttpServer | str, profile: TlsProfile) -> TransportFailure:
    """How a handshake with a client of ours failed."""
    with pytest.raises(TransportFailure) as caught:
        await reply(server, profile)
    assert caught.value.kind == "tls"
    return caught.value


def demanding(files: Files, how: str, **values: Any) -> ServerTls:
    """A server that asks for the client's certificate."""
    return files.of_server(client_certificates=how, authorities=(files.authority,), **values)
