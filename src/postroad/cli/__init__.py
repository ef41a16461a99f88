"""Commands. One group per file, thin: it reads the arguments and calls the rooms below."""
