"""Messages that other software wrote are read, opened and judged as their authors say."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import postroad
from postroad.security.keys import load_certificates, load_key_pairs
from postroad.wire.names import NEXT_MSH
from tests.conftest import VECTORS

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="the recorded messages are not there")

Report = dict[str, Any]

FILES: Final = sorted(
    path.relative_to(VECTORS).as_posix() for path in VECTORS.rglob("*") if path.is_file()
)
IN_2017: Final = datetime(2017, 1, 1, tzinfo=UTC)


class Verdict(NamedTuple):
    kind: str
    holds: bool
    codes: frozenset[str] = frozenset()
    """At least these are among the failures; `Verdict.warnings` among the warnings."""
    warnings: frozenset[str] = frozenset()


def verdict(kind: str, holds: bool, *codes: str, warnings: Sequence[str] = ()) -> Verdict:
    return Verdict(
        kind,
        holds,
        frozenset(f"EBMS:{code}" for code in codes),
        frozenset(f"EBMS:{code}" for code in warnings),
    )


VERDICTS: Final = {
    "as4net/as4-multihop-usermessage.as4": verdict(
        "user_message", False, "0009", warnings=["0003"]
    ),
    "as4net/multihopreceipt.xml": verdict("receipt", True),
    "as4net/as4-soap-signed-message.txt": verdict("user_message", True),
    "as4net/as4-soap-wrong-signed-message.txt": verdict("user_message", False, "0101"),
    "as4net/signed_holodeck_message.as4": verdict("user_message", False, "0101"),
    "as4net/as4-encrypted-compressed-message.as4": verdict(
        "user_message", True, warnings=["0009", "0102"]
    ),
    "phase4/peppol-verify/helger.as4in": verdict("receipt", True),
    "phase4/peppol-verify/dump-raw.as4out": verdict("user_message", True, warnings=["0102"]),
    "phase4/soap11test/BundledMessage.xml": verdict("user_message", True),
    "phase4/soap11test/EmptyMessaging.xml": verdict("soap", False, "0009"),
    "phase4/soap11test/ErrorMessage.xml": verdict("error", True),
    "phase4/soap11test/MessageInfoIDMissing.xml": verdict("user_message", False, "0009"),
    "phase4/soap11test/MessageInfoImaginaryTimestamp.xml": verdict("user_message", False, "0009"),
    "phase4/soap11test/MessageInfoMissing.xml": verdict("user_message", False, "0009"),
    "phase4/soap11test/NoMessaging.xml": verdict("unreadable", False, "0009"),
    "phase4/soap11test/PullRequest.xml": verdict("pull_request", True),
    "phase4/soap11test/ReceiptMessage.xml": verdict("receipt", True),
    "phase4/soap11test/UserMessage-no-soap.xml": verdict("unreadable", False, "0009"),
    "phase4/soap11test/UserMessage.xml": verdict("user_message", True, warnings=["0007"]),
    "phase4/soap11test/UserMessageResponse.xml": verdict("user_message", True, warnings=["0007"]),
    "phase4/soap12test/PullRequest12.xml": verdict("pull_request", False, "0008", "0101"),
    "phase4/soap12test/UserMessage12.xml": verdict("user_message", True),
    "phase4/soap12test/UserMessageWithCompressedPayload12.xml": verdict(
        "unreadable", False, "0009"
    ),
    "phase4/soap12test/test-2023-03-15.xml": verdict("user_message", True, warnings=["0007"]),
    "phase4/testfiles/ErrorMessage.xml": verdict("error", True),
    "phase4/testfiles/ErrorMessageNoRefToMessageID.xml": verdict("error", True),
    "phase4/testfiles/ErrorMessageWithFault.xml": verdict("error", True),
    "phase4/testfiles/NoResponder.xml": verdict("user_message", False, "0009"),
    "phase4/testfiles/NonRepudiationInformation.xml": verdict("unreadable", False, "0009"),
    "phase4/testfiles/PayloadXML.xml": verdict("unreadable", False, "0009"),
    "phase4/testfiles/PullPush.xml": verdict("unreadable", False, "0009"),
    "phase4/testfiles/PushPull.xml": verdict("unreadable", False, "0009"),
    "phase4/testfiles/SOAPBodyPayload.xml": verdict("unreadable", False, "0009"),
    "phase4/testfiles/TestReceipt11.xml": verdict("receipt", False, "0302"),
    "phase4/testfiles/TestReceipt12.xml": verdict("receipt", True),
    "phase4/testfiles/UserMessageNoPartyID.xml": verdict("user_message", False, "0009"),
    "phase4/testfiles/UserMessageWithoutWSSE.xml": verdict("user_message", True, warnings=["0003"]),
    "phase4/testfiles/WrongSigningDigestAlgorithm.xml": verdict(
        "user_message", False, "0101", "0103"
    ),
    "phase4/attachment/HyperlinkPayload.xml": verdict("user_message", False, "0009"),
    "wsrm/MakeConnection.xml": verdict("wsrm", False, "0009"),
    "wsrm/MessagePending.xml": verdict("wsrm", False, "0009"),
}
"""What the names and the README say."""

TOLD: Final = {
    "phase4/soap11test/EmptyMessaging.xml": "at least one eb:UserMessage or eb:SignalMessage",
    "phase4/soap11test/MessageInfoIDMissing.xml": "eb:MessageId is required",
    "phase4/soap11test/MessageInfoImaginaryTimestamp.xml": "eb:Timestamp",
    "phase4/soap11test/MessageInfoMissing.xml": "eb:MessageInfo is required",
    "phase4/soap11test/NoMessaging.xml": "expected a SOAP 1.1 or 1.2 Envelope",
    "phase4/soap11test/UserMessage-no-soap.xml": "expected a SOAP 1.1 or 1.2 Envelope",
    "phase4/soap12test/UserMessageWithCompressedPayload12.xml": "not well-formed",
    "phase4/testfiles/NoResponder.xml": "eb:To is required",
    "phase4/testfiles/UserMessageNoPartyID.xml": "eb:PartyId is empty",
    "phase4/testfiles/WrongSigningDigestAlgorithm.xml": "unknown digest method",
    "phase4/testfiles/TestReceipt11.xml": "expected ebbp:NonRepudiationInformation",
    "phase4/attachment/HyperlinkPayload.xml": "@href must be",
}


def inspect(name: str, **options: Any) -> Report:
    return postroad.inspect(VECTORS / name, **options)


def codes(report: Report, severity: str) -> set[str]:
    return {error["code"] for error in report["errors"] if error["severity"] == severity}


@pytest.mark.parametrize("name", FILES)
def test_every_file_gives_a_report_and_never_an_exception(name: str) -> None:
    report = inspect(name)
    assert json.loads(json.dumps(report)) == report
    assert report["holds"] is (report["kind"] != "unreadable" and not codes(report, "failure"))
    for error in report["errors"]:
        assert error["detail"]
        assert error["code"].startswith("EBMS:")


@pytest.mark.parametrize("name", VERDICTS)
def test_a_message_is_judged_as_its_name_says(name: str) -> None:
    report, expected = inspect(name), VERDICTS[name]
    assert report["kind"] == expected.kind
    assert report["holds"] is expected.holds
    assert expected.codes <= codes(report, "failure")
    assert expected.warnings <= codes(report, "warning")


@pytest.mark.parametrize("name", TOLD)
def test_what_is_wrong_is_said_in_words(name: str) -> None:
    failures = [e["detail"] + " " + (e["location"] or "") for e in inspect(name)["errors"]]
    assert any(TOLD[name] in failure for failure in failures)


def _kind_by_name(name: str) -> str:
    return "receipt" if name.endswith("as4receipt.xml") else "user_message"


@pytest.mark.parametrize("name", [one for one in FILES if one.startswith(("oasis/", "phase4/cef"))])
def test_published_exchanges_are_read(name: str) -> None:
    report = inspect(name)
    assert report["kind"] == _kind_by_name(name)
    assert len(report["units"]) == 1
    assert report["units"][0]["message_id"]


@pytest.mark.parametrize("name", [one for one in FILES if one.startswith("wsrm/")])
def test_reliable_messaging_of_other_stacks_is_recognised(name: str) -> None:
    report = inspect(name)
    assert report["kind"] == "wsrm"
    assert report["units"] == []


@pytest.mark.parametrize(
    "name",
    [
        one
        for one in FILES
        if one.startswith(("cpa/", "pmodes/"))
        or (one.startswith("phase4/attachment/") and "Hyperlink" not in one)
        or one.endswith((".cer", ".pfx", ".p12", "README.md"))
    ],
)
def test_what_is_no_message_is_unreadable(name: str) -> None:
    report = inspect(name)
    assert report["kind"] == "unreadable"
    assert report["holds"] is False
    assert codes(report, "failure") & {"EBMS:0007", "EBMS:0009"}


def test_a_holodeck_message_holds_and_is_trusted() -> None:
    report = inspect(
        "as4net/signed_holodeck_message.as4",
        trust=[VECTORS / "as4net/AccessPointB.cer"],
        at=IN_2017,
    )
    assert report["holds"] is True
    assert report["signature"]["valid"] is True
    assert report["signature"]["trusted"] is True
    assert len(report["signature"]["references"]) == 4
    assert all(one["valid"] for one in report["signature"]["references"])
    assert [part["signed"] for part in report["parts"]] == [True, True]
    assert len(report["units"][0]["payloads"]) == 2


UNFAMILIAR: Final = """
import sys
from datetime import UTC, datetime
import postroad
from postroad.wire import xml

xml._vocabulary._bytes = xml._MOST_NAME_BYTES + 1
at = datetime(2017, 1, 1, tzinfo=UTC)
print(postroad.inspect(sys.argv[1], trust=[sys.argv[2]], at=at)["holds"])
"""


def test_a_holodeck_message_holds_where_its_names_are_not_to_be_remembered() -> None:
    """It is read in a thread of its own then; its inclusive prefixes are new to this one."""
    files = [VECTORS / "as4net/signed_holodeck_message.as4", VECTORS / "as4net/AccessPointB.cer"]
    done = subprocess.run(
        [sys.executable, "-c", UNFAMILIAR, *files], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"


def test_a_holodeck_message_is_not_by_the_other_access_point() -> None:
    report = inspect(
        "as4net/signed_holodeck_message.as4",
        trust=[VECTORS / "as4net/AccessPointA.cer"],
        at=IN_2017,
    )
    assert report["holds"] is False
    assert report["signature"]["valid"] is None


def test_a_touched_holodeck_message_does_not_hold() -> None:
    data = (VECTORS / "as4net/signed_holodeck_message.as4").read_bytes()
    [certificate] = load_certificates((VECTORS / "as4net/AccessPointB.cer").read_bytes())
    for at in (len(data) // 2, len(data) - 100):
        touched = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
        report = postroad.inspect(touched, trust=[certificate], at=IN_2017)
        assert report["holds"] is False


def _party_a() -> Any:
    data = (VECTORS / "as4net/holodeck-partya-certificate.pfx").read_bytes()
    [named] = load_key_pairs(data, b"secrets")
    return named.pair.certificate


def test_the_signature_of_party_a_is_valid_and_by_its_certificate() -> None:
    name, party_a = "as4net/as4-soap-signed-message.txt", _party_a()
    report = inspect(name, trust=[party_a], at=IN_2017, allow_legacy=True)
    assert report["holds"] is True
    assert report["signature"]["trusted"] is True
    assert report["signature"]["signer"] == party_a.subject.rfc4514_string()
    strict = inspect(name, trust=[party_a], at=IN_2017)
    assert strict["signature"]["valid"] is True
    assert strict["signature"]["trusted"] is False, "1024 bits are too short"


def test_the_broken_signature_is_seen_where_it_broke() -> None:
    report = inspect("as4net/as4-soap-wrong-signed-message.txt")
    assert report["signature"]["present"] is True
    assert report["signature"]["valid"] is False


def test_an_encrypted_and_compressed_message_opens_with_its_key() -> None:
    report = inspect(
        "as4net/as4-encrypted-compressed-message.as4",
        key=VECTORS / "as4net/partyC.p12",
        password="ExampleC",
    )
    assert report["encryption"]["decrypted"] is True
    assert "EBMS:0102" not in codes(report, "failure") | codes(report, "warning")
    assert report["encryption"]["parts"] == ["flower", "xmldoc"]
    flower, document = report["units"][0]["payloads"]
    assert flower["unpacked"]["size"] == 290403
    assert document["unpacked"]["size"] == 63
    assert [part["content_type"] for part in report["parts"]] == ["application/gzip"] * 2


def test_an_encrypted_message_stays_closed_for_another_key() -> None:
    report = inspect(
        "as4net/as4-encrypted-compressed-message.as4",
        key=VECTORS / "as4net/holodeck-partya-certificate.pfx",
        password="secrets",
    )
    assert report["encryption"]["decrypted"] is False
    assert "EBMS:0102" in codes(report, "failure")


@pytest.mark.parametrize(
    ("name", "references"),
    [
        ("phase4/peppol-verify/helger.as4in", 2),
        ("phase4/peppol-verify/dump-raw.as4out", 3),
        ("phase4/testfiles/TestReceipt12.xml", 2),
    ],
)
def test_signatures_of_phase4_are_valid(name: str, references: int) -> None:
    report = inspect(name)
    assert report["signature"]["valid"] is True
    assert len(report["signature"]["references"]) == references
    assert all(one["valid"] is not False for one in report["signature"]["references"])
    assert report["signature"]["certificate"]["subject"].endswith(("C=AT", "C=DE"))


def test_a_signed_receipt_tells_what_it_is_for() -> None:
    report = inspect("phase4/peppol-verify/helger.as4in")
    assert report["units"][0]["receipt"]["non_repudiation"] is True
    assert report["units"][0]["receipt"]["references"]
    assert report["units"][0]["ref_to_message_id"]


def test_multihop_messages_tell_their_way() -> None:
    receipt = inspect("as4net/multihopreceipt.xml")
    assert receipt["routing"]["action"] == "Send.response"
    assert receipt["routing"]["mpc"].endswith("defaultMPC.response")
    assert receipt["routing"]["role"] == NEXT_MSH
    assert inspect("as4net/as4-multihop-usermessage.as4")["role"] == NEXT_MSH
    multihop = [name for name in FILES if "multihop.as4receipt" in name]
    assert multihop
    for name in multihop:
        assert inspect(name)["routing"] is not None


def test_both_units_of_an_error_and_a_fault_are_read() -> None:
    report = inspect("phase4/testfiles/ErrorMessageWithFault.xml")
    assert report["fault"] is not None
    assert report["units"][0]["errors"][0]["code"] == "EBMS:0103"


def command(*arguments: str, **environment: str) -> tuple[int, Any]:
    done = subprocess.run(
        [Path(sys.executable).with_name("postroad"), "inspect", "--json", *arguments],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert b"Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_command_tells_the_same_of_several_files_at_once() -> None:
    names = [
        "phase4/testfiles/TestReceipt12.xml",
        "as4net/as4-soap-wrong-signed-message.txt",
        "phase4/peppol-verify/helger.as4in",
        "oasis/UserMessage_No_MPC_P2P_NoWSSecurity.as4receipt.xml",
    ]
    at = IN_2017.isoformat()
    code, reports = command(*(str(VECTORS / name) for name in names), "--at", at)
    assert code == 1
    for name, report in zip(names, reports, strict=True):
        assert Path(report.pop("file")) == VECTORS / name
        assert report == inspect(name, at=IN_2017)


def test_the_command_opens_and_trusts() -> None:
    code, report = command(
        str(VECTORS / "as4net/signed_holodeck_message.as4"),
        "--trust",
        str(VECTORS / "as4net/AccessPointB.cer"),
        "--at",
        "2017-01-01",
    )
    assert code == 0
    assert report["signature"]["trusted"] is True
    code, report = command(
        str(VECTORS / "as4net/as4-encrypted-compressed-message.as4"),
        "--key",
        str(VECTORS / "as4net/partyC.p12"),
        "--password-env",
        "PARTY_C",
        PARTY_C="ExampleC",
    )
    assert report["encryption"]["decrypted"] is True
    assert code == 0


def test_the_command_says_what_cannot_be_read() -> None:
    code, report = command(str(VECTORS / "cpa/cpa-cv-http.xml"))
    assert code == 2
    assert report["kind"] == "unreadable"
