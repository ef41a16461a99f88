"""Ports for servers of tests that must be known before anybody listens.

They are below those that the system gives to who connects. Among those, a port whose owner is dead
could be taken by a connection before it is back, and who connects to it could even meet himself.
Drawn by chance, so that two runs side by side don't meet; none is given twice in a process.
"""

import random
import socket
from typing import Final

ABOVE: Final = 10
"""So far above the port of a node is that of its REST interface, where that has its own."""
_PORTS: Final = range(12_000, 32_000)
_dice: Final = random.SystemRandom()
_given: Final[set[int]] = set()


def free_port() -> int:
    """A port at which nobody listens; the one ten above is free too."""
    while True:
        port = _dice.choice(_PORTS)
        wanted = {port, port + ABOVE}
        if not wanted & _given and all(map(_is_free, wanted)):
            _given.update(wanted)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
