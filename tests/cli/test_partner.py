"""`postroad partner add`: P-Modes that hold, for both directions and every protocol."""

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import Run, one_line
from tests.e2e.nodes import Served, postroad
from tests.pki import authority, issue, pem_certificates
from tests.ports import free_port

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
THEM = (
    "--party", "urn:example:duns::123456789", "--url", "https://msh.globex.example/as4",
    "--certificate", "globex.pem", "--service", "urn:example:orders",
)  # fmt: skip
BOTH = ("--send", "NewOrder", "--receive", "OrderStatus")


def certified(name: str, key: str = "ec") -> None:
    pair = issue(None, "globex", key=key, not_before=NOW - DAY, not_after=NOW + 90 * DAY)
    Path(name).write_bytes(pem_certificates(pair.certificate))


@pytest.fixture
def node(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a node with a key; the tests work beside its folder, with a certificate."""
    monkeypatch.chdir(tmp_path)
    options = ("--party-id", "urn:example:acme", "--public-url", "https://msh.acme.example/msh")
    assert run("init", "acme", "--own-keys", *options).exit_code == 0
    file = Path("acme/postroad.yaml")
    assert run("key", "new", "-c", file, "--self-signed", "--kind", "ec-p256").exit_code == 0
    certified("globex.pem")
    return file


def test_both_directions_are_written_and_the_node_takes_them(run: Run, node: Path) -> None:
    done = run("partner", "add", "globex", *THEM, *BOTH, "-c", node)
    assert (done.exit_code, done.stderr) == (0, "")
    assert (
        run("pmode", "check", "acme/pmodes").stdout
        == "2 P-Modes in 2 files: 0 errors, 0 warnings\n"
    )
    assert run("config", "check", node).exit_code == 0
    assert Path("acme/keys/globex.pem").read_bytes() == Path("globex.pem").read_bytes()
    for told in (
        "https://msh.acme.example/msh",
        "urn:example:acme",
        "acme/keys/acme.pem",
        "postroad ping acme-to-globex-NewOrder -c acme/postroad.yaml",
    ):
        assert told in done.stdout
    ours, theirs = json.loads(run("key", "show", "-c", node, "--partners", "--json").stdout)
    for facts in (ours, theirs):
        assert facts["sha256"] in done.stdout
    assert ours["pmodes"] == [
        "acme-to-globex-NewOrder (signs messages)",
        "globex-to-acme-OrderStatus (signs receipts, decrypts messages)",
    ]
    assert theirs["pmodes"] == [
        "acme-to-globex-NewOrder (encrypts messages, verifies receipts)",
        "globex-to-acme-OrderStatus (verifies messages)",
    ]


def test_what_was_agreed_stands_in_the_p_modes(run: Run, node: Path) -> None:
    certified("tls.pem")
    certified("encryption.pem", "rsa")
    tls = ("--use", "tls", "--kind", "ec-p256", "--self-signed", "--san", "acme.example")
    assert run("key", "new", "-c", node, *tls).exit_code == 0
    done = run(
        "partner", "add", "globex", *THEM, *BOTH, "-c", node,
        "--party", "urn:example:globex", "--role", "Seller", "--our-role", "Buyer",
        "--agreement", "urn:example:agreements::2026-17", "--tls-authority", "tls.pem",
        "--encryption-certificate", "encryption.pem", "--tls-key", "acme/keys/tls.p12",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    sending = run("pmode", "show", "acme/pmodes/acme-to-globex-NewOrder.yaml").stdout
    receiving = run("pmode", "show", "acme/pmodes/globex-to-acme-OrderStatus.yaml").stdout
    for line in (
        "PMode.Agreement = 2026-17",
        "PMode.Agreement.type = urn:example:agreements",
        "PMode.Initiator.Role = Buyer",
        "PMode.Responder.Party[1] = 123456789",
        "PMode.Responder.Party[1].type = urn:example:duns",
        "PMode.Responder.Party[2] = urn:example:globex",
        "PMode[1].Protocol.Address = https://msh.globex.example/as4",
        "PMode[1].Protocol.Security.Server.AnchorCertificates = ../keys/globex-tls.pem",
        "PMode[1].BusinessInfo.Action = NewOrder",
        "PMode[1].Protocol.Security.Client.Certificate = ../keys/tls.p12",
        "PMode[1].Security.X509.Encryption.Certificate = ../keys/globex-encryption.pem",
        "PMode[1].Security.SendReceipt.Certificate = ../keys/globex.pem",
    ):
        assert f"{line}\n" in sending, line
    for line in (
        "PMode.Initiator.Role = Seller",
        "PMode.Responder.Role = Buyer",
        "PMode[1].BusinessInfo.Action = OrderStatus",
        "PMode[1].Security.X509.Signature.Pins = ../keys/globex.pem",
        "PMode[1].Security.X509.Encryption.Encrypt = true",
    ):
        assert f"{line}\n" in receiving, line
    assert "Protocol.Address" not in receiving


def test_a_dry_run_writes_nothing(run: Run, node: Path) -> None:
    done = run("partner", "add", "globex", *THEM, *BOTH, "-c", node, "--dry-run")
    assert done.exit_code == 0
    assert "would write acme/pmodes/acme-to-globex-NewOrder.yaml" in done.stdout
    assert not Path("acme/pmodes").exists()
    assert not Path("acme/keys/globex.pem").exists()


def test_nothing_that_is_there_is_replaced(run: Run, node: Path) -> None:
    add = ("partner", "add", "globex", *THEM, "-c", node)
    assert run(*add, "--send", "NewOrder").exit_code == 0
    assert "NewOrder.yaml exists" in one_line(run(*add, "--send", "NewOrder"))
    assert run(*add, "--receive", "OrderStatus").exit_code == 0
    certified("globex.pem", "rsa")
    assert "globex.pem exists" in one_line(run(*add, "--send", "Another"))
    assert len(list(Path("acme/pmodes").iterdir())) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--send, --receive"),
        (("--send", "NewOrder", "--url", "nowhere"), "nowhere"),
        (("--send", "NewOrder", "--certificate", "none.pem"), "none.pem cannot be read"),
        (("--send", "NewOrder", "--tls-key", "globex.pem"), "there is no private key inside"),
        (("--send", "NewOrder", "--certificate", "old.pem"), "expired"),
        (("--send", "NewOrder", "--certificate", "two.pem"), "several owners"),
        (("--send", "NewOrder", "--certificate", "ed25519.pem"), "--no-encryption"),
        (("--send", "NewOrder", "--protocol", "ebxml-2.0"), "--agreement"),
    ],
)
def test_facts_that_make_no_p_mode_are_refused_in_one_line(
    run: Run, node: Path, options: tuple[str, ...], said: str
) -> None:
    old = issue(None, "globex", not_before=NOW - 9 * DAY, not_after=NOW - DAY)
    Path("old.pem").write_bytes(pem_certificates(old.certificate))
    other = authority("Another", not_before=NOW - DAY, not_after=NOW + DAY)
    two = pem_certificates(other.certificate, old.certificate)
    Path("two.pem").write_bytes(two)
    certified("ed25519.pem", "ed25519")
    done = run("partner", "add", "globex", *THEM, *options, "-c", node)
    assert said in one_line(done)
    assert not Path("acme/pmodes").exists()


def test_without_a_key_it_is_told_how_to_make_one(run: Run, node: Path) -> None:
    Path("acme/keys/acme.p12").unlink()
    told = one_line(run("partner", "add", "globex", *THEM, *BOTH, "-c", node))
    assert "postroad key new" in told


def test_a_partner_who_cannot_reach_the_node_is_a_warning(run: Run, node: Path) -> None:
    lines = [line for line in node.read_text().splitlines() if "public_url" not in line]
    node.write_text("\n".join(lines))
    done = run("partner", "add", "globex", *THEM, *BOTH, "-c", node)
    assert done.exit_code == 0
    assert "Set listen[].public_url" in done.stderr


# Between real nodes


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    """Two nodes with an RSA and an EC key, partners of each other in every protocol, over TLS."""
    folder = tmp_path_factory.mktemp("partners")
    nodes = tuple(Served(name, folder / name) for name in ("acme", "globex"))
    ports = {one.name: free_port() for one in nodes}
    for one, kind in zip(nodes, ("rsa-3072", "ec-p256"), strict=True):
        port = str(ports[one.name])
        made = postroad("init", one.folder, "--own-keys", "--with-tls", "--port", port)
        assert made.exit_code == 0, made.output
        one.config.write_text(one.config.read_text().replace("0.0.0.0:", "127.0.0.1:"))
        new = ("key", "new", "--self-signed", "--kind")
        assert one.run(*new, kind).exit_code == 0
        assert one.run(*new, "ec-p256", "--use", "tls", "--san", "localhost").exit_code == 0
    for one, other in (nodes, nodes[::-1]):
        for protocol in ("as4", "ebxml-2.0", "ebxml-1.0", "ebxml-0.98b"):
            there, back = ((f"{protocol}-by-{name}") for name in (one.name, other.name))
            done = one.run(
                "partner", "add", f"{other.name}-{protocol}",
                "--party", f"urn:example:{other.name}", "--agreement", "urn:example:cpa",
                "--url", f"https://localhost:{ports[other.name]}/msh",
                "--tls-authority", other.folder / "keys/tls.pem",
                "--certificate", other.folder / f"keys/{other.name}.pem",
                "--service", "urn:example:orders", "--send", there, "--receive", back,
                "--protocol", protocol,
            )  # fmt: skip
            assert done.exit_code == 0, done.output
    try:
        for one in nodes:
            one.begin()
        for one in nodes:
            one.ready()
        yield nodes[0], nodes[1]
    finally:
        for one in nodes:
            one.end(signal.SIGKILL)


@pytest.mark.parametrize("protocol", ["as4", "ebxml-2.0", "ebxml-1.0", "ebxml-0.98b"])
def test_messages_are_exchanged_by_the_p_modes_both_ways(
    pair: tuple[Served, Served], tmp_path: Path, protocol: str
) -> None:
    payload = tmp_path / "order.xml"
    payload.write_bytes(b"<order/>")
    for one, other in (pair, pair[::-1]):
        pmode = f"{one.name}-to-{other.name}-{protocol}-{protocol}-by-{one.name}"
        ping = one.run("ping", pmode)
        assert ping.exit_code == 0, ping.output
        sent = one.run("send", "--pmode", pmode, "--payload", payload, "--wait")
        assert sent.exit_code == 0, (sent.output, one.log, other.log)
        got = other.run("inbox", "get", sent.stdout.strip(), "-o", tmp_path / f"{one.name}.xml")
        assert got.exit_code == 0, got.output
        assert (tmp_path / f"{one.name}.xml").read_bytes() == b"<order/>"
