"""Messages about sequences as they are asked: posted, and what the answer says."""

from typing import Final

from postroad.agreement.matching import Match
from postroad.msh.capture import Capture, Incoming
from postroad.msh.lens import Inspection
from postroad.msh.wsrm import Written, rm_problems
from postroad.node.base.context import Context
from postroad.reliability.awareness import Answer, error_said, leaves_open
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Reply, Timeouts, TransportFailure
from postroad.transport.tls import TlsProfile
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.wsrm import Lifecycle
from postroad.wire.wsrm_reader import read_lifecycle

UNANSWERED: Final = (
    "no sequence could be made: the response is empty, and nobody can answer later; let the hubs "
    "on the way stream, or write reply_pattern: Callback and contract.acks_to with an EPR"
)


class NoSequence(Exception):
    """There is no sequence for a message now."""

    def __init__(self, detail: str, code: str = "EBMS:0005", *, refused: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.refused = refused
        """The partner said so, and would again."""


async def sent(
    context: Context, client: Client, written: Written, url: str, tls: TlsProfile | None
) -> Reply:
    """Post a message of the protocol; `NoSequence` where it was not answered."""
    http = context.config.http
    request = Outgoing(
        url,
        written.content_type,
        written.envelope,
        written.headers,
        tls,
        Timeouts(
            connect=http.connect_timeout.total_seconds(),
            answer=http.answer_timeout.total_seconds(),
        ),
        reply_bytes=context.limits.envelope_bytes,
    )
    try:
        return await client.post(request)
    except TransportFailure as failure:
        raise NoSequence(f"no sequence could be made: {failure.reason}") from None


async def post(
    context: Context, client: Client, written: Written, url: str, tls: TlsProfile | None
) -> Capture | None:
    """Post a life-cycle message; the response, None where it was taken and nothing said."""
    reply = await sent(context, client, written, url, tls)
    if not reply.body:
        if reply.status < 300:
            return None
        said = f"no sequence could be made: the partner answered HTTP {reply.status}, and no more"
        raise NoSequence(said)
    try:
        incoming = Incoming(
            reply.content_type, new_sink=context.store.new_sink, limits=context.limits
        )
        incoming.feed(reply.body)
        return incoming.close()
    except EbmsError as wrong:
        raise NoSequence(f"no sequence could be made: {wrong.detail}", wrong.code) from None


def _is_refusal(code: str) -> bool:
    """Whether asking again would bring the same: not if the partner had trouble of its own."""
    return error_said(code) is Answer.ERROR and not leaves_open(code, 500)


def answer_in(found: Inspection, match: Match, wanted: type[Lifecycle]) -> Lifecycle:
    """The answer in a response, if it is believed."""
    assert found.envelope is not None or found.problems
    if found.envelope is None:
        raise NoSequence(found.problems[0].detail, found.problems[0].code)
    if found.messaging is not None:
        told = [one for signal in found.messaging.signals for one in signal.errors]
        for one in told:
            said = f"no sequence could be made: {one.error_code} {one.error_detail or ''}"
            raise NoSequence(said.strip(), "EBMS:0201", refused=_is_refusal(one.error_code))
    if found.fault is not None:
        raise NoSequence(f"the partner answered with a SOAP fault: {found.fault.reason}")
    answer, wrong = read_lifecycle(found.envelope)
    wrong = rm_problems(found, match) or [one for one in wrong if one.severity is Severity.FAILURE]
    if wrong:
        raise NoSequence(f"the partner's answer is not believed: {wrong[0].detail}")
    if not isinstance(answer, wanted):
        raise NoSequence(f"the partner answered without a {wanted.__name__}", "EBMS:0201")
    return answer
