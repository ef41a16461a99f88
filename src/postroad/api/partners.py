"""Partners: those that are paused or suspended, and what an operator does about it."""

from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field

from postroad.api.metadata import Word
from postroad.api.paths import API, Door, PartnerName
from postroad.api.problems import problem_responses
from postroad.api.views import PartnersView, PartnerView, ResumedView, partner_view

router = APIRouter(prefix=f"{API}/partners", tags=["partners"])


class Suspension(BaseModel):
    """Why a partner is suspended."""

    model_config = ConfigDict(extra="forbid")

    reason: Word = Field(
        default="an operator suspended it",
        description="Told to whoever asks, and noted in the journal.",
        examples=["they move to another gateway until Monday"],
    )


@router.get("", responses=problem_responses())
async def list_partners(service: Door) -> PartnersView:
    """Those with whom not all is well. A partner that is not listed is served as usual."""
    return PartnersView(partners=[partner_view(one) for one in await service.partners()])


@router.post("/{partner}/suspend", responses=problem_responses(404, 422))
async def suspend_partner(
    service: Door, partner: PartnerName, wanted: Annotated[Suspension | None, Body()] = None
) -> PartnerView:
    """Send nothing to a partner until it is resumed. Messages are taken over and wait."""
    return partner_view(await service.suspend(partner, (wanted or Suspension()).reason))


@router.post("/{partner}/resume", responses=problem_responses(409, 422))
async def resume_partner(service: Door, partner: PartnerName) -> ResumedView:
    """Serve a partner again that is paused or suspended.

    What is suspended goes on at once, with all its retries; everything else when it is due.
    """
    return ResumedView(partner=partner, messages=await service.resume(partner))
