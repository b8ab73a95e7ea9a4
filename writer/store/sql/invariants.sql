-- What must hold of a partition file, whatever happened to its writers. Each query finds what breaks
-- one rule: run id (NULL for the file itself) and the place, in words. The sentences stand in
-- `invariants.py`.

-- :name foreign_keys
SELECT NULL, "table" || ' row ' || rowid || ' refers to no row of ' || parent
FROM pragma_foreign_key_check

-- A deleted run keeps one event, under its last revision.
-- :name revisions
SELECT c.run_id, iif(e.segment = 0, '', 'segment ' || e.segment || ': ') || count(*)
  || ' events, revisions ' || min(e.revision) || ' to ' || max(e.revision)
FROM events e LEFT JOIN cursors c USING (run_key)
WHERE e.run_key NOT IN (SELECT run_key FROM tombstones)
GROUP BY e.run_key, e.segment
HAVING min(e.revision) <> iif(e.segment = 0, 1, 2)
  OR max(e.revision) - min(e.revision) + 1 <> count(*)

-- :name run_revision
SELECT r.run_id, 'revision ' || r.revision || ', last event ' || ifnull(max(e.revision), 'none')
FROM runs r LEFT JOIN events e ON e.run_key = r.run_key AND e.segment = 0
GROUP BY r.run_key HAVING max(e.revision) IS NOT r.revision

-- :name segment_revision
SELECT r.run_id, 'segment ' || s.segment || ': revision ' || s.revision || ', '
  || count(e.event_seq) || ' events'
FROM segments s LEFT JOIN runs r USING (run_key)
LEFT JOIN events e ON e.run_key = s.run_key AND e.segment = s.segment
GROUP BY s.run_key, s.segment HAVING s.revision <> 1 + count(e.event_seq)

-- :name event_of_nothing
SELECT c.run_id, 'segment ' || e.segment || ' revision ' || e.revision
FROM events e LEFT JOIN cursors c USING (run_key)
LEFT JOIN runs r ON r.run_key = e.run_key
LEFT JOIN tombstones t ON t.run_key = e.run_key
LEFT JOIN segments s ON s.run_key = e.run_key AND s.segment = e.segment
WHERE c.run_key IS NULL OR (r.run_key IS NULL AND t.run_key IS NULL)
  OR (r.run_key IS NOT NULL AND e.segment > 0 AND s.segment IS NULL)

-- :name lease_generations
SELECT c.run_id, 'revision ' || x.revision || ': generation ' || x.lease_generation || ' after '
  || x.before
FROM (
  SELECT run_key, segment, revision, lease_generation,
    lag(lease_generation) OVER (PARTITION BY run_key, segment ORDER BY revision) AS before
  FROM events
) x LEFT JOIN cursors c USING (run_key) WHERE x.lease_generation < x.before
UNION ALL
SELECT r.run_id, 'generation ' || ifnull(l.generation, 'none') || ', an event has '
  || max(e.lease_generation)
FROM runs r JOIN events e USING (run_key) LEFT JOIN leases l USING (run_key)
GROUP BY r.run_key HAVING max(e.lease_generation) > ifnull(l.generation, 0)

-- A renewal of a lease is applied without an event. Of a deleted run the tombstone counts.
-- :name applied
SELECT c.run_id, c.applied || ' applied, ' || made.events || ' events'
FROM cursors c JOIN (
  SELECT c.run_key, ifnull(t.events, 0) + (SELECT count(*) FROM events e WHERE e.run_key = c.run_key)
    AS events
  FROM cursors c LEFT JOIN tombstones t USING (run_key)
) made USING (run_key) WHERE made.events > c.applied

-- :name rejected
SELECT c.run_id, c.rejected || ' rejected, ' || count(j.rejection_seq) || ' rejections'
FROM cursors c LEFT JOIN rejections j USING (run_key) LEFT JOIN tombstones t USING (run_key)
GROUP BY c.run_key
HAVING iif(t.run_key IS NULL, count(j.rejection_seq) <> c.rejected,
  count(j.rejection_seq) > c.rejected)

-- :name rejection_of_nothing
SELECT NULL, 'rejection ' || j.rejection_seq FROM rejections j
LEFT JOIN cursors c USING (run_key) WHERE c.run_key IS NULL

-- Ids are compared as numbers. An earlier incarnation's may be higher.
-- :name cursor_behind
WITH settled (run_key, incarnation, message_id, what) AS (
  SELECT run_key, 1, message_id, 'event of revision ' || revision FROM events
  UNION ALL SELECT run_key, incarnation, message_id, 'rejection ' || rejection_seq FROM rejections
)
SELECT c.run_id, s.what || ' is of message ' || s.message_id || ', the cursor is at '
  || c.message_id || ' of incarnation ' || c.incarnation
FROM settled s JOIN cursors c USING (run_key)
WHERE s.incarnation > c.incarnation OR (s.incarnation = c.incarnation AND (
  CAST(substr(s.message_id, 1, instr(s.message_id, '-') - 1) AS INTEGER),
  CAST(substr(s.message_id, instr(s.message_id, '-') + 1) AS INTEGER)
) > (
  CAST(substr(c.message_id, 1, instr(c.message_id, '-') - 1) AS INTEGER),
  CAST(substr(c.message_id, instr(c.message_id, '-') + 1) AS INTEGER)
))

-- :name quarantine_place
SELECT c.run_id, 'waits at ' || q.message_id || ', the cursor is at ' || c.message_id
FROM quarantines q LEFT JOIN cursors c USING (run_key)
WHERE c.run_key IS NULL OR (
  CAST(substr(q.message_id, 1, instr(q.message_id, '-') - 1) AS INTEGER),
  CAST(substr(q.message_id, instr(q.message_id, '-') + 1) AS INTEGER)
) <= (
  CAST(substr(c.message_id, 1, instr(c.message_id, '-') - 1) AS INTEGER),
  CAST(substr(c.message_id, instr(c.message_id, '-') + 1) AS INTEGER)
)

-- :name sequences
SELECT c.run_id, 'producer ' || ifnull(p.producer, e.producer_no) || ' sequence ' || e.producer_seq
  || ', its last is ' || ifnull(p.last_seq, 'none')
FROM events e LEFT JOIN producers p USING (run_key, producer_no) LEFT JOIN cursors c USING (run_key)
WHERE p.last_seq IS NULL OR e.producer_seq > p.last_seq

-- :name gaps
SELECT c.run_id, 'producer ' || ifnull(p.producer, g.producer_no) || ' gap ' || g.first_seq || ' to '
  || g.last_seq
FROM (
  SELECT *, lag(last_seq) OVER (PARTITION BY run_key, producer_no ORDER BY first_seq) AS before
  FROM gaps
) g LEFT JOIN producers p USING (run_key, producer_no) LEFT JOIN cursors c USING (run_key)
WHERE p.last_seq IS NULL OR g.last_seq >= p.last_seq OR g.first_seq < 1 OR g.first_seq <= g.before

-- :name gap_filled
SELECT c.run_id, 'producer_no ' || g.producer_no || ' gap ' || g.first_seq || ' to ' || g.last_seq
  || ' holds the applied sequence ' || e.producer_seq
FROM gaps g JOIN events e ON e.run_key = g.run_key AND e.producer_no = g.producer_no
  AND e.producer_seq BETWEEN g.first_seq AND g.last_seq
LEFT JOIN cursors c ON c.run_key = g.run_key

-- :name epochs
SELECT NULL, 'epoch ' || epoch || ': events ' || ifnull(first_event_seq, 'none') || ' to '
  || ifnull(last_event_seq, 'none') || ', earlier epochs end at ' || ifnull(before, 0)
FROM (
  SELECT *, max(last_event_seq) OVER (
    ORDER BY epoch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before FROM commits
)
WHERE (first_event_seq IS NULL) <> (last_event_seq IS NULL) OR first_event_seq > last_event_seq
  OR first_event_seq <= before
UNION ALL
SELECT NULL, 'the file is at epoch ' || f.epoch || ', its last commits are of epoch '
  || ifnull((SELECT max(epoch) FROM commits), 'none')
FROM file f WHERE f.epoch <> ifnull((SELECT max(epoch) FROM commits), 0)

-- :name event_of_no_epoch
SELECT c.run_id, 'event ' || e.event_seq FROM events e LEFT JOIN cursors c USING (run_key)
WHERE NOT EXISTS (
  SELECT 1 FROM commits m WHERE e.event_seq BETWEEN m.first_event_seq AND m.last_event_seq
)

-- :name entries
SELECT r.run_id, 'segment ' || s.segment || ': ' || s.entry_count || ' counted, '
  || count(e.entry_key) || ' stored, the last is ' || ifnull(max(e.seq), 0)
FROM segments s LEFT JOIN runs r USING (run_key)
LEFT JOIN session_entries e ON e.run_key = s.run_key AND e.segment = s.segment
GROUP BY s.run_key, s.segment
HAVING s.entry_count <> count(e.entry_key) OR s.entry_count <> ifnull(max(e.seq), 0)

-- :name session_events
SELECT r.run_id, 'segment ' || s.segment || ': ' || s.event_count || ' counted, '
  || count(e.event_key) || ' stored, the last is ' || ifnull(max(e.seq), 0)
FROM segments s LEFT JOIN runs r USING (run_key)
LEFT JOIN session_events e ON e.run_key = s.run_key AND e.segment = s.segment
GROUP BY s.run_key, s.segment
HAVING s.event_count <> count(e.event_key) OR s.event_count <> ifnull(max(e.seq), 0)

-- :name row_of_nothing
SELECT NULL, x.what || ' of run_key ' || x.run_key FROM (
  SELECT 'entry' AS what, e.run_key, s.segment AS owner FROM session_entries e
    LEFT JOIN segments s USING (run_key, segment)
  UNION ALL SELECT 'session event', e.run_key, s.segment FROM session_events e
    LEFT JOIN segments s USING (run_key, segment)
  UNION ALL SELECT 'segment', s.run_key, r.run_key FROM segments s LEFT JOIN runs r USING (run_key)
  UNION ALL SELECT 'lease', l.run_key, r.run_key FROM leases l LEFT JOIN runs r USING (run_key)
  UNION ALL SELECT 'producer', p.run_key, c.run_key FROM producers p
    LEFT JOIN cursors c USING (run_key)
) x WHERE x.owner IS NULL GROUP BY x.what, x.run_key

-- :name later_than_run
SELECT c.run_id, x.what || ' of revision ' || x.revision || ', the run is at '
  || ifnull(r.revision, 'none')
FROM (
  SELECT 'attempt ' || attempt_id AS what, run_key, revision FROM attempts
  UNION ALL SELECT 'update ' || type || ' ' || key, run_key, revision FROM updates
  UNION ALL SELECT 'effect ' || effect_id, run_key, revision FROM effects
  UNION ALL SELECT 'work item ' || kind || ' ' || position, run_key, revision FROM work_items
  UNION ALL SELECT 'invocation ' || invocation_id, run_key, revision FROM invocations
  UNION ALL SELECT 'suspension ' || task_id, run_key, revision FROM suspensions
  UNION ALL SELECT 'definition ' || hex(definition_digest), run_key, revision FROM definition_uses
  UNION ALL SELECT 'state part ' || pointer, run_key, revision FROM state_parts
  UNION ALL SELECT 'work item ' || kind || ' ' || position, run_key, revision FROM work_items
  UNION ALL SELECT 'invocation ' || invocation_id, run_key, revision FROM invocations
  UNION ALL SELECT 'suspension ' || task_id, run_key, revision FROM suspensions
  UNION ALL SELECT 'use of a definition', run_key, revision FROM definition_uses
) x LEFT JOIN runs r USING (run_key) LEFT JOIN cursors c USING (run_key)
WHERE r.revision IS NULL OR x.revision > r.revision OR x.revision < 1

-- :name update_event
SELECT c.run_id, 'update ' || u.type || ' ' || u.key || ' of revision ' || u.revision
FROM updates u LEFT JOIN cursors c USING (run_key)
LEFT JOIN events e ON e.run_key = u.run_key AND e.segment = 0 AND e.revision = u.revision
WHERE e.event_seq IS NULL

-- :name tombstones
SELECT t.run_id, 'the run is still there' FROM tombstones t JOIN runs r USING (run_key)
UNION ALL
SELECT t.run_id, count(e.event_seq) || ' events are left, the last of revision '
  || ifnull(max(e.revision), 'none') || '; it was deleted by ' || t.revision
FROM tombstones t LEFT JOIN events e USING (run_key)
GROUP BY t.run_key HAVING count(e.event_seq) <> 1 OR max(e.revision) <> t.revision

-- Tokens travel in `auth` only, and are hashed before anything is kept.
-- :name tokens
SELECT c.run_id, 'rejection ' || j.rejection_seq FROM rejections j
LEFT JOIN cursors c USING (run_key)
WHERE j.fields LIKE '%"auth"%' AND json_type(j.fields, '$.auth') IS NOT NULL AND iif(
  json_valid(j.fields ->> '$.auth'),
  ifnull(json_type(j.fields ->> '$.auth'), '') <> 'object'
    OR json_type(j.fields ->> '$.auth', '$.token') IS NOT NULL,
  1)
UNION ALL
SELECT c.run_id, 'rejection ' || j.rejection_seq FROM rejections j
LEFT JOIN cursors c USING (run_key)
WHERE j.kind LIKE 'lease.%' AND json_valid(j.fields ->> '$.body')
  AND json_type(j.fields ->> '$.body', '$.token') IS NOT NULL

-- What the Python half of the checks looks at.
-- :name keys
SELECT run_key, run_id FROM runs ORDER BY run_key

-- :name parts
SELECT revision, pointer, shape, value FROM state_parts WHERE run_key = ?
ORDER BY revision, part_seq

-- :name proofs
SELECT revision, state_digest FROM events
WHERE run_key = ? AND segment = 0 AND state_digest IS NOT NULL ORDER BY revision

-- :name last_proof
SELECT state_revision, state_digest FROM runs WHERE run_key = ?

-- :name definitions
SELECT d.definition_digest, d.definition, min(r.run_id) FROM definitions d
LEFT JOIN runs r USING (definition_digest) GROUP BY d.definition_digest

-- :name identity
SELECT partition, partitions FROM file
