"""Bytes to values and back, nothing else. No I/O."""
