-- Times are microseconds since 1970, UTC. Sides, states and kinds are the words of the records.

-- Whose store this is, and how far its journal is.
CREATE TABLE node (
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    incarnation TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    checked_at INTEGER NOT NULL DEFAULT 0
);

-- What lists are filtered by has a column; all else of a message is JSON in details.
-- A key is never used twice (AUTOINCREMENT): it is the cursor of those who read the inbox.
CREATE TABLE messages (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    side TEXT NOT NULL,
    message_id TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    pmode TEXT,
    from_party TEXT,
    to_party TEXT,
    service TEXT,
    action TEXT,
    conversation_id TEXT,
    details BLOB NOT NULL
);
CREATE UNIQUE INDEX message_by_id ON messages (side, message_id);
CREATE INDEX message_by_state ON messages (side, state);
CREATE INDEX message_by_age ON messages (state, updated_at);

-- A signal is JSON in details.
CREATE TABLE signals (
    message_id TEXT NOT NULL,
    side TEXT NOT NULL,
    number INTEGER NOT NULL,
    details BLOB NOT NULL,
    PRIMARY KEY (message_id, side, number)
) WITHOUT ROWID;

-- An id is never used twice: a worker that lost its lease must not finish the work of another.
CREATE TABLE work (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    message_id TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    data BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    owner TEXT,
    lease_until INTEGER
);
CREATE INDEX work_free ON work (kind, due_at) WHERE owner IS NULL;
CREATE INDEX work_leased ON work (kind, lease_until, owner) WHERE owner IS NOT NULL;
CREATE INDEX work_in_order ON work (message_id) WHERE kind = 'notify';

-- The journal as it is written: one number for epoch and seq, so that an event is appended to the
-- end of its table, and its columns as one JSON array, because thirty values take long to bind.
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    message_id TEXT,
    details BLOB NOT NULL
);
CREATE INDEX event_by_message ON events (message_id) WHERE message_id IS NOT NULL;

-- The journal as it is read by people.
CREATE VIEW journal AS SELECT
    (SELECT name FROM node) AS node,
    id >> 40 AS epoch,
    id & 1099511627775 AS seq,
    details ->> '$[0]' AS at,
    details ->> '$[1]' AS party,
    details ->> '$[2]' AS event,
    details ->> '$[3]' AS side,
    details ->> '$[4]' AS message_id,
    details ->> '$[5]' AS signal_id,
    details ->> '$[6]' AS kind,
    details ->> '$[7]' AS ref_to_message_id,
    details ->> '$[8]' AS conversation_id,
    details ->> '$[9]' AS group_id,
    details ->> '$[10]' AS envelope,
    details ->> '$[11]' AS from_party,
    details ->> '$[12]' AS to_party,
    details ->> '$[13]' AS service,
    details ->> '$[14]' AS action,
    details ->> '$[15]' AS mpc,
    details ->> '$[16]' AS pmode,
    details ->> '$[17]' AS protocol,
    details ->> '$[18]' AS attempt,
    details ->> '$[19]' AS sequence_number,
    details ->> '$[20]' AS fragment,
    details ->> '$[21]' AS fragments,
    details ->> '$[22]' AS bytes,
    details ->> '$[23]' AS wire_bytes,
    details ->> '$[24]' AS payload_digests,
    details ->> '$[25]' AS peer,
    details ->> '$[26]' AS error_code,
    details ->> '$[27]' AS severity,
    details ->> '$[28]' AS detail,
    details ->> '$[29]' AS evidence
FROM (SELECT id, CAST(details AS TEXT) AS details FROM events);

-- Files that hold many small contents: how many of them are needed, and where the file ends.
CREATE TABLE segments (
    place TEXT PRIMARY KEY,
    open INTEGER NOT NULL,
    live INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;

-- Contents with a file of their own.
CREATE TABLE files (
    place TEXT PRIMARY KEY,
    size INTEGER NOT NULL
) WITHOUT ROWID;

-- Files that nobody needs any more and that may still be there.
CREATE TABLE trash (
    place TEXT PRIMARY KEY
) WITHOUT ROWID;

-- How many there are of what, kept up to date by each step: counting a million rows takes long.
CREATE TABLE counts (
    name TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) WITHOUT ROWID;
