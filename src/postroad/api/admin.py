"""For those who run the node: its P-Modes, how it is, and what they can make it do."""

from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field

from postroad import __version__
from postroad.api.oldest import oldest_waiting
from postroad.api.paths import API, Door
from postroad.api.problems import ApiProblem, problem_responses
from postroad.api.status_views import StatusView, status_view
from postroad.api.views import (
    PModesView,
    PurgedView,
    ReloadedView,
    pmode_view,
)

router = APIRouter(prefix=f"{API}/admin", tags=["admin"])


class Purge(BaseModel):
    """What is to be removed."""

    model_config = ConfigDict(extra="forbid")

    days: float | None = Field(
        default=None,
        ge=0,
        le=36_500,
        allow_inf_nan=False,
        description="Settled messages older than this; as configured where it is left out.",
        examples=[90],
    )


@router.get("/status", responses=problem_responses())
async def get_status(service: Door) -> StatusView:
    """The node at a glance: messages, partners, certificates, disk, and what is not in force."""
    return status_view(
        service.name,
        service.party,
        __version__,
        await service.health(),
        await service.partners(),
        await oldest_waiting(service),
    )


@router.get("/pmodes", responses=problem_responses())
async def list_pmodes(service: Door) -> PModesView:
    """The P-Modes that are in force."""
    return PModesView(pmodes=[pmode_view(pmode) for pmode in service.pmodes()])


@router.post("/reload", responses=problem_responses(422))
async def reload(service: Door) -> ReloadedView:
    """Read the P-Modes again. When something is wrong with them, the old ones stay in force."""
    reloaded = await service.reload()
    if not reloaded.ok:
        raise ApiProblem(
            422,
            f"The old P-Modes stay in force: {'; '.join(reloaded.problems)}",
            errors=[("pmodes", told) for told in reloaded.problems],
        )
    return ReloadedView(pmodes=reloaded.pmodes)


@router.post("/purge", responses=problem_responses(422))
async def purge(service: Door, wanted: Annotated[Purge | None, Body()] = None) -> PurgedView:
    """Remove now what is past its retention."""
    return PurgedView(purged=await service.purge(wanted.days if wanted else None))
