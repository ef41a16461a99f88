"""All classes of attacks, in the order in which they run."""

from typing import Final

from tests.attack.campaign import (
    attachments,
    certificates,
    egress,
    encryption,
    http_framing,
    hubs,
    ids,
    mail,
    replays,
    rest_access,
    signals,
    signatures,
    slow_clients,
    state_floods,
    strings,
    work,
    xml_bombs,
)
from tests.attack.campaign.model import AttackClass

CLASSES: Final[tuple[AttackClass, ...]] = (
    *http_framing.CLASSES,
    *slow_clients.CLASSES,
    *rest_access.CLASSES,
    *mail.CLASSES,
    *egress.CLASSES,
    *state_floods.CLASSES,
    *replays.CLASSES,
    *signals.CLASSES,
    *ids.CLASSES,
    *hubs.CLASSES,
    *strings.CLASSES,
    *xml_bombs.CLASSES,
    *signatures.CLASSES,
    *encryption.CLASSES,
    *attachments.CLASSES,
    *certificates.CLASSES,
    *work.CLASSES,
)
