"""No ebXML message makes a node stumble, whatever is left out of it, doubled or falsified in it."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from lxml import etree

from tests.node.ebxml_letters import (
    CPA,
    RELIABLY,
    SERVICES,
    M,
    acknowledgment,
    acknowledgment_20,
    block,
    envelope,
    error,
    header,
    listening,
    order,
    packed,
    reliable_terms,
    via,
)
from tests.node.reliable import BUYER, CARRIER, SELLER, Station, World, party, played, status

NUMBER = '<eb:SequenceNumber eb:status="Reset">0</eb:SequenceNumber>'


def letters(version: str) -> Iterator[tuple[str, str]]:
    """For whom, and a letter of each kind."""
    newer = version == "2.0"
    inside = "<eb:DuplicateElimination/>" if newer else RELIABLY + NUMBER
    hop = via(' eb:ackRequested="UnSigned" eb:syncReply="0"', f"<eb:CPAId>{CPA}</eb:CPAId>")
    asked = block("AckRequested", "", "2.0", ' eb:signed="false"') if newer else hop
    yield SELLER, order(version, asked, inside=inside, live="2024-06-02T12:00:00Z")
    own = {"service": SERVICES[version], "ref": M}
    wanted = f"<eb:RefToMessageId>{M}</eb:RefToMessageId>"
    request = f'<eb:StatusRequest eb:version="2.0">{wanted}</eb:StatusRequest>' if newer else ""
    yield SELLER, order(version, action="StatusRequest", body=request, **own)
    yield SELLER, order(version, action="Ping", body="", service=SERVICES[version])
    back = {"frm": party(SELLER), "to": party(BUYER), "id": "e@seller.example"} | own
    said = header(version, action="MessageError", **back)
    yield BUYER, envelope(said, error(version=version), version=version)
    said = header(version, action="Acknowledgment", **back)
    if newer:
        yield BUYER, envelope(said, acknowledgment_20(M), version=version)
    else:
        yield BUYER, envelope(said, body=acknowledgment(), version=version)


def spoilt(letter: str) -> Iterator[tuple[str, str]]:
    """What was done to it, and the letter: each element and each attribute, one after another."""
    tree = etree.fromstring(letter.encode())
    for number, element in enumerate(tree.iter()):
        name = etree.QName(element).localname
        for how in ("dropped", "emptied", "doubled", "renamed") if number else ():
            copy, changed = _copy(tree, number)
            if how == "dropped":
                changed.getparent().remove(changed)
            elif how == "emptied":
                changed[:] = ()
                changed.text = None
            elif how == "doubled":
                changed.addnext(deepcopy(changed))
            else:
                changed.tag += "s"
            yield f"{name} {how}", etree.tostring(copy).decode()
        for attribute in element.attrib:
            for value in (None, "not this"):
                copy, changed = _copy(tree, number)
                if value is None:
                    del changed.attrib[attribute]
                else:
                    changed.set(attribute, value)
                yield f"{name}/@{attribute} {value}", etree.tostring(copy).decode()


def _copy(tree: Any, number: int) -> tuple[Any, Any]:
    copy = deepcopy(tree)
    return copy, list(copy.iter())[number]


async def stations(world: World, version: str, role: str) -> dict[str, Station]:
    """Who gets what is for buyer and seller."""
    terms = reliable_terms(version)
    if role == "relay":
        world.speak("there", at=(CARRIER,), relay=True, **terms)
        world.speak("back", at=(CARRIER,), frm=SELLER, to=BUYER, relay=True, **terms)
        world.wire.usual[CARRIER] = status(204)
        carrier = await listening(world, CARRIER)
        return {BUYER: carrier, SELLER: carrier}
    world.speak(profile="rm001" if role == "link" else "ms098", **terms)
    found = {name: await listening(world, name) for name in (BUYER, SELLER)}
    await found[BUYER].send(M)
    await world.wait(1)
    return found


@pytest.mark.parametrize(
    ("version", "role"),
    [("0.98b", "end"), ("0.98b", "relay"), ("0.98b", "link"), ("2.0", "end"), ("2.0", "relay")],
)
@played
async def test_whatever_is_wrong_with_a_letter_is_answered_or_noted(
    world: World, version: str, role: str
) -> None:
    """A message that is not understood is never taken in silence."""
    at = await stations(world, version, role)
    stumbled, unheard = [], []
    for kind, (name, letter) in enumerate(letters(version)):
        for number, (what, wrong) in enumerate(spoilt(letter)):
            own = f"{number}@buyer.example"
            wrong = wrong if kind else wrong.replace(M, own)
            before = len(world.wire.posted)
            try:
                response = await at[name].receive(*packed(wrong), '"ebXML"')
            except Exception as error:
                stumbled.append((kind, what, repr(error)))
                continue
            await world.wait(0.01)
            silent = len(world.wire.posted) == before and not response.body
            if silent and not kind and not await at[name].story(own):
                unheard.append(what)
    assert stumbled == []
    assert unheard == []
