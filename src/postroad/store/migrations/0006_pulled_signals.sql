-- Of a signal that waits in a channel: the message that it is about.
ALTER TABLE offers ADD COLUMN about TEXT;

INSERT INTO counts (name, count) SELECT 'offered.' || pmode, count(*) FROM offers GROUP BY pmode;
