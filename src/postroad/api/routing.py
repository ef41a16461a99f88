"""Where the rules of an intermediary lead a message."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from postroad.api.paths import API, Cursor, Door, MessageId
from postroad.api.problems import problem_responses
from postroad.msh.forwarding import RouteReport
from postroad.store.records import Side

router = APIRouter(prefix=f"{API}/messages", tags=["messages"])


class CriterionView(BaseModel):
    """A criterion, and what the message has there."""

    criterion: str = Field(examples=["to_party"])
    value: str = Field(examples=["urn:example:seller"])


class MissedView(BaseModel):
    """A rule that nearly matched."""

    rule: str = Field(examples=["invoices"])
    differences: list[str] = Field(examples=[["action is submit, not invoice"]])


class RouteView(BaseModel):
    """Which rule a message matches, why, and what else nearly matched."""

    routed_by: str | None = Field(description="RoutingInput, UserMessage or PullRequest.")
    input: list[CriterionView] = Field(description="What it is routed by.")
    rule: str | None = Field(description="The first rule that matches.", examples=["orders"])
    because: list[CriterionView] = Field(description="All that the rule asks for.")
    to: list[str] = Field(
        description="Where it leads, in order.", examples=[["push https://hub.example/msh"]]
    )
    also: list[str] = Field(description="Rules that match too, and stand later.")
    nearly: list[MissedView] = Field(description="Rules that nearly matched, nearest first.")
    notes: list[str] = Field(description="Where RoutingInput contradicts the user message.")
    error: str | None = Field(description="The error with which it is refused.")


@router.get("/{message_id}/route", responses=problem_responses(404, 409, 422))
async def explain_route(
    service: Door,
    message_id: MessageId,
    side: Annotated[Side | None, Query(description="Which side of the message.")] = None,
    cursor: Cursor = None,
) -> RouteView:
    """Which rule of `routes.yaml` the message would match now, and why."""
    return _view(await service.route(message_id, side, cursor))


def _view(report: RouteReport) -> RouteView:
    return RouteView(
        routed_by=report.routed_by,
        input=_criteria(report.input),
        rule=report.rule,
        because=_criteria(report.because),
        to=list(report.to),
        also=list(report.also),
        nearly=[
            MissedView(rule=one.rule, differences=list(one.differences)) for one in report.nearly
        ],
        notes=list(report.notes),
        error=report.error,
    )


def _criteria(pairs: tuple[tuple[str, str], ...]) -> list[CriterionView]:
    return [CriterionView(criterion=name, value=value) for name, value in pairs]
