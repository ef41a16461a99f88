"""Files that change while the node runs are taken over whole, and never when they are wrong."""

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from postroad.node.settings import reloading
from postroad.node.settings.agreements import load_expectation
from postroad.node.settings.config import load_config
from postroad.node.settings.in_force import InForce
from postroad.node.settings.reloading import (
    RELOADED,
    UNCHANGED,
    Change,
    Outcome,
    Unloadable,
    Watched,
    watch_keyring,
    watch_pmodes,
    watch_tls,
)
from postroad.node.settings.routes import watch_routes
from postroad.wire.limits import DEFAULT
from tests import pki

CA = pki.authority("Reload CA")
PMODE = """\
id: {id}
initiator: {{party: urn:example:buyer}}
responder: {{party: urn:example:{id}}}
legs:
  - security:
      x509: {{sign: true, signature: {{certificate: ../keys/{id}.pem}}}}
"""


class Texts:
    """Loads all texts of a folder; counts how often."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.times = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self) -> tuple[str, set[Path]]:
        self.times += 1
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        text = "+".join(path.read_text() for path in files)
        self.meanwhile()
        if "broken" in text:
            raise ValueError("line one is broken\nline two as well")
        return text, {self.folder, *files}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "texts"
    path.mkdir()
    (path / "a").write_text("alpha")
    (path / "b").write_text("beta")
    return path


@pytest.fixture
def load(folder: Path) -> Texts:
    return Texts(folder)


def age(path: Path) -> None:
    """Let a file seem to have been written a minute ago."""
    before = path.stat().st_mtime_ns - 60_000_000_000
    os.utime(path, ns=(before, before))


def test_what_did_not_change_is_not_loaded_again(load: Texts) -> None:
    watched = Watched(load)
    assert [watched.refresh() for _ in range(3)] == [UNCHANGED] * 3
    assert (watched.current, load.times) == ("alpha+beta", 1)


def change_content(folder: Path) -> None:
    (folder / "a").write_text("gamma ray")


def change_only_the_time(folder: Path) -> None:
    (folder / "a").write_text("omega")
    age(folder / "a")


def replace_by_renaming(folder: Path) -> None:
    made = folder.parent / "new"
    made.write_text("omega")
    shutil.copystat(folder / "a", made)
    made.replace(folder / "a")


def add_a_file(folder: Path) -> None:
    (folder / "c").write_text("gamma")


def add_a_file_deep_below(folder: Path) -> None:
    (folder / "d" / "e").mkdir(parents=True)
    (folder / "d" / "e" / "f").write_text("gamma")


def remove_a_file(folder: Path) -> None:
    (folder / "b").unlink()


def rename_a_file(folder: Path) -> None:
    (folder / "a").rename(folder / "z")


@pytest.mark.parametrize(
    ("happens", "then"),
    [
        (change_content, "gamma ray+beta"),
        (change_only_the_time, "omega+beta"),
        (replace_by_renaming, "omega+beta"),
        (add_a_file, "alpha+beta+gamma"),
        (add_a_file_deep_below, "alpha+beta+gamma"),
        (remove_a_file, "alpha"),
        (rename_a_file, "beta+alpha"),
    ],
)
def test_a_change_is_taken_over_once(
    folder: Path, load: Texts, happens: Callable[[Path], None], then: str
) -> None:
    watched = Watched(load)
    happens(folder)
    assert watched.refresh() == RELOADED
    assert watched.current == then
    assert watched.refresh() == UNCHANGED
    assert load.times == 2


def test_a_link_that_leads_elsewhere_is_a_change(folder: Path, load: Texts) -> None:
    for name in ("one", "two"):
        (folder.parent / name).write_text(name)
    (folder / "link").symlink_to(folder.parent / "one")
    watched = Watched(load)
    (folder / "link").unlink()
    (folder / "link").symlink_to(folder.parent / "two")
    assert watched.refresh() == RELOADED
    assert watched.current == "alpha+beta+two"


def test_what_is_wrong_at_the_start_is_raised(folder: Path, load: Texts) -> None:
    (folder / "a").write_text("broken")
    with pytest.raises(ValueError, match="line one is broken"):
        Watched(load)


def test_a_mistake_is_told_once_and_the_old_stays_in_force(folder: Path, load: Texts) -> None:
    watched = Watched(load)
    (folder / "a").write_text("broken")
    told = Outcome(Change.FAILED, ("line one is broken", "line two as well"))
    assert [watched.refresh() for _ in range(3)] == [told, UNCHANGED, UNCHANGED]
    assert watched.current == "alpha+beta"
    assert load.times == 2


def test_a_mistake_is_told_again_when_the_file_changes_and_is_still_wrong(
    folder: Path, load: Texts
) -> None:
    watched = Watched(load)
    (folder / "a").write_text("broken")
    assert watched.refresh().change is Change.FAILED
    (folder / "a").write_text("broken still")
    assert watched.refresh().change is Change.FAILED
    (folder / "a").write_text("mended")
    assert watched.refresh() == RELOADED
    assert watched.current == "mended+beta"


def test_a_file_that_changes_while_it_is_read_is_read_again_the_next_time(
    folder: Path, load: Texts
) -> None:
    watched = Watched(load)
    (folder / "a").write_text("half")
    load.meanwhile = lambda: (folder / "a").write_text("half and half")
    assert watched.refresh() == UNCHANGED
    assert watched.current == "alpha+beta"
    load.meanwhile = lambda: None
    assert watched.refresh() == RELOADED
    assert watched.current == "half and half+beta"


def test_a_half_written_file_that_is_wrong_is_not_told(folder: Path, load: Texts) -> None:
    watched = Watched(load)
    (folder / "a").write_text("broken")
    load.meanwhile = lambda: (folder / "a").write_text("whole again")
    assert watched.refresh() == UNCHANGED
    load.meanwhile = lambda: None
    assert watched.refresh() == RELOADED
    assert watched.current == "whole again+beta"


def test_a_file_that_changes_during_the_first_load_is_seen(folder: Path, load: Texts) -> None:
    def rewrite() -> None:
        # As one that is written a good while after the load began.
        (folder / "a").write_text("later")
        later = (folder / "a").stat().st_mtime_ns + 60_000_000_000
        os.utime(folder / "a", ns=(later, later))

    load.meanwhile = rewrite
    watched = Watched(load)
    load.meanwhile = lambda: None
    assert watched.refresh() == RELOADED
    assert watched.current == "later+beta"
    assert watched.refresh() == UNCHANGED


def test_a_new_file_that_changes_while_it_is_read_is_read_again(folder: Path, load: Texts) -> None:
    def rewrite() -> None:
        (folder / "c").write_text("later")
        later = (folder / "c").stat().st_mtime_ns + 60_000_000_000
        os.utime(folder / "c", ns=(later, later))

    watched = Watched(load)
    (folder / "c").write_text("early")
    load.meanwhile = rewrite
    assert watched.refresh() == UNCHANGED
    load.meanwhile = lambda: None
    assert watched.refresh() == RELOADED
    assert watched.current == "alpha+beta+later"


def test_a_file_from_the_future_is_not_loaded_for_ever(folder: Path, load: Texts) -> None:
    watched = Watched(load)
    future = (folder / "a").stat().st_mtime_ns + 3600_000_000_000
    (folder / "c").write_text("gamma")
    os.utime(folder / "c", ns=(future, future))
    assert [watched.refresh() for _ in range(3)] == [UNCHANGED, RELOADED, UNCHANGED]


def test_a_missing_file_that_a_failed_load_named_is_waited_for(tmp_path: Path) -> None:
    wanted, trigger = tmp_path / "wanted", tmp_path / "trigger"
    trigger.write_text("no")

    def load() -> tuple[str, set[Path]]:
        if trigger.read_text() == "no":
            return "old", {trigger}
        if not wanted.exists():
            raise Unloadable(f"{wanted} is not there", [wanted])
        return wanted.read_text(), {trigger, wanted}

    watched = Watched(load)
    trigger.write_text("yes!")
    assert watched.refresh() == Outcome(Change.FAILED, (f"{wanted} is not there",))
    assert watched.refresh() == UNCHANGED
    wanted.write_text("new")
    assert watched.refresh() == RELOADED
    assert watched.current == "new"


def test_many_files_take_turns_and_a_thorough_look_does_not(
    folder: Path, load: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "AT_ONCE", 2)
    for number in range(5):
        (folder / f"n{number}").write_text("x")
    watched = Watched(load)
    for name in ("a", "n4"):
        (folder / name).write_text("changed in place")
        outcomes = [watched.refresh() for _ in range(4)]
        assert [one.change for one in outcomes].count(Change.RELOADED) == 1
    (folder / "b").write_text("changed in place")
    assert watched.refresh(thorough=True) == RELOADED
    (folder / "new").write_text("seen at once")
    assert watched.refresh() == RELOADED


def test_a_look_opens_no_file(folder: Path, load: Texts, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(load)
    for name in ("read_bytes", "read_text", "open"):
        monkeypatch.delattr(Path, name)
    assert watched.refresh() == UNCHANGED


# What the node watches


@pytest.fixture
def pmodes(tmp_path: Path) -> Path:
    for name in ("pmodes", "keys"):
        (tmp_path / name).mkdir()
    for name in ("seller", "shipper"):
        pair = pki.issue(CA, name)
        (tmp_path / "keys" / f"{name}.pem").write_bytes(pki.pem_certificates(pair.certificate))
    (tmp_path / "pmodes" / "seller.yaml").write_text(PMODE.format(id="seller"))
    return tmp_path / "pmodes"


def test_a_new_pmode_is_taken_over(pmodes: Path) -> None:
    watched = watch_pmodes(pmodes, load_expectation)
    assert watched.refresh() == UNCHANGED
    (pmodes / "shipper.yaml").write_text(PMODE.format(id="shipper"))
    assert watched.refresh() == RELOADED
    assert {leg.pmode.id for leg in watched.current.pmodes.legs} == {"seller", "shipper"}


def test_a_renewed_certificate_of_a_pmode_is_taken_over(pmodes: Path) -> None:
    watched = watch_pmodes(pmodes, load_expectation)
    renewed = pki.issue(CA, "seller renewed").certificate
    (pmodes.parent / "keys" / "seller.pem").write_bytes(pki.pem_certificates(renewed))
    assert watched.refresh() == RELOADED
    assert watched.current.materials["seller", 1].pins == (renewed,)


def test_a_pmode_with_a_mistake_leaves_the_others_as_they_are(pmodes: Path) -> None:
    watched = watch_pmodes(pmodes, load_expectation)
    (pmodes / "seller.yaml").write_text(PMODE.format(id="seller").replace("party", "partei"))
    outcome = watched.refresh()
    assert outcome.change is Change.FAILED
    assert [problem.partition(":")[0] for problem in outcome.problems] == [
        str(pmodes / "seller.yaml")
    ] * len(outcome.problems)
    assert {leg.pmode.id for leg in watched.current.pmodes.legs} == {"seller"}
    assert watched.refresh() == UNCHANGED


def test_a_pmode_waits_for_the_certificate_that_comes_after_it(pmodes: Path) -> None:
    watched = watch_pmodes(pmodes, load_expectation)
    certificate = pmodes.parent / "keys" / "shipper.pem"
    content = certificate.read_bytes()
    certificate.unlink()
    (pmodes / "shipper.yaml").write_text(PMODE.format(id="shipper"))
    assert watched.refresh().change is Change.FAILED
    assert watched.refresh() == UNCHANGED
    certificate.write_bytes(content)
    assert watched.refresh() == RELOADED


def test_every_parameter_that_names_a_file_is_watched(pmodes: Path) -> None:
    (pmodes / "seller.yaml").write_text("""\
id: all
initiator: {party: urn:example:buyer}
responder: {party: urn:example:seller}
legs:
  - protocol:
      address: https://seller.example/msh
      security:
        protocol: TLS
        server: {certificate: a.pem, anchor_certificates: [b.pem]}
        client: {certificate: c.pem, anchor_certificates: [d.pem]}
    security:
      x509:
        sign: true
        signature: {certificate: e.pem, key: f.p12, pins: [g.pem], trust_anchors: [h.pem, i.pem]}
        encryption: {encrypt: true, certificate: j.pem, key: k.p12}
      send_receipt: {certificate: l.pem}
""")
    loads = []
    watched = watch_pmodes(pmodes, loads.append)
    for name in [*(f"{letter}.pem" for letter in "abcdeghijl"), "f.p12", "k.p12"]:
        # Beside the folder's listing, the file itself is looked at: only its content changes.
        (pmodes / name).write_text("first")
        assert watched.refresh() == RELOADED
        (pmodes / name).write_text("and then another")
        assert watched.refresh() == RELOADED, name
        (pmodes / name).unlink()
        assert watched.refresh() == RELOADED


def test_a_renewed_key_and_token_are_taken_over(tmp_path: Path) -> None:
    config = tmp_path / "postroad.yaml"
    config.write_text("node: a\nparty: urn:a:b\nkeys: {signing: k.p12}\napi: {token_file: t}\n")
    first, second = pki.issue(CA, "first"), pki.issue(CA, "second")
    (tmp_path / "k.p12").write_bytes(pki.p12(first))
    (tmp_path / "t").write_text("0123456789abcdef\n")
    watched = watch_keyring(load_config(config))
    (tmp_path / "k.p12").write_bytes(pki.p12(second))
    assert watched.refresh() == RELOADED
    assert watched.current.signing is not None
    assert watched.current.signing.certificate == second.certificate
    (tmp_path / "t").write_text("fedcba98765432100\n")
    assert watched.refresh() == RELOADED
    assert watched.current.api_token == "fedcba98765432100"
    (tmp_path / "k.p12").write_bytes(b"half of a sto")
    outcome = watched.refresh()
    assert outcome.change is Change.FAILED
    assert f"{config}:3: keys.signing: " in outcome.problems[0]
    assert watched.current.signing.certificate == second.certificate


def test_a_renewed_tls_certificate_is_taken_over(tmp_path: Path) -> None:
    config = tmp_path / "postroad.yaml"
    config.write_text("node: a\nparty: urn:a:b\nlisten: {tls: {certificate: tls.pem}}\n")
    first, second = pki.issue(CA, "first"), pki.issue(CA, "second")
    (tmp_path / "tls.pem").write_bytes(pki.pem(first))
    watched = watch_tls(load_config(config))
    (tmp_path / "tls.pem").write_bytes(pki.pem(second))
    age(tmp_path / "tls.pem")
    assert watched.refresh() == RELOADED
    [identity] = watched.current
    assert identity is not None
    assert identity.pair.certificate == second.certificate


def test_rules_with_an_error_leave_the_old_ones_in_force(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    routes = watch_routes(file)
    assert len(routes.current.table) == 0
    file.write_text("routes: [{id: a, to: {push: 'http://a.example/'}}]\n")
    age(file)
    assert routes.refresh() == RELOADED
    assert "a" in routes.current.table
    file.write_text("routes: [{id: b, to: {}}]\n")
    age(file)
    outcome = routes.refresh()
    assert outcome.change is Change.FAILED
    assert "routes[0].to: it leads nowhere" in outcome.problems[0]
    assert "a" in routes.current.table


def test_an_operator_is_told_what_is_not_in_force_and_what_expired(
    tmp_path: Path, pmodes: Path
) -> None:
    config = tmp_path / "postroad.yaml"
    config.write_text(
        "node: a\nparty: urn:a:b\nlisten: {serve: msh}\n"
        f"keys: {{signing: k.p12}}\npmodes: {pmodes}\n"
    )
    pair = pki.issue(CA, "signer")
    (tmp_path / "k.p12").write_bytes(pki.p12(pair))
    in_force = InForce(load_config(config), DEFAULT)
    ends = pair.certificate.not_valid_after_utc
    assert ends in [one.expires for one in in_force.certificates() if one.use == "signing"]
    assert in_force.standing(ends) == ()
    (pmodes / "wrong.yaml").write_text("id: [\n")
    age(pmodes / "wrong.yaml")
    assert not in_force.refresh().ok
    old, expired = in_force.standing(ends + timedelta(days=1))
    assert (
        old == "the P-Modes on disk are not in force, the old ones are; the log says what is wrong"
    )
    assert "CN=signer" in expired
    assert "expired on" in expired
