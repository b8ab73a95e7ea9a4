-- What a comparison with a rebuilt file begins with.

-- :name run_key
SELECT run_key FROM cursors WHERE run_id = ?

-- :name accounts
SELECT run_id, incarnation, message_id, applied, duplicates, rejected FROM cursors ORDER BY run_id

-- :name archiving
SELECT f.partition, f.partitions, f.archived,
  (SELECT ifnull(sum(unarchived), 0) FROM commits),
  (SELECT count(*) FROM acts WHERE act = 'accept_loss'),
  (SELECT ifnull(sum(messages), 0) FROM commits),
  (SELECT json_group_array(DISTINCT rules_version) FROM commits WHERE messages > 0)
FROM file f
