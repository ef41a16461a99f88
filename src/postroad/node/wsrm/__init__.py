"""Reliable messaging of web services at both ends: WS-ReliableMessaging and WS-Reliability."""
