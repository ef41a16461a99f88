"""Messages in fragments, and uploads that go on where they broke off."""
