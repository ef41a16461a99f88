"""P-Modes of Holodeck B2B: what is carried over, what is told."""

from typing import Any

import pytest

from postroad.agreement.importing import import_pmodes, imported_yaml
from postroad.agreement.importing_source import Imported
from postroad.agreement.loading import load_pmodes

CORE = "http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/"
PMODE = f"""<?xml version="1.0"?>
<PMode xmlns="http://holodeck-b2b.org/schemas/2014/10/pmode">
  <id include="true">acme-invoices</id>
  <mep>{CORE}oneWay</mep>
  <mepBinding>{CORE}push</mepBinding>
  <Initiator>
    <PartyId type="urn:example:names">acme</PartyId>
    <Role>Sender</Role>
    <SecurityConfiguration>
      <UsernameToken>
        <username>acme</username>
        <password type="Text">horse</password>
        <includeNonce>true</includeNonce>
      </UsernameToken>
      <Signing>
        <KeystoreAlias password="battery">acme-key</KeystoreAlias>
        <KeyReferenceMethod>IssuerSerial</KeyReferenceMethod>
        <Algorithm>http://www.w3.org/2001/04/xmldsig-more#rsa-sha256</Algorithm>
      </Signing>
    </SecurityConfiguration>
  </Initiator>
  <Responder>
    <PartyId>urn:example:globex</PartyId>
    <Role>Receiver</Role>
    <SecurityConfiguration>
      <Encryption>
        <KeystoreAlias>globex</KeystoreAlias>
        <Algorithm>http://www.w3.org/2009/xmlenc11#aes128-gcm</Algorithm>
        <KeyTransport>
          <Algorithm>http://www.w3.org/2009/xmlenc11#rsa-oaep</Algorithm>
          <MGFAlgorithm>http://www.w3.org/2009/xmlenc11#mgf1sha256</MGFAlgorithm>
        </KeyTransport>
      </Encryption>
    </SecurityConfiguration>
  </Responder>
  <Agreement><name>urn:example:agreement</name></Agreement>
  <Leg>
    <Protocol>
      <Address>https://globex.example/as4</Address>
      <UseChunking>true</UseChunking>
    </Protocol>
    <Receipt><ReplyPattern>RESPONSE</ReplyPattern></Receipt>
    <ReceptionAwareness>
      <MaxRetries>4</MaxRetries>
      <RetryInterval>30</RetryInterval>
    </ReceptionAwareness>
    <UserMessageFlow>
      <BusinessInfo>
        <Action>Submit</Action>
        <Service><name>invoices</name><type>urn:example:services</type></Service>
        <Property><name>region</name><value>north</value></Property>
      </BusinessInfo>
      <ErrorHandling>
        <ReplyPattern>RESPONSE</ReplyPattern>
        <NotifyErrorToBusinessApplication>true</NotifyErrorToBusinessApplication>
      </ErrorHandling>
      <PayloadProfile><UseAS4Compression>true</UseAS4Compression></PayloadProfile>
    </UserMessageFlow>
  </Leg>
</PMode>
"""


def imported(*changes: tuple[str, str], me: str | None = None) -> Imported:
    text = PMODE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return import_pmodes(text.encode(), "invoices.xml", me=me)


def leg(*changes: tuple[str, str]) -> dict[str, Any]:
    found = imported(*changes)
    assert found.problems == ()
    result: dict[str, Any] = found.pmodes[0]["legs"][0]
    return result


def said(*changes: tuple[str, str]) -> dict[str, int]:
    return {remark.message: remark.line for remark in imported(*changes).notes}


def test_who_and_what_is_carried_over() -> None:
    (pmode,) = imported().pmodes
    assert pmode["id"] == "acme-invoices"
    assert pmode["agreement"] == {"value": "urn:example:agreement", "include_pmode": True}
    assert (pmode["mep"], pmode["mep_binding"]) == (f"{CORE}oneWay", f"{CORE}push")
    assert pmode["initiator"] == {
        "party": [{"id": "acme", "type": "urn:example:names"}],
        "role": "Sender",
    }
    assert leg()["business_info"] == {
        "service": {"value": "invoices", "type": "urn:example:services"},
        "action": "Submit",
        "properties": [{"name": "region"}],
    }
    assert leg()["protocol"] == {"address": "https://globex.example/as4"}


def test_what_is_imported_loads() -> None:
    result = load_pmodes(imported_yaml(imported(), "invoices.xml"), "invoices.yaml")
    assert result.ok
    assert [pmode.id for pmode in result.pmodes] == ["acme-invoices"]


def test_the_sender_signs_and_encrypts_for_the_receiver() -> None:
    x509 = leg()["security"]["x509"]
    assert x509["signature"] == {
        "algorithm": "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
        "key_reference": "issuer_serial",
    }
    assert x509["encryption"] == {
        "encrypt": True,
        "algorithm": "http://www.w3.org/2009/xmlenc11#aes128-gcm",
        "key_transport": "http://www.w3.org/2009/xmlenc11#rsa-oaep",
        "mgf": "http://www.w3.org/2009/xmlenc11#mgf1sha256",
    }


def test_in_a_pulled_message_the_responder_is_the_sender() -> None:
    assert "sign" not in leg(
        (f"{CORE}push", f"{CORE}pull"),
        ("RESPONSE</ReplyPattern></Receipt>", "CALLBACK</ReplyPattern></Receipt>"),
    )["security"].get("x509", {})


def test_receipts_retries_compression_and_errors_are_carried_over() -> None:
    found = leg()
    assert found["security"]["send_receipt"] == {"reply_pattern": "response"}
    assert found["reception_awareness"]["retry"]["parameters"] == {
        "max_retries": 4,
        "period": "PT30S",
    }
    assert found["payload_service"] == {"compression_type": "gzip"}
    assert found["error_handling"]["report"] == {
        "as_response": True,
        "process_error_notify_producer": True,
    }


def test_a_username_token_is_carried_over() -> None:
    assert leg()["security"]["username_token"] == {
        "username": "acme",
        "password": "horse",
        "digest": False,
        "nonce": True,
    }


def test_a_token_for_the_authorization_is_told() -> None:
    change = ("<UsernameToken>", '<UsernameToken target="ebms">')
    assert "username_token" not in leg(change)["security"]
    assert any(text.startswith("a UsernameToken for ebms") for text in said(change))


def test_keys_of_java_keystores_are_told_without_their_passwords() -> None:
    notes = said()
    assert any(text.startswith("'acme-key' is in a Java keystore") for text in notes)
    assert any(text.startswith("'globex' is in a Java keystore") for text in notes)
    assert "battery" not in imported_yaml(imported(), "invoices.xml")


def test_what_has_no_place_is_told_with_its_line() -> None:
    delivery = "<DefaultDelivery><DeliveryMethod>x</DeliveryMethod></DefaultDelivery>"
    notes = said(("    <UserMessageFlow>", f"    {delivery}<UserMessageFlow>"))
    told = {text.partition(":")[0]: line for text, line in notes.items()}
    lines = PMODE.splitlines()
    place = lines.index("      <UseChunking>true</UseChunking>") + 1
    assert told["Protocol/UseChunking is not carried over"] == place
    assert "Leg/DefaultDelivery is not carried over" in told
    assert "the value of a Property is not carried over" in told


def test_awareness_without_receipts_is_left_out() -> None:
    change = ("<Receipt><ReplyPattern>RESPONSE</ReplyPattern></Receipt>", "")
    assert "reception_awareness" not in leg(change)
    assert "ReceptionAwareness is left out: there is no Receipt to wait for" in said(change)


def test_messages_carry_the_id_where_holodeck_includes_it() -> None:
    kept_to_itself = imported((' include="true"', ""))
    assert kept_to_itself.pmodes[0]["agreement"] == "urn:example:agreement"
    none = ("<Agreement><name>urn:example:agreement</name></Agreement>", "")
    assert any("include is left out" in text for text in said(none))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("acme-invoices", "", "the P-Mode has no id"),
        ("<MaxRetries>4", "<MaxRetries>four", "whole numbers"),
        (f"{CORE}push", "urn:x", "is not known"),
        ("https://globex.example/as4", "jms:queue", "no transport for jms:"),
    ],
)
def test_a_pmode_that_cannot_be_kept_is_refused(old: str, new: str, why: str) -> None:
    found = imported((old, new))
    assert found.pmodes == ()
    assert why in found.problems[0].message


def test_a_refusal_is_one_line_whatever_the_id_of_the_p_mode_is() -> None:
    found = imported(("acme-invoices", "acme\n\x9binvoices"), ("https://globex.example/as4", "no"))
    assert found.problems
    assert all(one.text.isprintable() for one in found.problems)


def test_this_nodes_party_is_one_of_the_two() -> None:
    assert imported(me="acme").problems == ()
    assert "is no party of this P-Mode" in imported(me="initech").problems[0].message
