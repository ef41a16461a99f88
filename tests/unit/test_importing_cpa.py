"""CPAs as P-Modes: what is carried over, what is told, what is refused."""

import base64
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree

from postroad.agreement.importing import import_pmodes, imported_yaml
from postroad.agreement.importing_source import Imported
from postroad.agreement.loading import load_pmodes
from tests.pki import authority

DATA = Path(__file__).parents[1] / "data/pmodes"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
ORDER, CONFIRMATION = "urn-example-cpa-17-New-Order", "urn-example-cpa-17-Confirmation"
ALWAYS = (
    'tp:ackRequested="always"\n          tp:ackSignatureRequested="always" '
    'tp:duplicateElimination="always"'
)


@cache
def certificate(name: str) -> str:
    found = authority(name).certificate.public_bytes(Encoding.DER)
    return base64.b64encode(found).decode()


def cpa(*changes: tuple[str, str]) -> bytes:
    text = (DATA / "cpa.xml").read_text()
    for old, new in (
        *changes,
        ("ACME-CERTIFICATE", certificate("acme")),
        ("GLOBEX-CERTIFICATE", certificate("globex")),
    ):
        assert old in text, old
        text = text.replace(old, new)
    return text.encode()


def imported(*changes: tuple[str, str], me: str | None = None) -> Imported:
    return import_pmodes(cpa(*changes), "cpa.xml", me=me, now=NOW)


def order(*changes: tuple[str, str]) -> dict[str, Any]:
    found = imported(*changes)
    return next(pmode for pmode in found.pmodes if pmode["id"] == ORDER)


def leg(*changes: tuple[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = order(*changes)["legs"][0]
    return found


def notes(*changes: tuple[str, str]) -> list[str]:
    return [remark.message for remark in imported(*changes).notes]


def refused(*changes: tuple[str, str]) -> list[tuple[int, str]]:
    return [(remark.line, remark.message) for remark in imported(*changes).problems]


def test_there_is_one_pmode_for_each_message_and_direction() -> None:
    found = imported()
    assert [pmode["id"] for pmode in found.pmodes] == [ORDER, CONFIRMATION]
    assert found.problems == ()
    assert found.what == "ebXML CPA 2.0"


def test_what_is_imported_loads_without_a_problem() -> None:
    found = imported()
    result = load_pmodes(imported_yaml(found, "cpa.xml"), "cpa.yaml")
    assert result.problems == ()
    assert [pmode.id for pmode in result.pmodes] == [ORDER, CONFIRMATION]


def test_parties_roles_service_action_and_cpa_id_are_carried_over() -> None:
    pmode = order()
    assert pmode["agreement"] == "urn:example:cpa:17"
    assert pmode["initiator"] == {
        "party": [{"id": "acme", "type": "urn:example:names"}],
        "role": "Buyer",
    }
    assert pmode["responder"] == {"party": ["urn:example:globex"], "role": "Seller"}
    assert leg()["business_info"] == {
        "service": {"value": "orders", "type": "urn:example:services"},
        "action": "New Order",
    }


def test_the_channels_of_the_receiver_are_its_addresses_in_order() -> None:
    found = leg()
    assert found["protocol"]["address"] == "https://globex.example/msh"
    assert found["ebxml"]["transports"] == ["mailto:msh@globex.example"]


def test_an_endpoint_for_requests_goes_before_one_for_all_purposes() -> None:
    special = '<tp:Endpoint tp:uri="https://globex.example/in" tp:type="request"/>'
    general = '<tp:Endpoint tp:uri="https://globex.example/msh" tp:type="allPurpose"/>'
    found = leg((general, general + special))
    assert found["protocol"]["address"] == "https://globex.example/in"


def test_answers_go_to_the_senders_msh_by_the_types_of_its_endpoints() -> None:
    found = leg()
    assert found["security"]["send_receipt"]["reply_to"] == "https://acme.example/answers"
    errors_to = found["error_handling"]["report"]["receiver_errors_to"]
    assert errors_to == "https://acme.example/errors"


def test_an_override_names_another_channel_for_answers() -> None:
    override = '<tp:OverrideMshActionBinding tp:action="Acknowledgment" tp:channelId="acme-mail"/>'
    end = '</tp:DocExchange>\n  </tp:PartyInfo>\n  <tp:PartyInfo tp:partyName="Globex"'
    found = leg((end, end.replace("</tp:DocExchange>", "</tp:DocExchange>" + override)))
    assert found["security"]["send_receipt"]["reply_to"] == "mailto:msh@acme.example"
    errors_to = found["error_handling"]["report"]["receiver_errors_to"]
    assert errors_to == "https://acme.example/errors"


def test_always_acknowledged_without_duplicates_is_once_and_only_once() -> None:
    found = leg()
    assert found["ebxml"]["delivery_semantics"] == "OnceAndOnlyOnce"
    assert found["ebxml"]["message_order"] == "Guaranteed"
    assert found["ebxml"]["ack_requested"] == "Signed"
    assert found["reception_awareness"]["retry"]["parameters"] == {
        "max_retries": 5,
        "period": "PT5M",
        "persist_duration": "P2D",
    }


def test_never_acknowledged_with_duplicates_is_best_effort() -> None:
    other = next(pmode for pmode in imported().pmodes if pmode["id"] == CONFIRMATION)
    assert other["legs"][0]["ebxml"] == {
        "version": "2.0",
        "delivery_semantics": "BestEffort",
        "sync_reply": "none",
    }


def test_what_each_message_says_for_itself_is_left_open() -> None:
    each = ALWAYS.replace("always", "perMessage")
    found = leg((ALWAYS, each))
    assert "delivery_semantics" not in found["ebxml"]
    assert "ack_requested" not in found["ebxml"]
    assert "ackRequested is perMessage: no message asks for it until the P-Mode does" in notes(
        (ALWAYS, each)
    )


def test_the_signature_is_the_senders_and_its_certificate_is_pinned() -> None:
    found = imported()
    x509 = leg()["security"]["x509"]
    assert x509["sign"] is True
    assert x509["signature"] == {
        "algorithm": "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
        "hash_function": "http://www.w3.org/2001/04/xmlenc#sha256",
        "pins": ["cpa-acme-key.pem"],
    }
    assert found.certificates["cpa-acme-key.pem"] == authority("acme").certificate.public_bytes(
        Encoding.PEM
    )


def test_acknowledgments_are_signed_with_the_receivers_certificate() -> None:
    assert leg()["security"]["send_receipt"]["certificate"] == "cpa-globex-key.pem"


def test_tls_pins_the_certificate_of_the_server() -> None:
    assert leg()["protocol"]["security"] == {
        "protocol": "TLS",
        "protocol_version": "1.2",
        "server": {"certificate": "cpa-globex-key.pem"},
    }


DETAILS = (
    '<tp:SecurityDetails tp:securityId="roots"><tp:TrustAnchors>'
    '<tp:AnchorCertificateRef tp:certId="{}"/></tp:TrustAnchors></tp:SecurityDetails>'
)


def test_without_a_certificate_of_the_server_the_anchors_count() -> None:
    found = leg(
        ('<tp:ServerCertificateRef tp:certId="globex-key"/>', ""),
        (
            "</tp:TransportClientSecurity>",
            '<tp:ServerSecurityDetailsRef tp:securityId="roots"/></tp:TransportClientSecurity>',
        ),
        (
            '<tp:DeliveryChannel tp:channelId="acme-out"',
            DETAILS.format("acme-key") + '<tp:DeliveryChannel tp:channelId="acme-out"',
        ),
    )
    server = found["protocol"]["security"]["server"]
    assert server == {"anchor_certificates": ["cpa-acme-key.pem"]}


def test_without_a_certificate_of_the_signer_the_receivers_anchors_count() -> None:
    view = (
        "<tp:ReceiverNonRepudiation>"
        '<tp:SigningSecurityDetailsRef tp:securityId="roots"/></tp:ReceiverNonRepudiation>'
    )
    text = (
        cpa(
            (
                "<tp:PersistDuration>P2D</tp:PersistDuration>",
                f"<tp:PersistDuration>P2D</tp:PersistDuration>{view}",
            ),
            (
                '<tp:DeliveryChannel tp:channelId="globex-in"',
                DETAILS.format("globex-key") + '<tp:DeliveryChannel tp:channelId="globex-in"',
            ),
        )
        .decode()
        .replace(certificate("acme"), "")
    )
    found = import_pmodes(text.encode(), "cpa.xml").pmodes[0]["legs"][0]
    signature = found["security"]["x509"]["signature"]
    assert signature["trust_anchors"] == ["cpa-globex-key.pem"]


SYNC = (
    'tp:syncReplyMode="none" tp:ackRequested="always"',
    'tp:syncReplyMode="mshSignalsOnly" tp:ackRequested="always"',
)


def test_answers_in_the_response_need_no_address() -> None:
    one = ("<tp:ChannelId>globex-mail</tp:ChannelId>", "")
    found = leg(SYNC, one)
    assert found["ebxml"]["sync_reply"] == "mshSignalsOnly"
    assert "error_handling" not in found
    assert "reply_to" not in found["security"]["send_receipt"]


def test_mail_has_no_response_for_answers() -> None:
    found = leg(SYNC)
    assert found["ebxml"]["sync_reply"] == "none"
    assert found["security"]["send_receipt"]["reply_to"] == "https://acme.example/answers"
    assert "syncReplyMode mshSignalsOnly: mail has no response" in notes(SYNC)


def test_an_old_ssl_is_told_and_not_taken() -> None:
    old = ('tp:version="1.2">TLS', 'tp:version="3.0">SSL')
    assert "protocol_version" not in leg(old)["protocol"]["security"]
    assert "SSL 3.0 is agreed on; TLS 1.2 or newer is used" in notes(old)


@pytest.mark.parametrize("other", ["bm90aGluZw==", "!", ""])
def test_a_certificate_that_is_none_is_told(other: str) -> None:
    text = cpa().decode().replace(certificate("acme"), other)
    found = import_pmodes(text.encode(), "cpa.xml")
    said = [remark.message for remark in found.notes]
    assert "Certificate 'acme-key' holds no X.509 certificate" in said
    assert [*found.certificates] == ["cpa-globex-key.pem"]
    assert "pins" not in found.pmodes[0]["legs"][0]["security"]["x509"]["signature"]


def line_of(phrase: str) -> int:
    """libxml2 counts a start tag where it ends."""
    text = (DATA / "cpa.xml").read_text()
    return text.count("\n", 0, text.index(">", text.index(phrase))) + 1


def test_payloads_that_are_to_be_encrypted_are_refused_with_their_line() -> None:
    asked = ('tp:isConfidential="transient"', 'tp:isConfidential="transient-and-persistent"')
    assert [pmode["id"] for pmode in imported(asked).pmodes] == [CONFIRMATION]
    ((line, said),) = refused(asked)
    assert line == line_of('tp:id="acme-sends"')
    assert said.startswith("New Order from Acme: its payloads are to be encrypted")


def test_certificates_that_no_pmode_names_are_left_out() -> None:
    asked = ('tp:isConfidential="transient"', 'tp:isConfidential="persistent"')
    assert imported(asked).certificates == {}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'tp:value="agreed"',
            'tp:value="proposed"',
            "the CPA is not agreed on: Status is proposed",
        ),
        ('tp:cpaid="urn:example:cpa:17"', 'tp:cpaid=""', "the CPA has no cpaid"),
        ("<tp:PartyId>urn:example:globex</tp:PartyId>", "", "a PartyInfo has no PartyId"),
        ("tp:ServiceBinding>", "tp:Other>", "no message that one party sends"),
        ("<tp:Status", "<!DOCTYPE x><tp:Status", ""),
        ("</tp:CollaborationProtocolAgreement>", "", ""),
    ],
)
def test_a_cpa_of_which_nothing_can_come_is_refused(old: str, new: str, said: str) -> None:
    found = imported((old, new))
    assert found.pmodes == ()
    assert len(found.problems) == 1
    assert said in found.problems[0].message


def test_a_doctype_is_refused() -> None:
    data = cpa(
        (
            "<tp:CollaborationProtocolAgreement\n",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><tp:CollaborationProtocolAgreement\n",
        )
    )
    found = import_pmodes(data, "cpa.xml")
    assert found.pmodes == ()
    assert "DTD" in found.problems[0].message


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        (">acme-out<", ">lost<", 'partyName="Acme"', "no DeliveryChannel 'lost'"),
        (
            '"acme-reliable">\n      <tp:ebXMLSenderBinding tp:version="2.0"',
            '"acme-reliable">\n      <tp:ebXMLSenderBinding tp:version="3.0"',
            '<tp:DocExchange tp:docExchangeId="acme-reliable"',
            "ebXML MS 3.0",
        ),
        ("globex-in</tp:Ch", "lost</tp:Ch", 'partyName="Globex"', "no DeliveryChannel 'lost'"),
    ],
)
def test_a_message_that_hangs_in_the_air_is_refused_alone(
    old: str, new: str, place: str, said: str
) -> None:
    found = imported((old, new))
    assert [pmode["id"] for pmode in found.pmodes] == [CONFIRMATION]
    assert found.problems[0].line == line_of(place)
    assert said in found.problems[0].message


def test_an_address_of_no_use_leaves_the_next_one() -> None:
    found = leg(("https://globex.example/msh", "ftp://globex.example/msh"))
    assert found["protocol"]["address"] == "mailto:msh@globex.example"
    assert "'ftp://globex.example/msh' is no address for HTTP" in notes(
        ("https://globex.example/msh", "ftp://globex.example/msh")
    )


def test_what_the_other_party_does_not_take_is_refused() -> None:
    found = refused((">globex-takes<", ">lost<"), (">acme-sends<", ">lost<"))
    assert [said for _, said in found] == [
        "New Order from Acme: the other party does not take it",
        "New Order to Globex: the other party does not send it",
    ]


def test_a_cpa_whose_time_is_over_is_taken_with_a_note() -> None:
    found = imported(("2035-01-01", "2029-01-01"))
    assert len(found.pmodes) == 2
    assert any("is over since 2029-01-01" in remark.message for remark in found.notes)
    begins = notes(("2025-01-01", "2031-01-01"))
    assert any("begins at 2031-01-01" in said for said in begins)


@pytest.mark.parametrize("me", ["acme", "Acme", "urn:example:globex"])
def test_this_nodes_party_is_one_of_the_two(me: str) -> None:
    assert len(imported(me=me).pmodes) == 2


def test_a_stranger_is_told_who_the_parties_are() -> None:
    found = imported(me="initech")
    assert found.pmodes == ()
    assert found.problems[0].message.endswith("parties: acme, urn:example:globex")


def test_nothing_is_dropped_in_silence() -> None:
    more = '<tp:Comment xml:lang="en">for Jo</tp:Comment></tp:CollaborationProtocolAgreement>'
    found = imported(
        ("</tp:CollaborationProtocolAgreement>", more),
        ('tp:type="response"/>', 'tp:type="response" tp:colour="red"/>'),
        ("<tp:PersistDuration>P2D", "<tp:Novelty/><tp:PersistDuration>P2D"),
    )
    said = {remark.message: remark.line for remark in found.notes}
    assert "CollaborationProtocolAgreement/Comment is not carried over" in said
    colour = said["TransportReceiver/Endpoint/@colour is not carried over"]
    assert colour == line_of('tp:type="response"')
    novelty = said["ebXMLReceiverBinding/Novelty is not carried over"]
    assert novelty == line_of("<tp:PersistDuration>P2D")
    assert "timeToPerform is the application's" in said
    assert any(message.startswith("Packaging: payloads are not held to it") for message in said)


def test_the_same_note_is_told_once_and_counted() -> None:
    found = [remark for remark in imported().notes if "PartyRef" in remark.message]
    assert [(remark.line, remark.more) for remark in found] == [(14, 1)]
    assert str(found[0]).endswith("(and in one more place)")


def test_ids_are_unique_where_actions_are_not() -> None:
    again = (
        '<tp:CanSend><tp:ThisPartyActionBinding tp:id="acme-sends-2" tp:action="New Order" '
        'tp:packageId="business">'
        '<tp:BusinessTransactionCharacteristics tp:isNonRepudiationRequired="true"/>'
        "<tp:ChannelId>acme-out</tp:ChannelId></tp:ThisPartyActionBinding>"
        "<tp:OtherPartyActionBinding>globex-takes</tp:OtherPartyActionBinding></tp:CanSend>"
    )
    found = imported(
        (
            "</tp:CanSend>\n        <tp:CanReceive>\n          "
            '<tp:ThisPartyActionBinding tp:id="acme-takes"',
            f'</tp:CanSend>{again}<tp:CanReceive><tp:ThisPartyActionBinding tp:id="acme-takes"',
        )
    )
    ids = [pmode["id"] for pmode in found.pmodes]
    assert ids[:2] == [f"{ORDER}-acme-sends", f"{ORDER}-acme-sends-2"]


def test_a_response_inside_its_request_goes_to_the_endpoint_for_responses() -> None:
    text = cpa().decode()
    begin = text.index(
        '        <tp:CanReceive>\n          <tp:ThisPartyActionBinding tp:id="acme-takes"'
    )
    end = text.index("</tp:CanReceive>", begin) + len("</tp:CanReceive>")
    nested = text[begin:end]
    text = text.replace(nested, "").replace(
        "globex-takes</tp:OtherPartyActionBinding>",
        f"globex-takes</tp:OtherPartyActionBinding>{nested}",
    )
    text = text.replace("<tp:ChannelId>acme-mail<", "<tp:ChannelId>acme-msh<")
    sends = text.index('<tp:CanSend>\n          <tp:ThisPartyActionBinding tp:id="globex-sends"')
    last = text.index("</tp:CanSend>", sends) + len("</tp:CanSend>")
    answer = text[sends:last]
    text = text.replace(answer, "").replace(
        "acme-sends</tp:OtherPartyActionBinding>",
        f"acme-sends</tp:OtherPartyActionBinding>{answer}",
    )
    found = {pmode["id"]: pmode for pmode in import_pmodes(text.encode(), "cpa.xml").pmodes}
    address = found[CONFIRMATION]["legs"][0]["protocol"]["address"]
    assert address == "https://acme.example/answers"


def test_the_service_of_the_mshs_becomes_no_pmode() -> None:
    binding = (
        "<tp:CollaborationRole><tp:Role tp:name='MSH'/><tp:ServiceBinding>"
        "<tp:Service>urn:oasis:names:tc:ebxml-msg:service</tp:Service><tp:CanReceive>"
        "<tp:ThisPartyActionBinding tp:id='acks' tp:action='Acknowledgment' tp:packageId='s'>"
        "<tp:ChannelId>acme-mail</tp:ChannelId></tp:ThisPartyActionBinding></tp:CanReceive>"
        "</tp:ServiceBinding></tp:CollaborationRole>"
    )
    mark = '<tp:Certificate tp:certId="acme-key">'
    found = imported((mark, binding + mark))
    assert len(found.pmodes) == 2
    receipt = leg((mark, binding + mark))["security"]["send_receipt"]
    assert receipt["reply_to"] == "mailto:msh@acme.example"


@pytest.mark.parametrize("duration", ["P1Y", "PT0S", "soon", "P60D"])
def test_a_duration_of_no_use_is_told_and_left_out(duration: str) -> None:
    change = (
        "<tp:RetryInterval>PT5M</tp:RetryInterval>\n          <tp:MessageOrderSemantics>"
        "Guaranteed</tp:MessageOrderSemantics>\n        </tp:ReliableMessaging>\n"
        "        <tp:PersistDuration>P1D",
        f"<tp:RetryInterval>{duration}</tp:RetryInterval><tp:MessageOrderSemantics>"
        "Guaranteed</tp:MessageOrderSemantics></tp:ReliableMessaging>"
        "<tp:PersistDuration>P1D",
    )
    parameters = leg(change)["reception_awareness"]["retry"]["parameters"]
    assert "period" not in parameters
    assert any(said.startswith(f"RetryInterval {duration!r} is no time") for said in notes(change))


def test_the_senders_and_the_receivers_words_are_compared() -> None:
    other = ALWAYS.replace("always", "never", 1)
    text = cpa().decode().replace(ALWAYS, other, 1)
    found = import_pmodes(text.encode(), "cpa.xml")
    said = [remark.message for remark in found.notes]
    assert "ackRequested is never for the sender and always for the receiver, which counts" in said


def test_a_profile_of_one_party_is_no_agreement() -> None:
    found = import_pmodes(
        cpa().replace(b"CollaborationProtocolAgreement", b"CollaborationProtocolProfile"), "cpp.xml"
    )
    assert "profile of one party" in found.problems[0].message


@pytest.mark.parametrize("data", [b"", b"pmodes: []", b"<a/>", b"<a xmlns='urn:b'/>", b"\xff\xfe"])
def test_what_is_no_agreement_is_refused(data: bytes) -> None:
    found = import_pmodes(data, "x.xml")
    assert found.pmodes == ()
    assert len(found.problems) == 1


def test_the_file_begins_with_what_was_not_carried_over() -> None:
    text = imported_yaml(imported(), "cpa.xml")
    assert text.startswith("# Imported from cpa.xml (ebXML CPA 2.0).\n")
    assert "# line 22: note: timeToPerform is the application's\n" in text
    assert [pmode["id"] for pmode in yaml.safe_load(text)["pmodes"]] == [ORDER, CONFIRMATION]


def test_a_note_is_one_line_whatever_the_file_holds() -> None:
    found = imported(('tp:version="1.2">TLS', 'tp:version="1.2">T\nLS\x85\u2028pmodes: []'))
    text = imported_yaml(found, "cpa\nx: y.xml")
    assert [pmode["id"] for pmode in yaml.safe_load(text)["pmodes"]] == [ORDER, CONFIRMATION]
    assert all(line.startswith("#") for line in text.partition("pmodes:\n")[0].splitlines())


def test_whatever_a_cpa_lacks_it_is_imported_or_refused() -> None:
    whole = etree.fromstring(cpa())
    for index in range(1, len(list(whole.iter("*")))):
        root = etree.fromstring(cpa())
        lost = list(root.iter("*"))[index]
        parent = lost.getparent()
        assert parent is not None
        parent.remove(lost)
        found = import_pmodes(etree.tostring(root), "cpa.xml")
        assert found.pmodes or found.problems, lost.tag
