"""Asking partners on the command line: ping, query."""

import shlex
from typing import Annotated, Final

import typer

from postroad.api.client import ApiError, Message, QueryAnswer
from postroad.api.limits import ASK, WAIT
from postroad.cli.node_options import ConfigFile, Json, MessageId, Token, Url, node
from postroad.cli.problems import fail
from postroad.cli.showing import as_data, moment, plain, print_facts, print_json
from postroad.cli.standing import has_been_missed, shown_state, to_do

_WORDS: Final = {
    "Received": "the partner has it",
    "Processed": "the partner has processed it",
    "Forwarded": "it was passed on towards the partner",
    "NotRecognized": "the partner does not know it",
    "UnAuthorized": "the partner does not tell us",
}
_GIVEN_UP: Final = ("failed", "expired", "in_doubt")

Wait = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", min=0.1, max=WAIT, help="For how long to wait for an answer."
    ),
]


def ping(
    pmode: Annotated[
        str, typer.Argument(metavar="PMODE", help="The P-Mode to ask with: its partner is asked.")
    ],
    wait: Wait = ASK,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Ask a partner whether it is there; the exit code is 0 only when it answers.

    A partner of ebXML is pinged; one of AS4 gets a test message, which it does not deliver.

    Example: postroad ping buyer-to-seller-order --wait 30
    """
    with node(config, url, token) as client:
        told = client.ping(pmode, wait=wait)
    address = plain(told.address)
    if as_json:
        print_json(as_data(told))
    elif told.answer is not None:
        typer.echo(f"{address} answers {plain(told.answer)}, after {told.seconds:.3f} s")
    if told.answer is None:
        said = f"{address} does not answer: {plain(told.detail)}"
        fail(f"{said}; see whether {plain(pmode)} has the right address, and ask again", code=1)


def query(
    message_id: MessageId,
    settle: Annotated[
        bool,
        typer.Option("--settle", help="Write a definite answer down, so that the doubt ends."),
    ] = False,
    wait: Wait = ASK,
    as_json: Json = False,
    config: ConfigFile = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Ask the partner what became of a message, by ebXML's status request.

    The exit code is 0 when the partner answers; with --settle only when that was written down.

    Example: postroad query order-4711@buyer.example --settle
    """
    name = plain(message_id)
    with node(config, url, token) as client:
        try:
            told = client.query(message_id, wait=wait, settle=settle)
        except ApiError as error:
            if error.status != 422:
                raise
            fail(f"{plain(error.detail)}; {_otherwise(name)}", code=1)
        message = client.status(message_id, side="sending")
    if as_json:
        print_json(as_data(told))
    elif told.answer is not None:
        _show(message, told)
    if told.answer is None:
        said = f"{plain(told.address)} does not tell of {name}: {plain(told.detail)}"
        there = f"postroad ping {shlex.quote(plain(message.pmode))}"
        fail(f"{said}; whether it is there is told by: {there}", code=1)
    if settle and told.settled is None:
        fail(f"{name} is not settled now: {plain(told.detail)}", code=1)


def _show(message: Message, told: QueryAnswer) -> None:
    said = _WORDS.get(told.answer or "", "")
    print_facts(
        (
            ("message", message.message_id),
            ("partner", message.to_party),
            ("answer", f"{told.answer}: {said}" if said else told.answer),
            ("but", told.detail if told.means is None else ""),
            ("received", moment(told.timestamp) if told.timestamp else ""),
            ("asked", f"{told.address}, {told.seconds:.3f} s"),
            ("state", shown_state(message)),
            ("to do", _next(message, told)),
        )
    )


def _next(message: Message, told: QueryAnswer) -> str:
    """What to do after that answer; empty when nothing."""
    name = shlex.quote(plain(message.message_id))
    given_up = message.state in _GIVEN_UP
    if told.means is None:
        return _otherwise(message.message_id) if given_up else ""
    if told.means != "not_received":
        open_still = given_up or has_been_missed(message)
        return f"write it down with: postroad query {name} --settle" if open_still else ""
    if message.state in ("failed", "in_doubt", "sent"):
        return f"send it again with: postroad resend {name}"
    return to_do(message)


def _otherwise(message_id: str) -> str:
    noted = f"postroad settle {shlex.quote(plain(message_id))} --answer delivered"
    return f"ask the partner by other means, and note the answer with: {noted}"
