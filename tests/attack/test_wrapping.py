"""Nothing forged is ever consumed, however the signed original is moved, copied or renamed."""

from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from lxml import etree

from postroad.msh.lens import Inspection
from postroad.node.evidence.inspecting import Tools, inspect_source
from postroad.node.settings.agreements import load_expectation
from postroad.wire.content import read_all
from postroad.wire.ebms3 import UserMessage
from postroad.wire.ebms3_reader import MESSAGING
from tests.attack import wrapping
from tests.attack.messages import BODY, NOW, TWO, Package, ca, make, write_pmode
from tests.attack.wrapping import Moved, Place, Signature, Target

_CHUNKS: Final = 12


@cache
def _message() -> Package:
    return make(TWO, body=BODY)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """A receiver whose P-Mode demands a signature."""
    path = write_pmode(tmp_path_factory.mktemp("pmode"))
    return Tools(trust=(ca().certificate,), at=NOW, expectation=load_expectation(Path(path)))


@pytest.fixture(scope="module")
def lax() -> Tools:
    """One who only looks, and demands nothing."""
    return Tools(trust=(ca().certificate,), at=NOW)


def _consumed(found: Inspection) -> Iterator[bytes]:
    """What a receiver works with once a message holds."""
    for unit in found.messaging.units if found.messaging else ():
        assert isinstance(unit, UserMessage)
        yield repr(unit).encode()
    if found.envelope is not None:
        yield etree.tostring(found.envelope.body)
    if found.timestamp is not None:
        yield etree.tostring(found.timestamp.element)
    for payloads in found.payloads.values():
        for payload in payloads:
            if payload.content is not None:
                yield read_all(payload.content, 1 << 20)


def _fooled(found: Inspection) -> str | None:
    """How the message fools its receiver, if it does."""
    if not found.holds:
        return None
    if wrapping.consumed_is_forged(list(_consumed(found))):
        return "it holds, and what is consumed is forged"
    check, envelope = found.verification, found.envelope
    if check is None or envelope is None or envelope.header is None:
        return None
    used = [envelope.header.find(MESSAGING), envelope.body]
    if found.timestamp is not None:
        used.append(found.timestamp.element)
    if not all(one is not None and check.covers(one) for one in used):
        return "it holds, and something that is consumed was never digested"
    if not all(check.covers_attachment(name) for name in found.attachments):
        return "it holds, and an attachment was never digested"
    return None


def _judge(message: Package, lax: Tools, strict: Tools) -> str | None:
    data = message.wire()
    seen = inspect_source(data, lax)
    if seen.holds and seen.verification is not None:
        told = _fooled(seen)
        if told is not None:
            return told
    return _fooled(inspect_source(data, strict)) if seen.holds else None


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_no_wrapping_of_a_signed_element_fools_the_receiver(
    chunk: int, lax: Tools, strict: Tools
) -> None:
    fooled, looked = [], 0
    for index in range(chunk, wrapping.n_variants(), _CHUNKS):
        how = wrapping.variant(index)
        looked += 1
        told = _judge(wrapping.wrap(_message(), how), lax, strict)
        if told is not None:
            fooled.append(f"{how}: {told}")
    assert not fooled, "\n".join(fooled[:20])
    assert looked * _CHUNKS > wrapping.n_variants() - _CHUNKS


def test_no_wrapping_of_a_signed_attachment_fools_the_receiver(lax: Tools, strict: Tools) -> None:
    fooled = []
    for index in range(wrapping.n_part_variants(_message())):
        name, message = wrapping.part_variant(_message(), index)
        told = _judge(message, lax, strict)
        if told is not None:
            fooled.append(f"{name}: {told}")
    assert not fooled, "\n".join(fooled[:20])


def test_an_expired_message_does_not_become_fresh_by_any_wrapping_of_its_timestamp(
    strict: Tools,
) -> None:
    late = Tools(
        trust=strict.trust, at=NOW + timedelta(days=1, minutes=1), expectation=strict.expectation
    )
    fresh = []
    for index in range(wrapping.n_variants()):
        how = wrapping.variant(index)
        if how.target is not Target.TIMESTAMP or how.signature is not Signature.KEPT:
            continue
        if inspect_source(wrapping.wrap(_message(), how).wire(), late).holds:
            fresh.append(str(how))
    assert not fresh, "\n".join(fresh[:20])


def test_the_variants_can_be_counted_and_each_is_another_message() -> None:
    assert wrapping.n_variants() > 10_000
    assert wrapping.n_part_variants(_message()) > 400
    sample = range(0, wrapping.n_variants(), 97)
    made = {wrapping.wrap(_message(), wrapping.variant(index)).envelope for index in sample}
    assert len(made) > len(sample) * 0.9
    with pytest.raises(IndexError):
        wrapping.variant(wrapping.n_variants())


@pytest.mark.parametrize("name", wrapping.XSW)
def test_each_named_class_of_signature_wrapping_is_refused(name: str, lax: Tools) -> None:
    how = wrapping.named(name)
    assert how.known_as == name
    found = inspect_source(wrapping.wrap(_message(), how).wire(), lax)
    assert not found.holds
    assert {problem.code for problem in found.problems} & {"EBMS:0009", "EBMS:0101", "EBMS:0103"}


def test_the_message_that_is_wrapped_holds_as_it_is_and_when_written_anew(
    lax: Tools, strict: Tools
) -> None:
    again = etree.tostring(etree.fromstring(_message().envelope))
    for envelope in (_message().envelope, again):
        data = Package(envelope, _message().parts).wire()
        for tools in (lax, strict):
            found = inspect_source(data, tools)
            assert found.holds, found.problems
            assert found.verification is not None


def test_a_wrapping_that_leaves_only_the_original_still_holds(lax: Tools) -> None:
    """The generator attacks what it says: with the forged one gone, nothing is wrong."""
    for index in range(wrapping.n_variants()):
        how = wrapping.variant(index)
        if (how.moved, how.place, how.signature) == (
            Moved.FORGED,
            Place.REMOVED,
            Signature.KEPT,
        ):
            assert inspect_source(wrapping.wrap(_message(), how).wire(), lax).holds, str(how)


def test_a_careless_receiver_is_fooled(monkeypatch: pytest.MonkeyPatch, lax: Tools) -> None:
    """The attacks are real: without the defences the named classes get through."""
    monkeypatch.setattr("postroad.msh.protection.missing_coverage", lambda *_: [])
    monkeypatch.setattr(
        "postroad.msh.inspection.find_messaging",
        lambda envelope: envelope.header.find(MESSAGING),
    )
    monkeypatch.setattr("postroad.security.verify._misplaced", lambda _: False)
    monkeypatch.setattr(
        "postroad.security.ids.Ids.one",
        lambda self, id, *, code="": self._found[id][-1],
    )
    for name in ("XSW2", "XSW3", "XSW5"):
        attack = wrapping.wrap(_message(), wrapping.named(name))
        assert _fooled(inspect_source(attack.wire(), lax)) is not None, name
