"""Where the rules lead a message: one of this node's, or one in a file."""

from collections.abc import Callable, Iterable
from typing import Final

from postroad.agreement.routing import RoutingTable
from postroad.msh.capture import read_capture
from postroad.msh.forwarding import RouteReport, read_routable, route_report
from postroad.node.base.context import Context
from postroad.node.service import Refused
from postroad.store.records import Message
from postroad.store.spool import SpoolSink
from postroad.wire.content import read_all
from postroad.wire.errors import EbmsError
from postroad.wire.limits import DEFAULT, Limits

_NOT_KEPT: Final = (
    "its envelope is no longer kept here. The rule that it was forwarded by is in its history: "
    "postroad trace"
)


def explain_message(context: Context, message: Message) -> RouteReport:
    """Where the rules in force would lead a message that this node has."""
    if message.envelope is None:
        raise Refused(409, f"{message.wire_id}: {_NOT_KEPT}")
    data = read_all(context.store.content(message.envelope), message.envelope.size)
    return _told(lambda: data, context.in_force.routing.table, context.limits)


def explain_capture(
    chunks: Iterable[bytes], table: RoutingTable, limits: Limits = DEFAULT
) -> RouteReport:
    """The same for a captured message: an HTTP message, a MIME body or an envelope."""

    def new_sink() -> SpoolSink:
        return SpoolSink(limits.memory_bytes)

    return _told(
        lambda: read_capture(chunks, new_sink=new_sink, limits=limits).envelope, table, limits
    )


def _told(envelope: Callable[[], bytes], table: RoutingTable, limits: Limits) -> RouteReport:
    try:
        return route_report(read_routable(envelope(), limits), table)
    except EbmsError as wrong:
        return RouteReport(None, error=str(wrong))
