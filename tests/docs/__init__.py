"""What the documentation shows is run as it stands, against real folders and nodes."""
