-- The public read contract, version 1: what a dashboard, a notebook or any SQLite client may rely
-- on. The tables beneath may change with a migration; these names, columns and meanings do not. A
-- column may be added at the end; another meaning gets another name.
-- Times are integer milliseconds since 1970 (UTC), JSON is text. A partition file holds its own
-- runs only, so a list of all runs is the union over the files.

-- One row per run that exists. `tags` is a JSON object. `terminal`: 1 once it has finished, whatever
-- its dialect calls that. The lease is NULL while nobody holds it; one
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
    AS session_events,
  r.terminal
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
  CASE
    WHEN u.data IS NOT NULL THEN json_set(e.payload, '$.data', json(u.data))
    WHEN e.refs IS NOT NULL THEN (
      WITH RECURSIVE filled (refs, payload) AS (
        SELECT 0, e.payload
        UNION ALL
        SELECT filled.refs + 1, json_set(filled.payload, r.value ->> 0, json(s.value))
        FROM filled
        CROSS JOIN json_each(e.refs) r ON r.key = filled.refs
        CROSS JOIN state_parts s ON s.run_key = e.run_key AND s.pointer = r.value ->> 1
          AND s.revision = e.revision
      )
      SELECT payload FROM filled ORDER BY refs DESC LIMIT 1
    )
    ELSE e.payload
  END AS payload,
  e.recorded_at,
  e.message_id,
  p.producer,
  e.producer_seq,
  e.lease_generation,
  e.trace_parent,
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
  a.revision,
  a.batch_id,
  a.child_run
FROM attempts a
JOIN runs r ON r.run_key = a.run_key;

-- What an engine has to do next, in the state's order by `kind` and `position`: `queued`, `collect`
-- (waits for several inputs), `claimed` (the one that is under way).
CREATE VIEW v_work_items AS
SELECT
  r.run_id,
  w.kind,
  w.position,
  w.node_id,
  w.attempt_id,
  w.batch_id,
  w.port,
  w.items,
  w.queue,
  w.enqueued_at,
  w.revision
FROM work_items w
JOIN runs r ON r.run_key = w.run_key;

-- Calls that nodes make while they run, in the state's order by `position`.
CREATE VIEW v_invocations AS
SELECT
  r.run_id,
  i.invocation_id,
  i.position,
  i.node_id,
  i.number,
  i.agent_node,
  i.attempt_id,
  i.status,
  i.status_label,
  i.subject_name,
  i.iteration_id,
  i.item_index,
  i.parent_invocation,
  i.queued_at,
  i.started_at,
  i.finished_at,
  i.revision
FROM invocations i
JOIN runs r ON r.run_key = i.run_key;

-- Tasks of people that runs wait for, in the state's order by `position`.
CREATE VIEW v_suspensions AS
SELECT
  r.run_id,
  s.position,
  s.task_id,
  s.node_id,
  s.attempt_id,
  s.item_index,
  s.on_timeout,
  s.timeout_at,
  s.revision
FROM suspensions s
JOIN runs r ON r.run_key = s.run_key;

-- Where each node of a run stands: its newest attempt, the newest that has finished, the newest that
-- is under way (one that was left behind or interrupted is neither); how many attempts there were
-- (`attempts`), how many finished (`finished`), how many calls were made (`invocations`). A node that
-- is only called has the status of its last call.
CREATE VIEW v_slots AS
SELECT
  r.run_id,
  a.node_id,
  substr(max(printf('%016d', a.number) || a.attempt_id), 17) AS latest_attempt,
  substr(max(iif(a.status IN ('pending', 'queued', 'running', 'waiting', 'interrupted'), NULL,
    printf('%016d', a.number) || a.attempt_id)), 17) AS latest_terminal,
  substr(max(iif(a.status IN ('pending', 'queued', 'running', 'waiting'),
    printf('%016d', a.number) || a.attempt_id, NULL)), 17) AS latest_running,
  substr(max(printf('%016d', a.number) || a.status), 17) AS status,
  count(*) AS attempts,
  sum(a.status NOT IN ('pending', 'queued', 'running', 'waiting', 'interrupted')) AS finished,
  (SELECT count(*) FROM invocations i WHERE i.run_key = r.run_key AND i.node_id = a.node_id)
    AS invocations
FROM runs r
CROSS JOIN attempts a ON a.run_key = r.run_key
GROUP BY r.run_id, a.node_id
UNION ALL
SELECT
  r.run_id,
  i.node_id,
  NULL,
  NULL,
  NULL,
  substr(max(printf('%016d', i.position) || i.status), 17),
  0,
  0,
  count(*)
FROM runs r
CROSS JOIN invocations i ON i.run_key = r.run_key
WHERE NOT EXISTS (
  SELECT 1 FROM attempts a WHERE a.run_key = i.run_key AND a.node_id = i.node_id
)
GROUP BY r.run_id, i.node_id;

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
