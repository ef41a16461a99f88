"""Who began an upload: what the envelope proves before the rest of the message is there."""

from msgspec import Struct

from postroad.agreement.matching import Match
from postroad.msh.capture import Capture
from postroad.msh.inspection import Look
from postroad.msh.lens import Lens
from postroad.wire.ebms3_reader import find_messaging


class Begun(Struct, frozen=True):
    """The beginning of a message that a partner signed."""

    match: Match
    partner: str
    message_ids: tuple[str, ...]


def begun(envelope: bytes, lens: Lens) -> Begun | None:
    """By whose P-Mode a message begins with this envelope; None: nobody who is trusted signed it.

    The digests of attachments stay open: whoever reads the whole message looks at them.
    """
    look = Look(Capture(None, None, None, envelope, (), False, ()), lens)
    if not look.read() or look.found.is_ebxml:
        return None
    look.judge(look.terms())
    found = look.found
    if found.match is None or found.messaging is None or found.envelope is None:
        return None
    signed = found.verification is not None and bool(found.verification.valid)
    if not signed or not found.trusted or not found.messaging.user_messages:
        return None
    assert found.verification is not None
    element = find_messaging(found.envelope)
    if element is None or not found.verification.covers(element):
        return None
    messages = found.messaging.user_messages
    sender = str(messages[0].from_party)
    return Begun(found.match, sender, tuple(one.message_info.message_id for one in messages))
