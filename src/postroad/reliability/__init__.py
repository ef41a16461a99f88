"""State machines, one file a protocol, each a visible transition table. No I/O."""
