"""`routes.yaml`: the rules of an intermediary, by which messages for others are passed on.

Rules stand in order and the first that matches decides. What a rule leaves unset is no constraint;
of a list one value is enough. The same criteria serve user messages, signals with routing input and
PullRequests. [P2-2.5.5-01]
"""

from datetime import timedelta
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from postroad.agreement.addressing import Service
from postroad.agreement.awareness import RetryParameters
from postroad.agreement.groups import REQUIRED, Group, Valued, parameter
from postroad.agreement.pmode import AgreementReference, Authorization, TransportSecurity
from postroad.agreement.quotas import Quotas
from postroad.agreement.values import Mpc, Span, Text, Texts, Uri, Wait, one_or_many

LOG: Final = "log"


def _body_name(value: object) -> object:
    if isinstance(value, str) and value.startswith("{") and value.find("}") < 2:
        raise ValueError(f"{value!r} is no element; write {{namespace}}name, or the name alone")
    return value


def _web_address(value: object) -> object:
    if isinstance(value, str) and not value.lower().startswith(("http://", "https://")):
        raise ValueError(f"{value!r} is no URL; write it with http:// or https://")
    return value


def _log_or_url(value: object) -> object:
    return value if value == LOG else _web_address(value)


WebAddress = Annotated[str, BeforeValidator(_web_address)]


class MatchedMpc(Valued):
    """A message partition channel, with those below it where that is said."""

    value: Mpc = parameter("", "The channel.", REQUIRED)
    below: bool = parameter("below", "Whether its sub-channels match too.", False)


class MatchedParty(Valued):
    """A party by its id, or all whose id is of a type (Part 2, A.3 and A.4)."""

    own: ClassVar[str] = "id"

    id: Text | None = parameter("", "The identifier; unset: any of the type.")
    type: Text | None = parameter("type", "The domain of the identifier; unset: it has none.")


BodyName = Annotated[Text, BeforeValidator(_body_name)]
Parties = Annotated[tuple[MatchedParty, ...], one_or_many]


class Criteria(Group):
    """What a message must have. All that is set must match."""

    mpc: Annotated[tuple[MatchedMpc, ...], one_or_many] | None = parameter(
        "mpc", "Its channel, of a PullRequest too; `{value: …, below: true}` with sub-channels."
    )
    from_party: Parties | None = parameter("from_party", "Who sends: an id, or a type of ids.")
    from_role: Texts | None = parameter("from_role", "The sender's role.")
    to_party: Parties | None = parameter("to_party", "Who receives: an id, or a type of ids.")
    to_role: Texts | None = parameter("to_role", "The receiver's role.")
    service: Annotated[tuple[Service, ...], one_or_many] | None = parameter(
        "service", "The service."
    )
    action: Texts | None = parameter("action", "The action.")
    agreement: Annotated[tuple[AgreementReference, ...], one_or_many] | None = parameter(
        "agreement", "The agreement."
    )
    pmode: Texts | None = parameter("pmode", "The P-Mode that the agreement names.")
    conversation_id: Texts | None = parameter("conversation_id", "The conversation.")
    properties: dict[Text, Texts] = parameter("properties", "Message properties, by name.", {})
    part_properties: dict[Text, Texts] = parameter(
        "part_properties", "Properties of a payload, by name.", {}
    )
    body: Annotated[tuple[BodyName, ...], one_or_many] | None = parameter(
        "body", "The element in the SOAP Body: a name, or {namespace}name."
    )
    xpath: Texts = parameter("xpath", "XPath 1.0 expressions over the envelope, all true.", ())


class Channel(Group):
    """A channel of this node, from which the next MSH pulls (Part 2, 2.5.3 and 2.5.4)."""

    extension: Text | None = parameter(
        "extension", "Names the sub-channel; unset: the message's own channel."
    )
    authorization: Authorization = parameter(
        "authorization", "User name and password of who may pull.", REQUIRED
    )
    parent: Authorization | None = parameter(
        "parent",
        "User name and password of who may also pull it from the message's own channel.",
    )
    digest: bool = parameter(
        "digest", "Whether the password must come as a digest; if not, it may come plainly.", True
    )
    capacity: int | None = parameter(
        "capacity", "How many messages the channel holds; unset: any number.", ge=1
    )
    keep: Span | None = parameter(
        "keep", "How long a message waits to be pulled; unset: without end."
    )

    def of(self, mpc: str) -> str:
        """The channel in which messages of an MPC wait: that one, or a sub-channel of it.

        [P2-2.5.4-08]
        """
        return f"{mpc.rstrip('/')}/{self.extension}" if self.extension else mpc


class Destination(Group):
    """Where matching messages go next, and how."""

    push: Annotated[tuple[WebAddress, ...], one_or_many] | None = parameter(
        "push", "URLs of the next MSH, tried in this order."
    )
    channel: Channel | None = parameter("channel", "The channel that they wait in.")
    relay: Annotated[tuple[WebAddress, ...], one_or_many] | None = parameter(
        "relay", "URLs of the next MSH, to which PullRequests for the channel are passed on."
    )
    forward: Literal["store", "stream", "sync"] = parameter(
        "forward", "store and forward, asynchronous streaming, synchronous streaming.", "store"
    )
    retry: RetryParameters | None = parameter(
        "retry",
        "How often and how soon the next MSH is tried again; unset: 19 times, over eight hours.",
    )
    tls: TransportSecurity | None = parameter(
        "tls", "TLS to the next MSH, as in a P-Mode's protocol.security."
    )


class Route(Group):
    """One rule."""

    id: Text = parameter("id", "Its name, in the journal and wherever it is spoken of.", REQUIRED)
    match: Criteria = parameter("match", "What a message must have; unset: nothing.", Criteria())
    to: Destination = parameter("to", "Where it goes.", REQUIRED)


class Inbound(Group):
    """A channel of another MSH that this node pulls from, to pass on what comes."""

    mpc: Mpc = parameter("mpc", "The channel.", REQUIRED)
    address: WebAddress = parameter("address", "The URL of the MSH that holds it.", REQUIRED)
    authorization: Authorization = parameter(
        "authorization", "User name and password with which this node shows that it may.", REQUIRED
    )
    interval: Wait = parameter(
        "interval", "How long after an empty channel it is asked again.", timedelta(minutes=1)
    )
    tls: TransportSecurity | None = parameter("tls", "TLS to that MSH.")


class RoutesFile(Group):
    """A file of rules."""

    routes: tuple[Route, ...] = parameter("routes", "The rules, in order.", REQUIRED)
    errors: Annotated[str, BeforeValidator(_log_or_url)] | None = parameter(
        "errors",
        "Where errors about messages go that were taken already: log, or a URL; "
        "unset: whither the message itself tells.",
    )
    reachable: Texts = parameter(
        "reachable",
        "Hosts to which errors are sent where a message tells so, beside those of the rules.",
        (),
    )
    namespaces: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][\w.-]*$")], Uri] = parameter(
        "namespaces", "Prefixes for XPath, beside those of SOAP and ebMS.", {}
    )
    pull: tuple[Inbound, ...] = parameter("pull", "Channels that this node pulls from.", ())
    quotas: Quotas = parameter(
        "quotas", "How much of one sender, and of strangers, may wait to be passed on.", Quotas()
    )
