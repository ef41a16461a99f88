"""P-Modes: every parameter of Core appendix D, AS4 1.0 and Part 2 section 6, in its place.

A field's name is the YAML key, its title the name in the specification: `legs[0].protocol.address`
is `PMode[1].Protocol.Address`. A parameter that is unset is no constraint.
"""

from datetime import timedelta
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from postroad.agreement.addressing import Addressing, PartyIdentifiers, Service
from postroad.agreement.awareness import ReceptionAwareness, RetryParameters
from postroad.agreement.groups import REQUIRED, Group, Switch, Valued, parameter
from postroad.agreement.pmode_ebxml import Ebxml
from postroad.agreement.pmode_pulling import Pulling
from postroad.agreement.pmode_security import Security
from postroad.agreement.values import (
    AckReplyPattern,
    Binding,
    CommaTexts,
    CommaUris,
    Compression,
    Duration,
    FileName,
    FileNames,
    Mep,
    Mpc,
    Password,
    PropertyType,
    ReliabilityProtocol,
    SignalReplyPattern,
    Size,
    SoapVersion,
    Text,
    Texts,
    TlsVersion,
    TransportProtocol,
    Uri,
    Wait,
)
from postroad.wire.names import ONE_WAY, PUSH

INIT: Final = ".init"
RESP: Final = ".resp"


class AgreementReference(Valued):
    """The name of a business agreement; without a type it should be a URI."""

    value: Text = parameter("", "The agreement (eb:AgreementRef).", REQUIRED)
    type: Text | None = parameter("type", "How the agreement is named (eb:AgreementRef/@type).")


class Agreement(AgreementReference):
    """The business agreement, and whether messages name the P-Mode beside it (Core 5.2.2.7)."""

    include_pmode: bool | None = parameter(
        "IncludePMode",
        "Whether messages carry PMode.ID in eb:AgreementRef/@pmode; unset: only those of "
        "multi-hop units. Postroad's own.",
    )
    match_pmode: bool | None = parameter(
        "MatchPMode",
        "Whether a received eb:AgreementRef/@pmode must be PMode.ID; unset: only in multi-hop "
        "units. Postroad's own.",
    )


class MepBinding(Valued):
    """How the exchange pattern is bound to the transport."""

    value: Binding = parameter("", "The channel binding: push, pull, sync and so on.", REQUIRED)
    alternate: Binding | None = parameter(
        "Alternate", "The binding that a late response may use instead; two-way only."
    )
    pipelining: bool = parameter("Pipelining", "Whether HTTP requests may be pipelined.", False)
    pulled_by: Literal["initiator", "responder"] | None = parameter(
        "PulledBy", "Whose side pulls the first message; unset: the initiator's."
    )


class Authorization(Group):
    """With what a party shows that it may use this P-Mode."""

    username: Text = parameter("username", "The party's user name.", REQUIRED)
    password: Password = parameter("password", "The party's password.", REQUIRED)


class Partner(Group):
    """One side of the exchange."""

    party: PartyIdentifiers | None = parameter("Party", "Identifiers of the party.")
    role: Text | None = parameter("Role", "The party's role (eb:Role).")
    authorization: Authorization | None = parameter("Authorization", "The party's credentials.")
    addressing: Addressing | None = parameter("Addressing", "How messages to it are routed.")


class TransportIdentity(Group):
    """The certificate of one end of a TLS connection, and who vouches for it."""

    certificate: FileName | None = parameter("Certificate", "The certificate to use.")
    anchor_certificates: FileNames = parameter(
        "AnchorCertificates", "Roots that the certificate must lead to.", ()
    )


class TransportSecurity(Group):
    """Security of the transport (Part 2, 6.4.1)."""

    protocol: TransportProtocol | None = parameter("Protocol", "The protocol: TLS, or none.")
    protocol_version: TlsVersion | None = parameter("ProtocolVersion", "The least version.")
    security_algorithm: CommaTexts | None = parameter("SecurityAlgorithm", "Cipher suites.")
    server: TransportIdentity | None = parameter("Server", "The server's identity.")
    client: TransportIdentity | None = parameter("Client", "The client's identity.")
    minimum_key_size: int | None = parameter(
        "minimumKeySize", "The least size in bits of the symmetric key.", ge=0, le=4096
    )


class Restart(Switch):
    """Restart of broken transfers (Part 2, 6.4.3)."""

    protocol: Literal["as2-restart"] = parameter("Protocol", "The restart protocol.", "as2-restart")
    interval: Duration | None = parameter(
        "Interval", "How long an incomplete message is kept for its rest."
    )


class Protocol(Group):
    """Where messages of a leg go, and in what envelope."""

    address: Uri | None = parameter("Address", "The URL that messages are sent to.")
    soap_version: SoapVersion | None = parameter("SOAPVersion", "SOAP version: 1.1 or 1.2.")
    add_actor_or_role_attribute: bool | None = parameter(
        "AddActorOrRoleAttribute", "Whether eb:Messaging is for the next MSH (multi-hop)."
    )
    security: TransportSecurity | None = parameter("Security", "Transport security.")
    restart: Restart | None = parameter("Restart", "Whether broken transfers are restarted.")


class PropertyDefinition(Group):
    """A message property that is agreed on."""

    name: Text = parameter("name", "The property's name.", REQUIRED)
    description: Text | None = parameter("description", "What the property means.")
    type: PropertyType | None = parameter("type", "Data type of the value.")
    required: bool = parameter("required", "Whether the property must be present.", False)


class PayloadDefinition(Group):
    """A payload that is agreed on."""

    name: Text | None = parameter("name", "Content-ID, or id in the Body; unset: any.")
    mime_type: Text | None = parameter("mimeType", "The payload's MIME type.")
    xml_schema: Uri | None = parameter("schema", "Location of the payload's XML schema.")
    max_size: Size | None = parameter("maxSize", "The payload's largest size.")
    required: bool = parameter("required", "Whether the payload must be present.", False)


class PayloadProfile(Group):
    """The payloads of a message."""

    max_size: Size | None = parameter("maxSize", "The largest size of all payloads together.")
    payloads: tuple[PayloadDefinition, ...] = parameter("", "The payloads that may occur.", ())


class BusinessInfo(Group):
    """What the messages of a leg are about."""

    service: Service | None = parameter("Service", "The service.")
    action: Text | None = parameter("Action", "The action (eb:Action).")
    mpc: Mpc | None = parameter("MPC", "The message partition channel.")
    mpc_alternate: Mpc | None = parameter(
        "MPC.Alternate", "The channel of a message sent over the alternate binding."
    )
    sub_mpc_ext: Text | None = parameter(
        "subMPCext", "Extension of the MPC that names the sub-channel to pull from."
    )
    properties: tuple[PropertyDefinition, ...] = parameter("Properties", "Properties.", ())
    payload_profile: PayloadProfile | None = parameter("PayloadProfile", "Payloads.")


class ErrorsTo(Valued):
    """Where errors are sent to."""

    value: CommaUris = parameter("", "URIs that errors are sent to.", ())
    addressing: Addressing | None = parameter("Addressing", "Where errors are routed to.")


class ReceiverErrors(Group):
    """How errors of the receiver come back."""

    reply_pattern: SignalReplyPattern | None = parameter(
        "ReplyPattern", "How errors come back: response, callback or pull; for AsResponse."
    )


class Report(Group):
    """Who is told about an error, and how."""

    sender_errors_to: ErrorsTo | None = parameter("SenderErrorsTo", "For the sender's errors.")
    receiver_errors_to: ErrorsTo | None = parameter(
        "ReceiverErrorsTo", "For the receiver's errors."
    )
    as_response: bool | None = parameter("AsResponse", "Whether errors are the response.")
    receiver_errors: ReceiverErrors | None = parameter("ReceiverErrors", "How they come back.")
    process_error_notify_consumer: bool | None = parameter(
        "ProcessErrorNotifyConsumer", "Whether the receiving application is told of errors."
    )
    process_error_notify_producer: bool | None = parameter(
        "ProcessErrorNotifyProducer", "Whether the sending application is told of errors."
    )
    delivery_failures_notify_producer: bool | None = parameter(
        "DeliveryFailuresNotifyProducer", "Whether it is told that delivery failed."
    )
    missing_receipt_notify_producer: bool | None = parameter(
        "MissingReceiptNotifyProducer", "Whether it is told that no receipt came."
    )


class ErrorHandling(Group):
    """What happens to errors."""

    report: Report | None = parameter("Report", "How errors are reported.")


class AcksTo(Valued):
    """Where acknowledgments are sent to."""

    value: Uri | None = parameter("", "The URI that acknowledgments are sent to.")
    addressing: Addressing | None = parameter("Addressing", "Where they are routed to.")


class AtLeastOnceContract(Switch):
    """Delivery at least once."""

    ack_on_delivery: bool | None = parameter(
        "AckOnDelivery", "Whether the acknowledgment means delivery, not just receipt."
    )
    acks_to: AcksTo | None = parameter("AcksTo", "Where acknowledgments go.")
    ack_response: bool | None = parameter(
        "AckResponse",
        "Whether the response is acknowledged; only false, since no response is sent reliably.",
    )
    reliable_pull: bool = parameter(
        "ReliablePull", "Whether PullRequests are sent reliably too.", True
    )


class AtLeastOnce(Group):
    """Delivery at least once, and how acknowledgments come back."""

    contract: AtLeastOnceContract | None = parameter("Contract", "Whether it is agreed.")
    reply_pattern: AckReplyPattern | None = parameter(
        "ReplyPattern", "How acknowledgments come back: Response, Callback, Poll or Pull."
    )


class Contract(Valued):
    """A delivery assurance without further parameters."""

    own: ClassVar[str] = "contract"

    contract: bool = parameter("Contract", "Whether it is agreed.", REQUIRED)


class Reliability(Group):
    """Reliable messaging of a leg (Core D.3.5, Part 2 6.6)."""

    protocol: ReliabilityProtocol | None = parameter(
        "Protocol", "The protocol: wsrm or ws-reliability."
    )
    at_least_once: AtLeastOnce | None = parameter("AtLeastOnce", "Delivery at least once.")
    at_most_once: Contract | None = parameter("AtMostOnce", "Delivery at most once.")
    in_order: Contract | None = parameter("InOrder", "Delivery in order.")
    start_group: bool | None = parameter(
        "StartGroup",
        "Whether each message begins a group, which is a sequence of its own (true), or joins one "
        "that is open (false); unset: either.",
    )
    correlation: CommaTexts | None = parameter(
        "Correlation", "XPaths whose values tell which messages form a group."
    )
    terminate_group: bool | None = parameter(
        "TerminateGroup", "Whether each message is the last of its group, and ends its sequence."
    )
    retry: RetryParameters | None = parameter(
        "Retry", "How often and how soon messages are sent again. Postroad's own."
    )
    max_idle: Wait = parameter(
        "MaxIdle",
        "How long a sequence that nothing is sent in stays open; unset: ten minutes. "
        "Postroad's own.",
        timedelta(minutes=10),
    )


class PayloadService(Group):
    """What is done to payloads."""

    compression_type: Compression = parameter(
        "CompressionType", "How attachments are compressed: gzip, or not."
    )


class Compatibility(Group):
    """With what a message unit may be bundled."""

    pmode_list: CommaTexts = parameter(
        "pmodelist", "P-Modes whose units may be the primary of the bundle.", ()
    )


class Ordering(Group):
    """What the order of units in a bundle means (Part 2, 3.10.1)."""

    policy: Literal["undefined", "documentorder", "timestamp"] = parameter(
        "policy", "What gives the order of delivery.", "undefined"
    )
    scope: CommaTexts | None = parameter("scope", "XPaths that part the units to be ordered.")


class Bundling(Group):
    """Several message units in one message (Part 2, 3.3)."""

    policy: Literal["never", "optional", "always"] = parameter(
        "policy", "Whether a unit is sent in a bundle.", "never"
    )
    compatibility: Compatibility | None = parameter("compatibility", "With what.")
    max_size: Size | None = parameter("maxsize", "The largest size of a bundle.")
    max_delay: Duration | None = parameter(
        "maxdelay", "The longest time between the oldest and the newest unit."
    )
    ordering: Ordering | None = parameter("ordering", "Order of delivery.")


class SplittingCompression(Switch):
    """Compression of the whole message before it is split."""

    algorithm: Text | None = parameter("Algorithm", "The compression algorithm.")


class Splitting(Switch):
    """A large message in many fragments (Part 2, 4.5)."""

    fragment_size: Size | None = parameter("FragmentSize", "The largest size of a fragment.")
    routing_properties: Texts | None = parameter(
        "RoutingProperties", "Message properties that are copied to fragments."
    )
    compression: SplittingCompression | None = parameter("Compression", "Whether to compress.")
    join_interval: Duration | None = parameter(
        "JoinInterval", "How long to wait for the other fragments after the first."
    )


class Leg(Group):
    """One message of the exchange: `PMode[1]`, and in a two-way exchange `PMode[2]`."""

    protocol: Protocol | None = parameter("Protocol", "Transport and envelope.")
    business_info: BusinessInfo | None = parameter("BusinessInfo", "What messages are about.")
    error_handling: ErrorHandling | None = parameter("ErrorHandling", "Errors.")
    reliability: Reliability | None = parameter("Reliability", "Reliable messaging.")
    security: Security | None = parameter("Security", "Message security.")
    payload_service: PayloadService | None = parameter("PayloadService", "Payload services.")
    reception_awareness: ReceptionAwareness | None = parameter(
        "ReceptionAwareness", "Whether the sender waits for a receipt."
    )
    bundling: Bundling | None = parameter("bundling", "Bundling.")
    splitting: Splitting | None = parameter("Splitting", "Whether messages can be split.")
    addressing: Addressing | None = parameter(
        "Addressing", "How PullRequests of this leg are routed."
    )
    pulling: Pulling | None = parameter("Pull", "How messages are pulled. Postroad's own.")
    ebxml: Ebxml | None = parameter("ebXML", "Messages are ebXML messages, not ebMS 3.0.")


class PMode(Group):
    """A processing mode: what two parties agreed on for one exchange of messages."""

    id: Text = parameter(
        "ID", "The P-Mode's name; `.init` and `.resp` end multi-hop units.", REQUIRED
    )
    agreement: Agreement | None = parameter("Agreement", "The business agreement.")
    mep: Mep = parameter("MEP", "The message exchange pattern: oneWay or twoWay.", ONE_WAY)
    mep_binding: MepBinding | None = parameter("MEPbinding", "How the pattern is bound.")
    initiator: Partner | None = parameter("Initiator", "The party that starts the exchange.")
    responder: Partner | None = parameter("Responder", "The party that answers.")
    legs: Annotated[tuple[Leg, ...], Field(min_length=1, max_length=2)] = parameter(
        "", "The one message of a one-way exchange, or the two of a two-way one.", REQUIRED
    )

    @property
    def public_id(self) -> str:
        """The id as AgreementRef/@pmode carries it: without the unit's suffix. [P2-2.7.2-03]"""
        return self.id.removesuffix(INIT).removesuffix(RESP)

    @property
    def is_unit(self) -> bool:
        """Whether it is one of the two units of a multi-hop P-Mode. [P2-2.7.2-01]"""
        return self.id.endswith((INIT, RESP))

    @property
    def includes_pmode(self) -> bool:
        """Whether messages carry the id in AgreementRef/@pmode.

        The attribute is optional (Core 5.2.2.7), and several profiles of AS4 forbid it. The units
        of a multi-hop P-Mode carry it. [P2-2.7.2-03]
        """
        agreed = self.agreement.include_pmode if self.agreement else False
        return self.is_unit if agreed is None else agreed

    @property
    def matches_pmode(self) -> bool:
        """Whether AgreementRef/@pmode of a message, if present, must be the id of this P-Mode."""
        agreed = self.agreement.match_pmode if self.agreement else False
        return self.is_unit if agreed is None else agreed

    @property
    def binding(self) -> str | None:
        """The channel binding; push is the default of a one-way exchange."""
        if self.mep_binding is not None:
            return self.mep_binding.value
        return PUSH if self.mep == ONE_WAY else None
