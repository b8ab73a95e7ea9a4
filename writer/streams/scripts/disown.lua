#!lua flags=allow-oom
-- Give a partition back, if it is still ours.
--
-- KEYS  [1] owner   ARGV  [1] writer
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
