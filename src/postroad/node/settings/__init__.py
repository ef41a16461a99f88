"""What a node is told: configuration, keys, P-Modes and rules, and what of it is in force."""
