"""What `postroad inspect` tells of ebXML messages: packaged and bare, of each version."""

import json
from pathlib import Path
from typing import Any

import pytest

from postroad.msh.answers import Answer
from postroad.msh.ebxml_answers import error_answer
from postroad.msh.ebxml_outbound import EbxmlPackage, hop, via_of
from postroad.msh.ebxml_services import ping, status_request, status_response
from postroad.msh.outbound import WirePart, wire_form
from postroad.reliability.order import SequenceNumber, Status
from postroad.wire.ebxml import Acknowledgment
from postroad.wire.errors import EbmsError
from postroad.wire.soap import SoapVersion
from tests.cli.conftest import AT, Run
from tests.pki import pem_certificates
from tests.unit.ebxml_world import (
    BOUNDARY,
    BUYER,
    CPA,
    MESSAGE_ID,
    NOW,
    SELLER,
    VERSIONS,
    World,
    alone,
    later,
)

ORDER = b"<order/>"
ORDERED = {
    "delivery_semantics": "OnceAndOnlyOnce",
    "message_order": "Guaranteed",
    "ack_requested": "Signed",
}

every_version = pytest.mark.parametrize("version", VERSIONS)


def world_of(version: str) -> World:
    return World(version, signed=True, ebxml=ORDERED)


def made_by(world: World) -> EbxmlPackage:
    first = SequenceNumber(0, Status.RESET)
    return world.package(ORDER, sequence_number=first, time_to_live=later(3600))


def transmitted(world: World, made: EbxmlPackage) -> bytes:
    return hop(
        made.envelope,
        world.dialect,
        sender_uri="http://buyer.example/msh",
        receiver_uri="http://seller.example/msh",
        now=NOW,
        via=via_of(world.match.leg),
    )


def as_http(world: World, made: EbxmlPackage) -> bytes:
    parts = [WirePart(part.payload.content_id, part.wire_type, part.content) for part in made.parts]
    form = wire_form(SoapVersion.SOAP_11, transmitted(world, made), parts, BOUNDARY)
    head = f'POST /msh HTTP/1.1\r\nSOAPAction: "ebXML"\r\nContent-Type: {form.content_type}\r\n\r\n'
    return head.encode() + b"".join(form.pieces())


@pytest.fixture
def trust(tmp_path: Path) -> Path:
    path = tmp_path / "buyer.pem"
    path.write_bytes(pem_certificates(World().buyer.certificate))
    return path


def facts(run: Run, data: bytes, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    result = run("inspect", "-", "--at", AT, "--json", *arguments, stdin=data)
    assert result.exit_code == code, result.stdout
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def shown(run: Run, data: bytes, *arguments: str | Path) -> list[str]:
    text = run("inspect", "-", "--at", AT, *arguments, stdin=data).stdout
    return [line.lstrip("│├└─ ") for line in text.splitlines()]


@every_version
def test_a_packaged_message_holds_and_is_told_whole(run: Run, trust: Path, version: str) -> None:
    world = world_of(version)
    found = facts(run, as_http(world, made_by(world)), "--trust", trust)
    assert (found["kind"], found["holds"], found["soap"]) == ("ebxml_message", True, "1.1")
    (unit,) = found["units"]
    assert unit["message_id"] == MESSAGE_ID
    assert unit["agreement"]["ref"] == CPA
    assert unit["payloads"][0]["size"] == len(ORDER)
    assert found["signature"]["trusted"] is True
    assert [one["valid"] for one in found["signature"]["references"]] == [True, True]
    said = found["ebxml"]
    assert said["version"] == version
    assert said["sequence_number"] == {"value": 0, "status": "Reset"}
    assert said["time_to_live"] == "2026-06-01T13:00:00.000Z"
    assert [one["href"] for one in said["manifest"]] == ["cid:part-1@buyer.example"]


@pytest.mark.parametrize("version", ["0.98b", "1.0"])
def test_the_way_that_a_message_took_is_told(run: Run, version: str) -> None:
    world = world_of(version)
    said = facts(run, as_http(world, made_by(world)))["ebxml"]
    (trace,) = said["trace"]
    assert trace["sender_uri"] == "http://buyer.example/msh"
    assert said["via"]["ack_requested"] == "Signed"


@every_version
def test_an_envelope_alone_is_read_and_its_parts_count_as_not_captured(
    run: Run, version: str
) -> None:
    world = world_of(version)
    found = facts(run, transmitted(world, made_by(world)))
    assert found["holds"]
    assert found["signature"]["references"][1]["valid"] is None


def test_a_changed_message_does_not_hold(run: Run, trust: Path) -> None:
    world = world_of("2.0")
    data = as_http(world, made_by(world)).replace(b"<order/>", b"<Order/>")
    assert not facts(run, data, "--trust", trust, code=1)["holds"]


def test_the_p_mode_is_held_against_it(run: Run, tmp_path: Path) -> None:
    world = World("2.0")
    pmode = tmp_path / "orders.yaml"
    pmode.write_text(world.yaml)
    data = world.package(ORDER).envelope
    assert facts(run, data, "--pmode", pmode)["pmode"] == "orders"
    other = data.replace(CPA.encode(), b"urn:example:cpa:18")
    found = facts(run, other, "--pmode", pmode, code=1)
    assert "ValueNotRecognized" in [one["code"] for one in found["errors"]]


def test_the_tree_tells_what_only_ebxml_has(run: Run) -> None:
    world = world_of("0.98b")
    lines = shown(run, as_http(world, made_by(world)))
    assert lines[0] == "-  ebXML 0.98b message  SOAP 1.1  holds"
    for line in (
        f"ebXML message  {MESSAGE_ID}",
        "from: urn:example:buyer",
        f"agreement: {CPA}",
        "delivery semantics: OnceAndOnlyOnce",
        "message order semantics: Guaranteed",
        "sequence number: 0  (Reset)",
        "hop 1: http://buyer.example/msh  →  http://seller.example/msh  2026-06-01T12:00:00.000Z",
        "ack requested: Signed",
        "manifest: cid:part-1@buyer.example",
        "✔ the whole document  sha256",
    ):
        assert line in lines


def signals(world: World) -> dict[str, Answer]:
    message = world.package(ORDER).message
    asking = {"from_party": BUYER, "to_party": SELLER, "cpa_id": CPA, "conversation_id": "c-1"}
    named: dict[str, Any] = {"message_id": "signal-1@buyer.example", "now": NOW}
    request = status_request(world.dialect, about=MESSAGE_ID, **asking, **named)
    asked = world.look(alone(request.envelope)).ebxml
    problem = EbmsError("Inconsistent", "it is odd", location="/SOAP-ENV:Envelope")
    error = error_answer([problem], world.dialect, about=message, **named)
    assert asked is not None
    assert error is not None
    return {
        "ping": ping(world.dialect, **asking, **named),
        "status_request": request,
        "status_response": status_response(
            asked,
            status="Received",
            received_at=NOW,
            message_id="status-1@seller.example",
            now=NOW,
        ),
        "error": error,
    }


@every_version
def test_signals_are_told_by_their_kind(run: Run, version: str) -> None:
    for kind, answer in signals(World(version)).items():
        assert facts(run, answer.envelope)["kind"] == f"ebxml_{kind}"


def test_the_tree_tells_errors_and_status(run: Run) -> None:
    made = signals(World("2.0"))
    lines = shown(run, made["error"].envelope)
    assert lines[0] == "-  ebXML 2.0 error  SOAP 1.1  holds"
    assert "errors: Error" in lines
    assert "Inconsistent (Error)  it is odd" in lines
    assert "location: #xpointer(/SOAP-ENV:Envelope)" in lines
    assert "status: Received" in shown(run, made["status_response"].envelope)
    assert f"asks for the status of: {MESSAGE_ID}" in shown(run, made["status_request"].envelope)


def test_the_tree_tells_an_acknowledgment(run: Run) -> None:
    world = World("0.98b")
    draft = world.draft(ref_to_message_id=MESSAGE_ID, message_id="reply@seller.example")
    made = world.package(draft=draft, acknowledgment=Acknowledgment(timestamp=NOW))
    assert "acknowledgment: DeliveryReceipt, unsigned" in shown(run, made.envelope)


def test_other_messages_have_no_ebxml_in_them(run: Run, good: Path) -> None:
    found = json.loads(run("inspect", good, "--at", AT, "--json").stdout)
    assert found["ebxml"] is None
