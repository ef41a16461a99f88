"""An upload that breaks off goes on where it ended, and is delivered once (Part 2, 6.4.3)."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroad.store.records import State
from postroad.transport import http_restart
from tests.node.uploads import ENCRYPTED, PAYLOAD, M, Parties, make, parties
from tests.transport.lines import Cut
from tests.transport.wires import LOOPS, in_loop

HEADS = 2048
"""More than the head of a request takes."""
LAG = 512 * 1024
"""More than a server has not read yet when a line is cut: that is lost, and sent again."""
WIRE = len(PAYLOAD) + 8 * 1024
"""More than all of the message takes."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("made"))


@pytest.fixture(autouse=True, scope="module")
def impatient() -> Iterator[None]:
    """No test waits long before it goes on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_restart, "_FIRST_PAUSE", 0.001)
        yield


Standing = tuple[asyncio.Runner, Parties, Iterator[int]]


@pytest.fixture(scope="module")
def standing(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Nodes that stay for all examples."""
    with asyncio.Runner(loop_factory=LOOPS["uvloop"]) as runner:
        standing = parties(made, tmp_path_factory.mktemp("standing"))
        both = runner.run(standing.__aenter__())
        yield runner, both, itertools.count()
        runner.run(standing.__aexit__(None, None, None))


async def arrived(both: Parties) -> None:
    assert await both.delivered() == [M]
    assert await both.payload() == PAYLOAD


def brought(both: Parties) -> int:
    """Bytes that went to the seller in posts."""
    posts = zip(both.line.methods, both.line.sent, strict=True)
    return sum(size for method, size in posts if method == "POST")


@pytest.mark.req("P2-6.4.3-02")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
@in_loop
async def test_a_broken_upload_goes_on_where_it_ended(
    made: Path, tmp_path: Path, store: str
) -> None:
    cuts = [Cut(up=400_000), None, Cut(up=900_000)]
    async with parties(made, tmp_path, cuts, store=store) as both:
        sent = await both.send()
        assert sent.state is State.ACKNOWLEDGED
        assert sent.attempts == 1
        assert both.line.methods == ["POST", "HEAD", "POST", "HEAD", "POST"]
        assert brought(both) < WIRE + 2 * LAG
        await arrived(both)
        held = await both.seller.context.store.look(lambda reader: reader.held())
        assert held.transfers == 0


@in_loop
async def test_what_is_encrypted_goes_on_with_the_same_bytes(made: Path, tmp_path: Path) -> None:
    async with parties(made, tmp_path, [Cut(up=700_000)], pmode=ENCRYPTED) as both:
        sent = await both.send(pmode=ENCRYPTED)
        assert (sent.state, sent.attempts) == (State.ACKNOWLEDGED, 1)
        assert brought(both) < WIRE + LAG
        await arrived(both)


@in_loop
async def test_an_answer_that_was_lost_is_given_again_without_the_message(
    made: Path, tmp_path: Path
) -> None:
    async with parties(made, tmp_path, [Cut(down=0)]) as both:
        sent = await both.send()
        assert (sent.state, sent.attempts) == (State.ACKNOWLEDGED, 1)
        assert both.line.methods == ["POST", "HEAD", "POST"]
        assert both.line.sent[2] < HEADS
        await arrived(both)
        told = [one.event.event for one in await both.seller.events(M)]
        assert "duplicate" not in told


@in_loop
async def test_a_line_that_died_silently_is_given_up_by_who_asks(
    made: Path, tmp_path: Path
) -> None:
    async with parties(made, tmp_path, [Cut(up=800_000, silent=True)]) as both:
        sent = await both.send()
        assert (sent.state, sent.attempts) == (State.ACKNOWLEDGED, 1)
        assert brought(both) < WIRE + LAG
        await arrived(both)


@pytest.mark.req("P2-6.4.3-01")
@in_loop
async def test_without_an_agreement_a_message_has_no_name_and_is_sent_again_whole(
    made: Path, tmp_path: Path
) -> None:
    async with parties(made, tmp_path, [Cut(up=800_000)], restart=False) as both:
        sent = await both.send()
        assert (sent.state, sent.attempts) == (State.ACKNOWLEDGED, 2)
        assert both.line.methods == ["POST", "POST"]
        assert b"ETag" not in both.line.heads[0]
        await arrived(both)


@in_loop
async def test_who_does_not_know_restarting_gets_the_whole_message_again(
    made: Path, tmp_path: Path
) -> None:
    async with parties(made, tmp_path, [Cut(up=800_000)], at_seller=False) as both:
        sent = await both.send()
        assert (sent.state, sent.attempts) == (State.ACKNOWLEDGED, 2)
        assert both.line.methods == ["POST", "HEAD", "HEAD", "POST"]
        assert b"Content-Range" not in both.line.heads[-1]
        await arrived(both)


@in_loop
async def test_a_small_message_is_simply_sent_again(made: Path, tmp_path: Path) -> None:
    async with parties(made, tmp_path, [Cut(up=3000)]) as both:
        sent = await both.send(b"small")
        assert (sent.state, sent.attempts) == (State.ACKNOWLEDGED, 2)
        assert both.line.methods == ["POST", "POST"]


@in_loop
async def test_the_next_attempt_asks_first_what_the_last_one_brought(
    made: Path, tmp_path: Path
) -> None:
    """As after the end of the sender's process."""
    cuts = [Cut(up=800_000), *[Cut(up=10)] * 8]
    async with parties(made, tmp_path, cuts) as both:
        sent = await both.send()
        assert (sent.state, sent.attempts) == (State.ACKNOWLEDGED, 2)
        assert both.line.methods[-2:] == ["HEAD", "POST"]
        assert brought(both) < WIRE + LAG
        await arrived(both)


@in_loop
async def test_a_fragment_goes_on_like_any_message(made: Path, tmp_path: Path) -> None:
    cuts = [Cut(up=700_000)] * 2
    async with parties(made, tmp_path, cuts, fragment="1200 KiB", store="sqlite") as both:
        sent = await both.send()
        assert sent.state is State.ACKNOWLEDGED
        assert sent.split is not None
        assert both.line.methods.count("POST") == 3
        assert "HEAD" in both.line.methods
        assert brought(both) < WIRE + 2 * LAG
        await arrived(both)


CUTS = st.lists(
    st.one_of(
        st.integers(1, WIRE).map(lambda place: Cut(up=place)),
        st.integers(1, WIRE).map(lambda place: Cut(up=place, silent=True)),
        st.integers(0, 400).map(lambda place: Cut(down=place)),
    ),
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(cuts=CUTS)
def test_wherever_the_line_is_cut_a_message_arrives_once(
    standing: Standing, cuts: list[Cut]
) -> None:
    runner, both, names = standing

    async def scenario() -> None:
        name = f"cut-{next(names)}@buyer.example"
        both.line.again(cuts)
        sent = await both.send(name=name)
        assert sent.state is State.ACKNOWLEDGED
        assert await both.payload(name) == PAYLOAD
        assert (await both.delivered()).count(name) == 1
        broken = len(both.line.sent)
        assert brought(both) <= WIRE + broken * (HEADS + 1024 * 1024)

    runner.run(scenario())
