"""Evidence about ebXML messages: what acknowledgments prove, and that forged ones prove nothing."""

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

import postroad
from postroad.cli.main import app
from postroad.msh.ebxml_answers import error_answer
from postroad.msh.ebxml_evidence import judge_ebxml
from postroad.msh.ebxml_services import answering, write_message
from postroad.msh.evidence import Given, GivenSignal
from postroad.msh.lens import Lens
from postroad.msh.proof import NOT_SIGNED, Proof, Prover, trust_in
from postroad.node.evidence.check import worth_facts
from postroad.security.algorithms import ECDSA_SHA256
from postroad.security.keys import load_certificates
from postroad.security.sign import Signing
from postroad.store.records import Side, State
from postroad.wire.ebms3 import Party, PartyId, Service
from postroad.wire.ebxml import ACKNOWLEDGMENT, MS098, Acknowledgment, EbxmlMessage, MessageHeader
from postroad.wire.errors import EbmsError
from tests import pki
from tests.node.evidence.zips import Files, codes, listed, unzipped, zipped
from tests.node.reliable import (
    BUYER,
    CARRIER,
    ORDER,
    SELLER,
    Posted,
    Station,
    World,
    passed,
    played,
)
from tests.node.test_ebxml_exchange import RELIABLY
from tests.node.test_ebxml_relays import agree, started

Json = dict[str, Any]
VERSIONS: Final = ("0.98b", "1.0", "2.0")
SIGNED: Final = RELIABLY | {"ack_requested": "Signed", "sync_reply": "mshSignalsOnly"}
PROVES: Final = {"0.98b": "message_id", "1.0": "message", "2.0": "message"}
ENVELOPE, PART = "message/envelope.xml", "message/parts/1"
ACK: Final = "signals/1-acknowledgment.xml"
ANOTHER: Final = b"<order>pencils</order>"


@dataclass
class Made:
    """Evidence of both sides, by station and message."""

    folder: Path
    zips: dict[tuple[str, str], bytes] = field(default_factory=dict)

    @property
    def authority(self) -> Path:
        return self.folder / BUYER / "keys" / "authority.pem"

    def files(self, name: str, station: str = BUYER) -> Files:
        return unzipped(self.zips[station, name])

    def facts(self, name: str, station: str = BUYER) -> Json:
        return self.judged(self.zips[station, name])

    def judged(self, data: bytes) -> Json:
        return postroad.inspect(data, trust=self.authority)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = Made(tmp_path_factory.mktemp("parties"))

    @played
    async def exchange(world: World) -> None:
        for version in VERSIONS:
            world.speak(version, version=version, signed=True, **SIGNED)
            terms = SIGNED | {"sync_reply": "signalsAndResponse"}
            world.speak(f"asks-{version}", version=version, signed=True, **terms)
            world.speak(f"answers-{version}", frm=SELLER, to=BUYER, version=version, signed=True)
        unsigned = SIGNED | {"ack_requested": "UnSigned"}
        world.speak("half", version="0.98b", signed=True, **unsigned)
        world.speak("plain", version="2.0", **unsigned)
        world.speak("linked", version="0.98b", profile="rm001", **RELIABLY)
        buyer, seller = await world.both()
        for version in VERSIONS:
            for number in (1, 2):
                await carried(made, world, f"{version}-{number}", version)
            asks = f"asks-{version}"
            await buyer.send(named(asks), asks)
            await world.wait(1)
            await seller.answer(named(f"yes-{version}"), f"answers-{version}", to=named(asks))
            await world.wait(1)
            await kept(made, buyer, asks)
            await kept(made, seller, asks)
        await carried(made, world, "half", "half")
        await carried(made, world, "plain", "plain")
        await carried(made, world, "linked", "linked")
        world.wire.will(damaged)
        # Damaged, it proves nothing to the seller, who keeps only its beginning.
        await world.stations[BUYER].send(named("refused"), "2.0", ORDER)
        await world.wait(1)
        await kept(made, world.stations[BUYER], "refused")
        with world.elsewhere():
            await world.both()
            for version in VERSIONS:
                await carried(made, world, f"{version}-1", version, "twin ", ANOTHER)

    exchange(tmp_path=made.folder)
    return made


def named(name: str) -> str:
    return f"{name}@buyer.example"


async def carried(
    made: Made, world: World, name: str, pmode: str, prefix: str = "", payload: bytes = ORDER
) -> None:
    """One message there, its acknowledgment back, and the evidence of both sides."""
    await world.stations[BUYER].send(named(name), pmode, payload)
    await world.wait(1)
    for station in (BUYER, SELLER):
        await kept(made, world.stations[station], name, prefix)


async def kept(made: Made, station: Station, name: str, prefix: str = "") -> None:
    pieces = await station.node.evidence(named(name))
    made.zips[station.name, prefix + name] = b"".join(pieces)


async def damaged(world: World, posted: Posted) -> Any:
    """The network changes the payload."""
    body = posted.body.replace(ORDER, ANOTHER[: len(ORDER)])
    return await passed(world, dataclasses.replace(posted, body=body))


def sentences(facts: Json) -> str:
    return " ".join(one["detail"] for one in facts["errors"] if one["severity"] == "failure")


@pytest.mark.parametrize("station", [BUYER, SELLER])
@pytest.mark.parametrize("version", VERSIONS)
def test_evidence_of_a_signed_message_holds_on_both_sides(
    made: Made, version: str, station: str
) -> None:
    facts = made.facts(f"{version}-1", station)
    assert facts["errors"] == []
    assert (facts["holds"], facts["signed"], facts["trusted"]) == (True, True, True)
    assert facts["message"]["ebxml"]["version"] == version
    (proof,) = facts["receipts"]
    assert proof["file"] == ACK
    assert proof["signature"]["signer"].startswith("CN=seller")
    assert proof["proves"] == PROVES[version]
    assert (facts["hops"], facts["error_signals"]) == ([], [])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_verdict_says_whether_the_digests_are_repeated(made: Made, version: str) -> None:
    verdict = json.loads(made.files(f"{version}-1")["verdict.json"])
    assert (verdict["holds"], verdict["trusted"], verdict["errors"]) == (True, True, [])
    (proof,) = verdict["receipts"]
    equal = [one["equal"] for one in proof["digests"]]
    if version == "0.98b":
        assert equal == []
        assert "named by RefToMessageId: it does not repeat the digests" in proof["worth"]
    else:
        assert equal == [True, True]
        assert "exactly this message" in proof["worth"]


@pytest.mark.parametrize("version", VERSIONS)
def test_both_sides_have_the_same_bytes_of_payload_and_acknowledgment(
    made: Made, version: str
) -> None:
    ours, theirs = (made.files(f"{version}-1", one) for one in (BUYER, SELLER))
    for name in (PART, ACK, "certificates/1-acknowledgment.pem"):
        assert ours[name] == theirs[name]
    assert ours[PART] == ORDER
    assert "signals/N-KIND.xml" in ours["README.txt"].decode()


def changed(name: str, old: bytes, new: bytes) -> Callable[[Files, Files], Files]:
    def change(files: Files, other: Files) -> Files:
        assert old in files[name], name
        return listed({**files, name: files[name].replace(old, new, 1)})

    return change


def swapped(files: Files, other: Files) -> Files:
    return listed({**files, ACK: other[ACK]})


def removed(files: Files, other: Files) -> Files:
    rest = {name: data for name, data in files.items() if "acknowledgment" not in name}
    return listed(rest, signals=[])


def unsigned(files: Files, other: Files) -> Files:
    data = files[ACK]
    begin = data.index(b"<ds:Signature ")
    end = data.index(b"</ds:Signature>") + len(b"</ds:Signature>")
    return listed({**files, ACK: data[:begin] + data[end:]})


def unsaid(files: Files, other: Files) -> Files:
    """Who signed the acknowledgment is nowhere told."""
    data = files[ACK]
    begin = data.index(b"<ds:KeyInfo")
    end = data.index(b"</ds:KeyInfo>") + len(b"</ds:KeyInfo>")
    rest = {name: data for name, data in files.items() if not name.endswith(".pem")}
    return listed({**rest, ACK: data[:begin] + data[end:]})


FORGED: Final[dict[str, tuple[Callable[[Files, Files], Files], str]]] = {
    "message": (
        changed(ENVELOPE, b"urn:example:trade", b"urn:example:tradf"),
        "the signed part the whole document does not hold",
    ),
    "payload": (changed(PART, b"paper", b"papes"), "@buyer does not hold: its content was changed"),
    "acknowledgment": (
        changed(ACK, b"urn:example:buyer", b"urn:example:buyes"),
        "its content was changed",
    ),
    "value of a signature": (changed(ACK, b"<ds:SignatureValue>", b"<ds:SignatureValue>AAAA"), ""),
    "acknowledgment of another": (swapped, "-2@buyer.example', not to the message that was sent"),
    "no acknowledgment": (removed, "there is no acknowledgment of the receiver here"),
    "no signature": (unsigned, "the message is signed and its acknowledgment is not"),
    "message that is not signed": (
        changed(ENVELOPE, b'"http://www.w3.org/2000/09/xmldsig#"', b'"urn:example:other"'),
        "",
    ),
    "no signer": (unsaid, "certificate"),
}


@pytest.mark.parametrize("station", [BUYER, SELLER])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("what", FORGED)
def test_forged_evidence_does_not_hold_and_says_why(
    made: Made, what: str, version: str, station: str
) -> None:
    forge, said = FORGED[what]
    files, other = (made.files(f"{version}-{number}", station) for number in (1, 2))
    facts = made.judged(zipped(forge(files, other)))
    if what == "no acknowledgment" and station == SELLER:
        assert codes(facts, "warning") == ["EBMS:0301"]
        return
    assert facts["holds"] is False
    assert said in sentences(facts)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_acknowledgment_of_other_content_under_the_same_id_is_told_where_digests_are_repeated(
    made: Made, version: str
) -> None:
    """The sender signs two messages of one id, and shows the acknowledgment of the other one."""
    files, twin = made.files(f"{version}-1"), made.files(f"twin {version}-1")
    facts = made.judged(zipped(swapped(files, twin)))
    assert facts["message"]["holds"] is True
    assert facts["receipts"][0]["signature"]["valid"] is True
    if version == "0.98b":
        assert facts["holds"] is True
        assert "does not repeat the digests" in facts["receipts"][0]["worth"]
    else:
        assert "the digests in the acknowledgment are not those" in sentences(facts)


def test_without_trust_nobody_is_trusted(made: Made) -> None:
    facts = postroad.inspect(made.zips[BUYER, "2.0-1"])
    assert (facts["holds"], facts["trusted"]) == (True, None)
    shown = {one["file"]: one["subject"] for one in facts["certificates"]}
    assert shown["certificates/1-acknowledgment.pem"].startswith("CN=seller")


@pytest.mark.parametrize("version", VERSIONS)
def test_trusting_the_sender_alone_does_not_vouch_for_the_acknowledgment(
    made: Made, version: str
) -> None:
    buyer = made.folder / BUYER / "keys" / "buyer.pem"
    facts = postroad.inspect(made.zips[BUYER, f"{version}-1"], trust=buyer)
    assert facts["message"]["signature"]["trusted"] is True
    assert facts["receipts"][0]["signature"]["trusted"] is False
    assert facts["receipts"][0]["proves"] is None
    assert facts["holds"] is False


@pytest.mark.parametrize("station", [BUYER, SELLER])
def test_an_unsigned_acknowledgment_of_a_signed_message_proves_nothing(
    made: Made, station: str
) -> None:
    facts = made.facts("half", station)
    assert facts["holds"] is False
    assert "its acknowledgment is not" in sentences(facts)
    (shown,) = facts["receipts"]
    assert (shown["proves"], shown["believed"]) == (None, True)
    assert shown["worth"] == "nothing to a third party: it is not signed"


def test_where_nothing_is_signed_evidence_shows_only_what_fits_together(made: Made) -> None:
    facts = made.facts("plain")
    assert (facts["holds"], facts["signed"], facts["trusted"]) == (True, False, None)
    assert codes(facts, "warning") == ["EBMS:0103"]
    assert facts["receipts"][0]["proves"] is None
    swap = swapped(made.files("plain"), made.files("2.0-1"))
    assert made.judged(zipped(swap))["holds"] is False


def test_over_a_link_of_draft_001_the_receiver_acknowledges_by_its_address(made: Made) -> None:
    """No element names the To Party: the node knows whether a station is on the way."""
    for station in (BUYER, SELLER):
        facts = made.facts("linked", station)
        assert (facts["holds"], len(facts["receipts"]), facts["hops"]) == (True, 1, []), station
    assert proof(made, "linked") == Proof(None, None, None, None, None, NOT_SIGNED)
    files = made.files("linked")
    files["signals/1-hop.xml"] = files.pop(ACK)
    files["evidence.json"] = files["evidence.json"].replace(b"1-acknowledgment", b"1-hop")
    files["evidence.json"] = files["evidence.json"].replace(b'"acknowledgment"', b'"hop"')
    facts = made.judged(zipped(files))
    assert (facts["holds"], facts["receipts"], len(facts["hops"])) == (False, [], 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_acknowledgment_that_rides_on_the_answer_counts(made: Made, version: str) -> None:
    for station, name in ((BUYER, ACK), (SELLER, "signals/1-response.xml")):
        facts = made.facts(f"asks-{version}", station)
        first = facts["receipts"][0]
        assert (facts["holds"], facts["trusted"]) == (True, True)
        assert (first["file"], first["kind"]) == (name, "ebxml_message")
        assert first["proves"] == PROVES[version]
        assert b"<?xml" in made.files(f"asks-{version}", station)[name][:10]


def test_an_answer_that_was_changed_acknowledges_nothing(made: Made) -> None:
    name = "signals/1-response.xml"
    forge = changed(name, b"urn:example:trade", b"urn:example:tradf")
    facts = made.judged(zipped(forge(made.files("asks-2.0", SELLER), {})))
    assert facts["holds"] is False
    assert facts["receipts"][0]["proves"] is None
    assert "the whole document does not hold" in sentences(facts)


def proof(
    made: Made,
    name: str,
    *,
    ack: Callable[[bytes], bytes] = lambda data: data,
    message: Callable[[bytes], bytes] = lambda data: data,
    trusted: str = "authority",
    of: str | None = None,
) -> Proof:
    """What `postroad pipeline verify` says of the acknowledgment of a message."""
    files = made.files(name)
    signals = [one for one in files if one.startswith("signals/")]
    data = files[signals[-1]]
    signal_id = re.search(rb"<eb:MessageId>([^<]+)", data)
    assert signal_id is not None
    keys = (made.folder / BUYER / "keys" / f"{trusted}.pem").read_bytes()
    told = json.loads(files["evidence.json"])
    at = int(datetime.fromisoformat(told["made_at"]).timestamp() * 1e6)
    prover = Prover(trust_in(load_certificates(keys)))
    return prover.prove(
        ack(data), message(files[ENVELOPE]), of or named(name), signal_id[1].decode(), at
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_in_bulk_an_acknowledgment_is_worth_what_it_repeats(made: Made, version: str) -> None:
    for name in (f"{version}-1", f"asks-{version}"):
        found = proof(made, name)
        assert (found.signature, found.chain) == (True, True), found
        assert found.signer is not None
        assert found.signer.startswith("CN=seller")
        if PROVES[version] == "message":
            assert (found.valid, found.digests, found.detail) == (True, True, None)
        else:
            assert (found.valid, found.digests) == (None, None)
            assert found.detail is not None
            assert "does not repeat the digests" in found.detail


def test_in_bulk_what_does_not_hold_is_told_apart(made: Made) -> None:
    twin = made.files("twin 2.0-1")
    cases = {
        "changed": proof(made, "2.0-1", ack=lambda data: data.replace(b"seller", b"sellar")),
        "other content": proof(made, "2.0-1", message=lambda _: twin[ENVELOPE]),
        "other message": proof(made, "2.0-1", message=lambda _: made.files("2.0-2")[ENVELOPE]),
        "other name": proof(made, "2.0-1", of=named("2.0-2")),
        "unknown signer": proof(made, "2.0-1", trusted="buyer"),
        "unsigned": proof(made, "half"),
    }
    assert {name: one.valid for name, one in cases.items()} == dict.fromkeys(cases, False)
    assert {name: one.digests for name, one in cases.items()} == {
        "changed": False,
        "other content": False,
        "other message": False,
        "other name": False,
        "unknown signer": True,
        "unsigned": False,
    }
    assert (cases["unknown signer"].signature, cases["unknown signer"].chain) == (True, False)
    plain = proof(made, "plain")
    assert (plain.valid, plain.signature, plain.detail) == (None, None, NOT_SIGNED)


def test_a_refusal_is_in_the_evidence_with_its_error(made: Made) -> None:
    facts = made.facts("refused")
    assert (facts["holds"], facts["state"]) == (True, "failed")
    assert codes(facts, "warning") == ["EBMS:0301"]
    (told,) = facts["error_signals"]
    assert told["file"] == "signals/1-error.xml"
    assert told["ebxml"]["error_list"]["errors"][0]["code"] == "SecurityFailure"


def test_the_command_says_what_each_acknowledgment_proves(made: Made, tmp_path: Path) -> None:
    for name, said in (
        ("2.0-1", "proves: that the receiver has exactly this message"),
        ("0.98b-1", "proves: that the receiver has the message named by RefToMessageId"),
    ):
        file = tmp_path / "evidence.zip"
        file.write_bytes(made.zips[BUYER, name])
        shown = CliRunner().invoke(app, ["inspect", str(file), "--trust", str(made.authority)])
        assert shown.exit_code == 0
        assert "signed message, 1 signed acknowledgment  all who signed are trusted" in shown.output
        assert said in shown.output


async def relayed(world: World) -> dict[str, Files]:
    """The evidence of who sent a message and of who carried it; nothing is signed."""
    agree(world)
    buyer, carrier, _ = await started(world)
    await buyer.send(named("far"))
    await world.wait(2)
    assert await buyer.state(named("far")) is State.ACKNOWLEDGED
    made = {BUYER: await buyer.node.evidence(named("far"))}
    made[CARRIER] = await carrier.node.evidence(named("far"), Side.FORWARDING)
    return {name: unzipped(b"".join(pieces)) for name, pieces in made.items()}


def only(files: Files, kept: str, name: str) -> Files:
    """The evidence with but one of its signals, under another name."""
    signals = json.loads(files["evidence.json"])["signals"]
    signal = next(one for one in signals if one["file"] == kept)
    rest = {one: data for one, data in files.items() if not one.startswith("signals/")}
    kind = name.removeprefix("signals/1-").removesuffix(".xml")
    return listed({**rest, name: files[kept]}, signals=[{**signal, "file": name, "kind": kind}])


@played
async def test_a_hop_acknowledgment_shows_nothing_of_the_receiver(world: World) -> None:
    files = (await relayed(world))[BUYER]
    facts = postroad.inspect(zipped(files))
    assert facts["holds"] is True
    assert [one["file"] for one in facts["hops"]] == ["signals/1-hop.xml"]
    assert [one["file"] for one in facts["receipts"]] == ["signals/2-acknowledgment.xml"]
    for name in ("signals/1-hop.xml", ACK):
        alone = postroad.inspect(zipped(only(files, "signals/1-hop.xml", name)))
        assert sentences(alone).startswith("there is no acknowledgment of the receiver here")


@played
async def test_who_carried_a_message_shows_that_the_next_station_has_it(world: World) -> None:
    files = (await relayed(world))[CARRIER]
    assert postroad.inspect(zipped(files))["side"] == "forwarding"
    assert postroad.inspect(zipped(files))["holds"] is True
    further = changed("signals/2-hop.xml", b"urn:example:seller", b"http://next.example/msh")
    facts = postroad.inspect(zipped(further(files, {})))
    assert (facts["holds"], facts["receipts"], len(facts["hops"])) == (True, [], 2)
    own = postroad.inspect(zipped(only(files, ACK, ACK)))
    assert "who took the message over" in sentences(own)


NOW: Final = datetime(2026, 6, 1, 12, tzinfo=UTC)
CA: Final = pki.authority("Test CA")
LENS: Final = Lens(at=NOW, trusted=(CA.certificate,))


def signing(name: str) -> Signing:
    return Signing(pki.issue(CA, name), ECDSA_SHA256)


def the_party(name: str) -> Party:
    return Party((PartyId(name),), "")


SENT: Final = EbxmlMessage(
    dialect=MS098,
    header=MessageHeader(
        from_party=the_party("urn:example:alice"),
        to_party=the_party("urn:example:bob"),
        cpa_id="urn:example:cpa",
        conversation_id="c",
        service=Service("urn:example:trade"),
        action="order",
        message_id="m@alice.example",
        timestamp=NOW,
    ),
)


def said(answer: bytes, kind: str = "acknowledgment") -> Json:
    """What is found about a signed message and one thing that was said about it."""
    signal = GivenSignal(f"signals/1-{kind}.xml", kind, answer)
    message = write_message(SENT, "message", signing("alice")).envelope
    return worth_facts(judge_ebxml(Given(message, (), (signal,)), LENS))


def acknowledgment(by: str, signer: str) -> bytes:
    header = answering(SENT, ACKNOWLEDGMENT, message_id="a@bob.example", now=NOW)
    message = EbxmlMessage(
        dialect=MS098,
        header=replace(header, from_party=the_party(by)),
        acknowledgment=Acknowledgment(timestamp=NOW, signed=True),
    )
    return write_message(message, "acknowledgment", signing(signer)).envelope


def test_the_acknowledgment_of_the_receiver_proves_receipt() -> None:
    facts = said(acknowledgment("urn:example:bob", "bob"))
    assert (facts["holds"], facts["trusted"]) == (True, True)
    assert facts["receipts"][0]["proves"] == "message_id"


@pytest.mark.parametrize("kind", ["hop", "acknowledgment"])
def test_the_signed_acknowledgment_of_a_station_proves_that_it_took_the_message_over(
    kind: str,
) -> None:
    facts = said(acknowledgment("http://carrier.example/msh", "carrier"), kind)
    assert (facts["holds"], facts["receipts"]) == (True, [])
    assert facts["hops"][0]["proves"] == "station"
    assert "nothing of the receiver" in facts["hops"][0]["worth"]


def test_an_acknowledgment_signed_with_the_senders_key_proves_nothing() -> None:
    facts = said(acknowledgment("urn:example:bob", "alice"))
    assert facts["holds"] is False
    assert facts["receipts"][0]["proves"] is None
    assert "with the key of who sent the message" in sentences(facts)


def test_an_error_is_no_acknowledgment_and_an_acknowledgment_no_error() -> None:
    wrong = EbmsError("Inconsistent", "not so")
    error = error_answer(
        [wrong], MS098, about=SENT, message_id="e@bob.example", now=NOW, signing=signing("bob")
    )
    assert error is not None
    assert "it holds no acknowledgment about m@alice.example" in sentences(said(error.envelope))
    assert said(error.envelope, "error")["holds"] is True
    good = acknowledgment("urn:example:bob", "bob")
    assert "it holds no error about m@alice.example" in sentences(said(good, "error"))
