-- What is passed on over a link waits in one lane with what is sent over it. Those that never left
-- get their number in their turn, and the link begins anew with 1, which a Receiver always takes.
UPDATE messages SET details = CAST(
    json_remove(CAST(details AS TEXT), '$.sequence_number') AS BLOB
)
WHERE side = 'forwarding'
    AND message_id IN (
        SELECT message_id FROM work
        WHERE lane IS NOT NULL AND lane GLOB 'forward:link:*' AND kind = 'forward'
    )
    AND CAST(details AS TEXT) ->> '$.first_sent_at' IS NULL;
DELETE FROM states WHERE name IN (
    SELECT CAST(substr(CAST(lane AS BLOB), 9) AS TEXT) FROM work
    JOIN messages ON messages.side = 'forwarding' AND messages.message_id = work.message_id
    WHERE lane IS NOT NULL AND lane GLOB 'forward:link:*'
        AND CAST(messages.details AS TEXT) ->> '$.first_sent_at' IS NULL
);

-- The names of links have a zero character, at which text would end: so they are cut as bytes.
UPDATE work SET lane = 'send:' || CAST(substr(CAST(lane AS BLOB), 9) AS TEXT)
WHERE lane IS NOT NULL AND lane GLOB 'forward:link:*';
UPDATE work SET due_at = due_at + 1152921504606846976
WHERE lane IS NOT NULL AND lane GLOB 'send:link:*' AND due_at < 1152921504606846976
    AND EXISTS (SELECT 1 FROM work AS first WHERE first.lane = work.lane AND first.id < work.id);
