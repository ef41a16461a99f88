-- A group of fragments is known by its P-Mode too: the name of that stands before its GroupId. What
-- joins a group names it in its data.
UPDATE work SET data = CAST(json_set(CAST(data AS TEXT), '$.group_id', (
    SELECT json_extract(CAST(details AS TEXT), '$.pmode') || '/'
        || json_extract(CAST(details AS TEXT), '$.leg') || char(10) || group_id
    FROM fragment_groups
    WHERE sender = json_extract(CAST(work.data AS TEXT), '$.sender')
    AND group_id = json_extract(CAST(work.data AS TEXT), '$.group_id')
)) AS BLOB)
WHERE kind = 'join' AND EXISTS (
    SELECT 1 FROM fragment_groups
    WHERE sender = json_extract(CAST(work.data AS TEXT), '$.sender')
    AND group_id = json_extract(CAST(work.data AS TEXT), '$.group_id')
);
UPDATE fragment_groups SET
    group_id = json_extract(CAST(details AS TEXT), '$.pmode') || '/'
        || json_extract(CAST(details AS TEXT), '$.leg') || char(10) || group_id,
    details = CAST(json_set(
        CAST(details AS TEXT), '$.group.space',
        json_extract(CAST(details AS TEXT), '$.pmode') || '/'
        || json_extract(CAST(details AS TEXT), '$.leg')
    ) AS BLOB)
WHERE json_extract(CAST(details AS TEXT), '$.pmode') IS NOT NULL;
