"""Signals and messages of other protocols, routed by their RoutingInput."""

from pathlib import Path

import pytest

from postroad.agreement.pmode import Authorization
from postroad.msh.pulling import relayed_pull_request
from postroad.node.base.requests import Response
from postroad.node.settings.routes import load_routing
from postroad.security.egress import Purpose
from postroad.store.records import State
from postroad.wire.ebms3 import (
    CollaborationInfo,
    Error,
    MessageInfo,
    Messaging,
    Party,
    PartyId,
    Service,
    SignalMessage,
)
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.multihop import RoutingInput, RoutingUserMessage, write_routing_input
from postroad.wire.names import DEFAULT_MPC, I_CLOUD, NEXT_MSH, ONE_WAY, WSA, WSRM, WSSE, WST
from postroad.wire.soap import SoapVersion, write_body, write_envelope
from postroad.wire.wsa import Addressing, EndpointReference, write_addressing
from tests.node.hubs import FAR, NEAR, hub, rule
from tests.node.reliable import (
    BEGIN,
    BUYER,
    SELLER,
    SOAP,
    World,
    address,
    party,
    played,
    refused,
    status,
)

V = SoapVersion.SOAP_12
_taken = status(202)


def routing_input(to: str, action: str = "orders.receipt", mpc: str | None = None) -> str:
    sides = [Party((PartyId(party(one)),), "urn:example:role") for one in (SELLER, to)]
    info = CollaborationInfo(Service("urn:example:trade"), action, "c")
    routed = RoutingUserMessage(sides[0], sides[1], info, mpc=mpc)
    return write_routing_input(RoutingInput(routed), V)


def letter(
    to: str = BUYER,
    body: str = "",
    ref: str = "m@buyer",
    signal: bool = True,
    mpc: str | None = None,
) -> bytes:
    error = Error("EBMS:0004", "failure", ref_to_message_in_error=ref)
    said = SignalMessage(MessageInfo(BEGIN, "e@seller", ref), errors=(error,))
    headers = Addressing(to=I_CLOUD, action=f"{ONE_WAY}.error")
    blocks = [*write_addressing(headers, V), routing_input(to, mpc=mpc)]
    if signal:
        blocks.append(write_messaging(Messaging((said,)), V))
    return write_envelope(V, blocks, write_body(V, body))


WSC = "http://docs.oasis-open.org/ws-sx/ws-secureconversation/200512"
RM = f'xmlns:wsrm="{WSRM}"'
TRUST = f'xmlns:wst="{WST}"'
ACKS_TO = f'<wsrm:AcksTo><wsa:Address xmlns:wsa="{WSA}">{I_CLOUD}</wsa:Address></wsrm:AcksTo>'
OTHERS = {
    "CreateSequence": f"<wsrm:CreateSequence {RM}>{ACKS_TO}</wsrm:CreateSequence>",
    "CreateSequenceResponse": f"<wsrm:CreateSequenceResponse {RM}/>",
    "TerminateSequence": f"<wsrm:TerminateSequence {RM}/>",
    "RequestSecurityToken": f"<wst:RequestSecurityToken {TRUST}/>",
    "RequestSecurityTokenResponse": f"<wst:RequestSecurityTokenResponse {TRUST}/>",
}
"""Bodies of WS-ReliableMessaging, WS-Trust and WS-SecureConversation."""


@pytest.mark.req("P2-2.5.5-08", "P2-2.5.5-15", "P2-2.5.5-12", "P2-2.4.3-02", "P2-2.4.3-03")
@pytest.mark.req("P2-2.8-01", "P2-2.6.3.1-02", "P2-7.1-04", "P2-7.1-06")
@pytest.mark.parametrize("kind", ["a signal", *OTHERS])
@played
async def test_whatever_has_routing_input_is_passed_on(world: World, kind: str) -> None:
    hub(world, NEAR, rule("back", FAR, to_party=party(BUYER)))
    near = await world.start(NEAR)
    world.wire.usual[FAR] = _taken
    sent = letter(signal=kind not in OTHERS, body=OTHERS.get(kind, ""))
    answer = await near.receive(SOAP, sent)
    assert (answer.status, answer.body) == (202, b"")
    await world.wait(2)
    [posted] = world.wire.to(FAR)
    assert (posted.body, posted.content_type) == (sent, SOAP)
    assert await near.work() == {}


@pytest.mark.req("P2-2.5.1-03")
@pytest.mark.parametrize("mpc", [None, "urn:example:signals"])
@pytest.mark.parametrize("kind", ["a signal", *OTHERS])
@played
async def test_whatever_has_routing_input_can_wait_in_a_channel(
    world: World, kind: str, mpc: str | None
) -> None:
    user = {"username": "buyer", "password": "a secret of ours"}
    back = {"id": "back", "to": {"channel": {"extension": "buyer", "authorization": user}}}
    if kind in OTHERS:
        # A rule can tell by the Body as well.
        back["match"] = {"body": kind}
    hub(world, NEAR, back)
    near = await world.start(NEAR)

    async def pull(channel: str) -> Response:
        asking = relayed_pull_request(
            f"{channel}/buyer",
            Authorization.model_validate(user),
            signal_id=f"{channel}@buyer",
            now=near.node.context.clock(),
            entropy=near.node.context.entropy,
        )
        return await near.receive(SOAP, asking.envelope)

    sent = letter(signal=kind not in OTHERS, body=OTHERS.get(kind, ""), mpc=mpc)
    assert (await near.receive(SOAP, sent)).status == 202
    other = "urn:example:other" if mpc is None else DEFAULT_MPC
    assert b"EBMS:0006" in (await pull(other)).body
    answer = await pull(mpc or DEFAULT_MPC)
    assert (answer.body, answer.content_type) == (sent, SOAP)


@played
async def test_the_journal_tells_of_a_signal_under_the_message_it_is_about(world: World) -> None:
    hub(world, NEAR, rule("back", FAR, to_party=party(BUYER)))
    near = await world.start(NEAR)
    world.wire.usual[FAR] = _taken
    await near.receive(SOAP, letter())
    await world.wait(2)
    events = await near.events("m@buyer")
    assert [(one.event, one.signal_id) for one in events] == [
        ("received", "e@seller"),
        ("forwarded", "e@seller"),
    ]


@played
async def test_a_signal_about_a_message_of_ours_is_not_passed_on(world: World) -> None:
    world.agree(signed=False, retry=None, receipt="callback")
    hub(world, BUYER, rule("all", FAR))
    buyer, _ = await world.both()
    await buyer.send("m@buyer")
    await world.wait(1)
    await buyer.receive(SOAP, letter(to="somebody"))
    await world.wait(2)
    assert world.wire.to(FAR) == []
    assert len(await buyer.journal("error_received")) == 1


@pytest.mark.req("P2-2.5.5-16")
@pytest.mark.parametrize("for_intermediaries", [False, True])
@played
async def test_routing_input_wins_over_the_user_message_and_the_journal_tells(
    world: World, for_intermediaries: bool
) -> None:
    world.agree(retry=None)
    protocol = world._pmodes[BUYER][0]["legs"][0]["protocol"]
    protocol["add_actor_or_role_attribute"] = for_intermediaries
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = refused
    await buyer.send("m@buyer")
    await world.wait(1)
    [posted] = world.wire.to(SELLER)
    head = posted.body.index(b"<eb:Messaging")
    assert (NEXT_MSH.encode() in posted.body) is for_intermediaries
    both = posted.body[:head] + routing_input("elsewhere").encode() + posted.body[head:]
    hub(
        world,
        NEAR,
        rule("user message", BUYER, to_party=party(SELLER)),
        rule("routing input", FAR, to_party=party("elsewhere")),
    )
    near = await world.start(NEAR)
    world.wire.usual[FAR] = _taken
    assert (await near.receive(posted.content_type, both)).status == 202
    await world.wait(2)
    assert [one.body for one in world.wire.to(FAR)] == [both]
    [received] = await near.journal("received")
    assert received.detail is not None
    assert "To is urn:example:elsewhere in RoutingInput" in received.detail


@played
async def test_routing_input_that_cannot_be_read_is_an_invalid_header(world: World) -> None:
    hub(world, NEAR, rule("all", FAR))
    near = await world.start(NEAR)
    wrong = letter().replace(b"ebint:UserMessage>", b"ebint:Letter>")
    answer = await near.receive(SOAP, wrong)
    assert b"EBMS:0009" in answer.body
    assert world.wire.to(FAR) == []


@played
async def test_errors_that_nobody_takes_are_given_up_silently(world: World) -> None:
    hub(world, NEAR, rule("back", FAR, to_party=party(BUYER)), rule("rest", SELLER))
    near = await world.start(NEAR)
    world.wire.usual[FAR] = refused
    await near.receive(SOAP, letter())
    await world.wait(60)
    assert await near.state("e@seller") is State.FAILED
    assert world.wire.to(SELLER) == []
    assert await near.work() == {}


def test_errors_go_to_hosts_of_rules_and_to_those_that_are_named(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(
        "routes: [{id: a, to: {push: 'http://far.example/msh'}}]\nreachable: errors.example\n"
    )
    rules = load_routing(file)
    assert rules.may_be_told("https://far.example:8443/other")
    assert rules.may_be_told("http://errors.example/")
    assert not rules.may_be_told("http://internal.example/")
    assert not rules.may_be_told("http://far.example.evil.example/")
    assert not rules.may_be_told("no address")


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (address(FAR), [(FAR, Purpose.PARTNER)]),
        ("http://far.example:9200/_bulk", [(FAR, Purpose.CALLBACK)]),
        ("http://errors.example/", [("errors", Purpose.CALLBACK)]),
        # It is not used; the error goes by the rules instead.
        ("http://victim.example/", [(FAR, Purpose.PARTNER)]),
    ],
)
@played
async def test_an_address_in_fault_to_is_judged_as_what_a_message_names(
    world: World, named: str, told: list[tuple[str, Purpose]]
) -> None:
    """Unless a rule has that very address, the egress policy lets it be a public one only."""
    hub(
        world,
        NEAR,
        rule("over", SELLER, action="a.receipt"),
        rule("far", FAR),
        reachable="errors.example",
    )
    near = await world.start(NEAR)
    world.wire.usual |= {SELLER: refused, FAR: _taken, "errors": _taken, "victim": _taken}
    headers = Addressing(to=I_CLOUD, action=ONE_WAY, fault_to=EndpointReference(named))
    blocks = [*write_addressing(headers, V), routing_input("nobody", "a.receipt")]
    body = write_body(V, OTHERS["TerminateSequence"])
    assert (await near.receive(SOAP, write_envelope(V, blocks, body))).status == 202
    await world.wait(120)
    posted = [one for one in world.wire.posted if one.receiver != SELLER]
    assert [(one.receiver, one.purpose) for one in posted] == told
    refusals = near.node.context.counters['postroad_callbacks_refused_total{by="host"}']
    assert refusals == ("victim" in named)


@pytest.mark.req("P2-2.5.1-04")
@pytest.mark.parametrize("kind", ["a signal", *OTHERS])
@played
async def test_a_hub_that_pulls_takes_whatever_has_routing_input(world: World, kind: str) -> None:
    user = {"username": "near", "password": "a secret of ours"}
    hub(world, FAR, {"id": "back", "to": {"channel": {"authorization": user}}})
    pull = {"mpc": DEFAULT_MPC, "address": address(FAR), "authorization": user, "interval": "PT2S"}
    hub(world, NEAR, rule("home", BUYER, to_party=party(BUYER)), pull=[pull])
    far, _ = await world.start(FAR), await world.start(NEAR)
    world.wire.usual[BUYER] = _taken
    sent = letter(signal=kind not in OTHERS, body=OTHERS.get(kind, ""))
    assert (await far.receive(SOAP, sent)).status == 202
    await world.wait(10)
    assert [one.body for one in world.wire.to(BUYER)] == [sent]


@pytest.mark.req("P2-2.4.3-02", "P2-2.4.3-03", "P2-2.8-01")
@played
async def test_headers_of_a_sequence_and_of_a_secure_conversation_pass_untouched(
    world: World,
) -> None:
    """They are for the ends, must be understood there, and are none of the hub's business."""
    world.agree(retry=None)
    for at in (BUYER, SELLER):
        world._pmodes[at][0]["legs"][0]["protocol"]["add_actor_or_role_attribute"] = True
    buyer, _ = await world.both()
    world.wire.usual[SELLER] = refused
    await buyer.send("m@buyer")
    await world.wait(1)
    [posted] = world.wire.to(SELLER)
    must = 'S12:mustUnderstand="true"'
    token = f'<wsc:SecurityContextToken xmlns:wsc="{WSC}"/>'
    blocks = (
        f"<wsrm:Sequence {RM} {must}><wsrm:Identifier>urn:example:s</wsrm:Identifier>"
        "<wsrm:MessageNumber>7</wsrm:MessageNumber></wsrm:Sequence>"
        f'<wsse:Security xmlns:wsse="{WSSE}" {must}>{token}</wsse:Security>'
    )
    both = posted.body.replace(b"</S12:Header>", f"{blocks}</S12:Header>".encode())
    hub(world, NEAR, rule("over", FAR, to_party=party(SELLER)))
    near = await world.start(NEAR)
    world.wire.usual[FAR] = _taken
    assert (await near.receive(posted.content_type, both)).status == 202
    await world.wait(2)
    assert [one.body for one in world.wire.to(FAR)] == [both]
