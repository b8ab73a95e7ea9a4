#!lua flags=allow-oom
-- Tell hosts the number of partitions and the contract version, unless a writer has told them.
--
-- KEYS  [1] meta   ARGV  [1] partitions   [2] contract version
-- Returns the number of partitions that hosts are told.
redis.call('HSETNX', KEYS[1], 'partitions', ARGV[1])
redis.call('HSETNX', KEYS[1], 'contract_version', ARGV[2])
return redis.call('HGET', KEYS[1], 'partitions')
