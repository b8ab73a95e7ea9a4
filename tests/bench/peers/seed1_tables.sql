-- The tables of a store of seed 1's shape that a save touches, with its keys and indexes.
CREATE TABLE WorkflowSnapshot (
  id             TEXT PRIMARY KEY,
  workflow_id    TEXT NOT NULL,
  snapshot_hash  TEXT NOT NULL,
  snapshot_json  TEXT NOT NULL,
  created_at     TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX WorkflowSnapshot_hash ON WorkflowSnapshot (workflow_id, snapshot_hash);
CREATE INDEX WorkflowSnapshot_lookup ON WorkflowSnapshot (workflow_id, snapshot_hash);
CREATE TABLE Run (
  run_id                  TEXT PRIMARY KEY,
  workflow_id             TEXT    NOT NULL,
  started_at              TEXT    NOT NULL,
  finished_at             TEXT,
  updated_at              TEXT    NOT NULL,
  status                  TEXT    NOT NULL,
  revision                INTEGER NOT NULL,
  parent_json             TEXT,
  execution_options_json  TEXT,
  control_json            TEXT,
  workflow_snapshot_json  TEXT,
  workflow_snapshot_id    TEXT,
  mutable_state_json      TEXT,
  policy_snapshot_json    TEXT,
  engine_counters_json    TEXT,
  outputs_by_node_json    TEXT    NOT NULL,
  hitl_state_json         TEXT,
  test_suite_run_id       TEXT,
  test_case_index         INTEGER,
  test_case_label         TEXT,
  test_case_status        TEXT
) STRICT;
CREATE INDEX Run_started ON Run (workflow_id, started_at);
CREATE INDEX Run_finished ON Run (workflow_id, status, finished_at);
CREATE INDEX Run_suite ON Run (test_suite_run_id, test_case_index);
CREATE INDEX Run_snapshot ON Run (workflow_snapshot_id);
CREATE TABLE RunWorkItem (
  work_item_id          TEXT PRIMARY KEY,
  run_id                TEXT    NOT NULL REFERENCES Run ON DELETE CASCADE,
  workflow_id           TEXT    NOT NULL,
  status                TEXT    NOT NULL,
  target_node_id        TEXT    NOT NULL,
  batch_id              TEXT    NOT NULL,
  queue_name            TEXT,
  claim_token           TEXT,
  claimed_at            TEXT,
  available_at          TEXT    NOT NULL,
  enqueued_at           TEXT    NOT NULL,
  items_in              INTEGER NOT NULL,
  inputs_by_port_json   TEXT    NOT NULL
) STRICT;
CREATE INDEX RunWorkItem_available ON RunWorkItem (run_id, status, available_at);
CREATE INDEX RunWorkItem_target ON RunWorkItem (run_id, target_node_id, batch_id);
CREATE TABLE ExecutionInstance (
  instance_id            TEXT PRIMARY KEY,
  run_id                 TEXT    NOT NULL REFERENCES Run ON DELETE CASCADE,
  workflow_id            TEXT    NOT NULL,
  slot_node_id           TEXT    NOT NULL,
  workflow_node_id       TEXT    NOT NULL,
  kind                   TEXT    NOT NULL,
  connection_kind        TEXT,
  activation_id          TEXT,
  batch_id               TEXT    NOT NULL,
  run_index              INTEGER NOT NULL,
  parent_instance_id     TEXT,
  parent_run_id          TEXT,
  status                 TEXT    NOT NULL,
  queued_at              TEXT,
  started_at             TEXT,
  finished_at            TEXT,
  updated_at             TEXT    NOT NULL,
  item_count             INTEGER NOT NULL,
  output_item_count      INTEGER,
  successful_item_count  INTEGER,
  failed_item_count      INTEGER,
  input_storage_kind     TEXT,
  output_storage_kind    TEXT,
  input_json             TEXT,
  output_json            TEXT,
  error_json             TEXT,
  used_pinned_output     INTEGER,
  child_run_id           TEXT,
  iteration_id           TEXT,
  item_index             INTEGER,
  parent_invocation_id   TEXT
) STRICT;
CREATE INDEX ExecutionInstance_slot ON ExecutionInstance (run_id, slot_node_id, updated_at);
CREATE INDEX ExecutionInstance_parent
  ON ExecutionInstance (run_id, parent_instance_id, updated_at);
CREATE INDEX ExecutionInstance_kind ON ExecutionInstance (run_id, kind, updated_at);
CREATE INDEX ExecutionInstance_iteration ON ExecutionInstance (iteration_id);
CREATE UNIQUE INDEX ExecutionInstance_index ON ExecutionInstance (run_id, slot_node_id, run_index);
CREATE TABLE RunSlotProjection (
  run_id            TEXT PRIMARY KEY REFERENCES Run ON DELETE CASCADE,
  workflow_id       TEXT    NOT NULL,
  revision          INTEGER NOT NULL,
  updated_at        TEXT    NOT NULL,
  slot_states_json  TEXT    NOT NULL
) STRICT;
CREATE INDEX RunSlotProjection_updated ON RunSlotProjection (workflow_id, updated_at);
