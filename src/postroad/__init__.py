"""Postroad: business documents between companies, once and only once, with proof."""

__version__ = "0.1.0"
