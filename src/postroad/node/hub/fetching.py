"""Channels of other MSHs from which an intermediary pulls, to pass on what comes.

It shows a user name and its password, and keeps what comes as if it had been pushed. There is
nobody who waits for the response, so what cannot be passed on is reported like what was given up.
"""

import asyncio
import contextlib
import logging
from typing import Final

from msgspec.structs import replace as changed

from postroad.agreement.routes import Inbound
from postroad.msh.forwarding import read_routable
from postroad.msh.pulling import relayed_pull_request
from postroad.node.base.context import Context
from postroad.node.base.requests import STATIONS, Request, nothing
from postroad.node.hub.catching import Caught, WholeCatch
from postroad.node.hub.forwarding import Forwarding
from postroad.node.hub.reporting import ForwardingReports
from postroad.node.steps.hearing import told_by
from postroad.store.records import Event
from postroad.transport.http_client import Client
from postroad.transport.http_outgoing import Outgoing, Timeouts, TransportFailure
from postroad.transport.tls import profile_from_pmode
from postroad.wire.errors import EbmsError

_EMPTY: Final = "EBMS:0006"
_LOOK: Final = 1.0
"""Seconds until rules that changed are noticed."""
_log = logging.getLogger("postroad.forward")


class Fetching:
    """Pulls for others."""

    def __init__(self, context: Context, client: Client) -> None:
        self._context = context
        self._client = client
        self._forwarding = Forwarding(context)
        self._reports = ForwardingReports(context)
        http = context.config.http
        self._timeouts = Timeouts(
            connect=http.connect_timeout.total_seconds(),
            answer=http.answer_timeout.total_seconds(),
        )
        self._due: dict[Inbound, float] = {}

    async def run(self) -> None:
        """Until cancelled: empty each channel when its time has come."""
        tasks: dict[Inbound, asyncio.Task[None]] = {}
        loop = asyncio.get_running_loop()
        try:
            while True:
                for one in self._context.in_force.routing.file.pull:
                    running = tasks.get(one)
                    if running is not None and not running.done():
                        continue
                    if self._due.get(one, 0.0) <= loop.time():
                        tasks[one] = asyncio.create_task(self._drain(one))
                await asyncio.sleep(_LOOK)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _drain(self, inbound: Inbound) -> None:
        """Ask until nothing is left."""
        try:
            while await self._ask(inbound):
                pass
        except Exception:
            _log.exception("pulling failed", extra={"peer": inbound.address})
        finally:
            wait = inbound.interval.total_seconds()
            self._due[inbound] = asyncio.get_running_loop().time() + wait

    async def _ask(self, inbound: Inbound) -> bool:
        """One PullRequest; whether a message came that was kept."""
        context, now, url = self._context, self._context.clock(), inbound.address
        asking = relayed_pull_request(
            inbound.mpc,
            inbound.authorization,
            signal_id=context.new_id(now),
            now=now,
            entropy=context.entropy,
        )
        catch = WholeCatch(context)
        password = context.in_force.keyring.password
        folder = context.in_force.routing.folder
        key_password = password.decode() if password else None
        request = Outgoing(
            url,
            asking.content_type,
            asking.envelope,
            (),
            profile_from_pmode(inbound.tls, folder, key_password=key_password),
            self._timeouts,
            reply_bytes=context.limits.message_bytes,
            reader=catch.reader,
        )
        try:
            reply = await self._client.post(request)
            fetched = catch.close()
        except TransportFailure as failure:
            return await self._trouble("EBMS:0005", failure.reason, url)
        except EbmsError as wrong:
            return await self._trouble(wrong.code, wrong.detail, url)
        finally:
            catch.drop()
        stations = dict(reply.headers).get(STATIONS.lower())
        return await self._take(
            fetched, Request(catch.content_type, url, nothing(), stations=stations)
        )

    async def _take(self, fetched: Caught, came: Request) -> bool:
        url = came.peer or ""
        letter = await self._forwarding.read(fetched.capture, fetched.body, came)
        if letter is None:
            return await self._nothing(fetched, url)
        # Nobody forces anything on who asks for it: no quota counts it.
        problem = await self._forwarding.keep(changed(letter, accounts=()))
        if problem is not None:
            _log.warning("not passed on", extra={"peer": url, "detail": str(problem)})
            await self._reports.report(letter, problem)
        return True

    async def _nothing(self, fetched: Caught, url: str) -> bool:
        """An empty channel; or something that is not for an intermediary, which is told."""
        with contextlib.suppress(EbmsError):
            found = read_routable(fetched.capture.envelope, self._context.limits)
            signals = found.messaging.signals if found.messaging is not None else ()
            for one in (error for signal in signals for error in signal.errors):
                if one.error_code == _EMPTY:
                    return False
                return await self._trouble(one.error_code, told_by(one), url)
        said = "what was pulled is not aimed at an intermediary, or is for this node itself"
        return await self._trouble("EBMS:0004", said, url)

    async def _trouble(self, code: str, said: str, url: str) -> bool:
        """The journal is told; who holds the channel keeps what it has."""
        context = self._context
        context.count_error(code)
        event = Event(
            context.clock(),
            context.party,
            "error_raised",
            error_code=code,
            severity="failure",
            detail=f"nothing could be pulled: {said}"[:2000],
            peer=url,
        )
        await context.store.run(lambda tx: tx.record((event,)))
        _log.warning("not pulled", extra={"peer": url, "detail": said})
        return False
