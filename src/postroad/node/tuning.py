"""Settings of the interpreter that suit a process which does nothing but run a node."""

import contextlib
import ctypes
import gc
import resource
import sys
from typing import Final

_SWITCH_INTERVAL: Final = 0.0005
_YOUNG_OBJECTS: Final = 50_000
_TRIM_THRESHOLD: Final = (-1, 16 << 20)
_MMAP_THRESHOLD: Final = (-3, 4 << 20)
"""By the numbers of mallopt(3)."""
_FILES: Final = 1 << 20


def tune_process() -> None:
    """Let the thread that commits have its turn soon, and look for garbage cycles seldom.

    A message leaves hardly any cycles behind, and what was loaded at the start stays for good. The
    pieces of a large message come and go by the thousand: their memory is not given back each time.
    """
    with contextlib.suppress(AttributeError, OSError):
        for name, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(name, value)
    raise_file_limit()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 20, 50)


def raise_file_limit() -> None:
    """Allow as many open files as this user may have; a connection is one.

    The usual soft limit, 1024, is less than the connections that a node may have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
