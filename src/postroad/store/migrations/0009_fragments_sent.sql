-- Fragments are messages too, which lists of messages leave out: part_of is the message that a
-- fragment is a part of, or of one that was received its GroupId.
ALTER TABLE messages ADD COLUMN part_of TEXT;
DROP INDEX message_by_state;
CREATE INDEX message_by_state ON messages (side, state) WHERE part_of IS NULL;
CREATE INDEX message_by_whole ON messages (side, part_of) WHERE part_of IS NOT NULL;
CREATE INDEX message_by_whole_and_state ON messages (side, part_of, state)
    WHERE part_of IS NOT NULL;
