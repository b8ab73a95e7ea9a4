#!lua flags=allow-oom
-- After a commit: raise the mark, then trim what is settled, then remove emptied streams of finished
-- runs. In this order, so that dying in between loses nothing. `allow-oom`: it must also work in a full
-- Redis, for it is what makes room.
--
-- KEYS  [1] mark   [2] owner   [3..] streams
-- ARGV  [1] writer   [2] commit_seq   [3] lineage   [4] epoch   [5] end of the archive ('' none)
--       then four for each stream: first id to keep ('' trims nothing), last trim point, id of the
--       message that was settled last, and the last id of a stream that may go if it is empty
--       ('' keeps it)
--
-- Returns 'lost' if another writer owns the partition, else an array with one word per stream:
-- trimmed, kept, gone, or regressed: it is not the stream that was read, for its first id lies
-- below what was trimmed before, or it has older messages than the one settled last, but not that one.
local owner = redis.call('GET', KEYS[2])
if owner and owner ~= ARGV[1] then return 'lost' end

local function before(one, other)
  local ms1, n1 = one:match('^(%d+)-(%d+)$')
  local ms2, n2 = other:match('^(%d+)-(%d+)$')
  -- Numbers of up to 20 digits: compare as texts of equal length, a double would round them.
  local function less(a, b)
    if #a ~= #b then return #a < #b end
    return a < b
  end
  if ms1 ~= ms2 then return less(ms1, ms2) end
  return less(n1, n2)
end

local settled = tonumber(redis.call('HGET', KEYS[1], 'commit_seq') or '0')
if tonumber(ARGV[2]) > settled then
  redis.call('HSET', KEYS[1], 'commit_seq', ARGV[2], 'lineage', ARGV[3], 'epoch', ARGV[4],
    'archived', ARGV[5])
end

local words = {}
for index = 3, #KEYS do
  local stream = KEYS[index]
  local place = 6 + (index - 3) * 4
  local keep, trimmed, settled_last = ARGV[place], ARGV[place + 1], ARGV[place + 2]
  local last = ARGV[place + 3]
  local word = 'kept'
  -- A key that is no stream is not ours: it has no first message, and is kept.
  local found = redis.pcall('XRANGE', stream, '-', '+', 'COUNT', 1)
  local first = found[1]
  local newest = nil
  if first and settled_last ~= '' then
    newest = redis.call('XREVRANGE', stream, settled_last, '-', 'COUNT', 1)[1]
  end
  if first and trimmed ~= '' and before(first[1], trimmed) then
    word = 'regressed'
  elseif newest and newest[1] ~= settled_last then
    word = 'regressed'
  elseif first and keep ~= '' then
    redis.call('XTRIM', stream, 'MINID', keep)
    word = 'trimmed'
  elseif last ~= '' and not first and not found.err and redis.call('EXISTS', stream) == 1 then
    local info = redis.call('XINFO', 'STREAM', stream)
    for field = 1, #info, 2 do
      if info[field] == 'last-generated-id' and info[field + 1] == last then
        redis.call('UNLINK', stream)
        word = 'gone'
      end
    end
  end
  words[#words + 1] = word
end
return words
