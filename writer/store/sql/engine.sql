-- What a workflow engine and its dashboards ask of one run, or of the runs of a workflow or suite.

-- A part of the state as of a revision: its own rows, those beneath it, and those above it, of which
-- one may hold it whole.
-- :name parts_at
SELECT p.pointer, p.shape, p.value FROM (
  SELECT pointer, max(revision) AS revision FROM state_parts
  WHERE run_key = :run_key AND revision <= :revision
    AND pointer IN (SELECT value FROM json_each(:above)) GROUP BY pointer
  UNION ALL
  SELECT pointer, max(revision) AS revision FROM state_parts
  WHERE run_key = :run_key AND revision <= :revision
    AND pointer > :first AND pointer < :last GROUP BY pointer
) newest
CROSS JOIN state_parts p
  ON p.run_key = :run_key AND p.pointer = newest.pointer AND p.revision = newest.revision
WHERE p.value IS NOT NULL

-- Parts of any revision that may hold attachments, or the storage key of one.
-- :name parts_with_keys
SELECT pointer, revision, value FROM state_parts
WHERE run_key = :run_key AND shape = 'value' AND value IS NOT NULL
  AND (value LIKE '%"storageKey"%' OR pointer LIKE '%/storageKey')
ORDER BY pointer, revision

-- :name attempts
SELECT attempt_id, node_id, number, status, batch_id, child_run, revision FROM attempts
WHERE run_key = :run_key ORDER BY node_id, number LIMIT :limit

-- :name slots
SELECT node_id, latest_attempt, latest_terminal, latest_running, status, attempts, finished,
  invocations
FROM v_slots WHERE run_id = :run_id ORDER BY node_id

-- :name summaries
SELECT run_key, run_id, dialect, revision, status, terminal, created_at, updated_at, workflow,
  test_case_status, finished_at
FROM runs WHERE dialect = 'codemation' ORDER BY created_at DESC, run_id DESC LIMIT :limit

-- :name summaries_of_workflow
SELECT run_key, run_id, dialect, revision, status, terminal, created_at, updated_at, workflow,
  test_case_status, finished_at
FROM runs WHERE workflow = :workflow AND dialect = 'codemation'
ORDER BY created_at DESC, run_id DESC LIMIT :limit

-- :name suite
SELECT run_id, status, test_case_status, terminal, created_at, finished_at,
  CAST(json_extract(tags, '$.testCaseIndex') AS INTEGER) AS test_case_index,
  json_extract(tags, '$.testCaseLabel') AS test_case_label
FROM runs WHERE tags IS NOT NULL AND json_extract(tags, '$.testSuiteRunId') = :suite
ORDER BY test_case_index, created_at, run_id LIMIT :limit
