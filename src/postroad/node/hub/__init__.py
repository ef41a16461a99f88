"""Messages for others: an intermediary carries them on."""
