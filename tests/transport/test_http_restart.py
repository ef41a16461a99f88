"""The sender's side of AS2 restart: ask what is there, send the rest, know when to stop."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest

from postroad.transport import http_restart
from postroad.transport.http_client import HttpClient
from postroad.transport.http_outgoing import Outgoing, Pieces, Reply, TransportFailure
from postroad.transport.http_restart import Upload, post
from postroad.wire.content import BytesContent
from tests.transport.wires import Seen, answer, in_loop, line_to, serving

BODY = bytes(range(256)) * 4
UPLOAD = Upload("t1", BytesContent(BODY))
WHOLE = Outgoing(
    "http://seller.example/msh", "text/plain", Pieces(len(BODY), lambda: iter((BODY,)))
)
TAKEN = Reply(200, "text/plain", (), b"taken")


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_restart, "_FIRST_PAUSE", 0.0)
        yield


def broken(*, transmitted: bool = True) -> TransportFailure:
    return TransportFailure("closed", "the line was cut", transmitted=transmitted)


def there(size: int, status: int = 200) -> Reply:
    return Reply(status, "", (("content-length", str(size)),), b"")


@dataclass
class Script:
    """A client that answers as it is told."""

    answers: list[Reply | TransportFailure]
    asked: list[Outgoing] = field(default_factory=list)

    async def post(self, request: Outgoing) -> Reply:
        self.asked.append(request)
        given = self.answers.pop(0)
        if isinstance(given, TransportFailure):
            raise given
        return given

    async def close(self) -> None:
        pass

    @property
    def story(self) -> list[str]:
        """What was asked for, in short."""
        return [
            "probe" if one.method == "HEAD" else dict(one.headers).get("Content-Range", "whole")
            for one in self.asked
        ]


async def told(*answers: Reply | TransportFailure, began: bool = False) -> tuple[Script, Reply]:
    script = Script(list(answers))
    return script, await post(script, WHOLE, UPLOAD, began_before=began)


async def failing(*answers: Reply | TransportFailure, began: bool = False) -> tuple[Script, bool]:
    """What was asked, and whether something may have left."""
    script = Script(list(answers))
    with pytest.raises(TransportFailure) as caught:
        await post(script, WHOLE, UPLOAD, began_before=began)
    return script, caught.value.transmitted


def body(request: Outgoing) -> bytes:
    assert isinstance(request.body, Pieces)
    return b"".join(request.body.read())


@in_loop
async def test_what_goes_well_is_posted_once_and_named() -> None:
    script, reply = await told(TAKEN)
    assert (reply, script.story) == (TAKEN, ["whole"])
    assert dict(script.asked[0].headers) == {"ETag": '"t1"'}


@in_loop
async def test_after_a_break_the_rest_is_sent() -> None:
    script, reply = await told(broken(), there(100), TAKEN)
    assert reply == TAKEN
    assert script.story == ["whole", "probe", "bytes 100-1023/1024"]
    assert body(script.asked[2]) == BODY[100:]
    assert dict(script.asked[1].headers) == {"ETag": '"t1"'}


@in_loop
async def test_it_goes_on_as_long_as_that_brings_it_further() -> None:
    steps = [one for size in range(1, 1024, 50) for one in (broken(), there(size))]
    script, _ = await told(*steps, TAKEN)
    assert len(script.asked) == len(steps) + 1


@in_loop
async def test_it_gives_up_when_nothing_brings_it_further() -> None:
    steps = [one for _ in range(100) for one in (broken(), there(100))]
    script, transmitted = await failing(*steps)
    assert transmitted
    assert len(script.asked) < 25


@in_loop
async def test_it_asks_again_when_nobody_answers_for_a_while() -> None:
    silence = [broken(transmitted=False)] * 3
    script, _ = await told(broken(), *silence, there(100), TAKEN)
    assert script.story[1:5] == ["probe"] * 4
    script, transmitted = await failing(broken(), *[broken(transmitted=False)] * 50)
    assert transmitted
    assert len(script.asked) < 25


@pytest.mark.parametrize(
    "said", [there(0), there(100, 405), there(9, 404), Reply(200, "", (), b"")]
)
@in_loop
async def test_who_does_not_know_it_ends_the_attempt(said: Reply) -> None:
    script, transmitted = await failing(broken(), said)
    assert transmitted
    assert script.story == ["whole", "probe"]
    script, reply = await told(said, TAKEN, began=True)
    assert (reply, script.story) == (TAKEN, ["probe", "whole"])


@in_loop
async def test_what_never_left_is_not_asked_about() -> None:
    script, transmitted = await failing(broken(transmitted=False))
    assert not transmitted
    assert script.story == ["whole"]
    script, transmitted = await failing(broken(transmitted=False), began=True)
    assert not transmitted


@in_loop
async def test_a_later_attempt_asks_first() -> None:
    script, _ = await told(there(1000), TAKEN, began=True)
    assert script.story == ["probe", "bytes 1000-1023/1024"]


@in_loop
async def test_who_has_all_is_offered_all_and_may_answer_without() -> None:
    script, _ = await told(broken(), there(1024), TAKEN)
    assert script.story == ["whole", "probe", "whole"]
    assert [one.expects for one in script.asked] == [False, False, True]


@pytest.mark.parametrize("status", [409, 416])
@in_loop
async def test_who_says_that_it_is_otherwise_is_asked_again(status: int) -> None:
    script, reply = await told(broken(), there(100), Reply(status, "", (), b""), there(200), TAKEN)
    assert reply == TAKEN
    assert script.story[-1] == "bytes 200-1023/1024"


@in_loop
async def test_any_other_answer_is_the_answer() -> None:
    busy = Reply(503, "", (), b"")
    _, reply = await told(broken(), there(100), busy)
    assert reply == busy


# Over real sockets


async def heads(
    scope: dict[str, object], receive: object, send: Callable[..., Awaitable[None]]
) -> None:
    """A server that has so much, whatever it is asked, and wants no body."""
    if scope["method"] == "HEAD":
        size = (b"content-length", b"123456789012")
        await send({"type": "http.response.start", "status": 200, "headers": [size]})
        await send({"type": "http.response.body", "body": b""})
        return
    await answer(send, 200, b"known")


@in_loop
async def test_a_probe_has_no_body_and_its_answer_none() -> None:
    async with serving(heads) as server, HttpClient() as client:
        probe = Outgoing(f"{server.url}/msh", "", b"", (("ETag", '"x"'),), method="HEAD")
        for _ in range(2):
            reply = await client.post(probe)
            assert reply.status == 200
            assert dict(reply.headers)["content-length"] == "123456789012"
            assert reply.body == b""


@in_loop
async def test_a_body_that_nobody_asks_for_is_not_sent() -> None:
    sent: list[int] = []
    async with serving(heads) as server, HttpClient() as client:
        large = Pieces(1 << 30, lambda: iter(lambda: bytes(1 << 16), None))
        request = Outgoing(
            f"{server.url}/msh", "text/plain", large, expects=True, progress=sent.append
        )
        assert (await client.post(request)).body == b"known"
    assert sent == []


@in_loop
async def test_a_body_that_is_asked_for_is_sent() -> None:
    seen = Seen()
    async with serving(seen) as server, HttpClient() as client:
        request = Outgoing(f"{server.url}/msh", "text/plain", WHOLE.body, expects=True)
        assert (await client.post(request)).body == b"1024"
    assert seen.bodies == [BODY]
    assert dict(seen.scopes[0]["headers"])[b"expect"] == b"100-continue"


@in_loop
async def test_a_head_that_asks_is_answered_without_a_body() -> None:
    async with serving(heads) as server, line_to(server) as line:
        line.say(b'HEAD /msh HTTP/1.1\r\nHost: x\r\nETag: "x"\r\nConnection: close\r\n\r\n')
        said = await line.closed()
    assert said.endswith(b"\r\n\r\n")
    assert b"content-length: 123456789012" in said
