-- A message is now whole in details; the columns beside it are what lists are filtered by.
UPDATE messages SET details = CAST(json_patch(
    CAST(details AS TEXT),
    json_object(
        'side', side,
        'message_id', message_id,
        'state', state,
        'created_at', printf(
            '%s.%06dZ',
            strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch'),
            created_at % 1000000
        ),
        'updated_at', printf(
            '%s.%06dZ',
            strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch'),
            updated_at % 1000000
        ),
        'pmode', pmode,
        'from_party', from_party,
        'to_party', to_party,
        'service', service,
        'action', action,
        'conversation_id', conversation_id
    )
) AS BLOB);

-- Whom work needs, and what it waits for: of a lane only the first is ever due. All others, and
-- what waits to be woken, have 2^60 added to their time.
ALTER TABLE work ADD COLUMN partner TEXT NOT NULL DEFAULT '';
ALTER TABLE work ADD COLUMN lane TEXT;
ALTER TABLE work ADD COLUMN expires_at INTEGER;
CREATE INDEX work_expiring ON work (kind, expires_at)
WHERE owner IS NULL AND expires_at IS NOT NULL;
UPDATE work SET partner = coalesce(
    (SELECT to_party FROM messages
     WHERE messages.side = 'sending' AND messages.message_id = work.message_id), ''
) WHERE kind IN ('package', 'send');
UPDATE work SET lane = 'notify:' || message_id WHERE kind = 'notify';
CREATE INDEX work_in_lane ON work (lane, id) WHERE lane IS NOT NULL;
UPDATE work SET due_at = due_at + 1152921504606846976
WHERE lane IS NOT NULL
    AND EXISTS (SELECT 1 FROM work AS first WHERE first.lane = work.lane AND first.id < work.id);
DROP INDEX work_in_order;
CREATE INDEX work_of_partner ON work (kind, partner, due_at) WHERE owner IS NULL;

-- Partners with whom not all is well, each JSON in details.
CREATE TABLE partners (
    name TEXT PRIMARY KEY,
    details BLOB NOT NULL
) WITHOUT ROWID;

-- What applications are to be told, each JSON in details. An id is never used twice.
CREATE TABLE notices (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL,
    details BLOB NOT NULL
);
CREATE INDEX notice_by_message ON notices (message_id);
