#!lua flags=allow-oom
-- Take or renew a partition. `allow-oom`: a full Redis must still have a writer that empties it.
--
-- KEYS  [1] owner
-- ARGV  [1] writer   [2] ttl in ms   [3] the owner that may be replaced ('' none, a dead one's value)
--
-- Returns the owner after the call: ARGV[1] if the partition is ours until the TTL ends.
local owner = redis.call('GET', KEYS[1])
if not owner or owner == ARGV[1] or owner == ARGV[3] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return ARGV[1]
end
return owner
