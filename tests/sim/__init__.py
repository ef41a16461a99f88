"""Whole networks of nodes in one process: no sockets, no threads, no real time, one seed."""
