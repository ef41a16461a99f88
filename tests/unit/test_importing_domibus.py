"""P-Modes of Domibus: what is carried over, what is told, what is refused."""

from typing import Any

import pytest

from postroad.agreement.importing import import_pmodes, imported_yaml
from postroad.agreement.importing_source import Imported
from postroad.agreement.loading import load_pmodes
from postroad.wire.names import DEFAULT_MPC

CORE = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"
BLUE_TO_RED = "orders-placing-blue-red"
CONFIGURATION = f"""<?xml version="1.0"?>
<db:configuration xmlns:db="http://domibus.eu/configuration" party="blue">
  <mpcs>
    <mpc name="main" qualifiedName="{DEFAULT_MPC}" enabled="true" default="true"
        retention_downloaded="0"/>
  </mpcs>
  <businessProcesses>
    <roles><role name="buyer" value="urn:buyer"/><role name="seller" value="urn:seller"/></roles>
    <parties>
      <partyIdTypes><partyIdType name="names" value="urn:example:names"/></partyIdTypes>
      <party name="blue" endpoint="https://blue.example/msh" allowChunking="false">
        <identifier partyId="blue-1" partyIdType="names"/>
      </party>
      <party name="red" endpoint="https://red.example/msh">
        <identifier partyId="red-1" partyIdType="names"/>
      </party>
      <party name="green" endpoint="https://green.example/msh">
        <identifier partyId="green-1" partyIdType="names"/>
      </party>
    </parties>
    <meps>
      <mep name="oneway" value="{CORE}oneWay"/>
      <mep name="twoway" value="{CORE}twoWay"/>
      <binding name="push" value="{CORE}push"/>
      <binding name="pushAndPush" value="{CORE}pushAndPush"/>
    </meps>
    <properties>
      <property name="from" key="originalSender" datatype="string" required="true"/>
      <propertySet name="set"><propertyRef property="from"/></propertySet>
    </properties>
    <payloadProfiles>
      <payload name="body" cid="cid:message" required="true" mimeType="text/xml"/>
      <payloadProfile name="profile" maxSize="1000"><attachment name="body"/></payloadProfile>
    </payloadProfiles>
    <securities>
      <security name="strong" policy="eDeliveryAS4Policy.xml" signatureMethod="RSA_SHA256"/>
    </securities>
    <errorHandlings>
      <errorHandling name="errors" errorAsResponse="true" businessErrorNotifyProducer="true"
          businessErrorNotifyConsumer="false" deliveryFailureNotifyProducer="true"/>
    </errorHandlings>
    <agreements><agreement name="agreed" value="A1" type="urn:example:agreements"/></agreements>
    <services><service name="service" value="orders" type="urn:example:services"/></services>
    <actions><action name="place" value="PlaceOrder"/><action name="ok" value="Ok"/></actions>
    <as4>
      <receptionAwareness name="again" retry="12;4;CONSTANT" duplicateDetection="true"/>
      <reliability name="proof" nonRepudiation="true" replyPattern="response"/>
    </as4>
    <legConfigurations>
      <legConfiguration name="placing" service="service" action="place" defaultMpc="main"
          reliability="proof" security="strong" receptionAwareness="again" propertySet="set"
          payloadProfile="profile" errorHandling="errors" compressPayloads="true"/>
      <legConfiguration name="confirming" service="service" action="ok" defaultMpc="main"
          reliability="proof" security="strong" errorHandling="errors"/>
    </legConfigurations>
    <process name="orders" agreement="agreed" mep="oneway" binding="push"
        initiatorRole="buyer" responderRole="seller">
      <initiatorParties>
        <initiatorParty name="blue"/><initiatorParty name="red"/>
      </initiatorParties>
      <responderParties>
        <responderParty name="blue"/><responderParty name="red"/>
      </responderParties>
      <legs><leg name="placing"/></legs>
    </process>
  </businessProcesses>
</db:configuration>
"""


def imported(*changes: tuple[str, str], me: str | None = None) -> Imported:
    text = CONFIGURATION
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return import_pmodes(text.encode(), "blue.xml", me=me)


def pmode(*changes: tuple[str, str]) -> dict[str, Any]:
    found = imported(*changes)
    assert found.problems == ()
    return found.pmodes[0]


def leg(*changes: tuple[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = pmode(*changes)["legs"][0]
    return found


def ids(found: Imported) -> list[str]:
    return [str(item["id"]) for item in found.pmodes]


def test_there_is_one_pmode_for_each_leg_and_partner_of_the_party() -> None:
    assert ids(imported()) == [BLUE_TO_RED, "orders-placing-red-blue"]


def test_what_is_imported_loads() -> None:
    result = load_pmodes(imported_yaml(imported(), "blue.xml"), "blue.yaml")
    assert result.ok
    assert len(result.pmodes) == 2


def test_names_are_followed_to_their_values() -> None:
    found = pmode()
    assert found["agreement"] == {"value": "A1", "type": "urn:example:agreements"}
    assert (found["mep"], found["mep_binding"]) == (f"{CORE}oneWay", f"{CORE}push")
    assert found["initiator"] == {
        "party": [{"id": "blue-1", "type": "urn:example:names"}],
        "role": "urn:buyer",
    }
    assert found["responder"]["role"] == "urn:seller"
    assert leg()["protocol"] == {"address": "https://red.example/msh"}
    assert leg()["business_info"] == {
        "service": {"value": "orders", "type": "urn:example:services"},
        "action": "PlaceOrder",
        "mpc": DEFAULT_MPC,
        "properties": [{"name": "originalSender", "type": "string", "required": True}],
        "payload_profile": {
            "max_size": "1000 B",
            "payloads": [{"name": "message", "mime_type": "text/xml", "required": True}],
        },
    }


def test_security_errors_receipts_and_retries_are_carried_over() -> None:
    found = leg()
    x509 = found["security"]["x509"]
    assert x509["signature"] == {"algorithm": "rsa-sha256", "hash_function": "sha256"}
    assert x509["encryption"]["algorithm"] == "aes128-gcm"
    assert found["security"]["send_receipt"] == {
        "reply_pattern": "response",
        "non_repudiation": True,
    }
    assert found["error_handling"]["report"] == {
        "as_response": True,
        "process_error_notify_consumer": False,
        "process_error_notify_producer": True,
        "delivery_failures_notify_producer": True,
    }
    assert found["payload_service"] == {"compression_type": "gzip"}
    assert found["reception_awareness"]["retry"]["parameters"] == {
        "max_retries": 4,
        "period": "PT180S",
    }


@pytest.mark.parametrize(
    ("retry", "parameters"),
    [
        ("0;0;SEND_ONCE", None),
        (
            "60;5;2;PROGRESSIVE",
            {
                "max_retries": "unlimited",
                "period": "PT5M",
                "backoff": 2,
                "persist_duration": "PT60M",
            },
        ),
    ],
)
def test_each_strategy_of_retries_is_understood(retry: str, parameters: object) -> None:
    found = leg(("12;4;CONSTANT", retry))["reception_awareness"]
    assert (found is True) if parameters is None else found["retry"]["parameters"] == parameters


def test_a_policy_without_signature_has_no_security() -> None:
    found = leg(("eDeliveryAS4Policy.xml", "doNothingPolicy.xml"))["security"]
    assert found == {"send_receipt": {"reply_pattern": "response"}}


def test_a_two_way_process_is_one_pmode_of_two_legs() -> None:
    changes = (
        ('mep="oneway" binding="push"', 'mep="twoway" binding="pushAndPush"'),
        ('<leg name="placing"/>', '<leg name="placing"/><leg name="confirming"/>'),
    )
    assert ids(imported(*changes)) == ["orders-blue-red", "orders-red-blue"]
    legs = pmode(*changes)["legs"]
    assert [item["protocol"]["address"] for item in legs] == [
        "https://red.example/msh",
        "https://blue.example/msh",
    ]


def test_the_party_can_be_named_by_its_id() -> None:
    green = ('<initiatorParty name="blue"/>', '<initiatorParty name="green"/>')
    assert ids(imported(green, me="green-1")) == [
        "orders-placing-green-blue",
        "orders-placing-green-red",
    ]


def test_an_initiator_that_is_left_open_is_anybody() -> None:
    begin = CONFIGURATION.index("<initiatorParties>")
    end = CONFIGURATION.index("</initiatorParties>") + len("</initiatorParties>")
    found = imported((CONFIGURATION[begin:end], ""), ('<responderParty name="red"/>', ""))
    assert ids(found) == ["orders-placing-blue"]
    assert found.pmodes[0]["initiator"] == {"role": "urn:buyer"}


def test_partners_are_not_looked_up_in_registries() -> None:
    begin = CONFIGURATION.index("<responderParties>")
    end = CONFIGURATION.index("</responderParties>") + len("</responderParties>")
    found = imported((CONFIGURATION[begin:end], ""))
    assert "partners are not looked up in registries" in found.problems[0].message


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('party="blue">', 'party="grey">', "'grey' is no party of this file"),
        ('<leg name="placing"/>', '<leg name="lost"/>', "there is no legConfiguration 'lost'"),
        ('action="place"', 'action="lost"', "there is no action 'lost'"),
        ("eDeliveryAS4Policy.xml", "ours.xml", "policy 'ours.xml' is not one of those"),
        ('maxSize="1000"', 'maxSize="-1"', "maxSize '-1' is no number of bytes"),
        ('nonRepudiation="true"', 'nonRepudiation="so"', "neither true nor false"),
        ("12;4;CONSTANT", "often", "retry 'often' is not understood"),
        ('mep="oneway" binding="push"', 'mep="twoway" binding="push"', "has two legs, not 1"),
        (' endpoint="https://red.example/msh"', "", "party 'red' has no endpoint"),
    ],
)
def test_what_cannot_be_kept_is_refused(old: str, new: str, why: str) -> None:
    found = imported((old, new))
    assert found.pmodes == ()
    assert why in found.problems[0].message
    assert found.problems[0].line > 1


def test_an_agreement_that_has_no_type_and_is_not_a_uri_is_kept() -> None:
    found = imported(('type="urn:example:agreements"', 'type=""'))
    assert {str(one["agreement"]) for one in found.pmodes} == {"A1"}


def test_a_file_without_processes_is_refused() -> None:
    found = imported(("<process ", "<recess "), ("</process>", "</recess>"))
    assert "there is no process in it" in found.problems[0].message


def test_one_bad_process_does_not_spoil_the_others() -> None:
    begin = CONFIGURATION.index("    <process ")
    end = CONFIGURATION.index("</process>") + len("</process>")
    process = CONFIGURATION[begin:end]
    bad = process.replace('name="orders"', 'name="bad"').replace('name="placing"', 'name="lost"')
    found = imported((process, process + bad))
    assert ids(found) == [BLUE_TO_RED, "orders-placing-red-blue"]
    assert [remark.message for remark in found.problems] == [
        "process bad: there is no legConfiguration 'lost'"
    ]


def test_what_has_no_place_is_told() -> None:
    told = [
        remark.message
        for remark in imported(('action="place"', 'action="place" splitting="s"')).notes
    ]
    assert "mpcs/mpc/@retention_downloaded is not carried over" in told
    assert "splitting is not carried over: add it to the leg, with receipts that call back" in told
    assert any("Java keystores" in text for text in told)
    assert any(text.startswith("parties/party is not carried over") for text in told)


def test_of_two_parts_with_one_name_the_first_counts() -> None:
    twice = '<action name="place" value="PlaceOrder"/>'
    found = imported((twice, twice + twice.replace("PlaceOrder", "Other")))
    assert found.pmodes[0]["legs"][0]["business_info"]["action"] == "PlaceOrder"
    told = [remark.message for remark in found.notes]
    assert "there is another action 'place'; the first one counts" in told
