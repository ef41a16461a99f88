"""Evidence of messages that WS-ReliableMessaging or WS-Reliability acknowledged."""

import re
from typing import Any

import pytest

from postroad import inspect
from postroad.store.records import State
from tests.node import test_wsreliability as wsreliability
from tests.node.evidence.zips import codes, listed, unzipped, zipped
from tests.node.reliable import BUYER, SELLER, Station, World, played
from tests.node.sequences import agree as agree_on_sequences

M, N = "m@buyer", "n@buyer"
PROTOCOLS = ("wsrm", "ws-reliability")
WAYS = [
    ("wsrm", "Response"),
    ("wsrm", "Callback"),
    ("ws-reliability", "Response"),
    ("ws-reliability", "Callback"),
    ("ws-reliability", "Poll"),
]
PROVES = {"wsrm": "message_number", "ws-reliability": "message_id"}


def agree(world: World, protocol: str, *, signed: bool = True, pattern: str = "Response") -> None:
    agree = agree_on_sequences if protocol == "wsrm" else wsreliability.agree
    agree(world, signed=signed, pattern=pattern)


async def evidence(station: Station, message_id: str) -> bytes:
    return b"".join(await station.node.evidence(message_id))


async def sent(
    world: World, protocol: str, *, signed: bool = True, **more: Any
) -> dict[str, bytes]:
    """The sender's evidence of two acknowledged messages."""
    agree(world, protocol, signed=signed, **more)
    buyer, _ = await world.both()
    for one in (M, N):
        await buyer.send(one)
        await world.wait(1)
        assert await buyer.state(one) is State.ACKNOWLEDGED
    return {one: await evidence(buyer, one) for one in (M, N)}


def checked(world: World, data: bytes) -> dict[str, Any]:
    keys = world.folder / BUYER / "keys"
    return inspect(data, trust=[keys / f"{name}.pem" for name in (BUYER, SELLER)])


def signal_of(files: dict[str, bytes]) -> str:
    (name,) = (one for one in files if one.startswith("signals/"))
    return name


@pytest.mark.parametrize(("protocol", "pattern"), WAYS)
@played
async def test_a_signed_acknowledgment_is_proof(world: World, protocol: str, pattern: str) -> None:
    for data in (await sent(world, protocol, pattern=pattern)).values():
        facts = checked(world, data)
        assert codes(facts) == []
        assert facts["holds"]
        assert facts["trusted"]
        (receipt,) = facts["receipts"]
        assert facts["error_signals"] == []
        assert receipt["holds"]
        assert receipt["proves"] == PROVES[protocol]
        assert "nothing about its payloads" in receipt["worth"]
        assert receipt["digests"] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@played
async def test_an_acknowledgment_of_another_message_does_not_hold(
    world: World, protocol: str
) -> None:
    made = await sent(world, protocol)
    first, second = unzipped(made[M]), unzipped(made[N])
    # The acknowledgement of the first message covers number 1 alone.
    second[signal_of(second)] = first[signal_of(first)]
    facts = checked(world, zipped(listed(second)))
    assert not facts["holds"]
    assert codes(facts) == ["EBMS:0302"]
    (receipt,) = facts["receipts"]
    assert receipt["proves"] is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
@played
async def test_an_unsigned_acknowledgment_of_a_signed_message_does_not_hold(
    world: World, protocol: str
) -> None:
    files = unzipped((await sent(world, protocol))[M])
    name = signal_of(files)
    files[name] = re.sub(rb"<wsse:Security.*</wsse:Security>", b"", files[name], flags=re.DOTALL)
    facts = checked(world, zipped(listed(files)))
    assert not facts["holds"]
    assert codes(facts) == ["EBMS:0103"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@played
async def test_a_changed_acknowledgment_does_not_hold(world: World, protocol: str) -> None:
    made = await sent(world, protocol)
    first, second = unzipped(made[M]), unzipped(made[N])
    old, new = (b'Upper="1"', b'Upper="2"') if protocol == "wsrm" else (b"mid:m@", b"mid:n@")
    forged = first[signal_of(first)]
    assert old in forged
    second[signal_of(second)] = forged.replace(old, new)
    facts = checked(world, zipped(listed(second)))
    assert not facts["holds"]
    assert "EBMS:0101" in codes(facts)
    assert facts["receipts"][0]["proves"] is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
@played
async def test_unsigned_messages_fit_and_prove_nothing(world: World, protocol: str) -> None:
    facts = inspect((await sent(world, protocol, signed=False))[M])
    assert facts["holds"]
    assert facts["trusted"] is None
    assert codes(facts, "warning") == ["EBMS:0103"]
    assert facts["receipts"][0]["proves"] is None
