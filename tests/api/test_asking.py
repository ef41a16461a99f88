"""Asking partners: whether they are there, and what became of a message."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from postroad.api.client import ApiError, PingAnswer, QueryAnswer
from postroad.api.segments import segment_of
from postroad.node.service import Asking, PModeSummary, Service
from postroad.store.records import State
from tests.api.conftest import Connect, Serve
from tests.api.memory_service import ORDERS, MemoryService
from tests.api.site import LostReplies, Site
from tests.api.test_client_waiting import posts
from tests.api.test_real_node import M, asked
from tests.api.uploads import PATH, body, metadata, post
from tests.api.world import Faulty, Given, World
from tests.changing import replace
from tests.node.reliable import BUYER, SELLER, Station, address, lost, party, played, reply_lost
from tests.node.reliable import ORDERS as NODE_ORDERS
from tests.node.reliable import World as Pair

PMODES = "/api/v1/admin/pmodes"
PING = f"{PMODES}/{ORDERS.id}/ping"
QUERY = f"{PATH}/m-1@x/query"
AT = datetime(2026, 11, 15, 8, 57, 2, tzinfo=UTC)
WORD_AND_MEANING = [
    ("Received", "received"),
    ("Forwarded", "received"),
    ("Processed", "delivered"),
    ("NotRecognized", "not_received"),
]


@pytest.fixture
def older(http: httpx.Client, site: Site, service: MemoryService) -> MemoryService:
    """A node that has sent m-1@x in the older tongue."""
    assert post(http, body(metadata(message_id="m-1@x"))).status_code == 202
    message = service.outgoing("m-1@x")
    site.run(service.change(message, protocol="ebxml-2.0", state=State.WAITING))
    return service


def settled(http: httpx.Client) -> list[tuple[str, str]]:
    """What was written down about it, and who said so."""
    events = http.get(f"{PATH}/m-1@x/events").json()["events"]
    return [(one["detail"], one["peer"]) for one in events if one["event"] == "settled"]


# ping


def test_a_partner_that_is_there_answers(http: httpx.Client) -> None:
    answer = http.post(PING)
    assert answer.status_code == 200
    assert answer.json() == {
        "pmode": ORDERS.id,
        "answer": "Pong",
        "address": "http://seller.example/msh",
        "seconds": 0.04,
        "detail": None,
    }


def test_no_answer_in_time_is_an_answer_too(http: httpx.Client, service: MemoryService) -> None:
    service.will_say(None, detail="no answer came in time")
    answer = http.post(PING)
    assert answer.status_code == 200
    assert (answer.json()["answer"], answer.json()["detail"]) == (None, "no answer came in time")


def test_a_p_mode_that_is_not_there_is_not_found(http: httpx.Client) -> None:
    answer = http.post(f"{PMODES}/nobody/ping")
    assert answer.status_code == 404
    assert "nobody" in answer.json()["detail"]


def test_the_id_of_a_p_mode_is_one_segment_of_a_path(
    http: httpx.Client, serve: Serve, service: Service
) -> None:
    def pmodes() -> list[PModeSummary]:
        return [replace(ORDERS, id="http://a.example/b?c%")]

    async def ping(pmode: str, timeout: float) -> Asking:
        return Asking("Pong", None, "", 0)

    serve(Faulty(service, pmodes=pmodes, ping=ping))
    for segment in ("http:%2F%2Fa.example%2Fb%3Fc%25", segment_of("http://a.example/b?c%")):
        answer = http.post(f"{PMODES}/{segment}/ping")
        assert answer.json()["pmode"] == "http://a.example/b?c%"


@pytest.mark.parametrize("segment", ["a%00b", "x" * 2000], ids=["nul", "long"])
def test_an_id_of_a_p_mode_that_cannot_be_is_refused(http: httpx.Client, segment: str) -> None:
    answer = http.post(f"{PMODES}/{segment}/ping")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "path.pmode"


@pytest.mark.parametrize("path", [PING, QUERY])
def test_an_answer_is_waited_for_as_long_as_is_said(
    http: httpx.Client, older: MemoryService, path: str
) -> None:
    http.post(path)
    assert older.patience == 10
    http.post(path, params={"wait": 60})
    assert older.patience == 60


@pytest.mark.parametrize("path", [PING, QUERY])
@pytest.mark.parametrize("wait", ["0", "-1", "61", "nan", "long"])
def test_a_wrong_wait_asks_nobody(
    http: httpx.Client, older: MemoryService, path: str, wait: str
) -> None:
    answer = http.post(path, params={"wait": wait})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "query.wait"
    assert older.patience is None


# query


@pytest.mark.parametrize(("word", "meaning"), [*WORD_AND_MEANING, ("UnAuthorized", None)])
def test_a_partner_says_what_became_of_a_message(
    http: httpx.Client, older: MemoryService, word: str, meaning: str | None
) -> None:
    older.will_say(word, AT)
    answer = http.post(QUERY)
    assert answer.status_code == 200
    assert answer.json() == {
        "message_id": "m-1@x",
        "answer": word,
        "means": meaning,
        "timestamp": "2026-11-15T08:57:02Z",
        "address": "http://seller.example/msh",
        "seconds": 0.04,
        "settled": None,
        "detail": None,
    }
    assert settled(http) == []


def test_only_what_was_sent_can_be_asked_about(
    http: httpx.Client, site: Site, world: World
) -> None:
    received = site.run(world.deliver([Given(b"1")]))
    for name in (received, "nobody@x"):
        answer = http.post(f"{PATH}/{name}/query")
        assert answer.status_code == 404
        assert name in answer.json()["detail"]


def test_a_protocol_without_that_question_is_told(http: httpx.Client) -> None:
    post(http, body(metadata(message_id="m-1@x")))
    answer = http.post(QUERY, params={"settle": True})
    assert answer.status_code == 422
    assert "no such question" in answer.json()["detail"]


# query and settle


@pytest.mark.parametrize(("word", "meaning"), WORD_AND_MEANING)
def test_a_definite_answer_is_written_down_in_the_partners_name(
    http: httpx.Client, site: Site, world: World, older: MemoryService, word: str, meaning: str
) -> None:
    site.run(world.doubt("m-1@x"))
    older.will_say(word)
    answer = http.post(QUERY, params={"settle": True}).json()
    assert (answer["settled"], answer["detail"]) == (meaning, None)
    assert http.get(f"{PATH}/m-1@x").json()["state"] == "settled"
    assert settled(http) == [(meaning, "seller")]


@pytest.mark.parametrize(
    ("word", "detail", "said"),
    [
        (
            "UnAuthorized",
            None,
            "UnAuthorized says nothing of the message, so there is nothing to write down",
        ),
        ("NotRecognized", "it may have forgotten it", "it may have forgotten it"),
        (None, "no answer came in time", "no answer came in time"),
    ],
)
def test_what_is_no_definite_answer_is_not_written_down(
    http: httpx.Client,
    site: Site,
    world: World,
    older: MemoryService,
    word: str | None,
    detail: str | None,
    said: str,
) -> None:
    site.run(world.doubt("m-1@x"))
    older.will_say(word, detail=detail)
    answer = http.post(QUERY, params={"settle": True}).json()
    assert (answer["means"], answer["settled"], answer["detail"]) == (None, None, said)
    assert settled(http) == []


@pytest.mark.parametrize("state", ["ready", "waiting", "suspended"])
def test_what_is_on_its_way_is_not_missing_yet(
    http: httpx.Client, site: Site, older: MemoryService, state: str
) -> None:
    site.run(older.change(older.outgoing("m-1@x"), state=State(state)))
    older.will_say("NotRecognized")
    answer = http.post(QUERY, params={"settle": True}).json()
    assert (answer["means"], answer["settled"]) == ("not_received", None)
    assert answer["detail"] == f"m-1@x is {state}: it may still arrive"
    assert settled(http) == []


def test_what_is_not_in_question_is_not_written_down(
    http: httpx.Client, site: Site, world: World, older: MemoryService
) -> None:
    site.run(world.acknowledge("m-1@x"))
    older.will_say("Received")
    answer = http.post(QUERY, params={"settle": True}).json()
    assert (answer["answer"], answer["settled"]) == ("Received", None)
    assert answer["detail"] == "m-1@x is acknowledged: there is nothing to settle"


@pytest.mark.parametrize(
    ("known", "word", "then"),
    [
        ("not_received", "Received", "received"),
        ("received", "Processed", "delivered"),
        ("received", "Received", "received"),
        ("delivered", "Received", None),
        ("delivered", "NotRecognized", None),
        ("received", "NotRecognized", None),
    ],
)
def test_an_answer_that_says_less_does_not_undo_one_that_says_more(
    http: httpx.Client,
    site: Site,
    world: World,
    older: MemoryService,
    known: str,
    word: str,
    then: str | None,
) -> None:
    site.run(world.doubt("m-1@x"))
    http.post(f"{PATH}/m-1@x/settle", json={"answer": known})
    older.will_say(word)
    answer = http.post(QUERY, params={"settle": True}).json()
    assert answer["settled"] == then
    assert http.get(f"{PATH}/m-1@x").json()["detail"] == (then or known)
    if then is None:
        assert answer["detail"] == f"m-1@x was settled as {known} before, which says more"


def test_a_message_that_is_removed_meanwhile_is_not_settled(
    http: httpx.Client, serve: Serve, older: MemoryService
) -> None:
    async def message(message_id: str, side: Any = None) -> None:
        return None

    older.will_say("Received")
    serve(Faulty(older, message=message))
    answer = http.post(QUERY, params={"settle": True}).json()
    assert (answer["settled"], answer["detail"]) == (None, "m-1@x was removed meanwhile")


# the clients


def test_the_clients_ping(either: Any, service: MemoryService) -> None:
    told = either.ping(ORDERS.id)
    assert told == PingAnswer(ORDERS.id, "Pong", "http://seller.example/msh", 0.04, None)
    assert service.patience == 10
    service.will_say(None, detail="connection refused")
    assert either.ping(ORDERS.id, wait=2.5).detail == "connection refused"
    assert service.patience == 2.5
    with pytest.raises(ApiError, match="404: There is no P-Mode a/b"):
        either.ping("a/b")


def test_the_clients_ask_about_a_message(
    either: Any, site: Site, world: World, older: MemoryService
) -> None:
    site.run(world.doubt("m-1@x"))
    older.will_say("Processed", AT)
    told = either.query("m-1@x", wait=1)
    assert told == QueryAnswer(
        "m-1@x", "Processed", "delivered", AT, "http://seller.example/msh", 0.04, None, None
    )
    assert older.patience == 1
    assert either.query("m-1@x", settle=True).settled == "delivered"
    assert either.events("m-1@x")[-1].peer == "seller"
    with pytest.raises(ApiError, match="404: "):
        either.query("nobody@x")


def test_a_question_is_repeated_and_a_ping_is_not(
    connect: Connect, site: Site, serve: Serve, older: MemoryService
) -> None:
    client = connect(retries=1)
    site.app = lossy = LostReplies(serve(), 1, posts)
    older.will_say("Received")
    assert client.query("m-1@x").answer == "Received"
    lossy.left = 1
    with pytest.raises(ApiError):
        client.ping(ORDERS.id)
    assert lossy.asked == 3


# a real node


@played
async def test_a_partner_of_ebms_3_is_pinged_by_a_test_message(world: Pair) -> None:
    world.agree()
    buyer, seller = await world.both()
    [pmode] = [one.id for one in buyer.node.pmodes() if one.sends]
    async with asked(buyer) as http:
        answer = (await http.post(f"{PMODES}/{pmode}/ping")).json()
    assert (answer["answer"], answer["detail"]) == ("Pong", None)
    assert await seller.journal("delivered") == []


@played
async def test_a_partner_that_is_away_does_not_answer(world: Pair) -> None:
    world.agree()
    world.wire.will(*[lost] * 9)
    buyer, _ = await world.both()
    [pmode] = [one.id for one in buyer.node.pmodes() if one.sends]
    async with asked(buyer) as http:
        answer = await http.post(f"{PMODES}/{pmode}/ping", params={"wait": 1})
    assert answer.status_code == 200
    assert answer.json()["answer"] is None
    assert answer.json()["detail"]
    assert SELLER in answer.json()["address"]


VERSIONS = ["0.98b", "1.0", "2.0"]


async def doubtful(world: Pair, version: str, way: Any, **more: Any) -> Station:
    """A buyer who speaks ebXML and is in doubt about its message."""
    world.speak(
        version=version, delivery_semantics="OnceAndOnlyOnce", ack_requested="UnSigned",
        retry={"max_retries": 0, "period": "PT10S", **more}, reply_to=address(BUYER),
    )  # fmt: skip
    buyer, _ = await world.both()
    world.wire.will(way)
    world.wire.usual[BUYER] = lost
    await buyer.send(M)
    await world.wait(60)
    del world.wire.usual[BUYER]
    assert await buyer.state(M) is State.IN_DOUBT
    return buyer


@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_partner_of_ebxml_is_pinged(world: Pair, version: str) -> None:
    world.speak(version=version, reply_to=address(BUYER))
    buyer, _ = await world.both()
    async with asked(buyer) as http:
        answer = (await http.post(f"{PMODES}/{NODE_ORDERS}/ping")).json()
    assert (answer["answer"], answer["address"]) == ("Pong", address(SELLER))


@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_partner_of_ebxml_ends_the_doubt(world: Pair, version: str) -> None:
    buyer = await doubtful(world, version, reply_lost)
    async with asked(buyer) as http:
        answer = (await http.post(f"{PATH}/{M}/query", params={"settle": True})).json()
        message = (await http.get(f"{PATH}/{M}")).json()
    assert (answer["answer"], answer["settled"]) == ("Received", "received")
    assert answer["timestamp"] == message["first_sent_at"]
    assert message["state"] == "settled"
    [event] = await buyer.journal("settled")
    assert (event.detail, event.peer) == ("received", party(SELLER))


@pytest.mark.parametrize("version", VERSIONS)
@played
async def test_a_partner_of_ebxml_says_that_it_has_it_not(world: Pair, version: str) -> None:
    buyer = await doubtful(world, version, lost)
    async with asked(buyer) as http:
        answer = (await http.post(f"{PATH}/{M}/query", params={"settle": True})).json()
    assert (answer["answer"], answer["settled"]) == ("NotRecognized", "not_received")


@pytest.mark.req("MS098-8.11.5-02")
@played
async def test_what_a_partner_may_have_forgotten_stays_in_doubt(world: Pair) -> None:
    buyer = await doubtful(world, "2.0", lost, persist_duration="PT2M")
    async with asked(buyer) as http:
        early = (await http.post(f"{PATH}/{M}/query")).json()
        await world.wait(120)
        late = (await http.post(f"{PATH}/{M}/query", params={"settle": True})).json()
    assert (early["answer"], early["means"]) == ("NotRecognized", "not_received")
    assert (late["answer"], late["means"], late["settled"]) == ("NotRecognized", None, None)
    assert "persistDuration" in late["detail"]
    assert await buyer.state(M) is State.IN_DOUBT
