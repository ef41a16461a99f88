"""Bundles: several messages submitted together, to go in one envelope."""

from fastapi import APIRouter, Request, Response

from postroad.api.limits import ApiLimits
from postroad.api.paths import API, Door
from postroad.api.problems import problem_responses
from postroad.api.submission_body import submission_body
from postroad.api.upload import read_bundle
from postroad.api.views import BundleView, submitted_view

router = APIRouter(prefix=f"{API}/bundles", tags=["messages"])

_EXAMPLE = {
    "messages": [
        {"pmode": "catalogue-updates", "payloads": [{"part": "first"}]},
        {"pmode": "catalogue-updates", "payloads": [{"part": "second"}]},
    ]
}


@router.post(
    "",
    status_code=202,
    response_model=BundleView,
    responses={
        200: {"model": BundleView, "description": "The same bundle was submitted before"},
        **problem_responses(400, 404, 408, 409, 413, 415, 422),
    },
    openapi_extra=submission_body("BundleMetadata", _EXAMPLE),
)
async def submit_bundle(request: Request, response: Response, service: Door) -> BundleView:
    """Submit messages that go in one envelope, at once: all are taken over, or none.

    A bundle that its P-Modes do not allow is refused with 422 and the code EBMS:0030. After that
    each message has its own state, receipt and evidence. With ids of your own a repetition does no
    harm, as for a single message.
    """
    limits: ApiLimits = request.app.state.limits
    submissions = await read_bundle(request, service.new_sink, limits)
    submitted = await service.submit_bundle(submissions)
    if all(one.repeated for one in submitted):
        response.status_code = 200
    return BundleView(messages=[submitted_view(one.message, one.repeated) for one in submitted])
