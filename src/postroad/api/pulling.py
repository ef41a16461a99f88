"""Pulling now: from the channel of a P-Mode, one message or many, selected or not."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from postroad.api.limits import PAGE
from postroad.api.paths import API, Door, PModeId
from postroad.api.problems import ApiProblem, problem_responses
from postroad.node.service import Service
from postroad.store.records import Message, Side
from postroad.wire import ebms3

router = APIRouter(prefix=API)

_Text = Annotated[str, Field(min_length=1, max_length=1000)]


class _Item(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TypedValue(_Item):
    value: _Text
    type: _Text | None = None


class AgreementItem(TypedValue):
    pmode: _Text | None = None


class PropertyItem(_Item):
    name: _Text
    value: _Text
    type: _Text | None = None


class PartyItem(_Item):
    """eb:From or eb:To: ids, a role, or both."""

    party: list[TypedValue] = Field(default_factory=list, max_length=10)
    role: _Text | None = None


class SelectionBody(_Item):
    """What a message must have to be pulled: all that is named, exactly, types included."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"ref_to_message_id": "price-request-17@buyer.example"}]},
    )

    ref_to_message_id: _Text | None = Field(
        None, description="That of the message it answers; not together with `conversation_id`."
    )
    conversation_id: _Text | None = None
    agreement: AgreementItem | None = None
    service: TypedValue | None = None
    action: _Text | None = None
    from_party: PartyItem | None = None
    to_party: PartyItem | None = None
    properties: list[PropertyItem] = Field(default_factory=list, max_length=50)

    @property
    def selection(self) -> ebms3.Selection | None:
        """The same as the PullRequest says it; None when nothing is selected."""
        found = ebms3.Selection(
            self.ref_to_message_id,
            self.conversation_id,
            ebms3.AgreementRef(self.agreement.value, self.agreement.type, self.agreement.pmode)
            if self.agreement
            else None,
            ebms3.Service(self.service.value, self.service.type) if self.service else None,
            self.action,
            _party(self.from_party),
            _party(self.to_party),
            tuple(ebms3.Property(one.name, one.value, one.type) for one in self.properties),
        )
        return None if found == ebms3.Selection() else found


class PulledMessage(BaseModel):
    message_id: str
    state: str = Field(description="delivered, or rejected where it was not as agreed.")
    detail: str | None = Field(description="Why it was rejected.")


class PullView(BaseModel):
    """What came."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "pmode": "seller-collects-orders",
                    "channel": "http://buyer.example/mpc/orders",
                    "address": "https://buyer.example/msh",
                    "messages": [
                        {
                            "message_id": "order-4711@buyer.example",
                            "state": "delivered",
                            "detail": None,
                        }
                    ],
                    "answered": [],
                    "detail": None,
                }
            ]
        }
    )

    pmode: str
    channel: str = Field(description="The channel that was pulled from.")
    address: str = Field(description="Where it was asked.")
    messages: list[PulledMessage]
    answered: list[PulledMessage] = Field(
        description="Messages of this node about which a receipt or an error was pulled."
    )
    detail: str | None = Field(
        description="Why no more came; null when the channel is empty, or as many came as wanted."
    )


@router.post(
    "/admin/pmodes/{pmode}/pull", tags=["admin"], responses=problem_responses(400, 404, 422)
)
async def pull_messages(
    service: Door,
    pmode: PModeId,
    selection: SelectionBody | None = None,
    most: Annotated[
        int, Query(ge=1, le=PAGE, description="How many messages are pulled at most.")
    ] = 1,
) -> PullView:
    """Pull messages of a P-Mode's channel now, whatever its schedule says.

    What comes is in the inbox when this is answered. An empty channel is 200 too, and so is a
    partner who does not answer or refuses: `detail` says why then.
    """
    if all(one.id != pmode for one in service.pmodes()):
        raise ApiProblem(404, f"There is no P-Mode {pmode} here; {API}/admin/pmodes lists them.")
    wanted = selection.selection if selection is not None else None
    found = await service.pull(pmode, wanted, most=most)
    return PullView(
        pmode=pmode,
        channel=found.channel,
        address=found.address,
        messages=[_pulled(one, await _received(service, one, pmode)) for one in found.messages],
        answered=[_pulled(one, await service.message(one, Side.SENDING)) for one in found.answered],
        detail=found.detail,
    )


async def _received(service: Service, message_id: str, pmode: str) -> Message | None:
    """Return the message that was pulled; another sender may have used its id before."""
    known = await service.received(message_id)
    return max(known, key=lambda one: (one.pmode == pmode, one.key), default=None)


def _pulled(message_id: str, message: Message | None) -> PulledMessage:
    if message is None:
        return PulledMessage(message_id=message_id, state="rejected", detail="it has no use here")
    return PulledMessage(message_id=message_id, state=message.state.value, detail=message.detail)


def _party(given: PartyItem | None) -> ebms3.Party | None:
    if given is None:
        return None
    ids = tuple(ebms3.PartyId(one.value, one.type) for one in given.party)
    return ebms3.Party(ids, given.role or "")
