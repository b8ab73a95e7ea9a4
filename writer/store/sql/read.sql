-- All that a StateReader asks. Parameters are named; `run_key` is looked up once per call.

-- :name run_key
SELECT run_key FROM cursors WHERE run_id = :run_id

-- :name head
SELECT run_key, run_id, dialect, revision, status, terminal, created_at, updated_at, finished_at
FROM runs WHERE run_id = :run_id

-- `/* where */` stands for the conditions of this call: see reader/runs.py.
-- :name list_runs
SELECT * FROM v_runs WHERE 1 /* where */ ORDER BY created_at DESC, run_id DESC LIMIT :limit

-- :name run
SELECT * FROM v_runs WHERE run_id = :run_id

-- :name lease
SELECT owner_type, owner_id, generation, lease_ms, acquired_at, renewed_at, expires_at, released_at
FROM leases WHERE run_key = :run_key

-- :name cursor
SELECT incarnation, message_id, applied, duplicates, rejected FROM cursors
WHERE run_key = :run_key

-- :name producers
SELECT producer_no, producer, last_seq FROM producers WHERE run_key = :run_key
ORDER BY producer_no LIMIT :limit

-- :name gaps
SELECT producer_no, first_seq, last_seq FROM gaps WHERE run_key = :run_key
ORDER BY producer_no, first_seq LIMIT :limit

-- :name segments
SELECT nullif(capture_key, '') AS capture_key, session, status, revision, entry_count, event_count,
  bound_owner_type, bound_owner_id, bound_generation, failure, created_at, finished_at
FROM segments WHERE run_key = :run_key ORDER BY segment LIMIT :limit

-- :name effects
SELECT effect_id, kind, occurrence, revision, status, result, error, created_at, settled_at
FROM effects WHERE run_key = :run_key ORDER BY revision, effect_id LIMIT :limit

-- :name invocations
SELECT invocation_id, position, node_id, number, agent_node, attempt_id, status, status_label,
  subject_name, iteration_id, item_index, parent_invocation, queued_at, started_at, finished_at,
  revision
FROM invocations WHERE run_key = :run_key ORDER BY position LIMIT :limit

-- :name work_items
SELECT kind, position, node_id, attempt_id, batch_id, port, items, queue, enqueued_at, revision
FROM work_items WHERE run_key = :run_key ORDER BY kind <> 'claimed', position LIMIT :limit

-- :name suspensions
SELECT position, task_id, node_id, attempt_id, item_index, on_timeout, timeout_at, revision
FROM suspensions WHERE run_key = :run_key ORDER BY position LIMIT :limit

-- :name quarantine
SELECT message_id, cause, detail, version, since FROM quarantines WHERE run_key = :run_key

-- :name tombstone
SELECT revision, events, segments, reason, message_id, deleted_at FROM tombstones
WHERE run_key = :run_key

-- :name event_of_sequence
SELECT e.message_id, e.segment, e.revision, nullif(s.capture_key, '') AS capture_key
FROM producers p
JOIN events e ON e.run_key = p.run_key AND e.producer_no = p.producer_no AND e.producer_seq = :seq
LEFT JOIN segments s ON s.run_key = e.run_key AND s.segment = e.segment
WHERE p.run_key = :run_key AND p.producer = :producer

-- :name rejection_of_message
SELECT message_id, reason, detail FROM rejections
WHERE run_key = :run_key AND message_id = :message_id ORDER BY rejection_seq DESC LIMIT 1

-- :name rejection_of_sequence
SELECT message_id, reason, detail FROM rejections
WHERE run_key = :run_key AND producer = :producer AND producer_seq = :seq
ORDER BY rejection_seq LIMIT 1

-- :name state_parts
SELECT p.pointer, p.shape, p.value FROM (
  SELECT pointer, max(revision) AS revision FROM state_parts
  WHERE run_key = :run_key AND revision <= :revision GROUP BY pointer
) newest
CROSS JOIN state_parts p
  ON p.run_key = :run_key AND p.pointer = newest.pointer AND p.revision = newest.revision
WHERE p.value IS NOT NULL

-- :name revised_at
SELECT recorded_at FROM events WHERE run_key = :run_key AND segment = 0 AND revision = :revision

-- :name updates
SELECT u.revision, u.type, u.key, u.data, u.node_id, u.attempt_id, u.recorded_at FROM (
  SELECT max(revision) AS revision FROM updates
  WHERE run_key = :run_key AND revision <= :revision GROUP BY type, key
) newest
CROSS JOIN updates u ON u.run_key = :run_key AND u.revision = newest.revision
ORDER BY u.revision

-- :name definition_at
SELECT definition FROM definitions WHERE definition_digest = :digest

-- :name definition
SELECT d.definition FROM runs r JOIN definitions d USING (definition_digest)
WHERE r.run_key = :run_key

-- :name trace
SELECT v.*, EXISTS (
  SELECT 1 FROM updates u WHERE u.run_key = :run_key AND u.revision = v.revision
) AS is_update
FROM v_trace v WHERE v.run_id = :run_id AND v.revision > :after ORDER BY v.revision LIMIT :limit

-- :name attempts
SELECT attempt_id, node_id, number, node_type, status, outcome, step, started_at, finished_at,
  revision, batch_id, child_run
FROM attempts WHERE run_key = :run_key ORDER BY coalesce(started_at, 0), attempt_id LIMIT :limit

-- :name bound_segments
SELECT run_key, segment, capture_key, session, binding, status, entry_count, event_count, failure
FROM segments WHERE run_key = :run_key ORDER BY created_at, capture_key

-- :name bound_segment
SELECT run_key, segment, capture_key, session, binding, status, entry_count, event_count, failure
FROM segments WHERE run_key = :run_key AND capture_key = :capture_key

-- :name capture_keys
SELECT capture_key FROM segments WHERE run_key = :run_key AND capture_key <> ''
ORDER BY capture_key

-- :name any_segment
SELECT 1 FROM segments WHERE run_key = :run_key LIMIT 1

-- :name entries
SELECT seq, entry_id, entry, recorded_at FROM session_entries
WHERE run_key = :run_key AND segment = :segment AND seq > :after AND seq <= :last
ORDER BY seq LIMIT :limit

-- :name session_events
SELECT seq, event, recorded_at FROM session_events
WHERE run_key = :run_key AND segment = :segment AND seq > :after AND seq <= :last
ORDER BY seq LIMIT :limit

-- `/* where */` stands for the conditions of this call: see reader/rejections.py.
-- :name list_rejections
SELECT * FROM v_rejections WHERE 1 /* where */ ORDER BY rejection_seq DESC LIMIT :limit

-- :name rejection
SELECT j.rejection_seq, c.run_id, j.incarnation, j.message_id, j.kind, j.producer, j.producer_seq,
  j.reason, j.detail, j.fields, j.head, j.fields_bytes, lower(hex(j.fields_sha256)) AS fields_sha256,
  j.recorded_at
FROM rejections j JOIN cursors c ON c.run_key = j.run_key
WHERE j.rejection_seq = :rejection_seq

-- :name last_event_seq
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)

-- :name changes
SELECT e.event_seq, c.run_id, e.segment, nullif(s.capture_key, '') AS capture_key, e.revision,
  e.type, e.scope, e.node_id, e.attempt_id, e.recorded_at, e.message_id, p.producer, e.producer_seq
FROM events e
CROSS JOIN cursors c ON c.run_key = e.run_key
LEFT JOIN producers p ON p.run_key = e.run_key AND p.producer_no = e.producer_no
LEFT JOIN segments s ON s.run_key = e.run_key AND s.segment = e.segment
WHERE e.event_seq > :after ORDER BY e.event_seq LIMIT :limit

-- :name status_runs
SELECT status, count(*) AS runs FROM runs GROUP BY status

-- :name status_streams
SELECT count(*), coalesce(sum(applied), 0), coalesce(sum(duplicates), 0),
  coalesce(sum(rejected), 0)
FROM cursors

-- :name status_gaps
SELECT count(*), coalesce(sum(last_seq - first_seq + 1), 0) FROM gaps

-- :name status_quarantined
SELECT count(*) FROM quarantines

-- :name status_last_event
SELECT recorded_at FROM events ORDER BY event_seq DESC LIMIT 1

-- :name settled
SELECT incarnation, message_id FROM cursors WHERE run_id = :run_id

-- :name export_head
SELECT r.run_id, r.dialect, r.workflow, nullif(lower(hex(r.definition_digest)), '') AS definition_digest,
  r.source_type, r.source_ref, r.source_revision, r.parent_run, r.parent_relation, r.title, r.tags,
  r.test_case_status, r.retention_seconds, r.effects, r.status, r.status_detail, r.current_node,
  r.current_attempt, r.error, r.reserved, r.revision, r.created_at, r.updated_at, r.finished_at,
  r.input, d.definition
FROM runs r LEFT JOIN definitions d USING (definition_digest) WHERE r.run_key = :run_key

-- What a producer has sent: its last sequence, and [first, last] of each gap below it.
-- :name export_producers
SELECT p.producer, p.last_seq, (
    SELECT json_group_array(json_array(g.first_seq, g.last_seq)) FROM gaps g
    WHERE g.run_key = p.run_key AND g.producer_no = p.producer_no
  ) AS gaps
FROM producers p WHERE p.run_key = :run_key ORDER BY p.producer_no LIMIT :limit

-- Those that the run had beside its present one.
-- :name export_definitions
SELECT lower(hex(d.definition_digest)) AS definition_digest, d.definition
FROM definition_uses u JOIN definitions d USING (definition_digest)
WHERE u.run_key = :run_key AND d.definition_digest IS NOT (
  SELECT r.definition_digest FROM runs r WHERE r.run_key = :run_key
)
ORDER BY u.revision, d.definition_digest LIMIT :limit

-- :name export_events
SELECT e.revision, e.type, e.scope, e.node_id, e.attempt_id,
  CASE WHEN e.refs IS NULL THEN e.payload
    ELSE (SELECT v.payload FROM v_trace v WHERE v.run_id = :run_id AND v.revision = e.revision)
  END AS payload,
  e.recorded_at, e.message_id, p.producer, e.producer_seq, e.lease_generation, e.trace_parent,
  e.event_seq
FROM events e
LEFT JOIN producers p ON p.run_key = e.run_key AND p.producer_no = e.producer_no
WHERE e.run_key = :run_key AND e.segment = :segment AND e.revision > :after
  AND e.revision <= :last
ORDER BY e.revision LIMIT :limit

-- :name export_updates
SELECT revision, node_id, attempt_id, type, key, data, recorded_at FROM updates
WHERE run_key = :run_key AND revision > :after AND revision <= :last ORDER BY revision LIMIT :limit

-- :name export_segments
SELECT segment, nullif(capture_key, '') AS capture_key, session, binding, bound_owner_type, bound_owner_id, bound_generation,
  status, revision, entry_count, event_count, failure, created_at, finished_at
FROM segments WHERE run_key = :run_key ORDER BY segment

-- In the order of the index, so that each page begins where the last one ended.
-- :name export_rejections
SELECT rejection_seq, message_id, kind, producer, producer_seq, reason, detail, fields, head,
  fields_bytes, recorded_at
FROM rejections
WHERE run_key = :run_key AND (message_id, rejection_seq) > (:after_message, :after)
  AND rejection_seq <= :last
ORDER BY message_id, rejection_seq LIMIT :limit

-- :name last_rejection_seq
SELECT coalesce(max(rejection_seq), 0) FROM rejections
