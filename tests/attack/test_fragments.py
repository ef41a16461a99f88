"""Fragments whose header or data nobody signed never reach their group."""

from collections.abc import Sequence

import pytest

from postroad.msh.capture import Capture
from postroad.msh.inspection import Look
from postroad.msh.joined import arrival_of
from postroad.msh.lens import Inspection, Lens
from postroad.msh.outbound import WirePart, wire_form
from postroad.msh.splitting import FRAGMENT_ID, Fragment
from postroad.security.algorithms import ECDSA_SHA256
from postroad.security.attachments import Attachment
from postroad.security.secure import secure
from postroad.security.sign import Block, Signing
from postroad.wire.content import BytesContent, read_all
from postroad.wire.limits import MIB
from tests.attack.messages import NOW, buyer, ca
from tests.unit.splits import captured, cut

MADE = cut(size=300)


def signed(
    piece: Fragment,
    *,
    blocks: Sequence[Block] | None = None,
    signed_data: Sequence[Attachment] | None = None,
    change: tuple[bytes, bytes] = (b"", b""),
    data: bytes | None = None,
) -> Capture:
    """A fragment that the rightful sender signed, and somebody changed afterwards."""
    secured = secure(
        MADE.splitting.version,
        piece.blocks if blocks is None else blocks,
        [piece.attachment] if signed_data is None else signed_data,
        signing=Signing(buyer(), ECDSA_SHA256),
    )
    content = read_all(piece.data, MIB) if data is None else data
    assert change[0] in secured.envelope
    form = wire_form(
        MADE.splitting.version,
        secured.envelope.replace(*change) if change[0] else secured.envelope,
        [WirePart(piece.data_id, "application/octet-stream", BytesContent(content))],
        "attack-boundary",
        root_id=piece.root_id,
    )
    return captured(form)


def looked(capture: Capture) -> Inspection:
    lens = Lens(NOW, trusted=(ca().certificate,), receiving=True)
    look = Look(capture, lens)
    assert look.read()
    look.judge(None)
    return look.found


def test_a_fragment_that_is_signed_as_it_should_be_holds() -> None:
    found = looked(signed(MADE.fragment(2)))
    assert found.holds, found.problems
    came = arrival_of(found)
    assert came is not None
    assert came.problems == ()
    assert found.trusted


@pytest.mark.parametrize(
    "change",
    [
        (b"<mf:FragmentNum>2<", b"<mf:FragmentNum>3<"),
        (b"<mf:GroupId>group-1<", b"<mf:GroupId>group-2<"),
        (b"<mf:GroupId>", b"<mf:FragmentCount>9</mf:FragmentCount><mf:GroupId>"),
        (b">buyer<", b">thief<"),
    ],
)
def test_a_header_that_was_changed_on_the_way_does_not_hold(change: tuple[bytes, bytes]) -> None:
    assert not looked(signed(MADE.fragment(2), change=change)).holds


def test_data_that_was_changed_on_the_way_does_not_hold() -> None:
    piece = MADE.fragment(2)
    octets = read_all(piece.data, MIB)
    for data in (octets[:-1], octets + b"x", bytes(len(octets))):
        found = looked(signed(piece, data=data))
        assert [problem.code for problem in found.problems] == ["EBMS:0101"]


def test_data_that_nobody_signed_does_not_hold() -> None:
    found = looked(signed(MADE.fragment(2), signed_data=()))
    assert "EBMS:0103" in [problem.code for problem in found.problems]
    assert not found.holds


def test_a_fragment_header_that_nobody_signed_does_not_hold() -> None:
    piece = MADE.fragment(2)
    blocks = [Block("", one.xml) if one.id == FRAGMENT_ID else one for one in piece.blocks]
    found = looked(signed(piece, blocks=blocks))
    assert not found.holds
    assert any("does not cover MessageFragment" in problem.detail for problem in found.problems)


def test_a_second_fragment_header_does_not_hold() -> None:
    other = next(one.xml for one in MADE.fragment(3).blocks if one.id == FRAGMENT_ID)
    other = other.replace(f' wsu:Id="{FRAGMENT_ID}"', "")
    piece = MADE.fragment(2)
    for blocks in ((Block("", other), *piece.blocks), (*piece.blocks, Block("", other))):
        found = looked(signed(piece, blocks=blocks))
        assert not found.holds
        assert arrival_of(found) is None


def test_another_signer_than_a_trusted_one_does_not_hold() -> None:
    lens = Lens(NOW, trusted=(), receiving=True)
    look = Look(signed(MADE.fragment(2)), lens)
    assert look.read()
    look.judge(None)
    assert not look.found.trusted
