"""The first steps: folders, keys and samples for a new party."""
