-- What an aggregate is made of, one query a table. Columns stand in the order of the dataclasses.

-- :name cursor
SELECT run_key, incarnation, message_id, applied, duplicates, rejected
FROM cursors WHERE run_id = ?

-- A run that exists has no tombstone.
-- :name place
SELECT c.message_id, CASE
  WHEN r.run_key IS NULL THEN EXISTS (SELECT 1 FROM tombstones t WHERE t.run_key = c.run_key)
  ELSE r.terminal
END
FROM cursors c LEFT JOIN runs r ON r.run_key = c.run_key WHERE c.run_id = ?

-- :name open_gaps
SELECT p.producer, g.first_seq, g.last_seq
FROM cursors c
JOIN gaps g ON g.run_key = c.run_key
JOIN producers p ON p.run_key = g.run_key AND p.producer_no = g.producer_no
WHERE c.run_id = ? ORDER BY g.producer_no, g.first_seq

-- :name next_run_key
SELECT coalesce(max(run_key), 0) + 1 FROM cursors

-- :name producers
SELECT producer_no, producer, last_seq, state_seq, lease_seq
FROM producers WHERE run_key = ? ORDER BY producer_no

-- :name gaps
SELECT producer_no, first_seq, last_seq
FROM gaps WHERE run_key = ? ORDER BY producer_no, first_seq

-- :name head
SELECT dialect, created_at, updated_at, status, create_digest, reserved, workflow,
  definition_digest, source_type, source_ref, source_revision, parent_run, parent_relation, title,
  tags, test_case_status, retention_seconds, effects, input, status_detail, current_node,
  current_attempt, error, finished_at, terminal, revision, state_revision,
  state_producer, state_seq, state_digest
FROM runs WHERE run_key = ?

-- :name tombstone
SELECT revision, events, segments, reason, message_id, deleted_at
FROM tombstones WHERE run_key = ?

-- :name lease
SELECT generation, owner_type, owner_id, token_sha256, lease_ms, acquired_at, renewed_at,
  expires_at, released_at
FROM leases WHERE run_key = ?

-- :name segments
SELECT segment, capture_key, session, binding, bound_owner_type, bound_owner_id,
  bound_token_sha256, bound_generation, producer_no, created_at, reclaimed, status, revision,
  entry_count, event_count, captured, failure, finished_at
FROM segments WHERE run_key = ? ORDER BY segment

-- :name attempts
SELECT attempt_id, node_id, number, node_type, status, outcome, step, started_at, finished_at,
  revision, batch_id, child_run
FROM attempts WHERE run_key = ?

-- :name work_items
SELECT kind, position, node_id, attempt_id, batch_id, port, items, queue, enqueued_at, revision
FROM work_items WHERE run_key = ?

-- :name invocations
SELECT invocation_id, position, node_id, number, agent_node, attempt_id, status, status_label,
  subject_name, iteration_id, item_index, parent_invocation, queued_at, started_at, finished_at,
  revision
FROM invocations WHERE run_key = ?

-- :name suspensions
SELECT position, task_id, node_id, attempt_id, item_index, on_timeout, timeout_at, revision
FROM suspensions WHERE run_key = ?

-- :name definition_uses
SELECT definition_digest FROM definition_uses WHERE run_key = ?

-- :name current_updates
SELECT DISTINCT type, key FROM updates WHERE run_key = ?

-- :name effects
SELECT effect_id, kind, occurrence, revision, created_at, status, result, error, settled_at
FROM effects WHERE run_key = ?

-- :name state
SELECT p.pointer, p.shape, p.value FROM (
  SELECT pointer, max(revision) AS revision FROM state_parts
  WHERE run_key = ?1 AND revision <= ?2 GROUP BY pointer
) newest
CROSS JOIN state_parts p
  ON p.run_key = ?1 AND p.pointer = newest.pointer AND p.revision = newest.revision
WHERE p.value IS NOT NULL

-- :name event_hash
SELECT body_hash FROM events WHERE run_key = ? AND producer_no = ? AND producer_seq = ?

-- A jump was refused without using its sequence up.
-- :name rejection_hash
SELECT body_hash FROM rejections WHERE run_key = ? AND producer = ? AND producer_seq = ?
AND reason <> 'sequence_jump' ORDER BY rejection_seq LIMIT 1

-- :name refused
SELECT body_hash FROM rejections WHERE run_key = ? AND message_id = ? AND body_hash IS NOT NULL
ORDER BY rejection_seq DESC LIMIT 1

-- :name entry
SELECT entry FROM session_entries WHERE run_key = ? AND segment = ? AND entry_id = ?

-- :name session_event
SELECT event FROM session_events WHERE run_key = ? AND segment = ? AND seq = ?

-- :name newest_update
SELECT max(e.producer_seq) FROM updates u
JOIN events e ON e.run_key = u.run_key AND e.segment = 0 AND e.revision = u.revision
WHERE u.run_key = ? AND e.producer_no = ? AND u.attempt_id IS ? AND u.type = ? AND u.key = ?

-- :name quarantine
SELECT message_id, cause, detail, version, since FROM quarantines WHERE run_key = ?

-- :name quarantines
SELECT c.run_id, c.incarnation, q.message_id, q.cause, q.version
FROM quarantines q CROSS JOIN cursors c USING (run_key)

-- :name cursors
SELECT run_id, incarnation, message_id FROM cursors

-- :name acts
SELECT act, incarnation, message_id, control_id FROM acts
WHERE run_id = ? AND outcome = 'done' AND act IN ('skip', 'break', 'drop')

-- :name act_recorded
SELECT 1 FROM acts WHERE control_id = ? AND act = ? AND run_id = ? AND message_id = ?

-- :name skips
SELECT a.control_id, a.act, a.run_id, a.incarnation, a.message_id, a.operator, c.message_id
FROM acts a JOIN cursors c USING (run_id)
WHERE a.act = 'skip' AND a.outcome = 'done' AND a.incarnation = c.incarnation
ORDER BY a.act_seq

-- :name rejection_kept
SELECT dropped_at IS NULL FROM rejections
WHERE run_key = ? AND incarnation = ? AND message_id = ? ORDER BY rejection_seq LIMIT 1

-- :name original_event
SELECT e.revision, e.segment FROM cursors c
JOIN producers p ON p.run_key = c.run_key AND p.producer = ?2
JOIN events e ON e.run_key = c.run_key AND e.producer_no = p.producer_no AND e.producer_seq = ?3
WHERE c.run_id = ?1

-- :name original_rejection
SELECT j.reason FROM cursors c JOIN rejections j ON j.run_key = c.run_key
WHERE c.run_id = ?1 AND j.producer = ?2 AND j.producer_seq = ?3 ORDER BY j.rejection_seq LIMIT 1
