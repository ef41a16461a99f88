-- The groups of fragments that did not end yet, by sender: few, however many are remembered.
CREATE INDEX fragment_group_gathering ON fragment_groups (sender) WHERE ended_at IS NULL;
