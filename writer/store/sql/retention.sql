-- What retention asks. Times are ms; a run is due once its end is longer ago than its retention.

-- :name due_by_own
SELECT run_id, workflow, status, created_at, finished_at, retention_seconds, revision FROM runs
WHERE terminal = 1 AND retention_seconds IS NOT NULL
  AND finished_at + retention_seconds * 1000 < :now
ORDER BY finished_at + retention_seconds * 1000 LIMIT :limit OFFSET :offset

-- :name due_by_default
SELECT run_id, workflow, status, created_at, finished_at, retention_seconds, revision FROM runs
WHERE terminal = 1 AND retention_seconds IS NULL AND finished_at < :before
ORDER BY finished_at LIMIT :limit OFFSET :offset

-- :name children
SELECT r.run_id, r.parent_run, r.terminal FROM json_each(:parents) p
JOIN runs r ON r.parent_run = p.value

-- What keeps a run: a lease that is held and has not expired, an effect that nobody has settled, a
-- message at which it waits.
-- :name kept_by
SELECT r.run_id,
  CASE
    WHEN EXISTS (SELECT 1 FROM leases l WHERE l.run_key = r.run_key AND l.released_at IS NULL
      AND l.expires_at > :now) THEN 'lease_held'
    WHEN EXISTS (SELECT 1 FROM effects e WHERE e.run_key = r.run_key AND e.status = 'pending')
      THEN 'effect_pending'
    WHEN EXISTS (SELECT 1 FROM quarantines q WHERE q.run_key = r.run_key) THEN 'quarantined'
  END AS cause
FROM json_each(:runs) j JOIN runs r ON r.run_id = j.value

-- Runs under way of which nothing was heard for long. Those that wait for somebody are silent by
-- right: `parked` has their dialects and statuses.
-- :name silent
SELECT run_id, workflow, status, created_at, revision, heard_at FROM (
  SELECT r.run_id, r.workflow, r.status, r.created_at, r.revision,
    CAST(substr(c.message_id, 1, instr(c.message_id, '-') - 1) AS INTEGER) AS heard_at
  FROM runs r CROSS JOIN cursors c ON c.run_key = r.run_key
  WHERE r.terminal = 0
    AND r.dialect || ' ' || r.status NOT IN (SELECT value FROM json_each(:parked))
    AND NOT EXISTS (SELECT 1 FROM quarantines q WHERE q.run_key = r.run_key)
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.run_key = r.run_key AND l.released_at IS NULL
      AND l.expires_at > :now)
)
WHERE heard_at < :before ORDER BY heard_at LIMIT :limit
