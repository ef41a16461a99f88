"""Steps of the store: what is written down of a message, whatever walk it is on."""
