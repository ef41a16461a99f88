"""How a message stands, in words: its state, what follows by itself, and what is to be done."""

import shlex
from typing import Final

from rich.text import Text

from postroad.api.client import Client, Message, Notice, Partner
from postroad.cli.showing import moment, plain, state

_WORDS: Final = {
    "submitted": "to be packaged",
    "ready": "to be sent",
    "waiting": "it left, and no answer is known yet",
    "sent": "it left, and no receipt was agreed on",
    "acknowledged": "the partner's receipt is here",
    "failed": "the partner does not have it",
    "in_doubt": "it left and no answer came, so the partner may have it",
    "expired": "its time was over before it left",
    "suspended": "no retry is left, and its partner has to be resumed",
    "received": "kept, and not for the application",
    "held": "kept, and not yet for the application",
    "delivered": "in the inbox",
    "consumed": "the application has it",
    "rejected": "refused",
}
_ANSWERS: Final = {
    "delivered": "given up, then told that it was delivered",
    "received": "given up, then told that the partner has it",
    "not_received": "given up, then told that the partner does not have it",
}
_OVER: Final = ("acknowledged", "sent", "settled")


def in_words(message: Message) -> str:
    """What a message's state means."""
    if message.state == "settled":
        return _ANSWERS.get(message.detail or "", "given up, then answered")
    return _WORDS.get(message.state, "")


def shown_state(message: Message) -> Text:
    """The state, which kind of failure it is, and what it means."""
    kind = f", {message.severity}" if message.severity else ""
    words = in_words(message)
    return state(message.state, f"{kind}: {words}" if words else kind)


def why(message: Message) -> str:
    """The reason that the node gives."""
    if message.state == "settled":
        return ""
    reason = " ".join(filter(None, (message.error_code, message.detail)))
    if not message.unproven or message.state != "rejected":
        return reason
    kept = f"the first {message.beginning} of {message.envelope_bytes} bytes of its envelope"
    return f"{reason}. Only {kept} were kept, because its sender proved nothing"


def has_arrived(message: Message) -> bool:
    """Whether there is nothing to be done: it is there, or nobody promised to say so."""
    if message.state == "settled":
        return message.detail == "delivered"
    return message.state in ("acknowledged", "sent")


def has_been_missed(message: Message) -> bool:
    """Whether somebody said that the partner does not have it."""
    return message.state == "settled" and message.detail == "not_received"


def partner_of(client: Client, message: Message) -> Partner | None:
    """The partner of an outgoing message that is not over, where not all is well with it."""
    if message.side != "sending" or message.state in _OVER:
        return None
    found = next((one for one in client.partners() if one.name == message.to_party), None)
    return None if found is None else partner_for(found, message)


def partner_for(partner: Partner, message: Message) -> Partner | None:
    """The partner as far as a message is concerned; None where all is well for it.

    That is the address that it was sent to before, unless the party is suspended as a whole.
    """
    if partner.gate == "suspended" or message.peer is None or not partner.addresses:
        return partner
    for one in partner.addresses:
        if one.address == message.peer:
            told = (partner.name, one.gate, one.failures, one.until, one.since, one.detail)
            return Partner(*told, addresses=(one,))
    return None


def outlook(message: Message, partner: Partner | None) -> str:
    """What follows by itself, and until when it is known how it ends."""
    if message.side != "sending" or message.settled:
        return ""
    stopped = partner is not None and partner.gate != "flowing"
    ends = message.decided_by
    said = []
    if message.state == "suspended" or (partner is not None and partner.gate == "suspended"):
        said.append("no attempt until the partner is resumed")
    else:
        times = (message.due_at, partner.until if partner is not None else None)
        at = max((one for one in times if one is not None), default=None)
        if at is not None and (stopped or ends is None or at < ends):
            said.append(f"next attempt at {moment(at)}")
    if ends is not None:
        later = ", or later as long as the partner is not served" if stopped else ""
        said.append(f"decided by {moment(ends)}{later}")
    return ", ".join(said)


def partner_in_words(partner: Partner | None) -> str:
    """How it stands with a partner, in one line."""
    if partner is None:
        return ""
    times = "time" if partner.failures == 1 else "times"
    said = [
        f"{partner.gate}{f' since {moment(partner.since)}' if partner.since else ''}",
        f"not reached {partner.failures} {times} in a row" if partner.failures else None,
        f"tried again at {moment(partner.until)}" if partner.until else None,
    ]
    told = ", ".join(filter(None, said))
    return f"{told}: {partner.detail}" if partner.detail else told


def to_do(message: Message, partner: Partner | None = None) -> str:
    """What somebody should do about an outgoing message; empty when nothing."""
    if message.side != "sending":
        return ""
    name = shlex.quote(plain(message.message_id))
    again = f"send it again with: postroad resend {name}"
    if message.state == "in_doubt":
        noted = f"postroad settle {name} --answer delivered"
        return f"{again}; or ask the partner, and note the answer with: {noted}"
    if message.state == "failed":
        return again
    if message.state == "expired" or has_been_missed(message):
        return "submit it again under another id"
    halted = partner is not None and partner.gate == "suspended"
    if message.state == "suspended" or (halted and not message.settled):
        return f"go on with: postroad resume {shlex.quote(plain(message.to_party))}"
    return ""


def notice_in_words(notice: Notice) -> str:
    return f"{notice.event} at {moment(notice.at)}, not acknowledged by the application"
