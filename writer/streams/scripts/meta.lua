#!lua flags=allow-oom
-- Tell hosts the number of partitions and the contract version, unless a writer has told them.
--
-- KEYS  [1] meta   ARGV  [1] partitions   [2] contract version
-- Returns the number of partitions that hosts are told.
redis.call('HSETNX', KEYS[1], 'partitions', ARGV[1])
local version = tonumber(redis.call('HGET', KEYS[1], 'contract_version') or '0')
if tonumber(ARGV[2]) > version then
  redis.call('HSET', KEYS[1], 'contract_version', ARGV[2])
end
return redis.call('HGET', KEYS[1], 'partitions')
