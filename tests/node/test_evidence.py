"""Evidence: a zip that proves what was sent and received, to anybody and without a network."""

import hashlib
import io
import json
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from typer.testing import CliRunner

import postroad
from postroad.cli.main import app
from postroad.msh.answers import receipt, write_answer
from postroad.msh.evidence import Given, judge
from postroad.msh.inspection import inspect_message
from postroad.msh.lens import Lens
from postroad.msh.securing import answer_signing
from postroad.node.agreements import load_expectation
from postroad.node.evidence import evidence_zip
from postroad.node.evidence_check import check_evidence
from postroad.node.example import order_message
from postroad.node.service import Refused
from postroad.security.algorithms import ECDSA_SHA256
from postroad.security.keyestablishment import Encryption
from postroad.security.secure import secure
from postroad.security.sign import Block, Signing
from postroad.store.memory import open_memory
from postroad.store.records import State, Stored
from postroad.store.sqlite import open_sqlite
from postroad.wire.ebms3 import Messaging, PartInfo
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.limits import Limits
from postroad.wire.soap import SoapVersion
from tests import pki
from tests.changing import replace
from tests.node.exchange import BEGIN, BUYER, SELLER, Exchange, make_parties, run

Files = dict[str, bytes]
ORDER = b"<Order xmlns='urn:example:order'><ID>PO-1</ID></Order>"
PICTURE = bytes(range(256)) * 5
PAYLOADS = (
    ("application/xml", ORDER),
    ("text/plain", b"one\r\ntwo\n" * 50),
    ("image/png", PICTURE),
)


@dataclass(frozen=True)
class Made:
    """Evidence of both sides about the same messages."""

    folder: Path
    authority: Path
    zips: dict[tuple[str, str], bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parties")
    make_parties(folder)
    return folder


@pytest.fixture(scope="module")
def made(folder: Path) -> Made:
    async def scenario() -> Made:
        stores = {name: await open_sqlite(folder / name / "data", name) for name in (BUYER, SELLER)}
        exchange = Exchange(folder, stores)
        zips = {}
        for kind in ("order", "signed", "plain"):
            for number in (1, 2):
                await exchange.carry(f"{kind}-{number}@buyer.example", *PAYLOADS, kind=kind)
                for party in (BUYER, SELLER):
                    pieces = await exchange.evidence(party, f"{kind}-{number}@buyer.example")
                    zips[party, f"{kind}-{number}"] = b"".join(pieces)
        for store in stores.values():
            await store.close()
        return Made(folder, exchange.authority, zips)

    return run(scenario())


def unzipped(data: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: Files | list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        for name, data in files.items() if isinstance(files, dict) else files:
            archive.writestr(name, data)
    return held.getvalue()


def listed(files: Files, **changes: Any) -> Files:
    """The files with an evidence.json that fits them again: what a careful forger would do."""
    manifest = {**json.loads(files["evidence.json"]), **changes}
    manifest["files"] = [
        {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name != "evidence.json"
    ]
    return {**files, "evidence.json": json.dumps(manifest).encode()}


def codes(facts: dict[str, Any], severity: str = "failure") -> list[str]:
    return [one["code"] for one in facts["errors"] if one["severity"] == severity]


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


def _with(name: str, change: Callable[[bytes], bytes]) -> Callable[[Files, Files], Files]:
    return lambda files, _other: {**files, name: change(files[name])}


def _without(name: str) -> Callable[[Files, Files], Files]:
    return lambda files, _other: {one: data for one, data in files.items() if one != name}


def _flipped(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


TAMPERED: dict[str, tuple[Callable[[Files, Files], Files], str]] = {
    "part changed": (_with("message/parts/3", _flipped), "EBMS:0101"),
    "compressed part changed": (_with("message/parts/1", _flipped), "EBMS:0101"),
    "part longer": (_with("message/parts/3", lambda data: data + b"x"), "EBMS:0101"),
    "part missing": (_without("message/parts/2"), "EBMS:0007"),
    "parts swapped": (
        lambda files, _other: {
            **files,
            "message/parts/1": files["message/parts/2"],
            "message/parts/2": files["message/parts/1"],
        },
        "EBMS:0101",
    ),
    "header changed": (
        _with("message/envelope.xml", lambda data: data.replace(b"NewOrder", b"OldOrder")),
        "EBMS:0101",
    ),
    "signature value changed": (
        _with(
            "message/envelope.xml",
            lambda data: data.replace(b"<ds:SignatureValue>", b"<ds:SignatureValue>AAAA"),
        ),
        "EBMS:0101",
    ),
    "envelope of another message": (
        lambda files, other: {**files, "message/envelope.xml": other["message/envelope.xml"]},
        "EBMS:0302",
    ),
    "envelope is no XML": (_with("message/envelope.xml", lambda data: b"<" + data), "EBMS:0009"),
    "envelope missing": (_without("message/envelope.xml"), "EBMS:0004"),
    "receipt changed": (
        _with("signals/1-receipt.xml", lambda data: data.replace(b"@seller", b"@steller")),
        "EBMS:0101",
    ),
    "receipt of another message": (
        lambda files, other: {**files, "signals/1-receipt.xml": other["signals/1-receipt.xml"]},
        "EBMS:0302",
    ),
    "receipt missing": (_without("signals/1-receipt.xml"), "EBMS:0301"),
    "receipt is an envelope": (
        lambda files, _other: {**files, "signals/1-receipt.xml": files["message/envelope.xml"]},
        "EBMS:0302",
    ),
    "receipt is empty": (_with("signals/1-receipt.xml", lambda data: b""), "EBMS:0009"),
    "certificates are none": (_with("certificates/message.pem", lambda data: b"x"), "EBMS:0004"),
}


@pytest.mark.parametrize("careful", [False, True], ids=["listed-as-before", "listed-anew"])
@pytest.mark.parametrize("name", TAMPERED)
def test_whatever_is_tampered_with_is_found(made: Made, name: str, careful: bool) -> None:
    change, code = TAMPERED[name]
    files = change(unzipped(made.zips[BUYER, "order-1"]), unzipped(made.zips[BUYER, "order-2"]))
    facts = postroad.inspect(zipped(listed(files) if careful else files), trust=made.authority)
    assert facts["holds"] is False
    assert code in codes(facts)
    if not careful:
        assert "EBMS:0004" in codes(facts)


@pytest.mark.parametrize(
    ("name", "value"),
    [("message_id", "other@buyer.example"), ("from", "urn:example:mouse"), ("to", "urn:x:y")],
)
def test_a_list_that_contradicts_the_message_is_told(made: Made, name: str, value: str) -> None:
    files = listed(unzipped(made.zips[BUYER, "order-1"]), **{name: value})
    assert codes(postroad.inspect(zipped(files))) == ["EBMS:0003"]


@pytest.mark.parametrize("name", ["events.json", "verdict.json", "README.txt"])
def test_files_that_nobody_signed_must_still_be_as_listed(made: Made, name: str) -> None:
    files = unzipped(made.zips[BUYER, "order-1"])
    for changed in (_with(name, _flipped)(files, {}), _without(name)(files, {})):
        facts = postroad.inspect(zipped(changed))
        assert codes(facts) == ["EBMS:0004"]
        assert facts["errors"][0]["location"] == name


def test_a_receipt_signed_by_the_sender_itself_proves_nothing(made: Made) -> None:
    files = unzipped(made.zips[BUYER, "signed-1"])
    forged = listed({**files, "signals/1-receipt.xml": _own_receipt(made, files)})
    facts = postroad.inspect(zipped(forged), trust=made.authority)
    assert facts["receipts"][0]["signature"]["valid"] is True
    assert all(one["equal"] for one in facts["receipts"][0]["digests"])
    assert codes(facts) == ["EBMS:0101"]
    assert "says nothing of the receiver" in str(facts["errors"])


def _own_receipt(made: Made, files: Files) -> bytes:
    """A receipt with all the right digests, signed with the sender's key."""
    expectation = load_expectation(made.folder / BUYER / "pmodes")
    lens = Lens(at=BEGIN + timedelta(minutes=1))
    found = inspect_message([files["message/envelope.xml"]], lens)
    assert found.messaging is not None
    message = found.messaging.user_messages[0]
    match = expectation.pmodes.match(message)
    signal = receipt(found, message, match, signal_id="forged@buyer.example", now=lens.at)
    assert found.envelope is not None
    how = answer_signing(match.leg, expectation.material(match).signing)
    return write_answer(signal, found.envelope.version, how, lens.at).envelope


def test_an_unsigned_receipt_for_a_signed_message_proves_nothing(made: Made) -> None:
    files = unzipped(made.zips[BUYER, "order-1"])
    signed = files["signals/1-receipt.xml"]
    start = signed.index(b"<wsse:Security")
    end = signed.index(b"</wsse:Security>") + len(b"</wsse:Security>")
    forged = listed({**files, "signals/1-receipt.xml": signed[:start] + signed[end:]})
    assert codes(postroad.inspect(zipped(forged))) == ["EBMS:0103"]


def _many(files: Files) -> bytes:
    return zipped({**files, **{f"signals/{number}-error.xml": b"" for number in range(1, 5000)}})


def _huge_directory(files: Files) -> bytes:
    """The end of the zip says that its directory has many megabytes, which are there."""
    data = zipped(files)
    end = data.rindex(b"PK\x05\x06")
    size = 8 << 20
    record = data[end : end + 12] + size.to_bytes(4, "little") + data[end + 16 :]
    return data[:end] + bytes(size) + record


HOSTILE: dict[str, Callable[[Files], bytes]] = {
    "name climbs out": lambda files: zipped({**files, "../../evil.txt": b"x"}),
    "name is absolute": lambda files: zipped({**files, "/etc/evil": b"x"}),
    "name with a backslash": lambda files: zipped({**files, "message\\parts\\9": b"x"}),
    "name is long": lambda files: zipped({**files, "a" * 60_000: b"x"}),
    "file not listed": lambda files: zipped({**files, "message/parts/99": b"x"}),
    "bomb": lambda files: zipped(
        listed({**files, "message/parts/99": bytes(64 << 20)}), zipfile.ZIP_DEFLATED
    ),
    "many files": _many,
    "large directory": _huge_directory,
    "list is no JSON": lambda files: zipped({**files, "evidence.json": b"{"}),
    "list is deep": lambda files: zipped({**files, "evidence.json": b"[" * 100_000}),
    "deep unknown value": lambda files: zipped(
        {**files, "evidence.json": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"format":1}'}
    ),
    "list of a later format": lambda files: zipped(listed(files, format=2)),
    "list says nothing": lambda files: zipped({**files, "evidence.json": b"{}"}),
    "part of no media type": lambda files: zipped(
        listed(files, parts=[{"file": "message/parts/1", "content_id": "a@b", "media_type": "?"}])
    ),
    "one file as many parts": lambda files: zipped(
        listed(files, parts=json.loads(files["evidence.json"])["parts"][:1] * 900)
    ),
    "part is another file": lambda files: zipped(
        listed(files, parts=[{"file": "README.txt", "content_id": "a@b", "media_type": "a/b"}])
    ),
    "signal of another kind": lambda files: zipped(
        listed(
            files,
            signals=[{**json.loads(files["evidence.json"])["signals"][0], "kind": "error"}],
        )
    ),
    "cut short": lambda files: zipped(files)[:-200],
    "no zip at all": lambda files: b"PK\x03\x04" + bytes(500),
    "empty zip": lambda files: zipped({}),
}


SAID = {
    "name climbs out": "a file of this name",
    "name is absolute": "a file of this name",
    "name with a backslash": "a file of this name",
    "name is long": "a file of this name",
    "file not listed": "does not list it",
    "bomb": "a bomb",
    "many files": "more than 4000 files",
    "large directory": "directory of the zip is too large",
    "list is no JSON": "cannot be read",
    "list is deep": "cannot be read",
    "deep unknown value": "cannot be read",
    "list of a later format": "a newer Postroad",
    "list says nothing": "format",
    "part of no media type": "media type",
    "one file as many parts": "one after the other",
    "part is another file": "one after the other",
    "signal of another kind": "one after the other",
    "cut short": "not a zip",
    "no zip at all": "not a zip",
    "empty zip": "has no evidence.json",
}
"""What is told of each."""


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_made_to_do_harm_is_refused_in_little_memory(
    made: Made, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = HOSTILE[name](unzipped(made.zips[BUYER, "order-1"]))
    monkeypatch.chdir(tmp_path)
    tracemalloc.start()
    facts = postroad.inspect(data, trust=made.authority)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert facts["holds"] is False
    assert codes(facts)
    assert SAID[name] in str(facts["errors"])
    assert peak < 24 << 20
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_name_are_refused(made: Made) -> None:
    files = unzipped(made.zips[BUYER, "order-1"])
    facts = postroad.inspect(zipped([*files.items(), ("message/parts/1", b"another")]))
    assert codes(facts) == ["EBMS:0004"]


def test_files_that_overlap_are_refused(made: Made) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in unzipped(made.zips[BUYER, "order-1"]).items():
            archive.writestr(name, data)
        archive.writestr("message/parts/4", bytes(1 << 20))
        for number in range(5, 100):
            twin = zipfile.ZipInfo(f"message/parts/{number}")
            original = archive.getinfo("message/parts/4")
            for name in ("header_offset", "CRC", "compress_size", "file_size"):
                setattr(twin, name, getattr(original, name))
            archive.filelist.append(twin)
    facts = postroad.inspect(held.getvalue())
    assert codes(facts) == ["EBMS:0004"]
    assert "overlap" in facts["errors"][0]["detail"]


def test_a_zip_larger_than_the_limits_is_refused(made: Made) -> None:
    limits = Limits(message_bytes=5000)
    data = made.zips[BUYER, "order-1"]
    for source in (data, io.BytesIO(data)):
        facts = postroad.inspect(source, limits=limits)
        assert codes(facts) == ["EBMS:0004"]


def test_evidence_packed_anew_with_compression_still_holds(made: Made) -> None:
    files = unzipped(made.zips[SELLER, "order-1"])
    facts = postroad.inspect(zipped(files, zipfile.ZIP_DEFLATED), trust=made.authority)
    assert facts["holds"] is True


def test_a_damaged_file_of_the_zip_is_told(made: Made) -> None:
    data = bytearray(made.zips[BUYER, "order-1"])
    data[data.index(PICTURE)] ^= 1
    facts = postroad.inspect(bytes(data))
    assert "EBMS:0004" in codes(facts)
    assert "damaged" in str(facts["errors"])


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


def test_the_command_fails_over_tampered_evidence(made: Made, tmp_path: Path) -> None:
    files = unzipped(made.zips[BUYER, "order-1"])
    file = tmp_path / "evidence.zip"
    file.write_bytes(zipped(listed(_with("message/parts/3", _flipped)(files, {}))))
    result = CliRunner().invoke(app, ["inspect", str(file)])
    assert result.exit_code == 1
    assert "evidence  does not hold" in result.output
    assert "EBMS:0101" in result.output


def test_the_command_says_that_a_zip_is_no_evidence(tmp_path: Path) -> None:
    file = tmp_path / "photos.zip"
    file.write_bytes(zipped({"photo.jpg": b"x"}))
    result = CliRunner().invoke(app, ["inspect", str(file)])
    assert result.exit_code == 2
    assert "no evidence of Postroad" in result.output


def test_a_message_on_its_way_has_evidence_without_a_receipt(folder: Path) -> None:
    async def scenario() -> bytes:
        exchange = Exchange(folder, {BUYER: await open_memory(node=BUYER)})
        await exchange.send("waiting@buyer.example", *PAYLOADS)
        return b"".join(await exchange.evidence(BUYER, "waiting@buyer.example"))

    facts = postroad.inspect(run(scenario()))
    assert facts["holds"] is True
    assert facts["receipts"] == []
    assert codes(facts, "warning") == ["EBMS:0301"]


def test_an_acknowledged_message_without_its_receipt_does_not_hold(made: Made) -> None:
    files = unzipped(made.zips[BUYER, "order-1"])
    kept = {name: data for name, data in files.items() if "receipt" not in name}
    facts = postroad.inspect(zipped(listed(kept, signals=[])))
    assert codes(facts) == ["EBMS:0301"]


def test_a_refusal_is_in_the_evidence_with_its_error(folder: Path) -> None:
    async def scenario() -> tuple[bytes, State | None]:
        stores = {name: await open_memory(node=name) for name in (BUYER, SELLER)}
        exchange = Exchange(folder, stores)
        message = await exchange.send("refused@buyer.example", *PAYLOADS, kind="signed")
        content = message.parts[2].stored.place
        stores[BUYER]._tables.contents[content] = _flipped(PICTURE)
        response = await exchange.receive(message)
        stores[BUYER]._tables.contents[content] = PICTURE
        state = await exchange.hear(message, response)
        return b"".join(await exchange.evidence(BUYER, "refused@buyer.example")), state

    data, state = run(scenario())
    assert state is State.FAILED
    facts = postroad.inspect(data)
    assert facts["holds"] is True
    assert facts["state"] == "failed"
    assert facts["error_signals"][0]["units"][0]["errors"][0]["code"] == "EBMS:0101"


def test_a_receipt_that_was_not_believed_is_shown_and_does_not_count(folder: Path) -> None:
    async def scenario() -> bytes:
        stores = {name: await open_memory(node=name) for name in (BUYER, SELLER)}
        exchange = Exchange(folder, stores)
        message = await exchange.send("twice@buyer.example", *PAYLOADS)
        response = await exchange.receive(message)
        broken = replace(response, body=response.body.replace(b"@seller", b"@steller"))
        assert await exchange.hear(message, broken) is None
        assert await exchange.hear(message, response) is State.ACKNOWLEDGED
        return b"".join(await exchange.evidence(BUYER, "twice@buyer.example"))

    data = run(scenario())
    assert json.loads(unzipped(data)["verdict.json"])["holds"] is True
    facts = postroad.inspect(data)
    first, second = facts["receipts"]
    assert (first["believed"], first["holds"]) == (False, False)
    assert (second["believed"], second["holds"]) == (True, True)
    assert facts["holds"] is True
    assert codes(facts, "warning")


def test_what_was_never_packaged_has_no_evidence(folder: Path) -> None:
    async def scenario() -> None:
        exchange = Exchange(folder, {BUYER: await open_memory(node=BUYER)})
        message = await exchange.send("never@buyer.example", *PAYLOADS)
        bare = structs.replace(message, envelope=None, state=State.SUBMITTED)
        with pytest.raises(Refused) as refused:
            evidence_zip(exchange.contexts[BUYER], bare, [], [])
        assert refused.value.status == 409

    run(scenario())


class _Large:
    """A part of any size that is nowhere."""

    def __init__(self, size: int) -> None:
        self.size = size

    def chunks(self) -> Iterator[bytes]:
        piece = bytes(1 << 20)
        for _ in range(self.size >> 20):
            yield piece


def _written(folder: Path, file: Path, size: int) -> int:
    """Write the evidence of a message with a large part; the size of its largest piece."""

    async def scenario() -> int:
        store = await open_memory(node=BUYER)
        exchange = Exchange(folder, {BUYER: store})
        message = await exchange.send("large@buyer.example", *PAYLOADS, kind="plain")
        real = store.content
        store.content = lambda one: _Large(size) if one.place == "large" else real(one)
        part = structs.replace(message.parts[2], stored=Stored("large", 0, size))
        changed = structs.replace(message, parts=(*message.parts[:2], part))
        largest = 0
        with file.open("wb") as written:
            for piece in evidence_zip(exchange.contexts[BUYER], changed, [], []):
                largest = max(largest, len(piece))
                written.write(piece)
        return largest

    return run(scenario())


def test_a_large_part_is_written_in_small_pieces(folder: Path, tmp_path: Path) -> None:
    size = 64 << 20
    file = tmp_path / "large.zip"
    tracemalloc.start()
    largest = _written(folder, file, size)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert largest < 2 << 20
    assert peak < size // 2
    facts = postroad.inspect(file)
    assert facts["message"]["units"][0]["payloads"][2]["size"] == size


def test_parts_beyond_what_an_old_zip_can_hold_are_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1 << 20)
    file = tmp_path / "large.zip"
    _written(folder, file, 4 << 20)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert archive.getinfo("message/parts/3").extract_version == zipfile.ZIP64_VERSION


def test_a_receipt_for_other_content_under_the_same_id_is_told(folder: Path) -> None:
    """The sender signs two messages of one id, and shows the receipt of the other one."""

    async def scenario(*payloads: tuple[str, bytes]) -> bytes:
        stores = {name: await open_memory(node=name) for name in (BUYER, SELLER)}
        exchange = Exchange(folder, stores)
        await exchange.carry("same@buyer.example", *payloads)
        return b"".join(await exchange.evidence(BUYER, "same@buyer.example"))

    files = unzipped(run(scenario(*PAYLOADS)))
    other = unzipped(run(scenario(*PAYLOADS[:2], ("image/png", _flipped(PICTURE)))))
    forged = listed({**files, "signals/1-receipt.xml": other["signals/1-receipt.xml"]})
    facts = postroad.inspect(zipped(forged))
    assert facts["message"]["holds"] is True
    assert facts["receipts"][0]["signature"]["valid"] is True
    assert codes(facts) == ["EBMS:0302"]
    unequal = [one["uri"] for one in facts["receipts"][0]["digests"] if not one["equal"]]
    assert unequal == ["cid:part-3@buyer.example"]


def test_signers_that_a_message_only_names_are_found_in_the_zip(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.glob("*/pmodes/*.yaml"):
        text = file.read_text()
        file.write_text(text.replace("binary_security_token", "issuer_serial"))

    async def scenario() -> bytes:
        stores = {name: await open_memory(node=name) for name in (BUYER, SELLER)}
        exchange = Exchange(tmp_path, stores)
        await exchange.carry("named@buyer.example", *PAYLOADS)
        return b"".join(await exchange.evidence(BUYER, "named@buyer.example"))

    data = run(scenario())
    assert b"X509IssuerSerial" in unzipped(data)["message/envelope.xml"]
    authority = tmp_path / BUYER / "keys" / "authority.pem"
    for trust, judged in (((), None), (authority, True)):
        facts = postroad.inspect(data, trust=trust)
        assert facts["holds"] is True
        assert facts["trusted"] is judged
        assert facts["receipts"][0]["signature"]["valid"] is True


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
