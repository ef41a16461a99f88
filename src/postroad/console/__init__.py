"""The web console: pages, templates, style, its little script."""
