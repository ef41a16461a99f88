"""Books that do not balance are noticed, whatever is wrong with them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace as changed

from postroad.store.records import Event, Message, Recorded, Side, State
from tests.crash.books import Book, compare, history
from tests.crash.letters import TERMS, Letter

NOW = datetime(2026, 6, 1, tzinfo=UTC)
KINDS = {terms.name: terms for terms in TERMS}
LETTERS = [
    Letter(0, KINDS["signed"], "a"),
    Letter(1, KINDS["in-order"], "b"),
    Letter(2, KINDS["in-order"], "b"),
    Letter(3, KINDS["hasty"], "c"),
]
FIRST = LETTERS[0].message_id
SECOND = LETTERS[1].message_id
HASTY = LETTERS[3].message_id
Books = tuple[Book, Book]


def journal(node: str, *events: tuple[str, str, int | None]) -> list[Recorded]:
    return [
        Recorded(
            node,
            1,
            number,
            Event(NOW + timedelta(seconds=number), node, event, message_id=name, attempt=attempt),
        )
        for number, (name, event, attempt) in enumerate(events, 1)
    ]


def book(side: Side, state: State, events: list[Recorded]) -> Book:
    messages = {
        letter.message_id: Message(
            side,
            letter.message_id,
            state,
            NOW,
            NOW,
            attempts=1 if side is Side.SENDING else 0,
            payload_digests=(letter.digest,),
        )
        for letter in LETTERS
    }
    return Book(messages, events, {one.message_id: (one.digest,) for one in LETTERS}, {})


@pytest.fixture
def books() -> Books:
    """All went well."""
    sent = [
        (letter.message_id, event, attempt)
        for letter in LETTERS
        for event, attempt in (("submitted", None), ("sent", 1), ("receipt_received", None))
    ]
    received = [
        (letter.message_id, event, None)
        for letter in LETTERS
        for event in ("received", "delivered", "receipt_sent")
    ]
    return (
        book(Side.SENDING, State.ACKNOWLEDGED, journal("buyer", *sent)),
        book(Side.RECEIVING, State.DELIVERED, journal("seller", *received)),
    )


def with_state(book: Book, name: str, state: State) -> Book:
    """It ends so, and the application knows."""
    messages = book.messages | {name: changed(book.messages[name], state=state)}
    return replace(book, messages=messages, notices={name: [state]})


def without_message(book: Book, name: str) -> Book:
    return replace(book, messages={k: v for k, v in book.messages.items() if k != name})


def with_event(book: Book, name: str, event: str, attempt: int | None = None) -> Book:
    told = [
        (one.event.message_id or "", one.event.event, one.event.attempt) for one in book.journal
    ]
    return replace(book, journal=journal(book.journal[0].node, *told, (name, event, attempt)))


def without_event(book: Book, name: str, *events: str) -> Book:
    told = [
        (one.event.message_id or "", one.event.event, one.event.attempt)
        for one in book.journal
        if one.event.message_id != name or one.event.event not in events
    ]
    return replace(book, journal=journal(book.journal[0].node, *told))


def another_receipt(book: Book) -> Recorded:
    last = book.journal[-1]
    event = changed(last.event, event="receipt_received", message_id=FIRST, signal_id="r2")
    return changed(last, seq=last.seq + 1, event=event)


def never_arrived(book: Book, name: str) -> Book:
    return without_event(without_message(book, name), name, "received", "delivered", "receipt_sent")


def said(books: Books, **doubled: int) -> list[str]:
    return [f"{one.message_id}: {one.what}" for one in compare(LETTERS, *books, doubled)]


def test_books_that_balance_have_no_findings(books: Books) -> None:
    assert said(books) == []


def test_a_failure_that_did_not_arrive_is_in_order(books: Books) -> None:
    sent, received = books
    failed = with_event(with_state(sent, HASTY, State.FAILED), HASTY, "delivery_failed")
    assert said((failed, never_arrived(received, HASTY))) == []


def test_doubt_is_in_order_whether_it_arrived_or_not(books: Books) -> None:
    sent, received = books
    doubted = with_event(with_state(sent, HASTY, State.IN_DOUBT), HASTY, "in_doubt")
    assert said((doubted, received)) == []
    assert said((doubted, never_arrived(received, HASTY))) == []


def test_copies_that_the_network_made_are_in_order(books: Books) -> None:
    sent, received = books
    assert said((sent, with_event(received, FIRST, "duplicate")), **{FIRST: 1}) == []


Break = Callable[[Book, Book], Books]
WRONG: dict[str, tuple[Break, str]] = {
    "lost at the sender": (
        lambda sent, received: (without_message(sent, HASTY), received),
        f"{HASTY}: it was accepted, and the sender does not know it",
    ),
    "lost at the receiver": (
        lambda sent, received: (sent, never_arrived(received, FIRST)),
        f"{FIRST}: acknowledged, and never delivered",
    ),
    "delivered twice": (
        lambda sent, received: (
            with_event(sent, FIRST, "resent", 2),
            with_event(received, FIRST, "delivered"),
        ),
        f"{FIRST}: delivered 2 times",
    ),
    "delivered though failed": (
        lambda sent, received: (with_state(sent, HASTY, State.FAILED), received),
        f"{HASTY}: failed, and delivered all the same",
    ),
    "delivered though expired": (
        lambda sent, received: (with_state(sent, HASTY, State.EXPIRED), received),
        f"{HASTY}: expired, and delivered all the same",
    ),
    "still on its way": (
        lambda sent, received: (with_state(sent, HASTY, State.WAITING), received),
        f"{HASTY}: not at rest: waiting",
    ),
    "given up though retried for ever": (
        lambda sent, received: (with_state(sent, FIRST, State.IN_DOUBT), received),
        f"{FIRST}: in_doubt, though it is sent until a receipt comes",
    ),
    "acknowledged by nobody": (
        lambda sent, received: (without_event(sent, FIRST, "receipt_received"), received),
        f"{FIRST}: acknowledged without a receipt",
    ),
    "acknowledged and in doubt": (
        lambda sent, received: (with_event(sent, FIRST, "in_doubt"), received),
        f"{FIRST}: acknowledged, and in_doubt too",
    ),
    "submitted twice": (
        lambda sent, received: (with_event(sent, FIRST, "submitted"), received),
        f"{FIRST}: submitted 2 times",
    ),
    "rejected": (
        lambda sent, received: (sent, with_event(received, FIRST, "rejected")),
        f"{FIRST}: received 1 times, rejected 1 times",
    ),
    "a delivery that no row knows": (
        lambda sent, received: (sent, without_message(received, FIRST)),
        f"{FIRST}: delivered 1 times, and at the receiver not known",
    ),
    "another content on the disk": (
        lambda sent, received: (
            sent,
            replace(received, payloads=received.payloads | {FIRST: ("sha256:00",)}),
        ),
        f"{FIRST}: the receiver has another content than was sent",
    ),
    "an attempt that is not told": (
        lambda sent, received: (with_event(sent, FIRST, "resent", 3), received),
        f"{FIRST}: its attempts are numbered [1, 3]",
    ),
    "an attempt that is told twice": (
        lambda sent, received: (with_event(sent, FIRST, "sent", 1), received),
        f"{FIRST}: its attempts are numbered [1, 1]",
    ),
    "a second attempt called sent": (
        lambda sent, received: (with_event(sent, FIRST, "sent", 2), received),
        f"{FIRST}: a first attempt is called resent, or a later one sent",
    ),
    "attempts that were not counted": (
        lambda sent, received: (with_event(sent, FIRST, "resent", 2), received),
        f"{FIRST}: 1 attempts are counted, 2 are told",
    ),
    "out of order": (
        lambda sent, received: (
            sent,
            with_event(without_event(received, SECOND, "delivered"), SECOND, "delivered"),
        ),
        f"{LETTERS[2].message_id}: delivered before {SECOND}, which was submitted earlier",
    ),
    "more than left": (
        lambda sent, received: (sent, with_event(received, FIRST, "duplicate")),
        f"{FIRST}: it came 2 times, and left only 1 times",
    ),
    "a duplicate before the first": (
        lambda sent, received: (
            sent,
            with_event(without_event(received, FIRST, "received"), FIRST, "duplicate"),
        ),
        f"{FIRST}: a duplicate of what was never received",
    ),
    "a stranger": (
        lambda sent, received: (
            sent,
            replace(received, messages=received.messages | {"x": received.messages[FIRST]}),
        ),
        "x: the receiver has it, and the sender does not",
    ),
    "not told": (
        lambda sent, received: (
            replace(with_state(sent, HASTY, State.IN_DOUBT), notices={}),
            received,
        ),
        f"{HASTY}: in_doubt, and the application is told nothing",
    ),
    "told without need": (
        lambda sent, received: (replace(sent, notices={FIRST: [State.IN_DOUBT]}), received),
        f"{FIRST}: acknowledged, and the application is told in_doubt",
    ),
    "two receipts": (
        lambda sent, received: (
            replace(sent, journal=[*sent.journal, another_receipt(sent)]),
            received,
        ),
        f"{FIRST}: it has two receipts: None and r2",
    ),
    "a hole in the journal": (
        lambda sent, received: (replace(sent, journal=sent.journal[1:]), received),
        "None: the sender's journal has holes in epoch 1",
    ),
    "work that is left": (
        lambda sent, received: (sent, replace(received, work={"signal": 1, "send": 0})),
        "None: the receiver has still something to do: {'signal': 1}",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(books: Books, case: str) -> None:
    spoil, expected = WRONG[case]
    assert expected in said(spoil(*books))


def test_the_history_of_a_message_is_that_of_both_sides(books: Books) -> None:
    lines = history(FIRST, *books)
    assert [line.split()[1:3] for line in lines[:2]] == [
        ["buyer", "submitted"],
        ["seller", "received"],
    ]
    assert lines[2].endswith("attempt 1")
    assert len(lines) == 6
