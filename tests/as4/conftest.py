"""The bench, started once for all cases."""

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.as4.bench import C2, Bench, Loop, Terms, start
from tests.as4.foreign import Identity
from tests.as4.reading import EB3

ESENS: Final = "http://www.esens.eu/as4/conformancetest"
POLICY: Final = "1.3.6.1.4.1.99999.1"
GAS_ROLES: Final = ("ZSH", "ZSO")
GAS: Final = {
    "service": {"value": "A06", "type": "http://edigas.org/service"},
    "properties": [{"name": "EDIGASDocumentType", "required": True}],
    "payload_profile": {
        "max_size": "10 MB",
        "payloads": [{"mime_type": "application/xml", "required": True}],
    },
}
"""What a P-Mode of ENTSOG says of its messages (AS4 Usage Profile)."""
TERMS: Final = (
    Terms("plain", sign=False),
    Terms("compressed", sign=False, compress=True),
    Terms("signed"),
    Terms("encrypted", sign=False, encrypt=True),
    Terms("compressed-signed", compress=True),
    Terms("compressed-encrypted", sign=False, encrypt=True, compress=True),
    Terms("signed-encrypted", encrypt=True),
    Terms("edelivery", encrypt=True, compress=True),
    Terms("ping", encrypt=True, compress=True, service=f"{EB3}service", action="test"),
    Terms("by-issuer-serial", encrypt=True, compress=True, key_reference="issuer_serial"),
    Terms("by-key-identifier", encrypt=True, compress=True, key_reference="subject_key_identifier"),
    Terms("anchored", anchored=True, policies=(POLICY,)),
    Terms("receipt-called-back", receipt="callback"),
    Terms("wrongly-signed", key="wrong"),
    Terms("wrongly-signed-called-back", key="wrong", errors_to_callback=True),
    Terms("refused-called-back", demands="urgency", receipt="callback", errors_to_callback=True),
    Terms("unknown-to-c3", known_to=(C2,)),
    Terms("agreed", encrypt=True, compress=True, agreement="http://example.com/a/1", service=None,
          action=None),
    Terms("SIMPLE_ONEWAY", encrypt=True, compress=True, service=ESENS,
          roles=(f"{ESENS}/testdriver", f"{ESENS}/sut")),
    Terms("ONEWAY_ONLY_SIGN", service=ESENS, roles=(f"{ESENS}/testdriver", f"{ESENS}/sut")),
    Terms("ONEWAY_RETRY", encrypt=True, compress=True, retry="maxretries=5,period=50"),
    Terms("timed-out", encrypt=True, compress=True, retry="maxretries=2,period=50"),
    Terms("two-way", encrypt=True, compress=True, replies=True),
    Terms("gas", encrypt=True, compress=True, eic=True, agreement="http://entsog.example/a/1",
          action=None, service=None, roles=GAS_ROLES, business=GAS),
)  # fmt: skip


@contextmanager
def running(folder: Path, terms: tuple[Terms, ...]) -> Iterator[Bench]:
    """Both corners with these P-Modes, a relay between them, and their applications."""
    loop, stack = Loop(), AsyncExitStack()
    try:
        yield Bench(loop, *loop.run(start(folder, terms, stack)))
    finally:
        loop.run(stack.aclose())
        loop.close()


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The bench of nearly all cases."""
    with running(tmp_path_factory.mktemp("bench"), TERMS) as both:
        yield both


@pytest.fixture(scope="session")
def twinless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A bench with a few P-Modes, none of which is for the test service."""
    few = tuple(one for one in TERMS if one.name in ("plain", "signed", "edelivery"))
    with running(tmp_path_factory.mktemp("twinless"), few) as both:
        yield both


@pytest.fixture(scope="session")
def partner(bench: Bench) -> Identity:
    """Corner two's own key, in the hands of somebody else's software."""
    return bench.c2.identity
