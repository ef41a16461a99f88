"""HTTP in and out, SMTP in and out, restartable upload. The only room that touches the network."""
