"""P-Modes, CPAs and routing tables: models, loading, matching; what is wrong, by line. Pure."""
