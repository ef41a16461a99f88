"""The floor of the push benchmark: what nobody can avoid, in a process that loads nothing else."""

import hashlib
import json
import os
import sqlite3
import sys
from pathlib import Path
from time import perf_counter
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

PAYLOAD: Final = 10 * 1024
_PER_COMMIT: Final = 50


def run_floor(database: Path, kind: str, seconds: float) -> None:
    """One core of the floor: sign, verify, receipt, verify, and both sides committed."""
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key()
    how, digest = padding.PKCS1v15(), hashes.SHA256()
    payload, signed_info = os.urandom(PAYLOAD), os.urandom(1024)
    sides = [_side(database.with_suffix(f".{side}")) for side in ("out", "in")]
    print("{}", flush=True)
    sys.stdin.readline()
    count = 0
    began = perf_counter()
    while perf_counter() - began < seconds:
        for _ in range(_PER_COMMIT):
            if kind == "signed":
                for _ in range(2):
                    hashlib.sha256(payload).digest()
                    value = key.sign(signed_info, how, digest)
                    public.verify(value, signed_info, how, digest)
            count += 1
            row = (f"{count}@{os.getpid()}", payload)
            for side in sides:
                side.execute("INSERT INTO message VALUES (?, ?)", row)
        for side in sides:
            side.execute("COMMIT")
            side.execute("BEGIN")
    print(json.dumps({"per_second": count / (perf_counter() - began)}), flush=True)


def _side(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS message (id TEXT PRIMARY KEY, payload BLOB)")
    connection.execute("BEGIN")
    return connection


if __name__ == "__main__":
    run_floor(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
