"""`postroad init`: folders that are ready to talk, private where need be, never overwritten."""

import os
import re
import shlex
import ssl
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from postroad.agreement.loading import load_sources
from postroad.agreement.pmode import PMode
from postroad.cli.init import init
from postroad.cli.pmode import app as pmode_app
from postroad.msh.report import report
from postroad.node.evidence.inspecting import Tools, inspect_source
from postroad.node.first_steps.example import http_request, order_attachment, order_message
from postroad.node.first_steps.initializing import InitError, Plan, Station, initialize
from postroad.node.first_steps.profiles import Profile
from postroad.node.settings.agreements import load_expectation
from postroad.node.settings.config import load_config
from postroad.node.settings.keyring import load_keyring, load_tls
from postroad.security.algorithms import RSA_SHA256
from postroad.security.keyestablishment import Encryption
from postroad.security.keys import load_certificates
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.security.trust import Trust
from postroad.transport.tls import ServerTls, client_context, profile_from_pmode, server_context
from postroad.wire.ebms3 import Messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.soap import SoapVersion

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
KINDS = ("order", "signed", "plain")
app = typer.Typer()
app.command()(init)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Buyer and seller without TLS."""
    folder = tmp_path_factory.mktemp("both")
    initialize(plan(folder), now=NOW)
    return folder


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Buyer and seller with TLS and client certificates."""
    folder = tmp_path_factory.mktemp("secured")
    # A handshake reads the clock of this machine.
    initialize(plan(folder, tls=True, client_certificates=True), now=datetime.now(UTC))
    return folder


def plan(folder: Path, *, tls: bool = False, client_certificates: bool = False) -> Plan:
    first = Station("buyer", folder / "buyer", 8080)
    second = Station("seller", folder / "seller", 8081)
    return Plan(first, second, tls, client_certificates, unsigned=True)


def pmodes(folder: Path) -> dict[str, PMode]:
    files = sorted((folder / "pmodes").iterdir())
    result = load_sources((str(file), file.read_bytes()) for file in files)
    assert result.problems == ()
    assert len(files) == len(result.pmodes)
    assert [file.stem for file in files] == [pmode.id for pmode in result.pmodes]
    return {pmode.id: pmode for pmode in result.pmodes}


@pytest.mark.parametrize("party", ["buyer", "seller"])
def test_the_config_and_keys_of_each_party_can_be_used(both: Path, party: str) -> None:
    config = load_config(both / party / "postroad.yaml")
    assert (config.node, config.party_name) == (party, f"urn:example:{party}")
    assert config.api_url == f"http://127.0.0.1:{8080 if party == 'buyer' else 8081}"
    ring = load_keyring(config)
    assert ring.warnings == ()
    assert ring.signing is not None
    assert ring.opening
    assert ring.api_token is not None
    assert len(ring.api_token) >= 32
    for purpose in ("sign", "encrypt"):
        Trust(ring.trust).verify(ring.signing.certificate, (), NOW, purpose)  # type: ignore[arg-type]


def test_each_party_has_its_own_key_and_token(both: Path) -> None:
    rings = [load_keyring(load_config(both / p / "postroad.yaml")) for p in ("buyer", "seller")]
    assert rings[0].signing != rings[1].signing
    assert rings[0].api_token != rings[1].api_token
    assert rings[0].trust == rings[1].trust


@pytest.mark.parametrize("party", ["buyer", "seller"])
def test_pmode_check_takes_the_samples_without_a_word(both: Path, party: str) -> None:
    result = CliRunner().invoke(pmode_app, ["check", str(both / party / "pmodes")])
    assert result.exit_code == 0, result.output
    assert result.output == "6 P-Modes in 6 files: 0 errors, 0 warnings\n"


@pytest.mark.parametrize("party", ["buyer", "seller"])
def test_there_is_a_sample_of_each_kind_in_both_directions(both: Path, party: str) -> None:
    assert set(pmodes(both / party)) == {
        f"{way}-{kind}" for way in ("buyer-to-seller", "seller-to-buyer") for kind in KINDS
    }


def test_the_order_is_signed_encrypted_compressed_and_receipted(both: Path) -> None:
    [leg] = pmodes(both / "buyer")["buyer-to-seller-order"].legs
    assert leg.protocol is not None
    assert leg.business_info is not None
    assert leg.business_info.service is not None
    assert leg.security is not None
    assert leg.security.x509 is not None
    assert leg.security.x509.encryption is not None
    assert leg.security.send_receipt is not None
    assert leg.payload_service is not None
    assert leg.protocol.address == "http://127.0.0.1:8081/msh"
    assert leg.business_info.service.value == "urn:example:purchasing"
    assert leg.business_info.action == "NewOrder"
    assert leg.security.x509.sign
    assert leg.security.x509.encryption.encrypt
    assert leg.security.send_receipt.non_repudiation
    assert leg.security.send_receipt.reply_pattern == "response"
    assert leg.payload_service.compression_type == "application/gzip"


@pytest.mark.parametrize("profile", [None, Profile.EBHANDLER, Profile.LIGHT])
def test_no_sample_is_unsigned_unless_that_is_asked_for(
    tmp_path: Path, profile: Profile | None
) -> None:
    whole = plan(tmp_path)
    asked = replace(whole, profile=profile)
    assert not all(sample.signed for sample, _, _ in asked.samples)
    assert all(sample.signed for sample, _, _ in replace(asked, unsigned=False).samples)


def test_the_other_samples_leave_out_encryption_and_signature(both: Path) -> None:
    made = pmodes(both / "buyer")
    signed = made["buyer-to-seller-signed"].legs[0].security
    plain = made["buyer-to-seller-plain"].legs[0].security
    assert signed is not None
    assert plain is not None
    assert signed.x509 is not None
    assert signed.x509.sign
    assert signed.x509.encryption is None
    assert plain.x509 is None
    assert plain.send_receipt is not None


@pytest.mark.parametrize("name", ["both", "secured"])
def test_both_parties_have_the_same_pmodes_but_for_the_senders_keys(
    name: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(name)
    own = re.compile(r" +(key: \.\./keys/\w+\.p12|certificate: \.\./keys/tls\.p12) +#.*\n")
    for way in ("buyer-to-seller", "seller-to-buyer"):
        sender, _, receiver = way.split("-")
        for kind in KINDS:
            path = Path("pmodes") / f"{way}-{kind}.yaml"
            sent = (folder / sender / path).read_text()
            assert own.sub("", sent) == (folder / receiver / path).read_text()
            count = (kind != "plain") + (name == "secured")
            assert len(own.findall(sent)) == count


@pytest.mark.parametrize("party", ["buyer", "seller"])
@pytest.mark.parametrize("name", ["both", "secured"])
def test_what_the_samples_name_is_there_and_proves_the_right_party(
    name: str, party: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(name)
    certificates = {
        p: load_certificates((folder / p / "keys" / f"{p}.pem").read_bytes())[0]
        for p in ("buyer", "seller")
    }
    found = load_expectation(folder / party / "pmodes").materials
    order = found["buyer-to-seller-order", 1]
    assert order.pins == (certificates["buyer"],)
    assert order.recipients == (certificates["seller"],)
    assert found["seller-to-buyer-signed", 1].pins == (certificates["seller"],)
    signing = found[f"{party}-to-{'seller' if party == 'buyer' else 'buyer'}-order", 1].signing
    assert signing is not None
    assert signing.certificate == certificates[party]


def test_an_order_of_the_buyer_holds_by_the_sellers_agreement(both: Path) -> None:
    buyer, seller = (
        load_keyring(load_config(both / party / "postroad.yaml")) for party in ("buyer", "seller")
    )
    assert buyer.signing is not None
    assert seller.signing is not None
    header = write_messaging(Messaging((order_message(NOW),), id="_m"), SoapVersion.SOAP_12)
    made = secure(
        SoapVersion.SOAP_12,
        [Block("_m", header)],
        [order_attachment()],
        signing=Signing(buyer.signing, RSA_SHA256),
        encryption=Encryption(seller.signing.certificate),
        entropy=os.urandom,
        lifetime=Lifetime(NOW, timedelta(hours=1)),
    )
    message = http_request(made.envelope, list(made.attachments))
    expectation = load_expectation(both / "seller" / "pmodes")
    tools = Tools(trust=seller.trust, keys=seller.opening, at=NOW, expectation=expectation)
    facts = report(inspect_source(message, tools))
    assert facts["holds"], facts["errors"]
    assert facts["pmode"] == "buyer-to-seller-order"


def test_private_files_are_private(secured: Path) -> None:
    for party in ("buyer", "seller"):
        keys = secured / party / "keys"
        assert keys.stat().st_mode & 0o777 == 0o700
        for file in keys.iterdir():
            secret = file.suffix in (".p12", ".token")
            assert (file.stat().st_mode & 0o077 == 0) is secret, file.name
    assert (secured / "buyer" / "keys" / "authority.p12").exists()
    assert not (secured / "seller" / "keys" / "authority.p12").exists()


def test_every_line_of_a_sample_that_needs_it_is_explained(both: Path) -> None:
    text = (both / "buyer" / "pmodes" / "buyer-to-seller-order.yaml").read_text()
    columns = {line.index(" # ") for line in text.splitlines() if " # " in line}
    assert text.count("#") > 10
    assert len(columns) == 1
    config = (both / "buyer" / "postroad.yaml").read_text()
    assert config.count("#") > 10


# TLS


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Let the two shake hands in memory; the server's side of it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    return ends[0]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_the_tls_certificates_serve_this_machine_and_its_clients(secured: Path, name: str) -> None:
    config = load_config(secured / "seller" / "postroad.yaml")
    door = config.listen[0]
    assert (door.port, door.serve) == (8081, ("msh",))
    assert door.tls is not None
    assert door.tls.client_certificates == "required"
    assert config.api_url == "http://127.0.0.1:8091"
    assert load_tls(config)[0] is not None
    pmode = pmodes(secured / "buyer")["buyer-to-seller-order"]
    protocol = pmode.legs[0].protocol
    assert protocol is not None
    assert protocol.address == "https://localhost:8081/msh"
    server = server_context(
        ServerTls(
            door.tls.certificate,
            client_certificates="required",
            authorities=door.tls.client_authorities,
        )
    )
    client = client_context(profile_from_pmode(protocol.security, secured / "buyer" / "pmodes"))
    shown = handshake(server, client, name).getpeercert()
    assert shown is not None
    assert (("commonName", "buyer TLS"),) in shown["subject"]


def test_with_tls_alone_clients_are_not_asked(tmp_path: Path) -> None:
    initialize(plan(tmp_path, tls=True), now=NOW)
    tls = load_config(tmp_path / "buyer" / "postroad.yaml").listen[0].tls
    assert tls is not None
    assert tls.client_certificates == "none"
    for pmode in pmodes(tmp_path / "buyer").values():
        protocol = pmode.legs[0].protocol
        assert protocol is not None
        assert protocol.security is not None
        assert protocol.security.client is None


# One party, names and ports, refusals


def test_a_party_alone_sends_to_itself(tmp_path: Path) -> None:
    with chdir(tmp_path):
        result = run("alone", "--port", "9000")
        assert result.exit_code == 0, result.output
        assert {path.name for path in tmp_path.iterdir()} == {"alone"}
        made = pmodes(Path("alone"))
        assert set(made) == {f"alone-to-alone-{kind}" for kind in ("order", "signed")}
        [leg] = made["alone-to-alone-order"].legs
        assert leg.protocol is not None
        assert leg.protocol.address == "http://127.0.0.1:9000/msh"
        load_expectation(Path("alone/pmodes"))


def test_the_command_makes_both_folders_and_says_what_to_do_next(tmp_path: Path) -> None:
    with chdir(tmp_path):
        result = run("buyer", "--partner", "seller")
        assert result.exit_code == 0, result.output
        commands = [
            shlex.split(line)
            for line in result.stdout.splitlines()
            if line.startswith("  postroad")
        ]
        assert [words[1] for words in commands] == ["serve", "serve", "send", "inbox"]
        for words in commands:
            assert load_config(Path(words[words.index("-c") + 1]))
        send = commands[2]
        assert send[send.index("--pmode") + 1] in pmodes(Path("buyer"))
        assert Path(send[send.index("--payload") + 1]).read_text().startswith("<?xml")
        assert load_config(Path("seller/postroad.yaml")).listen[0].port == 8081


def test_the_folder_may_be_this_one_and_the_party_named(tmp_path: Path) -> None:
    (tmp_path / "my place").mkdir()
    with chdir(tmp_path / "my place"):
        refused = run(".", "--partner", "seller")
        assert refused.exit_code == 1
        assert "'my place' cannot be the name of a party" in refused.stderr
        result = run(".", "--party", "buyer", "--partner", "seller")
    assert result.exit_code == 0, result.output
    assert load_config(tmp_path / "my place" / "postroad.yaml").node == "buyer"
    assert load_config(tmp_path / "seller" / "postroad.yaml").node == "seller"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "seller").mkdir()
    (tmp_path / "seller" / "postroad.yaml").write_text("mine")
    result = run(str(tmp_path / "buyer"), "--partner", "seller")
    assert result.exit_code == 1
    assert result.stderr == (
        f"postroad: {tmp_path / 'seller' / 'postroad.yaml'} is there already; "
        "choose another folder, or replace it with --force\n"
    )
    assert not (tmp_path / "buyer").exists()
    assert (tmp_path / "seller" / "postroad.yaml").read_text() == "mine"


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert run(str(tmp_path), "--party", "buyer").exit_code == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_force_replaces_what_is_there_and_makes_it_private(tmp_path: Path) -> None:
    folder = tmp_path / "buyer"
    assert run(str(folder)).exit_code == 0
    key = folder / "keys" / "buyer.p12"
    before = key.read_bytes()
    key.chmod(0o644)
    assert run(str(folder), "--force").exit_code == 0
    assert key.read_bytes() != before
    assert key.stat().st_mode & 0o777 == 0o600
    assert load_keyring(load_config(folder / "postroad.yaml")).warnings == ()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--partner", "buyer"], "both parties are called buyer"),
        (["--partner", "a b"], "'a b' cannot be the name of a party here"),
        (["--partner", "../seller"], "'../seller' cannot be the name of a party here"),
        (["--party", "authority"], "'authority' cannot be the name of a party here"),
        (["--party", "seller", "--partner", "buyer"], "give it another name"),
        (["--partner", "seller", "--partner-port", "8080"], "the ports 8080, 8080 cannot all"),
        (["--port", "70000"], "the ports 70000 cannot all be used"),
        (["--with-tls", "--port", "65530"], "cannot all be used; choose others with --port"),
        (["--client-certificates"], "add --with-tls"),
    ],
)
def test_what_cannot_be_made_is_refused_before_anything_is(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    result = run(str(tmp_path / "buyer"), *arguments)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InitError, match="Not a directory; choose another folder"):
        initialize(Plan(Station("buyer", tmp_path / "file" / "buyer", 8080)), now=NOW)


@pytest.fixture(scope="module", params=list(Profile))
def profiled(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Buyer and seller as a conformance profile has them."""
    folder = tmp_path_factory.mktemp(request.param)
    made = run(str(folder / "buyer"), "--partner", "seller", "--profile", request.param)
    assert made.exit_code == 0, made.output
    assert "postroad pull seller-to-buyer-collected" in made.output
    return folder


@pytest.mark.parametrize("party", ["buyer", "seller"])
def test_the_samples_of_a_profile_hold(profiled: Path, party: str) -> None:
    result = CliRunner().invoke(pmode_app, ["check", str(profiled / party / "pmodes")])
    assert result.exit_code == 0, result.output
    assert ("0 warnings" in result.output) != ("bare" in result.output)


def test_a_pmode_with_a_password_is_for_its_owner_only(profiled: Path) -> None:
    for file in profiled.glob("*/pmodes/*"):
        private = "password:" in file.read_text()
        assert (file.stat().st_mode & 0o077 == 0) == private


def test_both_parties_know_the_same_password(profiled: Path) -> None:
    said = re.compile(r"^ +(?:username|password): .*", re.MULTILINE)
    for file in (profiled / "buyer/pmodes").iterdir():
        theirs = profiled / "seller/pmodes" / file.name
        assert said.findall(file.read_text()) == said.findall(theirs.read_text())


def test_a_profile_without_a_partner_is_refused(tmp_path: Path) -> None:
    result = run(str(tmp_path / "buyer"), "--profile", "light")
    assert result.exit_code == 1
    assert "name the other one with --partner" in result.output


def test_with_own_keys_there_is_only_a_configuration_that_names_them(tmp_path: Path) -> None:
    folder = tmp_path / "acme"
    url = "https://msh.acme.example/as4"
    options = ("--own-keys", "--party-id", "urn:example:duns::0123", "--public-url", url)
    made = run(str(folder), *options)
    assert made.exit_code == 0, made.output
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {"postroad.yaml", "keys/api.token"}
    assert (folder / "keys").stat().st_mode & 0o077 == 0
    config = load_config(folder / "postroad.yaml")
    assert config.party_name == "urn:example:duns::0123"
    assert config.msh_url == url
    assert config.keys.signing == folder / "keys/acme.p12"
    assert config.trust == ()


@pytest.mark.parametrize("option", [("--partner", "globex"), ("--unsigned",)])
def test_own_keys_have_no_samples(tmp_path: Path, option: tuple[str, ...]) -> None:
    made = run(str(tmp_path / "acme"), "--own-keys", *option)
    assert made.exit_code == 1
    assert "postroad partner add" in made.stderr
    assert not (tmp_path / "acme").exists()
