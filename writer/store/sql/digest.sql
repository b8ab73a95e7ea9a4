-- What a run's digest covers: of each table the columns that the run's stream determines, in an
-- order that the stream determines too. The first three queries lead there.

-- :name streams
SELECT run_key, run_id FROM cursors ORDER BY run_id

-- :name run_id
SELECT run_id FROM cursors WHERE run_key = ?

-- :name digested
SELECT revision, state_digest FROM events
WHERE run_key = ? AND segment = 0 AND state_digest IS NOT NULL ORDER BY revision

-- :name runs
SELECT run_id, dialect, workflow, hex(definition_digest), source_type, source_ref, source_revision,
  parent_run, parent_relation, title, tags, test_case_status, retention_seconds, effects, input,
  status, status_detail, current_node, current_attempt, error, reserved, hex(create_digest),
  revision, state_revision, state_producer, state_seq, hex(state_digest), created_at, updated_at,
  finished_at, terminal
FROM runs WHERE run_key = ?

-- :name tombstones
SELECT revision, events, segments, reason, message_id, deleted_at
FROM tombstones WHERE run_key = ?

-- :name leases
SELECT generation, owner_type, owner_id, token_sha256, lease_ms, acquired_at, renewed_at,
  expires_at, released_at
FROM leases WHERE run_key = ?

-- :name state_parts
SELECT pointer, revision, shape, value FROM state_parts WHERE run_key = ?
ORDER BY pointer, revision

-- :name events
SELECT segment, revision, type, scope, node_id, attempt_id, payload, refs, message_id, producer_no,
  producer_seq, hex(body_hash), lease_generation, hex(state_digest), trace_parent,
  recorded_at
FROM events WHERE run_key = ? ORDER BY segment, revision

-- :name updates
SELECT revision, node_id, attempt_id, type, key, data, recorded_at FROM updates
WHERE run_key = ? ORDER BY revision

-- :name attempts
SELECT attempt_id, node_id, number, node_type, status, outcome, step, started_at, finished_at,
  revision, batch_id, child_run
FROM attempts WHERE run_key = ? ORDER BY attempt_id

-- :name work_items
SELECT kind, position, node_id, attempt_id, batch_id, port, items, queue, enqueued_at, revision
FROM work_items WHERE run_key = ? ORDER BY kind, position

-- :name invocations
SELECT invocation_id, position, node_id, number, agent_node, attempt_id, status, status_label,
  subject_name, iteration_id, item_index, parent_invocation, queued_at, started_at, finished_at,
  revision
FROM invocations WHERE run_key = ? ORDER BY invocation_id

-- :name suspensions
SELECT position, task_id, node_id, attempt_id, item_index, on_timeout, timeout_at, revision
FROM suspensions WHERE run_key = ? ORDER BY position

-- :name definition_uses
SELECT hex(definition_digest), revision FROM definition_uses WHERE run_key = ?
ORDER BY definition_digest

-- :name effects
SELECT effect_id, kind, occurrence, revision, status, result, error, created_at, settled_at
FROM effects WHERE run_key = ? ORDER BY effect_id

-- :name segments
SELECT segment, capture_key, session, binding, bound_owner_type, bound_owner_id,
  bound_token_sha256, bound_generation, reclaimed, producer_no, status, revision, entry_count,
  event_count, captured, failure, created_at, finished_at
FROM segments WHERE run_key = ? ORDER BY segment

-- :name session_entries
SELECT segment, seq, entry_id, entry, recorded_at FROM session_entries
WHERE run_key = ? ORDER BY segment, seq

-- :name session_events
SELECT segment, seq, event, recorded_at FROM session_events
WHERE run_key = ? ORDER BY segment, seq

-- The fields of a rejection are covered by their hash.
-- :name rejections
SELECT message_id, kind, producer, producer_seq, reason, detail, fields_bytes, hex(fields_sha256),
  hex(body_hash), recorded_at
FROM rejections WHERE run_key = ? ORDER BY message_id, body_hash, fields_sha256

-- :name producers
SELECT producer_no, producer, last_seq, state_seq, lease_seq FROM producers
WHERE run_key = ? ORDER BY producer_no

-- :name gaps
SELECT producer_no, first_seq, last_seq FROM gaps
WHERE run_key = ? ORDER BY producer_no, first_seq
