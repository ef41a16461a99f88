-- Every query of the SQLite store, by name. A query ends where the next one starts.

-- name: migrations_table
-- Which migrations were applied to this database.
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
)

-- name: last_migration
-- The number of the newest migration that was applied.
SELECT coalesce(max(number), 0) FROM migrations

-- name: add_migration
-- This migration was applied.
INSERT INTO migrations (number, name, applied_at) VALUES (?, ?, ?)

-- name: add_node
-- A new store belongs to this node.
INSERT INTO node (name, epoch, incarnation, last_seq) VALUES (?, ?, ?, 0)

-- name: node
-- Whose store this is.
SELECT name, epoch, incarnation, last_seq FROM node

-- name: start_epoch
-- The journal starts anew.
UPDATE node SET epoch = ?, incarnation = ?, last_seq = 0

-- name: position
-- How far the journal is.
SELECT epoch, last_seq FROM node

-- name: set_position
-- The journal is so far now.
UPDATE node SET last_seq = ?

-- name: touch_node
-- A change that means nothing, to see whether changes can be made.
UPDATE node SET checked_at = ?

-- name: add_message
-- A new message; nothing happens when side, id and sender are taken.
INSERT INTO messages (
    side, message_id, sender, part_of, state, created_at, updated_at, pmode, from_party, to_party,
    service, action, conversation_id, error_code, details
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (side, message_id, sender) DO NOTHING

-- name: message
-- The message with this side, id and sender.
SELECT key, details FROM messages WHERE side = ? AND message_id = ? AND sender = ?

-- name: messages_of_id
-- All messages of a side that have this id, the first of them first.
SELECT key, details FROM messages WHERE side = ? AND message_id = ? ORDER BY sender

-- name: messages_by_id
-- Those messages of a side that have one of these ids.
SELECT key, details FROM messages
WHERE side = ? AND message_id IN (SELECT value FROM json_each(?))

-- name: advance_message
-- What changes of a message in the course of time; what lists are filtered by stays.
UPDATE messages SET state = ?, updated_at = ?, error_code = ?, details = ? WHERE key = ?

-- name: change_message
-- Everything of a message that can change.
UPDATE messages SET
    state = ?, created_at = ?, updated_at = ?, pmode = ?, from_party = ?, to_party = ?,
    service = ?, action = ?, conversation_id = ?, error_code = ?, details = ?
WHERE key = ?

-- name: messages
-- Messages that fit, oldest first. Put together with a range by `store.lists`.
SELECT key, details FROM messages
WHERE part_of IS NULL AND key > :after AND key < :before
    AND created_at >= :since AND created_at < :until
    AND (:pmode IS NULL OR pmode = :pmode)
    AND (:from_party IS NULL OR from_party = :from_party)
    AND (:to_party IS NULL OR to_party = :to_party)
    AND (:service IS NULL OR service = :service)
    AND (:action IS NULL OR action = :action)
    AND (:conversation_id IS NULL OR conversation_id = :conversation_id)
ORDER BY key LIMIT :limit

-- name: total
-- How many fit of the newest messages, so that it takes no longer for more of them.
SELECT count(*), count(fits) FROM (
    SELECT CASE WHEN created_at >= :since AND created_at < :until
        AND (:pmode IS NULL OR pmode = :pmode)
        AND (:from_party IS NULL OR from_party = :from_party)
        AND (:to_party IS NULL OR to_party = :to_party)
        AND (:service IS NULL OR service = :service)
        AND (:action IS NULL OR action = :action)
        AND (:conversation_id IS NULL OR conversation_id = :conversation_id)
        THEN 1 END AS fits
    FROM messages WHERE part_of IS NULL ORDER BY key DESC LIMIT :most
)

-- name: range_of_state
-- A range for lists: one side and state.
side = :side AND state = :state

-- name: range_of_error
-- The same with an error code, and of one partner where one is named.
error_code = :error_code AND side = :side AND state = :state
    AND (
        :partner IS NULL
        OR (side <> 'receiving' AND to_party = :partner)
        OR (side <> 'sending' AND from_party = :partner)
    )

-- name: range_of_receiver
-- The same of what is sent or passed on to a partner.
to_party = :partner AND side = :side AND state = :state AND side <> 'receiving'

-- name: range_of_sender
-- The same of what a partner sent.
from_party = :partner AND side = :side AND state = :state AND side <> 'sending'

-- name: range_of_sender_only
-- The same for totals, without what goes back to the partner and is in the range of the receiver.
from_party = :partner AND side = :side AND state = :state AND side <> 'sending'
    AND to_party IS NOT :partner

-- name: messages_to_purge
-- Messages in one state that were last changed before a time, those first that wait longest.
-- A fragment that was sent goes with its message.
SELECT key, details FROM messages
WHERE state = ? AND updated_at < ? AND (part_of IS NULL OR side <> 'sending')
ORDER BY updated_at LIMIT ?

-- name: fragment_messages
-- The messages that are fragments of one, by their keys.
SELECT key, details FROM messages
WHERE side = ? AND part_of = ? AND key > ? ORDER BY key LIMIT ?

-- name: fragment_in_state
-- One of these that is in a state.
SELECT key FROM messages WHERE side = ? AND part_of = ? AND state = ? LIMIT 1

-- name: fragment_states
-- How many of these are in which state.
SELECT state, count(*) FROM messages WHERE side = ? AND part_of = ? GROUP BY state

-- name: remove_message
-- A message that was purged.
DELETE FROM messages WHERE key = ?

-- name: add_signal
-- A signal about a message, after those that came before it.
INSERT INTO signals (message_id, side, number, details)
SELECT ?, ?, coalesce(max(number), 0) + 1, ? FROM signals WHERE message_id = ? AND side = ?

-- name: change_signal
-- Another signal in the place of one about the same message, which comes after so many others.
UPDATE signals SET details = ? WHERE message_id = ? AND side = ? AND number = (
    SELECT number FROM signals WHERE message_id = ? AND side = ? ORDER BY number LIMIT 1 OFFSET ?
)

-- name: signals
-- The signals about a message, in the order in which they came.
SELECT details FROM signals WHERE message_id = ? AND side = ? ORDER BY number

-- name: remove_signals
-- The signals about a message that was purged.
DELETE FROM signals WHERE message_id = ? AND side = ?

-- name: add_work
-- Something to do.
INSERT INTO work (
    kind, message_id, due_at, data, attempt, owner, lease_until, partner, lane, expires_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: last_number
-- The number of the row that was added last.
SELECT last_insert_rowid()

-- name: lane_is_taken
-- Whether there is something to do in this lane already.
SELECT 1 FROM work WHERE lane = ? LIMIT 1

-- name: stands_behind
-- Whether there is something before this work in its lane.
SELECT 1 FROM work AS one
WHERE one.id = ? AND EXISTS (SELECT 1 FROM work WHERE lane = one.lane AND id < one.id)

-- name: work
-- Something to do, by its number.
SELECT id, kind, message_id, due_at, data, attempt, partner, lane, expires_at, owner, lease_until
FROM work WHERE id = ?

-- name: others_work
-- What an owner has not claimed of one kind, or has before a number, in the order of its addition.
SELECT id, kind, message_id, due_at, data, attempt, partner, lane, expires_at, owner, lease_until
FROM work WHERE kind = :kind AND owner IS NULL AND id > :after
UNION ALL
SELECT id, kind, message_id, due_at, data, attempt, partner, lane, expires_at, owner, lease_until
FROM work WHERE kind = :kind AND owner IS NOT NULL AND (owner <> :owner OR id < :before)
AND id > :after
ORDER BY id LIMIT :most

-- name: free_work
-- Due work that nobody has claimed, oldest first.
SELECT id, kind, message_id, due_at, data, attempt, partner, lane, expires_at, owner FROM work
WHERE kind = ? AND owner IS NULL AND due_at <= ? ORDER BY due_at, id LIMIT ?

-- name: expired_work
-- Due work whose owner did not finish it in time, oldest first.
SELECT id, kind, message_id, due_at, data, attempt, partner, lane, expires_at, owner FROM work
WHERE kind = ? AND owner IS NOT NULL AND lease_until <= ? AND due_at <= ?
ORDER BY due_at, id LIMIT ?

-- name: free_work_of_partner
-- Due work for one partner that nobody has claimed, oldest first.
SELECT id, kind, message_id, due_at, data, attempt, partner, lane, expires_at, owner FROM work
WHERE kind = ? AND partner = ? AND owner IS NULL AND due_at <= ? ORDER BY due_at, id LIMIT ?

-- name: ended_work
-- Work that nobody has claimed and that has expired, wherever it stands.
SELECT id, kind, message_id, due_at, data, attempt, partner, lane, expires_at, owner FROM work
WHERE kind = ? AND owner IS NULL AND expires_at IS NOT NULL AND expires_at <= ?
ORDER BY expires_at, id LIMIT ?

-- name: next_end
-- When the next unclaimed work expires.
SELECT expires_at FROM work WHERE kind = ? AND owner IS NULL AND expires_at IS NOT NULL
ORDER BY expires_at LIMIT 1

-- name: partners_served
-- The partners for whom there is something to do, and when: one step in the index for each.
WITH RECURSIVE served (name) AS (
    SELECT min(partner) FROM work WHERE kind = :kind AND owner IS NULL
    UNION ALL
    SELECT (
        SELECT min(partner) FROM work
        WHERE kind = :kind AND owner IS NULL AND partner > served.name
    ) FROM served WHERE name IS NOT NULL
)
SELECT name, (
    SELECT min(due_at) FROM work WHERE kind = :kind AND partner = name AND owner IS NULL
) FROM served WHERE name IS NOT NULL

-- name: expire_work
-- Somebody has to look at it then.
UPDATE work SET expires_at = ? WHERE id = ?

-- name: claim_work
-- This owner does it, until the lease is over.
UPDATE work SET owner = ?, lease_until = ? WHERE id = ?

-- name: finish_work
-- It is done; the kind tells which count goes down, the lane who is next.
DELETE FROM work WHERE id = :id AND (:owner IS NULL OR owner = :owner) RETURNING kind, lane

-- name: finish_works
-- They are done; the kinds tell which counts go down, the lanes who is next.
DELETE FROM work
WHERE id IN (SELECT value FROM json_each(:ids)) AND (:owner IS NULL OR owner = :owner)
RETURNING id, kind, lane

-- name: wake_lane
-- The first in a lane was finished: the next may begin.
UPDATE work SET due_at = due_at - :later
WHERE id = (SELECT min(id) FROM work WHERE lane = :lane) AND id > :finished AND due_at >= :later

-- name: wake_work
-- It is due then, if nobody is at it.
UPDATE work SET due_at = ? WHERE id = ? AND owner IS NULL

-- name: turn_work
-- It is something else from now on, and free.
UPDATE work SET
    kind = ?, due_at = ?, partner = ?, data = x'', attempt = 0, owner = NULL, lease_until = NULL
WHERE id = ?

-- name: postpone_work
-- It is tried again later, by anybody.
UPDATE work SET
    due_at = :due_at, data = coalesce(:data, data), attempt = attempt + 1, owner = NULL,
    lease_until = NULL
WHERE id = :id AND (:owner IS NULL OR owner = :owner)

-- name: renew_work
-- The owner is still at it.
UPDATE work SET lease_until = ? WHERE id = ? AND owner = ?

-- name: release_work
-- The owners whose names start so are gone.
UPDATE work SET owner = NULL, lease_until = NULL
WHERE owner IS NOT NULL AND substr(owner, 1, length(:prefix)) = :prefix
RETURNING id, kind, message_id, due_at, data, attempt, partner, lane, expires_at, NULL

-- name: next_free
-- When the next unclaimed work of this kind is due.
SELECT due_at FROM work WHERE kind = ? AND owner IS NULL ORDER BY due_at LIMIT 1

-- name: oldest_leased
-- The oldest work of this kind that somebody does.
SELECT min(due_at) FROM work WHERE kind = ? AND owner IS NOT NULL

-- name: shift_work
-- The clock was set back by so much. What sleeps goes on sleeping.
UPDATE work SET
    due_at = max(due_at - :back, CASE WHEN due_at < :later THEN 0 ELSE :later END),
    lease_until = lease_until - :back

-- name: partners
-- Partners with whom not all is well.
SELECT details FROM partners ORDER BY name

-- name: partner
-- One of them.
SELECT details FROM partners WHERE name = ?

-- name: set_partner
-- How it stands with a partner.
INSERT INTO partners (name, details) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET details = excluded.details

-- name: remove_partner
-- All is well with a partner.
DELETE FROM partners WHERE name = ?

-- name: add_notice
-- Something that an application is to be told.
INSERT INTO notices (message_id, details) VALUES (?, ?)

-- name: notices
-- What applications were not told yet, in order.
SELECT id, details FROM notices WHERE id > ? ORDER BY id LIMIT ?

-- name: remove_notice
-- The application knows.
DELETE FROM notices WHERE id = ?

-- name: remove_notices
-- Nobody will ask about a message that was purged.
DELETE FROM notices WHERE message_id = ?

-- name: add_event
-- An event of the journal; its id is the epoch times 2^40 plus the seq.
INSERT INTO events (id, message_id, details) VALUES (?, ?, ?)

-- name: events
-- All that the journal says about a message, in order.
SELECT id, details FROM events WHERE message_id = ? ORDER BY id

-- name: journal
-- A stretch of the journal, in order.
SELECT id, details FROM events WHERE id > ? ORDER BY id LIMIT ?

-- name: shipped_positions
-- How far the journal was shipped, for all places.
SELECT target, epoch, seq, digest, name FROM shipped ORDER BY target

-- name: remove_events
-- The journal up to an event, which was shipped.
DELETE FROM events WHERE id <= ?

-- name: remove_shipped
-- Nothing more is shipped to this place.
DELETE FROM shipped WHERE target = ?

-- name: shipped
-- How far the journal was shipped to a place.
SELECT target, epoch, seq, digest, name FROM shipped WHERE target = ?

-- name: set_shipped
-- The journal was shipped so far to this place.
INSERT INTO shipped (target, epoch, seq, digest, name) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (target) DO UPDATE SET
    epoch = excluded.epoch, seq = excluded.seq, digest = excluded.digest, name = excluded.name

-- name: count
-- So many more (or fewer) of something.
INSERT INTO counts (name, count) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET count = count + excluded.count

-- name: remove_count
-- There is no more of something.
DELETE FROM counts WHERE name = ? AND count = 0

-- name: raise_mark
-- A mark among the counts that only ever rises.
INSERT INTO counts (name, count) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET count = max(count, excluded.count)

-- name: counts
-- How many there are of what.
SELECT name, count FROM counts WHERE count <> 0

-- name: add_to_segment
-- Contents were appended to a segment that this process writes.
INSERT INTO segments (place, open, live, bytes) VALUES (?, 1, ?, ?)
ON CONFLICT (place) DO UPDATE SET live = live + excluded.live, bytes = excluded.bytes

-- name: take_from_segment
-- Contents of a segment are not needed any more.
UPDATE segments SET live = live - ? WHERE place = ?

-- name: close_segment
-- Nothing more is written to this segment.
UPDATE segments SET open = 0 WHERE place = ?

-- name: remove_empty_segment
-- A segment in which nothing lives and nothing will.
DELETE FROM segments WHERE place = ? AND live <= 0 AND open = 0 RETURNING bytes

-- name: segment_end
-- Where the contents of a segment end.
SELECT bytes FROM segments WHERE place = ?

-- name: add_file
-- Content with a file of its own.
INSERT INTO files (place, size) VALUES (?, ?)

-- name: share_file
-- So many more owners of it.
UPDATE files SET owners = owners + ? WHERE place = ?

-- name: leave_file
-- One owner less, where there are others.
UPDATE files SET owners = owners - 1 WHERE place = ? AND owners > 1 RETURNING owners

-- name: remove_file
-- Its file is not needed any more.
DELETE FROM files WHERE place = ? RETURNING size

-- name: file_size
-- Whether somebody needs this file.
SELECT size FROM files WHERE place = ?

-- name: add_trash
-- The file of this name can go.
INSERT OR IGNORE INTO trash (place) VALUES (?)

-- name: trash
-- The files that can go.
SELECT place FROM trash

-- name: remove_trash
-- The file of this name is gone.
DELETE FROM trash WHERE place = ?

-- name: state
-- What a protocol remembers under a name.
SELECT details FROM states WHERE name = ?

-- name: set_state
-- Remember something under a name.
INSERT INTO states (name, changed_at, details) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET changed_at = excluded.changed_at, details = excluded.details

-- name: remove_state
-- Forget what is remembered under a name.
DELETE FROM states WHERE name = ?

-- name: forget_states
-- Forget what is passing and was last changed before a time.
DELETE FROM states WHERE name IN (
    SELECT name FROM states WHERE name >= '~' AND changed_at < ? ORDER BY changed_at LIMIT ?
)

-- name: add_offer
-- A message, or a signal, is put into a channel; nothing happens when it is in one.
INSERT INTO offers (channel, pmode, message_id, added_at, due_at, about) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (message_id) DO NOTHING

-- name: add_offer_item
-- Something that a selection can ask for.
INSERT OR IGNORE INTO offer_items (item, offer) VALUES (?, ?)

-- name: offer
-- Where a message is offered.
SELECT id, channel, pmode, message_id, added_at, due_at, about FROM offers WHERE message_id = ?

-- name: free_offers
-- What was handed out and not acknowledged in time is offered again.
UPDATE offers SET due_at = 0 WHERE channel = ? AND pmode = ? AND due_at > 0 AND due_at <= ?

-- name: first_offers
-- What came first of that which is offered.
SELECT id, channel, pmode, message_id, added_at, due_at, about FROM offers
WHERE channel = ? AND pmode = ? AND due_at = 0 ORDER BY id LIMIT ?

-- name: further_holder
-- An offer that has an item beside so many others.
SELECT offer FROM offer_items WHERE item = ? LIMIT 1 OFFSET ?

-- name: first_selected_offers
-- The same of that which has one item, and all others of a JSON array, among so many that have it.
-- These come in their order.
SELECT offers.id, channel, pmode, message_id, added_at, due_at, about
FROM (SELECT offer FROM offer_items WHERE item = :item ORDER BY offer LIMIT :most) AS first
CROSS JOIN offers ON offers.id = first.offer
WHERE due_at = 0
    AND NOT EXISTS (
        SELECT 1 FROM json_each(:others) AS other
        WHERE NOT EXISTS (
            SELECT 1 FROM offer_items AS held
            WHERE held.item = other.value AND held.offer = first.offer
        )
    )
LIMIT :wanted

-- name: combinations
-- The selections of a place for which there is an index, those that were asked for first before.
SELECT item, items FROM combinations WHERE place = ? ORDER BY id

-- name: add_combination
-- From now on what is put into a place has an item for this selection, if it fits.
INSERT INTO combinations (item, place, items) VALUES (?, ?, ?)

-- name: combine_offers
-- What is in it already gets that item.
INSERT OR IGNORE INTO offer_items (item, offer)
SELECT :combined, first.offer FROM offer_items AS first
WHERE first.item = :item
    AND NOT EXISTS (
        SELECT 1 FROM json_each(:others) AS other
        WHERE NOT EXISTS (
            SELECT 1 FROM offer_items AS held
            WHERE held.item = other.value AND held.offer = first.offer
        )
    )

-- name: remove_combination
-- The index of a selection that others have pushed out.
DELETE FROM combinations WHERE item = ?

-- name: remove_combined
-- The same: its items.
DELETE FROM offer_items WHERE item = ?

-- name: postpone_offer
-- It was handed out: it is offered again then.
UPDATE offers SET due_at = ? WHERE message_id = ?

-- name: remove_offer
-- It is offered no more.
DELETE FROM offers WHERE message_id = ? RETURNING id, channel, pmode

-- name: remove_offer_items
-- Nobody selects it any more.
DELETE FROM offer_items WHERE offer = ?

-- name: oldest_offer
-- Since when the oldest message of a channel is in it.
SELECT added_at FROM offers WHERE channel = ? ORDER BY id LIMIT 1

-- name: shift_offers
-- The clock was set back by so much.
UPDATE offers SET due_at = max(due_at - ?, 1) WHERE due_at > 0

-- name: count_of
-- How many there are of one thing.
SELECT count FROM counts WHERE name = ?

-- name: add_once
-- Something comes for the first time; nothing happens when it came before.
INSERT INTO once (name, until) VALUES (?, ?) ON CONFLICT (name) DO NOTHING

-- name: forget_once
-- What need not be known any more.
DELETE FROM once WHERE until < ?

-- name: fragment_group
-- What is known of a group of fragments.
SELECT sender, group_id, changed_at, ended_at IS NOT NULL, to_come, details FROM fragment_groups
WHERE sender = ? AND group_id = ?

-- name: gathering_groups
-- The groups that did not end yet.
SELECT sender, group_id, changed_at, 0, to_come, details
FROM fragment_groups INDEXED BY fragment_group_gathering
WHERE ended_at IS NULL AND sender > '' ORDER BY sender, id LIMIT ?

-- name: gathering_groups_of
-- Those of one sender.
SELECT sender, group_id, changed_at, 0, to_come, details
FROM fragment_groups INDEXED BY fragment_group_gathering
WHERE ended_at IS NULL AND sender = ? ORDER BY id LIMIT ?

-- name: set_fragment_group
-- What is known of a group from now on.
INSERT INTO fragment_groups (sender, group_id, changed_at, ended_at, to_come, details)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (sender, group_id) DO UPDATE SET
    changed_at = excluded.changed_at,
    ended_at = excluded.ended_at,
    to_come = excluded.to_come,
    details = excluded.details

-- name: add_fragment
-- A fragment of a group that there is; nothing happens when one of this number is there.
INSERT INTO fragments (fragment_group, number, message_id, place, start, size)
SELECT id, ?, ?, ?, ?, ? FROM fragment_groups WHERE sender = ? AND group_id = ?
ON CONFLICT DO NOTHING

-- name: fragment
-- The fragment of one number.
SELECT number, message_id, place, start, fragments.size
FROM fragment_groups JOIN fragments ON fragment_group = fragment_groups.id
WHERE sender = ? AND group_id = ? AND number = ?

-- name: fragments
-- The fragments of a group, in order.
SELECT number, message_id, place, start, fragments.size
FROM fragment_groups JOIN fragments ON fragment_group = fragment_groups.id
WHERE sender = ? AND group_id = ? ORDER BY number

-- name: remove_fragments
-- The group goes on without its fragments.
DELETE FROM fragments WHERE fragment_group = (
    SELECT id FROM fragment_groups WHERE sender = ? AND group_id = ?
)

-- name: forget_fragment_groups
-- Groups that ended long ago.
DELETE FROM fragment_groups WHERE id IN (
    SELECT id FROM fragment_groups WHERE ended_at < ? LIMIT ?
)

-- name: transfer
-- One upload that may go on, or that is done.
SELECT sender, path, name, partner, stored, total, touched_at, expires_at, owner, open_until, done,
    pieces, details
FROM transfers WHERE sender = ? AND path = ? AND name = ?

-- name: set_transfer
-- What is known of an upload from now on.
INSERT INTO transfers (
    sender, path, name, partner, stored, total, size, touched_at, expires_at, owner, open_until,
    done, pieces, details
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name, path, sender) DO UPDATE SET
    partner = excluded.partner,
    stored = excluded.stored,
    total = excluded.total,
    size = excluded.size,
    touched_at = excluded.touched_at,
    expires_at = excluded.expires_at,
    owner = excluded.owner,
    open_until = excluded.open_until,
    done = excluded.done,
    pieces = excluded.pieces,
    details = excluded.details

-- name: remove_transfer
-- An upload that nobody needs any more, with the pieces that go with it.
DELETE FROM transfers WHERE sender = ? AND path = ? AND name = ? RETURNING pieces

-- name: held_transfers
-- How many uploads are not done, and for how many bytes.
SELECT COUNT(*), SUM(size) FROM transfers WHERE NOT done

-- name: held_transfers_of
-- The same of one partner.
SELECT COUNT(*), SUM(size) FROM transfers WHERE NOT done AND partner = ?

-- name: release_transfers
-- Those who wrote to uploads are gone.
UPDATE transfers SET owner = NULL, open_until = NULL
WHERE substr(owner, 1, length(:prefix)) = :prefix

-- name: transfers_over
-- Uploads whose time is over go, each with its pieces.
DELETE FROM transfers WHERE id IN (
    SELECT id FROM transfers WHERE expires_at <= ? LIMIT ?
)
RETURNING pieces

-- name: transfers_done
-- Of those that are done the oldest go, so that not more are remembered than may be.
DELETE FROM transfers WHERE id IN (
    SELECT id FROM transfers WHERE done ORDER BY touched_at DESC LIMIT -1 OFFSET ?
)
RETURNING pieces

-- name: add_refused
-- The beginning of a refused message whose sender proved nothing.
INSERT INTO refused (message_id, at, size, beginning) VALUES (?, ?, ?, ?)

-- name: beginning
-- What was kept of one.
SELECT beginning FROM refused WHERE message_id = ?

-- name: oldest_refused
-- Those that came first.
SELECT message_id, at, size FROM refused WHERE id > 0 ORDER BY id LIMIT ?

-- name: remove_refused
-- It is removed, or a good copy took its place.
DELETE FROM refused WHERE message_id = ? RETURNING size
