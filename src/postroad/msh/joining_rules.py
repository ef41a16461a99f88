"""The rules that a fragment is held against, in their order (Part 2, 4.3.2 and 4.6)."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec import Struct

from postroad.msh.fragment_group import Arrival, Group, Standing, Terms, header_of
from postroad.wire.fragments import MessageFragment


class Case(Struct, frozen=True):
    """A fragment before its rules: the group as it was, and as it would be."""

    before: Group
    after: Group
    arrival: Arrival
    earlier: str | None
    now: datetime
    terms: Terms
    room: int | None

    @property
    def fragment(self) -> MessageFragment:
        return self.arrival.fragment


Said = tuple[str, str]
"""The code of an error, and what is wrong."""


def _of_a_rejected_group(case: Case) -> Said | None:
    """[P2-4.3.2-02, P2-4.6-02]"""
    if case.before.standing is not Standing.REJECTED:
        return None
    return "EBMS:0040", "a fragment of this group was rejected before, and the group with it"


def _of_bad_structure(case: Case) -> Said | None:
    """[P2-4.6-09]"""
    problem = next(iter(case.arrival.problems), None)
    return None if problem is None else (problem.code, problem.detail)


def _too_late(case: Case) -> Said | None:
    """[P2-4.6-13]"""
    group = case.before
    if group.standing is not Standing.GATHERING or group.until is None or case.now <= group.until:
        return None
    return "EBMS:0051", "the join interval of this group was over when the fragment came"


def _above_the_count(case: Case) -> Said | None:
    """[P2-4.3.2-04, P2-4.6-10]"""
    number, count = case.fragment.fragment_num, case.before.count
    if count is None or number <= count:
        return None
    return "EBMS:0048", f"this is fragment {number} of only {count}"


def _there_already(case: Case) -> Said | None:
    """[P2-4.3.2-03, P2-4.6-08]"""
    complete = case.before.standing in (Standing.WHOLE, Standing.JOINED)
    if case.earlier is None and not complete:
        return None
    return "EBMS:0046", f"fragment {case.fragment.fragment_num} came before in another message"


def _count_again(case: Case) -> Said | None:
    """[P2-4.3.2-06, P2-4.6-04]"""
    if case.before.count is None or case.fragment.fragment_count is None:
        return None
    return "EBMS:0042", "FragmentCount was given before in this group"


def _count_too_low(case: Case) -> Said | None:
    """[P2-4.3.2-06, P2-4.6-11]"""
    count = case.fragment.fragment_count
    if count is None or count >= case.before.highest:
        return None
    return "EBMS:0049", f"FragmentCount is {count}, fragment {case.before.highest} came before"


def _too_large(case: Case) -> Said | None:
    """[P2-4.3.2-07, P2-4.6-12]"""
    agreed = case.terms.fragment_size
    if agreed is None or case.arrival.size <= agreed:
        return None
    return "EBMS:0050", f"its data has {case.arrival.size} bytes, at most {agreed} were agreed"


def _compression_again(case: Case) -> Said | None:
    """[P2-4.3.2-08, P2-4.6-07]"""
    if case.before.algorithm is None or case.fragment.compression_algorithm is None:
        return None
    return "EBMS:0045", "CompressionAlgorithm and size were given before in this group"


def _size_again(case: Case) -> Said | None:
    """[P2-4.3.2-08, P2-4.6-03]"""
    if case.before.message_size is None or case.fragment.message_size is None:
        return None
    return "EBMS:0041", "MessageSize was given before in this group"


def _header_again(case: Case) -> Said | None:
    """[P2-4.6-05]"""
    if case.before.message_header is None or case.fragment.message_header is None:
        return None
    return "EBMS:0043", "MessageHeader was given before in this group"


def _action_again(case: Case) -> Said | None:
    """[P2-4.6-06]"""
    if case.before.action is None or case.fragment.action is None:
        return None
    return "EBMS:0044", "Action was given before in this group"


def _unlike_the_others(case: Case) -> Said | None:
    """Fragments that differ cannot all match the message they make. [P2-4.6-15]"""
    if case.after.soap != case.arrival.soap:
        return "EBMS:0053", f"it is in SOAP {case.arrival.soap}, others in {case.after.soap}"
    if case.after.header != header_of(case.arrival.message):
        return "EBMS:0053", "its eb:UserMessage differs from those of other fragments"
    return None


def _in_another_coding(case: Case) -> Said | None:
    agreed, used = case.terms.algorithm, case.fragment.compression_algorithm
    if agreed is None or used is None or agreed == used:
        return None
    return "EBMS:0010", f"CompressionAlgorithm is {used}, the P-Mode says {agreed}"


def _unlike_its_sizes(case: Case) -> Said | None:
    """More than was said came, or less, now that all is there."""
    after = case.after
    said = after.compressed_size
    if said is None and after.complete:
        said = after.message_size
    wrong = said is not None and (after.size > said or (after.complete and after.size < said))
    if not wrong:
        return None
    return "EBMS:0003", f"the fragments together have {after.size} bytes, not {said} as was said"


def _without_a_header(case: Case) -> Said | None:
    if not case.after.complete or case.after.message_header is not None:
        return None
    return "EBMS:0009", "all fragments came, and none has the MessageHeader of the whole"


def _beyond_the_room(case: Case) -> Said | None:
    """[P2-4.3.2-10, P2-4.6-16]"""
    after, terms = case.after, case.terms
    number = max(after.highest, after.count or 0)
    if number > terms.most_fragments:
        return "EBMS:0054", f"{number} fragments are more than {terms.most_fragments}"
    room = terms.most_bytes if case.room is None else min(case.room, terms.most_bytes)
    if after.reserved > room:
        return "EBMS:0054", f"{after.reserved} bytes are expected, there is room for {room}"
    return None


RULES: Final[tuple[Callable[[Case], Said | None], ...]] = (
    _of_a_rejected_group,
    _too_late,
    _above_the_count,
    _there_already,
    _of_bad_structure,
    _count_again,
    _count_too_low,
    _too_large,
    _compression_again,
    _size_again,
    _header_again,
    _action_again,
    _unlike_the_others,
    _in_another_coding,
    _unlike_its_sizes,
    _without_a_header,
    _beyond_the_room,
)
"""In this order; the first that is broken counts."""
