"""The demo: scene by scene, the whole story in one go."""
