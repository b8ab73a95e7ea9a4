-- What operators see and did: quarantines, acts, and what became of refused commands.

-- :name quarantined
SELECT c.run_id, c.incarnation, q.message_id, q.cause, q.detail, q.version, q.since
FROM quarantines q CROSS JOIN cursors c ON c.run_key = q.run_key
WHERE :run_id IS NULL OR c.run_id = :run_id
ORDER BY q.since, c.run_id

-- :name act
SELECT outcome, detail FROM acts
WHERE control_id = :control_id AND act = :act AND run_id = :run_id AND message_id = :message_id

-- :name acts_on_message
SELECT act, operator, outcome, detail, control_id, recorded_at FROM acts
WHERE run_id = :run_id AND incarnation = :incarnation AND message_id = :message_id
ORDER BY act_seq

-- :name cursor
SELECT incarnation, message_id FROM cursors WHERE run_id = :run_id

-- :name run_key
SELECT run_key FROM cursors WHERE run_id = :run_id

-- :name has_sent
SELECT 1 FROM producers WHERE run_key = :run_key AND producer = :producer AND last_seq >= 1

-- :name applied_as
SELECT e.message_id, e.segment, e.revision FROM events e
JOIN producers p ON p.run_key = e.run_key AND p.producer_no = e.producer_no
WHERE p.run_key = :run_key AND p.producer = :producer AND e.producer_seq = 1

-- The first: what came again under its sequence changed nothing.
-- :name refused_as
SELECT rejection_seq, message_id, reason, detail FROM rejections
WHERE run_key = :run_key AND producer = :producer AND producer_seq = 1
ORDER BY rejection_seq LIMIT 1

-- :name rejection_of
SELECT rejection_seq FROM rejections
WHERE run_key = :run_key AND message_id = :message_id ORDER BY rejection_seq DESC LIMIT 1

-- :name dropped
SELECT dropped_at FROM rejections WHERE rejection_seq = :rejection_seq
