"""Which messages a list shows: the filters in the query, and its pages."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from postroad.api.limits import PAGE, TOTAL
from postroad.api.views import MessagesView, TotalView, message_view
from postroad.node.service import Service
from postroad.store.records import INBOX, Message, Side, State, Wanted


def _with_plus(text: Any) -> Any:
    """A plus sign in a query means a blank; before a time zone it was meant as plus."""
    return text.replace(" ", "+") if isinstance(text, str) and "T" in text else text


def _utc(time: datetime) -> datetime:
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{time.isoformat()} is out of range in UTC") from None


def _parted(given: Any) -> Any:
    return [part for one in given for part in one.split(",")] if isinstance(given, list) else given


Time = Annotated[datetime, BeforeValidator(_with_plus), AfterValidator(_utc)]


class Fitting(BaseModel):
    """What messages are chosen by. A filter that does not exist is refused, not ignored."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    pmode: str | None = None
    from_party: str | None = Field(default=None, alias="from", examples=["buyer"])
    to_party: str | None = Field(default=None, alias="to", examples=["seller"])
    service: str | None = None
    action: str | None = None
    conversation_id: str | None = None
    since: Time | None = Field(
        default=None, description="Created then or later; UTC without a zone."
    )
    until: Time | None = Field(default=None, description="Created before then; UTC without a zone.")
    cursor: str | None = Field(
        default=None,
        pattern=r"^\d{1,18}$",
        description="`next` of the page before, or a message's own.",
    )

    def chosen(
        self, side: Side | None, states: tuple[State, ...], newest_first: bool, limit: int = PAGE
    ) -> Wanted:
        at = int(self.cursor) if self.cursor else None
        return Wanted(
            side=side,
            states=states,
            pmode=self.pmode,
            from_party=self.from_party,
            to_party=self.to_party,
            service=self.service,
            action=self.action,
            conversation_id=self.conversation_id,
            since=self.since,
            until=self.until,
            limit=limit,
            newest_first=newest_first,
            after=0 if newest_first else at or 0,
            before=at if newest_first else None,
        )


class Filters(Fitting):
    """What lists can be filtered by."""

    limit: int = Field(default=100, ge=1, le=PAGE, description="Messages per page.")

    def wanted(self, side: Side | None, states: tuple[State, ...], newest_first: bool) -> Wanted:
        """One message more than the page has, so that it is known whether there is a next one."""
        return self.chosen(side, states, newest_first, self.limit + 1)


class Pages(BaseModel):
    """Where a page begins, and how long it is."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=100, ge=1, le=PAGE, description="How many per page.")
    cursor: str | None = Field(
        default=None, pattern=r"^\d{1,18}$", description="`next` of the page before."
    )


class MessageFilters(Filters):
    side: Side | None = None
    partner: str | None = Field(
        default=None,
        description="The party that it is sent or passed on to, or that sent what is received or "
        "passed on.",
        examples=["seller"],
    )
    error_code: str | None = Field(default=None, examples=["EBMS:0301"])
    total: bool = Field(default=False, description="Also tell how many there are.")
    state: Annotated[list[State], BeforeValidator(_parted)] = Field(
        default_factory=list, description="One or more, repeated or separated by commas."
    )
    order: Literal["newest", "oldest"] = Field(default="newest", description="What comes first.")

    def messages(self) -> Wanted:
        wanted = self.wanted(self.side, tuple(self.state), self.order == "newest")
        return replace(wanted, partner=self.partner, error_code=self.error_code)


class InboxFilters(Filters):
    consumed: bool = Field(default=False, description="Also those that were acknowledged already.")
    through: str | None = Field(
        default=None, pattern=r"^\d{1,18}$", description="No message beyond this cursor."
    )

    def inbox(self) -> Wanted:
        states = INBOX if self.consumed else (State.DELIVERED,)
        wanted = self.wanted(Side.RECEIVING, states, newest_first=False)
        return replace(wanted, before=int(self.through) + 1) if self.through else wanted


class Acknowledged(Fitting):
    """Which messages of the inbox the application has."""

    through: str = Field(
        pattern=r"^\d{1,18}$",
        description="The cursor of the last one: all after `cursor` up to this one that fit.",
    )

    def inbox(self) -> Wanted:
        wanted = self.chosen(Side.RECEIVING, (State.DELIVERED,), newest_first=False)
        return replace(wanted, before=int(self.through) + 1)


async def page(service: Service, wanted: Wanted) -> MessagesView:
    """One page of what is wanted, and where the next begins."""
    return page_of(await service.messages(wanted), wanted.limit - 1)


async def total(service: Service, wanted: Wanted, shown: MessagesView) -> TotalView:
    """How many messages a list has; where all are on one page they need not be counted."""
    if shown.next is None and not wanted.after and wanted.before is None:
        return TotalView(count=len(shown.messages), more=False)
    counted = await service.total(wanted, TOTAL)
    return TotalView(count=counted.count, more=counted.more)


def page_of(found: list[Message], limit: int) -> MessagesView:
    """A page with so many of what was found; there is a next one if more was."""
    shown = found[:limit]
    more = len(found) > len(shown)
    return MessagesView(
        messages=[message_view(message) for message in shown],
        next=str(shown[-1].key) if more else None,
    )
