#!lua flags=allow-oom
-- Mark runs as ready. `allow-oom`: a writer that steps down in a full Redis must not drop its marks.
--
-- KEYS  [1] ready   ARGV  [1] score (ms, a hint only)   [2..] runs
for index = 2, #ARGV do
  redis.call('ZADD', KEYS[1], 'LT', ARGV[1], ARGV[index])
end
return #ARGV - 1
