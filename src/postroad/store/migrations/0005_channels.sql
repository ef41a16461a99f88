-- Messages that wait in a channel until their receiver pulls them, in the order in which they came.
-- due_at is 0 for what is offered now, else until when it is with somebody who pulled it.
CREATE TABLE offers (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    pmode TEXT NOT NULL,
    message_id TEXT NOT NULL,
    added_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX offer_by_message ON offers (message_id);
CREATE INDEX offer_free ON offers (channel, pmode, id) WHERE due_at = 0;
CREATE INDEX offer_handed_out ON offers (channel, pmode, due_at) WHERE due_at > 0;
CREATE INDEX offer_by_age ON offers (channel, id);

-- A row for each thing that a selection can ask of an offer: a digest of place and value.
CREATE TABLE offer_items (
    item TEXT NOT NULL,
    offer INTEGER NOT NULL,
    PRIMARY KEY (item, offer)
) WITHOUT ROWID;
CREATE INDEX offer_item_by_offer ON offer_items (offer);

-- What may come once only, such as the nonce of a token, and until when that has to be known.
CREATE TABLE once (
    name TEXT PRIMARY KEY,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX once_by_end ON once (until);
