"""Evidence of messages, and the inspection of files."""
