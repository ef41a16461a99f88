-- The units of a bundle share its envelope: content goes when nobody owns it any more.
ALTER TABLE files ADD COLUMN owners INTEGER NOT NULL DEFAULT 1;
