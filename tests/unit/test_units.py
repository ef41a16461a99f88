"""The two units of a multi-hop P-Mode, made of a point-to-point one."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from postroad.agreement.loading import load_pmodes, load_sources
from postroad.agreement.places import alternate_of, initiator_sends, responder_pulls, short_uri
from postroad.agreement.pmode import Authorization, PMode
from postroad.agreement.reply_patterns import (
    error_addressing,
    error_pattern,
    receipt_addressing,
    receipt_pattern,
    routed_mpc,
    signal_channels,
)
from postroad.agreement.units import derive_units
from postroad.agreement.writing import pmode_yaml
from postroad.cli.pmode import app
from postroad.wire.names import DEFAULT_MPC

NEAR, FAR = "https://near.example/msh", "https://far.example/msh"
ORDERS = """\
id: orders
agreement: urn:example:agreement
initiator: {party: "urn:example:buyer", role: Buyer}
responder: {party: "urn:example:seller", role: Seller}
legs:
  - protocol: {address: "https://seller.example/msh", soap_version: "1.2"}
    business_info: {service: "urn:example:trade", action: Order}
    security:
      x509: {sign: true, signature: {certificate: buyer.pem, algorithm: rsa-sha256}}
      send_receipt: {reply_pattern: response, non_repudiation: true, certificate: seller.pem}
"""
REPLY = """\
  - protocol: {address: "https://buyer.example/msh"}
    business_info: {action: Confirm}
    security: {send_receipt: true}
"""
PULLED = ORDERS.replace("legs:", "mep_binding: pull\nlegs:").replace("response", "callback")
TALK = ORDERS.replace("agreement:", "mep: twoWay\nmep_binding: pushAndPush\nagreement:") + REPLY


def point_to_point(text: str = ORDERS) -> PMode:
    result = load_pmodes(text, "orders.yaml")
    assert result.ok, [str(one) for one in result.problems]
    return result.pmodes[0]


def units(text: str = ORDERS, **pulls: bool) -> tuple[PMode, PMode]:
    return derive_units(point_to_point(text), initiator_hub=NEAR, responder_hub=FAR, **pulls)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["multihop", *map(str, arguments)])


def addresses(pmode: PMode) -> list[str | None]:
    return [leg.protocol.address if leg.protocol else None for leg in pmode.legs]


def test_an_end_is_not_asked_for_the_key_of_the_other() -> None:
    keys = "signature: {key: buyer.p12, certificate: buyer.pem, "
    secret = ", encryption: {encrypt: true, key: seller.p12, certificate: seller.pem}}"
    text = ORDERS.replace("signature: {certificate: buyer.pem, ", keys).replace("}}", "}" + secret)
    found = []
    for unit in units(text):
        assert unit.legs[0].security is not None
        x509 = unit.legs[0].security.x509
        assert x509 is not None
        assert x509.signature is not None
        assert x509.encryption is not None
        assert x509.signature.certificate == "buyer.pem"
        assert x509.encryption.certificate == "seller.pem"
        found.append((x509.signature.key, x509.encryption.key))
    assert found == [("buyer.p12", None), (None, "seller.p12")]


@pytest.mark.req("P2-2.7.2-01", "P2-2.7.2-02", "P2-2.7.2-03", "P2-2.7.2-05", "P2-2.7.2-13")
def test_each_end_knows_its_own_hub() -> None:
    init, resp = units()
    assert (init.id, resp.id) == ("orders.init", "orders.resp")
    assert init.public_id == resp.public_id == "orders"
    assert addresses(init) == [NEAR]
    assert addresses(resp) == ["https://seller.example/msh"]
    for unit, hub in ((init, NEAR), (resp, FAR)):
        [leg] = unit.legs
        assert leg.protocol is not None
        assert leg.protocol.add_actor_or_role_attribute is True
        assert leg.security is not None
        receipt = leg.security.send_receipt
        assert receipt is not None
        assert (receipt.reply_pattern, receipt.reply_to) == ("callback", hub)
        assert (receipt.non_repudiation, receipt.certificate) == (True, "seller.pem")
        assert leg.error_handling is not None
        report = leg.error_handling.report
        assert report is not None
        assert report.as_response is False
        assert report.receiver_errors_to is not None
        assert report.receiver_errors_to.value == (hub,)


def test_a_reply_that_is_pushed_goes_by_the_hub_of_who_replies() -> None:
    init, resp = units(TALK)
    assert addresses(init) == [NEAR, "https://buyer.example/msh"]
    assert addresses(resp) == ["https://seller.example/msh", FAR]
    reply = resp.legs[1].security
    assert reply is not None
    assert reply.send_receipt is not None
    assert (reply.send_receipt.enabled, reply.send_receipt.reply_to) == (True, FAR)


@pytest.mark.req("P2-2.7.2-04")
@pytest.mark.parametrize("text", [ORDERS, TALK], ids=["one way", "two way"])
def test_the_two_fit_together_and_no_longer_when_one_is_changed(text: str) -> None:
    init, resp = map(pmode_yaml, units(text))
    assert load_sources([("init.yaml", init), ("resp.yaml", resp)]).problems == ()
    other = resp.replace("action: Order", "action: Invoice")
    [problem] = load_sources([("init.yaml", init), ("resp.yaml", other)]).errors
    assert "'Invoice' here and 'Order' in 'orders.init'" in problem.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ORDERS.replace("id: orders", "id: orders.init"), "unit already"),
        (PULLED.replace("action: Order", "action: Order, sub_mpc_ext: x"), "hub's to name"),
        (
            "id: old\nagreement: cpa\ninitiator: {party: urn:a}\nresponder: {party: urn:b}\n"
            "legs: [{ebxml: {}, business_info: {service: urn:s, action: A}}]\n",
            "relays of its own",
        ),
    ],
    ids=["a unit", "sub-channel", "ebXML"],
)
def test_what_has_no_units_is_refused(text: str, said: str) -> None:
    pmode = load_pmodes(text, "p.yaml").pmodes[0]
    with pytest.raises(ValueError, match=said):
        derive_units(pmode, initiator_hub=NEAR, responder_hub=FAR)


def test_the_command_writes_a_file_for_each_end(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(ORDERS)
    done = run(file, "--initiator-hub", NEAR, "--responder-hub", FAR, "--out", tmp_path / "u")
    assert (done.exit_code, done.stderr) == (0, "")
    init, resp = tmp_path / "u/orders.init.yaml", tmp_path / "u/orders.resp.yaml"
    assert done.stdout == f"wrote {init}: 1 P-Mode\nwrote {resp}: 1 P-Mode\n"
    made = load_sources([(str(one), one.read_text()) for one in (init, resp)])
    assert made.problems == ()
    assert made.pmodes == units()


def test_several_pmodes_stay_in_one_file_and_one_hub_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"{ORDERS}---\n{ORDERS.replace('id: orders', 'id: b').replace('Order', 'B')}")
    done = run(file, "--initiator-hub", NEAR)
    assert done.exit_code == 0, done.output
    made = load_sources([("r", (tmp_path / "all.resp.yaml").read_text())])
    assert [one.id for one in made.pmodes] == ["orders.resp", "b.resp"]
    assert NEAR in (tmp_path / "all.resp.yaml").read_text()


def test_nothing_is_overwritten_unawares(tmp_path: Path) -> None:
    file, target = tmp_path / "orders.yaml", tmp_path / "orders.resp.yaml"
    file.write_text(ORDERS)
    target.write_text("mine")
    done = run(file, "--initiator-hub", NEAR)
    assert done.exit_code == 1
    assert f"{target}: it exists" in done.stderr
    assert target.read_text() == "mine"
    assert not (tmp_path / "orders.init.yaml").exists()
    assert run(file, "--initiator-hub", NEAR, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("text", "hub", "said"),
    [
        (
            "id: a\nlegs: [{nonsense: true}]\n",
            NEAR,
            "no P-Mode in it that could be taken",
        ),
        (ORDERS.replace("id: orders", "id: a.resp"), NEAR, "'a.resp': it is a unit already"),
        (ORDERS, "not a url", "cannot be the hub"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(tmp_path: Path, text: str, hub: str, said: str) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(text)
    done = run(file, "--initiator-hub", hub)
    assert done.exit_code == 1
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == [file]


USER = "initiator: {authorization: {username: u, password: p}, "


@pytest.mark.req("P2-2.7.2-13", "P2-2.6.2-10")
@pytest.mark.parametrize("mpc", ["http://hub.example/buyer", None])
def test_an_initiator_that_pulls_finds_receipts_and_errors_in_their_channels(
    tmp_path: Path, mpc: str | None
) -> None:
    file = tmp_path / "orders.yaml"
    info = f"business_info: {{mpc: '{mpc}', " if mpc else "business_info: {"
    text = ORDERS.replace("initiator: {", USER)
    file.write_text(text.replace("business_info: {", info))
    done = run(file, "--initiator-hub", NEAR, "--responder-hub", FAR, "--initiator-pulls")
    assert (done.exit_code, done.stderr) == (0, "")
    init, resp = (
        load_pmodes((tmp_path / f"orders.{unit}.yaml").read_text(), unit).pmodes[0].legs[0]
        for unit in ("init", "resp")
    )
    channel = mpc or DEFAULT_MPC
    assert signal_channels(init) == (f"{channel}.receipt", f"{channel}.error")
    assert (receipt_pattern(resp), error_pattern(resp)) == ("callback", "callback")
    routed = receipt_addressing(resp), error_addressing(resp)
    assert tuple(map(routed_mpc, routed)) == signal_channels(init)


@pytest.mark.parametrize(
    ("text", "said"),
    [(ORDERS, "add initiator.authorization"), ("sync", "nothing is pulled")],
)
def test_who_cannot_pull_is_told_why(text: str, said: str) -> None:
    pmode = exchange(text) if text == "sync" else point_to_point(text)
    with pytest.raises(ValueError, match=said):
        derive_units(pmode, initiator_hub=NEAR, responder_hub=FAR, initiator_pulls=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [(ORDERS, "add responder.authorization"), (PULLED, "the hub pulls from the Responder")],
)
def test_a_responder_that_cannot_pull_is_told_why(text: str, said: str) -> None:
    pmode = load_pmodes(text, "p").pmodes[0]
    if text is PULLED:
        user = Authorization.model_validate({"username": "r", "password": "p"})
        assert pmode.responder is not None
        known = pmode.responder.model_copy(update={"authorization": user})
        pmode = pmode.model_copy(update={"responder": known})
    with pytest.raises(ValueError, match=said):
        derive_units(pmode, initiator_hub=NEAR, responder_hub=FAR, responder_pulls=True)


@pytest.mark.parametrize("text", [ORDERS, TALK])
def test_units_of_a_responder_that_pulls_are_made_of_a_pushed_message(
    tmp_path: Path, text: str
) -> None:
    user = "{username: seller, password: a secret}"
    file = tmp_path / "orders.yaml"
    file.write_text(text.replace("role: Seller}", f"role: Seller, authorization: {user}}}"))
    made = run(file, "--initiator-hub", NEAR, "--responder-hub", FAR, "--responder-pulls")
    assert made.exit_code == 0, made.output
    unit = load_pmodes((tmp_path / "orders.resp.yaml").read_text(), "orders.resp.yaml")
    assert unit.ok
    assert responder_pulls(unit.pmodes[0])


HOMES = {"https://seller.example/msh": "home", "https://buyer.example/msh": "home"}


def exchange(binding: str) -> PMode:
    """A two-way exchange between two points, in which either side may pull."""
    answer = {"enabled": True, "reply_pattern": "callback", "reply_to": "https://x.example"}
    legs: list[dict[str, object]] = [
        {"protocol": {"address": address}, "security": {"send_receipt": answer}}
        for address in HOMES
    ]
    if binding == "sync":
        legs[0]["security"] = {"send_receipt": {"reply_pattern": "response"}}
        legs[1]["protocol"] = {}
    sides: dict[str, dict[str, object]] = {
        "initiator": {"party": "urn:example:buyer"},
        "responder": {"party": "urn:example:seller"},
    }
    for side, one in sides.items():
        if binding != "sync":
            one["authorization"] = {"username": side, "password": "a secret"}
    data = {"id": "talk", "mep": "twoWay", "mep_binding": binding, "legs": legs}
    return PMode.model_validate(data | sides)


@pytest.mark.req("P2-2.7.2-06", "P2-2.7.2-13", "P2-2.4.8.1-02", "P2-2.4.8.2-02")
@pytest.mark.parametrize(
    ("binding", "pulls", "bound", "init_at", "resp_at"),
    [
        ("pushAndPush", "", "pushAndPush pushAndPush", (NEAR, "home"), ("home", FAR)),
        ("pushAndPush", "i", "pushAndPull pushAndPush", (NEAR, NEAR), ("home", FAR)),
        ("pushAndPush", "r", "pushAndPush pullAndPush+", (NEAR, "home"), (FAR, FAR)),
        ("pushAndPush", "ir", "pushAndPull pullAndPush+", (NEAR, NEAR), (FAR, FAR)),
        ("pushAndPull", "", "pushAndPull pushAndPush", (NEAR, NEAR), ("home", FAR)),
        ("pushAndPull", "r", "pushAndPull pullAndPush+", (NEAR, NEAR), (FAR, FAR)),
        ("pullAndPush", "", "pullAndPush pullAndPush", (NEAR, NEAR), ("home", "home")),
        ("pullAndPull", "", "pullAndPush pullAndPull", (NEAR, NEAR), ("home", FAR)),
        ("sync", "", "sync sync", (NEAR, None), ("home", None)),
    ],
)
def test_each_end_is_bound_to_its_hub_and_the_two_fit(
    binding: str,
    pulls: str,
    bound: str,
    init_at: tuple[str | None, ...],
    resp_at: tuple[str | None, ...],
) -> None:
    """`+`: the Responder's side pulls."""
    whole = exchange(binding)
    made = derive_units(
        whole,
        initiator_hub=NEAR,
        responder_hub=FAR,
        initiator_pulls="i" in pulls,
        responder_pulls="r" in pulls,
    )
    found = [f"{short_uri(one.binding)}{'+' if responder_pulls(one) else ''}" for one in made]
    assert " ".join(found) == bound
    places = [tuple(HOMES.get(one or "", one) for one in addresses(unit)) for unit in made]
    assert places == [init_at, resp_at]
    for unit in made:
        assert [initiator_sends(unit, n) for n in (0, 1)] == [
            initiator_sends(whole, n) for n in (0, 1)
        ]
    assert load_sources([(one.id, pmode_yaml(one)) for one in made]).errors == ()


@pytest.mark.req("P2-2.7.2-13")
def test_a_response_through_hubs_stays_one_and_a_late_reply_goes_to_the_hub() -> None:
    late = exchange("sync").model_dump(exclude_unset=True)
    late["mep_binding"] = {"value": "sync", "alternate": "pushAndPull"}
    init, resp = derive_units(PMode.model_validate(late), initiator_hub=NEAR, responder_hub=FAR)
    assert receipt_pattern(resp.legs[0]) == error_pattern(resp.legs[0]) == "response"
    assert [short_uri(alternate_of(one)) for one in (init, resp)] == ["pushAndPull", "pushAndPush"]
    assert addresses(resp) == ["https://seller.example/msh", FAR]
    assert receipt_pattern(init.legs[1]) == "callback"


@pytest.mark.req("P2-2.6.2-10")
def test_receipts_that_were_pulled_from_the_partner_are_pulled_from_the_hub() -> None:
    epr = "addressing: {epr: {routing_input: {business_info: {mpc: 'urn:example:r'}}}}"
    text = ORDERS.replace("initiator: {", USER)
    init, resp = units(text.replace("reply_pattern: response", f"reply_pattern: pull, {epr}"))
    assert signal_channels(init.legs[0])[0] == "urn:example:r"
    assert routed_mpc(receipt_addressing(resp.legs[0])) == "urn:example:r"
    assert receipt_pattern(resp.legs[0]) == "callback"


def test_between_two_points_only_the_initiator_pulls() -> None:
    text = PULLED.replace("mep_binding: pull", "mep_binding: {value: pull, pulled_by: responder}")
    [problem] = load_pmodes(text, "p").errors
    assert "only the Initiator pulls" in problem.message
