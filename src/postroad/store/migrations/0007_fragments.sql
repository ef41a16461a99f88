-- Groups of fragments on their way to being one message. What is known of a group is the details;
-- to_come is for how many more bytes there must be room; ended_at is set once it was joined or
-- rejected, when it is only remembered.
CREATE TABLE fragment_groups (
    id INTEGER PRIMARY KEY,
    sender TEXT NOT NULL,
    group_id TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    ended_at INTEGER,
    to_come INTEGER NOT NULL,
    details BLOB NOT NULL
);
CREATE UNIQUE INDEX fragment_group_by_name ON fragment_groups (sender, group_id);
CREATE INDEX fragment_group_by_end ON fragment_groups (ended_at) WHERE ended_at IS NOT NULL;

-- The fragments that came: under which message id, and where the data of each lies.
CREATE TABLE fragments (
    fragment_group INTEGER NOT NULL,
    number INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    place TEXT NOT NULL,
    start INTEGER NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (fragment_group, number)
) WITHOUT ROWID;
