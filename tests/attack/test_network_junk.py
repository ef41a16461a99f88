"""What strangers send takes a bounded part of the disk, however much it is and however it varies.

Real nodes on real sockets.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from postroad.node.service import Refused
from postroad.node.steps.noting import record_refusals
from postroad.store.records import Event, Side, State
from postroad.wire.ebms3 import Error, MessageInfo, Receipt, SignalMessage
from tests.attack.messages import NOW, Package, http, soap
from tests.attack.network import (
    PRICES,
    Partner,
    Town,
    order,
    signal_message,
    stranger,
    town,
    until,
)

ROOM: Final = 64 * 1024
EVENTS: Final = 3
LIMITS: Final = f"limits: {{refused: {{total_bytes: 64 KiB, events: {EVENTS}, signals: 2}}}}"
MEGABYTES: Final = 3 * 1024 * 1024
RECEIPT: Final = Receipt(user_message=order("a@buyer.example").user_message)
LONG_AGO: Final = NOW - timedelta(days=400)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    """Here connections are what it is about."""


@pytest.fixture(scope="module")
def _town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town") / "folder", LIMITS) as made:
        yield made


@pytest.fixture
def junkyard(_town: Town) -> Town:
    """A node to which nothing was sent in this interval."""
    _town.run(record_refusals(_town.seller.node.context, everything=True))
    return _town


def unsigned(name: str, size: int = 0, **more: Any) -> Package:
    """A message of the buyer's, as it says, with a large envelope and without a signature."""
    made = order(name, signed=False, **more)
    return made.replaced("</S12:Envelope>", f"<!--{'x' * size}--></S12:Envelope>")


def taken(place: Town) -> int:
    """Bytes in the data folder of the seller, without room that its database has not used yet."""
    folder = place.folder / "seller" / "data"
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


def raised(place: Town, mark: int = 0) -> list[Event]:
    return [one.event for one in place.told(mark) if one.event.event == "error_raised"]


def counted(place: Town) -> Counter[str]:
    """Refusals by reason, as the metrics tell."""
    prefix = 'postroad_unproven_refusals_total{reason="'
    counters = place.seller.node.context.counters.items()
    return Counter(
        {name.removeprefix(prefix)[:-2]: n for name, n in counters if name.startswith(prefix)}
    )


def test_of_a_large_message_that_proves_nothing_the_beginning_is_kept(junkyard: Town) -> None:
    place = junkyard
    before = taken(place)
    names = [place.new_id() for _ in range(5)]
    for name in names:
        assert place.post(unsigned(name, MEGABYTES)).codes == ["EBMS:0103"]
    assert taken(place) - before < 1024 * 1024
    found = place.message(names[-1])
    assert found is not None
    assert (found.state, found.envelope) == (State.REJECTED, None)
    assert (found.unproven, found.beginning) == (True, 8192)
    assert found.envelope_bytes > MEGABYTES
    whole = unsigned(names[-1], MEGABYTES).envelope
    assert place.run(place.seller.node.beginning(names[-1])) == whole[:8192]
    with pytest.raises(Refused, match=r"only the first 8192 of 31\d+ bytes of its envelope were"):
        place.run(place.seller.node.evidence(names[-1]))


def test_refused_messages_that_prove_nothing_make_room_for_each_other(junkyard: Town) -> None:
    place = junkyard
    names = [place.new_id() for _ in range(20)]
    for name in names:
        assert place.post(unsigned(name, 8192)).codes == ["EBMS:0103"]
    kept = [name for name in names if place.message(name) is not None]
    assert kept == names[-len(kept) :]
    assert 3 <= len(kept) <= ROOM // 8192
    place.seller.clock.ahead += timedelta(days=2)
    place.run(place.seller.node.purge())
    place.seller.clock.ahead = timedelta(0)
    assert [name for name in names if place.message(name) is not None] == []
    assert "purged" not in {one.event.event for one in place.told(0)}


def test_a_refused_message_of_a_partner_is_kept_whole(junkyard: Town) -> None:
    name = junkyard.new_id()
    message = order(name, at=LONG_AGO)
    assert "EBMS:0003" in junkyard.post(message).codes
    found = junkyard.message(name)
    assert found is not None
    assert (found.unproven, found.envelope is None) == (False, False)
    assert junkyard.events(name)[-1] == "rejected"
    assert [one.kind for one in junkyard.signals(name, Side.RECEIVING)] == ["error"]
    for _ in range(EVENTS + 1):
        other = junkyard.new_id()
        junkyard.post(order(other, at=LONG_AGO))
        assert junkyard.events(other)[-1] == "rejected"


def test_a_refused_message_of_a_partner_takes_the_place_of_a_strangers(junkyard: Town) -> None:
    name = junkyard.new_id()
    junkyard.post(unsigned(name, sender="urn:example:nobody"))
    assert "EBMS:0003" in junkyard.post(order(name, at=LONG_AGO)).codes
    found = junkyard.message(name)
    assert found is not None
    assert (found.unproven, found.beginning, found.envelope is None) == (False, 0, False)
    assert found.from_party == "urn:example:buyer"
    junkyard.post(unsigned(name, sender="urn:example:nobody"))
    assert junkyard.message(name) == found
    junkyard.seller.clock.ahead += timedelta(days=2)
    junkyard.run(junkyard.seller.node.purge())
    junkyard.seller.clock.ahead = timedelta(0)
    assert junkyard.message(name) == found


def test_a_good_copy_takes_the_place_of_what_was_refused(junkyard: Town) -> None:
    name = junkyard.new_id()
    junkyard.post(unsigned(name))
    assert junkyard.post(order(name)).is_receipt
    found = junkyard.message(name)
    assert found is not None
    assert (found.state, found.unproven, found.beginning) == (State.DELIVERED, False, 0)
    assert junkyard.run(junkyard.seller.node.beginning(name)) is None


def _junk(number: int) -> Iterator[bytes]:
    """One request of each kind, different each time in all that its sender can choose."""
    name = f"junk-{number}@nowhere.example"
    yield f"GET /msh HTTP/1.1\r\nHost: a{number}\r\n\r\n".encode()
    yield http(f"text/x-{number}", b"junk")
    yield http("application/soap+xml", b"<junk%d" % number)
    yield soap(
        b'<e:Envelope xmlns:e="http://www.w3.org/2003/05/soap-envelope"><e:Body/></e:Envelope>'
    )
    yield http("application/soap+xml", b"x", head=f"Content-Encoding: z{number}\r\n")
    yield http("application/soap+xml", b"x", head=f"Content-Range: bytes {number}\r\n")
    yield order(name, signed=False).wire()
    yield order(name, signed=False, sender=f"urn:example:nobody-{number}").wire()
    yield order(name, signed=False, action=f"Action{number}").wire()
    yield order(name, signer=stranger()).wire()
    yield order("x" * (1500 + number), signed=False).wire()
    about = MessageInfo(NOW, name, f"never-sent-{number}@here")
    yield soap(signal_message(SignalMessage(about, receipt=RECEIPT), None))


def test_junk_is_counted_and_journaled_within_bounds(junkyard: Town) -> None:
    place, mark = junkyard, junkyard.mark()
    rounds, kinds, before = 12, len(list(_junk(0))), counted(place).total()
    for raw in itertools.chain.from_iterable(map(_junk, range(rounds))):
        assert place.say(raw).status < 500
    assert counted(place).total() - before == rounds * kinds
    own = raised(place, mark)
    assert len(own) <= 2 * EVENTS * kinds
    place.run(record_refusals(place.seller.node.context))
    assert len(raised(place, mark)) == len(own)

    after = place.mark()
    place.seller.clock.ahead += timedelta(hours=2)
    place.run(record_refusals(place.seller.node.context))
    told = raised(place, after)
    assert len(told) == len({(one.error_code, one.pmode) for one in told}) <= kinds
    assert {one.message_id for one in told} == {None}
    assert {one.peer for one in told} == {"127.0.0.1"}
    assert all(
        "more requests of senders who proved nothing were refused" in str(one.detail)
        for one in told
    )
    summed = sum(int(str(one.detail).partition(" ")[0]) for one in told)
    assert summed == rounds * kinds - EVENTS * len(told)
    place.run(record_refusals(place.seller.node.context))
    assert len(raised(place, after)) == len(told)
    place.seller.clock.ahead = timedelta(0)
    place.good()


def test_a_pmode_that_asks_for_no_proof_makes_nobody_a_partner(junkyard: Town) -> None:
    name = junkyard.new_id()
    assert junkyard.post(unsigned(name, action=PRICES, at=LONG_AGO)).codes == ["EBMS:0003"]
    found = junkyard.message(name)
    assert found is not None
    assert (found.state, found.unproven) == (State.REJECTED, True)


def test_forged_and_repeated_receipts_of_a_message_are_kept_so_many_times(junkyard: Town) -> None:
    place = junkyard
    name = place.submit("order")
    place.settled(name)
    [first] = place.signals(name, Side.SENDING)
    receipt = place.run(_content(place, first))
    for number in range(6):
        about = MessageInfo(NOW, f"forged-{number}@seller.example", name)
        forged = signal_message(SignalMessage(about, receipt=RECEIPT), stranger())
        place.say(soap(forged), "buyer")
        place.say(soap(receipt), "buyer")
    signals = place.signals(name, Side.SENDING)
    assert [one.valid for one in signals] == [True, False, False]
    assert place.events(name, "buyer").count("receipt_received") == 1
    assert place.events(name, "buyer").count("error_raised") == 2
    mark = place.mark("buyer")
    place.run(record_refusals(place.buyer.node.context, everything=True))
    [told] = place.told(mark, "buyer")
    assert str(told.event.detail).startswith("4 requests of senders who proved nothing")
    assert told.event.pmode == "order"


def test_of_a_forged_receipt_the_beginning_is_kept(junkyard: Town) -> None:
    place = junkyard
    name = place.submit("order")
    place.settled(name)
    about = MessageInfo(NOW, "forged@seller.example", name)
    forged = signal_message(SignalMessage(about, receipt=RECEIPT), stranger())
    large = forged.replace(b"</S12:Envelope>", b"<!--%b--></S12:Envelope>" % (b"x" * MEGABYTES))
    place.say(soap(large), "buyer")
    believed, unproven = place.signals(name, Side.SENDING)
    assert (believed.valid, unproven.valid) == (True, False)
    assert place.run(_content(place, unproven)) == large[:8192]


def test_believed_warnings_about_a_message_are_kept_so_many_times(junkyard: Town) -> None:
    """Where nothing is signed anybody can send them, and they end nothing."""
    place, partner = junkyard, Partner(junkyard)
    partner.agree("called", called_back=True, signed=False)
    name = place.submit("called")
    until(lambda: _state(place, name) is State.WAITING)
    for number in range(6):
        about = MessageInfo(NOW, f"warning-{number}@seller.example", name)
        warning = Error("EBMS:0004", "warning", ref_to_message_in_error=name)
        place.say(soap(signal_message(SignalMessage(about, errors=(warning,)), None)), "buyer")
    assert [one.valid for one in place.signals(name, Side.SENDING)] == [True, True]
    assert place.events(name, "buyer").count("error_received") == 2
    failure = Error("EBMS:0004", "failure", ref_to_message_in_error=name)
    about = MessageInfo(NOW, "failure@seller.example", name)
    place.say(soap(signal_message(SignalMessage(about, errors=(failure,)), None)), "buyer")
    assert _state(place, name) is State.FAILED
    assert len(place.signals(name, Side.SENDING)) == 3
    partner.close()


def _state(place: Town, name: str) -> State | None:
    found = place.message(name, Side.SENDING)
    return None if found is None else found.state


async def _content(place: Town, signal: object) -> bytes:
    return b"".join(place.buyer.node.signal(signal).chunks())  # type: ignore[arg-type]


def test_unfinished_bodies_of_strangers_are_held_up_to_a_limit(tmp_path: Path) -> None:
    """One alone is never refused; who is told to come again takes nothing of the room."""
    limits = "http: {unfinished_bytes_per_address: 1 MB, unfinished_bytes: 100 MB}"
    everybody = "security: {exempt_networks: []}"
    with town(tmp_path / "town", f"{limits}\n{everybody}") as place:
        large = order(place.new_id(), b"x" * 3_000_000)
        assert place.post(large).is_receipt
        wire = large.wire()
        with place.connect() as first:
            first.sendall(wire[:900_000])
            until(lambda: _held(place) > 800_000)
            answer = place.post(order(place.new_id(), b"y" * 600_000))
            assert (answer.status, answer.codes) == (503, ["EBMS:0202"])
            assert _held(place) < 1_000_000
            place.good()
        until(lambda: _held(place) == 0)
        assert place.post(order(place.new_id(), b"y" * 600_000)).is_receipt


def test_clients_behind_an_exempt_proxy_share_the_room_of_all(tmp_path: Path) -> None:
    limits = "http: {unfinished_bytes_per_address: 1 MB, unfinished_bytes: 3 MB}"
    with town(tmp_path / "town", limits) as place, place.connect() as first:
        first.sendall(order(place.new_id(), b"x" * 3_000_000).wire()[:900_000])
        until(lambda: _held(place) > 800_000)
        assert place.post(order(place.new_id(), b"y" * 600_000)).is_receipt
        assert place.post(order(place.new_id(), b"y" * 2_500_000)).status == 503


def _held(place: Town) -> int:
    return place.seller.node.context.unfinished.total
