-- How far the journal was shipped, for each place that it is shipped to: the last event that lies
-- there, and the segment that it lies in.
CREATE TABLE shipped (
    target TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    digest TEXT NOT NULL,
    name TEXT NOT NULL
) WITHOUT ROWID;
