"""Messages of a P-Mode that is bundled: its terms, and the units of what was posted."""

import hashlib
from typing import Any, Final

import pytest
from lxml import etree

from postroad.node.service import Submission, Submitted, SubmittedPayload
from postroad.wire.content import BytesContent
from postroad.wire.names import EB3
from tests.node.reliable import STORES, Posted, Station

UPDATES: Final = "updates"
RETRY: Final = {"max_retries": 3, "timeout": "PT10S", "period": "PT20S"}
NAMES: Final = ("a@buyer", "b@buyer", "c@buyer")
in_every_store = pytest.mark.parametrize("kept_in", STORES)


def bundling(policy: str = "optional", **more: Any) -> dict[str, Any]:
    """Terms under which updates are bundled with each other."""
    return {
        "policy": policy,
        "compatibility": {"pmode_list": [UPDATES]},
        "max_delay": "PT5S",
        **more,
    }


def units(posted: Posted) -> list[str]:
    """The units of what was posted, in their order."""
    start = posted.body.index(b"<S12:Envelope")
    end = posted.body.index(b"</S12:Envelope>") + len(b"</S12:Envelope>")
    root = etree.fromstring(posted.body[start:end])
    messages = root.iter(f"{{{EB3}}}UserMessage")
    return [one.findtext(f".//{{{EB3}}}MessageId") or "" for one in messages]


def unit(
    name: str | None, pmode: str = UPDATES, content: bytes = b"1", content_id: str | None = None
) -> Submission:
    """A message of one payload, to be put into a bundle."""
    digest = hashlib.sha256(content).digest()
    payload = SubmittedPayload(BytesContent(content), digest, "text/plain", content_id)
    return Submission(pmode, (payload,), name)


async def submit(station: Station, *given: Submission) -> list[Submitted]:
    """An application puts a bundle together."""
    return await station.process.ask(station.node.submit_bundle(given))
