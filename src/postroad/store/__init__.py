"""Messages, payloads, timers, sequences, the journal. The only room that touches the disk."""
