-- What protocols remember beside messages: how far a conversation is numbered, what it waits for.
CREATE TABLE states (
    name TEXT PRIMARY KEY,
    changed_at INTEGER NOT NULL,
    details BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX state_by_age ON states (changed_at);
