-- The whole schema of a partition file, as it is now. Times are integer milliseconds since 1970.
-- `run_key` is the file's own short name of a run; nothing outside the file may rely on it.
-- `application_id` and `user_version` are set by the migrations' runner.

-- The file itself: which partition of how many, its fencing number, its identity.
-- `commit_seq` rises with each commit; a file whose number is behind Redis' mark is an older copy.
-- `lineage` is new whenever the file's history was replaced, so that readers' tokens start over.
-- `archived`: where the last batch ends in the archive; `control_cursor`: the last operator act seen.
CREATE TABLE file (
  id          INTEGER PRIMARY KEY CHECK (id = 1),
  partition   INTEGER NOT NULL CHECK (partition >= 0),
  partitions  INTEGER NOT NULL CHECK (partitions > partition),
  lineage     TEXT    NOT NULL,
  epoch       INTEGER NOT NULL CHECK (epoch >= 0),
  commit_seq  INTEGER NOT NULL CHECK (commit_seq >= 0),
  created_at  INTEGER NOT NULL,
  archived        TEXT NOT NULL,
  control_cursor  TEXT NOT NULL
) STRICT;

CREATE TABLE migrations (
  version     INTEGER PRIMARY KEY,
  name        TEXT    NOT NULL,
  applied_at  INTEGER NOT NULL
) STRICT;

-- One row per epoch: which events were written under it. Ranges of later epochs lie higher.
-- `unarchived`: how many of its messages no archive holds, so that no replay can have them.
CREATE TABLE commits (
  epoch            INTEGER PRIMARY KEY,
  first_event_seq  INTEGER,
  last_event_seq   INTEGER,
  commits          INTEGER NOT NULL DEFAULT 0,
  messages         INTEGER NOT NULL DEFAULT 0,
  unarchived       INTEGER NOT NULL DEFAULT 0,
  writer           TEXT    NOT NULL,
  rules_version    INTEGER NOT NULL,
  taken_at         INTEGER NOT NULL
) STRICT;

-- One row per stream, whether its run was ever created or not: how far it is settled, and how its
-- messages ended. It moves in the same transaction as what they changed.
CREATE TABLE cursors (
  run_key      INTEGER PRIMARY KEY,
  run_id       TEXT    NOT NULL UNIQUE,
  incarnation  INTEGER NOT NULL CHECK (incarnation >= 1),
  message_id   TEXT    NOT NULL,
  applied      INTEGER NOT NULL CHECK (applied >= 0),
  duplicates   INTEGER NOT NULL CHECK (duplicates >= 0),
  rejected     INTEGER NOT NULL CHECK (rejected >= 0)
) STRICT;

-- What each producer has sent to a run. `producer_no` counts them in the order of their first
-- message. `state_seq` and `lease_seq`: the newest applied of the groups in which late ones lose.
CREATE TABLE producers (
  run_key      INTEGER NOT NULL,
  producer_no  INTEGER NOT NULL CHECK (producer_no >= 1),
  producer     TEXT    NOT NULL,
  last_seq     INTEGER NOT NULL CHECK (last_seq >= 0),
  state_seq    INTEGER NOT NULL,
  lease_seq    INTEGER NOT NULL,
  PRIMARY KEY (run_key, producer_no)
) STRICT, WITHOUT ROWID;

-- Open gaps only: sequences that have not arrived though later ones have.
CREATE TABLE gaps (
  run_key      INTEGER NOT NULL,
  producer_no  INTEGER NOT NULL,
  first_seq    INTEGER NOT NULL,
  last_seq     INTEGER NOT NULL CHECK (last_seq >= first_seq),
  PRIMARY KEY (run_key, producer_no, first_seq)
) STRICT, WITHOUT ROWID;

-- A run that waits at a message which can not be settled for a reason of ours.
CREATE TABLE quarantines (
  run_key     INTEGER PRIMARY KEY,
  message_id  TEXT    NOT NULL,
  cause       TEXT    NOT NULL,
  detail      TEXT    NOT NULL,
  version     INTEGER,
  since       INTEGER NOT NULL
) STRICT;

-- Operator acts, whether they were carried out or refused: the audit trail. Those that were carried
-- out are part of what the run's messages are decided by, so a replay needs them. A loss that was
-- accepted at a start stands here too, without a run.
CREATE TABLE acts (
  act_seq      INTEGER PRIMARY KEY,
  control_id   TEXT    NOT NULL,
  act          TEXT    NOT NULL,
  run_id       TEXT    NOT NULL,
  incarnation  INTEGER NOT NULL,
  message_id   TEXT    NOT NULL,
  operator     TEXT    NOT NULL,
  outcome      TEXT    NOT NULL CHECK (outcome IN ('done', 'refused')),
  detail       TEXT    NOT NULL,
  recorded_at  INTEGER NOT NULL,
  UNIQUE (control_id, act, run_id, message_id)
) STRICT;
CREATE INDEX acts_run ON acts (run_id) WHERE outcome = 'done';

-- A definition under the SHA-256 of its canonical JSON (RFC 8785), once for all its runs.
CREATE TABLE definitions (
  definition_digest  BLOB PRIMARY KEY CHECK (length(definition_digest) = 32),
  definition         TEXT    NOT NULL,
  created_at         INTEGER NOT NULL
) STRICT;

-- `state_producer` and `state_seq`: the command that sent the state just as it is, on which a patch
-- may build; both 0 where none did.
CREATE TABLE runs (
  run_key            INTEGER PRIMARY KEY,
  run_id             TEXT    NOT NULL UNIQUE,
  dialect            TEXT    NOT NULL,
  workflow           TEXT,
  definition_digest  BLOB REFERENCES definitions (definition_digest),
  source_type        TEXT,
  source_ref         TEXT,
  source_revision    TEXT,
  parent_run         TEXT,
  parent_relation    TEXT,
  title              TEXT,
  tags               TEXT,
  test_case_status   TEXT,
  retention_seconds  INTEGER,
  effects            TEXT,
  input              TEXT,
  status             TEXT    NOT NULL,
  status_detail      TEXT,
  current_node       TEXT,
  current_attempt    TEXT,
  error              TEXT,
  reserved           INTEGER NOT NULL CHECK (reserved IN (0, 1)),
  create_digest      BLOB    NOT NULL,
  revision           INTEGER NOT NULL CHECK (revision >= 1),
  state_revision     INTEGER NOT NULL CHECK (state_revision BETWEEN 1 AND revision),
  state_producer     INTEGER NOT NULL,
  state_seq          INTEGER NOT NULL,
  state_digest       BLOB    NOT NULL CHECK (length(state_digest) = 32),
  created_at         INTEGER NOT NULL,
  updated_at         INTEGER NOT NULL,
  finished_at        INTEGER,
  terminal           INTEGER NOT NULL CHECK (terminal IN (0, 1))
) STRICT;
CREATE INDEX runs_created ON runs (created_at DESC, run_id DESC);
CREATE INDEX runs_status ON runs (status, created_at DESC, run_id DESC);
CREATE INDEX runs_workflow ON runs (workflow, created_at DESC, run_id DESC)
  WHERE workflow IS NOT NULL;
CREATE INDEX runs_workflow_status ON runs (workflow, status, created_at DESC, run_id DESC)
  WHERE workflow IS NOT NULL;
CREATE INDEX runs_dialect ON runs (dialect, created_at DESC, run_id DESC);
CREATE INDEX runs_definition ON runs (definition_digest) WHERE definition_digest IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent_run, created_at DESC, run_id DESC)
  WHERE parent_run IS NOT NULL;
CREATE INDEX runs_suite ON runs (json_extract(tags, '$.testSuiteRunId')) WHERE tags IS NOT NULL;
-- What retention asks: runs by the moment at which their own retention ends, or by when they
-- finished if they name none, and those that have not finished.
CREATE INDEX runs_due ON runs (finished_at + retention_seconds * 1000)
  WHERE terminal = 1 AND retention_seconds IS NOT NULL;
CREATE INDEX runs_finished ON runs (finished_at) WHERE terminal = 1 AND retention_seconds IS NULL;
CREATE INDEX runs_open ON runs (created_at) WHERE terminal = 0;

-- Definitions that a run has had beside the one it has now, once it had another: its earlier states
-- name them.
CREATE TABLE definition_uses (
  run_key            INTEGER NOT NULL,
  definition_digest  BLOB    NOT NULL REFERENCES definitions (definition_digest),
  revision           INTEGER NOT NULL,
  PRIMARY KEY (run_key, definition_digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX definition_uses_definition ON definition_uses (definition_digest);

-- Who may write a run; `released_at` set: nobody holds it, and this is the last one.
CREATE TABLE leases (
  run_key       INTEGER PRIMARY KEY,
  generation    INTEGER NOT NULL CHECK (generation >= 1),
  owner_type    TEXT    NOT NULL,
  owner_id      TEXT    NOT NULL,
  token_sha256  TEXT    NOT NULL CHECK (length(token_sha256) = 64),
  lease_ms      INTEGER NOT NULL,
  acquired_at   INTEGER NOT NULL,
  renewed_at    INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  released_at   INTEGER
) STRICT;

-- Each change of a run (`segment` 0) or of one of its segments: trace, ledger and change feed in one.
-- A message makes at most one event, and revisions have no hole: both are keys.
-- `refs`: a JSON array of [path in the payload, pointer of a state part]. The payload has null at the
-- path; what belongs there is the part of that pointer and this revision. `v_trace` puts it back.
-- `trace_parent`: the host's span (W3C traceparent), if its message named one.
CREATE TABLE events (
  event_seq         INTEGER PRIMARY KEY AUTOINCREMENT,
  run_key           INTEGER NOT NULL,
  segment           INTEGER NOT NULL,
  revision          INTEGER NOT NULL CHECK (revision >= 1),
  type              TEXT    NOT NULL,
  scope             TEXT    NOT NULL,
  node_id           TEXT,
  attempt_id        TEXT,
  payload           TEXT,
  refs              TEXT,
  message_id        TEXT    NOT NULL,
  producer_no       INTEGER NOT NULL,
  producer_seq      INTEGER NOT NULL,
  body_hash         BLOB    NOT NULL,
  lease_generation  INTEGER NOT NULL,
  state_digest      BLOB,
  trace_parent      TEXT,
  recorded_at       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_revision ON events (run_key, segment, revision);
CREATE UNIQUE INDEX events_sequence ON events (run_key, producer_no, producer_seq);

-- The state in parts: the newest row of each pointer (RFC 6901) up to a revision is the state then.
-- `value` NULL: the part went. JSON null is the text `null`.
CREATE TABLE state_parts (
  part_seq  INTEGER PRIMARY KEY,
  run_key   INTEGER NOT NULL,
  revision  INTEGER NOT NULL,
  pointer   TEXT    NOT NULL,
  shape     TEXT    NOT NULL CHECK (shape IN ('value', 'object', 'array')),
  value     TEXT
) STRICT;
CREATE UNIQUE INDEX state_parts_pointer ON state_parts (run_key, pointer, revision);

-- Progress updates; `revision` is the run's. The newest of each (type, key) is current.
CREATE TABLE updates (
  update_seq   INTEGER PRIMARY KEY,
  run_key      INTEGER NOT NULL,
  revision     INTEGER NOT NULL,
  node_id      TEXT,
  attempt_id   TEXT,
  type         TEXT    NOT NULL,
  key          TEXT    NOT NULL,
  data         TEXT    NOT NULL,
  recorded_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX updates_revision ON updates (run_key, revision);
CREATE INDEX updates_pair ON updates (run_key, type, key, revision);

CREATE TABLE attempts (
  run_key      INTEGER NOT NULL,
  attempt_id   TEXT    NOT NULL,
  node_id      TEXT    NOT NULL,
  number       INTEGER NOT NULL CHECK (number >= 1),
  node_type    TEXT    NOT NULL,
  status       TEXT    NOT NULL,
  outcome      TEXT,
  step         INTEGER,
  started_at   INTEGER,
  finished_at  INTEGER,
  revision     INTEGER NOT NULL,
  batch_id     TEXT,
  child_run    TEXT,
  PRIMARY KEY (run_key, attempt_id)
) STRICT, WITHOUT ROWID;

-- What an engine has to do next, as the state says now: `queued` entries, `collect`s that wait for
-- several inputs, the one that is `claimed`. The inputs themselves stand in the state.
CREATE TABLE work_items (
  run_key      INTEGER NOT NULL,
  kind         TEXT    NOT NULL CHECK (kind IN ('queued', 'collect', 'claimed')),
  position     INTEGER NOT NULL,
  node_id      TEXT    NOT NULL,
  attempt_id   TEXT,
  batch_id     TEXT,
  port         TEXT,
  items        INTEGER NOT NULL,
  queue        TEXT,
  enqueued_at  INTEGER,
  revision     INTEGER NOT NULL,
  PRIMARY KEY (run_key, kind, position)
) STRICT, WITHOUT ROWID;

-- Calls that a node makes while it runs (of a model, of a tool), in the state's order by `position`.
-- `number` counts those at one connection. Inputs and outputs stand in the state.
CREATE TABLE invocations (
  run_key            INTEGER NOT NULL,
  invocation_id      TEXT    NOT NULL,
  position           INTEGER NOT NULL,
  node_id            TEXT    NOT NULL,
  number             INTEGER NOT NULL CHECK (number >= 1),
  agent_node         TEXT,
  attempt_id         TEXT,
  status             TEXT    NOT NULL,
  status_label       TEXT,
  subject_name       TEXT,
  iteration_id       TEXT,
  item_index         INTEGER,
  parent_invocation  TEXT,
  queued_at          INTEGER,
  started_at         INTEGER,
  finished_at        INTEGER,
  revision           INTEGER NOT NULL,
  PRIMARY KEY (run_key, invocation_id)
) STRICT, WITHOUT ROWID;

-- Tasks of people that a run waits for, in the state's order. `timeout_at`: when it goes on without.
CREATE TABLE suspensions (
  run_key     INTEGER NOT NULL,
  position    INTEGER NOT NULL,
  task_id     TEXT    NOT NULL,
  node_id     TEXT    NOT NULL,
  attempt_id  TEXT,
  item_index  INTEGER,
  on_timeout  TEXT,
  timeout_at  INTEGER,
  revision    INTEGER NOT NULL,
  PRIMARY KEY (run_key, position)
) STRICT, WITHOUT ROWID;

-- The outbox: side effects decided with their cause; `revision` is the run's that caused it.
CREATE TABLE effects (
  run_key      INTEGER NOT NULL,
  effect_id    TEXT    NOT NULL,
  kind         TEXT    NOT NULL,
  occurrence   INTEGER NOT NULL CHECK (occurrence >= 1),
  revision     INTEGER NOT NULL,
  status       TEXT    NOT NULL,
  result       TEXT,
  error        TEXT,
  created_at   INTEGER NOT NULL,
  settled_at   INTEGER,
  PRIMARY KEY (run_key, effect_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX effects_pending ON effects (created_at, run_key, effect_id) WHERE status = 'pending';

-- A session's transcript under a capture key ('' for the run's own). It starts at revision 1 by
-- its row; `bound_*` is the authority that may append until the capture ends.
CREATE TABLE segments (
  run_key             INTEGER NOT NULL,
  segment             INTEGER NOT NULL CHECK (segment >= 1),
  capture_key         TEXT    NOT NULL,
  session             TEXT    NOT NULL,
  binding             TEXT,
  bound_owner_type    TEXT,
  bound_owner_id      TEXT,
  bound_token_sha256  TEXT,
  bound_generation    INTEGER,
  reclaimed           INTEGER NOT NULL CHECK (reclaimed IN (0, 1)),
  producer_no         INTEGER NOT NULL,
  status              TEXT    NOT NULL CHECK (status IN ('recording', 'complete', 'failed')),
  revision            INTEGER NOT NULL CHECK (revision >= 1),
  entry_count         INTEGER NOT NULL CHECK (entry_count >= 0),
  event_count         INTEGER NOT NULL CHECK (event_count >= 0),
  captured            TEXT,
  failure             TEXT,
  created_at          INTEGER NOT NULL,
  finished_at         INTEGER,
  PRIMARY KEY (run_key, segment),
  UNIQUE (run_key, capture_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE session_entries (
  entry_key    INTEGER PRIMARY KEY,
  run_key      INTEGER NOT NULL,
  segment      INTEGER NOT NULL,
  seq          INTEGER NOT NULL CHECK (seq >= 1),
  entry_id     TEXT,
  entry        TEXT    NOT NULL,
  recorded_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX session_entries_seq ON session_entries (run_key, segment, seq);
CREATE UNIQUE INDEX session_entries_id ON session_entries (run_key, segment, entry_id)
  WHERE entry_id IS NOT NULL;

CREATE TABLE session_events (
  event_key    INTEGER PRIMARY KEY,
  run_key      INTEGER NOT NULL,
  segment      INTEGER NOT NULL,
  seq          INTEGER NOT NULL CHECK (seq >= 1),
  event        TEXT    NOT NULL,
  recorded_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX session_events_seq ON session_events (run_key, segment, seq);

-- The dead letters: refused messages with their bytes (the token hashed). `fields` is a JSON object
-- of the stream fields; a value that is not UTF-8 is {"hex": "..."}; NULL above the size limit,
-- when `head` keeps the first bytes of each. An operator may drop what is kept; the rest stays.
CREATE TABLE rejections (
  rejection_seq  INTEGER PRIMARY KEY AUTOINCREMENT,
  run_key        INTEGER NOT NULL,
  incarnation    INTEGER NOT NULL,
  message_id     TEXT    NOT NULL,
  kind           TEXT,
  producer       TEXT,
  producer_seq   INTEGER,
  reason         TEXT    NOT NULL,
  detail         TEXT    NOT NULL,
  fields         TEXT,
  head           TEXT,
  fields_bytes   INTEGER NOT NULL,
  fields_sha256  BLOB    NOT NULL,
  body_hash      BLOB    NOT NULL,
  recorded_at    INTEGER NOT NULL,
  dropped_at     INTEGER
) STRICT;
CREATE INDEX rejections_message ON rejections (run_key, message_id);
CREATE INDEX rejections_sequence ON rejections (run_key, producer, producer_seq);
CREATE INDEX rejections_reason ON rejections (reason);
CREATE INDEX rejections_recorded ON rejections (recorded_at);

-- What stays of a deleted run, beside its cursor, sequences, gaps and one event.
CREATE TABLE tombstones (
  run_key     INTEGER PRIMARY KEY,
  run_id      TEXT    NOT NULL UNIQUE,
  revision    INTEGER NOT NULL,
  events      INTEGER NOT NULL,
  segments    INTEGER NOT NULL,
  reason      TEXT,
  message_id  TEXT    NOT NULL,
  deleted_at  INTEGER NOT NULL
) STRICT;

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
