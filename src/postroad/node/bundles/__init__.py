"""Several messages in one envelope."""
