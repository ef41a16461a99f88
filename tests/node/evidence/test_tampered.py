"""Evidence that was tampered with is found, and a zip made to do harm is refused."""

import io
import json
import ssl
import tracemalloc
import zipfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

import postroad
from postroad.cli.main import app
from postroad.msh.answers import receipt, write_answer
from postroad.msh.inspection import inspect_message
from postroad.msh.lens import Lens
from postroad.msh.securing import answer_signing
from postroad.node.settings.agreements import load_expectation
from postroad.wire.limits import Limits
from tests.node.evidence.zips import PICTURE, Files, Made, codes, flipped, listed, unzipped, zipped
from tests.node.exchange import BEGIN, BUYER, SELLER


def _with(name: str, change: Callable[[bytes], bytes]) -> Callable[[Files, Files], Files]:
    return lambda files, _other: {**files, name: change(files[name])}


def _without(name: str) -> Callable[[Files, Files], Files]:
    return lambda files, _other: {one: data for one, data in files.items() if one != name}


def _without_subject(pem: bytes) -> bytes:
    """Change the type of the common name to one that does not exist; the last is the subject's."""
    before, name, after = ssl.PEM_cert_to_DER_cert(pem.decode()).rpartition(b"\x55\x04\x03")
    return ssl.DER_cert_to_PEM_cert(before + name + b"\0" + after[1:]).encode()


def _of_version_106(pem: bytes) -> bytes:
    """Change the version of an X.509 v3 certificate to one that does not exist."""
    v3 = bytes.fromhex("a003020102")
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    assert der.count(v3) == 1
    return ssl.DER_cert_to_PEM_cert(der.replace(v3, bytes.fromhex("a00302016a"))).encode()


TAMPERED: dict[str, tuple[Callable[[Files, Files], Files], str]] = {
    "part changed": (_with("message/parts/3", flipped), "EBMS:0101"),
    "compressed part changed": (_with("message/parts/1", flipped), "EBMS:0101"),
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
    "certificate without a readable subject": (
        _with("certificates/message.pem", _without_subject),
        "EBMS:0004",
    ),
    "certificate of an unknown version": (
        _with("certificates/message.pem", _of_version_106),
        "EBMS:0004",
    ),
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
    for changed in (_with(name, flipped)(files, {}), _without(name)(files, {})):
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
    "time before the first year": lambda files: zipped(
        listed(files, created_at="0001-01-01T00:00:00+14:00")
    ),
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
    "time before the first year": "years 1 to 9999",
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


def test_the_command_fails_over_tampered_evidence(made: Made, tmp_path: Path) -> None:
    files = unzipped(made.zips[BUYER, "order-1"])
    file = tmp_path / "evidence.zip"
    file.write_bytes(zipped(listed(_with("message/parts/3", flipped)(files, {}))))
    result = CliRunner().invoke(app, ["inspect", str(file)])
    assert result.exit_code == 1
    assert "evidence  does not hold" in result.output
    assert "EBMS:0101" in result.output


def test_an_acknowledged_message_without_its_receipt_does_not_hold(made: Made) -> None:
    files = unzipped(made.zips[BUYER, "order-1"])
    kept = {name: data for name, data in files.items() if "receipt" not in name}
    facts = postroad.inspect(zipped(listed(kept, signals=[])))
    assert codes(facts) == ["EBMS:0301"]
