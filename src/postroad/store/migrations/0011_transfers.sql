-- Uploads that may be broken off and go on: who sends each, where to, and under what name; what
-- came of it lies in the pieces. partner is whose share of the room it takes, size how much of it.
-- Who writes to one owns it until a time. One that is done has no pieces: its answer is remembered.
CREATE TABLE transfers (
    id INTEGER PRIMARY KEY,
    sender TEXT NOT NULL,
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    partner TEXT NOT NULL,
    stored INTEGER NOT NULL,
    total INTEGER,
    size INTEGER NOT NULL,
    touched_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    owner TEXT,
    open_until INTEGER,
    done INTEGER NOT NULL,
    pieces BLOB NOT NULL,
    details BLOB NOT NULL
);
CREATE UNIQUE INDEX transfer_by_name ON transfers (name, path, sender);
CREATE INDEX transfer_by_partner ON transfers (partner, size) WHERE NOT done;
CREATE INDEX transfer_done ON transfers (touched_at) WHERE done;
CREATE INDEX transfer_by_end ON transfers (expires_at);
