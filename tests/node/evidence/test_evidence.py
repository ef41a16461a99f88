"""Evidence: a zip that proves what was sent and received, to anybody and without a network."""

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

import postroad
from postroad.cli.main import app
from postroad.msh.evidence import Given, judge
from postroad.msh.lens import Lens
from postroad.node.evidence.check import check_evidence
from postroad.node.first_steps.example import order_message
from postroad.security.algorithms import ECDSA_SHA256
from postroad.security.keyestablishment import Encryption
from postroad.security.secure import secure
from postroad.security.sign import Block, Signing
from postroad.wire.ebms3 import Messaging, PartInfo
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.soap import SoapVersion
from tests import pki
from tests.changing import replace
from tests.node.evidence.zips import ORDER, PICTURE, Made, codes, listed, unzipped, zipped
from tests.node.exchange import BEGIN, BUYER, SELLER


@pytest.mark.parametrize("kind", ["order", "signed"])
@pytest.mark.parametrize("party", [BUYER, SELLER])
def test_evidence_of_a_signed_message_holds_on_both_sides(
    made: Made, party: str, kind: str
) -> None:
    facts = postroad.inspect(made.zips[party, f"{kind}-1"], trust=made.authority)
    assert facts["kind"] == "evidence"
    assert facts["errors"] == []
    assert (facts["holds"], facts["signed"], facts["trusted"]) == (True, True, True)
    assert facts["message_id"] == f"{kind}-1@buyer.example"
    message, (proof,) = facts["message"], facts["receipts"]
    assert message["signature"]["valid"] is True
    assert message["encryption"]["present"] is (kind == "order")
    assert [one["signed"] for one in message["parts"]] == [True, True, True]
    assert proof["signature"]["signer"].startswith("CN=seller")
    assert len(proof["digests"]) == 6
    assert all(one["equal"] for one in proof["digests"])
    assert message["units"][0]["payloads"][0]["size"] == len(ORDER)


def test_all_bytes_are_as_they_were_signed_and_sent(made: Made) -> None:
    ours, theirs = (unzipped(made.zips[party, "order-1"]) for party in (BUYER, SELLER))
    same = ["message/envelope.xml", "signals/1-receipt.xml"]
    same += [f"message/parts/{number}" for number in (1, 2, 3)]
    for name in same:
        assert ours[name] == theirs[name]
    assert ours["message/parts/3"] == PICTURE
    assert ours["message/parts/1"].startswith(b"\x1f\x8b")


def test_the_zip_tells_what_the_journal_and_the_node_say(made: Made) -> None:
    files = unzipped(made.zips[BUYER, "order-1"])
    events = json.loads(files["events.json"])
    assert [one["event"] for one in events] == ["receipt_received"]
    assert events[0]["node"] == BUYER
    assert events[0]["message_id"] == "order-1@buyer.example"
    verdict = json.loads(files["verdict.json"])
    assert (verdict["holds"], verdict["trusted"], verdict["errors"]) == (True, True, [])
    assert "postroad inspect" in files["README.txt"].decode()
    manifest = json.loads(files["evidence.json"])
    assert (manifest["side"], manifest["node"], manifest["state"]) == (
        "sending",
        "buyer",
        "acknowledged",
    )
    assert {one["name"] for one in manifest["files"]} == set(files) - {"evidence.json"}


def test_without_trust_nobody_is_trusted_and_the_certificates_are_shown(made: Made) -> None:
    facts = postroad.inspect(made.zips[BUYER, "order-1"])
    assert facts["holds"] is True
    assert facts["trusted"] is None
    shown = {one["file"]: one["subject"] for one in facts["certificates"]}
    assert shown["certificates/message.pem"].startswith("CN=buyer")
    assert shown["certificates/1-receipt.pem"].startswith("CN=seller")


def test_signers_that_the_given_certificates_do_not_vouch_for_are_refused(made: Made) -> None:
    stranger = pki.authority("Other authority", key="rsa").certificate
    facts = postroad.inspect(made.zips[BUYER, "order-1"], trust=stranger)
    assert (facts["holds"], facts["trusted"]) == (False, False)
    assert codes(facts) == ["EBMS:0101", "EBMS:0101"]


def test_trusting_the_sender_alone_does_not_vouch_for_the_receipt(made: Made) -> None:
    facts = postroad.inspect(
        made.zips[BUYER, "order-1"], trust=made.folder / BUYER / "keys" / "buyer.pem"
    )
    assert facts["message"]["signature"]["trusted"] is True
    assert facts["receipts"][0]["signature"]["trusted"] is False
    assert facts["holds"] is False


def test_certificates_are_judged_as_of_the_time_of_the_message(made: Made) -> None:
    data = made.zips[BUYER, "order-1"]
    late = postroad.inspect(data, trust=made.authority, at=datetime(2030, 1, 1, tzinfo=UTC))
    assert postroad.inspect(data, trust=made.authority)["holds"] is True
    assert late["holds"] is False
    assert set(codes(late)) == {"EBMS:0101"}


def test_evidence_about_a_time_that_is_still_to_come_does_not_hold(made: Made) -> None:
    lens = Lens(at=BEGIN - timedelta(days=2))
    evidence = check_evidence(io.BytesIO(made.zips[BUYER, "order-1"]), lens)
    assert evidence.holds is False
    assert "in the future" in str(evidence.findings and evidence.findings.all_problems())


def test_unsigned_evidence_is_consistent_and_proves_nothing(made: Made) -> None:
    for party in (BUYER, SELLER):
        facts = postroad.inspect(made.zips[party, "plain-1"], trust=made.authority)
        assert (facts["holds"], facts["signed"], facts["trusted"]) == (True, False, None)
        assert codes(facts, "warning") == ["EBMS:0103"]
        assert "proves nothing" in facts["errors"][0]["detail"]


def test_a_receipt_for_another_unsigned_message_is_told(made: Made) -> None:
    files = unzipped(made.zips[BUYER, "plain-1"])
    other = unzipped(made.zips[BUYER, "plain-2"])
    forged = listed({**files, "signals/1-receipt.xml": other["signals/1-receipt.xml"]})
    assert codes(postroad.inspect(zipped(forged))) == ["EBMS:0302"]


def test_a_changed_copy_of_an_unsigned_message_is_told(made: Made) -> None:
    files = unzipped(made.zips[BUYER, "plain-1"])
    changed = files["signals/1-receipt.xml"].replace(b"PriceList", b"PriceLost")
    assert changed != files["signals/1-receipt.xml"]
    facts = postroad.inspect(zipped(listed({**files, "signals/1-receipt.xml": changed})))
    assert codes(facts) == ["EBMS:0302"]


def test_the_command_verifies_evidence(made: Made, tmp_path: Path) -> None:
    file = tmp_path / "evidence.zip"
    file.write_bytes(made.zips[BUYER, "order-1"])
    command = ["inspect", str(file), "--trust", str(made.authority)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert "evidence  holds" in result.output
    assert "signed message, 1 signed receipt  all who signed are trusted" in result.output
    assert "digests: 6 of 6 equal to the message's" in result.output
    extracted = CliRunner().invoke(app, [*command, "--extract", str(tmp_path / "out")])
    assert extracted.exit_code == 0
    assert (tmp_path / "out" / "payload-1.xml").read_bytes() == ORDER
    shown = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert (shown["file"], shown["kind"], shown["holds"]) == (str(file), "evidence", True)


def test_the_command_reads_evidence_from_standard_input(made: Made) -> None:
    data = made.zips[SELLER, "order-1"]
    result = CliRunner().invoke(app, ["inspect", "-"], input=data)
    assert result.exit_code == 0
    assert "nobody said whom to trust" in result.output


def test_the_command_says_that_a_zip_is_no_evidence(tmp_path: Path) -> None:
    file = tmp_path / "photos.zip"
    file.write_bytes(zipped({"photo.jpg": b"x"}))
    result = CliRunner().invoke(app, ["inspect", str(file)])
    assert result.exit_code == 2
    assert "no evidence of Postroad" in result.output


def test_a_signed_body_that_stayed_encrypted_proves_nothing() -> None:
    now = datetime(2026, 6, 1, 12, tzinfo=UTC)
    ca = pki.authority("Test CA")
    message = order_message(now)
    inside = replace(message, part_infos=(PartInfo(None, ()),))
    header = write_messaging(Messaging((inside,), id="_messaging"), SoapVersion.SOAP_12)
    made = secure(
        SoapVersion.SOAP_12,
        [Block("_messaging", header)],
        [],
        signing=Signing(pki.issue(ca, "alice"), ECDSA_SHA256),
        encryption=Encryption(pki.issue(ca, "bob", key="rsa").certificate),
        entropy=bytes,
        body_content='<o:Order xmlns:o="urn:example:order">1</o:Order>',
    )
    findings = judge(Given(made.envelope, (), ()), Lens(at=now))
    assert findings.holds is False
    assert [one.code for one in findings.all_problems() if one.severity == "failure"] == [
        "EBMS:0101"
    ]
    assert findings.message.decryption is not None
    assert findings.message.decryption.decrypted is False
