"""The REST interface: submit, status, trace, inbox, evidence, admin."""
