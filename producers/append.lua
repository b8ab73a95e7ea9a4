-- Appends commands of one partition's runs in order; a run stops at its first error.
--
-- KEYS[1]   ready, the sorted set of runs that have something to read
-- KEYS[2..] the runs' streams
-- ARGV[1]   milliseconds, the score of the marks
-- ARGV[2]   how many messages a stream may hold before it takes no more, 0 for any number
-- ARGV[3..] for each stream: run id, number of commands, then for each command the number of its
--           field and value strings and these
--
-- Returns for each stream {error or false, message id, message id, ...}.
--
-- One script and not a pipeline: after an error (memory full, key of another type) a pipeline would
-- go on with the run's later commands, and what failed would arrive behind them.
-- The mark comes first: one with nothing behind it is harmless, a command without a mark waits.
local at = 3
local messages_max = tonumber(ARGV[2])
local outcomes = {}
for stream = 2, #KEYS do
  local run, commands = ARGV[at], tonumber(ARGV[at + 1])
  at = at + 2
  local outcome = { false }
  local marked = redis.pcall('ZADD', KEYS[1], 'LT', ARGV[1], run)
  if type(marked) == 'table' and marked.err then
    outcome[1] = marked.err
  end
  local room = math.huge
  if messages_max > 0 and not outcome[1] then
    local length = redis.pcall('XLEN', KEYS[stream])
    if type(length) == 'table' then
      outcome[1] = length.err
    else
      room = messages_max - length
    end
  end
  for _ = 1, commands do
    local strings = tonumber(ARGV[at])
    if not outcome[1] and room < 1 then
      outcome[1] = 'STREAMFULL the stream holds ' .. messages_max .. ' messages'
    end
    if not outcome[1] then
      room = room - 1
      local id = redis.pcall('XADD', KEYS[stream], '*', unpack(ARGV, at + 1, at + strings))
      if type(id) == 'table' and id.err then
        outcome[1] = id.err
      else
        outcome[#outcome + 1] = id
      end
    end
    at = at + 1 + strings
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
