"""The delivery and duplicate machines, checked in every state that a small world can reach."""
