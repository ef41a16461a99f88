-- Selections of several items each of which many offers have: who has them all is known by an item
-- of its own, made when such a selection is first asked for. place and items are digests.
CREATE TABLE combinations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    item TEXT NOT NULL,
    place TEXT NOT NULL,
    items TEXT NOT NULL
);
CREATE UNIQUE INDEX combination_by_item ON combinations (item);
CREATE INDEX combination_by_place ON combinations (place, id);
