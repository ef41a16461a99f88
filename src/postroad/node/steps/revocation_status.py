"""What a node knows about revoked certificates: fetched, remembered, renewed before it runs out.

Before a message is judged, the statuses of the certificates that it carries are looked up. What is
not known is fetched, and the message waits for that no longer than `security.revocation.wait`; the
fetching goes on without it. Only certificates that lead to somebody trusted cause a request: what
strangers make up is not fetched. An address that failed is left alone for a while.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

from cryptography import x509

from postroad.msh.inspection import Look
from postroad.node.base.context import Context
from postroad.node.settings.in_force import Fetched
from postroad.security.certificates import (
    UNREADABLE,
    CertificateFacts,
    is_authority,
    read_certificate,
    stamp,
)
from postroad.security.revocation import (
    OcspAnswer,
    OcspKey,
    RevocationError,
    RevocationList,
    load_lists,
    ocsp_request,
    read_answer,
)
from postroad.security.trust import Trust
from postroad.store.revocation_files import RevocationFiles
from postroad.transport.http_client import Client
from postroad.transport.revocation_fetch import FetchFailure, ask_responder, fetch_list
from postroad.wire.errors import EbmsError

_FOLDER: Final = "revocation"
_LOOK_AGAIN: Final = 5.0
"""Seconds between two looks at what runs out."""
_NOT_USED: Final = timedelta(days=1)
"""What nobody asked for in this time is not renewed."""
_TOLD_AGAIN: Final = timedelta(hours=1)
_ANSWER_BYTES: Final = 64 * 1024
_MOST_CHAINS: Final = 4
"""Certificates of one message that are looked up."""
_log = logging.getLogger("postroad.revocation")

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
Pair = tuple[CertificateFacts, CertificateFacts]
"""A certificate and that of its issuer."""


@dataclass(slots=True)
class _Known(Generic[T]):
    value: T
    pair: Pair
    due: datetime
    """When it is fetched again."""
    used: datetime


@dataclass(slots=True)
class _Anchored:
    """All who are trusted by some P-Mode, as long as the files in force stay the same."""

    expectation: int = 0
    keyring: int = 0
    """The identities of what they were gathered from."""
    trust: Trust = field(default_factory=Trust)
    pinned: tuple[x509.Certificate, ...] = ()


class RevocationStatus:
    """Looks up, fetches and renews what is known about revoked certificates."""

    def __init__(self, context: Context, client: Client) -> None:
        self._context = context
        self._client = client
        self._settings = context.config.security.revocation
        self.is_on = bool(self._settings.fetch or self._settings.crl_files)
        self._files = RevocationFiles(
            context.config.data / _FOLDER, self._settings.entries, self._settings.total_bytes
        )
        self._lists: OrderedDict[str, _Known[RevocationList]] = OrderedDict()
        self._answers: OrderedDict[OcspKey, _Known[OcspAnswer]] = OrderedDict()
        self._failures: OrderedDict[str, tuple[str, datetime]] = OrderedDict()
        self._asking: dict[str, asyncio.Lock] = {}
        """One request at a time for what many certificates name."""
        self._under_way: dict[OcspKey, asyncio.Task[None]] = {}
        self._told: dict[str, datetime] = {}
        self._anchored = _Anchored()

    # For messages

    async def learn(self, look: Look) -> None:
        """Look up the certificates of a message before it is judged, and fetch what is missing."""
        if await self._look_up(look.certificates()):
            look.renew(self._context.in_force.revocation)

    async def learn_client(self, certificate: bytes) -> None:
        """Look up the TLS client certificate of a request, to which a P-Mode may be held."""
        try:
            shown = x509.load_der_x509_certificate(certificate)
        except UNREADABLE:
            return
        await self._look_up((shown,))

    async def _look_up(self, certificates: tuple[x509.Certificate, ...]) -> bool:
        """Whether something about the certificates was fetched."""
        if not certificates:
            return False
        now = self._context.clock()
        pairs = list(self._pairs(certificates, now))
        unknown = [pair for pair in pairs if self._is_unknown(pair, now)]
        asked = bool(unknown and self._settings.fetch)
        if asked:
            await self._wait(unknown)
            unknown = [pair for pair in unknown if self._is_unknown(pair, now)]
        for facts, issuer in unknown:
            self._tell(facts, issuer, now)
        return asked

    async def _wait(self, unknown: list[Pair]) -> None:
        tasks = {self._begin(pair) for pair in unknown if self._may_ask(pair)}
        if tasks:
            await asyncio.wait(tasks, timeout=self._settings.wait.total_seconds())

    def _pairs(self, certificates: tuple[x509.Certificate, ...], now: datetime) -> Iterator[Pair]:
        """The certificates on the paths to somebody trusted, with their issuers."""
        anchored = self._anchors()
        for certificate in certificates[:_MOST_CHAINS]:
            try:
                chain = anchored.trust.verify(certificate, certificates, now).chain
            except EbmsError:
                continue
            yield from pairwise(map(read_certificate, chain))

    def _anchors(self) -> _Anchored:
        in_force = self._context.in_force
        sources = (in_force.expectation, in_force.keyring)
        if (self._anchored.expectation, self._anchored.keyring) != tuple(map(id, sources)):
            self._anchored = self._gathered()
        return self._anchored

    def _gathered(self) -> _Anchored:
        in_force = self._context.in_force
        pinned = dict.fromkeys(in_force.keyring.trust)
        anchors = dict.fromkeys(in_force.keyring.trust)
        for one in in_force.expectation.materials.values():
            pinned |= dict.fromkeys((*one.pins, *one.recipients, *one.answering, *one.tls_clients))
            anchors |= dict.fromkeys((*one.anchors, *one.tls_anchors))
        authorities = tuple(one for one in anchors if is_authority(one))
        # Whether a certificate may sign is judged with the message: here any purpose will do.
        trust = Trust(
            authorities, check_key_usage=False, purposes=None, min_rsa_bits=1024, allow_sha1=True
        )
        ids = id(in_force.expectation), id(in_force.keyring)
        return _Anchored(*ids, trust, tuple(pinned))

    def _is_unknown(self, pair: Pair, now: datetime) -> bool:
        facts, issuer = pair
        known = self._answers.get((issuer.public_key, facts.serial))
        for entry in (known, *(self._lists.get(url) for url in facts.crl_urls)):
            if entry is not None:
                entry.used = now
        found = self._context.in_force.revocation.check(facts, issuer, now, allow_sha1=False)
        return found.status == "unknown"

    def _tell(self, facts: CertificateFacts, issuer: CertificateFacts, now: datetime) -> None:
        """Count what is not known, and log it now and then."""
        self._context.count("revocation_unknown", mode=self._settings.mode)
        last = self._told.get(facts.subject_text)
        if last is not None and now - last < _TOLD_AGAIN:
            return
        if len(self._told) >= self._settings.entries:
            self._told.clear()
        self._told[facts.subject_text] = now
        found = self._context.in_force.revocation.check(facts, issuer, now, allow_sha1=False)
        extra = {"certificate": facts.subject_text, "detail": found.detail}
        _log.warning("revocation status unknown", extra=extra)

    # By the clock

    async def run(self) -> None:
        """Learn about all whom P-Modes name, then renew what runs out, until cancelled."""
        if not self._settings.fetch:
            return
        try:
            while True:
                now = self._context.clock()
                pinned = self._anchors().pinned
                for certificate in pinned:
                    for pair in self._pairs((certificate,), now):
                        if self._is_unknown(pair, now) and self._may_ask(pair):
                            self._begin(pair)
                self._renew(now)
                await asyncio.sleep(_LOOK_AGAIN)
        finally:
            for task in self._under_way.values():
                task.cancel()

    def _renew(self, now: datetime) -> None:
        known: list[_Known[Any]] = [*self._lists.values(), *self._answers.values()]
        for one in known:
            if one.due <= now and now - one.used < _NOT_USED and self._may_ask(one.pair):
                self._begin(one.pair)

    # Fetching

    def _may_ask(self, pair: Pair) -> bool:
        """Whether an address is named that is not left alone just now."""
        now = self._context.clock()
        urls = self._urls(pair[0])
        return any(self._failures.get(url, ("", now))[1] <= now for url in urls)

    def _urls(self, facts: CertificateFacts) -> tuple[str, ...]:
        wanted = self._settings.fetch
        return (
            *(facts.ocsp_urls if "ocsp" in wanted else ()),
            *(facts.crl_urls if "crl" in wanted else ()),
        )

    def _begin(self, pair: Pair) -> asyncio.Task[None]:
        """Fetch what tells about a certificate, unless that is under way."""
        facts, issuer = pair
        key = (issuer.public_key, facts.serial)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._fetch(pair))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return task

    async def _fetch(self, pair: Pair) -> None:
        facts, _ = pair
        wanted = self._settings.fetch
        learned = False
        if "ocsp" in wanted:
            learned = await self._first(facts.ocsp_urls, lambda url: self._ask(url, pair))
        if not learned and "crl" in wanted:
            await self._first(facts.crl_urls, lambda url: self._list(url, pair))
        self._context.in_force.learn(
            Fetched(
                tuple(one.value for one in self._lists.values()),
                {key: one.value for key, one in self._answers.items()},
                {url: reason for url, (reason, _) in self._failures.items()},
            )
        )

    async def _first(self, urls: tuple[str, ...], fetch: Callable[[str], Awaitable[bool]]) -> bool:
        """Try addresses until one tells."""
        for url in urls:
            now = self._context.clock()
            if self._failures.get(url, ("", now))[1] > now:
                continue
            try:
                told = await fetch(url)
            except (FetchFailure, RevocationError) as failure:
                self._failed(url, str(failure), now)
                continue
            except Exception as error:
                # Nobody foresaw it: it must neither end the node's work nor be tried at once again.
                _log.exception("revocation status not fetched", extra={"url": url})
                self._failed(url, f"{type(error).__name__}: {error}", now)
                continue
            self._failures.pop(url, None)
            if told:
                return True
        return False

    def _failed(self, url: str, reason: str, now: datetime) -> None:
        self._context.count("revocation_failures")
        _log.info("revocation status not fetched", extra={"url": url, "detail": reason})
        self._failures[url] = (reason, now + self._settings.retry)
        _bound(self._failures, self._settings.entries)

    async def _ask(self, url: str, pair: Pair) -> bool:
        """Ask a responder; True if it knows the certificate."""
        facts, issuer = pair
        now, key = self._context.clock(), (issuer.public_key, facts.serial)
        known = self._answers.get(key)
        if known is not None and known.due > now:
            return known.value.status != "unknown"
        stored = f"ocsp {issuer.public_key.hex()} {facts.serial}"
        answer = await self._stored_answer(stored, pair, now)
        if answer is None:
            nonce = self._context.entropy(16)
            data = await ask_responder(
                self._client, url, ocsp_request(facts, issuer, nonce), seconds=self._seconds
            )
            now, skew = self._context.clock(), self._context.config.clock_skew
            answer = read_answer(data, facts, issuer, now, nonce=nonce, skew=skew)
            end = answer.next_update or answer.this_update + self._answer_age
            if end < now:
                raise RevocationError(f"the answer ran out on {stamp(end)}")
            if known is not None:
                _check_newer("answer", answer.this_update, known.value.this_update)
            await asyncio.to_thread(self._files.write, stored, data)
        due = self._due(now, answer.next_update)
        self._answers[key] = _Known(answer, pair, due, now)
        self._answers.move_to_end(key)
        _bound(self._answers, self._settings.entries)
        return answer.status != "unknown"

    async def _stored_answer(self, stored: str, pair: Pair, now: datetime) -> OcspAnswer | None:
        """What was kept of an answer, where this process has none and it need not be renewed."""
        if (pair[1].public_key, pair[0].serial) in self._answers:
            return None
        data = await asyncio.to_thread(self._files.read, stored, _ANSWER_BYTES)
        with contextlib.suppress(RevocationError):
            found = read_answer(data or b"", *pair, now, skew=self._context.config.clock_skew)
            if self._is_fresh(found.this_update, found.next_update, now):
                return found
        return None

    async def _list(self, url: str, pair: Pair) -> bool:
        """Fetch a list; True, since it tells about all certificates of its issuer."""
        lock = self._asking.setdefault(url, asyncio.Lock())
        try:
            async with lock:
                known = self._lists.get(url)
                if known is None or known.due <= self._context.clock():
                    await self._new_list(url, pair)
        finally:
            if not lock.locked():
                self._asking.pop(url, None)
        return True

    async def _new_list(self, url: str, pair: Pair) -> None:
        now, most = self._context.clock(), self._settings.list_bytes
        found: RevocationList | None = None
        if url not in self._lists:
            data = await asyncio.to_thread(self._files.read, url, most)
            with contextlib.suppress(RevocationError):
                kept = await asyncio.to_thread(_read_list, data or b"", pair, self._latest(now))
                if self._is_fresh(kept.this_update, kept.next_update, now):
                    found = kept
        if found is None:
            data = await fetch_list(self._client, url, seconds=self._seconds, most=most)
            now = self._context.clock()
            found = await asyncio.to_thread(_read_list, data, pair, self._latest(now))
            if found.next_update is not None and found.next_update < now:
                raise RevocationError(f"the list ran out on {stamp(found.next_update)}")
            if url in self._lists:
                _check_newer("list", found.this_update, self._lists[url].value.this_update)
            await asyncio.to_thread(self._files.write, url, data)
        self._lists[url] = _Known(found, pair, self._due(now, found.next_update), now)
        self._lists.move_to_end(url)
        _bound(self._lists, self._settings.entries)
        while sum(one.value.size for one in self._lists.values()) > self._settings.total_bytes:
            self._lists.popitem(last=False)

    @property
    def _seconds(self) -> float:
        return self._settings.timeout.total_seconds()

    @property
    def _answer_age(self) -> timedelta:
        return self._context.in_force.revocation.answer_age

    def _latest(self, now: datetime) -> datetime:
        return now + self._context.config.clock_skew

    def _is_fresh(self, made: datetime, end: datetime | None, now: datetime) -> bool:
        return now - made < self._settings.refresh and (end is None or now < end)

    def _due(self, now: datetime, end: datetime | None) -> datetime:
        """When to fetch again: well before it runs out, and not without a pause."""
        latest = now + self._settings.refresh
        if end is None:
            return latest
        return max(now + self._settings.retry, min(latest, now + (end - now) * 0.9))


def _read_list(data: bytes, pair: Pair, latest: datetime) -> RevocationList:
    """The list that the issuer made; `RevocationError` where there is none of it."""
    facts, issuer = pair
    for one in load_lists(data):
        if one.issuer != facts.issuer or not one.is_signed_by(issuer):
            continue
        if one.this_update > latest:
            raise RevocationError(f"the list is of the future, {stamp(one.this_update)}")
        return one
    raise RevocationError(f"the list was not signed by {issuer.subject_text}")


def _check_newer(what: str, made: datetime, known: datetime) -> None:
    """What somebody on the line repeats must not undo a revocation that is known."""
    if made < known:
        raise RevocationError(
            f"the {what} of {stamp(made)} is older than that of {stamp(known)}, which is at hand"
        )


def _bound(entries: OrderedDict[K, V], most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)
