-- The tables of a store of seed 0's shape that a typical run touches, with its keys and indexes.
CREATE TABLE blobs (
  blob_hash    BLOB PRIMARY KEY CHECK (length(blob_hash) = 32),
  media_type   TEXT    NOT NULL,
  byte_length  INTEGER NOT NULL CHECK (byte_length = length(content)),
  content      BLOB    NOT NULL,
  created_at   INTEGER NOT NULL
) STRICT;
CREATE TABLE resources (
  resource_id    TEXT PRIMARY KEY,
  resource_type  TEXT    NOT NULL,
  aggregate_key  TEXT    NOT NULL,
  revision       INTEGER NOT NULL DEFAULT 0 CHECK (revision >= 0),
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  UNIQUE (resource_type, aggregate_key)
) STRICT;
CREATE TABLE leases (
  resource_id   TEXT PRIMARY KEY REFERENCES resources ON DELETE CASCADE,
  generation    INTEGER NOT NULL DEFAULT 0,
  owner_type    TEXT,
  owner_id      TEXT,
  token_hash    BLOB,
  acquired_at   INTEGER,
  heartbeat_at  INTEGER,
  expires_at    INTEGER
) STRICT;
CREATE INDEX leases_expiry ON leases (expires_at) WHERE owner_id IS NOT NULL;
CREATE INDEX leases_owner ON leases (owner_type, owner_id) WHERE owner_id IS NOT NULL;
CREATE TABLE events (
  event_seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id           TEXT    NOT NULL UNIQUE,
  resource_id        TEXT    NOT NULL REFERENCES resources,
  resource_revision  INTEGER NOT NULL CHECK (resource_revision > 0),
  event_type         TEXT    NOT NULL,
  actor_type         TEXT    NOT NULL,
  actor_id           TEXT,
  lease_generation   INTEGER,
  payload_hash       BLOB REFERENCES blobs,
  recorded_at        INTEGER NOT NULL,
  UNIQUE (resource_id, resource_revision)
) STRICT;
CREATE INDEX events_resource ON events (resource_id, event_seq);
CREATE TABLE workflow_definitions (
  definition_digest  BLOB PRIMARY KEY,
  workflow_name      TEXT    NOT NULL,
  definition_hash    BLOB    NOT NULL REFERENCES blobs,
  created_at         INTEGER NOT NULL
) STRICT;
CREATE TABLE runs (
  run_id                TEXT PRIMARY KEY,
  resource_id           TEXT    NOT NULL UNIQUE REFERENCES resources ON DELETE CASCADE,
  project_id            TEXT,
  parent_run_id         TEXT REFERENCES runs,
  definition_digest     BLOB    NOT NULL REFERENCES workflow_definitions,
  workflow_ref          TEXT    NOT NULL,
  workflow_source_hash  BLOB    NOT NULL REFERENCES blobs,
  launch_options_hash   BLOB    NOT NULL REFERENCES blobs,
  source_type           TEXT    NOT NULL,
  source_ref            TEXT    NOT NULL,
  source_revision       TEXT    NOT NULL,
  title                 TEXT,
  status                TEXT    NOT NULL,
  paused                INTEGER NOT NULL CHECK (paused IN (0, 1)),
  status_detail         TEXT,
  input_hash            BLOB    NOT NULL REFERENCES blobs,
  output_hash           BLOB REFERENCES blobs,
  error_hash            BLOB REFERENCES blobs,
  created_at            INTEGER NOT NULL,
  updated_at            INTEGER NOT NULL,
  finished_at           INTEGER,
  CHECK ((finished_at IS NOT NULL) = (status NOT IN ('queued', 'running')))
) STRICT;
CREATE INDEX runs_project ON runs (project_id, created_at);
CREATE INDEX runs_status ON runs (status, updated_at);
CREATE INDEX runs_parent ON runs (parent_run_id);
CREATE TABLE run_bindings (
  run_id             TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
  origin_session_id  TEXT    NOT NULL,
  execution_mode     TEXT    NOT NULL,
  created_at         INTEGER NOT NULL
) STRICT;
CREATE INDEX run_bindings_session ON run_bindings (origin_session_id, created_at);
CREATE TABLE run_queue (
  run_id  TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
  status  TEXT NOT NULL
) STRICT;
CREATE TABLE node_attempts (
  attempt_id         TEXT PRIMARY KEY,
  run_id             TEXT    NOT NULL REFERENCES runs ON DELETE CASCADE,
  node_id            TEXT    NOT NULL,
  attempt_number     INTEGER NOT NULL CHECK (attempt_number > 0),
  node_type          TEXT    NOT NULL,
  status             TEXT    NOT NULL,
  presentation_hash  BLOB REFERENCES blobs,
  output_hash        BLOB REFERENCES blobs,
  result_hash        BLOB REFERENCES blobs,
  error_hash         BLOB REFERENCES blobs,
  started_at         INTEGER,
  finished_at        INTEGER,
  created_at         INTEGER NOT NULL,
  updated_at         INTEGER NOT NULL,
  UNIQUE (run_id, node_id, attempt_number)
) STRICT;
CREATE UNIQUE INDEX node_attempts_active ON node_attempts (run_id)
  WHERE status IN ('pending', 'running', 'waiting');
CREATE INDEX node_attempts_run ON node_attempts (run_id, created_at);
CREATE TABLE workflow_updates (
  update_id    TEXT PRIMARY KEY,
  attempt_id   TEXT    NOT NULL REFERENCES node_attempts ON DELETE CASCADE,
  update_seq   INTEGER NOT NULL CHECK (update_seq > 0),
  update_type  TEXT    NOT NULL,
  update_key   TEXT    NOT NULL,
  data_hash    BLOB    NOT NULL REFERENCES blobs,
  recorded_at  INTEGER NOT NULL,
  UNIQUE (attempt_id, update_seq)
) STRICT;
CREATE INDEX workflow_updates_pair
  ON workflow_updates (attempt_id, update_type, update_key, update_seq DESC);
CREATE TABLE session_segments (
  segment_id    TEXT PRIMARY KEY,
  run_id        TEXT    NOT NULL REFERENCES runs ON DELETE CASCADE,
  capture_key   TEXT,
  session_id    TEXT    NOT NULL,
  resource_id   TEXT    NOT NULL UNIQUE REFERENCES resources,
  binding_hash  BLOB REFERENCES blobs,
  status        TEXT    NOT NULL CHECK (status IN ('recording', 'complete', 'failed')),
  entry_count   INTEGER NOT NULL CHECK (entry_count >= 0),
  event_count   INTEGER NOT NULL CHECK (event_count >= 0),
  failure_hash  BLOB REFERENCES blobs,
  created_at    INTEGER NOT NULL,
  finished_at   INTEGER
) STRICT;
CREATE INDEX session_segments_run ON session_segments (run_id, created_at);
CREATE TABLE session_entries (
  segment_id   TEXT    NOT NULL REFERENCES session_segments ON DELETE CASCADE,
  entry_seq    INTEGER NOT NULL CHECK (entry_seq > 0),
  entry_id     TEXT    NOT NULL,
  entry_hash   BLOB    NOT NULL REFERENCES blobs,
  recorded_at  INTEGER NOT NULL,
  PRIMARY KEY (segment_id, entry_seq),
  UNIQUE (segment_id, entry_id)
) STRICT;
CREATE TABLE session_events (
  segment_id    TEXT    NOT NULL REFERENCES session_segments ON DELETE CASCADE,
  event_seq     INTEGER NOT NULL CHECK (event_seq > 0),
  event_type    TEXT    NOT NULL,
  node_id       TEXT,
  attempt_id    TEXT,
  turn_id       TEXT,
  message_id    TEXT,
  tool_call_id  TEXT,
  payload_hash  BLOB    NOT NULL REFERENCES blobs,
  recorded_at   INTEGER NOT NULL,
  PRIMARY KEY (segment_id, event_seq)
) STRICT;
