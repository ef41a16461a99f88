"""AS4's conformance profiles as sample P-Modes: who opens connections, and how it is protected.

A client only calls out: it pushes its messages and collects those for it by pulling, so that
nobody need reach it (AS4 2.2, 2.3).
"""

from enum import StrEnum
from typing import Final

from postroad.node.first_steps.samples import SAMPLES, Sample


class Profile(StrEnum):
    """A conformance profile."""

    EBHANDLER = "ebhandler"
    """Both parties push, and both collect by pulling."""
    LIGHT = "light"
    """A client with signatures and receipts."""
    MINIMAL = "minimal"
    """A client without: it shows a user name, and nothing says that a message arrived."""

    @property
    def is_client(self) -> bool:
        """Whether the first party only calls out."""
        return self is not Profile.EBHANDLER


_COLLECTED: Final = Sample(
    "collected", "CollectedOrder", "signed, encrypted and compressed", True, True, pulled=True
)
_BY_USER: Final = Sample(
    "collected-plain",
    "CollectedPriceList",
    "neither signed nor encrypted; who collects shows a user name",
    False,
    False,
    pulled=True,
)
_BARE: Final = Sample("bare", "Note", "neither protected nor acknowledged", False, False, bare=True)
_BARE_COLLECTED: Final = Sample(
    "collected-bare",
    "CollectedNote",
    "neither protected nor acknowledged; who collects shows a user name",
    False,
    False,
    pulled=True,
    bare=True,
)
_THERE: Final = {
    None: SAMPLES,
    Profile.EBHANDLER: (*SAMPLES, _COLLECTED),
    Profile.LIGHT: SAMPLES,
    Profile.MINIMAL: (_BARE,),
}
_BACK: Final = {
    None: SAMPLES,
    Profile.EBHANDLER: (*SAMPLES, _COLLECTED),
    Profile.LIGHT: (_COLLECTED, _BY_USER),
    Profile.MINIMAL: (_BARE_COLLECTED,),
}


def samples_of(
    profile: Profile | None, *, back: bool, unsigned: bool = False
) -> tuple[Sample, ...]:
    """Return the samples that the first party sends by, or with `back` those of its partner.

    Samples without signatures are left out unless they are asked for: whoever reaches a node can
    send what such a P-Mode takes. The profile `minimal` has no others.
    """
    found = (_BACK if back else _THERE)[profile]
    if unsigned or profile is Profile.MINIMAL:
        return found
    return tuple(one for one in found if one.signed)
