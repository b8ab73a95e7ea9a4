-- Runs that need someone to look at them, for `statewriter status`.

-- :name quarantined
SELECT c.run_id, q.message_id, q.cause, q.detail, q.version, q.since
FROM quarantines q CROSS JOIN cursors c ON c.run_key = q.run_key
ORDER BY q.since, c.run_id LIMIT :limit

-- :name gaps
SELECT c.run_id, p.producer, g.first_seq, g.last_seq
FROM gaps g
JOIN cursors c ON c.run_key = g.run_key
JOIN producers p ON p.run_key = g.run_key AND p.producer_no = g.producer_no
ORDER BY g.run_key, g.producer_no, g.first_seq LIMIT :limit
