-- Received messages of several senders may have one MessageId. sender is empty for the first of
-- them, and for all messages whose id no other has; else it is a digest of who sent it.
ALTER TABLE messages ADD COLUMN sender TEXT NOT NULL DEFAULT '';
DROP INDEX message_by_id;
CREATE UNIQUE INDEX message_by_id ON messages (side, message_id, sender);
