-- All that a commit writes. Inserts of rows that never change come first, then what does change.

-- :name epoch
SELECT epoch FROM file

-- :name insert_definition
INSERT INTO definitions (definition_digest, definition, created_at) VALUES (?, ?, ?)
ON CONFLICT DO NOTHING

-- :name insert_definition_use
INSERT INTO definition_uses (run_key, definition_digest, revision) VALUES (?, ?, ?)
ON CONFLICT DO NOTHING

-- :name insert_event
INSERT INTO events (run_key, segment, revision, type, scope, node_id, attempt_id, payload, refs,
  message_id, producer_no, producer_seq, body_hash, lease_generation, state_digest,
  trace_parent, recorded_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- :name insert_part
INSERT INTO state_parts (run_key, revision, pointer, shape, value) VALUES (?, ?, ?, ?, ?)

-- :name insert_update
INSERT INTO updates (run_key, revision, node_id, attempt_id, type, key, data, recorded_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- :name insert_entry
INSERT INTO session_entries (run_key, segment, seq, entry_id, entry, recorded_at)
VALUES (?, ?, ?, ?, ?, ?)

-- :name insert_session_event
INSERT INTO session_events (run_key, segment, seq, event, recorded_at) VALUES (?, ?, ?, ?, ?)

-- :name insert_rejection
INSERT INTO rejections (run_key, incarnation, message_id, kind, producer, producer_seq, reason,
  detail, fields, head, fields_bytes, fields_sha256, body_hash, recorded_at, dropped_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- :name drop_rejection
UPDATE rejections SET fields = NULL, head = NULL, dropped_at = ?
WHERE run_key = ? AND incarnation = ? AND message_id = ? AND dropped_at IS NULL

-- :name put_cursor
INSERT INTO cursors (run_key, run_id, incarnation, message_id, applied, duplicates, rejected)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key) DO UPDATE SET incarnation = excluded.incarnation,
  message_id = excluded.message_id, applied = excluded.applied,
  duplicates = excluded.duplicates, rejected = excluded.rejected

-- :name put_producer
INSERT INTO producers (run_key, producer_no, producer, last_seq, state_seq, lease_seq)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key, producer_no) DO UPDATE SET last_seq = excluded.last_seq,
  state_seq = excluded.state_seq, lease_seq = excluded.lease_seq

-- :name delete_gaps
DELETE FROM gaps WHERE run_key = ? AND producer_no = ?

-- :name insert_gap
INSERT INTO gaps (run_key, producer_no, first_seq, last_seq) VALUES (?, ?, ?, ?)

-- :name put_run
INSERT INTO runs (run_key, run_id, dialect, created_at, updated_at, status, create_digest,
  reserved, workflow, definition_digest, source_type, source_ref, source_revision, parent_run,
  parent_relation, title, tags, test_case_status, retention_seconds, effects, input,
  status_detail, current_node, current_attempt, error, finished_at, terminal, revision,
  state_revision, state_producer, state_seq, state_digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key) DO UPDATE SET updated_at = excluded.updated_at, status = excluded.status,
  workflow = excluded.workflow,
  terminal = excluded.terminal, definition_digest = excluded.definition_digest,
  create_digest = excluded.create_digest, reserved = excluded.reserved, title = excluded.title,
  tags = excluded.tags, test_case_status = excluded.test_case_status,
  status_detail = excluded.status_detail, current_node = excluded.current_node,
  current_attempt = excluded.current_attempt, error = excluded.error,
  finished_at = excluded.finished_at, revision = excluded.revision,
  state_revision = excluded.state_revision, state_producer = excluded.state_producer,
  state_seq = excluded.state_seq, state_digest = excluded.state_digest

-- :name put_lease
INSERT INTO leases (run_key, generation, owner_type, owner_id, token_sha256, lease_ms,
  acquired_at, renewed_at, expires_at, released_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key) DO UPDATE SET generation = excluded.generation,
  owner_type = excluded.owner_type, owner_id = excluded.owner_id,
  token_sha256 = excluded.token_sha256, lease_ms = excluded.lease_ms,
  acquired_at = excluded.acquired_at, renewed_at = excluded.renewed_at,
  expires_at = excluded.expires_at, released_at = excluded.released_at

-- :name put_segment
INSERT INTO segments (run_key, segment, capture_key, session, binding, bound_owner_type,
  bound_owner_id, bound_token_sha256, bound_generation, producer_no, created_at, reclaimed,
  status, revision, entry_count, event_count, captured, failure, finished_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key, segment) DO UPDATE SET reclaimed = excluded.reclaimed,
  status = excluded.status, revision = excluded.revision, entry_count = excluded.entry_count,
  event_count = excluded.event_count, captured = excluded.captured,
  failure = excluded.failure, finished_at = excluded.finished_at

-- :name put_attempt
INSERT INTO attempts (run_key, attempt_id, node_id, number, node_type, status, outcome, step,
  started_at, finished_at, revision, batch_id, child_run)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key, attempt_id) DO UPDATE SET node_id = excluded.node_id,
  number = excluded.number, node_type = excluded.node_type, status = excluded.status,
  outcome = excluded.outcome, step = excluded.step, started_at = excluded.started_at,
  finished_at = excluded.finished_at, revision = excluded.revision,
  batch_id = excluded.batch_id, child_run = excluded.child_run

-- :name put_work_item
INSERT OR REPLACE INTO work_items (run_key, kind, position, node_id, attempt_id, batch_id, port,
  items, queue, enqueued_at, revision)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- :name put_invocation
INSERT OR REPLACE INTO invocations (run_key, invocation_id, position, node_id, number, agent_node,
  attempt_id, status, status_label, subject_name, iteration_id, item_index, parent_invocation,
  queued_at, started_at, finished_at, revision)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- :name put_suspension
INSERT OR REPLACE INTO suspensions (run_key, position, task_id, node_id, attempt_id, item_index,
  on_timeout, timeout_at, revision)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- :name delete_attempt
DELETE FROM attempts WHERE run_key = ? AND attempt_id = ?

-- :name delete_work_item
DELETE FROM work_items WHERE run_key = ? AND kind = ? AND position = ?

-- :name delete_invocation
DELETE FROM invocations WHERE run_key = ? AND invocation_id = ?

-- :name delete_suspension
DELETE FROM suspensions WHERE run_key = ? AND position = ?

-- :name put_effect
INSERT INTO effects (run_key, effect_id, kind, occurrence, revision, created_at, status, result,
  error, settled_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key, effect_id) DO UPDATE SET status = excluded.status,
  result = excluded.result, error = excluded.error, settled_at = excluded.settled_at

-- :name put_quarantine
INSERT INTO quarantines (run_key, message_id, cause, detail, version, since)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (run_key) DO UPDATE SET message_id = excluded.message_id, cause = excluded.cause,
  detail = excluded.detail, version = excluded.version, since = excluded.since

-- :name delete_quarantine
DELETE FROM quarantines WHERE run_key = (SELECT run_key FROM cursors WHERE run_id = ?)

-- :name insert_act
INSERT INTO acts (control_id, act, run_id, incarnation, message_id, operator, outcome, detail,
  recorded_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- :name set_control_cursor
UPDATE file SET control_cursor = ?

-- :name put_tombstone
INSERT INTO tombstones (run_key, run_id, revision, events, segments, reason, message_id, deleted_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- :name collect_definition
DELETE FROM definitions WHERE definition_digest = ?
AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.definition_digest = definitions.definition_digest)
AND NOT EXISTS (
  SELECT 1 FROM definition_uses u WHERE u.definition_digest = definitions.definition_digest
)

-- :name definitions_of
SELECT definition_digest FROM runs WHERE run_key = ?1 AND definition_digest IS NOT NULL
UNION SELECT definition_digest FROM definition_uses WHERE run_key = ?1

-- :name last_event_seq
SELECT seq FROM sqlite_sequence WHERE name = 'events'

-- :name raise_commit_seq
UPDATE file SET commit_seq = commit_seq + 1, archived = coalesce(?, archived)
RETURNING commit_seq

-- :name record_commit
UPDATE commits SET commits = commits + 1, messages = messages + ?1, unarchived = unarchived + ?5,
  first_event_seq = CASE WHEN ?2 > 0 THEN coalesce(first_event_seq, ?3 - ?2 + 1)
    ELSE first_event_seq END,
  last_event_seq = CASE WHEN ?2 > 0 THEN ?3 ELSE last_event_seq END
WHERE epoch = ?4

-- :name identify
INSERT INTO file (id, partition, partitions, lineage, epoch, commit_seq, created_at,
  archived, control_cursor)
VALUES (1, ?, ?, ?, 0, 0, ?, '0:0:0', '0-0') ON CONFLICT DO NOTHING

-- :name identity
SELECT partition, partitions, lineage, epoch, commit_seq, archived, control_cursor FROM file

-- :name raise_epoch
UPDATE file SET epoch = max(epoch, ?) + 1 RETURNING epoch

-- :name insert_epoch
INSERT INTO commits (epoch, writer, rules_version, taken_at) VALUES (?, ?, ?, ?)

-- A copy that is put back stays as far behind Redis' mark as it is: that is how it is noticed.
-- :name rename_lineage
UPDATE file SET lineage = ?

-- :name set_lineage
UPDATE file SET lineage = ?, commit_seq = max(commit_seq + 1, ?) RETURNING commit_seq

-- :name settled_messages
SELECT coalesce(sum(messages), 0) + (SELECT count(*) FROM acts WHERE outcome = 'done') FROM commits

-- :name free_pages
PRAGMA freelist_count

-- :name give_back
PRAGMA incremental_vacuum(1024)
