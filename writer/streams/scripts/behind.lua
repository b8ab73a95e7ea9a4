-- How far streams are behind their cursors, without moving their messages to the client.
--
-- KEYS  streams
-- ARGV  for each: the last settled message id
--
-- Returns for each {length, settled ones among them (counted to 1000), last id ever given, id of
-- the first that waits or ''}, or false where there is no stream.
local found = {}
for at = 1, #KEYS do
  if redis.call('EXISTS', KEYS[at]) == 0 then
    found[at] = false
  else
    local length = redis.call('XLEN', KEYS[at])
    local settled = #redis.call('XRANGE', KEYS[at], '-', ARGV[at], 'COUNT', 1000)
    local info = redis.call('XINFO', 'STREAM', KEYS[at])
    local last = '0-0'
    for field = 1, #info, 2 do
      if info[field] == 'last-generated-id' then
        last = info[field + 1]
      end
    end
    local waiting = redis.call('XRANGE', KEYS[at], '(' .. ARGV[at], '+', 'COUNT', 1)
    found[at] = { length, settled, last, waiting[1] and waiting[1][1] or '' }
  end
end
return found
