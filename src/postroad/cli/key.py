"""`postroad key`: the node's own keys and certificates, without the development authority."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography import x509

from postroad.agreement.matching import PModes
from postroad.cli.node_options import ConfigFile, Json, config_path, read_config
from postroad.cli.own_key import OwnKey, find_own_key, own_keyring
from postroad.cli.passwords import PasswordEnv, password_in
from postroad.cli.problems import fail
from postroad.cli.showing import plain, print_facts, print_json
from postroad.msh.expectation import Expectation
from postroad.node.first_steps.key_facts import (
    DescribedCertificate,
    fingerprint,
    other_certificate,
    own_certificates,
    partner_certificates,
)
from postroad.node.first_steps.key_requests import (
    KeyKind,
    KeyUse,
    RequestedCertificate,
    parse_name,
    parse_subject,
)
from postroad.node.first_steps.key_store import (
    KeyFileError,
    create_key,
    create_request,
    create_self_signed,
    import_key,
)
from postroad.node.settings.agreements import AgreementError, load_expectation, pmode_files
from postroad.node.settings.config import ConfigError
from postroad.node.settings.keyring import key_password, load_tls
from postroad.security.keys import KeyStoreError, load_trusted

app = typer.Typer(
    help="Make keys, request and import certificates, and show them.", no_args_is_help=True
)

Use = Annotated[
    KeyUse,
    typer.Option(
        "--use",
        help="What the key is for. messages: to sign and to decrypt them. signing, encryption: one "
        "of both. tls: the node's listeners and its calls.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of the files in the folder of keys; else the one that the node's file names.",
        show_default=False,
    ),
]
Subject = Annotated[
    str | None,
    typer.Option(
        metavar="DN",
        help='Distinguished name, like "CN=acme,O=ACME Ltd,C=GB"; else CN=NODE.',
        show_default=False,
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--san",
        metavar="NAME",
        help="Alternative name: host, IP address, URI or e-mail address. Repeatable.",
        show_default=False,
    ),
]


@app.command()
def new(
    config: ConfigFile = None,
    use: Use = KeyUse.MESSAGES,
    kind: Annotated[KeyKind, typer.Option(help="Algorithm and size.")] = KeyKind.RSA_3072,
    name: Name = None,
    self_signed: Annotated[
        bool,
        typer.Option(
            "--self-signed",
            help="Make a certificate too that no authority vouches for: partners pin it.",
        ),
    ] = False,
    days: Annotated[
        int, typer.Option(min=1, max=3660, help="How long a self-signed certificate is valid.")
    ] = 730,
    subject: Subject = None,
    san: Names = None,
) -> None:
    """Make a private key; an existing one is never replaced.

    The file can be read by its owner only, and has the password of keys.password_file or
    keys.password_env where the node's file has one.

    Examples:

      postroad key new -c acme/postroad.yaml

      postroad key new --use tls --kind ec-p256

      postroad key new --self-signed --subject "CN=acme,O=ACME Ltd,C=GB" --days 365
    """
    if not self_signed and (subject or san):
        fail("--subject and --san are for certificates. Add --self-signed, or use postroad key csr")
    own = find_own_key(config, use, name)
    with _told():
        password = key_password(own.config)
        if not self_signed:
            create_key(own.files, kind, use, password)
            typer.echo(f"wrote {own.files.private_key}: private key, {kind}")
            typer.echo(f"Request a certificate for it with: {own.again('csr')}")
            return
        requested = _requested(own, use, subject, san)
        now = datetime.now(UTC)
        pair = create_self_signed(own.files, kind, requested, password, now=now, days=days)
    typer.echo(f"wrote {own.files.store}: private key, {kind}, with a self-signed certificate")
    _next(own, pair.certificate)


@app.command()
def csr(
    config: ConfigFile = None,
    use: Use = KeyUse.MESSAGES,
    name: Name = None,
    subject: Subject = None,
    san: Names = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a request that was written before.")
    ] = False,
) -> None:
    """Write the request (PKCS#10) with which an authority issues a certificate.

    The key is the one that waits for its certificate, or the one in use when it is renewed.

    Examples:

      postroad key csr -c acme/postroad.yaml --subject "CN=acme,O=ACME Ltd,C=GB"

      postroad key csr --use tls --san msh.acme.example
    """
    own = find_own_key(config, use, name)
    with _told():
        requested = _requested(own, use, subject, san)
        create_request(own.files, requested, key_password(own.config), force=force)
    typer.echo(
        f"wrote {own.files.request}: request for {plain(requested.subject.rfc4514_string())}"
    )
    typer.echo(
        "Send it to your authority, and import what comes back, with the certificates above it:\n"
        f"  {own.again('import')} CERTIFICATE CHAIN"
    )


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help="The certificate and those above it (PEM, DER, PKCS#7), or a private key with its "
            "certificate from elsewhere (PKCS#12, JKS, PEM).",
        ),
    ],
    config: ConfigFile = None,
    use: Use = KeyUse.MESSAGES,
    name: Name = None,
    password_env: PasswordEnv = None,
    without_chain: Annotated[
        bool,
        typer.Option("--without-chain", help="Import although certificates above are missing."),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace the certificate in use; its store is kept aside."),
    ] = False,
) -> None:
    """Import a certificate, after a look whether partners can accept it.

    It fits the private key, is in date, may be used for what it is for, and leads to a root.

    Examples:

      postroad key import acme.crt authority.pem -c acme/postroad.yaml

      STORE_PASSWORD=… postroad key import acme.p12 --password-env STORE_PASSWORD
    """
    own = find_own_key(config, use, name)
    with _told():
        password = key_password(own.config)
        done = import_key(
            own.files,
            files,
            use,
            password,
            now=datetime.now(UTC),
            given_password=password_in(password_env),
            trusted=[one for file in own.config.trust for one in _certificates(file, password)],
            needs_chain=not without_chain,
            replace=replace,
        )
    for warning in done.warnings:
        typer.echo(f"warning: {plain(warning)}", err=True)
    if done.former is not None:
        typer.echo(f"kept the former one as {done.former}: add it to keys.decryption for a while")
    typer.echo(f"wrote {own.files.store}: private key with its certificate")
    _next(own, done.pair.certificate)


@app.command()
def show(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE…", help="Certificates to show; else the node's own.", show_default=False
        ),
    ] = None,
    config: ConfigFile = None,
    partners: Annotated[
        bool, typer.Option("--partners", help="Show the certificates of partners as well.")
    ] = False,
    password_env: PasswordEnv = None,
    as_json: Json = False,
) -> None:
    """Show certificates: names, fingerprints, validity, usage, and the P-Modes that use them.

    Warns of those that expire within 30 days.

    Examples:

      postroad key show -c acme/postroad.yaml

      postroad key show globex.pem
    """
    now = datetime.now(UTC)
    with _told():
        found = _shown(files, config, partners, password_in(password_env))
    told = [one.facts(now) for one in found]
    if as_json:
        print_json(told)
        return
    if not told:
        fail("The node has no keys yet. Make one with: postroad key new", code=1)
    for number, facts in enumerate(told):
        if number:
            typer.echo("")
        print_facts(_rows(facts))


def _shown(
    files: list[Path] | None, config: Path | None, partners: bool, password: bytes | None
) -> list[DescribedCertificate]:
    path = config_path(config)
    if files and config is None and not path.exists():
        return [
            DescribedCertificate(one) for file in files for one in _certificates(file, password)
        ]
    node = read_config(path)
    keyring = own_keyring(node)
    expectation = Expectation(PModes(()))
    if pmode_files(node.pmodes) and node.pmodes.exists():
        expectation = load_expectation(node.pmodes, password=keyring.password)
    if files:
        password = password or keyring.password
        given = [one for file in files for one in _certificates(file, password)]
        return [other_certificate(one, node, keyring, expectation) for one in given]
    found = own_certificates(node, keyring, load_tls(node), expectation)
    return found + (partner_certificates(node, keyring, expectation) if partners else [])


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    period = f"{facts['valid_from']:%Y-%m-%d %H:%M:%S} to {facts['valid_until']:%Y-%m-%d %H:%M:%S}"
    yield "subject", facts["subject"]
    yield "issuer", facts["issuer"]
    yield "names", ", ".join(facts["names"])
    yield "serial", facts["serial"]
    yield "key", facts["key"]
    yield "usage", ", ".join(facts["usage"])
    yield "purposes", facts["purposes"]
    yield "valid", f"{period} UTC"
    yield "warning", facts["warning"] or ""
    yield "SHA-1", facts["sha1"]
    yield "SHA-256", facts["sha256"]
    yield "settings", ", ".join(facts["settings"])
    yield "P-Modes", ", ".join(facts["pmodes"])


def _requested(
    own: OwnKey, use: KeyUse, subject: str | None, names: list[str] | None
) -> RequestedCertificate:
    if use is KeyUse.TLS and not names:
        fail("A certificate for TLS needs the host that partners call. Name it with --san HOST")
    try:
        name = parse_subject(subject or f"CN={own.config.node}")
        return RequestedCertificate(name, use, tuple(map(parse_name, names or ())))
    except ValueError as error:
        fail(plain(str(error)))


def _next(own: OwnKey, certificate: x509.Certificate) -> None:
    typer.echo(f"wrote {own.files.certificate}: the certificate, for your partners")
    typer.echo(f"SHA-256 {fingerprint(certificate)}")
    if not own.is_set:
        change = "Add it to" if own.setting == "keys.decryption" else "Set it as"
        typer.echo(f"{change} {own.setting} in {own.file}: {own.files.store}")


def _certificates(file: Path, password: bytes | None) -> tuple[x509.Certificate, ...]:
    try:
        return load_trusted(file.read_bytes(), password)
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror or error}. Correct the name")
    except KeyStoreError as error:
        fail(f"{file} cannot be used: {error}")


@contextmanager
def _told() -> Iterator[None]:
    """What is wrong is told in one line."""
    try:
        yield
    except KeyFileError as error:
        fail(plain(str(error)), code=1)
    except (ConfigError, AgreementError) as error:
        fail(plain(str(error).splitlines()[0]))
