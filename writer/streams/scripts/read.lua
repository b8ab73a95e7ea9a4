-- Read after each cursor, whole messages, until a byte budget is spent.
--
-- KEYS  streams, in the order in which they are to be read
-- ARGV  [1] budget in bytes   [2] messages at most   [3] messages at most of one stream
--       [4..] cursor of each stream
--
-- Returns an array per stream that was looked at: {more, {id, fields}, ...}; `more` is 1 if the
-- stream may hold further messages, -1 if the key is no stream. The first message is returned whatever its size, so that no
-- message can stop its stream. Streams after the one in which the budget ended are not in the reply.
local budget = tonumber(ARGV[1])
local left = tonumber(ARGV[2])
local most = tonumber(ARGV[3])
local reply = {}
local spent = 0

for index, stream in ipairs(KEYS) do
  local found = {0}
  local after = '(' .. ARGV[index + 3]
  local room = math.min(most, left)
  local step = 1
  while room > 0 and spent < budget do
    -- Chunks double, so that neither many small nor a few large messages cost much.
    local chunk = redis.pcall('XRANGE', stream, after, '+', 'COUNT', math.min(step, room))
    if chunk.err then
      found[1] = -1
      break
    end
    for _, item in ipairs(chunk) do
      local bytes = 0
      for _, text in ipairs(item[2]) do
        bytes = bytes + #text
      end
      if spent > 0 and spent + bytes > budget then
        found[1] = 1
        reply[#reply + 1] = found
        return reply
      end
      spent = spent + bytes
      left = left - 1
      found[#found + 1] = item
      after = '(' .. item[1]
    end
    if #chunk < math.min(step, room) then
      room = -1
    else
      room = room - #chunk
      if spent * 4 < budget then step = math.min(step * 2, 128) else step = 1 end
    end
  end
  if room >= 0 and found[1] == 0 then found[1] = 1 end
  reply[#reply + 1] = found
  if spent >= budget or left <= 0 then break end
end

return reply
