"""One party of a CPA: its ids, what it sends and takes, and the channels it does that over."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from postroad.agreement.algorithms import algorithm_uri
from postroad.agreement.importing_source import (
    Element,
    Plain,
    Refusal,
    Source,
    decoded,
    line_of,
    party_id,
)
from postroad.agreement.values import is_uri
from postroad.wire.xml import elements, local, text

MSH_SERVICE: Final = "urn:oasis:names:tc:ebxml-msg:service"
_DEFAULTS: Final = {
    "syncReplyMode": "none",
    "actor": "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH",
}
_TRANSPORTS: Final = {"HTTP": ("http://", "https://"), "SMTP": ("mailto:",)}


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """A message that a party can send or receive."""

    element: Element
    party: "Party"
    sends: bool
    id: str
    other: str | None
    """The id of the other party's action that this one goes with."""
    name: str
    service: str
    service_type: str | None
    role: str | None
    channels: tuple[str, ...]
    """In order of preference."""
    is_response: bool
    """It stands inside the message that it answers."""
    characteristics: dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Signing:
    """How a party signs."""

    element: Element
    hash_function: str | None
    algorithm: str | None
    certificate: str | None


class Channel:
    """A delivery channel: what is agreed on it is read when somebody asks."""

    def __init__(self, source: Source, party: "Party", element: Element) -> None:
        self.source = source
        self.party = party
        self.element = element
        self.characteristics = source.child(element, "MessagingCharacteristics")
        self.transport = party.referred(element, "transportId", "Transport")
        self.exchange = party.referred(element, "docExchangeId", "DocExchange")

    def characteristic(self, name: str) -> str:
        """One of the MessagingCharacteristics, with its default."""
        found = None
        if self.characteristics is not None:
            found = self.source.attribute(self.characteristics, name)
        return found or _DEFAULTS.get(name, "perMessage")

    def binding(self, side: str) -> Element:
        """The ebXMLSenderBinding or ebXMLReceiverBinding."""
        found = self.source.child(self.exchange, f"ebXML{side}Binding")
        if found is None:
            raise Refusal(line_of(self.exchange), f"the DocExchange has no ebXML{side}Binding")
        return found

    def endpoints(self, *types: str) -> list[str]:
        """The addresses of the first of these types that there is."""
        receiver = self.source.child(self.transport, "TransportReceiver")
        if receiver is None:
            raise Refusal(line_of(self.transport), "the Transport has no TransportReceiver")
        protocol = self.protocol(receiver)
        if protocol not in _TRANSPORTS:
            self.source.note(receiver, f"there is no transport for {protocol or 'nothing'}")
            return []
        found: dict[str, list[str]] = {}
        for element in self.source.children(receiver, "Endpoint"):
            kind = self.source.attribute(element, "type") or "allPurpose"
            uri = self.source.attribute(element, "uri") or ""
            if protocol == "SMTP" and "@" in uri and ":" not in uri:
                uri = f"mailto:{uri}"
            if not is_uri(uri) or not uri.lower().startswith(_TRANSPORTS[protocol]):
                self.source.note(element, f"{uri!r} is no address for {protocol}")
                continue
            found.setdefault(kind, []).append(uri)
        return next((found[kind] for kind in types if kind in found), [])

    def protocol(self, side: Element | None) -> str:
        """HTTP, SMTP or another, of TransportSender or TransportReceiver; in any version."""
        element = self.source.child(side, "TransportProtocol")
        if element is None:
            return ""
        self.source.attribute(element, "version")
        return text(element).upper()

    def signing(self) -> Signing | None:
        """How messages that go out over the channel are signed."""
        element = self.source.child(self.binding("Sender"), "SenderNonRepudiation")
        if element is None:
            return None
        self.source.text(element, "NonRepudiationProtocol")
        algorithms = self.source.children(element, "SignatureAlgorithm")
        uri = self.source.attribute(algorithms[0], "w3c") if algorithms else None
        named = uri or self.source.text(element, "SignatureAlgorithm")
        return Signing(
            element,
            self._algorithm(element, "digest", self.source.text(element, "HashFunction")),
            self._algorithm(element, "signature", named),
            self.party.certificate(self.source.child(element, "SigningCertificateRef")),
        )

    def _algorithm(self, element: Element, kind: str, named: str | None) -> str | None:
        if named is None:
            return None
        try:
            return algorithm_uri(kind, named)
        except ValueError:
            self.source.note(element, f"{named!r} is no {kind} algorithm that is known here")
            return None


class Party:
    """One PartyInfo."""

    def __init__(self, source: Source, element: Element) -> None:
        self.source = source
        self.element = element
        self.name = source.attribute(element, "partyName") or ""
        source.attribute(element, "defaultMshPackageId")
        self.ids = [
            (identifier, source.attribute(found, "type"))
            for found in source.children(element, "PartyId")
            if (identifier := text(found))
        ]
        if not self.ids:
            raise Refusal(line_of(element), "a PartyInfo has no PartyId")
        self._channels: dict[str, Channel] = {}
        self._by_id = {
            (local(child), str(value).strip()): child
            for child in elements(element)
            for key, value in child.attrib.items()
            if str(key).endswith("Id")
        }
        self._msh_channels: dict[str, str] = {}
        self.actions = [*self._actions()]
        for override in source.children(element, "OverrideMshActionBinding"):
            action = source.attribute(override, "action")
            channel = source.attribute(override, "channelId")
            if action and channel:
                self._msh_channels[action] = channel

    @property
    def identifiers(self) -> list[str | Plain]:
        return [party_id(*identifier) for identifier in self.ids]

    def is_called(self, name: str) -> bool:
        """Whether a name is one of the party's ids, or what the CPA calls it."""
        return name == self.name or any(name == identifier for identifier, _ in self.ids)

    def referred(self, element: Element, attribute: str, name: str) -> Element:
        """The child that an id of this party names."""
        identifier = self.source.attribute(element, attribute) or ""
        found = self._by_id.get((name, identifier))
        if found is None:
            raise Refusal(line_of(element), f"there is no {name} {identifier!r} of this party")
        self.source.tick(found, attribute)
        return found

    def channel(self, name: str) -> Channel:
        """A channel by its id."""
        if name not in self._channels:
            element = self._by_id.get(("DeliveryChannel", name))
            if element is None:
                message = f"there is no DeliveryChannel {name!r} of this party"
                raise Refusal(line_of(self.element), message)
            self.source.tick(element, "channelId")
            self._channels[name] = Channel(self.source, self, element)
        return self._channels[name]

    def msh_channel(self, action: str) -> Channel | None:
        """The channel over which the party takes and sends what MSHs say to each other."""
        default = self.source.attribute(self.element, "defaultMshChannelId")
        name = self._msh_channels.get(action) or default
        if not name:
            return None
        channel = self.channel(name)
        if channel.characteristics is not None:
            # They are for business: acknowledgments are not acknowledged.
            self.source.skip(channel.characteristics)
        return channel

    def certificate(self, reference: Element | None) -> str | None:
        """The file of the certificate that a CertificateRef means."""
        if reference is None:
            return None
        element = self.referred(reference, "certId", "Certificate")
        info = self.source.child(element, "KeyInfo")
        found = self.source.text(info, "X509Data", "X509Certificate")
        octets = decoded(found) if found else None
        name = self.source.attribute(element, "certId") or "certificate"
        if info is not None:
            self.source.skip(info)
        if not octets:
            self.source.note(element, f"Certificate {name!r} holds no X.509 certificate")
            return None
        return self.source.certificate(name, octets)

    def anchors(self, reference: Element | None) -> list[str]:
        """The files of the certificates that a SecurityDetailsRef trusts."""
        if reference is None:
            return []
        details = self.referred(reference, "securityId", "SecurityDetails")
        anchors = self.source.child(details, "TrustAnchors")
        found = self.source.children(anchors, "AnchorCertificateRef") if anchors is not None else []
        return [file for item in found if (file := self.certificate(item))]

    def _actions(self) -> Iterator[Action]:
        for role in self.source.children(self.element, "CollaborationRole"):
            name = self.source.child(role, "Role")
            called = self.source.attribute(name, "name") if name is not None else None
            if name is not None:
                self.source.attribute(name, "href")
            for binding in self.source.children(role, "ServiceBinding"):
                service = self.source.child(binding, "Service")
                if service is None:
                    raise Refusal(line_of(binding), "a ServiceBinding has no Service")
                value = text(service)
                type_ = self.source.attribute(service, "type")
                if value == MSH_SERVICE:
                    self._msh_service(binding)
                else:
                    yield from self._bound(binding, value, type_, called, False)

    def _msh_service(self, binding: Element) -> None:
        """Channels for acknowledgments and errors, written as if they were business."""
        for side in ("CanSend", "CanReceive"):
            for element in self.source.children(binding, side):
                this = self.source.child(element, "ThisPartyActionBinding")
                action = self.source.attribute(this, "action") if this is not None else None
                channel = self.source.text(this, "ChannelId")
                if action and channel and side == "CanReceive":
                    self._msh_channels[action] = channel
                self.source.skip(element)

    def _bound(
        self,
        parent: Element,
        service: str,
        service_type: str | None,
        role: str | None,
        is_response: bool,
    ) -> Iterator[Action]:
        for side in ("CanSend", "CanReceive"):
            for element in self.source.children(parent, side):
                this = self.source.child(element, "ThisPartyActionBinding")
                if this is None:
                    message = f"a {side} has no ThisPartyActionBinding"
                    raise Refusal(line_of(element), message)
                self.source.attribute(this, "packageId")
                said = self.source.child(this, "BusinessTransactionCharacteristics")
                yield Action(
                    element=this,
                    party=self,
                    sends=side == "CanSend",
                    id=self.source.attribute(this, "id") or "",
                    other=self.source.text(element, "OtherPartyActionBinding"),
                    name=self.source.attribute(this, "action") or "",
                    service=service,
                    service_type=service_type,
                    role=role,
                    channels=tuple(
                        text(found) for found in self.source.children(this, "ChannelId")
                    ),
                    is_response=is_response,
                    characteristics=self.source.attributes(said) if said is not None else {},
                )
                yield from self._bound(element, service, service_type, role, True)
