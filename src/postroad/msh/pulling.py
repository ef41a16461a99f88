"""PullRequests: made by who pulls, and judged by who is pulled from (Core 3, 7.10; AS4 3.4).

Whoever is refused learns nothing: not whether there is such a channel, nor what was wrong.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from msgspec import Struct

from postroad.agreement.channels import (
    channel_of,
    client_asked,
    is_below,
    pulling_of,
    signature_asked,
    somebody_may_pull,
    token_asked,
)
from postroad.agreement.matching import Match
from postroad.agreement.places import sides
from postroad.agreement.pmode import Authorization, Partner
from postroad.msh.expectation import Expectation, Material, Terms
from postroad.msh.lens import Inspection
from postroad.msh.outbound import MESSAGING_ID, secured_at, soap_version
from postroad.msh.routing_headers import pull_routing
from postroad.msh.securing import Unsecurable, key_signing, own_signing, signs
from postroad.security.certificates import is_authority
from postroad.security.key_purposes import SIGNING
from postroad.security.keyestablishment import Entropy
from postroad.security.keys import KeyPair
from postroad.security.revocation import NO_REVOCATION, Revocation
from postroad.security.secure import secure
from postroad.security.sign import Block, Signing, write_security
from postroad.security.trust import Trust, check_subject
from postroad.security.username import (
    MAX_AGE,
    UsernameTokenRefused,
    check_username_token,
    write_username_token,
)
from postroad.wire.ebms3 import MessageInfo, Messaging, PullRequest, Selection, SignalMessage
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.names import NEXT_MSH
from postroad.wire.soap import SoapVersion

EBMS_ROLE: Final = "ebms"
_NONCE_BYTES: Final = 16


class Channel(Struct, frozen=True):
    """A channel in which messages of a P-Mode's leg wait, or signals about them."""

    match: Match
    mpc: str
    signals: bool = False

    @property
    def place(self) -> tuple[str, str]:
        return self.mpc, self.match.pmode.id

    @property
    def puller(self) -> Partner | None:
        """Who may pull: the receiver of messages, or their sender what is said about them."""
        sender, receiver = sides(self.match.pmode, self.match.number - 1)
        return sender if self.signals else receiver


def message_channel(match: Match) -> Channel:
    """The channel of a leg whose messages are pulled."""
    return Channel(match, channel_of(match.leg))


class Asking(Struct, frozen=True):
    """A PullRequest as it is sent."""

    signal_id: str
    version: SoapVersion
    envelope: bytes

    @property
    def content_type(self) -> str:
        return f"{self.version.media_type}; charset=UTF-8"


def pull_request(
    channel: Channel,
    selection: Selection | None,
    *,
    signal_id: str,
    now: datetime,
    entropy: Entropy,
    key: KeyPair | None,
    riding: SignalMessage | None = None,
    headers: Sequence[Block] = (),
) -> Asking:
    """A request for a message of a P-Mode's channel, with what shows who asks. [P2-2.5.4-01]

    `riding` is the receipt of a message that was pulled before; it is signed where receipts are,
    and so are `headers` of reliable messaging.
    `Unsecurable` when it has to be signed and there is no key.
    """
    match, leg = channel.match, channel.match.leg
    version = soap_version(leg)
    request = PullRequest(channel.mpc, selection)
    signal = SignalMessage(MessageInfo(now, signal_id), pull_request=request)
    units = (signal,) if riding is None else (signal, riding)
    routing = pull_routing(match, signal_id, signals=channel.signals)
    aimed = leg.protocol is not None and leg.protocol.add_actor_or_role_attribute
    role = NEXT_MSH if aimed and routing is None else None
    messaging = Messaging(units, id=MESSAGING_ID, role=role)
    blocks = [] if routing is None else routing.blocks(version)
    blocks += [*headers, Block(MESSAGING_ID, write_messaging(messaging, version))]
    agreed = token_asked(match.pmode, leg)
    if agreed is not None:
        token = write_username_token(
            agreed.username,
            agreed.password.get_secret_value(),
            digest=pulling_of(leg).digest,
            nonce=entropy(_NONCE_BYTES),
            created=now,
        )
        blocks.append(Block("", write_security(version, [token], role=EBMS_ROLE)))
    how = pull_signing(match, key, more=riding is not None or bool(headers))
    secured = secure(version, blocks, [], signing=how, lifetime=secured_at(now) if how else None)
    return Asking(signal_id, version, secured.envelope)


def pull_signing(match: Match, key: KeyPair | None, *, more: bool) -> Signing | None:
    """How who pulls signs: where that is asked for, and with `more` where messages are signed."""
    if not (signature_asked(match.pmode, match.leg) or (more and signs(match.leg))):
        return None
    if key is None:
        raise Unsecurable("PullRequests are to be signed, and there is no key: set keys.signing")
    return own_signing(key_signing(match.leg, key))


def riding_on(messaging: Messaging | None) -> tuple[SignalMessage, ...]:
    """The receipt and the error that ride on a PullRequest; none where that is not the form.

    Core 5.2.4: one of each kind.
    """
    if messaging is None or bundled_wrong(messaging):
        return ()
    return tuple(one for one in messaging.signals if one.pull_request is None)


def bundled_wrong(messaging: Messaging) -> bool:
    """Whether there is more beside a PullRequest than a receipt and an error."""
    receipts = sum(1 for one in messaging.signals if one.receipt is not None)
    errors = sum(1 for one in messaging.signals if one.errors)
    return bool(messaging.user_messages) or receipts > 1 or errors > 1


def relayed_pull_request(
    mpc: str, user: Authorization, *, signal_id: str, now: datetime, entropy: Entropy
) -> Asking:
    """A request of an intermediary, which has no P-Mode: for a channel, by user name."""
    version = SoapVersion.SOAP_12
    signal = SignalMessage(MessageInfo(now, signal_id), pull_request=PullRequest(mpc))
    token = write_username_token(
        user.username,
        user.password.get_secret_value(),
        digest=True,
        nonce=entropy(_NONCE_BYTES),
        created=now,
    )
    block = write_messaging(Messaging((signal,), id=MESSAGING_ID), version)
    blocks = [
        Block(MESSAGING_ID, block),
        Block("", write_security(version, [token], role=EBMS_ROLE)),
    ]
    secured = secure(version, blocks, [], signing=None, lifetime=None)
    return Asking(signal_id, version, secured.envelope)


class Allowed(Struct, frozen=True):
    """What somebody who asks may have."""

    matches: tuple[Match, ...]
    """The P-Modes of the channel by which it may."""
    places: tuple[Channel, ...]
    """The channels from which something may be handed out."""
    once: tuple[tuple[str, datetime], ...]
    """What must come for the first time, and until when that has to be known."""
    why: str = ""
    """Why it may have nothing; for the journal only."""


def _puller_terms(expectation: Expectation, offered: Channel) -> Terms:
    """By what a PullRequest's signature is checked: that of who pulls."""
    if offered.signals:
        return expectation.sender_terms(offered.match)
    return expectation.answer_terms(offered.match)


class Channels:
    """All channels of a node, arranged once so that each is found however many there are."""

    def __init__(
        self,
        offered: Sequence[Channel],
        expectation: Expectation,
        trusted: Sequence[x509.Certificate],
    ) -> None:
        self.offered = offered
        self.terms = _pull_terms(expectation, offered, trusted)
        self.trusted = tuple(trusted)
        self.expectation = expectation
        self._at: dict[str, list[Channel]] = {}
        for one in offered:
            self._at.setdefault(one.mpc, []).append(one)
        self.most = max(map(len, self._at.values()), default=0)
        """How many P-Modes share a channel at most."""
        self._below: dict[str, tuple[Channel, ...]] = {}

    def at(self, mpc: str) -> Sequence[Channel]:
        return self._at.get(mpc, ())

    def below(self, mpc: str) -> Sequence[Channel]:
        """The sub-channels of a channel that there is."""
        if mpc not in self._below:
            self._below[mpc] = tuple(one for one in self.offered if is_below(one.mpc, mpc))
        return self._below[mpc]


def _pull_terms(
    expectation: Expectation, offered: Iterable[Channel], trusted: Sequence[x509.Certificate]
) -> Terms:
    """By what the signature of a PullRequest is checked, whichever channel it names.

    Whose it is, is held against each P-Mode afterwards; `trusted` are those of the node.
    """
    each = [_puller_terms(expectation, one) for one in offered]
    pins = dict.fromkeys(pin for one in each for pin in one.material.pins)
    anchors = dict.fromkeys(anchor for one in each for anchor in one.material.anchors)
    if any(not (one.material.pins or one.material.anchors) for one in each):
        pins |= dict.fromkeys(trusted)
        anchors |= dict.fromkeys(trusted)
    named = frozenset().union(*(one.algorithms for one in each))
    purposes = frozenset().union(*(one.material.purposes or SIGNING for one in each))
    material = Material(pins=tuple(pins), anchors=tuple(anchors), purposes=purposes)
    return Terms(None, named, None, material)


def allowed(
    found: Inspection,
    request: SignalMessage,
    channels: Channels,
    *,
    client_certificate: bytes | None,
    now: datetime,
    skew: timedelta,
    revocation: Revocation = NO_REVOCATION,
) -> Allowed:
    """What a PullRequest may have: messages of the P-Modes whose credentials it shows.

    A sub-channel has its own; who pulls from the parent gets its own messages of sub-channels too.
    [P2-2.5.4-02] [P2-2.5.4-03] [P2-2.5.4-04]
    """
    assert request.pull_request is not None
    channel = request.pull_request.effective_mpc
    here = channels.at(channel)
    shown = _Shown(found, request, channels, client_certificate, now, skew, revocation)
    taken: list[Channel] = []
    reasons: dict[str, None] = {}
    for one in here:
        try:
            shown.check(one)
        except EbmsError as error:
            cause = error.__cause__
            token = isinstance(cause, UsernameTokenRefused)
            reasons[str(cause) if token else error.detail] = None
        else:
            taken.append(one)
    if not taken:
        _take_as_long(shown, channels, len(here))
        return Allowed((), (), (), "; ".join(reasons) or "there is no such channel")
    below = [one for one in channels.below(channel) if any(_is_for(one, other) for other in taken)]
    matches = tuple(one.match for one in taken)
    return Allowed(matches, (*taken, *below), tuple(shown.once.items()))


def _take_as_long(shown: "_Shown", channels: Channels, checked: int) -> None:
    """Check as often as in the channel that most P-Modes share, for nothing.

    Else the time that a refusal takes would tell which channels there are.
    """
    for one in channels.offered[: channels.most - checked]:
        with suppress(EbmsError):
            shown.check(one)


def _is_for(one: Channel, other: Channel) -> bool:
    """Whether what one P-Mode offers is for who pulls by another, or that is for anybody."""
    mine, theirs = (frozenset((by.puller and by.puller.party) or ()) for by in (one, other))
    return not theirs or mine == theirs


class _Shown:
    """What a PullRequest shows, held against P-Modes."""

    def __init__(
        self,
        found: Inspection,
        request: SignalMessage,
        channels: Channels,
        client_certificate: bytes | None,
        now: datetime,
        skew: timedelta,
        revocation: Revocation,
    ) -> None:
        self._found = found
        self._info = request.message_info
        self._expectation = channels.expectation
        self._client = client_certificate
        self._trusted = channels.trusted
        self._now = now
        self._skew = skew
        self._revocation = revocation
        self.once: dict[str, datetime] = {}

    def check(self, offered: Channel) -> None:
        """EBMS:0101 unless everything is shown that a P-Mode asks for."""
        match = offered.match
        pmode, leg = match.pmode, match.leg
        if not somebody_may_pull(pmode, leg):
            raise _refused(f"{pmode.id} says of nobody that it may pull")
        broken = [one for one in self._found.problems if one.severity is Severity.FAILURE]
        if broken:
            raise _refused(str(broken[0]))
        if client_asked(leg):
            for problem in self._expectation.check_client(
                match, self._client, self._now, self._revocation
            ):
                raise problem
        if token_asked(pmode, leg) is not None:
            self._token(match)
        if signature_asked(pmode, leg):
            self._signature(offered)

    def _token(self, match: Match) -> None:
        agreed = token_asked(match.pmode, match.leg)
        assert agreed is not None
        tokens = self._found.username_tokens
        if len(tokens) != 1:
            raise _refused(f"there are {len(tokens)} user name tokens, one is expected")
        nonces: list[tuple[bytes, datetime]] = []

        def seen(nonce: bytes, until: datetime) -> bool:
            nonces.append((nonce, until))
            return False

        check_username_token(
            tokens[0],
            username=agreed.username,
            password=agreed.password.get_secret_value(),
            now=self._now,
            skew=self._skew,
            seen=seen,
            allow_text=not pulling_of(match.leg).digest,
        )
        for nonce, until in nonces:
            self.once[f"nonce:{agreed.username}:{nonce.hex()}"] = until

    def _signature(self, offered: Channel) -> None:
        """By the certificate of who pulls; fresh, and not seen before."""
        check = self._found.verification
        if check is None or check.certificate is None:
            raise _refused("the PullRequest is not signed")
        terms = _puller_terms(self._expectation, offered)
        pins, anchors = terms.material.pins, terms.material.anchors
        if not (pins or anchors):
            pins = anchors = self._trusted
        authorities = tuple(one for one in anchors if is_authority(one))
        purposes = terms.material.purposes or SIGNING
        Trust(anchors=authorities, pinned=pins, purposes=purposes).verify(
            check.certificate, check.companions, self._now, revocation=self._revocation
        )
        if check.certificate not in terms.material.pins:
            check_subject(check.certificate, terms.signers)
        made, oldest = self._info.timestamp, MAX_AGE + self._skew
        if not -self._skew <= self._now - made <= oldest:
            raise _refused(f"it was made at {made:%Y-%m-%dT%H:%M:%SZ}")
        self.once[f"pull:{self._info.message_id}"] = made + oldest


def _refused(why: str) -> EbmsError:
    return EbmsError("EBMS:0101", why)
