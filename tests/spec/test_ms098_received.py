"""What a node does with ebXML 0.98b messages of others: elements not understood, and defaults."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result

from postroad.cli.main import app
from tests.node.ebxml_broken import STATUS
from tests.node.ebxml_letters import (
    CPA,
    OLD_NS,
    RELIABLY,
    SERVICES,
    M,
    acknowledgment,
    block,
    envelope,
    error,
    header,
    manifest,
    order,
    packed,
    spoiled,
    trace,
    via,
)
from tests.node.ebxml_stations import RELIABLE
from tests.spec.kit import (
    BUYER,
    SELLER,
    Call,
    Ebxml,
    Network,
    Post,
    Script,
    Send,
    Wait,
    WireMessage,
    World,
    address,
    lost,
    record,
    status,
)

_REF: Final = "0@seller.example"
_OLD: Final = 'SOAP-ENV:mustUnderstand="1" eb:version="0.98b"'
_ASKED: Final = ' eb:ackRequested="UnSigned"'
_VIA: Final = via(_ASKED)
_OLD_VIA: Final = _VIA.replace("eb:", "old:").replace("<old:Via", f'<old:Via xmlns:old="{OLD_NS}"')


def _letters(version: str) -> dict[str, str]:
    """A message for each element; the element is of this version, all others are of 0.98b."""
    good = {"inside": RELIABLY}
    answer = header(service=SERVICES["0.98b"], action="StatusResponse", ref=_REF)
    letters = {
        "MessageHeader": order(**good),
        "TraceHeaderList": order(**good),
        "Via": order("0.98b", _VIA, **good),
        "ErrorList": order("0.98b", error(severity="Warning"), ref=_REF, **good),
        "Manifest": order(**good),
        "Acknowledgment": order(body=manifest() + acknowledgment(), ref=_REF, **good),
        "StatusData": envelope(answer, trace(), body=STATUS),
    }
    return {
        name: spoiled(
            letter, f"<eb:{name} {_OLD}", f"<eb:{name} {_OLD.replace('0.98b', version)}"
        ).replace(M, f"{name}-{version}@buyer.example")
        for name, letter in letters.items()
    }


_UNKNOWN: Final = {
    "an unknown element": order("0.98b", block("Foo", ""), id="foo@buyer.example"),
    "an unknown element in the Body": order(body=block("Foo", ""), id="bar@buyer.example"),
    "a Via in 2.0, which has none": order("2.0", _OLD_VIA, id="via@buyer.example"),
}


async def _prepare(world: World) -> None:
    world.wire.usual[BUYER] = status(204)


def _posted(letters: dict[str, str]) -> Script:
    return Script(
        (Ebxml(**RELIABLE), Ebxml("newer", version="2.0")),
        (Call(_prepare), *(Post(SELLER, *packed(one)) for one in letters.values()), Wait(2)),
        nodes=(SELLER,),
    )


KNOWN: Final = _posted(_letters("0.98b"))
HIGHER: Final = _posted(_letters("9.9") | _UNKNOWN)
_MUSTS: Final = {
    "MessageHeader": "8.4.11-02",
    "TraceHeaderList": "8.5.1-02",
    "Via": "8.6.1-01 8.6.1-02",
    "ErrorList": "8.7.2-02",
    "Manifest": "8.10.2-02",
    "StatusData": "8.11.3-02",
    "Acknowledgment": "8.12.3-02",
    "an unknown element": "8.4.11-02",
    "an unknown element in the Body": "8.10.2-02",
    "a Via in 2.0, which has none": "8.6.1-02",
}


def _req(ids: str) -> Any:
    return pytest.mark.req(*(f"MS098-{one}" for one in ids.split()))


def _responses(script: Script, letters: dict[str, str]) -> dict[str, WireMessage]:
    """The responses to the letters, by their names."""
    found = [one for one in record(script).messages if one.status and one.sender == SELLER]
    return dict(zip(letters, found, strict=True))


@pytest.mark.parametrize(
    "name", [pytest.param(name, id=name, marks=_req(ids)) for name, ids in _MUSTS.items()]
)
def test_an_element_that_is_not_understood_gets_the_soap_fault(name: str) -> None:
    response = _responses(HIGHER, _letters("9.9") | _UNKNOWN)[name]
    assert response.status == 500
    code = str(response.text("s11:Fault/faultcode"))
    prefix, _, local = code.rpartition(":")
    assert (response.root.nsmap[prefix], local) == (response.namespaces["s11"], "MustUnderstand")
    assert record(HIGHER).inboxes[SELLER] == []


def test_the_same_elements_of_a_known_version_are_understood() -> None:
    found = _responses(KNOWN, _letters("0.98b"))
    assert not any(one.body for one in found.values())
    assert record(KNOWN).inboxes[SELLER] == [
        f"{name}-0.98b@buyer.example" for name in found if name != "StatusData"
    ]


def _two(**terms: Any) -> Script:
    """Two messages of a conversation, of which the first one is lost once."""
    sent = (Send(f"{name}@buyer.example", conversation="a") for name in "12")
    return Script((Ebxml(**RELIABLE, **terms),), (Network(SELLER, lost), *sent, Wait(60)))


SILENT: Final = _two()
ORDERED: Final = _two(message_order="Guaranteed")


@_req("8.4.7.2-01")
def test_where_neither_cpa_nor_header_says_it_the_order_is_not_guaranteed() -> None:
    said = record(SILENT).requests(BUYER, SELLER)
    assert not any(one.xpath("(//@eb:messageOrderSemantics | //eb:SequenceNumber)") for one in said)
    assert record(SILENT).inboxes[SELLER] == ["2@buyer.example", "1@buyer.example"]
    assert record(ORDERED).inboxes[SELLER] == ["1@buyer.example", "2@buyer.example"]


_METHODS: Final = {
    "": "Acknowledgment",
    ' eb:reliableMessagingMethod="ebXML"': "Acknowledgment",
    ' eb:reliableMessagingMethod="Transport"': "MessageError",
}
METHODS: Final = _posted(
    {
        method: order("0.98b", via(_ASKED + method), inside=RELIABLY, id=f"{number}@buyer.example")
        for number, method in enumerate(_METHODS)
    }
)


@_req("8.6.5-02")
def test_without_a_reliable_messaging_method_a_message_is_acknowledged_as_with_ebxml() -> None:
    answers = record(METHODS).requests(SELLER, BUYER)
    assert [one.text("eb:Action") for one in answers] == list(_METHODS.values())
    assert record(METHODS).inboxes[SELLER] == ["0@buyer.example", "1@buyer.example"]


def _run(command: str, file: Path, text: str) -> Result:
    """Give a command a file with this text."""
    file.write_text(text, encoding="utf-8")
    return CliRunner().invoke(app, [*command.split(), str(file)])


def _inspected(folder: Path, letter: str) -> Any:
    return json.loads(_run("inspect --json", folder / "message.xml", letter).stdout)["ebxml"]


@_req("8.12.6-02")
@pytest.mark.parametrize(
    ("said", "signed"),
    [("", False), (' eb:signed="false"', False), (' eb:signed="true"', True)],
    ids=["", "false", "true"],
)
def test_an_acknowledgment_is_not_signed_unless_it_says_so(
    tmp_path: Path, said: str, signed: bool
) -> None:
    element = spoiled(acknowledgment(), ' eb:signed="false"', said)
    answer = header(service=SERVICES["0.98b"], action="Acknowledgment", ref=_REF)
    found = _inspected(tmp_path, envelope(answer, body=element))
    assert found["acknowledgment"]["signed"] is signed


@_req("8.7.5.1-02")
@pytest.mark.parametrize("context", ["", "urn:example:errors"])
def test_the_code_context_is_that_of_the_specification_unless_it_is_another(
    tmp_path: Path, context: str
) -> None:
    usual = "http://www.ebxml.org/messageServiceErrors"
    said = f' codeContext="{context}"' if context else ""
    element = spoiled(error(), f' codeContext="{usual}"', said)
    answer = header(service=SERVICES["0.98b"], action="MessageError", ref=_REF)
    [found] = _inspected(tmp_path, envelope(answer, element))["error_list"]["errors"]
    assert found["code_context"] == (context or usual)


_P_MODE: Final = """\
id: orders
agreement: {agreement}
initiator: {{party: {buyer}}}
responder: {{party: urn:example:seller}}
legs:
  - protocol: {{address: "{address}"}}
    business_info: {{service: urn:example:trade, action: order}}
    ebxml: {{version: 0.98b}}
"""


@pytest.mark.parametrize(
    ("buyer", "agreement", "warning"),
    [
        pytest.param("{id: a, type: urn:b}", CPA, "PartyId should be", marks=_req("8.4.1-08")),
        pytest.param("{id: urn:a, type: b}", CPA, "the type of a PartyId", marks=_req("8.4.1-05")),
        pytest.param("urn:a", "cpa-1", "CPAId should be a URI", marks=_req("8.4.2-04")),
    ],
)
def test_pmode_check_warns_of_names_that_are_no_uris(
    tmp_path: Path, buyer: str, agreement: str, warning: str
) -> None:
    for names, warned in (((buyer, agreement), True), (("urn:example:buyer", CPA), False)):
        text = _P_MODE.format(buyer=names[0], agreement=names[1], address=address(SELLER))
        checked = _run("pmode check", tmp_path / "orders.yaml", text)
        assert checked.exit_code == 0
        assert (warning in " ".join((checked.stdout + checked.stderr).split())) is warned
