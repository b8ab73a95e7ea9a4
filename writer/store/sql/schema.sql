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
