"""How calls to an application's webhook are signed, and how the application checks that.

    Postroad-Signature: t=1780315200,v1=5257a869e7ecebeda32affa62cdca3fa…

`t` is the time of the call in seconds since 1970, `v1` the HMAC-SHA256 of `t`, a dot and the body.
"""

import hashlib
import hmac
import time
from datetime import datetime
from typing import Final

HEADER: Final = "Postroad-Signature"
_LONGEST_HEADER: Final = 1000
_LONGEST_TIME: Final = 12


class WebhookRefused(ValueError):
    """The call is not to be believed; the sentence says why."""


def sign_webhook(body: bytes, secret: bytes, now: datetime) -> str:
    """The value of the header for a call that is made now."""
    at = str(int(now.timestamp()))
    return f"t={at},v1={_mac(at, body, secret)}"


def verify_webhook(
    body: bytes,
    header: str | None,
    secret: str | bytes,
    now: float | datetime | None = None,
    tolerance: float = 300,
) -> None:
    """Whether a call came from the node that shares the secret, and just now.

    `body` are the bytes as they came, before anything reads them as JSON, and `header` the value
    of `Postroad-Signature`. `WebhookRefused` when the call is not to be believed.
    """
    key = secret.encode() if isinstance(secret, str) else secret
    if not key:
        raise WebhookRefused("there is no secret: with an empty one anybody could sign")
    at, macs = _read(header)
    expected = _mac(at, body, key)
    if not any(hmac.compare_digest(one.encode(), expected.encode()) for one in macs):
        raise WebhookRefused(
            "the signature does not fit: another secret, or the body was changed on the way"
        )
    age = _seconds(now) - int(at)
    if abs(age) > tolerance:
        raise WebhookRefused(
            f"the call was signed {abs(age):.0f} seconds {'ago' if age > 0 else 'ahead'}, at most "
            f"{tolerance:g} are taken: it is a repetition, or a clock is wrong"
        )


def _mac(at: str, body: bytes, secret: bytes) -> str:
    return hmac.new(secret, b"%s.%s" % (at.encode(), body), hashlib.sha256).hexdigest()


def _read(header: str | None) -> tuple[str, list[str]]:
    """Time and signatures of the header; there may be others, of a later version."""
    if not header or len(header) > _LONGEST_HEADER:
        raise WebhookRefused(f"there is no {HEADER} header, so anybody may have made the call")
    pairs = [one.strip().partition("=") for one in header.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    macs = [value for name, _, value in pairs if name == "v1"]
    plain = len(times) == 1 and times[0].isascii() and times[0].isdigit()
    if not plain or len(times[0]) > _LONGEST_TIME or not macs:
        raise WebhookRefused(f"the {HEADER} header is not of the form t=…,v1=…")
    return times[0], macs


def _seconds(now: float | datetime | None) -> float:
    if now is None:
        return time.time()
    return now.timestamp() if isinstance(now, datetime) else now
