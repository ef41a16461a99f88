"""`postroad inspect --extract` and `--pmode`: the files that it writes and the files it reads."""

import json
from pathlib import Path

import pytest

from postroad.wire.content import BytesContent
from postroad.wire.ebms3 import MIME_TYPE, PartInfo, Property
from postroad.wire.mime_headers import cid_url
from postroad.wire.multihop import RoutingInput, routing_user_message, write_routing_input
from postroad.wire.names import I_CLOUD, NEXT_MSH
from postroad.wire.soap import SoapVersion
from postroad.wire.wsa import Addressing, write_addressing
from tests.cli.conftest import AT, Run
from tests.fuzz import seeds
from tests.fuzz.seeds import Attachment
from tests.pki import NOW, authority, issue, pem_certificates


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --extract


def test_envelope_and_opened_payload_are_written(
    run: Run, good: Path, key: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "out"
    result = run("inspect", good, "--key", key, "--at", AT, "--extract", folder)
    assert result.exit_code == 0
    assert written(folder) == ["envelope.xml", "payload-1.xml"]
    assert (folder / "payload-1.xml").read_bytes() == seeds.ORDER
    assert (folder / "envelope.xml").read_bytes() in good.read_bytes()
    assert f"wrote {folder / 'payload-1.xml'}" in result.stdout


def test_what_stays_closed_is_written_as_it_came(run: Run, good: Path, tmp_path: Path) -> None:
    run("inspect", good, "--at", AT, "--extract", tmp_path / "out")
    [payload] = [name for name in written(tmp_path / "out") if name != "envelope.xml"]
    assert (tmp_path / "out" / payload).read_bytes() in good.read_bytes()


def test_with_json_nothing_else_is_printed(run: Run, good: Path, tmp_path: Path) -> None:
    result = run("inspect", good, "--at", AT, "--extract", tmp_path / "out", "--json")
    assert json.loads(result.stdout)["holds"] is True


def test_several_messages_go_to_folders_with_numbers(
    run: Run, good: Path, tampered: Path, key: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    missing = tmp_path / "none"
    result = run("inspect", good, missing, tampered, "--key", key, "--extract", folder, "--at", AT)
    assert result.exit_code == 2
    assert written(folder) == [
        "1/envelope.xml",
        "1/payload-1.xml",
        "3/envelope.xml",
        "3/payload-1.xml",
    ]


HOSTILE = (
    "../../x",
    "/etc/cron.d/x",
    "..",
    "a/../../../b@c",
    "envelope.xml",
    "CON",
    "x" * 300,
    "..\\..\\x",
    "-rf",
)


@pytest.mark.parametrize("content_id", HOSTILE)
def test_a_content_id_never_becomes_a_path(run: Run, tmp_path: Path, content_id: str) -> None:
    part = PartInfo(cid_url(content_id), (Property(MIME_TYPE, "../../../evil"),))
    message = seeds.order(part_infos=(part,))
    attachment = Attachment(content_id, BytesContent(b"content"), "application/x-evil")
    made = seeds.secured(message, [attachment], encrypt=False)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "message.http").write_bytes(seeds.request(made))
    result = run("inspect", inner / "message.http", "--at", AT, "--extract", inner / "a" / "out")
    assert result.exit_code == 0, result.output
    assert written(tmp_path) == [
        "inner/a/out/envelope.xml",
        "inner/a/out/payload-1.bin",
        "inner/message.http",
    ]
    assert (inner / "a" / "out" / "payload-1.bin").read_bytes() == b"content"


def test_what_cannot_be_written_is_one_line(run: Run, good: Path) -> None:
    result = run("inspect", good, "--at", AT, "--json", "--extract", good / "out")
    assert result.exit_code == 2
    assert result.stderr == f"postroad: {good / 'out'}: Not a directory\n"


def test_what_cannot_be_cut_into_parts_leaves_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    result = run("inspect", tmp_path / "empty", "--extract", tmp_path / "out")
    assert result.exit_code == 2
    assert written(tmp_path / "out") == []


# --pmode


@pytest.fixture
def pmode(tmp_path: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(seeds.PMODE)
    return path


def problems(run: Run, *arguments: str | Path) -> list[tuple[str, str]]:
    result = run("inspect", *arguments, "--at", AT, "--json")
    facts = json.loads(result.stdout)
    assert result.exit_code == (0 if facts["holds"] else 1)
    return [(one["code"], one["detail"]) for one in facts["errors"] if one["severity"] == "failure"]


def test_a_message_that_keeps_its_pmode(run: Run, good: Path, key: Path, pmode: Path) -> None:
    result = run("inspect", good, "--key", key, "--pmode", pmode, "--at", AT)
    assert result.exit_code == 0, result.output
    assert "P-Mode: buyer-seller-orders" in result.stdout
    assert problems(run, good, "--key", key, "--pmode", pmode) == []


def test_a_message_without_its_pmode_is_0010(run: Run, good: Path, key: Path, pmode: Path) -> None:
    pmode.write_text(seeds.PMODE.replace("action: NewOrder", "action: Cancel"))
    [(code, detail)] = problems(run, good, "--key", key, "--pmode", pmode)
    assert code == "EBMS:0010"
    assert "Cancel" in detail
    assert "NewOrder" in detail


def test_a_message_that_breaks_the_security_of_its_pmode_is_0103(
    run: Run, tmp_path: Path, pmode: Path
) -> None:
    path = tmp_path / "plain.http"
    path.write_bytes(seeds.messages()["plain"])
    assert problems(run, path, "--pmode", pmode) == [
        ("EBMS:0103", "the P-Mode asks for a signature, and the message is not signed"),
        ("EBMS:0103", "the P-Mode asks for encryption, and the message is not encrypted"),
    ]


def test_a_folder_of_pmodes_names_its_files_relative_to_each(
    run: Run, good: Path, key: Path, tmp_path: Path
) -> None:
    """The partner's certificate lies beside the P-Mode, which lies in a folder of its own."""
    folder = tmp_path / "pmodes" / "buyer"
    (folder / "keys").mkdir(parents=True)
    text = seeds.PMODE.replace("sign: true,", "sign: true, signature: {pins: [keys/buyer.pem]},")
    (folder / "orders.yaml").write_text(text)
    (folder / "keys" / "buyer.pem").write_bytes(pem_certificates(seeds.BUYER.certificate))
    result = run("inspect", good, "--key", key, "--pmode", tmp_path / "pmodes", "--at", AT)
    assert result.exit_code == 0, result.output
    assert "trusted" in result.stdout


def test_a_bad_pmode_is_told_by_line(run: Run, good: Path, pmode: Path) -> None:
    pmode.write_text(seeds.PMODE.replace("action: NewOrder", "actoin: NewOrder"))
    result = run("inspect", good, "--pmode", pmode)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"postroad: {pmode}:8:")
    assert "actoin" in result.stderr


def test_a_folder_without_pmodes_is_one_line(run: Run, good: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run("inspect", good, "--pmode", tmp_path / "empty")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"postroad: {tmp_path / 'empty'}: there is no P-Mode file (*.yaml) in this folder; "
        "put one there, or remove the folder\n"
    )


def test_a_certificate_that_a_pmode_names_and_that_is_not_there_is_one_line(
    run: Run, good: Path, pmode: Path
) -> None:
    pmode.write_text(
        seeds.PMODE.replace("sign: true,", "sign: true, signature: {pins: [none.pem]},")
    )
    result = run("inspect", good, "--pmode", pmode)
    assert result.exit_code == 2
    missing = pmode.with_name("none.pem")
    [line] = result.stderr.splitlines()
    assert line == (
        f"postroad: {pmode}: leg 1 of the P-Mode buyer-seller-orders names {missing}, which "
        "cannot be read: No such file or directory; correct the name, or put it there"
    )


# --allow-legacy


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A message signed with RSA and SHA-1."""
    rsa = issue(authority("Old CA"), "old buyer", key="rsa")
    header = seeds.write_messaging(
        seeds.Messaging((seeds.order(part_infos=()),), id="_messaging"), seeds.SOAP_12
    )
    namespace = "http://www.w3.org/2000/09/xmldsig#"
    signing = seeds.Signing(rsa, f"{namespace}rsa-sha1", f"{namespace}sha1")
    made = seeds.secure(seeds.SOAP_12, [seeds.Block("_messaging", header)], [], signing=signing)
    path = tmp_path / "old.xml"
    path.write_bytes(made.envelope)
    return path


def test_weak_algorithms_make_a_message_not_hold(run: Run, old: Path) -> None:
    assert problems(run, old) == [
        ("EBMS:0103", "rsa-sha1 is too weak; it is accepted only where the P-Mode names it"),
        ("EBMS:0103", "sha1 is too weak; it is accepted only where the P-Mode names it"),
    ]


def test_weak_algorithms_are_accepted_where_they_are_allowed(run: Run, old: Path) -> None:
    assert problems(run, old, "--allow-legacy") == []


def test_weak_algorithms_are_accepted_where_the_pmode_names_them(run: Run, old: Path) -> None:
    pmode = old.with_name("old.yaml")
    pmode.write_text(
        "id: old\ninitiator: {party: urn:example:buyer}\nlegs:\n  - security:\n      x509:\n"
        "        sign: true\n        signature: {algorithm: rsa-sha1, hash_function: sha1}\n"
    )
    assert problems(run, old, "--pmode", pmode) == []
    pmode.write_text(pmode.read_text().replace("rsa-sha1, hash_function: sha1", "rsa-sha256"))
    codes = {code for code, _ in problems(run, old, "--pmode", pmode)}
    assert codes == {"EBMS:0103"}


def test_the_time_of_the_tests_is_the_time_of_the_seeds() -> None:
    assert seeds.NOW == NOW


def test_unsigned_routing_headers_of_a_signal_are_reported_and_judged_by_the_pmode(
    run: Run, tmp_path: Path, pmode: Path
) -> None:
    """As AS4.NET writes them: added to the Header after the signal was signed."""
    version, opening = SoapVersion.SOAP_12, b"<S12:Header>"
    headers = Addressing(to=I_CLOUD, to_role=NEXT_MSH, action="urn:example:receipt")
    routing = RoutingInput(routing_user_message(seeds.order()))
    blocks = [*write_addressing(headers, version), write_routing_input(routing, version)]
    data = seeds.messages()["receipt"].replace(opening, opening + "".join(blocks).encode())
    path = tmp_path / "receipt.xml"
    path.write_bytes(data[data.index(b"<?xml") :])
    names = ["To", "Action", "RoutingInput"]
    said = [("EBMS:0103", f"the signature does not cover {name}") for name in names]
    assert problems(run, path) == problems(run, path, "--pmode", pmode) == said
    allowed = "send_receipt: {allow_unsigned_routing: true, "
    pmode.write_text(seeds.PMODE.replace("send_receipt: {", allowed))
    assert problems(run, path, "--pmode", pmode) == []
    facts = json.loads(run("inspect", path, "--pmode", pmode, "--at", AT, "--json").stdout)
    assert facts["signature"]["unsigned_routing"] == names
    assert [(one["severity"], one["code"]) for one in facts["errors"]] == [
        ("warning", "EBMS:0103")
    ] * 3
    shown = run("inspect", path, "--pmode", pmode, "--at", AT).stdout
    assert "accepted unsigned: To, Action, RoutingInput" in shown
