"""The UsernameToken of WS-Security, with which a pull request shows who asks (Core 7.10).

A digest token is Base64(SHA-1(nonce ‖ created ‖ password)): it keeps the password from the wire
but not from a replay, so nonce and Created must be there, must be fresh and must be new. Outward
every refusal reads the same; why it was is the cause of the error, for the journal.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from lxml import etree

from postroad.security.timestamps import write_security_time
from postroad.wire.ebms3_user_messages import parse_timestamp
from postroad.wire.errors import EbmsError
from postroad.wire.names import BASE64_BINARY, USERNAME_PROFILE, WSSE, WSU
from postroad.wire.xml import elements, escape, escape_attribute, is_xml_text, octets, path, text

MAX_AGE: Final = timedelta(minutes=5)
SKEW: Final = timedelta(minutes=5)

_REFUSAL: Final = "the user name token does not hold"
_MOST_CHARACTERS: Final = 4096
_MOST_NONCE_BYTES: Final = 256
_TOKEN: Final = f"{{{WSSE}}}UsernameToken"
_USERNAME: Final = f"{{{WSSE}}}Username"
_PASSWORD: Final = f"{{{WSSE}}}Password"
_NONCE: Final = f"{{{WSSE}}}Nonce"
_CREATED: Final = f"{{{WSU}}}Created"


class PasswordType(StrEnum):
    """How the password stands in the token."""

    TEXT = USERNAME_PROFILE + "#PasswordText"
    DIGEST = USERNAME_PROFILE + "#PasswordDigest"


@dataclass(frozen=True, slots=True)
class UsernameToken:
    """Who asks, and what proves it: `created` stands as it was written, for the digest."""

    username: str
    password: str | None = field(repr=False)
    password_type: PasswordType
    nonce: bytes | None
    created: str | None


class UsernameTokenRefused(Exception):
    """Why a token was refused: for the journal, never for the sender."""


def read_username_token(element: etree._Element) -> UsernameToken:
    """Read a wsse:UsernameToken; EBMS:0101 where its structure is not as it must be."""
    if element.tag != _TOKEN:
        raise _malformed(element, "this is no wsse:UsernameToken")
    found: dict[str, etree._Element] = {}
    for child in elements(element):
        if child.tag in found:
            raise _malformed(child, "it stands more than once in the user name token")
        found[str(child.tag)] = child
    if _USERNAME not in found:
        raise _malformed(element, "the user name token has no user name")
    created = _text(found[_CREATED]) if _CREATED in found else None
    if created is not None and _moment(created) is None:
        raise _malformed(found[_CREATED], "this is no date and time")
    return UsernameToken(
        username=_text(found[_USERNAME]),
        password=_text(found[_PASSWORD]) if _PASSWORD in found else None,
        password_type=_password_type(found.get(_PASSWORD)),
        nonce=_nonce(found[_NONCE]) if _NONCE in found else None,
        created=created,
    )


def write_username_token(
    username: str,
    password: str,
    *,
    digest: bool,
    nonce: bytes,
    created: datetime,
    id: str | None = None,
) -> str:
    """A wsse:UsernameToken in canonical form, with its own namespace declarations."""
    for value in (username, password, id or ""):
        if not is_xml_text(value):
            raise ValueError("a user name or password has a character that XML cannot carry")
    stamp, encoded = write_security_time(created), base64.b64encode(nonce).decode()
    secret = _digest(nonce, stamp, password) if digest else password
    kind = PasswordType.DIGEST if digest else PasswordType.TEXT
    declared = f' xmlns:wsu="{WSU}"'
    outer = "" if id is None else f'{declared} wsu:Id="{escape_attribute(id)}"'
    inner = declared if id is None else ""
    return (
        f'<wsse:UsernameToken xmlns:wsse="{WSSE}"{outer}>'
        f"<wsse:Username>{escape(username)}</wsse:Username>"
        f'<wsse:Password Type="{kind}">{escape(secret)}</wsse:Password>'
        f'<wsse:Nonce EncodingType="{BASE64_BINARY}">{encoded}</wsse:Nonce>'
        f"<wsu:Created{inner}>{stamp}</wsu:Created>"
        "</wsse:UsernameToken>"
    )


def check_username_token(
    token: UsernameToken,
    *,
    username: str,
    password: str,
    now: datetime,
    max_age: timedelta = MAX_AGE,
    skew: timedelta = SKEW,
    seen: Callable[[bytes, datetime], bool],
    allow_text: bool = False,
) -> None:
    """Hold a token against the agreed user and password; EBMS:0101 where it does not hold.

    `seen(nonce, until)` tells whether the nonce came before, and remembers it until that time;
    it is asked only about tokens whose password is right. A password in the clear is accepted
    only where `allow_text` says so.
    """
    reason = _wrong(token, username, password, allow_text=allow_text)
    if reason is None:
        reason = _stale(token, now, max_age, skew)
    if reason is None and token.nonce is not None:
        created = _moment(token.created) if token.created is not None else None
        if seen(token.nonce, (created or now) + max_age + skew):
            reason = "its nonce was used before"
    if reason is not None:
        raise EbmsError("EBMS:0101", _REFUSAL) from UsernameTokenRefused(reason)


def _wrong(token: UsernameToken, username: str, password: str, *, allow_text: bool) -> str | None:
    """Why user and password do not fit. Both are compared in any case, in constant time."""
    if token.password_type is PasswordType.DIGEST:
        if not token.nonce or token.created is None:
            return "a digest needs a nonce and the time of its creation"
        expected = _digest(token.nonce, token.created, password)
    else:
        expected = password.strip()
    same_user = hmac.compare_digest(_utf8(token.username), _utf8(username.strip()))
    same_password = hmac.compare_digest(_utf8(token.password or ""), _utf8(expected))
    if token.password_type is PasswordType.TEXT and not allow_text:
        return "a password in the clear is not accepted"
    if token.password is None:
        return "it has no password"
    if not same_user & same_password:
        return "user name or password are wrong"
    return None


def _stale(token: UsernameToken, now: datetime, max_age: timedelta, skew: timedelta) -> str | None:
    if token.created is None:
        return None
    created = _moment(token.created)
    if created is None:
        return "the time of its creation cannot be read"
    if created - now > skew:
        return f"it was created in the future, on {token.created}"
    if now - created > max_age + skew:
        return f"it was created too long ago, on {token.created}"
    return None


def _digest(nonce: bytes, created: str, password: str) -> str:
    return base64.b64encode(
        hashlib.sha1(nonce + _utf8(created) + _utf8(password)).digest()
    ).decode()


def _utf8(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _moment(value: str) -> datetime | None:
    try:
        return parse_timestamp(value)[0]
    except ValueError:
        return None


def _text(element: etree._Element) -> str:
    if elements(element):
        raise _malformed(element, "it holds elements where text is expected")
    value = text(element)
    if not value or len(value) > _MOST_CHARACTERS:
        raise _malformed(element, f"it must have 1 to {_MOST_CHARACTERS} characters")
    return value


def _password_type(element: etree._Element | None) -> PasswordType:
    if element is None:
        return PasswordType.TEXT
    try:
        return PasswordType(element.get("Type", PasswordType.TEXT))
    except ValueError:
        raise _malformed(element, "its type is neither PasswordText nor PasswordDigest") from None


def _nonce(element: etree._Element) -> bytes:
    if element.get("EncodingType", BASE64_BINARY) != BASE64_BINARY:
        raise _malformed(element, "its encoding is not Base64Binary")
    _text(element)
    value = octets(element, "EBMS:0101")
    if not 1 <= len(value) <= _MOST_NONCE_BYTES:
        raise _malformed(element, f"it must have 1 to {_MOST_NONCE_BYTES} bytes")
    return value


def _malformed(element: etree._Element, detail: str) -> EbmsError:
    return EbmsError("EBMS:0101", detail, location=path(element))
