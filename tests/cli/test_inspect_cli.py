"""`postroad inspect` as a user meets it: exit codes, JSON, keys, trust, times."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from typer.testing import Result

from postroad import __version__, inspect
from tests.cli.conftest import AT, Run, command
from tests.fuzz import seeds
from tests.fuzz.seeds import CA, SELLER, jks
from tests.pki import NOW, issue, p12, pem, pem_certificates, revocation_list
from tests.unit.splits import cut

SECRET = "correct horse"


def one_line(result: Result) -> str:
    """The refusal on stderr: one line, nothing on stdout, exit code 2, no traceback."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("postroad: ")
    return line


# Exit codes


def test_a_message_that_holds_ends_with_0(run: Run, good: Path, ca: Path, key: Path) -> None:
    result = run("inspect", good, "--trust", ca, "--key", key, "--at", AT)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert result.stdout.startswith(f"{good}  user message  SOAP 1.2  holds\n")


def test_a_message_that_does_not_hold_ends_with_1(
    run: Run, tampered: Path, ca: Path, key: Path
) -> None:
    result = run("inspect", tampered, "--trust", ca, "--key", key, "--at", AT)
    assert result.exit_code == 1
    assert "does not hold" in result.stdout
    assert "EBMS:0101 FailedAuthentication (failure)" in result.stdout


@pytest.mark.parametrize(
    "content", [b"", b"  \r\n", b"no XML at all", b"<a>", b"\0\xff" * 500, b"<Envelope/>"]
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_no_message_ends_with_2(
    run: Run, tmp_path: Path, content: bytes, as_json: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    result = run("inspect", path, *(["--json"] if as_json else []))
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    if as_json:
        facts = json.loads(result.stdout)
        assert facts["kind"] == "unreadable"
        assert facts["errors"][0]["severity"] == "failure"
    else:
        assert "unreadable" in result.stdout


def test_a_file_that_is_not_there_is_one_line(run: Run, tmp_path: Path) -> None:
    result = run("inspect", tmp_path / "none")
    assert one_line(result) == f"postroad: {tmp_path / 'none'}: No such file or directory"


def test_a_folder_is_one_line(run: Run, tmp_path: Path) -> None:
    assert one_line(run("inspect", tmp_path)) == f"postroad: {tmp_path}: Is a directory"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file that cannot be read")
def test_a_file_that_cannot_be_read_is_one_line(run: Run) -> None:
    """Also where the tests run as root, whom no permission stops."""
    line = one_line(run("inspect", "/proc/self/mem"))
    assert line == "postroad: /proc/self/mem: Input/output error"


def test_the_worst_of_several_files_decides(run: Run, good: Path, tampered: Path) -> None:
    assert run("inspect", good, good, "--at", AT).exit_code == 0
    assert run("inspect", good, tampered, "--at", AT).exit_code == 1
    assert run("inspect", tampered, good.with_name("none"), good, "--at", AT).exit_code == 2


def test_nothing_to_inspect_is_a_wrong_call(run: Run) -> None:
    assert run("inspect").exit_code == 2


# JSON


def test_json_is_what_the_function_gives(run: Run, good: Path, ca: Path, key: Path) -> None:
    result = run("inspect", good, "--trust", ca, "--key", key, "--at", AT, "--json")
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert facts.pop("file") == str(good)
    assert facts == inspect(good, trust=[ca], key=key, at=NOW)


def test_json_has_the_promised_keys(run: Run, good: Path, ca: Path, key: Path) -> None:
    result = run("inspect", good, "--trust", ca, "--key", key, "--at", AT, "--json")
    facts = json.loads(result.stdout)
    assert (facts["kind"], facts["soap"], facts["holds"]) == ("user_message", "1.2", True)
    [unit] = facts["units"]
    assert unit["message_id"] == "order-4711-20260601120000@buyer.example"
    assert unit["ref_to_message_id"] is None
    assert (unit["from"], unit["to"]) == ("urn:example:buyer", "urn:example:seller")
    assert (unit["service"], unit["action"]) == ("urn:example:purchasing", "NewOrder")
    assert unit["mpc"].endswith("/defaultMPC")
    assert unit["properties"] == {"originalSender": "urn:example:buyer"}
    [part] = facts["parts"]
    assert (part["cid"], part["content_type"]) == ("order@buyer.example", "application/gzip")
    assert part["size"] > 0
    assert len(part["sha256"]) == 64
    signature = facts["signature"]
    assert (signature["present"], signature["valid"], signature["trusted"]) == (True, True, True)
    assert signature["algorithm"].endswith("#eddsa-ed25519")
    assert signature["signer"] == "CN=buyer,O=Postroad Tests,C=NL"
    assert [one["valid"] for one in signature["references"]] == [True] * 4
    assert signature["references"][0]["uri"] == "#_messaging"
    assert facts["encryption"]["present"]
    assert facts["encryption"]["decrypted"]
    assert facts["errors"] == []


def test_json_tells_what_is_wrong_where(run: Run, tampered: Path) -> None:
    facts = json.loads(run("inspect", tampered, "--at", AT, "--json").stdout)
    worst = [one for one in facts["errors"] if one["severity"] == "failure"]
    assert [(one["code"], one["location"]) for one in worst] == [("EBMS:0101", "#_messaging")]
    assert worst[0]["detail"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("receipt", "receipt"),
        ("error", "error"),
        ("pull", "pull_request"),
        ("fault-1.1", "fault"),
        ("fragment", "fragment"),
        ("push-mime", "user_message"),
        ("push-packed", "user_message"),
    ],
)
def test_json_names_the_kind(
    run: Run, message: Callable[[str], Path], name: str, kind: str
) -> None:
    result = run("inspect", message(name), "--at", AT, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["kind"] == kind


MORE: Final = b"\r\n--boundary-1\r\n%s\r\n\r\nmore\r\n--boundary-1--"


@pytest.mark.req("P2-4.6-09")
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b"></S12:Body>", b"><x></x></S12:Body>", "the Body of a fragment is not empty"),
        (b'href="cid:', b'href="cid:not-', "no part has this Content-ID"),
        (b"\r\n--boundary-1--", MORE % b"Content-ID: <more@x>", "there are other parts"),
        (b"\r\n--boundary-1--", MORE % b"Content-Type: text/plain", "there are other parts"),
        (b"application/octet-stream", b"text/xml", "the data is text/xml"),
    ],
)
def test_a_fragment_with_content_or_parts_that_it_must_not_have_is_ebms_0047(
    run: Run, tmp_path: Path, before: bytes, after: bytes, said: str
) -> None:
    given = cut()
    form = given.form(given.fragment(1))
    data = f"Content-Type: {form.content_type}\r\n\r\n".encode() + b"".join(form.pieces())
    path = tmp_path / "fragment.http"
    path.write_bytes(data)
    assert run("inspect", path, "--at", AT).exit_code == 0
    assert data.count(before) == 1
    path.write_bytes(data.replace(before, after))
    result = run("inspect", path, "--at", AT, "--json")
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert facts["kind"] == "fragment"
    assert {error["code"] for error in facts["errors"]} == {"EBMS:0047"}
    assert said in facts["errors"][0]["detail"]


def test_several_files_give_a_list_in_their_order(run: Run, good: Path, tampered: Path) -> None:
    missing = good.with_name("none")
    result = run("inspect", good, missing, tampered, "--at", AT, "--json")
    assert result.exit_code == 2
    assert result.stderr == f"postroad: {missing}: No such file or directory\n"
    found = json.loads(result.stdout)
    assert [one["file"] for one in found] == [str(good), str(missing), str(tampered)]
    assert [one["holds"] for one in found] == [True, False, False]
    assert found[1]["kind"] == "unreadable"
    assert found[1].keys() == found[0].keys()


def test_standard_input_is_read_for_a_dash(run: Run, good: Path) -> None:
    result = run("inspect", "-", "--at", AT, "--json", stdin=good.read_bytes())
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert facts["file"] == "-"
    assert facts["units"][0]["action"] == "NewOrder"


# Trust


def test_a_signature_that_is_not_valid_is_not_trusted(run: Run, tampered: Path, ca: Path) -> None:
    result = run("inspect", tampered, "--trust", ca, "--at", AT, "--json")
    signature = json.loads(result.stdout)["signature"]
    assert (signature["valid"], signature["trusted"]) == (False, False)
    assert "not trusted" in run("inspect", tampered, "--trust", ca, "--at", AT).stdout


def test_trust_is_not_judged_where_nobody_says_whom_to_trust(run: Run, good: Path) -> None:
    result = run("inspect", good, "--at", AT)
    assert result.exit_code == 0
    assert "trust not judged: no --trust given" in result.stdout


@pytest.mark.parametrize("kind", ["pem", "der", "p12", "jks"])
def test_trust_may_be_a_store_of_any_kind(
    run: Run, good: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_PASSWORD", SECRET)
    secret = SECRET.encode()
    stores = {
        "pem": pem_certificates(CA.certificate),
        "der": CA.certificate.public_bytes(Encoding.DER),
        "p12": p12(issue(CA, "somebody"), secret),
        "jks": jks({}, {"ca": CA.certificate}, secret),
    }
    store = tmp_path / "store"
    store.write_bytes(stores[kind])
    options = ("--trust", store, "--password-env", "STORE_PASSWORD", "--at", AT, "--json")
    facts = json.loads(run("inspect", good, *options).stdout)
    assert facts["signature"]["trusted"] is True
    assert facts["signature"]["chain"][-1] == "CN=Fuzz CA,O=Postroad Tests,C=NL"


def test_trust_may_be_given_more_than_once(run: Run, good: Path, ca: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(pem_certificates(issue(None, "nobody").certificate))
    alone = run("inspect", good, "--trust", other, "--at", AT)
    assert alone.exit_code == 1
    assert "not trusted" in alone.stdout
    both = run("inspect", good, "--trust", other, "--trust", ca, "--at", AT)
    assert both.exit_code == 0


@pytest.mark.parametrize("option", ["--trust", "--key", "--pmode"])
def test_a_store_that_is_not_there_is_one_line(run: Run, good: Path, option: str) -> None:
    missing = good.with_name("none.pem")
    line = one_line(run("inspect", good, option, missing))
    assert line == f"postroad: {missing}: No such file or directory"


def test_a_trust_store_that_is_none_is_one_line(run: Run, good: Path) -> None:
    line = one_line(run("inspect", good, "--trust", good))
    assert line == (
        f"postroad: {good}: this is no key or trust store of a known kind; "
        "use PEM, DER, PKCS#7, PKCS#12 or JKS"
    )


# Keys


def _key_store(kind: str) -> bytes:
    secret = SECRET.encode()
    if kind == "jks":
        return jks({"seller": SELLER}, {}, secret)
    return p12(SELLER, secret, "seller") if kind == "p12" else pem(SELLER, secret)


@pytest.mark.parametrize("kind", ["pem", "p12", "jks"])
def test_a_key_with_its_password_opens_the_message(
    run: Run, good: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_PASSWORD", SECRET)
    store = tmp_path / "store"
    store.write_bytes(_key_store(kind))
    options = ("--key", store, "--password-env", "KEY_PASSWORD", "--at", AT, "--json")
    result = run("inspect", good, *options)
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["encryption"]["decrypted"] is True
    assert facts["units"][0]["payloads"][0]["size"] == len(seeds.ORDER)


@pytest.mark.parametrize("kind", ["pem", "p12", "jks"])
@pytest.mark.parametrize("password", ["wrong", None])
def test_a_key_that_does_not_open_is_one_line(
    run: Run,
    good: Path,
    tmp_path: Path,
    kind: str,
    password: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = tmp_path / "store"
    store.write_bytes(_key_store(kind))
    options: list[str | Path] = ["--key", store]
    if password is not None:
        monkeypatch.setenv("KEY_PASSWORD", password)
        options += ["--password-env", "KEY_PASSWORD"]
    line = one_line(run("inspect", good, *options))
    assert line.startswith(f"postroad: {store}: ")
    assert "password" in line


def test_a_password_variable_that_is_not_set_is_one_line(
    run: Run, good: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_PASSWORD", raising=False)
    line = one_line(run("inspect", good, "--key", key, "--password-env", "NO_SUCH_PASSWORD"))
    assert line == "postroad: the environment variable NO_SUCH_PASSWORD is not set"


def test_a_password_is_never_shown(
    run: Run, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_PASSWORD", "hunter2")
    store = tmp_path / "store"
    store.write_bytes(_key_store("p12"))
    result = run("inspect", good, "--key", store, "--password-env", "KEY_PASSWORD")
    assert "hunter2" not in result.output


def test_the_key_of_somebody_else_does_not_open_it(run: Run, good: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(pem(issue(CA, "other")))
    result = run("inspect", good, "--key", other, "--at", AT)
    assert result.exit_code == 1
    assert "EBMS:0102 FailedDecryption (failure)" in result.stdout
    assert "it is encrypted for CN=seller" in result.stdout


def test_without_a_key_a_closed_message_holds_as_far_as_it_can_be_seen(
    run: Run, good: Path
) -> None:
    facts = json.loads(run("inspect", good, "--at", AT, "--json").stdout)
    assert facts["holds"] is True
    assert facts["encryption"]["decrypted"] is False
    closed = facts["signature"]["references"][-1]
    assert (closed["valid"], closed["reason"]) == (None, "it is encrypted and was not opened")


# Time


@pytest.mark.parametrize(
    "at", ["2026-06-01T12:00:00Z", "2026-06-01T12:00:00", "2026-06-01T14:00:00.5+02:00"]
)
def test_a_time_is_understood_in_its_common_forms(run: Run, good: Path, ca: Path, at: str) -> None:
    assert run("inspect", good, "--trust", ca, "--at", at).exit_code == 0


def test_a_day_is_its_first_moment_in_utc(run: Run, good: Path, ca: Path) -> None:
    result = run("inspect", good, "--trust", ca, "--at", "2026-06-01", "--json")
    details = [one["detail"] for one in json.loads(result.stdout)["errors"]]
    assert "the message was created in the future, at 2026-06-01T12:00:00+00:00" in details


def test_certificates_are_judged_as_of_the_time(run: Run, good: Path, ca: Path) -> None:
    result = run("inspect", good, "--trust", ca, "--at", "2029-01-01", "--json")
    assert result.exit_code == 1
    details = " ".join(one["detail"] for one in json.loads(result.stdout)["errors"])
    assert "it expired on 2028-05-31T12:00:00Z" in details


@pytest.mark.parametrize("at", ["yesterday", "", "2026-13-01", "12:00", "2026-06-01T25:00:00Z"])
def test_a_time_that_is_none_is_one_line(run: Run, good: Path, at: str) -> None:
    line = one_line(run("inspect", good, "--at", at))
    assert line == (
        f"postroad: --at {at!r} is not a time; write 2026-01-31 or 2026-01-31T12:00:00Z"
    )


# As a real command


def test_the_command_itself(good: Path, ca: Path, key: Path) -> None:
    done = command("inspect", "-", "--trust", ca, "--key", key, "--at", AT, stdin=good.read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().startswith("-  user message  SOAP 1.2  holds\n")


def test_the_command_ends_with_2_and_one_line_when_it_cannot_read(tmp_path: Path) -> None:
    done = command("inspect", tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"postroad: {tmp_path / 'none'}: No such file or directory\n"


def test_the_command_ends_with_1_when_the_message_does_not_hold(tampered: Path) -> None:
    done = command("inspect", "--json", tampered, "--at", AT)
    assert done.returncode == 1
    assert json.loads(done.stdout)["holds"] is False


def test_the_command_tells_its_version() -> None:
    assert command("--version").stdout.decode() == f"postroad {__version__}\n"


def test_the_command_speaks_on_a_terminal_without_unicode(good: Path) -> None:
    done = command("inspect", good, "--at", AT, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert rb"\u2714 #_messaging" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory in kilobytes")
def test_a_large_message_is_inspected_in_bounded_memory(tmp_path: Path) -> None:
    """64 MiB of attachment cost hardly more memory than a tiny one."""
    small, large = (_plain(tmp_path / f"{mib}.http", mib) for mib in (0, 64))
    before, after = (_peak_mib(path) for path in (small, large))
    assert after - before < 40


def _plain(path: Path, mib: int) -> Path:
    """An unsigned message whose attachment is written piece by piece."""
    piece = bytes(range(256)) * 4096
    part = seeds.PartInfo(f"cid:{seeds.CONTENT_ID}")
    attachment = seeds.order_attachment(b"MARK", "application/octet-stream")
    made = seeds.secured(seeds.order(part_infos=(part,)), [attachment], sign=False, encrypt=False)
    begin, end = seeds.request(made).split(b"MARK")
    lines = [line for line in begin.split(b"\r\n") if not line.startswith(b"Content-Length")]
    with path.open("wb") as file:
        file.write(b"\r\n".join(lines))
        for _ in range(mib):
            file.write(piece)
        file.write(end)
    return path


def _peak_mib(path: Path) -> float:
    """What inspecting the file takes at most: a process of its own tells of its one child."""
    script = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    child = [str(Path(sys.executable).with_name("postroad")), "inspect", "--json", str(path)]
    done = subprocess.run([sys.executable, "-c", script, *child], capture_output=True, check=True)
    code, kilobytes = done.stdout.decode().split()
    assert code == "0"
    return int(kilobytes) / 1024


# Revoked certificates


def test_a_signer_that_was_revoked_does_not_hold_from_then_on(
    run: Run, good: Path, ca: Path, key: Path, tmp_path: Path
) -> None:
    listed = tmp_path / "ca.crl"
    given = ("inspect", good, "--trust", ca, "--key", key, "--crl", listed)
    crl = revocation_list(CA, [seeds.BUYER.certificate], on=NOW - timedelta(days=1))
    listed.write_bytes(crl.public_bytes(Encoding.DER))
    result = run(*given, "--at", AT)
    assert result.exit_code == 1
    assert "CN=buyer,O=Postroad Tests,C=NL was revoked by its issuer on 2026-05-31" in result.stdout
    later = revocation_list(CA, [seeds.BUYER.certificate], on=NOW + timedelta(hours=1))
    listed.write_bytes(later.public_bytes(Encoding.PEM))
    result = run(*given, "--at", AT)
    assert result.exit_code == 0, result.output
    assert "not revoked  CN=buyer" in result.stdout


def test_a_list_that_ran_out_is_a_warning(good: Path, ca: Path, key: Path) -> None:
    stale = revocation_list(CA, next_update=NOW - timedelta(hours=1)).public_bytes(Encoding.PEM)
    facts = inspect(good, trust=ca, key=key, at=NOW, crl=stale)
    assert facts["holds"]
    [checked] = facts["signature"]["revocation"]
    assert (checked["status"], checked["subject"]) == (
        "unknown",
        "CN=buyer,O=Postroad Tests,C=NL",
    )
    [warning] = [one for one in facts["errors"] if "was revoked is not known" in str(one)]
    assert warning["severity"] == "warning"
    assert inspect(good, trust=ca, key=key, at=NOW)["signature"]["revocation"] == []


def test_a_file_without_a_list_is_one_line(run: Run, good: Path, ca: Path) -> None:
    result = run("inspect", good, "--crl", ca)
    assert one_line(result) == f"postroad: {ca}: this is no revocation list in PEM or DER"
