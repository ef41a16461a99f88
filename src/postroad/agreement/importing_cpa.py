"""ebXML CPAs (CPP/CPA 2.0) as P-Modes: one for each message that one party sends to the other.

A P-Mode says what both parties agreed on, so that the same file serves both of them.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from postroad.agreement.ebxml import is_mail
from postroad.agreement.importing_cpa_party import Action, Channel, Party
from postroad.agreement.importing_source import (
    Element,
    Imported,
    Plain,
    Refusal,
    Source,
    file_safe,
    line_of,
    pruned,
    typed,
    unique,
)
from postroad.agreement.values import LONGEST_SPAN, LONGEST_WAIT, format_duration, parse_duration
from postroad.wire.ebms3_user_messages import parse_timestamp
from postroad.wire.ebxml import DIALECTS
from postroad.wire.xml import text

NAMESPACE: Final = "http://www.oasis-open.org/committees/ebxml-cppa/schema/cpp-cpa-2_0.xsd"
WHAT: Final = "ebXML CPA 2.0"
_PERSISTENT: Final = ("persistent", "transient-and-persistent")
_OF_THE_APPLICATION: Final = (
    "timeToAcknowledgeReceipt",
    "timeToAcknowledgeAcceptance",
    "timeToPerform",
    "retryCount",
)
_CHARACTERISTICS: Final = (
    "syncReplyMode",
    "ackRequested",
    "ackSignatureRequested",
    "duplicateElimination",
)
_UNUSED: Final = "nothing that is carried over uses it"
_REASONS: Final = {
    "PartyRef": "P-Modes describe no parties",
    "ProcessSpecification": "P-Modes know no business processes",
    "Certificate": _UNUSED,
    "SecurityDetails": _UNUSED,
    "DeliveryChannel": _UNUSED,
    "Transport": _UNUSED,
    "TransportSender": _UNUSED,
    "TransportReceiver": _UNUSED,
    "DocExchange": _UNUSED,
    "ebXMLSenderBinding": _UNUSED,
    "ebXMLReceiverBinding": _UNUSED,
    "ConversationConstraints": "conversations are not counted",
}
_TO_BE_TOLD: Final = (
    "isNonRepudiationReceiptRequired",
    "isIntelligibleCheckRequired",
    "isAuthorizationRequired",
)


def import_cpa(
    data: bytes, name: str, *, me: str | None = None, now: datetime | None = None
) -> Imported:
    """The P-Modes of a CPA. `me` is the party of this node: it must be one of the two.

    A CPA that is only proposed is refused. One whose time is over, or has not come, is taken with
    a note, for P-Modes know no dates.
    """
    source = Source(data, name)
    root = source.root
    cpa_id = source.attribute(root, "cpaid")
    if cpa_id is None:
        raise Refusal(line_of(root), "the CPA has no cpaid")
    source.attribute(root, "version")
    _validity(source, now)
    parties = [Party(source, element) for element in source.children(root, "PartyInfo")]
    if len(parties) != 2:
        raise Refusal(line_of(root), f"a CPA is between two parties, this has {len(parties)}")
    if me is not None and not any(party.is_called(me) for party in parties):
        known = ", ".join(identifier for party in parties for identifier, _ in party.ids)
        raise Refusal(line_of(root), f"{me!r} is no party of this CPA; parties: {known}")
    _descriptions(source)
    pmodes: list[Plain] = []
    pairs = [*_pairs(source, parties)]
    for sending, receiving in pairs:
        names = [item.name for item, _ in pairs].count(sending.name) == 1
        wanted = file_safe(f"{cpa_id}-{sending.name}" + ("" if names else f"-{sending.id}"))
        try:
            pmode = _Agreed(source, cpa_id, sending, receiving).pmode()
        except Refusal as refusal:
            message = f"{sending.name} from {sending.party.name}: {refusal}"
            source.refuse(refusal.line, message)
            continue
        taken = {str(pmode["id"]): pmode for pmode in pmodes}
        identifier = unique(wanted, taken)
        source.lines[identifier] = line_of(sending.element)
        pmodes.append({"id": identifier, **pmode})
    if not pairs:
        raise Refusal(line_of(root), "there is no message that one party sends and the other takes")
    return source.result(WHAT, pmodes, _REASONS)


def _validity(source: Source, now: datetime | None) -> None:
    root = source.root
    status = source.child(root, "Status")
    value = source.attribute(status, "value") if status is not None else None
    if value not in ("agreed", "signed"):
        place = status if status is not None else root
        raise Refusal(line_of(place), f"the CPA is not agreed on: Status is {value or 'absent'}")
    for name, is_over in (("Start", False), ("End", True)):
        element = source.child(root, name)
        if element is None:
            continue
        given = text(element)
        try:
            moment = parse_timestamp(given)[0]
        except ValueError:
            source.note(element, f"{name} {given!r} is no time")
            continue
        if now is not None and (moment < now) == is_over:
            told = "is over since" if is_over else "begins at"
            source.note(element, f"the CPA {told} {given}; P-Modes know no dates: decide yourself")
        elif is_over:
            source.note(
                element, f"the CPA ends at {given}; P-Modes know no dates: remove them then"
            )


def _descriptions(source: Source) -> None:
    """What the CPA tells about payloads: nothing is held to it."""
    for name in ("SimplePart", "Packaging"):
        for element in source.children(source.root, name):
            message = "payloads are not held to it; write business_info.payload_profile for that"
            source.note(element, f"{name}: {message}")
            source.skip(element)
    signature = source.child(source.root, "Signature")
    if signature is not None:
        source.note(signature, "the signatures of the CPA are not verified")
        source.skip(signature)


def _pairs(source: Source, parties: list[Party]) -> Iterator[tuple[Action, Action]]:
    """What one party sends, with what the other takes it as."""
    for party, other in (parties, parties[::-1]):
        for action in party.actions:
            if not action.sends:
                continue
            taken = [item for item in other.actions if not item.sends and _fit(action, item)]
            if taken:
                yield action, taken[0]
            else:
                message = f"{action.name} from {party.name}: the other party does not take it"
                source.refuse(line_of(action.element), message)
        for action in party.actions:
            sent = (item for item in other.actions if item.sends and _fit(item, action))
            if not action.sends and not any(sent):
                message = f"{action.name} to {party.name}: the other party does not send it"
                source.refuse(line_of(action.element), message)


def _fit(sending: Action, receiving: Action) -> bool:
    if sending.other or receiving.other:
        return receiving.id == sending.other or sending.id == receiving.other
    same = (sending.service, sending.service_type, sending.name)
    return same == (receiving.service, receiving.service_type, receiving.name)


def _partner(action: Action, has_role: bool) -> Plain:
    """A party; messages of ebXML 1.0 name no roles."""
    return {"party": action.party.identifiers, "role": action.role if has_role else None}


class _Agreed:
    """What is agreed on for one message."""

    def __init__(self, source: Source, cpa_id: str, sending: Action, receiving: Action) -> None:
        self.source = source
        self.cpa_id = cpa_id
        self.sending = sending
        self.receiving = receiving
        self.senders = [sending.party.channel(name) for name in sending.channels]
        self.receivers = [receiving.party.channel(name) for name in receiving.channels]
        if not self.senders or not self.receivers:
            raise Refusal(line_of(sending.element), "it has no ChannelId")
        self.sender, self.receiver = self.senders[0], self.receivers[0]
        for name in (*_CHARACTERISTICS, "actor"):
            self._agreed(name)
        self.is_signed = self._is_signed()
        self.addresses = self._addresses()
        self.sync_reply = self._sync_reply()

    def pmode(self) -> Plain:
        """The P-Mode without its id."""
        sending, receiving = self.sending, self.receiving
        ebxml = self._ebxml()
        has_role = DIALECTS[str(ebxml["version"])].has_role
        leg: Plain = {
            "protocol": {"address": self.addresses[0], "security": self._tls()},
            "business_info": {
                "service": typed(sending.service, sending.service_type),
                "action": sending.name,
            },
            "error_handling": {"report": {"receiver_errors_to": self._answers("MessageError")}},
            "security": {"x509": self._signature(), "send_receipt": self._receipt()},
            "reception_awareness": {"retry": {"parameters": self._retries()}},
            "ebxml": ebxml,
        }
        found: Plain = pruned(
            {
                "agreement": self.cpa_id,
                "initiator": _partner(sending, has_role),
                "responder": _partner(receiving, has_role),
                "legs": [leg],
            }
        )
        return found

    def _addresses(self) -> list[str]:
        types = (
            ("response", "allPurpose") if self.sending.is_response else ("request", "allPurpose")
        )
        found: dict[str, None] = {}
        for channel in self.receivers:
            found.update(dict.fromkeys(channel.endpoints(*types, "request", "response")))
        if not found:
            raise Refusal(line_of(self.receiver.transport), "the receiver has no usable Endpoint")
        for channel in self.receivers[1:]:
            self._same_exchange(channel)
        return [*found]

    def _sync_reply(self) -> str:
        sync = self._agreed("syncReplyMode")
        if sync == "none" or not any(is_mail(address) for address in self.addresses):
            return sync
        self.source.note(self.receiver.element, f"syncReplyMode {sync}: mail has no response")
        return "none"

    def _same_exchange(self, channel: Channel) -> None:
        for name in _CHARACTERISTICS:
            if channel.characteristic(name) != self.receiver.characteristic(name):
                message = f"{name} differs from that of the first channel, which counts for all"
                self.source.note(channel.element, message)

    def _agreed(self, name: str) -> str:
        """A characteristic of the receiver's channel; the sender's should be the same."""
        value, other = self.receiver.characteristic(name), self.sender.characteristic(name)
        if other != value:
            message = f"{name} is {other} for the sender and {value} for the receiver, which counts"
            self.source.note(self.sender.element, message)
        return value

    def _is_reliable(self) -> bool:
        both = (self._agreed("duplicateElimination"), self._agreed("ackRequested"))
        return both == ("always", "always")

    def _ebxml(self) -> Plain:
        version = self.source.attribute(self.sender.binding("Sender"), "version")
        self.source.attribute(self.receiver.binding("Receiver"), "version")
        if version not in ("1.0", "2.0"):
            message = f"the CPA is for ebXML MS {version or 'of no version'}, not 1.0 or 2.0"
            raise Refusal(line_of(self.sender.exchange), message)
        duplicates = self._agreed("duplicateElimination")
        element = self.receiver.element
        for name in ("ackRequested", "ackSignatureRequested", "duplicateElimination"):
            if self._agreed(name) == "perMessage":
                message = f"{name} is perMessage: no message asks for it until the P-Mode does"
                self.source.note(element, message)
        if duplicates == "always" and not self._is_reliable():
            message = "duplicateElimination without ackRequested: duplicates are recognised anyway"
            self.source.note(element, message)
        if self.receiver.characteristic("actor") == "urn:oasis:names:tc:ebxml-msg:actor:nextMSH":
            self.source.note(element, "actor nextMSH: acknowledgments are asked of the To Party")
        return {
            "version": version,
            "delivery_semantics": self._semantics(),
            "message_order": self._order(),
            "ack_requested": self._acknowledgment(),
            "sync_reply": self.sync_reply,
            "transports": self.addresses[1:],
        }

    def _semantics(self) -> str | None:
        """Where duplicates are neither always nor never eliminated, each message says it."""
        if self._is_reliable():
            return "OnceAndOnlyOnce"
        return "BestEffort" if self._agreed("duplicateElimination") == "never" else None

    def _acknowledgment(self) -> str | None:
        if self._agreed("ackRequested") != "always":
            return None
        return "Signed" if self._agreed("ackSignatureRequested") == "always" else "UnSigned"

    def _order(self) -> str | None:
        orders = [
            self.source.text(channel.binding(side), "ReliableMessaging", "MessageOrderSemantics")
            for channel, side in ((self.sender, "Sender"), (self.receiver, "Receiver"))
        ]
        if orders[0] == "Guaranteed" and not self._is_reliable():
            message = "MessageOrderSemantics Guaranteed needs duplicateElimination and ackRequested"
            self.source.note(self.sender.exchange, message)
            return None
        if None not in orders and orders[0] != orders[1]:
            message = f"MessageOrderSemantics is {orders[0]} for the sender, which counts, and "
            self.source.note(self.sender.exchange, message + f"{orders[1]} for the receiver")
        return orders[0]

    def _retries(self) -> Plain | None:
        """Retries are the sender's, persistDuration is how long the receiver knows an id."""
        binding = self.sender.binding("Sender")
        reliable = self.source.child(binding, "ReliableMessaging")
        retries = self.source.text(reliable, "Retries")
        interval = self._duration(reliable, "RetryInterval", LONGEST_WAIT)
        there = self.receiver.binding("Receiver")
        persist = self._duration(there, "PersistDuration", LONGEST_SPAN)
        kept = self._duration(binding, "PersistDuration", LONGEST_SPAN)
        if kept and persist and kept != persist:
            message = f"PersistDuration is {kept} for the sender and {persist} for the receiver, "
            self.source.note(binding, message + "which counts")
        for name in ("Retries", "RetryInterval"):
            self.source.text(there, "ReliableMessaging", name)
        if not self._is_reliable():
            if reliable is not None:
                message = "ReliableMessaging: nothing is sent again without "
                self.source.note(reliable, message + "duplicateElimination and ackRequested")
            return None
        if reliable is None:
            message = "there is no ReliableMessaging: the defaults hold, ten retries, one a minute"
            self.source.note(binding, message)
        if retries is not None and not (retries.isascii() and retries.isdigit()):
            self.source.note(binding, f"Retries {retries!r} is no number")
            retries = None
        return {
            "max_retries": int(retries) if retries else None,
            "period": interval,
            "persist_duration": persist,
        }

    def _duration(self, parent: Element | None, name: str, longest: timedelta) -> str | None:
        element = self.source.child(parent, name)
        if element is None:
            return None
        given = text(element)
        try:
            found = parse_duration(given)
        except ValueError:
            found = None
        if not isinstance(found, timedelta) or not timedelta(0) < found <= longest:
            most = format_duration(longest)
            self.source.note(element, f"{name} {given!r} is no time above PT0S, at most {most}")
            return None
        return format_duration(found)

    def _is_signed(self) -> bool:
        """Whether the business asks for signatures; and what else it asks for."""
        said = self.sending.characteristics
        element = self.sending.element
        if said.get("isConfidential") in _PERSISTENT:
            raise Refusal(
                line_of(element),
                "its payloads are to be encrypted (isConfidential), which ebXML messages are not "
                "here; encrypt them before submitting and agree on that in the CPA",
            )
        for name in _OF_THE_APPLICATION:
            if name in said:
                self.source.note(element, f"{name} is the application's")
        for name in _TO_BE_TOLD:
            if said.get(name) in ("true", "1"):
                self.source.note(element, f"{name}: the application's to see to")
        signed = said.get("isNonRepudiationRequired") in ("true", "1") or any(
            said.get(name) in _PERSISTENT for name in ("isAuthenticated", "isTamperProof")
        )
        self._receivers_view(signed)
        return signed

    def _receivers_view(self, signed: bool) -> None:
        """What the receiver says about signatures and envelopes repeats what the sender says."""
        for channel, side in ((self.sender, "Sender"), (self.receiver, "Receiver")):
            binding = channel.binding(side)
            envelope = self.source.child(binding, f"{side}DigitalEnvelope")
            if envelope is not None:
                self.source.note(envelope, "the digital envelope is not used: nothing asks for it")
                self.source.skip(envelope)
        view = self.source.child(self.receiver.binding("Receiver"), "ReceiverNonRepudiation")
        if view is not None:
            self.source.skip(view)
        if not signed and self.sender.signing() is not None:
            signing = self.sender.signing()
            assert signing is not None
            message = "SenderNonRepudiation is not used: isNonRepudiationRequired is not true"
            self.source.note(signing.element, message)

    def _signature(self) -> Plain | None:
        if not self.is_signed:
            return None
        signing = self.sender.signing()
        if signing is None:
            message = "the message is to be signed, but there is no SenderNonRepudiation"
            self.source.note(self.sender.exchange, message)
            return {"sign": True}
        pins = [signing.certificate] if signing.certificate else []
        anchors = [] if pins else self._trusted()
        return {
            "sign": True,
            "signature": {
                "algorithm": signing.algorithm,
                "hash_function": signing.hash_function,
                "pins": pins,
                "trust_anchors": anchors,
            },
        }

    def _trusted(self) -> list[str]:
        """Whom the receiver believes, where the sender's certificate is not in the CPA."""
        view = self.source.child(self.receiver.binding("Receiver"), "ReceiverNonRepudiation")
        reference = self.source.child(view, "SigningSecurityDetailsRef")
        return self.receiving.party.anchors(reference)

    def _receipt(self) -> Plain | None:
        """Acknowledgments go back to the sender's MSH, signed by the receiver's."""
        back = self._answers("Acknowledgment")
        channel = self.receiving.party.msh_channel("Acknowledgment")
        signing = channel.signing() if channel and self.is_signed else None
        if self._agreed("ackRequested") != "always":
            return None
        return {
            "reply_to": back,
            "certificate": signing.certificate if signing else None,
        }

    def _answers(self, action: str) -> str | None:
        """Where the sender takes what MSHs say; None where that is in the HTTP response."""
        if self.sync_reply != "none":
            return None
        channel = self.sending.party.msh_channel(action)
        types = ("error",) if action == "MessageError" else ("response",)
        found = channel.endpoints(*types, "allPurpose", "response", "request") if channel else []
        return found[0] if found else None

    def _tls(self) -> Plain | None:
        """TLS as far as the CPA names certificates; the client's own key is not in it."""
        server = self.source.child(
            self.receiver.transport, "TransportReceiver", "TransportServerSecurity"
        )
        client = self.source.child(
            self.sender.transport, "TransportSender", "TransportClientSecurity"
        )
        self.sender.protocol(self.source.child(self.sender.transport, "TransportSender"))
        if not self.addresses[0].lower().startswith("https:"):
            if self.sending.characteristics.get("isConfidential", "none") != "none":
                message = "isConfidential asks for TLS, but the Endpoint is not https:"
                self.source.note(self.receiver.transport, message)
            return None
        certificate, version = None, None
        for element in (server, client):
            protocol = self.source.child(element, "TransportSecurityProtocol")
            if protocol is None:
                continue
            number = self.source.attribute(protocol, "version") or ""
            called = text(protocol)
            if called.upper() == "TLS" and number in ("1.2", "1.3"):
                version = number
            else:
                message = f"{called} {number}".strip() + " is agreed on; TLS 1.2 or newer is used"
                self.source.note(protocol, message)
        reference = self.source.child(server, "ServerCertificateRef")
        certificate = self.receiving.party.certificate(reference)
        trusted = self.source.child(client, "ServerSecurityDetailsRef")
        anchors = [] if certificate else self.sending.party.anchors(trusted)
        own = self.source.child(client, "ClientCertificateRef")
        if own is not None:
            message = "the sender shows a certificate: name its key file in "
            self.source.note(own, message + "protocol.security.client.certificate")
            self.source.skip(own)
        for element, name in (
            (server, "ClientSecurityDetailsRef"),
            (client, "ServerSecurityDetailsRef"),
        ):
            details = self.source.child(element, name)
            if details is not None:
                self.source.skip(details)
        return {
            "protocol": "TLS",
            "protocol_version": version,
            "server": {"certificate": certificate, "anchor_certificates": anchors},
        }
