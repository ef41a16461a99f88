"""The TLS of a door, whose certificate can be changed while it is in use."""

import secrets
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)

from postroad.node.settings.config_groups import Tls
from postroad.node.settings.keyring import TlsIdentity
from postroad.security.revocation import Revocation
from postroad.transport.tls import ServerTls, TlsContext, server_context


class DoorTls:
    """A context for the listener; each new connection gets what is in force by then.

    OpenSSL asks which context to use once it has read the client's first message, whether or not
    that names a server. So certificate, authorities and suites all change together, and
    connections that are open keep what they have.
    """

    def __init__(self, settings: Tls, identity: TlsIdentity) -> None:
        self._settings = settings
        self._revocation: Callable[[], Revocation] | None = None
        self._current = self.context = _context(settings, identity)
        self.context.sni_callback = self._choose

    def check_revocation(self, revocation: Callable[[], Revocation]) -> None:
        """Refuse clients whose certificate was revoked, by what is known when they connect."""
        self._revocation = revocation
        self.context.revocation = self._current.revocation = revocation

    def change(self, identity: TlsIdentity) -> None:
        """Show another certificate from now on; `TlsError` leaves everything as it is."""
        self._current = _context(self._settings, identity)
        self._current.revocation = self._revocation

    def _choose(self, connection: ssl.SSLObject, name: str, context: ssl.SSLContext) -> None:
        connection.context = self._current


def _context(settings: Tls, identity: TlsIdentity) -> TlsContext:
    pair = identity.pair
    # They may come from two files, and the context reads one: encrypted, and gone at once.
    passing = secrets.token_urlsafe(32)
    key = pair.private_key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(passing.encode())
    )
    shown = b"".join(one.public_bytes(Encoding.PEM) for one in (pair.certificate, *pair.chain))
    with tempfile.NamedTemporaryFile(prefix="postroad-", suffix=".pem") as file:
        file.write(key + shown)
        file.flush()
        return server_context(
            ServerTls(
                Path(file.name),
                passing,
                settings.client_certificates,
                settings.client_authorities,
                settings.minimum,
                settings.ciphers or (),
            ),
            authorities=identity.client_authorities,
        )
