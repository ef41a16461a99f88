"""What every part of a running node leans on."""
