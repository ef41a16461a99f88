"""The older tongue: ebXML Message Service, at both ends and between."""
