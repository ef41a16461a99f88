"""P-Mode parameters of the ebMS 3.0 Advanced Features: what is refused, and what is carried out.

Sections 4.4.2, 5.2, 6 and 7. What is refused is shown by `postroad pmode check`, with the parameter
that it names; what is carried out, by running nodes.
"""

import hashlib
import ipaddress
import ssl
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from lxml import etree
from typer.testing import CliRunner

from postroad.cli.pmode import app
from postroad.store.records import State
from postroad.wire.names import I_CLOUD, NEXT_MSH
from tests import pki
from tests.node.bundling import parties, said
from tests.node.collecting import collect, pull
from tests.node.exchange import run
from tests.node.hubs import FAR, NEAR, hub, rule, there_and_back
from tests.node.reliable import SOAP
from tests.node.streams import Next, streaming
from tests.node.streams import letter as message_for_the_seller
from tests.node.test_bundles_received import COMPARED
from tests.node.test_forwarding_signals import OTHERS, letter
from tests.spec.kit import (
    BUYER,
    CARRIER,
    SELLER,
    As4,
    Call,
    Row,
    Script,
    Send,
    Wait,
    WireMessage,
    World,
    address,
    check,
    lost,
    played,
    shows,
    start,
    status,
    wire,
)
from tests.spec.routing_input import assert_valid
from tests.transport.handshakes import FAR_AWAY, Files, secured
from tests.transport.test_tls import shaken
from tests.transport.wires import Seen, in_loop, serving

_HEAD: Final = "id: p\ninitiator: {party: urn:acme}\nresponder: {party: urn:globex}\n"
_SIGNED: Final = "security: {x509: {sign: true, signature: {pins: a.pem}}}"
_M: Final = "m@buyer.example"


def _one_way(leg: str, binding: str = "push", head: str = _HEAD) -> str:
    return f"{head}mep: oneWay\nmep_binding: {binding}\nlegs:\n  - {leg}\n"


def _two_way(binding: str, first: str = "{}", second: str = "{}") -> str:
    return f"{_HEAD}mep: twoWay\nmep_binding: {binding}\nlegs: [{first}, {second}]\n"


class _Files:
    """P-Mode files, as `postroad pmode check` sees them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def errors(self, *texts: str) -> list[str]:
        """Return the parameters that are reported with an error; the exit code tells the same."""
        files = []
        for number, text in enumerate(texts, 1):
            files.append(self._folder / f"{number}.yaml")
            files[-1].write_text(text, encoding="utf-8")
        done = CliRunner().invoke(app, ["check", *map(str, files)])
        found = [
            line.partition(" error: ")[2].partition(":")[0]
            for line in done.stderr.splitlines()
            if " error: " in line
        ]
        assert done.exit_code == (1 if found else 0), done.output
        return found


@pytest.fixture
def files(tmp_path: Path) -> _Files:
    return _Files(tmp_path)


@pytest.mark.req("P2-4.4.2-16")
def test_a_message_that_is_split_is_not_exchanged_by_sync(files: _Files) -> None:
    for first, second in (("{splitting: true}", "{}"), ("{}", "{splitting: true}")):
        assert files.errors(_two_way("sync", first, second)) == ["PMode.MEPbinding"]
        assert files.errors(_two_way("pushAndPush", first, second)) == []
    assert files.errors(_two_way("sync", "{splitting: false}")) == []


@pytest.mark.req("P2-4.4.2-18")
def test_a_message_that_is_split_is_not_acknowledged_in_the_response(files: _Files) -> None:
    parameter = "PMode[1].Reliability.AtLeastOnce.ReplyPattern"
    reliability = "reliability: {protocol: wsrm, at_least_once: {contract: true%s}}"
    response = reliability % ", reply_pattern: Response"
    callback = reliability.replace("contract: true", "contract: {acks_to: 'http://a.example/'}")
    callback %= ", reply_pattern: Callback"
    assert files.errors(_one_way(response)) == files.errors(_one_way(callback)) == []
    assert parameter in files.errors(_one_way(f"splitting: true\n    {response}"))
    assert parameter not in files.errors(_one_way(f"splitting: true\n    {callback}"))


@pytest.mark.req("P2-5.2-01")
@pytest.mark.parametrize(
    ("binding", "refused"),
    [
        ("{value: sync, alternate: pushAndPull}", False),
        ("{value: sync, alternate: pushAndPush}", False),
        ("{value: sync, alternate: pullAndPush}", True),
        ("{value: sync, alternate: pullAndPull}", True),
        ("{value: sync, alternate: sync}", True),
        ("{value: sync, alternate: pull}", True),
        ("{value: sync, alternate: [pushAndPull, pushAndPush]}", True),
    ],
)
def test_an_alternate_changes_how_the_response_travels_and_nothing_else(
    files: _Files, binding: str, refused: bool
) -> None:
    expected = ["PMode.MEPbinding.Alternate"] if refused else []
    assert files.errors(_two_way(binding)) == expected


@pytest.mark.req("P2-5.2-01")
def test_an_alternate_is_for_two_way_only(files: _Files) -> None:
    text = _one_way("{}", "{value: push, alternate: pushAndPull}")
    assert files.errors(text) == ["PMode.MEPbinding.Alternate"]


_UNIT: Final = """\
id: orders.init
mep: oneWay
mep_binding: push
initiator: {party: urn:acme, role: Buyer}
responder: {party: urn:globex, role: Seller}
legs:
  - protocol:
      address: https://hub.example/a
      soap_version: 1.2
      add_actor_or_role_attribute: true
      security: {protocol: TLS, protocol_version: 1.2, minimum_key_size: 128}
      restart: {enabled: true, interval: PT1H}
    business_info: {service: urn:orders, action: Place}
    security: {x509: {sign: true, signature: {pins: a.pem}}}
"""


@pytest.mark.req("P2-6.4.2-01")
@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("hub.example/a", "hub.example/b", None),
        ("protocol_version: 1.2", "protocol_version: 1.3", None),
        ("minimum_key_size: 128", "minimum_key_size: 256", None),
        ("enabled: true", "enabled: false", None),
        ("PT1H", "PT2H", None),
        ("soap_version: 1.2", "soap_version: 1.1", "PMode[1].Protocol.SOAPVersion"),
        (
            "add_actor_or_role_attribute: true",
            "add_actor_or_role_attribute: false",
            "PMode[1].Protocol.AddActorOrRoleAttribute",
        ),
    ],
)
def test_protocol_parameters_are_set_for_init_and_resp_apart_but_for_two(
    files: _Files, old: str, new: str, error: str | None
) -> None:
    assert old in _UNIT
    resp = _UNIT.replace("orders.init", "orders.resp").replace(old, new)
    assert files.errors(_UNIT, resp) == ([] if error is None else [error])


_RESTART: Final = "PMode[1].Protocol.Restart"


@pytest.mark.req("P2-6.4.3-05", "P2-6.4.3-04")
@pytest.mark.parametrize("binding", ["pull", "pushAndPush", "pushAndPull", "sync"])
def test_as2_restart_is_used_with_push_only(files: _Files, binding: str) -> None:
    leg = f"{{protocol: {{restart: %s}}, {_SIGNED}}}"
    if binding == "pull":
        text = _one_way(leg, binding)
    else:
        text = _two_way(binding, leg, f"{{{_SIGNED}}}")
    assert files.errors(text % "true") == [_RESTART]
    assert files.errors(text % "{enabled: true, protocol: as2-restart}") == [_RESTART]
    assert files.errors(text % "false") == []
    assert files.errors(_one_way(leg % "true")) == []


@pytest.mark.req("P2-6.4.3-04")
def test_restart_is_read_in_the_light_of_the_transport(files: _Files, tmp_path: Path) -> None:
    leg = f"{{protocol: {{address: '%s', restart: {{interval: PT1H}}}}, {_SIGNED}%s}}"
    info = ", business_info: {service: {value: urn:s}, action: a}, ebxml: {version: 2.0}"
    mail = _one_way(leg % ("mailto:msh@globex.example", info), head=f"agreement: c\n{_HEAD}")
    assert files.errors(mail) == [_RESTART]
    assert files.errors(mail.replace(", restart: {interval: PT1H}", "")) == []
    text = _one_way(leg % ("https://globex.example/msh", ""))
    assert files.errors(text) == []
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "1.yaml")]).output
    assert f"{_RESTART}.Protocol = as2-restart\n" in shown


@pytest.mark.req("P2-6.7.1-02")
def test_receipts_that_are_pulled_need_an_epr_with_the_channel(files: _Files) -> None:
    head = _HEAD.replace("urn:acme", "urn:acme, authorization: {username: u, password: p}")
    receipt = "security: {send_receipt: {reply_pattern: pull%s}}"
    epr = ", addressing: {epr: {routing_input: {business_info: {%s}}}}"
    for addressing in ("", ", addressing: {address: icloud}", epr % "action: a"):
        found = files.errors(_one_way(receipt % addressing, head=head))
        assert "PMode[1].Security.SendReceipt.ReplyPattern" in found
    assert files.errors(_one_way(receipt % (epr % "mpc: urn:m"), head=head)) == []


_EPR: Final[dict[str, Any]] = {
    "routing_input": {
        "initiator": {"party": "urn:example:left", "role": "urn:example:role-left"},
        "responder": {"party": "urn:example:right", "role": "urn:example:role-right"},
        "business_info": {
            "service": "urn:example:post",
            "action": "carry",
            "properties": [{"name": "lane", "value": "7"}],
            "mpc": "urn:example:channel",
        },
    }
}
_ADDRESSING: Final[dict[str, Any]] = {"epr": _EPR, "action": "urn:example:wsa-action"}


def _assert_routed(message: WireMessage, *, from_initiator: bool) -> None:
    """Check that every parameter of `_ADDRESSING` is in the headers."""
    [routing_input] = message.xpath("ebint:RoutingInput")
    assert_valid(routing_input)
    sides = ("left", "right") if from_initiator else ("right", "left")
    routing = "ebint:RoutingInput/ebint:UserMessage"
    assert message.text(f"{routing}/@mpc") == "urn:example:channel"
    for side, name in zip(("From", "To"), sides, strict=True):
        where = f"{routing}/eb:PartyInfo/eb:{side}"
        assert message.text(f"{where}/eb:PartyId") == f"urn:example:{name}"
        assert message.text(f"{where}/eb:Role") == f"urn:example:role-{name}"
    info = f"{routing}/eb:CollaborationInfo"
    assert message.text(f"{info}/eb:Service") == "urn:example:post"
    assert (message.text(f"{info}/eb:Action") or "").startswith("carry")
    assert message.text(f"{routing}/eb:MessageProperties/eb:Property[@name='lane']") == "7"
    assert message.text("wsa:To") == I_CLOUD
    assert message.text("wsa:Action") == "urn:example:wsa-action"


def _sent(world: World, sender: str, containing: str) -> list[WireMessage]:
    return [
        one for one in wire(world) if one.sender == sender and one.body and one.xpath(containing)
    ]


@pytest.mark.req("P2-7.1-10", "P2-2.7.1.2-01")
@pytest.mark.parametrize(
    "place",
    ["responder", "initiator", "receipt", "error", "sender's error"],
)
@played
async def test_every_parameter_of_addressing_is_carried_out_wherever_it_stands(
    world: World, place: str
) -> None:
    there_and_back(world, signed=False, retry={"max_retries": 0, "timeout": "PT10S"})
    anything: dict[str, Any] = {"service": "urn:example:post"}
    hub(
        world,
        NEAR,
        rule("over", FAR, to_party="urn:example:right"),
        rule("back", BUYER, **anything),
    )
    hub(
        world,
        FAR,
        rule("home", SELLER, to_party="urn:example:right"),
        rule("back", NEAR, **anything),
    )
    for at in (BUYER, SELLER):
        [pmode] = world._pmodes[at]
        [leg] = pmode["legs"]
        pmode["responder"]["addressing"] = _ADDRESSING
        report = leg["error_handling"]["report"]
        if place == "initiator":
            pmode["initiator"]["addressing"] = _ADDRESSING
        elif place == "receipt":
            leg["security"]["send_receipt"]["addressing"] = _ADDRESSING
        elif place == "error":
            report["receiver_errors_to"] = {"value": address(FAR), "addressing": _ADDRESSING}
            if at == SELLER:
                leg["business_info"]["payload_profile"] = {"max_size": "1 B"}
        elif place == "sender's error":
            report["sender_errors_to"] = {"value": [address(CARRIER)], "addressing": _ADDRESSING}
    world.wire.usual[CARRIER] = status(202)
    for name in (NEAR, FAR):
        await world.start(name)
    buyer, _ = await world.both()
    if place == "sender's error":
        world.wire.usual[NEAR] = lost
    await buyer.send(_M)
    await world.wait(60)
    if place == "responder":
        [message] = _sent(world, BUYER, "eb:UserMessage/eb:MessageInfo")
        _assert_routed(message, from_initiator=True)
    elif place == "sender's error":
        [message] = _sent(world, BUYER, "eb:Error")
        _assert_routed(message, from_initiator=False)
    else:
        [message] = _sent(world, SELLER, "eb:Error" if place == "error" else "eb:Receipt")
        _assert_routed(message, from_initiator=False)
        assert await buyer.state(_M) is (State.FAILED if place == "error" else State.ACKNOWLEDGED)


@pytest.mark.req("P2-7.1-10", "P2-2.7.1.2-01")
@played
async def test_every_parameter_of_addressing_is_carried_out_in_pull_requests(world: World) -> None:
    collect(world)
    for at in (BUYER, SELLER):
        world._pmodes[at][0]["legs"][0]["addressing"] = _ADDRESSING
    buyer, seller = await world.both()
    await buyer.send(_M)
    await pull(seller)
    [message] = _sent(world, SELLER, "eb:PullRequest")
    _assert_routed(message, from_initiator=True)


@pytest.mark.parametrize(
    "wrong",
    [
        ("<eb:Role>urn:example:role-left</eb:Role>", ""),
        ("eb:Action>", "eb:Activity>"),
        ("<ebint:UserMessage ", '<ebint:UserMessage id="a" '),
        (">7<", "><"),
    ],
)
@played
async def test_the_grammar_of_routing_input_refuses_what_it_does_not_describe(
    world: World, wrong: tuple[str, str]
) -> None:
    collect(world)
    world._pmodes[SELLER][0]["legs"][0]["addressing"] = _ADDRESSING
    _, seller = await world.both()
    await pull(seller)
    [found] = _sent(world, SELLER, "eb:PullRequest")[0].xpath("ebint:RoutingInput")
    text = etree.tostring(found, encoding="unicode")
    assert wrong[0] in text
    with pytest.raises(etree.DocumentInvalid):
        assert_valid(etree.fromstring(text.replace(*wrong)))


def _role(soap: str, given: bool | None) -> Script:
    async def agree(world: World) -> None:
        for at in (BUYER, SELLER):
            protocol = world._pmodes[at][0]["legs"][0]["protocol"]
            if given is not None:
                protocol["add_actor_or_role_attribute"] = given
        for name in (BUYER, SELLER):
            await start(world, name)

    return Script((As4(soap=soap),), (Call(agree), Send(_M), Wait(1)), nodes=())


@pytest.mark.parametrize(
    "row",
    [
        shows("P2-7.1-10", _role("1.1", True), "eb:Messaging/@s11:actor", [NEXT_MSH]),
        shows("P2-7.1-10", _role("1.2", True), "eb:Messaging/@s12:role", [NEXT_MSH]),
        shows("P2-7.1-10", _role("1.1", False), "eb:Messaging/@s11:actor", 0),
        shows("P2-7.1-10", _role("1.2", False), "eb:Messaging/@s12:role", 0),
        shows("P2-7.1-10", _role("1.2", None), "eb:Messaging/@s12:role", 0),
    ],
)
def test_the_p_mode_says_whether_eb_messaging_is_for_the_next_msh(row: Row) -> None:
    check(row)


@pytest.mark.req("P2-7.1-13")
@pytest.mark.parametrize("kind", ["RequestSecurityToken", "RequestSecurityTokenResponse"])
@played
async def test_a_routed_message_of_a_protocol_that_is_not_spoken_is_a_feature_not_supported(
    world: World, kind: str
) -> None:
    world.agree()
    await world.both()
    body = letter(SELLER, OTHERS[kind], signal=False)
    await world.wire.post(BUYER, SELLER, SOAP, body, None)
    answer = wire(world)[-1]
    assert answer.text("eb:Error/@errorCode") == "EBMS:0008"
    assert answer.text("eb:Error/@shortDescription") == "FeatureNotSupported"
    assert [one.error_code for one in await world.stations[SELLER].journal("error_raised")] == [
        "EBMS:0008"
    ]


@pytest.mark.req("P2-7.2-07")
@pytest.mark.parametrize(
    ("policy", "third"), [("undefined", "receipt"), ("documentorder", "EBMS:0031")]
)
def test_with_an_undefined_order_a_unit_that_fails_stops_no_other(
    tmp_path: Path, policy: str, third: str
) -> None:
    async def scenario() -> None:
        ordering = {"policy": policy}
        bundles = await parties(tmp_path, ordering, reception_awareness=COMPARED)
        await bundles.bundle(bundles.unit("b", content=b"the first"))
        response = await bundles.bundle(*(bundles.unit(name) for name in "abc"))
        assert said(response) == {"a": "receipt", "b": "EBMS:0003", "c": third}
        assert ("c" in await bundles.inbox()) is (policy == "undefined")

    run(scenario())


_MANDATORY: Final = "TLS_RSA_WITH_AES_128_CBC_SHA"
"""Of TLS 1.2; TLS 1.1, with another one, is not spoken here."""


def _plain(side: int, key: Path | None = None) -> ssl.SSLContext:
    """The context of another product that supports this suite of TLS 1.2 and no other."""
    context = ssl.SSLContext(side)
    context.set_ciphers("AES128-SHA")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    if key is not None:
        context.load_cert_chain(key)
    return context


def _rsa_files(folder: Path) -> Files:
    files = Files(folder)
    name = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    files.server = pki.issue(
        files.ca, "rsa", key="rsa", not_after=FAR_AWAY, usage=None, extensions=((name, False),)
    )
    return files


@pytest.mark.req("P2-6.4.1-04")
@pytest.mark.parametrize("agreed", [True, False])
@in_loop
async def test_a_message_is_sent_by_the_mandatory_cipher_suite_of_tls_where_that_is_agreed_on(
    tmp_path: Path, agreed: bool
) -> None:
    files, seller = _rsa_files(tmp_path), Next()
    door = _plain(ssl.PROTOCOL_TLS_SERVER, files.key("server", files.server))
    tls: dict[str, Any] = {
        "protocol": "TLS",
        "server": {"anchor_certificates": [str(files.authority)]},
    }
    if agreed:
        tls["security_algorithm"] = [_MANDATORY]
    kind, body = message_for_the_seller(b"order")
    async with serving(seller, ssl=door) as server:
        to = {"push": server.url, "tls": tls, "forward": "sync"}
        async with streaming(tmp_path, to, errors="log") as hub_between:
            await hub_between.post(kind, body)
    assert seller.digests == ([hashlib.sha256(body).hexdigest()] if agreed else [])


@pytest.mark.req("P2-6.4.1-04")
@in_loop
async def test_a_listener_offers_the_mandatory_cipher_suite_of_tls_where_that_is_configured(
    tmp_path: Path,
) -> None:
    files = _rsa_files(tmp_path)
    async with secured(files.of_server(suites=(_MANDATORY,)), Seen()) as server:
        assert await shaken(server, _plain(ssl.PROTOCOL_TLS_CLIENT))
    async with secured(files.of_server(), Seen()) as server:
        assert not await shaken(server, _plain(ssl.PROTOCOL_TLS_CLIENT))
