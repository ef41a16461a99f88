-- Lists are filtered by error code and by partner. A partner gets what is sent or passed on, or
-- sent what is received or passed on.
ALTER TABLE messages ADD COLUMN error_code TEXT;
UPDATE messages SET error_code = CAST(details AS TEXT) ->> '$.error_code'
WHERE CAST(details AS TEXT) ->> '$.error_code' IS NOT NULL;
CREATE INDEX message_by_error ON messages (error_code, side, state)
WHERE part_of IS NULL AND error_code IS NOT NULL;
CREATE INDEX message_by_receiver ON messages (to_party, side, state)
WHERE part_of IS NULL AND side <> 'receiving';
CREATE INDEX message_by_sender ON messages (from_party, side, state)
WHERE part_of IS NULL AND side <> 'sending';

-- Messages are counted by P-Mode too, or by the rule that passes them on.
DELETE FROM counts WHERE name LIKE 'message.%';
INSERT INTO counts (name, count)
SELECT
    'message.' || side || '.' || state || '.'
        || coalesce(pmode, CAST(details AS TEXT) ->> '$.route', ''),
    count(*)
FROM messages GROUP BY 1;
