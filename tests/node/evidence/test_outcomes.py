"""Evidence of messages on their way, refused, doubted, or large."""

import json
import shutil
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

import postroad
from postroad.node.evidence.making import evidence_zip
from postroad.node.service import Refused
from postroad.store.memory import open_memory
from postroad.store.records import State, Stored
from tests.changing import replace
from tests.node.evidence.zips import PAYLOADS, PICTURE, codes, flipped, listed, unzipped, zipped
from tests.node.exchange import BUYER, SELLER, Exchange, run


def test_a_message_on_its_way_has_evidence_without_a_receipt(folder: Path) -> None:
    async def scenario() -> bytes:
        exchange = Exchange(folder, {BUYER: await open_memory(node=BUYER)})
        await exchange.send("waiting@buyer.example", *PAYLOADS)
        return b"".join(await exchange.evidence(BUYER, "waiting@buyer.example"))

    facts = postroad.inspect(run(scenario()))
    assert facts["holds"] is True
    assert facts["receipts"] == []
    assert codes(facts, "warning") == ["EBMS:0301"]


def test_a_refusal_is_in_the_evidence_with_its_error(folder: Path) -> None:
    async def scenario() -> tuple[bytes, State | None]:
        stores = {name: await open_memory(node=name) for name in (BUYER, SELLER)}
        exchange = Exchange(folder, stores)
        message = await exchange.send("refused@buyer.example", *PAYLOADS, kind="signed")
        content = message.parts[2].stored.place
        stores[BUYER]._tables.contents[content] = flipped(PICTURE)
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
    other = unzipped(run(scenario(*PAYLOADS[:2], ("image/png", flipped(PICTURE)))))
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
