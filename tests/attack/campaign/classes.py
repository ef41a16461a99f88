"""All classes of attacks, in the order in which they run."""

from typing import Final

from tests.attack.campaign import (
    attachments,
    certificates,
    encryption,
    hubs,
    ids,
    replays,
    signals,
    signatures,
    strings,
    work,
    xml_bombs,
)
from tests.attack.campaign.model import AttackClass

CLASSES: Final[tuple[AttackClass, ...]] = (
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
