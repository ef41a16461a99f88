"""What `postroad init --profile` makes: parties that really exchange, over real sockets."""

import asyncio
import hashlib
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvloop

from postroad.api.running import RunningNode
from postroad.node.first_steps.initializing import Plan, Station, initialize
from postroad.node.first_steps.profiles import Profile
from postroad.node.first_steps.samples import Sample
from postroad.node.node import Node
from postroad.node.service import Submission, SubmittedPayload
from postroad.node.settings.config import load_config
from postroad.store.records import Side, State
from postroad.wire.content import BytesContent
from tests.ports import free_port

PATIENCE = 30
ORDER = b"<Order>20 sheets</Order>"
PROFILES = [(one, False) for one in Profile] + [(Profile.LIGHT, True)]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario, PATIENCE))


def made(folder: Path, profile: Profile, *, tls: bool) -> Plan:
    mine, theirs = free_port(), free_port()
    client, hub = Station("client", folder / "client", mine), Station("hub", folder / "hub", theirs)
    secured = {"tls": tls, "client_certificates": tls}
    plan = Plan(client, hub, **secured, ships=False, profile=profile, unsigned=True)
    initialize(plan, now=datetime.now(UTC))
    for file in folder.glob("*/pmodes/*"):
        # The test says when something is collected.
        text = file.read_text().replace("    pulling:\n", "    pulling:\n      scheduled: false\n")
        file.write_text(text)
    return plan


async def handed_over(sender: Node, receiver: Node, sample: Sample, pmode: str) -> tuple[str, str]:
    """What both ends say of a message of a P-Mode, once it is there."""
    payload = SubmittedPayload(BytesContent(ORDER), hashlib.sha256(ORDER).digest())
    sent = (await sender.submit(Submission(pmode, (payload,)))).message
    if sample.pulled:
        await receiver.pull(pmode)
    ended = await sender.settled(sent.message_id, PATIENCE)
    arrived = await receiver.message(sent.message_id, Side.RECEIVING)
    assert ended is not None
    assert arrived is not None
    assert b"".join(receiver.part(arrived, arrived.parts[0]).chunks()) == ORDER
    return ended.state, arrived.state


@pytest.mark.parametrize(("profile", "tls"), PROFILES)
def test_the_parties_of_a_profile_exchange_in_both_directions(
    tmp_path: Path, profile: Profile, tls: bool
) -> None:
    plan = made(tmp_path, profile, tls=tls)
    configs = [load_config(one.folder / "postroad.yaml") for one in plan.stations]

    async def scenario() -> None:
        async with RunningNode(configs[0]) as client, RunningNode(configs[1]) as hub:
            nodes = {"client": client.node, "hub": hub.node}
            for sample, sender, receiver in plan.samples:
                name = sample.pmode_id(sender.name, receiver.name)
                both = nodes[sender.name], nodes[receiver.name]
                told = await handed_over(*both, sample, name)
                assert told == (State.SENT if sample.bare else State.ACKNOWLEDGED, State.DELIVERED)

    run(scenario())


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("profile", [Profile.LIGHT, Profile.MINIMAL])
def test_a_client_has_no_door_for_partners(tmp_path: Path, profile: Profile, tls: bool) -> None:
    plan = made(tmp_path, profile, tls=tls)
    client, hub = (load_config(one.folder / "postroad.yaml") for one in plan.stations)
    assert {part for door in client.listen for part in door.serve} == {"api"}
    assert {part for door in hub.listen for part in door.serve} == {"api", "msh"}
