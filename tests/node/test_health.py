"""What a node tells of itself before somebody is hurt: partners, certificates, settings, doors."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from postroad.node.service import Certificate, Health
from postroad.node.settings.certificates import certificate_problems, in_order
from postroad.node.settings.config import load_config
from postroad.node.settings.difference import FileDifference
from postroad.node.settings.keyring import TlsIdentity
from postroad.node.settings.reloading import Watched
from tests import pki
from tests.node.founding import found
from tests.node.reliable import BEGIN, BUYER, SELLER, World, party, played, refused

M = "m@buyer"
DAY = timedelta(days=1)
CA = pki.authority("Health CA", not_before=BEGIN - DAY)


def expiring(health: Health, use: str) -> list[tuple[str, str | None, datetime]]:
    return [(one.name, one.partner, one.expires) for one in health.certificates if one.use == use]


@played
async def test_a_partner_that_is_down_is_a_problem_of_a_node_that_is_ready(world: World) -> None:
    world.agree(retry={"max_retries": 20, "period": "PT1S"})
    world.wire.will(*[refused] * 5)
    buyer, _ = await world.both()
    assert (await buyer.node.health()).problems == ()
    await buyer.send(M)
    await world.until(10)
    down = await buyer.node.health()
    assert down.ready
    assert down.problems == (
        "paused because they cannot be reached: 1 partner; see: postroad partners",
    )
    await buyer.node.resume(party(SELLER))
    await buyer.node.suspend(party(SELLER), "moving house")
    suspended = await buyer.node.health()
    assert suspended.ready
    assert suspended.problems == (
        "suspended until you resume them: 1 partner; see: postroad partners",
    )


@played
async def test_a_partners_pinned_certificate_is_a_problem_a_month_before_it_expires(
    world: World,
) -> None:
    world.agree(signed=True, name="orders")
    found(world.folder, BEGIN)
    ends = BEGIN + 30 * DAY + timedelta(minutes=30)
    pair = pki.issue(CA, BUYER, not_before=BEGIN - DAY, not_after=ends)
    pinned = world.folder / SELLER / "keys" / "buyer.pem"
    pinned.write_bytes(pki.pem_certificates(pair.certificate))
    _, seller = await world.both()
    health = await seller.node.health()
    assert expiring(health, "partner") == [("orders", party(BUYER), ends)]
    assert health.problems == ()
    await world.wait(3600)
    health = await seller.node.health()
    assert health.ready
    [problem] = health.problems
    assert problem.startswith("1 certificate of partners")
    assert f"the first on {ends:%Y-%m-%d}" in problem
    assert party(BUYER) not in problem


@played
async def test_messages_and_their_partner_are_known_by_pmode(world: World) -> None:
    world.agree(name="orders")
    buyer, seller = await world.both()
    await buyer.send(M, pmode="orders")
    await world.wait(5)
    for station, place in (
        (buyer, ("sending", "acknowledged", "orders")),
        (seller, ("receiving", "delivered", "orders")),
    ):
        health = await station.node.health()
        assert health.figures.agreements[place] == 1
        partner = SELLER if station is buyer else BUYER
        assert health.partner_of["orders"] == party(partner)


@played
async def test_the_certificates_of_doors_are_among_those_that_expire(
    world: World,
) -> None:
    world.agree()
    buyer = await world.start(BUYER)
    ends = BEGIN + 10 * DAY
    pair = pki.issue(CA, "door", not_before=BEGIN - DAY, not_after=ends)
    watched: Watched[tuple[TlsIdentity | None, ...]] = Watched(
        lambda: (tuple(TlsIdentity(pair) for _ in buyer.node.config.listen), set())
    )
    buyer.node.show_doors(watched)
    health = await buyer.node.health()
    assert ("listen[0].tls", None, ends) in expiring(health, "tls")
    assert any("of listen[0].tls expires on" in one for one in health.problems)
    watched.problems = ("tls.p12: there is no such file",)
    health = await buyer.node.health()
    assert [one.detail for one in health.not_in_force] == list(watched.problems)


def certificate(use: str, days: float, name: str = "x", partner: str | None = None) -> Certificate:
    ends = BEGIN + days * DAY
    return Certificate(use, name, f"CN={name}", BEGIN - DAY, ends, f"{use}{days}", partner)


@pytest.mark.parametrize(
    ("certificates", "said"),
    [
        ([certificate("signing", 31), certificate("partner", 31)], []),
        ([certificate("signing", 29)], ["CN=x of x expires on"]),
        ([certificate("tls", -1)], ["CN=x of x expired on"]),
        ([certificate("signing", -1, "keys.signing")], []),
        ([certificate("decryption", -1, "old"), certificate("decryption", 90, "new")], []),
        (
            [certificate("decryption", -1, "old"), certificate("decryption", 9, "new")],
            ["CN=new of new expires on"],
        ),
        (
            [certificate("partner", -5), certificate("partner", 5), certificate("partner", 50)],
            ["2 certificates of partners"],
        ),
        ([certificate("trust", 5)], ["1 certificate of trusted authorities"]),
    ],
)
def test_what_is_said_of_certificates(certificates: Sequence[Certificate], said: list[str]) -> None:
    """An expired signing key is told elsewhere; old keys to decrypt with are kept on purpose."""
    found = list(certificate_problems(in_order(certificates), BEGIN))
    assert len(found) == len(said)
    for sentence, part in zip(found, said, strict=True):
        assert part in sentence


def test_a_certificate_that_several_pmodes_name_is_listed_once() -> None:
    two = [certificate("partner", 5, name, "seller") for name in ("first", "second")]
    assert in_order([*two, certificate("partner", 5, "third", "shipper")]) == (
        two[0],
        certificate("partner", 5, "third", "shipper"),
    )


def test_settings_that_changed_since_the_start_are_not_in_force(tmp_path: Path) -> None:
    file = tmp_path / "postroad.yaml"
    text = "node: a\nparty: urn:a:b\nlisten:\n  - {address: '127.0.0.1:1', serve: msh}\n"
    file.write_text(text)
    difference = FileDifference(load_config(file))
    assert difference.found() == ()
    file.write_text(f"# A remark changes nothing.\n{text}")
    assert difference.found() == ()
    file.write_text(f"{text.replace(':1', ':22')}send: {{parallel: 9}}\n")
    found = difference.found()
    assert {one.detail for one in found} == {
        "listen[0].address was changed",
        "send.parallel was changed",
    }
    assert {(one.what, one.to_do) for one in found} == {("postroad.yaml", "restart the node")}
    file.write_text(f"{text}\nnosuch: 1\n")
    [wrong] = difference.found()
    assert "nosuch" in wrong.detail
    assert "line 6" in wrong.detail
    assert "would not start" in wrong.to_do
    file.write_text(text)
    assert difference.found() == ()
    file.unlink()
    [gone] = difference.found()
    assert "cannot be read" in gone.detail
