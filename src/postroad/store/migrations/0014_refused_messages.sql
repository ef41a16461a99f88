-- Messages that were refused and whose senders proved nothing: the beginning of each envelope, and
-- what the message takes in all. They lie in the database and not among the contents, because a
-- segment of contents goes only when nothing in it is needed any more. An id is never used twice:
-- the oldest go first.
CREATE TABLE refused (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    size INTEGER NOT NULL,
    beginning BLOB NOT NULL
);
CREATE UNIQUE INDEX refused_by_message ON refused (message_id);
