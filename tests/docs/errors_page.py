"""docs/errors.md, made from the code: every error that a user can meet.

`python -m tests.docs.errors_page` writes it; a test compares.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from postroad.wire.errors import EBXML, ERRORS, ErrorKind
from postroad.wire.wsrm_faults import ESCALATED, Code
from tests.conftest import PROJECT
from tests.docs.error_advice import CODES, EXIT_CODES, FAULTS, STATUSES
from tests.docs.error_sentences import Call, Sentence, sentences

PAGE: Final = PROJECT / "docs" / "errors.md"
_HEAD: Final = """\
# Errors

Everything by which Postroad says no, with what to do. This page is made from the code; `…` stands
for what is filled in. Look for the words that you were given, without names and numbers.

- [Codes](#codes-of-ebms) stand in messages between partners, in `status`, `trace` and the journal.
- [Exit codes](#exit-codes) and [sentences](#commands) of commands are on stderr.
- [The REST interface](#the-rest-interface) answers with a status and a sentence.
- A node that [does not start](#starting-a-node) says why; so do its [file](#the-nodes-file), its
  [P-Modes](#p-modes) and its [rules](#rules-of-a-hub).
"""

BREACHES: Final = {"Breach": Call(1, 2), "warning": Call(1, 2)}
VALUES: Final = {"ValueError": Call(0)}


def page() -> str:
    """The whole page."""
    parts = [_HEAD, *_codes(), *_faults(), *_exit_codes(), *_told()]
    return "\n".join(parts)


def _codes() -> Iterator[str]:
    yield "## Codes of ebMS\n"
    yield "The severity is that of the specification; a warning refuses nothing.\n"
    yield from _table(
        ("code", "name", "severity", "meaning", "what to do"), _rows(EBXML, same=False)
    )
    yield "## Codes of ebXML 0.98b, 1.0 and 2.0\n"
    yield from _table(("code", "meaning", "what to do"), _rows(EBXML, same=True))


def _rows(origin: str, *, same: bool) -> Iterator[tuple[str, ...]]:
    for kind in ERRORS.values():
        if (kind.origin == origin) != same:
            continue
        ends = (kind.meaning, CODES[kind.code])
        yield (kind.code, *ends) if same else (kind.code, *_named(kind), *ends)


def _named(kind: ErrorKind) -> tuple[str, str]:
    return kind.short_description, kind.severity.value


def _faults() -> Iterator[str]:
    yield "## Faults of WS-ReliableMessaging\n"
    rows = [(one.value, ESCALATED[one], *FAULTS[one.value]) for one in Code]
    yield from _table(("fault", "told as", "meaning", "what to do"), rows)


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield from _table(("code", "when"), [(str(code), said) for code, said in EXIT_CODES.items()])


def _told() -> Iterator[str]:
    yield "## Starting a node\n"
    yield from _list(
        *sentences("api/serving.py", {"ServeError": Call(0)}),
        *sentences("api/running.py", {"ServeError": Call(0)}),
        *sentences("store/opening.py", _STORE),
        *sentences(
            "node/settings/agreements.py", {"AgreementError": Call(0), "_Unusable": Call(0)}
        ),
    )
    yield "## The node's file\n"
    yield "Each with file and line. A value of a wrong form is told as in [P-Modes](#p-modes).\n"
    own = {".problem": Call(1, 2), "._problem": Call(1, 2), "_problem": Call(2, 3)}
    yield from _both(sentences("node/settings/config*.py", BREACHES | own))
    yield from _both(
        sentences("node/settings/keyring.py", own) + sentences("node/settings/can_ship.py", own)
    )
    yield from _list(*sentences("node/settings/config_groups.py", VALUES))
    yield "## P-Modes\n"
    yield "Each with file, line and parameter; `postroad pmode check` tells them all.\n"
    yield from _both(sentences("agreement/[!r]*.py", BREACHES | {"._fault": Call(1, 2)}))
    yield from _both(
        sentences("agreement/re*.py", BREACHES) + sentences("agreement/rules.py", BREACHES)
    )
    yield "Values of a wrong form, and what has no units for [hubs](hub.md):\n"
    yield from _list(
        *sentences("agreement/values.py", VALUES), *sentences("agreement/units.py", VALUES)
    )
    yield "### Imported P-Modes\n"
    yield from _list(*sentences("agreement/importing*.py", {"Refusal": Call(1)}))
    yield "## Rules of a hub\n"
    yield "Each with file and line; `postroad route check` tells them all.\n"
    yield from _both(sentences("agreement/rout*.py", BREACHES))
    yield "## Keys, certificates and TLS\n"
    kinds = {"KeyStoreError": Call(0), "TlsError": Call(0), "Unsecurable": Call(0)}
    yield from _list(
        *sentences("security/keys.py", kinds),
        *sentences("security/key*.py", kinds),
        *sentences("security/pkcs12.py", kinds),
        *sentences("transport/*.py", kinds),
        *sentences("msh/securing.py", kinds),
    )
    yield "## Commands\n"
    yield "Each begins with `postroad:`.\n"
    yield from _coded(sentences("cli/**/*.py", {"fail": Call(0, code="code")}), "exit code", "2")
    steps = {one: Call(0) for one in ("InitError", "KeyFileError", "PartnerError", "ValueError")}
    yield from _list(*sentences("node/first_steps/*.py", steps))
    yield "## The REST interface\n"
    yield "As `detail` of [problem details](rest.md#when-something-is-wrong).\n"
    yield from _table(
        ("status", "what to do"), [(str(one), said) for one, said in STATUSES.items()]
    )
    refusals = {
        "Refused": Call(1, code=0),
        "ApiProblem": Call(1, code=0),
        "problem": Call(1, code=0),
    }
    yield from _coded(
        [*sentences("api/*.py", refusals), *sentences("node/**/*.py", refusals)], "status"
    )
    yield "## The store\n"
    yield from _list(*sentences("store/*.py", _STORE))
    yield "## The journal\n"
    kinds = {
        one: Call(0) for one in ("ShippingError", "OtherJournal", "NotASegment", "SegmentExists")
    }
    yield from _list(*sentences("store/*.py", kinds))
    yield "## The pipeline\n"
    names = "NoSpark NoJava NoFormat RunError LakeError CannotSimulate WrongSummary NotReadable"
    more = ("Damaged", "Gone", "DataLoss", "PySparkRuntimeError")
    yield from _list(*sentences("pipeline/*.py", {one: Call(0) for one in (*names.split(), *more)}))
    yield "## Sequences and links between partners\n"
    yield from _list(
        *sentences("node/wsrm/*.py", {"NoSequence": Call(0), "RmFault": Call(1)}),
        *sentences("transport/*.py", {"TransportFailure": Call(1)}),
    )
    yield "## What is wrong with a message\n"
    yield "By code, as `postroad inspect`, the journal and the partner tell it.\n"
    yield from _by_code()


_STORE: Final = {
    one: Call(0) for one in ("StoreError", "StoreFull", "StoreBusy", "StoreDamaged", "lost")
}


def _by_code() -> Iterator[str]:
    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    kinds = {"EbmsError": Call(1, code=0), ".add": Call(2, code=0)}
    for room in ("wire", "security", "agreement", "reliability", "msh", "node"):
        for one in sentences(f"{room}/**/*.py", kinds):
            code = one.code if one.code in ERRORS else None
            if code is not None:
                found[code][one.message] = None
    for code in ERRORS:
        if found[code]:
            yield f"### {code}\n"
            yield from _list(*(Sentence(one) for one in found[code]))


def _both(found: list[Sentence]) -> Iterator[str]:
    yield from _table(("what is said", "what to do"), [(one.message, one.hint) for one in found])


def _coded(found: list[Sentence], name: str, usual: str = "") -> Iterator[str]:
    rows = sorted((one.code or usual, one.message) for one in found)
    yield from _table((name, "what is said"), rows)


def _list(*found: Sentence) -> Iterator[str]:
    for one in dict.fromkeys(one.message for one in found):
        yield f"- {_cell(one)}"
    yield ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _row(head)
    yield _row(("---",) * len(head))
    for one in dict.fromkeys(rows):
        yield _row(tuple(map(_cell, one)))
    yield ""


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    said = " ".join(text.split()).replace("|", "\\|")
    if "](" in said:
        return said
    return said.replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(page())
