#!lua flags=no-writes
-- Which streams hold messages; nothing of them is moved to the client.
--
-- KEYS  streams   ARGV  [1] 1: also tell the last ids of those that hold none
--
-- Returns for each: 1 if it holds any, else the last id that it ever gave out, or false: not asked
-- for, or no stream.
local found = {}
for at, stream in ipairs(KEYS) do
  local length = redis.pcall('XLEN', stream)
  found[at] = false
  if type(length) == 'number' and length > 0 then
    found[at] = 1
  elseif type(length) == 'number' and ARGV[1] == '1' then
    local info = redis.pcall('XINFO', 'STREAM', stream)
    for field = 1, #info, 2 do
      if info[field] == 'last-generated-id' then
        found[at] = info[field + 1]
      end
    end
  end
end
return found
