-- The public read contract, version 1: what a dashboard, a notebook or any SQLite client may rely
-- on. The tables beneath may change with a migration; these names, columns and meanings do not. A
-- column may be added at the end; another meaning gets another name.
-- Times are integer milliseconds since 1970 (UTC), JSON is text. A partition file holds its own
-- runs only, so a list of all runs is the union over the files.

-- One row per run that exists. `tags` is a JSON object. The lease is NULL while nobody holds it; one
-- past `lease_expires_at` still counts until another owner claims the run.
CREATE VIEW v_runs AS
SELECT
  r.run_id,
  r.dialect,
  r.workflow,
  r.title,
  r.tags,
  r.test_case_status,
  r.status,
  r.status_detail,
  r.current_node,
  r.current_attempt,
  r.error,
  r.revision,
  r.parent_run,
  r.parent_relation,
  r.source_type,
  r.source_ref,
  r.source_revision,
  r.retention_seconds,
  r.created_at,
  r.updated_at,
  r.finished_at,
  CASE WHEN l.released_at IS NULL THEN l.owner_type END AS lease_owner_type,
  CASE WHEN l.released_at IS NULL THEN l.owner_id END AS lease_owner_id,
  CASE WHEN l.released_at IS NULL THEN l.expires_at END AS lease_expires_at,
  (SELECT count(*) FROM attempts a WHERE a.run_key = r.run_key) AS attempts,
  (SELECT coalesce(sum(s.entry_count), 0) FROM segments s WHERE s.run_key = r.run_key) AS entries,
  (SELECT coalesce(sum(s.event_count), 0) FROM segments s WHERE s.run_key = r.run_key)
    AS session_events
FROM runs r
LEFT JOIN leases l ON l.run_key = r.run_key;

-- A run's events, by `revision` 1, 2, 3, ...: what happened, and which message of which producer
-- made it happen. `payload` is a JSON object or NULL; an update's holds its data too. `event_seq`
-- is the order in this file, over all its runs. Of a deleted run its deletion is left.
CREATE VIEW v_trace AS
SELECT
  c.run_id,
  e.revision,
  e.type,
  e.scope,
  e.node_id,
  e.attempt_id,
  CASE WHEN u.data IS NULL THEN e.payload ELSE json_set(e.payload, '$.data', json(u.data)) END
    AS payload,
  e.recorded_at,
  e.message_id,
  p.producer,
  e.producer_seq,
  e.lease_generation,
  e.event_seq
FROM events e
JOIN cursors c ON c.run_key = e.run_key
LEFT JOIN producers p ON p.run_key = e.run_key AND p.producer_no = e.producer_no
LEFT JOIN updates u ON u.run_key = e.run_key AND u.revision = e.revision
WHERE e.segment = 0;

-- One row per attempt at a node of a workflow. `revision` is the run's that last changed it; `step`
-- is its place in the state's steps.
CREATE VIEW v_attempts AS
SELECT
  r.run_id,
  a.attempt_id,
  a.node_id,
  a.number,
  a.node_type,
  a.status,
  a.outcome,
  a.step,
  a.started_at,
  a.finished_at,
  a.revision
FROM attempts a
JOIN runs r ON r.run_key = a.run_key;

-- Settled transcript entries, whole as they came, by `seq` within (run_id, capture_key).
-- `capture_key` is NULL for the run's own transcript. (CROSS JOIN fixes the order of the loops, so
-- that a condition on `seq` is looked up.)
CREATE VIEW v_transcript AS
SELECT
  r.run_id,
  nullif(s.capture_key, '') AS capture_key,
  s.session,
  t.seq,
  t.entry_id,
  t.entry,
  t.recorded_at
FROM runs r
CROSS JOIN segments s ON s.run_key = r.run_key
CROSS JOIN session_entries t ON t.run_key = s.run_key AND t.segment = s.segment;

-- The temporal events of sessions, by `seq` within (run_id, capture_key). `event` is the whole
-- record as it came, the columns before it are taken from there. `at` is the host's own time.
CREATE VIEW v_session_events AS
SELECT
  r.run_id,
  nullif(s.capture_key, '') AS capture_key,
  s.session,
  t.seq,
  json_extract(t.event, '$.type') AS type,
  json_extract(t.event, '$.at') AS at,
  json_extract(t.event, '$.nodeId') AS node_id,
  json_extract(t.event, '$.attemptId') AS attempt_id,
  json_extract(t.event, '$.turnId') AS turn_id,
  json_extract(t.event, '$.messageId') AS message_id,
  json_extract(t.event, '$.toolCallId') AS tool_call_id,
  json_extract(t.event, '$.payload') AS payload,
  t.event,
  t.recorded_at
FROM runs r
CROSS JOIN segments s ON s.run_key = r.run_key
CROSS JOIN session_events t ON t.run_key = s.run_key AND t.segment = s.segment;

-- Refused messages without their bytes. `reason` is one of the contract's codes; `rejection_seq`
-- is the order in this file.
CREATE VIEW v_rejections AS
SELECT
  j.rejection_seq,
  c.run_id,
  j.message_id,
  j.kind,
  j.producer,
  j.producer_seq,
  j.reason,
  j.detail,
  j.fields_bytes,
  j.recorded_at
FROM rejections j
JOIN cursors c ON c.run_key = j.run_key;

-- How far each stream is settled and how its messages ended; also of runs that were never created
-- or are deleted. `arrived_at` is the arrival of the last settled message: its distance from that
-- of the stream's last one is the lag. `missing` counts the sequences in open gaps.
CREATE VIEW v_lag AS
SELECT
  c.run_id,
  c.incarnation,
  c.message_id,
  min(CAST(substr(c.message_id, 1, instr(c.message_id, '-') - 1) AS INTEGER), 9007199254740991)
    AS arrived_at,
  c.applied,
  c.duplicates,
  c.rejected,
  c.applied + c.duplicates + c.rejected AS settled,
  (SELECT count(*) FROM gaps g WHERE g.run_key = c.run_key) AS open_gaps,
  (SELECT coalesce(sum(g.last_seq - g.first_seq + 1), 0) FROM gaps g WHERE g.run_key = c.run_key)
    AS missing,
  q.message_id AS quarantined
FROM cursors c
LEFT JOIN quarantines q ON q.run_key = c.run_key;
